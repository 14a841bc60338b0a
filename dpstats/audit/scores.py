"""Scores: numbers computed from one release that tell two neighbours apart.

Each is learned on runs that are used for nothing else. A score that tells nothing costs nothing:
one event is chosen among all of them before any run is judged.

=========================  =====================================================================
score                      what it catches
=========================  =====================================================================
value                      too little noise on a number, or none
linear                     any combination of numbers; with a ridge of 1e-10 also one whose noise
                           cancels (the same draw added to every number)
l1, l2, linf distances     the likelihood ratio of Laplace and K-norm noise of equal scales
distance to a centre       a radius of the wrong law
quadratic                  noise whose size or correlation depends on the data
density ratio              anything about one number (bins); added up, the likelihood ratio of
                           independent noise
neighbours                 anything in a few dimensions, by the distances to the k nearest runs
atoms                      values, or whole vectors, that come again and again
lowest bit                 floating-point noise that is finer under one neighbour
=========================  =====================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from dpstats.audit.bounds import FloatArray

__all__ = ["Score", "fit_scores"]

Function: TypeAlias = Callable[[FloatArray], FloatArray]

_RIDGES = (1e-10, 1e-2, 1.0)
_DECIMALS = 9
# squares of what is larger overflow
_HUGE = 1e150
# single numbers that are looked at one by one; of a longer vector those that differ most
_SINGLE = 40
_NEIGHBOUR_DIMENSIONS = 12
_NEIGHBOUR_RUNS = 4000
_NEAREST = 10.0**-_DECIMALS


@dataclass(frozen=True, slots=True)
class Score:
    """A function of runs, shape (runs, numbers) to (runs,), and what it is called."""

    name: str
    of: Function

    def __call__(self, runs: FloatArray) -> FloatArray:
        """Return finite scores."""
        return np.nan_to_num(self.of(runs), nan=0.0, posinf=1e300, neginf=-1e300)


def fit_scores(first: FloatArray, second: FloatArray, *, bits: bool) -> list[Score]:
    """Learn scores from runs on two neighbours.

    Parameters
    ----------
    first, second : ndarray
        Shape (runs, numbers), of any values.
    bits : bool
        Whether to score the lowest bits.
    """
    finite = _Finite.of(first, second)
    found = _fit(finite(first), finite(second), finite.names, bits)
    return [Score(score.name, _after(finite, score.of)) for score in found]


def _fit(first: FloatArray, second: FloatArray, names: tuple[str, ...], bits: bool) -> list[Score]:
    picked = {j: names[j] for j in _most_different(first, second)}
    scores = [Score(name, _column(j)) for j, name in picked.items()]
    scores += _atoms(first, second, picked)
    if bits:
        scores += [Score(f"lowest bit of {name}", _lowest_bit(j)) for j, name in picked.items()]
    scores += _binned(first, second, picked)
    scale = _Scale.of(first, second)
    one, two = scale(first), scale(second)
    found = list(_neighbours(one, two))
    if first.shape[1] > 1:
        found = [*_linear(one, two), *_distances(one, two), *_quadratic(one, two), *found]
    return scores + [Score(score.name, _rounded(_after(scale, score.of))) for score in found]


def _rounded(function: Function) -> Function:
    """Round scores of standardised runs: their last bits tell of arithmetic, not of a release."""
    return lambda runs: np.round(function(runs), _DECIMALS)


@dataclass(frozen=True, slots=True)
class _Finite:
    """Puts 0 where a number is not finite, and a number beside it that says so."""

    numbers: int
    marked: tuple[int, ...]

    @classmethod
    def of(cls, first: FloatArray, second: FloatArray) -> _Finite:
        odd = ~(np.isfinite(first).all(axis=0) & np.isfinite(second).all(axis=0))
        return cls(first.shape[1], tuple(int(j) for j in np.flatnonzero(odd)))

    @property
    def names(self) -> tuple[str, ...]:
        """What the numbers are called."""
        values = tuple(f"value {j + 1}" for j in range(self.numbers))
        return values + tuple(f"not finite, value {j + 1}" for j in self.marked)

    def __call__(self, runs: FloatArray) -> FloatArray:
        known = np.clip(np.nan_to_num(runs, nan=0.0, posinf=0.0, neginf=0.0), -_HUGE, _HUGE)
        marked = runs[:, self.marked]
        kind = np.select([np.isnan(marked), marked == np.inf, marked == -np.inf], [1.0, 2.0, 3.0])
        return np.concatenate([known, kind], axis=1)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Centre and spread of each number, by quantiles within a data set."""

    middle: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, first: FloatArray, second: FloatArray) -> _Scale:
        middles = np.median(first, axis=0), np.median(second, axis=0)
        within = np.concatenate([first - middles[0], second - middles[1]])
        spread = np.subtract(*np.quantile(within, [0.75, 0.25], axis=0)) / 1.35
        # a number with atoms may have no quartiles, an exact one no spread at all
        spread = np.where(spread > 0.0, spread, within.std(axis=0))
        spread = np.where(spread > 0.0, spread, np.abs(middles[0] - middles[1]))
        return cls((middles[0] + middles[1]) / 2.0, np.where(spread > 0.0, spread, 1.0))

    def __call__(self, runs: FloatArray) -> FloatArray:
        return np.clip((runs - self.middle) / self.spread, -1e12, 1e12)


