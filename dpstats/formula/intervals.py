"""Interval arithmetic on finite floating-point numbers.

Every function takes and returns closed intervals ``(lo, hi)`` and raises `UndefinedError` where the
operation is undefined, or overflows, at some point inside them. A result may be wider than the
true range, never narrower: numpy's own rounding is covered. ``+ - * /``, square roots and rounding
to integers are correctly rounded and so monotone, which makes the floating corners exact bounds;
the other functions are widened by `SLACK` units in the last place.

All functions are inclusion isotone up to that rounding: what is defined on an interval is defined
on every part of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

Interval = tuple[float, float]

#: Units in the last place by which numpy's transcendental functions may be wrong (it tests for 4).
SLACK = 16

_SLACK = SLACK * 2.0**-52

#: Numbers nearer to zero may be flushed to zero by libraries that change the processor's mode.
SMALLEST_NORMAL = 2.0**-1022

#: Differences smaller than 2**51 between integers are exact in every step of numpy's ``//``.
_EXACT_INTEGERS = 2.0**51

_TURN = 2.0 * math.pi


class UndefinedError(ArithmeticError):
    """An operation is undefined, or not finite, somewhere inside its intervals."""


def interval(lo: float, hi: float) -> Interval:
    """Return ``(lo, hi)``, refused unless finite, with subnormal ends moved to zero.

    Examples
    --------
    >>> interval(5e-324, 1.0)
    (0.0, 1.0)
    """
    if not (math.isfinite(lo) and math.isfinite(hi)):
        raise UndefinedError("the result overflows")
    if 0.0 < lo < SMALLEST_NORMAL:
        lo = 0.0
    if -SMALLEST_NORMAL < hi < 0.0:
        hi = 0.0
    return float(lo), float(hi)


def _widened(lo: float, hi: float) -> Interval:
    # A zero end stays: the functions that use this are exactly zero only where the true value is.
    if not (math.isfinite(lo) and math.isfinite(hi)):
        raise UndefinedError("the result overflows")
    # Products, not sums of units in the last place, are monotone across powers of two.
    lo *= 1.0 - _SLACK if lo > 0.0 else 1.0 + _SLACK
    hi *= 1.0 + _SLACK if hi > 0.0 else 1.0 - _SLACK
    return lo, hi


def add(a: Interval, b: Interval) -> Interval:
    """Return the range of ``a + b``."""
    return interval(a[0] + b[0], a[1] + b[1])


def subtract(a: Interval, b: Interval) -> Interval:
    """Return the range of ``a - b``."""
    return interval(a[0] - b[1], a[1] - b[0])


def multiply(a: Interval, b: Interval) -> Interval:
    """Return the range of ``a * b``."""
    corners = [p * q for p in a for q in b]
    return interval(min(corners), max(corners))


def divide(a: Interval, b: Interval) -> Interval:
    """Return the range of ``a / b``.

    Examples
    --------
    >>> divide((1.0, 2.0), (4.0, 8.0))
    (0.125, 0.5)
    """
    _refuse_zero(b)
    corners = [p / q for p in a for q in b]
    return interval(min(corners), max(corners))


def floor_divide(a: Interval, b: Interval) -> Interval:
    """Return the range of ``a // b``."""
    _refuse_zero(b)
    divide(a, b)
    # The exact floor: the rounded quotient 1 / 0.1 is 10, but 1 // 0.1 is 9.
    corners = [float(Fraction(p) // Fraction(q)) for p in a for q in b]
    lo, hi = min(corners), max(corners)
    if max(abs(lo), abs(hi)) >= _EXACT_INTEGERS:
        lo, hi = _widened(lo, hi)
    return interval(lo, hi)


def remainder(a: Interval, b: Interval) -> Interval:
    """Return the range of ``a % b``, which has the sign of ``b``."""
    _refuse_zero(b)
    if b[1] < 0.0:
        return negative(remainder(negative(a), negative(b)))
    if a[0] >= 0.0:
        # Both ends attained: a number below the divisor is its own remainder.
        return a if a[1] < b[0] else interval(0.0, min(a[1], b[1]))
    # Closed at b: -1e-20 % 1 is rounded up to 1.
    return interval(0.0, b[1])


def _refuse_zero(divisor: Interval) -> None:
    if divisor[0] <= 0.0 <= divisor[1]:
        raise UndefinedError("the divisor may be 0")


def power(base: Interval, exponent: Interval) -> Interval:
    """Return the range of ``base ** exponent``.

    Examples
    --------
    >>> power((-2.0, 1.0), (2.0, 2.0))
    (0.0, 4.0)
    """
    if exponent[0] != exponent[1]:
        return _power_of_nonnegative(base, exponent)
    n = exponent[0]
    if n == 0.0:
        return 1.0, 1.0
    if n == 1.0:
        return base
    if n == 2.0:
        return square(base)
    if n != math.floor(n):
        return _power_of_nonnegative(base, exponent)
    if n < 0.0 and base[0] <= 0.0 <= base[1]:
        raise UndefinedError("0 has no negative power")
    even = math.fmod(n, 2.0) == 0.0
    return _power_corners(absolute(base) if even else base, exponent)


def _power_of_nonnegative(base: Interval, exponent: Interval) -> Interval:
    if base[0] < 0.0:
        if exponent[0] != exponent[1]:
            raise UndefinedError("a power that is not constant needs a base that is never negative")
        raise UndefinedError("a negative number has no fractional power")
    if base[0] == 0.0 and exponent[0] < 0.0:
        raise UndefinedError("0 has no negative power")
    return _power_corners(base, exponent)


def _power_corners(base: Interval, exponent: Interval) -> Interval:
    # Monotone in each argument, so the extremes are at the corners.
    with np.errstate(all="ignore"):
        corners = [float(np.float64(p) ** np.float64(q)) for p in base for q in exponent]
    lo, hi = _widened(min(corners), max(corners))
    # Underflow: the true value is not zero although the corner is.
    if hi == 0.0 and base[1] > 0.0:
        hi = SMALLEST_NORMAL
    if lo == 0.0 and base[0] < 0.0:
        lo = -SMALLEST_NORMAL
    if base[0] >= 0.0:
        lo = max(lo, 0.0)
    if base[1] <= 0.0 and base[0] < 0.0:
        hi = min(hi, 0.0)
    return interval(lo, hi)


def negative(a: Interval) -> Interval:
    """Return the range of ``-a``."""
    return interval(-a[1], -a[0])


def positive(a: Interval) -> Interval:
    """Return the range of ``+a``."""
    return a


def absolute(a: Interval) -> Interval:
    """Return the range of ``abs(a)``."""
    lo, hi = abs(a[0]), abs(a[1])
    return (0.0 if a[0] <= 0.0 <= a[1] else min(lo, hi)), max(lo, hi)


def square(a: Interval) -> Interval:
    """Return the range of ``a * a`` with both factors the same."""
    lo, hi = absolute(a)
    return interval(lo * lo, hi * hi)


def sqrt(a: Interval) -> Interval:
    """Return the range of the square root."""
    if a[0] < 0.0:
        raise UndefinedError("a negative number has no square root")
    return math.sqrt(a[0]), math.sqrt(a[1])


def _monotone(
    function: Callable[[float], float], a: Interval, floor: float, ceiling: float
) -> Interval:
    with np.errstate(all="ignore"):
        lo, hi = _widened(float(function(a[0])), float(function(a[1])))
    return interval(max(lo, floor), min(hi, ceiling))


def _logarithm(function: Callable[[float], float], pole: float) -> Callable[[Interval], Interval]:
    def enclose(a: Interval) -> Interval:
        if a[0] <= pole:
            raise UndefinedError(f"a number <= {pole:g} has no such logarithm")
        return _monotone(function, a, -math.inf, math.inf)

    return enclose


log = _logarithm(np.log, 0.0)
log2 = _logarithm(np.log2, 0.0)
log10 = _logarithm(np.log10, 0.0)
log1p = _logarithm(np.log1p, -1.0)


def exp(a: Interval) -> Interval:
    """Return the range of the exponential."""
    lo, hi = _monotone(np.exp, a, 0.0, math.inf)
    return lo, max(hi, SMALLEST_NORMAL)


def expm1(a: Interval) -> Interval:
    """Return the range of ``exp(a) - 1``."""
    return _monotone(np.expm1, a, -1.0, math.inf)


def tanh(a: Interval) -> Interval:
    """Return the range of the hyperbolic tangent."""
    return _monotone(np.tanh, a, -1.0, 1.0)


def arctan(a: Interval) -> Interval:
    """Return the range of the inverse tangent."""
    return _monotone(np.arctan, a, -2.0, 2.0)


def sin(a: Interval) -> Interval:
    """Return the range of the sine."""
    return _wave(math.sin, a, 0.25 * _TURN)


def cos(a: Interval) -> Interval:
    """Return the range of the cosine."""
    return _wave(math.cos, a, 0.0)


def _wave(function: Callable[[float], float], a: Interval, peak: float) -> Interval:
    # Beyond 1e6 the place of a peak is not known well enough to be worth the trouble.
    if a[1] - a[0] >= _TURN or max(abs(a[0]), abs(a[1])) > 1e6:
        return -1.0, 1.0

    def crosses(point: float) -> bool:
        lo, hi = a[0] - 1e-6, a[1] + 1e-6
        return point + _TURN * math.ceil((lo - point) / _TURN) <= hi

    ends = function(a[0]), function(a[1])
    lo = -1.0 if crosses(peak + 0.5 * _TURN) else max(min(ends) - 1e-12, -1.0)
    hi = 1.0 if crosses(peak) else min(max(ends) + 1e-12, 1.0)
    return lo, hi


def sign(a: Interval) -> Interval:
    """Return the range of the sign."""
    return float(np.sign(a[0])), float(np.sign(a[1]))


def floor(a: Interval) -> Interval:
    """Return the range of the largest integer that is not above."""
    return float(np.floor(a[0])), float(np.floor(a[1]))


def ceil(a: Interval) -> Interval:
    """Return the range of the smallest integer that is not below."""
    return float(np.ceil(a[0])), float(np.ceil(a[1]))


def minimum(a: Interval, b: Interval) -> Interval:
    """Return the range of the smaller of two."""
    return min(a[0], b[0]), min(a[1], b[1])


def maximum(a: Interval, b: Interval) -> Interval:
    """Return the range of the larger of two."""
    return max(a[0], b[0]), max(a[1], b[1])


def clip(a: Interval, lower: Interval, upper: Interval) -> Interval:
    """Return the range of ``np.clip``."""
    return minimum(maximum(a, lower), upper)


def where(condition: Interval, a: Interval, b: Interval) -> Interval:
    """Return the range of ``np.where``, of which numpy evaluates both branches."""
    return hull(a, b)


def hull(a: Interval, b: Interval) -> Interval:
    """Return the smallest interval that holds both."""
    return min(a[0], b[0]), max(a[1], b[1])


def truth(*operands: Interval) -> Interval:
    """Return the range of a comparison, or of True and False combined."""
    return 0.0, 1.0
