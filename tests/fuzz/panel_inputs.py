"""Panels and calls of `dp_synth` that nobody would write on purpose, and what must not matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

import dpstats as dp

METHODS = ("moments", "did", "output", "objective")
BOUNDS = (
    *((0.0, 1.0), (-1.0, 1.0), (-5.0, 8.0), (3000.0, 4000.0), (-1e-99, 1e-99), (-1e99, 1e99)),
    *((1e15, 1e15 + 1.0), (0.0, 400.0), (-1e50, 0.0)),
)
EXTREMES = np.array([0.0, -0.0, 1e300, -1e300, 5e-324, 1.7e308, np.inf, -np.inf, 1.0, -1.0])
PROFILES = ("walk", "uniform", "constant", "equal", "extreme", "at the bounds", "beyond", "one")
DTYPES = ("float64", "float32", "Float64", "int64", "Int64", "int16", "bool")
UNITS = ("numbers", "text", "dates", "category", "mixed", "floats")
TIMES = ("years", "dates", "periods", "ordered", "negative", "halves")


@dataclass(frozen=True)
class PanelInput:
    """One call. `grid` has a row a unit, the treated ones first; labels belong to rows, columns."""

    grid: np.ndarray
    units: list[Any]
    times: pd.Index
    unit_dtype: str | None
    dtype: str
    wide: bool
    treated: int
    marked: bool
    before: int
    order: int
    decoys: bool
    eps: float
    options: dict[str, Any]
    seed: int

    def __repr__(self) -> str:
        n, periods = self.grid.shape
        return (
            f"dp_synth(eps={self.eps!r}, {self.options}) on {n} units ({type(self.units[0])}), "
            f"{self.treated} treated, {self.before} of {periods} periods before, "
            f"{self.times.dtype}, outcome {self.dtype}, wide={self.wide}, marked={self.marked} "
            f"[seed {self.seed}]"
        )

    @property
    def method(self) -> str:
        return self.options["method"]

    def _units(self, rows: np.ndarray) -> pd.Series:
        labels = pd.Series([self.units[i] for i in rows], dtype=self.unit_dtype or object)
        return labels if self.unit_dtype else labels.infer_objects()

    def frame(self) -> pd.DataFrame:
        rng = np.random.default_rng(self.order)
        n, periods = self.grid.shape
        if self.wide:
            rows, columns = rng.permutation(n), rng.permutation(periods)
            frame = pd.DataFrame(self.grid[np.ix_(rows, columns)], columns=self.times[columns])
            frame = frame.astype(self.dtype)
            frame.index = pd.Index(self._units(rows))
            return frame
        cells = rng.permutation(n * periods)
        rows, columns = np.divmod(cells, periods)
        content = {
            "a unit": self._units(rows),
            "the time": pd.Series(self.times[columns]),
            "y": pd.Series(self.grid[rows, columns]).astype(self.dtype),
        }
        if self.marked:
            content["treated"] = pd.Series(((rows < self.treated) & (columns >= self.before)) * 1)
        if self.decoys:
            content |= {"lists": [[i] for i in cells], "gone": np.full(cells.size, np.nan)}
            content["when"] = pd.date_range("1990-01-01", periods=cells.size)
        frame = pd.DataFrame({name: content[name] for name in rng.permutation(list(content))})
        frame.index = pd.Index(rng.integers(5, size=cells.size))
        return frame

    def call(self, frame: pd.DataFrame) -> Callable[[], dp.SynthResults]:
        options = dict(self.options)
        if self.wide:
            options["wide"] = True
        else:
            options |= {"unit": "a unit", "time": "the time", "outcome": "y"}
        if self.wide or not self.marked:
            options["treated"] = self.units[: self.treated] if self.treated > 1 else self.units[0]
        T0 = self.times[self.before - 1]
        return lambda: dp.dp_synth(frame, T0=T0, eps=self.eps, rng=self.seed, **options)


def labels(kind: str, n: int, rng: np.random.Generator) -> tuple[list[Any], str | None]:
    if kind == "text":
        return [f"unit {i} é" for i in rng.permutation(n)], None
    if kind == "dates":
        return list(pd.date_range("2001-01-01", periods=n)[rng.permutation(n)]), None
    if kind == "category":
        return [f"u{i:04d}" for i in rng.permutation(n)], "category"
    if kind == "mixed":
        return [f"u{i}" if i % 2 else int(i) for i in rng.permutation(n)], None
    if kind == "floats":
        return [float(i) / 4 for i in rng.permutation(n)], None
    return [int(i) for i in rng.permutation(n)], None


def periods(kind: str, count: int) -> pd.Index:
    if kind == "dates":
        return pd.date_range("2001-03-01", periods=count, freq="7D")
    if kind == "periods":
        return pd.period_range("2001-03", periods=count, freq="M")
    if kind == "ordered":
        names = [f"t{i:02d}" for i in range(count)][::-1]
        return pd.CategoricalIndex(names, categories=names, ordered=True)
    if kind == "negative":
        return pd.Index(np.arange(count) - 10)
    if kind == "halves":
        return pd.Index(np.arange(count) / 2)
    return pd.Index(1990 + np.arange(count))


def values(
    profile: str, shape: tuple[int, int], bounds: tuple[float, float], rng: np.random.Generator
) -> np.ndarray:
    low, high = bounds
    width = high - low
    if profile == "walk":
        steps = rng.normal(0, 0.1, shape).cumsum(axis=1)
        return low + width * np.clip(0.5 + steps, 0, 1)
    if profile == "constant":
        return np.full(shape, rng.choice([low, high, low + width / 2]))
    if profile == "equal":
        return np.tile(low + width * rng.uniform(size=shape[1]), (shape[0], 1))
    if profile == "extreme":
        return rng.choice(EXTREMES, shape)
    if profile == "at the bounds":
        return rng.choice([low, high], shape)
    if profile == "beyond":
        return low + width * rng.normal(0.5, 5.0, shape)
    if profile == "one":
        grid = np.full(shape, low + width / 2)
        grid[int(rng.integers(shape[0]))] = rng.choice([1e308, -1e308, high, np.inf])
        return grid
    return low + width * rng.uniform(size=shape)


@st.composite
def panel_inputs(
    draw: st.DrawFn, donors: tuple[int, ...] = (1, 2, 3, 5, 12, 40, 120)
) -> PanelInput:
    """Draw a panel and a call of any private method on it."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    treated = draw(st.sampled_from([1, 1, 1, 2]))
    n = treated + draw(st.sampled_from(donors))
    count = draw(st.sampled_from([3, 4, 8, 20]))
    before = draw(st.sampled_from([2, count - 1, max(2, count // 2)]))
    bounds = draw(st.sampled_from(BOUNDS))
    # a treated series must be finite, so of numbers that the dtype has
    dtype = draw(st.sampled_from(DTYPES if abs(bounds[0]) < 1e30 else ("float64", "Float64")))
    grid = values(draw(st.sampled_from(PROFILES)), (n, count), bounds, rng)
    # the treated series is public: finite, and of a size that can be squared
    grid[:treated] = values("uniform", (treated, count), bounds, rng)
    with np.errstate(all="ignore"):
        if dtype == "bool":
            grid = (grid > bounds[0] + (bounds[1] - bounds[0]) / 2).astype(float)
        elif dtype.lower().startswith("int"):
            limit = 2.0**14 if dtype == "int16" else 2.0**52
            grid = np.clip(np.nan_to_num(np.rint(grid)), -limit, limit)
        else:
            grid = grid.astype(dtype.lower()).astype(float)
    # no zero has a sign, which integers would lose
    grid = grid + 0.0
    method = draw(st.sampled_from(METHODS))
    options: dict[str, Any] = {"method": method}
    options["delta"] = draw(st.sampled_from([0.0, 0.0, 1e-12, 1e-6, 0.1]))
    if draw(st.integers(0, 7)) > 0:
        options["bounds"] = bounds
    if method in ("output", "objective"):
        options["penalty"] = draw(st.sampled_from([None, None, 1e-3, 1.0, 1e6]))
        options["project"] = draw(st.booleans())
        options["release"] = draw(st.sampled_from(["projection", "projection", "matrix"]))
        options["target_norm"] = draw(st.sampled_from(["own", "own", "bound"]))
    units, unit_dtype = labels(draw(st.sampled_from(UNITS)), n, rng)
    wide = draw(st.booleans())
    return PanelInput(
        grid,
        units,
        periods(draw(st.sampled_from(TIMES)), count),
        unit_dtype,
        dtype,
        wide,
        treated,
        not wide and draw(st.booleans()),
        before,
        draw(st.integers(0, 2**16)),
        draw(st.booleans()),
        draw(
            st.sampled_from([1e-9, 1e-3, 0.5, 1.0, 40.0, 1e6])
            | st.floats(1e-9, 1e6, allow_nan=False)
        ),
        options,
        draw(st.integers(0, 2**16)),
    )


# ------------------------------------------------------------------------ what must not matter


def reordered(case: PanelInput, rng: np.random.Generator) -> PanelInput:
    """Rows, columns and index in another order."""
    return replace(case, order=case.order + 1)


def without_decoys(case: PanelInput, rng: np.random.Generator) -> PanelInput:
    return replace(case, decoys=not case.decoys)


def other_form(case: PanelInput, rng: np.random.Generator) -> PanelInput | None:
    """The same panel long instead of wide."""
    if "bounds" not in case.options or (case.marked and case.treated > 1):
        # the search for bounds is told the name of the column; marked units come sorted
        return None
    return replace(case, wide=not case.wide, marked=False)


def retyped(case: PanelInput, rng: np.random.Generator) -> PanelInput | None:
    for dtype in rng.permutation(["float64", "float32", "Float64", "Int64", "int64"]):
        with np.errstate(all="ignore"):
            kept = case.grid.astype(str(dtype).lower() if dtype != "Int64" else "int64")
        if str(dtype) != case.dtype and np.array_equal(kept.astype(float), case.grid):
            return replace(case, dtype=str(dtype))
    return None


def renumbered(case: PanelInput, rng: np.random.Generator) -> PanelInput | None:
    """Units under other labels, in the same order."""
    try:
        ranks = np.argsort(np.argsort(np.array(case.units, dtype=object), kind="stable"))
    except TypeError:
        return None
    return replace(case, units=[f"renamed {i:05d}" for i in ranks], unit_dtype=None)


def beyond_the_bound(case: PanelInput, rng: np.random.Generator) -> Any:
    """A donor's value at a bound, and far beyond it."""
    if "bounds" not in case.options or case.dtype != "float64":
        return None
    low, high = case.options["bounds"]
    row = int(rng.integers(case.treated, len(case.grid)))
    column = int(rng.integers(case.grid.shape[1]))
    up = bool(rng.integers(2))
    far = [np.inf, 1.7e308, high + (high - low)] if up else [-np.inf, -1e300, low - (high - low)]
    pair = []
    for value in (high if up else low, far[int(rng.integers(3))]):
        grid = case.grid.copy()
        grid[row, column] = value
        pair.append(replace(case, grid=grid))
    return tuple(pair)


def shifted(case: PanelInput, rng: np.random.Generator) -> Any:
    """Outcome and bounds moved by a power of two, on a grid where that is exact."""
    bounds = case.options.get("bounds")
    exact = ((-1.0, 1.0), (-5.0, 8.0), (0.0, 400.0), (0.0, 1.0), (3000.0, 4000.0))
    if bounds not in exact or case.dtype == "bool":
        return None
    first = replace(case, grid=np.round(np.clip(case.grid, -1e4, 1e4) * 64) / 64, dtype="float64")
    by = float(2 ** int(rng.integers(3, 20))) * float(rng.choice([-1, 1]))
    options = {**case.options, "bounds": (bounds[0] + by, bounds[1] + by)}
    return first, replace(first, grid=first.grid + by, options=options)


CHANGES: dict[str, Callable[..., Any]] = {
    "row and unit order": reordered,
    "decoys": without_decoys,
    "long or wide": other_form,
    "dtype": retyped,
    "labels": renumbered,
    "clipping": beyond_the_bound,
    "location": shifted,
}


def one_donor_replaced(case: PanelInput, rng: np.random.Generator) -> PanelInput:
    """A neighbour: one donor with another series, as far as the dtype has such numbers."""
    grid = case.grid.copy()
    series = rng.choice(EXTREMES, grid.shape[1])
    if case.dtype == "bool":
        series = (series > 0).astype(float)
    elif case.dtype.lower().startswith("int"):
        series = np.clip(np.nan_to_num(series), -(2.0**14), 2.0**14) // 1
    elif "32" in case.dtype:
        with np.errstate(all="ignore"):
            series = series.astype(np.float32).astype(float)
    grid[int(rng.integers(case.treated, len(grid)))] = series
    return replace(case, grid=grid)
