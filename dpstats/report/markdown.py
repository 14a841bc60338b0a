"""A report in Markdown, as GitHub, pandoc and Jupyter show it; figures stand in files beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tabulate import tabulate

from dpstats.report._cells import cells_of
from dpstats.report._escape import markdown_text
from dpstats.report.html import Figure, Html, Paragraph, Section, Table, Warnings

if TYPE_CHECKING:
    from dpstats.report.html import Block

__all__ = ["document"]

# would start a list, a rule or an underlined heading
_START = re.compile(r"^(?:(\d{1,9})(?=[.)](?:\s|$))|(?=[-+=]))")


def document(
    title: str,
    sections: Iterable[Section],
    *,
    lead: str = "",
    banner: str | None = None,
    figures: Mapping[int, str] | None = None,
) -> str:
    r"""Make a whole Markdown document.

    Parameters
    ----------
    title : str
        Heading of the document.
    sections : iterable of Section
        In order; blocks of markup (`Html`) are put in as they stand.
    lead : str
        A sentence or two below the title.
    banner : str or None
        Shown first and last.
    figures : mapping of int to str, optional
        Names of the figures' files by `id` of the block; other figures are left out.

    Returns
    -------
    str

    Examples
    --------
    >>> print(document("Effect of a_b", [Section("Estimate", (Paragraph("- 50 <b>"),))]))
    # Effect of a\_b
    <BLANKLINE>
    ## Estimate
    <BLANKLINE>
    \- 50 &lt;b&gt;
    <BLANKLINE>
    """
    notice = [f"> **{markdown_text(banner)}**"] if banner else []
    parts = [*notice, f"# {markdown_text(title)}", _line(lead)]
    for section in sections:
        parts.append(f"## {markdown_text(section.heading)}" if section.heading else "")
        parts += [_block(block, figures or {}) for block in section.blocks]
    return "\n\n".join([part for part in (*parts, *notice) if part]) + "\n"


def _line(text: str) -> str:
    return _START.sub(r"\1\\", markdown_text(text.strip()))


def _block(block: Block, figures: Mapping[int, str]) -> str:
    if isinstance(block, Paragraph):
        return "\n\n".join(filter(None, map(_line, block.text.split("\n\n"))))
    if isinstance(block, Html):
        return block.markup
    if isinstance(block, Warnings):
        items = [f"> {place}. {_line(text)}" for place, text in enumerate(block.texts, 1)]
        return "\n".join(["> **Warnings**", ">", *items])
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Figure):
        return _figure(block, figures[id(block)]) if id(block) in figures else ""
    return block.as_markdown()


def _table(block: Table) -> str:
    cells = cells_of(block.frame)
    caption = [f"**{markdown_text(block.caption)}**"] if block.caption else []
    note = [_line(block.note)] if block.note else []
    if not cells.numeric:
        return "\n\n".join([*caption, *note])
    aligns = ["right" if right else "left" for right in cells.numeric]
    table = tabulate(
        [[markdown_text(text) for text in row] for row in cells.rows],
        [markdown_text(head) for head in cells.heads],
        tablefmt="github",
        colalign=aligns if cells.rows else None,
        disable_numparse=True,
    )
    return "\n\n".join([*caption, table, *note])


def _figure(block: Figure, name: str) -> str:
    caption = f"\n\n*{markdown_text(block.caption)}*" if block.caption else ""
    return f"![{markdown_text(block.alt)}]({name}){caption}"
