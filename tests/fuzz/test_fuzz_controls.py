"""The checks on random inputs find what they look for."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import test_fuzz_ate
from ate_inputs import AteInput
from checks import attempt, check_result, check_texts

import dpstats as dp
from dpstats.ate import data as reading


@pytest.fixture
def case() -> AteInput:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"y": rng.uniform(size=30), "w": np.arange(30) % 2, "x": rng.uniform(size=30)}
    )
    bounds = {"y": (0.0, 1.0), "x": (0.0, 1.0)}
    options = {"method": "ipw", "treated": None, "bounds": bounds, "delta": 0.0, "propensity": 0.5}
    return AteInput(
        frame, "y ~ x", "w", 100.0, options, "y", dict(bounds), {}, ("y", "w", "x"), 1, False
    )


def test_other_warnings_and_errors_are_faults():
    with pytest.raises(AssertionError, match="RuntimeWarning"):
        attempt(lambda: np.float64(1.0) / np.float64(0.0))
    with pytest.raises(AssertionError, match="FutureWarning"):
        attempt(lambda: warnings.warn("of pandas", FutureWarning, stacklevel=1))
    with pytest.raises(ZeroDivisionError):
        attempt(lambda: 1 / 0)


def test_values_in_texts_are_faults(case):
    value = float(case.frame["x"].iloc[7])
    check_texts([f"x is {value:.3f}"], case.frame)
    with pytest.raises(AssertionError):
        check_texts([f"x is {value!r}"], case.frame)

    def hides():
        try:
            float(f"{value!r} m")
        except ValueError:
            raise dp.DPStatsError("`x` is wrong") from None

    _, error, _ = attempt(hides)
    with pytest.raises(AssertionError):
        check_texts([error], case.frame)


def test_numbers_that_are_none_are_faults(case):
    result, _, _ = attempt(case.run)
    check_result(result, 100.0, 0.0, 1.0)
    with pytest.raises(AssertionError):
        # more than the bounds allow
        check_result(result, 100.0, 0.0, 1e-9)
    with pytest.raises(AssertionError):
        # more than was given
        check_result(result, 1.0, 0.0, 1.0)
    result.released = replace(result.released, score=math.nan)
    result.__dict__.pop("_inference", None)
    with pytest.raises(AssertionError):
        check_result(result, 100.0, 0.0, 1.0)


def test_a_call_that_changes_its_input_is_a_fault(case, monkeypatch):
    read = reading.read_columns

    def careless(data, schema, **how):
        data["y"] = 0.5
        return read(data, schema, **how)

    monkeypatch.setattr("dpstats.ate.model.read_columns", careless)
    with pytest.raises(AssertionError):
        test_fuzz_ate.health(case)


@pytest.mark.parametrize("change", ["clipping", "row order"])
def test_a_row_that_matters_too_much_is_a_fault(case, monkeypatch, change):
    made = reading.arrays_from

    def careless(columns, schema, bounds, overlap, **how):
        arrays, outcome = made(columns, schema, bounds, overlap, **how)
        # without clipping; by position
        seen = columns.cells["y"] if change == "clipping" else np.arange(arrays.n) / arrays.n
        seen = np.clip(np.nan_to_num(seen), -99.0, 99.0) / 200.0
        return replace(arrays, outcome=np.round(seen * 1024) / 1024), outcome

    monkeypatch.setattr("dpstats.ate.model.arrays_from", careless)

    def several() -> None:
        # some of the moves are small
        for number in range(10):
            test_fuzz_ate.invariance(case, change, number)

    with pytest.raises(AssertionError):
        several()


def test_an_answer_to_a_free_question_is_a_fault(case, monkeypatch):
    read = reading.read_columns

    def careless(data, schema, **how):
        columns = read(data, schema, **how)
        if np.isinf(columns.cells["y"]).any():
            raise dp.DPStatsError("`data` must be finite")
        return columns

    monkeypatch.setattr("dpstats.ate.model.read_columns", careless)

    def several() -> None:
        for number in range(30):
            test_fuzz_ate.free_question(case, number)

    with pytest.raises(AssertionError):
        several()
