"""Several results side by side: values, marks, refusals, escaping in four formats."""

import html as html_module
import math
import pickle
import re
import shutil
import subprocess
import warnings
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import dpstats as dp
from dpstats.alarms import RULES, Signal
from dpstats.report._escape import display_width, markdown_text
from dpstats.report.compare import _WITHOUT_STARS

FORMULA = "y ~ x1 + x2 + x3 + x4"
NASTY = [
    "a{b}c",
    "a~b^c",
    r"back\slash \textbf{x}",
    "<b>bold</b> & more",
    "under_score $5 and 100%",
    "pipe | and `tick` *star* #1",
    "[link](https://example.org) ![x](y)",
    "quote \" and ' mark",
    "naïve Ω 中文",
    r"\| \\",
]


@pytest.fixture(scope="module")
def trial():
    return dp.simulate.ate("well_specified", 3000, rng=1)


@pytest.fixture(scope="module")
def fits(trial):
    def fit(eps, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dp.dp_ate(FORMULA, "w", trial.data, eps, bounds=trial.bounds, **options)

    panel = dp.simulate.panel("factor", n_donors=2000, effect=0.3, rng=1)
    synth = dp.dp_synth(
        panel.data,
        unit="unit",
        time="time",
        treated=0,
        outcome="y",
        T0=20,
        eps=1,
        delta=1e-6,
        method="did",
    )
    frame = trial.data.astype(float)
    return SimpleNamespace(
        one=fit(1.0),
        two=fit(2.0, delta=1e-6),
        seeded=fit(1.0, rng=3),
        exact=fit(math.inf),
        synth=synth,
        ols=smf.ols(FORMULA + " + w", frame).fit(),
    )


class Cells(HTMLParser):
    """Read the cells of the one table back, and the text after it."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.stack, self.rows, self.notes, self.caption = [], [], "", ""

    def handle_starttag(self, tag, attrs):
        assert tag in {
            "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "br", "strong"
        }, tag  # fmt: skip
        assert {key for key, _ in attrs} <= {"class", "style", "scope"}
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag == "br":
            self.handle_data("\n")
        else:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.stack):
            self.rows[-1][-1] += data
        elif self.stack == ["div", "div"]:
            self.notes += data
        elif "caption" in self.stack:
            self.caption += data


def read_html(table):
    cells = Cells()
    cells.feed(table.as_html())
    cells.close()
    assert not cells.stack
    assert len({len(row) for row in cells.rows}) == 1
    return cells


def read_markdown(source):
    """Return the rows of the table, unescaped as CommonMark and GitHub say."""
    lines = [line for line in source.splitlines() if line.startswith("|")]
    rows = []
    for line in lines[:1] + lines[2:]:
        cells = re.findall(r"((?:\\.|[^|\\])*)\|", line[1:])
        rows.append([unescape_markdown(cell.strip()) for cell in cells])
    assert re.fullmatch(r"\|(-+\|)+", lines[1])
    assert len({len(row) for row in rows}) == 1
    return rows


def unescape_markdown(text):
    active = re.sub(r"\\[!-/:-@\[-`{-~]", "", text.replace("<br>", ""))
    # only intervals and the bold mark are left as they are
    active = re.sub(r"\[-?[\d.,]+, -?[\d.,]+\]|\*\*NOT PRIVATE\*\*", "", active)
    assert not set("\\`*_[]<>~$^|") & set(active), text
    assert re.fullmatch(r"(&(amp|lt|gt);|[^&])*", active), text
    text = text.replace("<br>", "\n").replace("**NOT PRIVATE**", "NOT PRIVATE")
    return html_module.unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text))


def rows_of(table):
    """Return the rows below the head by name, from the HTML."""
    cells = read_html(table)
    return cells.rows[0][1:], {row[0]: row[1:] for row in cells.rows[1:] if row[0]}, cells.rows[1:]


def formats(table):
    return [table.as_text(), table.as_html(), table.as_latex(), table.as_markdown()]


def test_values_are_those_of_the_results(fits):
    table = dp.compare({"small": fits.one, "panel": fits.synth}, decimals=2, ci=True, alpha=0.1)
    heads, named, rows = rows_of(table)
    assert heads == ["small", "panel"]
    assert named["ATE"] == [f"{fits.one.params['ATE']:.2f}", ""]
    assert named["ATT"] == ["", f"{fits.synth.params['ATT']:.2f}"]
    low, high = fits.one.conf_int(0.1).iloc[0]
    assert rows[1] == ["", f"({fits.one.bse['ATE']:.2f})", ""]
    assert rows[2] == ["", f"[{low:.2f}, {high:.2f}]", ""]
    assert named["Outcome"] == ["y", "y"]
    assert named["Treatment"] == ["w", ""]
    assert named["Treated unit"] == ["", "0"]
    assert named["Method"] == ["Propensity score blocking", "did"]
    assert named["Estimand"] == ["ATE", "ATT"]
    assert (named["N"], named["N (donors)"]) == (["3000", ""], ["", "2000"])
    assert named["Epsilon"] == ["1", "1"]
    assert named["Delta"] == ["0", "1e-06"]
    assert named["Relation"] == ["replace one row", "replace one unit"]
    assert named["Private"] == ["yes", "yes"]
    assert named["Std. error of noise alone"] == [
        f"{fits.one.noise_sd():.2f}", f"{fits.synth.noise_sd():.2f}"
    ]  # fmt: skip
    text = str(table)
    assert "90% intervals in brackets" in text
    # row and unit budgets do not add up
    assert "Together" not in text
    assert text == table.as_text() == repr(table)
    assert table._repr_html_() == table.as_html()
    assert table._repr_latex_() == table.as_latex()


def test_text_has_the_form_of_a_published_table(fits):
    lines = str(dp.compare([fits.one, fits.two], title="Effects", notes="A note.")).splitlines()
    assert lines[0] == "Effects"
    rules = [line for line in lines if set(line) in ({"="}, {"-"})]
    assert [rule[0] for rule in rules] == ["=", "-", "-", "-", "="]
    assert len({len(rule) for rule in rules}) == 1
    assert lines[2].split() == ["(1)", "(2)"]
    assert lines[-1] == "A note."
    names = [line.split("  ")[0] for line in lines[4:] if "  " in line]
    order = ["ATE", "", "Outcome", "Treatment", "Method", "", "Estimand", "N", "Epsilon", "Delta"]
    assert names == [*order, "Relation", "Private", "Std. error of noise alone"]


@pytest.mark.parametrize("count", [1, 4, 9, 30])
def test_text_is_at_most_100_wide_and_keeps_every_column(fits, count):
    table = dp.compare({f"a rather long name, {j}": fits.one for j in range(count)})
    lines = str(table).splitlines()
    assert max(map(display_width, lines)) <= 100
    squeezed = re.sub(r"\s+", "", str(table))
    value = f"{fits.one.params['ATE']:.3f}"
    assert squeezed.count(value) == count


def test_privacy_rows_stand_in_every_format(fits):
    assert "Differentially private, all columns: protects" in str(dp.compare([fits.one, fits.two]))
    assert "Differentially private, (1): protects" in str(dp.compare([fits.one]))
    for source in formats(dp.compare([fits.one, fits.two])):
        for name in ("Epsilon", "Delta", "Relation", "Private", "replace one row"):
            assert name in source
        # by basic composition: 1 + 2
        assert re.search(r"Together the columns cost eps = 3, delta = 1e-06", " ".join(
            source.split()
        ))  # fmt: skip


def test_columns_of_one_release_count_once(fits):
    table = dp.compare([fits.two, fits.two.estimand("att"), fits.one])
    text = " ".join(str(table).split())
    assert "cost eps = 3, delta = 1e-06" in text
    assert "columns of one release count once" in text
    alone = " ".join(str(dp.compare([fits.one, fits.one.estimand("atc")])).split())
    assert "one release: together they cost eps = 1." in alone
    assert "Together" not in str(dp.compare([fits.one]))
    assert "ogether" not in str(dp.compare([fits.one, fits.seeded]))


def test_stars_follow_the_pvalues():
    pvalues = [0.5, 0.09, 0.049, 0.0099]
    fake = SimpleNamespace(
        params=pd.Series([1.0] * 4, index=list("abcd")),
        bse=pd.Series([0.5] * 4, index=list("abcd")),
        pvalues=pd.Series(pvalues, index=list("abcd")),
        nobs=10,
    )
    _, named, _ = rows_of(dp.compare([fake], stars=True))
    assert [named[name][0] for name in "abcd"] == ["1.00", "1.00*", "1.00**", "1.00***"]
    legend = "* p < 0.1, ** p < 0.05, *** p < 0.01."
    assert legend in str(dp.compare([fake], stars=True))
    assert "*" not in str(dp.compare([fake]))
    # an object without intervals has none
    assert "[" not in dp.compare([fake], ci=True).as_text()


def test_no_stars_where_a_warning_forbids_them(trial):
    """A difference in means with covariates unadjusted is significant, and of no effect."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        crude, fit = (
            dp.dp_ate("y ~ x1 + x2 + x3 + x4", "w", trial.data, eps, bounds=trial.bounds,
                      blocks=blocks, method=method, rng=1)
            for eps, blocks, method in ((2.0, 1, "blocking"), (8.0, None, "regression"))
        )  # fmt: skip
    assert crude.warnings[0].startswith("NOT ADJUSTED")
    assert crude.pvalues["ATE"] < 0.01
    assert not [text for text in fit.warnings if "NOT ADJUSTED" in text]
    table = dp.compare({"crude": crude, "fit": fit}, stars=True)
    _, named, _ = rows_of(table)
    assert "*" not in named["ATE"][0]
    assert named["ATE"][1].endswith("***")
    assert "No stars in crude: by the warning below" in " ".join(str(table).split())
    assert "No stars here" in str(dp.compare([crude], stars=True))
    assert "No stars" not in str(dp.compare([fit], stars=True)) + str(dp.compare([crude]))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.name in _WITHOUT_STARS])
