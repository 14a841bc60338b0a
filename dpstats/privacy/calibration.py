"""From a sensitivity and a budget to the scale of the noise, in the log domain.

References
----------
Balle, B. and Wang, Y.-X. (2018). Improving the Gaussian mechanism for differential privacy:
analytical calibration and optimal denoising. ICML. arXiv:1805.06530.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from dpstats.errors import DPStatsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpstats.privacy.noise import FloatArray

__all__ = [
    "gaussian_dp_level",
    "gaussian_log_delta",
    "gaussian_scale",
    "laplace_scale",
    "objective_gaussian_scale",
    "objective_log_delta",
]

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_SQRT_HALF_PI = 0.5 * math.log(math.pi / 2.0)


def laplace_scale(sensitivity: float, epsilon: float) -> float:
    """Scale of Laplace (or K-norm Laplace) noise: sensitivity / epsilon."""
    return sensitivity / epsilon


def gaussian_log_delta(shift: float, epsilon: float) -> float:
    """Log of the smallest delta of Gaussian noise at a shift of `shift` standard deviations.

    Parameters
    ----------
    shift : float
        l2 sensitivity over the standard deviation of the noise, positive.
    epsilon : float
        Positive.

    Returns
    -------
    float
        log(Phi(x/2 - eps/x) - exp(eps) Phi(-x/2 - eps/x)), x = `shift`.

    Notes
    -----
    With u = eps/x - x/2 and v = u + x one has exp(eps) phi(v) = phi(u), so the difference is
    phi(u) (m(u) - m(v)) with m the Mills ratio, which is `erfcx` up to a constant. No term
    underflows, and exp(eps) never meets its inverse. For a very small x the difference of the
    Mills ratios cancels; then it is bounded from above by x (1 - u m(u)), since
    -m'(t) = 1 - t m(t) decreases.
    """
    from scipy.special import erfcx, log_ndtr

    u = epsilon / shift - shift / 2.0
    v = u + shift
    if u < -5.0:
        # here delta is near one and nothing cancels
        log_first = float(log_ndtr(-u))
        log_second = _log_tail(u, v)
        return log_first + math.log1p(-math.exp(min(log_second - log_first, -1e-15)))
    mills = math.sqrt(math.pi / 2.0)
    if u > 1e4:
        # far beyond any delta; 1 - t m(t) < 1 / (1 + t^2)
        return -0.5 * u * u - _HALF_LOG_TWO_PI + math.log(shift) - math.log1p(u * u)
    if shift < 1e-4 * max(1.0, abs(u)) ** -1:
        difference = shift * max(1.0 - u * mills * float(erfcx(u / math.sqrt(2.0))), 1e-300)
        return -0.5 * u * u - _HALF_LOG_TWO_PI + math.log(difference)
    difference = float(erfcx(u / math.sqrt(2.0)) - erfcx(v / math.sqrt(2.0)))
    return -0.5 * u * u - _HALF_LOG_TWO_PI + _LOG_SQRT_HALF_PI + math.log(difference)


def objective_log_delta(shift: float, epsilon: float, rows: int = 1) -> float:
    """Log of delta for normal noise inside a perturbed objective.

    Parameters
    ----------
    shift : float
        x = 2 `rows` / beta, beta the standard deviation of the noise.
    epsilon : float
        What is left after the Jacobian (all of it for a penalty of at least 2 rows / epsilon).
    rows : int
        Rows a person may have; the difference of two gradients lies in a fixed space of 2 `rows`
        dimensions.

    Returns
    -------
    float
        log E[(1 - exp(epsilon - x R - x^2 / 2))+] with R of chi law with 2 `rows` degrees of
        freedom. For one row that is sqrt(2 pi) x exp(epsilon) (1 - Phi)(epsilon/x + x/2).
    """
    if rows == 1 and shift * shift <= 2.0 * epsilon:
        u = epsilon / shift - shift / 2.0
        return _HALF_LOG_TWO_PI + math.log(shift) + _log_tail(u, u + shift)
    return _chi_log_delta(shift, epsilon, 2 * rows)


def _log_tail(u: float, v: float) -> float:
    """Return log(exp(eps) Phi(-v)), where u = eps/x - x/2 and v = u + x."""
    from scipy.special import erfcx

    log_mills = _LOG_SQRT_HALF_PI + math.log(float(erfcx(v / math.sqrt(2.0))))
    return -0.5 * u * u - _HALF_LOG_TWO_PI + log_mills


def _chi_log_delta(shift: float, epsilon: float, degrees: int) -> float:
    # integrates by parts to x * integral of exp(-x (r - r0)) P(R > r) over r > r0
    import numpy as np
    from scipy.special import gammaincc, gammaln

    start = max((epsilon - shift * shift / 2.0) / shift, 0.0)
    nodes, weights = _legendre()
    width = 40.0 / max(shift, start, 1.0)
    r = start + 0.5 * width * (nodes + 1.0)
    log_density = (degrees - 1) * np.log(r) - 0.5 * r * r
    log_density -= (degrees / 2.0 - 1.0) * math.log(2.0) + gammaln(degrees / 2.0)
    loss = epsilon - shift * r - shift * shift / 2.0
    with np.errstate(divide="ignore"):
        log_terms = log_density + np.log(-np.expm1(np.minimum(loss, 0.0)))
    peak = float(log_terms.max())
    inside = peak + math.log(float(0.5 * width * (weights * np.exp(log_terms - peak)).sum()))
    beyond = float(gammaincc(degrees / 2.0, (start + width) ** 2 / 2.0))
    return float(np.logaddexp(inside, math.log(beyond))) if beyond > 0.0 else inside


@lru_cache(maxsize=1)
def _legendre() -> tuple[FloatArray, FloatArray]:
    import numpy as np

    nodes, weights = np.polynomial.legendre.leggauss(400)
    return nodes, weights


def gaussian_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    """Return the standard deviation of Gaussian noise for a fixed shift (analytic calibration).

    Parameters
    ----------
    sensitivity : float
        l2 sensitivity.
    epsilon, delta : float
        The budget of the release; `delta` in (0, 1).
    """
    return sensitivity / _largest_shift("fixed", epsilon, delta, 1)


@lru_cache(maxsize=256)
def gaussian_dp_level(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-Gaussian DP implies (epsilon, delta).

    Parameters
    ----------
    epsilon, delta : float
        `delta` in (0, 1).

    Notes
    -----
    mu-GDP is as hard to attack as a normal law shifted by mu standard deviations, so this is the
    largest shift of the analytic calibration (Dong, Roth and Su 2022, corollary 2.13).
    """
    return _largest_shift("fixed", epsilon, delta, 1)


