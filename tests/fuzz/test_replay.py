"""Every release of any call, on neighbours: the same numbers before it, and the exact one moves by
no more than its sensitivity; nothing else of the result knows which file it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ate_inputs import AteInput, ate_inputs, one_row_replaced
from checks import LONG, QUICK, Count, attempt, released, rule, tally
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from panel_inputs import METHODS, PanelInput, one_donor_replaced, panel_inputs
from replay import Tape, taped

import dpstats as dp
from dpstats.ate import results as ate_results
from dpstats.ate.kernels import KERNELS, outcome
from dpstats.ate.kernels.ipw import Ipw
from dpstats.privacy.mechanisms import Mechanisms
from dpstats.propensity import Objective
from dpstats.synth import results as synth_results
from dpstats.synth.kernels import did, objective, output

SIZES = (2, 3, 4, 7, 20, 60, 300)
NUMBER = st.integers(0, 2**16)


@pytest.fixture(autouse=True, scope="module")
def _few_draws():
    """The simulation behind a standard error has the same code for fewer draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ate_results, "DRAWS", 99)
        patch.setattr(synth_results, "_DRAWS", 99)
        patch.setattr(synth_results, "_DRAWS_FOR_WARNING", 50)
        yield


def replayed(first: Any, second: Any, tape: Tape) -> tuple[Any, Any]:
    """Run the one and replay it as the other; return what both released, or why not."""
    one, error, shown = attempt(first)
    tape.rewind()
    two, other, also = attempt(second)
    assert (error, shown) == (other, also)
    assert tape.place == len(tape.releases), "the neighbour made fewer releases"
    return (None, error) if error is not None else ((one, two), None)


def same(one: Any, two: Any) -> None:
    """All that is shown is a function of the released numbers."""
    assert released(one) == released(two)
    assert one.summary(diagnostics=True).as_text() == two.summary(diagnostics=True).as_text()
    assert one.conf_int().equals(two.conf_int())


def rows(case: AteInput, number: int) -> str:
    """A call of `dp_ate` and its replay with one row replaced."""
    other = one_row_replaced(case, np.random.default_rng(number))
    with taped() as tape:
        pair, error = replayed(case.run, other.run, tape)
        if error is not None:
            return f"refused: {rule(error)}"
        same(*pair)
    return f"replayed: {case.method}"


def donors(case: PanelInput, number: int) -> str:
    """A call of `dp_synth` and its replay with one donor replaced."""
    other = one_donor_replaced(case, np.random.default_rng(number))
    with taped() as tape:
        first, second = (c.call(c.frame()) for c in (case, other))
        pair, error = replayed(first, second, tape)
        if error is not None:
            return f"refused: {rule(error)}"
        same(*pair)
    return f"replayed: {case.method}"


@settings(QUICK, max_examples=100)
@given(ate_inputs(), NUMBER)
def test_a_replaced_row_moves_each_release_by_its_sensitivity(case, number):
    rows(case, number)


@settings(QUICK, max_examples=60)
@given(panel_inputs((1, 2, 3, 5, 12, 40)), NUMBER)
def test_a_replaced_donor_moves_each_release_by_its_sensitivity(case, number):
    donors(case, number)


# ------------------------------------------------------------------------------- does it have teeth


def shares(run: Any, inputs: Any, examples: int) -> dict[str, float]:
    """Return the largest share of its sensitivity by which each release moved."""
    found: dict[str, float] = {}

    @settings(QUICK, max_examples=examples)
    @given(inputs, NUMBER)
    def go(case, number):
        with pytest.MonkeyPatch.context() as patch:
            judge = Tape.judge

            def watched(self, name, change, sensitivity, slack):
                judge(self, name, change, sensitivity, slack)
                found[name] = max(found.get(name, 0.0), change / sensitivity)

            patch.setattr(Tape, "judge", watched)
            run(case, number)

    go()
    return found


def test_releases_do_move() -> None:
    """Most come near to their sensitivities in a few drawn files already."""
    found = shares(rows, ate_inputs((2, 3, 4, 7)), 150)
    for name in ("counts", "sums", "score", "numerators", "bounds", "propensity, gradient"):
        assert found[name] > 0.4, (name, found)
    assert found["moments, nuclear"] > 0.6, found
    found = shares(donors, panel_inputs((1, 2, 3)), 60)
    for name in ("mean", "prediction", "moments, nuclear", "scale"):
        assert found[name] > 0.6, (name, found)


FRAME = pd.DataFrame({"y": [1.0, 0.0, 0.2, 0.9], "w": [1, 0, 1, 0], "x": [1.0, -1.0, 0.3, -0.2]})
MOVED = FRAME.assign(y=[-1.0, 0.0, 0.2, 0.9])
SWAPPED = FRAME.assign(w=[0, 0, 1, 0], x=[-1.0, -1.0, 0.3, -0.2])
PANEL = pd.DataFrame([[1.0, -1.0, 0.0], [1.0, -1.0, 1.0]], index=["target", "donor"])
TURNED = pd.DataFrame([[1.0, -1.0, 0.0], [-1.0, 1.0, -1.0]], index=["target", "donor"])


