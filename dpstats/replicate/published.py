r"""The published treatment effect estimators as their code has them. NOT PRIVATE: to compare with.

Nothing here protects anybody, whatever `eps` is given. These functions redo, from their published
description and from the behaviour of the authors' package (dpate 0.0.1), what the figures of the
source were made with, so that a figure can be redrawn and its corrected form put beside it. What
is wrong with them, and is kept here on purpose:

- `Rows.shipped_scores`: the logistic regression minimises the *sum* of losses plus ||w||^2 / 2
  (scikit-learn's C = 1), so its weights can move by 2 when a row is replaced; the noise is that of
  a sensitivity of 2/n. One draw is added to all weights, and the intercept gets none.
- `blocking`: blocks are numbered from 1 but read from 0, so that block 0 is always empty and the
  rows of the top block are thrown away.
- `seq_nipw`, `agg_nipw`: noise for half the sensitivity (2C for 4C of a difference of two means),
  and nothing is clipped to make even that true.
- `nuisance_aggregation`: propensities are averaged over models, but a score is not linear in them;
  the regressions are not clipped, so their sensitivity has no bound.
- Gaussian noise by sqrt(2 log(1.25/delta)), which is proved for eps < 1 only.

References
----------
Differentially Private Average Treatment Effect Estimation by Propensity Score Blocking (SeqIPW,
DPBlocking). Lee et al. (2019), arXiv:1905.12592 (LGPM19). Lebeda et al. (2025), arXiv:2505.19589
(LEBJ25). Guha and Reiter (2025), arXiv:2408.14766 (AggNIPW). Ohnishi and Awan (2025),
arXiv:2410.14789 (SeqNIPW).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from dpstats.logistic import minimise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpstats.privacy.noise import FloatArray

__all__ = [
    "Rows",
    "ShippedFailure",
    "agg_nipw",
    "blocking",
    "exact_blocking",
    "exact_ipw",
    "exact_nipw",
    "nuisance_aggregation",
    "published_blocks",
    "seq_ipw",
    "seq_nipw",
    "split_ipw",
]

Noise: TypeAlias = Literal["laplace", "gaussian"]

# a constant column this large is penalised by a millionth of what a column of ones would be
_CONSTANT = 1e3
_NEWTON_STEPS = 50


class ShippedFailure(Exception):
    """The published code stops with an error for such rows."""


@dataclass(frozen=True)
class Rows:
    """Rows as the published code takes them.

    Attributes
    ----------
    X : ndarray
        Shape (n, k), rows of norm at most 1, no constant.
    treated : ndarray of bool
        Shape (n,).
    y : ndarray
        Shape (n,), centred, in [-C, C].
    half_width : float
        C.
    """

    X: FloatArray
    treated: NDArray[np.bool_]
    y: FloatArray
    half_width: float

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.y.size)

    @cached_property
    def fitted(self) -> tuple[FloatArray, float]:
        """Weights and intercept of the logistic regression at C = 1, without noise."""
        return _logit(self.X, self.treated)

    def take(self, index: NDArray[np.int64]) -> Rows:
        """Return some of the rows."""
        return Rows(self.X[index], self.treated[index], self.y[index], self.half_width)

    def scores(self) -> FloatArray:
        """Return propensities without noise, shape (n,)."""
        weights, intercept = self.fitted
        return _sigmoid(self.X @ weights + intercept)

    def shipped_scores(
        self, X: FloatArray, eps: float, delta: float, noise: Noise, rng: np.random.Generator
    ) -> FloatArray:
        """Return the propensities of `X` by the published "private" model fitted on these rows."""
        weights, intercept = self.fitted
        draw = _noise(rng, noise, 2.0 / self.n, eps, delta)
        return _sigmoid(X @ (weights - draw) + intercept)


def published_blocks(n: int, eps: float) -> int:
    """Return the published number of blocks."""
    growing = math.floor((n / 1000.0 + (eps - 0.25) / 0.25) / 2.0)
    return int(min(max(5, int(20.0 * eps)), max(3, growing)))


def seq_ipw(
    rows: Rows,
    eps: float,
    rng: np.random.Generator,
    *,
    share: float = 0.2,
    overlap: float = 0.1,
    noise: Noise = "laplace",
    delta: float = 0.0,
) -> float:
    """SeqIPW: the propensity with a `share` of eps, then inverse probability weighting.

    Parameters
    ----------
    rows : Rows
    eps : float
        What the publication calls its budget.
    rng : numpy.random.Generator
    share : float
        Of the propensity (alpha).
    overlap : float
        omega, where propensities are clipped.
    noise : {"laplace", "gaussian"}
    delta : float
        For Gaussian noise; divided as eps is.

    Returns
    -------
    float
        The estimate, on the scale of `rows.y`.
    """
    e = rows.shipped_scores(rows.X, share * eps, share * delta, noise, rng)
    score = _ipw(rows, np.clip(e, overlap, 1.0 - overlap))
    rest = 1.0 - share
    sensitivity = 2.0 * rows.half_width / (rows.n * overlap)
    return score + _noise(rng, noise, sensitivity, rest * eps, rest * delta)


def split_ipw(
    rows: Rows,
    eps: float,
    rng: np.random.Generator,
    *,
    share: float = 0.5,
    overlap: float = 0.1,
    noise: Noise = "gaussian",
    delta: float = 1e-6,
) -> float:
    """LGPM19: a random part of the rows for the propensity, the rest for the mean.

    Laplace noise makes it what the source calls SplitIPW. Parameters as for `seq_ipw`; `share` is
    that of the rows.
    """
    order = rng.permutation(rows.n)
    first = int(rows.n * share)
    train, rest = rows.take(order[:first]), rows.take(order[first:])
    e = train.shipped_scores(rest.X, eps, delta, noise, rng)
    score = _ipw(rest, np.clip(e, overlap, 1.0 - overlap))
    sensitivity = 2.0 * rows.half_width / (rest.n * overlap)
    return score + _noise(rng, noise, sensitivity, eps, delta)


def blocking(
    rows: Rows,
    eps: float,
    rng: np.random.Generator,
    *,
    blocks: int | None = None,
    min_count: float = 1.5,
    shares: tuple[float, float, float] = (0.1, 0.35, 0.55),
    noise: Noise = "laplace",
    delta: float = 0.0,
) -> float:
    """DPBlocking: noisy counts and sums in blocks of the propensity, the top one lost.

    Parameters
    ----------
    rows, eps, rng, noise, delta
        As for `seq_ipw`.
    blocks : int, optional
        By default the published rule.
    min_count : float
        T: a block with a smaller noisy count in either arm is left out.
    shares : tuple of three floats
        Of the propensity, the counts and the sums.
    """
    m = published_blocks(rows.n, eps) if blocks is None else blocks
    parts = [(share * eps, share * delta) for share in shares]
    e = rows.shipped_scores(rows.X, *parts[0], noise, rng)
    # numbers 1 ... m, of which 0 ... m - 1 are read
    place = np.digitize(e, np.linspace(0.0, 1.0, m + 1))
    cell = place + (m + 2) * rows.treated
    size = 2 * (m + 2)
    counts = _noise_array(rng, noise, 2.0, *parts[1], (2, m))
    counts += np.bincount(cell, minlength=size).reshape(2, m + 2)[:, :m]
    sums = _noise_array(rng, noise, 2.0 * rows.half_width, *parts[2], (2, m))
    sums += np.bincount(cell, rows.y, minlength=size).reshape(2, m + 2)[:, :m]
    kept = (counts >= min_count).all(axis=0)
    if not kept.any():
        return 0.0
    counts, sums = counts[:, kept], sums[:, kept]
    means = sums / counts
    sizes = counts.sum(axis=0)
    return float(sizes @ (means[1] - means[0]) / sizes.sum())


def seq_nipw(
    rows: Rows,
    eps: float,
    rng: np.random.Generator,
    *,
    share: float = 0.2,
    overlap: float = 0.1,
) -> float:
    """SeqNIPW: noisy numerators and denominators of normalised weighting. As for `seq_ipw`."""
    e = rows.shipped_scores(rows.X, share * eps, 0.0, "laplace", rng)
    e = np.clip(e, overlap, 1.0 - overlap)
    half = (1.0 - share) * eps / 2.0
    means = []
    for arm, weight in ((rows.treated, 1.0 / e), (~rows.treated, 1.0 / (1.0 - e))):
        top = float((rows.y * weight)[arm].sum())
        bottom = float(weight[arm].sum())
        top += _noise(rng, "laplace", 2.0 * rows.half_width / overlap, half, 0.0)
        bottom += _noise(rng, "laplace", 2.0 / overlap, half, 0.0)
        means.append(top / bottom)
    return means[0] - means[1]


def agg_nipw(rows: Rows, eps: float, rng: np.random.Generator) -> float:
    """AggNIPW: normalised weighting in floor(sqrt n) random subsets, averaged. As for `seq_ipw`.

    Raises
    ------
    ShippedFailure
        Where a subset has one arm only.
    """
    k = math.isqrt(rows.n)
    estimates = []
    for X, treated, y in _subsets(rows, k, rng):
        e = _sigmoid(np.einsum("ij,ijk->ik", *_subset_logits(X, treated)))
        for arm, weight in ((treated, 1.0 / e), (1.0 - treated, 1.0 / (1.0 - e))):
            total = arm * weight
            estimates.append((total * y).sum(axis=1) / total.sum(axis=1))
    effects = np.concatenate(estimates[0::2]) - np.concatenate(estimates[1::2])
    return float(effects.mean()) + _noise(rng, "laplace", 2.0 * rows.half_width / k, eps, 0.0)


def nuisance_aggregation(
    rows: Rows,
    eps: float,
    rng: np.random.Generator,
    *,
    models: int = 200,
    overlap: float = 0.1,
    noise: Noise = "gaussian",
    delta: float = 1e-6,
) -> float:
    """LEBJ25: propensities and regressions averaged over models of other subsets, then AIPW.

    Parameters
    ----------
    rows, eps, rng, overlap, noise, delta
        As for `seq_ipw`.
    models : int
        K, the number of random subsets.

    Raises
    ------
    ShippedFailure
        Where a subset has one arm only.
    """
    parts = list(_subsets(rows, models, rng))
    fits, lines = [], []
    for X, treated, y in parts:
        coefficients, design = _subset_logits(X, treated)
        fits.append(coefficients)
        for j in range(len(X)):
            full = design[j].T
            lines.append(
                [
                    np.linalg.lstsq(full[arm], y[j, arm], rcond=None)[0]
                    for arm in (treated[j] == 0.0, treated[j] == 1.0)
                ]
            )
    weights = np.concatenate(fits)
    slopes = np.array(lines)
    scores, first = 0.0, 0
    for X, treated, y in parts:
        for j in range(len(X)):
            full = np.column_stack([X[j], np.ones(len(X[j]))])
            e1 = np.clip(_sigmoid(full @ weights.T), overlap, 1.0 - overlap)
            own = first + j
            e = (e1.sum(axis=1) - e1[:, own]) / (models - 1)
            others = (slopes.sum(axis=0) - slopes[own]) / (models - 1)
            g0, g1 = full @ others[0], full @ others[1]
            arm = treated[j]
            inverse = (y[j] - g1) * arm / e - (y[j] - g0) * (1.0 - arm) / (1.0 - e)
            scores += float((g1 - g0 + inverse).sum())
        first += len(X)
    sensitivity = 4.0 * rows.half_width * (1.0 + 1.0 / overlap)
    sensitivity *= 1.0 / rows.n + 1.0 / (models - 1)
    return scores / rows.n + _noise(rng, noise, sensitivity, eps, delta)


def exact_ipw(rows: Rows) -> float:
    """Inverse probability weighting without noise or clipping: the source's first reference."""
    return _ipw(rows, rows.scores())


