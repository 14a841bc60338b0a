"""A refused call has spent nothing, whatever the input; one that answers has spent its eps."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
from ate_inputs import ate_inputs
from checks import QUICK
from hypothesis import given, settings
from hypothesis import strategies as st
from panel_inputs import panel_inputs

import dpstats as dp
from dpstats.ate import results as ate_results
from dpstats.ate.kernels import KERNELS
from dpstats.propensity import Objective


@pytest.fixture(autouse=True, scope="module")
def _few_draws():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ate_results, "DRAWS", 50)
        yield


def charged(call, eps, delta, protects):
    """Return the error, or None, and what was spent of a ledger that holds just as much."""
    ledger = dp.PrivacyLedger(":memory:", eps=eps, delta=delta, protects=protects)
    error = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call(ledger)
        except dp.DPStatsError as refused:
            error = refused
    return error, ledger.spent


def check(error, spent, eps, delta):
    if error is None:
        assert spent == (eps, delta)
    elif "call is spent" not in str(error):
        assert spent == (0.0, 0.0), error


@settings(QUICK, max_examples=120)
@given(ate_inputs((2, 3, 20)), st.sampled_from([None, 0.1]))
def test_effects(case, share):
    case = replace(case, options={**case.options, "check_bounds": share})

    def call(ledger):
        with ledger:
            replace(case, seed=None).run()

    delta = case.options["delta"]
    check(*charged(call, case.eps, delta, "row"), case.eps, delta)


@settings(QUICK, max_examples=60)
@given(panel_inputs((1, 3, 12)))
def test_panels(case):
    frame = case.frame()
    run = replace(case, seed=None).call(frame)

    def call(ledger):
        with ledger:
            run()

    delta = case.options.get("delta", 0.0)
    check(*charged(call, case.eps, delta, "unit"), case.eps, delta)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("method", [name for name in KERNELS if KERNELS[name].uses_propensity])
def test_a_penalty_too_small_for_its_budget(method, delta):
    trial = dp.simulate.ate("well_specified", 300, rng=1)
    options = {"blocks": 3} if method == "blocking" else {}

    def call(ledger):
        dp.dp_ate(
            *("y ~ x1", "w", trial.data, 1.0),
            delta=delta,
            method=method,
            bounds=trial.bounds,
            propensity=Objective(penalty=1e-3),
            ledger=ledger,
            **options,
        )

    error, spent = charged(call, 1.0, delta, "row")
    assert error is not None
    assert spent == (0.0, 0.0)
