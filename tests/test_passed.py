"""Data that stand where an argument belongs are not written out by the error that refuses them."""

from __future__ import annotations

import inspect
import re
import warnings

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.passed import passed

N = 40
RNG = np.random.default_rng(0)
PEOPLE = pd.DataFrame(
    {
        "y": 8123.456 + np.arange(N),
        "x": 8123.456 + RNG.random(N),
        "w": RNG.integers(0, 2, N),
        "g": RNG.choice(["Zebedee", "Quentin"], N),
    }
)
PANEL = dp.simulate.panel("factor", n_donors=20, rng=1).data
SECRET = re.compile(r"81[2-9]\d|Zebedee|Quentin")
SLIPS = {
    "frame": PEOPLE,
    "column": PEOPLE["y"],
    "texts": PEOPLE["g"],
    "array": PEOPLE["y"].to_numpy(),
    "list": PEOPLE["g"].tolist(),
    "index": pd.Index(PEOPLE["y"]),
    "categorical": pd.Categorical(PEOPLE["g"]),
    "records": PEOPLE.to_dict("records"),
    "set": set(PEOPLE["g"]),
    "dict of column": {"y": PEOPLE["y"], "g": PEOPLE["g"]},
    "dict of list": {"y": PEOPLE["y"].tolist(), "g": PEOPLE["g"].tolist()},
    "dict of frame": {"y": PEOPLE, "g": PEOPLE},
}


def chain(error):
    """What a traceback may print, and what it hides."""
    while error is not None:
        yield f"{error} {error!r}"
        error = error.__cause__ or error.__context__


def shown(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except Exception as error:
            return " ".join(chain(error))
    return ""


ATE = {"formula": "y ~ x", "treat": "w", "data": PEOPLE, "eps": 1.0}
ATE["bounds"] = {"y": (0, 9000), "x": (0, 9000)}
SYNTH = {"panel": PANEL, "unit": "unit", "time": "time", "treated": 0, "outcome": "y", "T0": 20}
SYNTH |= {"eps": 1.0, "bounds": (-5, 5)}
PLAN = {"n": 1000, "eps": 1.0, "formula": "y ~ x", "bounds": ATE["bounds"], "method": "diff_means"}


def arguments(function, *more):
    names = inspect.signature(function).parameters
    return [*(name for name in names if not name.endswith("_options")), *more]


CALLS = {
    "dp_ate": (dp.dp_ate, ATE, arguments(dp.dp_ate, "smooth", "adjust", "a_new_one")),
    "split_ipw": (dp.dp_ate, {**ATE, "method": "split_ipw"}, ["train_share"]),
    "agg_nipw": (dp.dp_ate, {**ATE, "method": "agg_nipw"}, ["subsets"]),
    "agg_ipw": (dp.dp_ate, {**ATE, "method": "agg_ipw"}, ["folds"]),
    "dp_synth": (
        dp.dp_synth,
        SYNTH,
        arguments(dp.dp_synth, "release", "project", "target_norm", "l1_ratio", "rank"),
    ),
    "plan_ate": (dp.plan_ate, PLAN, arguments(dp.plan_ate)),
}


@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.parametrize("name", CALLS)
def test_no_argument_is_written_out_where_it_is_data(name, slip):
    function, good, names = CALLS[name]
    for argument in names:
        text = shown(lambda argument=argument: function(**{**good, argument: SLIPS[slip]}))
        assert not SECRET.search(text), (argument, text[:300])


def test_arguments_in_another_order():
    """The likeliest slip: what is fourth stands third, by position."""
    for order in (("y ~ x", "w", 1.0, PEOPLE), (PEOPLE, "y ~ x", "w", 1.0)):
        text = shown(lambda order=order: dp.dp_ate(*order))
        assert "must be" in text
        assert not SECRET.search(text)


def test_levels_that_were_read_off_the_data():
    """A gap among them, or a single one, is what a column that has it gives; nobody types that."""
    for levels in ([*PEOPLE["g"].unique(), None], PEOPLE["g"].unique()[:1], PEOPLE["g"]):
        text = shown(lambda levels=levels: dp.dp_ate(**ATE, levels={"g": levels}))
        assert text.startswith("`levels` of 'g' must")
        assert not SECRET.search(text)


def test_labels_of_treated_units_are_shown_where_they_are_few():
    donors = {**SYNTH, "treated": ["Atlantis"]}
    assert "got 'Atlantis' (str)" in shown(lambda: dp.dp_synth(**donors))
    many = {**SYNTH, "treated": PEOPLE["g"]}
    assert "got Series of 40 (str)" in shown(lambda: dp.dp_synth(**many))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (np.float64(0.5), "np.float64(0.5)"),
        (pd.Timestamp("2020-01-01"), "Timestamp('2020-01-01 00:00:00')"),
        ("a" * 500, "str of 500"),
        ([1, [2, 3]], "[1, [2, 3]]"),
        ([1, [2, [3]]], "list of 2"),
        ({"a": (0, 1)}, "{'a': (0, 1)}"),
        ({"a": {"b": {"c": 1}}}, "dict of 1"),
        (tuple(range(7)), "tuple of 7"),
        (np.zeros(2), "ndarray of 2"),
        (np.array(3.0), "ndarray"),
        (pd.DataFrame, "type"),
        (object(), "object"),
    ],
)
def test_what_is_shown(value, text):
    assert passed(value) == text
