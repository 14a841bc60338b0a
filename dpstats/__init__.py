"""Causal estimates from confidential microdata with differential privacy.

Examples
--------
>>> import dpstats as dp
>>> trial = dp.simulate.ate("well_specified", 10_000, rng=1)
>>> res = dp.dp_ate("y ~ x1 + x2 + x3 + x4", treat="w", data=trial.data, eps=1,
...                 bounds=trial.bounds)
>>> res.privacy.epsilon
1.0
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpstats.errors import (
    BoundsError,
    BudgetExceededError,
    DPStatsError,
    FormulaError,
    PanelError,
    PrivacyWarning,
    ResultExistsError,
    UtilityWarning,
)

if TYPE_CHECKING:
    from dpstats import audit, datasets, propensity, replicate, simulate
    from dpstats.ate.model import dp_ate
    from dpstats.ate.plan import plan_ate
    from dpstats.ate.results import ATEResults
    from dpstats.costs import sensitivity_table
    from dpstats.loading import load
    from dpstats.planning import plan_curve
    from dpstats.privacy.ledger import PrivacyLedger
    from dpstats.report.compare import compare
    from dpstats.report.plan_plots import plot_plan
    from dpstats.synth.model import dp_synth
    from dpstats.synth.plan import plan_synth
    from dpstats.synth.results import SynthResults

__all__ = [
    "ATEResults",
    "BoundsError",
    "BudgetExceededError",
    "DPStatsError",
    "FormulaError",
    "PanelError",
    "PrivacyLedger",
    "PrivacyWarning",
    "ResultExistsError",
    "SynthResults",
    "UtilityWarning",
    "audit",
    "compare",
    "datasets",
    "dp_ate",
    "dp_synth",
    "load",
    "plan_ate",
    "plan_curve",
    "plan_synth",
    "plot_plan",
    "propensity",
    "replicate",
    "sensitivity_table",
    "simulate",
]

__version__ = "0.1.0"

# loaded on first use, so that `import dpstats` costs little more than `import pandas`
_LAZY = {
    "ATEResults": "dpstats.ate.results",
    "PrivacyLedger": "dpstats.privacy.ledger",
    "SynthResults": "dpstats.synth.results",
    "compare": "dpstats.report.compare",
    "dp_ate": "dpstats.ate.model",
    "dp_synth": "dpstats.synth.model",
    "load": "dpstats.loading",
    "plan_ate": "dpstats.ate.plan",
    "plan_curve": "dpstats.planning",
    "plan_synth": "dpstats.synth.plan",
    "plot_plan": "dpstats.report.plan_plots",
    "sensitivity_table": "dpstats.costs",
}
_MODULES = ("audit", "datasets", "propensity", "replicate", "simulate")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"dpstats.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'dpstats' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
