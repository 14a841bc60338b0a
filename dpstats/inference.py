"""Intervals and p-values from simulated or normal errors of an estimate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpstats.errors import DPStatsError
from dpstats.passed import passed

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from dpstats.privacy.noise import FloatArray

__all__ = ["DRAWS", "Inference", "check_alpha", "intervals"]

DRAWS = 4999


@dataclass(frozen=True, slots=True)
class Inference:
    """An estimate with the distribution of its error.

    Attributes
    ----------
    estimate : float
    standard_error : float
    errors : ndarray or None
        Sorted absolute simulated errors; None for a normal error.
    """

    estimate: float
    standard_error: float
    errors: FloatArray | None = None

    @classmethod
    def simulated(cls, estimate: float, errors: FloatArray) -> Inference:
        """Build from simulated errors (estimate minus truth)."""
        spread = float(np.sqrt(np.mean(errors**2)))
        return cls(estimate, spread, np.sort(np.abs(errors)))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the symmetric interval of level 1 - `alpha`."""
        half = self._quantile(alpha)
        return self.estimate - half, self.estimate + half

    def pvalue(self) -> float:
        """Return the two-sided p-value of zero; it inverts `interval`."""
        if self.errors is None:
            if self.standard_error == 0.0:
                return float(self.estimate == 0.0)
            return math.erfc(abs(self.estimate / self.standard_error) / math.sqrt(2.0))
        beyond = self.errors.size - int(np.searchsorted(self.errors, abs(self.estimate)))
        return (1 + beyond) / (1 + self.errors.size)

    def _quantile(self, alpha: float) -> float:
        if self.errors is None:
            from scipy.special import ndtri

            return float(-ndtri(alpha / 2.0)) * self.standard_error
        # the smallest half-width at which zero would have p-value at most alpha
        allowed = math.floor(alpha * (1 + self.errors.size)) - 1
        if allowed < 0:
            # the simulation cannot tell quantiles this far out
            return math.inf
        return float(self.errors[max(self.errors.size - allowed - 1, 0)])


def check_alpha(alpha: float) -> float:
    """Return `alpha` if it lies in (0, 1).

    Raises
    ------
    DPStatsError
    """
    number = isinstance(alpha, int | float | np.integer | np.floating)
    if isinstance(alpha, bool) or not number or not 0.0 < alpha < 1.0:
        raise DPStatsError(f"`alpha` must lie in (0, 1); got {passed(alpha)}")
    return float(alpha)


def intervals(rows: Iterable[Inference], index: pd.Index[str], alpha: float) -> pd.DataFrame:
    """Return the intervals of level 1 - `alpha`, columns 0 and 1, one row each.

    Raises
    ------
    DPStatsError
        If `alpha` is not in (0, 1).
    """
    import pandas as pd

    level = check_alpha(alpha)
    return pd.DataFrame([row.interval(level) for row in rows], index=index, columns=[0, 1])
