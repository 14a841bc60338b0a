"""Frames that print whole: no column is left out and no text is cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from dpstats.report._cells import cells_of
from dpstats.report._escape import display_width, plain
from dpstats.report._layout import fit_widths, pad, panels, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpstats.report._cells import Cells

__all__ = ["ReadableFrame"]

_GAP = 2
_WIDTH, _NARROWEST = 80, 40
_STUB = 24
# longer tables are left to pandas, which shows their ends
_MOST_ROWS = 200


class ReadableFrame(pd.DataFrame):
    """A DataFrame that prints whole; what is taken out of it is an ordinary frame.

    In a terminal long texts are wrapped and columns beyond its width (pandas' option
    `display.width`, 80) go on below. Numbers are shown with four significant digits.

    Examples
    --------
    >>> text = "privacy noise dominates: 3.1 times the sampling error, so a larger eps would help"
    >>> print(ReadableFrame({"quantity": ["noise"], "value": [0.0123456], "reading": [text]}))
    quantity    value  reading
    --------------------------------------------------------------------------------
    noise     0.01235  privacy noise dominates: 3.1 times the sampling error, so a
                       larger eps would help
    """

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def as_text(self, width: int | None = None) -> str:
        """Return the frame as text.

        Parameters
        ----------
        width : int, optional
            In columns of a terminal, at least 40; by default pandas' option `display.width`.
        """
        if not 0 < len(self) <= _MOST_ROWS:
            return str(pd.DataFrame(self))
        room = max(int(width or pd.get_option("display.width") or _WIDTH), _NARROWEST)
        cells = cells_of(self)
        columns = [
            [_ascii(text) for text in (head, *column)]
            for head, column in zip(cells.heads, zip(*cells.rows, strict=True), strict=True)
        ]
        natural = [max(map(display_width, column)) for column in columns]
        floor = [
            wide if right else min(wide, max(_longest_word(column), 1))
            for column, wide, right in zip(columns, natural, cells.numeric, strict=True)
        ]
        # what names a row is not broken where it is short
        floor[0] = max(floor[0], min(natural[0], _STUB))
        floor = [min(wide, room // 2) for wide in floor]
        parts = [
            _panel(columns, group, natural, floor, cells, room)
            for group in panels(floor, room, gap=_GAP, stubs=max(cells.stubs, 1))
        ]
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return self.as_text()

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None, "display.max_columns", None):
            return str(pd.DataFrame(self)._repr_html_())


def _ascii(text: str) -> str:
    """Return what any terminal can show of a number's minus sign and of what is missing."""
    return plain(text.replace("\N{MINUS SIGN}", "-").replace("\N{EN DASH}", "nan"))


def _longest_word(column: Sequence[str]) -> int:
    return max(display_width(word) for text in column for word in text.split(" "))


def _panel(
    columns: Sequence[Sequence[str]],
    group: Sequence[int],
    natural: Sequence[int],
    floor: Sequence[int],
    cells: Cells,
    room: int,
) -> str:
    """Return the lines of the columns of a group, cells wrapped."""
    space = room - _GAP * (len(group) - 1)
    widths = fit_widths([natural[j] for j in group], [floor[j] for j in group], space)
    rule = "-" * (sum(widths) + _GAP * (len(widths) - 1))
    lines = []
    for place in range(len(columns[0])):
        blocks = [wrap(columns[j][place], wide) for j, wide in zip(group, widths, strict=True)]
        for depth in range(max(map(len, blocks))):
            parts = [
                pad(block[depth] if depth < len(block) else "", wide, "lr"[cells.numeric[j]])
                for j, block, wide in zip(group, blocks, widths, strict=True)
            ]
            lines.append((" " * _GAP).join(parts).rstrip())
        lines += [] if place else [rule]
    return "\n".join(lines)
