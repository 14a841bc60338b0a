"""Panels with one treated unit whose untreated path is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from dpstats.datasets.dataset import Dataset
from dpstats.errors import DPStatsError
from dpstats.simulate.checks import (
    FloatArray,
    RNGLike,
    choose,
    truncated_normal,
    whole,
)

__all__ = ["PROCESSES", "panel"]

_Draw = Callable[[np.random.Generator, int, int], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, slots=True)
class _Process:
    """A draw of (signal, noise), both of shape (units, periods), and what is public about it.

    Attributes
    ----------
    draw : callable
        Of a generator, the number of units and the number of periods.
    bounds : callable
        Public bounds of the outcome, of the number of periods.
    n_donors, periods, pre_periods : int
        Defaults.
    summary : str
        For the description.
    """

    draw: _Draw
    bounds: Callable[[int], tuple[float, float]]
    n_donors: int
    periods: int
    pre_periods: int
    summary: str


def _linear(
    generator: np.random.Generator, units: int, periods: int
) -> tuple[FloatArray, FloatArray]:
    slope = 4 + truncated_normal(generator, -1.0, 1.0, (units, 1))
    noise = 0.1 * truncated_normal(generator, -10.0, 10.0, (units, periods))
    return slope * np.arange(1, periods + 1), noise


def _linear_as_run(
    generator: np.random.Generator, units: int, periods: int
) -> tuple[FloatArray, FloatArray]:
    slope = 4 - truncated_normal(generator, -5.0, -3.0, (units, 1))
    intercept = generator.uniform(-1, 1, (units, 1))
    raw = slope * np.arange(1, periods + 1) + intercept
    low, high = raw.min(), raw.max()
    noise = 0.1 * truncated_normal(generator, -1.0, 1.0, (units, periods))
    return (raw - (low + high) / 2) / ((high - low) / 2), noise


def _factor(
    generator: np.random.Generator, units: int, periods: int
) -> tuple[FloatArray, FloatArray]:
    walks = np.cumsum(generator.standard_normal((3, periods)), axis=1) / np.sqrt(periods)
    loadings = 0.12 + 0.08 * generator.standard_normal((units, 3))
    level = generator.uniform(-0.5, 0.5, (units, 1))
    noise = 0.018 * generator.standard_normal((units, periods))
    return level + loadings @ walks, noise


def _smooth(
    generator: np.random.Generator, units: int, periods: int
) -> tuple[FloatArray, FloatArray]:
    cycles = np.array([0.5, 1.0, 1.5, 2.0])[:, None]
    phase = generator.uniform(0, 2 * np.pi, (4, 1))
    waves = np.sin(2 * np.pi * cycles * np.arange(periods) / periods + phase)
    loadings = 2 + generator.standard_normal((units, 4))
    level = 20 + 2 * generator.standard_normal((units, 1))
    noise = 0.5 * generator.standard_normal((units, periods))
    return level + loadings @ waves, noise


PROCESSES: dict[str, _Process] = {
    "linear": _Process(
        _linear,
        lambda periods: (2.0, 5.0 * periods + 1.0),
        10,
        13,
        10,
        "The published linear panel as its text has it: theta_i t plus noise, theta from N(4, 1)\n"
        "truncated to [3, 5], noise from a normal law of sd .1 truncated to [-1, 1].\n"
        "Bounds are the range of the process, 3 - 1 to 5 T + 1.",
    ),
    "linear_as_run": _Process(
        _linear_as_run,
        lambda periods: (-1.0, 1.0),
        10,
        13,
        10,
        "The published linear panel as its code draws it. scipy's truncnorm takes its limits in\n"
        "standard deviations from the mean, so theta lies in [7, 9] and close to 7; an intercept\n"
        "uniform on [-1, 1] is added, the signals are scaled to exactly [-1, 1] by the smallest\n"
        "and largest of them, and the noise (sd .1, truncated to [-.1, .1]) is added after that.\n"
        "Bounds are -1 to 1; up to a tenth beyond is clipped.",
    ),
    "factor": _Process(
        _factor,
        lambda periods: (-1.0, 1.0),
        1000,
        30,
        20,
        "Rough: unit levels uniform on [-.5, .5], three random walks (step sd 1/sqrt(T)) with\n"
        "loadings N(.12, .08^2), noise sd .018. Bounds are -1 to 1, rarely exceeded.",
    ),
    "smooth": _Process(
        _smooth,
        lambda periods: (0.0, 40.0),
        1000,
        30,
        20,
        "Smooth: unit levels N(20, 2^2), four sine waves of 1/2, 1, 3/2 and 2 cycles over the\n"
        "whole panel with random phase and loadings N(2, 1), noise sd .5. Bounds are 0 to 40,\n"
        "about ten times wider than what varies.",
    ),
}

_DESCR = """Simulated panel {name!r}
{rule}

{summary}

{donors} donors and one treated unit (unit 0), {periods} periods; the intervention comes after
time {T0} and adds {effect} to the treated unit. The treated unit is drawn like every other.
Columns: unit (0 treated, 1 ... donors), time (1 ... {periods}), y, treated (1 for unit 0 after T0).

Truth. `counterfactual` is the realised untreated path of unit 0 (with its noise), `signal` the same
without its noise; ATT = {att:.6g} is the mean of treated less untreated outcome after T0.

Public bounds. y in [{low:g}, {high:g}], a constant of the process; donors outside are clipped.

