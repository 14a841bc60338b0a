"""Inverse probability weighting with a private propensity (SeqIPW)."""

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
    lighter_penalty,
    overlap_of,
    relative_weights,
    scores_again,
)
from dpstats.privacy.mechanisms import sum_lattice

if TYPE_CHECKING:
    from dpstats.ate.kernels.base import Arrays, RowWeights
    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms, NoiseKind
    from dpstats.privacy.noise import FloatArray
    from dpstats.propensity import FittedPropensity, Propensity

__all__ = ["Ipw", "IpwReleased", "IpwSettings", "release_scores"]

# what is taken for e(1-e), for scores in units of outcomes, and for the effect in units of log odds
_INFORMATION = 0.2
_SCORE_SIZE: dict[str, float] = {"ate": 2.3, "att": 1.1, "atc": 1.1}
_MOVED = 0.38


@dataclass(frozen=True, slots=True)
class IpwReleased:
    """Released numbers of `Ipw`.

    Attributes
    ----------
    score : float
        Noisy mean of the scores.
    treated_share : float or None
        Noisy share of treated rows (att, atc).
    spread : Spread or None
        How much scores vary about the released effect (att, atc: that of rows of the arm).
    score_scale, share_scale : float
        Noise scales of the two.
    bound : float
        Largest absolute value of a score (att, atc: less the effect for rows of the arm).
    half_width : float
        C.
    trained : int or None
        Rows that trained the propensity, where they are others.
    exact_variance : float or None
        Variance of the estimate, without noise only.
    """

    n: int
    estimand: Estimand
    kind: NoiseKind
    score: float
    treated_share: float | None
    spread: Spread | None
    score_scale: float
    share_scale: float
    bound: float
    half_width: float
    trained: int | None
    exact_variance: float | None
    propensity: FittedPropensity | None
    records: tuple[Release, ...]

    @property
    def exact(self) -> bool:
        """Whether nothing was added (`eps=inf`)."""
        return self.exact_variance is not None

    @property
    def caveat(self) -> str:
        """What the intervals leave out; empty where errors do not allow for the propensity."""
        if self.fit_sds()[0] == 0.0:
            return ""
        return (
            " Noise in the propensities is allowed for by an approximation; the bias of clipped or "
            "shrunk propensities is not in them."
        )

    @property
    def variances_released(self) -> bool:
        """Whether variances were released."""
        return self.spread is not None

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
        return ceiling if self.spread is None else self.spread.mean_square(ceiling)

    def fit_sds(self) -> tuple[float, float]:
        """Return how far privacy noise and sampling in the coefficients may move the effect.

        An approximation, since the moments it depends on are not released: rows have norm one and
        no direction stands out, e(1-e) is .2 and outcomes have one size M, read off the mean
        square. The log odds of a row then move by eta, with variance (s d / (.2 n))^2 for noise of
        sd s in the gradient and d / (.2 n) for sampling in d coefficients, and the effect by
        .38 M eta (measured). Sampling counts only where other rows train the propensity: on the
        same rows it does no harm to weights.
        """
        fitted = self.propensity
        if self.exact or self.spread is None or fitted is None or not fitted.records:
            return 0.0, 0.0
        record, d = fitted.records[0], fitted.coefficients.size
        noise = record.scale if "Gaussian" in record.mechanism else record.scale * math.sqrt(d + 1)
        information = _INFORMATION * (self.trained or self.n) / d
        if record.mechanism.startswith("objective"):
            noise /= information
        size = math.hypot(math.sqrt(self.variance()), self.estimate(self.estimand))
        size = _MOVED * min(size / _SCORE_SIZE[self.estimand], self.half_width)
        return size * noise, size / math.sqrt(information) if self.trained else 0.0

    def errors(
        self, estimand: Estimand, draws: int, rng: np.random.Generator, parts: Parts
    ) -> FloatArray:
        """Simulate errors: a normal sampling error and the noise of each release."""
        share = self.treated_share
        if share is not None:
            share = min(max(share, 1.0 / self.n), 1.0 - 1.0 / self.n)
        middle = self._effect(np.asarray(self.score), share)
        moved = self._moved(draws, rng, parts)
        # from the clipped effect: noise may have taken the score out of all reach
        score = np.full(draws, float(middle * self._share(share)))
        if parts != "privacy":
            # linear in the score and the share together: `variance` is that of both
            score = score + rng.normal(scale=math.sqrt(self.variance() / self.n), size=draws)
        if parts != "sampling":
            score = score + noise_draws(rng, self.kind, self.score_scale, (draws,))
            if share is not None:
                noise = noise_draws(rng, self.kind, self.share_scale, (draws,))
                return self._effect(score, share + noise) - middle + moved
        return self._effect(score, share) - middle + moved

    def _moved(self, draws: int, rng: np.random.Generator, parts: Parts) -> FloatArray:
        """Draw what errors in the coefficients do to the effect."""
        noise, sampling = self.fit_sds()
        used = {"privacy": noise, "sampling": sampling, "both": math.hypot(noise, sampling)}[parts]
        return rng.normal(scale=used, size=draws) if used else np.zeros(draws)

    def diagnostics(self) -> list[tuple[str, str, str]]:
        """Say how many propensities were clipped, where that was counted."""
        if self.spread is None or len(self.spread.counts) == 1:
            return []
        share, sd = self.spread.clipped_share()
        reading = f"noise sd {sd:.2g}; weights that are cut short bias the estimate"
        if share < 3.0 * sd:
            reading += ": no such rows can be told from noise"
        return [("share of clipped propensities", f"{share:.3f}", reading)]

    def signals(self) -> list[Signal]:
        """Return what the rules for warnings look at."""
        share, sd = self.spread.clipped_share() if self.spread else (0.0, 0.0)
        return [Signal("share of clipped propensities", share)] if share > 3.0 * sd else []

    def notes(self) -> list[str]:
        """Return what a reader of the privacy record must know."""
        parts = dict.fromkeys(record.partition for record in self.records)
        if len(parts) < 2:
            return []
        return [
            f"The {' and the '.join(parts)} are disjoint and chosen at random: what is spent on "
            "one and on the other does not add up."
        ]

    def _share(self, treated: FloatArray | float | None) -> FloatArray | float:
        if treated is None:
            return 1.0
        return treated if self.estimand == "att" else 1.0 - treated

    def _effect(self, score: FloatArray, treated: FloatArray | float | None) -> FloatArray:
        # an arm has at least one row and an effect lies within the range of the outcome
        share = np.maximum(self._share(treated), 1.0 / self.n)
        return np.clip(score / share, -2.0 * self.half_width, 2.0 * self.half_width)


