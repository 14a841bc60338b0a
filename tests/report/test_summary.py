"""Summaries: nothing unescaped, nothing lost, nothing too wide, in every format."""

import csv
import doctest
import importlib
import io
import pickle
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstats as dp
from dpstats.report._escape import display_width, html_text, latex_text, plain
from dpstats.report._layout import wrap
from dpstats.report.summary import SummaryContent, TableContent, build_summary, fixed, number

COLUMNS = ["coef", "std err", "z", "P>|z|", "lower", "upper"]
BANNER = r"NOT PRIVATE: eps = inf & nothing_is protected <i>100%</i>"
HOSTILE = [
    "income_%_of_$total",
    "a & b # c",
    "{x} ~ y ^ 2",
    r"\alpha\end{tabular}\input{x}",
    "<b>bold</b>",
    "<script>alert(1)</script>",
    "a < b > c | d",
    "\"quoted\" 'single' `tick` ``''",
    "[0.2, 0.4)",
    "*star* -- dash --- ,, ?` !`",
    "&amp; &lt; &#60;",
    "a,b;c",
    "$$",
    "% comment",
    "-1_e",
]
# what the engine may not have: other oracles read these
ODD = [
    "two\nlines\ttab",
    "\x1b[31mred\x07",
    "\u202eright to left",
    "\ud800",
    "naïve Łódź",
    "中文变量",
]


def content(name="x", *, banner=None, parameters=None, tables=1):
    """Hold the same string in every place that shows one."""
    index = pd.Index([name]) if parameters is None else parameters
    values = [[1.25, 0.5, 2.5, 0.012, 0.25, 2.25]] * len(index)
    further = TableContent(name, (name, "epsilon"), ((name, "1e-06"), ("other", name)))
    return SummaryContent(
        name,
        (("Dep. Variable:", name), (name, "value")),
        (("Method:", name),),
        pd.DataFrame(values, index=index, columns=COLUMNS),
        0.95,
        (further,) * tables,
        (f"Note on {name}.",),
        banner,
    )


def squeeze(text):
    return re.sub(r"\s+", "", text)


class Reader(HTMLParser):
    """Read tables back; refuse what the summary does not use."""

    ALLOWED = frozenset(["div", "table", "caption", "thead", "tbody", "tr", "th", "td", "br"])

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.stack, self.cells, self.text, self.captions = [], [], [], []

    def handle_starttag(self, tag, attrs):
        assert tag in self.ALLOWED, tag
        assert {key for key, _ in attrs} <= {"class", "style", "scope", "role"}
        if tag != "br":
            self.stack.append(tag)
        if tag in {"th", "td"}:
            self.cells.append("")
        if tag == "caption":
            self.captions.append("")

    def handle_endtag(self, tag):
        if tag != "br":
            assert self.stack.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.stack and self.stack[-1] in {"th", "td"}:
            self.cells[-1] += data
        if self.stack and self.stack[-1] == "caption":
            self.captions[-1] += data


def read_html(markup):
    reader = Reader()
    reader.feed(markup)
    reader.close()
    assert not reader.stack
    return reader


WORDS = {
    "textbackslash": "\\", "ensuremath": "", "sim": "~", "textasciicircum": "^", "ldots": "…",
    "hline": "", "par": "\n", "smallskip": "", "medskip": "", "noindent": "", "centering": "",
    "raggedright": "", "footnotesize": "", "small": "", "normalsize": "", "scriptsize": "",
    "textbf": "", "begingroup": "", "endgroup": "", "times": "e", "fill": "", "linewidth": "",
    "extracolsep": "", "tabcolsep": "", "fbox": "", "char": "char",
}  # fmt: skip


