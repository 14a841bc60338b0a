"""One self-contained HTML page: no network, no script, good on a phone, on a desk and on paper."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from dpstats.report._cells import cells_of
from dpstats.report._escape import html_text
from dpstats.report._files import write_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as MatplotlibFigure

__all__ = [
    "Block",
    "Figure",
    "Html",
    "Paragraph",
    "Rendered",
    "Section",
    "Table",
    "Warnings",
    "page",
    "write_page",
]

_PNG = b"\x89PNG\r\n\x1a\n"
_DPI = 200
# characters up to which a cell is not broken
_SHORT = 16


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Plain text; an empty line starts a new paragraph.

    Parameters
    ----------
    text : str
        Escaped here.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Html:
    """Markup put into the page as it stands.

    Parameters
    ----------
    markup : str
        Already escaped, such as `PrivateSummary.as_html()`.
    """

    markup: str


@dataclass(frozen=True, slots=True)
class Warnings:
    """What a reader must know before using a number, numbered.

    Parameters
    ----------
    texts : tuple of str
        Sentences; escaped here.
    """

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A frame as a table.

    Parameters
    ----------
    frame : DataFrame
        Floats are shown with four significant digits, strings as they are. The index is shown
        unless it only counts the rows, the heads unless all are empty.
    caption, note : str
        Above and below the table; may be empty.
    """

    frame: pd.DataFrame
    caption: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """A picture.

    Parameters
    ----------
    fig : matplotlib.figure.Figure or bytes
        Bytes hold a PNG.
    alt : str
        Says what the picture shows to those who cannot see it.
    caption : str
        Below the picture; may be empty.
    name : str
        Ends the name of its file where it cannot stand inside the page.
    """

    fig: MatplotlibFigure | bytes
    alt: str
    caption: str = ""
    name: str = "figure"


@runtime_checkable
class Rendered(Protocol):
    """Whatever writes itself in every format, such as a `Comparison`."""

    def as_html(self) -> str:
        """Return an HTML fragment, escaped."""

    def as_latex(self) -> str:
        """Return LaTeX for inclusion, escaped."""

    def as_markdown(self) -> str:
        """Return Markdown, escaped."""