def test_rules_that_forbid_stars(fits, monkeypatch, rule):
    step = -1.0 if rule.side == "below" else 1.0
    for value, stars in ((rule.limit, True), (rule.limit + step / 2.0, False), (math.nan, True)):
        signals = [Signal(rule.name, value, "x")]
        monkeypatch.setattr(type(fits.one), "_signals", lambda _, found=signals: found)
        _, named, _ = rows_of(dp.compare([fits.one], stars=True))
        assert named["ATE"][0].endswith("*") == stars


def test_every_rule_without_stars_is_there():
    assert {rule.name for rule in RULES} >= _WITHOUT_STARS


def test_statsmodels_stands_beside_only_when_asked(fits):
    for other in (fits.ols, fits.exact):
        with pytest.raises(dp.DPStatsError, match=r"`mixed` must be True.*'\(2\)'"):
            dp.compare([fits.one, other])
        with pytest.raises(dp.DPStatsError, match="`mixed`"):
            dp.compare([fits.seeded, other])
    both = {"private": fits.one, "exact": fits.exact, "OLS": fits.ols}
    table = dp.compare(
        both, mixed=True, rename={"w": "ATE"}, keep=["ATE"], stars=True, ci=True, decimals=3
    )
    heads, named, rows = rows_of(table)
    assert heads == ["private", "exact\nNOT PRIVATE", "OLS\nNOT PRIVATE"]
    assert named["ATE"][2] == f"{fits.ols.params['w']:.3f}***"
    assert "x1" not in named
    low, high = fits.ols.conf_int().loc["w"]
    assert rows[2][3] == f"[{low:.3f}, {high:.3f}]"
    assert named["Epsilon"] == ["1", "inf", "inf"]
    assert named["Private"] == ["yes", "NOT PRIVATE", "NOT PRIVATE"]
    assert named["Method"][2] == "OLS"
    assert named["Outcome"][2] == "y"
    for source in formats(table):
        assert "Together" not in source
        assert source.count("NOT PRIVATE") >= 6  # head, row and note of two columns
    beside = dp.compare([fits.one, fits.two, fits.two.estimand("att"), fits.ols], mixed=True)
    assert (
        "Together the private columns cost eps = 3, delta = 1e-06 where they come from one file "
        "(basic composition; columns of one release count once)."
    ) in " ".join(str(beside).split())


