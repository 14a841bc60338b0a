r"""The report of one result, or of several, as a file: HTML, LaTeX or Markdown, by its suffix."""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dpstats.errors import DPStatsError
from dpstats.report import latex, markdown
from dpstats.report._files import write_bytes, write_text
from dpstats.report._float import check_float
from dpstats.report._numbers import check_decimals
from dpstats.report.compare import Comparison, compare
from dpstats.report.html import Figure, Paragraph, Section, Table, Warnings, page
from dpstats.report.story import plain_privacy, references
from dpstats.report.summary import coefficient_cells

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dpstats.report.html import Block
    from dpstats.report.story import Story
    from dpstats.report.summary import SummaryContent
    from dpstats.results import PrivateResults

__all__ = ["write_comparison", "write_report"]

_SUFFIXES = {
    ".html": "html",
    ".htm": "html",
    ".tex": "tex",
    ".md": "md",
    ".markdown": "md",
}
_CITATION = (
    "dpstats: causal estimates from confidential microdata with differential privacy, version "
    "{version} (see CITATION.cff)."
)


def write_report(
    result: PrivateResults,
    path: str | os.PathLike[str],
    *,
    alpha: float = 0.05,
    title: str | None = None,
    question: str | None = None,
    caption: str | None = None,
    label: str | None = None,
    decimals: int | None = None,
) -> Path:
    """Write the report; see `PrivateResults.report`."""
    target, kind = _target(path)
    check_float(caption, label, None)
    digits = check_decimals(decimals)
    story = result._story()
    content = replace(result._summary_content(alpha), decimals=digits)
    figures = _figures(result, story)
    table = compare([result], alpha=alpha, ci=True, decimals=digits)
    sections = _sections(result, story, content, figures, table)
    heading, lead = title or story.title, question or story.question
    parts = _Parts(heading, lead, content.banner, sections, figures, table)
    return _write(parts, target, kind, _latex_table(table, caption, label))


def write_comparison(
    table: Comparison,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    question: str | None = None,
    caption: str | None = None,
    label: str | None = None,
) -> Path:
    """Write the report of several results; see `Comparison.report`."""
    target, kind = _target(path)
    check_float(caption, label, None)
    level = f"{100.0 * table.level:.6g}%"
    text = f"{table.label}: estimates, {level} intervals and the part of them that is noise."
    figures = _drawn([("forest", text)], lambda _: table.plot())
    shown = replace(table, grid=replace(table.grid, title=""))
    marked = [head.label for head in table.grid.heads if head.mark]
    every = len(marked) == len(table.grid.heads)
    banner = f"NOT PRIVATE: {'all columns' if every else ', '.join(marked)}" if marked else None
    sections = [
        Section("Estimates", (shown, *figures)),
        Section("Privacy", tuple(map(Paragraph, table.privacy))),
        Section("Citation", (Paragraph("\n\n".join(_citations(table.citations))),)),
    ]
    sections = [section for section in sections if section.blocks]
    heading = title or table.grid.title or f"{table.label}, side by side"
    parts = _Parts(heading, question or "", banner, sections, figures, shown)
    return _write(parts, target, kind, _latex_table(table, caption, label))


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """What a report holds, whatever its format; `table` is the block that has a file of its own."""

    heading: str
    lead: str
    banner: str | None
    sections: list[Section]
    figures: list[Figure]
    table: Comparison


def _write(parts: _Parts, target: Path, kind: str, table: str) -> Path:
    """Write the report, its figures and, for LaTeX, its table."""
    heading, lead, banner, sections = parts.heading, parts.lead, parts.banner, parts.sections
    if kind == "html":
        return write_text(target, page(heading, sections, lead=lead, banner=banner))
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", target.stem) or "report"
    names = {id(figure): f"{stem}-{figure.name}" for figure in parts.figures}
    suffix = ".pdf" if kind == "tex" else ".png"
    for figure in parts.figures:
        write_bytes(target.with_name(names[id(figure)] + suffix), _picture(figure, suffix[1:]))
    named = {block: name + suffix for block, name in names.items()}
    if kind == "md":
        source = markdown.document(heading, sections, lead=lead, banner=banner, figures=named)
        return write_text(target, source)
    write_text(target.with_name(f"{stem}-table.tex"), table + "\n")
    inputs = {id(parts.table): f"{stem}-table.tex"}
    source = latex.document(
        heading, sections, lead=lead, banner=banner, figures=named, inputs=inputs
    )
    return write_text(target, source)


def _latex_table(table: Comparison, caption: str | None, label: str | None) -> str:
    """Return the table; as a float it should stand near its section."""
    place = None if caption is None and label is None else "htbp"
    return table.as_latex(caption, label, place)


