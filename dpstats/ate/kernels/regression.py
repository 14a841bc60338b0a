"""Regression adjustment (the G-formula) from noisy moments by arm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.ate.kernels.base import (
    Estimand,
    Kernel,
    Options,
    Parts,
    Public,
    Settings,
    Shares,
)
from dpstats.ate.kernels.least_squares import ArmRegressions
from dpstats.ate.kernels.outcome import OutcomeModel, release_outcome
from dpstats.report._numbers import number

if TYPE_CHECKING:
    from dpstats.alarms import Signal
    from dpstats.ate.kernels.base import Arrays
    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms
    from dpstats.privacy.noise import FloatArray
    from dpstats.propensity import FittedPropensity

__all__ = ["Regression", "RegressionReleased"]

# a second round on residuals pays from this n eps on; shares of the rounds (measured)
_TWO_ROUNDS_FROM = 2500.0
_ROUNDS = {"moments (first)": 0.35, "moments": 0.65}
_DRAWS = 1000


@dataclass(frozen=True, slots=True)
class RegressionReleased:
    """Released numbers of `Regression`.

    Attributes
    ----------
    n : int
    model : OutcomeModel or None
        None for an exact run.
    half_width : float
        C.
    exact_effects, exact_errors : tuple of float
        Effects and standard errors for the ATE, ATT and ATC, without noise only.
    """

    n: int
    model: OutcomeModel | None
    half_width: float
    exact_effects: tuple[float, ...]
    exact_errors: tuple[float, ...]
    records: tuple[Release, ...]

    @property
    def propensity(self) -> FittedPropensity | None:
        """None: no propensity is used."""
        return None

    @property
    def exact(self) -> bool:
        """Whether nothing was added (`eps=inf`)."""
        return self.model is None

    @property
    def variances_released(self) -> bool:
        """Whether variances were released: second moments of the outcome are among the moments."""
        return True

    @property
    def fit_in_error(self) -> bool:
        """Whether standard errors account for the estimation of the models."""
        return True

    @property
    def estimated(self) -> str:
        """What standard errors account for, without noise."""
        return "the outcome models"

    @property
    def assumptions(self) -> str:
        """What intervals take as given."""
        return " They assume that outcomes are linear in the covariates, within their bounds."

    def estimate(self, estimand: Estimand) -> float:
        """Return the effect."""
        if self.model is None:
            return self.exact_effects[_ORDER.index(estimand)]
        return float(self._effect(self.model.contrast(self.model.last(), estimand)))

    def standard_error(self, estimand: Estimand) -> float:
        """Return the ordinary standard error of an exact run (a sandwich)."""
        return self.exact_errors[_ORDER.index(estimand)] if self.exact else 0.0

    def noise_sd(self) -> float:
        """Return a rough noise sd of the effect with even arms, from public quantities only."""
        if self.model is None:
            return 0.0
        scales = self.model.scales
        two = len(self.records) > 1 or "rounds" in self.records[0].mechanism
        reach = min(self.model.smallest_range(), 1.0) if two else 1.0
        entry = reach * self.model.noise / (scales[0] * scales[-1])
        return self.half_width * math.sqrt(2.0) * entry / (self.n / 2.0)

    def errors(
        self, estimand: Estimand, draws: int, rng: np.random.Generator, parts: Parts
    ) -> FloatArray:
        """Simulate errors: noise drawn again around the released fit, a normal sampling error."""
        if self.model is None:
            return np.zeros(draws)
        found = np.zeros(draws)
        if parts != "privacy":
            sd = math.sqrt(self.model.sampling_variance(estimand))
            found = found + self.half_width * sd * rng.standard_normal(draws)
        if parts != "sampling":
            fits = self.model.noisy_fits(min(draws, _DRAWS), rng)
            middle = self.model.contrast(self.model.last(), estimand)
            shift = self._effect(self.model.contrast(fits, estimand)) - self._effect(middle)
            # each draw of the noise serves several draws of the sampling error
            found = found + np.resize(shift, draws)
        return found

    def diagnostics(self) -> list[tuple[str, str, str]]:
        """Return readings of the fit."""
        if self.model is None:
            return []
        fit, sd = self.model.last(), self.model.residual_sd()
        count = math.sqrt(2.0) * self.model.noise / self.model.scales[0] ** 2
        return [
            self.model.reading(),
            (
                "residual sd",
                number(self.half_width * sd, 3),
                "of the outcome model, one noise sd up",
            ),
            (
                "noisy share of treated",
                f"{float(fit.counts[1]) / self.n:.3f}",
                f"noise sd {count / math.sqrt(2.0) / self.n:.2g}",
            ),
        ]

    def signals(self) -> list[Signal]:
        """Return what the rules for warnings look at."""
        return [] if self.model is None else self.model.signals()

    def _effect(self, effect: FloatArray) -> FloatArray:
        return self.half_width * np.clip(effect, -2.0, 2.0)


_ORDER: tuple[Estimand, ...] = ("ate", "att", "atc")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionSettings(Settings):
    """Public constants of `regression`: `rounds`, how many the moments are released in."""

    rounds: int = 1


class Regression(Kernel[RegressionSettings]):
    r"""Linear outcome models by arm, and the difference of what they predict on average.

    Notes
    -----
    The one release "moments" holds counts, means and second moments of covariates and outcome by
    arm (`dpstats.ate.kernels.outcome`, with its sensitivity); from n eps = 2500 on in two rounds,
    the second for the residuals of the first. All else is post-processing, so ATE, ATT and ATC
    come from one release. The covariates enter linearly: where that is wrong, so is the estimate.

    Without noise: ordinary least squares by arm, covariates as they are, and the sandwich that
    counts the estimation of the coefficients.

    References
    ----------
    Lin, W. (2013). Agnostic notes on regression adjustments. doi:10.1214/12-AOAS583.
    Wang, Y.-X. (2018). arXiv:1803.02596.
    """

    name = "regression"
    title = "Regression adjustment"
    estimands: ClassVar[tuple[Estimand, ...]] = _ORDER
    uses_propensity = False
    models_outcome = True
    published_split: ClassVar[Shares] = {"moments": 1.0}
    options: ClassVar[tuple[str, ...]] = ()

    def settings(self, options: Options, public: Public) -> RegressionSettings:
        """Fill in defaults from public quantities."""
        rounds = public.n * public.epsilon >= _TWO_ROUNDS_FROM
        return RegressionSettings.of(
            options, propensity=None, models_outcome=True, rounds=2 if rounds else 1
        )

    def shares(self, settings: RegressionSettings, public: Public) -> Shares:
        """Return the default split of the budget: one release."""
        return {"moments": 1.0}

    def constants(self, settings: RegressionSettings) -> tuple[tuple[str, str], ...]:
        """Return the public constants that the summary shows."""
        return (("Outcome model", "linear, by arm"),)

    def served(self, settings: RegressionSettings) -> tuple[Estimand, ...]:
        """Return the estimands that one release serves."""
        return self.estimands

    def run(
        self, arrays: Arrays, settings: RegressionSettings, mechanisms: Mechanisms
    ) -> RegressionReleased:
        """Release the moments."""
        n, c = arrays.n, arrays.half_width
        if mechanisms.source is None:
            fits = ArmRegressions.of(arrays)
            found = [fits.contrast(estimand) for estimand in _ORDER]
            effects = tuple(c * effect for effect, _ in found)
            errors = tuple(c * error for _, error in found)
            return RegressionReleased(n, None, c, effects, errors, ())
        rounds = _ROUNDS if settings.rounds == 2 else {"moments": 1.0}
        model = release_outcome(arrays, mechanisms, rounds=rounds)
        return RegressionReleased(n, model, c, (), (), model.records)
