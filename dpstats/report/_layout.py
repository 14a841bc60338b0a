"""Columns and lines of a text of limited width; nothing is ever cut off, long cells are wrapped."""

from __future__ import annotations

from collections.abc import Sequence

from dpstats.report._escape import display_width

__all__ = ["PREFERRED_WIDTH", "WIDEST", "fit_widths", "pad", "panels", "spread", "wrap"]

PREFERRED_WIDTH = 78
WIDEST = 100

_BREAK_AFTER = frozenset("_.:,;/*+-)]|=~")


def wrap(text: str, width: int, *, indent: int = 0) -> list[str]:
    """Break one line into lines of at most `width` columns.

    Breaks at spaces, else after punctuation, else anywhere; only spaces at a break are lost.

    Parameters
    ----------
    text : str
        One line of visible characters.
    width : int
        In columns of a terminal, at least 2.
    indent : int
        Spaces before every line but the first.

    Returns
    -------
    list of str
        At least one line.

    Examples
    --------
    >>> wrap("re78 ~ age + education", 12)
    ['re78 ~ age +', 'education']
    >>> wrap("household_income_1975", 12, indent=2)
    ['household_', '  income_', '  1975']
    """
    indent = min(indent, max(width - 8, 0))
    lines: list[str] = []
    rest = text.strip()
    while rest:
        margin = " " * indent if lines else ""
        cut = _cut(rest, width - len(margin))
        lines.append(margin + rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return lines or [""]


def _cut(text: str, width: int) -> int:
    """Return the number of characters on the first line."""
    if display_width(text) <= width:
        return len(text)
    end = used = 0
    for end, char in enumerate(text):  # noqa: B007
        used += display_width(char)
        if used > width:
            break
    end = max(end, 1)
    if text[end] == " ":
        return end
    space = text.rfind(" ", 0, end)
    if space >= max(end // 3, 1):
        return space + 1
    for place in range(end, end // 2, -1):
        if text[place - 1] in _BREAK_AFTER:
            return place
    return end


def pad(text: str, width: int, align: str) -> str:
    """Fill `text` up to `width` columns; `align` is "l", "r" or "c".

    Examples
    --------
    >>> pad("ab", 4, "r"), pad("ab", 4, "c")
    ('  ab', ' ab ')
    """
    spare = max(width - display_width(text), 0)
    left = {"l": 0, "r": spare}.get(align, spare // 2)
    return " " * left + text + " " * (spare - left)


def fit_widths(natural: Sequence[int], floor: Sequence[int], room: int) -> list[int]:
    """Shrink the widest columns until all fit into `room`, none below its floor.

    Examples
    --------
    >>> fit_widths([30, 10, 8], [10, 10, 8], 38)
    [20, 10, 8]
    """
    widths = [max(min(width, room), 1) for width in natural]
    while sum(widths) > room:
        loose = [j for j, width in enumerate(widths) if width > max(floor[j], 1)]
        if not loose:
            break
        widths[max(loose, key=widths.__getitem__)] -= 1
    return widths


def spread(widths: Sequence[int], room: int, takers: Sequence[int]) -> list[int]:
    """Share the columns left over in `room` evenly among the columns `takers`.

    Examples
    --------
    >>> spread([5, 4, 4], 17, [1, 2])
    [5, 6, 6]
    """
    widths = list(widths)
    spare = room - sum(widths)
    if spare <= 0 or not takers:
        return widths
    each, rest = divmod(spare, len(takers))
    for place, j in enumerate(takers):
        widths[j] += each + (place >= len(takers) - rest)
    return widths


def panels(floor: Sequence[int], room: int, *, gap: int, stubs: int) -> list[list[int]]:
    """Divide columns into panels that fit into `room`, each led by the `stubs` first columns.

    Examples
    --------
    >>> panels([10, 8, 8, 8], 30, gap=2, stubs=1)
    [[0, 1, 2], [0, 3]]
    """
    lead = list(range(min(stubs, len(floor))))
    lead_width = sum(floor[j] for j in lead) + gap * max(len(lead) - 1, 0)
    groups: list[list[int]] = []
    used = room + 1
    for j in range(len(lead), len(floor)):
        if used + gap + floor[j] > room:
            groups.append(list(lead))
            used = lead_width
            if not lead:
                used = -gap
        groups[-1].append(j)
        used += gap + floor[j]
    return groups or [lead]
