"""Private models of the probability of treatment.

References
----------
Chaudhuri, K., Monteleoni, C. and Sarwate, A. D. (2011). Differentially private empirical risk
minimization. Journal of Machine Learning Research 12, 1069-1109. arXiv:0912.0071.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from dpstats.errors import DPStatsError
from dpstats.logistic import minimise, row_scales, sigmoid_of
from dpstats.passed import passed
from dpstats.privacy.accounting import Cost, Release
from dpstats.privacy.calibration import laplace_scale, objective_gaussian_scale
from dpstats.privacy.mechanisms import Mechanisms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpstats.privacy.noise import FloatArray, NoiseSource

__all__ = [
    "FittedPropensity",
    "Known",
    "Objective",
    "Output",
    "Propensity",
    "PropensityModel",
]

NAME = "propensity"
SOLVER = "propensity (solver)"
# share of the budget for the distance between the computed and the exact minimum
_SOLVER_SHARE = 1e-4
# a smaller penalty leaves coefficients of 1e4 and more, where rounding keeps the solver from tau
_SMALLEST_RATIO = 1e-4
_OUTPUT_BITS = 30


class Propensity(Protocol):
    """A fitted model: propensities are functions of released numbers and a row's own covariates."""

    @property
    def records(self) -> tuple[Release, ...]:
        """Records of the noise in it."""

    def predict(self, X: FloatArray) -> FloatArray:
        """Return the probability of treatment of each row, shape (n,)."""


@runtime_checkable
class PropensityModel(Protocol):
    """Anything that fits a propensity privately."""

    def fit(
        self,
        X: FloatArray,
        W: NDArray[np.bool_],
        *,
        eps: float,
        delta: float,
        source: NoiseSource | None,
    ) -> Propensity:
        """Fit within (eps, delta); `source=None` with `eps=inf` means without noise."""


@dataclass(frozen=True, slots=True)
class FittedPropensity:
    """A released logistic regression.

    Attributes
    ----------
    coefficients : ndarray
        Shape (d,), for rows shrunk to norm `row_norm` and divided by it; the first belongs to the
        constant column 1/2.
    row_norm : float or None
    records : tuple of Release
    """

    coefficients: FloatArray
    row_norm: float | None
    records: tuple[Release, ...]

    def predict(self, X: FloatArray) -> FloatArray:
        """Return the probability of treatment of each row.

        Parameters
        ----------
        X : ndarray
            Shape (n, d): the design as it was fitted on.
        """
        return sigmoid_of(X, row_scales(X, self.row_norm), self.coefficients)


# R: bounds are wide, so that most rows are shorter than this already (a measured choice)
ROW_NORM = 1.0


