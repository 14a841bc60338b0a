"""The statsmodels classes behind a summary, with every cell wrapped and escaped.

Kept apart because importing statsmodels takes time; reached through `dpstats.report.summary`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from statsmodels.iolib.summary import Summary
from statsmodels.iolib.table import Cell, Row, SimpleTable

from dpstats.report._escape import (
    UNICODE_MACRO,
    csv_line,
    display_width,
    html_text,
    latex_text,
    plain,
)
from dpstats.report._float import floated
from dpstats.report._layout import (
    PREFERRED_WIDTH,
    WIDEST,
    fit_widths,
    pad,
    panels,
    spread,
    wrap,
)

__all__ = ["PrivateSummary", "ReportCell", "ReportRow", "ReportTable"]

_GAP = 2
_PAIRS_GAP = 3
# lines that a cell, or a value at the top, may take before the summary gets wider
_DEPTH, _PAIRS_DEPTH = 2, 4
_LATEX_WIDTH = 84
_LATEX_PAIRS = 76
# characters that fit on a line of a one-column article, by size
_LATEX_SIZES = ((66, r"\normalsize"), (72, r"\small"), (78, r"\footnotesize"))
# characters up to which a cell is not broken, and from which on it reads from the left
_HTML_SHORT, _HTML_LONG = 16, 30
_HTML_ALIGN = {"l": "left", "r": "right", "c": "center"}
_WARNING_STYLE = "text-align:left;border-left:4px solid #b35900;padding-left:0.8em;margin:0.6em 0"
_BANNER_STYLE = (
    "border:2px solid #a40000;color:#a40000;background:#fff;font-weight:bold;text-align:center;"
    "padding:0.4em 0.8em;margin:0.6em 0"
)


class ReportCell(Cell):  # type: ignore[misc]
    """A cell that is escaped in every output format."""

    align = "l"

    @property
    def is_label(self) -> bool:
        """Whether the cell heads a row or a column."""
        return self.datatype in {"stub", "header"}

    def alignment(self, output_format: str = "txt", **fmt_dict: Any) -> str:
        """Return "l", "r" or "c"."""
        return self.align

    def format(self, width: int, output_format: str = "txt", **fmt_dict: Any) -> str:
        """Return the cell, escaped for the format and padded to `width`."""
        if output_format in {"html", "htm"}:
            return self._html()
        if output_format in {"latex", "ltx"}:
            return pad(self.latex([plain(self.data)]), width, self.align)
        if output_format == "csv":
            return csv_line([self.data])
        return pad(plain(self.data), width, self.align)

    def lines(self, width: int) -> list[str]:
        """Return the text of the cell in lines of at most `width` columns."""
        return wrap(plain(self.data), width, indent=2 if self.datatype == "stub" else 0)

    def _html(self) -> str:
        tag = "th" if self.is_label else "td"
        scope = {"stub": ' scope="row"', "header": ' scope="col"'}.get(self.datatype, "")
        text = plain(self.data)
        align = "l" if len(text) > _HTML_LONG else self.align
        style = f"text-align:{_HTML_ALIGN[align]}"
        if len(text) <= _HTML_SHORT:
            style += ";white-space:nowrap"
        return f'<{tag}{scope} style="{style}">{html_text(text)}</{tag}>'

    def latex(self, lines: Sequence[str]) -> str:
        """Return the cell for LaTeX, several lines one below the other."""
        bold = r"\textbf{%s}" if self.is_label else "%s"
        parts = [bold % latex_text(line.strip()) if line.strip() else "" for line in lines]
        if len(parts) == 1:
            return parts[0]
        body = r"\\".join(parts)
        return rf"\begin{{tabular}}[t]{{@{{}}l@{{}}}}{body}\end{{tabular}}"


class ReportRow(Row):  # type: ignore[misc]
    """A row of which every cell may take several lines."""

    def as_string(self, output_format: str = "txt", **fmt_dict: Any) -> str:
        """Return the row in one of the formats "txt", "html", "latex" and "csv"."""
        if output_format in {"html", "htm"}:
            return "<tr>" + "".join(cell.format(0, "html") for cell in self) + "</tr>"
        if output_format == "csv":
            return csv_line([cell.data for cell in self])
        columns = list(range(len(self)))
        widths = [max(display_width(plain(cell.data)), 1) for cell in self]
        if output_format in {"latex", "ltx"}:
            return self.latex(columns, widths)
        return "\n".join(self.lines(columns, widths, [_GAP] * (len(columns) - 1)))

    def lines(
        self, columns: Sequence[int], widths: Sequence[int], gaps: Sequence[int]
    ) -> list[str]:
        """Return the lines of text of the given columns."""
        cells = [self[j] for j in columns]
        blocks = [cell.lines(width) for cell, width in zip(cells, widths, strict=True)]
        depth = max(map(len, blocks), default=1)
        out = []
        for place in range(depth):
            line = ""
            for j, (cell, block, width) in enumerate(zip(cells, blocks, widths, strict=True)):
                # a value broken into lines reads from the left
                align = "l" if len(block) > 1 else cell.align
                part = block[place] if place < len(block) else ""
                line += (" " * gaps[j - 1] if j else "") + pad(part, width, align)
            out.append(line.rstrip())
        return out

    def latex(self, columns: Sequence[int], widths: Sequence[int]) -> str:
        """Return the row for LaTeX with cells broken at the given widths."""
        cells = [self[j] for j in columns]
        parts = [c.latex(c.lines(w)) for c, w in zip(cells, widths, strict=True)]
        return " & ".join(parts) + r" \\"


class ReportTable(SimpleTable):  # type: ignore[misc]
    """A table that wraps in text and LaTeX and is escaped everywhere.

    Parameters
    ----------
    rows : sequence of sequence of str
        Rows of equal length.
    headers : sequence of str, optional
        Empty for a table without a header.
    title : str
        May be empty.
    aligns : str
        One of "l", "r", "c" for each column.
    stubs : collection of int
        Columns that name the rows.
    pairs : bool
        Whether the columns are labels and values in turn, in two halves.

    Notes
    -----
    Formatting options are accepted where statsmodels has them and are ignored.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[str]],
        headers: Sequence[str] = (),
        *,
        title: str = "",
        aligns: str,
        stubs: Iterable[int] = (0,),
        pairs: bool = False,
    ) -> None:
        self.aligns = aligns
        self.pairs = pairs
        self.stubs = frozenset(stubs)
        super().__init__(
            [[plain(cell) for cell in row] for row in rows],
            headers=[plain(header) for header in headers] or None,
            title=title,
            datatypes=list(range(len(aligns))),
            celltype=ReportCell,
            rowtype=ReportRow,
        )
        for row in self:
            for j, cell in enumerate(row):
                cell.align = aligns[j]
                if row.datatype == "header":
                    cell.datatype = "header"
                elif j in self.stubs:
                    cell.datatype = "stub"

    def _natural(self) -> list[int]:
        columns = range(len(self.aligns))
        return [
            max((display_width(plain(row[j].data)) for row in self), default=1) for j in columns
        ]

    def _longest_word(self, column: int) -> int:
        words = (word for row in self for word in plain(row[column].data).split(" "))
        return max(map(display_width, words), default=1)

    def natural_width(self) -> int:
        """Return the columns the text takes when no cell is wrapped, save a few long values."""
        width = sum(self._natural()) + sum(self._gaps(range(len(self.aligns))))
        fitted = self._panels(PREFERRED_WIDTH)
        if width <= PREFERRED_WIDTH or len(fitted) > 1:
            return width
        columns, widths = fitted[0]
        depth = max(
            len(row[j].lines(wide)) for row in self for j, wide in zip(columns, widths, strict=True)
        )
        return PREFERRED_WIDTH if depth <= (_PAIRS_DEPTH if self.pairs else _DEPTH) else width

    def _gaps(self, columns: Sequence[int]) -> list[int]:
        if self.pairs:
            return [1, _PAIRS_GAP, 1]
        return [_GAP] * (len(columns) - 1)

    def _panels(self, width: int) -> list[tuple[list[int], list[int]]]:
        """Columns and their widths for each panel that fits into `width`."""
        natural = [max(wide, 1) for wide in self._natural()]
        most = [18 if j in self.stubs and len(self.stubs) > 1 else 24 if j in self.stubs else 16
                for j in range(len(natural))]  # fmt: skip
        floor = [min(wide, limit) for wide, limit in zip(natural, most, strict=True)]
        if not self.pairs and sum(floor) + _GAP * (len(floor) - 1) > width:
            # rather break texts between words than set a column apart
            floor = [
                wide if self.aligns[j] == "r" else max(min(wide, self._longest_word(j)), 1)
                for j, wide in enumerate(floor)
            ]
        if self.pairs:
            groups = [list(range(4))]
        elif sum(floor) + _GAP * (len(floor) - 1) <= width:
            groups = [list(range(len(floor)))]
        else:
            lead = len(self.stubs) if sum(floor[j] for j in self.stubs) < width // 2 else 1
            groups = panels(floor, width, gap=_GAP, stubs=lead)
        out = []
        for columns in groups:
            room = width - sum(self._gaps(columns))
            fitted = fit_widths([natural[j] for j in columns], [floor[j] for j in columns], room)
            out.append((columns, fitted))
        return out

    def _stretch(self, columns: Sequence[int], widths: Sequence[int], width: int) -> list[int]:
        room = width - sum(self._gaps(columns))
        if not self.pairs:
            flush_right = [place for place, j in enumerate(columns) if self.aligns[j] == "r"]
            return spread(widths, room, flush_right or range(1, len(columns)) or [0])
        left, value, right, last = widths
        value += max(min((width - _PAIRS_GAP) // 2 - 1 - left - value, room - sum(widths)), 0)
        return [left, value, right, last + max(room - left - value - right - last, 0)]

    def body(self, width: int) -> list[str]:
        """Return the lines of text between the outer rules."""
        out: list[str] = []
        for place, (columns, fitted) in enumerate(self._panels(width)):
            widths = self._stretch(columns, fitted, width)
            if self.pairs:
                return self._halves(widths)
            if place:
                out.append("-" * width)
            for row in self:
                out.extend(row.lines(columns, widths, self._gaps(columns)))
                if row.datatype == "header":
                    out.append("-" * width)
        return out

    def _halves(self, widths: Sequence[int]) -> list[str]:
        """Return the two halves side by side, a wrapped value in one not moving the other."""
        left = [x for row in self for x in row.lines([0, 1], widths[:2], [1])]
        right = [x for row in self for x in row.lines([2, 3], widths[2:], [1]) if x]
        start = widths[0] + widths[1] + 1 + _PAIRS_GAP
        both = zip_longest((x for x in left if x), right, fillvalue="")
        return [(pad(first, start, "l") + second).rstrip() for first, second in both]

    def as_text(self, width: int | None = None, **fmt_dict: Any) -> str:
        """Return the table as text.

        Parameters
        ----------
        width : int, optional
            Between 78 and 100; without it, as wide as needed within 100.
        **fmt_dict
            Ignored.

        Returns
        -------
        str
        """
        if width is None:
            width = min(max(self.natural_width(), 1), WIDEST)
        title = [pad(line, width, "c").rstrip() for line in wrap(plain(self.title or ""), width)]
        rule = "=" * width
        return "\n".join([*(title if self.title else []), rule, *self.body(width), rule])

    def as_html(self, **fmt_dict: Any) -> str:
        """Return the table as HTML."""
        head = [row.as_string("html") for row in self if row.datatype == "header"]
        body = [row.as_string("html") for row in self if row.datatype != "header"]
        return "\n".join(
            [
                '<table class="simpletable">',
                *([f"<caption>{html_text(self.title)}</caption>"] if self.title else []),
                *(["<thead>", *head, "</thead>"] if head else []),
                "<tbody>",
                *body,
                "</tbody>",
                "</table>",
            ]
        )

    def as_csv(self, **fmt_dict: Any) -> str:
        """Return the table as comma separated values, its title on the first line."""
        title = [csv_line([self.title])] if self.title else []
        return "\n".join([*title, *(row.as_string("csv") for row in self)])

    def latex_width(self) -> int:
        """Return the characters on the longest line of the LaTeX table."""
        if self.pairs:  # adapts to the others
            return 0
        fitted = self._panels(_LATEX_WIDTH)
        return max(sum(widths) + sum(self._gaps(columns)) for columns, widths in fitted)

    def latex_body(self, width: int) -> str:
        """Return the LaTeX tabulars, one a panel, with cells wrapped to fit `width` characters."""
        if self.pairs:
            return _tabular("llll", self._latex_halves(max(width, _LATEX_PAIRS)))
        out = []
        for columns, widths in self._panels(width):
            rows = []
            for row in self:
                rows.append(row.latex(columns, widths))
                if row.datatype == "header":
                    rows.append(r"\hline")
            out.append(_tabular("".join(self.aligns[j] for j in columns), rows))
        return "\n\\par\\smallskip\\noindent\n".join(out)

    def _latex_halves(self, width: int) -> list[str]:
        widths = self._panels(width)[0][1]
        halves: list[list[str]] = [[], []]
        for row in self:
            for half, (label, value) in zip(halves, ((0, 1), (2, 3)), strict=True):
                if not any(plain(row[j].data).strip() for j in (label, value)):
                    continue
                names = [row[label].latex([x]) for x in row[label].lines(widths[label])]
                values = [row[value].latex([x]) for x in row[value].lines(widths[value])]
                half.extend(f"{a} & {b}" for a, b in zip_longest(names, values, fillvalue=""))
        both = zip_longest(*halves, fillvalue=" & ")
        return [rf"{left} & {right} \\" for left, right in both]

    def as_latex_tabular(self, center: bool = True, **fmt_dict: Any) -> str:
        """Return the table as LaTeX; needs no package.

        Parameters
        ----------
        center : bool
            Whether it stands in a `center` environment.
        **fmt_dict
            Ignored.

        Returns
        -------
        str
        """
        width = max(self.latex_width(), _LATEX_SIZES[0][0])
        parts = [_latex_size(width), *_latex_table(self, width)]
        inner = with_unicode_macro("\n".join(parts))
        around = (r"\begin{center}", r"\end{center}") if center else (r"\begingroup", r"\endgroup")
        return "\n".join([around[0], inner, around[1]])


def _tabular(aligns: str, rows: Sequence[str]) -> str:
    """Return a tabular as wide as the line; a strut keeps the text off the rules."""
    spec = rf"@{{}}{aligns[0]}@{{\extracolsep{{\fill}}}}{aligns[1:]}@{{}}"
    lines = [rf"\begin{{tabular*}}{{\linewidth}}{{{spec}}}", r"\hline"]
    strut = r"\rule{0pt}{2.7ex}"
    for row in rows:
        rule = row == r"\hline"
        lines.append(row if rule else strut + row)
        strut = r"\rule{0pt}{2.7ex}" if rule else ""
    return "\n".join([*lines, r"\hline", r"\end{tabular*}"])


def _latex_size(width: int) -> str:
    size = next((name for limit, name in _LATEX_SIZES if width <= limit), r"\scriptsize")
    return rf"{size}\setlength{{\tabcolsep}}{{3pt}}\noindent"


def _latex_table(table: ReportTable, width: int) -> list[str]:
    title = rf"{{\centering\textbf{{{latex_text(table.title)}}}\par\smallskip}}\noindent"
    return [*([title] if table.title else []), table.latex_body(width)]


def with_unicode_macro(latex: str) -> str:
    r"""Put the definition of `\dpstatsunicode` first where it is used."""
    return f"{UNICODE_MACRO}\n{latex}" if r"\dpstatsunicode" in latex else latex


class PrivateSummary(Summary):  # type: ignore[misc]
    """Summary of a result, as statsmodels shows one.

    Parameters
    ----------
    tables : list of ReportTable
        The first carries the title of the summary.
    notes : sequence of str
        Numbered in this order.
    banner : str or None
        Stands first and last in every format.
    warnings : sequence of str
        Numbered from W1, above the notes.
    """

    def __init__(
        self,
        tables: Sequence[ReportTable],
        notes: Sequence[str] = (),
        banner: str | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.tables: list[Any] = list(tables)  # a user may add tables of statsmodels
        self.notes = list(notes)
        self.banner = banner
        self.warnings = list(warnings)

    @property
    def extra_txt(self) -> str | None:
        """The notes as they stand in the text."""
        lines = _lines(self._width(), *self._foot()[1]) if self.notes else []
        return "\n".join(lines) or None

    @extra_txt.setter
    def extra_txt(self, text: str | None) -> None:
        self.notes = text.splitlines() if text else []

    def add_extra_txt(self, etext: Sequence[str]) -> None:
        """Add notes below those there are (statsmodels would replace them).

        Parameters
        ----------
        etext : sequence of str
            One a note.
        """
        self.notes.extend(etext)

    def _width(self) -> int:
        widest = max((_natural_width(table) for table in self.tables), default=0)
        return PREFERRED_WIDTH if widest <= PREFERRED_WIDTH else min(widest, WIDEST)

    def _foot(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Return what stands at the foot: headings, and marked texts; either may be empty."""
        warnings = [(f"[W{place}]", text) for place, text in enumerate(self.warnings, 1)]
        notes = [(f"[{place}]", text) for place, text in enumerate(self.notes, 1)]
        return [("Warnings:", warnings), ("Notes:", notes)]

    def _text_banner(self, width: int) -> list[str]:
        if not self.banner:
            return []
        rule = "*" * width
        inside = [f"*{pad(line, width - 2, 'c')}*" for line in wrap(plain(self.banner), width - 6)]
        return [rule, *inside, rule]

    def as_text(self) -> str:
        """Return the summary as text.

        Returns
        -------
        str
            78 columns wide where that is enough, at most 100.
        """
        width = self._width()
        rule = "=" * width
        out = self._text_banner(width)
        for place, table in enumerate(self.tables):
            title = plain(table.title or "")
            titles = [pad(line, width, "c").rstrip() for line in wrap(title, width) if line]
            if not isinstance(table, ReportTable):
                out += table.as_text().splitlines()
                continue
            if place == 0:
                out += [*titles, rule]
            elif titles:
                out += [*titles, "-" * width]
            out += [*table.body(width), rule]
        for heading, texts in self._foot():
            out += ["", *_lines(width, heading, texts)] if texts else []
        out += ["", *self._text_banner(width)] if self.banner else []
        return "\n".join(out)

    def as_html(self) -> str:
        """Return the summary as an HTML fragment.

        Returns
        -------
        str
        """
        banner = []
        if self.banner:
            banner = [
                f'<div class="dpstats-banner" role="note" style="{_BANNER_STYLE}">'
                f"{html_text(self.banner)}</div>"
            ]
        foot = []
        styles = (("warnings", _WARNING_STYLE), ("notes", "text-align:left"))
        for (heading, texts), (name, style) in zip(self._foot(), styles, strict=True):
            inner = "<br/>\n".join([heading, *(f"{mark} {html_text(x)}" for mark, x in texts)])
            if texts:
                foot.append(f'<div class="dpstats-{name}" style="{style}">{inner}</div>')
        tables = [table.as_html() for table in self.tables]
        parts = ['<div class="dpstats-summary">', *banner, *tables, *foot, *banner, "</div>"]
        return "\n".join(parts)

    def as_latex(
        self,
        caption: str | None = None,
        label: str | None = None,
        position: str | None = None,
    ) -> str:
        r"""Return the summary for inclusion in a LaTeX document; needs no package.

        Parameters
        ----------
        caption, label : str, optional
            With either the summary stands in a `table` environment. The caption is escaped; the
            label is what `\ref` names.
        position : str, optional
            Of the environment, such as "htbp".

        Returns
        -------
        str
            Tabulars as wide as the line, the notes below them.

        Raises
        ------
        DPStatsError
            If LaTeX could not read one of them.
        """
        banner = []
        if self.banner:
            text = r"\centering\textbf{" + latex_text(self.banner) + "}"
            box = r"\fbox{\parbox{0.9\linewidth}{" + text + "}}"
            banner = [r"\begin{center}" + box + r"\end{center}"]
        own = [table for table in self.tables if isinstance(table, ReportTable)]
        parts = [r"\par\begingroup", *banner]
        width = max([_LATEX_SIZES[0][0], *(table.latex_width() for table in own)])
        parts.append(_latex_size(width))
        for table in self.tables:
            if isinstance(table, ReportTable):
                parts += [*_latex_table(table, width), r"\par\medskip\noindent"]
            else:
                parts.append(table.as_latex_tabular())
        for heading, texts in self._foot():
            if texts:
                bold = rf"\textbf{{{heading}}}" if heading == "Warnings:" else heading
                parts.append(rf"{{\footnotesize\raggedright\noindent {bold}\par")
                parts += [rf"\noindent {latex_text(f'{mark} {text}')}\par" for mark, text in texts]
                parts.append(r"}\smallskip")
        source = with_unicode_macro("\n".join([*parts, *banner, r"\endgroup"]))
        return floated(source, caption, label, position)

    def as_csv(self) -> str:
        """Return the summary as comma separated values.

        Returns
        -------
        str
            Tables and notes one below the other, an empty line between them.
        """
        banner = [csv_line([self.banner])] if self.banner else []
        foot = [[csv_line([f"{mark} {text}"]) for mark, text in texts] for _, texts in self._foot()]
        blocks = ["\n".join(part) for part in (banner,) if part]
        blocks += [table.as_csv() for table in self.tables]
        blocks += ["\n".join(part) for part in (*foot, banner) if part]
        return "\n\n".join(blocks)


def _lines(width: int, heading: str, texts: Sequence[tuple[str, str]]) -> list[str]:
    """Return a heading and marked texts below it, in lines of at most `width` columns."""
    lines = [heading]
    for mark, text in texts:
        lines.extend(wrap(f"{mark} {plain(text)}", width, indent=len(mark) + 1))
    return lines


def _natural_width(table: Any) -> int:
    """Width of any table, also of one of statsmodels that a user added."""
    if isinstance(table, ReportTable):
        return table.natural_width()
    return max(map(len, table.as_text().splitlines()), default=0)
