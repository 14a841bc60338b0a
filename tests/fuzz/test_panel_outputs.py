"""No donor in what is written of a synthetic control: tables, reports, the command line."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from panel_inputs import METHODS

import dpstats as dp
from dpstats.cli import main

N, T, BEFORE = 40, 10, 7


@pytest.fixture(scope="module")
def panel():
    """Values that cannot be there by accident."""
    rng = np.random.default_rng(3)
    y = 7777.123 + rng.normal(size=(N + 1, T)).cumsum(axis=1) * 50
    return pd.DataFrame(
        {
            "unit": np.repeat(["treated-one", *(f"donor-{k:03d}" for k in range(N))], T),
            "time": np.tile(np.arange(T), N + 1),
            "y": y.ravel(),
        }
    )


def secrets(panel):
    wide = panel.pivot(index="unit", columns="time", values="y")  # noqa: PD010
    donors = wide.drop(index="treated-one").to_numpy()
    centred = donors - 8000.0
    found = [donors, centred, centred / 1000.0, donors.mean(axis=0), centred.mean(axis=0)]
    found += [donors.sum(axis=0), donors.mean(axis=1), donors.std(axis=0)]
    values = np.unique(np.concatenate([part.ravel() for part in found]))
    forms = (f"{v:.9g}" for v in values)
    return [form for form in forms if sum(map(str.isdigit, form)) >= 8]


def check(text, hidden):
    # pictures are pixels: their digits are no numbers
    text = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert "donor-" not in text
    assert not [form for form in hidden if form in text]


@pytest.mark.parametrize("method", METHODS)
def test_tables_and_reports(panel, method, tmp_path):
    pytest.importorskip("matplotlib")
    hidden = secrets(panel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = dp.dp_synth(
            panel,
            unit="unit",
            time="time",
            treated="treated-one",
            T0=BEFORE - 1,
            eps=8.0,
            bounds=(7000, 9000),
            method=method,
            rng=5,
        )
    full, table = result.summary(diagnostics=True), dp.compare([result], stars=True)
    texts = [full.as_text(), full.as_html(), full.as_latex(), full.as_csv()]
    texts += [table.as_text(), table.as_html(), table.as_latex(), table.as_markdown()]
    texts += [result.diagnostics.to_string(), table.effects.to_string()]
    for suffix in ("html", "tex", "md"):
        result.report(tmp_path / f"r.{suffix}")
    for path in tmp_path.iterdir():
        if path.suffix in (".html", ".tex", ".md"):
            texts.append(path.read_text(encoding="utf-8"))
    assert len(texts) >= 13
    for text in texts:
        check(text, hidden)


def test_the_search_finds_donors_that_are_shown(panel):
    hidden = secrets(panel)
    value = panel["y"].iloc[-1]
    for text in (f"... {value:.12g} ...", "of donor-003"):
        with pytest.raises(AssertionError):
            check(text, hidden)


@pytest.mark.parametrize("method", METHODS)
def test_the_command_line(panel, method, tmp_path, capsys):
    hidden = secrets(panel)
    gaps = panel.drop(index=panel.index[-1])
    twice = pd.concat([panel, panel.tail(1)])
    words = panel.assign(y=panel["y"].astype(str) + "x")
    config = tmp_path / "study.toml"
    config.write_text("bounds = [7000, 9000]\n", encoding="utf-8")
    for name, frame in {"good": panel, "gaps": gaps, "twice": twice, "words": words}.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        command = ["synth", "--data", str(tmp_path / f"{name}.csv"), "--unit", "unit"]
        command += ["--time", "time", "--outcome", "y", "--T0", str(BEFORE - 1), "--eps", "8"]
        command += ["--treated", "treated-one", "--method", method, "--seed", "5"]
        code = main([*command, "--config", str(config)])
        shown = capsys.readouterr()
        assert (code == 0) is (name == "good"), shown.err
        assert shown.err
        assert "Traceback" not in shown.err
        check(shown.out, hidden)
        check(shown.err, hidden)
