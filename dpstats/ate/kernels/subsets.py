r"""Disjoint random subsets of rows: small fits in all of them at once, and noisy means over them.

Notes
-----
*Partition.* Row positions are dealt out at random, without a look at the data (`Mechanisms.parts`).
A replaced row keeps its position, so it changes one subset and nothing that is fitted in another;
k rows of one person change at most k subsets, one after another.

*Fits.* All subsets are fitted by the same public number of damped Newton steps on arrays of public
shapes. A subset's fit is a function of its own rows to the last bit: nothing stops early because
some other subset has converged. Whatever a subset holds (an empty arm, separation, collinear
columns) its numbers are finite and lie in a public range, and it always counts.

*Step length.* Along a direction d the logistic loss has a third derivative of at most
max \|x'd\| times its second, so that the step d log(1 + r)/r, r = max \|x'd\|, never overshoots
(generalised self-concordance; Sun and Tran-Dinh 2019) and becomes Newton's as r goes to 0.

*Range of a normalised contrast.* Weighted arm means with weights in [lo, hi] in each arm, outcomes
in [-C, C], :math:`\rho_w` = hi/lo of arm w and 0 where an arm is empty: how far can one replaced
row move the difference? Every mean is linear in each outcome, so take outcomes at the ends, a rows
at C and b at -C among those that stay. With u and l the largest and smallest mean, u - l is

- for rows that stay but may all change weight (a refitted model):
  :math:`2 - 2[b/(\rho a + b) + a/(a + \rho b)] \le 2 - 4/(1 + \rho)`, largest at a = b;
- for an arm that the row leaves or joins:
  :math:`2 - 2[b/(\rho a + b) + a/(a + \rho(b+1))] \le 2 - 2/(1 + \rho)`, since the first fraction
  is at least :math:`1/(1+\rho)` where a <= b and the second where a > b;
- for an arm in which the row stays: 2 at most (it may be alone).

(All in units of C.) A row that stays in its arm moves the contrast by at most 2 +
(2 - 4/(1 + rho)), rho of the other arm (just 2 where weights are functions of the row alone); one
that changes arm by at most 4 - 2/(1 + rho_0) - 2/(1 + rho_1); an arm that becomes empty by 2. With
rho the larger ratio a fitted propensity therefore gives :math:`4C\rho/(1 + \rho)`. For the ATE and
the overlap effect rho = (1 - omega)/omega: :math:`4C(1-\omega)`, not 4C; with one known
probability all weights are equal: 2C.

References
----------
Sun, T. and Tran-Dinh, Q. (2019). Generalized self-concordant functions. Mathematical Programming
178, 145-213. doi:10.1007/s10107-018-1282-4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.ate.kernels.weights import arm_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpstats.ate.kernels.base import Arrays, Estimand, Settings
    from dpstats.privacy.noise import FloatArray

__all__ = [
    "Contrasts",
    "Subsets",
    "contrast_change",
    "contrasts",
    "fit_lines",
    "fit_logits",
    "sigmoid",
    "subset_scores",
    "weight_ratios",
]

_STEPS = 30
# penalty of a logit's constant, without which an empty arm would send it to infinity
_CONSTANT = 0.03
# keeps a singular matrix solvable; far below what any fit can see
_TINY = 1e-10


@dataclass(frozen=True, slots=True)
class Subsets:
    """A partition of row positions, as a table with one line a subset.

    Attributes
    ----------
    part : ndarray of int
        Shape (n,): the subset of each position.
    table : ndarray of int
        Shape (K, b): positions; lines that are one short end with any position.
    live : ndarray
        Shape (K, b): 1 for a position of the subset, 0 for what fills the line up.
    """

    part: NDArray[np.int64]
    table: NDArray[np.int64]
    live: FloatArray

    @classmethod
    def of(cls, part: NDArray[np.int64], count: int) -> Subsets:
        """Arrange a partition in `count` parts."""
        sizes = np.bincount(part, minlength=count)
        place = np.arange(int(sizes.max())) < sizes[:, None]
        table = np.zeros(place.shape, dtype=np.int64)
        table[place] = np.argsort(part, kind="stable")
        return cls(part, table, place.astype(np.float64))

    @property
    def count(self) -> int:
        """Number of subsets, K."""
        return len(self.table)

    @property
    def sizes(self) -> FloatArray:
        """Rows of each subset."""
        return np.asarray(self.live.sum(axis=1))

    def gather(self, values: NDArray[Any]) -> FloatArray:
        """Return values by row, shape (n, ...), as (K, b, ...), zero in what fills lines up."""
        taken = values[self.table].astype(np.float64)
        return np.asarray(taken * self.live.reshape(*self.live.shape, *[1] * (values.ndim - 1)))


def fit_logits(
    design: FloatArray, treated: FloatArray, live: FloatArray, ridge: float
) -> FloatArray:
    """Fit a logit in every subset.

    Parameters
    ----------
    design : ndarray
        Shape (K, b, d), zero outside the subset.
    treated, live : ndarray
        Shape (K, b).
    ridge : float
        lambda of the penalty lambda ||w||^2 / 2 on the sum of the losses.

    Returns
    -------
    ndarray
        Shape (K, d), always finite.
    """
    coef = np.zeros((design.shape[0], design.shape[2]))
    across = design.transpose(0, 2, 1)
    penalty = _penalties(design.shape[2], ridge, min(ridge, _CONSTANT))
    base = np.diag(penalty + _TINY)
    for _ in range(_STEPS):
        fitted = sigmoid(np.matmul(design, coef[:, :, None])[:, :, 0])
        gradient = np.matmul(across, ((treated - fitted) * live)[:, :, None])[:, :, 0]
        gradient -= penalty * coef
        bent = fitted * (1.0 - fitted) * live
        curvature = np.matmul(across, design * bent[:, :, None]) + base
        step = np.linalg.solve(curvature, gradient[:, :, None])
        reach = np.abs(np.matmul(design, step)[:, :, 0]).max(axis=1)
        length = np.where(reach > 1e-12, np.log1p(reach) / np.maximum(reach, 1e-12), 1.0)
        coef = coef + length[:, None] * step[:, :, 0]
    return np.nan_to_num(coef, nan=0.0, posinf=0.0, neginf=0.0)


def fit_lines(
    design: FloatArray, outcome: FloatArray, members: FloatArray, ridge: float
) -> FloatArray:
    """Fit a linear regression in every subset, among `members` (shape (K, b), 0 or 1).

    Returns
    -------
    ndarray
        Shape (K, d); zeros where a subset has no members.
    """
    kept = design * members[:, :, None]
    across = kept.transpose(0, 2, 1)
    gram = np.matmul(across, kept) + np.diag(_penalties(design.shape[2], ridge, 0.0) + _TINY)
    moment = np.matmul(across, outcome[:, :, None])
    return np.nan_to_num(np.linalg.solve(gram, moment)[:, :, 0], posinf=0.0, neginf=0.0)


def _penalties(size: int, ridge: float, constant: float) -> FloatArray:
    """Return the penalty of each coefficient; the constant comes first."""
    penalties = np.full(size, ridge)
    penalties[0] = constant
    return penalties


def sigmoid(logits: FloatArray) -> FloatArray:
    """Return the logistic function."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(logits, -700.0, 700.0))))