def _after(scale: Function, function: Function) -> Function:
    return lambda runs: function(scale(runs))


def _column(j: int) -> Function:
    return lambda runs: runs[:, j]


def _most_different(first: FloatArray, second: FloatArray) -> list[int]:
    """Return which numbers to look at one by one, by the largest gap of their distributions."""
    if first.shape[1] <= _SINGLE:
        return list(range(first.shape[1]))
    gaps = []
    for a, b in zip(np.sort(first, axis=0).T, np.sort(second, axis=0).T, strict=True):
        at = np.concatenate([a, b])
        below = np.searchsorted(a, at, "right") / a.size - np.searchsorted(b, at, "right") / b.size
        gaps.append(np.abs(below).max())
    return sorted(int(j) for j in np.argsort(gaps)[-_SINGLE:])


def _atoms(first: FloatArray, second: FloatArray, picked: Mapping[int, str]) -> Iterator[Score]:
    """Log ratios of the counts of values that were seen before; 0 for a new one."""
    for j, name in picked.items():
        table = _AtomTable.of(first[:, j], second[:, j])
        if table is not None:
            yield Score(f"atoms of {name}", _chain(_column(j), table))
    if first.shape[1] > 1:
        table = _AtomTable.of(_packed(first), _packed(second))
        if table is not None:
            yield Score("atoms of the vector", _chain(_packed, table))


def _chain(inner: Callable[[FloatArray], np.ndarray], outer: Callable[..., FloatArray]) -> Function:
    return lambda runs: outer(inner(runs))


def _packed(runs: FloatArray) -> np.ndarray:
    """Return each run as one opaque value; adding zero makes the two zeros one."""
    rows = np.ascontiguousarray(runs + 0.0)
    return rows.view(f"V{rows.shape[1] * rows.itemsize}").ravel()


@dataclass(frozen=True, slots=True)
class _AtomTable:
    known: np.ndarray
    ratio: FloatArray

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray) -> _AtomTable | None:
        known, place = np.unique(np.concatenate([first, second]), return_inverse=True)
        if known.size == first.size + second.size:
            return None
        counts = np.stack(
            [
                np.bincount(part, minlength=known.size)
                for part in (place[: first.size], place[first.size :])
            ]
        )
        share = (counts + 0.5) / (np.array([[first.size], [second.size]]) + 1.0)
        # a value seen once is no atom
        ratio = np.where(counts.sum(axis=0) > 1, np.log(share[0] / share[1]), 0.0)
        return cls(known, ratio)

    def __call__(self, values: np.ndarray) -> FloatArray:
        place = np.minimum(np.searchsorted(self.known, values), self.known.size - 1)
        return np.where(self.known[place] == values, self.ratio[place], 0.0)


def _lowest_bit(j: int) -> Function:
    """Return the exponent of the last bit that is set: rounding leaves its mark there."""

    def of(runs: FloatArray) -> FloatArray:
        mantissa, exponent = np.frexp(runs[:, j])
        whole = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
        trailing = np.log2(np.maximum(whole & -whole, 1).astype(np.float64))
        return np.where(whole > 0, exponent - 53 + trailing, 1100.0)

    return of


def _binned(first: FloatArray, second: FloatArray, picked: Mapping[int, str]) -> list[Score]:
    """Log density ratios in bins of equal content, number by number and added up."""
    bins = int(np.clip(math.sqrt(first.shape[0]), 4, 64))
    tables = []
    for j in picked:
        both = np.concatenate([first[:, j], second[:, j]])
        edges = np.unique(np.quantile(both, np.arange(1, bins) / bins, method="inverted_cdf"))
        counts = np.stack(
            [
                np.bincount(np.searchsorted(edges, part[:, j]), minlength=edges.size + 1)
                for part in (first, second)
            ]
        )
        share = (counts + 1.0) / (np.array([[first.shape[0]], [second.shape[0]]]) + edges.size + 1)
        tables.append((j, edges, np.log(share[0] / share[1])))

    def ratio(j: int, edges: FloatArray, table: FloatArray) -> Function:
        return lambda runs: table[np.searchsorted(edges, runs[:, j])]

    functions = [ratio(*table) for table in tables]
    scores = [
        Score(f"density ratio of {name}", function)
        for name, function in zip(picked.values(), functions, strict=True)
    ]
    if len(functions) > 1:
        scores.append(
            Score(
                "density ratios of the values, added",
                lambda runs: np.asarray(sum(function(runs) for function in functions)),
            )
        )
    return scores


