r"""Private balance of the covariates before and after an adjustment: the release "balance".

Notes
-----
*What is released.* Columns of the design are scaled to x in [-1, 1] by their public bounds. Rows
have a weight u in [0, 1], relative to the largest of their arm, which depends on the row and on
numbers released before. Released in one vector of 3 + 5k numbers, for k columns: the number of
treated; by arm the sums of x; over both arms the sums of :math:`x^2 - 1/2`; by arm, times a public
power of two :math:`\lambda \ge 1`, the sums of u and of ux. Weights are small next to the largest,
so that weighted means need less noise: :math:`\lambda^2` is about the ratio of the two. n is public
and gives the number of controls; squares are needed once, since they and the means by arm give the
variance within arms.

*Sensitivity.* Row (x, u) is replaced by (x', u').

In l2, same arm: the squared change :math:`\sum_j [(x_j-x_j')^2 + \lambda^2(ux_j-u'x_j')^2 +
(x_j^2-x_j'^2)^2] + \lambda^2(u-u')^2` is convex in (u, u'), hence largest at corners. With
:math:`t = |x_j - x_j'|` the first and third terms are at most :math:`t^2(1 + (2-t)^2) \le 4`, and
at u = u' = 1 all three :math:`t^2(1+\lambda^2+(2-t)^2) \le 4(1+\lambda^2)`; with one u equal to 0
the second term is at most :math:`\lambda^2` a column and once for the count. In all, at most
:math:`4k(1+\lambda^2)`, attained by x = 1, x' = -1, u = u' = 1. Other arm: at most
:math:`1 + 2\lambda^2 + 2k(1+\lambda^2)`, which is no more.

In l1, other arm: :math:`1 + 2\lambda + \sum_j[(1+\lambda)(|x_j|+|x_j'|) + |x_j^2-x_j'^2|]`, largest
at :math:`|x_j| = |x_j'| = 1`: :math:`1 + 2\lambda + 2k(1+\lambda)`, attained; in the same arm at
most :math:`k\max(2(1+\lambda), 2.25+\lambda) + \lambda`, which is less.

Noise is Gaussian by the l2 sensitivity, or of the two that are pure the one with the smaller
standard deviation: Laplace by the l1, or K-norm by the l2 sensitivity (a public choice by k and
lambda; K-norm for few columns). Values are rounded to a grid before; sensitivities hold for one
step more in each number.

The standardised mean difference is that of treated less control over the standard deviation within
arms before the adjustment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.alarms import Signal
from dpstats.calls import check_number
from dpstats.errors import DPStatsError
from dpstats.privacy.accounting import Cost
from dpstats.privacy.mechanisms import sum_lattice
from dpstats.propensity import Objective, Output

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from dpstats.ate.kernels.base import Arrays, Public, RowWeights, Settings
    from dpstats.formula import Design
    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms
    from dpstats.privacy.noise import FloatArray

__all__ = [
    "Balance",
    "balance_share",
    "check_balance",
    "check_balanced",
    "check_share",
    "release_balance",
    "set_aside",
]

RELEASE = "balance"
_LARGEST_FACTOR = 4.0


@dataclass(frozen=True, slots=True)
class Balance:
    """Released sums of the covariates, before and after weighting.

    Attributes
    ----------
    names : tuple of str
        Columns of the design.
    lower, upper : ndarray
        Shape (k,): their bounds.
    totals : ndarray
        Shape (3 + 5k,): treated, sums of x of controls and of treated, of x^2 - 1/2, sums of u by
        arm, sums of ux of controls and of treated.
    sds : ndarray
        Shape (3 + 5k,): noise sd of each.
    n : int
    """

    names: tuple[str, ...]
    lower: FloatArray
    upper: FloatArray
    totals: FloatArray
    sds: FloatArray
    n: int

    def table(self) -> pd.DataFrame:
        """Return one row a covariate; see `ATEResults.balance`."""
        import pandas as pd

        k = len(self.names)
        parts, noise = _split(self.totals, k), _split(self.sds, k)
        # an arm has a row, however the noise falls
        treated = float(np.clip(parts.treated, 1.0, self.n - 1.0))
        sizes = np.array([self.n - treated, treated])
        count_sd = float(noise.treated)
        weights = np.maximum(parts.weights, np.maximum(noise.weights, 1e-9))
        before = np.clip(parts.sums / sizes[:, None], -1.0, 1.0)
        after = np.clip(parts.weighted / weights[:, None], -1.0, 1.0)
        square = parts.squares / self.n + 0.5
        within = square - (sizes[:, None] * before**2).sum(axis=0) / self.n
        # a variance that noise took to nothing would make any difference look huge
        floor = np.maximum(noise.squares / self.n, 1e-6)
        spread = np.sqrt(np.clip(within, floor, 1.0))
        # one noisy number of treated gives both sizes, with opposite signs
        shared = (before[1] / sizes[1] + before[0] / sizes[0]) * count_sd
        before_sd = np.sqrt((noise.sums**2 / sizes[:, None] ** 2).sum(axis=0) + shared**2)
        own = noise.weighted**2 + (after * noise.weights[:, None]) ** 2
        after_sd = np.sqrt((own / weights[:, None] ** 2).sum(axis=0))
        # the noise in the standard deviation scales a difference up or down
        scale_sd = noise.squares / self.n / (2.0 * spread**2)
        smd = (before[1] - before[0]) / spread, (after[1] - after[0]) / spread
        middle, half = (self.lower + self.upper) / 2.0, (self.upper - self.lower) / 2.0
        columns = {
            "mean_control": middle + half * before[0],
            "mean_treated": middle + half * before[1],
            "weighted_control": middle + half * after[0],
            "weighted_treated": middle + half * after[1],
            "before": smd[0],
            "after": smd[1],
            "before_sd": np.hypot(before_sd / spread, smd[0] * scale_sd),
            "after_sd": np.hypot(after_sd / spread, smd[1] * scale_sd),
        }
        index = pd.Index(self.names, name="covariate")
        table: pd.DataFrame = pd.DataFrame(columns, index=index)
        return table

    def diagnostics(self) -> list[tuple[str, str, str]]:
        """Return the largest difference that is left."""
        table = self.table()
        worst = table["after"].abs().to_numpy().argmax()
        row = table.iloc[int(worst)]
        noise = f"; noise sd {row['after_sd']:.2g}" if row["after_sd"] else ""
        reading = (
            f"{table.index[int(worst)]}; {table['before'].abs().max():.3f} at most before{noise}; "
            "0.1 is the usual limit"
        )
        return [("largest |SMD| after", f"{abs(row['after']):.3f}", reading)]

    def signals(self) -> list[Signal]:
        """Return what the rules for warnings look at: the difference beyond two noise sd."""
        table = self.table()
        least = table["after"].abs() - 2.0 * table["after_sd"]
        worst = int(least.to_numpy().argmax())
        return [Signal("largest |SMD| after", float(least.iloc[worst]), str(table.index[worst]))]


@dataclass(frozen=True, slots=True)
class _Parts:
    treated: float
    sums: FloatArray
    squares: FloatArray
    weights: FloatArray
    weighted: FloatArray


def _split(vector: FloatArray, k: int) -> _Parts:
    return _Parts(
        float(vector[0]),
        vector[1 : 1 + 2 * k].reshape(2, k),
        vector[1 + 2 * k : 1 + 3 * k],
        vector[1 + 3 * k : 3 + 3 * k],
        vector[3 + 3 * k :].reshape(2, k),
    )


def check_balance(value: Any) -> float:
    """Return the share of the budget for the balance."""
    return check_share(RELEASE, value)


def check_share(name: str, value: Any) -> float:
    """Return a share of the budget, 0 for None.

    Raises
    ------
    DPStatsError
        If it is not in (0, 1).
    """
    check_number(name, value, 0.0, 1.0, "a share of the budget in (0, 1)")
    return 0.0 if value is None else float(value)


def balance_share(options: Any) -> float:
    """Return the share of the budget that the user gave, or 0."""
    return float(options.get(RELEASE) or 0.0)


def check_balanced(settings: Settings, names: tuple[str, ...]) -> None:
    """Refuse, before anything is spent, a call whose balance could not be computed.

    Raises
    ------
    DPStatsError
        If there are no covariates, or the propensity is not kept.
    """
    if not names:
        raise DPStatsError("`balance` needs covariates on the right side of `formula`; got none")
    if settings.fits_propensity and not isinstance(settings.propensity, Objective | Output):
        raise DPStatsError(
            "`balance` needs a propensity of dpstats.propensity or a known one; got one of class "
            f"{type(settings.propensity).__name__}"
        )


def set_aside(
    public: Public, shares: Mapping[str, float], gaussian: bool
) -> tuple[Public, dict[str, Cost]]:
    """Return what is left of the budget and what releases beside the estimate have of it.

    Parameters
    ----------
    public : Public
    shares : dict of str to float
        By release; zero for one that is not made.
    gaussian : bool
        Whether they have a part of delta.
    """
    costs = {
        name: Cost(share * public.epsilon, share * public.delta if gaussian else 0.0)
        for name, share in shares.items()
        if share
    }
    rest = replace(
        public,
        epsilon=public.epsilon - sum(cost.epsilon for cost in costs.values()),
        delta=public.delta - sum(cost.delta for cost in costs.values()),
    )
    return rest, costs


def factor(typical: float) -> float:
    """Return lambda: a power of two near the root of what weights are smaller than the largest."""
    wished = math.sqrt(1.0 / min(max(typical, 1e-3), 1.0))
    return min(math.ldexp(1.0, math.floor(math.log2(wished) + 0.5)), _LARGEST_FACTOR)


def sensitivities(k: int, lam: float) -> tuple[float, float]:
    """Return the l1 and the l2 sensitivity."""
    return 1.0 + 2.0 * lam + 2.0 * k * (1.0 + lam), math.sqrt(4.0 * k * (1.0 + lam**2))


def release_balance(
    arrays: Arrays, design: Design, weights: RowWeights, mechanisms: Mechanisms
) -> tuple[Balance, tuple[Release, ...]]:
    """Release sums of the covariates by arm, as they are and weighted.

    Parameters
    ----------
    arrays : Arrays
    design : Design
        Names and bounds of the columns.
    weights : RowWeights
    mechanisms : Mechanisms
    """
    k, n = len(design.names), arrays.n
    lam = factor(weights.typical)
    lattice = sum_lattice(lam, n)
    totals = _totals(arrays, weights.shares, lam, lattice)
    l1, l2 = sensitivities(k, lam)
    size = totals.size
    step = math.ldexp(1.0, lattice)
    l1, l2 = l1 + size * step, l2 + math.sqrt(size) * step
    # sd of a coordinate: sqrt(2) l1 / eps, or that of a K-norm vector, sqrt(d + 1) l2 / eps
    pure = math.sqrt(2.0) * l1 <= math.sqrt(size + 1.0) * l2
    if mechanisms.kind == "gaussian" or pure:
        noisy = mechanisms.additive(RELEASE, totals, l1=l1, l2=l2, lattice=lattice)
        sd = noisy.sd(mechanisms.kind)
    else:
        noisy = mechanisms.knorm(RELEASE, totals, sensitivity=l2)
        sd = noisy.scale * math.sqrt(size + 1.0)
    units = np.ones(size)
    units[1 + 3 * k :] = 1.0 / lam
    found = Balance(
        design.names,
        np.array(design.lower),
        np.array(design.upper),
        noisy.value * units,
        sd * units if mechanisms.source is not None else np.zeros(size),
        n,
    )
    return found, noisy.records


def _totals(arrays: Arrays, shares: FloatArray, lam: float, lattice: int) -> FloatArray:
    """Add up every row's vector, each number rounded to the grid."""
    x = arrays.design[:, 1:]
    arms = [~arrays.treated, arrays.treated]
    top = math.ldexp(1.0, -lattice)

    def steps(values: FloatArray) -> FloatArray:
        return np.rint(values * top)

    plain, weighted = steps(x), steps(lam * shares[:, None] * x)
    squares, single = steps(x**2 - 0.5), steps(lam * shares)
    parts: list[Any] = [[float(arrays.treated.sum()) * top]]
    parts += [plain[arm].sum(axis=0) for arm in arms]
    parts += [squares.sum(axis=0), [single[arm].sum() for arm in arms]]
    parts += [weighted[arm].sum(axis=0) for arm in arms]
    return np.asarray(np.ldexp(np.concatenate(parts), lattice), dtype=np.float64)
