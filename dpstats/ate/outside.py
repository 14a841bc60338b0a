r"""Private number of rows with a value outside its bounds or levels: the release "outside".

Notes
-----
*What is released.* The number of rows in which at least one value in use lies beyond its bounds,
stated or found privately before, or is none of the declared levels: the rows that clipping changes
(a value outside the levels counts as the first level). Bounds of derived terms are left out.

*Sensitivity.* Bounds and levels are public or were released before, so whether a row counts depends
on that row alone. The number is a sum of zeros and ones, of which replacing one row changes one: by
at most 1 in l1 and l2, attained by a row inside replaced by one outside. Numbers by column would
cost as many times more, since one row may be outside in every column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.errors import DPStatsError
from dpstats.report._numbers import number

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from dpstats.ate.data import Columns, Schema
    from dpstats.privacy.accounting import Release
    from dpstats.privacy.bounds import Interval
    from dpstats.privacy.mechanisms import Mechanisms

__all__ = [
    "OUTSIDE",
    "Outside",
    "check_countable",
    "outside_rows",
    "release_outside",
    "strange_values",
]

OUTSIDE = "outside"
# Laplace noise is beyond this many scales, Gaussian beyond so many sd, with a probability of .05
_LAPLACE, _GAUSSIAN = math.log(20.0), 1.96


@dataclass(frozen=True, slots=True)
class Outside:
    """A released number of rows with a value outside its bounds or levels.

    Attributes
    ----------
    count : float
        As released: with noise, also below zero or above n.
    sd : float
        Standard deviation of its noise.
    margin : float
        What the noise stays within with a probability of 95 %.
    n : int
    """

    count: float
    sd: float
    margin: float
    n: int

    @property
    def share(self) -> float:
        """Share of the rows, in [0, 1]."""
        return min(max(self.count / self.n, 0.0), 1.0)

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of 95 % of the share, over the noise."""
        low, high = self.count - self.margin, self.count + self.margin
        return min(max(low / self.n, 0.0), 1.0), max(min(high / self.n, 1.0), 0.0)

    def reading(self) -> str:
        """Say in words how many rows there are.

        Examples
        --------
        >>> Outside(120.0, 14.1, 30.0, 10_000).reading()
        '0.9% to 1.5% of the rows: clipping moves their values, and perhaps the estimate'
        >>> Outside(-3.0, 14.1, 30.0, 10_000).reading()
        'at most 0.27% of the rows; there may be none'
        """
        low, high = (f"{number(100.0 * edge, 2)}%" for edge in self.interval)
        moved = "of the rows: clipping moves their values, and perhaps the estimate"
        if self.margin == 0.0:
            return f"{low} {moved}" if self.count else "every value is within bounds and levels"
        if self.count <= self.margin:
            return f"at most {high} of the rows; there may be none"
        return f"{low} to {high} {moved}"

    def diagnostics(self) -> list[tuple[str, str, str]]:
        """Return the row of the diagnostics."""
        noise = f"; noise sd {self.sd:.3g} rows" if self.sd else ""
        value = f"{self.share * self.n:.0f}"
        return [("rows outside bounds or levels", value, f"{self.reading()}{noise}")]


def check_countable(schema: Schema, *, private: bool) -> None:
    """Refuse, before anything is spent, a call in which nothing can be outside.

    Raises
    ------
    DPStatsError
        If no column in use has bounds or levels.
    """
    kinds = schema.kinds.items()
    numeric = [name for name, kind in kinds if kind.kind == "numeric"]
    if not private:
        # the others have the range of the data for bounds
        numeric = [name for name in numeric if name in schema.bounds]
    if not (numeric or schema.levels):
        raise DPStatsError("`check_bounds` needs a column in use with bounds or levels; got none")


def strange_values(column: pd.Series[Any], levels: tuple[Any, ...]) -> NDArray[np.bool_]:
    """Return where a column has a value that is none of the levels and is not missing.

    Parameters
    ----------
    column : Series
    levels : tuple

    Examples
    --------
    >>> import pandas as pd
    >>> strange_values(pd.Series(["a", "x", None, "b"]), ("a", "b")).tolist()
    [False, True, False, False]
    """
    import pandas as pd

    known = frozenset(levels)
    if isinstance(column.dtype, pd.CategoricalDtype):
        # the extra last entry is for the code -1 of a missing value
        strange = [not _holds(known, level) for level in column.cat.categories] + [False]
        return np.array(strange, dtype=bool)[column.cat.codes.to_numpy()]
    strange = [not _holds(known, value) for value in column.astype(object)]
    return np.array(strange, dtype=bool) & ~column.isna().to_numpy(dtype=bool)


def _holds(levels: frozenset[Any], value: Any) -> bool:
    """Whether a value is a level; one that cannot be looked up is none, and must not raise."""
    try:
        return value in levels
    except TypeError:
        return False


def outside_rows(
    columns: Columns, schema: Schema, bounds: Mapping[str, Interval]
) -> NDArray[np.bool_]:
    """Return which rows have a value outside its bounds or levels.

    Parameters
    ----------
    columns : Columns
        Not yet clipped.
    schema : Schema
        Which columns are in use.
    bounds : mapping of str to (float, float)
        Of every numeric column.
    """
    found = np.zeros(columns.n, dtype=bool)
    for name, kind in schema.kinds.items():
        if kind.kind == "numeric":
            low, high = bounds[name]
            values = columns.cells[name]
            found |= (values < low) | (values > high)
        elif name in columns.strange:
            found |= columns.strange[name]
    return found


def release_outside(
    columns: Columns, schema: Schema, bounds: Mapping[str, Interval], mechanisms: Mechanisms
) -> tuple[Outside, tuple[Release, ...]]:
    """Release the number of rows with a value outside its bounds or levels.

    Parameters
    ----------
    columns : Columns
        Not yet clipped.
    schema : Schema
        Which columns are in use.
    bounds : mapping of str to (float, float)
        Of every numeric column, public or released before.
    mechanisms : Mechanisms
    """
    count = float(outside_rows(columns, schema, bounds).sum())
    noisy = mechanisms.additive(OUTSIDE, [count], l1=1.0, l2=1.0, lattice=0)
    wide = _LAPLACE if mechanisms.kind == "laplace" else _GAUSSIAN
    sd = noisy.sd(mechanisms.kind)
    found = Outside(float(noisy.value[0]), sd, wide * noisy.scale, columns.n)
    return found, noisy.records
