"""Plots of synthetic control, from released numbers and the treated series.

Same style and rules as `dpstats.report.plots`. Two bands: the total interval, and inside it the
part that is privacy noise alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.report.plots import (
    _BLUE,
    _GREY,
    _INK,
    _VERMILION,
    _canvas,
    _column,
    _legend_below,
    _literal,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["gap", "path", "placebo"]

_HEIGHT = 3.8
_TOTAL = "#CFE5F4"
_PRIVACY = "#7DBBE3"
_PRETENDED = "#F6D5C2"
_DASHES = (0, (5, 2))


def path(
    table: pd.DataFrame,
    *,
    ylabel: str,
    xlabel: str = "",
    title: str = "",
    last: str = "",
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Observed and counterfactual outcome over time.

    Parameters
    ----------
    table : DataFrame
        One row a period: `time` (numbers or dates), `label`, `observed, counterfactual, total_low,
        total_high, privacy_low, privacy_high`. What is nan is left out.
    ylabel, xlabel, title : str
        The outcome, time, and the treated unit.
    last : str
        Label of the last period before the intervention, where a line is drawn.
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
    >>> table = pd.DataFrame(
    ...     {
    ...         "time": [1987, 1988, 1989],
    ...         "label": ["1987", "1988", "1989"],
    ...         "observed": [10.0, 11.0, 9.0],
    ...         "counterfactual": [10.1, 10.9, 11.2],
    ...         "total_low": [float("nan"), float("nan"), 10.0],
    ...         "total_high": [float("nan"), float("nan"), 12.4],
    ...         "privacy_low": [float("nan"), float("nan"), 10.8],
    ...         "privacy_high": [float("nan"), float("nan"), 11.6],
    ...     }
    ... )
    >>> fig, ax = path(table, ylabel="Sales", title="California", last="1988")
    """
    own = ax is None
    with _canvas(ax, _HEIGHT) as (fig, ax_):
        times = table["time"].to_numpy()
        observed, fitted = _column(table, "observed"), _column(table, "counterfactual")
        bands = _bands(ax_, table, times, 1.0, 0.0)
        (seen,) = ax_.plot(times, observed, color=_INK, linewidth=1.8, label="observed", zorder=5)
        (other,) = ax_.plot(
            times,
            fitted,
            color=_VERMILION,
            linewidth=1.6,
            linestyle=_DASHES,
            label="counterfactual",
            zorder=4,
        )
        _after_marks(ax_, table, times, fitted, last)
        _finish(ax_, table, times, last, (xlabel, ylabel, title))
        _limit(ax_, table, [observed, fitted])
        _legend_below(fig, ax_, own, [seen, other, *bands])
    return fig, ax_


