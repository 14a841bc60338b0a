r"""From noisy cells to block effects: free post-processing of released numbers.

Notes
-----
*Blocks* are equal parts of a scale u on which the share of the treated lies in the middle: with p
that share (released, or 1/2), u/(1 - u) are the odds of treatment over those of p. Where few are
treated, equal parts of the propensity itself would put nearly every row into the lowest.

Three steps, each with weights that follow from the known noise levels and the noisy numbers alone.

1. *Fit.* Counts are shifted so that they add up to n; cells whose count is below T (three noise
   standard deviations by default) are set aside; |S| <= C N.
2. *Line.* Within each arm the mean outcome is a straight line in u, fitted to the noisy cells by
   least squares. Both arms start from the common slope and move towards their own as far as the
   difference exceeds its noise. With e the propensity at c, treated rows of a block of width h
   around c have mean place about :math:`c + \lambda h^2 (1 - e)/(12 c (1 - c))`, controls
   :math:`c - \lambda h^2 e/(12 c (1 - c))` (the slopes of log e and log(1 - e) in u), with
   :math:`\lambda` the slope of the share of treated on e, one where the released propensity is
   right, zero where it is all noise and more (at most 3 here) where the penalty has shrunk the
   propensity: taking both lines at c removes the confounding that
   is left within a block. Residuals of an outcome model have none to speak of; there both arms are
   taken at c.
3. *Shrinkage.* What a cell has beyond the line is kept by the factor
   :math:`N^2\psi^2 / (N^2\psi^2 + d)`, d the known noise variance of :math:`S - N f` and
   :math:`\psi^2` the variance of the deviations, estimated by moments (Fay and Herriot 1979). With
   little noise cells keep their own means; with much noise the line stands for them.

Without smoothing (`smooth=False`, as published) each cell has its own mean and blocks with a count
below T are left out. All functions take leading axes, so that thousands of simulated releases are
handled at once.

References
----------
Fay, R. E. and Herriot, R. A. (1979). Estimates of income for small places. JASA 74, 269-277.
doi:10.1080/01621459.1979.10482505.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpstats.ate.kernels.base import Estimand
    from dpstats.privacy.noise import FloatArray

__all__ = ["BlockEffects", "Cells", "block_effects", "block_of", "propensity_at", "trust"]

_TINY = 1e-9
# with this slope the rows of an end block lie at its edge, on average
_STEEPEST = 3.0


@dataclass(frozen=True, slots=True)
class Cells:
    """Noisy counts and sums by arm (controls, treated) and block.

    Attributes
    ----------
    counts, sums : ndarray
        Shape (..., 2, m).
    n : int
    half_width : float
        C.
    min_count : float
        T.
    count_variance, sum_variance : float
        Known noise variances of each count and sum.
    smooth : bool
        Whether cells borrow strength from each other.
    residuals : bool
        Whether sums are of residuals of an outcome model.
    base : float
        The share of the treated that the scale of the blocks is centred on.
    """

    counts: FloatArray
    sums: FloatArray
    n: int
    half_width: float
    min_count: float
    count_variance: float
    sum_variance: float
    smooth: bool
    residuals: bool
    base: float = 0.5


@dataclass(frozen=True, slots=True)
class BlockEffects:
    """What follows from noisy cells.

    Attributes
    ----------
    counts : ndarray
        Shape (..., 2, m): non-negative counts that add up to about n.
    means : ndarray
        Shape (..., 2, m): mean outcomes at the centre of each block, in [-C, C].
    at_rows : ndarray
        Shape (..., 2, m): mean outcomes of the rows in each cell.
    weights : ndarray
        Shape (..., m), adding up to one.
    kept : ndarray of bool
        Shape (..., m): blocks with enough counts in both arms.
    """

    counts: FloatArray
    means: FloatArray
    at_rows: FloatArray
    weights: FloatArray
    kept: NDArray[np.bool_]

    @property
    def effects(self) -> FloatArray:
        """Difference of the arms by block, shape (..., m)."""
        return self.means[..., 1, :] - self.means[..., 0, :]

    @property
    def total(self) -> FloatArray:
        """Weighted mean of the block effects, shape (...)."""
        return np.asarray((self.weights * self.effects).sum(axis=-1))


def block_of(propensities: FloatArray, m: int, base: float) -> NDArray[np.int64]:
    """Return the block of each propensity, 0 to m - 1."""
    if base != 0.5:
        odds = (1.0 - base) * propensities
        propensities = odds / (odds + base * (1.0 - propensities))
    return np.minimum((propensities * m).astype(np.int64), m - 1)


def propensity_at(place: FloatArray, base: float) -> FloatArray:
    """Return the propensity at a place between 0 and 1 of the scale of the blocks."""
    if base == 0.5:
        return place
    odds = base * place
    return np.asarray(odds / (odds + (1.0 - base) * (1.0 - place)))


def block_effects(cells: Cells, estimand: Estimand) -> BlockEffects:
    """Return block means, effects and weights.

    Parameters
    ----------
    cells : Cells
    estimand : {"ate", "att", "atc", "ato"}
        Blocks are weighted by their rows, treated rows, controls, or by
        N_0 N_1 / (N_0 + N_1).
    """
    # in units of C, so that small constants below mean the same for every outcome
    c = cells.half_width
    cells = replace(
        cells, sums=cells.sums / c, half_width=1.0, sum_variance=cells.sum_variance / c**2
    )
    counts = _fit_total(cells)
    kept = counts >= max(cells.min_count, _TINY)
    if cells.smooth and counts.shape[-1] > 1:
        # an arm without a visible cell uses all it has
        kept |= ~kept.any(axis=-1, keepdims=True)
        at_rows, means = _smoothed(cells, counts, kept)
        used = np.where(kept, counts, 0.0)
    else:
        at_rows = means = _clip(cells.sums / np.maximum(counts, max(cells.min_count, _TINY)), cells)
        used = (
            counts
            if counts.shape[-1] == 1
            else np.where(kept.all(axis=-2, keepdims=True), counts, 0.0)
        )
    used = np.maximum(used, 0.0)
    return BlockEffects(
        np.maximum(counts, 0.0),
        c * means,
        c * at_rows,
        _weights(used, estimand),
        np.asarray(kept.all(axis=-2)),
    )


def _fit_total(cells: Cells) -> FloatArray:
    """Shift counts by the same amount so that they add up to n (least squares)."""
    counts = cells.counts
    size = counts.shape[-1] * counts.shape[-2]
    return counts - (counts.sum(axis=(-2, -1), keepdims=True) - cells.n) / size


def _smoothed(
    cells: Cells, counts: FloatArray, kept: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """Return mean outcomes of the rows of each cell, and at the centre of its block."""
    c = cells.half_width
    size = np.where(kept, np.maximum(counts, 0.0), 0.0)
    sums = np.clip(cells.sums, -c * size, c * size)
    right = 0.0 if cells.residuals else _slope(cells, size)
    centre, place = _places(counts.shape[-1], right, cells.base)
    total = size.sum(axis=-1, keepdims=True)
    level = _clip(
        sums.sum(axis=-1, keepdims=True) / np.maximum(total, max(cells.min_count, _TINY)), cells
    )
    middle = (size * place).sum(axis=-1, keepdims=True) / np.maximum(total, _TINY)
    x = place - middle
    slope = _slopes(cells, size, sums, kept, x, level)
    line = level + slope * x
    noise = cells.sum_variance + cells.count_variance * line**2
    rest = sums - size * line
    deviation = np.where(kept, rest**2 - noise, 0.0).sum(axis=(-2, -1), keepdims=True)
    spread = np.maximum(deviation, 0.0)
    spread = spread / np.maximum((size**2).sum(axis=(-2, -1), keepdims=True), _TINY)
    own = size * spread / np.maximum(size**2 * spread + noise, _TINY) * rest
    at_centre = _clip(level + slope * (centre - middle), cells)
    return _clip(line + own, cells), _clip(at_centre + own, cells)


def _slopes(
    cells: Cells,
    size: FloatArray,
    sums: FloatArray,
    kept: NDArray[np.bool_],
    x: FloatArray,
    level: FloatArray,
) -> FloatArray:
    """Return the slope of each arm, shape (..., 2, 1)."""
    c = cells.half_width
    moment = (x * (sums - size * level)).sum(axis=-1, keepdims=True)
    mass = (x * x * size).sum(axis=-1, keepdims=True)
    noise = cells.sum_variance + cells.count_variance * level**2
    noise = (x * x * np.where(kept, noise, 0.0)).sum(axis=-1, keepdims=True) + _TINY
    both = [part.sum(axis=-2, keepdims=True) for part in (moment, mass, noise)]
    common = both[0] * both[1] / (both[1] ** 2 + both[2] / c**2)
    if size.shape[-1] == 2:
        # two points a line: no deviation is left to tell the arms' slopes apart
        return np.broadcast_to(common, level.shape)
    safe = np.maximum(mass, 1e-3)
    variance = noise / safe**2
    own = moment / safe
    gap = own[..., 1:, :] - own[..., :1, :]
    sure = 1.0 - variance.sum(axis=-2, keepdims=True) / np.maximum(gap**2, 1e-12)
    gap = np.clip(gap * np.maximum(sure, 0.0), -2.0 * c, 2.0 * c)
    lean = variance[..., :1, :] / variance.sum(axis=-2, keepdims=True)
    return np.concatenate([common - lean * gap, common + (1.0 - lean) * gap], axis=-2)


def _places(m: int, trust: FloatArray | float, base: float) -> tuple[FloatArray, FloatArray]:
    """Return the centre of each block, shape (m,), and the mean place by arm, shape (..., 2, m)."""
    centre = (np.arange(m) + 0.5) / m
    e = propensity_at(centre, base)
    within = np.stack([-e, 1.0 - e]) / (12.0 * m * m * centre * (1.0 - centre))
    return centre, centre + np.asarray(trust)[..., None, None] * within


def trust(cells: Cells) -> FloatArray:
    """Return how far the score is to be trusted: the slope of the share of treated on it."""
    return _slope(cells, np.maximum(_fit_total(cells), 0.0))


def _slope(cells: Cells, size: FloatArray) -> FloatArray:
    """Return the slope of the share of treated on the score, between 0 and 3, shape (...).

    It is shrunk by what noise in the counts would make of a slope of zero.
    """
    m = size.shape[-1]
    score = propensity_at((np.arange(m) + 0.5) / m, cells.base)
    both = np.maximum(size.sum(axis=-2), _TINY)
    share = size[..., 1, :] / both
    total = both.sum(axis=-1, keepdims=True)
    x = score - (both * score).sum(axis=-1, keepdims=True) / total
    mass = np.maximum((both * x * x).sum(axis=-1), _TINY)
    slope = (both * x * share).sum(axis=-1) / mass
    noise = cells.count_variance * (share**2 + (1.0 - share) ** 2) + both * share * (1.0 - share)
    variance = (x * x * noise).sum(axis=-1) / mass**2
    return np.clip(slope - variance / np.maximum(np.abs(slope), _TINY), 0.0, _STEEPEST)


def _weights(counts: FloatArray, estimand: Estimand) -> FloatArray:
    control, treated = counts[..., 0, :], counts[..., 1, :]
    both = control + treated
    size = {
        "ate": both,
        "att": treated,
        "atc": control,
        "ato": control * treated / np.maximum(both, _TINY),
    }[estimand]
    total = size.sum(axis=-1, keepdims=True)
    even = np.full(size.shape, 1.0 / size.shape[-1])
    return np.where(total > 0.0, size / np.where(total > 0.0, total, 1.0), even)


def _clip(values: FloatArray, cells: Cells) -> FloatArray:
    return np.clip(values, -cells.half_width, cells.half_width)
