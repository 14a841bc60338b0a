"""Inverse probability weighting with a private propensity (SeqIPW)."""

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
    Settings,
    Shares,
    noise_draws,
    propensity_scores,
    released_propensity,
    variance_bound,
)
from dpstats.privacy.mechanisms import sum_lattice
from dpstats.propensity import Objective

if TYPE_CHECKING:
    from dpstats.ate.kernels.base import Arrays
    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms, NoiseKind, Noisy
    from dpstats.privacy.noise import FloatArray
    from dpstats.propensity import FittedPropensity, Propensity

__all__ = ["Ipw", "IpwReleased"]

_DEFAULT_OVERLAP = 0.1
# weights need propensities that are shrunk less than blocks do (a measured choice)
_RELATIVE_PENALTY = 0.5


@dataclass(frozen=True, slots=True)
class IpwReleased:
    """Released numbers of `Ipw`.

    Attributes
    ----------
    score : float
        Noisy mean of the scores.
    treated_share : float or None
        Noisy share of treated rows (att, atc).
    mean_square : float or None
        Noisy mean of the squared scores (att, atc: less the released effect for rows of the arm).
    score_scale, share_scale, square_scale : float
        Noise scales of the three.
    bound : float
        Largest absolute value of what is squared.
    half_width : float
        C.
    exact_variance : float or None
        Variance of the estimate, without noise only.
    """

    n: int
    estimand: Estimand
    kind: NoiseKind
    score: float
    treated_share: float | None
    mean_square: float | None
    score_scale: float
    share_scale: float
    square_scale: float
    bound: float
    half_width: float
    exact_variance: float | None
    propensity: FittedPropensity | None
    records: tuple[Release, ...]

    @property
    def exact(self) -> bool:
        """Whether nothing was added (`eps=inf`)."""
        return self.exact_variance is not None

    @property
    def variances_released(self) -> bool:
        """Whether variances were released."""
        return self.mean_square is not None

    def estimate(self, estimand: Estimand) -> float:
        """Return the effect."""
        if self.exact:
            return float(self.score / self._share(self.treated_share))
        return float(self._effect(np.asarray(self.score), self.treated_share))

    def standard_error(self, estimand: Estimand) -> float:
        """Return the ordinary standard error of an exact run (propensities taken as fixed)."""
        return math.sqrt(self.exact_variance or 0.0)

    def noise_sd(self) -> float:
        """Return a rough noise sd of the effect with even arms, from public quantities only."""
        factor = math.sqrt(2.0) if self.kind == "laplace" else 1.0
        return factor * self.score_scale / (1.0 if self.estimand == "ate" else 0.5)

    def variance(self) -> float:
        """Return the variance of a score (less the effect): released, or Bhatia-Davis' bound."""
        factor = math.sqrt(2.0) if self.kind == "laplace" else 1.0
        mean = self.score
        if self.treated_share is not None:
            mean -= self.estimate(self.estimand) * float(self._share(self.treated_share))
        # a mean that noise took to the edge must not stand for a variance of zero
        inside = max(abs(mean) - factor * self.score_scale, 0.0)
        ceiling = float(variance_bound(np.asarray(inside), self.bound))
        if self.mean_square is None:
            return ceiling
        noise = factor * self.square_scale
        # one noise sd is added so that the interval does not rest on a lucky draw
        return min(max(self.mean_square - mean**2, 0.0) + noise, ceiling)

    def errors(
        self, estimand: Estimand, draws: int, rng: np.random.Generator, parts: Parts
    ) -> FloatArray:
        """Simulate errors: a normal sampling error and the noise of each release."""
        share = self.treated_share
        if share is not None:
            share = min(max(share, 1.0 / self.n), 1.0 - 1.0 / self.n)
        middle = self._effect(np.asarray(self.score), share)
        # from the clipped effect: noise may have taken the score out of all reach
        score = np.full(draws, float(middle * self._share(share)))
        if parts != "privacy":
            # linear in the score and the share together: `variance` is that of both
            score = score + rng.normal(scale=math.sqrt(self.variance() / self.n), size=draws)
        if parts != "sampling":
            score = score + noise_draws(rng, self.kind, self.score_scale, (draws,))
            if share is not None:
                noise = noise_draws(rng, self.kind, self.share_scale, (draws,))
                return self._effect(score, share + noise) - middle
        return self._effect(score, share) - middle

    def _share(self, treated: FloatArray | float | None) -> FloatArray | float:
        if treated is None:
            return 1.0
        return treated if self.estimand == "att" else 1.0 - treated

    def _effect(self, score: FloatArray, treated: FloatArray | float | None) -> FloatArray:
        # an arm has at least one row and an effect lies within the range of the outcome
        share = np.maximum(self._share(treated), 1.0 / self.n)
        return np.clip(score / share, -2.0 * self.half_width, 2.0 * self.half_width)


