"""The command line: the results of the functions, errors in one line, no data in them."""

import datetime
import importlib
import importlib.util
import inspect
import io
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.cli import files, main
from dpstats.cli.commands import COMMANDS
from dpstats.cli.values import read_value

CANARY = "8123.456789"
BOUNDS = {"y": (-10, 10), "x1": (-3, 3), "x2": (-3, 3)}
STUDY = """
treat = "w"
eps = 1.0

[bounds]
y = [-10, 10]
x1 = [-3, 3]
x2 = [-3, 3]
"""
LEDGER = """
[ledger]
path = "study.ledger"
eps = 1.5
"""


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(3)
    x1, x2 = rng.normal(size=(2, 1500)).round(6)
    w = (rng.random(1500) < 1 / (1 + np.exp(-x1))).astype(int)
    y = (2 * w + x1 + rng.normal(size=1500)).round(6)
    group = np.where(rng.random(1500) < 0.3, "south", "north")
    taken = np.where(w == 1, "yes", "no")
    return pd.DataFrame({"y": y, "w": w, "x1": x1, "x2": x2, "group": group, "taken": taken})


@pytest.fixture
def folder(people, tmp_path, monkeypatch):
    people.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "study.toml").write_text('data = "people.csv"\n' + STUDY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(capsys):
    """Run a command; return (exit code, stdout, stderr)."""

    def run(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture
def refused(call):
    """Run a command that must fail: exit code 2 and one line; return the line."""

    def run(*words):
        code, out, err = call(*words)
        lines = [line for line in err.splitlines() if "Warning" not in line]
        assert code == 2
        assert len(lines) == 1
        assert lines[0].startswith("dpstats: error: ")
        assert "Traceback" not in err
        assert CANARY[:7] not in out + err
        return lines[0]

    return run


def quiet(function, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **options)


# --- estimates


def test_ate_is_dp_ate(folder, call, people):
    words = ("--config", "study.toml", "--seed", 5, "--save", "a.json", "--latex", "a.tex")
    code, out, err = call("ate", "y ~ x1 + x2", *words, "--report", "a.html")
    twin = quiet(dp.dp_ate, "y ~ x1 + x2", "w", people, 1.0, bounds=BOUNDS, rng=5)
    assert code == 0
    assert "Seed 5" in out
    assert str(twin.summary()) in out
    assert "PrivacyWarning: `rng`" in err
    saved = dp.load("a.json")
    pd.testing.assert_series_equal(saved.params, twin.params)
    pd.testing.assert_frame_equal(saved.conf_int(), twin.conf_int())
    assert not saved.privacy.private
    assert (folder / "a.tex").read_text(
        encoding="utf-8"
    ).strip() == twin.summary().as_latex().strip()
    page = (folder / "a.html").read_text(encoding="utf-8")
    assert "NOT PRIVATE" in page
    assert "<img" in page


def test_private_by_default(folder, call):
    found = []
    for name in ("a.json", "b.json"):
        code, out, err = call("ate", "y ~ x1", "--config", "study.toml", "--save", name)
        assert code == 0
        assert "NOT PRIVATE" not in out
        assert err == ""
        found.append(dp.load(name))
    assert all(result.privacy.private for result in found)
    assert found[0].params["ATE"] != found[1].params["ATE"]


def test_command_line_wins(folder, call, people):
    (folder / "other.toml").write_text('estimand = "ate"\n' + STUDY, encoding="utf-8")
    words = ("--data", "people.csv", "--seed", 1, "--save", "a.json")
    words += ("--eps", ".5", "--estimand", "att", "--bounds", "y", "-1e1", "20", "--option")
    code, _, _ = call("ate", "--config", "other.toml", *words, "blocks=2", "y ~ x1 + x2")
    assert code == 0
    result = dp.load("a.json")
    assert result.privacy.epsilon == 0.5
    assert result.facts.estimand == "att"
    assert result.facts.outcome_bounds == (-10, 20)
    assert result.privacy.public["bounds"]["x1"] == (-3, 3)
    assert len(result.blocks) == 2


def test_text_columns(folder, call, people):
    """Text becomes a categorical by its declared levels, a treatment by `treated`."""
    words = (
        "--data",
        "people.csv",
        "--eps",
        1,
        "--seed",
        2,
        "--save",
        "a.json",
        "--treat",
        "taken",
    )
    words += ("--treated", "yes", "--levels", "group", "north", "south")
    for name, (low, high) in BOUNDS.items():
        words += ("--bounds", name, low, high)
    assert call("ate", "y ~ x1 + group", *words)[0] == 0
    levels = {"group": ["north", "south"]}
    twin = quiet(
        dp.dp_ate, "y ~ x1 + group", "taken", people, 1, bounds=BOUNDS, levels=levels,
        treated="yes", rng=2,
    )  # fmt: skip
    pd.testing.assert_series_equal(dp.load("a.json").params, twin.params)


def test_infinite_budget_is_marked(folder, call):
    code, out, _ = call("ate", "y ~ x1", "--config", "study.toml", "--eps", "inf")
    assert code == 0
    assert "NOT PRIVATE" in out


@pytest.mark.parametrize("ends", [".csv", ".csv.gz", ".tsv", ".dta", ".parquet"])
def test_formats(folder, call, people, ends):
    if ends == ".parquet":
        pytest.importorskip("pyarrow")
        people.to_parquet("table.parquet")
    elif ends == ".dta":
        people.to_stata("table.dta", write_index=False)
    else:
        people.to_csv(f"table{ends}", index=False, sep="\t" if ends == ".tsv" else ",")
    words = ("--config", "study.toml", "--data", f"table{ends}", "--seed", 4, "--save", "a.json")
    assert call("ate", "y ~ x1 + x2", *words)[0] == 0
    twin = quiet(dp.dp_ate, "y ~ x1 + x2", "w", people, 1.0, bounds=BOUNDS, rng=4)
    pd.testing.assert_series_equal(dp.load("a.json").params, twin.params)


def test_stata_labels_make_no_levels(folder):
    """A label that nobody has must not be told from one that somebody has."""
    frame = pd.DataFrame({"sex": pd.Categorical(["a", "a", "b"], categories=["a", "b", "c"])})
    frame.to_stata("labels.dta", write_index=False)
    found = files.read_data(folder / "labels.dta")["sex"]
    assert found.tolist() == [0, 0, 1]
    assert pd.api.types.is_numeric_dtype(found.dtype)


def test_synth_is_dp_synth(folder, call):
    panel = dp.simulate.panel("factor", n_donors=400, effect=0.3, rng=1).data
    panel.to_csv("panel.csv", index=False)
    words = ("--unit", "unit", "--time", "time", "--outcome", "y", "--treated", 0, "--T0", 20)
    budget = ("--eps", 2, "--delta", "1e-6", "--seed", 3, "--save", "s.json")
    code, out, _ = call("synth", "--data", "panel.csv", *words, *budget)
    roles = {"unit": "unit", "time": "time", "outcome": "y", "treated": 0, "T0": 20}
    twin = quiet(dp.dp_synth, panel, **roles, eps=2, delta=1e-6, rng=3)
    assert code == 0
    assert str(twin.summary()) in out
    pd.testing.assert_series_equal(dp.load("s.json").effect, twin.effect)


@pytest.mark.parametrize("wide", [False, True])
def test_panel_of_dates(folder, call, wide):
    """ISO dates in a text file are dates, and so is T0."""
    panel = dp.simulate.panel("factor", n_donors=300, effect=0.3, rng=1).data
    stamps = pd.to_datetime([f"{1980 + t}-12-31" for t in range(1, panel["time"].nunique() + 1)])
    order = np.sort(panel["time"].unique())
    panel["day"] = panel["time"].map(dict(zip(order, stamps, strict=True)))
    panel["unit"] = "u" + panel["unit"].astype(str)
    T0 = stamps[19]
    roles = {"unit": "unit", "time": "day", "outcome": "y", "treated": "u0", "T0": T0}
    twin = quiet(dp.dp_synth, panel[["unit", "day", "y"]], **roles, eps=2, delta=1e-6, rng=3)
    words = ("--treated", "u0", "--T0", T0.date(), "--eps", 2, "--delta", "1e-6", "--seed", 3)
    if wide:
        table = panel.pivot_table(index="unit", columns="day", values="y")
        table.columns = [str(day.date()) for day in table.columns]
        table.to_csv("panel.csv")
        words += ("--wide",)
    else:
        panel[["unit", "day", "y"]].to_csv("panel.csv", index=False)
        words += ("--unit", "unit", "--time", "day", "--outcome", "y")
    assert call("synth", "--data", "panel.csv", *words, "--save", "s.json")[0] == 0
    found = dp.load("s.json")
    assert found.effect.index[19] == T0
    np.testing.assert_allclose(found.effect, twin.effect, rtol=1e-9)


def test_several_targets(folder, call):
    panel = dp.simulate.panel("factor", n_donors=300, effect=0.3, rng=1).data
    panel.to_csv("panel.csv", index=False)
    words = ("--unit", "unit", "--time", "time", "--outcome", "y", "--treated", 0, 7, "--T0", 20)
    budget = ("--eps", 2, "--delta", "1e-6", "--seed", 3, "--save", "s.json")
    assert call("synth", "--data", "panel.csv", *words, *budget)[0] == 0
    assert [unit for unit, _ in dp.load("s.json").params.index] == [0, 7]


# --- the ledger


def test_ledger_is_charged_once(folder, call, refused):
    (folder / "study.toml").write_text('data = "people.csv"\n' + STUDY + LEDGER, encoding="utf-8")
    code, out, _ = call("ate", "y ~ x1", "--config", "study.toml", "--save", "a.json")
    assert code == 0
    assert "eps 1 of 1.5 spent, 0.5 left" in out
    ledger = dp.PrivacyLedger("study.ledger")
    assert ledger.spent == (1.0, 0.0)
    assert len(ledger.history()) == 1
    outputs = ("--save", "b.json", "--latex", "b.tex", "--report", "b.html")
    line = refused("ate", "y ~ x1", "--config", "study.toml", *outputs)
    assert "Remaining eps = 0.5" in line
    assert ledger.spent == (1.0, 0.0)
    assert not list(folder.glob("b.*"))


def test_ledger_lies_beside_the_file(folder, call, monkeypatch):
    """From whatever folder the script runs, it is one ledger, not a fresh budget."""
    (folder / "study.toml").write_text('data = "people.csv"\n' + STUDY + LEDGER, encoding="utf-8")
    (folder / "elsewhere").mkdir()
    assert call("ate", "y ~ x1", "--config", "study.toml", "--eps", "0.5")[0] == 0
    monkeypatch.chdir(folder / "elsewhere")
    assert call("ate", "y ~ x1", "--config", "../study.toml", "--eps", "0.5")[0] == 0
    assert not list((folder / "elsewhere").iterdir())
    assert dp.PrivacyLedger(folder / "study.ledger").spent == (1.0, 0.0)


def test_named_data_sets(folder, call, refused):
    words = ("--config", "study.toml", "--ledger", "all.ledger", "--ledger-eps", 1)
    for name in ("first", "second"):
        assert call("ate", "y ~ x1", *words, "--ledger-dataset", name)[0] == 0
    refused("ate", "y ~ x1", *words, "--ledger-dataset", "second")
    # its own totals hold when it is reopened
    assert "eps" in refused(
        "ate", "y ~ x1", *words[:4], "--ledger-eps", 9, "--ledger-dataset", "first"
    )
    whole = dp.PrivacyLedger("all.ledger")
    assert whole.spent == (0.0, 0.0)
    assert [whole.dataset(name).spent[0] for name in ("first", "second")] == [1.0, 1.0]


def test_what_costs_nothing(folder, refused):
    """Mistakes that are found before the charge, and runs that a ledger refuses."""
    (folder / "study.toml").write_text('data = "people.csv"\n' + STUDY + LEDGER, encoding="utf-8")
    (folder / "here").mkdir()
    start = ("ate", "y ~ x1", "--config", "study.toml")
    assert "`save`" in refused(*start, "--save", "nowhere/a.json")
    assert "`latex`" in refused(*start, "--latex", "here")
    assert "`report`" in refused(*start, "--report", "a.pdf")
    before = (folder / "people.csv").read_bytes()
    assert "is the data" in refused(*start, "--save", "people.csv")
    assert "is the TOML file" in refused(*start, "--save", "./study.toml")
    assert "is the save" in refused(*start, "--save", "a.json", "--latex", "here/../a.json")
    refused(*start, "--seed", 1)
    refused(*start, "--eps", "inf")
    refused("ate", "y ~ x9", *start[2:])
    assert "is the ledger" in refused(*start, "--save", "study.ledger")
    assert (folder / "people.csv").read_bytes() == before
    assert dp.PrivacyLedger("study.ledger").spent == (0.0, 0.0)


def test_a_saved_result_is_not_written_over(folder, call, refused):
    """Nothing is spent on a result that would take the place of another, unless it is said."""
    (folder / "study.toml").write_text('data = "people.csv"\n' + STUDY + LEDGER, encoding="utf-8")
    start = ("ate", "y ~ x1", "--config", "study.toml", "--eps", "0.5", "--save", "a.json")
    assert call(*start, "--latex", "a.tex")[0] == 0
    first = (folder / "a.json").read_bytes()
    line = refused(*start)
    assert "`save` must be a new file: there is one at a.json" in line
    assert line.endswith("pass --force")
    assert dp.PrivacyLedger("study.ledger").spent == (0.5, 0.0)
    assert (folder / "a.json").read_bytes() == first
    # what can be made again from a saved result may be replaced
    assert call(*start, "--force", "--latex", "a.tex")[0] == 0
    assert dp.PrivacyLedger("study.ledger").spent == (1.0, 0.0)
    assert (folder / "a.json").read_bytes() != first


class _Closed(io.StringIO):
    """A pipe whose reader has left."""

    def write(self, text):
        raise BrokenPipeError


def test_what_was_paid_for_is_kept(folder, call, monkeypatch):
    """The file is written although the summary cannot be shown, and the other way round."""
    (folder / "study.toml").write_text('data = "people.csv"\n' + STUDY + LEDGER, encoding="utf-8")
    start = ("ate", "y ~ x1", "--config", "study.toml", "--eps", "0.5", "--save", "a.json")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", _Closed())
        assert main(list(start)) == 2
    assert dp.load("a.json").privacy.epsilon == 0.5

    def full(*_, **__):
        raise OSError(28, "No space left on device", "a.json")

    monkeypatch.setattr(dp.ATEResults, "save", full)
    code, out, err = call(*start, "--force")
    assert code == 2
    assert "Private Average Treatment Effect" in out
    assert err == "dpstats: error: No space left on device: a.json\n"


# --- a study and its plan


@pytest.fixture
def study(folder):
    """One file for the estimate and its plan."""
    keys = """
data = "people.csv"
formula = "y ~ x1 + x2"
treated = 1
n = 1500
outcome_sd = 1.5
check_bounds = 0.05
propensity = "~ x1"
"""
    (folder / "study.toml").write_text(
        f"{keys}{STUDY}{LEDGER}\n[method_options]\nadjust = true\nsmooth = false\n",
        encoding="utf-8",
    )
    return folder


def test_one_file_for_estimate_and_plan(study, call, people):
    code, out, err = call("plan", "ate", "--config", "study.toml")
    twin = dp.plan_ate(1500, 1.0, formula="y ~ x1 + x2", bounds=BOUNDS, outcome_sd=1.5, adjust=True)
    assert (code, err) == (0, "")
    # what would change the plan is named, what would not is passed over
    assert out == f"{twin}\nNot in the plan, of study.toml: check_bounds, propensity, smooth.\n"
    assert not (study / "study.ledger").exists()
    words = ("--config", "study.toml", "--save", "a.json")
    assert call("ate", *words)[0] == 0
    result = dp.load("a.json")
    assert "moments" in set(result.privacy.releases["release"])
    assert result.outside is not None
    assert result.privacy.public["constants"]["smooth"] is False
    assert dp.PrivacyLedger("study.ledger").spent == (1.0, 0.0)


def test_an_option_of_the_plan_is_one_of_the_method(study, call):
    """`adjust` at the top is no argument of dp_ate: it must not be passed over."""
    text = (study / "study.toml").read_text(encoding="utf-8")
    text = text.partition("[method_options]")[0].replace("n = 1500", "n = 1500\nadjust = true")
    (study / "study.toml").write_text(text, encoding="utf-8")
    assert call("ate", "--config", "study.toml", "--save", "a.json")[0] == 0
    assert "moments" in set(dp.load("a.json").privacy.releases["release"])
    assert "moments" in call("plan", "ate", "--config", "study.toml")[1]


@pytest.mark.parametrize("command", [("ate",), ("plan", "ate")])
def test_slips_in_a_shared_file(study, refused, command):
    text = (study / "study.toml").read_text(encoding="utf-8")
    (study / "study.toml").write_text(text.replace("outcome_sd", "outcom_sd"), encoding="utf-8")
    assert "near matches: outcome_sd" in refused(*command, "--config", "study.toml")


def test_one_file_for_a_panel_and_its_plan(folder, call, refused):
    keys = """
data = "panel.csv"
unit = "unit"
time = "time"
outcome = "y"
treated = 0
T0 = 20
n = 300
periods = 40
pre_periods = 20
eps = 2.0
delta = 1e-6
bounds = [0, 5]
method = "did"
"""
    (folder / "panel.toml").write_text(keys, encoding="utf-8")
    panel = dp.simulate.panel("factor", n_donors=300, effect=0.3, rng=1).data
    panel.to_csv("panel.csv", index=False)
    code, out, err = call("plan", "synth", "--config", "panel.toml")
    assert (code, err) == (0, "")
    assert out == f"{dp.plan_synth(300, 40, 20, 2.0, (0, 5), delta=1e-6, method='did')}\n"
    assert call("synth", "--config", "panel.toml", "--save", "s.json")[0] == 0
    assert dp.load("s.json").privacy.epsilon == 2.0


# --- looks


def test_caption_label_and_decimals(folder, call, refused):
    looks = ("--caption", "Effect of a_b", "--label", "tab:w", "--decimals", 4)
    words = ("--config", "study.toml", "--save", "a.json", "--latex", "a.tex", "--report", "a.tex")
    assert "is the report" in refused("ate", "y ~ x1", *words, *looks)
    code, out, _ = call("ate", "y ~ x1", *words[:-1], "r.tex", *looks)
    assert code == 0
    result = dp.load("a.json")
    summary = result.summary(decimals=4)
    assert str(summary) in out
    source = summary.as_latex("Effect of a_b", "tab:w")
    assert (folder / "a.tex").read_text(encoding="utf-8") == f"{source}\n"
    table = (folder / "r-table.tex").read_text(encoding="utf-8")
    assert r"\caption{Effect of a\_b}" in table
    assert f"{result.params['ATE']:.4f}" in table
    assert call("show", "a.json", "--decimals", 4)[1] == f"{summary}\n"
    assert call("show", "a.json", "--format", "latex", *looks)[1] == f"{source}\n"
    shown = call("show", "a.json", "--diagnostics")[1]
    assert shown == f"{result.summary(diagnostics=True)}\n"
    table = dp.compare([result], decimals=4)
    found = call("compare", "a.json", *looks, "--format", "latex")[1]
    assert found == f"{table.as_latex('Effect of a_b', 'tab:w')}\n"
    assert call("compare", "a.json", *looks)[1].startswith("Effect of a_b\n====")


@pytest.mark.parametrize(
    ("looks", "near"),
    [(("--label", "a b"), "`label`"), (("--decimals", "many"), "`decimals`")],
)
def test_looks_are_checked_before_the_charge(folder, refused, looks, near):
    (folder / "study.toml").write_text('data = "people.csv"\n' + STUDY + LEDGER, encoding="utf-8")
    assert near in refused("ate", "y ~ x1", "--config", "study.toml", *looks)
    assert not (folder / "study.ledger").exists()


def test_ledger_in_readable_form(folder, call, refused):
    words = ("--config", "study.toml", "--ledger", "all.ledger", "--ledger-eps", 3)
    call("ate", "y ~ x1", *words)
    code, out, err = call("ledger", "all.ledger")
    assert (code, err) == (0, "")
    head, rule, row = out.splitlines()[2:5]
    assert re.split(r"\s{2,}", head)[3:6] == ["eps", "eps spent", "eps left"]
    assert re.split(r"\s{2,}", row)[:6] == ["(the file)", "one row", "1", "3", "1", "2"]
    assert set(rule) == {"-"}
    assert "dp_ate('y ~ x1', treat='w', method='blocking')" in out
    assert "data set" not in out.splitlines()[6]
    call("ate", "y ~ x1", *words[:4], "--ledger-dataset", "second", "--ledger-eps", 1)
    text = call("ledger", "all.ledger")[1]
    assert re.search(r"^second +one row +1 +1 +1 +0 ", text, re.MULTILINE)
    assert text.splitlines()[-1].endswith("second")
    assert "none at gone.ledger" in refused("ledger", "gone.ledger")
    assert not (folder / "gone.ledger").exists()


def test_errors_speak_of_options(folder, refused):
    start = ("ate", "--config", "study.toml")
    assert refused(*start, "y ~ x1 + group").endswith(
        "a text column needs its public levels: 'group' = [...] below the line [levels] of the "
        "TOML file, or --levels 'group' LEVEL LEVEL ..."
    )
    people = pd.read_csv("people.csv")
    people.assign(x1=people["x1"].where(people.index != 3)).to_csv("people.csv", index=False)
    assert "'x1' has some: pass --missing drop to" in refused(*start, "y ~ x1")
    assert "--treated with the level" in refused(*start, "y ~ x2", "--treat", "taken")


# --- names


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("bound = {}", "bounds"),
        ("rows-per-person = 2", "rows_per_person"),
        ("rng = 3", "--seed"),
        ("[ledger]\npth = 'x'", "path"),
        ("[ledger]\neps = 1", "path"),
        ("[ledger]\npath = ':memory:'\neps = 1", "path"),
        ("ledger = 'x.ledger'", "table"),
        ("eps = = 1", "line 1"),
        ("data = 3", "int"),
        # a key after the header of a table belongs to it: it must not pass for a bound
        ("[bounds]\ny = [0, 1]\ndelta = 1e-6", "'delta'"),
        ("[bounds]\ny = [0, 1, 2]", "'y'"),
        ("[levels]\ng = [0, 1]\nmissing = 'drop'", "'missing'"),
        ("levels = 3", "table"),
    ],
)
def test_toml_mistakes(folder, refused, text, near):
    (folder / "wrong.toml").write_text(text, encoding="utf-8")
    start = ("ate", "y ~ x1", "--treat", "w", "--eps", 1, "--config", "wrong.toml")
    assert near in refused(*start, *(() if text == "data = 3" else ("--data", "people.csv")))


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["synt"], "near matches: synth"),
        (["ate", "y ~ x1", "--treet", "w"], "near matches: --treat"),
        (["ate", "y ~ x1", "more"], "'more'"),
        (["ate"], "`formula` must be given"),
        (["ate", "y ~ x1", "--treat", "w"], "--eps"),
        (["ate", "y ~ x1", "--treat", "w", "--eps", "1"], "--data"),
        (["ate", "y ~ x1", "--treat", "w", "--eps"], "--eps"),
        (["ate", "y ~ x1", "--config", "study.toml", "--option", "eps"], "NAME=VALUE"),
        (["ate", "y ~ x1", "--config", "study.toml", "--option", "rng=1"], "--seed"),
        (["ate", "y ~ x1", "--config", "study.toml", "--eps", "1", "--option", "eps=2"], "once"),
        (["ate", "y ~ x1", "--config", "study.toml", "--option", "blokcs=2"], "blokcs"),
        (["ate", "y ~ x1", "--config", "study.toml", "--option", "strange=2"], "strange"),
        (["ate", "y ~ x1", "--config", "study.toml", "--seed", "x"], "--seed"),
        (["ate", "y ~ x1", "--config", "study.toml", "--data", "gone.csv"], "gone.csv"),
        (["ate", "y ~ x1", "--config", "study.toml", "--data", "people.xls"], ".dta"),
        (["ate", "y ~ x1", "--config", "gone.toml"], "gone.toml"),
        (["synth", "--data", "people.csv", "--eps", "1"], "`T0` must be given"),
        (["plan"], "ate or synth"),
        (["plan", "ate", "--n", "100"], "--eps"),
        (["plan", "ate", "--n", "9", "--eps", "1", "--option", "kk=1"], "kk"),
        (["compare"], "--save"),
        (["show"], "--save"),
        (["show", "gone.json"], "gone.json"),
        (["show", "people.csv"], "save"),
        (["ledger"], "file of a ledger"),
        (["ledger", "people.csv"], "ledger"),
        (["compare", "gone.json"], "gone.json"),
        (["compare", "people.csv"], "save"),
        (["compare", "a", "b", "--labels", "one"], "2 different"),
        (["demo", "smoking"], "known: ate, synth"),
        (["--epz", "1"], "near matches: --eps"),
    ],
)  # fmt: skip
def test_mistakes(folder, refused, words, near):
    assert near in refused(*words)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1988", 1988),
        ("-3", -3),
        (".5", 0.5),
        ("1e-6", 1e-6),
        ("inf", float("inf")),
        ("true", True),
        ("True", "True"),
        ("California", "California"),
        ("West Virginia", "West Virginia"),
        ("'1988'", "1988"),
        ("[1, 2]", [1, 2]),
        ("{counts = 0.5, sums = 0.5}", {"counts": 0.5, "sums": 0.5}),
        ("1988-12-31", datetime.date(1988, 12, 31)),
        ("~ x1 + x2", "~ x1 + x2"),
        ("", ""),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_values(text, value):
    found = read_value(text)
    assert found == value
    assert type(found) is type(value)


