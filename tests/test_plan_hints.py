"""Planners say what a keyword may be meant for, and what is missing."""

from __future__ import annotations

import inspect
import pickle

import pytest

import dpstats as dp
from dpstats.hints import PLAN_ATE_NAMES, PLAN_SYNTH_NAMES

PANEL = {"n": 38, "periods": 31, "pre_periods": 19, "eps": 1, "bounds": (0, 400)}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("share_treated", "here it is called `treated_share`"),
        ("n_rows", "here it is called `n`"),
        ("Epsilon", "here it is called `eps`"),
        ("sd", "here it is called `outcome_sd`"),
        ("mde", "`detectable`"),
        ("treated_shar", "near matches: treated_share"),
    ],
)
def test_keywords_of_plan_ate(name, wanted):
    for call in (
        lambda: dp.plan_ate(1000, 1, (0, 1), **{name: 1}),
        lambda: dp.plan_ate(**{name: 1}),
        lambda: dp.plan_curve("ate", n=1000, y_bounds=(0, 1), **{name: 1}),
    ):
        with pytest.raises(dp.DPStatsError) as caught:
            call()
        assert wanted in str(caught.value)
        assert "plan_ate" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("T0", "`pre_periods`, how many periods"),
        ("n_donors", "here it is called `n`"),
        ("T", "here it is called `periods`"),
        ("post_periods", "`periods`, all there are"),
        ("y_bounds", "here it is called `bounds`"),
        ("outcome_sd", "here it is called `deviation`"),
        ("deviations", "near matches: deviation"),
    ],
)
def test_keywords_of_plan_synth(name, wanted):
    given = {key: value for key, value in PANEL.items() if key != "eps"}
    for call in (
        lambda: dp.plan_synth(**PANEL, **{name: 1}),
        lambda: dp.plan_synth(**{name: 1}),
        lambda: dp.plan_curve("synth", **given, **{name: 1}),
    ):
        with pytest.raises(dp.DPStatsError) as caught:
            call()
        assert wanted in str(caught.value)


def test_what_is_missing():
    with pytest.raises(dp.DPStatsError, match=r"^`eps` must be given: plan_ate needs `n`, `eps`$"):
        dp.plan_ate(1000)
    with pytest.raises(dp.DPStatsError, match=r"^`periods`, `pre_periods`, `bounds` must be given"):
        dp.plan_synth(38, eps=1)


@pytest.mark.parametrize(
    ("function", "names"), [(dp.plan_ate, PLAN_ATE_NAMES), (dp.plan_synth, PLAN_SYNTH_NAMES)]
)
def test_hints_name_what_there_is(function, names):
    taken = set(inspect.signature(function).parameters)
    assert pickle.loads(pickle.dumps(function)) is function
    for name, hint in names.items():
        assert name == name.lower()
        assert name not in taken
        if hint.startswith("here it is called `"):
            assert hint.split("`")[1] in taken