@dataclass(frozen=True, slots=True)
class Objective:
    r"""Logistic regression by objective perturbation.

    Parameters
    ----------
    penalty : float, optional
        L. By default 2 `rows_per_person` / eps, the smallest penalty at which the Jacobian costs
        nothing.
    row_norm : float, optional
        R, the public Euclidean norm to which rows are shrunk; 1 by default.
    rows_per_person : int
        Rows a person may have.
    relative_penalty : float, optional
        L in units of that smallest free penalty, where `penalty` is None. By default 1, and 0.5
        for `ipw`, whose weights want less shrinkage.

    Notes
    -----
    Minimises :math:`\sum_i \log(1 + e^{-s_i x_i'w}) + (L/2)\|w\|^2 + b'w` over w, with
    :math:`\|x_i\| \le 1`. Protects against replacing a row.

    *Laplace.* b has the K-norm density with scale 2/eps', and eps' = eps for L >= 2/eps. For given
    w the noise must be :math:`b = -(Lw - \sum_i \sigma_i s_i x_i)` with
    :math:`\sigma_i = \sigma(-s_i x_i'w)`. Replacing row 1 by row 2 moves it by at most
    :math:`\sigma_1 + \sigma_2 \le 1 + \sigma_1`. The two Hessians share n - 1 rows and the ridge,
    so their determinants have ratio at most :math:`1 + \sigma_1(1-\sigma_1)/L`. The log density
    ratio is at most the maximum over sigma of :math:`h = eps'(1+\sigma)/2 +
    \log(1+\sigma(1-\sigma)/L)`, which is concave with slope eps'/2 - 1/L at sigma = 1; for
    L >= 2/eps' it is therefore h(1) = eps'. For smaller L, eps' solves max h = eps.

    *Gaussian* (delta > 0). b is normal with standard deviation beta. The shift depends on w, hence
    on b, so the calibration for a fixed shift has no proof here. The shift lies in the plane of
    the two rows, which is fixed; with x = 2/beta and R the norm of the part of b/beta in that
    plane (chi law, 2 degrees of freedom) the loss at sigma is at most
    :math:`h = xR(1+\sigma)/2 + x^2(1+\sigma)^2/8 + \log(1+\sigma(1-\sigma)/L)`. Then
    :math:`h(1) - h(\sigma) \ge (1-\sigma)(h(1)/2 - 1/L)`, so for L >= 2/eps the loss exceeds eps
    only where h(1) does, and there h(1) bounds it: delta = E[(1 - exp(eps - h(1)))+] as
    `objective_log_delta` has it. For smaller L the Jacobian log(1 + 1/(4L)) is taken off eps.

    *k rows a person.* The shift is at most the sum of k such terms and the determinant ratio the
    product of k: scale 2k/eps', L >= 2k/eps, x = 2k/beta and 2k degrees of freedom.

    *Exactness.* The proof is about the exact minimum. The computed one has a gradient of norm at
    most tau (public), so it is within tau/L of it; given the exact minimum it is a release of
    sensitivity 2 tau/L, protected by K-norm noise for 1e-4 of the budget, which is taken off
    first. A solver that misses tau (never seen) returns zero coefficients.

    Examples
    --------
    >>> from dpstats.propensity import Objective
    >>> Objective(row_norm=1.0)
    Objective(penalty=None, row_norm=1.0, rows_per_person=1, relative_penalty=None)
    """

    penalty: float | None = None
    row_norm: float | None = None
    rows_per_person: int = 1
    relative_penalty: float | None = None

    def __post_init__(self) -> None:
        _check_constants(self.penalty, self.row_norm, self.relative_penalty)

    def describe(self) -> str:
        """Put the constants in words."""
        free = 2.0 * self.rows_per_person * (self.relative_penalty or 1.0)
        penalty = f"{self.penalty:g}" if self.penalty else f"{free:g}/eps"
        return f"row norm {self.row_norm or ROW_NORM:g}, penalty {penalty}"

    def calibrated(self, eps: float, delta: float) -> tuple[float, float, float]:
        """Return the budget of the noise, the penalty and the scale of the noise.

        Parameters
        ----------
        eps, delta : float
            Budget of the release; Gaussian noise where `delta` > 0.

        Raises
        ------
        DPStatsError
            If `penalty` is too small for `eps`.
        """
        k = self.rows_per_person
        eps_fit = eps - _SOLVER_SHARE * eps
        penalty = self.penalty or (self.relative_penalty or 1.0) * 2.0 * k / eps_fit
        if delta > 0.0:
            scale = objective_gaussian_scale(_gaussian_epsilon(eps_fit, penalty, k), delta, k)
        else:
            scale = laplace_scale(2.0 * k, _laplace_epsilon(eps_fit, penalty, k))
        if self.penalty is None:
            # only normal noise at an enormous eps; a larger penalty than planned is free
            penalty = max(penalty, _SMALLEST_RATIO * scale)
        if penalty < _SMALLEST_RATIO * scale:
            raise DPStatsError(_small_penalty(penalty, eps, k))
        return eps_fit, penalty, scale

    def fit(
        self,
        X: FloatArray,
        W: NDArray[np.bool_],
        *,
        eps: float,
        delta: float,
        source: NoiseSource | None,
    ) -> FittedPropensity:
        """Fit and release the coefficients.

        Parameters
        ----------
        X : ndarray
            Shape (n, d), entries in [-1, 1], the first column constant 1/2.
        W : ndarray of bool
            Shape (n,).
        eps, delta : float
            Budget of this release; Gaussian noise where `delta` > 0.
        source : NoiseSource or None
            None fits by maximum likelihood without noise.

        Raises
        ------
        DPStatsError
            If `penalty` is too small for `eps` (before any noise is drawn); without noise, if the
            maximum does not exist.
        """
        if source is None:
            return _maximum_likelihood(X, W, self.penalty or 0.0, self.row_norm)
        n, d = X.shape
        k = self.rows_per_person
        row_norm = self.row_norm or ROW_NORM
        eps_fit, penalty, scale = self.calibrated(eps, delta)
        eps_solver = _SOLVER_SHARE * eps
        draw = source.normal if delta > 0.0 else partial(source.knorm, ball="l2")
        noise = draw(NAME, d, scale)
        record = Release(
            NAME,
            "all rows",
            "objective, Gaussian" if delta else "objective, K-norm",
            "l2",
            2.0 * k,
            scale,
            eps_fit,
            delta,
        )
        tau = _perturbed_tolerance(n, d, penalty, scale)
        coefficients = _within_tolerance(X, W, row_norm, penalty, noise, tau)
        # times k, so that the cost of some of a person's rows is in proportion to their number
        exact = Mechanisms(source, "laplace", {SOLVER: Cost(eps_solver)}, rows_per_person=k).knorm(
            SOLVER, coefficients, sensitivity=2.0 * tau / penalty, grid_bits=0
        )
        return FittedPropensity(exact.value, row_norm, (record, *exact.records))