def objective_gaussian_scale(epsilon: float, delta: float, rows: int = 1) -> float:
    """Return the standard deviation of normal noise in a perturbed objective with unit rows.

    Parameters
    ----------
    epsilon, delta : float
        The budget of the release; `delta` in (0, 1).
    rows : int
        Rows a person may have.
    """
    return 2.0 * rows / _largest_shift("objective", epsilon, delta, rows)


@lru_cache(maxsize=1024)
def _largest_shift(kind: str, epsilon: float, delta: float, rows: int) -> float:
    if not (0.0 < delta < 1.0 and epsilon > 0.0):
        raise DPStatsError(
            "Gaussian noise needs `eps` > 0 and 0 < `delta` < 1; "
            f"got eps = {epsilon:g}, delta = {delta:g}"
        )
    log_delta: Callable[[float], float]
    if kind == "fixed":
        ceiling = math.inf

        def log_delta(shift: float) -> float:
            return gaussian_log_delta(shift, epsilon)
    else:
        # beyond this shift the closed form of the proof does not hold
        ceiling = math.sqrt(2.0 * epsilon)

        def log_delta(shift: float) -> float:
            return objective_log_delta(shift, epsilon, rows)

    target = math.log(delta)
    low = high = min(1.0, ceiling)
    while log_delta(low) > target:
        low /= 2.0
    while high < ceiling and log_delta(high) <= target:
        low, high = high, min(2.0 * high, ceiling)
    if log_delta(high) <= target:
        return high
    # plain bisection ends on the private side of the root
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if log_delta(middle) <= target:
            low = middle
        else:
            high = middle
    return low
