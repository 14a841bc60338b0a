"""What every kernel takes and returns.

A kernel sees arrays and public settings. It draws noise only through `Mechanisms`, which hands
back the value with its record, and returns released numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias

import numpy as np

from dpstats.errors import DPStatsError
from dpstats.propensity import (
    FittedPropensity,
    Objective,
    Output,
    Propensity,
    PropensityModel,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms, NoiseKind
    from dpstats.privacy.noise import FloatArray

__all__ = [
    "Arrays",
    "Estimand",
    "Kernel",
    "Options",
    "Parts",
    "Public",
    "Released",
    "Settings",
    "noise_draws",
    "propensity_scores",
    "released_propensity",
    "variance_bound",
]

Estimand: TypeAlias = Literal["ate", "att", "atc", "ato"]
Parts: TypeAlias = Literal["both", "sampling", "privacy"]
Shares: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Arrays:
    """The protected rows, checked and clipped.

    Attributes
    ----------
    outcome : ndarray
        Shape (n,), centred at the midpoint of its bounds and divided by C: in [-1, 1], multiples
        of 2**`lattice`, so that sums are exact in any order.
    treated : ndarray of bool
        Shape (n,).
    design : ndarray
        Shape (n, 1 + k): the constant 1/2, then columns scaled to [-1, 1] by public bounds.
    known : ndarray or None
        Shape (n,): propensities known by design and row.
    half_width : float
        C, half the width of the outcome's bounds.
    lattice : int
    """

    outcome: FloatArray
    treated: NDArray[np.bool_]
    design: FloatArray
    known: FloatArray | None
    half_width: float
    lattice: int

    @property
    def n(self) -> int:
        """Number of rows (public)."""
        return int(self.outcome.size)


@dataclass(frozen=True, slots=True)
class Public:
    """Public quantities from which defaults may be chosen.

    Attributes
    ----------
    n : int
        Rows.
    columns : int
        Columns of the propensity's design, the constant not counted.
    epsilon, delta : float
        The budget of the call, the search for bounds included.
    """

    n: int
    columns: int
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Settings:
    """Public constants of one call; a kernel fills in those the user left open.

    Attributes
    ----------
    estimand : str
    propensity : PropensityModel or None
        None where no propensity is fitted.
    probability : float or None
        Propensity known to be the same for all rows.
    by_row : bool
        Whether propensities are known by row.
    overlap : float
        omega.
    blocks : int
        m.
    min_count : float or None
        T; None for three noise standard deviations of a count.
    variances : bool
        Whether variances are released.
    joint : bool
        Whether counts and sums are released together.
    smooth : bool
        Whether blocks borrow strength from each other.
    """

    estimand: Estimand
    propensity: PropensityModel | None
    probability: float | None
    by_row: bool
    overlap: float
    blocks: int
    min_count: float | None
    variances: bool
    joint: bool
    smooth: bool

    @property
    def fits_propensity(self) -> bool:
        """Whether a propensity model is fitted and released."""
        return self.propensity is not None and self.probability is None and not self.by_row


@dataclass(frozen=True, slots=True)
class Options:
    """What the user fixed or left open (None); `split` holds the releases of the user's split."""

    estimand: Estimand
    propensity: PropensityModel | None
    probability: float | None
    by_row: bool
    overlap: float | None
    blocks: int | Literal["published"] | None
    min_count: float | None
    smooth: bool | None
    split: tuple[str, ...] | None

    def resolved(
        self,
        *,
        propensity: PropensityModel | None,
        overlap: float = 0.0,
        blocks: int = 1,
        min_count: float | None = None,
        variances: bool = False,
        joint: bool = False,
        smooth: bool = False,
    ) -> Settings:
        """Return settings with these constants."""
        return Settings(
            self.estimand,
            propensity,
            self.probability,
            self.by_row,
            overlap,
            blocks,
            min_count,
            variances,
            joint,
            smooth,
        )


