"""Bounds: a brute-force histogram, and the promises of the private search measured.

Random data have fixed seeds; stated rates hold over fresh seeds.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import BoundsError, DPStatsError
from dpstats.privacy import bounds as module
from dpstats.privacy.accounting import Cost
from dpstats.privacy.bounds import (
    check_interval,
    private_bounds,
    private_bounds_share,
    private_bounds_threshold,
)
from dpstats.privacy.mechanisms import Mechanisms
from dpstats.privacy.noise import SeededSource

# the public list of bins: zero, then (2**(j-1), 2**j] for j from -30 to 60, both signs
POWERS = range(-30, 61)
NUMBER = 2 * len(POWERS) + 1
ZERO = len(POWERS)


def brute_bin(value):
    """The bin of one value by comparison with every edge."""
    size = abs(value)
    if size <= 2.0**-31:
        return ZERO
    inside = [i for i, j in enumerate(POWERS, 1) if size <= 2.0**j]
    offset = inside[0] if inside else len(POWERS)
    return ZERO + offset if value > 0.0 else ZERO - offset


def brute_histogram(values):
    counts = np.zeros(NUMBER)
    for value in values:
        counts[brute_bin(value)] += 1
    return counts


EDGES = [0.0, -0.0, math.inf, 5e-324, 2.2e-308, 1e-310, 1e300, 1.7e308, 2.0**-32, 2.0**61, 2.0**60]
EDGES += [2.0**j * f for j in (-32, -31, -30, -29, -1, 0, 1, 10, 59, 60) for f in (1, 1.5)]
EDGES += [math.nextafter(2.0**j, to) for j in (-31, -30, 0, 3, 60) for to in (0.0, math.inf)]


@pytest.mark.parametrize("value", [sign * edge for edge in EDGES for sign in (1.0, -1.0)])
def test_bin_of_an_edge(value):
    counts = module._histogram(np.array([value]))
    assert counts.shape == (NUMBER,)
    assert int(np.flatnonzero(counts)[0]) == brute_bin(value)
    assert counts.sum() == 1.0


@settings(max_examples=150, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=True), min_size=1, max_size=60))
def test_histogram_is_the_brute_force_one(values):
    assert np.array_equal(module._histogram(np.array(values)), brute_histogram(values))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=60))
def test_histogram_of_integers(values):
    assert np.array_equal(module._histogram(np.array(values, dtype=float)), brute_histogram(values))


@pytest.mark.parametrize("index", range(NUMBER))
def test_interval_of_a_bin_contains_the_bin(index):
    low, high = module._interval(index, index)
    assert math.isfinite(low)
    assert math.isfinite(high)
    assert low < high
    offset = abs(index - ZERO)
    if offset == 0:
        assert low == 0.0
    else:
        outer = 2.0 ** (offset - 31)
        assert (high if index > ZERO else -low) == outer
        assert (low if index > ZERO else -high) == (0.0 if offset == 1 else outer / 2.0)


@pytest.mark.parametrize(("first", "last"), [(0, NUMBER - 1), (ZERO, ZERO + 5), (ZERO - 5, ZERO)])
def test_interval_of_a_range_of_bins(first, last):
    low, high = module._interval(first, last)
    assert low == (0.0 if first >= ZERO else -(2.0 ** (ZERO - first - 31)))
    assert high == (0.0 if last <= ZERO else 2.0 ** (last - ZERO - 31))


# ------------------------------------------------------------------- sensitivity


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_sensitivity_of_the_stacked_histograms(columns):
    """One row replaced, exhaustively over extreme rows: 2q is attained, not exceeded."""
    values = [0.0, 1.0, -1.0, 1e9]
    rows = list(product(values, repeat=columns))
    rest = [np.array([0.5, 0.0, -3.0])] * columns
    largest_l1 = largest_l2 = 0.0
    for old, new in product(rows, rows):
        change = np.concatenate(
            [
                module._histogram(np.append(rest[c], old[c]))
                - module._histogram(np.append(rest[c], new[c]))
                for c in range(columns)
            ]
        )
        largest_l1 = max(largest_l1, np.abs(change).sum())
        largest_l2 = max(largest_l2, float(np.linalg.norm(change)))
    assert largest_l1 == 2.0 * columns
    assert largest_l2 == pytest.approx(math.sqrt(2.0 * columns))


@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_recorded_scale(columns, rows):
    data = {f"x{i}": np.full(10_000, 3.0) for i in range(columns)}
    # the noise is Laplace also in a call with Gaussian noise, and spends no delta
    mechanisms = Mechanisms(
        SeededSource(1), "gaussian", {"bounds": Cost(0.5, 1e-6)}, rows_per_person=rows
    )
    found, (record,) = private_bounds(data, mechanisms)
    assert record.release == "bounds"
    assert record.mechanism == "Laplace"
    assert record.sensitivity == 2.0 * columns * rows
    assert record.scale == pytest.approx(2.0 * columns * rows / 0.5, rel=1e-9)
    assert (record.epsilon, record.delta) == (0.5, 0.0)
    assert found == dict.fromkeys(data, (2.0, 4.0))


# ------------------------------------------------------------------- the search


def search(data, epsilon, seed):
    mechanisms = Mechanisms(SeededSource(seed), "laplace", {"bounds": Cost(epsilon)})
    return private_bounds(data, mechanisms)[0]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("columns", [1, 5])
def test_an_empty_bin_passes_in_at_most_one_per_cent(epsilon, columns):
    """300 searches in columns of which every bin is empty (0 rows): each finding is false.

    At the promised rate of 1 % more than 12 findings have probability 1e-5.
    """
    data = {f"x{i}": np.empty(0) for i in range(columns)}
    source = SeededSource(3)
    mechanisms = Mechanisms(source, "laplace", {"bounds": Cost(epsilon)})
    false = 0
    for _ in range(300):
        # the error names the columns for which nothing passed
        try:
            private_bounds(data, mechanisms)
        except BoundsError as error:
            empty = sum(f"'{name}'" in str(error).split(": no power")[0] for name in data)
            false += empty < columns
        else:
            false += 1
    assert false <= 12


def test_too_wide_an_interval_is_as_rare_as_stated():
    """An empty bin is taken for an occupied one in 1 %, the next one outwards in 5 % of searches.

    More than 25, or 80, in 1000 have probability 1e-5.
    """
    mechanisms = Mechanisms(SeededSource(8), "laplace", {"bounds": Cost(0.5)})
    data = {"x": np.full(2000, 3.0)}
    found = [private_bounds(data, mechanisms)[0]["x"] for _ in range(1000)]
    assert all(low <= 2.0 and high >= 4.0 for low, high in found)
    near = [low in {1.0, 2.0} and high in {4.0, 8.0} for low, high in found]
    assert sum(not close for close in near) <= 25
    assert sum(pair != (2.0, 4.0) for pair, close in zip(found, near, strict=True) if close) <= 80


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0, 4.0, 8.0, 30.0])
@pytest.mark.parametrize("columns", [1, 6])
def test_failure_probability_from_the_exact_pmf(epsilon, columns):
    """q x bins x P(noise passes) <= 1 %, and <= 5 % over 2q ends, for the integer noise."""
    scale = 2.0 * columns / epsilon
    threshold = scale * math.log(columns * NUMBER / 0.02)
    assert private_bounds_threshold(columns, epsilon) == pytest.approx(threshold)
    edge = scale * math.log(2.0 * columns / 0.1)

    def passes(level):
        # smallest integer noise above level + 1/2
        k = math.floor(level + 0.5) + 1
        return math.exp(-k / scale) / (1.0 + math.exp(-1.0 / scale))

    assert columns * NUMBER * passes(threshold) <= 0.01
    assert 2 * columns * passes(edge) <= 0.05


def incomes(rng, n):
    return np.where(rng.random(n) < 0.4, 0.0, rng.lognormal(10.0, 1.0, n))


DISTRIBUTIONS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "shifted normal": lambda rng, n: rng.normal(100.0, 5.0, n),
    "negative": lambda rng, n: -rng.gamma(3.0, 20.0, n),
    "lognormal": lambda rng, n: rng.lognormal(3.0, 1.0, n),
    "zero-inflated income": incomes,
    "uniform": lambda rng, n: rng.uniform(0.0, 1.0, n),
    "constant": lambda rng, n: np.full(n, 7.0),
    "constant zero": lambda rng, n: np.zeros(n),
    "constant power": lambda rng, n: np.full(n, -8.0),
    "0/1": lambda rng, n: (rng.random(n) < 0.3).astype(float),
    "years": lambda rng, n: rng.integers(1950, 2024, n).astype(float),
    "ages": lambda rng, n: rng.integers(0, 100, n).astype(float),
    "tiny": lambda rng, n: 1e-12 * rng.normal(size=n),
    "huge": lambda rng, n: 1e25 * rng.normal(size=n),
    "t": lambda rng, n: rng.standard_t(3.0, n),
    "two far clusters": lambda rng, n: np.where(rng.random(n) < 0.5, -1e-3, 1e6),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_found_intervals_hold_the_data(name):
    """20,000 rows, the default share of eps = 1, five columns.

    The share is chosen so that a bin with one per cent of the rows passes; what is outside is at
    most the tail beyond such a bin (a quarter of a bin under a normal), here at most 3 %. The
    intervals are not absurdly wide: 8 times the range of the central 99 % and of zero.
    """
    n, failures = 20_000, 0
    share = private_bounds_share(5, n, 1.0)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        data = {f"x{i}": DISTRIBUTIONS[name](rng, n) for i in range(5)}
        found = search(data, share, seed)
        for column, (low, high) in found.items():
            assert low < high
            values = data[column]
            if name in {"tiny", "huge"}:
                # outside the list of bins: everything falls into the end bin
                assert (low, high) == (0.0, 2.0**-30) or (low, high) == (-(2.0**60), 2.0**60)
                continue
            failures += np.mean((values >= low) & (values <= high)) < 0.97
            quantiles = np.abs(np.quantile(values, [0.005, 0.995])).max()
            assert high - low <= max(8.0 * quantiles, 2.0**-30)
    assert failures == 0


def test_one_row_at_a_million_does_not_show():
    rng = np.random.default_rng(0)
    data = rng.normal(size=5000)
    outlier = data.copy()
    outlier[17] = 1e9
    assert search({"x": data}, 1.0, 3) == search({"x": outlier}, 1.0, 3)


def test_too_few_rows_raise_and_name_the_column():
    data = {"income": np.full(5, 3.0), "age": np.full(5000, 3.0)}
    with pytest.raises(BoundsError) as caught:
        search(data, 0.5, 1)
    message = str(caught.value)
    assert "'income'" in message.split(":")[0]
    assert "'age'" not in message.split(":")[0]
    assert "bounds={'income': (lo, hi)}" in message
    assert "budget" in message
    # neither the counts nor the values of the data
    assert "5000" not in message
    assert isinstance(caught.value, DPStatsError)


def test_no_columns_cost_nothing():
    assert private_bounds({}, Mechanisms(SeededSource(0), "laplace", {})) == ({}, ())


def test_the_columns_are_not_changed():
    values = np.array([0.0, 1.0, np.inf, -np.inf, 5.0] * 1000)
    before = values.copy()
    search({"x": values}, 1.0, 0)
    assert np.array_equal(values, before)


def test_works_from_twice_the_threshold_on():
    """`dp_ate` asks for that many rows; a constant column is then found in all of 200 tries."""
    for columns in (1, 4):
        for epsilon in (0.05, 1.0):
            n = math.ceil(2.0 * private_bounds_threshold(columns, epsilon))
            data = {f"x{i}": np.full(n, 3.0) for i in range(columns)}
            for seed in range(50):
                found = search(data, epsilon, seed)
                assert all(low <= 3.0 <= high for low, high in found.values())


# ------------------------------------------------------------------- shares


@settings(max_examples=200, deadline=None)
@given(
    columns=st.integers(1, 30),
    n=st.integers(1, 10**8),
    epsilon=st.floats(1e-3, 100.0),
    rows=st.integers(1, 5),
)
def test_default_share(columns, n, epsilon, rows):
    share = private_bounds_share(columns, n, epsilon, rows)
    assert 0.02 <= share <= 0.25
    if 0.02 < share < 0.25:
        # the threshold at this share of the budget is one per cent of the rows
        threshold = private_bounds_threshold(columns, share * epsilon, rows)
        assert threshold == pytest.approx(0.01 * n, rel=1e-9)
    assert private_bounds_share(columns, 2 * n, epsilon, rows) <= share
    assert private_bounds_share(columns + 1, n, epsilon, rows) >= share


# ------------------------------------------------------------------- given bounds


@pytest.mark.parametrize(
    "value",
    [
        (0, 1),
        [0.0, 1.0],
        (np.float32(-1), np.int64(3)),
        np.array([0.0, 1.0]),
        pd.Series([2.0, 5.0]),
        (-1e99, 1e99),
        (0.0, 1e-99),
        range(2),
    ],
)
def test_accepted_intervals(value):
    low, high = check_interval("y", value)
    assert type(low) is type(high) is float
    assert (low, high) == tuple(float(end) for end in value)


@pytest.mark.parametrize(
    "value",
    [
        (5, 5),
        (7, 3),
        (math.nan, 1),
        (0, math.nan),
        (0, math.inf),
        (-math.inf, 0),
        (None, 1),
        (0, None),
        (0,),
        (0, 1, 2),
        (),
        5.0,
        None,
        "01",
        "0,1",
        ("0", "1"),
        (True, False),
        (False, True),
        ("a", "b"),
        {"lo": 0, "hi": 1},
        (-1.7e308, 1.7e308),
        (1j, 2),
        pd.NA,
        (pd.NA, 1),
    ],
)
@pytest.mark.parametrize("what", ["bounds", "levels"])
def test_refused_intervals(value, what):
    """Case 6: equal, swapped, nan, one-sided."""
    with pytest.raises(BoundsError, match=rf"`{what}` must give 'y' a pair"):
        check_interval("y", value, what)
