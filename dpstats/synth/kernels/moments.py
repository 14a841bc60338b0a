"""Synthetic control as a regression across donors, from two noisy sums of outer products."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.errors import DPStatsError
from dpstats.synth.kernels.base import Errors, Kernel, Parts, Public, Settings, Shares
from dpstats.synth.kernels.design import ROUNDS, design_of
from dpstats.synth.kernels.loadings import (
    Fit,
    decompose,
    edge_of,
    entry_sd_of,
    noise_matrices,
    noise_weights,
    score_map,
    score_root,
    without_constant,
)
from dpstats.synth.kernels.paths import Residuals, cosines, persistence, typical_deviation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms, NoiseKind
    from dpstats.privacy.noise import FloatArray
    from dpstats.synth.kernels.base import Panel
    from dpstats.synth.kernels.design import Design

__all__ = ["Moments", "MomentsReleased"]

# measured choices; errors are flat around them
_SHRINK = 0.3
# of a second round with fewer paths
_SHRINK_FEW = 0.1
_TARGET_SHARE = 0.3
_INFLATION = 0.625
_HIDDEN = 0.5
_SURE = 2.0
_RANGE_IN_SDS = 3.0
_LEAST_BULK = 0.25
_BLOCK = 2048
# distinct releases in a bootstrap; targets are drawn anew for every draw
_RELEASES = 250
_ROW_BITS = 20


@dataclass(frozen=True, slots=True)
class MomentsReleased:
    """Released numbers of `Moments`.

    Attributes
    ----------
    matrix : ndarray
        Shape (Q, Q): the noisy sum of the second round.
    metric : ndarray
        Shape (Q, Q): M, learned from the first round.
    basis : ndarray
        Shape (T0, r): C, the orthonormal pre-period paths on which `matrix` sees a series; cosines,
        or what the first round and the targets single out of them.
    n, periods, pre_periods : int
    pre_cosines, post_basis : int
        q0 and q1.
    constant : float
        s, the constant coordinate (public).
    entry_sd, noise_edge : float
        Noise sd of an off-diagonal entry of `matrix`, and the edge of the noise's spectrum.
    level : float
        mu or epsilon of the second round; inf without noise.
    kind : {"laplace", "gaussian"}
    deviation : float
        Root mean square of the (public) targets about their pre-period means.
    records : tuple of Release
    """

    matrix: FloatArray
    metric: FloatArray
    basis: FloatArray
    n: int
    periods: int
    pre_periods: int
    pre_cosines: int
    post_basis: int
    constant: float
    entry_sd: float
    noise_edge: float
    level: float
    kind: NoiseKind
    deviation: float
    records: tuple[Release, ...]

    @property
    def exact(self) -> bool:
        """Whether nothing was added (`eps=inf`)."""
        return math.isinf(self.level)

    @property
    def any_target(self) -> bool:
        """True: the released sums serve any target outside the donor pool."""
        return True

    @property
    def pre_basis(self) -> int:
        """r, the number of pre-period paths of the second round."""
        return int(self.basis.shape[1])

    @property
    def directions(self) -> int:
        """Number of directions found above the noise; 0 means that donors taught nothing."""
        return int((self._fit().strengths > 0.0).sum())

    def predict(self, targets: FloatArray) -> FloatArray:
        """Return counterfactual paths, shape (g, T); before the intervention the fit."""
        before = targets[:, : self.pre_periods]
        path, residuals = self._paths(self._fit(), before)
        ahead = np.arange(1, self.periods - self.pre_periods + 1)
        carried = residuals[:, -1:] * persistence(residuals)[:, None] ** ahead
        path[:, self.pre_periods :] += carried
        return path

    def placebo(self, targets: FloatArray, pre_periods: int) -> FloatArray:
        """Return counterfactual paths with an intervention after `pre_periods` periods, free."""
        fit = self._fit()
        lines = self._lines(fit.loadings)
        lines = lines - lines[:pre_periods].mean(axis=0)
        basis = cosines(pre_periods, pre_periods - 1, constant=False)
        upper = np.vstack([fit.loadings[:1], basis.T @ lines[:pre_periods]])
        solution = score_map(upper, self._weights(fit.bulk, pre_periods))
        before = targets[:, :pre_periods]
        mean = before.mean(axis=1, keepdims=True)
        scores = _coordinates(before - mean, basis, self.constant) @ solution.T
        path = mean + scores @ lines.T
        residuals = before - path[:, :pre_periods]
        ahead = np.arange(1, self.periods - pre_periods + 1)
        path[:, pre_periods:] += residuals[:, -1:] * persistence(residuals)[:, None] ** ahead
        return path

    def weights(self) -> None:
        """Return None: no donor weight is released."""
        return

    def noise_sd(self) -> float:
        """Return the size of what a direction just below the noise edge may hide (public)."""
        return self.deviation * math.sqrt(min(1.0, self.noise_edge / self.n))

    def errors(
        self, target: FloatArray, draws: int, rng: np.random.Generator, parts: Parts
    ) -> Errors:
        """Simulate errors by a parametric bootstrap of target and release.

        Notes
        -----
        The world is the released factor model with unbiased strengths; the target's scores and
        residuals are drawn around what was fitted; the second release is drawn anew. Errors are
        then inflated by a factor that the release itself shows (what it holds, unbiasedly, of the
        directions that fell below the edge). The metric of the first round is kept fixed.
        """
        fit = self._fit()
        before = target[None, : self.pre_periods]
        _, residuals = self._paths(fit, before)
        top = 1 + self.pre_basis
        upper = fit.loadings[:top]
        weights = self._weights(fit.bulk, top)
        solution = score_map(upper, weights)
        fitted = float(np.trace(solution @ upper))
        model = Residuals.of(residuals[0], self.periods, fitted, self._hidden(residuals[0], fitted))
        mean = before.mean(axis=1, keepdims=True)
        scores = np.tile(
            (_coordinates(before - mean, self.basis, self.constant) @ solution.T)[0], (draws, 1)
        )
        noise = np.zeros((draws, self.periods))
        if parts != "privacy":
            size = len(self.matrix)
            root = score_root(upper, weights)
            spread = model.spread(draws, rng)
            sd = math.sqrt(model.variance / weights[-1])
            normals = rng.standard_normal((draws, size))
            scores = scores + sd * spread[:, None] * (normals @ root.T)
            noise = model.draw(spread, rng)
        drawn = scores @ self._lines(fit.loadings).T + noise
        found = (
            fit if parts == "sampling" else self._released_again(fit, min(draws, _RELEASES), rng)
        )
        errors = self._predict_each(found, drawn[:, : self.pre_periods])
        errors -= drawn[:, self.pre_periods :]
        if parts == "privacy":
            # the target is what the release says, without residuals: only the noise is left
            errors -= self._predict_each(fit, drawn[:, : self.pre_periods])
            errors += drawn[:, self.pre_periods :]
            return Errors(errors, errors.mean(axis=1))
        every, mean_only = self._inflation(fit, solution)
        mean_errors = errors.mean(axis=1)
        # no mean is further off than its periods, in root mean square
        mean_only = min(mean_only, every * _root_mean_square_ratio(errors, mean_errors))
        return Errors(every * errors, mean_only * mean_errors)

    def _fit(self) -> Fit:
        return decompose(self.matrix, self.metric, self.noise_edge, self.n)

    def _weights(self, bulk: FloatArray, size: int) -> FloatArray:
        return noise_weights(bulk, self.entry_sd, self.n, size)

    def _lines(self, loadings: FloatArray) -> FloatArray:
        """Return loadings on the time axis, shape (..., T, Q)."""
        top = 1 + self.pre_basis
        after = self.periods - self.pre_periods
        pre = self.basis @ loadings[..., 1:top, :]
        post = cosines(after, self.post_basis, constant=True) @ loadings[..., top:, :]
        return np.concatenate([pre, post], axis=-2)

    def _paths(self, fit: Fit, before: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return fitted paths, (g, T), and pre-period residuals."""
        mean = before.mean(axis=1, keepdims=True)
        top = 1 + self.pre_basis
        solution = score_map(fit.loadings[:top], self._weights(fit.bulk, top))
        scores = _coordinates(before - mean, self.basis, self.constant) @ solution.T
        path = mean + scores @ self._lines(fit.loadings).T
        return path, before - path[:, : self.pre_periods]

    def _predict_each(self, fit: Fit, before: FloatArray) -> FloatArray:
        """Predict post-periods of each drawn target from the releases in turn."""
        draws, top = len(before), 1 + self.pre_basis
        loadings = fit.loadings if fit.loadings.ndim == 3 else fit.loadings[None]
        solution = score_map(loadings[:, :top], self._weights(np.atleast_1d(fit.bulk), top))
        # from coordinates straight to the path
        linear = self._lines(loadings) @ solution
        mean = before.mean(axis=1, keepdims=True)
        coordinates = _coordinates(before - mean, self.basis, self.constant)
        path = np.empty((draws, self.periods))
        for i, one in enumerate(linear):
            path[i :: len(linear)] = coordinates[i :: len(linear)] @ one.T
        path += mean
        residuals = before - path[:, : self.pre_periods]
        ahead = np.arange(1, self.periods - self.pre_periods + 1)
        carried = residuals[:, -1:] * persistence(residuals)[:, None] ** ahead
        return path[:, self.pre_periods :] + carried

    def _hidden(self, residuals: FloatArray, fitted: float) -> float:
        """Return the degrees of freedom that residuals lack outside the paths.

        The paths hold the target's own, noise and all, so that nothing of its noise is left outside
        of them, where another target's is as large as within. Within, residuals also hold what the
        fit misses of the signal, in few dimensions: half of those outside count (measured).
        """
        outside = self.pre_cosines - self.pre_basis
        inner = self.basis.T @ residuals
        within = float(inner @ inner) / max(self.pre_basis - fitted, 1.0)
        if outside == 0 or within == 0.0:
            return 0.0
        every = cosines(self.pre_periods, self.pre_cosines, constant=False).T @ residuals
        noise = max(float(every @ every - inner @ inner), 0.0) / outside
        return _HIDDEN * outside * (1.0 - min(1.0, noise / within))

    def _released_again(self, fit: Fit, draws: int, rng: np.random.Generator) -> Fit:
        """Draw the second release again, from strengths freed of the noise in them."""
        if self.exact:
            return fit
        w, e, q = fit.eigenvalues, float(fit.edge), len(self.matrix)
        root = np.sqrt(np.maximum(w * w - e * e, 0.0))
        size = np.where(fit.strengths > 0.0, (w + root) / 2.0, 0.0)
        world = (fit.vectors * size) @ fit.vectors.T
        world = world + float(fit.bulk) * self.metric @ without_constant(q) @ self.metric
        noise = noise_matrices(q, self.level, self.kind == "laplace", draws, rng)
        return decompose(world + noise, self.metric, self.noise_edge, self.n)

    def _inflation(self, fit: Fit, solution: FloatArray) -> tuple[float, float]:
        """Return the factors for what fell below the edge: of periods and of their mean.

        Notes
        -----
        The ratio of what the release holds of prediction errors to what the model explains, less
        what the target's own residual, from which errors are drawn, shows of it for sure: the same
        ratio in the pre-period.

        Both sides are noisy, and a bulk driven to zero beside no direction would explain nothing at
        all. So both are drawn towards public values by the noise's share of the variance: rows at
        most 1 long hold at most n |M^-1 r|^2 along r (three sd above zero), and n of them spread
        evenly give a bulk of n / tr(M J M). Where nothing was found a factor is then at most
        |M^-1| sqrt(n (1/even + even/s^2)), with s the standard error of the bulk.
        """
        if self.exact:
            return 1.0, 1.0
        top = 1 + self.pre_basis
        after = self.periods - self.pre_periods
        rest = np.hstack([-fit.loadings[top:] @ solution, np.eye(self.post_basis)])
        mean = cosines(after, self.post_basis, constant=True).mean(axis=0)[None] @ rest
        own = np.zeros((self.pre_basis, len(self.matrix)))
        own[:, :top] = np.eye(top)[1:] - fit.loadings[1:top] @ solution
        shown = max(1.0, self._ratio(fit, own, -_SURE))
        every, mean_only = (
            math.sqrt(max(1.0, self._ratio(fit, rows, _INFLATION) / shown)) for rows in (rest, mean)
        )
        return every, mean_only

    def _ratio(self, fit: Fit, rows: FloatArray, allowance: float) -> float:
        """Return what the release holds of `rows`, with some of the noise, to what is explained."""
        sd = math.sqrt(2.0) * self.entry_sd
        even = self.n / float(np.sum(self.metric[1:] ** 2))
        standard_error = sd / math.sqrt(len(self.matrix))
        bulk = _towards(even, float(fit.bulk), standard_error, even)
        # where directions explain everything, noise (or rounding) is left on both sides
        bulk = max(bulk, _LEAST_BULK * standard_error, 1e-9 * self.n)
        whitened = np.linalg.solve(self.metric, rows.T)
        form = whitened @ whitened.T
        noise = sd * float(np.linalg.norm(form))
        seen = float(np.sum(form * self.matrix)) + allowance * noise
        if allowance > 0.0:
            most = self.n * float(np.linalg.norm(whitened, 2)) ** 2
            seen = min(_towards(most, seen, noise, most / _RANGE_IN_SDS), most)
        explained = float(np.sum((rows @ fit.loadings) ** 2))
        return seen / (explained + bulk * float(np.sum(rows[:, 1:] ** 2)))


