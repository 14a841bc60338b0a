"""How numbers are written, the same everywhere."""

from __future__ import annotations

import math

__all__ = ["fixed", "number"]


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
