"""Penalised, perturbed logistic regression as sums over rows.

Every pass adds up gradients and Hessians of blocks of rows, so partitions of a file can be added
up in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from dpstats.privacy.noise import FloatArray

__all__ = ["Minimum", "minimise", "row_scales", "sigmoid_of"]

_BLOCK = 16384
_SUBSAMPLE = 24576
_MAX_PASSES = 200


@dataclass(frozen=True, slots=True)
class Minimum:
    """Where the minimisation ended.

    Attributes
    ----------
    coefficients : ndarray
        Shape (d,).
    gradient_norm : float
        Euclidean norm of the gradient there, in the units of a sum over rows.
    """

    coefficients: FloatArray
    gradient_norm: float


def row_scales(design: FloatArray, row_norm: float | None) -> FloatArray | None:
    """Return min(1, R / ||x_i||) / R for each row: scaled rows have norm at most one.

    Parameters
    ----------
    design : ndarray
        Shape (n, d).
    row_norm : float or None
        R; None leaves rows as they are.
    """
    if row_norm is None:
        return None
    scales = np.empty(design.shape[0])
    for rows in _blocks(design.shape[0]):
        norms = np.sqrt(np.einsum("ij,ij->i", design[rows], design[rows]))
        scales[rows] = 1.0 / np.maximum(norms, row_norm)
    return scales


def sigmoid_of(design: FloatArray, scales: FloatArray | None, coef: FloatArray) -> FloatArray:
    """Return the fitted probabilities, shape (n,)."""
    fitted = np.empty(design.shape[0])
    for rows in _blocks(design.shape[0]):
        fitted[rows] = _probabilities(design[rows] @ coef, scales, rows)
    return fitted


def minimise(
    design: FloatArray,
    treated: NDArray[np.bool_] | FloatArray,
    scales: FloatArray | None,
    *,
    penalty: float,
    linear: FloatArray,
    tolerance: float,
) -> Minimum:
    """Minimise sum log(1 + exp(-s_i x_i'w)) + penalty ||w||^2 / 2 + linear'w, s_i = 2 W_i - 1.

    Parameters
    ----------
    design : ndarray
        Shape (n, d).
    treated : ndarray of bool, or of shares
        Shape (n,). Shares in [0, 1] give the expected objective (for planning).
    scales : ndarray or None
        Factors of the rows, from `row_scales`.
    penalty : float
        Not per row.
    linear : ndarray
        Shape (d,): the noise of a perturbed objective.
    tolerance : float
        Absolute norm of the gradient at which to stop.

    Returns
    -------
    Minimum
        It may miss the tolerance (a flat or separated objective); that is the caller's to handle.

    Notes
    -----
    Newton's method. A large file starts from the minimum over evenly spaced rows, after which the
    Hessian is kept as long as a step with it cuts the gradient tenfold.
    """
    n, d = design.shape
    start = np.zeros(d)
    if n > 4 * _SUBSAMPLE:
        step = n // _SUBSAMPLE
        part = slice(None, step * _SUBSAMPLE, step)
        weight = _SUBSAMPLE / n
        start = _newton(
            _Sums(
                np.asfortranarray(design[part]),
                treated[part],
                None if scales is None else scales[part],
            ),
            start,
            penalty * weight,
            linear * weight,
            1e-6 * _SUBSAMPLE,
        ).coefficients
    return _newton(_Sums(design, treated, scales), start, penalty, linear, tolerance)


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over the rows of one partition."""

    design: FloatArray
    treated: NDArray[np.bool_] | FloatArray
    scales: FloatArray | None

    def gradient(self, coef: FloatArray) -> FloatArray:
        total = np.zeros(coef.size)
        for rows in _blocks(self.design.shape[0]):
            total += self.design[rows].T @ self._residual(coef, rows)[0]
        return total

    def gradient_and_hessian(self, coef: FloatArray) -> tuple[FloatArray, FloatArray]:
        total, curvature = np.zeros(coef.size), np.zeros((coef.size, coef.size))
        for rows in _blocks(self.design.shape[0]):
            block = self.design[rows]
            residual, fitted = self._residual(coef, rows)
            total += block.T @ residual
            weights = np.sqrt(fitted * (1.0 - fitted))
            if self.scales is not None:
                weights *= self.scales[rows]
            weighted = block * weights[:, None]
            curvature += weighted.T @ weighted
        return total, curvature

    def _residual(self, coef: FloatArray, rows: slice) -> tuple[FloatArray, FloatArray]:
        fitted = _probabilities(self.design[rows] @ coef, self.scales, rows)
        residual = fitted - self.treated[rows]
        if self.scales is not None:
            residual *= self.scales[rows]
        return residual, fitted


def _newton(
    sums: _Sums, coef: FloatArray, penalty: float, linear: FloatArray, tolerance: float
) -> Minimum:
    ridge = penalty * np.eye(coef.size)
    gradient, curvature = sums.gradient_and_hessian(coef)
    gradient += penalty * coef + linear
    norm = float(np.linalg.norm(gradient))
    fresh = True
    for _ in range(_MAX_PASSES):
        if norm <= tolerance:
            break
        step = -_solve(curvature + ridge, gradient)
        slope = float(gradient @ step)
        length = 1.0
        trial, trial_gradient = _at(sums, coef + step, penalty, linear)
        # a convex function has been overshot where it rises along the step
        while float(trial_gradient @ step) > -0.1 * slope and length > 1e-10 and fresh:
            length /= 2.0
            trial, trial_gradient = _at(sums, coef + length * step, penalty, linear)
        trial_norm = float(np.linalg.norm(trial_gradient))
        if not fresh and trial_norm > 0.1 * norm:
            if trial_norm < norm:
                coef = trial
            gradient, curvature = sums.gradient_and_hessian(coef)
            gradient += penalty * coef + linear
            norm, fresh = float(np.linalg.norm(gradient)), True
            continue
        slow = trial_norm > 0.1 * norm
        stuck = bool(np.array_equal(trial, coef))
        coef, gradient, norm, fresh = trial, trial_gradient, trial_norm, False
        if stuck:
            break
        if slow and norm > tolerance:
            gradient, curvature = sums.gradient_and_hessian(coef)
            gradient += penalty * coef + linear
            fresh = True
    return Minimum(coef, norm)


def _at(
    sums: _Sums, coef: FloatArray, penalty: float, linear: FloatArray
) -> tuple[FloatArray, FloatArray]:
    return coef, sums.gradient(coef) + penalty * coef + linear


def _solve(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    try:
        return np.asarray(np.linalg.solve(matrix, vector), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(matrix, vector, rcond=None)[0])


def _probabilities(logits: FloatArray, scales: FloatArray | None, rows: slice) -> FloatArray:
    if scales is not None:
        logits *= scales[rows]
    # beyond +-700 a probability is 0 or 1 in double precision anyway
    np.clip(logits, -700.0, 700.0, out=logits)
    np.negative(logits, out=logits)
    np.exp(logits, out=logits)
    logits += 1.0
    return np.reciprocal(logits, out=logits)


def _blocks(n: int) -> Iterator[slice]:
    for start in range(0, n, _BLOCK):
        yield slice(start, min(start + _BLOCK, n))
