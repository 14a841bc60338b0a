"""Budgets: the matrix of bad input, and sums that are exact."""

from __future__ import annotations

import dataclasses
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstats as dp
from dpstats.errors import DPStatsError
from dpstats.privacy.accounting import (
    Cost,
    PrivacyRecord,
    Release,
    allocate,
    charge,
    check_budget,
    check_split,
)


@pytest.mark.parametrize(
    "eps",
    [1, 0.1, 1e-9, 1e9, 1e15, np.float32(1), np.float64(2), np.int8(3), np.uint64(4), math.inf],
)
def test_accepted_eps(eps):
    epsilon, delta = check_budget(eps, 0)
    assert type(epsilon) is float
    assert epsilon == float(eps)
    assert (type(delta), delta) == (float, 0.0)


@pytest.mark.parametrize(
    "eps",
    [
        math.nan,
        np.nan,
        0,
        0.0,
        -0.0,
        -1,
        -math.inf,
        True,
        False,
        np.True_,
        "1",
        b"1",
        None,
        [1.0],
        (1.0,),
        np.array(1.0),
        np.array([1.0]),
        1 + 0j,
        Decimal(1),
        Fraction(1, 2),
        {},
    ],
)
def test_refused_eps(eps):
    """Case 8: of nan, 0, -1, True, "1" and float32(1) only the last is a budget."""
    with pytest.raises(DPStatsError, match="`eps` must be a positive number"):
        check_budget(eps, 0.0)


@pytest.mark.parametrize(
    ("eps", "rule"),
    [(9.9e-10, "at least 1e-09"), (1e-300, "at least 1e-09"), (1.1e15, "at most 1e\\+15, or inf"),
     (1e200, "at most 1e\\+15, or inf"), (1e308, "at most 1e\\+15, or inf")],
)  # fmt: skip
def test_eps_that_floating_point_has_no_noise_for(eps, rule):
    for delta in (0.0, 1e-6):
        with pytest.raises(DPStatsError, match=f"`eps` must be {rule}"):
            check_budget(eps, delta)
    panel = pd.DataFrame(np.eye(4, 6), index=list("abcd"))
    with pytest.raises(DPStatsError, match=f"`eps` must be {rule}"):
        dp.dp_synth(panel, wide=True, T0=3, treated="a", eps=eps, delta=1e-6)


@pytest.mark.parametrize("delta", [0, 0.0, 1e-300, 1e-6, 0.999, np.float32(0.5)])
def test_accepted_delta(delta):
    assert check_budget(1.0, delta) == (1.0, float(delta))


@pytest.mark.parametrize(
    "delta", [1, 1.0, 2.0, -1e-9, math.nan, math.inf, True, False, np.False_, "0", None, [0.0]]
)
def test_refused_delta(delta):
    with pytest.raises(DPStatsError, match=r"`delta` must be a number in \[0, 1\)"):
        check_budget(1.0, delta)


def test_delta_has_no_meaning_without_noise():
    with pytest.raises(DPStatsError, match="`delta` has no meaning"):
        check_budget(math.inf, 1e-6)


# ------------------------------------------------------------------- splits


def test_a_split_keeps_the_order_of_the_releases():
    split = check_split({"sums": 0.25, "counts": 0.75}, ["counts", "sums"])
    assert list(split.items()) == [("counts", 0.75), ("sums", 0.25)]
    thirds = check_split(dict.fromkeys("abc", 1 / 3), list("abc"))
    assert list(thirds) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"a": 1.0}, r"give a share to each release of this call \(a, b\); got a"),
        ({"a": 0.5, "c": 0.5}, "each release"),
        ({"a": 0.3, "b": 0.3, "c": 0.4}, "each release"),
        ({}, "got none"),
        ({"a": 1.0, "b": 0.0}, "positive shares"),
        ({"a": 1.5, "b": -0.5}, "positive shares"),
        ({"a": math.nan, "b": 1.0}, "positive shares"),
        ({"a": math.inf, "b": 1.0}, "positive shares"),
        ({"a": True, "b": 1.0}, "positive shares"),
        ({"a": "0.5", "b": 0.5}, "positive shares"),
        ({"a": None, "b": 0.5}, "positive shares"),
        ({"a": 0.5, "b": 0.4}, "sum to 1; got 0.9"),
        ({"a": 0.5, "b": 0.5 + 1e-8}, "sum to 1"),
    ],
)
def test_refused_splits(split, message):
    with pytest.raises(DPStatsError, match=message):
        check_split(split, ["a", "b"])


shares = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(1e-6, 1e3), min_size=1, max_size=8)


