"""Summaries in the form statsmodels users know: text, HTML, LaTeX and CSV."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pandas as pd

from dpstats.report._numbers import fixed, number, rounded, signed_places

if TYPE_CHECKING:
    from dpstats.report._statsmodels import PrivateSummary, ReportTable

__all__ = [
    "PrivateSummary",
    "SummaryContent",
    "TableContent",
    "build_summary",
    "coefficient_cells",
    "fixed",
    "number",
]

_COLUMNS = 6
_NUMERIC = re.compile(
    r"[-<]?[\d,]*\.?\d*(e[-+]?\d+)?(\s?%|\s\(\w+\))?|-?(nan|inf)|-+|n/a", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class TableContent:
    """One further table of a summary.

    Parameters
    ----------
    title : str
        May be empty.
    headers : tuple of str
        One a column; empty for a table without a header.
    rows : tuple of tuple of str
        The first column names the rows. Columns of numbers are set flush right.

    Examples
    --------
    >>> TableContent("Releases", ("release", "epsilon"), (("counts", "0.5"),)).title
    'Releases'
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class SummaryContent:
    """Everything a summary shows, as plain values.

    Parameters
    ----------
    title : str
        Stands over the summary.
    left, right : tuple of (str, str)
        Labels and values at the top, in two columns.
    coefficients : DataFrame
        One row a parameter (the index may have several levels) and the columns
        `coef, std err, z, P>|z|, lower, upper`, in this order.
    level : float
        Of the intervals `lower, upper`; .95 is shown as `[0.025` and `0.975]`.
    tables : tuple of TableContent
        Shown below the coefficients.
    notes : tuple of str
        Numbered from 1.
    banner : str or None
        Shown first and last in every format.
    warnings : tuple of str
        Numbered from W1, above the notes; the top of the summary says how many there are.
    decimals : int or None
        Digits after the point of coefficients, errors and intervals; None: as many as show the
        standard error with two significant digits, and on which side of zero the interval ends.

    See Also
    --------
    build_summary : makes the summary.
    """

    title: str
    left: tuple[tuple[str, str], ...]
    right: tuple[tuple[str, str], ...]
    coefficients: pd.DataFrame
    level: float
    tables: tuple[TableContent, ...] = ()
    notes: tuple[str, ...] = ()
    banner: str | None = None
    warnings: tuple[str, ...] = ()
    decimals: int | None = None


def build_summary(content: SummaryContent) -> PrivateSummary:
    """Make a statsmodels `Summary` out of plain values.

    Parameters
    ----------
    content : SummaryContent
        Strings of any kind; they are escaped and wrapped here.

    Returns
    -------
    PrivateSummary
        A subclass of `statsmodels.iolib.summary.Summary` with `as_text`, `as_html`, `as_latex` and
        `as_csv`. Jupyter shows the HTML, `print` the text.

    Raises
    ------
    ValueError
        If `coefficients` does not have the six columns.

    Notes
    -----
    Text is 78 columns wide where that is enough and at most 100; long cells are wrapped, and a
    table with too many columns goes on below. The layout is ASCII and names are printed as they
    are, except control characters and direction marks, which are written out. The LaTeX needs no
    package and fits a one-column article.

    Examples
    --------
    >>> import pandas as pd
    >>> coefficients = pd.DataFrame(
    ...     [[1.794, 0.671, 2.674, 0.007, 0.479, 3.109]],
    ...     index=["ATE"],
    ...     columns=["coef", "std err", "z", "P>|z|", "lower", "upper"],
    ... )
    >>> content = SummaryContent(
    ...     "Private treatment effect",
    ...     (("Dep. Variable:", "re78"),),
    ...     (("No. Observations:", "445"),),
    ...     coefficients,
    ...     0.95,
    ... )
    >>> print(build_summary(content))
                               Private treatment effect
    ==============================================================================
    Dep. Variable:                   re78   No. Observations:                  445
    ==============================================================================
              coef       std err           z       P>|z|       [0.025       0.975]
    ------------------------------------------------------------------------------
    ATE       1.79          0.67       2.674       0.007         0.48         3.11
    ==============================================================================
    """
    from dpstats.report._statsmodels import PrivateSummary

    tables = [_header(content), _coefficients(content)]
    tables += [_further(table) for table in content.tables]
    return PrivateSummary(tables, content.notes, content.banner, content.warnings)


def _header(content: SummaryContent) -> ReportTable:
    from dpstats.report._statsmodels import ReportTable

    count = len(content.warnings)
    told = (("Warnings:", f"{count}, see below"),) if count else ()
    rows = [
        (*left, *right)
        for left, right in zip_longest(content.left, (*content.right, *told), fillvalue=("", ""))
    ]
    return ReportTable(rows, title=content.title, aligns="lrlr", stubs=(0, 2), pairs=True)


def coefficient_cells(content: SummaryContent) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows of the table of coefficients as strings, without its labels.

    Parameters
    ----------
    content : SummaryContent

    Returns
    -------
    heads : list of str
    rows : list of list of str

    Raises
    ------
    ValueError
        If `coefficients` does not have the six columns.
    """
    frame, tail = content.coefficients, (1 - content.level) / 2
    if frame.shape[1] != _COLUMNS:
        raise ValueError(
            "`coefficients` must have the columns coef, std err, z, P>|z|, lower, upper; "
            f"got {frame.shape[1]} columns"
        )
    heads = [*map(str, frame.columns[:4]), f"[{number(tail)}", f"{number(1 - tail, 6)}]"]
    rows = []
    for coef, error, z, pvalue, *ends in frame.to_numpy(dtype=float):
        digits = signed_places(error, ends) if content.decimals is None else content.decimals
        first, second, *last = (rounded(x, digits) for x in (coef, error, *ends))
        # the p-value never in scientific notation
        rows.append([first, second, fixed(z, 3), f"{pvalue:.3f}", *last])
    return heads, rows


def _coefficients(content: SummaryContent) -> ReportTable:
    from dpstats.report._statsmodels import ReportTable

    frame = content.coefficients
    heads, cells = coefficient_cells(content)
    stubs = frame.index.nlevels
    names = ["" if name is None else str(name) for name in frame.index.names]
    rows = [[*_labels(label), *row] for label, row in zip(frame.index, cells, strict=True)]
    return ReportTable(
        rows or [["(none)"] * stubs + [""] * len(heads)],
        [*(names if stubs > 1 else [""]), *heads],
        aligns="l" * stubs + "r" * len(heads),
        stubs=range(stubs),
    )


def _labels(label: Hashable) -> list[str]:
    return [str(part) for part in label] if isinstance(label, tuple) else [str(label)]


def _further(table: TableContent) -> ReportTable:
    from dpstats.report._statsmodels import ReportTable

    count = max([len(table.headers), *map(len, table.rows), 1])
    rows = [_filled(row, count) for row in table.rows] or [_filled(["(none)"], count)]
    columns = list(zip(*rows, strict=True))
    aligns = "".join(
        "r" if j and all(map(_NUMERIC.fullmatch, column)) else "l"
        for j, column in enumerate(columns)
    )
    headers = _filled(table.headers, count) if table.headers else ()
    return ReportTable(rows, headers, title=table.title, aligns=aligns)


def _filled(row: Sequence[str], count: int) -> list[str]:
    return [str(cell) for cell in row] + [""] * (count - len(row))


def __getattr__(name: str) -> Any:
    if name == "PrivateSummary":
        from dpstats.report._statsmodels import PrivateSummary

        return PrivateSummary
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
