r"""Accuracy bounds of output and objective perturbation, in corrected form.

For donors X = M + Z (n x T, entries in [-1, 1]) and a target y = M'f + e with noise of variance
sigma^2, the root mean squared error of the post-period prediction against M_post'f, over noise of
the data and of the mechanism, divided by sqrt(T1), is at most the sum of

- fit: ||M_post|| / sqrt(T1) times the error of the weights without noise,
- weights: ||M_post|| / sqrt(T1) times the root mean square of the noise in them,
- donors: sigma times the root mean square of the released weights' norm,
- prediction: the noise of the second release.

Minkowski's inequality joins them. Nothing here is a good guide to the error one will see: these are
worst cases, and their use is to say what an algorithm can promise. The published bounds (Rho,
Cummings and Misra 2023) are too small by factors n and n T1, since they take E||v|| of a K-norm
vector for its scale, and they replace a projector on the donors' factors by the identity.

References
----------
Rho, S., Cummings, R. and Misra, V. (2023). Differentially private synthetic control. AISTATS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from dpstats.errors import DPStatsError
from dpstats.passed import passed
from dpstats.privacy.accounting import check_budget
from dpstats.privacy.calibration import gaussian_scale, laplace_scale, objective_gaussian_scale
from dpstats.synth.kernels.objective import (
    SOLVER_SHARE,
    gradient_sensitivity,
    jacobian_penalty,
    log_jacobian,
)
from dpstats.synth.kernels.output import ridge_sensitivity

__all__ = ["Bound", "Setting", "fit_bound", "objective_bound", "output_bound"]


@dataclass(frozen=True, slots=True)
class Setting:
    """What the bounds assume of the data, beside entries in [-1, 1].

    Attributes
    ----------
    n, pre_periods, post_periods : int
        Donors, T0 and T1.
    sigma : float
        Standard deviation of the noise in donors and target: independent, mean zero.
    xi : float
        The smallest non-zero singular value of X_pre, squared, is at least (1 - xi) T0.
    weight_norm : float
        ||f||, the Euclidean norm of the target's weights.
    post_norm : float or None
        ||M_post||, the largest singular value of the donors' signal after the intervention; by
        default its largest possible value sqrt(n T1).
    largest_weight : float or None
        psi, a bound on the entries of the ridge weights without noise; by default what the ridge
        guarantees.
    """

    n: int
    pre_periods: int
    post_periods: int
    sigma: float
    xi: float = 0.0
    weight_norm: float = 1.0
    post_norm: float | None = None
    largest_weight: float | None = None

    def __post_init__(self) -> None:
        if min(self.n, self.pre_periods, self.post_periods) < 1:
            raise DPStatsError("`n`, `pre_periods` and `post_periods` must be at least 1")
        if not (self.sigma >= 0.0 and self.weight_norm >= 0.0 and 0.0 <= self.xi <= 1.0):
            raise DPStatsError("`sigma` and `weight_norm` must be at least 0 and `xi` in [0, 1]")

    @property
    def gain(self) -> float:
        """||M_post|| / sqrt(T1): what an error of the weights costs a prediction."""
        largest = math.sqrt(self.n * self.post_periods)
        norm = largest if self.post_norm is None else self.post_norm
        return norm / math.sqrt(self.post_periods)

    def assumptions(self) -> tuple[str, ...]:
        """Say in words what is assumed."""
        return (
            "donors' entries lie in [-1, 1]; M_post'f is what is predicted",
            f"noise of donors and target is independent with mean 0 and sd {self.sigma:g}",
            "f and the columns of M_post lie in the range of X_pre (so n <= T0, or donors whose "
            "noise leaves their rank alone)",
            f"the smallest non-zero singular value of X_pre is at least sqrt({1.0 - self.xi:g} T0)",
            f"||f|| <= {self.weight_norm:g}",
        )


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound on the root mean squared error, with its parts and what it assumes.

    Attributes
    ----------
    fit, weights, donors, prediction : float
        The four terms; see the module.
    assumptions : tuple of str
    """

    fit: float
    weights: float
    donors: float
    prediction: float
    assumptions: tuple[str, ...]

    @property
    def rmse(self) -> float:
        """The bound."""
        return self.fit + self.weights + self.donors + self.prediction

    def __str__(self) -> str:
        parts = ("fit", "weights", "donors", "prediction")
        terms = ", ".join(f"{part} {getattr(self, part):.4g}" for part in parts)
        lines = [f"RMSE <= {self.rmse:.4g} ({terms})", "Assumed:"]
        return "\n".join([*lines, *(f"- {text}" for text in self.assumptions)])


