"""Normalised inverse probability weighting with a private propensity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.alarms import Signal
from dpstats.ate.balance import check_balance
from dpstats.ate.kernels.base import (
    Estimand,
    Kernel,
    Options,
    Parts,
    Public,
    Settings,
    Shares,
    noise_draws,
    propensity_scores,
    released_propensity,
    variance_bound,
)
from dpstats.ate.kernels.spread import Spread, release_spread
from dpstats.ate.kernels.weights import (
    clip_propensity,
    fit_influence,
    largest_weights,
    lighter_penalty,
    overlap_of,
    relative_weights,
    row_weights,
    scores_again,
    weight_slopes,
)
from dpstats.privacy.mechanisms import sum_lattice
from dpstats.report._numbers import number

if TYPE_CHECKING:
    from dpstats.ate.kernels.base import Arrays, RowWeights
    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms, NoiseKind
    from dpstats.privacy.noise import FloatArray
    from dpstats.propensity import FittedPropensity, Propensity

__all__ = ["Nipw", "NipwReleased", "NipwSettings"]

_VARIANCES = 0.04
# standard errors of allowance for each sd of outcomes and share of the population left out
_MISFIT = 0.6


@dataclass(frozen=True, slots=True)
class NipwReleased:
    """Released numbers of `Nipw`.

    Attributes
    ----------
    n : int
    estimand : str
    kind : {"laplace", "gaussian"}
    joint : bool
        One release of both halves, or numerators and denominators apart.
    raw : ndarray
        Shape (2, 2): what was released. First axis: upper and lower halves where `joint`, else
        sums of weights and weighted sums of outcomes; second axis: controls and treated. Weights
        of both arms are scaled to the larger of the two `bounds`.
    scales : (float, float)
        Noise scales of the two.
    bounds : (float, float)
        Largest weight of a control and of a treated row.
    spread : Spread or None
        How much rows influence the effect.
    half_width : float
        C.
    exact_variance : float or None
        Variance of the estimate, without noise only.
    """

    n: int
    estimand: Estimand
    kind: NoiseKind
    joint: bool
    raw: FloatArray
    scales: tuple[float, float]
    bounds: tuple[float, float]
    spread: Spread | None
    half_width: float
    exact_variance: float | None
    propensity: FittedPropensity | None
    records: tuple[Release, ...]

    @property
    def exact(self) -> bool:
        """Whether nothing was added (`eps=inf`)."""
        return self.exact_variance is not None

    @property
    def fit_in_error(self) -> bool:
        """Whether standard errors account for the estimation of the propensity."""
        return self.exact and self.propensity is not None

    @property
    def caveat(self) -> str:
        """What the intervals leave out."""
        return (
            " Clipped or misfitted propensities are allowed for by how far the sums of weights are "
            "off; bias beyond that is not in them."
        )

    @property
    def variances_released(self) -> bool:
        """Whether variances were released."""
        return self.spread is not None

    def totals(self, raw: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Turn released numbers, shape (..., 2, 2), into sums of weights and weighted outcomes."""
        weights, sums = raw[..., 0, :], raw[..., 1, :]
        if self.joint:
            weights, sums = weights + sums, self.half_width * (weights - sums)
        if self.exact:
            return weights, sums
        ratio = np.array(self.bounds) / max(self.bounds)
        return ratio * weights, ratio * sums

    @property
    def weight_sd(self) -> FloatArray:
        """Noise sd of the sum of weights of controls and treated, shape (2,)."""
        factor = math.sqrt(2.0) if self.kind == "laplace" else 1.0
        factor *= math.sqrt(2.0) if self.joint else 1.0
        return factor * self.scales[0] * np.array(self.bounds) / max(self.bounds)

    @property
    def sum_sd(self) -> FloatArray:
        """Noise sd of the weighted sums, shape (2,)."""
        if self.joint:
            return self.half_width * self.weight_sd
        factor = math.sqrt(2.0) if self.kind == "laplace" else 1.0
        return factor * self.scales[1] * np.array(self.bounds) / max(self.bounds)

    def means(self, raw: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return sums of weights that can be divided by, and weighted means: shapes (..., 2)."""
        weights, sums = self.totals(raw)
        if not self.exact:
            # smaller sums of weights are noise
            weights = np.maximum(weights, np.maximum(self.weight_sd, self.bounds))
        with np.errstate(divide="ignore", invalid="ignore"):
            means = sums / weights
        if not self.exact:
            means = np.clip(means, -self.half_width, self.half_width)
        return weights, means

    def estimate(self, estimand: Estimand) -> float:
        """Return the effect."""
        _, means = self.means(self.raw)
        return float(means[1] - means[0])

    def standard_error(self, estimand: Estimand) -> float:
        """Return the ordinary standard error of an exact run."""
        return math.sqrt(self.exact_variance or 0.0)

    def noise_sd(self) -> float:
        """Return a rough noise sd of the effect with even arms, from public quantities only."""
        size = {"ate": self.n, "ato": self.n / 4.0}.get(self.estimand, self.n / 2.0)
        return float(np.linalg.norm(self.sum_sd)) / size

    def variance(self) -> float:
        """Return the sampling variance of the effect: released, or from Bhatia-Davis' bound."""
        weights, means = self.means(self.raw)
        # a mean that noise took to the edge must not stand for a variance of zero
        inside = np.maximum(np.abs(means) - self.sum_sd / weights, 0.0)
        bounds = np.array(self.bounds)
        # sums of squared weights are at most the largest weight times the sum of weights
        ceiling = float((bounds / weights * variance_bound(inside, self.half_width)).sum())
        if self.spread is None:
            return ceiling
        return self.spread.mean_square(ceiling * self.n) / self.n

    def _balance(self) -> list[tuple[str, float, float]]:
        """Return ratios of sums of weights, 1 where the propensity is right, and their noise sd."""
        weights, _ = self.totals(self.raw)
        sds = np.zeros(2) if self.exact else self.weight_sd
        if self.estimand == "ate":
            arms = ("control", "treated")
            return [
                (f"sum of {arm} weights over n", float(weights[i]) / self.n, sds[i] / self.n)
                for i, arm in enumerate(arms)
            ]
        # the arm whose weights are known best is the yardstick
        base = 0 if self.estimand == "atc" else 1
        least = 0.0 if self.exact else max(self.bounds[base], float(sds[base]))
        size = max(float(weights[base]), least)
        ratio = float(weights[1 - base]) / size
        names = ("treated over control", "control over treated")
        sd = math.hypot(sds[1 - base], ratio * sds[base]) / size
        return [(f"sum of weights, {names[base]}", ratio, sd)]

    def misfit_sd(self) -> float:
        """Return the standard error allowed for clipped and misfitted propensities.

        Rows that the weights leave out, a share d of the population, may have other outcomes. Where
        d is beyond two noise sd, .6 d standard deviations of n times the influence are allowed for
        (measured).
        """
        off = sum(max((ratio - 1.0) ** 2 - 4.0 * sd**2, 0.0) for _, ratio, sd in self._balance())
        return _MISFIT * math.sqrt(off) * math.sqrt(self.n * self.variance())

    def errors(
        self, estimand: Estimand, draws: int, rng: np.random.Generator, parts: Parts
    ) -> FloatArray:
        """Simulate errors: a normal sampling error and the noise of each release."""
        weights, means = self.means(self.raw)
        errors = np.zeros(draws)
        if parts != "privacy":
            sd = math.hypot(math.sqrt(self.variance()), self.misfit_sd())
            errors += rng.normal(scale=sd, size=draws)
        if parts != "sampling":
            # around the sums that give the estimate: noise may have taken others out of all reach
            ratio = np.array(self.bounds) / max(self.bounds)
            raw = np.stack([weights, weights * means]) / ratio
            if self.joint:
                scaled = raw[1] / self.half_width
                raw = np.stack([raw[0] + scaled, raw[0] - scaled]) / 2.0
            noise = [noise_draws(rng, self.kind, scale, (draws, 2)) for scale in self.scales]
            _, noisy = self.means(raw + np.stack(noise, axis=1))
            errors += noisy[:, 1] - noisy[:, 0] - (means[1] - means[0])
        return errors

    def diagnostics(self) -> list[tuple[str, str, str]]:
        """Compare the sums of weights with what they are where the propensity is right."""
        rows = [(name, f"{ratio:.3f}", _reading(ratio, sd)) for name, ratio, sd in self._balance()]
        if not self.exact:
            reading = "from sums of weights that are off; part of the sampling error above"
            rows.append(
                ("sd allowed for clipping and misfit", number(self.misfit_sd(), 3), reading)
            )
        return rows

    def signals(self) -> list[Signal]:
        """Return what the rules for warnings look at."""
        return [
            Signal("sum of weights, off by", abs(ratio - 1.0), name)
            for name, ratio, sd in self._balance()
            if abs(ratio - 1.0) > 3.0 * sd
        ]


def _reading(value: float, sd: float) -> str:
    text = "1 where the propensity is right" + (f"; noise sd {sd:.2g}" if sd else "")
    if abs(value - 1.0) > max(3.0 * sd, 0.05):
        return f"{text}: farther than noise explains, so clipping or a misfit biases the estimate"
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class NipwSettings(Settings):
    """Public constants of `nipw`.

    Attributes
    ----------
    joint : bool
        Whether numerators and denominators are released together.
    """

    joint: bool = True


class Nipw(Kernel[NipwSettings]):
    r"""Normalised inverse probability weighting: a difference of two weighted means.

    Notes
    -----
    Rows have the weights of `dpstats.ate.kernels.weights`, at most :math:`B_w` in arm w:
    :math:`1/\omega` for the ATE, 1 and :math:`(1-\omega)/\omega` for ATT and ATC, 1 for the ATO
    (with a known probability, what they are). Let v be the weight over :math:`B_w`, in [0, 1], and
    y the outcome over C, in [-1, 1]. Given the propensity, which is released before, both are
    functions of the row.

    *Joint release* (the default, recorded as "numerators"). A row adds :math:`v(1+y)/2` to the
    upper and :math:`v(1-y)/2` to the lower half of its arm: non-negative, with sum v at most 1.
    Replacing a row takes away a vector of l1 norm at most 1 and adds one: sensitivity 2, whatever
    y; in l2 two vectors without negative entries and of length at most 1 differ by at most sqrt(2).
    Both are attained. Times the larger of the two :math:`B_w`, which is how it is recorded, that is
    2B and sqrt(2) B. The halves A, A' give the sum of weights A + A' and the weighted sum
    C(A - A'). The published form needs two releases and has twice the variance in each.

    *Separate releases*, if `split` names "denominators". Numerators, sums of vyC: 2C, in one arm by
    y to -y and in two by :math:`|y|+|y'|`; 2C in l2 too. Denominators, sums of v: 2 and sqrt(2)
    (two arms). Times B: 2C/omega, 2/omega and sqrt(2)/omega for the ATE.

    *Variances.* The influence of a row on the effect, :math:`nw(y-\mu_w)/N_w` with the released
    mean and sum of weights of its arm, counted by size (`dpstats.ate.kernels.spread`).

    Means are clipped to [-C, C]; a sum of weights is at least one noise sd.

    References
    ----------
    Ohnishi, Y. and Awan, J. (2024). Locally private causal inference. arXiv:2410.14789
    (generalised). Li, Morgan and Zaslavsky (2018), doi:10.1080/01621459.2016.1260466 (ATO).
    """

    name = "nipw"
    title = "Normalised inverse probability weighting"
    estimands: ClassVar[tuple[Estimand, ...]] = ("ate", "att", "atc", "ato")
    uses_propensity = True
    published_split: ClassVar[Shares] = {"propensity": 0.2, "numerators": 0.4, "denominators": 0.4}
    options: ClassVar[tuple[str, ...]] = ("overlap",)
    method_options: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"balance": check_balance}

    def settings(self, options: Options, public: Public) -> NipwSettings:
        """Fill in defaults from public quantities."""
        return NipwSettings.of(
            options,
            propensity=lighter_penalty(options.propensity),
            overlap=overlap_of(options, public, clips=options.estimand != "ato"),
            variances=options.released("variances"),
            joint=options.split is None or "denominators" not in options.split,
        )

    def shares(self, settings: NipwSettings, public: Public) -> Shares:
        """Return the default split of the budget, by release (a measured rule)."""
        propensity = min(max(0.2 + public.columns / 40.0, 0.3), 0.5)
        rest = 1.0 - propensity - _VARIANCES
        shares = {"propensity": propensity, "numerators": rest}
        if not settings.joint:
            shares |= {"numerators": rest / 2.0, "denominators": rest / 2.0}
        if settings.variances:
            shares["variances"] = _VARIANCES
        return shares

    def constants(self, settings: NipwSettings) -> tuple[tuple[str, str], ...]:
        """Return the public constants that the summary shows."""
        return (
            ("Overlap (omega)", f"{settings.overlap:g}" if settings.overlap else "not clipped"),
        )

    def served(self, settings: NipwSettings) -> tuple[Estimand, ...]:
        """Return the estimands that one release serves."""
        return (settings.estimand,)

    def run(self, arrays: Arrays, settings: NipwSettings, mechanisms: Mechanisms) -> NipwReleased:
        """Release sums of weights and weighted sums of outcomes by arm."""
        scores, fitted = propensity_scores(arrays, settings, mechanisms)
        e = clip_propensity(scores, settings)
        weights = row_weights(e, arrays.treated, settings.estimand)
        if mechanisms.source is None:
            return _exact(arrays, scores, weights, fitted, settings)
        bounds = largest_weights(settings)
        arm, joint, c = arrays.treated.astype(np.int64), settings.joint, arrays.half_width
        largest = np.array(bounds)[arm]
        raw, scales, records = _release_totals(
            arrays, arm, weights / largest, max(bounds), joint, mechanisms
        )
        found = NipwReleased(
            arrays.n,
            settings.estimand,
            mechanisms.kind,
            joint,
            raw,
            scales,
            bounds,
            None,
            c,
            None,
            *released_propensity(fitted, records),
        )
        if not settings.variances:
            return found
        totals, means = found.means(raw)
        pull = arrays.n * np.array(bounds) / totals
        residual = arrays.outcome - means[arm] / c
        bound = float((pull * (1.0 + np.abs(means) / c)).max())
        influence = pull[arm] * np.minimum(weights / largest, 1.0) * residual
        spread, more = release_spread(influence, bound, c, mechanisms)
        return replace(found, spread=spread, records=found.records + more)

    def row_weights(
        self, arrays: Arrays, settings: NipwSettings, released: NipwReleased
    ) -> RowWeights:
        """Return the weight of each row."""
        e = clip_propensity(scores_again(arrays, settings, released.propensity), settings)
        return relative_weights(arrays, e, settings, exact=released.exact)


