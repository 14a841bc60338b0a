"""The cells of a frame as strings, the same in every kind of report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dpstats.report._numbers import number

__all__ = ["Cells", "cells_of"]


@dataclass(frozen=True, slots=True)
class Cells:
    """A table as strings.

    Parameters
    ----------
    heads : tuple of str
        One a column, those of the index first.
    rows : tuple of tuple of str
    stubs : int
        How many of the columns are the index.
    numeric : tuple of bool
        Which columns are set flush right.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    stubs: int
    numeric: tuple[bool, ...]


def cells_of(frame: pd.DataFrame) -> Cells:
    """Return the cells of a frame; its index too, unless it only counts the rows.

    Floats get four significant digits and a minus sign, strings stay as they are, and what is
    missing is a dash.

    Examples
    --------
    >>> import pandas as pd
    >>> cells_of(pd.DataFrame({"eps": [0.5, 1e-6]}, index=["a", "b"])).rows
    (('a', '0.5'), ('b', '1e−06'))
    """
    counts = isinstance(frame.index, pd.RangeIndex) and frame.index.name is None
    stubs = 0 if counts else frame.index.nlevels
    labels = [_parts(key)[:stubs] for key in frame.index]
    names = ["" if name is None else str(name) for name in frame.index.names][:stubs]
    columns = [frame.iloc[:, j].tolist() for j in range(frame.shape[1])]
    heads = (*names, *(" ".join(map(str, _parts(name))) for name in frame.columns))
    rows = tuple(
        (*map(_cell, label), *(_cell(column[i]) for column in columns))
        for i, label in enumerate(labels)
    )
    return Cells(heads, rows, stubs, (*[False] * stubs, *map(_is_numeric, columns)))


def _parts(label: Any) -> tuple[Any, ...]:
    return label if isinstance(label, tuple) else (label,)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool | np.bool_)


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or value != value


def _is_numeric(column: list[Any]) -> bool:
    """Whether a column is set flush right: numbers, or strings that are numbers."""
    present = [value for value in column if not _is_missing(value) and value != ""]
    return bool(present) and all(_is_number(value) or _reads_as_number(value) for value in present)


def _reads_as_number(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value.replace(",", "").lstrip("<").rstrip("% "))
    except ValueError:
        return False
    return True


def _cell(value: Any) -> str:
    if _is_missing(value):
        return "\N{EN DASH}"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if _is_number(value):
        return number(value).replace("-", "\N{MINUS SIGN}")
    return str(value)