@settings(max_examples=300, deadline=None)
@given(
    epsilon=st.floats(1e-9, 1e9),
    delta=st.floats(1e-300, 0.9),
    parts=shares,
    noisy=st.sets(st.sampled_from("abcdefgh")),
)
def test_allocations_sum_to_the_total(epsilon, delta, parts, noisy):
    costs = allocate(epsilon, delta, parts, noisy)
    assert list(costs) == list(parts)
    # to one unit in the last place of the total, which is all that floats allow
    assert math.fsum(cost.epsilon for cost in costs.values()) == pytest.approx(epsilon, rel=3e-16)
    total = math.fsum(parts.values())
    for name, cost in costs.items():
        assert cost.epsilon > 0.0
        assert cost.epsilon == pytest.approx(epsilon * parts[name] / total, rel=1e-12)
    chosen = {name: share for name, share in parts.items() if name in noisy}
    spent = math.fsum(cost.delta for cost in costs.values())
    assert spent == (pytest.approx(delta, rel=3e-16, abs=0.0) if chosen else 0.0)
    for name, cost in costs.items():
        wanted = delta * chosen[name] / math.fsum(chosen.values()) if name in chosen else 0.0
        assert cost.delta == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("count", [2, 3, 7, 10, 11, 49])
def test_equal_shares_spend_exactly_the_total(count):
    costs = allocate(1.0, 1e-6, {str(i): 1.0 for i in range(count)}, {str(i) for i in range(count)})
    assert math.fsum(cost.epsilon for cost in costs.values()) == 1.0
    assert math.fsum(cost.delta for cost in costs.values()) == 1e-6


def test_allocation_of_nothing_and_of_everything():
    assert allocate(math.inf, 0.0, {"a": 1.0, "b": 3.0}, ())["b"].epsilon == math.inf
    assert allocate(1.0, 0.0, {"a": 1.0}, {"a"}) == {"a": Cost(1.0, 0.0)}
    # a share far below the rounding of the total still gets something
    assert allocate(1.0, 0.0, {"a": 1.0, "b": 1e-20}, ())["b"].epsilon > 0.0
    assert allocate(1.0, 0.0, {"b": 1e-20, "a": 1.0}, ())["b"].epsilon > 0.0


# ------------------------------------------------------------------- records


def record(**changes):
    release = Release("sums", "all rows", "Laplace", "l1", 2.0, 4.0, 0.5, 0.0)
    base = PrivacyRecord(
        epsilon=1.0,
        delta=0.0,
        relation="replace one row",
        protects="every row.",
        public={"n": 10},
        private=True,
        seeded=False,
        records=(release, dataclasses.replace(release, release="counts")),
    )
    return dataclasses.replace(base, **changes)


def test_releases_are_a_frame_in_order():
    frame = record().releases
    assert list(frame.columns) == [field.name for field in dataclasses.fields(Release)]
    assert list(frame["release"]) == ["sums", "counts"]
    assert frame["epsilon"].sum() == 1.0
    frame.loc[0, "epsilon"] = 99.0
    assert record().releases.loc[0, "epsilon"] == 0.5
    empty = record(records=()).releases
    assert len(empty) == 0
    assert list(empty.columns) == list(frame.columns)


def test_records_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        record().epsilon = 0.1
    with pytest.raises(dataclasses.FrozenInstanceError):
        record().records[0].scale = 0.1


@pytest.mark.parametrize(
    ("changes", "has", "lacks"),
    [
        ({}, ["eps = 1", "2.72", "every row."], ["NOT PRIVATE", "delta"]),
        ({"delta": 1e-300, "epsilon": 0.5}, ["delta = 1e-300", "1.65"], ["NOT PRIVATE"]),
        ({"seeded": True, "private": False}, ["NOT PRIVATE", "seed", "eps = 1"], []),
        ({"epsilon": math.inf, "private": False}, ["NOT PRIVATE", "eps = inf"], ["protects"]),
        ({"epsilon": 1e6}, ["eps = 1e+06"], []),
    ],
)
def test_statement(changes, has, lacks):
    text = record(**changes).statement()
    for part in has:
        assert part in text
    for part in lacks:
        assert part not in text


def test_charge_goes_to_the_ledger_once():
    calls = []

    class Ledger:
        def charge(self, **arguments):
            calls.append(arguments)

    charge(None, epsilon=1.0, delta=0.0, relation="row", call="f()")
    charge(Ledger(), epsilon=1.0, delta=1e-6, relation="row", call="f()")
    assert calls == [{"epsilon": 1.0, "delta": 1e-6, "relation": "row", "call": "f()"}]
