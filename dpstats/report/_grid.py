"""A table of several columns in text, HTML, LaTeX and Markdown, every cell escaped for its format.

The lines are tabulate's; only the cells, wrapped and escaped, are ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from tabulate import SEPARATING_LINE, DataRow, Line, TableFormat, tabulate

from dpstats.report._escape import (
    UNICODE_MACRO,
    display_width,
    html_text,
    latex_text,
    markdown_text,
    plain,
)
from dpstats.report._layout import WIDEST, panels, wrap

__all__ = ["Grid", "Head", "Row", "html_grid", "latex_grid", "markdown_grid", "text_grid"]

_GAP = 2
# columns of a terminal up to which the name of a row and a cell stand on one line, numbers always
# do; narrower ones are for more columns, and the last still holds single words
_WIDTHS = ((30, 18), (30, 16), (30, 14), (18, 16), (18, 14), (18, 13), (18, 12), (18, 11))
_CELL = _WIDTHS[0][1]
# characters on a line of a one-column article, by size of the type
_LATEX_SIZES = ((66, r"\normalsize"), (72, r"\small"), (84, r"\footnotesize"))
_LATEX_WIDTHS = (84, 90)
# rules where the document does not load booktabs, with some room between them and the text
_ROOM = r"\noalign{\smallskip}"
_RULES = "\n".join(
    rf"\providecommand{{\{name}}}{{{rule}}}"
    for name, rule in (
        ("toprule", rf"\hline{_ROOM}"),
        ("midrule", rf"{_ROOM}\hline{_ROOM}"),
        ("bottomrule", rf"{_ROOM}\hline"),
    )
)
_BREAK = "<br>"
# estimates with stars, errors in parentheses, intervals in brackets: their hyphens are minus signs
_NUMBERS = re.compile(r"[\[(]?[-\d.,e+ ]+[\])]?\**")
_MINUS = re.compile(r"(?<!e)-(?=[\d.])")


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column.

    Parameters
    ----------
    label : str
        Its name.
    mark : str
        Stands below the name in bold, such as "NOT PRIVATE"; may be empty.
    """

    label: str
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row: what it is, and a cell a column.

    Parameters
    ----------
    stub : str
        Names the row; empty where it goes on from the row above.
    cells : tuple of str
        May be empty strings.
    """

    stub: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """Everything a table shows, as plain strings.

    Parameters
    ----------
    heads : tuple of Head
        One a column.
    sections : tuple of tuple of Row
        Divided by rules.
    title : str
        Above the table; may be empty.
    notes : tuple of str
        Below it, one a line.
    """

    heads: tuple[Head, ...]
    sections: tuple[tuple[Row, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()


def text_grid(grid: Grid) -> str:
    """Return the table as text, at most 100 characters wide; too many columns go on below.

    Up to five columns stand side by side, their texts in narrower lines where need be.

    Examples
    --------
    >>> grid = Grid((Head("(1)"), Head("(2)", "NOT PRIVATE")),
    ...             ((Row("ATE", ("1.98", "2.01")),), (Row("Epsilon", ("1", "inf")),)))
    >>> print(text_grid(grid))
    ==========================
             (1)       (2)
                   NOT PRIVATE
    --------------------------
    ATE      1.98     2.01
    --------------------------
    Epsilon   1        inf
    ==========================
    """
    form = TableFormat(
        lineabove=Line("", "=", "=" * _GAP, ""),
        linebelowheader=Line("", "-", "-" * _GAP, ""),
        linebetweenrows=None,
        linebelow=Line("", "=", "=" * _GAP, ""),
        headerrow=DataRow("", " " * _GAP, ""),
        datarow=DataRow("", " " * _GAP, ""),
        padding=0,
        with_header_hide=None,
    )
    widths, groups = _arranged(grid, WIDEST)
    parts = [
        "\n".join(line.rstrip() for line in _tabulate(body, form).splitlines())
        for body in (_body(grid, group, widths) for group in groups)
    ]
    width = max(display_width(line) for part in parts for line in part.splitlines())
    width = min(max(width, 60), WIDEST)
    title = wrap(plain(grid.title), width) if grid.title else []
    notes = [line for note in grid.notes for line in wrap(plain(note), width)]
    return "\n".join([*title, *parts, *notes])


def markdown_grid(grid: Grid) -> str:
    r"""Return the table in GitHub's Markdown.

    Examples
    --------
    >>> print(markdown_grid(Grid((Head("a|b"),), ((Row("ATE", ("1.98",)),),))))
    |     |  a\|b  |
    |-----|--------|
    | ATE |  1.98  |
    """
    rows = [
        [markdown_text(row.stub), *map(markdown_text, row.cells)]
        for section in grid.sections
        for row in section
    ]
    heads = [
        markdown_text(head.label) + (f"{_BREAK}**{markdown_text(head.mark)}**" if head.mark else "")
        for head in grid.heads
    ]
    table = _tabulate(rows, "github", ["", *heads])
    title = [f"**{markdown_text(grid.title)}**", ""] if grid.title else []
    notes = ["", *("  \n".join(map(markdown_text, grid.notes)).splitlines())] if grid.notes else []
    return "\n".join([*title, table, *notes])


def html_grid(grid: Grid) -> str:
    """Return the table as an HTML fragment that needs no style sheet.

    Examples
    --------
    >>> print(html_grid(Grid((Head("<1>"),), ((Row("ATE", ("1.98",)),),))))
    <div class="dpstats-compare">
    <table>
    <thead>
    <tr><td></td><th scope="col" style="text-align:center">&lt;1&gt;</th></tr>
    </thead>
    <tbody>
    <tr><th scope="row" style="text-align:left;font-weight:normal">ATE</th><td style="text-align:center;white-space:nowrap">1.98</td></tr>
    </tbody>
    </table>
    </div>
    """  # noqa: E501
    caption = f"\n<caption>{html_text(grid.title)}</caption>" if grid.title else ""
    form = TableFormat(
        lineabove=Line(f"<table>{caption}\n<thead>", "", "", ""),
        linebelowheader=Line("</thead>\n<tbody>", "", "", ""),
        linebetweenrows=Line('</tbody>\n<tbody style="border-top:1px solid">', "", "", ""),
        linebelow=Line("</tbody>\n</table>", "", "", ""),
        headerrow=_html_head,
        datarow=_html_row,
        padding=0,
        # only where a section ends
        with_header_hide=["linebetweenrows"],
    )
    rows: list[Any] = []
    for section in grid.sections:
        rows += [SEPARATING_LINE] if rows else []
        rows += [[html_text(row.stub), *map(html_text, row.cells)] for row in section]
    heads = [
        html_text(head.label)
        + (f"{_BREAK}<strong>{html_text(head.mark)}</strong>" if head.mark else "")
        for head in grid.heads
    ]
    lines = f"{_BREAK}\n".join(map(html_text, grid.notes))
    notes = [f'<div class="dpstats-notes" style="text-align:left">{lines}</div>'] if lines else []
    table = _tabulate(rows, form, ["&nbsp;", *heads])
    return "\n".join(['<div class="dpstats-compare">', table, *notes, "</div>"])


def latex_grid(grid: Grid) -> str:
    r"""Return the table for inclusion in a LaTeX document.

    The rules are those of booktabs, or `\hline` where the document does not load it; no other
    package is needed. Up to five columns make one `tabular`, their texts in narrower lines where
    need be. No float: `dpstats.report._float.floated` makes one of it.

    Examples
    --------
    >>> grid = Grid((Head("(1)"),), ((Row("a_b", ("-1.5",)),),))
    >>> print(*latex_grid(grid).splitlines()[3:], sep="\n")
    \par\medskip\begingroup\centering\normalsize\setlength{\tabcolsep}{4pt}
    \begin{tabular}{@{}lc@{}}
    \toprule
         &  (1)   \\
    \midrule
    a\_b & $-1.5$ \\
    \bottomrule
    \end{tabular}\par
    \endgroup\medskip
    """
    parts = []
    widths, groups = _arranged(grid, *_LATEX_WIDTHS)
    width = max(_natural(_body(grid, group, widths)) for group in groups)
    for group in groups:
        body = _body(grid, group, widths, _latex_cell)
        form = TableFormat(
            lineabove=_begin_tabular,
            linebelowheader=Line(r"\midrule", "", "", ""),
            linebetweenrows=None,
            linebelow=Line("\\bottomrule\n\\end{tabular}", "", "", ""),
            headerrow=DataRow("", " & ", r" \\"),
            datarow=DataRow("", " & ", r" \\"),
            padding=0,
            with_header_hide=None,
        )
        parts.append(_tabulate(body, form))
    size = next((name for most, name in _LATEX_SIZES if width <= most), r"\scriptsize")
    title = [rf"\textbf{{{latex_text(grid.title)}}}\par\smallskip"] if grid.title else []
    tables = "\n\\par\\smallskip\n".join(parts)
    notes = []
    if grid.notes:
        lines = "\n".join(rf"{latex_text(note)}\par" for note in grid.notes)
        notes = [r"\smallskip\begin{minipage}{\linewidth}\footnotesize\raggedright"]
        notes += [lines, r"\end{minipage}\par"]
    begin = rf"\par\medskip\begingroup\centering{size}\setlength{{\tabcolsep}}{{4pt}}"
    source = "\n".join([begin, *title, tables + r"\par", *notes, r"\endgroup"])
    macro = [UNICODE_MACRO] if r"\dpstatsunicode" in source else []
    return "\n".join([*macro, _RULES, source + r"\medskip"])


def _tabulate(rows: Sequence[Any], form: Any, heads: Sequence[str] = ()) -> str:
    columns = max(len(row) for row in (heads, *rows))
    aligns = ("left", *["center"] * (columns - 1))
    return str(tabulate(rows, heads, tablefmt=form, colalign=aligns, disable_numparse=True))


def _arranged(grid: Grid, *rooms: int) -> tuple[tuple[int, int], list[list[int]]]:
    """Return the widths of texts with which all columns fit into a room, the widest first.

    Where none does, the columns are divided into panels.
    """
    every = list(range(len(grid.heads)))
    for room in rooms:
        for widths in _WIDTHS:
            if _natural(_body(grid, every, widths)) <= room:
                return widths, [every]
    return _WIDTHS[0], _groups(grid, max(rooms))


def _body(
    grid: Grid,
    group: Sequence[int],
    widths: tuple[int, int],
    cell: Callable[[str, bool], str] = lambda text, bold: text,
) -> list[Any]:
    """Return the lines of a panel, cells wrapped, each line a row of its own."""
    heads = [grid.heads[j] for j in group]
    rows: list[Any] = _lines(["", *(head.label for head in heads)], widths, cell, bold=False)
    if any(head.mark for head in heads):
        rows += _lines(["", *(head.mark for head in heads)], widths, cell, bold=True)
    for section in grid.sections:
        rows.append(SEPARATING_LINE)
        for row in section:
            rows += _lines([row.stub, *(row.cells[j] for j in group)], widths, cell, bold=False)
    return rows


def _lines(
    cells: Sequence[str],
    widths: tuple[int, int],
    cell: Callable[[str, bool], str],
    *,
    bold: bool,
) -> list[Any]:
    wrapped = [_wrapped(plain(text), widths[place > 0]) for place, text in enumerate(cells)]
    return [
        [cell(text, bold) if text else "" for text in line]
        for line in zip_longest(*wrapped, fillvalue="")
    ]


def _wrapped(text: str, width: int) -> list[str]:
    return [text] if _NUMBERS.fullmatch(text) else wrap(text, width)


def _latex_cell(text: str, bold: bool) -> str:
    escaped = latex_text(text)
    if _NUMBERS.fullmatch(text) and "$" not in escaped:
        escaped = _MINUS.sub("$-$", escaped)
    return rf"\textbf{{{escaped}}}" if bold else escaped


def _natural(rows: Sequence[Any]) -> int:
    """Columns of a terminal that the rows take."""
    columns = zip(*(row for row in rows if row != SEPARATING_LINE), strict=True)
    widths = [max(map(display_width, column)) for column in columns]
    return sum(widths) + _GAP * (len(widths) - 1)


def _groups(grid: Grid, room: int) -> list[list[int]]:
    """Divide the columns into panels that fit into `room`."""
    columns = range(len(grid.heads))
    rows = [row for row in _body(grid, columns, _WIDTHS[0]) if row != SEPARATING_LINE]
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    found = panels(widths, room, gap=_GAP, stubs=1)
    return [[j - 1 for j in group[1:]] for group in found]


def _begin_tabular(_: Sequence[int], aligns: Sequence[str]) -> str:
    letters = "".join(align[0] for align in aligns)
    return rf"\begin{{tabular}}{{@{{}}{letters}@{{}}}}" + "\n\\toprule"


def _html_head(cells: Sequence[str], *_: Any) -> str:
    heads = [f'<th scope="col" style="text-align:center">{cell.strip()}</th>' for cell in cells[1:]]
    return f"<tr><td></td>{''.join(heads)}</tr>"


def _html_row(cells: Sequence[str], *_: Any) -> str:
    stub = f'<th scope="row" style="text-align:left;font-weight:normal">{cells[0].strip()}</th>'
    rest = [
        f'<td style="text-align:center{_nowrap(cell.strip())}">{cell.strip()}</td>'
        for cell in cells[1:]
    ]
    return f"<tr>{stub}{''.join(rest)}</tr>"


def _nowrap(cell: str) -> str:
    return ";white-space:nowrap" if len(cell) <= _CELL else ""