@dataclass(frozen=True, slots=True, kw_only=True)
class IpwSettings(Settings):
    """Public constants of `ipw` and `split_ipw`.

    Attributes
    ----------
    train_share : float or None
        Share of the rows that train the propensity and nothing else; None: all rows do both.
    """

    train_share: float | None = None


class Ipw(Kernel[IpwSettings]):
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
    divide by a noisy share of treated rows (sensitivity 1/n). The release "variances" counts rows
    by the size of their squared scores less the effect, which is released by then (for ATT and ATC
    it is taken off the scores of its arm, which gives the variance of the ratio), rows with a
    clipped propensity apart: sensitivities 2 and sqrt(2), see `dpstats.ate.kernels.spread`.
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
    method_options: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"balance": check_balance}

    def settings(self, options: Options, public: Public) -> IpwSettings:
        """Fill in defaults from public quantities."""
        return IpwSettings.of(
            options,
            propensity=lighter_penalty(options.propensity),
            overlap=overlap_of(options, public),
            variances=options.released("variances"),
        )

    def shares(self, settings: IpwSettings, public: Public) -> Shares:
        """Return the default split of the budget, by release (a measured rule)."""
        shares = {"propensity": 0.48, "score": 0.48}
        if settings.estimand != "ate":
            shares["counts"] = 0.08
        if settings.variances:
            shares["variances"] = 0.04
        return shares

    def constants(self, settings: IpwSettings) -> tuple[tuple[str, str], ...]:
        """Return the public constants that the summary shows."""
        return (("Overlap (omega)", f"{settings.overlap:g}"),)

    def served(self, settings: IpwSettings) -> tuple[Estimand, ...]:
        """Return the estimands that one release serves."""
        return (settings.estimand,)

    def run(self, arrays: Arrays, settings: IpwSettings, mechanisms: Mechanisms) -> IpwReleased:
        """Release the noisy mean of the scores."""
        scores, fitted = propensity_scores(arrays, settings, mechanisms)
        return release_scores(arrays, scores, fitted, settings, mechanisms)

    def row_weights(
        self, arrays: Arrays, settings: IpwSettings, released: IpwReleased
    ) -> RowWeights:
        """Return the weight of each row."""
        e, omega = scores_again(arrays, settings, released.propensity), settings.overlap
        e = np.clip(e, omega, 1.0 - omega)
        return relative_weights(arrays, e, settings, exact=released.exact)


def release_scores(
    arrays: Arrays,
    propensities: FloatArray,
    fitted: Propensity | None,
    settings: Settings,
    mechanisms: Mechanisms,
    training: tuple[str, int] | None = None,
) -> IpwReleased:
    """Release the noisy mean of the scores of rows with given propensities.

    Parameters
    ----------
    arrays : Arrays
        The rows that are averaged over.
    propensities : ndarray
        Shape (n,): functions of numbers released before and of a row's own covariates.
    fitted : Propensity or None
        The model they come from.
    settings : Settings
    mechanisms : Mechanisms
    training : (str, int), optional
        Name and number of the rows the model was fitted on, where they are others.
    """
    name, trained = training or (None, None)
    n, c, estimand, omega = arrays.n, arrays.half_width, settings.estimand, settings.overlap
    score = _scores(arrays, np.clip(propensities, omega, 1.0 - omega), estimand)
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
        c * bound,
        c,
        trained,
        None,
        *released_propensity(fitted, records, name),
    )
    # the effect is released by now, so it is a constant for what follows
    effect = found.estimate(estimand) / c
    if estimand == "ate":
        score, bound = score - effect, bound + abs(effect)
    else:
        score = score - effect * (arrays.treated == (estimand == "att"))
        bound = max(bound, 1.0 + abs(effect))
        found = replace(found, bound=c * bound)
    if not settings.variances:
        return found
    clipped = None
    if settings.probability is None:
        clipped = (propensities <= omega) | (propensities >= 1.0 - omega)
    spread, more = release_spread(score, bound, c, mechanisms, clipped)
    return replace(found, spread=spread, records=found.records + more)


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
        math.inf,
        arrays.half_width,
        None,
        variance,
        *released_propensity(fitted, ()),
    )
