"""Normalised weighting against statsmodels, a second derivation and repeated releases."""

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
INF = math.inf
ESTIMANDS = ("ate", "att", "atc", "ato")
COVARIATES = "y ~ x1 + x2 + x3 + x4"


@pytest.fixture(scope="module")
def reference(births):
    logit = sm.Logit.from_formula(f"mbsmoke_ ~ {RIGHT}", births).fit(disp=0, maxiter=200)
    outcome = sm.OLS.from_formula("bweight ~ prenatal1_ + mmarried_ + mage + fbaby_", births)
    return TreatmentEffect(outcome, births["mbsmoke_"].to_numpy(), results_select=logit)


def exact(births: pd.DataFrame, **options) -> dp.ATEResults:
    return dp.dp_ate(
        f"bweight ~ {RIGHT}", treat="mbsmoke_", data=births, eps=INF, method="nipw", **options
    )


@pytest.mark.parametrize(("estimand", "group"), [("ate", "all"), ("att", 1), ("atc", 0)])
def test_exact_estimates_and_standard_errors_are_those_of_statsmodels(
    births, reference, estimand, group
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = reference.ipw(return_results=True, effect_group=group)
    found = exact(births, estimand=estimand)
    assert found.params.iloc[0] == pytest.approx(float(np.ravel(expected.effect)[0]), rel=1e-6)
    # the generalised method of moments there iterates to a tolerance of its own
    se = float(expected.results_gmm.bse[0])
    assert found.bse.iloc[0] == pytest.approx(se, rel=1e-4)
    assert "fixed" not in " ".join(found.diagnostics["reading"])
    assert "account for the estimation of the propensity" in found.summary().as_text()


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_exact_against_a_second_derivation(births, estimand) -> None:
    """Point estimate by hand, standard error by stacking the moments and numerical derivatives."""
    x = sm.Logit.from_formula(f"mbsmoke_ ~ {RIGHT}", births).exog
    w = births["mbsmoke_"].to_numpy(float)
    x = x / np.abs(x).max(axis=0)
    y = births["bweight"].to_numpy(float) / 1000.0
    b = sm.Logit(w, x).fit(disp=0, maxiter=200).params

    def weights(e: np.ndarray) -> np.ndarray:
        treated = {"ate": 1 / e, "att": e / e, "atc": (1 - e) / e, "ato": 1 - e}[estimand]
        control = {"ate": 1 / (1 - e), "att": e / (1 - e), "atc": e / e, "ato": e}[estimand]
        return np.where(w == 1, treated, control)

    def moments(theta: np.ndarray) -> np.ndarray:
        e = 1.0 / (1.0 + np.exp(-x @ theta[2:]))
        h = weights(e)
        return np.column_stack(
            [w * h * (y - theta[0]), (1 - w) * h * (y - theta[1]), (w - e)[:, None] * x]
        )

    h = weights(1.0 / (1.0 + np.exp(-x @ b)))
    means = np.average(y, weights=w * h), np.average(y, weights=(1 - w) * h)
    theta = np.array([*means, *b])
    step = 1e-5
    bread = np.column_stack(
        [
            (moments(theta + move).mean(0) - moments(theta - move).mean(0)) / (2 * step)
            for move in step * np.eye(theta.size)
        ]
    )
    inverse = np.linalg.inv(bread)
    meat = moments(theta).T @ moments(theta) / len(y) ** 2
    covariance = inverse @ meat @ inverse.T
    variance = covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1]
    found = exact(births, estimand=estimand)
    assert found.params.iloc[0] == pytest.approx(1000.0 * (means[0] - means[1]), rel=1e-6)
    assert found.bse.iloc[0] == pytest.approx(1000.0 * math.sqrt(variance), rel=1e-5)


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_exact_with_overlap_and_known_propensities(estimand) -> None:
    trial = dp.simulate.ate("well_specified", 400, rng=3)
    frame = trial.data.assign(p=np.linspace(0.05, 0.9, 400))
    y, w, p = (frame[name].to_numpy(float) for name in ("y", "w", "p"))
    found = dp.dp_ate(
        "y ~ 1", treat="w", data=frame, eps=INF, method="nipw", propensity="p", estimand=estimand
    )
    treated = {"ate": 1 / p, "att": p / p, "atc": (1 - p) / p, "ato": 1 - p}[estimand]
    control = {"ate": 1 / (1 - p), "att": p / (1 - p), "atc": p / p, "ato": p}[estimand]
    means = np.average(y, weights=w * treated), np.average(y, weights=(1 - w) * control)
    assert found.params.iloc[0] == pytest.approx(means[0] - means[1], rel=1e-9)
    influence = w * treated * (y - means[0]) / np.sum(w * treated)
    influence -= (1 - w) * control * (y - means[1]) / np.sum((1 - w) * control)
    assert found.bse.iloc[0] == pytest.approx(math.sqrt(influence @ influence), rel=1e-9)