def gap(
    table: pd.DataFrame,
    *,
    ylabel: str,
    xlabel: str = "",
    title: str = "",
    last: str = "",
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Observed less counterfactual outcome over time.

    Parameters
    ----------
    table : DataFrame
        As for `path`.
    ylabel, xlabel, title, last : str
        As for `path`.
    ax : matplotlib.axes.Axes, optional
        Drawn into; without it a new figure is made.

    Returns
    -------
    (Figure, Axes)

    Raises
    ------
    ImportError
        If matplotlib is missing.
    """
    own = ax is None
    with _canvas(ax, _HEIGHT) as (fig, ax_):
        times = table["time"].to_numpy()
        observed = _column(table, "observed")
        effect = observed - _column(table, "counterfactual")
        bands = _bands(ax_, table, times, -1.0, observed)
        ax_.axhline(0, color=_GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        (line,) = ax_.plot(times, effect, color=_BLUE, linewidth=1.8, label="effect", zorder=5)
        _after_marks(ax_, table, times, effect, last, color=_BLUE)
        _finish(ax_, table, times, last, (xlabel, ylabel, title))
        _limit(ax_, table, [effect, np.zeros(1)], observed)
        _legend_below(fig, ax_, own, [line, *bands])
    return fig, ax_


def placebo(
    table: pd.DataFrame,
    *,
    pretended: str,
    ylabel: str,
    found: str = "",
    xlabel: str = "",
    title: str = "",
    last: str = "",
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Effect beside that of an intervention that is pretended to have come earlier.

    Parameters
    ----------
    table : DataFrame
        As for `path`, with a column `placebo`: effects up to the true intervention, nan after it;
        and, if there are any, `placebo_low` and `placebo_high`, their interval.
    pretended : str
        Label of the last period before the pretended intervention.
    found : str
        Mean effect of the pretended intervention with its interval, in words.
    ylabel, xlabel, title, last : str
        As for `path`.
    ax : matplotlib.axes.Axes, optional
        Drawn into; without it a new figure is made.

    Returns
    -------
    (Figure, Axes)

    Raises
    ------
    ImportError
        If matplotlib is missing.
    """
    own = ax is None
    with _canvas(ax, _HEIGHT) as (fig, ax_):
        times = table["time"].to_numpy()
        observed = _column(table, "observed")
        effect = observed - _column(table, "counterfactual")
        pretend = _column(table, "placebo")
        ends = [
            _column(table, f"placebo_{end}") for end in ("low", "high") if "placebo_low" in table
        ]
        if ends:
            ax_.fill_between(times, ends[0], ends[1], color=_PRETENDED, linewidth=0.0, zorder=2)
        bands = _bands(ax_, table, times, -1.0, observed)
        ax_.axhline(0, color=_GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        (line,) = ax_.plot(times, effect, color=_BLUE, linewidth=1.8, label="effect", zorder=5)
        (other,) = ax_.plot(
            times,
            pretend,
            color=_VERMILION,
            linewidth=1.5,
            linestyle=_DASHES,
            marker="o",
            markersize=3,
            label=_literal(f"pretended after {pretended}{found and f': {found}'}", 60),
            zorder=4,
        )
        place = _place(table, pretended)
        if place is not None:
            ax_.axvline(times[place], color=_VERMILION, linewidth=0.9, linestyle=":", zorder=1)
        _finish(ax_, table, times, last, (xlabel, ylabel, title))
        _limit(ax_, table, [effect, pretend, *ends, np.zeros(1)], observed)
        handles = [line, other, *bands]
        if own:
            # a long label: two columns
            fig.legend(handles=handles, loc="outside lower center", ncols=2)
        else:
            ax_.legend(handles=handles, loc="best")
    return fig, ax_


def _bands(ax: Axes, table: pd.DataFrame, times: Any, sign: float, base: Any) -> list[Any]:
    """Draw both bands of base + sign * counterfactual; return legend entries."""
    found: list[Any] = []
    for name, colour, label, order in (
        ("total", _TOTAL, "total 95% interval", 2),
        ("privacy", _PRIVACY, "privacy noise alone", 3),
    ):
        low = base + sign * _column(table, f"{name}_low")
        high = base + sign * _column(table, f"{name}_high")
        keep = np.isfinite(low) & np.isfinite(high)
        if not keep.any():
            continue
        if keep.sum() == 1:
            ends = (float(low[keep][0]), float(high[keep][0]))
            width = 9.0 if name == "total" else 5.0
            area: Any = ax.vlines(
                times[keep], min(ends), max(ends), color=colour, linewidth=width, zorder=order
            )
            area.set_label(label)
        else:
            area = ax.fill_between(
                times[keep],
                np.minimum(low, high)[keep],
                np.maximum(low, high)[keep],
                facecolor=colour,
                edgecolor=_BLUE,
                linewidth=0.5,
                label=label,
                zorder=order,
            )
        found.append(area)
    return found


def _after_marks(
    ax: Axes, table: pd.DataFrame, times: Any, values: Any, last: str, color: str = _VERMILION
) -> None:
    """Mark the estimates after the intervention, so that a single one shows too."""
    place = _place(table, last)
    after = np.arange(len(table)) > (-1 if place is None else place)
    ax.plot(times[after], values[after], "o", color=color, markersize=3, zorder=6)


def _place(table: pd.DataFrame, label: str) -> int | None:
    labels = list(map(str, table["label"]))
    return labels.index(label) if label in labels else None


def _finish(
    ax: Axes, table: pd.DataFrame, times: Any, last: str, texts: tuple[str, str, str]
) -> None:
    xlabel, ylabel, title = texts
    place = _place(table, last)
    if place is not None:
        ax.axvline(times[place], color=_GREY, linewidth=0.9, linestyle=":", zorder=1)
        convert: Any = ax.convert_xunits
        spot = ax.transData.transform((float(convert(times[place])), 0.0))
        # to the left of the line, unless that would leave the picture
        left = ax.transAxes.inverted().transform(spot)[0] > 0.3
        ax.annotate(
            _literal(f"T0 = {last}"),
            (times[place], 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if left else 3, 0),
            textcoords="offset points",
            fontsize=8,
            color=_GREY,
            ha="right" if left else "left",
            va="top",
        )
    numeric = np.issubdtype(times.dtype, np.number)
    shown = [_literal(label, 14) for label in table["label"]]
    if not numeric:
        ax.tick_params(axis="x", labelrotation=30 if len(shown) > 8 else 0)
    elif not all(_is_number(label) for label in table["label"]):
        step = max(1, len(shown) // 8)
        ax.set_xticks(times[::step], shown[::step])
    elif all(float(value).is_integer() for value in times):
        from matplotlib.ticker import MaxNLocator

        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    ax.set_xlabel(_literal(xlabel, 70))
    ax.set_ylabel(_literal(ylabel, 40))
    if title:
        ax.set_title(_literal(title, 70), loc="left")


def _is_number(label: Any) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


def _limit(ax: Axes, table: pd.DataFrame, lines: list[Any], base: Any = None) -> None:
    """Keep the lines visible where a band is far wider than they are."""
    sign = 1.0 if base is None else -1.0
    base = 0.0 if base is None else base
    values = np.concatenate([np.ravel(line) for line in lines])
    values = values[np.isfinite(values)]
    if values.size == 0:
        return
    low, high = float(values.min()), float(values.max())
    reach = max(high - low, 1e-12 * max(abs(high), 1e-300))
    ends = [base + sign * _column(table, f"total_{end}") for end in ("low", "high")]
    ends = [end[np.isfinite(end)] for end in ends]
    bottom = min([low, *(float(end.min()) for end in ends if end.size)])
    top = max([high, *(float(end.max()) for end in ends if end.size)])
    bottom, top = max(bottom, low - 3 * reach), min(top, high + 3 * reach)
    margin = 0.05 * (top - bottom) or 1.0
    # room at the top for the label of T0
    ax.set_ylim(bottom - margin, top + 2.5 * margin)