@dataclass(frozen=True, slots=True)
class Output:
    r"""Logistic regression by output perturbation.

    Parameters
    ----------
    penalty : float, optional
        L, not per row (Lambda = L/n). By default sqrt(n d / eps).
    row_norm : float, optional
        As for `Objective`.
    rows_per_person : int
        Rows a person may have.

    Notes
    -----
    The minimum of :math:`\sum_i \log(1 + e^{-s_i x_i'w}) + (L/2)\|w\|^2` with :math:`\|x_i\|\le 1`
    moves by at most 2/L when a row is replaced: the gradient at either minimum moves by at most 2
    and the objective is L-strongly convex. The computed minimum is within tau/L of the exact one,
    so the sensitivity is 2(1 + tau)/L. K-norm Laplace noise, or Gaussian noise by the analytic
    calibration (the shift is fixed) where delta > 0.
    """

    penalty: float | None = None
    row_norm: float | None = None
    rows_per_person: int = 1

    def __post_init__(self) -> None:
        _check_constants(self.penalty, self.row_norm)

    def describe(self) -> str:
        """Put the constants in words."""
        penalty = f"{self.penalty:g}" if self.penalty else "sqrt(n d / eps)"
        return f"row norm {self.row_norm or ROW_NORM:g}, penalty {penalty}"

    def fit(
        self,
        X: FloatArray,
        W: NDArray[np.bool_],
        *,
        eps: float,
        delta: float,
        source: NoiseSource | None,
    ) -> FittedPropensity:
        """Fit and release the coefficients; parameters as for `Objective.fit`."""
        if source is None:
            return _maximum_likelihood(X, W, self.penalty or 0.0, self.row_norm)
        n, d = X.shape
        row_norm = self.row_norm or ROW_NORM
        penalty = self.penalty or math.sqrt(n * d / eps)
        tau = _tolerance(n)
        coefficients = _within_tolerance(X, W, row_norm, penalty, np.zeros(d), tau)
        sensitivity = 2.0 * (1.0 + tau) / penalty
        mechanisms = Mechanisms(
            source, "laplace", {NAME: Cost(eps, delta)}, rows_per_person=self.rows_per_person
        )
        if delta > 0.0:
            # a grid on which no coefficient overflows: their norm is at most n / penalty
            lattice = math.floor(math.log2(sensitivity)) - _OUTPUT_BITS
            rounding = math.sqrt(d) * math.ldexp(1.0, lattice)
            noisy = mechanisms.additive(
                NAME,
                coefficients,
                l1=math.inf,
                l2=sensitivity + rounding,
                lattice=lattice,
                kind="gaussian",
            )
        else:
            noisy = mechanisms.knorm(NAME, coefficients, sensitivity=sensitivity)
        return FittedPropensity(noisy.value, row_norm, noisy.records)