# --- nothing of the data in what is said


def _table(**columns):
    size = 60
    frame = pd.DataFrame({"y": np.arange(size) / 10, "w": [0, 1] * 30, "x1": np.arange(size) / 9})
    for name, value in columns.items():
        frame[name] = frame[name].astype(object)
        frame.loc[7, name] = value
    return frame.to_csv(index=False)


LEAKS = {
    "ragged": _table() + f"1,{CANARY},2,{CANARY},5\n",
    "quote": _table() + f'1,"{CANARY}\n',
    "text": _table(x1=f"about {CANARY}"),
    "treatment": _table(w=CANARY),
    "text treatment": _table(w=f"yes {CANARY}"),
    "missing": _table(y="").replace("0.1,", f"{CANARY},"),
    "empty": "",
    "one row": f"y,w,x1\n{CANARY},1,2\n",
    "no header": f"{CANARY},1,2\n" * 60,
}


@pytest.mark.parametrize("kind", LEAKS)
def test_no_value_in_errors(folder, refused, kind):
    (folder / "people.csv").write_text(LEAKS[kind], encoding="utf-8")
    refused("ate", "y ~ x1", "--config", "study.toml")


@pytest.mark.parametrize("name", ["a.dta", "a.csv.gz", "a.parquet", "a.csv"])
def test_no_value_in_errors_of_other_files(folder, refused, name):
    if name == "a.parquet":
        pytest.importorskip("pyarrow")
    (folder / name).write_bytes(b"\xff\xfe\x00" + CANARY.encode() * 40)
    assert name in refused("ate", "y ~ x1", "--config", "study.toml", "--data", name)