def ate(frame: pd.DataFrame, **options: Any) -> Any:
    bounds = {"y": (-1.0, 1.0), "x": (-1.0, 1.0)}
    return lambda: dp.dp_ate("y ~ x", "w", frame, 1.0, bounds=bounds, rng=3, **options)


def synth(panel: pd.DataFrame, **options: Any) -> Any:
    call = {"wide": True, "T0": 1, "treated": "target", "bounds": (-1.0, 1.0), "rng": 3, **options}
    return lambda: dp.dp_synth(panel, eps=1.0, **call)


CALLS: dict[str, tuple[Any, Any]] = {
    "ipw": tuple(ate(frame, method="ipw", propensity=0.5) for frame in (FRAME, MOVED)),
    "fitted": tuple(ate(frame, method="ipw") for frame in (FRAME, SWAPPED)),
    "regression": tuple(ate(frame, method="regression") for frame in (FRAME, SWAPPED)),
    "did": tuple(synth(panel, method="did") for panel in (PANEL, TURNED)),
    "output": tuple(synth(panel, method="output") for panel in (PANEL, TURNED)),
    "objective": tuple(synth(panel, method="objective") for panel in (PANEL, TURNED)),
}


def halved_sensitivity(patch: pytest.MonkeyPatch) -> None:
    own = Mechanisms.additive
    patch.setattr(
        Mechanisms,
        "additive",
        lambda self, name, values, *, l1, l2, **more: own(
            self, name, values, l1=0.49 * l1, l2=0.49 * l2, **more
        ),
    )


def sensitivity_of_the_data(patch: pytest.MonkeyPatch) -> None:
    own = Mechanisms.additive

    def additive(self, name, values, *, l1, l2, **more):
        size = 1.0 + float(np.sum(values))
        return own(self, name, values, l1=l1 * size, l2=l2 * size, **more)

    patch.setattr(Mechanisms, "additive", additive)


def exact_score(patch: pytest.MonkeyPatch) -> None:
    own = Ipw.run

    def run(self, arrays, settings, mechanisms):
        found = own(self, arrays, settings, mechanisms)
        return replace(found, score=float(arrays.outcome.mean()))

    patch.setattr(Ipw, "run", run)


# the call, what the complaint says, the fault
FAULTS: dict[str, tuple[str, str, Any]] = {
    "sensitivity halved": ("ipw", "'score'", halved_sensitivity),
    "sensitivity of the data": ("ipw", "promised", sensitivity_of_the_data),
    "an exact number": ("ipw", 'score":', exact_score),
    "noise of the propensity halved": (
        "fitted",
        "'propensity, loss'",
        lambda patch: patch.setattr(
            Objective, "calibrated", lambda _, eps, delta: (0.9 * eps, 2.0, 0.5)
        ),
    ),
    "rows too long": (
        "regression",
        "'moments, nuclear'",
        lambda patch: patch.setattr(outcome, "_SHARES", (0.9, 0.9, 0.9)),
    ),
    "rows not shrunk": (
        "did",
        "'mean'",
        lambda patch: patch.setattr(did, "_row_norms", lambda donors, _: np.zeros(len(donors))),
    ),
    "published sensitivity": (
        "output",
        "'weights'",
        lambda patch: patch.setattr(output, "ridge_sensitivity", lambda *_: 0.1),
    ),
    "gradient of one period": (
        "objective",
        "'weights, gradient'",
        lambda patch: patch.setattr(objective, "gradient_sensitivity", lambda *_: 1.0),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_simple_calls_are_replayed(name: str) -> None:
    with taped() as tape:
        pair, error = replayed(*CALLS[name], tape)
        assert error is None
        same(*pair)
    assert max(share for _, share in tape.moved) > 0.1


@pytest.mark.parametrize("fault", FAULTS)
def test_control_faults_are_noticed(fault: str) -> None:
    name, complaint, spoil = FAULTS[fault]
    with taped() as tape, pytest.MonkeyPatch.context() as patch:
        # over the tape, which sees what is declared; undone before it
        spoil(patch)
        with pytest.raises(AssertionError, match=complaint):
            same(*replayed(*CALLS[name], tape)[0])


# ------------------------------------------------------------------------------------ the long run


@pytest.mark.study
def test_long_run_of_replays(capsys) -> None:
    count = Count()

    @seed(20261204)
    @settings(LONG, max_examples=6000)
    @given(ate_inputs(SIZES), NUMBER)
    def of_rows(case: AteInput, number: int) -> None:
        tally(count, rows, case, number)

    @seed(20261205)
    @settings(LONG, max_examples=3000)
    @given(panel_inputs(), NUMBER)
    def of_donors(case: PanelInput, number: int) -> None:
        tally(count, donors, case, number)

    of_rows()
    of_donors()
    with capsys.disabled():
        print("\n" + count.report("replays on neighbours"))
    assert count.faults == {}
    for method in (*KERNELS, *METHODS):
        assert count.ends[f"replayed: {method}"] > 50
