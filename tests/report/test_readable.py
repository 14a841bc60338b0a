"""Frames that print whole at the width of a terminal."""

import pickle
import re
import unicodedata
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpstats as dp
from dpstats.report._escape import display_width, plain
from dpstats.report.readable import ReadableFrame


@pytest.fixture(scope="module")
def results():
    trial = dp.simulate.ate("well_specified", 6000, rng=1)
    panel = dp.simulate.panel("factor", n_donors=1000, effect=0.3, rng=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            method: dp.dp_ate(
                "y ~ x1 + x2 + x3 + x4", "w", trial.data, 1.0, bounds=trial.bounds, method=method,
                balance=0.2 if method in {"blocking", "nipw"} else None, rng=1,
            )
            for method in ("blocking", "nipw", "aipw", "agg_nipw")
        } | {
            "panel": dp.dp_synth(
                panel.data, unit="unit", time="time", treated=0, outcome="y", T0=20, eps=1, rng=1
            )
        }  # fmt: skip


def frames(result):
    yield result.diagnostics
    yield result.privacy.releases
    if hasattr(result.released, "blocks"):
        yield result.blocks
    if getattr(result, "covariates", None) is not None:
        yield result.balance


def squeeze(text):
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("kind", ["blocking", "nipw", "aipw", "agg_nipw", "panel"])
def test_everything_is_shown_in_eighty_columns(results, kind):
    for frame in frames(results[kind]):
        for text in (str(frame), repr(frame)):
            lines = text.splitlines()
            assert max(map(len, lines)) <= 80
            assert "..." not in text
            for column in frame.columns:
                assert str(column) in text
            # words of every cell, in their order down the column
            for value in frame.to_numpy(dtype=object).ravel():
                if isinstance(value, str):
                    words = value.split()
                    assert all(word in text for word in words)
        markup = frame._repr_html_()
        assert "..." not in markup
        for value in frame.select_dtypes(include=["object", "str"]).to_numpy().ravel():
            assert plain(value).split()[0] in markup.replace("&gt;", ">") if value else True


def test_a_single_column_of_text_reads_back():
    text = "privacy noise and sampling error are of one size: " * 5
    printed = ReadableFrame({"reading": [text, "short"]}).as_text(40)
    head, rule, *body = printed.splitlines()
    assert (head, set(rule)) == ("reading", {"-"})
    assert squeeze("".join(body)) == squeeze(text + "short")
    assert max(map(len, body)) <= 40


def test_numbers_are_flush_right_and_ascii():
    frame = ReadableFrame({"name": ["a", "b"], "x": [-1.5, 1234.5678], "y": [np.nan, 2.0]})
    lines = str(frame).splitlines()
    assert lines[0].endswith("y")
    assert (
        len(
            {
                line.index(end) + len(end)
                for line, end in zip(lines[2:], ("-1.5", "1235"), strict=True)
            }
        )
        == 1
    )
    assert str(frame).isascii()
    assert "nan" in lines[2]


def test_wide_frames_go_on_below():
    frame = ReadableFrame({f"column_{j}": [float(j)] for j in range(30)}, index=["the row"])
    parts = str(frame).split("\n\n")
    assert len(parts) > 1
    for part in parts:
        assert part.splitlines()[2].startswith("the row")
    assert sum(part.splitlines()[0].count("column_") for part in parts) == 30


def test_pandas_option_sets_the_width():
    frame = ReadableFrame({"reading": ["word " * 60]})
    with pd.option_context("display.width", 120):
        assert 100 < max(map(len, str(frame).splitlines())) <= 120


def test_it_is_an_ordinary_frame_otherwise(results):
    frame = results["blocking"].diagnostics
    plain_one = pd.DataFrame(frame)
    for part in (
        frame[["value"]],
        frame.head(1),
        frame.copy(),
        frame.set_index("quantity"),
    ):
        assert type(part) is pd.DataFrame
    assert frame.to_string() == plain_one.to_string()
    assert frame.to_dict("records") == plain_one.to_dict("records")
    again = pickle.loads(pickle.dumps(frame))
    assert str(again) == str(frame)


def test_empty_and_very_long_frames_are_left_to_pandas():
    for frame in (pd.DataFrame(), pd.DataFrame({"a": range(500)}), pd.DataFrame({"a": []})):
        assert str(ReadableFrame(frame)) == str(frame)
    assert str(ReadableFrame(index=["a", "b"]))


@given(
    st.lists(
        st.tuples(st.text(max_size=60), st.floats(), st.text("ab cd", max_size=200)),
        min_size=1, max_size=5,
    ),
    st.integers(40, 120),
)  # fmt: skip
def test_any_text_fits_the_width(rows, width):
    printed = ReadableFrame(rows, columns=["first", "second", "third"]).as_text(width)
    assert max(map(display_width, printed.split("\n"))) <= width
    assert not any(unicodedata.category(char) in {"Cc", "Cs"} for char in printed if char != "\n")
    for _, _, third in rows:
        assert Counter(squeeze(third)) <= Counter(printed)
