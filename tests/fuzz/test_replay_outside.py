"""The private number of rows outside bounds, replayed on neighbours of any call that has it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ate_inputs import ate_inputs, one_row_replaced
from checks import QUICK
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import taped
from test_replay import replayed, same

from dpstats.ate import outside
from dpstats.ate import results as ate_results


@pytest.fixture(autouse=True, scope="module")
def _few_draws():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ate_results, "DRAWS", 50)
        yield


def moves_of(examples, patched=None):
    """Return the shares of its sensitivity by which the count moved."""
    moves = []

    @settings(QUICK, max_examples=examples)
    @given(ate_inputs((2, 3, 7)), st.integers(0, 2**16), st.sampled_from([1e-6, 0.1, 0.6]))
    def go(case, number, share):
        case = replace(case, options={**case.options, "check_bounds": share})
        other = one_row_replaced(case, np.random.default_rng(number))
        with taped() as tape, pytest.MonkeyPatch.context() as patch:
            if patched is not None:
                patch.setattr(outside, "outside_rows", patched)
            pair, error = replayed(case.run, other.run, tape)
            if error is None:
                same(*pair)
                assert pair[0].outside == pair[1].outside
                assert pair[0].warnings == pair[1].warnings
                moves.extend(share for name, share in tape.moved if name == outside.OUTSIDE)

    go()
    return moves


def test_a_replaced_row_moves_the_count_by_one_at_most():
    moves = moves_of(120)
    assert len(moves) > 30
    assert set(moves) == {0.0, 1.0}


def test_control_a_count_of_values_moves_by_more():
    """By column it would move by as many as there are columns."""
    rows = outside.outside_rows

    def values(columns, schema, bounds):
        return np.repeat(rows(columns, schema, bounds), 2)

    with pytest.raises(AssertionError, match="outside"):
        moves_of(120, values)
