"""Forest and love plots: what is drawn, where, and that grey readers can tell."""

import io
import math
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

mpl = pytest.importorskip("matplotlib")
from matplotlib.collections import LineCollection  # noqa: E402

import dpstats as dp  # noqa: E402
from dpstats.report import plots  # noqa: E402
from dpstats.report.forest import forest  # noqa: E402
from dpstats.report.love import love  # noqa: E402

ROWS = pd.DataFrame(
    [
        ["(1)", 1.8, 0.2, 3.4, 1.1, 2.5, True],
        [r"bad $x_{ \frac <b> #", -1.6, -2.9, -0.3, -1.6, -1.6, False],
        ["(3)", 0.4, math.nan, math.inf, math.nan, math.nan, True],
    ],
    columns=[
        "name", "estimate", "total_low", "total_high", "privacy_low", "privacy_high", "private"
    ],
)  # fmt: skip
BALANCE = pd.DataFrame(
    {"before": [0.62, -0.31, math.nan], "after": [0.05, -0.02, 0.01]},
    index=["age", r"$x_{", "z"],
)


@pytest.fixture(autouse=True)
def _close_figures():
    import matplotlib.pyplot as plt

    plt.close("all")
    yield
    plt.close("all")


def render(fig):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        buffer = io.BytesIO()
        fig.savefig(buffer, format="png", dpi=60)
    return buffer.getvalue()


def spans(ax, width):
    """Return ends and heights of the horizontal lines of one width."""
    found = []
    for lines in ax.collections:
        if isinstance(lines, LineCollection) and lines.get_linewidth()[0] == width:
            for (x0, y0), (x1, y1) in lines.get_segments():
                if y0 == y1:
                    found.append((float(x0), float(x1), float(y0)))
    return found


def entries(fig, ax):
    legend = fig.legends[0] if fig.legends else ax.get_legend()
    return [text.get_text() for text in legend.get_texts()]


def test_intervals_and_marks_stand_where_they_belong():
    fig, ax = forest(ROWS, level=0.9, decimals=2, xlabel="Effect ($)")
    assert spans(ax, 1.3) == [(0.2, 3.4, 0.0), (-2.9, -0.3, 1.0)]
    # a result without noise has no such part
    assert spans(ax, 7.0) == [(1.1, 2.5, 0.0)]
    assert entries(fig, ax) == ["90% interval", "privacy noise alone", "estimate", "NOT PRIVATE"]
    marks = {line.get_label(): line for line in ax.lines}
    assert list(marks["estimate"].get_xdata()) == [1.8, 0.4]
    assert list(marks["NOT PRIVATE"].get_xdata()) == [-1.6]
    # told apart by shape and filling, not by colour
    assert marks["estimate"].get_marker() != marks["NOT PRIVATE"].get_marker()
    assert marks["NOT PRIVATE"].get_markerfacecolor() == "white"
    texts = [text.get_text() for text in ax.texts]
    minus = "\N{MINUS SIGN}"
    assert texts == ["1.80  [0.20, 3.40]", f"{minus}1.60  [{minus}2.90, {minus}0.30]", "0.40"]
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert [name.endswith("NOT PRIVATE") for name in names] == [False, True, False]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first row on top
    assert render(fig).startswith(b"\x89PNG")


def test_forest_into_given_axes_labels_the_estimates():
    import matplotlib.pyplot as plt

    figure, mine = plt.subplots()
    fig, ax = forest(ROWS, ax=mine)
    assert (fig, ax) == (figure, mine)
    assert [text.get_text() for text in ax.texts] == ["1.80", "\N{MINUS SIGN}1.60", "0.4"]
    assert fig.legends == []
    render(fig)


def test_forest_without_rows():
    render(forest(ROWS.iloc[:0])[0])


