"""Random panels and calls of `dp_synth`: finite, within the budget, silent about the donors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checks import LONG, QUICK, Count, attempt, check_panel, check_texts, released, rule, tally
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from panel_inputs import CHANGES, METHODS, PanelInput, one_donor_replaced, panel_inputs

from dpstats.synth import results
from dpstats.synth.kernels import KERNELS

DONORS = (1, 2, 3, 5, 12, 40, 120, 120, 1000)


@pytest.fixture(autouse=True, scope="module")
def _few_draws():
    """The simulation behind a standard error has the same code for fewer draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "_DRAWS", 99)
        patch.setattr(results, "_DRAWS_FOR_WARNING", 50)
        yield


def health(case: PanelInput) -> str:
    """One call and everything that is shown of it."""
    frame = case.frame()
    before = frame.copy(deep=True)
    result, error, shown = attempt(case.call(frame))
    pd.testing.assert_frame_equal(frame, before, check_exact=True)
    donors = pd.DataFrame(case.grid[case.treated :])
    check_texts([error or "", *shown], donors)
    if error is not None:
        return f"refused: {rule(error)}"
    _, error, more = attempt(lambda: check_panel(result, case.eps, case.options["delta"]))
    assert error is None, error
    assert more == (), more
    return f"answered: {case.method}"


def without_noise(case: PanelInput, method: str) -> str:
    """The ordinary estimators on the same input: they may refuse donors, but not show them."""
    options: dict[str, Any] = {"method": method}
    if case.seed % 2 and "bounds" in case.options:
        options["bounds"] = case.options["bounds"]
    case = replace(case, eps=math.inf, options=options)
    frame = case.frame()
    before = frame.copy(deep=True)
    result, error, shown = attempt(case.call(frame))
    pd.testing.assert_frame_equal(frame, before, check_exact=True)
    check_texts([error or "", *shown], pd.DataFrame(case.grid[case.treated :]))
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


def invariance(case: PanelInput, change: str, number: int) -> str:
    """Two calls that must release the same numbers, to the last bit."""
    made = CHANGES[change](case, np.random.default_rng(number))
    if made is None:
        return f"no {change} to change"
    first, second = made if isinstance(made, tuple) else (case, made)
    (one, error, shown), (two, other, also) = (attempt(c.call(c.frame())) for c in (first, second))
    assert (error is None) == (other is None), (error, other)
    if error is not None:
        assert error.split(":")[0] == other.split(":")[0], (error, other)
        return f"refused alike: {change}"
    assert len(shown) == len(also), (shown, also)
    if change == "location":
        a, b = one.effect.to_numpy(), two.effect.to_numpy()
        low, high = first.options["bounds"]
        # released numbers are the same; the path is moved back by C and the middle, with rounding
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * (high - low) + 1e-9)
    else:
        np.testing.assert_array_equal(one.effect.to_numpy(), two.effect.to_numpy())
    assert released(one) == released(two)
    return f"the same: {change}"


def free_question(case: PanelInput, number: int) -> str:
    """Two calls on panels that differ in a donor: the same error or none, the same public facts.

    Warnings are read off the released numbers here, so they may differ.
    """
    other = one_donor_replaced(case, np.random.default_rng(number))
    (one, error, _), (two, failed, _) = (attempt(c.call(c.frame())) for c in (case, other))
    spent = "The budget of this call is spent"
    if spent in (error or "") or spent in (failed or ""):
        return "charged: bounds not found"
    assert error == failed
    if error is not None:
        return "the same refusal"
    if "bounds" in case.options:
        assert one.facts == two.facts or repr(one.facts) == repr(two.facts)
        assert repr(one.privacy.public) == repr(two.privacy.public)
    return "the same public facts"


CHANGE = st.sampled_from(sorted(CHANGES))
NUMBER = st.integers(0, 2**16)


@settings(QUICK, max_examples=60)
@given(panel_inputs())
def test_any_panel_gives_finite_numbers_or_a_refusal(case):
    health(case)


@settings(QUICK, max_examples=80)
@given(panel_inputs(), CHANGE, NUMBER)
def test_what_must_not_matter_does_not(case, change, number):
    invariance(case, change, number)


@settings(QUICK, max_examples=40)
@given(panel_inputs((2, 5, 12, 40)), st.sampled_from(sorted(KERNELS)))
def test_any_panel_without_noise_gives_finite_numbers_or_a_refusal(case, method):
    without_noise(case, method)


@settings(QUICK, max_examples=60)
@given(panel_inputs(), NUMBER)
def test_no_panel_answers_a_free_question(case, number):
    free_question(case, number)


@pytest.mark.study
def test_long_run_of_panels(capsys):
    count = Count()

    @seed(20261130)
    @settings(LONG, max_examples=2000)
    @given(panel_inputs(DONORS))
    def run(case: PanelInput) -> None:
        tally(count, health, case)

    run()
    with capsys.disabled():
        print("\n" + count.report("dp_synth, any call"))
    assert count.faults == {}
    for method in METHODS:
        assert count.ends[f"answered: {method}"] > 50


@pytest.mark.study
def test_long_run_of_panels_without_noise(capsys):
    count = Count()

    @seed(20261203)
    @settings(LONG, max_examples=1000)
    @given(panel_inputs((2, 5, 12, 40)), st.sampled_from(sorted(KERNELS)))
    def run(case: PanelInput, method: str) -> None:
        tally(count, without_noise, case, method)

    run()
    with capsys.disabled():
        print("\n" + count.report("dp_synth, eps = inf"))
    assert count.faults == {}
    for method in KERNELS:
        assert count.ends[f"answered: {method}"] > 20


@pytest.mark.study
def test_long_run_of_panel_invariances(capsys):
    count = Count()

    @seed(20261201)
    @settings(LONG, max_examples=2000)
    @given(panel_inputs(DONORS), CHANGE, NUMBER)
    def run(case: PanelInput, change: str, number: int) -> None:
        tally(count, invariance, case, change, number)

    run()
    with capsys.disabled():
        print("\n" + count.report("dp_synth, invariances"))
    assert count.faults == {}
    for change in CHANGES:
        assert count.ends[f"the same: {change}"] >= 20


@pytest.mark.study
def test_long_run_of_free_questions_about_donors(capsys):
    count = Count()

    @seed(20261202)
    @settings(LONG, max_examples=1000)
    @given(panel_inputs(DONORS), NUMBER)
    def run(case: PanelInput, number: int) -> None:
        tally(count, free_question, case, number)

    run()
    with capsys.disabled():
        print("\n" + count.report("dp_synth, free questions"))
    assert count.faults == {}
    assert count.ends["the same public facts"] > 500
