"""What every kernel takes and returns.

A kernel sees arrays and public settings. It draws noise only through `Mechanisms`, which hands
back the value with its record, and returns released numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
)

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
    from typing_extensions import Self

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
    "RowWeights",
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
        Shape (n, 1 + k), of the propensity: the constant 1/2, then columns scaled to [-1, 1] by
        public bounds.
    covariates : ndarray or None
        Shape (n, 1 + p), of the outcome model, made in the same way; None where there is none.
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
    covariates: FloatArray | None = None

    @property
    def n(self) -> int:
        """Number of rows (public)."""
        return int(self.outcome.size)

    def rows(self, index: NDArray[np.int64]) -> Arrays:
        """Return some of the rows."""
        known = None if self.known is None else self.known[index]
        return replace(
            self,
            outcome=self.outcome[index],
            treated=self.treated[index],
            design=self.design[index],
            known=known,
            covariates=None if self.covariates is None else self.covariates[index],
        )


@dataclass(frozen=True, slots=True)
class RowWeights:
    """Weights by which an estimator makes the arms comparable, for the balance of covariates.

    Attributes
    ----------
    shares : ndarray
        Shape (n,), in [0, 1]: in units of the largest weight of the row's arm. Functions of the
        row and of released numbers.
    typical : float
        Their size where arms are even, from public or released numbers.
    """

    shares: FloatArray
    typical: float


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
    covariates : int
        Columns of the outcome model's design, the constant not counted.
    """

    n: int
    columns: int
    epsilon: float
    delta: float
    covariates: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Public constants of one call: what the user fixed, the rest filled in by the kernel.

    A kernel with constants of its own has a subclass.

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
    variances : bool
        Whether variances are released.
    models_outcome : bool
        Whether the outcome is modelled on the formula's right side.
    """

    estimand: Estimand
    propensity: PropensityModel | None
    probability: float | None
    by_row: bool
    overlap: float = 0.0
    variances: bool = False
    models_outcome: bool = False

    # in words, where a kernel fits propensities of its own that are never released
    own_propensity: ClassVar[str] = ""

    @classmethod
    def of(cls, options: Options, **chosen: Any) -> Self:
        """Return settings with the user's options and the constants chosen for the rest."""
        given = {
            "estimand": options.estimand,
            "propensity": options.propensity,
            "probability": options.probability,
            "by_row": options.by_row,
        }
        return cls(**{**given, **chosen})

    @property
    def fits_propensity(self) -> bool:
        """Whether a propensity model is fitted and released."""
        return self.propensity is not None and self.probability is None and not self.by_row

    @property
    def needs_design(self) -> bool:
        """Whether the design of a propensity is needed."""
        own = bool(self.own_propensity) and self.probability is None and not self.by_row
        return own or self.fits_propensity


@dataclass(frozen=True, slots=True)
class Options:
    """What the user fixed or left open (None).

    Attributes
    ----------
    split : tuple of str or None
        Releases of the user's split.
    method : mapping of str to object
        The method's own options that the user gave, checked.
    """

    estimand: Estimand
    propensity: PropensityModel | None
    probability: float | None
    by_row: bool
    overlap: float | None
    split: tuple[str, ...] | None
    method: Mapping[str, Any]

    def released(self, name: str) -> bool:
        """Whether a release that a split may leave out is made."""
        return self.split is None or name in self.split


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


S = TypeVar("S", bound=Settings)


class Kernel(ABC, Generic[S]):
    """One estimator.

    Attributes
    ----------
    name, title : str
    estimands : tuple of str
    uses_propensity : bool
        Whether a propensity is used: fitted and released, or known by design.
    models_outcome : bool
        Whether the outcome is always modelled on the formula's right side.
    published_split : mapping of str to float
    options : tuple of str
        Settings that the record of public constants names.
    method_options : mapping of str to callable
        Options of its own, each with the function that checks a value and returns it.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    estimands: ClassVar[tuple[Estimand, ...]]
    uses_propensity: ClassVar[bool]
    models_outcome: ClassVar[bool] = False
    published_split: ClassVar[Shares]
    options: ClassVar[tuple[str, ...]]
    method_options: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}

    def may_model_outcome(self, method: Mapping[str, Any], fits_propensity: bool) -> bool:
        """Whether, with these options, settings may ask for the formula's right side."""
        return self.models_outcome

    @abstractmethod
    def settings(self, options: Options, public: Public) -> S:
        """Fill in defaults from public quantities."""

    @abstractmethod
    def shares(self, settings: S, public: Public) -> Shares:
        """Return the default split of the budget, by release (normalised by the caller)."""

    @abstractmethod
    def constants(self, settings: S) -> tuple[tuple[str, str], ...]:
        """Return the public constants that the summary shows."""

    @abstractmethod
    def served(self, settings: S) -> tuple[Estimand, ...]:
        """Return the estimands that one release serves."""

    def partitions(self, settings: S) -> Mapping[str, str]:
        """Return the disjoint set of rows that a release is computed from, where it is not all."""
        return {}

    @abstractmethod
    def run(self, arrays: Arrays, settings: S, mechanisms: Mechanisms) -> Released:
        """Release."""

    def row_weights(self, arrays: Arrays, settings: S, released: Any) -> RowWeights:
        """Return the weight of each row, where the method takes the option `balance`."""
        raise NotImplementedError(f"method {self.name!r} weighs no rows")


def propensity_scores(
    arrays: Arrays, settings: Settings, mechanisms: Mechanisms, training: Arrays | None = None
) -> tuple[FloatArray, Propensity | None]:
    """Return the propensity of each row and the fitted model, if one was fitted.

    The model's records come with it; its budget is that of the release "propensity". It is fitted
    on `training`, by default on the same rows.
    """
    training = arrays if training is None else training
    if settings.probability is not None:
        return np.full(arrays.n, settings.probability), None
    if arrays.known is not None:
        return arrays.known, None
    if settings.propensity is None:
        raise TypeError("this kernel's settings name no propensity")
    cost = None if mechanisms.source is None else mechanisms.costs["propensity"]
    own = isinstance(settings.propensity, Objective | Output)
    failure = ""
    try:
        fitted = settings.propensity.fit(
            training.design,
            training.treated,
            eps=math.inf if cost is None else cost.epsilon,
            delta=cost.delta if cost is not None and mechanisms.kind == "gaussian" else 0.0,
            source=mechanisms.source,
        )
        scores = np.asarray(fitted.predict(arrays.design), dtype=np.float64)
    except Exception as error:
        if own:
            raise
        failure = type(error).__name__
    if failure:
        # the text of a foreign error may hold a value of the data, so it is no context of this one
        raise DPStatsError(
            f"`propensity` failed: the model of class {type(settings.propensity).__name__} raised "
            f"{failure}"
        )
    if not own:
        # an object of the user's may predict anything; a row must not show by raising
        scores = np.clip(np.nan_to_num(scores, nan=0.5), 0.0, 1.0)
    return scores, fitted


def released_propensity(
    fitted: Propensity | None, records: tuple[Release, ...], partition: str | None = None
) -> tuple[FittedPropensity | None, tuple[Release, ...]]:
    """Return the coefficients to keep and all records, the propensity's first.

    Only a built-in model is kept: nothing is known of what an object of the user's holds. A
    `partition` names the rows that the model was fitted on, where they are not all.
    """
    if fitted is None:
        return None, records
    own = fitted.records
    if partition is not None:
        own = tuple(replace(record, partition=partition) for record in own)
    kept = replace(fitted, records=own) if isinstance(fitted, FittedPropensity) else None
    return kept, (*own, *records)


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