def fit_bound(setting: Setting, penalty: float) -> float:
    r"""Bound the root mean squared error of the weights without noise, inside X_pre's range.

    Parameters
    ----------
    setting : Setting
    penalty : float
        lambda; mu = lambda / 2.

    Notes
    -----
    With r = e - Z'f, y = X'f + r and :math:`(XX' + \mu)(f_{reg} - f) = X r - \mu f`. Both sides lie
    in the range of X, where XX' + mu is at least (1 - xi) T0 + mu. ||X|| <= sqrt(n T0) and E||r||^2
    = sigma^2 T0 (1 + ||f||^2), so the error is at most

    .. math:: \frac{\sqrt{n \sigma^2 (1 + \|f\|^2)}\, T_0 + \mu \|f\|}{(1 - \xi) T_0 + \mu}.

    The minimum over the l1 ball obeys the same bound if f lies in the ball: with h its distance
    from f, optimality gives h'(XX' + mu)h <= (X r - mu f)'h, where only the part of h in the range
    counts on the right and bounds the left from below.
    """
    mu = penalty / 2.0
    noise = math.sqrt(setting.n * setting.sigma**2 * (1.0 + setting.weight_norm**2))
    top = noise * setting.pre_periods + mu * setting.weight_norm
    return top / ((1.0 - setting.xi) * setting.pre_periods + mu)


def output_bound(
    setting: Setting,
    eps_weights: float,
    eps_prediction: float,
    *,
    penalty: float | None = None,
    release: Literal["projection", "matrix"] = "projection",
    project: bool = True,
    target_norm: float | None = None,
    delta_weights: float = 0.0,
    delta_prediction: float = 0.0,
) -> Bound:
    r"""Bound the error of method "output".

    Parameters
    ----------
    setting : Setting
    eps_weights, eps_prediction : float
        eps1 and eps2.
    penalty : float, optional
        lambda, by default T0.
    release : {"projection", "matrix"}
    project : bool
        Whether weights are projected on the l1 ball, in which f must then lie.
    target_norm : float, optional
        B_y = ||y_pre||, by default sqrt(T0).
    delta_weights, delta_prediction : float
        Gaussian noise where positive.

    Returns
    -------
    Bound

    Notes
    -----
    Prediction minus M_post'f is M_post'(f_out - f) + Z_post'f_out + noise. For the K-norm vector v
    of scale D/eps1 (D of `ridge_sensitivity`), E||v||^2 = n (n + 1) (D/eps1)^2; v has mean zero
    given the data, so E||f_out||^2 = E||f_reg||^2 + E||v||^2, with ||f_reg|| <=
    min(B_y / (2 sqrt(mu)), sqrt(n) psi). Z_post is independent of f_out. The matrix W is
    isotropic in n T1 dimensions, E||W'f_out||^2 / T1 = (n T1 + 1) (2 sqrt(T1)/eps2)^2 E||f_out||^2.
    The projection's noise has scale 2 sqrt(T1) max_i |f_i| / eps2 in T1 dimensions. A projection on
    the ball does not move f_out away from f, and makes ||f_out|| <= 1.

    Examples
    --------
    >>> from dpstats.synth.theory import Setting, output_bound
    >>> setting = Setting(n=10, pre_periods=10, post_periods=3, sigma=0.01)
    >>> print(str(output_bound(setting, 50.0, 50.0)).splitlines()[0])
    RMSE <= 2.228 (fit 1.148, weights 0.9381, donors 0.007668, prediction 0.1339)
    """
    check_budget(eps_weights, delta_weights)
    check_budget(eps_prediction, delta_prediction)
    n, before = setting.n, setting.pre_periods
    strength = float(before) if penalty is None else penalty
    norm = math.sqrt(before) if target_norm is None else target_norm
    sensitivity = ridge_sensitivity(norm, before, strength)
    noise = _mean_square(n, sensitivity, eps_weights, delta_weights)
    ridge = norm / (2.0 * math.sqrt(strength / 2.0))
    entry = ridge
    if setting.largest_weight is not None:
        entry = min(ridge, setting.largest_weight)
        ridge = min(ridge, math.sqrt(n) * setting.largest_weight)
    length = math.sqrt(ridge**2 + noise)
    largest = entry + math.sqrt(noise * _largest_share(n))
    assumed = setting.assumptions()
    if project:
        length, largest = min(length, 1.0), min(largest, 1.0)
        assumed = (*assumed, "||f||_1 <= 1")
    return Bound(
        setting.gain * fit_bound(setting, strength),
        setting.gain * math.sqrt(noise),
        setting.sigma * length,
        _prediction(setting, release, length, largest, eps_prediction, delta_prediction),
        assumed,
    )


