"""The time axis of a panel: labels in order, kept as text and numbers only."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpstats.errors import PanelError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TimeAxis", "read_axis"]

# gaps that are named
_MOST_GAPS = 3

Kind = Literal["number", "datetime", "timedelta", "period", "date", "category"]


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Labels of the periods, in order of time.

    Attributes
    ----------
    name : str
        Column that held them, or "time".
    kind : str
        What they are.
    labels : tuple
        Numbers as they are; dates and times as ISO text (UTC where there is a time zone), a period
        as its start.
    detail : str
        Time zone or frequency; else empty.
    """

    name: str
    kind: Kind
    labels: tuple[int | float | str, ...]
    detail: str = ""

    @property
    def size(self) -> int:
        """Number of periods, T."""
        return len(self.labels)

    def index(self) -> pd.Index[Any]:
        """Return the axis as a pandas Index."""
        import pandas as pd

        listed: list[Any] = list(self.labels)
        if self.kind == "datetime":
            found = pd.DatetimeIndex([pd.Timestamp(text) for text in listed], name=self.name)
            return found.tz_localize("UTC").tz_convert(self.detail) if self.detail else found
        if self.kind == "timedelta":
            return pd.TimedeltaIndex([pd.Timedelta(text) for text in listed], name=self.name)
        if self.kind == "period":
            periods = [pd.Period(text, freq=self.detail) for text in listed]
            return pd.PeriodIndex(periods, name=self.name)
        if self.kind == "date":
            dates = [datetime.date.fromisoformat(text) for text in listed]
            return pd.Index(dates, dtype=object, name=self.name)
        return pd.Index(listed, name=self.name)

    def words(self) -> tuple[str, ...]:
        """Return the labels as they are shown."""
        if self.kind == "datetime":
            days = all(text.endswith("T00:00:00") for text in map(str, self.labels))
            return tuple(str(stamp.date() if days else stamp) for stamp in self.index())
        return tuple(str(label) for label in self.index())

    def position(self, label: Any) -> int | None:
        """Return the place of a label, or None: labels are compared as they are."""
        wanted = self._comparable(label)
        if wanted is None:
            return None
        for place, known in enumerate(self.index()):
            if known == wanted:
                return place
        return None

    def gaps(self) -> str:
        """Say in words where labels are not evenly spaced; empty where they are, or have no length.

        Months, quarters, years and working days count as even. Labels of time are public.
        """
        steps = self._steps()
        if steps is None or len(set(steps.tolist())) <= 1:
            return ""
        words = self.words()
        usual = float(np.median(steps))
        at = [place for place, step in enumerate(steps.tolist()) if step != usual]
        named = [f"{words[place]} to {words[place + 1]}" for place in at[:_MOST_GAPS]]
        more = len(at) - len(named)
        return ", ".join(named) + (f" and {more} more" if more else "")

    def _steps(self) -> np.ndarray[Any, Any] | None:
        """Return the distances between neighbours, None where there are none."""
        import pandas as pd

        index: Any = self.index()
        if self.kind == "category" or self.size < 3:
            return None
        if self.kind == "number":
            steps = np.diff(np.asarray(index, dtype=np.float64))
            # decimals (1990.25) are not exact
            return np.asarray(np.round(steps / np.median(steps), 6))
        if self.kind == "period":
            return np.asarray(np.diff(np.array([period.ordinal for period in index])))
        if self.kind == "timedelta":
            return np.asarray(np.diff(index.asi8))
        dates = pd.DatetimeIndex(index)
        ends = bool((dates.days_in_month == dates.day).all())
        if dates.tz is not None:
            dates = dates.tz_localize(None)
        if (ends or len(set(dates.day)) == 1) and bool((dates == dates.normalize()).all()):
            return np.asarray(np.diff(12 * dates.year + dates.month))
        if bool((dates == dates.normalize()).all()) and bool((dates.day_of_week < 5).all()):
            days = dates.to_numpy().astype("datetime64[D]")
            return np.asarray(np.busday_count(days[:-1], days[1:]))
        return np.asarray(np.diff(dates.asi8))

    def _comparable(self, label: Any) -> Any:
        import pandas as pd

        if isinstance(label, bool | np.bool_):
            return None
        if self.kind == "number":
            return label if isinstance(label, int | float | np.integer | np.floating) else None
        if self.kind == "datetime":
            if not isinstance(label, datetime.date | np.datetime64):
                return None
            return pd.Timestamp(label)
        if self.kind == "period":
            same = isinstance(label, pd.Period) and label.freqstr == self.detail
            return label if same else None
        if self.kind == "date":
            plain = isinstance(label, datetime.date) and not isinstance(label, datetime.datetime)
            return label if plain else None
        if self.kind == "timedelta":
            known = isinstance(label, datetime.timedelta | np.timedelta64)
            return pd.Timedelta(label) if known else None
        return label if isinstance(label, str | int | float) else None