class Ipw(Kernel[Settings]):
    r"""Unnormalised inverse probability weighting.

    Notes
    -----
    With e clipped to :math:`[\omega, 1-\omega]` and :math:`|y| \le C` (centred at the midpoint of
    its bounds) the score of a row is :math:`Wy/e - (1-W)y/(1-e)` for the ATE,
    :math:`Wy - (1-W)ye/(1-e)` for the ATT and :math:`Wy(1-e)/e - (1-W)y` for the ATC. The first is
    at most :math:`C/\omega`, the others :math:`C(1-\omega)/\omega` in absolute value (with one
    known probability p, :math:`C\max(1, p/(1-p))` and :math:`C\max(1, (1-p)/p)`), and both
    signs are reached, so replacing a row (for a given propensity model, which is released before)
    moves the mean by at most twice that over n, for Laplace and Gaussian noise alike. ATT and ATC
    divide by a noisy share of treated rows (sensitivity 1/n). The release "variances" is the noisy
    mean of the squared scores, used for standard errors only; for ATT and ATC the effect, released
    by then, is first taken off the scores of its arm, which gives the variance of the ratio. With B
    the largest absolute score (and at least C + |effect| for ATT and ATC) squares lie in
    [0, B^2]: sensitivity B^2/n.
    Effects are clipped to [-2C, 2C].

    References
    ----------
    Differentially Private Average Treatment Effect Estimation by Propensity Score Blocking
    (SeqIPW); Lee et al. (2019), arXiv:1905.12592.
    """

    name = "ipw"
    title = "Inverse probability weighting"
    estimands: ClassVar[tuple[Estimand, ...]] = ("ate", "att", "atc")
    uses_propensity = True
    published_split: ClassVar[Shares] = {"propensity": 0.2, "score": 0.8}
    options: ClassVar[tuple[str, ...]] = ("overlap",)

    def settings(self, options: Options, public: Public) -> Settings:
        """Fill in defaults from public quantities."""
        overlap = options.overlap
        if options.probability is not None:
            overlap = min(options.probability, 1.0 - options.probability)
        elif overlap is None:
            overlap = 0.0 if math.isinf(public.epsilon) else _DEFAULT_OVERLAP
        variances = options.released("variances")
        model = options.propensity
        if isinstance(model, Objective) and model.penalty is model.relative_penalty is None:
            model = replace(model, relative_penalty=_RELATIVE_PENALTY)
        return Settings.of(options, propensity=model, overlap=overlap, variances=variances)

    def shares(self, settings: Settings, public: Public) -> Shares:
        """Return the default split of the budget, by release (a measured rule)."""
        shares = {"propensity": 0.48, "score": 0.48}
        if settings.estimand != "ate":
            shares["counts"] = 0.08
        if settings.variances:
            shares["variances"] = 0.04
        return shares

    def constants(self, settings: Settings) -> tuple[tuple[str, str], ...]:
        """Return the public constants that the summary shows."""
        return (("Overlap (omega)", f"{settings.overlap:g}"),)

    def served(self, settings: Settings) -> tuple[Estimand, ...]:
        """Return the estimands that one release serves."""
        return (settings.estimand,)

    def run(self, arrays: Arrays, settings: Settings, mechanisms: Mechanisms) -> IpwReleased:
        """Release the noisy mean of the scores."""
        n, c, estimand = arrays.n, arrays.half_width, settings.estimand
        scores, fitted = propensity_scores(arrays, settings, mechanisms)
        omega = settings.overlap
        score = _scores(arrays, np.clip(scores, omega, 1.0 - omega), estimand)
        if mechanisms.source is None:
            return _exact(arrays, score * c, estimand, fitted)
        bound = _largest_score(estimand, omega, settings.probability)
        lattice = sum_lattice(bound, n)
        top = np.floor(np.ldexp(bound, -lattice))
        score = np.ldexp(np.clip(np.rint(np.ldexp(score, -lattice)), -top, top), lattice)
        total = mechanisms.additive(
            "score", score.sum(), l1=2.0 * bound, l2=2.0 * bound, lattice=lattice, divisor=n / c
        )
        records = total.records
        share = None
        if estimand != "ate":
            share = mechanisms.additive(
                "counts", float(arrays.treated.sum()), l1=1.0, l2=1.0, lattice=0
            )
            records += share.records
        found = IpwReleased(
            n,
            estimand,
            mechanisms.kind,
            float(total.value),
            None if share is None else float(share.value) / n,
            None,
            total.scale,
            0.0 if share is None else share.scale / n,
            0.0,
            c * bound,
            c,
            None,
            *released_propensity(fitted, records),
        )
        if estimand != "ate":
            # the effect is released by now, so it is a constant for what follows
            effect = found.estimate(estimand) / c
            score = score - effect * (arrays.treated == (estimand == "att"))
            bound = max(bound, 1.0 + abs(effect))
        if not settings.variances:
            return replace(found, bound=c * bound)
        square = _mean_square(score, bound, c, mechanisms)
        return replace(
            found,
            mean_square=float(square.value) + (c * bound) ** 2 / 2.0,
            square_scale=square.scale,
            bound=c * bound,
            records=found.records + square.records,
        )