def objective_bound(
    setting: Setting,
    eps_weights: float,
    eps_prediction: float,
    *,
    penalty: float | None = None,
    release: Literal["projection", "matrix"] = "projection",
    largest_target: float = 1.0,
    delta_weights: float = 0.0,
    delta_prediction: float = 0.0,
) -> Bound:
    r"""Bound the error of method "objective".

    Parameters
    ----------
    setting, eps_weights, eps_prediction, penalty, release, delta_weights, delta_prediction
        As for `output_bound`.
    largest_target : float
        Y, the largest absolute value of the target's pre-period.

    Returns
    -------
    Bound

    Notes
    -----
    The objective is L-strongly convex, L = lambda + Delta. Its minima over the ball with and
    without b are at most ||b||/L apart, those with L and with lambda Delta/L times ||f_lambda||
    <= Delta/L. In the ball two points are at most 2 apart, ||f_out|| <= 1 and max_i |f_i| <= 1. The
    noise that hides the solver's residual (of the order of rounding errors) is left out.
    """
    check_budget(eps_weights, delta_weights)
    check_budget(eps_prediction, delta_prediction)
    n, before = setting.n, setting.pre_periods
    base = float(before) if penalty is None else penalty
    budget = (1.0 - SOLVER_SHARE) * eps_weights
    strength = max(base, jacobian_penalty(n, before, budget / 2.0))
    left = budget - log_jacobian(n, before, strength)
    sensitivity = gradient_sensitivity(n, before, largest_target)
    if delta_weights > 0.0:
        scale = sensitivity / 2.0 * objective_gaussian_scale(left, delta_weights)
        noise = math.sqrt(n) * scale
    else:
        noise = math.sqrt(n * (n + 1.0)) * laplace_scale(sensitivity, left)
    moved = min(noise / strength + (strength - base) / strength, 2.0)
    return Bound(
        setting.gain * fit_bound(setting, base),
        setting.gain * moved,
        setting.sigma,
        _prediction(setting, release, 1.0, 1.0, eps_prediction, delta_prediction),
        (*setting.assumptions(), "||f||_1 <= 1"),
    )


def _prediction(
    setting: Setting, release: str, length: float, largest: float, epsilon: float, delta: float
) -> float:
    after = setting.post_periods
    unit = 2.0 * math.sqrt(after)
    if release == "matrix":
        size = setting.n * after
        return length * math.sqrt(_mean_square(size, unit, epsilon, delta) / size)
    if release != "projection":
        raise DPStatsError(f"`release` must be 'projection' or 'matrix'; got {passed(release)}")
    return largest * math.sqrt(_mean_square(after, unit, epsilon, delta) / after)


def _mean_square(size: int, sensitivity: float, epsilon: float, delta: float) -> float:
    """Return E||v||^2 of the noise vector."""
    if delta > 0.0:
        return size * gaussian_scale(sensitivity, epsilon, delta) ** 2
    return size * (size + 1.0) * laplace_scale(sensitivity, epsilon) ** 2


def _largest_share(size: int) -> float:
    """Bound E max_i u_i^2 for a uniform direction u.

    For independent normals E max g_i^2 <= log(n (1 - 2t)^(-1/2)) / t for any t in (0, 1/2), by
    Jensen's inequality, and u = g/||g|| is independent of ||g||.
    """
    steps = (0.005 * step for step in range(1, 100))
    normal = min((math.log(size) - 0.5 * math.log1p(-2.0 * t)) / t for t in steps)
    return min(1.0, normal / size)
