"""The plot of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.report._numbers import number
from dpstats.report.plots import _BLUE, _GREY, _INK, _VERMILION, _canvas, _legend_below, _literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpstats.audit.bounds import FloatArray
    from dpstats.audit.results import AuditResult

__all__ = ["trade_off"]


def trade_off(result: AuditResult, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw the share of runs in an event on one data set against that on the other.

    Parameters
    ----------
    result : AuditResult
    ax : matplotlib.axes.Axes, optional
        Drawn into; without it a new figure is made.

    Returns
    -------
    (Figure, Axes)

    Raises
    ------
    ImportError
        If matplotlib is missing.

    Notes
    -----
    No (eps, delta)-private release has an event above min(exp(eps) x + delta,
    1 - exp(-eps) (1 - delta - x)).
    """
    best, own = result.best, ax is None
    with _canvas(ax, 4.6) as (fig, ax_):
        x = np.linspace(0.0, 1.0, 401)
        ax_.plot(x, x, color=_GREY, linewidth=0.8, linestyle=":")
        handles = ax_.plot(*result.curve, color=_BLUE, linewidth=1.4, label="observed")
        for epsilon, style, name in (
            (result.claimed, "-", "claimed"),
            (result.epsilon, (0, (4, 3)), "lower bound"),
        ):
            if epsilon is not None:
                handles += ax_.plot(
                    x,
                    _limit(x, epsilon, result.delta),
                    color=_VERMILION if name == "claimed" else _INK,
                    linewidth=1.1,
                    linestyle=style,
                    label=f"{name}: eps = {number(epsilon)}",
                )
        share, other = best.seen / best.runs, best.seen_other / best.runs_other
        (point,) = ax_.plot(other, share, "o", color=_INK, markersize=4.5, zorder=4)
        ax_.plot([other, best.high], [best.low, best.low], color=_INK, linewidth=1.1)
        ax_.plot([best.high, best.high], [best.low, share], color=_INK, linewidth=1.1)
        point.set_label("judged event and its limits")
        there = "neighbour" if best.favours == "data" else "data"
        ax_.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        ax_.set_xlabel(_literal(f"share of runs on {there}"))
        ax_.set_ylabel(_literal(f"share of runs on {best.favours}"))
        ax_.set_title(_literal(best.score, 70))
        _legend_below(fig, ax_, own, [*handles, point])
    return fig, ax_


def _limit(x: FloatArray, epsilon: float, delta: float) -> FloatArray:
    factor = np.exp(min(epsilon, 700.0))
    return np.clip(np.minimum(factor * x + delta, 1.0 - (1.0 - delta - x) / factor), 0.0, 1.0)