@pytest.mark.parametrize(
    "rows",
    [
        f"CA,1980,{CANARY}\nCA,1980,{CANARY}\n",
        f"CA,1980,{CANARY}\nCA,about {CANARY},1\n",
        f"CA,1980,a{CANARY}\nNV,1980,2\n",
        f"CA,1980,{CANARY}\nNV,1981,2\n",
    ],
)
def test_no_value_in_errors_of_panels(folder, refused, rows):
    (folder / "panel.csv").write_text("state,year,sales\n" + rows, encoding="utf-8")
    words = ("--unit", "state", "--time", "year", "--outcome", "sales", "--treated", "CA")
    refused("synth", "--data", "panel.csv", *words, "--T0", 1980, "--eps", 1)


def test_foreign_text_is_not_shown(folder, refused, call, monkeypatch):
    """Exceptions and warnings of other packages may quote the data: positive controls do."""

    def breaks(*_, **__):
        warnings.warn(f"mixed types near {CANARY}", stacklevel=1)
        raise KeyError(CANARY)

    monkeypatch.setattr(pd, "read_csv", breaks)
    with pytest.warns(UserWarning, match=CANARY), pytest.raises(KeyError, match=CANARY):
        pd.read_csv("people.csv")
    assert "KeyError in people.csv" in refused("ate", "y ~ x1", "--config", "study.toml")
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("dpstats.ate.model._estimate", breaks)
    assert "unexpected KeyError" in refused("ate", "y ~ x1", "--config", "study.toml")


