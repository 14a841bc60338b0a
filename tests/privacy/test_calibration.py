"""Calibration: mpmath with 60 and more digits, and dp-accounting, are the oracles."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpstats.errors import DPStatsError
from dpstats.privacy.calibration import (
    gaussian_log_delta,
    gaussian_scale,
    laplace_scale,
    objective_gaussian_scale,
    objective_log_delta,
)

EPSILONS = (1e-6, 1e-3, 0.1, 1.0, 3.0, 30.0, 1000.0)
DELTAS = (1e-300, 1e-100, 1e-20, 1e-9, 1e-6, 1e-2, 0.5, 0.999)
mp = mpmath.mp


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(60):
        yield


def exact_gaussian_log_delta(shift, epsilon):
    x, e = mp.mpf(shift), mp.mpf(epsilon)
    # the difference is positive; a far tail that even these digits cannot show is zero
    with mpmath.workdps(200):
        return mp.log(mp.ncdf(x / 2 - e / x) - mp.exp(e) * mp.ncdf(-x / 2 - e / x))


def exact_objective_log_delta(shift, epsilon, rows):
    """log E[(1 - exp(eps - x R - x^2/2))+] by quadrature over the chi density."""
    x, e, k = mp.mpf(shift), mp.mpf(epsilon), 2 * rows
    start = max((e - x * x / 2) / x, mp.mpf(0))
    constant = mp.mpf(2) ** (1 - mp.mpf(k) / 2) / mp.gamma(mp.mpf(k) / 2)

    def integrand(t):
        r = start + t
        return r ** (k - 1) * mp.exp(-t * start - t * t / 2) * -mp.expm1(e - x * r - x * x / 2)

    width = 1 / max(start, mp.mpf(1))
    points = [0, width, 3 * width, 8 * width, 20 * width, 60 * width, 200 * width]
    with mpmath.workdps(30):
        return mp.log(constant * mp.quad(integrand, points)) - start**2 / 2


def test_laplace():
    assert laplace_scale(3.0, 0.5) == 6.0


# ------------------------------------------------------------------- fixed shift


@pytest.mark.parametrize("epsilon", [1e-8, *EPSILONS])
@pytest.mark.parametrize("shift", [1e-6, 1e-3, 0.03, 0.3, 1.0, 5.0, 40.0, 100.0])
def test_gaussian_log_delta(shift, epsilon):
    """To 1e-8; for tiny shifts from above, to 1e-6."""
    exact = exact_gaussian_log_delta(shift, epsilon)
    found = gaussian_log_delta(shift, epsilon)
    assert found == pytest.approx(float(exact), rel=1e-12, abs=1e-8 if shift > 1e-5 else 1e-6)
    assert found >= float(exact) - 1e-8 - 1e-12 * abs(float(exact))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_gaussian_scale_is_enough_and_no_more(epsilon, delta):
    """At the scale delta holds; at a scale smaller by 2e-6 it does not."""
    scale = gaussian_scale(1.0, epsilon, delta)
    target = mp.log(mp.mpf(delta))
    slack = 1e-8 * max(1.0, 1e-4 * abs(float(target)))
    assert exact_gaussian_log_delta(1 / mp.mpf(scale), epsilon) <= target + slack
    assert exact_gaussian_log_delta(1 / (mp.mpf(scale) * (1 - mp.mpf("2e-6"))), epsilon) > target


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-6, 1e-2, 0.5])
def test_gaussian_scale_agrees_with_dp_accounting(epsilon, delta):
    gaussian = pytest.importorskip("dp_accounting.gaussian_mechanism")
    theirs = gaussian.get_sigma_gaussian(epsilon, delta)
    assert gaussian_scale(1.0, epsilon, delta) == pytest.approx(theirs, rel=1e-6)
    assert gaussian.get_epsilon_gaussian(gaussian_scale(1.0, epsilon, delta), delta) == (
        pytest.approx(epsilon, rel=1e-5)
    )


def test_gaussian_beats_the_classical_formula_and_repairs_it_above_one():
    classical = lambda eps, delta: math.sqrt(2.0 * math.log(1.25 / delta)) / eps  # noqa: E731
    assert gaussian_scale(1.0, 0.5, 1e-6) < classical(0.5, 1e-6)
    # the classical formula fails at large eps: it gives less noise than is needed
    assert gaussian_scale(1.0, 100.0, 1e-6) > classical(100.0, 1e-6)


@settings(max_examples=60, deadline=None)
@given(
    log_eps=st.floats(-12, 9),
    log_delta=st.floats(-650, -0.05),
    factor=st.floats(1.01, 10.0),
    sensitivity=st.floats(1e-9, 1e9),
)
def test_scales_are_monotone_and_homogeneous(log_eps, log_delta, factor, sensitivity):
    epsilon, delta = math.exp(log_eps), math.exp(log_delta)
    scale = gaussian_scale(1.0, epsilon, delta)
    assert math.isfinite(scale)
    assert scale > 0.0
    assert gaussian_scale(1.0, epsilon * factor, delta) < scale
    assert gaussian_scale(1.0, epsilon, delta / factor) > scale
    assert gaussian_scale(sensitivity, epsilon, delta) == pytest.approx(sensitivity * scale)
    assert objective_gaussian_scale(epsilon * factor, delta) < objective_gaussian_scale(
        epsilon, delta
    )
    assert objective_gaussian_scale(epsilon, delta / factor) >= objective_gaussian_scale(
        epsilon, delta
    )
    # the shift depends on the noise: that can only cost more
    assert objective_gaussian_scale(epsilon, delta) >= gaussian_scale(2.0, epsilon, delta) * (
        1.0 - 1e-9
    )


def test_log_delta_increases_with_the_shift():
    for epsilon in EPSILONS:
        shifts = np.geomspace(1e-7, 60.0, 4000)
        values = np.array([gaussian_log_delta(x, epsilon) for x in shifts])
        assert (np.diff(values[values > -1e8]) > -1e-9 * np.abs(values[values > -1e8][1:])).all()
        for rows in (1, 2, 3):
            shifts = np.geomspace(1e-4 * math.sqrt(epsilon), math.sqrt(2.0 * epsilon), 500)
            values = np.array([objective_log_delta(x, epsilon, rows) for x in shifts])
            assert (np.diff(values) > -1e-9).all()


# ------------------------------------------------------------------- perturbed objective


@pytest.mark.parametrize("epsilon", [1e3, 1e9, 1e17, 1e30, 1e200, 1e300])
def test_huge_epsilons(epsilon):
    """The scale that is enough for a huge epsilon is about 1 / sqrt(2 eps)."""
    for delta in (1e-300, 1e-6, 0.5):
        shift = 1.0 / gaussian_scale(1.0, epsilon, delta)
        assert shift == pytest.approx(
            math.sqrt(2.0 * epsilon), rel=40.0 / math.sqrt(epsilon) + 1e-7
        )
        # of the perturbed objective the closed form ends there
        shift = 2.0 / objective_gaussian_scale(epsilon, delta)
        assert shift <= math.sqrt(2.0 * epsilon)
        assert shift == pytest.approx(
            math.sqrt(2.0 * epsilon), rel=40.0 / math.sqrt(epsilon) + 1e-7
        )


@pytest.mark.parametrize("epsilon", [1e9, 1e15, 1e19, 1e25])
@pytest.mark.parametrize("standardised", [-30.0, -8.0, -5.5, 0.0, 3.0, 20.0, 2e4])
def test_log_delta_at_huge_epsilons(epsilon, standardised):
    """Where exp(eps) and the tail that it meets are both beyond all digits."""
    # u = eps/x - x/2 is near `standardised`, as far as doubles have such an x
    shift = math.sqrt(2.0 * epsilon + standardised**2) - standardised
    u = mp.mpf(epsilon) / mp.mpf(shift) - mp.mpf(shift) / 2
    v = u + mp.mpf(shift)
    tail = -mp.log(v) - v * v / 2  # of the normal law, to 1 / v^2
    log_delta = mp.log(mp.ncdf(-u) - mp.exp(mp.mpf(epsilon) + tail) / mp.sqrt(2 * mp.pi))
    spacing = 4.0 * shift * 2.0**-52  # what is lost in u
    tolerance = 1e-9 + spacing * (abs(standardised) + 1.0)
    found = gaussian_log_delta(shift, epsilon)
    if standardised > 1e4:
        # far beyond any delta an upper bound will do
        assert float(log_delta) - tolerance <= found < -1e7
        return
    assert found == pytest.approx(float(log_delta), rel=1e-9, abs=tolerance)


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("fraction", [1e-3, 0.05, 0.3, 0.7, 0.95, 1.0])
def test_objective_log_delta(rows, epsilon, fraction):
    """Exact for one row; for more never below the integral, and above it by at most 2 %."""
    shift = fraction * math.sqrt(2.0 * epsilon)
    exact = float(exact_objective_log_delta(shift, epsilon, rows))
    found = objective_log_delta(shift, epsilon, rows)
    if rows == 1:
        assert found == pytest.approx(exact, rel=1e-10, abs=1e-9)
    else:
        assert found >= exact - 1e-8
        assert found <= exact + 0.02


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-20, 1e-6, 1e-2, 0.5])
def test_objective_scale_is_enough_and_no_more(rows, epsilon, delta):
    """At the scale delta holds; a smaller one breaks it, or the range of the proof."""
    scale = objective_gaussian_scale(epsilon, delta, rows)
    shift = 2.0 * rows / scale
    assert shift <= math.sqrt(2.0 * epsilon) * (1.0 + 1e-12)
    target = math.log(delta)
    assert float(exact_objective_log_delta(shift, epsilon, rows)) <= target + 1e-7
    closer = float(exact_objective_log_delta(shift * 1.02, epsilon, rows))
    assert closer > target or shift * 1.02 > math.sqrt(2.0 * epsilon)


def test_objective_noise_by_simulation():
    """E[(1 - exp(eps - xR - x^2/2))+], chi with 2k degrees of freedom, one million draws.

    Four standard errors: false alarm 6e-5 each, five of them; fixed seed.
    """
    rng = np.random.default_rng(5)
    for rows, epsilon, delta in ((1, 1.0, 0.02), (2, 1.0, 0.02), (3, 4.0, 0.1), (1, 5.0, 0.01)):
        x = 2.0 * rows / objective_gaussian_scale(epsilon, delta, rows)
        radius = np.sqrt(rng.chisquare(2 * rows, 1_000_000))
        loss = -np.expm1(np.minimum(epsilon - x * radius - x * x / 2.0, 0.0))
        error = loss.std() / 1e3
        assert loss.mean() <= delta + 4.0 * error
        assert loss.mean() >= 0.99 * delta - 4.0 * error


@pytest.mark.parametrize("function", [gaussian_scale, objective_gaussian_scale])
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 0.0), (1.0, 1.0), (1.0, -0.1), (0.0, 0.1), (-1.0, 0.1)]
)
def test_gaussian_noise_needs_both(function, epsilon, delta):
    first = (1.0,) if function is gaussian_scale else ()
    with pytest.raises(DPStatsError, match="Gaussian noise needs"):
        function(*first, epsilon, delta)


# ------------------------------------------------------------------- the grid


@pytest.mark.parametrize("steps", [16, 64, 256])
def test_discrete_gaussian_has_the_delta_of_the_continuous_one(steps):
    """Released numbers are integers: the excess in delta falls as 1 / steps**2.

    `steps` lattice steps a standard deviation; the mechanisms use at least 2**20, where the excess
    is below 1e-11 of delta.
    """
    for sensitivity, epsilon in ((steps // 2, 1.0), (steps // 4, 0.5), (steps, 3.0)):
        k = np.arange(-40 * steps, 40 * steps + 1, dtype=np.float64)
        log_p = -0.5 * (k / steps) ** 2
        log_p -= np.log(np.exp(log_p).sum())
        loss = (k * sensitivity + sensitivity**2 / 2.0) / steps**2
        delta = (np.exp(log_p) * -np.expm1(np.minimum(epsilon - loss, 0.0))).sum()
        continuous = math.exp(gaussian_log_delta(sensitivity / steps, epsilon))
        assert abs(delta / continuous - 1.0) < 4.0 / steps**2