def _largest_score(estimand: Estimand, omega: float, probability: float | None) -> float:
    """Return the largest absolute score in units of C, from public numbers."""
    if estimand == "ate":
        return 1.0 / omega
    if probability is None:
        return (1.0 - omega) / omega
    odds = probability / (1.0 - probability)
    return max(1.0, odds if estimand == "att" else 1.0 / odds)


def _scores(arrays: Arrays, e: FloatArray, estimand: Estimand) -> FloatArray:
    y, treated = arrays.outcome, arrays.treated
    if estimand == "ate":
        return np.where(treated, y / e, -y / (1.0 - e))
    if estimand == "att":
        return np.where(treated, y, -y * e / (1.0 - e))
    return np.where(treated, y * (1.0 - e) / e, -y)


def _mean_square(
    score: FloatArray, bound: float, half_width: float, mechanisms: Mechanisms
) -> Noisy:
    """Release the mean square, centred so that replacing a row moves the sum by at most B^2."""
    n = score.size
    half = bound**2 / 2.0
    lattice = sum_lattice(half, n)
    top = np.floor(np.ldexp(half, -lattice))
    steps = np.clip(np.rint(np.ldexp(score**2 - half, -lattice)), -top, top)
    return mechanisms.additive(
        "variances",
        np.ldexp(steps, lattice).sum(),
        l1=bound**2,
        l2=bound**2,
        lattice=lattice,
        divisor=n / half_width**2,
    )


def _exact(
    arrays: Arrays, score: FloatArray, estimand: Estimand, fitted: Propensity | None
) -> IpwReleased:
    n = arrays.n
    mean, share = float(score.mean()), None
    influence = score - mean
    if estimand != "ate":
        members = arrays.treated if estimand == "att" else ~arrays.treated
        size = float(members.mean())
        share = float(arrays.treated.mean())
        influence = (score - (mean / size) * members) / size
    variance = float(influence @ influence) / n**2
    return IpwReleased(
        n,
        estimand,
        "laplace",
        mean,
        share,
        None,
        0.0,
        0.0,
        0.0,
        math.inf,
        arrays.half_width,
        variance,
        *released_propensity(fitted, ()),
    )