def _release_totals(
    arrays: Arrays,
    arm: np.ndarray,
    shares: FloatArray,
    largest: float,
    joint: bool,
    mechanisms: Mechanisms,
) -> tuple[FloatArray, tuple[float, float], tuple[Release, ...]]:
    """Release sums by arm of weights in units of the largest."""
    lattice = sum_lattice(1.0, arrays.n)
    top = math.ldexp(1.0, -lattice)
    # in steps of the grid: parts of a row add up to its weight, to the last bit
    weights = np.clip(np.floor(shares * top), 0.0, top)
    root, unit = math.sqrt(2.0), 1.0 / largest
    if joint:
        upper = np.rint(weights * (1.0 + arrays.outcome) / 2.0)
        halves = np.stack([_by_arm(arm, upper), _by_arm(arm, weights - upper)])
        noisy = mechanisms.additive(
            "numerators",
            np.ldexp(halves, lattice),
            l1=2.0,
            l2=root,
            lattice=lattice,
            divisor=unit,
        )
        return noisy.value, (noisy.scale, noisy.scale), noisy.records
    sums = mechanisms.additive(
        "numerators",
        np.ldexp(_by_arm(arm, np.rint(weights * arrays.outcome)), lattice),
        l1=2.0,
        l2=2.0,
        lattice=lattice,
        divisor=unit / arrays.half_width,
    )
    totals = mechanisms.additive(
        "denominators",
        np.ldexp(_by_arm(arm, weights), lattice),
        l1=2.0,
        l2=root,
        lattice=lattice,
        divisor=unit,
    )
    raw = np.stack([totals.value, sums.value])
    return raw, (totals.scale, sums.scale), sums.records + totals.records


