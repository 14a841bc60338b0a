"""Figures of replications: errors by cell, and p-values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.report.plots import _GREY, _INK, _STYLE

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpstats.replicate.experiment import Experiment

__all__ = ["draw"]

# Okabe and Ito, then some of Tol's; a role has the same colour in every figure
_COLOURS = {
    "DPBlocking": "#009E73",
    "SeqIPW": "#D55E00",
    "LGPM19": "#0072B2",
    "SplitIPW": "#0072B2",
    "DiffMeans": "#CC79A7",
    "SeqNIPW": "#E69F00",
    "AggNIPW": "#56B4E9",
    "LEBJ25": "#882255",
    "GR24": "#332288",
    "DPBlocking Gaussian": "#117733",
    "SeqIPW Gaussian": "#AA4499",
    "SplitIPW Gaussian": "#332288",
    "AIPW": "#999933",
    "Regression": "#661100",
    "AggIPW": "#88CCEE",
    "AggAIPW": "#882255",
    "AggRegression": "#6699CC",
    "DPSC_out": "#0072B2",
    "DPSC_obj": "#D55E00",
    "DPSC_out published sensitivity": "#56B4E9",
    "moments": "#009E73",
    "did": "#CC79A7",
}
_LINES: dict[str, Any] = {
    "as shipped": (0, (5, 2)),
    "made private": (0, (1, 1.5)),
    "default": "-",
    "reference": (0, (5, 2, 1, 2)),
}
_MARKERS = {"as shipped": "o", "made private": "s", "default": "D", "reference": ""}
_WORDS = {"rmse": "error", "bias": "bias (absolute value)", "mae": "mean absolute error"}


def draw(experiment: Experiment, table: pd.DataFrame) -> tuple[Figure, Any]:
    """Draw a replication.

    Parameters
    ----------
    experiment : Experiment
    table : DataFrame

    Returns
    -------
    Figure, and Axes or an array of them (one a panel)

    Raises
    ------
    ImportError
        If matplotlib is missing.
    """
    try:
        import matplotlib as mpl
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'plots need matplotlib, which is not installed: pip install "dpstats[plot]"'
        ) from error
    panels = _panels(experiment, table)
    alone = "p_value" in table or len(experiment.axes[experiment.x]) == 1
    columns = min(len(panels), len(experiment.axes.get(experiment.panel, "x")))
    rows = math.ceil(len(panels) / columns)
    labels = table["method"].nunique()
    below = 0.19 * (1 if alone else math.ceil(labels / 3))
    entries = labels if "p_value" not in table else len(table.groupby(["method", "arm"]))
    tall = max(2.4, 0.3 + 0.23 * entries) if alone else 2.6
    wide = 7.2 if columns > 1 or alone else 6.5
    # the backend must not be loaded, and made interactive, inside the context
    load_backend: Any = plt.draw_if_interactive
    load_backend()
    rc_context: Any = mpl.rc_context
    with rc_context(_STYLE):
        fig, grid = plt.subplots(
            rows,
            columns,
            figsize=(wide, 0.6 + tall * rows + below),
            dpi=150,
            layout="constrained",
            squeeze=False,
            sharey=not alone or columns > 1,
        )
        axes = grid.ravel()
        for ax, (title, part) in zip(axes, panels, strict=False):
            if "p_value" in table:
                _p_values(ax, part)
            elif alone:
                _dots(ax, experiment, part)
            else:
                _lines(ax, experiment, part)
            ax.set_title(title)
        for ax in axes[len(panels) :]:
            ax.remove()
        fig.suptitle(experiment.title, fontsize=10)
        if not alone:
            _legend(fig, experiment, table)
    return fig, (axes[0] if len(panels) == 1 else axes[: len(panels)])


def _panels(experiment: Experiment, table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return one table a combination of the axes other than x, with a title each."""
    names = [
        axis for axis, values in experiment.axes.items() if axis != experiment.x and len(values) > 1
    ]
    if not names:
        return [("", table)]
    found = []
    for values, part in table.groupby(names, sort=False):
        found.append((", ".join(f"{n} = {v}" for n, v in zip(names, values, strict=True)), part))
    return found


