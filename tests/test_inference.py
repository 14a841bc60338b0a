"""Intervals and p-values: scipy for the normal case, counting for the simulated one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from dpstats.errors import DPStatsError
from dpstats.inference import DRAWS, Inference, check_alpha


@pytest.mark.parametrize("estimate", [0.0, -3.0, 0.2, 1e-9, 1e6])
@pytest.mark.parametrize("error", [1e-6, 1.0, 50.0])
@pytest.mark.parametrize("alpha", [0.5, 0.1, 0.05, 0.01, 1e-6, 1e-12])
def test_normal(estimate, error, alpha):
    inference = Inference(estimate, error)
    low, high = stats.norm.interval(1.0 - alpha, estimate, error)
    exact = stats.norm.isf(alpha / 2.0) * error
    assert inference.interval(alpha) == pytest.approx((estimate - exact, estimate + exact))
    if alpha > 1e-9:
        assert inference.interval(alpha) == pytest.approx((low, high), rel=1e-6)
    assert inference.pvalue() == pytest.approx(2.0 * stats.norm.sf(abs(estimate) / error))


def test_no_error_at_all():
    assert Inference(1.0, 0.0).pvalue() == 0.0
    assert Inference(0.0, 0.0).pvalue() == 1.0
    assert Inference(1.0, 0.0).interval(0.05) == (1.0, 1.0)


@settings(max_examples=300, deadline=None)
@given(
    errors=st.lists(st.floats(-50.0, 50.0), min_size=1, max_size=60),
    estimate=st.floats(-60.0, 60.0),
    alpha=st.floats(0.001, 0.999),
)
def test_the_pvalue_inverts_the_interval(errors, estimate, alpha):
    """Zero is outside the interval exactly where its p-value is at most alpha."""
    assume(abs(alpha * (1 + len(errors)) - round(alpha * (1 + len(errors)))) > 1e-9)
    inference = Inference.simulated(estimate, np.array(errors))
    low, high = inference.interval(alpha)
    beyond = sum(abs(error) >= abs(estimate) for error in errors)
    assert inference.pvalue() == (1 + beyond) / (1 + len(errors))
    # in exact arithmetic zero is outside where |estimate| exceeds the half-width
    half = inference._quantile(alpha)
    assert (abs(estimate) > half) == (inference.pvalue() <= alpha)
    assert (low, high) == (estimate - half, estimate + half)
    assert inference.standard_error == pytest.approx(math.sqrt(np.mean(np.square(errors))))


def test_simulated_intervals_are_exact_ranks():
    """Of 4999 draws the 95 % half-width is the 4750th smallest: 1 - 250/5000."""
    errors = np.arange(1.0, DRAWS + 1.0) * np.where(np.arange(DRAWS) % 2, 1.0, -1.0)
    inference = Inference.simulated(0.0, errors)
    assert inference.interval(0.05) == (-4750.0, 4750.0)
    assert inference.interval(0.01) == (-4950.0, 4950.0)
    assert inference.interval(1.0 / 5000.0) == (-4999.0, 4999.0)
    # further out the simulation knows nothing, and says so
    assert inference.interval(1e-9) == (-math.inf, math.inf)
    assert Inference.simulated(1e9, errors).pvalue() == 1.0 / 5000.0
    assert Inference.simulated(0.0, errors).pvalue() == 1.0


def test_coverage_of_simulated_intervals():
    """Errors of the estimate and of the simulation from one law: coverage is 1 - alpha exactly.

    With 199 draws and 4000 repetitions; four standard errors, false alarm 6e-5 a level.
    """
    rng = np.random.default_rng(3)
    for law in (rng.standard_normal, lambda size: rng.laplace(size=size) + 0.5):
        for alpha in (0.05, 0.2):
            inside = 0
            for _ in range(4000):
                estimate = 7.0 + float(law(1)[0])
                low, high = Inference.simulated(estimate, law(199)).interval(alpha)
                inside += low <= 7.0 <= high
            error = math.sqrt(alpha * (1.0 - alpha) / 4000.0)
            assert abs(inside / 4000.0 - (1.0 - alpha)) < 4.0 * error


def test_simulated_errors_are_copied():
    errors = np.array([3.0, -1.0, 2.0])
    inference = Inference.simulated(0.0, errors)
    assert np.array_equal(errors, [3.0, -1.0, 2.0])
    errors[:] = 100.0
    assert inference.interval(0.5) == (-2.0, 2.0) or inference.interval(0.5)[1] <= 3.0


@pytest.mark.parametrize("alpha", [0.05, 1e-12, 0.999, np.float32(0.1), np.float64(0.5)])
def test_accepted_alpha(alpha):
    assert check_alpha(alpha) == float(alpha)


@pytest.mark.parametrize(
    "alpha", [0, 1, 0.0, 1.0, -0.1, 5, 95, math.nan, math.inf, True, False, "0.05", None, [0.05]]
)
def test_refused_alpha(alpha):
    with pytest.raises(DPStatsError, match="`alpha` must lie in"):
        check_alpha(alpha)