def read_latex(source):
    r"""Read LaTeX back into the text it prints; refuse an active character out of place.

    Knows the few commands a summary uses; `&` may stand only inside a tabular, `^` only in
    mathematics, `#`, `%`, `~` and `_` nowhere.
    """
    source = re.sub(r"^\\providecommand.*\n", "", source)
    out, opened, maths, depth, i = [], [], False, 0, 0
    while i < len(source):
        char = source[i]
        if char == "\\":
            match = re.match(r"\\([a-zA-Z]+)\s*|\\(.)", source[i:], re.DOTALL)
            i += match.end()
            word, symbol = match.groups()
            if symbol is not None:
                assert symbol in "\\{}_%&#$", symbol
                if symbol == "\\":
                    assert opened, "line end outside a tabular"
                    assert source[i : i + 1] not in {"[", "*"}, "read as an argument"
                    symbol = "\n"
                out.append(symbol)
            elif word in {"begin", "end"}:
                name = re.match(r"\{(tabular\*?|center)\}", source[i:])
                i += name.end()
                if word == "begin":
                    opened.append((name[1], depth))
                    if name[1] != "center":
                        spec = re.match(
                            r"(\{\\linewidth\}\{@\{\}[lrc]@\{\\extracolsep\{\\fill\}\}[lrc]*@\{\}\}"
                            r"|\[t\]\{@\{\}l@\{\}\})",
                            source[i:],
                        )
                        i += spec.end()
                else:
                    assert opened.pop() == (name[1], depth)
            elif word in {"rule", "setlength"}:
                i += re.match(r"\{[^{}]*\}\{[^{}]*\}", source[i:]).end()
            elif word == "parbox":
                i += len(r"{0.9\linewidth}")
            elif word == "char":
                assert source.startswith("34{}", i)
                i += 4
                out.append('"')
            else:
                out.append(WORDS[word])
        elif char in "{}":
            depth += 1 if char == "{" else -1
            assert depth >= 0
            i += 1
        elif char == "$":
            maths = not maths
            i += 1
        else:
            assert char not in "#%~_", f"{char} at {source[i - 20 : i + 20]!r}"
            assert char != "^" or maths
            assert char != "&" or any(name.startswith("tabular") for name, _ in opened)
            assert char not in "<>|" or source[:i].endswith(r"\ensuremath{")
            out.append("\x00" if char == "&" else char)
            i += 1
    assert not opened
    assert depth == 0
    assert not maths
    return "".join(out)


@pytest.mark.parametrize("name", HOSTILE + ODD)
def test_html_gives_every_name_back(name):
    reader = read_html(build_summary(content(name, banner=name)).as_html())
    visible = plain(name)
    assert reader.cells.count(visible) == 7
    assert reader.captions == [visible, visible]
    text = "".join(reader.text)
    assert f"Note on {visible}." in text
    assert text.count(visible) == 7 + 2 + 1 + 2
    assert '"' not in html_text(name)


@pytest.mark.parametrize("name", HOSTILE)
def test_latex_gives_every_name_back(name):
    text = squeeze(read_latex(build_summary(content(name, banner=name)).as_latex()))
    everywhere = 7 + 2 + 1 + 2
    # the two halves at the top are read line by line, so a broken name is not found there
    assert everywhere - 3 * (len(name) > 14) <= text.count(squeeze(name)) <= everywhere


@given(st.text(st.characters(max_codepoint=126, min_codepoint=32), max_size=40))
@settings(max_examples=150, deadline=None)
def test_latex_escape_has_an_inverse(name):
    if not re.fullmatch(r"-?[\d,.]*(e[-+]?\d+)?", name):
        assert read_latex(latex_text(name)) == name


@pytest.mark.parametrize("name", HOSTILE + ODD)
def test_text_keeps_every_character(name):
    text = build_summary(content(name)).as_text()
    text.encode("utf-8")
    assert squeeze(text).count(squeeze(plain(name))) >= 7
    assert all(c == "\n" or c.isprintable() for c in text)


@pytest.mark.parametrize("name", HOSTILE + ODD)
def test_csv_reads_back(name):
    summary = build_summary(content(name, banner=name))
    rows = list(csv.reader(io.StringIO(summary.as_csv())))
    visible = plain(name)
    assert sum(row.count(visible) for row in rows) == 7 + 2 + 2
    assert rows[0] == [visible]
    assert rows[-1] == [visible]


