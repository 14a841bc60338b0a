"""Factor loadings from a noisy sum of outer products, and scores from loadings.

The noise is that of `Mechanisms.gram_rounds`: symmetric Gaussian, or the difference of two Wishart
matrices (`pure`). Everything here is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dpstats.privacy.noise import FloatArray

__all__ = [
    "WISHART_EDGE",
    "Fit",
    "decompose",
    "edge_of",
    "entry_sd_of",
    "noise_matrices",
    "noise_weights",
    "score_map",
    "score_root",
    "without_constant",
]

# the edge of the spectrum of a difference of two square Wishart matrices is this times its size
WISHART_EDGE = 3.33
# beside larger numbers the identity is lost in rounding
_LARGEST_INNER = 1e10


@dataclass(frozen=True, slots=True)
class Fit:
    """Loadings behind a released matrix; a leading axis where there are several.

    Attributes
    ----------
    bulk : ndarray
        tau: the level of the eigenvalues that no direction explains.
    edge : ndarray
        e: below it an eigenvalue is taken for noise.
    eigenvalues, strengths, vectors : ndarray
        w, eta (shrunk, zero below the edge) and V.
    loadings : ndarray
        L, shape (..., Q, Q); columns of directions that were not found are zero.
    """

    bulk: FloatArray
    edge: FloatArray
    eigenvalues: FloatArray
    strengths: FloatArray
    vectors: FloatArray
    loadings: FloatArray


def entry_sd_of(size: int, level: float, pure: bool) -> float:
    """Return the noise sd of an off-diagonal entry."""
    return math.sqrt(2.0 * (size + 1.0)) / level if pure else 1.0 / level


def edge_of(size: int, level: float, pure: bool) -> float:
    """Return the largest eigenvalue that noise alone has, in the limit of a large matrix."""
    return (WISHART_EDGE * (size + 0.5) if pure else 2.0 * math.sqrt(size)) / level


def decompose(matrix: FloatArray, metric: FloatArray, edge: float, n: int) -> Fit:
    """Find the directions above the noise.

    Parameters
    ----------
    matrix : ndarray
        Shape (..., Q, Q): noisy sums in the coordinates of `metric`.
    metric : ndarray
        Shape (Q, Q): rows were normalised as M a, a with the constant first.
    edge : float
        Of the noise.
    n : int
        Rows behind a sum.
    """
    size = matrix.shape[-1]
    bulk, limit = _bulk(np.asarray(np.linalg.eigvalsh(matrix), dtype=np.float64), edge, n)
    floor = metric @ without_constant(size) @ metric
    w, vectors = np.linalg.eigh(matrix - bulk[..., None, None] * floor)
    e = limit[..., None]
    # without noise and with an exact factor model the edge is zero up to rounding
    found = w > np.maximum(e, 1e-12 * n)
    strengths = np.where(found, np.sqrt(np.maximum(w * w - e * e, 0.0)), 0.0)
    loadings = np.linalg.solve(metric, vectors * np.sqrt(strengths)[..., None, :])
    return Fit(bulk, limit, w, strengths, vectors, loadings)


def _bulk(values: FloatArray, edge: float, n: int) -> tuple[FloatArray, FloatArray]:
    """Return tau and e from ascending eigenvalues, shape (..., Q)."""
    size = values.shape[-1]
    level = np.median(values, axis=-1)
    limit = level
    for _ in range(100):
        limit = np.sqrt(edge**2 + 4.0 * size * np.maximum(level, 0.0) ** 2 / n)
        below = values <= (level + limit)[..., None]
        count = below.sum(axis=-1)
        mean = np.where(below, values, 0.0).sum(axis=-1) / np.maximum(count, 1)
        moved = np.where(count > 0, mean, values[..., 0])
        done = np.abs(moved - level) <= 1e-9 * np.maximum(np.abs(level), 1e-9)
        if np.all(done):
            break
        level = np.where(done, level, moved)
    return np.maximum(level, 0.0), limit


def without_constant(size: int) -> FloatArray:
    """Return J, the identity but for a zero at the constant."""
    j = np.eye(size)
    j[0, 0] = 0.0
    return j


def noise_weights(bulk: FloatArray, entry_sd: float, n: int, size: int) -> FloatArray:
    """Return the diagonal of D, shape (..., size): what a coordinate holds besides directions."""
    sd = np.maximum(entry_sd, np.maximum(bulk / n, 1e-9 * n))
    weights = np.repeat((bulk + sd)[..., None], size, axis=-1)
    weights[..., 0] = sd
    return weights


def score_map(upper: FloatArray, weights: FloatArray) -> FloatArray:
    """Return H, shape (..., Q, size): scores are H times the coordinates."""
    scaled = np.swapaxes(upper, -1, -2) / weights[..., None, :]
    inner = scaled @ upper
    if float(np.abs(inner).max(initial=0.0)) < _LARGEST_INNER:
        return np.asarray(np.linalg.solve(np.eye(upper.shape[-1]) + inner, scaled))
    # weights so small (no noise) that adding the identity changes no digit
    u, s, vt = _whitened(upper, weights)
    size = s.shape[-1]
    shrunk = np.swapaxes(vt[..., :size, :], -1, -2) * (s / (1.0 + s * s))[..., None, :]
    return np.asarray(
        shrunk @ (np.swapaxes(u[..., :size], -1, -2) / np.sqrt(weights)[..., None, :])
    )


def score_root(upper: FloatArray, weights: FloatArray) -> FloatArray:
    """Return a root of the variance of scores given coordinates, shape (Q, Q)."""
    size = upper.shape[1]
    inner = (upper.T / weights) @ upper
    if float(np.abs(inner).max(initial=0.0)) < _LARGEST_INNER:
        return np.linalg.cholesky(np.linalg.inv(np.eye(size) + inner))
    _, s, vt = _whitened(upper, weights)
    spread = np.zeros(size)
    spread[: s.size] = s
    return np.asarray(vt.T / np.sqrt(1.0 + spread**2))


def _whitened(upper: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the singular values of D^(-1/2) A, those of rounding errors alone as zeros."""
    u, s, vt = np.linalg.svd(upper / np.sqrt(weights)[..., None])
    rounding = 1e-13 * s.max(axis=-1, keepdims=True, initial=0.0)
    return u, np.where(s > rounding, s, 0.0), vt


def noise_matrices(
    size: int, level: float, pure: bool, draws: int, rng: np.random.Generator
) -> FloatArray:
    """Draw noise as it was released, for a bootstrap, shape (draws, size, size)."""
    if pure:
        first, second = rng.standard_normal((2, draws, size, size + 1))
        return np.asarray((first @ first.swapaxes(1, 2) - second @ second.swapaxes(1, 2)) / level)
    half = np.triu(rng.standard_normal((draws, size, size)), 1)
    diagonal = math.sqrt(2.0) * rng.standard_normal((draws, size))
    return (half + half.swapaxes(1, 2) + diagonal[:, :, None] * np.eye(size)) / level
