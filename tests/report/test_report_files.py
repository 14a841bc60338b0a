"""Reports as files: whole, self-contained, escaped, and what stands beside them."""

import base64
import json
import math
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest

import dpstats as dp
from dpstats.privacy.accounting import PrivacyRecord
from dpstats.report import latex, markdown
from dpstats.report.html import Figure, Html, Paragraph, Section, Table, Warnings, page
from dpstats.report.story import plain_privacy, references

FORMULA = "y ~ x1 + x2 + x3 + x4"
NASTY = r"a{b}~c^d\e <f> & g_h $5 100%"
VOID = {"meta", "img", "br"}
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)


@pytest.fixture(scope="module")
def results():
    trial = dp.simulate.ate("well_specified", 2000, rng=1)
    panel = dp.simulate.panel("factor", n_donors=300, effect=0.3, rng=1)

    def fit(eps, **options):
        return dp.dp_ate(FORMULA, "w", trial.data, eps, bounds=trial.bounds, **options)

    def synth(treated, eps, **options):
        return dp.dp_synth(
            panel.data, unit="unit", time="time", treated=treated, outcome="y", T0=20, eps=eps,
            method="did", **options,
        )  # fmt: skip

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "private": fit(1.0),
            "seeded": fit(1.0, rng=3),
            "exact": fit(math.inf),
            "trial": fit(1.0, method="diff_means"),
            "panel": synth(0, 1.0, delta=1e-6),
            "several": synth([0, 1], math.inf),
        }


