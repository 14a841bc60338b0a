"""Love plot: balance of the covariates before and after an adjustment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.report.plots import (
    _BLUE,
    _GREY,
    _INK,
    _LABEL,
    _VERMILION,
    _canvas,
    _column,
    _legend_below,
    _literal,
    _one_row_each,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["love"]

_RULE = 0.1


def love(table: pd.DataFrame, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Standardised mean differences by covariate, before and after the adjustment.

    Parameters
    ----------
    table : DataFrame
        Indexed by covariate, from top to bottom: `before` and `after`, in standard deviations of
        the covariate; optional `before_sd` and `after_sd`, the standard deviation of the privacy
        noise in each, are drawn as error bars of two of them. What is not finite is left out.
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
    The dashed lines at -0.1 and 0.1 are the usual rule of thumb for balance.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame(
    ...     {"before": [0.62, -0.31], "after": [0.05, -0.02], "after_sd": [0.04, 0.03]},
    ...     index=["age", "education"],
    ... )
    >>> fig, ax = love(table)
    """
    own = ax is None
    with _canvas(ax, 1.35 + 0.32 * max(len(table), 1)) as (fig, ax_):
        places = np.arange(len(table), dtype=float)
        ax_.axvline(0, color=_INK, linewidth=0.9, zorder=1)
        for edge in (-_RULE, _RULE):
            ax_.axvline(edge, color=_GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        before, after = _column(table, "before"), _column(table, "after")
        noisy = {"before_sd", "after_sd"} & set(table.columns)
        if not noisy:
            both = np.isfinite(before) & np.isfinite(after)
            ax_.hlines(places[both], before[both], after[both], color=_GREY, linewidth=0.8)
        handles: list[Any] = []
        # apart, so that two error bars do not hide each other
        apart = 0.12 if noisy else 0.0
        looks = (("before", "s", _VERMILION, "white", -apart), ("after", "o", _BLUE, _BLUE, apart))
        for name, marker, colour, face, shift in looks:
            values = _column(table, name)
            keep = np.isfinite(values)
            noise = None
            if f"{name}_sd" in table:
                noise = 2 * np.nan_to_num(_column(table, f"{name}_sd"), posinf=0.0)[keep]
            drawn = ax_.errorbar(
                values[keep],
                places[keep] + shift,
                xerr=noise,
                fmt=marker,
                color=colour,
                markersize=5.5,
                markerfacecolor=face,
                ecolor=colour,
                elinewidth=1.1,
                capsize=2.5,
                label=name if noise is None else f"{name} (bars: 2 sd of the noise)",
                zorder=3,
            )
            handles.append(drawn)
        reach = max(1.25 * _RULE, *(abs(edge) for edge in ax_.get_xlim()))
        ax_.set_xlim(-reach, reach)
        _one_row_each(ax_, [_literal(name, _LABEL) for name in table.index])
        ax_.set_xlabel("Standardised mean difference, treated less control")
        _legend_below(fig, ax_, own, handles)
    return fig, ax_
