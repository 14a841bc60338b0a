r"""A report as a LaTeX document; figures and the table for a paper stand in files beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dpstats.report._cells import cells_of
from dpstats.report._escape import UNICODE_MACRO, latex_text
from dpstats.report.html import Figure, Paragraph, Rendered, Section, Table, Warnings

if TYPE_CHECKING:
    from dpstats.report.html import Block

__all__ = ["document"]

# nothing that a small installation may lack
_PREAMBLE = r"""
\documentclass[11pt]{article}
\IfFileExists{geometry.sty}{\usepackage[margin=2.5cm]{geometry}}{}
\IfFileExists{booktabs.sty}{\usepackage{booktabs}}{}
\setlength{\parindent}{0pt}
\setlength{\parskip}{0.6em}
\sloppy
""".strip()


def document(
    title: str,
    sections: Iterable[Section],
    *,
    lead: str = "",
    banner: str | None = None,
    figures: Mapping[int, str] | None = None,
    inputs: Mapping[int, str] | None = None,
) -> str:
    r"""Make a whole LaTeX document that pdfLaTeX, LuaLaTeX and XeLaTeX compile.

    Parameters
    ----------
    title : str
        Heading of the document.
    sections : iterable of Section
        In order; blocks of markup (`Html`) have no place here.
    lead : str
        A sentence or two below the title.
    banner : str or None
        Shown first and last.
    figures : mapping of int to str, optional
        Names of the figures' files by `id` of the block; other figures are left out.
    inputs : mapping of int to str, optional
        Names of files to `\input` by `id` of the block; other blocks stand in the document.

    Returns
    -------
    str

    Examples
    --------
    >>> source = document("Effect of a_b", [Section("Estimate", (Paragraph("50% more"),))])
    >>> "50\\% more" in source, "a\\_b" in source
    (True, True)
    """
    figures, inputs = figures or {}, inputs or {}
    notice = [_banner(banner)] if banner else []
    body = [
        *notice,
        rf"{{\LARGE\bfseries\raggedright {latex_text(title)}\par}}",
        *([rf"{{\large {latex_text(lead)}\par}}"] if lead else []),
    ]
    for section in sections:
        if section.heading:
            body.append(rf"\section*{{{latex_text(section.heading)}}}")
        body += [_block(block, figures, inputs) for block in section.blocks]
    preamble = [_PREAMBLE, *([r"\usepackage{graphicx}"] if figures else []), UNICODE_MACRO]
    return "\n".join(
        [
            *preamble,
            r"\begin{document}",
            "\n\n".join([part for part in (*body, *notice) if part]),
            r"\end{document}",
            "",
        ]
    )


def _banner(text: str) -> str:
    box = rf"\parbox{{0.9\linewidth}}{{\centering\textbf{{{latex_text(text)}}}}}"
    return rf"\begin{{center}}\fbox{{{box}}}\end{{center}}"


def _block(block: Block, figures: Mapping[int, str], inputs: Mapping[int, str]) -> str:
    if id(block) in inputs:
        return rf"\input{{{inputs[id(block)]}}}"
    if isinstance(block, Paragraph):
        return _paragraphs(block.text)
    if isinstance(block, Warnings):
        return _warnings(block)
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Figure):
        return _figure(block, figures[id(block)]) if id(block) in figures else ""
    if isinstance(block, Rendered):
        return block.as_latex()
    raise TypeError(f"a LaTeX document has no place for a block of {type(block).__name__}")


def _paragraphs(text: str) -> str:
    parts = [part.strip() for part in text.split("\n\n")]
    return "\n\n".join(latex_text(part) for part in parts if part)


def _warnings(block: Warnings) -> str:
    items = "\n".join(rf"\item {latex_text(text)}" for text in block.texts)
    body = rf"\textbf{{Warnings}}\begin{{enumerate}}{items}\end{{enumerate}}"
    return rf"\begin{{quote}}{body}\end{{quote}}"


def _table(block: Table) -> str:
    from dpstats.report._statsmodels import ReportTable

    cells = cells_of(block.frame)
    note = f"\n\n{{\\small {latex_text(block.note)}\\par}}" if block.note else ""
    if not cells.numeric:
        return latex_text(block.caption) + note
    table = ReportTable(
        cells.rows,
        cells.heads if any(cells.heads) else (),
        title=block.caption,
        aligns="".join("r" if right else "l" for right in cells.numeric),
        stubs=range(cells.stubs),
    )
    return table.as_latex_tabular() + note


def _figure(block: Figure, name: str) -> str:
    caption = rf"\par{{\small {latex_text(block.caption)}\par}}" if block.caption else ""
    return (
        rf"\begin{{center}}\includegraphics[width=0.9\linewidth]{{{name}}}{caption}\end{{center}}"
    )
