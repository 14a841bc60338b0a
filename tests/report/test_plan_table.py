"""Plans print as a table to read, and are ordinary frames for everything else."""

import copy
import io
import math
import pickle

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.report.plan_table import PlanTable, plan_table


@pytest.fixture(scope="module")
def plan():
    return dp.plan_ate(8000, 1, (-30, 30), k=5, means=(2, 3), method="all", target_se=0.4)


def row(text, label):
    (line,) = [line for line in text.splitlines() if line.startswith(label)]
    return line[len(label) :].split()


def test_what_is_printed(plan):
    text = str(plan)
    assert text == repr(plan) == plan.as_text()
    lines = text.splitlines()
    assert lines[0] == "Plan of dp_ate: n = 8000, eps = 1, outcome in [-30, 30]"
    assert max(map(len, lines)) <= 100
    assert not any(line != line.rstrip() for line in lines)
    assert lines[2].split() == list(plan.index)
    for label, name in (
        ("Std. error of privacy noise", "noise_sd"),
        ("Std. error of sampling", "sampling_sd"),
        ("Std. error of both", "total_se"),
        ("Smallest effect found (power 80%)", "detectable"),
        ("Eps for a std. error of 0.4", "eps_needed"),
    ):
        shown = [float(cell) for cell in row(text, label)]
        assert shown == pytest.approx(plan[name].tolist(), rel=1e-3)
    for method in plan.index:
        assert f"{method}: {plan.loc[method, 'advice']}" in text
    # no method has these bounds to find
    assert "\n  bounds" not in text
    assert [float(cell) for cell in row(text, "  counts")] == pytest.approx(
        plan["sd_counts"].dropna().tolist(), rel=1e-3
    )
    assert "outcomes with sd 15 about 2 (controls) and 3 (treated)" in text


def test_one_column_each(plan):
    """A method without blocks leaves its place empty: numbers stand below their method."""
    lines = str(plan).splitlines()
    ends = {name: lines[2].index(f" {name}") + len(name) for name in plan.index}
    (blocks,) = [line for line in lines if line.startswith("Blocks")]
    for name, end in ends.items():
        shown = blocks[: end + 1].rstrip()
        there = len(shown) == end + 1
        assert there == math.isfinite(plan.loc[name, "blocks"])


def test_facts_of_the_call():
    text = str(dp.plan_ate(500, 0.5, (0, 1), k=1, delta=1e-6, searched=2, propensity=0.3))
    assert "eps = 0.5, delta = 1e-06, outcome in [0, 1]" in text
    assert "1 column, bounds of 2 found privately; 30% treated, propensity known" in " ".join(
        text.split()
    )
    assert "Eps where noise equals sampling" in text
    text = str(dp.plan_synth(60, 8, 5, 1, (0, 300), delta=1e-6, method="did"))
    assert text.startswith("Plan of dp_synth: 60 donors, 8 periods, 5 before, eps = 1, delta = ")
    assert "Eps to beat the last value" in text
    assert "did: not better than carrying the last value forward" in text
    assert list(dp.plan_synth(60, 8, 5, 9.0, (0, 1), method="all", target_se=1e-9).index) == [
        "moments",
        "did",
        "output",
        "objective",
    ]


def test_curve():
    budgets = [0.5, 1, 2]
    curve = dp.plan_curve(eps=budgets, n=2000, y_bounds=(0, 100), method="all")
    lines = str(curve).splitlines()
    assert lines[0] == "Plan of dp_ate by budget: n = 2000, outcome in [0, 100]"
    assert len([line for line in lines if " diff_means " in line]) == 3
    shown = pd.read_csv(io.StringIO("\n".join(lines[4:19])), sep=r"\s+", header=None)
    assert shown[1].tolist() == curve["method"].tolist()
    for place, name in enumerate(("noise_sd", "sampling_sd", "total_se", "detectable"), 2):
        np.testing.assert_allclose(shown[place], curve[name], rtol=1e-3)
    # nothing is known of sampling alone for panels
    panel = dp.plan_curve(
        "synth", eps=[1], n=60, periods=8, pre_periods=5, bounds=(0, 9), method="did"
    )
    assert "sampling" not in str(panel)
    with pytest.raises(dp.DPStatsError, match=r"no argument 'y_bound' \(near matches: y_bounds"):
        dp.plan_curve(eps=[1], n=2000, y_bound=(0, 1))


def test_a_curve_is_drawn():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    curve = dp.plan_curve(eps=[0.5, 1], n=2000, y_bounds=(0, 100), method="diff_means")
    figure, ax = dp.plot_plan(curve)
    assert ax.get_xscale() == "log"
    matplotlib.pyplot.close(figure)


def test_parts_are_ordinary_frames(plan):
    for part in (plan.T, plan[["noise_sd"]], plan.round(2), plan.reset_index(), plan.copy()):
        assert type(part) is pd.DataFrame
    assert isinstance(plan, pd.DataFrame)
    assert type(pd.concat([plan, plan])) is pd.DataFrame
    assert "noise_sd" in str(plan[["noise_sd"]])
    assert pd.read_csv(io.StringIO(plan.to_csv()), index_col=0).shape == plan.shape


def test_copies_print_the_same(plan):
    for back in (pickle.loads(pickle.dumps(plan)), pickle.loads(pickle.dumps(plan, 2))):
        assert isinstance(back, PlanTable)
        assert str(back) == str(plan)
        pd.testing.assert_frame_equal(back, plan)
    assert copy.deepcopy(plan).equals(plan)
    assert "<pre>Plan of dp_ate" in plan._repr_html_()


def test_a_plan_that_was_changed_still_prints(plan):
    changed = pickle.loads(pickle.dumps(plan))
    changed["mine"] = 1.0
    del changed["noise_sd"]
    assert "privacy noise  " not in str(changed)
    assert "Std. error of both" in str(changed)
    changed.attrs = {}
    assert str(changed) == str(pd.DataFrame(changed))


def test_markup_is_escaped():
    frame = pd.DataFrame({"a": [1.0]}, index=pd.Index(["<b>"], name="method"))
    table = plan_table(frame, "T & co", {"a": "A"}, ["x < y"])
    assert "<b>" not in table._repr_html_()
    assert "T &amp; co" in table._repr_html_()
