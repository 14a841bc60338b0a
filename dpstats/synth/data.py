"""From a long or wide panel to checked arrays: every dtype decision lives here."""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.errors import PanelError
from dpstats.hints import column_hint
from dpstats.passed import passed
from dpstats.synth.axis import TimeAxis, read_axis

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from dpstats.privacy.noise import FloatArray

__all__ = ["Cells", "before_after", "read_panel"]

_ROLES = ("treat", "treated")
# an axis with more labels is likely a column of data
_MOST_PERIODS = 1000
# how alike a label must be to be named
_NEAR = 0.8


@dataclass(frozen=True, slots=True)
class Cells:
    """A checked panel, in the units of the data, not clipped yet.

    Attributes
    ----------
    donors : ndarray
        Shape (n, T), in the order of the sorted unit labels; columns in order of time.
    targets : ndarray
        Shape (g, T), the treated series in the order in which they were named.
    missing : ndarray of bool or None
        Shape (n, T): missing cells of the donors, where they may be kept.
    axis : TimeAxis
    pre_periods : int
        T0 as a number of periods.
    treated : tuple
        Labels of the treated units, as text and numbers.
    labels : Index
        Labels of the donors. They belong to those who are protected: only results of an exact run
        may hold them.
    unit, outcome : str
        Names of the columns.
    """

    donors: FloatArray
    targets: FloatArray
    missing: NDArray[np.bool_] | None
    axis: TimeAxis
    pre_periods: int
    treated: tuple[int | float | str, ...]
    labels: pd.Index[Any]
    unit: str
    outcome: str

    @property
    def n(self) -> int:
        """Number of donors (public)."""
        return int(self.donors.shape[0])


@dataclass(frozen=True, slots=True)
class _Grid:
    """Cells of all units, units sorted."""

    cells: FloatArray
    units: pd.Index[Any]
    axis: TimeAxis
    unit: str
    outcome: str


def read_panel(
    panel: pd.DataFrame,
    *,
    T0: Any,
    unit: Any = None,
    time: Any = None,
    treated: Any = None,
    outcome: Any = None,
    wide: bool = False,
    keep: bool = False,
) -> Cells:
    """Check a panel and split it into donors and targets.

    Parameters
    ----------
    panel : DataFrame
        Long (one row a unit and period) or, with `wide`, units x periods. Never modified.
    T0 : label
        Last period before the intervention.
    unit, time, treated, outcome
        As for `dpstats.dp_synth`.
    wide : bool
        Whether rows are units and columns are periods.
    keep : bool
        Whether missing cells of donors are kept.

    Returns
    -------
    Cells

    Raises
    ------
    PanelError
        If the panel is no panel, or a label is not in it. No message holds a value of the data, or
        the label of a unit but for one that is like the label asked for.
    """
    import pandas as pd

    if not isinstance(panel, pd.DataFrame):
        raise PanelError(f"`panel` must be a DataFrame; got {type(panel).__name__}")
    if not isinstance(wide, bool | np.bool_):
        raise PanelError(f"`wide` must be True or False; got {passed(wide)}")
    if wide:
        grid = _read_wide(panel, unit=unit, time=time, outcome=outcome)
        marks = None
    else:
        grid, marks = _read_long(panel, unit, time, outcome, needs_marks=treated is None)
    before = before_after(grid.axis, T0)
    if treated is None:
        if marks is None:
            raise PanelError("`treated` must name the treated unit of a wide panel; got None")
        places = _marked(marks, before)
    else:
        places = _named(treated, grid)
    return _split(grid, places, before, keep=keep)


def before_after(axis: TimeAxis, T0: Any, *, name: str = "T0") -> int:
    """Return the number of periods up to the label `T0`.

    Raises
    ------
    PanelError
        If it is not on the axis, or leaves fewer than two periods before or none after.
    """
    shown = f"column {axis.name!r}"
    place = axis.position(T0)
    if place is None:
        kind = f"labels of kind {axis.kind!r}, compared as they are"
        raise PanelError(
            f"`{name}` must be a label of the time axis ({shown}; {kind}); got {passed(T0)} "
            f"({type(T0).__name__}){_time_hint(axis, T0)}"
        )
    if place == 0:
        raise PanelError(
            f"`{name}` must leave at least two periods before the intervention ({shown}); "
            f"got {passed(T0)}, the first"
        )
    if place == axis.size - 1:
        raise PanelError(
            f"`{name}` must leave a period after the intervention ({shown}); got {passed(T0)}, "
            "the last"
        )
    return place + 1


