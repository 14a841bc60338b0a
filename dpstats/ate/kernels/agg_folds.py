"""Cross-fitting with small models: those of one fold score the rows of all the others."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.ate.kernels.base import Estimand, Public
from dpstats.ate.kernels.subset_kernel import SubsetKernel, SubsetSettings, count_option
from dpstats.ate.kernels.subsets import Contrasts, Subsets, fit_lines, fit_logits
from dpstats.ate.kernels.subsets_released import SubsetsReleased, released
from dpstats.privacy.mechanisms import Noisy, sum_lattice

if TYPE_CHECKING:
    from dpstats.ate.kernels.base import Arrays
    from dpstats.privacy.mechanisms import Mechanisms
    from dpstats.privacy.noise import FloatArray

__all__ = ["AggAipw", "AggIpw", "AggRegression"]

# rows of a fold for each coefficient of its largest model
_ROWS = 5
# the work grows with n times the number of folds
_MOST_FOLDS = 1000
_EXACT_FOLDS = 20
# numbers held at once: a block of rows times all models
_BLOCK = 2**20


@dataclass(frozen=True, slots=True)
class _Models:
    """Nuisance models of every fold.

    Attributes
    ----------
    propensity, control, treated : ndarray or None
        Shape (d, K): coefficients of the logit and of the two linear regressions.
    """

    propensity: FloatArray | None
    control: FloatArray | None
    treated: FloatArray | None


class _Folds(SubsetKernel):
    r"""Cross-fitting with K folds, after Lebeda et al.

    Notes
    -----
    Rows are dealt out to K folds (option `folds`). Models fitted in fold j, without noise, score
    the rows of all *other* folds; :math:`M_j` is the mean of these n - n_j scores, clipped to
    [-2C, 2C], the range of an effect. The estimate is :math:`\sum_j w_j M_j` with
    :math:`w_j = (1 - n_j/n)/(K - 1)`, which sum to one: without the clipping it is the mean over
    rows of the average score from the other K - 1 models, as published.

    Let B bound a score and V bound how far a fixed row's score differs between models. A replaced
    row of fold f

    - changes the models of fold f: :math:`M_f` moves by at most V, and by at most 4C since it is
      clipped: min(V, 4C) times w_f;
    - has new scores from the others: each :math:`M_j`, j not f, moves by at most 2B/(n - n_j)
      (clipping is a contraction), times :math:`w_j` that is 2B/(n (K-1)), K - 1 times: 2B/n.

    Sensitivity **2B/n + min(V, 4C)(1 - n_min/n)/(K - 1)**; with equal folds 2B/n + min(V, 4C)/K.
    The published form has V in place of min(V, 4C): 8.9C for weighting and 20C for the doubly
    robust score at omega = .1. V is exact for one row, but an effect cannot move by more than 4C:
    clipping the means of models takes half to four fifths of the noise away. (In files so small
    that 2B exceeds 4(n - n_j) C, a new row adds no more than that to the clipped sum of model j.)

    "variances" is the noisy mean of min((t_k - t)^2, R), t_k the mean score of fold k's own rows
    under its own models (clipped to [-2C, 2C]), t the effect released before: sensitivity
    **R/K**. Over K it stands for the sampling variance.
    """

    estimands: ClassVar[tuple[Estimand, ...]] = ("ate",)
    options: ClassVar[tuple[str, ...]] = ("folds", "overlap", "ridge")
    method_options: ClassVar[Mapping[str, Callable[[Any], Any]]] = count_option("folds")
    count_name = "folds"
    fewest = 2
    variance_share = 0.15
    row_variance = 15.0
    logit_ridge = 0.3
    rows: ClassVar[int] = _ROWS

    @abstractmethod
    def bounds(self, settings: SubsetSettings) -> tuple[float, float]:
        """Return B and V in units of C."""

    @abstractmethod
    def scores(
        self, sign: FloatArray, outcome: FloatArray, weight: FloatArray, g: tuple[FloatArray, ...]
    ) -> FloatArray:
        """Return scores from the arm (1, -1), the outcome, 1/P(own arm) and (g0, g1)."""

    def default_count(self, public: Public) -> int:
        """Return the default number of folds (a measured rule)."""
        if math.isinf(public.epsilon):
            return _EXACT_FOLDS
        columns = max(public.columns if self.uses_propensity else 0, public.covariates)
        return min(public.n // (self.rows * (1 + columns)), _MOST_FOLDS)

    def run(
        self, arrays: Arrays, settings: SubsetSettings, mechanisms: Mechanisms
    ) -> SubsetsReleased:
        """Release the noisy mean of the models' mean scores."""
        n, count = arrays.n, settings.subsets
        folds = Subsets.of(mechanisms.parts("folds", n, count), count)
        models = self._fit(arrays, settings, folds)
        bound, change = self.bounds(settings)
        lattice = sum_lattice(bound, n * count) if math.isfinite(bound) else None
        sums, own, averages = self._sums(arrays, settings, folds, models, lattice)
        others = n - folds.sizes
        top = 2.0 * others
        total = float(np.clip(np.nan_to_num(sums, nan=0.0), -top, top).sum())
        divisor = n * (count - 1) / arrays.half_width
        if mechanisms.source is None:
            effect = Noisy(np.asarray(total / divisor), 0.0, ())
        elif lattice is None:
            raise TypeError("a private run needs propensities and predictions within bounds")
        else:
            # a range below 4 belongs to scores before they are rounded
            moved = 4.0 if change >= 4.0 else min(change + math.ldexp(1.0, lattice), 4.0)
            moved = moved if change > 0.0 else 0.0
            moved = math.ldexp(math.ceil(math.ldexp(moved, -lattice)), lattice)
            largest = math.ldexp(math.floor(math.ldexp(bound, -lattice)), lattice)
            # what a new row may add to the clipped sum of each model
            added = np.minimum(2.0 * largest, 4.0 * others)
            size = float((moved * others - added).max() + added.sum())
            effect = mechanisms.additive(
                self.effect_name, total, l1=size, l2=size, lattice=lattice, divisor=divisor
            )
        means = np.clip(np.nan_to_num(own / folds.sizes, nan=0.0), -2.0, 2.0)
        width = max(part.shape[0] for part in _parts(models)) if _parts(models) else 0
        found = Contrasts(means, np.full(count, np.inf))
        # the spread of a fold's own effect misses that models meet rows they have not seen
        spread = None
        if self.uses_propensity:
            spread = float(np.nan_to_num(averages.var(), nan=np.inf)) / n
        return released(arrays, settings, mechanisms, effect, found, None, width, spread)

    def _fit(self, arrays: Arrays, settings: SubsetSettings, folds: Subsets) -> _Models:
        treated = folds.gather(arrays.treated)
        propensity = control = active = None
        if self.uses_propensity and settings.needs_design:
            design = folds.gather(arrays.design)
            propensity = fit_logits(design, treated, folds.live, settings.ridge).T
        if self.models_outcome and arrays.covariates is not None:
            design = folds.gather(arrays.covariates)
            outcome = folds.gather(arrays.outcome)
            untreated = (1.0 - treated) * folds.live
            control = fit_lines(design, outcome, untreated, settings.line_ridge).T
            active = fit_lines(design, outcome, treated * folds.live, settings.line_ridge).T
        return _Models(propensity, control, active)

    def _sums(
        self,
        arrays: Arrays,
        settings: SubsetSettings,
        folds: Subsets,
        models: _Models,
        lattice: int | None,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return sums of scores by model, over the rows of other folds and over its own.

        Third, the average score of each row from the models of other folds.
        """
        count, bound = settings.subsets, self.bounds(settings)[0]
        sums, own, averages = np.zeros(count), np.zeros(count), np.zeros(arrays.n)
        step = max(_BLOCK // count, 1)
        for start in range(0, arrays.n, step):
            rows = slice(start, start + step)
            score = self._block(arrays, settings, models, rows)
            if lattice is not None:
                top = np.floor(np.ldexp(bound, -lattice))
                score *= math.ldexp(1.0, -lattice)
                np.clip(np.rint(score, out=score), -top, top, out=score)
            score = np.broadcast_to(score, (len(score), count))
            part = folds.part[rows]
            inside = score[np.arange(len(part)), part]
            mine = np.bincount(part, weights=inside, minlength=count)
            own += mine
            sums += score.sum(axis=0) - mine
            averages[rows] = (score.sum(axis=1) - inside) / (count - 1)
        unit = 0 if lattice is None else lattice
        return np.ldexp(sums, unit), np.ldexp(own, unit), np.ldexp(averages, unit)

    def _block(
        self, arrays: Arrays, settings: SubsetSettings, models: _Models, rows: slice
    ) -> FloatArray:
        """Return scores of some rows (a new array), shape (rows, K), or (rows, 1) if all agree."""
        sign = np.where(arrays.treated[rows], 1.0, -1.0)[:, None]
        outcome = arrays.outcome[rows][:, None]
        weight = np.ones((1, 1))
        if self.uses_propensity:
            weight = _own_weights(arrays, settings, models, rows, sign)
        g: tuple[FloatArray, ...] = ()
        if self.models_outcome and arrays.covariates is not None:
            design = arrays.covariates[rows]
            g = tuple(design @ c for c in (models.control, models.treated) if c is not None)
            for predicted in g:
                np.clip(predicted, -settings.reach, settings.reach, out=predicted)
        return self.scores(sign, outcome, weight, g)


def _parts(models: _Models) -> list[FloatArray]:
    found = (models.propensity, models.control, models.treated)
    return [part for part in found if part is not None]


def _own_weights(
    arrays: Arrays, settings: SubsetSettings, models: _Models, rows: slice, sign: FloatArray
) -> FloatArray:
    """Return one over the clipped probability of the arm that a row is in."""
    omega = settings.overlap
    if models.propensity is None:
        known = settings.probability if arrays.known is None else arrays.known[rows][:, None]
        e = np.clip(np.asarray(known, dtype=np.float64), omega, 1.0 - omega)
        return np.asarray(1.0 / np.where(sign > 0.0, e, 1.0 - e))
    weight = arrays.design[rows] @ models.propensity
    weight *= -sign
    np.clip(weight, -700.0, 700.0, out=weight)
    np.exp(weight, out=weight)
    weight += 1.0
    return np.clip(weight, 1.0 / (1.0 - omega), 1.0 / omega if omega else math.inf, out=weight)


def _inverse(omega: float) -> float:
    return 1.0 / omega if omega > 0.0 else math.inf


class AggIpw(_Folds):
    r"""Inverse probability weighting, cross-fitted with a small logit in each fold.

    Notes
    -----
    Score Wy/e - (1-W)y/(1-e), e clipped to :math:`[\omega, 1-\omega]`: :math:`B = C/\omega` and
    :math:`V = C(1/\omega - 1/(1-\omega))` (0 with known propensities, where all models agree).
    Release "score" with sensitivity 2B/n + min(V, 4C)(1 - n_min/n)/(K - 1) and "variances" with
    R/K; estimate and proof are those of the base class, in `dpstats.ate.kernels.agg_folds`. The
    estimator is unnormalised.

    References
    ----------
    Lebeda et al. (2025), arXiv:2505.19589.
    """

    name = "agg_ipw"
    title = "Weighting, cross-fitted in folds"
    # without an outcome model the noise of small logits is not made up for
    rows = 2 * _ROWS

    def bounds(self, settings: SubsetSettings) -> tuple[float, float]:
        """Return B and V in units of C."""
        most = _inverse(settings.overlap)
        return most, most - 1.0 / (1.0 - settings.overlap) if settings.needs_design else 0.0

    def scores(
        self, sign: FloatArray, outcome: FloatArray, weight: FloatArray, g: tuple[FloatArray, ...]
    ) -> FloatArray:
        """Return scores from the arm (1, -1), the outcome, 1/P(own arm) and (g0, g1)."""
        return np.asarray(weight * (sign * outcome))


class AggAipw(_Folds):
    r"""Doubly robust scores, cross-fitted with a small logit and two regressions in each fold.

    Notes
    -----
    Score :math:`g_1 - g_0 + W(y-g_1)/e - (1-W)(y-g_0)/(1-e)`, e clipped to
    :math:`[\omega, 1-\omega]` and predictions g to [-C, C]. With W = 1 it is
    :math:`g_1 + (y - g_1)/e - g_0`. Since :math:`y - g_1 \ge -C - g_1`, the part without
    :math:`g_0` lies in :math:`[-(2/\omega - 1)C, (2/\omega - 1)C]`, so that
    :math:`B = 2C/\omega`. For fixed y it is largest at :math:`g_1 = -C`,
    :math:`-C + (y + C)/\omega`, and smallest at :math:`g_1 = C`, :math:`C - (C - y)/\omega`:
    a width of :math:`2C/\omega - 2C`, whatever y, and 2C more for :math:`g_0`:
    :math:`V = 2C/\omega`. The clipped mean of a model moves by 4C at most, so V never matters.
    Release "score" with sensitivity :math:`4C/(n\omega) + 4C(1 - n_{min}/n)/(K-1)` and
    "variances" with R/K; estimate and proof are those of the base class, in
    `dpstats.ate.kernels.agg_folds`.

    References
    ----------
    Lebeda et al. (2025), arXiv:2505.19589.
    """

    name = "agg_aipw"
    title = "Doubly robust, cross-fitted in folds"
    models_outcome = True

    def bounds(self, settings: SubsetSettings) -> tuple[float, float]:
        """Return B and V in units of C."""
        most = (1.0 + settings.reach) * _inverse(settings.overlap)
        return most, most

    def scores(
        self, sign: FloatArray, outcome: FloatArray, weight: FloatArray, g: tuple[FloatArray, ...]
    ) -> FloatArray:
        """Return scores from the arm (1, -1), the outcome, 1/P(own arm) and (g0, g1)."""
        control, treated = g
        score = np.where(sign > 0.0, treated, control)
        np.subtract(outcome, score, out=score)
        score *= weight
        score *= sign
        score += treated
        score -= control
        return score


@dataclass(frozen=True, slots=True, kw_only=True)
class _RegressionSettings(SubsetSettings):
    """Settings of a method without a propensity."""

    own_propensity: ClassVar[str] = ""


class AggRegression(_Folds):
    r"""Difference of two outcome regressions, cross-fitted in folds (G-formula).

    Notes
    -----
    Score :math:`g_1 - g_0`, ridge regressions by arm with predictions clipped to [-C, C]: B = 2C
    and V = 4C. Release "score" with sensitivity 4C/n + 4C(1 - n_min/n)/(K - 1) and "variances"
    with R/K; estimate and proof are those of the base class, in `dpstats.ate.kernels.agg_folds`.
    An arm that is empty in a fold predicts the middle of the outcome's bounds.

    References
    ----------
    Lebeda et al. (2025), arXiv:2505.19589.
    """

    name = "agg_regression"
    title = "Regression, cross-fitted in folds"
    uses_propensity = False
    models_outcome = True
    # lines that reach into the other arm's covariates leave the bounds; cutting them off there
    # biases the contrast, and room for them costs little
    reach = 2.0
    options: ClassVar[tuple[str, ...]] = ("folds", "line_ridge")
    settings_class = _RegressionSettings

    def bounds(self, settings: SubsetSettings) -> tuple[float, float]:
        """Return B and V in units of C."""
        return 2.0 * settings.reach, 4.0 * settings.reach

    def scores(
        self, sign: FloatArray, outcome: FloatArray, weight: FloatArray, g: tuple[FloatArray, ...]
    ) -> FloatArray:
        """Return scores from the arm (1, -1), the outcome, 1/P(own arm) and (g0, g1)."""
        return g[1] - g[0]
