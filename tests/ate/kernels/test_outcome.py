"""Private outcome models: matrices and fits against numpy, noise drawn again, two rounds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from battery import KINDS, Silent
from scipy.stats import wishart

from dpstats.ate.kernels.base import Arrays
from dpstats.ate.kernels.outcome import OutcomeModel, release_outcome, residuals
from dpstats.privacy.accounting import Cost
from dpstats.privacy.calibration import gaussian_dp_level
from dpstats.privacy.mechanisms import Mechanisms, sum_lattice
from dpstats.privacy.noise import SeededSource

ONE, TWO = {"moments": 1.0}, {"first": 0.35, "moments": 0.65}
every_kind = pytest.mark.parametrize("kind", KINDS)
ARMS = (0, 1)


def file(n: int = 500, k: int = 3, seed: int = 1, size: float = 1.0) -> Arrays:
    """Rows of any length up to `size` times the longest, a model by arm."""
    rng = np.random.default_rng(seed)
    z = size * rng.uniform(-1.0, 1.0, (n, k)) if k else np.zeros((n, 0))
    treated = rng.random(n) < 1.0 / (1.0 + np.exp(-z.sum(axis=1)))
    slopes = np.linspace(0.3, -0.2, k)
    y = np.where(treated, 0.2 + z @ slopes, z @ slopes[::-1] - 0.1)
    y = np.clip(y + rng.normal(scale=0.1, size=n), -1.0, 1.0)
    g = sum_lattice(1.0, n)
    y = np.ldexp(np.rint(np.ldexp(y, -g)), g)
    design = np.asfortranarray(np.c_[np.full(n, 0.5), z])
    return Arrays(y, treated, design, None, 1.0, g, design)


def mechanisms(source, kind: str, epsilon: float, **more) -> Mechanisms:
    cost = Cost(epsilon, 1e-6 if kind == "gaussian" else 0.0)
    return Mechanisms(source, kind, {"moments": cost}, **more)


def release(arrays, source, kind="laplace", epsilon=1.0, rounds=ONE, **more) -> OutcomeModel:
    return release_outcome(arrays, mechanisms(source, kind, epsilon), rounds=rounds, **more)


def shrunk(z: np.ndarray, norm: float) -> np.ndarray:
    return z * np.minimum(1.0, norm / np.maximum(np.linalg.norm(z, axis=1), 1e-300))[:, None]


def least_squares(arrays: Arrays, norm: float) -> tuple[np.ndarray, np.ndarray]:
    """Levels and slopes by arm on the shrunk covariates."""
    z = shrunk(arrays.covariates[:, 1:], norm)
    levels, slopes = np.empty(2), np.empty((2, z.shape[1]))
    for arm in ARMS:
        own = arrays.treated == bool(arm)
        x = np.c_[np.ones(own.sum()), z[own]]
        b, *_ = np.linalg.lstsq(x, arrays.outcome[own], rcond=None)
        levels[arm], slopes[arm] = b[0], b[1:]
    return levels, slopes


# ---------------------------------------------------------------------------- the release


@every_kind
@pytest.mark.parametrize("k", [0, 1, 3, 12])
def test_matrices_against_numpy(kind, k) -> None:
    arrays = file(k=k)
    model = release(arrays, Silent(), kind)
    z = shrunk(arrays.covariates[:, 1:], model.norm)
    length = math.sqrt(0.3) / model.norm
    rows = np.c_[np.full(arrays.n, math.sqrt(0.4)), length * z, math.sqrt(0.3) * arrays.outcome]
    assert np.linalg.norm(rows, axis=1).max() <= 1.0 + 1e-12
    for arm in ARMS:
        own = rows[arrays.treated == bool(arm)]
        # entries of a row are rounded to 2**-20
        assert np.allclose(model.raw[arm], own.T @ own, rtol=0.0, atol=len(own) * 2.0**-18)
    assert np.array_equal(model.raw, np.swapaxes(model.raw, 1, 2))


def test_the_norm_of_rows_grows_with_n_eps_and_with_columns() -> None:
    norms = [release(file(k=3), Silent(), epsilon=eps).norm for eps in (0.1, 1.0, 1e3, 1e9)]
    assert norms == sorted(norms)
    assert norms[0] == 0.9
    assert norms[-1] == math.sqrt(3.0)
    assert release(file(k=16), Silent(), epsilon=0.1).norm == pytest.approx(1.8)


@every_kind
@pytest.mark.parametrize("k", [1, 3])
def test_noise_of_the_model_is_that_of_the_release(kind, k) -> None:
    """`noise` and `noisy` against repeated releases, and against Wishart matrices of scipy."""
    arrays, q, runs = file(60, k), k + 2, 600
    exact = release(arrays, Silent(), kind, 2.0).raw
    models = [release(arrays, SeededSource(seed), kind, 2.0) for seed in range(runs)]
    found = np.array([model.raw for model in models]) - exact
    drawn = models[0].noisy(np.zeros((2, q, q)), runs, np.random.default_rng(3))
    if kind == "gaussian":
        level = gaussian_dp_level(2.0, 1e-6)
        assert models[0].noise == pytest.approx(1.0 / level)
    else:
        law = wishart(df=q + 1, scale=np.eye(q))
        other = (law.rvs(4000, random_state=1) - law.rvs(4000, random_state=2)) / 2.0
        assert other[:, 0, 1].std() == pytest.approx(models[0].noise, rel=0.1)
        assert other[:, 0, 0].std() == pytest.approx(math.sqrt(2.0) * models[0].noise, rel=0.1)
    for noise in (found, drawn):
        # 1200 numbers each: known to 2 % to 4 %
        assert noise[:, :, 0, 1].std() == pytest.approx(models[0].noise, rel=0.12)
        for place in (0, -1):
            diagonal = noise[:, :, place, place]
            assert diagonal.std() == pytest.approx(math.sqrt(2.0) * models[0].noise, rel=0.12)
        assert abs(np.corrcoef(noise[:, 0, 0, 1], noise[:, 1, 0, 1])[0, 1]) < 0.2
        assert np.array_equal(noise, np.swapaxes(noise, -1, -2))
        assert abs(noise.mean()) < 0.2 * models[0].noise


@every_kind
def test_rows_per_person(kind) -> None:
    arrays = file()
    one, three = (
        release_outcome(
            arrays, mechanisms(SeededSource(1), kind, 1.0, rows_per_person=r), rounds=ONE
        )
        for r in (1, 3)
    )
    assert three.noise == pytest.approx(3.0 * one.noise, rel=1e-12)
    assert three.records[0].sensitivity == pytest.approx(3.0 * one.records[0].sensitivity)
    exact = release(arrays, Silent(), kind).raw
    assert np.allclose(three.raw - exact, 3.0 * (one.raw - exact), rtol=0.0, atol=1e-3)


def test_a_part_of_many_rows_is_random_and_knows_no_rhythm() -> None:
    """In a file of pairs every second row is treated: evenly spaced rows would miss an arm."""
    arrays = file(4000)
    order = np.argsort(arrays.treated, kind="stable")
    half = int(min(arrays.treated.sum(), (~arrays.treated).sum()))
    pairs = np.empty(2 * half, dtype=np.int64)
    pairs[0::2], pairs[1::2] = order[:half], order[-half:]
    mixed = arrays.rows(pairs)
    model = release(mixed, SeededSource(1), epsilon=1e6, most=half)
    assert model.n == half
    counts = model.last().counts
    assert abs(counts[0] - half / 2.0) < 5.0 * math.sqrt(half / 8.0)
    # without noise nothing is saved
    exact = release_outcome(mixed, Mechanisms(None, "laplace", {}), rounds=ONE, most=half)
    assert exact.n == 2 * half


def test_rows_move_the_matrix_by_their_own_outer_product_in_any_order() -> None:
    arrays = file(300)
    order = np.random.default_rng(2).permutation(300)
    first, second = (release(a, Silent()).raw for a in (arrays, arrays.rows(order)))
    assert np.array_equal(first, second)


# -------------------------------------------------------------------------------- the fit


@every_kind
@pytest.mark.parametrize("rounds", [ONE, TWO], ids=["one round", "two rounds"])
@pytest.mark.parametrize("k", [0, 1, 3])
def test_huge_epsilon_is_least_squares(kind, rounds, k) -> None:
    arrays = file(k=k)
    model = release(arrays, SeededSource(1), kind, 1e10, rounds)
    levels, slopes = model.model()
    expected = least_squares(arrays, model.norm)
    assert np.allclose(levels, expected[0], atol=1e-3)
    assert np.allclose(slopes, expected[1], atol=1e-3 if kind == "laplace" else 5e-3)
    if k:
        assert model.norm == max(math.sqrt(k), 1.0)


@pytest.mark.parametrize("common", [False, True])
def test_fit_to_exact_moments_of_shrunk_rows(common) -> None:
    """At eps = 1 rows are shrunk; with no noise to reckon with the fit is least squares on them."""
    arrays = file()
    model = replace(release(arrays, Silent(), common=common), noise=0.0)
    assert model.norm == 0.9
    levels, slopes = model.model()
    z = shrunk(arrays.covariates[:, 1:], 0.9)
    if common:
        x = np.c_[~arrays.treated, arrays.treated, z]
        b, *_ = np.linalg.lstsq(x, arrays.outcome, rcond=None)
        expected = b[:2], np.stack([b[2:], b[2:]])
    else:
        expected = least_squares(arrays, 0.9)
    assert np.allclose(levels, expected[0], atol=1e-4)
    assert np.allclose(slopes, expected[1], atol=1e-4)
    fitted = np.where(arrays.treated, *(levels[a] + z @ slopes[a] for a in (1, 0)))
    rest = arrays.outcome - fitted
    fit = model.last()
    for arm in ARMS:
        own = arrays.treated == bool(arm)
        assert fit.counts[arm] == pytest.approx(own.sum(), abs=0.01)
        assert np.allclose(fit.means[arm], z[own].mean(axis=0), atol=1e-4)
        assert fit.outcomes[arm] == pytest.approx(arrays.outcome[own].mean(), abs=1e-4)
        assert fit.variances[arm] == pytest.approx((rest[own] ** 2).mean(), abs=1e-4)
    gaps = (levels[1] - levels[0]) + z @ (slopes[1] - slopes[0])
    for estimand, who in (
        ("ate", arrays.treated | True),
        ("att", arrays.treated),
        ("atc", ~arrays.treated),
    ):
        assert float(model.contrast(fit, estimand)) == pytest.approx(gaps[who].mean(), abs=1e-4)


def test_ridge_against_the_filtered_inverse() -> None:
    from dpstats.ate.kernels.outcome import _ridge

    rng = np.random.default_rng(4)
    root = rng.standard_normal((5, 4))
    matrix, vector = root.T @ root, rng.standard_normal(4)
    for edge in (0.0, 0.3, 5.0):
        expected = np.linalg.solve(matrix @ matrix + edge**2 * np.eye(4), matrix @ vector)
        assert np.allclose(_ridge(matrix, vector, edge), expected, rtol=1e-8)
    assert np.allclose(_ridge(-matrix, vector, 1.0), 0.0)
    assert np.allclose(_ridge(np.zeros((4, 4)), vector, 0.0), 0.0)


@every_kind
def test_noise_alone_makes_small_slopes(kind) -> None:
    """Nothing to fit and much noise: slopes far below those of the plain solution."""
    rng = np.random.default_rng(1)
    fitted, plain = [], []
    for seed in range(40):
        arrays = replace(file(400, 4, seed=seed, size=0.5), outcome=rng.choice([-0.25, 0.25], 400))
        model = release(arrays, SeededSource(seed), kind, 0.5)
        fit = model.last()
        fitted.append(np.linalg.norm(fit.slopes, axis=-1).max())
        natural = model.raw / np.outer(model.scales, model.scales)
        cross = natural[:, 1:-1, -1] - fit.counts[:, None] * fit.means * fit.outcomes[:, None]
        plain.append(np.linalg.norm(np.linalg.solve(fit.within, cross[..., None]), axis=1).max())
    assert np.median(fitted) < 0.5 * np.median(plain)
    assert max(fitted) < 2.0


def test_arms_have_their_own_slopes_only_beyond_noise() -> None:
    arrays = file(2000)
    tight = release(arrays, SeededSource(1), epsilon=1e6).last()
    assert np.linalg.norm(tight.slopes[1] - tight.slopes[0]) > 0.3
    loose = [release(arrays, SeededSource(seed), epsilon=0.1).last().slopes for seed in range(40)]
    # .98 of the releases at this noise
    assert sum(np.array_equal(*slopes) for slopes in loose) >= 34
    both = release(arrays, SeededSource(1), epsilon=1e6, common=True).last()
    assert np.array_equal(both.slopes[0], both.slopes[1])


def test_two_rounds_have_less_noise_in_the_outcome() -> None:
    """The second round is for a narrower outcome, so it counts for more than its share."""
    arrays, errors = file(4000), {}
    levels, slopes = least_squares(arrays, 1.0)
    for label, rounds in (("one", ONE), ("two", TWO)):
        off = []
        for seed in range(60):
            model = release(arrays, SeededSource(seed), "laplace", 2.0, rounds)
            found = model.model()
            centre = model.last().means.mean(axis=0)
            gaps = (found[0] + found[1] @ centre) - (levels + slopes @ centre)
            off.append(gaps[1] - gaps[0])
        errors[label] = np.std(off)
        if label == "two":
            assert model.reach < 1.0
    assert errors["two"] < 0.75 * errors["one"]


@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e4, 1e12])
@every_kind
def test_ranges_of_residuals(kind, epsilon) -> None:
    """Never beyond what a residual can be; with little noise three standard deviations."""
    arrays = file()
    model = release(arrays, SeededSource(1), kind, epsilon, TWO)
    levels, slopes = model.model()
    farthest = np.abs(levels) + model.norm * np.linalg.norm(slopes, axis=1)
    assert 0.0 < model.residual_range() <= min(2.0, 1.0 + farthest.max())
    if epsilon == 1e12:
        a, b = least_squares(arrays, model.norm)
        fitted = np.where(arrays.treated, *(a[i] + arrays.covariates[:, 1:] @ b[i] for i in (1, 0)))
        assert model.residual_range() == pytest.approx(
            3.0 * (arrays.outcome - fitted).std(), rel=0.02
        )


def test_residuals_by_hand_on_the_grid_and_in_any_order() -> None:
    arrays = file()
    model = release(arrays, SeededSource(1), epsilon=100.0)
    levels, slopes = model.model()
    found = residuals(arrays, model.norm, levels, slopes, 0.25)
    z = shrunk(arrays.covariates[:, 1:], model.norm)
    fitted = np.where(arrays.treated, *(levels[a] + z @ slopes[a] for a in (1, 0)))
    expected = np.clip((arrays.outcome - fitted) / 0.25, -1.0, 1.0)
    assert np.allclose(found, expected, rtol=0.0, atol=2.0**arrays.lattice)
    steps = np.ldexp(found, -arrays.lattice)
    assert np.array_equal(steps, np.rint(steps))
    assert np.abs(found).max() == 1.0
    order = np.random.default_rng(2).permutation(arrays.n)
    again = residuals(arrays.rows(order), model.norm, levels, slopes, 0.25)
    assert np.array_equal(again, found[order])
    plain = residuals(arrays, model.norm, levels, slopes, 2.0, exact=True)
    assert np.allclose(2.0 * plain, arrays.outcome - fitted, rtol=0.0, atol=1e-14)


# --------------------------------------------------------------------------- the bootstrap


def test_around_has_the_fit_it_was_made_from() -> None:
    model = replace(release(file(), Silent()), noise=0.0)
    fit = model.last()
    again = model.last(model.around(fit))
    for name in ("counts", "means", "outcomes", "within", "slopes", "variances"):
        assert np.allclose(getattr(again, name), getattr(fit, name), rtol=1e-8, atol=1e-10), name


@every_kind
@pytest.mark.parametrize("epsilon", [1e-9, 1.0, 1e12])
@pytest.mark.parametrize("shape", ["ordinary", "collinear", "constant", "empty arm", "no columns"])
def test_everything_that_follows_is_finite(kind, epsilon, shape) -> None:
    arrays = file(k=0 if shape == "no columns" else 3)
    if shape == "collinear":
        design = arrays.covariates.copy()
        design[:, 2] = design[:, 3] = design[:, 1]
        arrays = replace(arrays, covariates=design)
    if shape == "constant":
        arrays = replace(arrays, outcome=np.ones(arrays.n), covariates=np.zeros((arrays.n, 4)))
    if shape == "empty arm":
        arrays = replace(arrays, treated=np.ones(arrays.n, dtype=bool))
    with np.errstate(all="raise", under="ignore"):
        model = release(arrays, SeededSource(1), kind, epsilon, TWO)
        fits = model.noisy_fits(50, np.random.default_rng(0))
        found = [*model.model(), model.residual_range()]
        found.append(model.pseudo_rows(20, np.random.default_rng(0)))
        found += [fits.counts, fits.means, fits.outcomes, fits.slopes, fits.levels]
        for estimand in ("ate", "att", "atc"):
            assert model.sampling_variance(estimand) > 0.0
            found += [model.contrast(model.last(), estimand), model.sampling_variance(estimand)]
    assert all(np.isfinite(value).all() for value in found)
    assert (fits.counts >= 1.0).all()
    assert np.abs(fits.outcomes).max() <= 1.0


def test_sampling_variance_against_repeated_samples() -> None:
    """Of `contrast` under the linear model, without noise."""
    effects = {estimand: [] for estimand in ("ate", "att", "atc")}
    for seed in range(200):
        model = replace(release(file(1500, 2, seed=seed), Silent(), epsilon=1e9), noise=1e-9)
        for estimand, found in effects.items():
            found.append(float(model.contrast(model.last(), estimand)))
    for estimand, found in effects.items():
        sd = math.sqrt(model.sampling_variance(estimand))
        assert sd == pytest.approx(np.std(found), rel=0.2), estimand