class Page(HTMLParser):
    """Check nesting; collect tags, attributes, headings and text."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.stack, self.tags, self.attributes, self.headings, self.text = [], [], [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.stack.append(tag)
        if tag == "h2":
            self.headings.append("")

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] not in {"style", "title"}:
            self.text += data
        if self.stack and self.stack[-1] == "h2":
            self.headings[-1] += data


def read(markup):
    page = Page()
    page.feed(markup)
    page.close()
    assert not page.stack
    return page


KINDS = ["private", "seeded", "exact", "trial", "panel", "several"]


@pytest.mark.parametrize("kind", KINDS)
def test_html_is_one_whole_page(results, tmp_path, kind):
    result = results[kind]
    target = tmp_path / "report.html"
    assert result.report(target) == target
    assert list(tmp_path.iterdir()) == [target]
    markup = target.read_text(encoding="utf-8")
    page = read(markup)
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    for key, value in page.attributes:
        assert not key.startswith("on")
        if key in {"src", "href", "srcset", "data", "action"}:
            assert value.startswith("data:image/png;base64,")
    # nothing from elsewhere, in no style and no text
    assert not re.search(r"https?:|url\(|@import", markup)
    assert page.headings[:3] == ["Estimate", "Privacy", "What was estimated"]
    assert page.headings[-3:] == ["Diagnostics", "Table for a paper", "Citation"]
    assert ("Noisy releases" in page.headings) == (kind not in {"exact", "several"})
    for record in result.privacy.records:
        assert record.release in page.text
    assert result.privacy.statement() in page.text
    for reading in result.diagnostics["reading"]:
        assert reading in page.text
    marked = page.text.count("NOT PRIVATE")
    assert marked >= 2 if not result.privacy.private else marked == 0
    if not result.privacy.private:
        assert page.text.strip().startswith("NOT PRIVATE")


def test_page_says_what_was_asked_and_found(results, tmp_path):
    result = results["private"]
    text = read(result.report(tmp_path / "r.html").read_text(encoding="utf-8")).text
    low, high = result.conf_int().iloc[0]
    assert "By how much does w change y, on average over everybody in the data?" in text
    assert FORMULA in text
    # two significant digits of the standard error
    digits = 1 - math.floor(math.log10(result.bse["ATE"]))
    assert f"The estimate is {result.params['ATE']:.{digits}f} with" in text
    assert f"a standard error of {result.bse['ATE']:.{digits}f}. The 95%" in text
    assert f"runs from {low:.{digits}f} to {high:.{digits}f}" in text
    assert "at most 73.1% sure" in text  # e / (1 + e)
    assert "Chaudhuri" in text
    low, high = result.conf_int(0.5).iloc[0]
    path = result.report(
        tmp_path / "r.html", alpha=0.5, title="My title", question="My question?", decimals=3
    )
    text = read(path.read_text(encoding="utf-8")).text
    assert f"The 50% interval runs from {low:.3f} to {high:.3f}" in text
    assert text.strip().startswith("My title")
    assert "My question?" in text
    assert "By how much" not in text


def test_panel_report_tells_its_own_story(results, tmp_path):
    text = read(results["panel"].report(tmp_path / "r.html").read_text(encoding="utf-8")).text
    assert "Effect on y of unit 0 after 20" in text
    assert "on average over the 10 periods that followed" in text
    assert "y by unit and time" in text
    assert "arXiv:2303.14084" in text
    assert "the series of any one unit" in text
    assert "but for a probability of 1e-06" in text


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_embedded_or_stand_beside(results, tmp_path, kind):
    pytest.importorskip("matplotlib")
    result = results[kind]
    names = [name for name, _ in result._story().figures]
    assert len(names) >= 1
    assert len(set(names)) == len(names)
    assert ("budget" in names) == (kind not in {"exact", "several"})
    markup = result.report(tmp_path / "a b.html").read_text(encoding="utf-8")
    assert read(markup).tags.count("img") == len(names)
    result.report(tmp_path / "a b.md")
    result.report(tmp_path / "a b.tex")
    expected = {f"a-b-{name}.{suffix}" for name in names for suffix in ("png", "pdf")}
    expected |= {"a b.html", "a b.md", "a b.tex", "a-b-table.tex"}
    assert {path.name for path in tmp_path.iterdir()} == expected
    for name in names:
        assert (tmp_path / f"a-b-{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"a-b-{name}.pdf").read_bytes().startswith(b"%PDF")
        assert f"](a-b-{name}.png)" in (tmp_path / "a b.md").read_text(encoding="utf-8")
        assert f"{{a-b-{name}.pdf}}" in (tmp_path / "a b.tex").read_text(encoding="utf-8")


def test_reports_leave_no_figure_open(results, tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.close("all")
    results["private"].report(tmp_path / "r.html")
    assert plt.get_fignums() == []


def test_without_matplotlib_figures_are_left_out(results, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for suffix in ("html", "md", "tex"):
        text = results["private"].report(tmp_path / f"r.{suffix}").read_text(encoding="utf-8")
        for sign in ("<img", "![", "includegraphics", "graphicx"):
            assert sign not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "r-table.tex", "r.html", "r.md", "r.tex"
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_markdown_has_every_table(results, tmp_path, kind):
    result = results[kind]
    text = result.report(tmp_path / "r.md").read_text(encoding="utf-8")
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    for table in tables:
        rows = [len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()]
        assert len(set(rows)) == 1
        assert re.fullmatch(r"\|(-+\|)+", table.splitlines()[1])
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[:3] == ["Estimate", "Privacy", "What was estimated"]
    least = 4 + (kind not in {"exact", "several"})  # estimates, model, diagnostics, paper, releases
    assert len(tables) >= least
    assert text.count("\n# ") + text.startswith("# ") == 1
    assert ("> **NOT PRIVATE" in text) == (not result.privacy.private)
    markdown_it = pytest.importorskip("markdown_it")
    found = markdown_it.MarkdownIt("commonmark").enable("table").render(text)
    assert found.count("<table>") == len(tables)
    assert "http" not in found


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
@pytest.mark.parametrize("kind", KINDS)
def test_latex_compiles(results, tmp_path, kind):
    results[kind].report(tmp_path / "my report_1.tex", title=NASTY, question=NASTY)
    paper = (
        r"\documentclass{article}\begin{document}\begin{table}\caption{Effect}"
        r"\input{my-report_1-table}\end{table}\end{document}"
    )
    (tmp_path / "paper.tex").write_text(paper, encoding="utf-8")
    for name in ("my report_1.tex", "paper.tex"):
        done = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name],
            cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull" not in done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_latex_is_balanced(results, tmp_path, kind):
    text = results[kind].report(tmp_path / "r.tex", title=NASTY).read_text(encoding="utf-8")
    stack = []
    for word, name in re.findall(r"\\(begin|end)\{([a-z*]+)\}", text):
        if word == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert not stack
    bare = re.sub(r"\\[\\{}_%&#$]", "", text)
    assert bare.count("{") == bare.count("}")
    body = bare[bare.index(r"\begin{document}") :]
    assert "#" not in body.replace("#1", "").replace("#2", "")
    assert "~" not in body
    assert "%" not in body
    assert "&" in body  # tables
    assert r"\input{r-table.tex}" in text
    table = (tmp_path / "r-table.tex").read_text(encoding="utf-8")
    assert table == dp.compare([results[kind]], ci=True).as_latex() + "\n"


def test_unknown_suffix_is_refused_before_anything_is_written(results, tmp_path):
    for name, given in (("r.docx", "'.docx'"), ("r", "no suffix"), ("r.html.gz", "'.gz'")):
        with pytest.raises(dp.DPStatsError, match=rf"`path` must end in .*; got {given}"):
            results["private"].report(tmp_path / name)
    with pytest.raises(dp.DPStatsError, match="`path` must name a file; got int"):
        results["private"].report(3)
    with pytest.raises(dp.DPStatsError, match="`alpha`"):
        results["private"].report(tmp_path / "r.html", alpha=2)
    assert list(tmp_path.iterdir()) == []
    assert results["private"].report(str(tmp_path / "R.HTM")).exists()


@pytest.mark.parametrize("kind", ["private", "panel"])
def test_stored_results_give_the_same_report(results, tmp_path, kind):
    result = results[kind]
    result.save(tmp_path / "r.json")
    again = dp.load(tmp_path / "r.json")
    for suffix in ("md", "tex"):
        first = result.report(tmp_path / f"r.{suffix}").read_text(encoding="utf-8")
        assert again.report(tmp_path / f"r.{suffix}").read_text(encoding="utf-8") == first


def test_names_are_escaped_in_every_format(results, tmp_path):
    facts = replace(results["private"].facts, outcome=NASTY, treat="<script>", formula=f"{NASTY}~1")
    nasty = type(results["private"])(facts, results["private"].released, results["private"].privacy)
    page = read(nasty.report(tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "script" not in page.tags
    assert page.text.count(NASTY) >= 4
    text = nasty.report(tmp_path / "r.md").read_text(encoding="utf-8")
    assert "<script>" not in text
    assert r"a\{b\}\~c\^d\\e &lt;f&gt; &amp; g\_h \$5 100%" in text
    text = nasty.report(tmp_path / "r.tex").read_text(encoding="utf-8")
    assert r"a\{b\}\ensuremath{\sim}c\textasciicircum{}d\textbackslash{}e" in text
    assert NASTY not in text


def test_plain_words_of_the_guarantee():
    def words(epsilon, delta=0.0, private=True):
        record = PrivacyRecord(epsilon, delta, "replace one row", "any.", {}, private, False, ())
        return plain_privacy(record)

    # logistic(eps), by hand
    for epsilon, sure in ((0.1, "52.5%"), (0.5, "62.2%"), (1.0, "73.1%"), (3.0, "95.3%")):
        assert f"at most {sure} sure" in words(epsilon)
        assert "weak promise" not in words(epsilon)
    assert "at most 99.3% sure" in words(5.0)
    assert "weak promise" in words(5.0)
    assert "99.9% or more" in words(40.0)
    assert "100%" not in words(800.0)
    assert "but for a probability of 1e-06" in words(1.0, 1e-6)
    assert words(1.0, private=False) == ""


def test_references_come_from_docstrings():
    class Cited:
        """Something.

        References
        ----------
        First, A. (2001).
        On two lines.

        Notes
        -----
        Not this.
        """

    assert references((Cited(), Cited, str)) == ("First, A. (2001). On two lines.",)
    assert references((None, 3)) == ()


def test_diagnostics_are_shown_in_full_on_request(results):
    for kind in ("private", "panel"):
        result = results[kind]
        text = result.summary(diagnostics=True).as_text()
        assert max(map(len, text.splitlines())) <= 100
        squeezed = re.sub(r"\s+", "", text)
        for row in result.diagnostics.itertuples():
            for value in (row.quantity, row.value, row.reading):
                # a wrapped reading shares its lines with no other cell that is not empty
                assert re.sub(r"\s+", "", str(value)) in squeezed
        assert "Diagnostics" not in str(result.summary())
        page = result.summary(diagnostics=True).as_html()
        assert "Diagnostics, from released numbers only" in page


def test_documents_of_blocks():
    blocks = (
        Paragraph("1. one\n\n- two\n\n1.5 three"),
        Table(pd.DataFrame({"a|b": [1e-6, None]}, index=["x", "y"]), caption="C_1", note="N"),
        Table(pd.DataFrame()),
        Figure(PIXEL, alt="[a]", caption="c*"),
        Html("<p>as it stands</p>"),
    )
    section = Section("H", blocks)
    text = markdown.document("T", [section], figures={id(blocks[3]): "x.png"}, banner="B")
    assert "\n1\\. one\n\n\\- two\n\n1.5 three\n" in text
    assert "![\\[a\\]](x.png)\n\n*c\\**" in text
    assert "**C\\_1**" in text
    assert re.search(r"\|\s+\|\s+a\\\|b \|", text)
    assert "<p>as it stands</p>" in text
    assert text.startswith("> **B**")
    assert text.rstrip().endswith("> **B**")
    source = latex.document("T", [Section("H", blocks[:2])], lead="L", banner="B")
    assert source.count(r"\textbf{B}") == 2
    assert r"C\_1" in source
    with pytest.raises(TypeError, match="Html"):
        latex.document("T", [section])


def test_warnings_are_blocks_of_every_document():
    texts = ("50% of a_b <c> & more", "- second")
    section = [Section("H", (Warnings(texts),))]
    markup = page("T", section)
    assert "<li>50% of a_b &lt;c&gt; &amp; more</li>\n<li>- second</li>" in markup
    text = markdown.document("T", section)
    assert "> **Warnings**\n>\n> 1. 50% of a\\_b &lt;c&gt; &amp; more\n> 2. \\- second" in text
    source = latex.document("T", section)
    assert r"\item 50\% of a\_b \ensuremath{<}c\ensuremath{>} \& more" in source
    assert source.count(r"\item") == 2


def test_report_holds_nothing_that_the_result_does_not_hold(results, tmp_path):
    """A saved result is enough to write the page: nothing else can be on it."""
    result = results["private"]
    result.save(tmp_path / "r.json")
    state = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert state["class"] == "ATEResults"
    expected = result.report(tmp_path / "a.md").read_text(encoding="utf-8")
    given = dp.load(tmp_path / "r.json").report(tmp_path / "b.md").read_text(encoding="utf-8")
    assert given.replace("(b-", "(a-") == expected