@dataclass(frozen=True, slots=True)
class Known:
    """A propensity known by design: a randomised trial. It costs no budget.

    Parameters
    ----------
    probability : float, optional
        The same for every row, in (0, 1). Not clipped.
    column : str, optional
        Column of `data` with each row's probability, part of the protected row. It must have been
        fixed by the design and never fitted on these data. Clipped to `overlap`.
    """

    probability: float | None = None
    column: str | None = None

    def __post_init__(self) -> None:
        if (self.probability is None) == (self.column is None):
            raise DPStatsError("`propensity` Known needs either `probability` or `column`")
        p = self.probability
        if p is not None and not (_is_number(p) and 0.0 < p < 1.0):
            raise DPStatsError(f"`propensity` must be a probability in (0, 1); got {passed(p)}")
        if p is not None and not 1e-9 <= p <= 1.0 - 1e-9:
            raise DPStatsError(
                f"`propensity` must be at least 1e-9 away from 0 and 1; got {passed(p)}"
            )
        if self.column is not None and not isinstance(self.column, str):
            raise DPStatsError(f"`propensity` column must be a name; got {passed(self.column)}")


def _check_constants(
    penalty: float | None, row_norm: float | None, relative_penalty: float | None = None
) -> None:
    constants = {"penalty": penalty, "row_norm": row_norm, "relative_penalty": relative_penalty}
    for name, value in constants.items():
        if value is not None and not (_is_number(value) and math.isfinite(value) and value > 0.0):
            raise DPStatsError(f"`{name}` must be a positive number; got {passed(value)}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _tolerance(n: int) -> float:
    return 1e-9 * max(1.0, n / 1e6)


def _perturbed_tolerance(n: int, d: int, penalty: float, scale: float) -> float:
    # the gradient is rounded in units of the noise, the logits in units of noise / penalty
    return max(_tolerance(n), 1e-15 * n * d * scale / penalty, 1e-12 * d * scale)


def _laplace_epsilon(epsilon: float, penalty: float, rows: int) -> float:
    """Return eps': all of epsilon for a penalty of at least 2 rows / epsilon, less below it."""
    if penalty >= 2.0 * rows / epsilon:
        return epsilon

    def total(candidate: float) -> float:
        c = candidate / (2.0 * rows)
        root = math.sqrt((2.0 - c) ** 2 + 4.0 * c * (c * penalty + 1.0))
        # the stationary point of the concave bound, written so that c = 0 is no special case
        sigma = min(1.0, 2.0 * (c * penalty + 1.0) / (root + 2.0 - c))
        return rows * (c * (1.0 + sigma) + math.log1p(sigma * (1.0 - sigma) / penalty))

    low, high = 0.0, epsilon
    if total(low) >= epsilon:
        raise DPStatsError(_small_penalty(penalty, epsilon, rows))
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if total(middle) <= epsilon else (low, middle)
    return low


def _gaussian_epsilon(epsilon: float, penalty: float, rows: int) -> float:
    if penalty >= 2.0 * rows / epsilon:
        return epsilon
    left = epsilon - rows * math.log1p(1.0 / (4.0 * penalty))
    if left <= 0.0:
        raise DPStatsError(_small_penalty(penalty, epsilon, rows))
    return left


def _small_penalty(penalty: float, epsilon: float, rows: int) -> str:
    return (
        f"`penalty` of the propensity is too small for its budget of {epsilon:g}: the Jacobian "
        f"leaves nothing for the noise; got {penalty:g}, and {2 * rows}/{epsilon:g} is always "
        "enough"
    )


def _within_tolerance(
    X: FloatArray,
    W: NDArray[np.bool_],
    row_norm: float,
    penalty: float,
    linear: FloatArray,
    tau: float,
) -> FloatArray:
    """Return a minimum with a gradient of norm at most tau, or zeros (a public constant)."""
    # half of tau is left for rounding errors in the gradient itself
    found = minimise(
        X, W, row_scales(X, row_norm), penalty=penalty, linear=linear, tolerance=tau / 2.0
    )
    return found.coefficients if found.gradient_norm <= tau / 2.0 else np.zeros(linear.size)


def _maximum_likelihood(
    X: FloatArray, W: NDArray[np.bool_], penalty: float, row_norm: float | None
) -> FittedPropensity:
    scales = row_scales(X, row_norm)
    found = minimise(
        X, W, scales, penalty=penalty, linear=np.zeros(X.shape[1]), tolerance=_tolerance(len(W)) / 2
    )
    fitted = FittedPropensity(found.coefficients, row_norm, ())
    separated = float(np.abs(fitted.predict(X) - W).max()) < 1e-4
    if separated or found.gradient_norm > 1e-6 * len(W):
        raise DPStatsError(
            "`propensity` could not be fitted at `eps` = inf: the covariates separate treated from "
            "control rows; drop columns or pass `propensity`"
        )
    return fitted