@pytest.mark.parametrize("name", [*HOSTILE, "a" * 300])
def test_single_tables_and_cells_are_escaped(name):
    tables = build_summary(content(name)).tables
    for table in tables:
        read_html(table.as_html())
        read_html(table._repr_html_())
        read_latex(table.as_latex_tabular())
        read_latex(table.as_latex_tabular(center=False))
        read_latex(table._repr_latex_())
        assert max(map(len, str(table).splitlines())) <= 100
        for row in table:
            assert len(next(csv.reader([row.as_string("csv")]))) == len(row)
            read_html(row.as_string("html"))
            for cell in row:
                assert "<b>" not in cell.format(0, "html")
                assert cell.format(0, "latex") in {
                    latex_text(cell.data),
                    rf"\textbf{{{latex_text(cell.data)}}}",
                    "",
                }


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_latex_compiles_within_an_article(tmp_path):
    many = pd.MultiIndex.from_tuples([(name, "ATT") for name in HOSTILE + ODD], names=["unit_", ""])
    body = [build_summary(content(name, banner=name)).as_latex() for name in HOSTILE + ODD]
    body.append(build_summary(content("x" * 200, parameters=many)).as_latex())
    body.append(build_summary(content("_y" * 80)).tables[2].as_latex_tabular())
    source = "\n\n".join(
        [r"\documentclass{article}\begin{document}", "Before.", *body, r"\end{document}"]
    )
    (tmp_path / "paper.tex").write_text(source, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert run.returncode == 0, run.stdout[-1500:]


text_strategy = st.text(
    st.one_of(st.characters(), st.sampled_from("_ <>&%$\\\u4e2d\u0301\n")), max_size=60
)
cells = st.one_of(text_strategy, st.sampled_from(["0.5", "1e-06", "x" * 250, "a_" * 90]))


@st.composite
def contents(draw):
    pairs = st.lists(st.tuples(cells, cells), max_size=4).map(tuple)
    levels = draw(st.integers(1, 3))
    keys = draw(st.lists(st.tuples(*[text_strategy] * levels), max_size=4))
    index = (
        pd.Index([key[0] for key in keys], dtype=object)
        if levels == 1
        else pd.MultiIndex.from_arrays(
            [pd.Index([key[j] for key in keys], dtype=object) for j in range(levels)]
        )
    )
    values = draw(
        st.lists(
            st.lists(st.floats(width=64), min_size=6, max_size=6),
            min_size=len(keys),
            max_size=len(keys),
        )
    )
    frame = pd.DataFrame(np.reshape(values, (len(keys), 6)), index=index, columns=COLUMNS)
    tables = []
    for _ in range(draw(st.integers(0, 2))):
        count = draw(st.integers(0, 30))
        row = st.lists(cells, max_size=count).map(tuple)
        headers = draw(row)
        tables.append(TableContent(draw(cells), headers, tuple(draw(st.lists(row, max_size=3)))))
    notes = tuple(draw(st.lists(cells, max_size=3)))
    banner = draw(st.none() | cells)
    level = draw(st.sampled_from([0.5, 0.9, 0.95, 0.99, 0.999]))
    return SummaryContent(
        draw(cells), draw(pairs), draw(pairs), frame, level, tuple(tables), notes, banner
    )


@given(contents())
@settings(max_examples=60, deadline=None)
def test_any_content_fits_the_width_and_parses(made):
    summary = build_summary(made)
    lines = summary.as_text().split("\n")
    assert max(map(display_width, lines)) <= 100
    assert max(map(len, summary.as_text().splitlines())) <= 100
    rules = {len(line) for line in lines if line and not set(line) - {"="} and len(line) > 70}
    assert len(rules) == 1
    read_html(summary.as_html())
    list(csv.reader(io.StringIO(summary.as_csv())))
    summary.as_latex()


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=200), st.integers(2, 60))
@settings(max_examples=200, deadline=None)
def test_wrapping_loses_spaces_only(text, width):
    lines = wrap(plain(text), width)
    assert squeeze("".join(lines)) == squeeze(plain(text))
    assert max(map(display_width, lines)) <= width


def test_usual_content_takes_78_columns():
    lines = build_summary(content("re78", banner=BANNER)).as_text().splitlines()
    assert max(map(len, lines)) == 78
    formula = "y ~ " + " + ".join(f"covariate_{i}" for i in range(7))
    long = replace(content("ATE"), left=(("Formula:", formula),))
    assert max(map(len, build_summary(long).as_text().splitlines())) == 78


@pytest.mark.parametrize("form", ["as_text", "as_html", "as_latex", "as_csv"])
def test_banner_stands_first_and_last(form):
    out = getattr(build_summary(content("x", banner=BANNER)), form)()
    read = {
        "as_text": lambda text: text.replace("*", ""),
        "as_html": lambda text: "".join(read_html(text).text),
        "as_latex": lambda text: read_latex(text).replace("\x00", ""),
        "as_csv": lambda text: text,
    }[form]
    seen = squeeze(read(out))
    assert seen.startswith(squeeze(BANNER))
    assert seen.endswith(squeeze(BANNER))
    assert seen.count(squeeze(BANNER)) == 2
    bare = getattr(build_summary(content("x")), form)()
    assert "PRIVATE" not in bare


