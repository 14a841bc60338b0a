r"""A LaTeX `table` environment around a table, with its caption and label."""

from __future__ import annotations

import re
from typing import Any

from dpstats.errors import DPStatsError
from dpstats.report._escape import UNICODE_MACRO, latex_text

__all__ = ["check_float", "floated"]

# what \label and \ref read as it stands
_LABEL = re.compile(r"[^\s\\{}%#~$&^,]+")
_POSITION = re.compile(r"[!htbpH]+")


def check_float(caption: Any, label: Any, position: Any) -> None:
    """Refuse a caption, label or position that LaTeX could not read.

    Raises
    ------
    DPStatsError
    """
    if caption is not None and not isinstance(caption, str):
        raise DPStatsError(f"`caption` must be text; got {type(caption).__name__}")
    if label is not None and not (isinstance(label, str) and _LABEL.fullmatch(label)):
        raise DPStatsError(
            "`label` must be a word without spaces, commas or any of \\ { } % # ~ $ & ^, such as "
            f"'tab:effect'; got {label!r}"
        )
    if position is not None and not (isinstance(position, str) and _POSITION.fullmatch(position)):
        raise DPStatsError(f"`position` must be letters of '!htbpH'; got {position!r}")


def floated(
    source: str, caption: str | None = None, label: str | None = None, position: str | None = None
) -> str:
    r"""Put a table into a `table` environment, if any of the three is given.

    Parameters
    ----------
    source : str
        LaTeX.
    caption, label : str, optional
        The caption is escaped and stands above the table.
    position : str, optional
        Such as "htbp".

    Returns
    -------
    str

    Raises
    ------
    DPStatsError
        If LaTeX could not read one of them.

    Examples
    --------
    >>> print(floated("x", "Effect of a_b", "tab:effect"))
    \begin{table}
    \caption{Effect of a\_b}
    \label{tab:effect}
    x
    \end{table}
    """
    check_float(caption, label, position)
    if caption is None and label is None and position is None:
        return source
    where = f"[{position}]" if position else ""
    # a label without a caption would refer to the section
    named = rf"\caption{{{latex_text(caption or '')}}}" if caption or label else ""
    parts = [rf"\begin{{table}}{where}", named, rf"\label{{{label}}}" if label else "", source]
    macro = UNICODE_MACRO if r"\dpstatsunicode" in named else ""
    return "\n".join([*filter(None, (macro, *parts)), r"\end{table}"])