Block: TypeAlias = Paragraph | Html | Warnings | Table | Figure | Rendered


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it.

    Parameters
    ----------
    heading : str
        May be empty.
    blocks : tuple of Paragraph, Html, Warnings, Table, Figure or Rendered
        In the order of the page.
    """

    heading: str
    blocks: tuple[Block, ...]


_CSS = """
:root { color-scheme: light; --ink: #1c1c1c; --quiet: #5c5c5c; --line: #d8d8d8; --stop: #a40000; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; font-size: 106.25%; }
body { margin: 0; background: #fff; color: var(--ink); line-height: 1.55;
  font-family: Charter, "Bitstream Charter", "Sitka Text", Cambria, Georgia, serif; }
main { max-width: 50rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1, h2 { font-weight: 600; line-height: 1.2; overflow-wrap: anywhere; text-wrap: balance; }
h1 { font-size: 1.9rem; margin: 0 0 0.5rem; letter-spacing: -0.01em; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.6rem; }
p { margin: 0 0 0.9rem; max-width: 40rem; overflow-wrap: anywhere; }
p.lead { font-size: 1.15rem; color: var(--quiet); margin-bottom: 1.5rem; }
.dpstats-banner { border: 2px solid var(--stop); color: var(--stop); background: #fff;
  padding: 0.6rem 1rem; margin: 1rem 0; font-weight: 700; text-align: center;
  overflow-wrap: anywhere; }
aside.dpstats-warnings { border-left: 4px solid #b35900; background: #fdf6ee;
  padding: 0.7rem 1rem 0.7rem 1rem; margin: 1rem 0 1.2rem; max-width: 42rem;
  overflow-wrap: anywhere; break-inside: avoid; print-color-adjust: exact; }
aside.dpstats-warnings ol { margin: 0.3rem 0 0; padding-left: 1.4rem; }
figure { margin: 1.5rem 0; }
figure img { display: block; max-width: 100%; height: auto; margin: 0 auto; }
figcaption, caption, .note, .dpstats-notes { font-size: 0.9rem; color: var(--quiet); }
figcaption, .note { margin-top: 0.5rem; max-width: 40rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin: 1.2rem 0; -webkit-overflow-scrolling: touch; }
.scroll:focus-visible { outline: 2px solid #0072b2; outline-offset: 2px; }
table { border-collapse: collapse; font-size: 0.93rem; line-height: 1.35; min-width: 100%;
  font-variant-numeric: lining-nums tabular-nums; border-top: 2px solid var(--ink);
  border-bottom: 2px solid var(--ink); }
caption { caption-side: top; text-align: left; padding-bottom: 0.45rem; color: var(--ink);
  font-weight: 600; }
th, td { padding: 0.28rem 0 0.28rem 1.1rem; text-align: left; vertical-align: top;
  font-weight: 400; }
th:first-child, td:first-child { padding-left: 0; }
thead th, thead td { border-bottom: 1px solid var(--ink); }
thead th { font-weight: 600; white-space: nowrap; }
.number { text-align: right; }
.number, .short { white-space: nowrap; }
tbody th { max-width: 22rem; overflow-wrap: break-word; }
.dpstats-summary table { margin: 0 0 1.4rem; }
.dpstats-summary td { max-width: 24rem; }
.dpstats-notes { line-height: 1.45; }
@media (max-width: 34rem) {
  html { font-size: 100%; }
  main { padding: 1.5rem 1rem 3rem; }
  h1 { font-size: 1.5rem; }
  table { font-size: 0.85rem; }
  th, td { padding-left: 0.8rem; }
  /* the whole picture, as large as the screen: the effect is at its right end */
  figure { margin-left: -1rem; margin-right: -1rem; }
  figcaption { padding: 0 1rem; }
  tbody th, .dpstats-summary td { max-width: 11rem; }
}
@media print {
  @page { margin: 18mm 16mm; }
  html { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  p, figcaption, .note { max-width: none; }
  .scroll { overflow: visible; }
  table { font-size: 8.5pt; }
  h2 { break-after: avoid; }
  figure, tr, .dpstats-banner, .dpstats-compare table { break-inside: avoid; }
  thead { display: table-header-group; }
  figure img { max-height: 11cm; }
}
""".strip()

# the browser itself then refuses scripts and anything from elsewhere
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(
    title: str, sections: Iterable[Section], *, lead: str = "", banner: str | None = None
) -> str:
    """Make one self-contained HTML page.

    Parameters
    ----------
    title : str
        Heading of the page and of the window.
    sections : iterable of Section
        In order.
    lead : str
        A sentence or two below the title.
    banner : str or None
        Shown first and last, such as "NOT PRIVATE: eps = inf".

    Returns
    -------
    str
        A whole document. It loads nothing and runs nothing; a content security policy says so to
        the browser.

    Examples
    --------
    >>> markup = page("Effect of training", [Section("Estimate", (Paragraph("1794 dollars"),))])
    >>> "<p>1794 dollars</p>" in markup
    True
    """
    notice = [_banner(banner)] if banner else []
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html_text(title)}</title>",
        f"<style>\n{_CSS}\n</style>",
        "</head>",
        "<body>",
        "<main>",
        *notice,
        f"<h1>{html_text(title)}</h1>",
        *([f'<p class="lead">{html_text(lead)}</p>'] if lead else []),
        *map(_section, sections),
        *notice,
        "</main>",
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"


def write_page(
    path: str | os.PathLike[str],
    title: str,
    sections: Iterable[Section],
    *,
    lead: str = "",
    banner: str | None = None,
) -> Path:
    """Write the page that `page` makes.

    Parameters
    ----------
    path : path-like
        Replaced in one step: a reader sees the old file or the whole new one.
    title, sections, lead, banner
        As for `page`.

    Returns
    -------
    pathlib.Path
        Where it was written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = write_page(Path(folder) / "report.html", "Title", [])
    ...     written.read_text(encoding="utf-8").splitlines()[0]
    '<!DOCTYPE html>'
    """
    return write_text(path, page(title, sections, lead=lead, banner=banner))


def _banner(text: str) -> str:
    return f'<div class="dpstats-banner" role="note">{html_text(text)}</div>'


def _section(section: Section) -> str:
    heading = [f"<h2>{html_text(section.heading)}</h2>"] if section.heading else []
    return "\n".join(["<section>", *heading, *map(_block, section.blocks), "</section>"])


def _block(block: Block) -> str:
    if isinstance(block, Paragraph):
        paragraphs = block.text.split("\n\n")
        return "\n".join(f"<p>{html_text(text.strip())}</p>" for text in paragraphs if text.strip())
    if isinstance(block, Html):
        return _scroll("details", block.markup)
    if isinstance(block, Warnings):
        items = "\n".join(f"<li>{html_text(text)}</li>" for text in block.texts)
        head = '<aside class="dpstats-warnings"><strong>Warnings</strong>'
        return f"{head}\n<ol>\n{items}\n</ol>\n</aside>"
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Figure):
        return _figure(block)
    return _scroll("table", block.as_html())


def _scroll(label: str, markup: str) -> str:
    """Wrap what may be too wide for a phone; reachable by keyboard."""
    name = html_text(label or "table")
    return f'<div class="scroll" role="region" aria-label="{name}" tabindex="0">\n{markup}\n</div>'


def _figure(block: Figure) -> str:
    data = block.fig if isinstance(block.fig, bytes) else _png(block.fig)
    if not data.startswith(_PNG):
        raise ValueError("`fig` must be a matplotlib figure or the bytes of a PNG")
    # from IHDR, so that the text does not jump while the picture is decoded
    width, height = (int.from_bytes(data[start : start + 4], "big") for start in (16, 20))
    source = base64.b64encode(data).decode("ascii")
    caption = (
        [f"<figcaption>{html_text(block.caption)}</figcaption>"] if block.caption.strip() else []
    )
    image = (
        f'<img src="data:image/png;base64,{source}" alt="{html_text(block.alt)}" '
        f'width="{round(width * 96 / _DPI)}" height="{round(height * 96 / _DPI)}">'
    )
    return "\n".join(["<figure>", image, *caption, "</figure>"])


def _png(fig: MatplotlibFigure) -> bytes:
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=_DPI, facecolor="white")
    return buffer.getvalue()


def _table(block: Table) -> str:
    cells = cells_of(block.frame)
    heads = [
        _th("col", name, right) for name, right in zip(cells.heads, cells.numeric, strict=True)
    ]
    rows = []
    for row in cells.rows:
        line = [_th("row", text) for text in row[: cells.stubs]]
        rest = zip(row[cells.stubs :], cells.numeric[cells.stubs :], strict=True)
        line += [_td(text, right) for text, right in rest]
        rows.append(f"<tr>{''.join(line)}</tr>")
    caption = [f"<caption>{html_text(block.caption)}</caption>"] if block.caption else []
    head = [f"<thead><tr>{''.join(heads)}</tr></thead>"] if any(cells.heads) else []
    body = ["<table>", *caption, *head, "<tbody>", *rows, "</tbody>", "</table>"]
    note = f'\n<p class="note">{html_text(block.note)}</p>' if block.note else ""
    return _scroll(block.caption, "\n".join(body)) + note


def _th(scope: str, text: Any, number: bool = False) -> str:
    return f'<th scope="{scope}"{_class(str(text), number)}>{html_text(text)}</th>'


def _td(text: str, number: bool) -> str:
    return f"<td{_class(text, number)}>{html_text(text)}</td>"


def _class(text: str, number: bool) -> str:
    return ' class="number"' if number else ' class="short"' if len(text) <= _SHORT else ""