# --- packages that are not there


def test_missing_packages(folder, refused, monkeypatch):
    (folder / "a.parquet").write_bytes(b"PAR1")
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else found(name)
    )
    line = refused("ate", "y ~ x1", "--config", "study.toml", "--data", "a.parquet")
    assert "needs pyarrow" in line
    load = importlib.import_module

    def without(name, *more):
        if name in ("tomllib", "tomli"):
            raise ModuleNotFoundError(name)
        return load(name, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    assert "tomli" in refused("ate", "y ~ x1", "--config", "study.toml")


# --- the other commands


def test_plan_is_plan(folder, call):
    (folder / "plan.toml").write_text("n = 9000\ny_bounds = [0, 1]\nk = 2\n", encoding="utf-8")
    words = ("--n", 4000, "--eps", 1, "--y-bounds", "-5", "95", "--method", "diff_means")
    code, out, _ = call("plan", "ate", "--config", "plan.toml", *words, "--csv", "plan.csv")
    twin = dp.plan_ate(4000, 1, (-5, 95), k=2, method="diff_means")
    assert code == 0
    pd.testing.assert_frame_equal(
        pd.read_csv("plan.csv", index_col=0).astype({"noise_sd": float}),
        pd.DataFrame(twin),
        check_dtype=False,
    )
    assert out == f"{twin}\ncsv: plan.csv\n"
    words = ("--n", 60, "--periods", 8, "--pre-periods", 5, "--eps", 1, "--bounds", 0, 300)
    words += ("--delta", "1e-6", "--method", "did", "--csv", "plan.csv")
    code, out, _ = call("plan", "synth", *words)
    twin = dp.plan_synth(60, 8, 5, 1, (0, 300), delta=1e-6, method="did")
    assert code == 0
    assert pd.read_csv("plan.csv", index_col=0)["advice"].tolist() == twin["advice"].tolist()


def test_plan_by_formula_over_all_methods(call):
    words = ("--n", 4000, "--eps", 1, "--method", "all", "--bounds", "y", 0, 100)
    words += ("--bounds", "age", 18, 90, "--levels", "region", "n", "s", "w")
    code, out, err = call("plan", "ate", "y ~ age + region", *words)
    assert (code, err) == (0, "")
    assert out == f"{dp.plan_ate(4000, 1, (0, 100), k=3, method=None)}\n"
    assert "blocking     ipw  diff_means  regression    aipw" in out


def test_compare_is_compare(folder, call, refused):
    start = ("ate", "y ~ x1", "--config", "study.toml", "--save")
    call(*start, "a.json")
    call(*start, "b.json", "--method", "diff_means")
    call(*start, "c.json", "--eps", "inf")
    table = dp.compare({"one": dp.load("a.json"), "two": dp.load("b.json")}, stars=True, ci=True)
    words = ("a.json", "b.json", "--labels", "one", "two", "--stars", "--ci", "--format")
    for form in ("text", "html", "latex", "markdown"):
        code, out, _ = call("compare", *words, form)
        assert code == 0
        assert out.strip() == str(getattr(table, f"as_{form}")()).strip()
    assert call("compare", *words, "latex", "--output", "t.tex")[0] == 0
    assert (folder / "t.tex").read_text(encoding="utf-8").strip() == table.as_latex().strip()
    assert "is the a.json" in refused("compare", "a.json", "--output", "a.json")
    assert "mixed" in refused("compare", "a.json", "c.json")
    assert "NOT PRIVATE" in call("compare", "a.json", "c.json", "--mixed")[1]


@pytest.mark.parametrize(
    ("words", "name", "wanted"),
    [
        ([], "ate", (1.0, "dpstats-report.html")),
        (["--eps", "2"], "ate", (2.0, "dpstats-report.html")),
        (["demo"], "ate", (1.0, "dpstats-report.html")),
        (["demo", "ate", "--output", "p.html"], "ate", (1.0, "p.html")),
        (["demo", "synth", "--eps", "3"], "synth", (3.0, "dpstats-report.html")),
    ],
)
def test_demo_is_the_default(call, monkeypatch, words, name, wanted):
    asked = []
    module = importlib.import_module(f"dpstats.demo.{name}")
    monkeypatch.setattr(module, "run", lambda eps, output: asked.append((eps, output)))
    assert call(*words)[0] == 0
    assert asked == [wanted]


@pytest.mark.parametrize(
    ("words", "function", "apart"),
    [
        (["ate"], dp.dp_ate, {"data", "ledger", "rng", "formula", "method_options"}),
        (["synth"], dp.dp_synth, {"panel", "ledger", "rng", "method_options"}),
        (["plan", "ate"], dp.plan_ate, {"formula"}),
        (["plan", "synth"], dp.plan_synth, set()),
    ],
)
def test_every_argument_has_an_option(capsys, words, function, apart):
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for name in set(inspect.signature(function).parameters) - apart:
        flag = f"--{name.replace('_', '-')} "
        # once in the usage, once with its description
        assert text.count(flag) >= 2, flag


def test_help(call):
    code, out, err = call("--help")
    assert (code, err) == (0, "")
    assert all(f"\n  {name} " in out for name in COMMANDS)
    assert call("--version")[1] == f"dpstats {dp.__version__}\n"


# --- a process of its own


def _process(*words, **more):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg", **more}
    return subprocess.run(
        [sys.executable, "-m", "dpstats", *words],
        capture_output=True, text=True, timeout=300, check=False, env=environment,
    )  # fmt: skip


def test_process(folder):
    done = _process("ate", "y ~ x1", "--config", "study.toml", "--save", "a.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Private Average Treatment Effect" in done.stdout
    assert dp.load("a.json").privacy.private


def test_process_without_unicode(folder, people):
    people.rename(columns={"y": "\u6536\u5165"}).to_csv(folder / "people.csv", index=False)
    study = STUDY.replace("y = [-10, 10]", '"\u6536\u5165" = [-10, 10]')
    (folder / "study.toml").write_text('data = "people.csv"\n' + study, encoding="utf-8")
    environment = {"PYTHONIOENCODING": "ascii"}
    words = ("ate", "\u6536\u5165 ~ x1", "--config", "study.toml")
    done = _process(*words, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u6536\u5165" in done.stdout


def test_process_fails_in_one_line(folder):
    (folder / "people.csv").write_text(LEAKS["ragged"], encoding="utf-8")
    with pytest.raises(pd.errors.ParserError):
        pd.read_csv(io.StringIO(LEAKS["ragged"]))
    done = _process("ate", "y ~ x1", "--config", "study.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("dpstats: error: `data` could not be read: ParserError")
    assert done.stderr.count("\n") == 1
