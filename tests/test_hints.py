"""Hints: what others call an argument, near names once each, columns only where they are names."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pickle

import pandas as pd
import pytest

import dpstats as dp
from dpstats.ate import options
from dpstats.ate.kernels import KERNELS
from dpstats.hints import ATE_NAMES, SYNTH_NAMES, argument_hint, column_hint, near_names
from dpstats.synth import model
from dpstats.synth.kernels import KERNELS as SYNTH_KERNELS

FRAME = pd.DataFrame({"y": [0.0, 1.0] * 30, "x": [0.0, 0.5, 1.0] * 20, "w": [0, 1] * 30})
PANEL = dp.simulate.panel("factor", n_donors=5, rng=1).data


def arguments(function):
    kinds = inspect.signature(function).parameters.values()
    return {p.name for p in kinds if p.kind is not p.VAR_KEYWORD}


def refusal(**given):
    with pytest.raises(dp.DPStatsError) as caught:
        dp.dp_ate("y ~ x", "w", FRAME, 1, bounds={"y": (0, 1), "x": (0, 1)}, **given)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("epsilon", "here it is called `eps`"),
        ("Epsilon", "here it is called `eps`"),
        ("treatment", "here it is called `treat`"),
        ("W", "here it is called `treat`"),
        ("df", "here it is called `data`"),
        ("seed", "here it is called `rng`"),
        ("random_state", "here it is called `rng`"),
        ("trim", "here it is called `overlap`"),
        ("weights", "rows cannot be weighted"),
        ("cluster", "`rows_per_person`"),
        ("alpha", "conf_int()"),
        ("covariates", "right side of `formula`"),
        ("bound", "near matches: bounds"),
        ("balances", "near matches: balance"),
        ("smoth", "near matches: smooth"),
    ],
)
def test_keywords_of_dp_ate(name, wanted):
    text = refusal(**{name: 1})
    assert text.startswith(f"`{name}` must be an argument of dp_ate")
    assert text.endswith(f"{wanted})") or f"({wanted}" in text or wanted in text
    # nothing is proposed twice
    listed = text.partition("near matches: ")[2].rstrip(")").split(", ")
    assert len(set(listed)) == len(listed)


def test_a_keyword_like_nothing():
    assert refusal(qqq=1).endswith("got 'qqq'")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("epsilon", "here it is called `eps`"),
        ("data", "here it is called `panel`"),
        ("pre_periods", "here it is called `T0`"),
        ("t0", "near matches: T0"),
        ("lam", "here it is called `penalty`"),
        ("targets", "near matches: target_norm"),
        ("formula", "a panel has no formula"),
    ],
)
def test_keywords_of_dp_synth(name, wanted):
    given = {"unit": "unit", "time": "time", "treated": 0, "outcome": "y", "T0": 20, "eps": 1}
    with pytest.raises(dp.DPStatsError) as caught:
        dp.dp_synth(PANEL, **given, **{name: 1})
    assert str(caught.value).startswith(f"`{name}` must be an argument of dp_synth")
    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda: dp.dp_ate("y ~ x", treatment="w", data=FRAME, epsilon=1), "called `treat`"),
        (lambda: dp.dp_ate("y ~ x", "w", FRAME, epsilon=1), "called `eps`"),
        (lambda: dp.dp_ate("y ~ x", "w", df=FRAME, eps=1), "called `data`"),
        (lambda: dp.dp_ate("y ~ x", trea="w", data=FRAME, eps=1), "near matches: treat)"),
        (lambda: dp.dp_ate("y ~ x", "w", FRAME, ep=1), "near matches: eps)"),
        (lambda: dp.dp_ate(formulas="y ~ x", treat="w", data=FRAME, eps=1), "formula)"),
        (lambda: dp.dp_synth(PANEL, T0=20, epsilon=1), "called `eps`"),
        (lambda: dp.dp_synth(PANEL, t_0=20, eps=1), "called `T0`"),
        (lambda: dp.dp_synth(data=PANEL, T0=20, eps=1), "called `panel`"),
    ],
)
def test_a_missing_argument_under_another_name(call, wanted):
    with pytest.raises(dp.DPStatsError) as caught:
        call()
    assert wanted in str(caught.value)


def test_a_missing_argument_without_another_name():
    """Python's own message names what is missing; options of methods are no mistake."""
    for more in ({}, {"folds": 3}, {"smooth": True}, {"bounds": {}}):
        with pytest.raises(TypeError, match=r"dp_ate\(\) missing 1 required .* 'eps'"):
            dp.dp_ate("y ~ x", "w", FRAME, **more)


def test_the_functions_are_themselves():
    """What wraps them hides neither their signature nor their examples, nor from a pickle."""
    for function in (dp.dp_ate, dp.dp_synth):
        assert pickle.loads(pickle.dumps(function)) is function
        assert "eps" in inspect.signature(function).parameters
        module = importlib.import_module(function.__module__)
        found = [test for test in doctest.DocTestFinder().find(module) if test.examples]
        assert any(function.__name__ in test.name for test in found)


def test_known_keywords_are_those_of_the_functions():
    assert set(options._ARGUMENTS) == arguments(dp.dp_ate)
    assert set(model._ARGUMENTS) == arguments(dp.dp_synth)
    own = {name for kernel in KERNELS.values() for name in kernel.method_options}
    for names, function, more in (
        (ATE_NAMES, dp.dp_ate, own),
        (SYNTH_NAMES, dp.dp_synth, set(model._OPTIONS)),
    ):
        known = arguments(function) | more
        assert all(name == name.lower() for name in names)
        # a name that is taken is no mistake
        assert not {name for name in names if name in known}
        called = {text.split("`")[1] for text in names.values() if text.startswith("here")}
        assert called <= known


