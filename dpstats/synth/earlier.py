"""Errors of a placebo in time: the same release, with an intervention that came earlier."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpstats.synth.kernels.base import Errors
from dpstats.synth.kernels.did import DidReleased
from dpstats.synth.kernels.loadings import score_map, score_root
from dpstats.synth.kernels.moments import _HIDDEN, _INFLATION, _RELEASES, _SURE, MomentsReleased
from dpstats.synth.kernels.paths import Residuals, cosines, persistence

if TYPE_CHECKING:
    from dpstats.privacy.noise import FloatArray
    from dpstats.synth.kernels.base import Released
    from dpstats.synth.kernels.loadings import Fit

__all__ = ["placebo_errors"]


def placebo_errors(
    released: Released, target: FloatArray, pre_periods: int, draws: int, rng: np.random.Generator
) -> Errors:
    """Simulate errors of a placebo for one target, over sampling and privacy noise.

    Parameters
    ----------
    released : Released
        Of a method whose placebo in time is free.
    target : ndarray
        Shape (T,), scaled. Periods after the true intervention are not read.
    pre_periods : int
        Periods up to the pretended intervention.
    draws : int
    rng : Generator

    Returns
    -------
    Errors
        From the pretended intervention to the true one.

    Notes
    -----
    As the kernels' own `errors`. "did" is the same method with fewer periods before. "moments"
    predicts from the same loadings, on fewer periods: the world is the released factor model, the
    target's scores and residuals are drawn around what its first periods show, the second release
    is drawn anew, and errors are inflated by what the release holds of directions that fell below
    the edge.
    """
    if isinstance(released, DidReleased):
        later = replace(released, pre_periods=pre_periods)
        span = released.pre_periods - pre_periods
        periods = later.errors(target, draws, rng, "both").periods[:, :span]
        return Errors(periods, periods.mean(axis=1))
    if isinstance(released, MomentsReleased):
        return _of_moments(released, target[: released.pre_periods], pre_periods, draws, rng)
    raise TypeError(type(released).__name__)


@dataclass(frozen=True, slots=True)
class _View:
    """Loadings as the pretended intervention sees them; a leading axis where there are several.

    Attributes
    ----------
    lines : ndarray
        Shape (..., T0, Q): loadings up to the true intervention, less their means over the
        periods before the pretended one.
    upper, solution : ndarray
        Shapes (..., p, Q) and (..., Q, p): of the coordinates of p periods.
    weights : ndarray
        Shape (..., p): what a coordinate holds besides directions.
    """

    lines: FloatArray
    upper: FloatArray
    solution: FloatArray
    weights: FloatArray


def _view(released: MomentsReleased, fit: Fit, before: int) -> _View:
    lines = released._lines(fit.loadings)[..., : released.pre_periods, :]
    lines = lines - lines[..., :before, :].mean(axis=-2, keepdims=True)
    basis = cosines(before, before - 1, constant=False)
    upper = np.concatenate([fit.loadings[..., :1, :], basis.T @ lines[..., :before, :]], axis=-2)
    weights = released._weights(fit.bulk, before)
    return _View(lines, upper, score_map(upper, weights), weights)


def _of_moments(
    released: MomentsReleased,
    target: FloatArray,
    before: int,
    draws: int,
    rng: np.random.Generator,
) -> Errors:
    fit = released._fit()
    view = _view(released, fit, before)
    start = target[None, :before]
    scores = _coordinates(released, start) @ view.solution.T
    residuals = (start - start.mean() - scores @ view.lines[:before].T)[0]
    fitted = float(np.trace(view.solution @ view.upper))
    hidden = _hidden(released, residuals, fitted)
    model = Residuals.of(residuals, released.pre_periods, fitted, hidden)
    spread = model.spread(draws, rng)
    sd = math.sqrt(model.variance / view.weights[-1])
    root = score_root(view.upper, view.weights)
    normals = rng.standard_normal((draws, len(root)))
    scores = scores + sd * spread[:, None] * (normals @ root.T)
    drawn = scores @ view.lines.T + model.draw(spread, rng)
    again = released._released_again(fit, min(draws, _RELEASES), rng)
    found = _predicted(released, _view(released, again, before), drawn[:, :before])
    errors = found - drawn[:, before:]
    every, mean_only = _inflation(released, fit, view, before)
    return Errors(every * errors, mean_only * errors.mean(axis=1))


def _coordinates(released: MomentsReleased, before: FloatArray) -> FloatArray:
    """Return coordinates of series of p periods, the public constant first, shape (g, p)."""
    size = before.shape[1]
    centred = before - before.mean(axis=1, keepdims=True)
    inner = centred @ cosines(size, size - 1, constant=False)
    return np.concatenate([np.full((len(before), 1), released.constant), inner], axis=1)


def _predicted(released: MomentsReleased, view: _View, before: FloatArray) -> FloatArray:
    """Predict drawn targets from the releases in turn, up to the true intervention."""
    draws, size = before.shape
    linear = view.lines @ view.solution
    linear = linear if linear.ndim == 3 else linear[None]
    coordinates = _coordinates(released, before)
    path = np.empty((draws, released.pre_periods))
    for i, one in enumerate(linear):
        path[i :: len(linear)] = coordinates[i :: len(linear)] @ one.T
    path += before.mean(axis=1, keepdims=True)
    residuals = before - path[:, :size]
    ahead = np.arange(1, released.pre_periods - size + 1)
    return np.asarray(path[:, size:] + residuals[:, -1:] * persistence(residuals)[:, None] ** ahead)


def _hidden(released: MomentsReleased, residuals: FloatArray, fitted: float) -> float:
    """Return the degrees of freedom that residuals lack outside the paths of the release."""
    size = residuals.size
    paths = released.basis[:size] - released.basis[:size].mean(axis=0)
    u, s, _ = np.linalg.svd(paths, full_matrices=False)
    inside = u[:, s > 1e-9 * s.max(initial=0.0)]
    outside = min(released.pre_cosines, size - 1) - inside.shape[1]
    inner = float(np.sum((inside.T @ residuals) ** 2))
    within = inner / max(inside.shape[1] - fitted, 1.0)
    if released.pre_cosines == released.pre_basis or outside <= 0 or within == 0.0:
        return 0.0
    every = cosines(size, min(released.pre_cosines, size - 1), constant=False).T @ residuals
    noise = max(float(every @ every) - inner, 0.0) / outside
    return _HIDDEN * outside * (1.0 - min(1.0, noise / within))


def _inflation(
    released: MomentsReleased, fit: Fit, view: _View, before: int
) -> tuple[float, float]:
    """Return the factors for what fell below the edge: of periods and of their mean."""
    if released.exact:
        return 1.0, 1.0
    size = len(released.matrix)
    # series up to the true intervention as functions of the release's coordinates
    series = np.zeros((released.pre_periods, size))
    series[:, 1 : 1 + released.pre_basis] = released.basis
    series -= series[:before].mean(axis=0)
    basis = cosines(before, before - 1, constant=False)
    seen = np.vstack([np.eye(1, size), basis.T @ series[:before]])
    fitted = view.solution @ seen
    own = seen[1:] - view.upper[1:] @ fitted
    rest = series[before:] - view.lines[before:] @ fitted
    shown = max(1.0, released._ratio(fit, own, -_SURE))
    every, mean_only = (
        math.sqrt(max(1.0, released._ratio(fit, rows, _INFLATION) / shown))
        for rows in (rest, rest.mean(axis=0)[None])
    )
    return every, mean_only
