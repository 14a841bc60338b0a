r"""How much scores vary: the release "variances" of estimators that average scores of rows.

Notes
-----
A score lies within a public bound B that few rows come near (a weight of 1/omega on an outcome at
its bound), so that noise in a mean of squares, of size B^2, swamps it. Released is instead a
histogram: noisy counts of rows by size of the squared score, in 10 bins from B^2 down, each a
fourth of the one before, the last down to zero. A row is in one bin, so replacing it moves two
counts by one: sensitivity 2 in l1, sqrt(2) in l2, whatever B. The bin of a row depends on the row
and on numbers released before.

The mean square is read off below a cap, each row taken for the mean of its bin under a
logarithmically even spread. The cap is the lowest above which the noisy number of rows is within
two noise sd of none. One noise sd of rows is taken to lie one bin above it, since noise may hide
them.
Where there are fewer than seven noise sd of rows in all, a free upper bound stands in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms, NoiseKind
    from dpstats.privacy.noise import FloatArray

__all__ = ["Spread", "release_spread"]

BINS = 10
_RATIO = 4.0
# fewer noise sd of rows say nothing; so many count as none
_ROWS = 7.0
_HIDDEN = 2.0


@dataclass(frozen=True, slots=True)
class Spread:
    """Released counts of rows by size of their squared scores.

    Attributes
    ----------
    counts : ndarray
        Shape (groups, 10): noisy, largest squares first. Two groups: rows whose propensity was not
        and was clipped.
    scale : float
        Noise scale of a count.
    kind : {"laplace", "gaussian"}
    bound : float
        B, in the units of the outcome.
    n : int
        Rows that were counted.
    """

    counts: FloatArray
    scale: float
    kind: NoiseKind
    bound: float
    n: int

    @property
    def count_sd(self) -> float:
        """Noise sd of a count."""
        return self.scale * (math.sqrt(2.0) if self.kind == "laplace" else 1.0)

    def mean_square(self, ceiling: float) -> float:
        """Return the mean square, leaning to the larger side; `ceiling` is a bound on it."""
        counts = self.counts.sum(axis=0)
        if self.n < _ROWS * self.count_sd:
            return ceiling
        # counts above a cap, and n less those below it: two estimates with independent noise
        place = np.arange(BINS)
        above = np.concatenate([[0.0], np.cumsum(counts[:-1])])
        above += place / BINS * (self.n - counts.sum())
        noise = self.count_sd * np.sqrt(len(self.counts) * place * (1.0 - place / BINS))
        hidden = above <= _HIDDEN * noise
        # the smallest cap above which nothing can be told from noise, nor above any larger one
        first = BINS - 1 if hidden.all() else int(np.argmin(hidden)) - 1
        sizes = self.bound**2 * _bin_means()
        seen = max(float(counts[first:] @ sizes[first:]), 0.0)
        # rows may hide above the cap; without a cap the noise of the largest count stands for them
        rows = max(float(above[first]), float(noise[max(first, 1)]))
        return min((seen + rows * float(sizes[max(first - 1, 0)])) / self.n, ceiling)

    def clipped_share(self) -> tuple[float, float]:
        """Return the noisy share of rows with a clipped propensity and its noise sd."""
        if len(self.counts) == 1:
            return 0.0, 0.0
        return float(self.counts[1].sum()) / self.n, math.sqrt(BINS) * self.count_sd / self.n


def release_spread(
    scores: FloatArray,
    bound: float,
    half_width: float,
    mechanisms: Mechanisms,
    clipped: NDArray[np.bool_] | None = None,
) -> tuple[Spread, tuple[Release, ...]]:
    """Count rows by size of their squared scores, and release the counts.

    Parameters
    ----------
    scores : ndarray
        Shape (n,), within +-`bound`, in units of C; functions of the row and of released numbers.
    bound : float
    half_width : float
        C.
    mechanisms : Mechanisms
        Their budget is that of "variances".
    clipped : ndarray of bool, optional
        Rows to be counted apart.
    """
    shares = np.minimum((scores / bound) ** 2, 1.0)
    with np.errstate(divide="ignore"):
        place = np.floor(-np.log(shares) / math.log(_RATIO))
    place = np.minimum(place, BINS - 1.0).astype(np.int64)
    groups = 1
    if clipped is not None:
        groups, place = 2, place + BINS * clipped
    counts = np.bincount(place, minlength=groups * BINS).reshape(groups, BINS)
    noisy = mechanisms.additive("variances", counts, l1=2.0, l2=math.sqrt(2.0), lattice=0)
    spread = Spread(noisy.value, noisy.scale, mechanisms.kind, bound * half_width, int(scores.size))
    return spread, noisy.records


def _bin_means() -> FloatArray:
    """Return mean squares of the bins in units of B^2: of an even spread of logarithms."""
    tops = _RATIO ** -np.arange(BINS)
    means = tops * (1.0 - 1.0 / _RATIO) / math.log(_RATIO)
    means[-1] = tops[-1] / 2.0
    return np.asarray(means, dtype=np.float64)
