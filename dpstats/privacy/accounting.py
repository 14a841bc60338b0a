"""Budgets: checking them, splitting them, recording what was spent."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from dpstats.errors import DPStatsError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pandas as pd

__all__ = ["Cost", "Ledger", "PrivacyRecord", "Release", "allocate", "charge", "check_budget"]

Relation = Literal["row", "unit"]

_NUMBER = (int, float, np.integer, np.floating)


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


class Ledger(Protocol):
    """Anything that admits or refuses a charge before noise is drawn."""

    def charge(self, *, epsilon: float, delta: float, relation: Relation, call: str) -> None:
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
        import pandas as pd

        return pd.DataFrame(
            [asdict(record) for record in self.records],
            columns=[field.name for field in fields(Release)],
        )

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
        If `eps` is not a positive number or inf, or `delta` not a number in [0, 1).
    """
    if isinstance(eps, bool | np.bool_) or not isinstance(eps, _NUMBER):
        raise DPStatsError(f"`eps` must be a positive number; got {type(eps).__name__} {eps!r}")
    epsilon = float(eps)
    if math.isnan(epsilon) or epsilon <= 0.0:
        raise DPStatsError(f"`eps` must be a positive number; got {epsilon:g}")
    if isinstance(delta, bool | np.bool_) or not isinstance(delta, _NUMBER):
        raise DPStatsError(f"`delta` must be a number in [0, 1); got {delta!r}")
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
        raise DPStatsError(
            f"`split` must give a share to each release of this call ({', '.join(names)}); "
            f"got {', '.join(map(str, split)) or 'none'}"
        )
    if not all(isinstance(s, _NUMBER) and not isinstance(s, bool) for s in split.values()):
        raise DPStatsError(f"`split` must hold positive shares; got {dict(split)}")
    shares = {name: float(split[name]) for name in names}
    if not all(share > 0.0 and math.isfinite(share) for share in shares.values()):
        raise DPStatsError(f"`split` must hold positive shares; got {shares}")
    total = math.fsum(shares.values())
    if abs(total - 1.0) > 1e-9:
        raise DPStatsError(f"`split` must sum to 1; got {total:.12g}")
    return shares


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
) -> None:
    """Charge a call before its first noise is drawn; the one place where that happens."""
    if ledger is not None:
        ledger.charge(epsilon=epsilon, delta=delta, relation=relation, call=call)
