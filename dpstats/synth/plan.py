"""plan_synth: what to expect of `dp_synth` before any data are touched."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpstats.calls import check_count, check_number, choice
from dpstats.errors import DPStatsError
from dpstats.hints import PLAN_SYNTH_NAMES, closed
from dpstats.privacy.accounting import check_budget
from dpstats.privacy.bounds import check_interval
from dpstats.synth.kernels.design import Design, design_of
from dpstats.synth.population import Case, expected_did, expected_of_runs, last_value_error

if TYPE_CHECKING:
    from dpstats.report.plan_table import PlanTable
    from dpstats.synth.kernels.base import Public
    from dpstats.synth.population import Expected

__all__ = ["enough_donors", "plan_synth"]

_METHODS = ("moments", "did", "output", "objective")
# by default those that work at small budgets
_USUAL = ("moments", "did")
# an effect is found with a probability of 80 % at this many standard errors (5 %, two-sided)
_POWER = 2.8
# the rule by which `moments` chooses its basis; the smallest one must pass it
_EDGE_SHARE = 0.3
_SMALLEST = 6
# simulated panels; draws of the noise in each, and while searching, where the total is enough
_PANELS = {"moments": 64, "did": 12, "output": 24, "objective": 24}
_DRAWS = {"moments": 6, "did": 1, "output": 8, "objective": 8}
_FEWER_DRAWS = {"moments": 1, "did": 1, "output": 3, "objective": 2}
# a total error below this share of the deviation is never reached
_NO_ERROR = 1e-6
_EPS_RANGE = (1e-3, 1e4)
_MOST_DONORS = 10_000_000


@closed(PLAN_SYNTH_NAMES)
def plan_synth(
    n: int,
    periods: int,
    pre_periods: int,
    eps: float,
    bounds: tuple[float, float] | Mapping[str, tuple[float, float]],
    *,
    delta: float = 0.0,
    deviation: float | None = None,
    target_se: float | None = None,
    method: str | None = None,
    common: float = 0.9,
    factors: int = 3,
) -> PlanTable:
    """Say how large the errors of `dp_synth` will be, and whether it is worth the budget.

    Touches no data.

    Parameters
    ----------
    n : int
        Number of donors.
    periods, pre_periods : int
        Periods in all, and up to T0.
    eps, delta : float
        Privacy budget.
    bounds : (lo, hi) or dict of str to (lo, hi)
        Plausible range of the outcome, or of one column, as `dp_synth` takes it.
    deviation : float, optional
        How far a unit's outcome typically moves from its own pre-period mean (root mean square).
        By default an eighth of the width of `bounds`.
    target_se : float, optional
        Total standard error for which `eps_needed` and `donors_needed` are given; by default what
        is needed to beat the last value.
    method : {"moments", "did", "output", "objective", "all"}, optional
        By default the first two, which work at small budgets.
    common : float
        Expected share of the donors' squared movement that they have in common, in [0, 1].
    factors : int
        Number of common movements.

    Returns
    -------
    PlanTable
        A DataFrame that prints as a table to read. One row a method: `noise_sd` (of the mean
        effect, from privacy noise alone); `total_se` (root mean square error of the mean effect);
        `last_value` (that of carrying the target's last value forward instead, over the same 64
        panels for every method); `detectable` (the
        smallest effect found with a probability of 80 %: 2.8 total errors); `smallest_share` (of
        the squared movement of the donors, that a common movement must have to be found by
        "moments"); `eps_needed` and `donors_needed` (nan where no number would do; more donors do
        not help "output" and "objective", whose noise does not shrink with them); `advice`.

    Raises
    ------
    DPStatsError
        If an argument breaks a rule.

    Notes
    -----
    The kernels themselves run, seeded, on simulated panels (64 for "moments", 12 for "did", else
    24), with 12 (for "output" and "objective" 4) treated units: common movements are random walks,
    loadings normal with a mean of 1.5 standard deviations, the rest is independent noise, and
    levels fill the middle half of `bounds`; treated units are like the donors, so that common
    trends hold on average only. The figures are root mean squares over units and panels, but for
    `noise_sd` of "moments": panels differ in it by a factor of 1.5 either way and sometimes much
    more, so that it is that of a typical panel, the mean over the middle half of the panels.
    "moments" runs on at most 2000 donors, with the budget at which their noise is that of `n`. For
    "did" the choice of the row norm, a power of two, is drawn 4000 times: large norms are rare and
    make up most of `noise_sd` where n eps is small. "moments" and "did" are planned as called
    without bounds.

    *What is promised.* On panels of this kind, with their own `deviation` and `common`, `noise_sd`
    agrees with what repeated calls show to 15 %, where n eps is 1000 or more ("output" and
    "objective": at 20 donors and eps = 50, 40 and 20). Measured over planned, with 40 to 96 panels
    a cell: "moments" .86 to 1.03, "did" .88 to .98, "output" .92 to 1.12, "objective" 1.04 to 1.08.
    With 300 donors at eps = 1 it was .82 for "did".
    `noise_sd` of "moments" is small where the budget is too small, since an estimate that finds
    nothing has little noise: read `total_se`.

    `advice` for "moments" is a rule on public quantities, measured on other panels too: where even
    six dimensions have a noise edge above .3 n, the donors teach too little to beat carrying the
    last value forward (below n eps of about 80 to 100). The others must have a total error below
    `last_value`.

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

    from dpstats.report.plan_table import plan_table

    if isinstance(bounds, Mapping) and len(bounds) == 1:
        (bounds,) = bounds.values()
    case = _check(
        n, periods, pre_periods, eps, bounds, delta, deviation, target_se, common, factors
    )
    if method is not None:
        choice("method", method, dict.fromkeys((*_METHODS, "all")))
    names = _USUAL if method is None else (method,)
    rows = []
    for name in _METHODS if method == "all" else names:
        expected = _expected(case, name, _DRAWS[name])
        works = _works(case, name, expected)
        advice = "worth trying" if works else "not better than carrying the last value forward"
        rows.append(
            {
                "method": name,
                "noise_sd": expected.noise,
                "total_se": expected.total,
                "last_value": last_value_error(case),
                "detectable": _POWER * expected.total,
                "smallest_share": _smallest_share(case) if name == "moments" else math.nan,
                "eps_needed": _eps_needed(case, name, target_se),
                "donors_needed": _donors_needed(case, name, target_se),
                "advice": advice,
            }
        )
    low, high = check_interval("the outcome", bounds)
    return plan_table(
        pd.DataFrame(rows).set_index("method"),
        _title(case, low, high),
        _labels(target_se),
        (
            f"Assumed: units move by {case.deviation:.4g} from their pre-period means (deviation"
            f"{'' if deviation is not None else ', guessed from bounds: pass your own'}), "
            f"{100.0 * case.common:.3g}% of it in common, in {case.factors} common movements.",
            "No data were touched.",
        ),
    )


