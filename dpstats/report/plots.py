"""Plots of released numbers, for a paper: safe for colour-blind readers and in black and white.

matplotlib is imported inside the functions. None of them calls `show` or changes a global setting;
a new figure is `pyplot`'s, so that a notebook shows it and `plt.close` closes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.privacy.accounting import WHOLE
from dpstats.report._escape import plain
from dpstats.report._layout import wrap
from dpstats.report._numbers import number, rounded, signed_places

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpstats.report.love import love

__all__ = ["blocks", "budget", "close", "effect", "love", "overlap"]

# Okabe and Ito
_BLUE = "#0072B2"
_SKY = "#56B4E9"
_VERMILION = "#D55E00"
_INK = "#1c1c1c"
_GREY = "#767676"

_STYLE: dict[str, Any] = {
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.labelsize": 9,
    "axes.titlesize": 10,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _GREY,
    "axes.linewidth": 0.8,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "text.usetex": False,
    "xtick.color": _GREY,
    "ytick.color": _GREY,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "hatch.linewidth": 0.6,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
}
_WIDTH = 6.5
_LABEL = 28


@contextmanager
def _canvas(ax: Axes | None, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Hand out axes under our settings, which hold only for the moment."""
    try:
        import matplotlib as mpl
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'plots need matplotlib, which is not installed: pip install "dpstats[plot]"'
        ) from error
    # the backend must not be loaded, and made interactive, inside the context
    load_backend: Any = plt.draw_if_interactive
    load_backend()
    rc_context: Any = mpl.rc_context
    with rc_context(_STYLE):
        if ax is not None:
            yield _figure_of(ax), ax
            return
        fig = plt.figure(figsize=(_WIDTH, height), dpi=150, layout="constrained")
        try:
            yield fig, fig.add_subplot()
        except BaseException:
            plt.close(fig)
            raise


def close(fig: Figure) -> None:
    """Take a figure out of `pyplot`: it can still be saved, but a notebook will not show it."""
    import matplotlib.pyplot as plt

    plt.close(fig)


def _figure_of(ax: Axes) -> Figure:
    fig: Any = ax.figure
    while getattr(fig, "figure", fig) is not fig and fig.figure is not None:  # a subfigure
        fig = fig.figure
    found: Figure = fig
    return found


def _literal(text: object, width: int = 1000) -> str:
    """Show text as it is: a dollar sign starts no formula, a long name is broken."""
    return "\n".join(wrap(plain(text), width)).replace("$", r"\$")


