"""The panels against the laws in their descriptions, and against the published data.

Statistical checks allow six standard errors at fixed seeds (false-alarm rate 2e-9 each);
Kolmogorov-Smirnov tests alarm below 1e-5.
"""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest, norm, truncnorm, uniform

from dpstats import simulate
from dpstats.errors import DPStatsError

NAMES = ("linear", "linear_as_run", "factor", "smooth")


def matrix(made):
    return made.data["y"].to_numpy().reshape(made.data["unit"].nunique(), -1)


def test_names():
    assert simulate.names("panel") == NAMES
    assert simulate.names() == simulate.names("ate") + NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("effect", [0.0, -3.0, [1.0, 2.0, 6.0]])
def test_frame_and_truth(name, effect):
    made = simulate.panel(
        name, n_donors=20, periods=12, pre_periods=9, effect=effect, rng=np.random.default_rng(4)
    )
    data = made.data
    assert list(data.columns) == ["unit", "time", "y", "treated"]
    assert len(data) == 21 * 12
    assert data[["unit", "time"]].equals(data[["unit", "time"]].sort_values(["unit", "time"]))
    assert not data.duplicated(["unit", "time"]).any()
    assert (made.unit, made.time, made.outcome) == ("unit", "time", "y")
    assert (made.treated, made.T0) == (0, 9)
    ones = data.loc[data["treated"] == 1]
    assert set(ones["unit"]) == {0}
    assert list(ones["time"]) == [10, 11, 12]
    gap = matrix(made)[0] - made.counterfactual.to_numpy()
    np.testing.assert_allclose(gap[:9], 0, atol=0)
    np.testing.assert_allclose(gap[9:], effect, atol=1e-12)
    assert made.truth["ATT"] == pytest.approx(np.mean(effect))
    assert made.counterfactual.index.equals(made.signal.index)
    assert made.counterfactual.index.name == "time"
    assert list(made.counterfactual.index) == list(range(1, 13))
    assert all(len(line) <= 100 for line in made.DESCR.splitlines())
    untouched = simulate.panel(name, n_donors=20, periods=12, pre_periods=9, rng=4)
    np.testing.assert_array_equal(matrix(untouched)[1:], matrix(made)[1:])
    pd.testing.assert_series_equal(untouched.counterfactual, made.counterfactual)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("linear", (11, 13)), ("linear_as_run", (11, 13)), ("factor", (1001, 30))],
)
def test_defaults(name, shape):
    made = simulate.panel(name, rng=0)
    assert matrix(made).shape == shape
    assert made.truth == {"ATT": 0.0}


@pytest.mark.parametrize("name", NAMES)
def test_few_cells_lie_outside_the_bounds(name):
    low, high = simulate.panel(name, n_donors=5, rng=0).bounds["y"]
    allowed = {"linear": 0.0, "linear_as_run": 0.05, "factor": 0.02, "smooth": 0.002}[name]
    shares = []
    for seed in range(20):
        y = matrix(simulate.panel(name, n_donors=500, rng=seed))
        shares.append(np.mean((y < low) | (y > high)))
    assert np.mean(shares) <= allowed


def test_linear_is_the_published_process():
    made = simulate.panel("linear", n_donors=20_000, periods=13, pre_periods=10, rng=1)
    y = matrix(made)
    time = np.arange(1, 14)
    slope = y @ time / (time @ time)
    # The noise blurs the slope by .1 / sqrt(819); the limits are checked with room for it.
    assert slope.min() > 3 - 0.02
    assert slope.max() < 5 + 0.02
    blurred = slope - slope.mean()
    assert abs(slope.mean() - 4) < 6 * slope.std() / np.sqrt(len(slope))
    exact = truncnorm(-1, 1, loc=4, scale=1)
    assert blurred.std() == pytest.approx(exact.std(), rel=0.02)
    assert kstest(slope, exact.cdf).pvalue > 1e-5
    residual = y - slope[:, None] * time
    assert np.sqrt((residual**2).sum() / (20_001 * 12)) == pytest.approx(0.1, rel=0.01)
    assert made.bounds["y"] == (2.0, 66.0)


def test_linear_as_run_looks_like_the_published_file():
    # data_10_10.csv of github.com/srho1/dpsc: 11 units, 13 periods. Root mean squared value after
    # period 10 averaged over units .756 (target .783), residual sd about the unit's line .0546.
    values, residuals = [], []
    time = np.column_stack([np.ones(13), np.arange(1, 14)])
    for seed in range(200):
        made = simulate.panel("linear_as_run", rng=seed)
        y = matrix(made)
        values.append(np.sqrt((y[:, 10:] ** 2).mean(axis=1)).mean())
        fitted = time @ np.linalg.lstsq(time, y.T, rcond=None)[0]
        residuals.append(((y.T - fitted) ** 2).sum() / (11 * 11))
        assert y.min() >= -1.1
        assert y.max() <= 1.1
    assert abs(0.756 - np.mean(values)) < 3 * np.std(values)
    sd = 0.1 * truncnorm(-1, 1).std()
    assert np.sqrt(np.mean(residuals)) == pytest.approx(sd, rel=0.02)
    assert sd == pytest.approx(0.0546, rel=0.07)