def _time_hint(axis: TimeAxis, T0: Any) -> str:
    """Say which label may be meant, or from when to when the axis runs: its labels are public."""
    words = axis.words()
    if isinstance(T0, str) and axis.kind == "number" and T0.strip() in words:
        return f": use {T0.strip()}, a number"
    # a column of data in the place of the axis has more labels than any axis, and shows none
    if axis.size > _MOST_PERIODS:
        return ""
    return f". The axis runs from {words[0]} to {words[-1]}"


def _read_long(
    panel: pd.DataFrame, unit: Any, time: Any, outcome: Any, *, needs_marks: bool
) -> tuple[_Grid, NDArray[np.bool_] | None]:
    for argument, name in (("unit", unit), ("time", time)):
        if name is None:
            raise PanelError(
                f"`{argument}` must name a column of a long `panel`; got None (wide=True: rows are "
                "units, columns are periods)"
            )
        _check_column(panel, argument, name)
    if unit == time:
        raise PanelError(f"`unit` and `time` must name two columns; both are {unit!r}")
    outcome = _outcome_column(panel, unit, time, outcome)
    values = _numbers(panel[outcome], outcome)
    if len(panel) == 0:
        raise PanelError("`panel` must have rows; it has none")
    codes, labels = _codes(panel[unit], "unit", unit)
    periods, stamps = _codes(panel[time], "time", time)
    axis, order = read_axis(stamps, str(time))
    units = _sorted_units(labels)
    cells = _ranks(units)[codes]
    cells *= axis.size
    cells += _ranks(order)[periods]
    count = labels.size * axis.size
    seen = np.zeros(count, dtype=np.bool_)
    seen[cells] = True
    filled = int(np.count_nonzero(seen))
    if filled < len(panel):
        raise PanelError(
            f"`panel` must have one row for each unit and period: a pair of {unit!r} and {time!r} "
            "stands in several rows"
        )
    matrix = np.empty(count) if filled == count else np.full(count, np.nan)
    matrix[cells] = values
    grid = _Grid(
        matrix.reshape(labels.size, axis.size), labels[units], axis, str(unit), str(outcome)
    )
    if not needs_marks:
        return grid, None
    marks = np.zeros(count, dtype=np.bool_)
    marks[cells] = _marks(panel, exclude=(unit, time, outcome))
    return grid, marks.reshape(labels.size, axis.size)


def _read_wide(panel: pd.DataFrame, *, unit: Any, time: Any, outcome: Any) -> _Grid:
    import pandas as pd

    for argument, value in (("unit", unit), ("time", time), ("outcome", outcome)):
        if value is not None:
            raise PanelError(
                f"`{argument}` has no meaning with wide=True (rows are units, columns are "
                f"periods); got {passed(value)}"
            )
    if panel.index.nlevels > 1 or panel.columns.nlevels > 1:
        raise PanelError("`panel` must have one level of rows and of columns with wide=True")
    if 0 in panel.shape:
        raise PanelError(f"`panel` must have rows and columns; it has {panel.shape}")
    name = panel.columns.name
    label = "time" if name is None else str(name)
    stamps = panel.columns
    if stamps.has_duplicates:
        raise PanelError("`panel` must have one column a period; a label stands over several")
    if stamps.hasnans:
        raise PanelError("`panel` must have a label over each column; one is missing")
    if panel.index.hasnans:
        raise PanelError("`panel` must have a label for each row; one is missing")
    if panel.index.has_duplicates:
        raise PanelError("`panel` must have one row a unit; a label stands at several")
    if stamps.dtype == object:
        stamps = pd.Index(stamps.tolist())
    axis, order = read_axis(stamps, label)
    for place, dtype in enumerate(panel.dtypes):
        if not _is_numeric(dtype):
            raise PanelError(f"`panel` must hold numbers; column {panel.columns[place]!r} does not")
    values = panel.to_numpy(dtype=np.float64, na_value=np.nan)
    units = _sorted_units(panel.index)
    unit_name = "unit" if panel.index.name is None else str(panel.index.name)
    return _Grid(values[np.ix_(units, order)], panel.index[units], axis, unit_name, "outcome")


