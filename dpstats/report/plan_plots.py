"""Plots of plans: errors against the budget. Same style and rules as `dpstats.report.plots`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.calls import check_number
from dpstats.errors import DPStatsError
from dpstats.report._numbers import number
from dpstats.report.plots import (
    _BLUE,
    _GREY,
    _INK,
    _VERMILION,
    _canvas,
    _column,
    _literal,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpstats.privacy.noise import FloatArray

__all__ = ["plot_plan"]

_HEIGHT = 4.2
# the axis holds every line, down to this part of the smallest total
_ROOM = 1000.0
_NEEDED = ("eps", "method", "noise_sd", "sampling_sd", "total_se", "detectable")
# told apart by colour, by marker and, in print, by both; Okabe and Ito
_MARKS = (
    (_BLUE, "o"),
    (_VERMILION, "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
)
_PARTS = (
    ("total_se", "total standard error", "solid", 1.9),
    ("noise_sd", "privacy noise", (0, (5, 2)), 1.1),
    ("sampling_sd", "sampling error", (0, (1, 1.5)), 1.1),
)


def plot_plan(
    curve: pd.DataFrame,
    *,
    target_se: float | None = None,
    ylabel: str = "Error of the effect",
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Draw expected errors against the budget, one colour and marker a method, both axes in logs.

    Parameters
    ----------
    curve : DataFrame
        From `plan_curve`. What is nan is left out.
    target_se : float, optional
        Total standard error that is wanted: a line, and the legend says from which `eps` on each
        method reaches it (interpolated, to two digits).
    ylabel : str
        What the errors are of, with the unit.
    ax : matplotlib.axes.Axes, optional
        Drawn into; without it a new figure is made.

    Returns
    -------
    (Figure, Axes)
        Solid: total standard error. Dashed: privacy noise. Dotted: sampling error. The axis on the
        right reads the solid lines as smallest detectable effects.

    Raises
    ------
    DPStatsError
        If `curve` is not a frame of `plan_curve`, or `target_se` is not a positive number.
    ImportError
        If matplotlib is missing.

    Examples
    --------
    >>> import dpstats as dp
    >>> curve = dp.plan_curve("ate", n=2_000, y_bounds=(0, 100), method="diff_means")
    >>> fig, ax = dp.plot_plan(curve, target_se=1.3, ylabel="Error of the effect (points)")
    >>> [text.get_text() for text in fig.legends[0].get_texts()][-1]
    'diff_means: target from eps = 0.42'
    """
    _check(curve)
    check_number("target_se", target_se, 0.0, math.inf, "a positive number")
    own = ax is None
    with _canvas(ax, _HEIGHT) as (fig, ax_):
        ax_.set_xscale("log")
        ax_.set_yscale("log")
        handles = [_style(*part) for part in _PARTS if np.isfinite(_column(curve, part[0])).any()]
        if target_se is not None:
            label = f"target {number(float(target_se), 3)}"
            line = ax_.axhline(target_se, color=_INK, linewidth=0.9, linestyle="dashdot", zorder=1)
            line.set_label(label)
            handles.append(line)
        for i, (name, rows) in enumerate(curve.groupby("method", sort=False)):
            handles.append(_method(ax_, str(name), rows.sort_values("eps"), i, target_se))
        _axes(ax_, curve, ylabel)
        if own:
            # long labels: two columns at most
            fig.legend(handles=handles, loc="outside lower center", ncols=2)
        else:
            ax_.legend(handles=handles, loc="best")
    return fig, ax_


def _check(curve: Any) -> None:
    columns = getattr(curve, "columns", ())
    missing = [name for name in _NEEDED if name not in columns]
    if missing or len(curve) == 0:
        raise DPStatsError(
            "`curve` must be a frame of `plan_curve` with at least one row; got "
            + (f"{type(curve).__name__} without {', '.join(missing)}" if missing else "no row")
        )


def _style(name: str, label: str, style: Any, width: float) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=_GREY, linestyle=style, linewidth=width, label=label)


def _method(ax: Axes, name: str, rows: pd.DataFrame, place: int, target: float | None) -> Any:
    """Draw one method and return its entry in the legend."""
    from matplotlib.lines import Line2D

    colour, marker = _MARKS[place % len(_MARKS)]
    eps = _column(rows, "eps")
    for column, _, style, width in _PARTS:
        ax.plot(
            eps,
            _column(rows, column),
            color=colour,
            linestyle=style,
            linewidth=width,
            gid=column,
            marker=marker if column == "total_se" else "",
            markersize=5,
            markeredgecolor="white",
            markeredgewidth=0.6,
            zorder=3 if column == "total_se" else 2,
        )
    label = _literal(name)
    if target is not None:
        found, text = _reached(eps, _column(rows, "total_se"), float(target))
        label = f"{label}: {text}"
        if math.isfinite(found):
            ax.plot(
                [found], [target], "*", color=colour, markersize=11, markeredgecolor=_INK, zorder=5
            )
    return Line2D([], [], color=colour, marker=marker, linewidth=1.9, markersize=5, label=label)


def _reached(eps: FloatArray, total: FloatArray, target: float) -> tuple[float, str]:
    """Return from which eps on the total stays within the target, nan outside the range."""
    over = np.flatnonzero(~(total <= target))
    if over.size == 0:
        return math.nan, f"target from eps <= {number(float(eps[0]), 2)}"
    last = int(over[-1])
    if last == eps.size - 1:
        return math.nan, f"target not reached by eps = {number(float(eps[-1]), 2)}"
    pair = slice(last, last + 2)
    logs = np.log(total[pair]) - math.log(target)
    share = float(logs[0] / (logs[0] - logs[1])) if np.isfinite(logs).all() else 1.0
    found = math.exp(float((1.0 - share) * np.log(eps[last]) + share * np.log(eps[last + 1])))
    return found, f"target from eps = {number(found, 2)}"


def _axes(ax: Axes, curve: pd.DataFrame, ylabel: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes = [ax.xaxis, ax.yaxis]
    totals = _column(curve, "total_se")
    totals = totals[np.isfinite(totals) & (totals > 0.0)]
    if totals.size and ax.get_ylim()[0] < totals.min() / _ROOM:
        # noise that is next to nothing must not flatten the rest
        ax.set_ylim(bottom=float(totals.min()) / _ROOM)
    ratio = _column(curve, "detectable") / _column(curve, "total_se")
    ratio = ratio[np.isfinite(ratio)]
    if ratio.size:
        factor = float(np.median(ratio))
        right = ax.secondary_yaxis(
            "right",
            functions=(
                lambda value: np.asarray(value, float) * factor,
                lambda value: np.asarray(value, float) / factor,
            ),
        )
        right.set_ylabel("Smallest detectable effect (solid lines)")
        axes.append(right.yaxis)
    for axis in axes:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, 2)))
        axis.set_minor_formatter(NullFormatter())
    ax.grid(visible=True, color=_GREY, alpha=0.2, linewidth=0.5, zorder=0)
    ax.set_xlabel("epsilon")
    ax.set_ylabel(_literal(ylabel, 40))