def _column(frame: pd.DataFrame, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return frame[name].to_numpy(dtype=float, na_value=np.nan)


def _legend_below(fig: Figure, ax: Axes, own: bool, handles: Sequence[Any]) -> None:
    """Put the legend where it covers no data."""
    if not own:
        ax.legend(handles=list(handles), loc="best")
        return
    fig.legend(handles=list(handles), loc="outside lower center", ncols=min(len(handles), 4))


def _one_row_each(ax: Axes, labels: Sequence[str]) -> None:
    """Label rows from top to bottom, one a result or covariate."""
    ax.set_yticks(np.arange(len(labels), dtype=float), labels)
    ax.set_ylim(len(labels) - 0.4 if labels else 1, -0.6)
    ax.tick_params(axis="y", length=0)


def _beside(ax: Axes, place: float, text: str) -> None:
    """Write at the right of a row."""
    ax.text(1.03, place, text, transform=ax.get_yaxis_transform(), va="center", fontsize=8.5)


def _effect_parts(rows: pd.DataFrame) -> tuple[Any, Any, Any]:
    """Return estimates, total intervals and those of privacy noise, shapes (n,), (2, n), (2, n)."""
    total = np.stack([_column(rows, "total_low"), _column(rows, "total_high")])
    privacy = np.stack([_column(rows, "privacy_low"), _column(rows, "privacy_high")])
    return _column(rows, "estimate"), total, privacy


def effect(
    rows: pd.DataFrame, *, xlabel: str = "Effect", ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Forest plot: estimates, total intervals, and the part that is privacy noise alone.

    Parameters
    ----------
    rows : DataFrame
        Columns `name, estimate, total_low, total_high, privacy_low, privacy_high`, from top to
        bottom. Intervals that are not finite are left out.
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
    ...     [["ATE", 1.8, 0.2, 3.4, 1.1, 2.5]],
    ...     columns=["name", "estimate", "total_low", "total_high", "privacy_low", "privacy_high"],
    ... )
    >>> fig, ax = effect(rows, xlabel="Earnings in 1978 (1000 dollars)")
    """
    own = ax is None
    with _canvas(ax, 1.35 + 0.42 * max(len(rows), 1)) as (fig, ax_):
        middle, total, privacy = _effect_parts(rows)
        places = np.arange(len(rows))
        ax_.axvline(0, color=_GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        thin = _intervals(ax_, places, total, color=_INK, linewidth=1.3, cap=0.14)
        thick = _intervals(ax_, places, privacy, color=_SKY, linewidth=7)
        (points,) = ax_.plot(
            middle, places, "D", color=_INK, markersize=5.5, markeredgecolor="white", zorder=4
        )
        thin.set_label("total interval (sampling and privacy noise)")
        thick.set_label("privacy noise alone")
        points.set_label("estimate")
        _one_row_each(ax_, [_literal(name, _LABEL) for name in rows["name"]])
        ax_.spines["left"].set_visible(False)
        ax_.set_xlabel(_literal(xlabel, 70))
        if own:
            digits = _row_decimals(rows, total)
            for place, value, (low, high) in zip(places, middle, total.T, strict=True):
                label = _interval_label(value, low, high, digits[place])
                _beside(ax_, float(place), label)
        _legend_below(fig, ax_, own, [points, thin, thick])
    return fig, ax_


def _intervals(
    ax: Axes, places: Any, bounds: Any, *, color: str, linewidth: float, cap: float = 0.0
) -> Any:
    keep = np.isfinite(bounds).all(axis=0)
    spots, low, high = places[keep], bounds[0, keep], bounds[1, keep]
    if cap:
        ends = np.concatenate([low, high])
        twice = np.concatenate([spots, spots])
        ax.vlines(ends, twice - cap, twice + cap, color=color, linewidth=linewidth, zorder=3)
    order = 3 if cap else 2
    lines = ax.hlines(spots, low, high, color=color, linewidth=linewidth, zorder=order)
    lines.set_capstyle("butt")
    return lines


def _row_decimals(rows: pd.DataFrame, total: Any) -> list[int | None]:
    """Return the digits of each row's numbers: by its standard error, else by its interval."""
    # an interval is about two standard errors to either side
    errors = (total[1] - total[0]) / 4.0
    if "std_error" in rows.columns:
        errors = _column(rows, "std_error")
    return [signed_places(float(x), ends) for x, ends in zip(errors, total.T, strict=True)]


def _interval_label(value: float, low: float, high: float, decimals: int | None) -> str:
    """Write an estimate and its interval, where it has one."""
    text = rounded(value, decimals)
    if np.isfinite([low, high]).all():
        text += f"  [{rounded(low, decimals)}, {rounded(high, decimals)}]"
    return text.replace("-", "\N{MINUS SIGN}")


def blocks(
    table: pd.DataFrame,
    *,
    ylabel: str = "Effect",
    overall: float | None = None,
    ax: Axes | None = None,
) -> tuple[Figure, Axes]:
    """Effects by block with intervals; the larger the marker, the more rows.

    Parameters
    ----------
    table : DataFrame
        Columns `block` (a label), `effect, lower, upper, treated, control` (noisy counts) and
        `kept` (bool). Blocks that are not kept are drawn hollow; where their effect lies outside
        the picture or is missing, at its edge.
    ylabel : str
        What the effect is, with its unit.
    overall : float, optional
        Drawn as a line.
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
    ...         "block": ["[0, 0.5)", "[0.5, 1]"],
    ...         "effect": [1.2, 2.0],
    ...         "lower": [0.1, 0.5],
    ...         "upper": [2.3, 3.5],
    ...         "treated": [40.2, 110.9],
    ...         "control": [160.7, 80.1],
    ...         "kept": [True, True],
    ...     }
    ... )
    >>> fig, ax = blocks(table, ylabel="Earnings (1000 dollars)", overall=1.5)
    """
    own = ax is None
    with _canvas(ax, 3.6) as (fig, ax_):
        places = np.arange(len(table))
        kept = table["kept"].to_numpy(dtype=bool)
        middle, low, high = (_column(table, name) for name in ("effect", "lower", "upper"))
        size = np.nan_to_num(_column(table, "treated") + _column(table, "control")).clip(0)
        area = 16 + 120 * size / max(size.max(initial=0.0), 1e-300)
        floor, ceiling = _limits(middle, low, high, kept, overall)
        ax_.set_ylim(floor, ceiling)
        ax_.axhline(0, color=_GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        handles: list[Any] = []
        if overall is not None and math.isfinite(overall):
            handles.append(
                ax_.axhline(overall, color=_VERMILION, linewidth=1.4, label="overall", zorder=2)
            )
        for keep, label in ((True, "block (area: noisy count)"), (False, "thin block")):
            chosen = kept == keep
            shown = chosen & np.isfinite(middle) & (middle >= floor) & (middle <= ceiling)
            finite = shown & np.isfinite(low) & np.isfinite(high)
            colour, style = (_BLUE, "solid") if keep else (_GREY, "dotted")
            ax_.vlines(
                places[finite],
                low[finite].clip(floor, ceiling),
                high[finite].clip(floor, ceiling),
                color=colour,
                linestyle=style,
                linewidth=1.4,
                zorder=3,
            )
            points = ax_.scatter(
                places[shown],
                middle[shown],
                s=area[shown],
                marker="o" if keep else "s",
                facecolor=_BLUE if keep else "white",
                edgecolor="white" if keep else _GREY,
                linewidth=0.8 if keep else 1.3,
                zorder=4,
            )
            points.set_clip_on(False)
            if shown.any():
                handles.append(_marker(keep, label))
        handles += _at_edge(ax_, places, middle, (floor, ceiling))
        _block_axis(ax_, table)
        ax_.set_ylabel(_literal(ylabel, 40))
        _legend_below(fig, ax_, own, handles)
    return fig, ax_


def _marker(keep: bool, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D(
        [],
        [],
        linestyle="solid" if keep else "dotted",
        color=_BLUE if keep else _GREY,
        marker="o" if keep else "s",
        markerfacecolor=_BLUE if keep else "white",
        markersize=6,
        label=label,
    )


def _limits(
    middle: Any, low: Any, high: Any, kept: Any, overall: float | None
) -> tuple[float, float]:
    """Return limits that hold the kept blocks, and dropped ones that do not flatten them."""
    chosen = kept if kept.any() else np.ones_like(kept)
    shown = [] if overall is None else [overall]
    values = np.concatenate([middle[chosen], low[chosen], high[chosen], shown])
    values = values[np.isfinite(values)]
    values = values if values.size else np.zeros(1)
    span = float(np.ptp(values)) or 1.0
    if max(values.min(), -values.max()) < span:
        # zero is close enough to be shown without flattening the intervals
        values = np.append(values, 0.0)
        span = float(np.ptp(values)) or 1.0
    near = (middle >= values.min() - span / 2) & (middle <= values.max() + span / 2)
    values = np.concatenate([values, middle[near]])
    return float(values.min()) - 0.08 * span, float(values.max()) + 0.08 * span


def _at_edge(ax: Axes, places: Any, middle: Any, limits: tuple[float, float]) -> list[Any]:
    """Mark effects that are missing or outside the picture on its edge; return legend entries."""
    floor, ceiling = limits
    missing = ~np.isfinite(middle)
    groups = (
        (missing, floor, "x", "no effect"),
        (~missing & (middle < floor), floor, "v", "thin, off the scale"),
        (~missing & (middle > ceiling), ceiling, "^", "thin, off the scale"),
    )
    handles: dict[str, Any] = {}
    for chosen, height, marker, label in groups:
        if not chosen.any():
            continue
        (line,) = ax.plot(
            places[chosen],
            np.full(chosen.sum(), height),
            marker,
            color=_GREY,
            markerfacecolor="white",
            markersize=6,
            label=label,
            clip_on=False,
            zorder=5,
        )
        handles.setdefault(label, line)
    return list(handles.values())


def _block_axis(ax: Axes, table: pd.DataFrame) -> None:
    labels = [_literal(label, 14) for label in table["block"]]
    ax.set_xticks(np.arange(len(labels)), labels)
    if len(labels) > 8:
        ax.tick_params(axis="x", labelrotation=90 if len(labels) > 16 else 40)
    ax.set_xlim(-0.6, max(len(labels), 1) - 0.4)
    ax.set_xlabel("Block of the propensity")


def overlap(table: pd.DataFrame, *, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Noisy counts of treated and control rows by block, mirrored.

    Parameters
    ----------
    table : DataFrame
        Columns `block` (a label), `treated, control` (noisy counts) and `noise_sd` (standard
        deviation of the noise in each). A count that the noise made negative has no bar, only its
        error bar.
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
    ...         "block": ["[0, 0.5)", "[0.5, 1]"],
    ...         "treated": [40.2, 110.9],
    ...         "control": [160.7, 80.1],
    ...         "noise_sd": [5.7, 5.7],
    ...     }
    ... )
    >>> fig, ax = overlap(table)
    """
    own = ax is None
    with _canvas(ax, 3.6) as (fig, ax_):
        places = np.arange(len(table))
        noise = 2 * np.nan_to_num(_column(table, "noise_sd"))
        handles: list[Any] = []
        arms = (("treated", 1, _BLUE, ""), ("control", -1, "#F0C987", "////"))
        for arm, sign, colour, hatch in arms:
            count = np.nan_to_num(_column(table, arm))
            handles.append(
                ax_.bar(
                    places,
                    sign * count.clip(0),
                    width=0.78,
                    color=colour,
                    edgecolor=_INK,
                    linewidth=0.6,
                    hatch=hatch,
                    label=arm,
                    zorder=2,
                )
            )
            bars = ax_.errorbar(
                places + 0.1 * sign,
                sign * count,
                yerr=noise,
                fmt="none",
                ecolor=_INK,
                elinewidth=1.1,
                capsize=2.5,
                label="\N{PLUS-MINUS SIGN}2 standard deviations of the noise",
                zorder=3,
            )
        handles.append(bars)
        ax_.axhline(0, color=_INK, linewidth=0.9, zorder=4)
        ax_.yaxis.set_major_formatter(lambda value, _: number(abs(value)))
        ax_.set_ylabel("Rows (noisy count)")
        _block_axis(ax_, table)
        _legend_below(fig, ax_, own, handles)
    return fig, ax_


def budget(releases: pd.DataFrame, *, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """How the privacy budget was divided among the releases.

    Parameters
    ----------
    releases : DataFrame
        Columns `release` and `epsilon`, from top to bottom; one row a release. Optional
        `partition`: the rows it was made from; those of disjoint rows do not add up.
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
    >>> releases = pd.DataFrame({"release": ["counts", "sums"], "epsilon": [0.25, 0.75]})
    >>> fig, ax = budget(releases)
    """
    with _canvas(ax, 0.95 + 0.36 * max(len(releases), 1)) as (fig, ax_):
        places = np.arange(len(releases))
        spent = np.nan_to_num(_column(releases, "epsilon"), posinf=0.0)
        total = _spent_on_a_row(releases, spent)
        ax_.barh(places, spent, height=0.62, color=_BLUE, edgecolor=_INK, linewidth=0.6, zorder=2)
        for place, part in zip(places, spent, strict=True):
            percent = 100 * part / total if total else 0.0
            share = f"  ({percent:.0f}%)" if percent >= 1 else "  (<1%)" if percent else ""
            ax_.annotate(
                f"{number(part, 3)}{share}",
                (part, place),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
            )
        ax_.set_yticks(places, [_literal(name, _LABEL) for name in releases["release"]])
        ax_.set_ylim(len(releases) - 0.45 if len(releases) else 1, -0.55)
        ax_.set_xlim(0, 1.22 * float(spent.max(initial=0.0)) or 1.0)
        ax_.tick_params(axis="y", length=0)
        ax_.set_xlabel(f"epsilon (total {number(total)})")
    return fig, ax_


def _spent_on_a_row(releases: pd.DataFrame, spent: np.ndarray) -> float:
    """Add up releases from the same rows; of disjoint ones the largest counts."""
    if "partition" not in releases:
        return float(spent.sum())
    sums: dict[str, float] = {}
    for rows, part in zip(releases["partition"], spent, strict=True):
        sums[rows] = sums.get(rows, 0.0) + float(part)
    whole = sum(sums.pop(name, 0.0) for name in WHOLE)
    return whole + max(sums.values(), default=0.0)


def __getattr__(name: str) -> Any:
    # one file a family of plots; they take the canvas from here
    if name == "love":
        from dpstats.report.love import love

        return love
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