class Released(Protocol):
    """Released numbers of a kernel and what follows from them."""

    @property
    def records(self) -> tuple[Release, ...]:
        """Records of the noise, empty for an exact (not private) run."""

    @property
    def propensity(self) -> FittedPropensity | None:
        """Released coefficients, where a built-in model was fitted."""

    @property
    def exact(self) -> bool:
        """Whether nothing was added (`eps=inf`)."""

    @property
    def variances_released(self) -> bool:
        """Whether variances were released for standard errors."""

    def estimate(self, estimand: Estimand) -> float:
        """Return the effect."""

    def errors(
        self, estimand: Estimand, draws: int, rng: np.random.Generator, parts: Parts
    ) -> FloatArray:
        """Simulate `draws` errors of the estimate from the released numbers."""

    def standard_error(self, estimand: Estimand) -> float:
        """Return the ordinary standard error of an exact run."""

    def noise_sd(self) -> float:
        """Return a rough noise sd of the effect, from public quantities only."""


class Kernel(ABC):
    """One estimator."""

    name: ClassVar[str]
    title: ClassVar[str]
    estimands: ClassVar[tuple[Estimand, ...]]
    uses_propensity: ClassVar[bool]
    published_split: ClassVar[Shares]
    options: ClassVar[tuple[str, ...]]

    @abstractmethod
    def settings(self, options: Options, public: Public) -> Settings:
        """Fill in defaults from public quantities."""

    @abstractmethod
    def shares(self, settings: Settings, public: Public) -> Shares:
        """Return the default split of the budget, by release (normalised by the caller)."""

    @abstractmethod
    def constants(self, settings: Settings) -> tuple[tuple[str, str], ...]:
        """Return the public constants that the summary shows."""

    @abstractmethod
    def served(self, settings: Settings) -> tuple[Estimand, ...]:
        """Return the estimands that one release serves."""

    @abstractmethod
    def run(self, arrays: Arrays, settings: Settings, mechanisms: Mechanisms) -> Released:
        """Release."""


def propensity_scores(
    arrays: Arrays, settings: Settings, mechanisms: Mechanisms
) -> tuple[FloatArray, Propensity | None]:
    """Return the propensity of each row and the fitted model, if one was fitted.

    The model's records come with it; its budget is that of the release "propensity".
    """
    if settings.probability is not None:
        return np.full(arrays.n, settings.probability), None
    if arrays.known is not None:
        return arrays.known, None
    if settings.propensity is None:
        raise TypeError("this kernel's settings name no propensity")
    cost = None if mechanisms.source is None else mechanisms.costs["propensity"]
    own = isinstance(settings.propensity, Objective | Output)
    try:
        fitted = settings.propensity.fit(
            arrays.design,
            arrays.treated,
            eps=math.inf if cost is None else cost.epsilon,
            delta=cost.delta if cost is not None and mechanisms.kind == "gaussian" else 0.0,
            source=mechanisms.source,
        )
        scores = np.asarray(fitted.predict(arrays.design), dtype=np.float64)
    except Exception as error:
        if own:
            raise
        # the text of a foreign error may hold a value of the data
        raise DPStatsError(
            f"`propensity` failed: the model of class {type(settings.propensity).__name__} raised "
            f"{type(error).__name__}"
        ) from None
    if not own:
        # an object of the user's may predict anything; a row must not show by raising
        scores = np.clip(np.nan_to_num(scores, nan=0.5), 0.0, 1.0)
    return scores, fitted


def released_propensity(
    fitted: Propensity | None, records: tuple[Release, ...]
) -> tuple[FittedPropensity | None, tuple[Release, ...]]:
    """Return the coefficients to keep and all records, the propensity's first.

    Only a built-in model is kept: nothing is known of what an object of the user's holds.
    """
    if fitted is None:
        return None, records
    kept = fitted if isinstance(fitted, FittedPropensity) else None
    return kept, (*fitted.records, *records)


def noise_draws(
    rng: np.random.Generator, kind: NoiseKind, scale: float, shape: tuple[int, ...]
) -> FloatArray:
    """Draw noise again, for a parametric bootstrap of a release."""
    if scale == 0.0:
        return np.zeros(shape)
    return (
        rng.laplace(scale=scale, size=shape)
        if kind == "laplace"
        else rng.normal(scale=scale, size=shape)
    )


def variance_bound(mean: FloatArray, half_width: float) -> FloatArray:
    """Bhatia-Davis bound on the variance of a variable in [-C, C] with this mean."""
    inside = np.clip(mean, -half_width, half_width)
    return (half_width - inside) * (half_width + inside)
