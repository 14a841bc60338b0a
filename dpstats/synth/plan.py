"""plan_synth: what to expect of `dp_synth` before any data are touched."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpstats.calls import check_count, check_number, choice
from dpstats.errors import DPStatsError
from dpstats.privacy.accounting import check_budget
from dpstats.privacy.bounds import check_interval
from dpstats.privacy.calibration import gaussian_scale, laplace_scale
from dpstats.synth.kernels.base import Public
from dpstats.synth.kernels.did import Did
from dpstats.synth.kernels.moments import Design, design_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["enough_donors", "plan_synth"]

# an effect is found with a probability of 80 % at this many standard deviations (5 %, two-sided)
_POWER = 2.8
# the rule by which `moments` chooses its basis; the smallest one must pass it
_EDGE_SHARE = 0.3
_SMALLEST = 6
# a power of two above the row norm, in the mean of the logarithm
_ROUNDED_UP = math.sqrt(2.0)
_LARGEST_EPS = 1e4
_MOST_DONORS = 10_000_000


def plan_synth(
    n: int,
    periods: int,
    pre_periods: int,
    eps: float,
    bounds: tuple[float, float],
    *,
    delta: float = 0.0,
    deviation: float | None = None,
    target_se: float | None = None,
    method: str | None = None,
) -> pd.DataFrame:
    """Say what noise to expect of `dp_synth`, and whether it is worth the budget.

    Touches no data.

    Parameters
    ----------
    n : int
        Number of donors.
    periods, pre_periods : int
        Periods in all, and up to T0.
    eps, delta : float
        Privacy budget.
    bounds : (lo, hi)
        Plausible range of the outcome.
    deviation : float, optional
        How far a unit's outcome typically moves from its own pre-period mean (root mean square).
        By default an eighth of the width of `bounds`.
    target_se : float, optional
        Standard deviation of the noise for which `eps_needed` and `donors_needed` are given; by
        default what is needed to beat the last value.
    method : {"moments", "did"}, optional
        By default both. "output" and "objective" are not planned: they need an `eps` of about 40
        and more to beat a prediction of zero.

    Returns
    -------
    DataFrame
        One row a method: `noise_sd` (of the mean effect, from privacy noise alone), `detectable`
        (the smallest effect found with a probability of 80 % where noise is the only error),
        `smallest_share` (of the squared movement of the donors, that a common movement must have
        to be found; "did" looks at none), `eps_needed`, `donors_needed` (nan where no number
        would do) and `advice`.

    Raises
    ------
    DPStatsError
        If an argument breaks a rule.

    Notes
    -----
    "moments": a common movement with a share h of the donors' squared movement is found where n h
    exceeds the edge of the noise's spectrum; what falls below is lost, at most ``deviation *
    sqrt(edge / n)``. Where even six dimensions have an edge above .3 n, the donors teach too little
    to beat carrying the last value forward (measured: below n eps of about 80 to 100). "did": the
    noise in the mean of the donors' rows, against `deviation`. Sampling error is not in either.

    Examples
    --------
    >>> import dpstats as dp
    >>> plan = dp.plan_synth(38, 31, 19, 1.0, (0, 300), delta=1e-6)
    >>> plan.loc["moments", "advice"]
    'not better than carrying the last value forward'
    >>> dp.plan_synth(5000, 31, 19, 1.0, (0, 300), delta=1e-6).loc["moments", "advice"]
    'worth trying'
    """
    import pandas as pd

    case = _check(n, periods, pre_periods, eps, bounds, delta, deviation, target_se)
    if method is not None:
        choice("method", method, _METHODS)
    rows = []
    for name in _METHODS if method is None else (method,):
        sd, works, share = _METHODS[name](case)
        advice = "worth trying" if works else "not better than carrying the last value forward"
        rows.append(
            {
                "method": name,
                "noise_sd": sd,
                "detectable": _POWER * sd,
                "smallest_share": share,
                "eps_needed": _needed(case, name, target_se, "eps"),
                "donors_needed": _needed(case, name, target_se, "n"),
                "advice": advice,
            }
        )
    return pd.DataFrame(rows).set_index("method")


@dataclass(frozen=True, slots=True)
class _Case:
    """Public quantities of a planned call."""

    n: int
    periods: int
    pre_periods: int
    eps: float
    delta: float
    deviation: float

    def changed(self, kind: str, value: float) -> _Case:
        n = max(2, round(value)) if kind == "n" else self.n
        eps = value if kind == "eps" else self.eps
        return _Case(n, self.periods, self.pre_periods, eps, self.delta, self.deviation)


def _check(
    n: Any,
    periods: Any,
    pre_periods: Any,
    eps: Any,
    bounds: Any,
    delta: Any,
    deviation: Any,
    target_se: Any,
) -> _Case:
    check_count("n", n, "a positive integer")
    check_count("periods", periods, "a positive integer")
    check_count("pre_periods", pre_periods, "a positive integer")
    if not 2 <= pre_periods < periods:
        raise DPStatsError(
            f"`pre_periods` must be at least 2 and below `periods`; got {pre_periods} and {periods}"
        )
    epsilon, slack = check_budget(eps, delta)
    if math.isinf(epsilon):
        raise DPStatsError("`eps` must be finite: without noise there is nothing to plan")
    low, high = check_interval("the outcome", bounds)
    positive = "a positive number"
    check_number("deviation", deviation, 0.0, math.inf, positive)
    check_number("target_se", target_se, 0.0, math.inf, positive)
    typical = (high - low) / 8.0 if deviation is None else float(deviation)
    return _Case(int(n), int(periods), int(pre_periods), epsilon, slack, typical)


def _moments(case: _Case) -> tuple[float, bool, float]:
    """Return noise sd, whether it is worth trying, and the smallest share that is found."""
    public = Public(case.n, case.periods, case.pre_periods, case.eps, case.delta, False)
    design = design_of(public)
    share = min(1.0, design.edge() / case.n)
    return case.deviation * math.sqrt(share), enough_donors(public), share


def enough_donors(public: Public) -> bool:
    """Whether "moments" has a chance, from public quantities: the smallest basis passes its rule.

    Parameters
    ----------
    public : Public

    Returns
    -------
    bool
    """
    design = design_of(public)
    size = min(_SMALLEST, public.periods)
    smallest = Design(design.level, design.pure, size - 2, 1).edge()
    return smallest <= _EDGE_SHARE * public.n


def _did(case: _Case) -> tuple[float, bool, float]:
    kernel = Did()
    public = Public(case.n, case.periods, case.pre_periods, case.eps, case.delta, False)
    shares = kernel.shares(kernel.settings(None, {}, public), public)
    part = case.eps * shares["mean"] / math.fsum(shares.values())
    sensitivity = 2.0 * _ROUNDED_UP * case.deviation * math.sqrt(case.periods) / case.n
    if case.delta > 0.0:
        entry = gaussian_scale(sensitivity, part, case.delta)
    else:
        entry = laplace_scale(sensitivity, part) * math.sqrt(case.periods + 1.0)
    after = case.periods - case.pre_periods
    sd = entry * math.sqrt(1.0 / after + 1.0 / case.pre_periods)
    return sd, entry * math.sqrt(1.0 + 1.0 / case.pre_periods) < case.deviation, math.nan


_METHODS: dict[str, Callable[[_Case], tuple[float, bool, float]]] = {
    "moments": _moments,
    "did": _did,
}


def _needed(case: _Case, name: str, target_se: float | None, kind: str) -> float:
    """Return the smallest eps or number of donors with which the method does."""

    def does(value: float) -> bool:
        sd, works, _ = _METHODS[name](case.changed(kind, value))
        return works if target_se is None else sd <= target_se

    low, high = (1e-4, _LARGEST_EPS) if kind == "eps" else (2.0, float(_MOST_DONORS))
    if not does(high):
        return math.nan
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if does(middle) else (middle, high)
    return float(math.ceil(high)) if kind == "n" else float(f"{high:.3g}")