def _linear(one: FloatArray, two: FloatArray) -> Iterator[Score]:
    """Directions (S + r I)^-1 (m1 - m2) with S the covariance within a data set.

    A small r finds a combination in which the noise cancels.
    """
    gap = one.mean(axis=0) - two.mean(axis=0)
    values, vectors = np.linalg.eigh(_covariance(one) + _covariance(two))
    values = np.maximum(values, 0.0)
    size = float(values.mean()) or 1.0
    for ridge in _RIDGES:
        direction = vectors @ ((vectors.T @ gap) / (values + ridge * size))
        length = float(np.linalg.norm(direction)) or 1.0
        yield Score(f"linear combination (ridge {ridge:g})", _along(direction / length))


def _along(direction: FloatArray) -> Function:
    return lambda runs: np.asarray(runs @ direction)


def _covariance(runs: FloatArray) -> FloatArray:
    centred = runs - runs.mean(axis=0)
    return np.asarray(centred.T @ centred / max(len(runs) - 1, 1))


def _distances(one: FloatArray, two: FloatArray) -> Iterator[Score]:
    """Nearer to which centre, and how near to each."""
    middles = np.median(one, axis=0), np.median(two, axis=0)
    centres = _geometric_median(one), _geometric_median(two)
    for name, order, (a, b) in (
        ("l1", 1, middles),
        ("l2", 2, centres),
        ("linf", math.inf, middles),
    ):
        yield Score(f"{name} distance, second less first", _nearer(a, b, order))
    for which, centre in zip(("first", "second"), centres, strict=True):
        yield Score(f"l2 distance from the {which} centre", _distance(centre, 2))


def _distance(centre: FloatArray, order: float) -> Function:
    return lambda runs: np.asarray(np.linalg.norm(runs - centre, ord=order, axis=1))


def _nearer(one: FloatArray, two: FloatArray, order: float) -> Function:
    return _difference(_distance(two, order), _distance(one, order))


def _geometric_median(runs: FloatArray) -> FloatArray:
    """Return the point of least summed distance (Weiszfeld): exact where the law has a spike."""
    centre = np.median(runs, axis=0)
    for _ in range(30):
        weight = 1.0 / np.maximum(np.linalg.norm(runs - centre, axis=1), 1e-12)
        centre = weight @ runs / weight.sum()
    return np.asarray(centre)


def _quadratic(one: FloatArray, two: FloatArray) -> Iterator[Score]:
    """Log ratio of normal densities with covariances of their own."""
    if min(len(one), len(two)) < 5 * one.shape[1]:
        return
    for ridge in (1e-9, 1e-2):
        score = _difference(_normal(one, ridge), _normal(two, ridge))
        yield Score(f"quadratic form (ridge {ridge:g})", score)


def _difference(one: Function, two: Function) -> Function:
    return lambda runs: one(runs) - two(runs)


def _normal(runs: FloatArray, ridge: float) -> Function:
    mean = runs.mean(axis=0)
    values, vectors = np.linalg.eigh(_covariance(runs))
    values = np.maximum(values, 0.0) + ridge

    def of(points: FloatArray) -> FloatArray:
        along = (points - mean) @ vectors
        return np.asarray(-0.5 * (along * along / values).sum(axis=1) - 0.5 * np.log(values).sum())

    return of


def _neighbours(one: FloatArray, two: FloatArray) -> Iterator[Score]:
    """Log ratio of the distances to the k-th nearest run on either data set."""
    dimensions = one.shape[1]
    if dimensions > _NEIGHBOUR_DIMENSIONS:
        return
    from scipy.spatial import KDTree

    size = min(len(one), len(two), _NEIGHBOUR_RUNS)
    trees = KDTree(one[:size]), KDTree(two[:size])
    for k in sorted({min(3, size), min(int(math.sqrt(size)), 30)}):

        def of(runs: FloatArray, k: int = k) -> FloatArray:
            near, far = (np.atleast_2d(tree.query(runs, [k])[0].T)[0] for tree in trees)
            return np.log(np.maximum(far, _NEAREST)) - np.log(np.maximum(near, _NEAREST))

        yield Score(f"distances to the {k} nearest runs", of)
