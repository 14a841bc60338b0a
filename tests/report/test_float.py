"""Tables as LaTeX floats, and reports of several results."""

import re
import shutil
import subprocess
import sys
import warnings

import pytest

import dpstats as dp
from dpstats.report.story import plain_privacy

FORMULA = "y ~ x1 + x2 + x3 + x4"
NASTY = r"50% of a_b & <c> \input{x} #1 naïve 中"
# what the font of figures has
PLAIN = NASTY.removesuffix(" 中")


@pytest.fixture(scope="module")
def fits():
    trial = dp.simulate.ate("well_specified", 3000, rng=1)

    def fit(eps, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dp.dp_ate(FORMULA, "w", trial.data, eps, bounds=trial.bounds, **options)

    first = fit(1.0)
    return {"one": first, "att": first.estimand("att"), "few": fit(0.1), "seed": fit(1.0, rng=1)}


def compiled(folder, *bodies, preamble=""):
    """Compile a paper twice; return the log and the labels that LaTeX wrote down."""
    paper = "\n\n".join([rf"\documentclass{{article}}{preamble}\begin{{document}}", *bodies])
    (folder / "paper.tex").write_text(paper + r"\end{document}", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    for _ in range(2):
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    log = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, log[-2000:]
    aux = (folder / "paper.aux").read_text(encoding="utf-8", errors="replace")
    return log, dict(re.findall(r"\\newlabel\{([^}]*)\}\{\{(\d*)\}", aux))


def test_a_caption_or_a_label_makes_a_float(fits):
    table = dp.compare([fits["one"]], title="A title")
    bare = table.as_latex()
    assert r"\begin{table}" not in bare
    assert "A title" in bare
    source = table.as_latex(caption="Effect of a_b", label="tab:one", position="htbp")
    assert source.splitlines()[:3] == [
        r"\begin{table}[htbp]", r"\caption{Effect of a\_b}", r"\label{tab:one}"
    ]  # fmt: skip
    assert source.splitlines()[-1] == r"\end{table}"
    assert "A title" not in source
    assert "A title" in table.as_latex(label="tab:one")
    # without a caption a label would number the section
    assert r"\caption{}" in table.as_latex(label="tab:one")
    summary = fits["one"].summary()
    inner = summary.as_latex(caption="S", label="tab:s").splitlines()
    assert inner[:3] == [r"\begin{table}", r"\caption{S}", r"\label{tab:s}"]
    assert inner[3:-1] == summary.as_latex().splitlines()


@pytest.mark.parametrize("label", ["", "a b", "a{b", "a#b", "50%", "a,b", "\\x", 3, "a\nb"])
def test_labels_that_latex_cannot_read_are_refused(fits, tmp_path, label):
    table = dp.compare([fits["one"]])
    for call in (
        lambda: table.as_latex(label=label),
        lambda: fits["one"].summary().as_latex(label=label),
        lambda: fits["one"].report(tmp_path / "r.tex", label=label),
        lambda: table.report(tmp_path / "r.tex", label=label),
    ):
        with pytest.raises(dp.DPStatsError, match="`label`"):
            call()
    assert list(tmp_path.iterdir()) == []


def test_captions_and_positions_are_checked(fits):
    table = dp.compare([fits["one"]])
    with pytest.raises(dp.DPStatsError, match="`caption` must be text; got int"):
        table.as_latex(caption=1)
    for position in ("x", "", "h]", 1):
        with pytest.raises(dp.DPStatsError, match="`position`"):
            table.as_latex(caption="x", position=position)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_floats_compile_and_are_numbered(fits, tmp_path):
    table = dp.compare({"a": fits["one"], "b": fits["few"]})
    bodies = [
        "Before.",
        table.as_latex(NASTY, "tab:first", "htbp"),
        r"See \ref{tab:first}, \ref{tab:second} and \ref{tab:third}.",
        fits["seed"].summary().as_latex(label="tab:second"),
        table.as_latex(label="tab:third_one"),
    ]
    log, labels = compiled(tmp_path, *bodies)
    assert labels == {"tab:first": "1", "tab:second": "2", "tab:third_one": "3"}
    assert "Overfull" not in log


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs poppler")
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_text_before_a_table_is_a_paragraph_of_its_own(fits, tmp_path):
    """A table in the text must not centre the paragraph it follows."""
    before = "Words that stand before it. " * 12
    compiled(tmp_path, before + dp.compare([fits["one"]]).as_latex())
    layout = subprocess.run(
        ["pdftotext", "-layout", "paper.pdf", "-"], cwd=tmp_path, capture_output=True, text=True,
        check=True,
    ).stdout.splitlines()  # fmt: skip
    lines = [line for line in layout if "Words" in line or "before" in line]
    assert len(lines) >= 3
    # the first line is indented, those after it begin where the text begins
    starts = [len(line) - len(line.lstrip()) for line in lines]
    assert starts[0] > starts[1]
    assert len(set(starts[1:])) == 1


def test_rules_have_room_without_booktabs(fits):
    source = dp.compare([fits["one"]]).as_latex()
    for name in ("toprule", "midrule", "bottomrule"):
        (line,) = [x for x in source.splitlines() if x.startswith(rf"\providecommand{{\{name}}}")]
        assert r"\hline" in line
        assert r"\noalign{\smallskip}" in line


def test_releases_keep_their_columns_together(fits):
    """Seven columns, the share included, stand in one tabular."""
    source = fits["one"].summary().as_latex()
    tabulars = re.findall(r"\\begin\{tabular\*\}.*?\\end\{tabular\*\}", source, re.DOTALL)
    (releases,) = [x for x in tabulars if "mechanism" in x]
    head = next(line for line in releases.splitlines() if "mechanism" in line)
    assert head.count("&") == 6
    assert "share" in head
    assert len(tabulars) == 3


def test_shares_that_are_next_to_nothing(fits, tmp_path):
    rows = {row.release: row for row in fits["one"].privacy.records}
    tiny = [row for row in rows.values() if row.epsilon < 5e-4]
    assert [row.release for row in tiny] == ["propensity (solver)"]
    # a summary adds it to the line of the propensity; a report lists every release
    assert "<0.1%" not in str(fits["one"].summary())
    fits["one"].report(tmp_path / "r.md")
    assert (tmp_path / "r.md").read_text(encoding="utf-8").count("&lt;0.1%") == 1


def test_report_of_a_result_can_float_its_table(fits, tmp_path):
    fits["one"].report(tmp_path / "r.tex", caption="Effect", label="tab:r")
    table = dp.compare([fits["one"]], ci=True)
    written = (tmp_path / "r-table.tex").read_text(encoding="utf-8")
    assert written == table.as_latex("Effect", "tab:r", "htbp") + "\n"


@pytest.mark.parametrize("suffix", ["html", "md", "tex"])
def test_report_of_several_results(fits, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    table = dp.compare({"ATE": fits["one"], "ATT": fits["att"], "few": fits["few"]}, title="Trial")
    path = table.report(
        tmp_path / f"a b.{suffix}", question="How much?", caption="C", label="tab:c"
    )
    assert path == tmp_path / f"a b.{suffix}"
    text = path.read_text(encoding="utf-8")
    plain = re.sub(r"<[^>]*>|[\\\s]+", " ", text)
    for part in ("Trial", "How much?", "In plain words", "dpstats: causal estimates"):
        assert part in plain
    assert "NOT PRIVATE: " not in text
    files = {item.name for item in tmp_path.iterdir()} - {path.name}
    assert files == {
        "html": set(), "md": {"a-b-forest.png"}, "tex": {"a-b-forest.pdf", "a-b-table.tex"}
    }[suffix]  # fmt: skip
    if suffix == "tex":
        written = (tmp_path / "a-b-table.tex").read_text(encoding="utf-8")
        assert written == table.as_latex("C", "tab:c", "htbp") + "\n"
        assert r"\input{a-b-table.tex}" in text
    for row in ("Epsilon", "Warnings"):
        assert row in (written if suffix == "tex" else text)
    # the same guarantee is told once, with the columns it is for
    assert plain_privacy(fits["one"].privacy) != plain_privacy(fits["few"].privacy)
    assert plain.count("In plain words") == 2
    assert re.search(r"ATE, ATT\. In plain words", plain)
    assert table.report(tmp_path / f"x.{suffix}", title="Mine").exists()


def test_report_marks_what_is_not_private(fits, tmp_path):
    table = dp.compare({"yes": fits["one"], "no": fits["seed"]})
    text = table.report(tmp_path / "r.md").read_text(encoding="utf-8")
    assert text.startswith("> **NOT PRIVATE: no**")
    text = dp.compare([fits["seed"]]).report(tmp_path / "s.md").read_text(encoding="utf-8")
    assert text.startswith("> **NOT PRIVATE: all columns**")
    assert "In plain words" not in text
    assert "# Effect of w on y, side by side" in text


def test_report_without_matplotlib(fits, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    table = dp.compare([fits["one"], fits["att"]])
    for suffix in ("html", "md", "tex"):
        text = table.report(tmp_path / f"r.{suffix}").read_text(encoding="utf-8")
        for sign in ("<img", "![", "includegraphics"):
            assert sign not in text


def test_report_refuses_other_files(fits, tmp_path):
    table = dp.compare([fits["one"]])
    with pytest.raises(dp.DPStatsError, match=r"`path` must end in .*; got '.docx'"):
        table.report(tmp_path / "r.docx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_report_of_several_results_compiles(fits, tmp_path):
    table = dp.compare({PLAIN: fits["one"], "b": fits["seed"]}, stars=True, ci=True, title=PLAIN)
    table.report(tmp_path / "r.tex", question=PLAIN, caption=PLAIN, label="tab:x")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "r.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    log = done.stdout.decode("utf-8", "replace")
    assert done.returncode == 0, log[-2000:]
    assert "Overfull" not in log
