"""The frame of the methods that use disjoint subsets: settings, options, split of the budget."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dpstats.ate.kernels.base import Estimand, Kernel, Options, Public, Settings, Shares
from dpstats.ate.kernels.weights import overlap_of
from dpstats.calls import check_count
from dpstats.errors import DPStatsError
from dpstats.propensity import Objective

__all__ = ["SubsetKernel", "SubsetSettings", "count_option"]

_LINE_RIDGE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetSettings(Settings):
    """Public constants of the methods that use subsets.

    Attributes
    ----------
    subsets : int
        K (folds, where models of one serve the rows of the others).
    ridge, line_ridge : float
        Penalties lambda of lambda ||w||^2 / 2 in each logit and each linear regression.
    ceiling : float
        R, the largest variance that a subset may report, in units of C^2.
    reach : float
        Predicted outcomes are clipped to plus or minus so many C.
    """

    subsets: int = 1
    ridge: float = 0.0
    line_ridge: float = 0.0
    ceiling: float = 4.0
    reach: float = 1.0

    own_propensity: ClassVar[str] = "logit in each subset, not released"

    @property
    def folds(self) -> int:
        """K, where the subsets are called folds."""
        return self.subsets


def count_option(name: str) -> Mapping[str, Callable[[Any], Any]]:
    """Return the method option that holds the number of subsets, with its check."""

    def check(value: Any) -> int:
        check_count(name, value, "a positive integer")
        return int(value)

    return {name: check}


class SubsetKernel(Kernel[SubsetSettings]):
    """A method that releases a noisy mean effect over subsets, and a noisy mean variance.

    Attributes
    ----------
    effect_name : str
        Name of the first release.
    count_name : str
        Name of the option that holds the number of subsets.
    fewest : int
        Smallest number of subsets.
    variance_share : float
        Share of the release behind standard errors.
    row_variance : float
        R times the rows of a subset, in units of C^2. With outcomes in [-C, C] the variance of a
        subset's effect is about 5 C^2 over its rows at most, and somewhat more for small models
        (measured; `docs/methods.md`).
    logit_ridge : float
        Penalty of the logits.
    reach : float
        Of predicted outcomes, in units of C.
    settings_class : type
    """

    estimands: ClassVar[tuple[Estimand, ...]] = ("ate", "att", "atc", "ato")
    uses_propensity = True
    published_split: ClassVar[Shares] = {"score": 1.0}
    options: ClassVar[tuple[str, ...]] = ("subsets", "overlap", "ridge")
    method_options: ClassVar[Mapping[str, Callable[[Any], Any]]] = count_option("subsets")
    effect_name: ClassVar[str] = "score"
    count_name: ClassVar[str] = "subsets"
    fewest: ClassVar[int] = 1
    variance_share: ClassVar[float] = 0.1
    row_variance: ClassVar[float] = 10.0
    # more biases the weights of small subsets more than it steadies them (measured)
    logit_ridge: ClassVar[float] = 0.03
    reach: ClassVar[float] = 1.0
    settings_class: ClassVar[type[SubsetSettings]] = SubsetSettings

    @abstractmethod
    def default_count(self, public: Public) -> int:
        """Return the default number of subsets (where there are as many rows)."""

    def settings(self, options: Options, public: Public) -> SubsetSettings:
        """Fill in defaults from public quantities."""
        _check_propensity(options)
        count = self._count(options, public)
        private = math.isfinite(public.epsilon)
        return self.settings_class.of(
            options,
            propensity=None,
            overlap=overlap_of(options, public),
            variances=options.released("variances"),
            subsets=count,
            ridge=self.logit_ridge if private else 0.0,
            line_ridge=_LINE_RIDGE if private else 0.0,
            ceiling=min(self.row_variance * count / public.n, 4.0),
            reach=self.reach if private else math.inf,
        )

    def shares(self, settings: SubsetSettings, public: Public) -> Shares:
        """Return the default split of the budget, by release (a measured rule)."""
        if not settings.variances:
            return {self.effect_name: 1.0}
        return {self.effect_name: 1.0 - self.variance_share, "variances": self.variance_share}

    def constants(self, settings: SubsetSettings) -> tuple[tuple[str, str], ...]:
        """Return the public constants that the summary shows."""
        shown = [(self.count_name.capitalize(), str(settings.subsets))]
        if "overlap" in self.options:
            shown.append(("Overlap (omega)", f"{settings.overlap:g}"))
        return tuple(shown)

    def served(self, settings: SubsetSettings) -> tuple[Estimand, ...]:
        """Return the estimands that one release serves."""
        return (settings.estimand,)

    def _count(self, options: Options, public: Public) -> int:
        count = options.method.get(self.count_name)
        if count is None:
            return max(min(self.default_count(public), public.n), self.fewest)
        if not self.fewest <= count <= public.n:
            raise DPStatsError(
                f"`{self.count_name}` must lie between {self.fewest} and the number of rows "
                f"({public.n}); got {count}"
            )
        return int(count)


def _check_propensity(options: Options) -> None:
    """Refuse a propensity model: subsets are fitted by a logit that is never released."""
    model = options.propensity
    if model is None or model == Objective(rows_per_person=getattr(model, "rows_per_person", 1)):
        return
    raise DPStatsError(
        "`propensity` must be a formula, a probability or a column for this method, which fits a "
        f"logit of its own in each subset; got {type(model).__name__}"
    )
