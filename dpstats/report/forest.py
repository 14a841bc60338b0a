"""Forest plot of several results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpstats.report.plots import (
    _GREY,
    _INK,
    _LABEL,
    _SKY,
    _beside,
    _canvas,
    _effect_parts,
    _interval_label,
    _intervals,
    _legend_below,
    _literal,
    _one_row_each,
    _row_decimals,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["forest"]


def forest(
    rows: pd.DataFrame,
    *,
    level: float = 0.95,
    decimals: int | None = None,
    xlabel: str = "Effect",
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """One line a result: estimate, total interval, and the part that is privacy noise alone.

    Parameters
    ----------
    rows : DataFrame
        Columns `name, estimate, total_low, total_high, privacy_low, privacy_high`, from top to
        bottom, and `private` (bool): results that are not are drawn hollow and named so. Intervals
        that are not finite are left out.
    level : float
        Of the intervals, named in the legend.
    decimals : int, optional
        Digits after the point in the labels; by default as many as show the standard error (column
        `std_error`, or else a quarter of the interval) with two significant digits.
    xlabel : str
        What the effect is, with its unit.
    ax : matplotlib.axes.Axes, optional
        Drawn into; without it a new figure is made.

    Returns
    -------
    (Figure, Axes)

    Raises
    ------
    ImportError
        If matplotlib is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame(
    ...     [["(1)", 1.8, 0.2, 3.4, 1.1, 2.5, True], ["(2)", 1.6, 0.9, 2.3, 1.6, 1.6, False]],
    ...     columns=["name", "estimate", "total_low", "total_high", "privacy_low", "privacy_high",
    ...              "private"],
    ... )
    >>> fig, ax = forest(rows, xlabel="Earnings in 1978 (1000 dollars)")
    """
    own = ax is None
    with _canvas(ax, 1.35 + 0.46 * max(len(rows), 1)) as (fig, ax_):
        middle, total, noise = _effect_parts(rows)
        private = rows["private"].to_numpy(dtype=bool)
        places = np.arange(len(rows), dtype=float)
        ax_.axvline(0, color=_GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        thin = _intervals(ax_, places, total, color=_INK, linewidth=1.3, cap=0.14)
        thin.set_label(f"{100 * level:.6g}% interval")
        handles = [thin]
        # no width: no noise
        noise[:, noise[0] == noise[1]] = np.nan
        if np.isfinite(noise).all(axis=0).any():
            thick = _intervals(ax_, places, noise, color=_SKY, linewidth=7)
            thick.set_label("privacy noise alone")
            handles.append(thick)
        looks = ((private, _INK, "estimate"), (~private, "white", "NOT PRIVATE"))
        for chosen, face, label in looks:
            if chosen.any():
                (points,) = ax_.plot(
                    middle[chosen],
                    places[chosen],
                    "D" if face == _INK else "o",
                    color=_INK,
                    markersize=5.5,
                    markerfacecolor=face,
                    markeredgecolor="white" if face == _INK else _INK,
                    label=label,
                    zorder=4,
                )
                handles.append(points)
        names = [
            _literal(name, _LABEL) + ("" if kept else "\nNOT PRIVATE")
            for name, kept in zip(rows["name"], private, strict=True)
        ]
        _one_row_each(ax_, names)
        ax_.spines["left"].set_visible(False)
        ax_.set_xlabel(_literal(xlabel, 70))
        digits = _row_decimals(rows, total) if decimals is None else [decimals] * len(rows)
        for place, value, (low, high) in zip(places, middle, total.T, strict=True):
            digit = digits[int(place)]
            if own:
                _beside(ax_, float(place), _interval_label(value, low, high, digit))
            else:
                ax_.annotate(
                    _interval_label(value, np.nan, np.nan, digit),
                    (value, float(place)),
                    xytext=(0, 6),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                )
        _legend_below(fig, ax_, own, handles)
    return fig, ax_