def _title(case: Case, low: float, high: float) -> str:
    delta = f", delta = {case.delta:g}" if case.delta else ""
    return (
        f"Plan of dp_synth: {case.n} donors, {case.periods} periods, {case.pre_periods} before, "
        f"eps = {case.epsilon:g}{delta}, outcome in [{low:g}, {high:g}]"
    )


def _labels(target_se: float | None) -> dict[str, str]:
    needed = "to beat the last value"
    if target_se is not None:
        needed = f"for a std. error of {target_se:.4g}"
    return {
        "noise_sd": "Std. error of privacy noise",
        "total_se": "Std. error, all of it",
        "last_value": "Error of the last value carried on",
        "detectable": "Smallest effect found (power 80%)",
        "smallest_share": "Smallest common movement found",
        "eps_needed": f"Eps {needed}",
        "donors_needed": f"Donors {needed}",
    }


def _check(
    n: Any,
    periods: Any,
    pre_periods: Any,
    eps: Any,
    bounds: Any,
    delta: Any,
    deviation: Any,
    target_se: Any,
    common: Any,
    factors: Any,
) -> Case:
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
    edge = math.ulp(1.0)
    check_number("common", common, -edge, 1.0 + edge, "a number in [0, 1]")
    check_count("factors", factors, "a positive integer")
    return Case(
        int(n),
        int(periods),
        int(pre_periods),
        epsilon,
        slack,
        (high - low) / 2.0,
        (high - low) / 8.0 if deviation is None else float(deviation),
        float(common),
        int(factors),
    )


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
    smallest = Design(design.level, design.pure, size - 2, 1, size - 2).edge()
    return smallest <= _EDGE_SHARE * public.n


def _smallest_share(case: Case) -> float:
    return min(1.0, design_of(case.public).edge() / case.n)


def _expected(case: Case, name: str, draws: int) -> Expected:
    if name == "did":
        return expected_did(case, _PANELS[name])
    return expected_of_runs(case, name, _PANELS[name], draws)


def _works(case: Case, name: str, expected: Expected) -> bool:
    return (
        enough_donors(case.public) if name == "moments" else expected.total < last_value_error(case)
    )


def _does(case: Case, name: str, target_se: float | None) -> bool:
    """Whether a case reaches the target, or beats the last value where there is none."""
    if name == "moments" and not enough_donors(case.public):
        return False
    if target_se is not None and target_se < _NO_ERROR * case.deviation:
        return False
    if name == "moments" and target_se is None:
        return True
    expected = _expected(case, name, _FEWER_DRAWS[name])
    return expected.total <= (last_value_error(case) if target_se is None else target_se)


def _eps_needed(case: Case, name: str, target_se: float | None) -> float:
    found = _smallest(
        lambda epsilon: _does(replace(case, epsilon=epsilon), name, target_se), *_EPS_RANGE
    )
    return float(f"{found:.3g}")


def _donors_needed(case: Case, name: str, target_se: float | None) -> float:
    if name in ("output", "objective"):
        return math.nan

    def does(n: float) -> bool:
        return _does(replace(case, n=round(n)), name, target_se)

    found = _smallest(does, 2.0, float(_MOST_DONORS))
    return found if math.isnan(found) else float(math.ceil(found))


def _smallest(does: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest number that does, to one percent, nan where even `high` does not."""
    if not does(high):
        return math.nan
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if does(middle) else (middle, high)
    return high
