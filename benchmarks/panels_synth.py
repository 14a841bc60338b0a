"""Panels for the study of `dp_synth`, beyond those of `dpstats.simulate`.

30 periods, 20 of them before the intervention; unit levels are uniform on [-.5, .5]. The first unit
is the target, drawn like every other (but for "heavy", see there).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import dpstats as dp

__all__ = ["PROCESSES", "Sample", "draw"]

FloatArray: TypeAlias = NDArray[np.float64]
Paths: TypeAlias = "tuple[FloatArray, FloatArray]"

_PERIODS = 30
_BEFORE = 20


@dataclass(frozen=True, slots=True)
class Sample:
    """A panel: one row a unit, the target first.

    Attributes
    ----------
    paths, signal : ndarray
        Shape (n + 1, T) and (T,): with noise, and the target's without.
    before : int
        T0.
    bounds : tuple of float or None
        Public bounds.
    """

    paths: FloatArray
    signal: FloatArray
    before: int
    bounds: tuple[float, float] | None

    @property
    def frame(self) -> pd.DataFrame:
        """The panel in long form."""
        units, periods = self.paths.shape
        return pd.DataFrame(
            {
                "unit": np.repeat(np.arange(units), periods),
                "time": np.tile(np.arange(1, periods + 1), units),
                "y": self.paths.ravel(),
            }
        )


def _autoregressive(rng: np.random.Generator, rows: int, correlation: float) -> FloatArray:
    paths = rng.standard_normal((rows, _PERIODS))
    for t in range(1, _PERIODS):
        step = np.sqrt(1.0 - correlation**2) * paths[:, t]
        paths[:, t] = correlation * paths[:, t - 1] + step
    return paths


def white(rng: np.random.Generator, units: int) -> Paths:
    """Draw three factors without any persistence: no frequency can be left out."""
    loadings = 1.0 + rng.standard_normal((units, 3))
    signal = 0.04 * loadings @ rng.standard_normal((3, _PERIODS))
    return signal, 0.025 * rng.standard_normal(signal.shape)


def walks(rng: np.random.Generator, units: int) -> Paths:
    """Draw three common random walks, and a small one of each unit's own."""
    loadings = 1.0 + rng.standard_normal((units, 3))
    common = 0.016 * loadings @ np.cumsum(rng.standard_normal((3, _PERIODS)), axis=1)
    own = 0.01 * np.cumsum(rng.standard_normal(common.shape), axis=1)
    return common + own, 0.015 * rng.standard_normal(common.shape)


def trend(rng: np.random.Generator, units: int) -> Paths:
    """Draw a common path that is about five times as large as the three factors."""
    time = np.arange(_PERIODS)
    factors = 0.04 * rng.standard_normal((units, 3)) @ _autoregressive(rng, 3, 0.8)
    signal = factors + 0.25 * np.sin(time / 6.0) + 0.01 * time
    return signal, 0.025 * rng.standard_normal(signal.shape)


def heavy(rng: np.random.Generator, units: int) -> Paths:
    """Draw Student loadings (three degrees of freedom); half of the donors are noise alone."""
    scale = np.sqrt(rng.chisquare(3, (units, 1)) / 3.0)
    loadings = (1.0 + rng.standard_normal((units, 3))) / scale
    loadings[1:][rng.random(units - 1) < 0.5] = 0.0
    signal = 0.012 * loadings @ np.cumsum(rng.standard_normal((3, _PERIODS)), axis=1)
    return signal, 0.025 * rng.standard_normal(signal.shape)


def common(rng: np.random.Generator, units: int) -> Paths:
    """Draw one common trend and persistent noise: difference in differences is hard to beat."""
    loadings = 1.0 + 0.1 * rng.standard_normal((units, 1))
    signal = 0.03 * loadings @ np.cumsum(rng.standard_normal((1, _PERIODS)), axis=1)
    return signal, 0.05 * _autoregressive(rng, units, 0.5)


def ten(rng: np.random.Generator, units: int) -> Paths:
    """Draw ten common random walks, more than the paths of a small second round."""
    shared = np.cumsum(rng.standard_normal((10, _PERIODS)), axis=1) / np.sqrt(_PERIODS)
    signal = 0.06 * rng.standard_normal((units, 10)) @ shared
    return signal, 0.025 * rng.standard_normal(signal.shape)


PROCESSES: dict[str, Callable[[np.random.Generator, int], Paths]] = {
    "white": white,
    "walks": walks,
    "trend": trend,
    "heavy": heavy,
    "common": common,
    "ten": ten,
}


def draw(process: str, n: int, seed: list[int]) -> Sample:
    """Draw from a process of this file or of `dpstats.simulate`."""
    if process not in PROCESSES:
        found = dp.simulate.panel(process, n_donors=n, rng=seed)
        paths = found.data["y"].to_numpy().reshape(n + 1, -1)
        return Sample(paths, found.signal.to_numpy(), found.T0, found.bounds["y"])
    rng = np.random.default_rng(seed)
    signal, noise = PROCESSES[process](rng, n + 1)
    signal = signal + rng.uniform(-0.5, 0.5, (n + 1, 1))
    return Sample(signal + noise, signal[0], _BEFORE, None)