def _split(grid: _Grid, places: Sequence[int], before: int, *, keep: bool) -> Cells:
    chosen = np.zeros(grid.units.size, dtype=np.bool_)
    chosen[list(places)] = True
    if chosen.all():
        raise PanelError("`treated` must leave at least one donor; every unit is treated")
    targets = grid.cells[list(places)]
    donors = grid.cells[~chosen]
    missing = np.isnan(donors)
    gaps = bool(missing.any())
    if np.isnan(targets).any() or (gaps and not keep):
        raise PanelError(
            f"`panel` must have a value of {grid.outcome!r} for each unit and period; some are "
            "missing (as rows or as values): fill them by a rule of your own, or leave out the "
            "periods"
        )
    if not np.isfinite(targets).all():
        raise PanelError(f"`treated` must have finite values of {grid.outcome!r}")
    return Cells(
        donors,
        targets,
        missing if gaps else None,
        grid.axis,
        before,
        tuple(_label(grid.units[place]) for place in places),
        grid.units[~chosen],
        grid.unit,
        grid.outcome,
    )


def _codes(
    column: pd.Series[Any], argument: str, name: Any
) -> tuple[NDArray[np.intp], pd.Index[Any]]:
    import pandas as pd

    try:
        codes, labels = pd.factorize(column)
    except TypeError:
        raise PanelError(f"`{argument}` must hold labels; column {name!r} does not") from None
    if codes.size and codes.min() < 0:
        raise PanelError(f"`{argument}` must have a label in each row; column {name!r} has not")
    return codes, pd.Index(labels)


def _ranks(order: NDArray[Any]) -> NDArray[np.intp]:
    ranks = np.empty(order.size, dtype=np.intp)
    ranks[order] = np.arange(order.size)
    return ranks


def _sorted_units(labels: pd.Index[Any]) -> NDArray[np.intp]:
    """Return the public order of the units: by label, else by the text of the label."""
    import pandas as pd

    if isinstance(labels.dtype, pd.CategoricalDtype):
        labels = pd.Index(labels.tolist())
    try:
        return np.asarray(labels.argsort(), dtype=np.intp)
    except TypeError:
        text = [(type(label).__name__, str(label)) for label in labels]
        return np.array(sorted(range(len(text)), key=text.__getitem__), dtype=np.intp)


def _named(treated: Any, grid: _Grid) -> list[int]:
    """Find the treated units by label, compared as they are."""
    listed = isinstance(treated, list | tuple | set | np.ndarray) or hasattr(treated, "tolist")
    if isinstance(treated, tuple) and treated in grid.units:
        listed = False
    wanted = list(treated) if listed and np.ndim(treated) > 0 else [treated]
    if isinstance(treated, set):
        wanted = sorted(wanted, key=repr)
    if not wanted:
        raise PanelError("`treated` must name at least one unit; got an empty list")
    places: list[int] = []
    for label in wanted:
        # a column of data in the place of labels is not shown, not even one of its cells
        shown = passed(label if len(wanted) <= 6 else treated)
        place = _place(label, grid.units)
        if place is None:
            kind = "numbers" if _is_number_label(grid.units[0]) else type(grid.units[0]).__name__
            raise PanelError(
                f"`treated` must be a label of column {grid.unit!r}, or a list of them; got "
                f"{shown} ({type(label).__name__}). Labels are compared as they are, and those "
                f"of {grid.unit!r} are {kind}{_unit_hint(label, grid.units)}"
            )
        if place in places:
            raise PanelError(f"`treated` must name each unit once; got {shown} twice")
        places.append(place)
    return places


def _unit_hint(label: Any, units: pd.Index[Any]) -> str:
    """Return the one label that was probably meant: labels are public, others are not shown."""
    if not isinstance(label, str):
        return ""
    if _is_number_label(units[0]):
        return f": use {label.strip()}, a number" if label.strip() in map(str, units) else ""
    if not all(isinstance(unit, str) for unit in units):
        return ""
    near = difflib.get_close_matches(label.lower(), [unit.lower() for unit in units], 1, _NEAR)
    found = [unit for unit in units if near and unit.lower() == near[0]]
    return f" (near match: {found[0]!r})" if found else ""


