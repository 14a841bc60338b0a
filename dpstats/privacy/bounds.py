"""Bounds: given ones, and private ones where none are given.

Clip, then use the clipped copy everywhere.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dpstats.errors import BoundsError
from dpstats.passed import passed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpstats.privacy.mechanisms import Mechanisms
    from dpstats.privacy.noise import FloatArray

__all__ = [
    "Interval",
    "check_interval",
    "private_bounds",
    "private_bounds_share",
    "private_bounds_threshold",
]

Interval: TypeAlias = "tuple[float, float]"

# bins (2**(j-1), 2**j] for both signs, one bin around zero; the end bins are open
_LOWEST, _HIGHEST = -30, 60
_SIDE = _HIGHEST - _LOWEST + 1
_BINS = 2 * _SIDE + 1
_FAILURE = 0.01
_EDGE_FAILURE = 0.05
_SHARE_RANGE = (0.02, 0.25)
# squares of a half-width must neither overflow nor vanish
_WIDTHS = (1e-100, 1e100)


def check_interval(name: str, value: Any, what: str = "bounds") -> Interval:
    """Return a public interval as floats.

    Raises
    ------
    BoundsError
        If it is not a pair (lo, hi) of finite numbers with lo < hi.
    """
    rule = f"`{what}` must give {name!r} a pair (lo, hi) of finite numbers with lo < hi"
    try:
        low, high = value
        if isinstance(value, str) or any(isinstance(end, bool | str) for end in (low, high)):
            raise BoundsError(f"{rule}; got {passed(value)}")
        low, high = float(low), float(high)
    except (TypeError, ValueError):
        raise BoundsError(f"{rule}; got {passed(value)}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise BoundsError(f"{rule}; got ({low:g}, {high:g})")
    if not _WIDTHS[0] <= high - low <= _WIDTHS[1]:
        raise BoundsError(f"{rule} and a width between 1e-100 and 1e100; got ({low:g}, {high:g})")
    return low, high


def private_bounds_threshold(columns: int, epsilon: float, rows_per_person: int = 1) -> float:
    """Noisy count from which on a bin counts as occupied.

    Parameters
    ----------
    columns : int
        Columns searched together, q.
    epsilon : float
        Budget of the release.
    rows_per_person : int
        Rows a person may have.

    Returns
    -------
    float
        (2 q / epsilon) log(q bins / (2 x 0.01)): the probability that any empty bin of any column
        passes is at most 1 %.
    """
    scale = 2.0 * columns * rows_per_person / epsilon
    return scale * math.log(columns * _BINS / (2.0 * _FAILURE))


def private_bounds_share(columns: int, n: int, epsilon: float, rows_per_person: int = 1) -> float:
    """Default share of the budget for `columns` private bounds, from public quantities.

    The share at which the threshold is one per cent of the rows, kept between 2 and 25 per cent.
    """
    low, high = _SHARE_RANGE
    wanted = private_bounds_threshold(columns, epsilon, rows_per_person) / (0.01 * n)
    return min(max(wanted, low), high)


def private_bounds(
    columns: Mapping[str, FloatArray], mechanisms: Mechanisms, name: str = "bounds"
) -> tuple[dict[str, Interval], tuple[Any, ...]]:
    """Find bounds from noisy histograms over signed powers of two.

    Parameters
    ----------
    columns : mapping of str to ndarray
        The columns, each of shape (n,), without missing values; infinities fall into the end bins.
    mechanisms : Mechanisms
        The noise path; the budget is that of the release `name`.
    name : str
        Name of the release.

    Returns
    -------
    bounds : dict of str to (float, float)
        End points are 0 or signed powers of two.
    records : tuple of Release

    Raises
    ------
    BoundsError
        If no bin of a column passes the threshold. The budget is spent: that nothing passed is
        itself the output of the release.

    Notes
    -----
    *Sensitivity.* A row adds one count to one bin of each of the q histograms; replacing it moves
    at most two counts a column by one: l1 sensitivity 2 q, l2 sensitivity sqrt(2 q).

    *Reading.* Bins whose noisy count passes `private_bounds_threshold` are occupied. From the
    outermost occupied bins one goes outwards while the next noisy count passes a lower threshold,
    at which an empty bin passes with probability at most 5 % over all ends of all columns; that
    costs at most a factor of two in width. Rows beyond the result are clipped.

    *From how many rows on.* About 500 q / eps_bounds (up to 750 for ten columns), measured by
    ``benchmarks/private_bounds.py``: 1,778 rows for three columns at eps_bounds = 1, 13,335 at 0.1.
    Private quantiles by the exponential mechanism need two to seven times as many.
    """
    if not columns:
        return {}, ()
    counts = np.stack([_histogram(values) for values in columns.values()])
    q = len(columns)
    noisy = mechanisms.additive(
        name, counts, l1=2.0 * q, l2=math.sqrt(2.0 * q), lattice=0, kind="laplace"
    )
    scale = noisy.scale
    # half a step more: the tail of the noise is that of the Laplace distribution for integers
    threshold = scale * math.log(q * _BINS / (2.0 * _FAILURE)) + 0.5
    edge = scale * math.log(2.0 * q / (2.0 * _EDGE_FAILURE)) + 0.5
    found, empty = {}, []
    for column, histogram in zip(columns, noisy.value, strict=True):
        occupied = np.flatnonzero(histogram > threshold)
        if occupied.size == 0:
            empty.append(column)
            continue
        first, last = int(occupied[0]), int(occupied[-1])
        while first > 0 and histogram[first - 1] > edge:
            first -= 1
        while last < _BINS - 1 and histogram[last + 1] > edge:
            last += 1
        found[column] = _interval(first, last)
    if empty:
        raise BoundsError(_not_found(empty, threshold))
    return found, noisy.records


def _not_found(columns: Sequence[str], threshold: float) -> str:
    names = ", ".join(f"{name!r}" for name in columns)
    return (
        f"no private `bounds` could be found for {names}: no power-of-two bin had a noisy count "
        f"above {threshold:.0f}, so there are too few rows for this budget. The budget of this "
        f"call is spent. Pass `bounds`, for example bounds={{{columns[0]!r}: (lo, hi)}}, from "
        "public knowledge"
    )


def _histogram(values: FloatArray) -> FloatArray:
    """Count values by signed power of two: bins run from the most negative to the largest."""
    mantissa, exponent = np.frexp(np.abs(values))
    # frexp has 0.5 <= mantissa < 1; a power of two belongs to the bin below it
    power = exponent - (mantissa == 0.5)
    power[~np.isfinite(values)] = _HIGHEST
    offset = np.clip(power - _LOWEST + 1, 1, _SIDE)
    offset[(power < _LOWEST) | (values == 0.0)] = 0
    bins = _SIDE + np.where(values < 0.0, -offset, offset)
    return np.bincount(bins, minlength=_BINS).astype(np.float64)


def _interval(first: int, last: int) -> Interval:
    """Return the union of bins `first` to `last`."""

    def edges(index: int) -> Interval:
        step = index - _SIDE
        if step == 0:
            return 0.0, 0.0
        inner, outer = (math.ldexp(1.0, _LOWEST + abs(step) - shift) for shift in (2, 1))
        # the innermost bins reach down to zero
        inner = 0.0 if abs(step) == 1 else inner
        return (inner, outer) if step > 0 else (-outer, -inner)

    low, high = edges(first)[0], edges(last)[1]
    return (low, high) if low < high else (low, math.ldexp(1.0, _LOWEST))
