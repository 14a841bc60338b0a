"""What is refused, and in which words."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from audit_runs import noisy_sum, run

import dpstats as dp
from dpstats import audit


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"eps": -1.0}, "`eps` must be a number of at least 0; got -1.0"),
        ({"eps": True}, "`eps` must be a number"),
        ({"eps": math.inf}, "`eps` must be a number"),
        ({"delta": 1.0}, r"`delta` must be a number in \[0, 1\)"),
        ({"delta": "no"}, "`delta` must be a number"),
        ({"false_alarm": 0.0}, r"`false_alarm` must be a number in \(0, 0.5\]"),
        ({"false_alarm": 0.6}, r"`false_alarm` must be a number in \(0, 0.5\]"),
        ({"trials": 39}, "`trials` must be a whole number of at least 40; got 39"),
        ({"jobs": 0}, "`jobs` must be a whole number of at least 1; got 0"),
        ({"rng": "seed"}, "`rng` must be None, an integer seed"),
    ],
)
def test_arguments_are_checked(options, text) -> None:
    with pytest.raises(dp.DPStatsError, match=text):
        run(**options)


def test_releases_and_samples_are_checked() -> None:
    with pytest.raises(dp.DPStatsError, match="`release` must be a function; got int"):
        run(3)
    with pytest.raises(dp.DPStatsError, match="number or an array of numbers; got dict"):
        run(lambda data: {"a": 1.0})
    with pytest.raises(dp.DPStatsError, match="on every run; got 2 and 3"):
        run(lambda data: np.zeros(1 + sum(data)))
    with pytest.raises(dp.DPStatsError, match="at least one, on every run; got 0"):
        run(lambda data: [])
    with pytest.raises(dp.DPStatsError, match="`candidates` must hold at least one pair"):
        audit.search(noisy_sum, [])
    with pytest.raises(dp.DPStatsError, match="got an entry of type int"):
        audit.search(noisy_sum, [3])
    with pytest.raises(dp.DPStatsError, match="`first` must have shape"):
        audit.from_samples(np.zeros(39), np.zeros(40))
    with pytest.raises(dp.DPStatsError, match="as many numbers a run as `first`; got 1 and 2"):
        audit.from_samples(np.zeros((40, 2)), np.zeros(40))
    with pytest.raises(dp.DPStatsError, match="`level` must be in"):
        audit.clopper_pearson(1, 2, 0.0)
    with pytest.raises(dp.DPStatsError, match="counts between 0 and `trials`"):
        audit.clopper_pearson(3, 2, 0.1)
    found = audit.from_samples(np.zeros(40), np.ones(40))
    with pytest.raises(dp.DPStatsError, match="`eps` must be at least 0"):
        found.delta_at(-1.0)
    with pytest.raises(dp.DPStatsError, match="drawn elsewhere"):
        found.rng("data", 0)
    with pytest.raises(dp.DPStatsError, match="`which` must be"):
        run().rng("other", 0)


def test_replacement_rows_are_checked() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": pd.Categorical(["u", "u"])})
    for call, text in (
        (lambda: audit.neighbours(frame, [{"z": 1}]), "must name columns of `data`; 'z' is none"),
        (lambda: audit.neighbours(frame, [3.0]), "mappings of columns to values"),
        (
            lambda: audit.neighbours(frame, [{"a": 1}], at=2),
            "`at` must be the position of one of 2",
        ),
        (lambda: audit.neighbours([1, 2], [3]), "a DataFrame or a numpy array; got list"),
        (lambda: audit.neighbours(frame, [{"b": "x"}]), "declared levels of 'b'"),
    ):
        with pytest.raises(dp.DPStatsError, match=text):
            call()
