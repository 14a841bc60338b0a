"""Outcome models fitted with their noise to simulated files, for planning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpstats.ate.population import SEED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dpstats.ate.kernels.outcome import OutcomeModel
    from dpstats.ate.population import Files, Population
    from dpstats.privacy.noise import FloatArray

__all__ = ["FittedOutcomes", "fit_outcomes"]


@dataclass(frozen=True, slots=True)
class FittedOutcomes:
    """Released outcome models of some files, each with noise of its own; in units of C.

    Attributes
    ----------
    covariates : ndarray
        Shape (rows, k), of the population, shrunk as the kernel does.
    levels, slopes : ndarray
        Shape (files, fits, 2) and (files, fits, 2, k).
    reach : ndarray
        Shape (files, fits): the range of residuals; one, with a model of zeros, where there is no
        point in residuals.
    contrast : ndarray
        Shape (files, fits): the fitted effect at the mean covariates.
    """

    covariates: FloatArray
    levels: FloatArray
    slopes: FloatArray
    reach: FloatArray
    contrast: FloatArray

    def at(self, file: int, fit: int) -> FloatArray:
        """Return fitted outcomes of controls and treated, shape (2, rows)."""
        slopes = self.slopes[file, fit] @ self.covariates.T
        return np.asarray(self.levels[file, fit][:, None] + slopes)


def fit_outcomes(
    population: Population,
    files: Files,
    rounds: Sequence[OutcomeModel],
    fits: int,
    limit: float,
) -> FittedOutcomes:
    """Fit outcome models as `release_outcome` does, from expected moments and new noise.

    Residuals are not clipped: few are beyond their range.

    Parameters
    ----------
    population : Population
    files : Files
    rounds : sequence of OutcomeModel
        Blank models, one a round.
    fits : int
        Fits of each file.
    limit : float
        Range of residuals from which on outcomes are used as they are, after the last round.
    """
    rng = np.random.default_rng(SEED + 3)
    rows, exact = _moments(population, files, rounds[-1])
    count, k = len(exact), rows.shape[1]
    shape = (count, fits)
    levels, slopes, reach = np.zeros((*shape, 2)), np.zeros((*shape, 2, k)), np.ones(shape)
    for place, blank in enumerate(rounds):
        if place:
            levels, slopes, reach = _without(levels, slopes, reach, reach >= 1.0)
        noise = blank.noisy(blank.raw, count * fits, rng).reshape(*shape, *blank.raw.shape)
        raw = _residual_moments(exact, levels, slopes, reach)
        fit = blank.last(raw * np.outer(blank.scales, blank.scales) + noise)
        ranges = blank.residual_ranges(fit)
        levels = levels + reach[..., None] * fit.levels
        slopes = slopes + reach[..., None, None] * fit.slopes
        reach = reach * ranges
    # the kernel's contrast, of models in units of C
    outcomes = levels + (fit.means * slopes).sum(axis=-1)
    contrast = replace(blank, reach=1.0).contrast(
        replace(fit, outcomes=outcomes, slopes=slopes), "ate"
    )
    wide = reach >= limit
    levels, slopes, reach = _without(levels, slopes, reach, wide)
    return FittedOutcomes(rows, levels, slopes, reach, np.where(wide, 0.0, contrast))


def _without(
    levels: FloatArray, slopes: FloatArray, reach: FloatArray, wide: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Put outcomes themselves where residuals would range no less far."""
    return (
        np.where(wide[..., None], 0.0, levels),
        np.where(wide[..., None, None], 0.0, slopes),
        np.where(wide, 1.0, reach),
    )


def _moments(
    population: Population, files: Files, blank: OutcomeModel
) -> tuple[FloatArray, FloatArray]:
    """Return shrunk covariates and expected sums of (1, z, y), shape (files, 2, q, q)."""
    z = population.design[:, 1:]
    length = np.sqrt(np.einsum("ij,ij->i", z, z))
    z = z * (blank.norm / np.maximum(length, blank.norm))[:, None]
    rows = len(z)
    own = np.column_stack([np.ones(rows), z])
    arms = np.stack([1.0 - files.shares, files.shares], axis=1)
    exact = np.empty((len(arms), 2, own.shape[1] + 1, own.shape[1] + 1))
    exact[..., :-1, :-1] = np.einsum("far,ri,rj->faij", arms, own, own, optimize=True)
    exact[..., :-1, -1] = exact[..., -1, :-1] = files.outcomes @ own
    exact[..., -1, -1] = (arms * (population.means**2 + population.rest**2)).sum(axis=-1)
    return z, exact * (blank.n / rows)


def _residual_moments(
    exact: FloatArray, levels: FloatArray, slopes: FloatArray, reach: FloatArray
) -> FloatArray:
    """Return the moments with residuals, in units of `reach`, shape (files, fits, 2, q, q)."""
    q = exact.shape[-1]
    turn = np.zeros((*levels.shape, q, q))
    turn[...] = np.eye(q)
    size = reach[..., None]
    turn[..., -1, 0] = -levels / size
    turn[..., -1, 1:-1] = -slopes / size[..., None]
    turn[..., -1, -1] = 1.0 / size
    return np.asarray(turn @ exact[:, None] @ np.swapaxes(turn, -1, -2))
