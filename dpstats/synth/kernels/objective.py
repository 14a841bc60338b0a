"""Objective perturbation (DPSC_obj), constrained to the l1 ball."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.privacy.accounting import Cost, Release
from dpstats.privacy.calibration import laplace_scale, objective_gaussian_scale
from dpstats.synth.kernels.base import Kernel, Public, Settings, Shares
from dpstats.synth.kernels.exact import ExactReleased, run_ridge
from dpstats.synth.kernels.weights import (
    WeightsReleased,
    project_l1,
    release_prediction,
    weight_settings,
    within_reach,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpstats.privacy.mechanisms import Mechanisms
    from dpstats.privacy.noise import FloatArray
    from dpstats.synth.kernels.base import Panel

__all__ = [
    "SOLVER_SHARE",
    "Objective",
    "gradient_sensitivity",
    "jacobian_penalty",
    "log_jacobian",
    "minimise_on_ball",
]

# share of the weights' budget for the distance between the computed and the exact minimum
SOLVER_SHARE = 1e-3
_STEPS = 20_000
_CHECK = 20


def gradient_sensitivity(n: int, pre_periods: int, largest_target: float = 1.0) -> float:
    """Return H: the largest change of T0 grad J over ||f||_1 <= 1 when a donor is replaced.

    Parameters
    ----------
    n, pre_periods : int
        Donors and T0; entries of donors lie in [-1, 1].
    largest_target : float
        Y, the largest absolute value of the public target; values below 1 are read as 1.

    Notes
    -----
    With row x replaced by x', weight phi on it, o what the other rows predict (|o_t| <=
    1 - |phi|), d = x - x' and m = x + x', |d_t| + |m_t| <= 2: entry i moves by
    2 sum_t d_t (phi m_t + o_t - y_t), entry j by 2 phi x_j'd. Period t adds a vector of norm at
    most 2 |d| sqrt((|phi| (2 - |d|) + 1 - |phi| + Y)^2 + (n - 1) phi^2); for n >= 2 and Y >= 1 it
    is largest at |d| = 2 with phi = 0 or 1: H = 4 T0 max(1 + Y, sqrt(Y^2 + n - 1)), which is
    4 T0 sqrt(max(4, n)) at Y = 1, attained. For n = 1 there is no o:
    2 |d| (|phi| (2 - |d|) + Y) is at most (2 + Y)^2 / 2 for Y <= 2 and 4 Y beyond.
    """
    size = max(1.0, largest_target)
    if n == 1:
        return pre_periods * ((2.0 + size) ** 2 / 2.0 if size <= 2.0 else 4.0 * size)
    return 4.0 * pre_periods * max(1.0 + size, math.sqrt(size * size + n - 1.0))


def log_jacobian(n: int, pre_periods: int, penalty: float) -> float:
    """Return the largest log ratio of the determinants on any face of the ball, L = `penalty`.

    Notes
    -----
    On a face with k vertices take an orthonormal tangent basis V whose first vector lies along
    V'e_i. Then only the row sqrt(1 - 1/k) (x - m) of V'X changes, m in [-1, 1]^T0 a mean of the
    other vertices, so its square is at most 4 T0 (1 - 1/k), and the determinant of 2 V'XX'V + L I
    changes by a factor of at most 1 + 8 T0 (1 - 1/k) / L <= 1 + 8 T0 (1 - 1/n) / L (attained). In
    the interior it is the row x itself: 1 + 2 T0 / L, no more for n >= 2.
    """
    rise = 2.0 * pre_periods if n == 1 else 8.0 * pre_periods * (1.0 - 1.0 / n)
    return math.log1p(rise / penalty)


def jacobian_penalty(n: int, pre_periods: int, cost: float) -> float:
    """Return the L at which `log_jacobian` is `cost`."""
    rise = 2.0 * pre_periods if n == 1 else 8.0 * pre_periods * (1.0 - 1.0 / n)
    return rise / math.expm1(min(cost, 700.0))


class Objective(Kernel):
    r"""Ridge synthetic control on the l1 ball with a noisy objective (DPSC_obj, corrected).

    Notes
    -----
    Minimises :math:`\|y - X'f\|^2 + (L/2)\|f\|^2 + b'f` over :math:`\|f\|_1 \le 1` (T0 times the
    published objective, L = lambda + Delta). On all of :math:`R^n` the change of the gradient
    would grow with f and no noise level would do.

    *Why it is private.* The minimum f and the part nu of the objective's gradient that the
    constraint takes up (normal to the face of f) are in bijection with b: b = -(gradient + nu).
    On a face with tangent basis V the density of (f, nu) is that of b times det(V' Hessian V);
    releasing the pair dominates releasing f. Replacing a donor moves b by at most H
    (`gradient_sensitivity`) at the same pair and the determinant by at most `log_jacobian`. L is
    the larger of lambda and the value at which the Jacobian costs half of eps1; eps0 is what it
    leaves.

    *Laplace.* b has the K-norm density of scale H/eps0: the loss is at most eps1.

    *Gaussian.* The shift depends on f and so on b, but lies in the plane of e_i and X_j'(x - x'),
    which is fixed: with x = H/beta the loss is at most x R + x^2/2 plus the Jacobian, R of chi law
    with two degrees of freedom, and `objective_log_delta` applies.

    *Exactness.* The computed f has ||f - f*|| <= ||r||/L for a subgradient r at f, and
    ||r|| <= tau (public); given f* it is a release of sensitivity 2 tau / L, protected by K-norm
    noise for 1e-3 of the budget, taken off first, and projected afterwards. A solver that misses
    tau returns zeros.

    Several targets share the budget of the weights equally; their predictions are one release.

    References
    ----------
    Rho, S., Cummings, R. and Misra, V. (2023). Differentially private synthetic control. AISTATS.
    """

    name: ClassVar[str] = "objective"
    title: ClassVar[str] = "Synthetic control by objective perturbation"
    private: ClassVar[bool] = True

    def settings(
        self, penalty: float | None, options: Mapping[str, Any], public: Public
    ) -> Settings:
        """Fill in lambda = T0; options are `release` and `project` (which changes nothing here)."""
        return weight_settings(self.name, penalty, options, public)

    def shares(self, settings: Settings, public: Public) -> Shares:
        """Return half and half."""
        return {"weights": 0.5, "prediction": 0.5}

    def constants(self, settings: Settings, public: Public) -> tuple[tuple[str, str], ...]:
        """Return lambda and the form of the prediction."""
        penalty = settings.penalty
        return (
            ("penalty", "leave one period out" if penalty is None else f"at least {penalty:g}"),
            ("release", settings.release),
        )

    def run(
        self, panel: Panel, settings: Settings, mechanisms: Mechanisms
    ) -> WeightsReleased | ExactReleased:
        """Release the weights, then the predictions."""
        if mechanisms.source is None or settings.penalty is None:
            return _exact(panel, settings.penalty)
        before = panel.pre_periods
        donors = np.clip(panel.donors, -1.0, 1.0)
        targets = panel.targets[:, :before].copy()
        whole = mechanisms.costs["weights"]
        cost = Cost(whole.epsilon / len(targets), whole.delta / len(targets))
        rows: list[FloatArray] = []
        sds: list[float] = []
        records: list[Release] = []
        for k, target in enumerate(targets):
            name = "weights" if len(targets) == 1 else f"weights {k + 1}"
            row, sd, made = _perturbed(
                donors[:, :before], target, settings.penalty, cost, name, mechanisms
            )
            rows.append(row)
            sds.append(sd)
            records.extend(made)
        weights = np.array(rows)
        post, post_sd, last = release_prediction(
            mechanisms, donors[:, before:], weights, settings.release
        )
        return WeightsReleased(
            weights,
            within_reach(post, weights),
            targets,
            max(sds),
            post_sd,
            True,
            settings.release,
            (*records, *last),
        )


def _perturbed(
    X: FloatArray,
    y: FloatArray,
    penalty: float,
    cost: Cost,
    name: str,
    mechanisms: Mechanisms,
) -> tuple[FloatArray, float, tuple[Release, ...]]:
    """Return released weights, the rough noise sd of one, and the records."""
    source = mechanisms.source
    if source is None:
        raise TypeError("a perturbed objective needs a source of noise")
    n, before = X.shape
    solver = SOLVER_SHARE * cost.epsilon
    budget = cost.epsilon - solver
    strength = max(penalty, jacobian_penalty(n, before, budget / 2.0))
    left = budget - log_jacobian(n, before, strength)
    sensitivity = gradient_sensitivity(n, before, float(np.abs(y).max(initial=0.0)))
    gaussian = mechanisms.kind == "gaussian"
    if gaussian:
        # `objective_gaussian_scale` is for a shift of 2
        scale = sensitivity / 2.0 * objective_gaussian_scale(left, cost.delta)
        noise, length = source.normal(name, n, scale), scale * math.sqrt(n)
    else:
        scale = laplace_scale(sensitivity, left)
        noise, length = source.knorm(name, n, scale, "l2"), scale * n
    record = Release(
        name,
        mechanisms.partition,
        "objective, Gaussian" if gaussian else "objective, K-norm",
        "l2",
        sensitivity,
        scale,
        budget,
        cost.delta if gaussian else 0.0,
    )
    size = max(1.0, float(np.abs(y).max(initial=0.0)))
    tolerance = 2e-15 * (length + strength + 10.0 * n * before * size) + 1e-11
    found, residual = minimise_on_ball(X, y, strength, noise, tolerance / 2.0)
    # half of the tolerance is left for rounding errors in the subgradient itself
    weights = found if residual <= tolerance / 2.0 else np.zeros(n)
    exact = mechanisms.knorm(
        f"{name} (solver)",
        weights,
        sensitivity=2.0 * tolerance / strength,
        cost=Cost(solver),
        grid_bits=0,
    )
    sd = length / math.sqrt(n) / strength
    return project_l1(exact.value), sd, (record, *exact.records)


def minimise_on_ball(
    X: FloatArray, y: FloatArray, penalty: float, linear: FloatArray, tolerance: float
) -> tuple[FloatArray, float]:
    """Minimise ||y - X'f||^2 + (L/2) ||f||^2 + b'f over ||f||_1 <= 1.

    Parameters
    ----------
    X, y : ndarray
        Shapes (n, T0) and (T0,).
    penalty : float
        L.
    linear : ndarray
        b, shape (n,).
    tolerance : float
        Stops at a subgradient of this norm.

    Returns
    -------
    ndarray, float
        The point and the norm of a subgradient there (which, over L, bounds its distance from the
        minimum).

    Notes
    -----
    Accelerated projected gradient for strongly convex functions, restarted where the value would
    rise. With f+ the projected step of length 1/M from f, grad(f+) - grad(f) + M(f - f+) is a
    subgradient of the constrained objective at f+.
    """
    top = (
        float(np.linalg.eigvalsh(X.T @ X)[-1])
        if X.shape[1] <= len(X)
        else float(np.linalg.eigvalsh(X @ X.T)[-1])
    )
    smooth = 2.0 * top * (1.0 + 1e-9) + penalty
    root = math.sqrt(penalty / smooth)
    momentum = (1.0 - root) / (1.0 + root)

    def gradient(f: FloatArray) -> FloatArray:
        return np.asarray(2.0 * (X @ (X.T @ f - y)) + penalty * f + linear)

    point = ahead = np.zeros(len(X))
    best, smallest = point, math.inf
    for step in range(_STEPS):
        slope = gradient(ahead)
        moved = project_l1(ahead - slope / smooth)
        if step % _CHECK == 0:
            rest = float(np.linalg.norm(gradient(moved) - slope + smooth * (ahead - moved)))
            if rest < smallest:
                best, smallest = moved, rest
            if smallest <= tolerance:
                break
        forward = moved - point
        restart = float((ahead - moved) @ forward) > 0.0
        point, ahead = moved, moved if restart else moved + momentum * forward
    return best, smallest


def _exact(panel: Panel, penalty: float | None) -> ExactReleased:
    """Return the constrained ridge without noise."""
    free = run_ridge(panel, penalty)
    before = panel.pre_periods
    scale = float(np.abs(panel.donors).max(initial=0.0)) or 1.0
    X = panel.donors[:, :before] / scale
    rows = []
    for target, chosen, row in zip(free.targets, free.penalties, free.donor_weights, strict=True):
        if float(np.abs(row).sum()) <= 1.0:
            rows.append(row)
            continue
        strength = max(float(chosen) / scale**2, 1e-9)
        tolerance = 1e-9 * strength
        found, _ = minimise_on_ball(X, target / scale, strength, np.zeros(len(X)), tolerance)
        rows.append(found)
    weights = np.array(rows)
    paths = weights @ panel.donors
    return ExactReleased(paths, weights, free.residuals, free.targets, free.penalties)
