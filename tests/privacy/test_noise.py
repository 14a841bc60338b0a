"""Noise sources: every sampler against the law it claims, written down here from scipy.

False alarms: tests of seeded noise are deterministic (fixed seeds); had the seeds been drawn
afresh, each would fail with probability `ALARM`. Tests of the operating-system source cannot be
seeded; each of its roughly 80 checks fails by chance with probability `SYSTEM_ALARM`, so the module
fails about once in 1e7 runs.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpstats.errors import DPStatsError
from dpstats.privacy.accounting import Cost
from dpstats.privacy.mechanisms import Mechanisms
from dpstats.privacy.noise import SeededSource, SystemSource, noise_source

ALARM = 1e-4
SYSTEM_ALARM = 1e-9
SOURCES = {"system": SystemSource, "seeded": lambda: SeededSource(20240131)}
BALLS = ("l2", "linf")
ORDER = {"l2": 2, "linf": np.inf}


@pytest.fixture(params=SOURCES)
def source(request):
    return SOURCES[request.param]()


def check(source, pvalue):
    assert pvalue > (ALARM if source.seeded else SYSTEM_ALARM)


def zeros(size):
    return np.zeros(size, dtype=np.int64)


def chi_square(draws, log_pmf):
    """p-value of integer draws against an unnormalised pmf; rare values are pooled."""
    reach = int(max(60, 3 * np.abs(draws).max() + 10))
    support = np.arange(-reach, reach + 1)
    weights = np.exp(log_pmf(support))
    expected = draws.size * weights / weights.sum()
    observed = np.bincount(draws + reach, minlength=support.size)
    common = expected >= 10.0
    cells = np.append(observed[common], observed[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    if wanted[-1] < 1.0:
        # a pooled cell this rare would not be chi square
        assert cells[-1] <= stats.poisson.isf(1e-10, wanted[-1])
        cells, wanted = cells[:-1], wanted[:-1] * cells[:-1].sum() / wanted[:-1].sum()
    return stats.chisquare(cells, wanted).pvalue


# ------------------------------------------------------------------- scalar noise


@pytest.mark.parametrize("scale", [0.4, 1.0, 3.7, 25.0])
def test_laplace_has_the_discrete_laplace_pmf(source, scale):
    draws = source.laplace("a", zeros(20_000), scale)
    assert draws.dtype == np.int64
    check(source, chi_square(draws, lambda k: -np.abs(k) / scale))


@pytest.mark.parametrize("scale", [0.7, 2.0, 30.0])
def test_gaussian_has_its_integer_pmf(source, scale):
    """Discrete Gaussian from the system; a rounded normal (a tie rule apart) from a seed."""
    draws = source.gaussian("a", zeros(20_000), scale)

    def rounded(k):
        return stats.norm.logsf(np.abs(k) - 0.5, scale=scale) + np.log1p(
            -np.exp(
                stats.norm.logsf(np.abs(k) + 0.5, scale=scale)
                - stats.norm.logsf(np.abs(k) - 0.5, scale=scale)
            )
        )

    with np.errstate(divide="ignore", invalid="ignore"):
        law = rounded if source.seeded else (lambda k: -0.5 * (k / scale) ** 2)
        check(source, chi_square(draws, lambda k: np.nan_to_num(law(k), nan=-np.inf)))


@pytest.mark.parametrize("bits", [12, 30, 49])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_large_scales_are_the_continuous_law(source, kind, bits):
    draws = getattr(source, kind)("a", zeros(8_000), 2.0**bits) / 2.0**bits
    law = stats.laplace() if kind == "laplace" else stats.norm()
    check(source, stats.kstest(draws, law.cdf).pvalue)
    # neighbours in the vector are independent
    check(source, stats.pearsonr(draws[1:], draws[:-1]).pvalue)


def test_noise_is_added_to_the_values(source):
    values = np.array([[10**12, -(10**12)], [0, 7]])
    for kind in ("laplace", "gaussian"):
        noisy = getattr(source, kind)(kind, values, 2.0)
        assert noisy.shape == values.shape
        assert np.abs(noisy - values).max() < 100


def test_tiny_scales_add_nothing(source):
    values = np.arange(-50, 50)
    for kind in ("laplace", "gaussian"):
        assert np.array_equal(getattr(source, kind)(kind, values, 1e-3), values)


def test_normals(source):
    draws = np.concatenate([source.normal("a", size, 2.5) for size in (1, 2, 7, 4001)])
    check(source, stats.kstest(draws / 2.5, "norm").pvalue)
    check(source, stats.pearsonr(draws[10:-1:2], draws[11::2]).pvalue)
    check(source, stats.pearsonr(np.abs(draws[10:-1:2]), np.abs(draws[11::2])).pvalue)


# ------------------------------------------------------------------- K-norm vectors


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("dimension", [1, 2, 3, 12])
def test_knorm_law(source, dimension, ball):
    """The norm is Gamma(d, s) in *both* balls and independent of a uniform direction.

    With density proportional to exp(-||v|| / s) the surface of radius r has area of order
    r**(d-1), so the norm has density of order r**(d-1) exp(-r / s) whatever the ball: Gamma(d, s).
    (The sampler for the cube draws Gamma(d + 1) times a uniform point *inside* it, whose sup norm
    is Beta(d, 1): the product is Gamma(d).)
    """
    scale, size = 0.3, 1500
    draws = np.array([source.knorm("a", dimension, scale, ball) for _ in range(size)])
    norms = np.linalg.norm(draws, ord=ORDER[ball], axis=1)
    check(source, stats.kstest(norms, stats.gamma(dimension, scale=scale).cdf).pvalue)
    z = (norms.mean() - dimension * scale) / (scale * math.sqrt(dimension / size))
    check(source, 2.0 * stats.norm.sf(abs(z)))

    unit = draws / norms[:, None]
    signs = (unit > 0.0).sum(axis=0)
    for positive in signs:
        check(source, stats.binomtest(int(positive), size).pvalue)
    if dimension == 1:
        return
    check(source, stats.spearmanr(norms, unit[:, 0]).pvalue)
    check(source, stats.spearmanr(norms, np.abs(unit[:, 1])).pvalue)
    if ball == "l2":
        # the resultant of uniform directions, and each coordinate: u_1**2 is Beta(1/2, (d-1)/2)
        resultant = size * dimension * float((unit.mean(axis=0) ** 2).sum())
        check(source, stats.chi2.sf(resultant, dimension))
        beta = stats.beta(0.5, (dimension - 1) / 2.0)
        for column in (0, dimension - 1):
            check(source, stats.kstest(unit[:, column] ** 2, beta.cdf).pvalue)
        cross = unit[:, 0] * unit[:, -1]
        z = cross.mean() / math.sqrt(size) * size * math.sqrt(dimension * (dimension + 2))
        check(source, 2.0 * stats.norm.sf(abs(z)))
    else:
        # a face at random, then a uniform point of it
        largest = np.abs(unit).argmax(axis=1)
        check(source, stats.chisquare(np.bincount(largest, minlength=dimension)).pvalue)
        others = unit[np.arange(dimension)[None, :] != largest[:, None]]
        check(source, stats.kstest(others, stats.uniform(-1.0, 2.0).cdf).pvalue)


def test_one_dimensional_knorm_is_laplace(source):
    draws = np.array([float(source.knorm("a", 1, 2.0, "l2")[0]) for _ in range(3000)])
    check(source, stats.kstest(draws, stats.laplace(scale=2.0).cdf).pvalue)


# ------------------------------------------------------------------- streams


def draw_all(source, name):
    return np.concatenate(
        [
            source.laplace(name, zeros(300), 2.0**30),
            source.gaussian(name, zeros(300), 2.0**30),
            source.knorm(name, 300, 1.0, "l2") * 2.0**30,
            source.normal(name, 300, 2.0**30),
        ]
    )


def test_streams_are_keyed_by_name():
    first, second = draw_all(SeededSource(3), "propensity"), draw_all(SeededSource(3), "sums")
    assert not np.isin(first, second).any()
    assert abs(stats.spearmanr(first, second)[0]) < 4.0 / math.sqrt(first.size)


def test_a_name_used_twice_draws_afresh():
    source = SeededSource(3)
    first, second = draw_all(source, "counts"), draw_all(source, "counts")
    assert not np.isin(first, second).any()


def test_other_releases_do_not_move_a_stream():
    alone, among = SeededSource(3), SeededSource(3)
    draw_all(among, "bounds")
    assert np.array_equal(draw_all(alone, "sums"), draw_all(among, "sums"))


def test_the_kinds_of_one_position_differ():
    one, two = SeededSource(3), SeededSource(3)
    laplace, gaussian = one.laplace("a", zeros(50), 1e9), two.gaussian("a", zeros(50), 1e9)
    assert not np.isin(laplace, gaussian).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: 7,
        lambda: np.int64(7),
        lambda: 0,
        lambda: 2**100,
        lambda: [1, 2, 3],
        lambda: np.random.SeedSequence(7),
        lambda: np.random.PCG64(7),
        lambda: np.random.MT19937(7),
        lambda: np.random.default_rng(7),
    ],
)
def test_spec_7(make):
    one, two = noise_source(make()), noise_source(make())
    assert one.seeded
    assert np.array_equal(draw_all(one, "a"), draw_all(two, "a"))


def test_an_integer_is_the_generator_made_from_it():
    one, two = noise_source(7), noise_source(np.random.default_rng(7))
    assert np.array_equal(draw_all(one, "a"), draw_all(two, "a"))


def test_a_generator_is_advanced():
    generator = np.random.default_rng(7)
    one, two = noise_source(generator), noise_source(generator)
    assert not np.isin(draw_all(one, "a"), draw_all(two, "a")).any()


def test_the_global_state_is_neither_read_nor_moved():
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one = draw_all(noise_source(5), "a")
    draw_all(noise_source(None), "a")
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    assert np.array_equal(draw_all(noise_source(5), "a"), one)


def test_the_default_is_the_operating_system():
    one, two = noise_source(None), noise_source()
    assert isinstance(one, SystemSource)
    assert not one.seeded
    assert not np.isin(draw_all(one, "a"), draw_all(two, "a")).any()


@pytest.mark.parametrize(
    "rng", [True, False, np.True_, "1", b"1", 1.0, np.float64(3), np.float32(3), -1, object(), {}]
)
def test_refused_seeds(rng):
    with pytest.raises(DPStatsError, match="`rng` must be None"):
        noise_source(rng)


def test_two_releases_of_equal_scale_share_no_noise():
    """Case 18: the same seed, the same budget, two names."""
    costs = {"a": Cost(1.0), "b": Cost(1.0)}
    for kind, options in (("laplace", {}), ("gaussian", {"delta": 1e-6})):
        costs = {name: Cost(1.0, **options) for name in "ab"}
        mechanisms = Mechanisms(SeededSource(1), kind, costs)
        a, b = (mechanisms.additive(n, np.zeros(200), l1=1, l2=1, lattice=-30).value for n in "ab")
        assert not np.isin(a, b).any()
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.3
    a, b = (mechanisms.knorm(n, np.zeros(200), sensitivity=1.0).value for n in "ab")
    assert abs(a @ b) < 0.3 * np.linalg.norm(a) * np.linalg.norm(b)
