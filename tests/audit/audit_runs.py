"""Mechanisms whose epsilon is known, and audits of a noisy sum.

Seeds are fixed, so what passes once passes again. Had they been drawn anew, a bound would exceed
the true epsilon in `FALSE_ALARM` of the cases at most.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from dpstats import audit

FALSE_ALARM = 1e-3
TRIALS = 40_000


def gaussian_delta(shift: float, epsilon: float) -> float:
    """Privacy profile of Gaussian noise of sd 1 (Balle and Wang 2018, theorem 8)."""
    x = shift
    return norm.cdf(x / 2 - epsilon / x) - math.exp(epsilon) * norm.cdf(-x / 2 - epsilon / x)


def gaussian_scale(epsilon: float, delta: float) -> float:
    return brentq(lambda s: gaussian_delta(1.0 / s, epsilon) - delta, 1e-2, 1e3)


def knorm(rng, size: int, d: int, scale: float, radius=None) -> np.ndarray:
    direction = rng.standard_normal((size, d))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    radius = rng.gamma(d, scale, size) if radius is None else radius(rng, scale, size)
    return radius[:, None] * direction


def geometric(rng, size: int, epsilon: float) -> np.ndarray:
    p = 1.0 - math.exp(-epsilon)
    return rng.geometric(p, size) - rng.geometric(p, size)


def flipped(rng, size: int, truth: int, epsilon: float) -> np.ndarray:
    keep = rng.uniform(size=size) < math.exp(epsilon) / (1.0 + math.exp(epsilon))
    return np.where(keep, truth, 1 - truth)


def drawn(mechanism: str, epsilon: float, delta: float, trials: int, seed: int):
    """Runs on two neighbours one unit apart."""
    rng = np.random.default_rng([seed, len(mechanism)])
    if mechanism == "laplace":
        return 1.0 + rng.laplace(scale=1 / epsilon, size=trials), rng.laplace(
            scale=1 / epsilon, size=trials
        )
    if mechanism == "geometric":
        return 1 + geometric(rng, trials, epsilon), geometric(rng, trials, epsilon)
    if mechanism == "randomised response":
        return flipped(rng, trials, 1, epsilon), flipped(rng, trials, 0, epsilon)
    if mechanism == "gaussian":
        scale = gaussian_scale(epsilon, delta)
        return rng.normal(1.0, scale, trials), rng.normal(0.0, scale, trials)
    if mechanism == "laplace vector":
        shift = np.array([0.5, -0.25, 0.25])
        noise = rng.laplace(scale=1 / epsilon, size=(2, trials, 3))
        return shift + noise[0], noise[1]
    assert mechanism == "knorm"
    shift = np.array([0.6, 0.0, -0.8])
    return shift + knorm(rng, trials, 3, 1 / epsilon), knorm(rng, trials, 3, 1 / epsilon)


def noisy_sum(data, rng):
    return np.sum(data) + rng.laplace(scale=[0.5, 1.0])


def same(one: audit.AuditResult, other: audit.AuditResult) -> bool:
    curves = zip(one.curve, other.curve, strict=True)
    return one.events == other.events and all(np.array_equal(a, b) for a, b in curves)


def run(release=noisy_sum, **options):
    call = {"eps": 1.0, "trials": 200, "progress": False, "rng": 3, **options}
    return audit.lower_bound(release, [1, 0, 1], [1, 0, 0], **call)
