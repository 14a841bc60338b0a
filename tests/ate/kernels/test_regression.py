"""Regression adjustment against statsmodels, repeated releases and files that are hard on it."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from statsmodels.treatment.treatment_effects import TreatmentEffect

import dpstats as dp

RIGHT = "mmarried_ + mage + mage2 + fbaby_ + medu"
COVARIATES = "y ~ x1 + x2 + x3 + x4"
INF = math.inf
ESTIMANDS = ("ate", "att", "atc")
NOISES = pytest.mark.parametrize("noise", [{}, {"delta": 1e-6}], ids=["laplace", "gaussian"])


def run(data, formula: str = COVARIATES, **options) -> dp.ATEResults:
    options = {"eps": 1.0, "bounds": data.bounds, "method": "regression", "rng": 1, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.PrivacyWarning)
        warnings.simplefilter("ignore", dp.UtilityWarning)
        return dp.dp_ate(formula, treat="w", data=options.pop("frame", data.data), **options)


# -------------------------------------------------------------------------- without noise


@pytest.mark.parametrize(("estimand", "group"), [("ate", "all"), ("att", 1), ("atc", 0)])
def test_exact_estimates_and_standard_errors_are_those_of_statsmodels(
    births, estimand, group
) -> None:
    logit = sm.Logit.from_formula(f"mbsmoke_ ~ {RIGHT}", births).fit(disp=0, maxiter=200)
    outcome = sm.OLS.from_formula(f"bweight ~ {RIGHT}", births)
    reference = TreatmentEffect(outcome, births["mbsmoke_"].to_numpy(), results_select=logit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = reference.ra(return_results=True, effect_group=group)
    found = dp.dp_ate(
        f"bweight ~ {RIGHT}",
        treat="mbsmoke_",
        data=births,
        eps=INF,
        method="regression",
        estimand=estimand,
    )
    assert found.params.iloc[0] == pytest.approx(float(np.ravel(expected.effect)[0]), rel=1e-6)
    assert found.bse.iloc[0] == pytest.approx(float(expected.results_gmm.bse[0]), rel=1e-4)
    text = found.summary().as_text()
    assert "account for the estimation of the outcome models" in " ".join(text.split())
    assert "ropensities" not in " ".join(found.diagnostics["reading"])


def test_exact_with_collinear_and_empty_designs() -> None:
    data = dp.simulate.ate("well_specified", 400, rng=3)
    frame = data.data.assign(x5=2.0 * data.data["x1"] - 1.0)
    twice = dp.dp_ate("y ~ x1 + x5", treat="w", data=frame, eps=INF, method="regression")
    once = dp.dp_ate("y ~ x1", treat="w", data=frame, eps=INF, method="regression")
    assert twice.params.iloc[0] == pytest.approx(once.params.iloc[0], rel=1e-9)
    assert twice.bse.iloc[0] == pytest.approx(once.bse.iloc[0], rel=1e-9)
    none = dp.dp_ate("y ~ 1", treat="w", data=frame, eps=INF, method="regression")
    y, w = frame["y"], frame["w"] == 1
    assert none.params.iloc[0] == pytest.approx(y[w].mean() - y[~w].mean(), rel=1e-12)
    parts = [y[arm].var(ddof=0) / arm.sum() for arm in (w, ~w)]
    assert none.bse.iloc[0] == pytest.approx(math.sqrt(sum(parts)), rel=1e-12)


@NOISES
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_huge_epsilon_is_the_exact_run(trial, noise, estimand) -> None:
    exact = run(trial, eps=INF, rng=None, estimand=estimand)
    found = run(trial, eps=1e9, estimand=estimand, **noise)
    assert found.params.iloc[0] == pytest.approx(exact.params.iloc[0], abs=1e-4)
    assert found.bse.iloc[0] == pytest.approx(exact.bse.iloc[0], rel=0.05)


# ------------------------------------------------------------------------------- releases


@NOISES
def test_records_and_rounds(trial, noise) -> None:
    sizes = (2.0, math.sqrt(2.0)) if not noise else (math.sqrt(2.0),) * 2
    for eps, rounds in ((0.5, 1), (1.0, 2)):
        table = run(trial, eps=eps, rows_per_person=3, **noise).privacy.releases
        names = ["moments (first)", "moments"][2 - rounds :] if not noise else ["moments"]
        assert list(table["release"]) == names
        assert table["sensitivity"].to_numpy() == pytest.approx(3.0 * sizes[0])
        assert table["epsilon"].sum() == pytest.approx(eps, rel=1e-12)
        assert table["delta"].sum() == pytest.approx(noise.get("delta", 0.0))
        assert ("two rounds" in table["mechanism"].iloc[0]) == (bool(noise) and rounds == 2)


@NOISES
def test_one_release_serves_three_estimands(trial, noise) -> None:
    found = run(trial, eps=3.0, **noise)
    for estimand in ESTIMANDS:
        again = run(trial, eps=3.0, estimand=estimand, **noise)
        other = found.estimand(estimand)
        assert other.params.equals(again.params)
        assert other.bse.equals(again.bse)
        assert other.conf_int().equals(again.conf_int())
    with pytest.raises(dp.DPStatsError, match="`name` must be ate or att or atc"):
        found.estimand("ato")


def test_a_split_has_one_share(trial) -> None:
    assert run(trial, split={"moments": 1.0}).params.equals(run(trial).params)
    assert run(trial, split="published").params.equals(run(trial).params)
    with pytest.raises(dp.DPStatsError, match=r"`split` must give a share.*\(moments\)"):
        run(trial, split={"score": 1.0})


@NOISES
def test_units_rows_and_dtypes_do_not_matter(noise) -> None:
    """Exactly: with numbers and bounds that every dtype and shift holds to the last bit."""
    rng = np.random.default_rng(1)
    x = np.rint(rng.normal(0.0, 40.0, (800, 2)).clip(-128, 128))
    w = (rng.random(800) < 1.0 / (1.0 + np.exp(-x[:, 0] / 40.0))).astype(int)
    y = np.rint(100.0 * w + x[:, 0] + rng.normal(0.0, 20.0, 800)).clip(-256, 256)
    frame = pd.DataFrame({"y": y, "w": w, "a": x[:, 0], "b": x[:, 1]})
    bounds = {"y": (-256.0, 256.0), "a": (-128.0, 128.0), "b": (-128.0, 128.0)}

    def fit(frame, **more):
        bounds_ = {**bounds, **more}
        found = dp.dp_ate(
            "y ~ a + b", "w", frame, 3.0, bounds=bounds_, method="regression", rng=1, **noise
        )
        return [*found.params, *found.bse, *found.conf_int().to_numpy().ravel()]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = fit(frame)
        shifted = fit(frame.assign(y=frame["y"] + 4096.0), y=(3840.0, 4352.0))
        larger = fit(frame.assign(y=frame["y"] * 8.0), y=(-2048.0, 2048.0))
        assert shifted == plain
        assert larger == [8.0 * value for value in plain]
        assert fit(frame.sample(frac=1.0, random_state=3)) == plain
        for change in (
            {"y": "float32", "a": "float32"},
            {"y": "int64", "b": "int32", "w": "bool"},
            {"y": "Int64", "a": "Float64", "w": "boolean"},
        ):
            assert fit(frame.astype(change)) == plain, change


def test_own_design_of_the_propensity_and_known_ones_are_not_used(trial) -> None:
    plain = run(trial)
    for propensity in ("~ x1", 0.4):
        assert run(trial, propensity=propensity).params.equals(plain.params)


# -------------------------------------------------------------------------- hard files


def hard(name: str) -> tuple[pd.DataFrame, str]:
    data = dp.simulate.ate("well_specified", 2 if name == "two rows" else 60, rng=4).data
    formula = COVARIATES
    if name == "two rows":
        data = data.assign(w=[0, 1])
    if name == "constant":
        data = data.assign(y=2.5)
    if name == "all treated":
        data = data.assign(w=1)
    if name == "collinear":
        data = data.assign(x2=data["x1"], x3=data["x1"])
    if name == "constant column":
        data = data.assign(x1=2.0)
    if name == "extreme":
        data = data.assign(y=np.where(data["w"] == 1, 2.5, -0.5), x1=np.inf, x2=-np.inf)
    if name == "one column":
        formula = "y ~ x1"
    if name == "no columns":
        formula = "y ~ 1"
    return data, formula


HARD = (
    *("two rows", "constant", "all treated", "collinear", "constant column", "extreme"),
    *("one column", "no columns"),
)


@NOISES
@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("method", ["regression", "aipw", "blocking"])
def test_hard_files_give_finite_answers_in_silence(name, method, noise) -> None:
    """All methods with an outcome model; C = 1.5."""
    frame, formula = hard(name)
    bounds = dp.simulate.ate("well_specified", 2, rng=1).bounds
    options = {"blocks": 3, "adjust": True} if method == "blocking" else {}
    for eps in (1e-6, 1.0, 1e8):
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            warnings.simplefilter("ignore", dp.PrivacyWarning)
            warnings.simplefilter("ignore", dp.UtilityWarning)
            found = dp.dp_ate(
                formula, "w", frame, eps, bounds=bounds, method=method, rng=1, **noise, **options
            )
            low, high = found.conf_int().iloc[0]
            text = found.summary(diagnostics=True).as_text()
        assert abs(found.params.iloc[0]) <= 3.0
        assert np.isfinite([*found.bse, low, high]).all()
        assert low < high
        assert "nan" not in text


# ------------------------------------------------------------------------------ inference


@pytest.mark.parametrize(("noise", "eps"), [({"delta": 1e-6}, 0.5), ({}, 3.0)])
def test_simulated_errors_agree_with_repeated_releases(trial, noise, eps) -> None:
    released = [run(trial, eps=eps, rng=seed, **noise).released for seed in range(300)]
    # an sd of 300 draws with long tails is known to 6 %, and one release tells it to about 30 %
    for estimand in ESTIMANDS:
        observed = np.std([found.estimate(estimand) for found in released])
        simulated = [
            found.errors(estimand, 1000, np.random.default_rng(seed), "privacy").std()
            for seed, found in enumerate(released[:40])
        ]
        assert np.median(simulated) == pytest.approx(observed, rel=0.2)


@pytest.mark.parametrize(
    ("process", "least"), [("well_specified", 50), ("strong_confounding", 50), ("randomised", 50)]
)
@pytest.mark.parametrize("eps", [0.5, 3.0])
def test_intervals_cover(process, least, eps) -> None:
    """60 files: fewer than 50 covered has probability .3 % at a coverage of 93 %."""
    covered, errors, widths = 0, [], []
    for seed in range(60):
        data = dp.simulate.ate(process, 10_000, rng=900 + seed)
        found = run(data, eps=eps, rng=seed)
        low, high = found.conf_int().iloc[0]
        covered += low <= 2.0 <= high
        errors.append(found.params.iloc[0] - 2.0)
        widths.append(high - low)
    assert covered >= least
    assert np.median(widths) < 1.5 * 2.0 * 1.96 * np.std(errors)


# ---------------------------------------------------------------------------------- texts


def test_texts_and_storage(trial, tmp_path) -> None:
    for estimand in ESTIMANDS:
        found = run(trial, estimand=estimand)
        text = " ".join(found.summary(diagnostics=True).as_text().split())
        for words in (
            "Regression adjustment",
            "linear, by arm",
            "Propensity: none",
            "assume that outcomes are linear in the covariates",
            "under unconfoundedness given the covariates and overlap",
            "noisy share of treated",
        ):
            assert words in text, words
        found.save(tmp_path / "r.json", overwrite=True)
        again = dp.load(tmp_path / "r.json")
        one, two = (r.summary(diagnostics=True).as_text() for r in (found, again))
        assert one == two
        assert again.to_dict() == found.to_dict()
        assert again.estimand("atc").params.equals(found.estimand("atc").params)
    table = found.diagnostics.set_index(found.diagnostics.columns[0])
    share = float(table.loc["noisy share of treated"].iloc[0])
    assert abs(share - trial.data["w"].mean()) < 0.1
