"""Time paths shared by kernels: cosine bases, what is left of a target, bootstrap residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dpstats.privacy.noise import FloatArray

__all__ = ["Residuals", "cosines", "persistence", "typical_deviation"]

_LARGEST_CORRELATION = 0.95


def cosines(length: int, columns: int, *, constant: bool) -> FloatArray:
    """Return the lowest discrete cosines (DCT-II), orthonormal, shape (length, columns).

    Parameters
    ----------
    length : int
        Number of periods.
    columns : int
        How many, lowest frequency first.
    constant : bool
        Whether the constant is the first of them.
    """
    frequency = np.arange(columns) + (0 if constant else 1)
    time = np.arange(length) + 0.5
    basis = np.cos(np.pi * np.outer(time, frequency) / length) * math.sqrt(2.0 / length)
    if constant:
        basis[:, 0] = 1.0 / math.sqrt(length)
    return np.asarray(basis)


def typical_deviation(targets: FloatArray, pre_periods: int) -> float:
    """Return the median norm of the (public) targets' demeaned pre-periods."""
    before = targets[:, :pre_periods]
    return float(np.median(np.linalg.norm(before - before.mean(1, keepdims=True), axis=1)))


def persistence(residuals: FloatArray) -> FloatArray:
    """Return the lag-one autocorrelation of each row, at least 0, shape (g,)."""
    product = (residuals[:, 1:] * residuals[:, :-1]).sum(axis=1)
    square = (residuals * residuals).sum(axis=1)
    return np.clip(product / np.maximum(square, 1e-300), 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Residuals:
    """An autoregressive model of what a fit leaves of one target.

    Attributes
    ----------
    variance : float
        Mean square of the pre-period residuals by degrees of freedom.
    degrees : float
    correlation : float
        Lag-one autocorrelation, corrected for the bias of a short series.
    root : ndarray
        Shape (T, T), a root of the correlation matrix, scaled so that a series demeaned over the
        pre-period has mean square one there (by T0 - 1).
    """

    variance: float
    degrees: float
    correlation: float
    root: FloatArray

    @classmethod
    def of(
        cls, residuals: FloatArray, periods: int, fitted: float, hidden: float = 0.0
    ) -> Residuals:
        """Fit to pre-period residuals, shape (T0,), of a fit with `fitted` degrees of freedom.

        Residuals lack `hidden` further degrees of freedom by construction.
        """
        before = residuals.size
        degrees = max(before - 1.0 - fitted - hidden, min(2.0, before - 1.0))
        raw = float(persistence(residuals[None])[0])
        correlation = raw
        if raw > 1.0 / math.sqrt(before) and before > 4:
            correlation = max(raw, (raw * before + fitted + 1.0) / (before - 3.0))
        correlation = min(correlation, _LARGEST_CORRELATION)
        time = np.arange(periods)
        matrix = correlation ** np.abs(time[:, None] - time)
        # trace of the demeaned pre-period block
        block = matrix[:before, :before]
        matrix *= (before - 1.0) / float(np.trace(block) - block.sum() / before)
        root = np.linalg.cholesky(matrix + 1e-9 * np.eye(periods))
        return cls(float(residuals @ residuals) / degrees, degrees, correlation, root)

    def spread(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the uncertainty of the standard deviation, a factor, shape (draws,)."""
        return np.sqrt(self.degrees / rng.chisquare(self.degrees, draws))

    def draw(self, spread: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw paths of residuals, shape (draws, T)."""
        normals = rng.standard_normal((spread.size, len(self.root)))
        return math.sqrt(self.variance) * spread[:, None] * (normals @ self.root.T)
