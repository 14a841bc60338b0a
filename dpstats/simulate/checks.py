"""Checked arguments and draws that both kinds of process share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dpstats.errors import DPStatsError

__all__ = ["FloatArray", "RNGLike", "choose", "finite", "truncated_normal", "whole"]

FloatArray = npt.NDArray[np.float64]
RNGLike = int | np.random.Generator | np.random.SeedSequence | np.random.BitGenerator | None

_Value = TypeVar("_Value")


def choose(argument: str, key: object, table: Mapping[str, _Value]) -> _Value:
    """Look up ``key``, or raise an error that lists what there is."""
    if not isinstance(key, str) or key not in table:
        known = ", ".join(repr(name) for name in table)
        raise DPStatsError(f"`{argument}` must be one of {known}; got {key!r}")
    return table[key]


def whole(argument: str, value: object, least: int) -> int:
    """Check a whole number of at least ``least``; a bool is none."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Integral) or value < least:
        raise DPStatsError(
            f"`{argument}` must be a whole number of at least {least}; got {value!r}"
        )
    return int(value)


def finite(argument: str, value: object) -> float:
    """Check a finite number; a bool is none."""
    if (
        isinstance(value, (bool, np.bool_))
        or not isinstance(value, Real)
        or not math.isfinite(value)
    ):
        raise DPStatsError(f"`{argument}` must be a finite number; got {value!r}")
    return float(value)


def truncated_normal(
    rng: np.random.Generator,
    low: float,
    high: float,
    size: int | tuple[int, ...],
) -> FloatArray:
    """Draw from the standard normal law conditioned on [low, high], by inversion.

    Intervals in the upper tail should be reflected: the lower tail is where the normal
    distribution function keeps its relative accuracy.
    """
    from scipy.special import ndtr, ndtri

    bottom, top = ndtr(low), ndtr(high)
    drawn = ndtri(bottom + (top - bottom) * rng.random(size))
    clipped: FloatArray = np.clip(drawn, low, high)
    return clipped