def exact_nipw(rows: Rows, overlap: float = 0.1) -> float:
    """Return the normalised estimate without noise: the source's stand-in for the truth of NSW."""
    e = np.clip(rows.scores(), overlap, 1.0 - overlap)
    w = rows.treated
    first = np.average(rows.y[w], weights=1.0 / e[w])
    return float(first - np.average(rows.y[~w], weights=1.0 / (1.0 - e[~w])))


def exact_blocking(rows: Rows) -> float:
    """Blocks between quantiles of the propensity, no noise, the top one lost: second reference."""
    m = 5 if rows.n <= 5000 else 10 if rows.n <= 25000 else 20
    e = rows.scores()
    place = np.digitize(e, np.quantile(e, np.linspace(0.0, 1.0, m + 1)))
    total = size = 0.0
    for block in range(m):
        members = place == block
        one, zero = members & rows.treated, members & ~rows.treated
        if one.any() and zero.any():
            total += float(members.sum()) * float(rows.y[one].mean() - rows.y[zero].mean())
            size += float(members.sum())
    return total / size


def _ipw(rows: Rows, e: FloatArray) -> float:
    return float(np.where(rows.treated, rows.y / e, -rows.y / (1.0 - e)).mean())


def _sigmoid(index: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * index)))


def _noise(
    rng: np.random.Generator, kind: Noise, sensitivity: float, eps: float, delta: float
) -> float:
    return float(_noise_array(rng, kind, sensitivity, eps, delta, ()))