@pytest.mark.parametrize("name", SYNTH_KERNELS)
def test_every_option_of_a_panel_method_passes(name):
    """No option that a method takes is refused before the method sees it."""
    kernel = SYNTH_KERNELS[name]
    for option in model._OPTIONS:
        given = {"eps": 1 if kernel.private else float("inf"), "method": name, option: object()}
        with pytest.raises(dp.DPStatsError) as caught:
            dp.dp_synth(PANEL, unit="unit", time="time", treated=0, outcome="y", T0=20, **given)
        assert "argument of dp_synth" not in str(caught.value)


def test_near_names():
    assert near_names("BALANCE", ["balance", "balance", "balances"])[:1] == ["balance"]
    assert near_names("zzz", ["a", "b"]) == []
    assert argument_hint("balnce", ["balance", "balance"], {}) == "near matches: balance"


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"method": "regresion"}, "near matches: regression, agg_regression"),
        ({"method": "OLS"}, "here it is called 'regression'"),
        ({"method": "matching"}, "here it is called 'blocking'"),
        ({"estimand": "ATET"}, "here it is called 'att'"),
        ({"estimand": "atu"}, "here it is called 'atc'"),
        ({"noise": "gausian"}, "near matches: gaussian"),
        ({"missing": "dropna"}, "near matches: drop"),
    ],
)
def test_choices_that_were_meant(given, hint):
    with pytest.raises(dp.DPStatsError, match=r"; got ") as caught:
        dp.dp_ate("y ~ x", "w", FRAME, 1, **given)
    assert str(caught.value).endswith(f" ({hint})")


def test_a_choice_like_nothing():
    for value in ("zzz", 3, None):
        with pytest.raises(dp.DPStatsError, match=rf"; got {value!r}$"):
            dp.dp_ate("y ~ x", "w", FRAME, 1, method=value)
    # what another function calls so is no advice here
    with pytest.raises(dp.DPStatsError, match=r"; got 'ols'$"):
        dp.dp_synth(PANEL, unit="unit", time="time", treated=0, T0=2, eps=1, method="ols")


@pytest.mark.parametrize("left", ["x", "x + y2"])
def test_fixed_effects_of_other_packages(left):
    """In fixest `| race` absorbs a categorical."""
    frame = FRAME.assign(race=1.0, y2=0.0)
    with pytest.raises(dp.FormulaError, match=r"For fixed effects of 'race' write \+ C\(race\)"):
        dp.dp_ate(f"y ~ {left} | race", "w", frame, 1, levels={"race": [1, 2]})
    with pytest.raises(dp.FormulaError) as caught:
        dp.dp_ate("y ~ x & race", "w", frame, 1)
    assert "fixed effects" not in str(caught.value)


def test_a_text_column_is_named_in_the_advice():
    frame = FRAME.assign(race="a")
    with pytest.raises(dp.FormulaError, match=r"pass levels=\{'race': \[\.\.\.\]\} or convert"):
        dp.dp_ate("y ~ x + race", "w", frame, 1)


def test_columns_are_listed_up_to_a_limit():
    names = [f"question_{place}_of_the_survey" for place in range(40)]
    text = column_hint("zz", names)
    assert text.startswith("columns: 'question_0_of_the_survey', ")
    shown = text.count("question")
    assert text.endswith(f" and {40 - shown} more")
    assert len(text) < 250
    assert column_hint("zz", ["y", "x", "x"]) == "columns: 'y', 'x'"
    assert column_hint("zz", []) == ""


@pytest.mark.parametrize(
    "row", [["Miller", "34.5", "1"], ["a", "-3"], ["a", "True"], ["a", "nan"], ["Unnamed: 0", ""]]
)
def test_a_row_read_as_names_is_not_shown(row):
    """A file without a header: its first row would be the names."""
    assert column_hint("zz", row) == ""
    frame = pd.DataFrame([[0.0] * len(row)] * 2, columns=row)
    for formula, treat in (("yyyy ~ 1", row[0]), ("yyyy ~ 1", "zzzz")):
        with pytest.raises(dp.DPStatsError) as caught:
            dp.dp_ate(formula, treat, frame, 1)
        assert "columns:" not in str(caught.value)
        assert not [name for name in row if len(name) > 2 and name in str(caught.value)]


def test_hints_reach_every_argument_that_names_a_column():
    for given in ({"treat": "taken"}, {"propensity": "score"}, {"levels": {"region": ["a", "b"]}}):
        arguments = {"treat": "w", **given}
        with pytest.raises(dp.DPStatsError, match=r"\(columns: 'y', 'x', 'w'\)$"):
            dp.dp_ate("y ~ x", data=FRAME, eps=1, **arguments)
    with pytest.raises(dp.FormulaError, match=r"\(columns: 'y', 'x', 'w'\)\.$"):
        dp.dp_ate("y ~ educ", "w", FRAME, 1)
    with pytest.raises(dp.PanelError, match=r"\(columns: 'unit', 'time', 'y'"):
        dp.dp_synth(PANEL, unit="country", time="time", T0=20, eps=1)
