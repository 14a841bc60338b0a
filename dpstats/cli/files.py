"""Data from files, and results into files that hold nothing else yet."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstats.errors import DPStatsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

__all__ = ["check_outputs", "read_data", "read_labels"]


def read_data(path: Path) -> pd.DataFrame:
    """Read a table.

    Parameters
    ----------
    path : Path
        CSV (``.csv``, ``.csv.gz``), tab-separated (``.tsv``), Parquet (``.parquet``) or Stata
        (``.dta``).

    Returns
    -------
    DataFrame
        With the types that pandas finds. Stata's value labels are not applied.

    Raises
    ------
    DPStatsError
        If it cannot be read. The message names the kind of the error, never its text.

    Notes
    -----
    pandas makes levels of those labelled values of a Stata file that occur in it, which would
    publish whether a rare one does; numbers are what Stata's own commands use.
    """
    name = path.name.lower()
    reader = next((read for ends, read in _READERS.items() if name.endswith(ends)), None)
    if reader is None:
        raise DPStatsError(f"`data` must end in {', '.join(_READERS)}; got {path.name!r}")
    if not path.is_file():
        raise DPStatsError(f"`data` must be a file; there is none at {path}")
    try:
        return reader(path)
    except DPStatsError:
        raise
    except Exception as error:
        failure = type(error).__name__
    # a parser quotes the line that it cannot read, so its error is no context of this one
    raise DPStatsError(
        f"`data` could not be read: {failure} in {path.name} (its text is not shown: it may hold "
        "data)"
    )


def _csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    # in one piece, so that a column has one type
    return pd.read_csv(path, low_memory=False)


def _tsv(path: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(path, sep="\t", low_memory=False)


def _parquet(path: Path) -> pd.DataFrame:
    import pandas as pd

    if importlib.util.find_spec("pyarrow") is None:
        raise DPStatsError("`data` in Parquet needs pyarrow, which is not installed")
    return pd.read_parquet(path, engine="pyarrow")


def _stata(path: Path) -> pd.DataFrame:
    import pandas as pd

    found = pd.read_stata(path, convert_categoricals=False)
    if not isinstance(found, pd.DataFrame):
        raise TypeError
    return found


_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": _csv,
    ".csv.gz": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
    ".dta": _stata,
}


def read_labels(panel: pd.DataFrame, arguments: Mapping[str, Any]) -> pd.DataFrame:
    """Give a panel from a file the labels that a text file cannot hold.

    Parameters
    ----------
    panel : DataFrame
        As read.
    arguments : dict
        Of `dpstats.dp_synth`.

    Returns
    -------
    DataFrame
        Time in ISO dates (``1988-12-31``) is dates, as is a TOML date. With `wide` the first
        column names the units, and periods are numbers or dates where all of them are.
    """
    import pandas as pd

    if arguments.get("wide") is True:
        if isinstance(panel.index, pd.RangeIndex) and panel.shape[1] > 0:
            panel = panel.set_index(panel.columns[0])
        return panel.set_axis(_stamps(panel.columns), axis=1)
    time = arguments.get("time")
    # labels of a time axis are public
    if isinstance(time, str) and list(panel.columns).count(time) == 1:
        column = panel[time]
        if pd.api.types.is_string_dtype(column.dtype) and not column.isna().any():
            dates = _dates(column)
            return panel if dates is None else panel.assign(**{time: dates})
    return panel


def _stamps(labels: pd.Index[Any]) -> pd.Index[Any]:
    import pandas as pd

    texts = [str(label) for label in labels]
    if all(text.isascii() and text.isdigit() for text in texts):
        return pd.Index([int(text) for text in texts])
    dates = _dates(pd.Series(texts, dtype=object))
    return labels if dates is None else pd.Index(dates)


def _dates(column: pd.Series[Any]) -> pd.Series[Any] | None:
    """Return ISO dates, None where a text is none."""
    import pandas as pd

    if not column.astype(str).str.fullmatch(r"\d{4}-\d{2}-\d{2}").all():
        return None
    try:
        return pd.to_datetime(column, format="%Y-%m-%d")
    except ValueError:
        return None


def check_outputs(outputs: Mapping[str, str], inputs: Mapping[str, Path | None]) -> None:
    """Refuse what could not be written, before any budget is spent.

    Parameters
    ----------
    outputs : dict of str to str
        Files to write, by the name of the option.
    inputs : dict of str to Path or None
        Files that must not be overwritten.

    Raises
    ------
    DPStatsError
    """
    taken = {path.resolve(): name for name, path in inputs.items() if path is not None}
    for name, text in outputs.items():
        path = Path(text)
        target = path.resolve()
        if target in taken:
            raise DPStatsError(f"`{name}` must be a file of its own; {path} is the {taken[target]}")
        taken[target] = name
        if path.is_dir():
            raise DPStatsError(f"`{name}` must be a file; {path} is a folder")
        if not target.parent.is_dir():
            raise DPStatsError(f"`{name}` must lie in a folder that exists; got {path}")
        # a file is replaced by one written beside it; a device or a pipe is written to
        places = [path] if path.exists() else []
        places += [] if path.exists() and not path.is_file() else [target.parent]
        if not all(os.access(place, os.W_OK) for place in places):
            raise DPStatsError(f"`{name}` must be a file that can be written; got {path}")
    for name, endings in _ENDINGS.items():
        if name in outputs and not outputs[name].lower().endswith(endings):
            raise DPStatsError(f"`{name}` must end in {' or '.join(endings)}; got {outputs[name]}")


_ENDINGS = {"report": (".html", ".htm", ".tex", ".md", ".markdown"), "csv": (".csv",)}
