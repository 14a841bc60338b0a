"""Public assumptions about a study, and files simulated from them, for planning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from dpstats.logistic import minimise, row_scales, sigmoid_of
from dpstats.propensity import ROW_NORM, Objective

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpstats.ate.kernels.base import Settings
    from dpstats.privacy.accounting import Cost, Release
    from dpstats.privacy.noise import FloatArray

__all__ = ["FITS_A_FILE", "SEED", "Case", "Files", "Population", "fitted"]

SEED = 20261130
FITS_A_FILE = 10
# rows of the pretended population
_ROWS = 1024
# covariates: normal, bounds at 2.5 standard deviations
_SPREAD = 0.4


@dataclass(frozen=True, slots=True)
class Case:
    """Public quantities and assumptions of a planned call; means and sd in units of C."""

    n: int
    epsilon: float
    delta: float
    half_width: float
    columns: int
    treated_share: float
    outcome_sd: float
    blocks: int | Literal["published"] | None
    adjust: bool | None
    split: Mapping[str, float] | Literal["published"] | None
    searched: int
    searched_outcome: int
    rows_per_person: int
    probability: float | None
    overlap: float | None
    means: tuple[float, float]
    logit_sd: float
    confounding: float
    explained: float


@dataclass(frozen=True, slots=True)
class Population:
    """Expected rows.

    Attributes
    ----------
    design : ndarray
        Shape (rows, 1 + k), as `Arrays.design`.
    score : ndarray
        Shape (rows,): probability of treatment.
    means : ndarray
        Shape (2, rows): expected outcomes of controls and of treated, in units of C.
    rest : float
        Standard deviation of outcomes about them.
    """

    design: FloatArray
    score: FloatArray
    means: FloatArray
    rest: float

    @classmethod
    def of(cls, case: Case) -> Population:
        """Make the expected rows of a case."""
        rng = np.random.default_rng(SEED)
        rows = min(_ROWS, case.n - case.n % 2)
        half = rng.standard_normal((rows // 2, case.columns))
        normal = np.clip(np.concatenate([half, -half]), -1.0 / _SPREAD, 1.0 / _SPREAD)
        design = np.column_stack([np.full(rows, 0.5), _SPREAD * normal])
        index = normal.sum(axis=1)
        index /= max(float(index.std()), 1e-9)
        score = _scores(case.logit_sd * index, case.treated_share)
        if case.probability is not None:
            score = np.full(rows, case.probability)
        moved = case.confounding * index
        if case.columns > 1:
            # covariates that go with the outcome but not with treatment
            other = normal[:, 0::2].sum(axis=1) - normal[:, 1::2].sum(axis=1)
            other -= float(other @ index) / rows * index
            other /= float(other.std())
            moved += math.sqrt(max(case.explained - case.confounding**2, 0.0)) * other
        rest = case.outcome_sd * math.sqrt(max(1.0 - float(moved.var()), 0.0))
        means = np.clip(np.array(case.means)[:, None] + case.outcome_sd * moved, -1.0, 1.0)
        return cls(design, score, means, rest)


@dataclass(frozen=True, slots=True)
class Files:
    """Simulated files of n rows with the covariates of the population.

    Each row of the population stands for n / rows rows: deviations are scaled so that sums over
    rows have the variance that they have over n rows.

    Attributes
    ----------
    shares : ndarray
        Shape (files, rows): share of treated rows.
    outcomes : ndarray
        Shape (files, 2, rows): sums of outcomes of controls and of treated over that share.
    """

    shares: FloatArray
    outcomes: FloatArray

    @classmethod
    def of(cls, case: Case, population: Population, files: int) -> Files:
        """Draw treatments and outcomes of some files."""
        rng = np.random.default_rng(SEED + 2)
        score = population.score
        shrink = math.sqrt(score.size / case.n)
        shares = score + shrink * ((rng.random((files, score.size)) < score) - score)
        arms = np.stack([1.0 - shares, shares], axis=1)
        noise = shrink * population.rest * np.sqrt(arms) * rng.standard_normal(arms.shape)
        return cls(shares, arms * population.means + noise)

    @classmethod
    def expected(cls, population: Population) -> Files:
        """Return one file in which everything is as expected."""
        arms = np.stack([1.0 - population.score, population.score])
        return cls(population.score[None], (arms * population.means)[None])


def _scores(index: FloatArray, share: float) -> FloatArray:
    """Return logistic probabilities with this mean."""
    low, high = -800.0, 800.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        mean = float((0.5 + 0.5 * np.tanh((index + middle) / 2.0)).mean())
        low, high = (middle, high) if mean < share else (low, middle)
    tiny = 1e-9
    return np.clip(0.5 + 0.5 * np.tanh((index + low) / 2.0), tiny, 1.0 - tiny)


def fitted(
    case: Case,
    settings: Settings,
    cost: Cost,
    record: Release,
    population: Population,
    files: Files,
) -> FloatArray:
    """Fit the files with new noise each time; propensities, shape (files, fits, rows)."""
    model = settings.propensity
    if not isinstance(model, Objective):
        raise TypeError("only propensities by objective perturbation can be planned")
    penalty = model.calibrated(cost.epsilon, record.delta)[1]
    rng = np.random.default_rng(SEED)
    rows, size = population.design.shape
    count = len(files.shares)
    noise = rng.standard_normal((count, FITS_A_FILE, size))
    if "K-norm" in record.mechanism:
        radius = rng.gamma(size, record.scale, (count, FITS_A_FILE, 1))
        noise *= radius / np.linalg.norm(noise, axis=-1, keepdims=True)
    else:
        noise *= record.scale
    # each row of the population stands for n / rows rows
    weight = rows / case.n
    scales = row_scales(population.design, model.row_norm or ROW_NORM)
    found = np.empty((count, FITS_A_FILE, rows))
    for i, j in np.ndindex(count, FITS_A_FILE):
        coefficients = minimise(
            population.design,
            files.shares[i],
            scales,
            penalty=penalty * weight,
            linear=noise[i, j] * weight,
            tolerance=1e-4 * rows,
        ).coefficients
        found[i, j] = sigmoid_of(population.design, scales, coefficients)
    return found
