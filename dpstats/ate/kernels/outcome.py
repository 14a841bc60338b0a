r"""Private linear outcome models: noisy moments by arm, and what follows from them.

Notes
-----
*Release.* With covariates z scaled to [-1, 1] and shrunk to norm at most R, and the outcome y in
[-1, 1] (in units of C), a row is the vector :math:`v = (\sqrt{a_0}, \sqrt{a_x} z / R,
\sqrt{a_y} y)` with :math:`a_0 + a_x + a_y = 1`, so that \|v\| <= 1. Each arm has its matrix
sum vv'; a row adds to one of them, and both are released at the cost of one
(`Mechanisms.gram_rounds`, with the proofs: nuclear norm 2 for pure differential privacy, Frobenius
norm sqrt(2) for Gaussian noise, both attained). Counts, means, and second moments follow.

*Rounds.* The noise of a round is in proportion to the range of its outcome. After a first round the
outcome is replaced by its residual from the released fit, clipped to a range that follows from
the released residual variance and its noise, and a second round is released for that. Given the
first, a residual is a function of its own row, so nothing changes in the proof.

*Fit.* Slopes common to both arms by a ridge in the eigenvectors of the pooled matrix, whose
strength is the edge of the spectrum of the known noise (Wang 2018 takes it from noisy
eigenvalues); then arms move towards their own slopes as far as those differ by more than noise.

References
----------
Wang, Y.-X. (2018). Revisiting differentially private linear regression. arXiv:1803.02596.
Dwork, C., Talwar, K., Thakurta, A. and Zhang, L. (2014). Analyze Gauss.
doi:10.1145/2591796.2591883.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpstats.alarms import Signal
from dpstats.privacy.calibration import gaussian_dp_level

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpstats.ate.kernels.base import Arrays, Estimand
    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms, NoiseKind
    from dpstats.privacy.noise import FloatArray
    from dpstats.propensity import FittedPropensity

__all__ = ["ArmFits", "OutcomeModel", "blank_outcome", "release_outcome", "residuals"]

# shares of the squared length of a row: constant, covariates, outcome (measured; errors are flat)
_SHARES = (0.4, 0.3, 0.3)
# R: typical rows are shorter, since bounds are wide (measured)
_SMALLEST_NORM, _NORM_A_COLUMN = 0.9, 0.45
# from this ratio of rows to noise on R grows, to its fourth root: bias shrinks with the noise
_NORM_GROWS_FROM = 2500.0
# strength of the ridge in units of the edge of the noise
_RIDGE = 0.5
# range of a residual in released standard deviations
_RANGE = 3.0
# an arm's own slopes count as far as their difference is more than this times its noise
_DOUBT = 3.0
_BLOCK = 16384
_TINY = 1e-12
# smallest eigenvalue in units of the largest
_FLAT = 1e-9


@dataclass(frozen=True, slots=True)
class ArmFits:
    """Linear outcome models by arm; leading axes where there are several releases.

    Attributes
    ----------
    counts : ndarray
        Shape (..., 2): controls, treated.
    means : ndarray
        Shape (..., 2, k): of the shrunk covariates.
    outcomes : ndarray
        Shape (..., 2): mean outcomes.
    within : ndarray
        Shape (..., 2, k, k): sums of squares and products of covariates around their means.
    slopes : ndarray
        Shape (..., 2, k).
    variances : ndarray
        Shape (..., 2): residual variances.
    """

    counts: FloatArray
    means: FloatArray
    outcomes: FloatArray
    within: FloatArray
    slopes: FloatArray
    variances: FloatArray

    @property
    def levels(self) -> FloatArray:
        """Intercepts, shape (..., 2)."""
        return self.outcomes - (self.means * self.slopes).sum(axis=-1)


@dataclass(frozen=True, slots=True)
class OutcomeModel:
    """Released moments and the models that follow from them.

    Attributes
    ----------
    n : int
        Rows behind the moments.
    kind : {"laplace", "gaussian"}
        Laplace stands for the pure release.
    raw : ndarray
        Shape (2, q, q): the matrices of the last round, of rows v.
    norm : float
        R.
    noise : float
        Noise sd of an off-diagonal entry of `raw`.
    reach : float
        Range of the last round's outcome, in units of C.
    levels, slopes : ndarray
        Shape (2,), (2, k): the model of the rounds before, in units of C.
    common : bool
        Whether both arms have the same slopes.
    records : tuple of Release
    shared : bool
        Whether the propensity has the same design, so that what it does to these covariates
        follows from its coefficients.
    """

    n: int
    kind: NoiseKind
    raw: FloatArray
    norm: float
    noise: float
    reach: float
    levels: FloatArray
    slopes: FloatArray
    common: bool
    records: tuple[Release, ...]
    shared: bool = True

    @property
    def columns(self) -> int:
        """Number of covariates."""
        return int(self.raw.shape[-1]) - 2

    @property
    def scales(self) -> FloatArray:
        """Factors of a row: constant, covariates, outcome."""
        return _factors(self.columns, self.norm)

    def last(self, raw: FloatArray | None = None) -> ArmFits:
        """Return the fits of the last round, in units of its outcome's range."""
        raw = self.raw if raw is None else raw
        return _fit(raw, self.scales, self.n, self.noise, self.common)

    def noisy(self, raw: FloatArray, draws: int, rng: np.random.Generator) -> FloatArray:
        """Add the noise of the release again, `draws` times."""
        q = raw.shape[-1]
        shape = (draws, 2, q, q + 1)
        if self.kind == "gaussian":
            upper = np.triu(self.noise * rng.standard_normal((draws, 2, q, q)), 1)
            diagonal = math.sqrt(2.0) * self.noise * rng.standard_normal((draws, 2, q))
            return raw + upper + np.swapaxes(upper, -1, -2) + diagonal[..., None] * np.eye(q)
        one, two = rng.standard_normal(shape), rng.standard_normal(shape)
        level = self.noise / math.sqrt(2.0 * (q + 1))
        return np.asarray(
            raw + level * (one @ np.swapaxes(one, -1, -2) - two @ np.swapaxes(two, -1, -2))
        )

    def contrast(self, fit: ArmFits, estimand: Estimand) -> FloatArray:
        """Return the fitted effect at the mean covariates of everybody, treated or controls."""
        levels, slopes = self.model(fit)
        gap = levels[..., 1] - levels[..., 0]
        differ = slopes[..., 1, :] - slopes[..., 0, :]
        return np.asarray(gap + (differ * self._target(fit, estimand)).sum(axis=-1))

    def _target(self, fit: ArmFits, estimand: Estimand) -> FloatArray:
        """Return the mean covariates of everybody, treated or controls, shape (..., k)."""
        if estimand == "ate":
            return np.asarray((fit.counts[..., None] * fit.means).sum(axis=-2) / self.n)
        return fit.means[..., 1 if estimand == "att" else 0, :]

    def sampling_variance(self, estimand: Estimand) -> float:
        """Return the sampling variance of `contrast` under the linear model, in units of C^2.

        One noise sd is added to the residual variance, so that it does not rest on a lucky draw.
        """
        fit = self.last()
        own = self.positive(fit)
        target = self._target(fit, estimand)
        spread = self.residual_sd() ** 2
        total = 0.0
        for arm in (0, 1):
            away = target - fit.means[arm]
            lever = float(away @ np.linalg.solve(own[arm], away)) if self.columns else 0.0
            total += spread * (1.0 / fit.counts[arm] + min(lever, 1.0))
        _, slopes = self.model(fit)
        differ = slopes[1] - slopes[0]
        size = {"ate": self.n, "att": fit.counts[1], "atc": fit.counts[0]}[estimand]
        between = own.sum(axis=0) if estimand == "ate" else own[1 if estimand == "att" else 0]
        return total + float(differ @ between @ differ) / float(size) ** 2

    def around(self, fit: ArmFits) -> FloatArray:
        """Return matrices without noise whose fit this is: the middle of a bootstrap."""
        k, own = self.columns, self.positive(fit)
        raw = np.empty((2, k + 2, k + 2))
        for arm in (0, 1):
            count, mean, y = fit.counts[arm], fit.means[arm], fit.outcomes[arm]
            cross = own[arm] @ fit.slopes[arm]
            rest = max(float(fit.variances[arm]), 0.0) * count
            sums = np.concatenate([[count], count * mean, [count * y]])
            raw[arm] = np.outer(sums, sums) / count
            raw[arm, 1:-1, 1:-1] += own[arm]
            raw[arm, 1:-1, -1] += cross
            raw[arm, -1, 1:-1] += cross
            raw[arm, -1, -1] += float(fit.slopes[arm] @ cross) + rest
        return raw * np.outer(self.scales, self.scales)

    def positive(self, fit: ArmFits) -> FloatArray:
        """Return `within` without eigenvalues below half the edge of the noise."""
        if not self.columns:
            return fit.within
        edge = math.sqrt(self.columns) * self.noise / self.scales[1] ** 2
        values, vectors = np.linalg.eigh(fit.within)
        # collinear columns and little noise: still positive once it is put together again
        values = np.maximum(values, np.maximum(_FLAT * values[..., -1:], max(edge, _TINY)))
        return np.asarray((vectors * values[..., None, :]) @ np.swapaxes(vectors, -1, -2))

    def model(self, fit: ArmFits | None = None) -> tuple[FloatArray, FloatArray]:
        """Return levels (..., 2) and slopes (..., 2, k) of all rounds together, in units of C."""
        fit = self.last() if fit is None else fit
        return self.levels + self.reach * fit.levels, self.slopes + self.reach * fit.slopes

    def residual_sd(self) -> float:
        """Return the sd of the residuals in units of C, one noise sd of its square added."""
        return float(self.residual_sds(self.last()))

    def residual_sds(self, fit: ArmFits) -> FloatArray:
        """Return `residual_sd` of fits of the last round, shape (...)."""
        noise = math.sqrt(2.0) * self.noise / self.scales[-1] ** 2
        share = fit.counts / fit.counts.sum(axis=-1, keepdims=True)
        pooled = (share * np.maximum(fit.variances, 0.0)).sum(axis=-1)
        return np.asarray(
            self.reach * np.sqrt(np.minimum(pooled + math.sqrt(2.0) * noise / self.n, 1.0))
        )

    def residual_range(self) -> float:
        """Return the range to which residuals are clipped, in units of C.

        Never beyond what a residual can be: the outcome's range and that of the fitted values.
        """
        return float(self.residual_ranges(self.last()))

    def residual_ranges(self, fit: ArmFits) -> FloatArray:
        """Return `residual_range` of fits of the last round, shape (...)."""
        levels, slopes = self.model(fit)
        farthest = (np.abs(levels) + self.norm * np.linalg.norm(slopes, axis=-1)).max(axis=-1)
        limit = np.minimum(1.0 + farthest, 2.0)
        return np.asarray(np.minimum(_RANGE * self.residual_sds(fit), limit))

    def smallest_range(self) -> float:
        """Return the range of residuals that noise alone leaves: from public quantities only."""
        spread = 2.0 * self.noise / self.scales[-1] ** 2 / self.n
        return _RANGE * math.sqrt(min(spread, 1.0))

    def noisy_fits(self, draws: int, rng: np.random.Generator) -> ArmFits:
        """Return fits of `draws` releases with new noise around the released fit.

        Slopes vary besides by what the ridge may have kept from being seen (`_unseen`).
        """
        fits = self.last(self.noisy(self.around(self.last()), draws, rng))
        return replace(fits, slopes=fits.slopes + self._unseen(draws, rng)[:, None])

    def _unseen(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Draw the part of the slopes that the ridge shrinks away, shape (draws, k).

        In each eigenvector of the pooled matrix the ridge keeps a share f of the slope. Slopes are
        taken as normal with one variance, estimated from those that were seen and, with the
        weight of a quarter of a direction, from the largest that the outcome's variance allows.
        """
        k = self.columns
        if k == 0:
            return np.zeros((draws, 0))
        fit = self.last()
        share = fit.counts / fit.counts.sum()
        of_xy = self.noise / (self.scales[1] * self.scales[-1])
        values, vectors, kept = self._kept(fit)
        slopes = vectors.T @ (share @ fit.slopes)
        seen = slopes**2 / np.maximum(kept, _TINY) - kept * 2.0 * of_xy**2 / values**2
        explained = max(float(seen.sum()), 0.0)
        rest = float(share @ np.maximum(fit.variances, 0.0))
        most = rest * self.n / max(float(values.sum()), _TINY) + explained / k
        variance = (explained + 0.25 * most) / (float(kept.sum()) + 0.25)
        spread = math.sqrt(min(variance, most)) * (1.0 - kept)
        return np.asarray((rng.standard_normal((draws, k)) * spread) @ vectors.T)

    def _kept(self, fit: ArmFits) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return eigenvalues and vectors of the pooled matrix, and what the ridge keeps of each."""
        values, vectors = np.linalg.eigh(fit.within.sum(axis=0))
        values = np.maximum(values, _TINY)
        edge = math.sqrt(2.0 * self.columns) * 2.0 * _RIDGE * self.noise / self.scales[1] ** 2
        return values, vectors, values**2 / (values**2 + edge**2)

    def reading(self) -> tuple[str, str, str]:
        """Return a diagnostic: how much of the difference between the arms was adjusted for."""
        if not self.columns:
            return ("adjustment seen", "none", "there are no covariates")
        seen = self._seen()
        text = "noise hides little of what differs between the arms"
        if seen < 0.9:
            text = "noise hides the rest: expect bias towards the unadjusted comparison"
        return ("adjustment seen", f"{seen:.0%}", text)

    def signals(self) -> list[Signal]:
        """Return what the rules for warnings look at."""
        return [Signal("adjustment seen", self._seen())] if self.columns else []

    def _seen(self) -> float:
        """Return the share of the difference between the arms that was adjusted for."""
        fit = self.last()
        _, vectors, kept = self._kept(fit)
        apart = (vectors.T @ (fit.means[1] - fit.means[0])) ** 2
        return float(apart @ kept) / max(float(apart.sum()), _TINY)

    def pseudo_rows(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Draw normal covariates with the released means and variances, shape (2, count, k)."""
        fit = self.last()
        roots = np.linalg.cholesky(self.positive(fit) / fit.counts[:, None, None])
        normal = rng.standard_normal((2, count, self.columns))
        return np.asarray(fit.means[:, None] + normal @ np.swapaxes(roots, -1, -2))

    def scores(self, rows: FloatArray, propensity: FittedPropensity | None) -> FloatArray | None:
        """Return propensities of covariates, shape (count,); None where theirs is another design.

        Parameters
        ----------
        rows : ndarray
            Shape (count, k).
        propensity : FittedPropensity or None
        """
        if propensity is None or not self.shared:
            return None
        return propensity.predict(np.hstack([np.full((len(rows), 1), 0.5), rows]))


def release_outcome(
    arrays: Arrays,
    mechanisms: Mechanisms,
    *,
    rounds: Mapping[str, float],
    name: str = "moments",
    common: bool = False,
    most: int | None = None,
) -> OutcomeModel:
    """Release the moments of the outcome models.

    Parameters
    ----------
    arrays : Arrays
        With covariates.
    mechanisms : Mechanisms
    rounds : mapping of str to float
        Share of each round.
    name : str
        Of the release.
    common : bool
        Whether both arms share their slopes.
    most : int, optional
        Largest number of rows to use: random positions, nothing of the data.
    """
    z, y, treated = arrays.covariates, arrays.outcome, arrays.treated
    if z is None:
        raise TypeError("an outcome model needs covariates")
    z = z[:, 1:]
    if most is not None and arrays.n > most and mechanisms.source is not None:
        # not evenly spaced: files of pairs or of sorted rows have a rhythm of their own
        chosen = mechanisms.sample(name, arrays.n, most)
        z, y, treated = z[chosen], y[chosen], treated[chosen]
    n, k = z.shape
    noise = _entry_sd(mechanisms, name, 1.0, k + 2)
    norm = _row_norm(k, n / noise if noise > 0.0 else math.inf)
    scales = _factors(k, norm)
    # rows on a grid on which sums of products are exact in any order; without noise as they are
    bits = min(20, (50 - n.bit_length()) // 2) if mechanisms.source is not None else None
    shares = list(rounds.values())
    # of the rounds so far: levels, slopes and the range of the next round's outcome
    before = np.zeros(2), np.zeros((2, k)), 1.0

    def model(raw: FloatArray, share: float, records: tuple[Release, ...] = ()) -> OutcomeModel:
        levels, slopes, reach = before
        shared, sd = arrays.covariates is arrays.design, _entry_sd(mechanisms, name, share, k + 2)
        kind = mechanisms.kind
        return OutcomeModel(n, kind, raw, norm, sd, reach, levels, slopes, common, records, shared)

    def statistic(released: tuple[FloatArray, ...]) -> FloatArray:
        nonlocal before
        if released:
            found = model(released[-1], shares[len(released) - 1])
            reach = found.residual_range()
            before = (*found.model(), reach)
            if reach >= 1.0:
                # residuals would range no less far than the outcome
                before = np.zeros(2), np.zeros((2, k)), 1.0
        return _moments(z, y, treated, norm, scales, bits, before)

    grams = mechanisms.gram_rounds(name, rounds, statistic, rows=n, lattice=-2 * (bits or 0))
    return model(grams.values[-1], shares[-1], grams.records)


def blank_outcome(
    n: int,
    k: int,
    mechanisms: Mechanisms,
    *,
    share: float = 1.0,
    name: str = "moments",
    common: bool = False,
    most: int | None = None,
) -> OutcomeModel:
    """Return the model of k covariates before anything is seen: its noise and row norm, public.

    `share` is that of the round; the rest is as for `release_outcome`.
    """
    n = n if most is None else min(n, most)
    whole, noise = (_entry_sd(mechanisms, name, part, k + 2) for part in (1.0, share))
    norm = _row_norm(k, n / whole)
    levels, slopes = np.zeros(2), np.zeros((2, k))
    raw = np.zeros((2, k + 2, k + 2))
    return OutcomeModel(n, mechanisms.kind, raw, norm, noise, 1.0, levels, slopes, common, ())


def residuals(
    arrays: Arrays,
    norm: float,
    levels: FloatArray,
    slopes: FloatArray,
    reach: float,
    *,
    exact: bool = False,
) -> FloatArray:
    """Return residuals in units of `reach`, clipped to [-1, 1], on the grid of the outcome.

    An `exact` run neither clips nor rounds them.
    """
    if arrays.covariates is None:
        raise TypeError("an outcome model needs covariates")
    found = np.empty(arrays.n)
    z, top = arrays.covariates[:, 1:], math.ldexp(1.0, -arrays.lattice)
    for start in range(0, arrays.n, _BLOCK):
        rows = slice(start, start + _BLOCK)
        rest = _rest(z[rows], arrays.outcome[rows], arrays.treated[rows], norm, levels, slopes)
        if exact:
            found[rows] = rest / reach
            continue
        found[rows] = np.clip(np.rint(rest * (top / reach)), -top, top)
    return found if exact else np.ldexp(found, arrays.lattice)


def _rest(
    z: FloatArray,
    y: FloatArray,
    treated: np.ndarray,
    norm: float,
    levels: FloatArray,
    slopes: FloatArray,
) -> FloatArray:
    arm = treated.astype(np.int64)
    fitted = np.zeros(len(z))
    # one column after another: the same bits for a row wherever it stands
    for column, slope in zip(z.T, slopes.T, strict=True):
        fitted += column * slope[arm]
    return np.asarray(y - levels[arm] - fitted * _shrinking(z, norm))


def _row_norm(k: int, size: float) -> float:
    """Return R from public quantities; `size` is the ratio of rows to the noise in an entry."""
    growth = max(1.0, size / _NORM_GROWS_FROM) ** 0.25
    norm = max(_SMALLEST_NORM, _NORM_A_COLUMN * math.sqrt(k)) * growth
    return min(norm, max(math.sqrt(k), 1.0))


def _factors(k: int, norm: float) -> FloatArray:
    constant, covariates, outcome = (math.sqrt(share) for share in _SHARES)
    return np.array([constant, *[covariates / norm] * k, outcome])


def _entry_sd(mechanisms: Mechanisms, name: str, share: float, q: int) -> float:
    """Return the noise sd of an off-diagonal entry of a round."""
    if mechanisms.source is None:
        return 0.0
    cost = mechanisms.costs[name]
    persons = mechanisms.rows_per_person
    if mechanisms.kind == "gaussian":
        level = gaussian_dp_level(cost.epsilon, cost.delta) * math.sqrt(share)
        return persons / level
    return persons * math.sqrt(2.0 * (q + 1)) / (cost.epsilon * share)


def _shrinking(z: FloatArray, norm: float) -> FloatArray:
    """Return the factor by which each row is shrunk."""
    square = np.zeros(len(z))
    for column in z.T:
        square += column * column
    return np.asarray(norm / np.maximum(np.sqrt(square), norm))


def _moments(
    z: FloatArray,
    y: FloatArray,
    treated: np.ndarray,
    norm: float,
    scales: FloatArray,
    bits: int | None,
    model: tuple[FloatArray, FloatArray, float],
) -> FloatArray:
    """Return sums of vv' by arm, shape (2, q, q): exact, of rows rounded towards zero.

    Rows are not rounded where `bits` is None.
    """
    levels, slopes, reach = model
    q = scales.size
    total = np.zeros((2, q, q))
    v = np.empty((min(_BLOCK, len(z)), q))
    for start in range(0, len(z), _BLOCK):
        rows = slice(start, start + _BLOCK)
        arm = treated[rows].astype(np.int64)
        rest = _rest(z[rows], y[rows], treated[rows], norm, levels, slopes)
        part = v[: len(arm)]
        part[:, 0] = 1.0
        part[:, 1:-1] = z[rows] * _shrinking(z[rows], norm)[:, None]
        part[:, -1] = np.clip(rest / reach, -1.0, 1.0)
        part *= np.ldexp(scales, bits or 0)
        if bits is not None:
            np.trunc(part, out=part)
        for a in (0, 1):
            own = part[arm == a]
            total[a] += own.T @ own
    return np.ldexp(total, -2 * (bits or 0))


def _fit(raw: FloatArray, scales: FloatArray, n: int, noise: float, common: bool) -> ArmFits:
    natural = raw / np.outer(scales, scales)
    counts = natural[..., 0, 0]
    counts = counts - (counts.sum(axis=-1, keepdims=True) - n) / 2.0
    counts = np.clip(counts, 1.0, max(n - 1.0, 1.0))
    size = counts[..., None]
    reach = scales[0] / scales[1:-1] * math.sqrt(_SHARES[1] / _SHARES[0])
    means = np.clip(natural[..., 0, 1:-1] / size, -reach, reach)
    outcomes = np.clip(natural[..., 0, -1] / counts, -1.0, 1.0)
    within = natural[..., 1:-1, 1:-1] - size[..., None] * means[..., :, None] * means[..., None, :]
    cross = natural[..., 1:-1, -1] - size * means * outcomes[..., None]
    total = natural[..., -1, -1] - counts * outcomes**2
    slopes = _slopes(within, cross, noise, scales, common)
    explained = 2.0 * (slopes * cross).sum(axis=-1)
    explained -= np.einsum("...i,...ij,...j->...", slopes, within, slopes)
    return ArmFits(counts, means, outcomes, within, slopes, (total - explained) / counts)


def _slopes(
    within: FloatArray, cross: FloatArray, noise: float, scales: FloatArray, common: bool
) -> FloatArray:
    """Return slopes by arm, shape (..., 2, k)."""
    k = cross.shape[-1]
    if k == 0:
        return np.zeros((*cross.shape[:-1], 0))
    of_xx, of_xy = noise / scales[1] ** 2, noise / (scales[1] * scales[-1])
    edge = _RIDGE * 2.0 * math.sqrt(k) * of_xx
    shared = _ridge(within.sum(axis=-3), cross.sum(axis=-2), math.sqrt(2.0) * edge)[..., None, :]
    if common:
        return np.broadcast_to(shared, cross.shape)
    rest = cross - np.einsum("...aij,...bj->...ai", within, shared)
    size = (rest**2).sum(axis=-1, keepdims=True)
    expected = k * (of_xy**2 + of_xx**2 * (shared**2).sum(axis=-1, keepdims=True))
    sure = np.maximum(1.0 - _DOUBT * expected / np.maximum(size, _TINY), 0.0)
    return np.asarray(shared + sure * _ridge(within, rest, edge))


def _ridge(matrix: FloatArray, vector: FloatArray, edge: float) -> FloatArray:
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 0.0)
    filtered = values / np.maximum(values**2 + edge**2, _TINY)
    turned = np.einsum("...ji,...j->...i", vectors, vector)
    return np.asarray(np.einsum("...ij,...j->...i", vectors, filtered * turned))
