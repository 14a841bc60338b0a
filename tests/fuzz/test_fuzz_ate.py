"""Random frames and calls of `dp_ate`: finite, within the budget, silent about the rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from ate_inputs import CHANGES, AteInput, ate_inputs, one_row_replaced, whole_arm_moved
from checks import LONG, QUICK, Count, attempt, check_result, check_texts, released, rule, tally
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from dpstats.ate import results
from dpstats.ate.kernels import KERNELS

SIZES = (2, 3, 4, 7, 20, 60, 300, 300, 2000)


@pytest.fixture(autouse=True, scope="module")
def _few_draws():
    """The simulation behind a standard error has the same code for fewer draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "DRAWS", 199)
        yield


def health(case: AteInput) -> str:
    """One call and everything that is shown of it."""
    before = case.frame.copy(deep=True)
    result, error, shown = attempt(case.run)
    pd.testing.assert_frame_equal(case.frame, before, check_exact=True)
    check_texts([error or "", *shown], case.frame)
    if error is not None:
        return f"refused: {rule(error)}"
    low, high = result.facts.outcome_bounds

    def look() -> None:
        check_result(result, case.eps, case.options["delta"], high - low)

    _, error, more = attempt(look)
    assert error is None, error
    assert more == (), more
    return f"answered: {case.method}"


def without_noise(case: AteInput) -> str:
    """The ordinary estimator on the same input: it may refuse the rows, but not show them."""
    options = {k: v for k, v in case.options.items() if k not in ("split", "delta")}
    if case.seed % 3:
        options.pop("bounds", None)
    case = replace(case, eps=math.inf, options=options)
    before = case.frame.copy(deep=True)
    result, error, shown = attempt(case.run)
    pd.testing.assert_frame_equal(case.frame, before, check_exact=True)
    check_texts([error or "", *shown], case.frame)
    if error is not None:
        return f"refused: {rule(error)}"

    def look() -> None:
        for numbers in (result.params, result.bse, result.conf_int(), result.pvalues):
            assert not np.isnan(numbers.to_numpy()).any(), numbers
        assert np.isfinite(result.params).all()
        assert "nan" not in result.diagnostics.to_string() + str(result.summary())

    _, error, more = attempt(look)
    assert (error, more) == (None, ())
    return f"answered: {case.method}"


def invariance(case: AteInput, change: str, number: int) -> str:
    """Two calls that must release the same numbers, to the last bit."""
    made = CHANGES[change](case, np.random.default_rng(number))
    if made is None:
        return f"no {change} to change"
    first, second = made if isinstance(made, tuple) else (case, made)
    (one, error, shown), (two, other, also) = attempt(first.run), attempt(second.run)
    renames = change in ("labels", "location")
    assert (error is None) == (other is None), (error, other)
    assert len(shown) == len(also) if renames else shown == also
    if error is not None:
        assert renames or error == other, (error, other)
        return f"refused alike: {change}"
    assert released(one) == released(two)
    assert float(one.params.iloc[0]) == float(two.params.iloc[0])
    if not renames:
        assert one.facts == two.facts
        assert repr(one.privacy.public) == repr(two.privacy.public)
    return f"the same: {change}"


def free_question(case: AteInput, number: int) -> str:
    """Two calls on files that differ in rows only: the same error or none, the same warnings."""
    rng = np.random.default_rng(number)
    other = (one_row_replaced if rng.random() < 0.7 else whole_arm_moved)(case, rng)
    (_, error, shown), (_, failed, also) = attempt(case.run), attempt(other.run)
    spent = "The budget of this call is spent"
    if spent in (error or "") or spent in (failed or ""):
        # an output of the private search for bounds
        return "charged: bounds not found"
    assert error == failed
    assert shown == also
    return "the same refusal" if error is not None else "the same warnings"


CHANGE = st.sampled_from(sorted(CHANGES))
NUMBER = st.integers(0, 2**16)


@settings(QUICK, max_examples=120)
@given(ate_inputs())
def test_any_call_gives_finite_numbers_or_a_refusal(case):
    health(case)


@settings(QUICK, max_examples=120)
@given(ate_inputs(), CHANGE, NUMBER)
def test_what_must_not_matter_does_not(case, change, number):
    invariance(case, change, number)


@settings(QUICK, max_examples=60)
@given(ate_inputs((20, 60, 300)))
def test_any_call_without_noise_gives_finite_numbers_or_a_refusal(case):
    without_noise(case)


@settings(QUICK, max_examples=120)
@given(ate_inputs(), NUMBER)
def test_no_call_answers_a_free_question(case, number):
    free_question(case, number)


@pytest.mark.study
def test_long_run_of_calls(capsys):
    count = Count()

    @seed(20261130)
    @settings(LONG, max_examples=8000)
    @given(ate_inputs(SIZES))
    def run(case: AteInput) -> None:
        tally(count, health, case)

    run()
    with capsys.disabled():
        print("\n" + count.report("dp_ate, any call"))
    assert count.faults == {}
    assert sum(count.ends.values()) >= 8000
    answered = sum(number for end, number in count.ends.items() if end.startswith("answered"))
    assert answered > 4000
    for method in KERNELS:
        assert count.ends[f"answered: {method}"] > 100


@pytest.mark.study
def test_long_run_of_calls_without_noise(capsys):
    count = Count()

    @seed(20261203)
    @settings(LONG, max_examples=2000)
    @given(ate_inputs((20, 60, 300)))
    def run(case: AteInput) -> None:
        tally(count, without_noise, case)

    run()
    with capsys.disabled():
        print("\n" + count.report("dp_ate, eps = inf"))
    assert count.faults == {}
    answered = sum(number for end, number in count.ends.items() if end.startswith("answered"))
    assert answered > 500


@pytest.mark.study
def test_long_run_of_invariances(capsys):
    count = Count()

    @seed(20261201)
    @settings(LONG, max_examples=8000)
    @given(ate_inputs(SIZES), CHANGE, NUMBER)
    def run(case: AteInput, change: str, number: int) -> None:
        tally(count, invariance, case, change, number)

    run()
    with capsys.disabled():
        print("\n" + count.report("dp_ate, invariances"))
    assert count.faults == {}
    for change in CHANGES:
        assert count.ends[f"the same: {change}"] >= 10


@pytest.mark.study
def test_long_run_of_free_questions(capsys):
    count = Count()

    @seed(20261202)
    @settings(LONG, max_examples=4000)
    @given(ate_inputs(SIZES), NUMBER)
    def run(case: AteInput, number: int) -> None:
        tally(count, free_question, case, number)

    run()
    with capsys.disabled():
        print("\n" + count.report("dp_ate, free questions"))
    assert count.faults == {}
    assert count.ends["the same warnings"] > 2000