def _target(path: str | os.PathLike[str]) -> tuple[Path, str]:
    if not isinstance(path, str | os.PathLike):
        raise DPStatsError(f"`path` must name a file; got {type(path).__name__}")
    target = Path(path)
    kind = _SUFFIXES.get(target.suffix.lower())
    if kind is None:
        given = repr(target.suffix) if target.suffix else "no suffix"
        raise DPStatsError(f"`path` must end in .html, .tex or .md; got {given}")
    return target, kind


def _figures(result: PrivateResults, story: Story) -> list[Figure]:
    return _drawn(story.figures, result.plot)


def _drawn(
    kinds: Iterable[tuple[str, str]], draw: Callable[[str], tuple[Any, Any]]
) -> list[Figure]:
    """Draw what can be drawn; nothing without matplotlib."""
    out = []
    for kind, text in kinds:
        try:
            figure, _ = draw(kind)
        except ImportError:
            return []
        from dpstats.report.plots import close

        close(figure)
        out.append(Figure(figure, alt=text, caption=text, name=kind))
    return out


def _picture(figure: Figure, form: str) -> bytes:
    buffer = io.BytesIO()
    if isinstance(figure.fig, bytes):
        return figure.fig
    figure.fig.savefig(buffer, format=form, dpi=200, facecolor="white")
    return buffer.getvalue()


def _sections(
    result: PrivateResults,
    story: Story,
    content: SummaryContent,
    figures: list[Figure],
    table: Comparison,
) -> list[Section]:
    from dpstats.results import releases_table

    others = [figure for figure in figures if figure.name != "budget"]
    budget = [figure for figure in figures if figure.name == "budget"]
    plain = plain_privacy(result.privacy)
    privacy: list[Block] = [Paragraph(result.privacy.statement())]
    privacy += [Paragraph(plain)] if plain else []
    further = [item for item in content.tables if item.title != "Noisy releases"]
    # the summary puts what a solver adds into the row of its fit
    releases = [releases_table(result.privacy, whole=True)] if further != [*content.tables] else []
    estimate: list[Block] = [Paragraph(_answer(result, content)), Table(_coefficients(content))]
    if content.warnings:
        estimate.insert(1, Warnings(content.warnings))
    estimate += [Table(_frame(item.headers, item.rows), caption=item.title) for item in further]
    notes = "\n\n".join(note for note in content.notes if note != result.privacy.statement())
    model = pd.DataFrame(
        [(label.rstrip(":"), text) for label, text in (*story.model, *content.left, *content.right)]
    ).set_index(0)
    model.index.name, model.columns = None, pd.Index([""])
    sections = [
        Section("Estimate", (*estimate, *others[:1])),
        Section("Privacy", tuple(privacy)),
        Section("What was estimated", (Table(model), Paragraph(notes))),
        Section(
            "Noisy releases",
            (*(Table(_frame(item.headers, item.rows)) for item in releases), *budget),
        ),
        Section(
            "Diagnostics",
            (Table(result.diagnostics, note="From released numbers only."), *others[1:]),
        ),
        Section("Table for a paper", (table,)),
        Section("Citation", (Paragraph("\n\n".join(_citations(references(story.sources)))),)),
    ]
    return [section for section in sections if section.blocks]


def _coefficients(content: SummaryContent) -> pd.DataFrame:
    """Return the estimates as the summary writes them."""
    heads, rows = coefficient_cells(content)
    return pd.DataFrame(rows, index=content.coefficients.index, columns=heads)


def _frame(heads: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> pd.DataFrame:
    index = pd.Index([row[0] for row in rows], name=heads[0])
    return pd.DataFrame([row[1:] for row in rows], index=index, columns=list(heads[1:]))


def _answer(result: PrivateResults, content: SummaryContent) -> str:
    """Give the estimate in a sentence, and whether noise or sampling limits it."""
    frame = content.coefficients
    reading = str(result.diagnostics["reading"].iloc[0])
    reading = f"{reading[:1].upper()}{reading[1:]}"
    if len(frame) > 1:
        return f"The table holds one estimate a treated unit. {reading}."
    value, error, _, _, *written = coefficient_cells(content)[1][0]
    low, high = frame.to_numpy(dtype=float)[0, 4:]
    covers = "does not cover" if low > 0.0 or high < 0.0 else "covers"
    return (
        f"The estimate is {value} with a standard error of {error}. The "
        f"{100.0 * content.level:.6g}% interval runs from {written[0]} to {written[1]}; it "
        f"{covers} zero. {reading}."
    )


def _citations(texts: Iterable[str]) -> list[str]:
    from dpstats.results import _version

    return [_CITATION.format(version=_version()), *texts]