def test_all_coefficients_of_statsmodels_by_default(fits):
    _, named, rows = rows_of(dp.compare([fits.one, fits.ols], mixed=True, decimals=5))
    assert rows[0][0] == "ATE"  # the private effect first
    assert {"Intercept", "x1", "x2", "x3", "x4", "w"} <= set(named)
    assert named["Intercept"] == ["", f"{fits.ols.params['Intercept']:.5f}"]
    assert named["w"] == ["", f"{fits.ols.params['w']:.5f}"]


def test_results_fitted_to_arrays(fits, trial):
    data = trial.data.astype(float)
    plain = sm.OLS(data["y"].to_numpy(), sm.add_constant(data[["w"]].to_numpy())).fit()
    _, named, _ = rows_of(
        dp.compare([fits.one, plain], mixed=True, rename={"x1": "ATE"}, decimals=3)
    )
    difference = data.loc[data.w == 1, "y"].mean() - data.loc[data.w == 0, "y"].mean()
    assert named["ATE"][1] == f"{difference:.3f}"


def test_seeded_results_are_marked_and_need_no_leave(fits):
    table = dp.compare({"run": fits.one, "sim": fits.seeded})
    heads, named, _ = rows_of(table)
    assert heads == ["run", "sim\nNOT PRIVATE"]
    assert named["Private"] == ["yes", "NOT PRIVATE"]
    assert "NOT PRIVATE, sim: its noise was drawn from a seed" in " ".join(str(table).split())
    assert "Differentially private, run: protects any person" in " ".join(str(table).split())
    for source in formats(table):
        assert source.count("NOT PRIVATE") == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one: dp.compare([]), "at least one"),
        (lambda one: dp.compare({}), "at least one"),
        (lambda one: dp.compare([1]), "got int for '\\(1\\)'"),
        (lambda one: dp.compare("text"), "got str"),
        (lambda one: dp.compare(3), "got int"),
        (lambda one: dp.compare({1: one, "1": one}), "different names"),
        (lambda one: dp.compare([one], rename={"w": "ATE"}), "`rename`.*'w'"),
        (lambda one: dp.compare([one], keep=["w"]), "`keep`.*'w'"),
        (lambda one: dp.compare([one], keep=[]), "`keep`.*none"),
        (lambda one: dp.compare([one], decimals=-1), "`decimals`.*-1"),
        (lambda one: dp.compare([one], decimals=1.5), "`decimals`"),
        (lambda one: dp.compare([one], alpha=0), "`alpha`"),
    ],
)
def test_wrong_calls_say_what_is_wrong(fits, call, message):
    with pytest.raises(dp.DPStatsError, match=message):
        call(fits.one)