def read_axis(labels: pd.Index[Any], name: str) -> tuple[TimeAxis, np.ndarray[Any, Any]]:
    """Sort the distinct labels of a time column.

    Parameters
    ----------
    labels : Index
        Distinct labels in any order, none missing.
    name : str
        Column they come from.

    Returns
    -------
    axis : TimeAxis
    order : ndarray of int
        Positions of `labels` in order of time.

    Raises
    ------
    PanelError
        If the labels have no order in time: text, or a mixture.
    """
    import pandas as pd

    dtype = labels.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        if not dtype.ordered:
            return read_axis(pd.Index(labels.astype(dtype.categories.dtype)), name)
        order = np.argsort(np.asarray(pd.Categorical(labels).codes), kind="stable")
        kept = (labels[place] for place in order)
        return TimeAxis(name, "category", tuple(_plain(label) for label in kept)), order
    kind, values = _sortable(labels, name)
    order = np.argsort(np.asarray(values), kind="stable")
    ordered = values[order]
    if kind == "number":
        return TimeAxis(name, kind, tuple(ordered.tolist())), order
    if kind == "datetime":
        zone = getattr(ordered, "tz", None)
        stamps = ordered.tz_convert("UTC").tz_localize(None) if zone is not None else ordered
        text = tuple(stamp.isoformat() for stamp in stamps)
        return TimeAxis(name, kind, text, "" if zone is None else str(zone)), order
    if kind == "period":
        starts = tuple(period.start_time.isoformat() for period in ordered)
        return TimeAxis(name, kind, starts, str(ordered.freqstr)), order
    return TimeAxis(name, kind, tuple(label.isoformat() for label in ordered)), order


def _sortable(labels: pd.Index[Any], name: str) -> tuple[Kind, Any]:
    import pandas as pd

    dtype: Any = labels.dtype
    rule = f"`time` must hold numbers, dates or an ordered Categorical; column {name!r} holds"
    if isinstance(dtype, pd.PeriodDtype):
        return "period", labels
    if dtype.kind == "M" or isinstance(dtype, pd.DatetimeTZDtype):
        return "datetime", labels
    if dtype.kind == "m":
        return "timedelta", labels
    if pd.api.types.is_numeric_dtype(dtype) and dtype.kind in "iuf":
        numbers = labels.to_numpy(dtype=float if dtype.kind == "f" else np.int64)
        if not np.isfinite(numbers).all():
            raise PanelError(f"{rule} a number that is not finite")
        return "number", numbers
    found = pd.api.types.infer_dtype(labels, skipna=False)
    if found == "string" or isinstance(dtype, pd.StringDtype):
        raise PanelError(
            f"{rule} text, whose order is not that of time ('10' sorts before '2'): convert it to "
            "numbers or dates, or to pd.Categorical(..., ordered=True)"
        )
    if found == "date":
        return "date", labels
    if found in {"datetime", "datetime64", "period", "integer", "floating", "timedelta"}:
        return _sortable(pd.Index(labels.tolist()), name)
    raise PanelError(f"{rule} {'bool' if found == 'boolean' else 'labels of several kinds'}")


def _plain(label: Any) -> int | float | str:
    value = label.item() if isinstance(label, np.generic) else label
    return value if isinstance(value, int | float | str) else str(value)
