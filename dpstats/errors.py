"""Errors and warnings.

Every message names the argument in backticks, states the rule and then what was passed. No message
holds a value of the confidential data.
"""

from __future__ import annotations

__all__ = [
    "BoundsError",
    "BudgetExceededError",
    "DPStatsError",
    "FormulaError",
    "PanelError",
    "PrivacyWarning",
    "ResultExistsError",
    "UtilityWarning",
]


class DPStatsError(ValueError):
    """An argument breaks a rule that is stated in the message."""


class BoundsError(DPStatsError):
    """Bounds are degenerate, unknown or could not be found privately."""


class BudgetExceededError(DPStatsError):
    """A ledger refused a charge; nothing was computed."""


class FormulaError(DPStatsError):
    """A formula is not row-wise, not defined everywhere in its bounds, or names no column."""


class PanelError(DPStatsError):
    """A panel does not have one row a unit and period, or its labels do not fit."""


class ResultExistsError(DPStatsError, FileExistsError):
    """A file that may hold a result would be written over; it cannot be had again for free."""


class PrivacyWarning(UserWarning):
    """Something weakens the stated privacy guarantee."""


class UtilityWarning(UserWarning):
    """The privacy noise swamps the answer."""