def _style(experiment: Experiment, table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return colour by role and line by arm, for each method."""
    found: dict[str, dict[str, Any]] = {}
    greys = iter((_INK, _GREY, "#b0b0b0", "#d0d0d0"))
    for method in experiment.methods:
        if not (table["method"] == method.label).any():
            continue
        plain = method.arm == "reference"
        colour = next(greys, _GREY) if plain else _COLOURS.get(method.role, _INK)
        found[method.label] = {
            "color": colour,
            "linestyle": _LINES[method.arm],
            "marker": _MARKERS[method.arm],
            "markerfacecolor": "white" if method.arm != "default" else colour,
            "markersize": 3.5,
            "linewidth": 1.1 if method.arm != "default" else 1.5,
            "zorder": 3 if method.arm == "default" else 2,
        }
    return found


def _lines(ax: Axes, experiment: Experiment, part: pd.DataFrame) -> None:
    metric = experiment.metric
    for label, style in _style(experiment, part).items():
        rows = part[part["method"] == label].sort_values(experiment.x)
        if rows[experiment.x].dtype.kind not in "if":
            order = list(experiment.axes[experiment.x])
            rows = rows.sort_values(experiment.x, key=lambda names: names.map(order.index))
        x = rows[experiment.x].to_numpy()
        y = rows[metric].abs().to_numpy(dtype=float)
        ax.plot(x, y, **style)
        error = rows[f"{metric}_se"].to_numpy(dtype=float) if f"{metric}_se" in rows else None
        if error is not None and np.isfinite(error).any():
            # an interval that reaches zero has no place on a logarithmic axis
            low = np.maximum(y - 2.0 * error, 0.2 * y)
            ax.vlines(x, low, y + 2.0 * error, color=style["color"], linewidth=0.7, alpha=0.6)
    values = part[experiment.x]
    if values.dtype.kind not in "if":
        ax.tick_params(axis="x", rotation=45)
    elif values.max() >= 8.0 * values.min() > 0.0:
        ax.set_xscale("log")
        ticks = sorted(values.unique())
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks], rotation=45 if len(ticks) > 4 else 0)
        ax.minorticks_off()
    ax.set_yscale("log")
    ax.set_xlabel(experiment.x)
    if ax.get_subplotspec() is None or ax.get_subplotspec().is_first_col():  # type: ignore[union-attr]
        ax.set_ylabel(_WORDS.get(metric, metric))
    ax.grid(axis="y", color="#e6e6e6", linewidth=0.6, zorder=0)


def _dots(ax: Axes, experiment: Experiment, part: pd.DataFrame) -> None:
    styles = _style(experiment, part)
    metric = experiment.metric
    for place, label in enumerate(styles):
        row = part[part["method"] == label].iloc[0]
        style = {**styles[label], "marker": styles[label]["marker"] or "|", "linestyle": ""}
        y, error = abs(float(row[metric])), float(row.get(f"{metric}_se", math.nan))
        ax.plot([y], [place], **style)
        if math.isfinite(error):
            ends = (max(y - 2.0 * error, 0.2 * y), y + 2.0 * error)
            ax.hlines(place, *ends, color=style["color"], linewidth=0.9)
    ax.set_yticks(range(len(styles)), list(styles))
    ax.set_ylim(len(styles) - 0.5, -0.5)
    ax.set_xscale("log")
    ax.set_xlabel(_WORDS.get(metric, metric))
    ax.grid(axis="x", color="#e6e6e6", linewidth=0.6, zorder=0)


def _p_values(ax: Axes, part: pd.DataFrame) -> None:
    labels = [f"{m} ({a})" for m, a in zip(part["method"], part["arm"], strict=True)]
    names = list(dict.fromkeys(labels))
    order = [names.index(label) for label in labels]
    # a p-value of 0 has no logarithm
    p = np.maximum(part["p_value"].to_numpy(dtype=float), 1e-90)
    colours = ["#0072B2" if value < 0.01 else "#D55E00" for value in p]
    ax.scatter(p, order, c=colours, s=14, zorder=3)
    ax.axvline(0.01, color=_GREY, linestyle=(0, (4, 3)), linewidth=0.9)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xscale("log")
    ax.set_xlabel("p-value")
    ax.grid(axis="y", color="#eeeeee", linewidth=0.6, zorder=0)


def _legend(fig: Figure, experiment: Experiment, table: pd.DataFrame) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], label=label, **style) for label, style in _style(experiment, table).items()
    ]
    columns = min(3, len(handles))
    fig.legend(
        handles=handles, loc="outside lower center", ncols=columns, fontsize=7, handlelength=3.2
    )