def run(data, **options) -> dp.ATEResults:
    options = {"eps": 1.0, "bounds": data.bounds, "method": "nipw", "rng": 1, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dp.dp_ate(COVARIATES, treat="w", data=data.data, **options)


@pytest.mark.parametrize(
    ("estimand", "largest"), [("ate", 10.0), ("att", 9.0), ("atc", 9.0), ("ato", 1.0)]
)
def test_sensitivities_of_the_record(estimand, largest) -> None:
    data = dp.simulate.ate("well_specified", 500, rng=1)
    joint = run(data, estimand=estimand).privacy.releases.set_index("release")
    assert list(joint.index) == ["propensity", "propensity (solver)", "numerators", "variances"]
    assert joint.loc["numerators", "sensitivity"] == pytest.approx(2.0 * largest)
    split = {"propensity": 0.2, "numerators": 0.4, "denominators": 0.4}
    for noise, root in (({}, 2.0), ({"delta": 1e-6}, math.sqrt(2.0))):
        for wished in (split, "published"):
            two = run(data, estimand=estimand, split=wished, **noise)
            found = two.privacy.releases.set_index("release")["sensitivity"]
            # C = 1.5
            assert found["numerators"] == pytest.approx(2.0 * 1.5 * largest)
            assert found["denominators"] == pytest.approx(root * largest)


def test_joint_release_has_half_the_variance_of_two() -> None:
    data = dp.simulate.ate("randomised", 4000, rng=2)
    sds = []
    for split in ({"numerators": 1.0}, {"numerators": 0.5, "denominators": 0.5}):
        results = [run(data, propensity=0.5, split=split, rng=seed) for seed in range(400)]
        sds.append(np.std([found.params.iloc[0] for found in results]))
    # an sd of 400 draws is known to 4 %
    assert sds[1] / sds[0] == pytest.approx(math.sqrt(2.0), rel=0.15)


def test_overlap_weights_need_no_clipping_and_little_noise() -> None:
    data = dp.simulate.ate("well_specified", 4000, rng=2)
    noise = {e: run(data, estimand=e).noise_sd() for e in ("ate", "ato")}
    assert noise["ato"] < 0.75 * noise["ate"]
    assert "not clipped" in run(data, estimand="ato").summary().as_text()


def test_sums_of_weights_show_clipping() -> None:
    bad = dp.simulate.ate("low_overlap", 20_000, rng=4)
    good = dp.simulate.ate("well_specified", 20_000, rng=4)
    for estimand in ("ate", "att"):
        readings = [
            " ".join(run(data, eps=3.0, estimand=estimand).diagnostics["reading"])
            for data in (bad, good)
        ]
        assert "biases the estimate" in readings[0]
        assert "biases the estimate" not in readings[1]


@pytest.mark.parametrize("eps", [0.5, 3.0])
@pytest.mark.parametrize("process", ["well_specified", "strong_confounding", "low_overlap"])
def test_intervals_cover(process, eps) -> None:
    """40 files: fewer than 33 covered has probability 0.4 % at a coverage of 92 %."""
    covered, errors, widths = 0, [], []
    for seed in range(40):
        data = dp.simulate.ate(process, 4000, rng=500 + seed)
        found = run(data, eps=eps, rng=seed)
        low, high = found.conf_int().iloc[0]
        covered += low <= 2.0 <= high
        errors.append(found.params.iloc[0] - 2.0)
        widths.append(high - low)
    assert covered >= 33
    if process != "low_overlap":
        assert np.median(widths) < 1.6 * 2.0 * 1.96 * np.std(errors)


def test_saved_and_loaded(tmp_path) -> None:
    data = dp.simulate.ate("well_specified", 800, rng=1)
    found = run(data, estimand="att")
    found.save(tmp_path / "r.json")
    again = dp.load(tmp_path / "r.json")
    assert again.summary().as_text() == found.summary().as_text()
    assert again.to_dict() == found.to_dict()
