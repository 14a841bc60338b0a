"""Budgets: checking them, splitting them, recording what was spent."""

from __future__ import annotations

import math
import os
import threading
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np

from dpstats.errors import DPStatsError
from dpstats.passed import passed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pandas as pd

__all__ = [
    "Cost",
    "Ledger",
    "PrivacyRecord",
    "Receipt",
    "Release",
    "allocate",
    "charge",
    "check_budget",
    "composed",
    "find_ledger",
]

Relation = Literal["row", "unit"]

_NUMBER = (int, float, np.integer, np.floating)
_SMALLEST, _LARGEST = 1e-9, 1e15
# partitions that are no part of a file but all of it
WHOLE = ("all rows", "all donors")


@dataclass(frozen=True, slots=True)
class Cost:
    """Budget of one release."""

    epsilon: float
    delta: float = 0.0


@dataclass(frozen=True, slots=True)
class Release:
    """Record of one noisy release.

    Attributes
    ----------
    release : str
        Name of what was released.
    partition : str
        The rows it was computed from; rows of one partition add up, different ones are disjoint.
    mechanism : str
        Name of the mechanism.
    norm : str
        Norm in which `sensitivity` is measured.
    sensitivity : float
        Largest change of the exact statistic between neighbouring data sets.
    scale : float
        Scale of Laplace or K-norm noise, standard deviation of Gaussian noise.
    epsilon, delta : float
        What it costs.
    """

    release: str
    partition: str
    mechanism: str
    norm: str
    sensitivity: float
    scale: float
    epsilon: float
    delta: float


class Receipt(Protocol):
    """A charge that was made."""

    def keep(self, records: Sequence[Release]) -> None:
        """Add the records of what was released for it."""


class Ledger(Protocol):
    """Anything that admits or refuses a charge before noise is drawn."""

    def charge(
        self, *, epsilon: float, delta: float, relation: Relation, call: str
    ) -> Receipt | None:
        """Record the charge durably, or raise `BudgetExceededError`."""


@dataclass(frozen=True, slots=True)
class PrivacyRecord:
    """What a result cost, whom it protects and what it took as public.

    Attributes
    ----------
    epsilon, delta : float
        The total of the call, by basic composition.
    relation : str
        "replace one row" or "replace one unit".
    protects : str
        Who is protected and who is not, in words.
    public : dict
        Everything that was taken as public: n, formula, bounds, levels, constants.
    private : bool
        False for `eps=inf` and for seeded noise.
    seeded : bool
        Whether the noise came from a seed.
    """

    epsilon: float
    delta: float
    relation: str
    protects: str
    public: dict[str, Any]
    private: bool
    seeded: bool
    records: tuple[Release, ...]

    @property
    def releases(self) -> pd.DataFrame:
        """One row a noisy release, in the order in which they were made."""
        from dpstats.report.readable import ReadableFrame

        return ReadableFrame(
            [asdict(record) for record in self.records],
            columns=[field.name for field in fields(Release)],
        )

    def __str__(self) -> str:
        if not self.records:
            return self.statement()
        return f"{self.statement()}\n\n{self.releases.to_string(index=False)}"

    def statement(self) -> str:
        """Say in a few sentences what was guaranteed."""
        if math.isinf(self.epsilon):
            return "NOT PRIVATE: computed without noise (eps = inf). Do not publish as private."
        budget = f"eps = {self.epsilon:g}"
        budget += f", delta = {self.delta:.3g}" if self.delta else ""
        text = (
            f"Differentially private with {budget}. Protects {self.protects} Whoever sees this "
            f"output can change the odds of any guess about what is protected by a factor of at "
            f"most exp({self.epsilon:g}) = {math.exp(min(self.epsilon, 700.0)):.3g}"
        )
        text += f", but for probability {self.delta:.3g}." if self.delta else "."
        if self.seeded:
            text = (
                "NOT PRIVATE: the noise was drawn from a seed, so it can be subtracted. "
                "For the same call without `rng` the statement would be: " + text
            )
        return text