def _noise_array(
    rng: np.random.Generator,
    kind: Noise,
    sensitivity: float,
    eps: float,
    delta: float,
    shape: tuple[int, ...],
) -> FloatArray:
    if kind == "laplace":
        return np.asarray(rng.laplace(scale=sensitivity / eps, size=shape))
    sd = math.sqrt(2.0 * math.log(1.25 / delta)) * sensitivity / eps
    return np.asarray(rng.normal(scale=sd, size=shape))


def _logit(X: FloatArray, treated: NDArray[np.bool_]) -> tuple[FloatArray, float]:
    """Minimise the sum of losses plus ||w||^2 / 2, the intercept free."""
    if treated.all() or not treated.any():
        raise ShippedFailure("one arm only")
    design = np.asfortranarray(np.column_stack([X, np.full(len(X), _CONSTANT)]))
    found = minimise(
        design, treated, None, penalty=1.0, linear=np.zeros(design.shape[1]), tolerance=1e-5
    ).coefficients
    return found[:-1], _CONSTANT * float(found[-1])


def _subsets(
    rows: Rows, k: int, rng: np.random.Generator
) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
    """Return a random partition into k subsets, as arrays (subset, row, ...) by size of subset."""
    order = rng.permutation(rows.n)
    small, larger = divmod(rows.n, k)
    cut = larger * (small + 1)
    found = []
    for index, size in ((order[:cut], small + 1), (order[cut:], small)):
        if index.size:
            place = index.reshape(-1, size)
            found.append((rows.X[place], rows.treated[place].astype(float), rows.y[place]))
    return found