Reference. Rho, S., Cummings, R. and Misra, V. (2023). Differentially private synthetic control.
AISTATS (the linear panels); factor and smooth are additions of dpstats.
"""


def panel(
    name: str,
    *,
    n_donors: int | None = None,
    periods: int | None = None,
    pre_periods: int | None = None,
    effect: float | Sequence[float] | npt.NDArray[np.float64] = 0.0,
    rng: RNGLike = None,
) -> Dataset:
    """Simulate a panel with one treated unit whose untreated path is known.

    Parameters
    ----------
    name : {"linear", "linear_as_run", "factor", "smooth"}
        The process, see Notes.
    n_donors : int, optional
        Donors, at least 1; by default 10 for the linear panels and 1000 else.
    periods : int, optional
        All periods T; by default 13 for the linear panels and 30 else.
    pre_periods : int, optional
        Periods before the intervention, at least 2 and fewer than ``periods``; by default 10 for
        the linear panels and 20 else.
    effect : float or array_like of shape (periods - pre_periods,)
        Added to the treated unit after the intervention, in units of y.
    rng : int, Generator, SeedSequence, BitGenerator or None
        Passed to :func:`numpy.random.default_rng`. A Generator is advanced; an int gives the same
        panel each time.

    Returns
    -------
    Dataset
        ``data`` long, of (n_donors + 1) * periods rows sorted by ``unit`` and ``time``, with
        columns ``unit time y treated``. Unit 0 is treated after time ``T0 = pre_periods``.
        ``counterfactual`` and ``signal`` (Series of length periods, indexed by time) are the
        realised untreated outcome of unit 0 and the same without its noise; ``truth["ATT"]`` is
        the mean of ``effect``.

    Raises
    ------
    DPStatsError
        An unknown name, or numbers of units and periods that make no panel.

    Notes
    -----
    - linear: theta_i t + noise, theta from N(4, 1) truncated to [3, 5], noise of sd .1 truncated to
      [-1, 1]: the published panel, by its text [1]_.
    - linear_as_run: the same by the authors' code, where the slopes lie in [7, 9] (limits of
      ``scipy.stats.truncnorm`` are in standard deviations), every unit has an intercept, and the
      signals are scaled to [-1, 1] before the noise is added.
    - factor: unit levels and three random walks, in [-1, 1]: rough in time.
    - smooth: unit levels (sd 2) and four slow waves, noise sd .5, bounds (0, 40).

    References
    ----------
    .. [1] Rho, S., Cummings, R. and Misra, V. (2023). Differentially private synthetic control.
       *AISTATS*. https://github.com/srho1/dpsc

    Examples
    --------
    >>> from dpstats import simulate
    >>> sample = simulate.panel("factor", n_donors=100, effect=0.2, rng=3)
    >>> sample.data.shape, sample.T0, sample.treated
    ((3030, 4), 20, 0)
    >>> observed = sample.data.loc[sample.data["unit"] == 0].set_index("time")["y"]
    >>> gap = observed - sample.counterfactual
    >>> round(float(gap[gap.index > sample.T0].mean()), 10), sample.truth["ATT"]
    (0.2, 0.2)
    """
    process = choose("name", name, PROCESSES)
    donors = whole("n_donors", process.n_donors if n_donors is None else n_donors, 1)
    total = whole("periods", process.periods if periods is None else periods, 3)
    before = whole("pre_periods", process.pre_periods if pre_periods is None else pre_periods, 2)
    if before >= total:
        raise DPStatsError(
            f"`pre_periods` must be smaller than `periods`; got {before} and {total}"
        )
    added = _effects(effect, total - before)

    signal, outcome = process.draw(np.random.default_rng(rng), donors + 1, total)
    outcome += signal
    untreated = outcome[0].copy()
    outcome[0, before:] += added

    time = np.arange(1, total + 1)
    data = pd.DataFrame(
        {
            "unit": np.repeat(np.arange(donors + 1), total),
            "time": np.tile(time, donors + 1),
            "y": outcome.ravel(),
            "treated": np.zeros(outcome.size, dtype=np.int64),
        }
    )
    data.loc[before : total - 1, "treated"] = 1
    index = pd.Index(time, name="time")
    bounds = process.bounds(total)
    constant = bool(np.all(added == added[0]))
    att = float(added[0]) if constant else float(added.mean())
    heading = f"Simulated panel {name!r}"
    return Dataset(
        name=name,
        data=data,
        bounds={"y": bounds},
        DESCR=_DESCR.format(
            name=name,
            rule="=" * len(heading),
            summary=process.summary,
            donors=donors,
            periods=total,
            T0=before,
            effect=f"{att:g}" if constant else "a path",
            att=att,
            low=bounds[0],
            high=bounds[1],
        ),
        source=(
            f"dpstats.simulate.panel({name!r}, n_donors={donors}, periods={total}, "
            f"pre_periods={before})"
        ),
        truth={"ATT": att},
        unit="unit",
        time="time",
        outcome="y",
        treated=0,
        T0=before,
        counterfactual=pd.Series(untreated, index=index, name="y"),
        signal=pd.Series(signal[0].copy(), index=index, name="y"),
    )


def _effects(effect: object, length: int) -> FloatArray:
    """Effect in each period after the intervention, shape (length,)."""
    try:
        values = np.asarray(effect, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array(np.nan)
    if values.shape not in {(), (length,)} or not np.all(np.isfinite(values)):
        raise DPStatsError(
            f"`effect` must be a finite number, or one for each of the {length} periods after the "
            f"intervention; got {effect!r}"
        )
    return np.array(np.broadcast_to(values, length))
