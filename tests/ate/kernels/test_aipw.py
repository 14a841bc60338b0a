"""Augmented weighting against statsmodels, a second derivation and repeated releases."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from statsmodels.treatment.treatment_effects import TreatmentEffect

import dpstats as dp
from dpstats.propensity import Objective

RIGHT = "mmarried_ + mage + mage2 + fbaby_ + medu"
COVARIATES = "y ~ x1 + x2 + x3 + x4"
INF = math.inf
ESTIMANDS = ("ate", "att", "atc")
NOISES = pytest.mark.parametrize("noise", [{}, {"delta": 1e-6}], ids=["laplace", "gaussian"])


def run(data, formula: str = COVARIATES, **options) -> dp.ATEResults:
    options = {"eps": 1.0, "bounds": data.bounds, "method": "aipw", "rng": 1, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dp.dp_ate(formula, treat="w", data=options.pop("frame", data.data), **options)


# -------------------------------------------------------------------------- without noise


def test_exact_estimate_and_standard_error_are_those_of_statsmodels(births) -> None:
    logit = sm.Logit.from_formula(f"mbsmoke_ ~ {RIGHT}", births).fit(disp=0, maxiter=200)
    outcome = sm.OLS.from_formula(f"bweight ~ {RIGHT}", births)
    reference = TreatmentEffect(outcome, births["mbsmoke_"].to_numpy(), results_select=logit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = reference.aipw(return_results=True)
    found = dp.dp_ate(f"bweight ~ {RIGHT}", treat="mbsmoke_", data=births, eps=INF, method="aipw")
    assert found.params.iloc[0] == pytest.approx(float(np.ravel(expected.effect)[0]), rel=1e-6)
    assert found.bse.iloc[0] == pytest.approx(float(expected.results_gmm.bse[0]), rel=1e-4)
    text = " ".join(found.summary().as_text().split())
    assert "account for the estimation of the propensity and of the outcome models" in text


@pytest.mark.parametrize("own", ["", "~ mage + medu"])
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_exact_against_stacked_moments(births, estimand, own) -> None:
    """Point estimate by hand; standard error from all moments and numerical derivatives."""
    right = own[1:] or RIGHT
    x, v = (sm.Logit.from_formula(f"mbsmoke_ ~ {side}", births).exog for side in (RIGHT, right))
    x, v = x / np.abs(x).max(axis=0), v / np.abs(v).max(axis=0)
    w = births["mbsmoke_"].to_numpy(float)
    y = births["bweight"].to_numpy(float) / 1000.0
    members = {"ate": np.ones_like(w), "att": w, "atc": 1.0 - w}[estimand]
    p, q = x.shape[1], v.shape[1]

    def moments(theta: np.ndarray) -> np.ndarray:
        effect, b0, b1, g = theta[0], theta[1 : 1 + p], theta[1 + p : 1 + 2 * p], theta[-q:]
        e = 1.0 / (1.0 + np.exp(-v @ g))
        treated = {"ate": 1 / e, "att": e / e, "atc": (1 - e) / e}[estimand]
        control = {"ate": 1 / (1 - e), "att": e / (1 - e), "atc": e / e}[estimand]
        r0, r1 = y - x @ b0, y - x @ b1
        score = members * (x @ (b1 - b0) - effect)
        score = score + w * treated * r1 - (1 - w) * control * r0
        return np.column_stack(
            [
                score,
                ((1 - w) * r0)[:, None] * x,
                (w * r1)[:, None] * x,
                (w - e)[:, None] * v,
            ]
        )

    g = sm.Logit(w, v).fit(disp=0, maxiter=200).params
    b = [np.linalg.lstsq(x[w == a], y[w == a], rcond=None)[0] for a in (0, 1)]
    theta = np.array([0.0, *b[0], *b[1], *g])
    theta[0] = moments(theta)[:, 0].sum() / members.sum()
    step = 1e-5
    bread = np.column_stack(
        [
            (moments(theta + move).mean(0) - moments(theta - move).mean(0)) / (2 * step)
            for move in step * np.eye(theta.size)
        ]
    )
    inverse = np.linalg.inv(bread)
    meat = moments(theta).T @ moments(theta) / len(y) ** 2
    error = math.sqrt((inverse @ meat @ inverse.T)[0, 0])
    found = dp.dp_ate(
        f"bweight ~ {RIGHT}",
        treat="mbsmoke_",
        data=births,
        eps=INF,
        method="aipw",
        estimand=estimand,
        propensity=own or None,
    )
    assert found.params.iloc[0] == pytest.approx(1000.0 * theta[0], rel=1e-6)
    assert found.bse.iloc[0] == pytest.approx(1000.0 * error, rel=1e-5)


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_exact_with_known_propensities_and_overlap(estimand) -> None:
    data = dp.simulate.ate("well_specified", 400, rng=3)
    frame = data.data.assign(p=np.linspace(0.05, 0.9, 400))
    y, w, p = (frame[name].to_numpy(float) for name in ("y", "w", "p"))
    x = np.c_[np.ones(400), frame[["x1", "x2"]]]
    b = [np.linalg.lstsq(x[w == a], y[w == a], rcond=None)[0] for a in (0, 1)]
    members = {"ate": np.ones(400), "att": w, "atc": 1.0 - w}[estimand]
    for overlap in (None, 0.2):
        # a known column is clipped on both sides
        e = np.clip(p, overlap or 0.0, 1.0 - (overlap or 0.0))
        treated = {"ate": 1 / e, "att": e / e, "atc": (1 - e) / e}[estimand]
        control = {"ate": 1 / (1 - e), "att": e / (1 - e), "atc": e / e}[estimand]
        score = members * (x @ (b[1] - b[0])) + w * treated * (y - x @ b[1])
        score -= (1 - w) * control * (y - x @ b[0])
        found = run(
            data, "y ~ x1 + x2", frame=frame, eps=INF, rng=None, bounds=None, propensity="p",
            estimand=estimand, overlap=overlap,
        )  # fmt: skip
        assert found.params.iloc[0] == pytest.approx(score.sum() / members.sum(), rel=1e-9)


@NOISES
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_huge_epsilon_is_the_exact_run_but_for_clipped_residuals(trial, noise, estimand) -> None:
    exact = run(trial, eps=INF, rng=None, estimand=estimand, overlap=0.1)
    found = run(trial, eps=1e9, estimand=estimand, **noise)
    # three residual sds of .02, one row in 400 beyond them, weights up to ten
    assert found.params.iloc[0] == pytest.approx(exact.params.iloc[0], abs=1.5e-3)


def test_either_model_will_do() -> None:
    """Without noise to speak of: the wrong outcome model, or no propensity model, alone."""
    data = dp.simulate.ate("well_specified", 40_000, rng=5)
    raw = run(data, eps=100.0, method="diff_means").params.iloc[0] - 2.0
    assert raw < -0.08
    # the propensity has a square in it that the logit lacks, but little comes of it
    no_outcome = run(data, "y ~ 1", eps=100.0, propensity="~ x1 + x2 + x3 + x4")
    no_propensity = run(data, eps=100.0, propensity="~ x4")
    assert abs(no_outcome.params.iloc[0] - 2.0) < 0.2 * abs(raw)
    assert abs(no_propensity.params.iloc[0] - 2.0) < 0.02 * abs(raw)
    neither = run(data, "y ~ x4", eps=100.0, propensity="~ x4")
    assert abs(neither.params.iloc[0] - 2.0) > 0.8 * abs(raw)


# ------------------------------------------------------------------------------- releases


@NOISES
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_records(trial, noise, estimand) -> None:
    found = run(trial, estimand=estimand, rows_per_person=2, eps=4.0, **noise)
    table = found.privacy.releases.set_index("release")
    names = ["outcome", "propensity", "propensity (solver)", "score"]
    names += ["counts"] if estimand != "ate" else []
    assert list(table.index) == [*names, "variances"]
    assert table["epsilon"].sum() == pytest.approx(4.0, rel=1e-12)
    assert table["delta"].sum() == pytest.approx(noise.get("delta", 0.0), rel=1e-9)
    assert table.loc["outcome", "epsilon"] == pytest.approx(2.0)
    first = math.sqrt(2.0) if noise else 2.0
    assert table.loc["outcome", "sensitivity"] == pytest.approx(2.0 * first)
    # C = 1.5, the range of residuals and the largest weight; the mean of 4000
    largest = {"ate": 10.0, "att": 9.0, "atc": 9.0}[estimand]
    share = float(found.released.correction.half_width) / 1.5
    assert share < 1.0
    assert table.loc["score", "sensitivity"] == pytest.approx(
        2.0 * 2.0 * 1.5 * share * largest / 4000
    )


def test_residuals_cost_less_noise_than_outcomes(trial) -> None:
    plain, augmented = (run(trial, eps=6.0, method=m).privacy.releases for m in ("ipw", "aipw"))
    sizes = [t.set_index("release").loc["score", "sensitivity"] for t in (plain, augmented)]
    assert sizes[1] < 0.2 * sizes[0]


def test_splits(trial) -> None:
    wished = {"outcome": 0.5, "propensity": 0.2, "score": 0.3}
    found = run(trial, split=wished)
    table = found.privacy.releases.set_index("release")["epsilon"]
    assert table["outcome"] == pytest.approx(0.5)
    assert table["score"] == pytest.approx(0.3)
    assert "variances" not in table
    assert "Bhatia-Davis" in " ".join(found.diagnostics["reading"])
    published = run(trial, split="published").privacy.releases.set_index("release")["epsilon"]
    assert published["outcome"] == pytest.approx(0.4)
    # before anything is spent, not when the release is due
    for method in ("aipw", "ipw"):
        with pytest.raises(dp.DPStatsError, match="has no share for counts"):
            run(trial, split="published", estimand="att", method=method)
    with pytest.raises(dp.DPStatsError, match="`split` must give a share"):
        run(trial, split={"propensity": 0.5, "score": 0.5})


def test_estimands_are_releases_of_their_own(trial) -> None:
    found = run(trial, estimand="att")
    assert found.estimand("att").params.equals(found.params)
    with pytest.raises(dp.DPStatsError, match="at the cost of a new release"):
        found.estimand("ate")


@NOISES
@pytest.mark.parametrize(
    "propensity", [None, "~ x1", 0.4, "p", Objective(penalty=3.0), dp.propensity.Output()]
)
def test_propensities_of_every_kind(trial, noise, propensity) -> None:
    frame = trial.data.assign(p=0.4)
    for estimand in ESTIMANDS:
        found = run(trial, frame=frame, eps=3.0, propensity=propensity, estimand=estimand, **noise)
        assert found.params.iloc[0] == pytest.approx(2.0, abs=0.15)
        assert 0.0 < found.bse.iloc[0] < 0.15
        names = set(found.privacy.releases["release"])
        assert ("propensity" in names) == (propensity not in (0.4, "p"))


def test_a_design_of_its_own_is_never_taken_for_the_covariates(trial) -> None:
    """Same number of columns, other columns: what its weights do to the covariates is unknown."""
    for propensity, shared in ((None, True), ("~ x4 + x3 + x2 + x1", False)):
        found = run(trial, eps=3.0, propensity=propensity)
        assert found.released.model.shared is shared
        draws = found.released._models("ate", np.random.default_rng(0))
        assert np.isfinite(draws).all()
        assert draws.std() > 0.0
    known = run(trial, eps=3.0, propensity=0.5)
    assert not known.released._models("ate", np.random.default_rng(0)).any()


@NOISES
def test_units_rows_and_dtypes_do_not_matter(noise) -> None:
    rng = np.random.default_rng(1)
    x = np.rint(rng.normal(0.0, 40.0, (800, 2)).clip(-128, 128))
    w = (rng.random(800) < 1.0 / (1.0 + np.exp(-x[:, 0] / 40.0))).astype(int)
    y = np.rint(100.0 * w + x[:, 0] + rng.normal(0.0, 20.0, 800)).clip(-256, 256)
    frame = pd.DataFrame({"y": y, "w": w, "a": x[:, 0], "b": x[:, 1]})
    bounds = {"y": (-256.0, 256.0), "a": (-128.0, 128.0), "b": (-128.0, 128.0)}

    def fit(frame, **more):
        found = dp.dp_ate(
            "y ~ a + b", "w", frame, 9.0, bounds={**bounds, **more}, method="aipw", rng=1, **noise
        )
        return [*found.params, *found.bse, *found.conf_int().to_numpy().ravel()]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = fit(frame)
        assert fit(frame.assign(y=frame["y"] + 4096.0), y=(3840.0, 4352.0)) == plain
        larger = fit(frame.assign(y=frame["y"] * 8.0), y=(-2048.0, 2048.0))
        assert larger == pytest.approx([8.0 * value for value in plain], rel=1e-12)
        assert fit(frame.sample(frac=1.0, random_state=3)) == plain
        for change in (
            {"y": "float32", "a": "float32"},
            {"y": "int64", "b": "int32", "w": "bool"},
            {"y": "Int64", "a": "Float64", "w": "boolean"},
        ):
            assert fit(frame.astype(change)) == plain, change


# ------------------------------------------------------------------------------ inference


@pytest.mark.parametrize(
    ("noise", "eps", "estimand"),
    [({}, 1.0, "ate"), ({"delta": 1e-6}, 3.0, "ate"), ({}, 3.0, "att")],
)
def test_simulated_errors_agree_with_repeated_releases(trial, noise, eps, estimand) -> None:
    released = [
        run(trial, eps=eps, rng=seed, estimand=estimand, **noise).released for seed in range(250)
    ]
    observed = np.std([found.estimate(estimand) for found in released])
    simulated = [
        found.errors(estimand, 1000, np.random.default_rng(seed), "privacy").std()
        for seed, found in enumerate(released[:40])
    ]
    # an sd of 250 draws with long tails is known to 7 %
    assert np.median(simulated) == pytest.approx(observed, rel=0.25)


@pytest.mark.parametrize("process", ["well_specified", "strong_confounding"])
@pytest.mark.parametrize("eps", [0.5, 3.0])
def test_intervals_cover(process, eps) -> None:
    """60 files: fewer than 50 covered has probability .3 % at a coverage of 93 %."""
    covered, errors, widths = 0, [], []
    for seed in range(60):
        data = dp.simulate.ate(process, 10_000, rng=900 + seed)
        found = run(data, eps=eps, rng=seed)
        low, high = found.conf_int().iloc[0]
        covered += low <= 2.0 <= high
        errors.append(found.params.iloc[0] - 2.0)
        widths.append(high - low)
    assert covered >= 50
    assert np.median(widths) < 1.6 * 2.0 * 1.96 * np.std(errors)


# ---------------------------------------------------------------------------------- texts


def test_texts_and_storage(trial, tmp_path) -> None:
    for estimand in ESTIMANDS:
        found = run(trial, estimand=estimand, eps=3.0)
        text = " ".join(found.summary(diagnostics=True).as_text().split())
        for words in (
            "Augmented inverse probability weighting",
            "linear, by arm",
            "objective perturbation",
            "bias that is left where both models are wrong is not in them",
            "under unconfoundedness given the covariates and overlap",
            "range of residuals",
            "share of clipped propensities",
        ):
            assert words in text, words
        found.save(tmp_path / "r.json", overwrite=True)
        again = dp.load(tmp_path / "r.json")
        one, two = (r.summary(diagnostics=True).as_text() for r in (found, again))
        assert one == two
        assert again.to_dict() == found.to_dict()
