"""Planning curves: the numbers of the planners, and what the picture shows of them."""

import io
import math
import warnings

import numpy as np
import pandas as pd
import pytest

import dpstats as dp

mpl = pytest.importorskip("matplotlib")
from matplotlib.figure import Figure  # noqa: E402

ATE = {"n": 2000, "y_bounds": (0, 100), "method": "diff_means"}
SYNTH = {"n": 1000, "periods": 30, "pre_periods": 20, "bounds": (-1, 1), "method": "did"}


@pytest.fixture(autouse=True)
def _close_figures():
    import matplotlib.pyplot as plt

    plt.close("all")
    yield
    plt.close("all")


def curve(sampling=0.1, methods=("a", "b"), budgets=(0.1, 1.0, 10.0)):
    """Noise of 1 / eps and of 2 / eps."""
    rows = [
        (eps, name, (i + 1) / eps, sampling, math.hypot((i + 1) / eps, np.nan_to_num(sampling)))
        for eps in budgets
        for i, name in enumerate(methods)
    ]
    frame = pd.DataFrame(rows, columns=["eps", "method", "noise_sd", "sampling_sd", "total_se"])
    return frame.assign(detectable=2.8 * frame["total_se"])


def labels(fig):
    return [text.get_text() for text in fig.legends[0].get_texts()]


@pytest.mark.parametrize(
    ("kind", "arguments", "planner"),
    [("ate", ATE, dp.plan_ate), ("synth", SYNTH, dp.plan_synth)],
)
def test_a_curve_is_the_plans(kind, arguments, planner):
    table = dp.plan_curve(kind, eps=[2, 0.5], **arguments)
    assert list(table.columns) == [
        "eps",
        "method",
        "noise_sd",
        "sampling_sd",
        "total_se",
        "detectable",
    ]
    assert list(table["eps"]) == [0.5, 2.0]
    for _, row in table.iterrows():
        plan = planner(eps=row["eps"], target_se=1e-300, **arguments).loc[row["method"]]
        for name in ("noise_sd", "total_se", "detectable"):
            assert row[name] == plan[name]
        if kind == "ate":
            assert row["sampling_sd"] == plan["sampling_sd"]
        else:
            assert math.isnan(row["sampling_sd"])


def test_default_budgets():
    table = dp.plan_curve(**ATE)
    assert (table["eps"].min(), table["eps"].max(), len(table)) == (0.1, 10.0, 11)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"kind": "panel"}, "kind"),
        ({"eps": []}, "eps"),
        ({"eps": 1}, "eps"),
        ({"eps": "1"}, "eps"),
        ({"eps": [1, 0]}, "eps"),
        ({"eps": [1, math.inf]}, "eps"),
        ({"target_se": 1}, "target_se"),
        ({"colour": 1}, "colour"),
        ({"n": 1}, "n"),
    ],
    ids=str,
)
def test_refused_curves(arguments, named):
    with pytest.raises(dp.DPStatsError, match=f"[`']{named}[`']"):
        dp.plan_curve(**{**ATE, **arguments})


def test_what_a_planner_needs():
    with pytest.raises(dp.DPStatsError, match=r"`plan_synth` needs `periods`, `bounds`, by name"):
        dp.plan_curve("synth", n=100, pre_periods=10)


def test_what_is_drawn():
    frame = curve()
    fig, ax = dp.plot_plan(frame, target_se=0.5, ylabel="Error ($)")
    assert isinstance(fig, Figure)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    drawn = {(line.get_color(), line.get_gid()): line for line in ax.lines}
    colours = [line.get_color() for line in ax.lines if line.get_marker() in "os"]
    assert len(set(colours)) == 2
    for colour, name in zip(dict.fromkeys(colours), "ab", strict=True):
        rows = frame[frame["method"] == name]
        for column in ("total_se", "noise_sd", "sampling_sd"):
            line = drawn[colour, column]
            assert np.array_equal(line.get_xdata(), rows["eps"])
            assert np.array_equal(line.get_ydata(), rows[column])
    # the right axis is the left one times 2.8
    fig.canvas.draw()
    assert ax.child_axes[0].get_ylim() == pytest.approx([2.8 * y for y in ax.get_ylim()])
    assert labels(fig)[:4] == [
        "total standard error",
        "privacy noise",
        "sampling error",
        "target 0.5",
    ]


def test_where_the_target_is_reached():
    budgets = tuple(np.geomspace(0.1, 10, 41))
    fig, ax = dp.plot_plan(curve(0.3, budgets=budgets), target_se=0.5)
    # sqrt(.5^2 - .3^2) = .4
    assert labels(fig)[-2:] == ["a: target from eps = 2.5", "b: target from eps = 5"]
    stars = [line for line in ax.lines if line.get_marker() == "*"]
    found = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in stars]
    assert found == [(pytest.approx(2.5, rel=0.01), 0.5), (pytest.approx(5.0, rel=0.01), 0.5)]
    assert labels(dp.plot_plan(curve(), target_se=0.05)[0])[-1] == (
        "b: target not reached by eps = 10"
    )
    assert labels(dp.plot_plan(curve(), target_se=99)[0])[-1] == "b: target from eps <= 0.1"


def test_a_target_that_is_lost_again_counts_from_where_it_stays():
    frame = curve(methods=("a",), budgets=(0.1, 1.0, 2.0, 4.0))
    frame["total_se"] = [0.4, 4.0, 1.0, 0.25]
    text = labels(dp.plot_plan(frame, target_se=0.5)[0])[-1]
    # halfway between 2 and 4 in logs
    assert text == "a: target from eps = 2.8"


def test_without_sampling_error_and_into_given_axes():
    import matplotlib.pyplot as plt

    fig, _ = dp.plot_plan(curve(math.nan))
    assert labels(fig) == ["total standard error", "privacy noise", "a", "b"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        buffer = io.BytesIO()
        fig.savefig(buffer, format="png", dpi=60)
    assert buffer.getvalue().startswith(b"\x89PNG")
    before = dict(mpl.rcParams)
    own, mine = plt.subplots()
    assert dp.plot_plan(curve(), ax=mine) == (own, mine)
    assert mine.get_legend() is not None
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize(
    ("frame", "options", "named"),
    [
        (3, {}, "curve"),
        (pd.DataFrame({"eps": [1.0]}), {}, "curve"),
        (curve().iloc[:0], {}, "curve"),
        (curve(), {"target_se": 0}, "target_se"),
    ],
    ids=["number", "columns", "empty", "target"],
)
def test_refused_pictures(frame, options, named):
    with pytest.raises(dp.DPStatsError, match=f"`{named}`"):
        dp.plot_plan(frame, **options)


def test_no_line_runs_off_the_axes():
    """Noise of a method that finds nothing is far below its total error."""
    table = curve(0.004)
    table["noise_sd"] = table["noise_sd"] / 100
    _, ax = dp.plot_plan(table)
    drawn = np.concatenate([line.get_ydata() for line in ax.get_lines()])
    low, high = ax.get_ylim()
    assert np.nanmin(drawn) < table["total_se"].min() / 50
    assert low <= np.nanmin(drawn)
    assert np.nanmax(drawn) <= high
    # but noise that is next to nothing does not flatten the rest
    table["noise_sd"] = table["noise_sd"] / 1e9
    _, ax = dp.plot_plan(table)
    assert ax.get_ylim()[0] > table["total_se"].min() / 2000
