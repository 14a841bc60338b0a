r"""The report of one result as a file: HTML, LaTeX or Markdown, by its suffix."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from dpstats.errors import DPStatsError
from dpstats.report import latex, markdown
from dpstats.report._files import write_bytes, write_text
from dpstats.report._numbers import fixed, number
from dpstats.report.compare import Comparison, compare
from dpstats.report.html import Figure, Paragraph, Section, Table, page
from dpstats.report.story import plain_privacy, references

if TYPE_CHECKING:
    from dpstats.report.html import Block
    from dpstats.report.story import Story
    from dpstats.report.summary import SummaryContent
    from dpstats.results import PrivateResults

__all__ = ["write_report"]

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
) -> Path:
    """Write the report; see `PrivateResults.report`."""
    target, kind = _target(path)
    story = result._story()
    content = result._summary_content(alpha)
    figures = _figures(result, story)
    table = compare([result], alpha=alpha, ci=True)
    sections = _sections(result, story, content, figures, table)
    heading, lead, banner = title or story.title, question or story.question, content.banner
    if kind == "html":
        return write_text(target, page(heading, sections, lead=lead, banner=banner))
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", target.stem) or "report"
    names = {id(figure): f"{stem}-{figure.name}" for figure in figures}
    suffix = ".pdf" if kind == "tex" else ".png"
    for figure in figures:
        write_bytes(target.with_name(names[id(figure)] + suffix), _picture(figure, suffix[1:]))
    named = {block: name + suffix for block, name in names.items()}
    if kind == "md":
        source = markdown.document(heading, sections, lead=lead, banner=banner, figures=named)
        return write_text(target, source)
    write_text(target.with_name(f"{stem}-table.tex"), table.as_latex() + "\n")
    inputs = {id(table): f"{stem}-table.tex"}
    source = latex.document(
        heading, sections, lead=lead, banner=banner, figures=named, inputs=inputs
    )
    return write_text(target, source)


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
    """Draw what can be drawn; nothing without matplotlib."""
    out = []
    for kind, text in story.figures:
        try:
            figure, _ = result.plot(kind)
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
    others = [figure for figure in figures if figure.name != "budget"]
    budget = [figure for figure in figures if figure.name == "budget"]
    plain = plain_privacy(result.privacy)
    privacy: list[Block] = [Paragraph(result.privacy.statement())]
    privacy += [Paragraph(plain)] if plain else []
    releases = [item for item in content.tables if item.title == "Noisy releases"]
    further = [item for item in content.tables if item not in releases]
    estimate: list[Block] = [Paragraph(_answer(result, content)), Table(_coefficients(content))]
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
        Section("Citation", (Paragraph("\n\n".join(_citations(story))),)),
    ]
    return [section for section in sections if section.blocks]


def _coefficients(content: SummaryContent) -> pd.DataFrame:
    """Return the estimates as the summary writes them."""
    frame, tail = content.coefficients, (1.0 - content.level) / 2.0
    ends = [f"[{number(tail)}", f"{number(1.0 - tail, 6)}]"]
    values = frame.to_numpy(dtype=float)
    rows = [[fixed(row[0]), *(fixed(value, 3) for value in row[1:])] for row in values]
    for row, value in zip(rows, values, strict=True):
        row[3] = f"{value[3]:.3f}"
    return pd.DataFrame(rows, index=frame.index, columns=[*map(str, frame.columns[:4]), *ends])


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
    value, error, _, _, low, high = frame.to_numpy(dtype=float)[0]
    covers = "does not cover" if low > 0.0 or high < 0.0 else "covers"
    return (
        f"The estimate is {fixed(value)} with a standard error of {fixed(error, 3)}. The "
        f"{100.0 * content.level:.6g}% interval runs from {fixed(low, 3)} to {fixed(high, 3)}; it "
        f"{covers} zero. {reading}."
    )


def _citations(story: Story) -> list[str]:
    from dpstats.results import _version

    return [_CITATION.format(version=_version()), *references(story.sources)]
