"""Public assumptions about a panel, and what noise does to panels simulated from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.calls import check_noise
from dpstats.privacy.accounting import allocate
from dpstats.privacy.calibration import gaussian_dp_level, gaussian_scale, laplace_scale
from dpstats.privacy.mechanisms import Mechanisms
from dpstats.privacy.noise import noise_source
from dpstats.synth.kernels import KERNELS
from dpstats.synth.kernels.base import Panel, Public
from dpstats.synth.kernels.did import _ROOMY, Did, _norm_grid, _row_norms

if TYPE_CHECKING:
    from dpstats.privacy.accounting import Cost
    from dpstats.privacy.noise import FloatArray, NoiseSource
    from dpstats.synth.kernels.base import Released

__all__ = [
    "Case",
    "Expected",
    "expected_did",
    "expected_of_runs",
    "last_value_error",
    "middle_half",
]

SEED = 20261130
# units that count as treated, one after the other
_TARGETS = 12
# donors a simulated panel has at most, where fewer can stand for many
_ROWS = {"moments": 2000, "did": 500}
# largest number of values of a panel that is kept for the next budget
_KEPT = 100_000
# targets of a panel where each is a call of its own
_CALLS = 4
_LOADING = 1.5
_CHOICES = 4000
# panels, and their donors, from which the error of the last value is taken
_LAST_PANELS, _LAST_ROWS = 64, 200


@dataclass(frozen=True, slots=True)
class Case:
    """Public quantities and assumptions of a planned call; `deviation` in the outcome's units."""

    n: int
    periods: int
    pre_periods: int
    epsilon: float
    delta: float
    half_width: float
    deviation: float
    common: float
    factors: int

    @property
    def public(self) -> Public:
        """What a kernel chooses its constants from."""
        return Public(self.n, self.periods, self.pre_periods, self.epsilon, self.delta, False)


@dataclass(frozen=True, slots=True)
class Expected:
    """Errors to expect of the mean effect, in the outcome's units.

    Attributes
    ----------
    noise : float
        Root mean square, over targets and panels, of the sd over noise; for "moments" that of a
        typical panel (`middle_half`), since in a few a direction at the edge of the noise comes and
        goes.
    total : float
        Root mean square error of the estimate, all told.
    """

    noise: float
    total: float


class _Sums:
    """Mean squares over targets and panels."""

    def __init__(self) -> None:
        self.parts: dict[str, list[float]] = {}

    def add(self, **squares: Any) -> None:
        """Add mean squares of one panel or target."""
        for name, square in squares.items():
            self.parts.setdefault(name, []).append(float(np.mean(square)))

    def expected(self, unit: float = 1.0, *, typical: bool = False) -> Expected:
        """Return their roots; of the noise in a typical panel where that is asked for."""
        if typical:
            self.parts["noise"] = [middle_half(np.sqrt(self.parts["noise"])) ** 2]
        roots = {
            name: unit * math.sqrt(max(math.fsum(squares) / len(squares), 0.0))
            for name, squares in self.parts.items()
        }
        return Expected(**roots)


