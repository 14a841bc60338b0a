"""Estimators without noise (`eps=inf`): ridge, simplex, lasso, elastic net, robust."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.errors import DPStatsError
from dpstats.passed import passed
from dpstats.synth.kernels.base import Errors, Kernel, Parts, Public, Settings, Shares
from dpstats.synth.kernels.paths import Residuals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms
    from dpstats.privacy.noise import FloatArray
    from dpstats.synth.kernels.base import Panel

__all__ = [
    "ElasticNet",
    "ExactReleased",
    "Lasso",
    "Robust",
    "Simplex",
    "elastic_net_weights",
    "ridge_weights",
    "robust_donors",
    "run_ridge",
    "simplex_weights",
]

# donors up to which an elastic net is a non-negative least squares problem
_MANY = 100
_GRID = 10.0 ** np.arange(-4.0, 2.01, 0.5)


@dataclass(frozen=True, slots=True)
class ExactReleased:
    """Weights and paths of an ordinary, not private, synthetic control.

    Attributes
    ----------
    paths : ndarray
        Shape (g, T), fitted and predicted.
    donor_weights : ndarray
        Shape (g, n).
    residuals : ndarray
        Shape (g, T0): of each pre-period, from weights fitted without it.
    targets : ndarray
        Shape (g, T0), to tell the targets of the call from others.
    penalties : ndarray
        Shape (g,): lambda of each target (nan where the method has none).
    """

    paths: FloatArray
    donor_weights: FloatArray
    residuals: FloatArray
    targets: FloatArray
    penalties: FloatArray

    @property
    def records(self) -> tuple[Release, ...]:
        """No noise, no record."""
        return ()

    @property
    def exact(self) -> bool:
        """Always."""
        return True

    @property
    def any_target(self) -> bool:
        """Weights belong to the targets of the call."""
        return False

    def predict(self, targets: FloatArray) -> FloatArray:
        """Return counterfactual paths of the targets of the call, shape (g, T)."""
        return self.paths[match_targets(targets, self.targets)]

    def weights(self) -> FloatArray | None:
        """Return the donor weights, shape (g, n)."""
        return self.donor_weights

    def placebo(self, targets: FloatArray, pre_periods: int) -> None:
        """Return None: run the method again with an earlier intervention."""
        return

    def noise_sd(self) -> float:
        """Return 0."""
        return 0.0

    def errors(
        self, target: FloatArray, draws: int, rng: np.random.Generator, parts: Parts
    ) -> Errors:
        """Simulate sampling errors like those of pre-periods that were left out of the fit."""
        before = self.targets.shape[1]
        periods = self.paths.shape[1]
        if parts == "privacy":
            return Errors(np.zeros((draws, periods - before)), np.zeros(draws))
        row = match_targets(target[None], self.targets)[0]
        model = Residuals.of(self.residuals[row], periods, 0.0)
        errors = -model.draw(model.spread(draws, rng), rng)[:, before:]
        return Errors(errors, errors.mean(axis=1))


def match_targets(targets: FloatArray, known: FloatArray) -> list[int]:
    """Return the row of each target among those of the call, by their pre-periods.

    Raises
    ------
    DPStatsError
        If one was not part of it.
    """
    before = known.shape[1]
    rows = []
    for target in targets:
        same = np.flatnonzero((known == target[:before]).all(axis=1))
        if same.size == 0:
            raise DPStatsError("this method predicts only for the units named by `treated`")
        rows.append(int(same[0]))
    return rows


def ridge_weights(X: FloatArray, y: FloatArray, penalty: float) -> FloatArray:
    """Return (XX' + mu I)^-1 X y, mu = `penalty` / 2.

    Parameters
    ----------
    X : ndarray
        Shape (n, T0).
    y : ndarray
        Shape (T0,) or (T0, g).
    penalty : float
        lambda; 0 gives the least-squares solution of least norm.
    """
    # singular values serve n above and below T0 alike
    u, d, vt = np.linalg.svd(X, full_matrices=False)
    if penalty == 0.0:
        largest = d.max(initial=0.0)
        d = np.where(d > 1e-12 * largest, d, math.inf)
        return np.asarray((u / d) @ (vt @ y))
    return np.asarray((u * (d / (d * d + penalty / 2.0))) @ (vt @ y))


def simplex_weights(X: FloatArray, y: FloatArray) -> FloatArray:
    """Return weights w >= 0 with sum 1 that minimise ||y - X'w||, shape (n,).

    Notes
    -----
    For such w, y - X'w = B w with B = y 1' - X'. Minimising t^2 ||Bw||^2 + (t - 1)^2 over u = t w
    >= 0 without the sum constraint gives, for fixed w, ||Bw||^2 / (1 + ||Bw||^2), increasing in
    ||Bw||: a non-negative least squares problem (Lawson and Hanson 1974), solved exactly.
    """
    from scipy.optimize import nnls

    gaps = y[:, None] - X.T
    scale = float(np.abs(gaps).max()) or 1.0
    system = np.vstack([gaps / scale, np.ones(len(X))])
    solution, _ = nnls(system, np.eye(1, len(system), len(system) - 1)[0], maxiter=30 * len(X))
    return np.asarray(solution / solution.sum())


def elastic_net_weights(
    X: FloatArray, y: FloatArray, penalty: float, l1_ratio: float
) -> FloatArray:
    """Minimise ||y - X'f||^2 + lambda (rho |f|_1 + (1 - rho)/2 ||f||^2), shape (n,).

    Parameters
    ----------
    X : ndarray
        Shape (n, T0).
    y : ndarray
        Shape (T0,).
    penalty, l1_ratio : float
        lambda and rho; rho = 1 is the lasso, rho = 0 the ridge.

    Notes
    -----
    The ridge part is n more rows of data. The residual of a lasso is the projection of y on the
    polytope |x_i'r| <= lambda rho / 2; such a least-distance problem is one of non-negative least
    squares (Lawson and Hanson 1974, chapter 23), whose multipliers are the weights. Many donors
    with a ridge part are fitted through the residual instead, see `_elastic_residual`.
    """
    from scipy.optimize import nnls

    if l1_ratio == 0.0:
        return ridge_weights(X, y, penalty)
    lengths = np.abs(X).max(axis=1, initial=0.0)
    live = lengths > 1e-100 * lengths.max(initial=0.0)
    if not live.all():
        # a donor without a series has no weight; below it would be divided by its length
        weights = np.zeros(len(X))
        if live.any():
            weights[live] = elastic_net_weights(X[live], y, penalty, l1_ratio)
        return weights
    n = len(X)
    if n > _MANY and l1_ratio < 1.0 and penalty > 0.0:
        return _elastic_residual(X, y, penalty * l1_ratio, penalty * (1.0 - l1_ratio))
    ridge = penalty * (1.0 - l1_ratio) / 2.0
    half = penalty * l1_ratio / 2.0
    design, response = X, y
    if ridge > 0.0:
        design = np.hstack([X, math.sqrt(ridge) * np.eye(n)])
        response = np.concatenate([y, np.zeros(n)])
    scale = float(np.linalg.norm(response)) or 1.0
    sizes = np.maximum(np.linalg.norm(design, axis=1), 1e-300)
    rows = design / sizes[:, None]
    inner, bound = rows @ response / scale, half / sizes / scale
    # z = r - y: rows z >= -bound - inner and -rows z >= -bound + inner
    system = np.vstack([np.hstack([rows.T, -rows.T]), np.hstack([-bound - inner, -bound + inner])])
    goal = np.zeros(len(system))
    goal[-1] = 1.0
    multipliers, _ = nnls(system, goal, maxiter=60 * n)
    last = float((system[-1] @ multipliers) - 1.0)
    signed = multipliers[:n] - multipliers[n:]
    return np.asarray(signed / last / sizes * scale) if last != 0.0 else np.zeros(n)


def _elastic_residual(X: FloatArray, y: FloatArray, c: float, m: float) -> FloatArray:
    """Minimise ||y - X'f||^2 + c |f|_1 + (m/2) ||f||^2 by Newton steps in T0 dimensions.

    The minimum has f = S(2 X r, c) / m, S the soft threshold, so its residual r solves
    r + X'S(2 X r, c)/m = y: the gradient of a strongly convex, piecewise quadratic function.
    """
    from scipy.optimize import minimize

    def soft(r: FloatArray) -> FloatArray:
        inner = 2.0 * (X @ r)
        return np.asarray(np.sign(inner) * np.maximum(np.abs(inner) - c, 0.0))

    def value(r: FloatArray) -> float:
        s = soft(r)
        return float(0.5 * (r @ r) - y @ r + (s @ s) / (4.0 * m))

    def gradient(r: FloatArray) -> FloatArray:
        return np.asarray(r - y + X.T @ soft(r) / m)

    def curvature(r: FloatArray) -> FloatArray:
        active = X[np.abs(2.0 * (X @ r)) > c]
        return np.asarray(np.eye(y.size) + (2.0 / m) * (active.T @ active))

    found = minimize(value, np.zeros(y.size), jac=gradient, hess=curvature, method="trust-exact")
    r = np.asarray(found.x, dtype=np.float64)
    # the last pieces are quadratic: plain steps end at rounding errors
    for _ in range(5):
        r = r - np.linalg.solve(curvature(r), gradient(r))
    return soft(r) / m


def robust_donors(
    donors: FloatArray,
    missing: np.ndarray | None,
    *,
    threshold: float | None,
    rank: int | None,
) -> tuple[FloatArray, int]:
    """Denoise the donor matrix by singular value thresholding (Amjad, Shah and Shen 2018).

    Parameters
    ----------
    donors : ndarray
        Shape (n, T); values of missing cells are not read.
    missing : ndarray of bool or None
    threshold : float or None
        Singular values below it are set to 0, in units of the donors centred and scaled to
        [-1, 1]. None: the median singular value times omega(min/max of the shape) as by Gavish
        and Donoho (2014), for an unknown noise level.
    rank : int or None
        Keep that many instead.

    Returns
    -------
    ndarray, int
        The denoised matrix and its rank.
    """
    seen = np.ones(donors.shape, dtype=bool) if missing is None else ~missing
    if not seen.any():
        raise DPStatsError("`panel` has no observed donor cell")
    low, high = float(donors[seen].min()), float(donors[seen].max())
    middle, half = (low + high) / 2.0, (high - low) / 2.0 or 1.0
    filled = np.where(seen, (np.where(seen, donors, 0.0) - middle) / half, 0.0)
    share = max(float(seen.mean()), 1.0 / seen.size)
    u, d, vt = np.linalg.svd(filled, full_matrices=False)
    if rank is not None:
        kept = np.arange(d.size) < rank
    else:
        if threshold is None:
            ratio = min(donors.shape) / max(donors.shape)
            omega = 0.56 * ratio**3 - 0.95 * ratio**2 + 1.82 * ratio + 1.43
            threshold = omega * float(np.median(d))
        kept = d > threshold
        kept[0] = True
    clean = (u[:, kept] * d[kept]) @ vt[kept] / share
    return middle + half * clean, int(kept.sum())


def leave_one_out(
    X: FloatArray, y: FloatArray, fit: Callable[[FloatArray, FloatArray, float], FloatArray]
) -> float:
    """Choose lambda by leaving out one pre-period at a time, over a grid relative to the data."""
    scale = 2.0 * float(np.sum(X * X)) / X.shape[1]
    if scale == 0.0:
        return 1.0
    best, chosen = math.inf, scale
    for factor in _GRID[::-1]:
        left = left_out(X, y, factor * scale, fit)
        loss = float(left @ left)
        if loss < best * (1.0 - 1e-9):
            best, chosen = loss, factor * scale
    return chosen


def left_out(
    X: FloatArray,
    y: FloatArray,
    penalty: float,
    fit: Callable[[FloatArray, FloatArray, float], FloatArray],
) -> FloatArray:
    """Return the residual of each pre-period from weights fitted without it, shape (T0,)."""
    residuals = np.empty(y.size)
    for t in range(y.size):
        kept = np.arange(y.size) != t
        residuals[t] = y[t] - X[:, t] @ fit(X[:, kept], y[kept], penalty)
    return residuals


def run_ridge(panel: Panel, penalty: float | None) -> ExactReleased:
    """Return the ridge synthetic control (Algorithm 1 of Rho, Cummings and Misra without noise)."""
    return _run(panel, panel.donors, penalty, ridge_weights, penalised=True)


def _run(
    panel: Panel,
    donors: FloatArray,
    penalty: float | None,
    fit: Callable[[FloatArray, FloatArray, float], FloatArray],
    *,
    penalised: bool,
) -> ExactReleased:
    before = panel.pre_periods
    X = donors[:, :before]
    weights, penalties, residuals = [], [], []
    for target in panel.targets[:, :before]:
        chosen = penalty
        if chosen is None:
            chosen = leave_one_out(X, target, fit) if penalised else math.nan
        weights.append(fit(X, target, chosen))
        penalties.append(chosen)
        residuals.append(left_out(X, target, chosen, fit))
    stacked = np.array(weights)
    targets = panel.targets[:, :before].copy()
    return ExactReleased(
        stacked @ donors, stacked, np.array(residuals), targets, np.array(penalties)
    )


class _Exact(Kernel):
    private: ClassVar[bool] = False
    allowed: ClassVar[tuple[str, ...]] = ()
    penalised: ClassVar[bool] = True

    def settings(
        self, penalty: float | None, options: Mapping[str, Any], public: Public
    ) -> Settings:
        """Refuse a finite `eps` and what has no meaning here."""
        if not math.isinf(public.epsilon):
            raise DPStatsError(
                f"method {self.name!r} is not private and needs `eps` = inf; got {public.epsilon:g}"
            )
        strange = [key for key in options if key not in self.allowed]
        if strange:
            raise DPStatsError(
                f"method {self.name!r} has no option {', '.join(map(repr, strange))}"
            )
        if penalty is not None and not self.penalised:
            raise DPStatsError(f"`penalty` has no meaning for method {self.name!r}; leave it out")
        return Settings(check_penalty(penalty, zero=True), "projection", False, dict(options))

    def shares(self, settings: Settings, public: Public) -> Shares:
        """Nothing is released privately."""
        return {}

    def constants(self, settings: Settings, public: Public) -> tuple[tuple[str, str], ...]:
        """Return the constants that were set."""
        shown = [(str(key), str(value)) for key, value in settings.options.items()]
        if self.penalised:
            penalty = settings.penalty
            text = "leave one period out" if penalty is None else f"{penalty:g}"
            shown.insert(0, ("penalty", text))
        return tuple(shown)


class Simplex(_Exact):
    """Weights on the simplex (Abadie, Diamond and Hainmueller 2010, without covariates)."""

    name: ClassVar[str] = "simplex"
    title: ClassVar[str] = "Synthetic control with weights on the simplex"
    penalised: ClassVar[bool] = False

    def run(self, panel: Panel, settings: Settings, mechanisms: Mechanisms) -> ExactReleased:
        """Fit."""

        def fit(X: FloatArray, y: FloatArray, _: float) -> FloatArray:
            return simplex_weights(X, y)

        return _run(panel, panel.donors, None, fit, penalised=False)


class Lasso(_Exact):
    """Weights with an l1 penalty: ||y - X'f||^2 + lambda |f|_1."""

    name: ClassVar[str] = "lasso"
    title: ClassVar[str] = "Synthetic control with lasso weights"

    def run(self, panel: Panel, settings: Settings, mechanisms: Mechanisms) -> ExactReleased:
        """Fit."""

        def fit(X: FloatArray, y: FloatArray, penalty: float) -> FloatArray:
            return elastic_net_weights(X, y, penalty, 1.0)

        return _run(panel, panel.donors, settings.penalty, fit, penalised=True)


class ElasticNet(_Exact):
    """Weights with both penalties; option `l1_ratio` (.5) as in `elastic_net_weights`."""

    name: ClassVar[str] = "elastic_net"
    title: ClassVar[str] = "Synthetic control with elastic net weights"
    allowed: ClassVar[tuple[str, ...]] = ("l1_ratio",)

    def run(self, panel: Panel, settings: Settings, mechanisms: Mechanisms) -> ExactReleased:
        """Fit."""
        ratio = settings.options.get("l1_ratio", 0.5)
        if not (is_number(ratio) and 0.0 <= ratio <= 1.0):
            raise DPStatsError(f"`l1_ratio` must lie in [0, 1]; got {passed(ratio)}")

        def fit(X: FloatArray, y: FloatArray, penalty: float) -> FloatArray:
            return elastic_net_weights(X, y, penalty, float(ratio))

        return _run(panel, panel.donors, settings.penalty, fit, penalised=True)


class Robust(_Exact):
    """Ridge or least squares on denoised donors, missing cells allowed.

    Options: `threshold` (of singular values), `rank` (instead of it). `penalty` 0, the default, is
    least squares.
    """

    name: ClassVar[str] = "robust"
    title: ClassVar[str] = "Robust synthetic control (singular value thresholding)"
    allowed: ClassVar[tuple[str, ...]] = ("threshold", "rank")

    def constants(self, settings: Settings, public: Public) -> tuple[tuple[str, str], ...]:
        """Return the constants that were set."""
        shown = super().constants(settings, public)
        return (("penalty", f"{settings.penalty or 0.0:g}"), *shown[1:])

    def run(self, panel: Panel, settings: Settings, mechanisms: Mechanisms) -> ExactReleased:
        """Denoise and fit."""
        threshold = settings.options.get("threshold")
        rank = settings.options.get("rank")
        if threshold is not None and not (is_number(threshold) and threshold >= 0.0):
            raise DPStatsError(f"`threshold` must be a number, at least 0; got {passed(threshold)}")
        if rank is not None and not (isinstance(rank, int | np.integer) and rank >= 1):
            raise DPStatsError(f"`rank` must be a whole number, at least 1; got {passed(rank)}")
        kept = None if rank is None else int(rank)
        clean, _ = robust_donors(panel.donors, panel.missing, threshold=threshold, rank=kept)
        return _run(panel, clean, settings.penalty or 0.0, ridge_weights, penalised=True)


def check_penalty(penalty: float | None, *, zero: bool = False) -> float | None:
    """Return a penalty as a float.

    Raises
    ------
    DPStatsError
        If it is not a positive number (or 0, where allowed).
    """
    if penalty is None:
        return None
    smallest = "at least 0" if zero else "positive"
    good = is_number(penalty) and math.isfinite(penalty)
    if not (good and (penalty > 0.0 or (zero and penalty == 0.0))):
        raise DPStatsError(f"`penalty` must be a number, {smallest}; got {passed(penalty)}")
    return float(penalty)


def is_number(value: object) -> bool:
    """Return whether `value` is a number that is no bool."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
