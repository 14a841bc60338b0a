"""Augmented inverse probability weighting: an outcome model, and weighted residuals to mend it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dpstats.ate.kernels.base import (
    Estimand,
    Kernel,
    Options,
    Parts,
    Public,
    Shares,
    propensity_scores,
    released_propensity,
)
from dpstats.ate.kernels.ipw import Ipw, IpwReleased, IpwSettings
from dpstats.ate.kernels.least_squares import ArmRegressions
from dpstats.ate.kernels.outcome import OutcomeModel, release_outcome, residuals
from dpstats.ate.kernels.weights import (
    arm_weights,
    clip_propensity,
    fit_influence,
    row_weights,
    weight_slopes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from dpstats.alarms import Signal
    from dpstats.ate.kernels.base import Arrays
    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms
    from dpstats.privacy.noise import FloatArray
    from dpstats.propensity import FittedPropensity

__all__ = ["Aipw", "AipwReleased"]

# share of the outcome model; the rest is split as for `ipw` (measured)
_OUTCOME = 0.5
_MODEL_DRAWS = 500
_PSEUDO_ROWS = 4000


@dataclass(frozen=True, slots=True)
class AipwReleased:
    """Released numbers of `Aipw`.

    Attributes
    ----------
    n : int
    half_width : float
        C.
    model : OutcomeModel or None
        None for an exact run.
    correction : IpwReleased or None
        The weighted mean of residuals, with its variance; None for an exact run.
    exact_effect, exact_error : float
        Effect and standard error, without noise only.
    overlap : float
        omega.
    known : bool
        Whether propensities are known, so that weights balance the arms.
    """

    n: int
    half_width: float
    model: OutcomeModel | None
    correction: IpwReleased | None
    exact_effect: float
    exact_error: float
    propensity: FittedPropensity | None
    records: tuple[Release, ...]
    overlap: float = 0.0
    known: bool = False

    @property
    def exact(self) -> bool:
        """Whether nothing was added (`eps=inf`)."""
        return self.correction is None

    @property
    def variances_released(self) -> bool:
        """Whether variances were released."""
        return self.correction is not None and self.correction.variances_released

    @property
    def fit_in_error(self) -> bool:
        """Whether standard errors account for the estimation of the models."""
        return True

    @property
    def estimated(self) -> str:
        """What standard errors account for, without noise."""
        return "the propensity and of the outcome models"

    @property
    def assumptions(self) -> str:
        """What intervals take as given."""
        return (
            " They count the noise in the outcome models where weights do not balance the arms; "
            "bias that is left where both models are wrong is not in them."
        )

    def estimate(self, estimand: Estimand) -> float:
        """Return the effect."""
        if self.model is None or self.correction is None:
            return self.exact_effect
        fitted = self.half_width * float(self.model.contrast(self.model.last(), estimand))
        effect = fitted + self.correction.estimate(estimand)
        return min(max(effect, -2.0 * self.half_width), 2.0 * self.half_width)

    def standard_error(self, estimand: Estimand) -> float:
        """Return the ordinary standard error of an exact run (a sandwich)."""
        return self.exact_error

    def noise_sd(self) -> float:
        """Return a rough noise sd of the effect, from public quantities: for few residuals."""
        if self.model is None or self.correction is None:
            return 0.0
        widest = self.correction.noise_sd() * self.half_width / self.correction.half_width
        return widest * min(self.model.smallest_range(), 1.0)

    def errors(
        self, estimand: Estimand, draws: int, rng: np.random.Generator, parts: Parts
    ) -> FloatArray:
        """Simulate errors: of the weighted residuals, the mean of fitted effects, and both models.

        Where weights do not balance the arms, what noise in the outcome models gets wrong is not
        mended (`_models`).
        """
        if self.model is None or self.correction is None:
            return np.zeros(draws)
        found = self.correction.errors(estimand, draws, rng, parts)
        fit, (_, slopes) = self.model.last(), self.model.model()
        differ = slopes[1] - slopes[0]
        arms = {"ate": [0, 1], "att": [1], "atc": [0]}[estimand]
        size = float(fit.counts[arms].sum())
        if parts != "privacy":
            spread = float(differ @ np.maximum(fit.within[arms].sum(axis=0), 0.0) @ differ)
            sd = math.sqrt(max(spread, 0.0)) / size
            found = found + self.half_width * sd * rng.standard_normal(draws)
        if parts != "sampling":
            entry = self.model.noise * math.sqrt(len(arms)) / size
            sd = float(np.linalg.norm(differ / self.model.scales[1:-1])) * entry
            sd /= float(self.model.scales[0])
            found = found + self.half_width * sd * rng.standard_normal(draws)
            found = found + self.half_width * np.resize(self._models(estimand, rng), draws)
        return found

    def _models(self, estimand: Estimand, rng: np.random.Generator) -> FloatArray:
        """Simulate what noise in the outcome models leaves, in units of C.

        A model that is off by d moves the estimate by d at the mean of the population, less d at
        the weighted rows of its arm. How far these are apart is found by passing normal covariates,
        with the released means and variances of the arms, through the released propensity.
        """
        if self.model is None or self.known or not self.model.columns:
            return np.zeros(1)
        fit, fits = self.model.last(), self.model.noisy_fits(_MODEL_DRAWS, rng)
        share = fit.counts / self.n
        arms = {"ate": share, "att": np.array([0.0, 1.0]), "atc": np.array([1.0, 0.0])}[estimand]
        size = 1.0 if estimand == "ate" else float(share @ arms)
        rows = self.model.pseudo_rows(_PSEUDO_ROWS, rng)
        total = np.zeros(len(fits.counts))
        for arm in (0, 1):
            # where nothing is known of the weights: rows as they are
            weights, e = np.ones(_PSEUDO_ROWS), self.model.scores(rows[arm], self.propensity)
            if e is not None:
                e = np.clip(e, self.overlap, 1.0 - self.overlap)
                weights = arm_weights(e, estimand)[arm] * (share[arm] / size)
            away = arms @ fit.means - (weights[:, None] * rows[arm]).mean(axis=0)
            level = fits.levels[:, arm] - fit.levels[arm]
            off = level * (1.0 - float(weights.mean()))
            off = off + (fits.slopes[:, arm] - fit.slopes[arm]) @ away
            total += off if arm else -off
        return total

    def diagnostics(self) -> list[tuple[str, str, str]]:
        """Return readings of the outcome model and of the weights."""
        if self.model is None or self.correction is None:
            return []
        share = self.correction.half_width / self.half_width
        rows = [
            self.model.reading(),
            (
                "range of residuals",
                f"{share:.2g}",
                "of the outcome's: noise in the score shrinks as much",
            ),
        ]
        return [*rows, *getattr(self.correction, "diagnostics", list)()]

    def signals(self) -> list[Signal]:
        """Return what the rules for warnings look at."""
        if self.model is None or self.correction is None:
            return []
        return [*self.model.signals(), *getattr(self.correction, "signals", list)()]


class Aipw(Kernel[IpwSettings]):
    r"""Augmented inverse probability weighting, doubly robust.

    Notes
    -----
    First the release "outcome": linear models by arm (`dpstats.ate.kernels.outcome`). Their mean
    difference over the rows follows from the released moments. What is left to release is the mean
    of the weighted residuals :math:`W r/e - (1-W) r/(1-e)`, r the residual of the row's own arm,
    clipped to a range :math:`\rho` (in units of the outcome) that follows from the released
    moments. Given the models and the propensity this is `ipw` of an outcome within
    :math:`\pm\rho`: replacing a row moves the sum by at most :math:`2\rho/\omega` (for ATT and
    ATC see there). The published form clips predictions to [-C, C] and releases the whole
    score, at :math:`4C/\omega`; residuals are several times smaller.

    The estimate is right if one of the two models is, up to what clipping of propensities and
    residuals takes away. Without noise: least squares by arm, the maximum likelihood logit,
    nothing clipped unless `overlap` is given, and the sandwich of all equations stacked.

    References
    ----------
    Robins, J. M., Rotnitzky, A. and Zhao, L. P. (1994). doi:10.1080/01621459.1994.10476818.
    """

    name = "aipw"
    title = "Augmented inverse probability weighting"
    estimands: ClassVar[tuple[Estimand, ...]] = ("ate", "att", "atc")
    uses_propensity = True
    models_outcome = True
    published_split: ClassVar[Shares] = {"propensity": 0.2, "outcome": 0.4, "score": 0.4}
    options: ClassVar[tuple[str, ...]] = ("overlap",)
    method_options: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}

    def settings(self, options: Options, public: Public) -> IpwSettings:
        """Fill in defaults from public quantities."""
        return replace(Ipw().settings(options, public), models_outcome=True)

    def shares(self, settings: IpwSettings, public: Public) -> Shares:
        """Return the default split of the budget, by release."""
        shares = dict(Ipw().shares(settings, public))
        total = math.fsum(shares.values())
        left = {name: (1.0 - _OUTCOME) * share / total for name, share in shares.items()}
        return {"outcome": _OUTCOME, **left}

    def constants(self, settings: IpwSettings) -> tuple[tuple[str, str], ...]:
        """Return the public constants that the summary shows."""
        return (*Ipw().constants(settings), ("Outcome model", "linear, by arm"))

    def served(self, settings: IpwSettings) -> tuple[Estimand, ...]:
        """Return the estimands that one release serves."""
        return (settings.estimand,)

    def run(self, arrays: Arrays, settings: IpwSettings, mechanisms: Mechanisms) -> AipwReleased:
        """Release the outcome models, then the mean of the weighted residuals."""
        n, c = arrays.n, arrays.half_width
        if mechanisms.source is None:
            return _exact(arrays, settings, mechanisms)
        model = release_outcome(arrays, mechanisms, name="outcome", rounds={"outcome": 1.0})
        reach = model.residual_range()
        rest = residuals(arrays, model.norm, *model.model(), reach)
        rows = replace(arrays, outcome=rest, half_width=c * reach)
        correction = Ipw().run(rows, settings, mechanisms)
        return AipwReleased(
            n,
            c,
            model,
            correction,
            math.nan,
            math.nan,
            correction.propensity,
            (*model.records, *correction.records),
            settings.overlap,
            settings.probability is not None or settings.by_row,
        )


def _exact(arrays: Arrays, settings: IpwSettings, mechanisms: Mechanisms) -> AipwReleased:
    estimand, c = settings.estimand, arrays.half_width
    scores, fitted = propensity_scores(arrays, settings, mechanisms)
    e = clip_propensity(scores, settings)
    fits = ArmRegressions.of(arrays)
    members, treated = fits.members(estimand), arrays.treated.astype(np.float64)
    size, sign = float(members.sum()), 2.0 * treated - 1.0
    weights = row_weights(e, arrays.treated, estimand)
    gaps = fits.fitted[:, 1] - fits.fitted[:, 0]
    score = members * gaps + sign * weights * fits.residuals
    effect = float(score.sum()) / size
    influence = (score - effect * members) / size
    influence += fits.coefficients_influence(
        (members - treated * weights) / size, (members - (1.0 - treated) * weights) / size
    )
    # a clipped propensity does not follow the coefficients
    moving = e == scores
    slopes = sign * fits.residuals * weight_slopes(e, arrays.treated, estimand)
    influence += fit_influence(arrays, fitted, np.where(moving, slopes, 0.0) / size, settings)
    error = c * math.sqrt(float(influence @ influence))
    return AipwReleased(
        arrays.n, c, None, None, c * effect, error, *released_propensity(fitted, ())
    )
