"""Covariate sets for the study of the defaults, beyond those of `dpstats.simulate`.

Skewed pairs and mixed sets (half binary, a quarter lognormal, a quarter normal, one common factor)
with moderate or strong confounding. Bounds are constants of the process; outcomes beyond them are
rare enough that clipping moves the effect by about .001 at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, ndtri

import dpstats as dp

__all__ = ["PROCESSES", "Sample", "draw", "mixed", "skewed"]

FloatArray: TypeAlias = NDArray[np.float64]
Bounds: TypeAlias = "dict[str, tuple[float, float]]"

_STRENGTH = {"moderate": 1.0, "strong": 2.2}
_CAP = 6.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows with public bounds and the true average effect."""

    data: pd.DataFrame
    bounds: Bounds
    truth: float

    @property
    def formula(self) -> str:
        """Outcome on all covariates."""
        return "y ~ " + " + ".join(name for name in map(str, self.data) if name not in ("y", "w"))


def skewed(n: int, rng: np.random.Generator, strength: str = "moderate") -> Sample:
    """Draw two lognormal covariates, capped at 6; the effect is 1."""
    s = _STRENGTH[strength]
    x = np.minimum(np.exp(0.7 * rng.standard_normal((n, 2))), _CAP)
    u = (x - 1.25) / 0.9
    log_odds = -0.2 + s * (u @ [0.5, 0.4])
    half = 8.0 if strength == "strong" else 4.0
    return _sample(x, [(0.0, _CAP)] * 2, log_odds, s * (u @ [0.5, 0.3]), half, rng)


def mixed(
    n: int,
    rng: np.random.Generator,
    columns: int = 8,
    strength: str = "moderate",
    varying: bool = False,
) -> Sample:
    """Draw binary, lognormal and normal covariates with a common factor.

    Parameters
    ----------
    n : int
        Rows.
    rng : Generator
    columns : int
        A multiple of four.
    strength : {"moderate", "strong"}
        Of the confounding.
    varying : bool
        Whether the effect rises with a confounder; its mean is 1 in any case.
    """
    binary, lognormal = columns // 2, columns // 4
    s = _STRENGTH[strength]
    latent = 0.4 * rng.standard_normal((n, 1)) + np.sqrt(0.84) * rng.standard_normal((n, columns))
    rate = np.linspace(0.1, 0.6, binary)
    x, u = latent, latent.copy()
    x[:, :binary] = latent[:, :binary] < ndtri(rate)
    u[:, :binary] = (x[:, :binary] - rate) / np.sqrt(rate * (1.0 - rate))
    skew = slice(binary, binary + lognormal)
    x[:, skew] = np.minimum(np.exp(0.6 * latent[:, skew]), _CAP)
    u[:, skew] = (x[:, skew] - 1.2) / 0.78
    place = np.arange(columns)
    sign = np.where(place % 3 == 0, -1.0, 1.0)
    treatment, outcome = sign * (1 + place % 2), sign * (1 + place // 2 % 2)
    log_odds = -0.4 + 0.7 * s * (u @ treatment) / np.linalg.norm(treatment)
    level = 0.6 * s * (u @ outcome) / np.linalg.norm(outcome)
    bounds = [(0.0, 1.0)] * binary + [(0.0, _CAP)] * lognormal
    bounds += [(-3.0, 3.0)] * (columns - len(bounds))
    effect = 1.0 + u[:, -1] if varying else 1.0
    half = 6.0 if varying else 5.0 if strength == "strong" else 4.0
    return _sample(x, bounds, log_odds, level, half, rng, effect)


def _sample(
    x: FloatArray,
    bounds: list[tuple[float, float]],
    log_odds: FloatArray,
    level: FloatArray,
    half: float,
    rng: np.random.Generator,
    effect: FloatArray | float = 1.0,
) -> Sample:
    n = len(x)
    treated = rng.random(n) < expit(log_odds)
    y = effect * treated + level + 0.8 * rng.standard_normal(n)
    names = [f"x{j + 1}" for j in range(x.shape[1])]
    data = pd.DataFrame(x, columns=names).assign(y=y, w=treated.astype(int))
    public = dict(zip(names, bounds, strict=True)) | {"y": (0.5 - half, 0.5 + half)}
    return Sample(data, public, 1.0)


PROCESSES: dict[str, Callable[[int, np.random.Generator], Sample]] = {
    "skewed_2": skewed,
    "skewed_2_strong": lambda n, rng: skewed(n, rng, "strong"),
    "mixed_8": mixed,
    "mixed_8_strong": lambda n, rng: mixed(n, rng, strength="strong"),
    "mixed_8_varying": lambda n, rng: mixed(n, rng, varying=True),
    "mixed_20": lambda n, rng: mixed(n, rng, 20),
    "mixed_20_strong": lambda n, rng: mixed(n, rng, 20, "strong"),
}


def draw(name: str, n: int, seed: list[int]) -> Sample:
    """Draw from a process of this file or of `dpstats.simulate`."""
    rng = np.random.default_rng(seed)
    if name in PROCESSES:
        return PROCESSES[name](n, rng)
    found = dp.simulate.ate(name, n, rng=rng)
    return Sample(found.data, found.bounds, (found.truth or {})["ATE"])