def test_two_parameters_of_one_name_are_refused(fits):
    with pytest.raises(dp.DPStatsError, match=r"`rename`.*'x2'.*'OLS'"):
        dp.compare({"OLS": fits.ols}, rename={"x1": "x2"})


def test_foreign_results_of_another_shape_are_refused(fits):
    bad = SimpleNamespace(params=np.ones((2, 2)), bse=np.ones(2), pvalues=np.ones(2), nobs=3)
    with pytest.raises(dp.DPStatsError, match="one value a parameter"):
        dp.compare([bad])
    bad.params = ["a", "b"]
    with pytest.raises(dp.DPStatsError, match="must hold numbers"):
        dp.compare([bad])


def test_one_result_and_several_targets(fits):
    assert str(dp.compare(fits.one)) == str(dp.compare([fits.one]))
    panel = dp.simulate.panel("factor", n_donors=500, effect=0.3, rng=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        several = dp.dp_synth(
            panel.data, unit="unit", time="time", treated=[0, 1], outcome="y", T0=20,
            eps=math.inf, method="did",
        )  # fmt: skip
    _, named, _ = rows_of(dp.compare([several], decimals=3))
    for unit in (0, 1):
        assert named[f"ATT ({unit})"] == [f"{several.params[(unit, 'ATT')]:.3f}"]


@pytest.mark.parametrize("name", NASTY)
def test_every_name_is_escaped_and_read_back(fits, name):
    table = dp.compare(
        {name: fits.one, "x": fits.seeded}, rename={"ATE": name}, title=name, notes=[name]
    )
    cells = read_html(table)
    assert cells.rows[0][1] == name
    assert cells.rows[1][0] == name
    assert cells.caption == name
    assert cells.notes.endswith(name)
    markdown = read_markdown(table.as_markdown())
    assert markdown == cells.rows
    assert table.as_markdown().splitlines()[0] == f"**{markdown_text(name)}**"
    squeezed = re.sub(r"\s+", "", str(table))
    assert squeezed.count(re.sub(r"\s+", "", name)) >= 3


@pytest.mark.parametrize("name", NASTY)
def test_markdown_is_read_back_by_a_parser(name):
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark")
    source = f"| {markdown_text(name)} | b |\n|---|---|\n| {markdown_text(name)} | c |"
    found = parser.enable(["table", "strikethrough"]).render(source)
    cells = [html_module.unescape(cell) for cell in re.findall(r"<t[hd]>(.*?)</t[hd]>", found)]
    assert cells == [name, "b", name, "c"]


def test_markdown_of_intervals():
    assert markdown_text("[0.5, -1e-05]") == "[0.5, -1e-05]"
    assert markdown_text("in [0.5, 1], [1, 2](x)") == r"in [0.5, 1], \[1, 2\](x)"


@pytest.mark.parametrize("count", [4, 5])
def test_up_to_five_columns_are_one_table(fits, tmp_path, count):
    """Three or four private columns and least squares, on the text width of an article."""
    named = {f"({j})": fits.one for j in range(1, count)} | {"OLS": fits.ols}
    table = dp.compare(named, mixed=True, rename={"w": "ATE"}, keep=["ATE"], stars=True)
    source = table.as_latex()
    assert source.count(r"\begin{tabular}") == 1
    assert rf"\begin{{tabular}}{{@{{}}l{'c' * count}@{{}}}}" in source
    treatment = next(line for line in source.splitlines() if line.startswith("Treatment"))
    cells = [cell.strip() for cell in treatment.removesuffix(r"\\").split("&")]
    assert cells == ["Treatment", *["w"] * (count - 1), ""]
    text = str(table)
    assert sum(set(line) == {"="} for line in text.splitlines()) == 2
    assert max(map(len, text.splitlines())) <= 100
    if shutil.which("pdflatex") is None:
        return
    document = rf"\documentclass{{article}}\begin{{document}}{source}\end{{document}}"
    (tmp_path / "all.tex").write_text(document, encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_latex_compiles_with_and_without_booktabs(fits, tmp_path):
    named = dict.fromkeys(NASTY[:-2], fits.one)
    tables = [dp.compare(named, title=name, notes=[name], stars=True, ci=True) for name in NASTY]
    # as where booktabs is loaded, whose rules are commands of their own
    rules = r"\newcommand{\toprule}{\hline\hline}\let\midrule\hline\let\bottomrule\toprule"
    for place, preamble in enumerate(("", rules)):
        body = "\n".join(rf"\input{{table{j}}}" for j in range(len(tables)))
        for j, table in enumerate(tables):
            (tmp_path / f"table{j}.tex").write_text(table.as_latex(), encoding="utf-8")
        source = rf"\documentclass{{article}}{preamble}\begin{{document}}{body}\end{{document}}"
        (tmp_path / f"all{place}.tex").write_text(source, encoding="utf-8")
        done = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"all{place}.tex"],
            cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull" not in done.stdout


def test_latex_is_balanced(fits):
    source = dp.compare(dict.fromkeys(NASTY, fits.seeded), title=NASTY[1]).as_latex()
    assert source.count(r"\begin{tabular}") == source.count(r"\end{tabular}") > 1  # panels
    source = source.partition("\n")[2]  # the macro for letters that pdfLaTeX lacks
    bare = re.sub(r"\\[\\{}_%&#$]", "", source)
    assert bare.count("{") == bare.count("}")
    assert not set("~#%") & set(bare)
    for part in re.split(r"\\(?:begin|end)\{tabular\}", bare)[::2]:
        assert "&" not in part
    for spec, body in re.findall(r"\{@\{\}([lc]+)@\{\}\}(.*?)\\end", bare, re.DOTALL):
        rows = [line for line in body.splitlines() if "&" in line]
        assert len(rows) > 10
        assert {row.count("&") for row in rows} == {len(spec) - 1}
    assert r"\textbf{NOT PRIVATE}" in source
    assert r"\toprule" in source


def test_stored_results_give_the_same_table(fits, tmp_path):
    def tables(one, synth):
        return formats(dp.compare({"a": one, "b": synth}, stars=True, ci=True))

    expected = tables(fits.one, fits.synth)
    assert tables(pickle.loads(pickle.dumps(fits.one)), fits.synth) == expected
    fits.one.save(tmp_path / "one.json")
    fits.synth.save(tmp_path / "synth.json")
    assert tables(dp.load(tmp_path / "one.json"), dp.load(tmp_path / "synth.json")) == expected
    table = dp.compare([fits.one, fits.two])
    again = pickle.loads(pickle.dumps(table))
    assert formats(again) == formats(table)
    pd.testing.assert_frame_equal(again.effects, table.effects)


def test_a_table_holds_no_data(fits):
    stored = pickle.dumps(dp.compare([fits.one, fits.ols, fits.exact], mixed=True))
    assert b"statsmodels" not in stored
    # the file has 3000 rows: a column of it alone would take 24,000 bytes
    assert len(stored) < 12_000


def test_latex_minus_signs():
    fake = SimpleNamespace(
        params=pd.Series({"a": -1.5}),
        bse=pd.Series({"a": 0.5}),
        pvalues=pd.Series({"a": 0.003}),
        nobs=10,
        conf_int=lambda alpha: np.array([[-2.5, -0.5]]),
    )
    source = dp.compare([fake], stars=True, ci=True).as_latex()
    assert "$-$1.50{*}{*}{*}" in source
    assert "{[}$-$2.50, $-$0.50{]}" in source
