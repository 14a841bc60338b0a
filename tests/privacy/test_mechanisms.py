"""The noise path: recorded scales, exact integer arithmetic, and OpenDP's own privacy map.

Everything here is deterministic, but for two tests with a stated false-alarm rate and fixed seed.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.privacy.accounting import Cost
from dpstats.privacy.calibration import gaussian_log_delta
from dpstats.privacy.mechanisms import Mechanisms, sum_lattice
from dpstats.privacy.noise import SeededSource, SystemSource


class Silent:
    """A source without noise that remembers what it was asked for."""

    seeded = True

    def __init__(self):
        self.calls = []

    def laplace(self, name, values, scale):
        self.calls.append(("laplace", name, values, scale))
        return values

    def gaussian(self, name, values, scale):
        self.calls.append(("gaussian", name, values, scale))
        return values

    def knorm(self, name, dimension, scale, ball):
        self.calls.append(("knorm", name, dimension, scale, ball))
        return np.zeros(dimension)

    def normal(self, name, dimension, scale):
        self.calls.append(("normal", name, dimension, scale))
        return np.zeros(dimension)


def build(source, kind, epsilon, delta=1e-6, **options):
    return Mechanisms(source, kind, {"r": Cost(epsilon, delta)}, **options)


EPSILONS = (1e-9, 1e-3, 0.3, 1.0, 20.0, 1e6)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("divisor", [1.0, 1000.0])
@pytest.mark.parametrize(("l1", "l2"), [(2.0, math.sqrt(2.0)), (1.0, 1.0), (0.125, 0.125)])
def test_laplace_scale_is_what_was_recorded(epsilon, rows, divisor, l1, l2):
    source = Silent()
    mechanisms = build(source, "laplace", epsilon, rows_per_person=rows)
    noisy = mechanisms.additive("r", [1.0, 2.0], l1=l1, l2=l2, lattice=-30, divisor=divisor)
    (record,) = noisy.records
    assert record.mechanism == "Laplace"
    assert record.norm == "l1"
    assert (record.epsilon, record.delta) == (epsilon, 0.0)
    assert record.sensitivity == pytest.approx(rows * l1 / divisor, rel=1e-15)
    assert record.scale == noisy.scale
    # at 1e-9 the grid is coarsened and each of the two numbers pays one step of 2**-50 of the scale
    extra = 2.0 * 2.0**-49 / epsilon if epsilon < 1e-6 else 0.0
    assert record.scale == pytest.approx(rows * l1 / epsilon / divisor, rel=1e-9 + extra)
    assert record.scale >= record.sensitivity / epsilon * (1.0 - 1e-12)
    (call,) = source.calls
    lattice = lattice_of(call, [1.0, 2.0])
    if extra == 0.0:
        assert call[3] * lattice == pytest.approx(rows * l1 / epsilon, rel=1e-9)
    assert noisy.sd("laplace") == pytest.approx(math.sqrt(2.0) * noisy.scale)


def lattice_of(call, values):
    """Value of one lattice step, from the integers the source was handed."""
    steps = np.asarray(call[2], dtype=float)
    return float(np.max(values) / steps.max()) if steps.max() else 0.0


@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 1.0, 20.0, 1e6])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.1])
@pytest.mark.parametrize("rows", [1, 3])
def test_gaussian_scale_is_what_was_recorded(epsilon, delta, rows):
    source = Silent()
    mechanisms = build(source, "gaussian", epsilon, delta, rows_per_person=rows)
    noisy = mechanisms.additive("r", [1.0, 2.0], l1=9.0, l2=0.5, lattice=-30, divisor=4.0)
    (record,) = noisy.records
    assert record.norm == "l2"
    assert record.sensitivity == rows * 0.5 / 4.0
    assert (record.epsilon, record.delta) == (epsilon, delta)
    attained = gaussian_log_delta(record.sensitivity / record.scale, epsilon)
    assert attained == pytest.approx(math.log(delta), abs=1e-6)
    (call,) = source.calls
    assert call[3] * lattice_of(call, [1.0, 2.0]) == pytest.approx(4.0 * record.scale, rel=1e-9)
    # enough steps in a standard deviation for the law of the continuous Gaussian
    assert call[3] >= 2.0**20
    assert noisy.sd("gaussian") == noisy.scale


@pytest.mark.parametrize("ball", ["l2", "linf"])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_knorm_scale_is_what_was_recorded(epsilon, ball):
    source = Silent()
    mechanisms = build(source, "gaussian", epsilon, rows_per_person=2)
    values = np.array([0.1, -0.7, 2.0])
    noisy = mechanisms.knorm("r", values, sensitivity=0.25, ball=ball)
    (record,) = noisy.records
    assert (record.norm, record.sensitivity, record.epsilon) == (ball, 0.5, epsilon)
    assert record.delta == 0.0
    assert record.scale == noisy.scale == pytest.approx(0.5 / epsilon, rel=1e-12)
    assert source.calls == [("knorm", "r", 3, record.scale, ball)]
    assert np.abs(noisy.value - values).max() <= record.scale * 2.0**-20
    other = mechanisms.knorm("r", values, sensitivity=0.25, cost=Cost(2.0 * epsilon), ball=ball)
    assert other.scale == pytest.approx(record.scale / 2.0)


@pytest.mark.parametrize("bits", [0, 5, 20])
def test_knorm_is_rounded_to_a_public_power_of_two(bits):
    mechanisms = Mechanisms(SeededSource(1), "laplace", {"r": Cost(0.7)})
    noisy = mechanisms.knorm("r", np.full(50, 0.3), sensitivity=1.0, grid_bits=bits)
    grid = 2.0 ** (math.floor(math.log2(noisy.scale)) - bits)
    assert np.array_equal(noisy.value / grid, np.rint(noisy.value / grid))


def test_without_a_source_nothing_is_added_or_recorded():
    mechanisms = Mechanisms(None, "laplace", {})
    values = np.array([0.1, 1.0 / 3.0])
    noisy = mechanisms.additive("r", values, l1=1, l2=1, lattice=0, divisor=2.0)
    assert np.array_equal(noisy.value, values / 2.0)
    assert (noisy.scale, noisy.records) == (0.0, ())
    vector = mechanisms.knorm("r", values, sensitivity=1.0)
    assert np.array_equal(vector.value, values)
    assert (vector.scale, vector.records, vector.sd("laplace")) == (0.0, (), 0.0)


def test_a_release_without_a_budget_cannot_be_made():
    mechanisms = Mechanisms(SeededSource(1), "laplace", {"other": Cost(1.0)})
    with pytest.raises(KeyError):
        mechanisms.additive("r", [0.0], l1=1, l2=1, lattice=0)
    with pytest.raises(KeyError):
        mechanisms.knorm("r", np.zeros(2), sensitivity=1.0)


def test_kind_of_one_release_can_be_set():
    source = Silent()
    noisy = build(source, "gaussian", 1.0).additive(
        "r", [0.0], l1=2.0, l2=1.0, lattice=0, kind="laplace"
    )
    assert source.calls[0][0] == "laplace"
    assert noisy.records[0].delta == 0.0
    assert noisy.records[0].scale == 2.0


def test_the_partition_is_recorded():
    mechanisms = build(Silent(), "laplace", 1.0, partition="part 2")
    assert mechanisms.additive("r", [0.0], l1=1, l2=1, lattice=0).records[0].partition == "part 2"
    assert mechanisms.knorm("r", np.zeros(1), sensitivity=1.0).records[0].partition == "part 2"


# ------------------------------------------------------------------- exact integers


@settings(max_examples=60, deadline=None)
@given(
    half_width=st.floats(1e-6, 1e9),
    n=st.integers(1, 3000),
    seed=st.integers(0, 2**32 - 1),
)
def test_sums_on_the_lattice_are_exact_in_any_order(half_width, n, seed):
    rng = np.random.default_rng(seed)
    lattice = sum_lattice(half_width, n)
    values = rng.uniform(-half_width, half_width, n)
    values[rng.random(n) < 0.3] = half_width
    steps = np.rint(np.ldexp(values, -lattice))
    exact = sum(int(step) for step in steps)
    on_grid = np.ldexp(steps, lattice)
    for order in (np.arange(n), rng.permutation(n), np.argsort(values)):
        assert math.ldexp(float(on_grid[order].sum()), -lattice) == exact
        assert math.ldexp(float(np.cumsum(on_grid[order])[-1]), -lattice) == exact


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 2**20, 2**20 + 1, 2**22, 10**8, 10**9])
@pytest.mark.parametrize("half_width", [1e-9, 0.3, 1.0, 1.5, 2.0**10, 1e12])
def test_sum_lattice_holds_the_largest_sum(half_width, n):
    lattice = sum_lattice(half_width, n)
    largest = math.ceil(half_width / 2.0**lattice)
    assert n * largest <= 2**53
    # and is fine: at least 2**20 steps up to 4e9 rows
    assert largest >= 2**20


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.integers(-(2**36), 2**36), min_size=1, max_size=6),
    lattice=st.integers(-40, 5),
    log_eps=st.floats(-12, 6),
    kind=st.sampled_from(["laplace", "gaussian"]),
)
def test_values_on_the_lattice_pass_through_exactly(steps, lattice, log_eps, kind):
    """Unless the grid is coarsened, the noiseless release is the value to the last bit."""
    source = Silent()
    values = np.ldexp(np.array(steps, dtype=float), lattice)
    noisy = build(source, kind, math.exp(log_eps)).additive(
        "r", values, l1=2.0 ** (lattice + 3), l2=2.0 ** (lattice + 3), lattice=lattice
    )
    assert np.array_equal(noisy.value, values)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("size", [1, 5])
@pytest.mark.parametrize("epsilon", [1e-8, 1e-12])
def test_a_tiny_epsilon_coarsens_the_grid_and_pays_for_it(kind, size, epsilon):
    """The scale covers the sensitivity of the *rounded* numbers."""
    source = Silent()
    # Gaussian noise at delta = 1e-3 has a bounded scale however small epsilon: a finer grid
    lattice = -40 if kind == "laplace" else -80
    sensitivity = 2.0 if kind == "laplace" else 2.0**-20
    noisy = build(source, kind, epsilon, 1e-9).additive(
        "r", np.zeros(size), l1=sensitivity, l2=sensitivity, lattice=lattice
    )
    ((_, _, _, scale),) = source.calls
    assert 2.0**49 <= scale <= 2.0**52
    step = noisy.scale / scale
    assert step > 2.0**lattice
    assert math.log2(step) == int(math.log2(step))
    if kind == "laplace":
        assert noisy.scale >= (sensitivity + size * step) / epsilon * (1.0 - 1e-12)
        assert noisy.scale <= (sensitivity + 2 * size * step) / epsilon
    else:
        attained = gaussian_log_delta((sensitivity + math.sqrt(size) * step) / noisy.scale, epsilon)
        assert attained <= math.log(1e-9) + 1e-6


def test_a_statistic_beyond_the_integers_is_clipped_not_wrapped():
    """Gaussian noise at an absurd epsilon has a fine grid: 1e12 is past 2**62 of its steps."""
    for value in (1e12, -1e12):
        noisy = build(Silent(), "gaussian", 1e16).additive("r", [value], l1=1, l2=1, lattice=0)
        assert np.sign(noisy.value[0]) == np.sign(value)
        assert abs(noisy.value[0]) <= 1e12
    values = np.array([1e6, -1e6])
    noisy = build(Silent(), "gaussian", 1e12).additive("r", values, l1=1, l2=1, lattice=0)
    assert np.array_equal(noisy.value, values)


def test_row_order_cannot_matter():
    rng = np.random.default_rng(0)
    lattice = sum_lattice(1.0, 500)
    values = np.ldexp(np.rint(np.ldexp(rng.uniform(-1, 1, 500), -lattice)), lattice)
    found = {
        float(
            build(SeededSource(4), "laplace", 0.9)
            .additive("r", [values[rng.permutation(500)].sum()], l1=2.0, l2=2.0, lattice=lattice)
            .value[0]
        )
        for _ in range(20)
    }
    assert len(found) == 1


# ------------------------------------------------------------------- OpenDP's view


class Listening(SystemSource):
    def __init__(self):
        self.calls = []

    def laplace(self, name, values, scale):
        self.calls.append(("laplace", values, scale))
        return super().laplace(name, values, scale)

    def gaussian(self, name, values, scale):
        self.calls.append(("gaussian", values, scale))
        return super().gaussian(name, values, scale)


@pytest.mark.parametrize("epsilon", [0.01, 0.25, 1.0, 10.0])
@pytest.mark.parametrize(("l1", "lattice", "size"), [(2.0, 0, 6), (3.0, -24, 2), (0.5, -30, 1)])
@pytest.mark.parametrize("rows", [1, 2])
def test_opendp_agrees_with_the_laplace_epsilon(epsilon, l1, lattice, size, rows):
    """Its map of the integer mechanism at the integer sensitivity is epsilon (to rounding up)."""
    domains = pytest.importorskip("opendp.domains")
    import opendp.measurements as measurements
    import opendp.metrics as metrics

    source = Listening()
    build(source, "laplace", epsilon, rows_per_person=rows).additive(
        "r", np.zeros(size), l1=l1, l2=l1, lattice=lattice
    )
    ((_, values, scale),) = source.calls
    assert values.dtype == np.int64
    space = domains.vector_domain(domains.atom_domain(T="i64"), size=size)
    mechanism = measurements.make_laplace(space, metrics.l1_distance(T="i64"), scale=scale)
    steps = int(rows * l1 / 2.0**lattice)
    assert steps == rows * l1 / 2.0**lattice
    assert mechanism.map(steps) <= epsilon * (1.0 + 1e-12)
    assert mechanism.map(steps) >= epsilon * (1.0 - 1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.25, 1e-6), (1.0, 1e-9), (5.0, 1e-3)])
def test_opendp_agrees_with_the_gaussian_rho(epsilon, delta):
    """Its map gives rho = (shift / scale)**2 / 2 of the same mechanism."""
    domains = pytest.importorskip("opendp.domains")
    import opendp.measurements as measurements
    import opendp.metrics as metrics

    source = Listening()
    noisy = build(source, "gaussian", epsilon, delta).additive(
        "r", np.zeros(3), l1=9.0, l2=2.0, lattice=-30
    )
    ((_, _, scale),) = source.calls
    space = domains.vector_domain(domains.atom_domain(T="i64"), size=3)
    mechanism = measurements.make_gaussian(space, metrics.l2_distance(T=float), scale=scale)
    steps = 2.0 * scale / noisy.scale
    assert mechanism.map(steps) == pytest.approx(0.5 * (2.0 / noisy.scale) ** 2, rel=1e-9)
    assert gaussian_log_delta(2.0 / noisy.scale, epsilon) <= math.log(delta) + 1e-9


# ------------------------------------------------------------------- the released law


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize(("lattice", "epsilon"), [(0, 0.05), (-30, 1.0), (-40, 1e-9)])
def test_released_numbers_have_the_recorded_law(kind, lattice, epsilon):
    """Kolmogorov-Smirnov at 1e-3, fixed seed (six cases)."""
    from scipy import stats

    noisy = build(SeededSource(12), kind, epsilon).additive(
        "r", np.full(5000, 17.0), l1=2.0, l2=2.0, lattice=lattice, divisor=3.0
    )
    standard = (noisy.value - 17.0 / 3.0) / noisy.scale
    # on a grid of 40 steps a scale the step would be seen: spread it
    if lattice == 0 and kind == "laplace":
        standard += np.random.default_rng(1).uniform(-0.5, 0.5, 5000) / 40.0
    law = stats.laplace if kind == "laplace" else stats.norm
    assert stats.kstest(standard, law.cdf).pvalue > 1e-3


def test_noise_grows_with_rows_and_falls_with_epsilon():
    scales = [
        build(Silent(), "laplace", 1.0, rows_per_person=k)
        .additive("r", [0.0], l1=1, l2=1, lattice=-20)
        .scale
        for k in (1, 2, 5)
    ]
    assert scales == [1.0, 2.0, 5.0]
    for kind in ("laplace", "gaussian"):
        scales = [
            build(Silent(), kind, eps).additive("r", [0.0], l1=1, l2=1, lattice=-20).scale
            for eps in np.geomspace(1e-3, 1e3, 30)
        ]
        assert all(a > b for a, b in pairwise(scales))


@pytest.mark.parametrize(("n", "size"), [(5, 5), (131_073, 131_072), (1_000_003, 131_072), (40, 7)])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_sample_has_one_position_of_each_stretch(n, size, seed) -> None:
    source = None if seed is None else SeededSource(seed)
    found = Mechanisms(source, "laplace", {}).sample("moments", n, size)
    edges = np.arange(size + 1) * n // size
    assert found.shape == (size,)
    assert (found >= edges[:-1]).all()
    assert (found < edges[1:]).all()


def test_a_sample_has_no_rhythm() -> None:
    """A file whose rows take turns: shares of a random sample are off by 5 sd at most."""
    found = Mechanisms(SeededSource(4), "laplace", {}).sample("moments", 1_000_003, 131_072)
    for turns in (2, 3, 7):
        share = float(np.mean(found % turns == 0))
        sd = np.sqrt(1 / turns * (1 - 1 / turns) / 131_072)
        assert abs(share - 1 / turns) < 5 * sd
