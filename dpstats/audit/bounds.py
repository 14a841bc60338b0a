"""What the counts of one event say: Clopper-Pearson limits, and epsilon and delta from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpstats.errors import DPStatsError
from dpstats.passed import passed

__all__ = ["FloatArray", "Gain", "best_cuts", "clopper_pearson", "delta_from", "epsilon_from"]

FloatArray: TypeAlias = NDArray[np.float64]
Gain: TypeAlias = Callable[[FloatArray, FloatArray], FloatArray]

# shares of the favoured runs that a candidate event holds: all of them, and down to one in 2000
_SHARES = np.concatenate([1.0 - np.geomspace(1.0, 5e-4, 48), [0.05, 0.1, 0.2, 0.3, 0.4, 0.5]])


@dataclass(frozen=True, slots=True)
class Cut:
    """Event that `side` * score is at least `side` * `at`, with what it would be worth."""

    value: float
    at: float
    side: int


def clopper_pearson(
    successes: ArrayLike, trials: int, level: float
) -> tuple[FloatArray, FloatArray]:
    """Return one-sided Clopper-Pearson limits of a probability.

    Parameters
    ----------
    successes : int or array of int
        How often the event was seen.
    trials : int
        Independent trials, at least 1.
    level : float
        Probability with which each limit may be on the wrong side, in (0, 1). The interval between
        them misses with probability at most twice that.

    Returns
    -------
    (ndarray, ndarray)
        Lower and upper limits, shaped as `successes`.

    Raises
    ------
    DPStatsError
        If the counts are no counts or `level` is no probability.

    References
    ----------
    Clopper, C. and Pearson, E. (1934), doi:10.1093/biomet/26.4.404.

    Examples
    --------
    >>> low, high = clopper_pearson(0, 100, 0.05)
    >>> float(low), round(float(high), 4)  # 1 - 0.05 ** (1 / 100)
    (0.0, 0.0295)
    """
    from scipy.special import betainccinv, betaincinv

    k = np.asarray(successes, dtype=np.float64)
    if not 0.0 < level < 1.0:
        raise DPStatsError(f"`level` must be in (0, 1); got {passed(level)}")
    if trials < 1 or not np.all((k >= 0.0) & (k <= trials)):
        raise DPStatsError("`successes` must be counts between 0 and `trials`")
    low = np.where(k > 0.0, betaincinv(np.maximum(k, 1.0), trials - k + 1.0, level), 0.0)
    high = np.where(k < trials, betainccinv(k + 1.0, np.maximum(trials - k, 1.0), level), 1.0)
    return low, high


def epsilon_from(low: Any, high: Any, delta: float) -> FloatArray:
    """Return the least epsilon at `delta` that allows an event `low` here and `high` there."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(np.subtract(low, delta), 0.0) / high))


def delta_from(low: Any, high: Any, epsilon: float) -> FloatArray:
    """Return the least delta at `epsilon` that does (a point of the hockey-stick)."""
    # so large an epsilon leaves nothing for delta to do
    factor = math.exp(min(epsilon, 700.0))
    return np.asarray(np.maximum(np.subtract(low, factor * np.asarray(high)), 0.0))


def best_cuts(p: FloatArray, q: FloatArray, level: float, gains: Sequence[Gain]) -> list[Cut]:
    """Choose for each gain the threshold, on either side, whose event tells `p` from `q` best.

    Parameters
    ----------
    p, q : ndarray
        Scores of runs on the favoured and on the other data set.
    level : float
        Of each limit.
    gains : sequence of callable
        Worth of limits (lower one under `p`, upper one under `q`).
    """
    best = [Cut(-math.inf, 0.0, 1)] * len(gains)
    for side in (1, -1):
        a, b = np.sort(side * p), np.sort(side * q)
        cuts = np.unique(np.quantile(a, _SHARES, method="inverted_cdf"))
        low, _ = clopper_pearson(a.size - np.searchsorted(a, cuts), a.size, level)
        _, high = clopper_pearson(b.size - np.searchsorted(b, cuts), b.size, level)
        for number, gain in enumerate(gains):
            worth = gain(low, high)
            place = int(np.argmax(worth))
            if worth[place] > best[number].value:
                best[number] = Cut(float(worth[place]), float(side * cuts[place]), side)
    return best
