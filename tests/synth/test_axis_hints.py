"""The time axis and labels: gaps are told, and what was probably meant."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.synth.axis import read_axis

EVEN = {
    "years": [1990, 1991, 1992, 1993],
    "two years": [1990, 1992, 1994, 1996],
    "quarters as decimals": [1990.0, 1990.25, 1990.5, 1990.75, 1991.0],
    "thirds": list(1990 + np.arange(12) / 3),
    "month starts": pd.date_range("2019-11-01", periods=30, freq="MS"),
    "month ends": pd.date_range("2019-11-30", periods=30, freq="ME"),
    "quarters": pd.period_range("2019Q1", periods=9, freq="Q"),
    "days": pd.date_range("2020-02-20", periods=20),
    "working days": pd.bdate_range("2020-02-20", periods=20),
    "years of dates": pd.to_datetime([f"{year}-07-01" for year in range(1990, 1999)]),
    "hours": pd.date_range("2020-02-20", periods=20, freq="h", tz="Europe/Paris"),
    "waves": pd.Categorical(["a", "b", "d"], ordered=True),
    "two": [1990, 1997],
}
GAPS = {
    "a year": ([1990, 1991, 1993, 1994], "1991 to 1993"),
    "many": ([0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 14], "6 to 8, 8 to 10, 10 to 12 and 1 more"),
    "a month": (
        pd.to_datetime(["2020-01-01", "2020-02-01", "2020-04-01", "2020-05-01"]),
        "2020-02-01 to 2020-04-01",
    ),
    "a quarter": (
        pd.PeriodIndex(["2020Q1", "2020Q2", "2020Q4", "2021Q1"], freq="Q"),
        "2020Q2 to 2020Q4",
    ),
}


@pytest.mark.parametrize("name", EVEN)
def test_even_axes(name):
    axis, _ = read_axis(pd.Index(EVEN[name])[::-1], "when")
    assert axis.gaps() == ""


@pytest.mark.parametrize("name", GAPS)
def test_gaps_are_named(name):
    labels, words = GAPS[name]
    axis, _ = read_axis(pd.Index(labels)[::-1], "when")
    assert axis.gaps() == words


def test_a_gap_is_warned_of_before_anything_is_spent(panel):
    kept = panel[panel["time"] != 2003]
    call = {"unit": "unit", "time": "time", "treated": 0, "T0": 2007, "method": "did", "rng": 1}
    for data, gap in ((panel, False), (kept, True)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dp.dp_synth(data, eps=5, **call)
        told = [w for w in caught if "evenly spaced" in str(w.message)]
        assert len(told) == gap
    assert issubclass(told[0].category, dp.UtilityWarning)
    assert "2002 to 2004" in str(told[0].message)
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("T0", "end"),
    [(2030, "The axis runs from 2000 to 2011"), ("2007", ": use 2007, a number")],
)
def test_T0_that_is_not_there(synth, panel, T0, end):
    with pytest.raises(dp.DPStatsError, match="`T0` must be a label of the time axis") as caught:
        synth(panel, T0=T0)
    assert str(caught.value).endswith(end)


def test_a_long_axis_is_not_shown(synth, panel):
    """A confidential column in the place of time has thousands of labels."""
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"unit": 0, "time": rng.normal(size=1500), "y": 1.0})
    with pytest.raises(dp.DPStatsError, match="`T0`") as caught:
        synth(data, T0=3.0)
    assert "runs from" not in str(caught.value)


def test_treated_that_is_nearly_there(synth, panel):
    names = {0: "Mercy General", 1: "Saint Mary", 2: "City"}
    named = panel.assign(unit=panel["unit"].map(lambda u: names.get(u, f"hospital {u}")))
    for wrong in ("mercy general", "Mercy Generl"):
        with pytest.raises(dp.DPStatsError, match=r"\(near match: 'Mercy General'\)$"):
            synth(named, treated=wrong)
    with pytest.raises(dp.DPStatsError, match="`treated`") as caught:
        synth(named, treated="Elsewhere")
    for label in named["unit"].unique():
        assert label not in str(caught.value)
    with pytest.raises(dp.DPStatsError, match=r": use 14, a number$"):
        synth(panel, treated="14")