def middle_half(sds: FloatArray) -> float:
    """Return the mean of the middle half: a typical value, steadier than the median."""
    inside = np.sort(sds)[len(sds) // 4 : len(sds) - len(sds) // 4]
    return float(inside.mean())


def simulated(case: Case, panel: int, rows: int) -> Panel:
    """Return a panel of `rows` donors and some targets like them, in the outcome's units.

    Common movements are random walks; loadings are normal with a mean of 1.5 standard deviations,
    so that most units move alike; the rest is independent noise.
    """
    # a search for a budget meets the same panels again and again
    draw = _kept if rows * case.periods <= _KEPT else _drawn
    return draw(replace(case, n=rows, epsilon=1.0, delta=0.0), panel)


@lru_cache(maxsize=64)
def _kept(case: Case, panel: int) -> Panel:
    return _drawn(case, panel)


def _drawn(case: Case, panel: int) -> Panel:
    rng = np.random.default_rng([SEED, panel])
    units, before = case.n + _TARGETS, case.pre_periods
    walks = np.cumsum(rng.standard_normal((case.factors, case.periods)), axis=1)
    loadings = _LOADING + rng.standard_normal((units, case.factors))
    parts = []
    for moved in (loadings @ walks, rng.standard_normal((units, case.periods))):
        part = moved - moved[:, :before].mean(axis=1, keepdims=True)
        parts.append(part / math.sqrt(float((part**2).mean())))
    common = math.sqrt(case.common)
    values = case.deviation * (common * parts[0] + math.sqrt(1.0 - case.common) * parts[1])
    # the middle half of the bounds
    values += 0.5 * case.half_width * rng.uniform(-1.0, 1.0, (units, 1))
    values.setflags(write=False)
    return Panel(values[_TARGETS:], values[:_TARGETS], before, 0.0, 1.0, None)


def expected_of_runs(case: Case, name: str, panels: int, draws: int) -> Expected:
    """Run a kernel on simulated panels, with new noise each time.

    "moments" depends on n and the level of its noise by their product alone, but for the spread of
    what donors do not have in common, so that 2000 donors with a larger budget stand for many. One
    release serves all targets there; elsewhere each target is a call of its own.
    """
    kernel = KERNELS[name]
    many = name == "moments"
    run = with_donors(case, min(case.n, _ROWS[name])) if many else case
    kind = check_noise(None, run.epsilon, run.delta)
    settings = kernel.settings(None, {}, replace(run.public, bounded=not many))
    shares = dict(kernel.shares(settings, run.public))
    gaussian = set(shares) - set(kernel.pure) if kind == "gaussian" else set()
    costs = allocate(run.epsilon, run.delta, shares, gaussian)
    sums = _Sums()
    for i in range(panels):
        panel = simulated(case, i, run.n)
        if not many:
            donors = np.clip(panel.donors / case.half_width, -1.0, 1.0)
            panel = replace(panel, donors=donors, targets=panel.targets / case.half_width)
        targets = [panel.targets] if many else [row[None] for row in panel.targets[:_CALLS]]
        for k, target in enumerate(targets):
            one = replace(panel, targets=target)
            actual, _ = _after(one)
            found = np.array(
                [
                    _mean_after(
                        kernel.run(one, settings, Mechanisms(_source(i, k, j), kind, costs)), one
                    )
                    for j in range(draws)
                ]
            )
            # one draw shows the total only
            noise = found.var(axis=0, ddof=1) if draws > 1 else 0.0
            sums.add(noise=noise, total=(found - actual) ** 2)
    return sums.expected(1.0 if many else case.half_width, typical=many)


def last_value_error(case: Case) -> float:
    """Return the root mean square error of carrying the last value forward, whatever the method.

    Over the targets of 64 panels; it depends on neither the budget nor the number of donors.
    """
    return _last_value_error(replace(case, n=_LAST_ROWS, epsilon=1.0, delta=0.0))


@lru_cache(maxsize=64)
def _last_value_error(case: Case) -> float:
    steps = [np.subtract(*_after(simulated(case, i, case.n))) for i in range(_LAST_PANELS)]
    return float(np.sqrt(np.mean(np.square(steps))))


def _after(panel: Panel) -> tuple[FloatArray, FloatArray]:
    """Return the targets' mean outcomes after the intervention, and their last ones before it."""
    before = panel.pre_periods
    return panel.targets[:, before:].mean(axis=1), panel.targets[:, before - 1]


def _source(*key: int) -> NoiseSource:
    return noise_source(np.random.default_rng([SEED, *key]))


def _mean_after(released: Released, panel: Panel) -> FloatArray:
    return released.predict(panel.targets)[:, panel.pre_periods :].mean(axis=1)


def expected_did(case: Case, panels: int) -> Expected:
    """Return what noise does to "did", over the choice of its row norm.

    The choice is drawn many times, since rare large norms make up much of the variance.
    """
    kernel = Did()
    shares = dict(kernel.shares(kernel.settings(None, {}, case.public), case.public))
    kind = check_noise(None, case.epsilon, case.delta)
    gaussian = set(shares) - set(kernel.pure) if kind == "gaussian" else set()
    costs = allocate(case.epsilon, case.delta, shares, gaussian)
    before, after = case.pre_periods, case.periods - case.pre_periods
    factor = 2.0 if case.n * costs["mean"].epsilon >= _ROOMY else 1.0
    entry = _entry_sd(case, costs["mean"])
    sums = _Sums()
    for i in range(panels):
        panel = simulated(case, i, _ROWS["did"])
        norms = _row_norms(panel.donors, before)
        rng = np.random.default_rng([SEED, i, 0])
        changes = [_changes(rows, before) for rows in (panel.donors, panel.targets)]
        # as in `Mechanisms.choose`, for one target after the other
        drawn = rng.laplace(size=(_CHOICES, _norm_grid(panel).size))
        drawn *= 4.0 / costs["scale"].epsilon
        for target, change in zip(panel.targets, changes[1], strict=True):
            grid = _norm_grid(replace(panel, targets=target[None]))
            below = case.n * (norms[:, None] <= grid).mean(axis=0)
            chosen = (drawn - np.abs(2.0 * below - case.n)).argmax(axis=1)
            chance = np.bincount(chosen, minlength=grid.size) / _CHOICES
            square = float(chance @ (entry * factor * grid) ** 2)
            shrunk = np.minimum(1.0, factor * grid[:, None] / np.maximum(norms, 1e-300))
            predicted = shrunk @ changes[0] / len(norms)
            variance = square * (1.0 / after + 1.0 / before)
            sums.add(
                noise=variance + float(chance @ (predicted - chance @ predicted) ** 2),
                total=variance + float(chance @ (predicted - change) ** 2),
            )
    return sums.expected()


def _changes(rows: FloatArray, before: int) -> FloatArray:
    return np.asarray(rows[:, before:].mean(axis=1) - rows[:, :before].mean(axis=1))


def _entry_sd(case: Case, cost: Cost) -> float:
    """Return the noise sd of a period of the mean path, for rows of norm one."""
    if case.delta > 0.0:
        return gaussian_scale(2.0, cost.epsilon, cost.delta) / case.n
    # a K-norm vector has mean square (d + 1) scale^2 in each of its d entries
    return laplace_scale(2.0, cost.epsilon) * math.sqrt(case.periods + 1.0) / case.n


def with_donors(case: Case, rows: int) -> Case:
    """Return the case with fewer donors and a budget at which their noise is that of n."""
    factor = case.n / rows
    if factor == 1.0:
        return case
    if case.delta == 0.0:
        return replace(case, n=rows, epsilon=case.epsilon * factor)
    level = factor * gaussian_dp_level(case.epsilon, case.delta)
    low = high = case.epsilon
    while gaussian_dp_level(high, case.delta) < level:
        low, high = high, 2.0 * high
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = gaussian_dp_level(middle, case.delta) < level
        low, high = (middle, high) if below else (low, middle)
    return replace(case, n=rows, epsilon=high)
