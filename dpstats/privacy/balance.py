"""The balance of a data set in a ledger: exact sums, and the rule that admits a charge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast, get_args

from dpstats.errors import BudgetExceededError, DPStatsError
from dpstats.passed import passed
from dpstats.privacy.accounting import Relation, check_budget

if TYPE_CHECKING:
    import sqlite3

__all__ = ["SELECT", "Balance", "Totals", "check_totals", "find_balance", "in_units", "to_float"]

# budgets are whole numbers of this unit, each charge rounded up to it
_UNIT = 10**40
# the total is exceeded by less than a part in this many, for 11 * (1 / 11) > 1
_TOLERANCE = 10**9


@dataclass(frozen=True, slots=True)
class Balance:
    """A data set as it is in the file; spent budgets in units."""

    id: int
    name: str
    epsilon: float
    delta: float
    protects: Relation
    spent_epsilon: int
    spent_delta: int
    charges: int

    @classmethod
    def read(cls, row: tuple[Any, ...]) -> Balance:
        """Check a row of `SELECT`."""
        number, name, epsilon, delta, protects, spent_epsilon, spent_delta, charges = row
        try:
            spent = int(spent_epsilon), int(spent_delta)
        except (TypeError, ValueError) as error:
            raise DPStatsError("`ledger` is damaged: its sums are no numbers") from error
        if min(spent) < 0:
            raise DPStatsError("`ledger` is damaged: its sums are negative")
        return cls(number, name, epsilon, delta, protects, *spent, charges)

    @property
    def left(self) -> tuple[int, int]:
        """Units of epsilon and delta to spend; slightly negative where the tolerance was used."""
        return (
            in_units(self.epsilon) - self.spent_epsilon,
            in_units(self.delta) - self.spent_delta,
        )

    def admit(self, cost: tuple[int, int], place: str) -> None:
        """Raise `BudgetExceededError` unless a charge fits, to 1e-9 of the totals."""
        slack = in_units(self.epsilon) // _TOLERANCE, in_units(self.delta) // _TOLERANCE
        over = [
            name
            for name, asked, left, more in zip(
                ("`eps`", "`delta`"), cost, self.left, slack, strict=True
            )
            if asked > left + more
        ]
        if not over:
            return
        left = max(self.left[0], 0), max(self.left[1], 0)
        excess = max(cost[0] - left[0], 0), max(cost[1] - left[1], 0)
        lines = "\n".join(
            f"{title:<10}  eps = {_eps_text(epsilon)}   delta = {_delta_text(delta)}"
            for title, (epsilon, delta) in (
                ("Requested", cost),
                ("Remaining", left),
                ("Difference", excess),
            )
        )
        raise BudgetExceededError(
            f"{' and '.join(over)} exceed{'s' if len(over) == 1 else ''} what is left in the "
            f"ledger ({place})\n{lines}\nNothing was computed or charged."
        )


SELECT = (
    "SELECT id, name, epsilon, delta, protects, spent_epsilon, spent_delta, charges FROM datasets"
)


def find_balance(connection: sqlite3.Connection, name: str) -> Balance | None:
    """Read the balance of a data set, None where there is none of that name."""
    row = connection.execute(f"{SELECT} WHERE name = ?", (name,)).fetchone()
    return None if row is None else Balance.read(row)


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals asked for; None where they were not stated."""

    epsilon: float | None
    delta: float | None
    protects: Relation | None

    @property
    def complete(self) -> bool:
        """Whether a data set can be made from them."""
        return self.epsilon is not None

    def check(self, row: Balance, place: str) -> None:
        """Refuse a ledger that has other totals."""
        for name, mine, stored in (
            ("eps", self.epsilon, row.epsilon),
            ("delta", self.delta, row.delta),
            ("protects", self.protects, row.protects),
        ):
            if mine is not None and mine != stored:
                raise DPStatsError(
                    f"`{name}` must be that of the existing ledger, {stored!r}; got {mine!r} "
                    f"({place})"
                )


def check_totals(eps: object, delta: object, protects: object, relation: Relation) -> Totals:
    """Check the totals a user stated; `relation` is the default where `eps` is stated."""
    if protects is not None and protects not in get_args(Relation):
        raise DPStatsError(f"`protects` must be 'row' or 'unit'; got {passed(protects)}")
    stated = cast("Relation | None", protects)
    if eps is None:
        slack = None if delta is None else check_budget(1.0, delta)[1]
        return Totals(None, slack, stated)
    epsilon, total = check_budget(eps, 0.0 if delta is None else delta)
    if math.isinf(epsilon):
        raise DPStatsError("`eps` of a ledger must be finite; got inf")
    return Totals(epsilon, total, stated or relation)


def in_units(value: float) -> int:
    """Units of the decimal number that reads back as `value`, rounded up."""
    return math.ceil(Fraction(repr(float(value))) * _UNIT)


def _eps_text(units: int) -> str:
    return f"{units / _UNIT:.10g}"


def _delta_text(units: int) -> str:
    if units == 0:
        return "0"
    digits, exponent = f"{units / _UNIT:.6e}".split("e")
    return f"{digits.rstrip('0').rstrip('.')}e{exponent}"


def to_float(units: int) -> float:
    """Return the nearest float."""
    return units / _UNIT