def subset_scores(arrays: Arrays, settings: Settings, subsets: Subsets, ridge: float) -> FloatArray:
    """Return the propensity of each row, shape (K, b), known or fitted in its subset; clipped."""
    if settings.probability is not None:
        scores = np.full(subsets.table.shape, settings.probability)
    elif arrays.known is not None:
        scores = arrays.known[subsets.table]
    else:
        design = subsets.gather(arrays.design)
        coef = fit_logits(design, subsets.gather(arrays.treated), subsets.live, ridge)
        scores = sigmoid(np.matmul(design, coef[:, :, None])[:, :, 0])
    return np.asarray(np.clip(scores, settings.overlap, 1.0 - settings.overlap))


@dataclass(frozen=True, slots=True)
class Contrasts:
    """Normalised weighted contrasts, one a subset, in units of the outcome given.

    Attributes
    ----------
    effects : ndarray
        Shape (K,), in [-2, 2] for outcomes in [-1, 1]; 0 where an arm is empty.
    variances : ndarray
        Shape (K,): estimated variances (propensities taken as fixed); inf where there is no
        estimate.
    """

    effects: FloatArray
    variances: FloatArray


def contrasts(
    outcome: FloatArray,
    treated: FloatArray,
    scores: FloatArray,
    live: FloatArray,
    estimand: Estimand,
) -> Contrasts:
    """Return the weighted difference of arm means in every subset (all arguments: (K, b))."""
    control, active = arm_weights(scores, estimand)
    effects, variances = np.zeros(len(outcome)), np.zeros(len(outcome))
    filled = np.ones(len(outcome), dtype=bool)
    for sign, members, weight in (
        (1.0, treated * live, active),
        (-1.0, (1.0 - treated) * live, control),
    ):
        # a weight is infinite only where a propensity without bounds (`eps=inf`) reached 0 or 1
        w = np.where((members > 0.0) & np.isfinite(weight), weight, 0.0)
        total = w.sum(axis=1)
        filled &= total > 0.0
        shares = w / np.where(total > 0.0, total, 1.0)[:, None]
        mean = (shares * outcome).sum(axis=1)
        left = 1.0 - (shares**2).sum(axis=1)
        spread = ((shares * (outcome - mean[:, None])) ** 2).sum(axis=1)
        effects += sign * mean
        # an arm of one row says nothing of its variance
        variances += np.where(left > 1e-9, spread / np.maximum(left, 1e-9), np.inf)
    effects = np.clip(np.where(filled, effects, 0.0), -2.0, 2.0)
    return Contrasts(effects, np.where(filled, variances, np.inf))


def weight_ratios(settings: Settings) -> tuple[float, float]:
    """Return the largest weight over the smallest, among the treated and among the controls."""
    if settings.probability is not None:
        return 1.0, 1.0
    odds = (1.0 - settings.overlap) / settings.overlap if settings.overlap > 0.0 else math.inf
    return {
        "ate": (odds, odds),
        "att": (1.0, odds**2),
        "atc": (odds**2, 1.0),
        "ato": (odds, odds),
    }[settings.estimand]


def contrast_change(settings: Settings) -> float:
    """Return how far one replaced row moves the contrast of its subset, in units of C.

    The module's Notes hold the proof.
    """
    treated, control = weight_ratios(settings)
    if settings.probability is None and not settings.by_row:
        return 4.0 - 4.0 / (1.0 + max(treated, control))
    return max(2.0, 4.0 - 2.0 / (1.0 + treated) - 2.0 / (1.0 + control))
