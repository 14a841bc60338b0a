r"""Weights of rows by estimand, how far they reach, what estimating the propensity does to them.

Notes
-----
With e the propensity, a treated row has weight 1/e (ATE), 1 (ATT), (1-e)/e (ATC) or 1-e (ATO), a
control row 1/(1-e), e/(1-e), 1 or e: each arm is made to look like the same population (Li,
Morgan and Zaslavsky 2018). Propensities are clipped only where a weight would grow without bound:
on both sides for the ATE, above 1-omega for the ATT, below omega for the ATC. Weights of the ATO
are at most one by themselves; they are clipped at 1-omega only if `overlap` is given.

References
----------
Li, F., Morgan, K. L. and Zaslavsky, A. M. (2018). Balancing covariates via propensity score
weighting. JASA 113, 390-400. doi:10.1080/01621459.2016.1260466.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpstats.ate.kernels.base import RowWeights
from dpstats.logistic import row_scales
from dpstats.propensity import FittedPropensity, Objective

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpstats.ate.kernels.base import Arrays, Estimand, Options, Public, Settings
    from dpstats.privacy.noise import FloatArray
    from dpstats.propensity import Propensity, PropensityModel

__all__ = [
    "arm_weights",
    "clip_propensity",
    "fit_influence",
    "largest_weights",
    "lighter_penalty",
    "overlap_of",
    "relative_weights",
    "row_weights",
    "scores_again",
    "weight_slopes",
]

_DEFAULT_OVERLAP = 0.1
_RELATIVE_PENALTY = 0.5


def clip_propensity(e: FloatArray, settings: Settings) -> FloatArray:
    """Clip propensities where weights of the estimand would be unbounded."""
    omega = settings.overlap
    if settings.probability is not None:
        return e
    low = 0.0 if settings.estimand == "att" else omega
    high = 1.0 if settings.estimand == "atc" else 1.0 - omega
    return np.clip(e, low, high)


def arm_weights(e: FloatArray, estimand: Estimand) -> tuple[FloatArray, FloatArray]:
    """Return the weights that a control and a treated row with propensity e have."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if estimand == "ate":
            return 1.0 / (1.0 - e), 1.0 / e
        if estimand == "att":
            return e / (1.0 - e), np.ones_like(e)
        if estimand == "atc":
            return np.ones_like(e), (1.0 - e) / e
        return e, 1.0 - e


def row_weights(e: FloatArray, treated: NDArray[np.bool_], estimand: Estimand) -> FloatArray:
    """Return the weight of each row."""
    control, active = arm_weights(e, estimand)
    return np.where(treated, active, control)


def overlap_of(options: Options, public: Public, *, clips: bool = True) -> float:
    """Return omega: that of a known probability, the user's, else 0.1 where weights are clipped.

    Without noise, and where the method need not clip (`clips`), nothing is clipped by default.
    """
    if options.probability is not None:
        return min(options.probability, 1.0 - options.probability)
    if options.overlap is not None:
        return options.overlap
    return _DEFAULT_OVERLAP if clips and math.isfinite(public.epsilon) else 0.0


def lighter_penalty(model: PropensityModel | None) -> PropensityModel | None:
    """Return the model, with half the penalty where the user left it open.

    Weights need propensities that are shrunk less than blocks do (a measured choice).
    """
    if isinstance(model, Objective) and model.penalty is model.relative_penalty is None:
        return replace(model, relative_penalty=_RELATIVE_PENALTY)
    return model


def weight_slopes(e: FloatArray, treated: NDArray[np.bool_], estimand: Estimand) -> FloatArray:
    """Return the derivative of each weight with respect to the log odds of e."""
    if estimand == "ato":
        return np.where(treated, -1.0, 1.0) * e * (1.0 - e)
    moving = {"ate": (True, True), "att": (True, False), "atc": (False, True)}[estimand]
    odds = e / (1.0 - e)
    return np.where(treated, -moving[1] / odds, moving[0] * odds)


def relative_weights(
    arrays: Arrays, e: FloatArray, settings: Settings, *, exact: bool
) -> RowWeights:
    """Return weights in units of the largest of the arm, for the balance of covariates."""
    weights = row_weights(e, arrays.treated, settings.estimand)
    arm = arrays.treated.astype(np.int64)
    if exact:
        largest = np.array([weights[arm == a].max(initial=1e-300) for a in (0, 1)])
    else:
        largest = np.array(largest_weights(settings))
    mean = {"ate": 2.0, "ato": 0.5}.get(settings.estimand, 1.0)
    shares = np.clip(weights / largest[arm], 0.0, 1.0)
    return RowWeights(shares, mean / float(largest.max()))


def scores_again(
    arrays: Arrays, settings: Settings, propensity: FittedPropensity | None
) -> FloatArray:
    """Return the propensity of each row from what was released or is known."""
    if settings.probability is not None:
        return np.full(arrays.n, settings.probability)
    if arrays.known is not None:
        return arrays.known
    if propensity is None:
        raise TypeError("no propensity was kept")
    return propensity.predict(arrays.design)


def largest_weights(settings: Settings) -> tuple[float, float]:
    """Return the largest weight of a control and of a treated row, from public numbers."""
    arms = np.array([False, True])
    if settings.probability is not None:
        known = row_weights(np.full(2, settings.probability), arms, settings.estimand)
        return float(known[0]), float(known[1])
    omega = settings.overlap
    # the propensities at which the two weights are largest
    ends = np.array([1.0 - omega, omega])
    worst = row_weights(ends, arms, settings.estimand)
    return float(worst[0]), float(worst[1])


def fit_influence(
    arrays: Arrays, fitted: Propensity | None, slopes: FloatArray, settings: Settings
) -> FloatArray:
    r"""Return what estimating the propensity adds to each row's influence, without noise only.

    Parameters
    ----------
    arrays : Arrays
    fitted : Propensity or None
        Nothing is added where no logit was fitted.
    slopes : ndarray
        Shape (n,): derivative of the estimate with respect to each row's log odds.
    settings : Settings

    Notes
    -----
    The coefficients solve :math:`\sum_i (W_i - e_i) x_i = L w`, so that row i moves them by
    :math:`A^{-1}(W_i - e_i)x_i` with :math:`A = \sum_i e_i(1-e_i)x_i x_i' + L I`, and the estimate
    by g' times that, g the sum of slopes times x: the sandwich of M-estimation, in which the
    equations of weighted means and of the logit are stacked.
    """
    if not isinstance(fitted, FittedPropensity):
        return np.zeros(arrays.n)
    design = arrays.design
    scales = row_scales(design, fitted.row_norm)
    if scales is not None:
        design = design * scales[:, None]
    e = fitted.predict(arrays.design)
    penalty = getattr(settings.propensity, "penalty", None) or 0.0
    curvature = (design * (e * (1.0 - e))[:, None]).T @ design + penalty * np.eye(design.shape[1])
    direction = np.linalg.lstsq(curvature, design.T @ slopes, rcond=None)[0]
    return np.asarray((arrays.treated - e) * (design @ direction))