def check_budget(eps: object, delta: object) -> tuple[float, float]:
    """Return `eps` and `delta` as floats.

    Raises
    ------
    DPStatsError
        If `eps` is not a positive number (from 1e-9 to 1e15) or inf, or `delta` not a number in
        [0, 1).
    """
    if isinstance(eps, bool | np.bool_) or not isinstance(eps, _NUMBER):
        raise DPStatsError(f"`eps` must be a positive number; got {passed(eps)}")
    epsilon = float(eps)
    if math.isnan(epsilon) or epsilon <= 0.0:
        raise DPStatsError(f"`eps` must be a positive number; got {epsilon:g}")
    if epsilon < _SMALLEST:
        raise DPStatsError(
            f"`eps` must be at least {_SMALLEST:g}: noise for less does not fit in floating "
            f"point; got {epsilon:g}"
        )
    if _LARGEST < epsilon < math.inf:
        raise DPStatsError(
            f"`eps` must be at most {_LARGEST:g}, or inf for no noise at all: so little noise does "
            f"not fit in floating point; got {epsilon:g}"
        )
    if isinstance(delta, bool | np.bool_) or not isinstance(delta, _NUMBER):
        raise DPStatsError(f"`delta` must be a number in [0, 1); got {passed(delta)}")
    share = float(delta)
    if math.isnan(share) or not 0.0 <= share < 1.0:
        raise DPStatsError(f"`delta` must be a number in [0, 1); got {share:g}")
    if math.isinf(epsilon) and share > 0.0:
        raise DPStatsError(f"`delta` has no meaning at `eps` = inf; got {share:g}")
    return epsilon, share


