"""The cross sections against quadrature of another kind than the code's.

Expectations are by a product Gauss-Hermite rule in four dimensions (the code uses a trapezoidal
rule in three, and only for the binary truths). Statistical checks allow six standard errors, a
false-alarm rate of 2e-9 each, at fixed seeds.
"""

from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import kstest, norm

from dpstats import simulate
from dpstats.errors import DPStatsError

N = 200_000
INDEX = {
    "well_specified": lambda a, b, c, d: 0.4 - a + 0.5 * b + 0.025 * b * b - 0.25 * c - 0.1 * d,
    "low_overlap": lambda a, b, c, d: 1.5 - 2 * a + b + 0.05 * b * b - 0.5 * c - 0.2 * d,
    "unbalanced": lambda a, b, c, d: -2.187766 - a + b / 2 + b * b / 40 - c / 4 - d / 10,
    "randomised": lambda a, b, c, d: 0.0 * a,
}
INDEX["binary"] = INDEX["strong_confounding"] = INDEX["well_specified"]
OUTCOME = dict.fromkeys(INDEX, (0.1, -0.05, 0.05, -0.05))
OUTCOME["binary"] = (0.3, -0.2, 0.0, 0.0)
OUTCOME["strong_confounding"] = (1.0, -0.5, 0.5, -0.5)
NOISE = dict.fromkeys(INDEX, 0.02) | {"strong_confounding": 1.0}
CONTINUOUS = [name for name in INDEX if name != "binary"]