def test_is_a_statsmodels_summary_and_survives_pickling():
    from statsmodels.iolib.summary import Summary
    from statsmodels.iolib.table import SimpleTable

    from dpstats.report.summary import PrivateSummary

    summary = build_summary(content("a_b", banner=BANNER))
    assert isinstance(summary, Summary)
    assert isinstance(summary, PrivateSummary)
    assert all(isinstance(table, SimpleTable) for table in summary.tables)
    again = pickle.loads(pickle.dumps(summary))
    for form in ("as_text", "as_html", "as_latex", "as_csv"):
        assert getattr(again, form)() == getattr(summary, form)()
    assert str(summary) == summary.as_text()
    assert summary._repr_html_() == summary.as_html()
    assert summary._repr_latex_() == summary.as_latex()


def test_users_may_add_notes_and_tables():
    from statsmodels.iolib.table import SimpleTable

    summary = build_summary(content("x"))
    summary.add_extra_txt(["One <more>."])
    assert "[2] One <more>." in summary.extra_txt
    assert "[2] One &lt;more&gt;." in summary.as_html()
    summary.tables.append(SimpleTable([["1", "2"]], headers=["a", "b"]))
    for form in ("as_text", "as_html", "as_latex", "as_csv"):
        assert getattr(summary, form)()
    summary.extra_txt = None
    assert "Notes" not in summary.as_text()


def test_looks_like_statsmodels():
    coefficients = pd.DataFrame(
        [[0.08391, 0.09712, 0.864, 0.3899, -0.1088, 0.2766], [-1.5, 0.0004, -3.0, 0.0, 0.0, 1.0]],
        index=["Intercept", "x"],
        columns=COLUMNS,
    )
    text = build_summary(SummaryContent("T", (), (), coefficients, 0.9)).as_text().splitlines()
    assert text[0].strip() == "T"
    assert text[3].split() == ["coef", "std", "err", "z", "P>|z|", "[0.05", "0.95]"]
    # two significant digits of each standard error
    first = ["Intercept", "0.084", "0.097", "0.864", "0.390", "-0.109", "0.277"]
    assert text[5].split() == first
    second = ["x", "-1.50000", "0.00040", "-3.000", "0.000", "0.00000", "1.00000"]
    assert text[6].split() == second


def test_columns_of_coefficients_are_checked():
    frame = pd.DataFrame([[1.0, 2.0]], columns=["coef", "std err"])
    with pytest.raises(ValueError, match=r"`coefficients` must have .* got 2 columns"):
        build_summary(SummaryContent("T", (), (), frame, 0.95))


@given(st.floats(-1e300, 1e300))
@settings(max_examples=200)
def test_numbers_read_back(value):
    assert float(number(value)) == pytest.approx(value, rel=6e-4)
    assert float(fixed(value)) == pytest.approx(value, rel=6e-4, abs=5.1e-5)
    assert len(fixed(value)) <= 12


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, np.float32(0.5), np.int64(3), 0, -0.0])
def test_odd_numbers_are_written(value):
    assert number(value)
    assert fixed(value, 3)


def test_heavy_packages_load_on_first_use():
    code = (
        "import sys, dpstats.report.summary, dpstats.report.html, dpstats.report.plots;"
        "print([m for m in ('statsmodels', 'matplotlib', 'scipy') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "module", ["_escape", "_layout", "_numbers", "_statsmodels", "summary", "html", "plots"]
)
def test_examples_run(module):
    if module == "plots":
        pytest.importorskip("matplotlib")
    assert doctest.testmod(importlib.import_module(f"dpstats.report.{module}")).failed == 0


def test_a_solver_stands_in_the_row_of_its_fit():
    """The shares of the table add up to the budget, as those of all releases do."""
    trial = dp.simulate.ate("well_specified", 5000, rng=1)
    result = dp.dp_ate("y ~ x1 + x2 + x3 + x4", "w", trial.data, 1.0, bounds=trial.bounds)
    listed = result.privacy.releases.set_index("release")["epsilon"]
    assert "propensity (solver)" in listed.index
    (table,) = (x for x in result._summary_content(0.05).tables if x.title == "Noisy releases")
    rows = {row[0]: row for row in table.rows}
    assert list(rows) == [name for name in listed.index if name != "propensity (solver)"]
    assert rows["propensity"][1] == "objective, K-norm, and solver"
    both = listed["propensity"] + listed["propensity (solver)"]
    assert float(rows["propensity"][4]) == pytest.approx(both, abs=5e-5)
    for name in set(rows) - {"propensity"}:
        assert float(rows[name][4]) == pytest.approx(listed[name], rel=5e-4)
    assert sum(float(row[4]) for row in table.rows) == pytest.approx(1.0, abs=1e-3)
