"""Plots: what is drawn, where, and that nothing global changes."""

import io
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

mpl = pytest.importorskip("matplotlib")
from matplotlib.figure import Figure  # noqa: E402

from dpstats.report import plots  # noqa: E402

EFFECTS = pd.DataFrame(
    [
        ["a", 1.0, -1.0, 3.0, 0.5, 1.5],
        [r"bad $x_{ name \frac <b> #", 2.0, np.nan, np.inf, 1.0, 3.0],
        ["a long name that goes on and on and does not end", -2.0, -4.0, 0.5, -2.0, -2.0],
    ],
    columns=["name", "estimate", "total_low", "total_high", "privacy_low", "privacy_high"],
)
BLOCKS = pd.DataFrame(
    {
        "block": ["[0, 0.2)", "[0.2, 0.4)", "[0.4, 0.6)", "$[0.6, 0.8)", "[0.8, 1]"],
        "effect": [900.0, 1.5, 2.0, np.nan, -900.0],
        "lower": [-2e4, -0.5, 0.7, np.nan, -4e4],
        "upper": [3e4, 3.5, 3.3, np.nan, 2e4],
        "treated": [2.0, 60.0, 140.0, -1.0, -3.2],
        "control": [5.7, 210.0, 180.0, 2.0, 8.0],
        "noise_sd": [5.6] * 5,
        "kept": [False, True, True, False, False],
    }
)
BUDGET = pd.DataFrame({"release": ["counts", "su$m_s", "bounds"], "epsilon": [0.25, 0.5, 0.25]})
CALLS = {
    "effect": lambda frame=EFFECTS, ax=None: plots.effect(frame, xlabel="Effect, $", ax=ax),
    "blocks": lambda frame=BLOCKS, ax=None: plots.blocks(
        frame, ylabel="Effect ($)", overall=1.8, ax=ax
    ),
    "overlap": lambda frame=BLOCKS, ax=None: plots.overlap(frame, ax=ax),
    "budget": lambda frame=BUDGET, ax=None: plots.budget(frame, ax=ax),
}
FRAMES = {"effect": EFFECTS, "blocks": BLOCKS, "overlap": BLOCKS, "budget": BUDGET}


def render(fig):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        buffer = io.BytesIO()
        fig.savefig(buffer, format="png", dpi=60)
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def _close_figures():
    import matplotlib.pyplot as plt

    plt.close("all")
    yield
    plt.close("all")


@pytest.mark.parametrize("kind", CALLS)
def test_makes_a_figure_of_its_own(kind):
    import matplotlib.pyplot as plt

    before = dict(mpl.rcParams)
    fig, ax = CALLS[kind]()
    assert isinstance(fig, Figure)
    assert ax.figure is fig
    assert render(fig).startswith(b"\x89PNG")
    # pyplot knows it, so that a notebook shows it; closing it leaves it usable
    assert [plt.figure(number) for number in plt.get_fignums()] == [fig]
    plots.close(fig)
    assert plt.get_fignums() == []
    assert render(fig).startswith(b"\x89PNG")
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("kind", CALLS)
def test_draws_into_given_axes(kind):
    outer = Figure(figsize=(6, 6))
    axes = outer.subplots(2, 1)
    fig, ax = CALLS[kind](ax=axes[1])
    assert fig is outer
    assert ax is axes[1]
    assert not axes[0].lines
    assert not axes[0].patches
    assert outer.axes == list(axes)
    render(outer)
    panel = Figure().subfigures(1, 2)[0].subplots()
    fig, _ = CALLS[kind](ax=panel)
    assert isinstance(fig, Figure)


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_any_number_of_rows(kind, rows):
    frame = FRAMES[kind]
    frame = frame.iloc[np.arange(rows) % len(frame)].reset_index(drop=True)
    kept = frame.copy()
    fig, _ = CALLS[kind](frame)
    render(fig)
    pd.testing.assert_frame_equal(frame, kept)


@pytest.mark.parametrize("kind", CALLS)
def test_nothing_known_is_drawn_too(kind):
    frame = FRAMES[kind].copy()
    for name in frame.columns.difference(["name", "block", "release", "kept"]):
        frame[name] = np.nan
    render(CALLS[kind](frame)[0])


@pytest.mark.parametrize("kind", CALLS)
def test_nullable_columns(kind):
    render(CALLS[kind](FRAMES[kind].convert_dtypes())[0])


@pytest.mark.parametrize("kind", CALLS)
def test_missing_matplotlib_says_what_to_install(kind, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "dpstats\[plot\]"'):
        CALLS[kind]()


def test_intervals_are_where_they_should_be():
    _, ax = plots.effect(EFFECTS.iloc[[0]])
    spans = {
        label: [tuple(x[:, 0]) for x in lines.get_segments()]
        for lines in ax.collections
        if not (label := lines.get_label()).startswith("_")
    }
    assert spans == {
        "total interval (sampling and privacy noise)": [(-1.0, 3.0)],
        "privacy noise alone": [(0.5, 1.5)],
    }


def test_wild_dropped_blocks_do_not_flatten_the_kept_ones():
    _, ax = plots.blocks(BLOCKS)
    low, high = ax.get_ylim()
    assert -2 < low < -0.5
    assert 3.5 < high < 5
    edge = sorted((float(x), y) for line in ax.lines for x, y in line.get_xydata()
                  if line.get_marker() in {"v", "^", "x"})  # fmt: skip
    assert edge == [(0.0, high), (3.0, low), (4.0, low)]


def test_area_follows_the_noisy_count():
    _, ax = plots.blocks(BLOCKS)
    kept = next(c for c in ax.collections if hasattr(c, "get_sizes") and len(c.get_sizes()) == 2)
    assert kept.get_sizes() == pytest.approx([16 + 120 * 270 / 320, 136])


def test_bars_are_mirrored_and_never_negative():
    _, ax = plots.overlap(BLOCKS)
    heights = [patch.get_height() for patch in ax.patches]
    assert heights[:5] == [2, 60, 140, 0, 0]
    assert heights[5:] == [-5.7, -210, -180, -2, -8]
    assert ax.yaxis.get_major_formatter()(-150) == "150"


def test_budget_shares_are_labelled():
    _, ax = plots.budget(BUDGET)
    assert [text.get_text() for text in ax.texts] == ["0.25  (25%)", "0.5  (50%)", "0.25  (25%)"]
    assert ax.get_xlabel() == "epsilon (total 1)"
