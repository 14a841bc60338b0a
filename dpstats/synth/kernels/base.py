"""What every synthetic control kernel takes and returns.

A kernel sees arrays and public settings. It draws noise only through `Mechanisms`, which hands
back the value with its record, and returns released numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms
    from dpstats.privacy.noise import FloatArray

__all__ = ["Errors", "Kernel", "Panel", "Parts", "Public", "Released", "Settings", "Shares"]

Parts: TypeAlias = Literal["both", "sampling", "privacy"]
Shares: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Panel:
    """The protected donors and the public targets, checked and clipped.

    Attributes
    ----------
    donors : ndarray
        Shape (n, T), in a stated order, clipped where there are bounds.
    targets : ndarray
        Shape (g, T): the treated series, never clipped.
    pre_periods : int
        T0, the number of periods before the intervention; T1 = T - T0 after it.
    midpoint, half_width : float
        Donors and targets are (value - midpoint) / half_width; 0 and 1 where there are no bounds.
    missing : ndarray of bool or None
        Shape (n, T), for `robust` at `eps=inf` only.
    """

    donors: FloatArray
    targets: FloatArray
    pre_periods: int
    midpoint: float
    half_width: float
    missing: NDArray[np.bool_] | None

    @property
    def n(self) -> int:
        """Number of donors (public)."""
        return int(self.donors.shape[0])


@dataclass(frozen=True, slots=True)
class Public:
    """Public quantities from which defaults may be chosen."""

    n: int
    periods: int
    pre_periods: int
    epsilon: float
    delta: float
    bounded: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """Public constants of one call, filled in by the kernel.

    Attributes
    ----------
    penalty : float or None
        lambda, on scaled data where there are bounds.
    release : {"projection", "matrix"}
        How `output` and `objective` release the prediction.
    needs_bounds : bool
        Whether donors must have bounds (found privately where the user gives none).
    options : dict
        Further constants of the kernel.
    """

    penalty: float | None
    release: Literal["projection", "matrix"]
    needs_bounds: bool
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Errors:
    """Simulated errors of a counterfactual, in the (scaled) units of the panel.

    Attributes
    ----------
    periods : ndarray
        Shape (draws, T1): predicted minus realised untreated outcome, period by period.
    att : ndarray
        Shape (draws,): the same for the mean over the post-periods.
    """

    periods: FloatArray
    att: FloatArray


class Released(Protocol):
    """Released numbers of a kernel and what follows from them.

    All paths, targets and errors are in the scaled units of the `Panel` that was passed to `run`.
    """

    @property
    def records(self) -> tuple[Release, ...]:
        """Records of the noise, empty for an exact (not private) run."""

    @property
    def exact(self) -> bool:
        """Whether nothing was added (`eps=inf`)."""

    @property
    def any_target(self) -> bool:
        """Whether `predict` serves targets that were not part of the call."""

    def predict(self, targets: FloatArray) -> FloatArray:
        """Return counterfactual paths, shape (g, T), for targets of shape (g, T).

        Only the pre-periods of `targets` are read. Periods a method does not fill are nan.
        """

    def errors(
        self, target: FloatArray, draws: int, rng: np.random.Generator, parts: Parts
    ) -> Errors:
        """Simulate prediction errors for one target, shape (T,)."""

    def weights(self) -> FloatArray | None:
        """Return released donor weights, shape (g, n), where there are any."""

    def placebo(self, targets: FloatArray, pre_periods: int) -> FloatArray | None:
        """Return counterfactual paths with an earlier intervention, where that is free."""

    def noise_sd(self) -> float:
        """Return a rough noise sd of the ATT from public quantities only, in panel units."""


class Kernel(ABC):
    """One estimator."""

    name: ClassVar[str]
    title: ClassVar[str]
    private: ClassVar[bool]
    kinds: ClassVar[tuple[str, ...]] = ("laplace", "gaussian")
    # releases whose noise is Laplace also where the call's is Gaussian: they need no delta
    pure: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def settings(
        self, penalty: float | None, options: Mapping[str, Any], public: Public
    ) -> Settings:
        """Fill in defaults from public quantities; refuse options that are not the kernel's."""

    @abstractmethod
    def shares(self, settings: Settings, public: Public) -> Shares:
        """Return the default split of the budget, by release (normalised by the caller)."""

    @abstractmethod
    def constants(self, settings: Settings, public: Public) -> tuple[tuple[str, str], ...]:
        """Return the public constants that the summary shows."""

    @abstractmethod
    def run(self, panel: Panel, settings: Settings, mechanisms: Mechanisms) -> Released:
        """Release."""
