"""The published synthetic control algorithms as their code has them. NOT PRIVATE: for comparison.

DPSC_out and DPSC_obj, redone from their publication and from the behaviour of the authors' code
(srho1/dpsc), so that a figure can be redrawn beside its corrected form. What is wrong with them,
and is kept here on purpose:

- the length of the noise vector is drawn from a Laplace law; in d dimensions it must be Gamma(d),
  whose mean is d times as large (``radius="gamma"``);
- DPSC_obj minimises over all of R^n, where the gradient may change by any amount, so that no noise
  is enough; and what its budget rule adds to the penalty is never used (`dpsc_obj`);
- donors may lie outside [-1, 1], for which the noise was made.

References
----------
Rho, S., Cummings, R. and Misra, V. (2023). Differentially private synthetic control. AISTATS.
arXiv:2303.14084.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from dpstats.synth.kernels.exact import ridge_weights

if TYPE_CHECKING:
    from dpstats.privacy.noise import FloatArray

__all__ = ["dpsc_obj", "dpsc_out", "published_bound", "published_sensitivity"]

Radius: TypeAlias = Literal["laplace", "gamma"]


def published_sensitivity(n: int, pre_periods: int, penalty: float) -> float:
    """Return the published sensitivity of ridge weights: 4 T0 sqrt(8 + n) / lambda."""
    return 4.0 * pre_periods * math.sqrt(8.0 + n) / penalty


def dpsc_out(
    donors: FloatArray,
    target: FloatArray,
    eps_weights: float,
    eps_prediction: float,
    rng: np.random.Generator,
    *,
    penalty: float,
    radius: Radius = "laplace",
) -> FloatArray:
    """DPSC_out: ridge weights plus noise, times noisy donors.

    Parameters
    ----------
    donors : ndarray
        Shape (n, T).
    target : ndarray
        Shape (T0,), before the intervention.
    eps_weights, eps_prediction : float
        eps1 and eps2.
    rng : numpy.random.Generator
    penalty : float
        lambda.
    radius : {"laplace", "gamma"}
        Law of the length of the noise vectors: as the code has it, or as the proof needs it.

    Returns
    -------
    ndarray
        Predictions, shape (T - T0,).
    """
    n, before = len(donors), target.size
    weights = ridge_weights(donors[:, :before], target, penalty)
    scale = published_sensitivity(n, before, penalty) / eps_weights
    weights = weights + _vector(rng, n, scale, radius)
    return _predict(donors[:, before:], weights, eps_prediction, rng, radius)


def dpsc_obj(
    donors: FloatArray,
    target: FloatArray,
    eps_weights: float,
    eps_prediction: float,
    rng: np.random.Generator,
    *,
    penalty: float,
    radius: Radius = "laplace",
) -> FloatArray:
    """DPSC_obj: the minimum over R^n of the ridge objective plus b'f. As for `dpsc_out`."""
    n, before = len(donors), target.size
    c = before * (1.0 + math.sqrt(16.0 * n - 15.0))
    left = eps_weights - math.log(1.0 + 2.0 * c / penalty + c**2 / penalty**2)
    if left <= 0.0:
        # the published algorithm then raises the penalty as well; the code forgets to
        left = eps_weights / 2.0
    scale = min(4.0 * before * math.sqrt(8.0 + n), c * math.sqrt(n) + 4.0 * before) / left
    b = _vector(rng, n, scale, radius)
    X = donors[:, :before]
    weights = np.linalg.solve(X @ X.T + penalty / 2.0 * np.eye(n), X @ target - b / 2.0)
    return _predict(donors[:, before:], weights, eps_prediction, rng, radius)


def published_bound(
    n: int,
    pre_periods: int,
    eps_weights: float,
    eps_prediction: float,
    *,
    penalty: float,
    sigma: float,
    gain: float,
    fit: float,
    largest_weight: float,
) -> float:
    """Return the published bound on the error of DPSC_out, with the constants it states.

    It takes E||v|| for the scale a of the weights' noise and E||W|| for the scale b of the
    donors', which are n a and n T1 b for the noise it asks for.

    Parameters
    ----------
    n, pre_periods : int
    eps_weights, eps_prediction, penalty : float
    sigma : float
        Standard deviation of the donors' noise.
    gain : float
        ||M_post|| / sqrt(T1).
    fit : float
        Bound on the error of the weights without noise.
    largest_weight : float
        psi.
    """
    kappa = published_sensitivity(n, pre_periods, penalty) / eps_weights
    donors = math.sqrt(n) * sigma + 2.0 / eps_prediction
    return gain * (fit + kappa) + donors * (math.sqrt(n) * largest_weight + kappa)


def _predict(
    post: FloatArray, weights: FloatArray, eps: float, rng: np.random.Generator, radius: Radius
) -> FloatArray:
    n, after = post.shape
    noise = _vector(rng, n * after, 2.0 * math.sqrt(after) / eps, radius).reshape(n, after)
    return np.asarray(weights @ (post + noise))


def _vector(rng: np.random.Generator, size: int, scale: float, radius: Radius) -> FloatArray:
    direction = rng.standard_normal(size)
    direction /= np.linalg.norm(direction)
    length = rng.laplace(scale=scale) if radius == "laplace" else rng.gamma(size, scale)
    return np.asarray(length * direction)
