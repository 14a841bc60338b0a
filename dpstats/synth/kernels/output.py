"""Output perturbation (DPSC_out): ridge weights plus noise, then the prediction."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.synth.kernels.base import Kernel, Public, Settings, Shares
from dpstats.synth.kernels.exact import ExactReleased, ridge_weights, run_ridge
from dpstats.synth.kernels.weights import (
    WeightsReleased,
    add_vector,
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

__all__ = ["Output", "ridge_sensitivity"]

# public bound on how far the computed weights may be from the exact ones, relative to their range
_TOLERANCE = 1e-9


def ridge_sensitivity(target_norm: float, pre_periods: int, penalty: float) -> float:
    r"""Return the exact Euclidean sensitivity of ridge weights under replacement of one donor.

    Parameters
    ----------
    target_norm : float
        B_y, the Euclidean norm of the public target's pre-period.
    pre_periods : int
        T0; entries of donors lie in [-1, 1], so a row is at most B_x = sqrt(T0) long.
    penalty : float
        lambda; the weights are (XX' + mu I)^{-1} X y with mu = lambda / 2.

    Notes
    -----
    D = B_y / sqrt(mu) if B_x >= sqrt(mu), else 2 B_x B_y / (mu + B_x^2); for any n.

    *Proof.* Row i is replaced, the others are A. With K = (AA' + mu I)^{-1} A and
    M = mu (mu I + A'A)^{-1} the weights are f_i = a = x'My / (mu + x'Mx) and f_A = K(y - x a), and
    K'K = M(I - M)/mu. With u = M^{1/2} x and z = M^{1/2} y, f - f' has norm at most |P - P'| with
    P = (a, -u a / sqrt(mu)), and P is the projection of (0, -z/sqrt(mu)) on the line along
    (1, -u/sqrt(mu)). Projections of one point on lines through 0 lie on a sphere through 0 whose
    diameter is |z|/sqrt(mu) <= B_y/sqrt(mu); the angle of such a line with the first axis is at
    most arctan(B_x/sqrt(mu)), so the chord is at most the diameter times
    sin(2 arctan(B_x/sqrt(mu))), the sine read as 1 past pi/2. Attained by x' = -x parallel to y
    and other rows 0 (by a rescaled such pair where the sine is read as 1).
    """
    mu = penalty / 2.0
    row = math.sqrt(pre_periods)
    if row >= math.sqrt(mu):
        return target_norm / math.sqrt(mu)
    return 2.0 * row * target_norm / (mu + row * row)


class Output(Kernel):
    """Ridge synthetic control with noisy weights and a noisy prediction (DPSC_out, corrected).

    Notes
    -----
    *weights.* K-norm Laplace or Gaussian noise for `ridge_sensitivity`, all targets as one vector
    (squares of sensitivities add). The fit is unconstrained, since a constraint can raise the
    sensitivity; projection on the l1 ball (`project`) comes after the noise. The computed weights
    are within a public tolerance of the exact ones, which is twice added to the sensitivity; a
    solution that is not is replaced by zeros (never seen).

    *prediction.* `release_prediction`; clipped to the reach of projected weights.

    References
    ----------
    Rho, S., Cummings, R. and Misra, V. (2023). Differentially private synthetic control. AISTATS.
    """

    name: ClassVar[str] = "output"
    title: ClassVar[str] = "Synthetic control by output perturbation"
    private: ClassVar[bool] = True

    def settings(
        self, penalty: float | None, options: Mapping[str, Any], public: Public
    ) -> Settings:
        """Fill in lambda = T0.

        Options are `release`, `project`, and `target_norm`: 'own', or 'bound' to calibrate the
        noise to a target at its bounds, as published.
        """
        return weight_settings(self.name, penalty, options, public)

    def shares(self, settings: Settings, public: Public) -> Shares:
        """Return half and half."""
        return {"weights": 0.5, "prediction": 0.5}

    def constants(self, settings: Settings, public: Public) -> tuple[tuple[str, str], ...]:
        """Return lambda and the forms chosen."""
        penalty = settings.penalty
        return (
            ("penalty", "leave one period out" if penalty is None else f"{penalty:g}"),
            ("release", settings.release),
            ("weights projected on the l1 ball", "yes" if settings.options["project"] else "no"),
        )

    def run(
        self, panel: Panel, settings: Settings, mechanisms: Mechanisms
    ) -> WeightsReleased | ExactReleased:
        """Release the weights, then the predictions."""
        if mechanisms.source is None or settings.penalty is None:
            return run_ridge(panel, settings.penalty)
        before, penalty = panel.pre_periods, settings.penalty
        donors = np.clip(panel.donors, -1.0, 1.0)
        targets = panel.targets[:, :before].copy()
        # a public target of any size: noise is in proportion to it
        sizes = np.linalg.norm(targets, axis=1)
        if settings.options["target_norm"] == "bound":
            sizes = np.maximum(sizes, math.sqrt(before))
        sensitivity = math.sqrt(
            math.fsum(ridge_sensitivity(float(size), before, penalty) ** 2 for size in sizes)
        )
        largest = float(sizes.max(initial=0.0)) / math.sqrt(penalty / 2.0)
        tolerance = _TOLERANCE * largest
        fitted = np.array(
            [certified_ridge(donors[:, :before], target, penalty, tolerance) for target in targets]
        )
        slack = 2.0 * tolerance * math.sqrt(len(targets))
        noisy, sd = add_vector(mechanisms, "weights", fitted, sensitivity, slack)
        weights = noisy.value.reshape(fitted.shape)
        if settings.options["project"]:
            weights = np.array([project_l1(row) for row in weights])
        post, post_sd, records = release_prediction(
            mechanisms, donors[:, before:], weights, settings.release
        )
        if settings.options["project"]:
            post = within_reach(post, weights)
        return WeightsReleased(
            weights,
            post,
            targets,
            sd,
            post_sd,
            settings.options["project"],
            settings.release,
            (*noisy.records, *records),
        )


def certified_ridge(X: FloatArray, y: FloatArray, penalty: float, tolerance: float) -> FloatArray:
    """Return ridge weights within `tolerance` of the exact ones, or zeros.

    The gradient of the mu-strongly convex objective, over mu, bounds the distance.
    """
    mu = penalty / 2.0
    weights = ridge_weights(X, y, penalty)
    gradient = X @ (X.T @ weights - y) + mu * weights
    # half is left for rounding errors of the gradient itself
    if float(np.linalg.norm(gradient)) <= 0.5 * mu * tolerance:
        return weights
    return np.zeros(len(X))