def _subset_logits(X: FloatArray, treated: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fit the logistic regression in every subset at once.

    Parameters
    ----------
    X : ndarray
        Shape (subsets, rows, k).
    treated : ndarray
        Shape (subsets, rows).

    Returns
    -------
    coefficients, design : ndarray
        Shapes (subsets, k + 1) and (subsets, k + 1, rows), the constant last.
    """
    share = treated.mean(axis=1)
    if (share == 0.0).any() or (share == 1.0).any():
        raise ShippedFailure("a subset with one arm only")
    design = np.concatenate([X, np.ones((*X.shape[:2], 1))], axis=2).transpose(0, 2, 1)
    penalty = np.ones(design.shape[1])
    penalty[-1] = 0.0
    coefficients = np.zeros(design.shape[:2])
    coefficients[:, -1] = np.log(share / (1.0 - share))

    def value(at: FloatArray) -> FloatArray:
        index = np.einsum("ij,ijk->ik", at, design)
        loss = np.logaddexp(0.0, index).sum(axis=1) - (treated * index).sum(axis=1)
        return np.asarray(loss + 0.5 * (at**2) @ penalty)

    now = value(coefficients)
    for _ in range(_NEWTON_STEPS):
        fitted = _sigmoid(np.einsum("ij,ijk->ik", coefficients, design))
        gradient = np.einsum("ijk,ik->ij", design, fitted - treated) + penalty * coefficients
        if float(np.abs(gradient).max()) < 1e-8:
            break
        weighted = design * (fitted * (1.0 - fitted))[:, None, :]
        curvature = weighted @ design.transpose(0, 2, 1) + np.diag(penalty + 1e-12)
        step = np.linalg.solve(curvature, gradient[..., None])[..., 0]
        length = np.ones(len(step))
        for _ in range(30):
            trial = coefficients - length[:, None] * step
            reached = value(trial)
            worse = reached > now + 1e-12
            if not worse.any():
                break
            length[worse] /= 2.0
        coefficients, now = trial, reached
    return coefficients, design
