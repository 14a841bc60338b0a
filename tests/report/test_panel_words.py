"""What a reader of a panel's summary, comparison and ledger finds, and what stands elsewhere."""

from __future__ import annotations

import warnings

import pytest

import dpstats as dp

CALL = {"unit": "hospital", "time": "time", "treated": "Mercy General", "outcome": "y", "T0": 20}


@pytest.fixture(scope="module")
def panel():
    data = dp.simulate.panel("factor", n_donors=400, effect=0.3, rng=1).data
    names = data["unit"].map(lambda unit: f"hospital {unit}" if unit else "Mercy General")
    return data.assign(hospital=names)


@pytest.fixture(scope="module")
def ledger():
    return dp.PrivacyLedger(":memory:", eps=9, delta=1e-3, protects="unit")


@pytest.fixture(scope="module")
def result(panel, ledger):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.UtilityWarning)
        return dp.dp_synth(panel, eps=3, delta=1e-6, ledger=ledger, **CALL)


def test_comparison_names_the_treated_unit(result):
    pytest.importorskip("matplotlib")
    table = dp.compare([result])
    lines = [line.split() for line in str(table).splitlines()]
    assert ["Treated", "unit", "Mercy", "General"] in lines
    assert not any(line[:1] == ["Treatment"] for line in lines)
    _, ax = table.plot()
    assert ax.get_xlabel().startswith("Effect on Mercy General (y)")


def test_constants_stand_in_the_notes(result):
    head, _, rest = str(result.summary()).partition("ATT")
    notes = " ".join(rest.split("Notes:")[1].split())
    for name, value in result.facts.constants:
        assert f"{name}: {value}" in notes
        assert name.lower() not in head.lower()
    for label in ("No. Donors:", "Periods:", "Method:", "RMSPE before T0:", "Std. error, privacy:"):
        assert label in head


def test_p_values_are_explained(result):
    text = " ".join(str(result).split())
    assert "999 draws; P>|z| inverts the interval, so it is never below 1/1000" in text
    # as it says: 999 draws and one
    assert result.pvalues.min() >= 1 / 1000
    assert (result.pvalues * 1000).round(9).mod(1).eq(0).all()


def test_constants_of_an_exact_run(panel):
    exact = dp.dp_synth(panel, eps=float("inf"), method="output", bounds=(-9, 9), **CALL)
    text = " ".join(str(exact).split())
    words = ", ".join(f"{name}: {value}" for name, value in exact.facts.constants)
    assert "penalty: " in words
    assert f"Synthetic control by output perturbation ({words})." in text
    assert "parametric bootstrap of the treated, 999 draws" in text


@pytest.mark.parametrize("show", [str, repr])
def test_tables_of_money_fit_a_terminal(result, ledger, show):
    for table, names in (
        (dp.sensitivity_table(result), ("release", "mechanism", "epsilon_half", "extra", "total")),
        (ledger.history(), ("time", "call", "epsilon", "delta", "releases")),
    ):
        text = show(table)
        assert max(map(len, text.splitlines())) <= 80
        assert "..." not in text
        words = text.split()
        assert set(names) <= set(words)
    assert "moments" in words
    assert f"{ledger.history()['time'].iloc[0]:%Y-%m-%d %H:%M:%S}" in text


def test_history_keeps_its_columns(ledger, result):
    history = ledger.history()
    assert list(history.columns) == ["time", "data", "call", "epsilon", "delta", "releases"]
    assert history["releases"].iloc[0][0]["release"] == "moments"