@lru_cache
def gauss_hermite(order=32):
    """Points z of shape (4, order^4) and weights, by the Cholesky factor of the covariance."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    pair = np.linalg.cholesky(np.array([[1, 0.2], [0.2, 1]]))
    root = np.kron(np.eye(2), pair)
    grid = np.array(np.meshgrid(*[nodes] * 4, indexing="ij")).reshape(4, -1)
    mass = np.prod(np.array(np.meshgrid(*[weights] * 4, indexing="ij")).reshape(4, -1), axis=0)
    return root @ grid + np.array([2, 4, 2, 4])[:, None], mass / mass.sum()


def moments(name):
    z, mass = gauss_hermite()
    e = expit(INDEX[name](*z))
    mean = np.array(OUTCOME[name]) @ z
    return e, mean, mass


def test_names():
    assert set(simulate.names("ate")) == set(INDEX)
    with pytest.raises(DPStatsError, match=r"`kind` must be one of 'ate', 'panel'; got 'synth'"):
        simulate.names("synth")


@pytest.mark.parametrize("name", INDEX)
def test_shape_and_facts(name):
    made = simulate.ate(name, 50, rng=0)
    assert list(made.data.columns) == ["y", "w", "x1", "x2", "x3", "x4"]
    assert made.data.shape == (50, 6)
    assert set(made.data["w"]) <= {0, 1}
    assert made.name == name
    assert made.propensity.shape == (50,)
    assert set(made.truth) == {"ATE", "ATT", "ATC", "ATO"}
    for bounds in (made.bounds, made.published_bounds):
        assert list(bounds) == ["y", "x1", "x2", "x3", "x4"]
    assert made.bounds["x1"] == made.bounds["x3"] == (-0.5, 4.5)
    assert made.bounds["x2"] == made.bounds["x4"] == (1.5, 6.5)
    assert made.published_bounds["x2"] == (-6.5, 6.5)
    assert all(len(line) <= 100 for line in made.DESCR.splitlines())
    assert (made.formula, made.treat) == ("y ~ x1 + x2 + x3 + x4", "w")


@pytest.mark.parametrize("tau", [2.0, 0.0, -1.0, 10])
def test_outcome_bounds_follow_tau(tau):
    low, high = simulate.ate("well_specified", 10, rng=0, tau=tau).bounds["y"]
    assert (low + high) / 2 == tau / 2
    assert high - low == abs(tau) + 1
    low, high = simulate.ate("strong_confounding", 10, rng=0, tau=tau).bounds["y"]
    assert (low, high) == (min(0, tau) - 6, max(0, tau) + 4)
    assert simulate.ate("binary", 10, rng=0, tau=tau).bounds["y"] == (0.0, 1.0)


@pytest.mark.parametrize("name", INDEX)
def test_covariates_are_the_stated_normal_law(name):
    x = simulate.ate(name, N, rng=11).data[["x1", "x2", "x3", "x4"]].to_numpy()
    # Six 1 % tests a process; 1e-5 each is stated here because the seed is fixed.
    for column, mean in enumerate((2, 4, 2, 4)):
        assert kstest(x[:, column] - mean, norm.cdf).pvalue > 1e-5
    expected = np.kron(np.eye(2), [[0, 0.2], [0.2, 0]]) + np.eye(4)
    np.testing.assert_allclose(np.corrcoef(x.T), expected, atol=6 / np.sqrt(N))
    # Uncorrelated normals that are sums of the columns show the joint law, not the margins only.
    assert kstest((x[:, 0] - x[:, 1] + 2) / np.sqrt(1.6), norm.cdf).pvalue > 1e-5
    assert kstest((x[:, 0] + x[:, 2] - 4) / np.sqrt(2), norm.cdf).pvalue > 1e-5


@pytest.mark.parametrize("name", INDEX)
def test_treatment_follows_the_stated_propensity(name):
    made = simulate.ate(name, N, rng=12)
    x = made.data[["x1", "x2", "x3", "x4"]].to_numpy().T
    np.testing.assert_allclose(made.propensity, expit(INDEX[name](*x)), rtol=1e-6, atol=1e-12)
    w, e = made.data["w"].to_numpy(), made.propensity
    for tilt in (np.ones(N), x[0], x[1] ** 2, x[3]):
        error = tilt * (w - e)
        assert abs(error.mean()) < 6 * error.std() / np.sqrt(N)
    e_exact, _, mass = moments(name)
    share = e_exact @ mass
    assert abs(w.mean() - share) < 6 * np.sqrt(share * (1 - share) / N)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_outcome_follows_the_stated_law(name):
    made = simulate.ate(name, N, rng=13, tau=0.7)
    x = made.data[["x1", "x2", "x3", "x4"]].to_numpy()
    noise = made.data["y"] - 0.7 * made.data["w"] - x @ np.array(OUTCOME[name])
    assert kstest(noise / NOISE[name], norm.cdf).pvalue > 1e-5
    for other in (made.data["w"] - made.propensity, *(x - x.mean(axis=0)).T):
        assert abs(np.corrcoef(noise, other)[0, 1]) < 6 / np.sqrt(N)
    assert made.truth == dict.fromkeys(("ATE", "ATT", "ATC", "ATO"), 0.7)


def test_unbalanced_treats_one_in_ten():
    e, _, mass = moments("unbalanced")
    assert e @ mass == pytest.approx(0.1, abs=1e-7)


@pytest.mark.parametrize(
    ("name", "bias"),
    [("well_specified", -0.093), ("low_overlap", -0.131), ("strong_confounding", -0.93)],
)
def test_bias_of_the_raw_difference(name, bias):
    e, mean, mass = moments(name)
    exact = mean * e @ mass / (e @ mass) - mean * (1 - e) @ mass / ((1 - e) @ mass)
    assert exact == pytest.approx(bias, abs=0.01 * abs(bias))
    data = simulate.ate(name, N, rng=14).data
    groups = data.groupby("w")["y"]
    error = np.sqrt((groups.var() / groups.size()).sum())
    assert abs(groups.mean()[1] - groups.mean()[0] - 2 - exact) < 6 * error


def test_randomised_has_no_bias():
    made = simulate.ate("randomised", N, rng=15)
    assert np.all(made.propensity == 0.5)
    groups = made.data.groupby("w")["y"]
    error = np.sqrt((groups.var() / groups.size()).sum())
    assert abs(groups.mean()[1] - groups.mean()[0] - 2) < 6 * error


@pytest.mark.parametrize("tau", [0.5, -1.5, 4.0])
def test_binary_truth_is_the_integral(tau):
    made = simulate.ate("binary", N, rng=16, tau=tau)
    e, index, mass = moments("binary")
    effect = expit(tau + index) - expit(index)
    weights = {"ATE": np.ones_like(e), "ATT": e, "ATC": 1 - e, "ATO": e * (1 - e)}
    for estimand, weight in weights.items():
        exact = (weight * effect) @ mass / (weight @ mass)
        assert made.truth[estimand] == pytest.approx(exact, abs=1e-9)
    # The sample's own weighted effects, with the true propensity.
    y, w, e = made.data["y"].to_numpy(), made.data["w"].to_numpy(), made.propensity
    assert set(y) == {0, 1}
    score = w * y / e - (1 - w) * y / (1 - e)
    assert abs(score.mean() - made.truth["ATE"]) < 6 * score.std() / np.sqrt(N)
    on_treated = (w * y - e * (1 - w) * y / (1 - e)) / w.mean()
    assert abs(on_treated.mean() - made.truth["ATT"]) < 6 * on_treated.std() / np.sqrt(N)


def test_binary_default_effect():
    assert simulate.ate("binary", 5, rng=0).truth == simulate.ate("binary", 5, tau=0.5).truth


@pytest.mark.parametrize("name", CONTINUOUS)
def test_clipping_to_the_public_bounds_hardly_moves_the_effect(name):
    _, mean, mass = moments(name)
    sd = NOISE[name]
    low, high = simulate.ate(name, 5, rng=0).bounds["y"]

    def clipped_mean(m):
        # E clip(m + sd Z, low, high), by the normal loss function.
        a, b = (low - m) / sd, (high - m) / sd
        above = norm.pdf(b) - b * norm.sf(b)
        below = norm.pdf(a) + a * norm.cdf(a)
        return (m + sd * (below - above)) @ mass

    assert abs(clipped_mean(mean + 2) - clipped_mean(mean) - 2) < 1e-3


def test_reproducible_and_no_global_state():
    np.random.seed(5)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = simulate.ate("well_specified", 100, rng=3)
    again = simulate.ate("well_specified", 100, rng=np.random.default_rng(3))
    pd.testing.assert_frame_equal(first.data, again.data)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    generator = np.random.default_rng(3)
    one, two = (simulate.ate("well_specified", 100, rng=generator).data for _ in range(2))
    pd.testing.assert_frame_equal(one, first.data)
    assert not one.equals(two)
    assert not simulate.ate("binary", 100).data.equals(simulate.ate("binary", 100).data)
    first.truth["ATE"] = 0.0
    assert simulate.ate("binary", 5, rng=1).truth["ATE"] != 0.0


@pytest.mark.parametrize("n", [0, -1, 1.5, "10", True, None, np.nan])
def test_bad_n(n):
    with pytest.raises(DPStatsError, match=r"`n` must be a whole number of at least 1; got"):
        simulate.ate("binary", n)


@pytest.mark.parametrize("tau", [np.nan, np.inf, "2", True])
def test_bad_tau(tau):
    with pytest.raises(DPStatsError, match=r"`tau` must be a finite number; got"):
        simulate.ate("well_specified", 5, tau=tau)


@pytest.mark.parametrize("name", ["well", "linear", None, 3])
def test_bad_name(name):
    with pytest.raises(DPStatsError, match=r"`name` must be one of 'well_specified', .*; got"):
        simulate.ate(name, 5)


def test_numpy_numbers_are_taken():
    assert len(simulate.ate("binary", np.int64(7), tau=np.float32(1)).data) == 7