def _place(label: Any, units: Any) -> int | None:
    if isinstance(label, bool | np.bool_) != isinstance(units[0], bool | np.bool_):
        return None
    try:
        found = units.get_indexer_for([label])
    except (TypeError, ValueError):
        return None
    place = int(found[0]) if len(found) == 1 else -1
    # an index of dates would also take text
    if place < 0 or isinstance(label, str) != isinstance(units[place], str):
        return None
    return place


def _marked(marks: NDArray[np.bool_], before: int) -> list[int]:
    """Find the treated units in a 0/1 column."""
    places = np.flatnonzero(marks.any(axis=1))
    if places.size == 0:
        raise PanelError("`treated` must be named: the 0/1 column of the panel has no 1")
    if marks[:, :before].any():
        raise PanelError(
            "`treated` must be named: the 0/1 column of the panel has a 1 at or before `T0`"
        )
    return [int(place) for place in places]


def _marks(panel: pd.DataFrame, exclude: tuple[Any, ...]) -> NDArray[np.bool_]:
    names = [name for name in _ROLES if name in panel.columns and name not in exclude]
    if len(names) != 1:
        found = "there are both" if names else "there is neither"
        raise PanelError(
            "`treated` must name the treated unit, unless `panel` has one 0/1 column 'treat' or "
            f"'treated'; {found}"
        )
    name = names[0]
    _check_column(panel, "treated", name)
    rule = f"`treated` must be named: column {name!r} is not 0/1"
    column = panel[name]
    if column.dtype == "category":
        column = column.astype(column.cat.categories.dtype)
    if not _is_numeric(column.dtype):
        raise PanelError(rule)
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    ones = values == 1.0
    if not np.all(ones | (values == 0.0)):
        raise PanelError(rule)
    return ones


def _outcome_column(panel: pd.DataFrame, unit: Any, time: Any, outcome: Any) -> Any:
    import pandas as pd

    if outcome is not None:
        _check_column(panel, "outcome", outcome)
        if outcome in (unit, time):
            raise PanelError(f"`outcome` must be a column of its own; got {passed(outcome)}")
        return outcome
    names: list[Any] = [
        name
        for name, dtype in panel.dtypes.items()
        if name not in (unit, time, *_ROLES)
        and _is_numeric(dtype)
        and not pd.api.types.is_bool_dtype(dtype)
    ]
    if len(names) != 1:
        found = ", ".join(f"{name!r}" for name in names) or "none"
        # a file without a header has cells of its first row for names
        found = found if not names or column_hint("", panel.columns) else f"{len(names)} columns"
        raise PanelError(
            f"`outcome` must be named unless one numeric column is left beside `unit`, `time` and "
            f"the treatment; left are: {found}"
        )
    _check_column(panel, "outcome", names[0])
    return names[0]


def _numbers(column: pd.Series[Any], name: Any) -> FloatArray:
    if not _is_numeric(column.dtype):
        raise PanelError(
            f"`outcome` must be a numeric column; {name!r} has dtype {column.dtype} (numbers "
            "stored as objects: convert with astype(float))"
        )
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _is_numeric(dtype: Any) -> bool:
    import pandas as pd

    return bool(
        pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype)
    ) or bool(pd.api.types.is_bool_dtype(dtype))


def _check_column(panel: pd.DataFrame, argument: str, name: Any) -> None:
    try:
        present = isinstance(name, Hashable) and name in panel.columns
    except TypeError:
        present = False
    if not present:
        shown = repr(name) if isinstance(name, str | int | float) else type(name).__name__
        hint = column_hint(name, panel.columns) if isinstance(name, str) else ""
        raise PanelError(
            f"`{argument}` must name a column of `panel`; got {shown}{hint and f' ({hint})'}"
        )
    if list(panel.columns).count(name) > 1:
        raise PanelError(f"`{argument}` must name one column; `panel` has {name!r} more than once")


def _is_number_label(label: Any) -> bool:
    return isinstance(label, int | float | np.number) and not isinstance(label, bool | np.bool_)


def _label(label: Any) -> int | float | str:
    value = label.item() if isinstance(label, np.generic) else label
    return value if isinstance(value, int | float | str) else str(value)
