"""A file without a header: cells of its first row are the names, which no hint may show."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.hints import column_hint

# as text files, and as spreadsheets, give them
ROWS = {
    "number as text": ["Miller", "34.5", "1"],
    "twice": ["Miller", "7", "7.1"],
    "date as text": ["Miller", "1960-02-03"],
    "money": ["Miller", "$ 3,000"],
    "exponent": ["Miller", "-1.5e-7"],
    "answer": ["Miller", "TRUE"],
    "number": ["Miller", 34.5],
    "integer": ["Miller", 34, "Smith"],
    "numpy": ["Miller", np.float64(34.5)],
    "date": ["Miller", pd.Timestamp("1960-02-03")],
    "bool": ["Miller", True],
    "empty": ["Miller", np.nan],
}


def refusals(frame):
    """Every way in which a name near one of the file's, or near none, is refused."""
    first = "Miller"
    calls = [
        lambda: dp.dp_ate("y ~ x", "treat", frame, 1),
        lambda: dp.dp_ate("y ~ x", "Milles", frame, 1),
        lambda: dp.dp_ate("Milles ~ 1", first, frame, 1),
        lambda: dp.dp_ate("Q('34.7') ~ 1", first, frame, 1),
        lambda: dp.dp_ate("y ~ x", "34.6", frame, 1),
        lambda: dp.dp_ate("y ~ x", first, frame, 1, propensity="Mille"),
        lambda: dp.dp_ate("y ~ x", first, frame, 1, levels={"Mille": ["a", "b"]}),
        lambda: dp.dp_synth(frame, unit="Milles", time="34.6", T0=1, eps=1, treated=0),
        lambda: dp.dp_synth(frame, unit="g", time=first, T0=1, eps=1, treated=0),
    ]
    for call in calls:
        with pytest.raises(dp.DPStatsError) as caught:
            call()
        yield str(caught.value)


@pytest.mark.parametrize("row", ROWS)
def test_no_hint_shows_a_cell(row):
    frame = pd.DataFrame(np.zeros((4, len(ROWS[row]))), columns=ROWS[row])
    for text in refusals(frame):
        assert "matches" not in text
        assert "columns:" not in text
        for name in ROWS[row]:
            shown = str(name)
            assert len(shown) < 3 or shown not in text.replace("got 'Miller'", ""), text


@pytest.mark.parametrize("row", ROWS)
def test_nor_does_the_list_of_outcomes(row):
    """Which columns may be the outcome is told by their names."""
    frame = pd.DataFrame(np.zeros((4, len(ROWS[row]))), columns=ROWS[row])
    frame.insert(0, "unit", list("abab"))
    frame.insert(0, "time", [1, 1, 2, 2])
    frame["Third"] = 0.0
    with pytest.raises(dp.DPStatsError, match=r"left are: \d columns$"):
        dp.dp_synth(frame, unit="unit", time="time", T0=1, eps=1, treated="a")


def test_names_that_are_names_are_hinted():
    for names in (["y", "w", "age"], ["Unnamed: 0", "y", "age"], ["1st", "% poor", "age", "e5"]):
        assert column_hint("Age", names) == "near matches: 'age'"
    assert column_hint("zz", ["Unnamed: 0", "y"]) == "columns: 'Unnamed: 0', 'y'"
