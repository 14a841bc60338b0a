"""How numbers are written, the same everywhere."""

from __future__ import annotations

import math
import numbers
from typing import TYPE_CHECKING, Any

from dpstats.errors import DPStatsError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_decimals", "fixed", "number", "places", "rounded", "signed_places"]

_MOST_DECIMALS = 10
# digits of a double after the point of what is below one
_ALL_DECIMALS = 15


def fixed(value: float, decimals: int = 4) -> str:
    """Write a number with fixed decimals, as statsmodels does.

    Numbers too small for that are written with `decimals` significant digits, those from 10,000 on
    with one decimal, those from ten million on in scientific notation.

    Parameters
    ----------
    value : float
        Any number.
    decimals : int
        Digits after the point.

    Returns
    -------
    str

    Examples
    --------
    >>> fixed(0.08391), fixed(0.097, 3), fixed(0.00042, 3), fixed(123456.7)
    ('0.0839', '0.097', '0.00042', '123456.7')
    """
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    if value and not 10.0**-decimals <= abs(value) < 1e7:
        return f"{value:.{decimals}g}"
    return f"{value:.{decimals if abs(value) < 1e4 else 1}f}"


def number(value: float, digits: int = 4) -> str:
    """Write a number with `digits` significant digits; tiny and huge ones in scientific notation.

    Parameters
    ----------
    value : float
        Any number, also an integer, which is written in full.
    digits : int
        Significant digits.

    Returns
    -------
    str

    Examples
    --------
    >>> number(0.3), number(1e-6), number(2 / 3), number(25000), number(1234567.8)
    ('0.3', '1e-06', '0.6667', '25000', '1.235e+06')
    """
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if 1e-4 <= abs(value) < 1e6:
        decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
        text = f"{value:.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.{digits}g}"


def check_decimals(decimals: Any) -> int | None:
    """Return the digits after the point that a user asked for; None where the errors decide.

    Raises
    ------
    DPStatsError
        If it is anything else than None or an integer from 0 to 10.
    """
    if decimals is None:
        return None
    whole = isinstance(decimals, numbers.Integral) and not isinstance(decimals, bool)
    if not whole or not 0 <= decimals <= _MOST_DECIMALS:
        raise DPStatsError(
            f"`decimals` must be an integer from 0 to {_MOST_DECIMALS}; got {decimals!r}"
        )
    return int(decimals)


def places(error: float, digits: int = 2) -> int | None:
    """Return the digits after the point that show a standard error with `digits` significant ones.

    Parameters
    ----------
    error : float
        A standard error.
    digits : int
        Significant digits; 2 is what tables are published with.

    Returns
    -------
    int or None
        None where the error is zero or not finite and says nothing about digits.

    Examples
    --------
    >>> places(0.8635), places(0.0996), places(671.0), places(0.0)
    (2, 2, 0, None)
    """
    error = abs(float(error))
    if error == 0.0 or not math.isfinite(error):
        return None
    # .0996 is .10 with two digits
    exponent = int(f"{error:.{digits - 1}e}".partition("e")[2])
    return max(digits - 1 - exponent, 0)


def signed_places(error: float, ends: Iterable[float], digits: int = 2) -> int | None:
    """Return the digits after the point of a row of numbers: as `places`, or more.

    An end of an interval that is not zero is not written as zero, since the reader looks on which
    side of zero it lies.

    Parameters
    ----------
    error : float
        A standard error.
    ends : iterable of float
        Ends of intervals in the row.
    digits : int
        Significant digits of the standard error.

    Returns
    -------
    int or None

    Examples
    --------
    >>> signed_places(1.06, (-4.16, -0.004)), signed_places(1.06, (-4.16, -0.1)), places(1.06)
    (3, 1, 1)
    """
    decimals = places(error, digits)
    if decimals is None:
        return None
    hidden = [float(end) for end in ends if math.isfinite(end) and end != 0.0]
    for more in range(decimals, _ALL_DECIMALS + 1):
        if all(float(rounded(end, more)) != 0.0 for end in hidden):
            return more
    return decimals


def rounded(value: float, decimals: int | None) -> str:
    """Write a number with fixed digits after the point.

    Parameters
    ----------
    value : float
        Any number.
    decimals : int or None
        As `places` gives them; None: four significant digits.

    Returns
    -------
    str
        In scientific notation only beyond ten digits after the point, or fifteen before it.

    Examples
    --------
    >>> rounded(3.3, 2), rounded(-0.001, 2), rounded(123456.7, 0), rounded(1.234e-12, 13)
    ('3.30', '0.00', '123457', '1.2e-12')
    """
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    if decimals is None:
        return number(value)
    size = abs(value)
    if size >= 1e15:
        return f"{value:.4g}"
    if decimals > _MOST_DECIMALS and 0.0 < size < 1e-4:
        exponent = math.floor(math.log10(size))
        return f"{value:.{min(max(exponent + decimals, 0), 15)}e}"
    text = f"{value:.{min(decimals, _ALL_DECIMALS)}f}"
    return text.lstrip("-") if float(text) == 0.0 else text