def _root_mean_square_ratio(errors: FloatArray, means: FloatArray) -> float:
    """Return rms(errors) / rms(means), at least 1."""
    largest = float(np.abs(errors).max()) or 1.0
    above = float(np.sqrt(np.mean((errors / largest) ** 2)))
    below = float(np.sqrt(np.mean((means / largest) ** 2)))
    return above / below if below > 0.0 else math.inf


def _towards(public: float, value: float, noise: float, spread: float) -> float:
    """Draw a noisy value towards a public one, about which the truth has the sd `spread`."""
    share = noise**2 / (noise**2 + spread**2)
    return (1.0 - share) * value + share * public


class Moments(Kernel):
    r"""A factor model of the donors, released once; every target is then free.

    Notes
    -----
    Each donor's row (a public constant, then its series less its own pre-period mean, in cosines)
    is divided by its Euclidean norm, so a row counts with its direction only: no bounds are needed
    and the noise does not depend on the data's scale. It is meant for hundreds of donors and more:
    with as few donors as periods it finds little even without noise (`eps=inf`), where "output"
    (ridge) and "simplex" are the methods to use. The noisy sum of outer products is released
    twice; the directions found in the first round are shrunk before rows are normalised for the
    second, so that weak ones come out. Where the noise would still be large, the second round sees
    the pre-period through fewer paths (a quarter of the pre-periods, at least six, strongest
    directions of the first round; the targets' main path and the same smoothed): noise grows with
    the size of the matrix, and a prediction from fewer paths is less sharp but not biased.
    Directions are eigenvectors above the known edge of the noise, their strengths shrunk. A
    target's scores follow from its public pre-period, the prediction from them; what persists of
    its residual is carried forward.

    *Privacy.* Given the targets, s, M and the paths (functions of the targets' pre-periods and of
    the first round), a normalised row is a function of its own donor and at
    most 1 long (entries are cut towards zero to a public grid, on which sums are exact); the two
    sums are a release of `Mechanisms.gram_rounds`, where the proofs are. Replacing one donor
    changes one row. All that follows is post-processing.
    """

    name: ClassVar[str] = "moments"
    title: ClassVar[str] = "Synthetic control by noisy moments of the donors"
    private: ClassVar[bool] = True

    def settings(
        self, penalty: float | None, options: Mapping[str, Any], public: Public
    ) -> Settings:
        """Refuse what has no meaning here."""
        if penalty is not None:
            raise DPStatsError("`penalty` has no meaning for method 'moments'; leave it out")
        if options:
            raise DPStatsError(f"method 'moments' has no option {', '.join(map(repr, options))}")
        return Settings(None, "projection", False, {})

    def shares(self, settings: Settings, public: Public) -> Shares:
        """Return the one release."""
        return {"moments": 1.0}

    def constants(self, settings: Settings, public: Public) -> tuple[tuple[str, str], ...]:
        """Return sizes of the bases and the shares of the rounds."""
        design = design_of(public)
        unit = "eps" if design.pure else "mu^2"
        fewer = design.kept < design.pre_basis
        kept = [("paths before T0 in the second round", str(design.kept))] if fewer else []
        return (
            ("cosines", f"{design.pre_basis} before T0 and {design.post_basis} after"),
            *kept,
            ("first round", f"0.3 of {unit}"),
        )

    def run(self, panel: Panel, settings: Settings, mechanisms: Mechanisms) -> MomentsReleased:
        """Release the two sums."""
        n, periods = panel.donors.shape
        before = panel.pre_periods
        pure = mechanisms.kind == "laplace"
        cost = None if mechanisms.source is None else mechanisms.costs["moments"]
        public = Public(
            n,
            periods,
            before,
            math.inf if cost is None else cost.epsilon,
            0.0 if cost is None or pure else cost.delta,
            False,
        )
        design = design_of(public)
        constant = _TARGET_SHARE * typical_deviation(panel.targets, before)
        bits = min(_ROW_BITS, (52 - n.bit_length()) // 2)

        pre = cosines(before, design.pre_basis, constant=False)
        post = cosines(periods - before, design.post_basis, constant=True)
        guides = _guides(panel.targets[:, :before], pre)

        def statistic(released: tuple[FloatArray, ...]) -> FloatArray:
            metric, paths = np.eye(design.first_size), pre
            if released:
                metric, kept = _learned(released[0], guides, design, n)
                paths = pre if kept is None else pre @ kept
            return _gram(panel.donors, paths, post, constant, metric, bits)

        grams = mechanisms.gram_rounds("moments", ROUNDS, statistic, rows=n, lattice=-2 * bits)
        level = grams.levels[-1]
        metric, kept = _learned(grams.values[0], guides, design, n)
        return MomentsReleased(
            grams.values[-1],
            metric,
            pre if kept is None else pre @ kept,
            n,
            periods,
            before,
            design.pre_basis,
            design.post_basis,
            constant,
            entry_sd_of(design.last_size, level, pure),
            edge_of(design.last_size, level, pure),
            level,
            mechanisms.kind,
            constant / _TARGET_SHARE / math.sqrt(before),
            grams.records,
        )


def _gram(
    donors: FloatArray,
    pre: FloatArray,
    post: FloatArray,
    constant: float,
    metric: FloatArray,
    bits: int,
) -> FloatArray:
    """Return the exact sum of outer products of normalised rows, multiples of 4**-bits."""
    n, before, top = len(donors), len(pre), 1 + pre.shape[1]
    basis = np.vstack([pre @ metric[1:top], post @ metric[top:]])
    total = np.zeros(metric.shape)
    # a hair below one, so that no rounding makes a row longer than one
    grid = math.ldexp(1.0 - 2.0**-40, bits)
    for start in range(0, n, _BLOCK):
        block = donors[start : start + _BLOCK]
        largest = np.maximum(np.maximum(block.max(axis=1), -block.min(axis=1)), constant)
        largest[largest == 0.0] = 1.0
        scaled = block / largest[:, None]
        scaled -= scaled[:, :before].mean(axis=1, keepdims=True)
        rows = scaled @ basis
        rows += np.outer(constant / largest, metric[0])
        # a constant donor under a target without variation leaves rounding errors: not a direction
        length = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        length[length < 1e-13] = math.inf
        rows *= (grid / length)[:, None]
        np.trunc(rows, out=rows)
        total += rows.T @ rows
    return np.ldexp(total, -2 * bits)


def _learned(
    matrix: FloatArray, guides: FloatArray, design: Design, n: int
) -> tuple[FloatArray, FloatArray | None]:
    """Return metric and, where it has fewer, the pre-period paths of the second round, (q0, r)."""
    edge = edge_of(design.first_size, design.first_level, design.pure)
    fit = decompose(matrix, np.eye(design.first_size), edge, n)
    few = design.kept < design.pre_basis
    share = _SHRINK_FEW if few else _SHRINK
    reference = max(share * float(fit.edge) + float(fit.bulk), 1e-9 * n)
    shrink = np.sqrt(reference / (reference + fit.strengths))
    metric = np.asarray((fit.vectors * shrink) @ fit.vectors.T)
    if not few:
        return metric, None
    top = 1 + design.pre_basis
    # strongest first, those below the edge too: the second round decides
    found = fit.vectors[1:top, ::-1][:, : design.kept - guides.shape[1]]
    kept = np.linalg.qr(np.hstack([guides, found]))[0]
    restrict = np.zeros((design.first_size, design.last_size))
    restrict[0, 0] = 1.0
    restrict[1:top, 1 : 1 + design.kept] = kept
    restrict[top:, 1 + design.kept :] = np.eye(design.post_basis)
    return restrict.T @ metric @ restrict, kept


def _guides(before: FloatArray, basis: FloatArray) -> FloatArray:
    """Return the (public) targets' main path and its smooth part, in coordinates, (q0, 2)."""
    deviations = before - before.mean(axis=1, keepdims=True)
    scaled = deviations / (float(np.abs(deviations).max()) or 1.0)
    main = np.linalg.svd(scaled @ basis, full_matrices=False)[2][0]
    return np.stack([main, main / np.arange(1.0, main.size + 1.0)], axis=1)


def _coordinates(deviations: FloatArray, basis: FloatArray, constant: float) -> FloatArray:
    return np.hstack([np.full((len(deviations), 1), constant), deviations @ basis])