def test_linear_as_run_draws_the_slopes_of_scipy():
    made = simulate.panel("linear_as_run", n_donors=20_000, rng=2)
    slope = np.polyfit(np.arange(1, 14), matrix(made).T, 1)[0]
    # Scaling keeps the ratio of sd to mean; the noise adds its share of variance to the slope.
    noise = 0.1 * truncnorm(-1, 1).std() / np.sqrt(182)
    law = truncnorm(3, 5, loc=4, scale=1)
    assert law.mean() == pytest.approx(7.28, abs=0.01)
    ratio = np.sqrt(slope.var() - noise**2) / slope.mean()
    assert ratio == pytest.approx(law.std() / law.mean(), rel=0.05)


def test_factor_has_three_factors_levels_and_noise():
    made = simulate.panel("factor", n_donors=20_000, rng=3)
    y = matrix(made)
    centred = y - y.mean(axis=1, keepdims=True)
    eigenvalues = np.linalg.eigvalsh(np.cov(centred, rowvar=False))[::-1]
    assert eigenvalues[2] > 3 * eigenvalues[3]
    # Rows sum to zero, so of the 30 eigenvalues three are factors and one is nothing.
    np.testing.assert_allclose(np.sqrt(eigenvalues[3:29]), 0.018, rtol=0.05)
    noise = made.counterfactual - made.signal
    assert kstest(noise / 0.018, norm.cdf).pvalue > 1e-5
    _, _, basis = np.linalg.svd(centred - centred.mean(axis=0), full_matrices=False)
    space = np.vstack([np.ones(30) / np.sqrt(30), basis[:3]])
    coordinates = y @ np.linalg.pinv(space)
    # The level is uniform whatever the walks are: its spread is seen in the intercept left over
    # after the loadings are taken out, up to a shift that is common to all.
    design = np.column_stack([np.ones(len(y)), coordinates[:, 1:]])
    level = coordinates[:, 0] - design @ np.linalg.lstsq(design, coordinates[:, 0], rcond=None)[0]
    level /= np.sqrt(30)
    assert kstest(level, uniform(-0.5, 1).cdf).statistic < 0.02


def test_smooth_is_smooth():
    made = simulate.panel("smooth", n_donors=20_000, rng=4)
    y = matrix(made)
    pairs = np.cov(y - y.mean(axis=1, keepdims=True), rowvar=False)
    eigenvalues = np.linalg.eigvalsh(pairs)[::-1]
    np.testing.assert_allclose(np.sqrt(eigenvalues[4:29]), 0.5, rtol=0.05)
    # Waves of 1 and 2 cycles sum to zero over the panel, the others do not.
    bend = np.diff(made.signal, n=2)
    assert np.abs(bend).max() < 0.5 * np.ptp(made.signal)
    assert kstest((made.counterfactual - made.signal) / 0.5, norm.cdf).pvalue > 1e-5
    assert made.bounds["y"] == (0.0, 40.0)


@pytest.mark.parametrize(
    ("name", "ridge", "did", "last"), [("factor", 0.024, 0.055, 0.09), ("smooth", 0.65, 1.31, 3.3)]
)
def test_difficulty_is_that_of_the_design(name, ridge, did, last):
    """Median errors of ordinary methods at 1000 donors, near those of methods-synth.md."""
    errors = []
    penalty = {"factor": 0.03, "smooth": 100.0}[name]
    for seed in range(60):
        y = matrix(simulate.panel(name, n_donors=1000, rng=seed))
        pre, post = y[:, :20], y[:, 20:]
        level = pre.mean(axis=1, keepdims=True)
        a, b = (pre - level)[1:], (post - level)[1:]
        own, later = (pre - level)[0], (post - level)[0]
        weights = np.linalg.solve(a.T @ a + penalty * np.eye(20), own)
        errors.append(
            [
                np.sqrt(np.mean((later - guess) ** 2))
                for guess in (b.T @ (a @ weights), b.mean(axis=0), own[-1])
            ]
        )
    np.testing.assert_allclose(np.median(errors, axis=0), [ridge, did, last], rtol=0.25)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_donors": 0}, r"`n_donors` must be a whole number of at least 1; got 0"),
        ({"periods": 2.0}, r"`periods` must be a whole number"),
        ({"pre_periods": 1}, r"`pre_periods` must be a whole number of at least 2; got 1"),
        ({"pre_periods": 30}, r"`pre_periods` must be smaller than `periods`; got 30 and 30"),
        ({"effect": np.nan}, r"`effect` must be a finite number"),
        ({"effect": [1.0, 2.0]}, r"`effect` must be a finite number, or one for each of the 10"),
        ({"effect": "one"}, r"`effect` must be"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(DPStatsError, match=message):
        simulate.panel("factor", **options)


def test_bad_name():
    with pytest.raises(DPStatsError, match=r"`name` must be one of 'linear', .*; got 'binary'"):
        simulate.panel("binary")