def check_split(split: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Return the user's shares in the order of `names`.

    Raises
    ------
    DPStatsError
        If the keys are not exactly `names`, a share is not positive, or they do not sum to 1.
    """
    if set(split) != set(names):
        given = ", ".join(map(str, split)) if isinstance(split, dict) else passed(split)
        raise DPStatsError(
            f"`split` must give a share to each release of this call ({', '.join(names)}); "
            f"got {given or 'none'}"
        )
    if not all(isinstance(s, _NUMBER) and not isinstance(s, bool) for s in split.values()):
        raise DPStatsError(f"`split` must hold positive shares; got {passed(dict(split))}")
    shares = {name: float(split[name]) for name in names}
    if not all(share > 0.0 and math.isfinite(share) for share in shares.values()):
        raise DPStatsError(f"`split` must hold positive shares; got {shares}")
    total = math.fsum(shares.values())
    if abs(total - 1.0) > 1e-9:
        raise DPStatsError(f"`split` must sum to 1; got {total:.12g}")
    return shares


def composed(records: Sequence[Release]) -> tuple[float, float]:
    """Return the cost of all releases: those of one partition add up, disjoint ones do not.

    Returns
    -------
    epsilon, delta : float
        Of the releases from all rows, plus the largest of the other partitions.
    """
    parts: dict[str, list[Release]] = {}
    for record in records:
        parts.setdefault(record.partition, []).append(record)
    whole = [record for name in WHOLE for record in parts.pop(name, [])]
    return (
        max(math.fsum(r.epsilon for r in [*whole, *part]) for part in [[], *parts.values()]),
        max(math.fsum(r.delta for r in [*whole, *part]) for part in [[], *parts.values()]),
    )


def allocate(
    epsilon: float, delta: float, shares: Mapping[str, float], gaussian: Collection[str]
) -> dict[str, Cost]:
    """Split a budget over releases.

    Parameters
    ----------
    epsilon, delta : float
        The total.
    shares : mapping of str to float
        Share of each release, normalised here.
    gaussian : collection of str
        Releases with Gaussian noise: `delta` is split over them in proportion to their shares.

    Returns
    -------
    dict of str to Cost
        They sum to the total; the largest takes up rounding.
    """
    total = math.fsum(shares.values())
    weight = math.fsum(share for name, share in shares.items() if name in gaussian)
    epsilons = {name: epsilon * share / total for name, share in shares.items()}
    deltas = {
        name: delta * share / weight
        for name, share in shares.items()
        if name in gaussian and delta > 0.0
    }
    _settle(epsilons, epsilon)
    _settle(deltas, delta)
    return {name: Cost(part, deltas.get(name, 0.0)) for name, part in epsilons.items()}


def _settle(parts: dict[str, float], total: float) -> None:
    if parts and math.isfinite(total):
        largest = max(parts, key=lambda name: parts[name])
        others = (-part for name, part in parts.items() if name != largest)
        parts[largest] = math.fsum((total, *others))


def charge(
    ledger: Ledger | None, *, epsilon: float, delta: float, relation: Relation, call: str
) -> Receipt | None:
    """Charge a call before its first noise is drawn; the one place where that happens.

    Parameters
    ----------
    ledger : Ledger or None
        None means that of the innermost ``with`` block, if there is one.
    epsilon, delta : float
        Cost of the call.
    relation : {"row", "unit"}
        What the call protects.
    call : str
        Public text that says what is computed.

    Returns
    -------
    Receipt or None
        For the records of the releases, where the ledger keeps them.
    """
    chosen = _active() if ledger is None else ledger
    if chosen is None:
        return None
    return chosen.charge(epsilon=epsilon, delta=delta, relation=relation, call=call)


def find_ledger(ledger: object, *, epsilon: float, seeded: bool) -> Ledger | None:
    """Return the ledger that a call is going to be charged to, to be called while validating.

    Parameters
    ----------
    ledger : object
        What the user passed; None means that of the innermost ``with`` block.
    epsilon : float
        Budget of the call.
    seeded : bool
        Whether its noise comes from a seed.

    Raises
    ------
    DPStatsError
        If it is no ledger, if the call is not private (`eps=inf` or seeded), or if a ``with``
        block is open in another thread only, so that the call would go uncharged.
    """
    given = ledger is not None
    chosen = ledger if given else _active()
    private = math.isfinite(epsilon) and not seeded
    if chosen is None:
        if private and _blocks > 0:
            raise DPStatsError(
                "`ledger` must be passed: a `with ledger:` block is open, but in another thread"
            )
        return None
    if isinstance(chosen, type) or not hasattr(chosen, "charge"):
        raise DPStatsError(f"`ledger` must be a ledger; got {type(chosen).__name__}")
    way_out = "pass no `ledger`" if given else "leave the `with ledger:` block"
    if math.isinf(epsilon):
        raise DPStatsError(
            f"`ledger` has no meaning at `eps` = inf, which is not private: {way_out}"
        )
    if seeded:
        raise DPStatsError(f"`ledger` refuses seeded runs: pass rng=None, or {way_out}")
    return cast("Ledger", chosen)


_stack: ContextVar[tuple[Ledger, ...]] = ContextVar("dpstats_ledgers", default=())
# open blocks of the whole process: a new thread starts with an empty context
_blocks = 0
_blocks_lock = threading.Lock()


def open_block(ledger: Ledger) -> None:
    """Make `ledger` the default of the calls that follow in this thread."""
    global _blocks
    _stack.set((*_stack.get(), ledger))
    with _blocks_lock:
        _blocks += 1


def close_block(ledger: Ledger) -> None:
    """Undo the latest `open_block` of `ledger`."""
    global _blocks
    with _blocks_lock:
        _blocks -= 1
    stack = _stack.get()
    # entered and left in different contexts (an asynchronous generator): nothing is here to undo
    last = max((i for i, entry in enumerate(stack) if entry is ledger), default=len(stack))
    _stack.set(stack[:last] + stack[last + 1 :])


def _active() -> Ledger | None:
    stack = _stack.get()
    return stack[-1] if stack else None


def _after_fork() -> None:
    """Count the blocks of the thread that forked; the others do not exist in the child."""
    global _blocks, _blocks_lock
    _blocks, _blocks_lock = len(_stack.get()), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