def _by_arm(arm: np.ndarray, values: FloatArray) -> FloatArray:
    return np.asarray(np.bincount(arm, weights=values, minlength=2), dtype=np.float64)


def _exact(
    arrays: Arrays,
    scores: FloatArray,
    weights: FloatArray,
    fitted: Propensity | None,
    settings: NipwSettings,
) -> NipwReleased:
    arm, c = arrays.treated.astype(np.int64), arrays.half_width
    with np.errstate(all="ignore"):
        totals = _by_arm(arm, weights)
        means = _by_arm(arm, weights * arrays.outcome) / totals
        sign = np.where(arrays.treated, 1.0, -1.0)
        pull = sign * (arrays.outcome - means[arm]) / totals[arm]
        # a clipped propensity does not follow the coefficients
        moving = clip_propensity(scores, settings) == scores
        slopes = np.where(
            moving, pull * weight_slopes(scores, arrays.treated, settings.estimand), 0.0
        )
        influence = pull * weights + fit_influence(arrays, fitted, slopes, settings)
    return NipwReleased(
        arrays.n,
        settings.estimand,
        "laplace",
        False,
        np.stack([totals, c * means * totals]),
        (0.0, 0.0),
        (math.inf, math.inf),
        None,
        c,
        c**2 * float(influence @ influence),
        *released_propensity(fitted, ()),
    )
