"""What the README says can be run as it stands there, and what it shows is what is printed."""

from __future__ import annotations

import re
import shlex
import warnings
from pathlib import Path

import pytest

import dpstats as dp
from dpstats.ate.kernels import KERNELS
from dpstats.cli import main

README = Path(__file__).parents[1] / "README.md"
pytestmark = pytest.mark.skipif(not README.exists(), reason="needs the checkout")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the README speaks of."""
    monkeypatch.chdir(tmp_path)
    trial = dp.simulate.ate("well_specified", 3000, rng=1)
    trial.data.to_csv("trial.csv", index=False)
    pairs = [f"{name} = [{low}, {high}]" for name, (low, high) in trial.bounds.items()]
    book = ["[ledger]", 'path = "study.ledger"', "eps = 3"]
    study = "\n".join(["[bounds]", *pairs, *book]) + "\n"
    Path("study.toml").write_text(study, encoding="utf-8")
    panel = dp.simulate.panel("factor", n_donors=40, effect=0.1, rng=1).data
    panel = panel.assign(year=1969 + panel["time"], state=panel["unit"].replace(0, "California"))
    panel[["state", "year", "y"]].to_csv("panel.csv", index=False)
    return tmp_path


def test_python(folder, capsys):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    try:
        bounds = dp.datasets.load_nhefs().bounds
    except ImportError:
        pytest.skip("needs the extra datasets")
    names = {"df": dp.simulate.ate("well_specified", 20_000, rng=1).data}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for code in blocks("python"):
            exec(compile(code, "README.md", "exec"), names)
    matplotlib.pyplot.close("all")
    shown = capsys.readouterr().out
    assert (folder / "quit.json").exists()
    assert (folder / "study.ledger").exists()
    # noise is new in every run; a plan is the same in all
    (plan,) = [text for text in blocks("text") if text.startswith("Plan of dp_ate")]
    assert plan in shown
    # and so is what rows are called
    summary, _, table, *_ = blocks("text")
    assert summary.splitlines()[0] in shown
    lines = table[: table.rindex("====")].splitlines()
    labels = {re.split(r"\s{2,}", line)[0] for line in lines if line[:1].isalpha()}
    assert len(labels) > 9
    for label in labels - {"Warnings"}:
        assert f"\n{label}  " in shown
    low, high = bounds["wt82_71"]
    assert f"outcome in [{low:g}, {high:g}]" in shown


def test_commands(folder, capsys):
    (text,) = [text for text in blocks("text") if text.startswith("python -m dpstats ate")]
    lines = text.replace("\\\n", " ").strip().splitlines()
    assert len(lines) == 6
    first = shlex.split(lines[0])
    assert main([*first[3:-1], "other.json"]) == 0
    for line in lines:
        words = shlex.split(line)
        assert words[:3] == ["python", "-m", "dpstats"]
        code = main(words[3:])
        shown = capsys.readouterr()
        assert code == 0, shown.err
        if words[3] == "compare":
            assert r"\begin{tabular}" in shown.out
            assert r"\label{tab:effects}" in shown.out
    # each of the two estimates
    assert dp.PrivacyLedger("study.ledger").spent == (2.0, 0.0)


def rows():
    if not README.exists():
        return
    text = README.read_text(encoding="utf-8")
    table = text[text.index("| `method` | what it is | estimands |") :].split("\n\n")[0]
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for method in re.findall(r'`"(\w+)"`', cells[0]):
            yield method, cells[2], cells[3]


def test_every_method_is_in_the_table():
    assert sorted(method for method, *_ in rows()) == sorted(KERNELS)


@pytest.mark.parametrize(
    ("method", "estimands", "releases"), list(rows()), ids=lambda x: str(x)[:14]
)
def test_estimands_and_releases_of_the_table(method, estimands, releases):
    """Which estimands there are, which are free, and what is released."""
    trial = dp.simulate.ate("binary" if method == "binary" else "well_specified", 6000, rng=1)
    named = {name.lower() for name in re.findall(r"\bAT[ETCO]\b", estimands)}
    assert named == set(KERNELS[method].estimands)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = dp.dp_ate(
            trial.formula, trial.treat, trial.data, 2, bounds=trial.bounds, method=method, rng=1
        )
    free = set(result.facts.estimands)
    assert free == (named if "from one release" in estimands else {"ate"})
    made = {name.partition(" (")[0] for name in result.privacy.releases["release"]}
    assert made <= set(re.findall(r"\w+", releases))
