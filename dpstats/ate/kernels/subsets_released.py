"""What the noisy means over subsets are, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpstats.alarms import Signal
from dpstats.ate.kernels.base import Estimand, Parts, noise_draws, variance_bound
from dpstats.privacy.mechanisms import Noisy, sum_lattice

if TYPE_CHECKING:
    from dpstats.ate.kernels.base import Arrays
    from dpstats.ate.kernels.subset_kernel import SubsetSettings
    from dpstats.ate.kernels.subsets import Contrasts
    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms, NoiseKind
    from dpstats.privacy.noise import FloatArray
    from dpstats.propensity import FittedPropensity

__all__ = ["SubsetsReleased", "release_mean", "released"]


def release_mean(
    mechanisms: Mechanisms,
    name: str,
    values: FloatArray,
    *,
    bounds: tuple[float, float],
    unit: float,
    change: float | None = None,
) -> Noisy:
    """Release the mean of one number a subset.

    Parameters
    ----------
    mechanisms : Mechanisms
    name : str
    values : ndarray
        Shape (K,); clipped to `bounds` here.
    bounds : (float, float)
        Public range of a number.
    unit : float
        What the released mean is multiplied by.
    change : float, optional
        How far one replaced row moves one number; by default the length of the range. Rounding
        to the grid may add to it, so two steps of the grid do.
    """
    count = values.size
    half = (bounds[1] - bounds[0]) / 2.0
    middle = bounds[0] + half
    lattice = sum_lattice(half, count)
    top = math.floor(math.ldexp(half, -lattice))
    steps = np.clip(np.rint(np.ldexp(values - middle, -lattice)), -top, top)
    size = math.ldexp(2.0 * top, lattice)
    if change is not None:
        size = min(size, change + math.ldexp(2.0, lattice))
    noisy = mechanisms.additive(
        name,
        np.ldexp(steps, lattice).sum(),
        l1=size,
        l2=size,
        lattice=lattice,
        divisor=count / unit,
    )
    return Noisy(noisy.value + unit * middle, noisy.scale, noisy.records)


@dataclass(frozen=True, slots=True)
class SubsetsReleased:
    """Released numbers of a method with subsets.

    Attributes
    ----------
    n, subsets : int
    coefficients : int
        Coefficients of the largest fit in a subset (public; 0 where nothing is fitted).
    effect : float
        Noisy mean effect.
    noisy_variance : float or None
        Noisy mean of the subsets' variances: of one subset's estimate, not of the mean.
    effect_scale, variance_scale : float
        Noise scales.
    cut : float
        R where the variances are squared deviations cut off at R; 0 where they are not.
    half_width : float
        C.
    exact_variance : float or None
        Variance of the estimate, without noise only.
    """

    n: int
    subsets: int
    coefficients: int
    estimand: Estimand
    kind: NoiseKind
    effect: float
    noisy_variance: float | None
    effect_scale: float
    variance_scale: float
    cut: float
    half_width: float
    exact_variance: float | None
    records: tuple[Release, ...]

    @property
    def propensity(self) -> FittedPropensity | None:
        """None: what is fitted in a subset stays there."""
        return None

    @property
    def assumptions(self) -> str:
        """What standard errors take as given, as a sentence of the summary."""
        return (
            " They are about the mean of small fits: bias that small fits, a penalty or clipping "
            "give it is not in them."
        )

    @property
    def exact(self) -> bool:
        """Whether nothing was added (`eps=inf`)."""
        return self.exact_variance is not None

    @property
    def variances_released(self) -> bool:
        """Whether variances were released."""
        return self.noisy_variance is not None

    def estimate(self, estimand: Estimand) -> float:
        """Return the effect."""
        return self.effect if self.exact else float(self._inside(np.asarray(self.effect)))

    def standard_error(self, estimand: Estimand) -> float:
        """Return the ordinary standard error of an exact run."""
        return math.sqrt(self.exact_variance or 0.0)

    def noise_sd(self) -> float:
        """Return the noise sd of the effect."""
        return self._factor * self.effect_scale

    def variance(self) -> float:
        """Return the variance of one subset's estimate: released, or Bhatia-Davis' bound."""
        inside = max(abs(self.estimate(self.estimand)) - self.noise_sd(), 0.0)
        ceiling = float(variance_bound(np.asarray(inside), 2.0 * self.half_width))
        if self.noisy_variance is None:
            return ceiling
        # one noise sd is added so that the interval does not rest on a lucky draw
        mean = max(self.noisy_variance, 0.0) + self._factor * self.variance_scale
        return min(_whole(mean, self.cut) if self.cut else mean, ceiling)

    def errors(
        self, estimand: Estimand, draws: int, rng: np.random.Generator, parts: Parts
    ) -> FloatArray:
        """Simulate errors: a normal sampling error and the noise of the effect."""
        middle = self.estimate(estimand)
        effect = np.full(draws, middle)
        if parts != "privacy":
            sd = math.sqrt(self.variance() / self.subsets)
            effect = effect + rng.normal(scale=sd, size=draws)
        if parts != "sampling":
            effect = effect + noise_draws(rng, self.kind, self.effect_scale, (draws,))
        return self._inside(effect) - middle

    def diagnostics(self) -> list[tuple[str, str, str]]:
        """Return readings of released and public numbers."""
        size, rows = self.n / self.subsets, []
        reading = ""
        if self.coefficients and size < 10.0 * self.coefficients:
            reading = "fewer than 10 rows a coefficient: small fits are biased, use fewer subsets"
        rows.append(("rows in a subset", f"{size:.0f}", reading))
        if self.noisy_variance is not None:
            sd = math.sqrt(self.variance())
            wide = sd > 0.5 * self.half_width
            reading = "so scattered that clipping and small samples bias them" if wide else ""
            rows.append(("sd of one subset's estimate", f"{sd:.3g}", reading))
        return rows

    def signals(self) -> list[Signal]:
        """Return what the rules for warnings look at."""
        found = []
        if self.coefficients:
            found.append(Signal("rows a coefficient", self.n / self.subsets / self.coefficients))
        if self.noisy_variance is not None:
            name = "sd of one subset's estimate, over half the outcome's range"
            found.append(Signal(name, math.sqrt(self.variance()) / self.half_width))
        return found

    @property
    def _factor(self) -> float:
        return math.sqrt(2.0) if self.kind == "laplace" else 1.0

    def _inside(self, effect: FloatArray) -> FloatArray:
        return np.clip(effect, -2.0 * self.half_width, 2.0 * self.half_width)


def _whole(mean: float, cut: float) -> float:
    """Return the variance of a normal whose squares, cut off at `cut`, have this mean.

    At most twice the mean: where most of the squares are cut off they do not tell.
    """
    low, high = mean, 2.0 * mean
    for _ in range(40):
        middle = (low + high) / 2.0
        edge = math.sqrt(cut / middle)
        beyond = math.erfc(edge / math.sqrt(2.0))
        density = math.exp(-(edge**2) / 2.0) / math.sqrt(2.0 * math.pi)
        reached = middle * (1.0 - beyond - 2.0 * edge * density) + cut * beyond
        low, high = (middle, high) if reached < mean else (low, middle)
    return high


def released(
    arrays: Arrays,
    settings: SubsetSettings,
    mechanisms: Mechanisms,
    effect: Noisy,
    found: Contrasts,
    variances: FloatArray | None,
    coefficients: int,
    exact_variance: float | None = None,
) -> SubsetsReleased:
    """Release the mean of the subsets' variances and wrap what was released.

    Parameters
    ----------
    effect : Noisy
        The released effect.
    found : Contrasts
        Effects of the subsets and their variances, in units of C and its square.
    variances : ndarray or None
        Shape (K,): what each subset reports as the variance of its effect; clipped to [0, R]. By
        default the squared difference from the released effect.
    coefficients : int
        Of the largest fit in a subset.
    exact_variance : float, optional
        Variance of the effect in units of C^2, for an exact run; by default from the spread of the
        subsets' effects.
    """
    c, count = arrays.half_width, settings.subsets
    records, exact, cut = effect.records, None, 0.0
    noisy = Noisy(np.zeros(()), 0.0, ())
    if mechanisms.source is None:
        if exact_variance is None:
            within = np.nan_to_num(found.variances[0], posinf=0.0)
            exact_variance = float(found.effects.var(ddof=1) / count if count > 1 else within)
        exact = c**2 * exact_variance
    elif settings.variances:
        if variances is None:
            # the effect is released by now, so it is a constant for what follows
            variances = (found.effects - float(effect.value) / c) ** 2
            cut = c**2 * settings.ceiling
        bounds = (0.0, settings.ceiling)
        noisy = release_mean(mechanisms, "variances", variances, bounds=bounds, unit=c**2)
        records += noisy.records
    return SubsetsReleased(
        arrays.n,
        count,
        coefficients,
        settings.estimand,
        mechanisms.kind,
        float(effect.value),
        float(noisy.value) if noisy.records else None,
        effect.scale,
        noisy.scale,
        cut,
        c,
        exact,
        records,
    )