def test_comparison_draws_its_results():
    trial = dp.simulate.ate("well_specified", 2000, rng=1)
    formula = "y ~ x1 + x2 + x3 + x4"

    def fit(eps):
        return dp.dp_ate(formula, "w", trial.data, eps, bounds=trial.bounds)

    one, exact = fit(1), fit(math.inf)
    fake = SimpleNamespace(
        params=pd.Series({"w": 2.0, "const": 50.0}),
        bse=pd.Series({"w": 0.1, "const": 1.0}),
        pvalues=pd.Series({"w": 0.0, "const": 0.0}),
        nobs=2000,
    )
    table = dp.compare(
        {"a": one, "att": one.estimand("att"), "exact": exact, "OLS": fake},
        mixed=True, rename={"w": "ATE"}, alpha=0.1,
    )  # fmt: skip
    fig, ax = table.plot()
    # the constant of a regression is no effect
    assert list(table.effects["name"]) == ["a ATE", "exact ATE", "OLS ATE", "att ATT"]
    assert list(table.effects["private"]) == [True, False, False, True]
    low, high = one.conf_int(0.1).iloc[0]
    assert spans(ax, 1.3)[0] == (low, high, 0.0)
    inner = spans(ax, 7.0)
    assert [height for *_, height in inner] == [0.0, 3.0]
    assert inner[0][:2] == tuple(one.privacy_interval(0.1).iloc[0])
    # noise alone is a part of the whole error
    assert 0 < inner[0][1] - inner[0][0] < 1.2 * (high - low)
    assert ax.get_xlabel() == "Effect of w on y"
    assert entries(fig, ax)[0] == "90% interval"


def test_love_plot_marks_before_and_after():
    fig, ax = plots.love(BALANCE)
    assert plots.love is love
    before, after = (box.lines[0] for box in ax.containers)
    assert list(before.get_xdata()) == [0.62, -0.31]
    assert list(after.get_xdata()) == [0.05, -0.02, 0.01]
    assert before.get_marker() != after.get_marker()
    dashed = [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"]
    assert dashed == [-0.1, 0.1]
    assert entries(fig, ax) == ["before", "after"]
    left, right = ax.get_xlim()
    assert left == -right
    assert right >= 0.62
    render(fig)


def test_love_plot_draws_noise_as_error_bars():
    table = BALANCE.assign(before_sd=[0.1, 0.2, 0.3], after_sd=[0.01, math.inf, 0.02])
    fig, ax = love(table)
    before, after = ax.containers
    segments = before.lines[2][0].get_segments()
    np.testing.assert_allclose([x[:, 0] for x in segments], [[0.42, 0.82], [-0.71, 0.09]])
    segments = after.lines[2][0].get_segments()
    np.testing.assert_allclose(
        [x[:, 0] for x in segments], [[0.03, 0.07], [-0.02, -0.02], [-0.03, 0.05]]
    )
    # the bars do not lie on each other
    assert set(before.lines[0].get_ydata()).isdisjoint(after.lines[0].get_ydata())
    assert entries(fig, ax)[0].endswith("(bars: 2 sd of the noise)")


def test_love_plot_of_small_differences_shows_the_rule():
    _, ax = love(pd.DataFrame({"before": [0.01], "after": [0.0]}, index=["x"]))
    assert ax.get_xlim()[1] > 0.1


def test_love_plot_into_given_axes_and_without_rows():
    import matplotlib.pyplot as plt

    figure, mine = plt.subplots()
    assert love(BALANCE, ax=mine) == (figure, mine)
    render(figure)
    render(love(BALANCE.iloc[:0])[0])


def test_privacy_interval_is_that_of_gaussian_noise():
    trial = dp.simulate.ate("well_specified", 2000, rng=1)
    panel = dp.simulate.panel("factor", n_donors=500, effect=0.3, rng=1)
    formula = "y ~ x1 + x2 + x3 + x4"
    single = dp.dp_ate(
        formula, "w", trial.data, 1, delta=1e-6, bounds=trial.bounds, method="diff_means"
    )
    several = dp.dp_synth(
        panel.data, unit="unit", time="time", treated=[0, 1], outcome="y", T0=20, eps=1,
        delta=1e-6, method="did",
    )  # fmt: skip
    for result in (single, several):
        found = result.privacy_interval(0.1)
        assert found.index.equals(result.params.index)
        np.testing.assert_allclose(found.mean(axis=1), result.params)
        # a normal error: 1.645 standard deviations on either side, but for simulation error
        half = (found[1] - found[0]) / 2
        np.testing.assert_allclose(half, 1.645 * result.noise_sd(), rtol=0.15)
        with pytest.raises(dp.DPStatsError, match="`alpha`"):
            result.privacy_interval(0)
    exact = dp.dp_ate(formula, "w", trial.data, math.inf)
    assert (exact.privacy_interval().to_numpy() == exact.params["ATE"]).all()
