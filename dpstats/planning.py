"""plan_curve: plans over a range of budgets, for a table or a picture."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpstats.ate.plan import plan_ate
from dpstats.calls import choice
from dpstats.errors import DPStatsError
from dpstats.hints import PLAN_ATE_NAMES, PLAN_SYNTH_NAMES, argument_hint
from dpstats.passed import passed
from dpstats.privacy.accounting import check_budget
from dpstats.synth.plan import plan_synth

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpstats.report.plan_table import PlanTable

__all__ = ["plan_curve"]

_PLANNERS = {"ate": plan_ate, "synth": plan_synth}
_FOREIGN = {"ate": PLAN_ATE_NAMES, "synth": PLAN_SYNTH_NAMES}
_SHOWN = ["noise_sd", "sampling_sd", "total_se", "detectable"]
_LABELS = {
    "eps": "eps",
    "method": "method",
    "noise_sd": "se of noise",
    "sampling_sd": "se of sampling",
    "total_se": "se of both",
    "detectable": "smallest effect",
}
_BUDGETS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
# no error is as small: the planners then need not search for a budget
_NO_TARGET = 1e-300


def plan_curve(
    kind: Literal["ate", "synth"] = "ate", eps: Iterable[float] | None = None, **arguments: Any
) -> PlanTable:
    """Plan a study at each of several budgets; `plot_plan` draws it.

    Touches no data.

    Parameters
    ----------
    kind : {"ate", "synth"}
        `plan_ate` or `plan_synth`.
    eps : sequence of float, optional
        Budgets, positive and finite. By default eleven from 0.1 to 10.
    **arguments
        What the planner takes (by name), but for `eps` and `target_se`: a target is an argument of
        `plot_plan`.

    Returns
    -------
    PlanTable
        A DataFrame that prints as a table to read. One row a budget and method: `eps` (ascending),
        `method`, `noise_sd`, `sampling_sd` (nan for "synth", where `total_se` is simulated as a
        whole), `total_se` and `detectable`, in the outcome's units.

    Raises
    ------
    DPStatsError
        If an argument is missing, unknown, or breaks a rule of the planner.

    See Also
    --------
    plot_plan : the picture.

    Examples
    --------
    >>> import dpstats as dp
    >>> curve = dp.plan_curve("ate", eps=[0.5, 1, 2], n=2_000, y_bounds=(0, 100),
    ...                       method="diff_means")
    >>> curve[["eps", "method", "noise_sd", "total_se"]].round(2)
       eps      method  noise_sd  total_se
    0  0.5  diff_means      0.53      1.24
    1  1.0  diff_means      0.26      1.15
    2  2.0  diff_means      0.13      1.13
    """
    import pandas as pd

    from dpstats.report.plan_table import plan_table

    planner = choice("kind", kind, _PLANNERS)
    budgets = _check_budgets(_BUDGETS if eps is None else eps)
    if "target_se" in arguments:
        raise DPStatsError("`target_se` is an argument of `plot_plan`, not of `plan_curve`")
    _check_names(kind, planner, arguments)
    plans, about = [], {}
    for budget in budgets:
        plan = planner(eps=budget, target_se=_NO_TARGET, **arguments)
        about = plan.attrs
        plans.append(plan.reindex(columns=_SHOWN).reset_index().assign(eps=budget))
    curve = pd.concat(plans, ignore_index=True)
    curve = curve[["eps", "method", *_SHOWN]].astype(dict.fromkeys(_SHOWN, float))
    title = f"Plan of dp_{kind} by budget: {_shared(about['title'])}"
    return plan_table(curve, title, _LABELS, about["notes"])


def _shared(title: str) -> str:
    """Return what the title of a plan says besides its budget."""
    facts = title.partition(": ")[2].split(", ")
    return ", ".join(fact for fact in facts if not fact.startswith("eps = "))


def _check_budgets(eps: Any) -> list[float]:
    rule = "`eps` must be a sequence of positive finite numbers"
    if isinstance(eps, str) or not np.iterable(eps):
        raise DPStatsError(f"{rule}; got {passed(eps)}")
    budgets = sorted({check_budget(value, 0.0)[0] for value in eps})
    if not budgets or math.isinf(budgets[-1]):
        raise DPStatsError(f"{rule}; got {passed(eps)}")
    return budgets


def _check_names(kind: str, planner: Any, arguments: dict[str, Any]) -> None:
    taken = inspect.signature(planner).parameters
    unknown = [name for name in arguments if name not in taken]
    if unknown:
        told = []
        for name in unknown:
            hint = argument_hint(name, taken, _FOREIGN[kind])
            told.append(f"{name!r}{hint and f' ({hint})'}")
        raise DPStatsError(f"`plan_{kind}` has no argument {', '.join(told)}")
    missing = [
        f"`{name}`"
        for name, parameter in taken.items()
        if parameter.default is parameter.empty and name not in {"eps", *arguments}
    ]
    if missing:
        raise DPStatsError(f"`plan_{kind}` needs {', '.join(missing)}, by name")
