"""Panels and runs of single kernels, without the model around them."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import beta

from dpstats.privacy.accounting import allocate
from dpstats.privacy.mechanisms import Mechanisms
from dpstats.privacy.noise import SeededSource
from dpstats.synth.kernels import KERNELS
from dpstats.synth.kernels.base import Panel, Public


class Silent:
    """A source without noise that keeps what it was asked for."""

    seeded = True

    def __init__(self) -> None:
        self.seen: dict[str, list] = {}

    def laplace(self, name, values, scale):
        self.seen.setdefault(name, []).append((values, scale))
        return values

    gaussian = laplace

    def knorm(self, name, dimension, scale, ball):
        self.seen.setdefault(name, []).append((dimension, scale))
        return np.zeros(dimension)

    def normal(self, name, dimension, scale):
        self.seen.setdefault(name, []).append((dimension, scale))
        return np.zeros(dimension)


def panel_of(donors, targets, pre_periods: int) -> Panel:
    targets = np.atleast_2d(np.asarray(targets, dtype=float))
    return Panel(np.asarray(donors, dtype=float), targets, pre_periods, 0.0, 1.0, None)


def run(
    method: str,
    panel: Panel,
    eps: float,
    delta: float = 0.0,
    source=None,
    penalty=None,
    bounded: bool = True,
    **options,
):
    kernel = KERNELS[method]
    public = Public(panel.n, panel.donors.shape[1], panel.pre_periods, eps, delta, bounded)
    settings = kernel.settings(penalty, options, public)
    if math.isinf(eps):
        return kernel.run(panel, settings, Mechanisms(None, "laplace", {}))
    shares = kernel.shares(settings, public)
    gaussian = set(shares) - set(kernel.pure) if delta else ()
    costs = allocate(eps, delta, shares, gaussian)
    source = SeededSource(0) if source is None else source
    kind = "gaussian" if delta else "laplace"
    return kernel.run(panel, settings, Mechanisms(source, kind, costs))


def factor(n: int, rng, periods: int = 30, noise: float = 0.025):
    """Donors, a target and its signal: three autoregressive factors and unit levels."""
    paths = np.empty((3, periods))
    paths[:, 0] = rng.standard_normal(3)
    for t in range(1, periods):
        paths[:, t] = 0.8 * paths[:, t - 1] + 0.6 * rng.standard_normal(3)
    loadings = 1.0 + rng.standard_normal((n + 1, 3))
    signal = rng.uniform(-0.5, 0.5, (n + 1, 1)) + 0.04 * loadings @ paths
    seen = signal + noise * rng.standard_normal(signal.shape)
    return seen[1:], seen[0], signal[0]


class Scaled:
    """A source that draws too little noise: the positive control of an audit."""

    seeded = True

    def __init__(self, source, factor: float) -> None:
        self.source, self.factor = source, factor

    def laplace(self, name, values, scale):
        return self.source.laplace(name, values, scale * self.factor)

    def gaussian(self, name, values, scale):
        return self.source.gaussian(name, values, scale * self.factor)

    def knorm(self, name, dimension, scale, ball):
        return self.source.knorm(name, dimension, scale * self.factor, ball)

    def normal(self, name, dimension, scale):
        return self.source.normal(name, dimension, scale * self.factor)


def lower_bound(one, two, delta: float, alarm: float = 1e-6) -> float:
    """Return a Clopper-Pearson lower bound on eps from threshold events of two samples."""
    both = np.concatenate([one, two])
    thresholds = np.quantile(both, np.linspace(0.05, 0.95, 19))
    level = alarm / (4.0 * thresholds.size) / 2.0
    best = 0.0
    for first, second in ((one, two), (two, one), (-one, -two), (-two, -one)):
        for threshold in -thresholds if first is not one and first is not two else thresholds:
            hits, misses = int((first > threshold).sum()), int((second > threshold).sum())
            if hits == 0:
                continue
            low = beta.ppf(level, hits, first.size - hits + 1)
            high = (
                1.0
                if misses == second.size
                else beta.ppf(1.0 - level, misses + 1, second.size - misses)
            )
            if low > delta:
                best = max(best, math.log((low - delta) / high))
    return best
