"""What noise does to the effect, by method, under the public assumptions of a plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.ate.costs import release_costs
from dpstats.ate.kernels import KERNELS
from dpstats.ate.kernels.aipw import AipwReleased
from dpstats.ate.kernels.base import Arrays, Options, Public
from dpstats.ate.kernels.blocking import _ENOUGH_ROWS, BlockSettings
from dpstats.ate.kernels.blockmeans import block_effects, block_of
from dpstats.ate.kernels.cells import CellsReleased
from dpstats.ate.kernels.ipw import IpwReleased
from dpstats.ate.kernels.outcome import blank_outcome
from dpstats.ate.kernels.regression import _ROUNDS, RegressionReleased, RegressionSettings
from dpstats.ate.population import FITS_A_FILE, SEED, Case, Files, Population, fitted
from dpstats.ate.pretended import FittedOutcomes, fit_outcomes
from dpstats.calls import check_noise
from dpstats.privacy.calibration import laplace_scale
from dpstats.privacy.mechanisms import Mechanisms, sum_lattice
from dpstats.privacy.noise import noise_source
from dpstats.propensity import NAME, Objective

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpstats.ate.kernels.base import Settings
    from dpstats.ate.kernels.outcome import OutcomeModel
    from dpstats.privacy.accounting import Cost, Release
    from dpstats.privacy.noise import FloatArray

__all__ = ["FITS", "METHODS", "SWAMPED", "Planned", "expected"]

METHODS = ("blocking", "ipw", "diff_means", "regression", "aipw")
# fits with new noise in all; noisy cells; outcome models where they are all that is drawn
FITS, _NOISES, _MODELS = 400, 8000, 2000
_CELLS = 100_000
# fits over which sampling errors are averaged
_SOME = 40
# rows on which a kernel shows its scales
_SHOWN = 64
# `dp_ate` warns where this many standard deviations of noise fill half the outcome's range
SWAMPED = 1.96


@dataclass(frozen=True, slots=True)
class Planned:
    """What is expected of one method, in the outcome's units.

    Attributes
    ----------
    blocks : float
        nan where there are none.
    sds : dict of str to float
        Noise sd of one number, by release.
    noise, sampling : float
        Standard deviations of the effect.
    """

    blocks: float
    sds: dict[str, float]
    noise: float
    sampling: float


@dataclass(frozen=True, slots=True)
class _Draws:
    """Simulated files, and what noise makes of the models fitted on them."""

    case: Case
    population: Population
    files: Files
    propensities: FloatArray | None
    outcomes: FittedOutcomes | None

    @property
    def reach(self) -> float:
        """Root mean square of the range of residuals, in units of C; one where there are none."""
        return 1.0 if self.outcomes is None else math.sqrt(float((self.outcomes.reach**2).mean()))


def expected(case: Case, name: str, fits: int) -> Planned:
    """Return what is expected of a method.

    Parameters
    ----------
    case : Case
    name : str
        One of `METHODS`.
    fits : int
        Models to fit with new noise.
    """
    kernel = KERNELS[name]
    kind = check_noise(None, case.epsilon, case.delta)
    public = Public(case.n, case.columns, case.epsilon, case.delta, case.columns)
    settings = kernel.settings(_options(case, name), public)
    every = settings.fits_propensity or settings.models_outcome
    searched = case.searched if every else case.searched_outcome
    costs = release_costs(
        kernel,
        settings,
        public,
        split=case.split,
        gaussian=kind == "gaussian",
        searched=searched,
        rows_per_person=case.rows_per_person,
    )
    mechanisms = Mechanisms(noise_source(SEED), kind, costs, rows_per_person=case.rows_per_person)
    released = kernel.run(_shown(case), settings, mechanisms)
    draws = _draw(case, settings, mechanisms, released, fits)
    sds = {r.release: _sd(r, case) for r in released.records if "(" not in r.release}
    for moments in {"moments", "outcome"} & set(sds):
        sds[moments] = _rounds(case, settings, mechanisms, moments)[-1].noise
    if searched:
        scale = laplace_scale(2.0 * searched * case.rows_per_person, costs["bounds"].epsilon)
        sds["bounds"] = math.sqrt(2.0) * scale
    if isinstance(released, CellsReleased) and isinstance(settings, BlockSettings):
        return _of_cells(released, settings, sds, draws)
    if isinstance(released, RegressionReleased):
        return _of_regression(sds, draws)
    if isinstance(released, IpwReleased | AipwReleased):
        return _of_scores(released, settings, sds, draws)
    raise TypeError(f"method {name!r} cannot be planned")


def _options(case: Case, name: str) -> Options:
    kernel = KERNELS[name]
    wished = kernel.published_split if case.split == "published" else case.split
    own = {"blocks": case.blocks, "adjust": case.adjust} if name == "blocking" else {}
    return Options(
        "ate",
        Objective(rows_per_person=case.rows_per_person) if kernel.uses_propensity else None,
        case.probability,
        False,
        case.overlap if name in ("ipw", "aipw") else None,
        None if wished is None else tuple(wished),
        {key: value for key, value in own.items() if value is not None},
    )


def _shown(case: Case) -> Arrays:
    """Return rows without content, on which a kernel shows its scales."""
    design = np.zeros((_SHOWN, 1 + case.columns))
    design[:, 0] = 0.5
    treated = np.arange(_SHOWN) % 2 == 0
    lattice = sum_lattice(1.0, case.n)
    return Arrays(np.zeros(_SHOWN), treated, design, None, case.half_width, lattice, design)


def _sd(record: Release, case: Case) -> float:
    """Return the standard deviation of the noise in one number of a release."""
    if "K-norm" in record.mechanism:
        # a vector of d numbers has mean square (d + 1) scale^2 in each
        return record.scale * math.sqrt(case.columns + 2.0)
    return record.scale * (math.sqrt(2.0) if "Laplace" in record.mechanism else 1.0)


def _rounds(
    case: Case, settings: Settings, mechanisms: Mechanisms, name: str
) -> list[OutcomeModel]:
    """Return the outcome model of each round before anything is seen."""
    two = isinstance(settings, RegressionSettings) and settings.rounds == 2
    common = isinstance(settings, BlockSettings)
    return [
        blank_outcome(
            case.n,
            case.columns,
            mechanisms,
            share=share,
            name=name,
            common=common,
            most=_ENOUGH_ROWS if common else None,
        )
        for share in (_ROUNDS.values() if two else (1.0,))
    ]


def _draw(
    case: Case, settings: Settings, mechanisms: Mechanisms, released: Any, fits: int
) -> _Draws:
    """Simulate files and fit models to them, each time with new noise."""
    population = Population.of(case)
    files, propensities, outcomes = Files.expected(population), None, None
    if settings.fits_propensity:
        files = Files.of(case, population, fits // FITS_A_FILE)
        # the noise of a vector comes from the record, the penalty from the model
        record = next(record for record in released.records if record.release == NAME)
        cost: Cost = mechanisms.costs[NAME]
        propensities = fitted(case, settings, cost, record, population, files)
    if settings.models_outcome:
        name = "outcome" if "outcome" in mechanisms.costs else "moments"
        rounds = _rounds(case, settings, mechanisms, name)
        count = max(_MODELS * fits // FITS, 1) if propensities is None else FITS_A_FILE
        # blocks fall back on outcomes where residuals range no less far
        limit = 1.0 if isinstance(settings, BlockSettings) else math.inf
        outcomes = fit_outcomes(population, files, rounds, count, limit)
    return _Draws(case, population, files, propensities, outcomes)


def _of_cells(
    released: CellsReleased, settings: BlockSettings, sds: dict[str, float], draws: _Draws
) -> Planned:
    case, blocks = draws.case, released.raw.shape[-1]
    # the range of residuals among rows without content, against that of the file
    size = draws.reach * case.half_width / released.half_width
    sds = _times(sds, {"sums": size, "variances": size**2})
    first, second = released.scales
    if released.form != "joint":
        second /= released.half_width
    # in units of the range
    released = replace(
        released,
        n=case.n,
        half_width=1.0,
        reach=1.0,
        smallest=1.0,
        scales=(first, second),
        model=None,
        base=case.treated_share if settings.centred else 0.5,
    )
    noise = case.half_width * _within(_cells_effects(released, draws))
    rough = case.half_width * draws.reach * released.noise_sd()
    if SWAMPED * rough > case.half_width:
        # clipping bounds the spread of an estimate that says nothing; it must not look good
        noise = max(noise, rough)
    return Planned(blocks, sds, noise, _cells_sampling(draws, blocks, released.base))


def _of_regression(sds: dict[str, float], draws: _Draws) -> Planned:
    if draws.outcomes is None:
        raise TypeError("the outcome must be modelled")
    case = draws.case
    effects = np.clip(draws.outcomes.contrast, -2.0, 2.0)
    noise = case.half_width * _within(effects[..., None])
    return Planned(math.nan, sds, noise, _regression_sampling(draws, draws.outcomes))


def _of_scores(
    released: IpwReleased | AipwReleased, settings: Settings, sds: dict[str, float], draws: _Draws
) -> Planned:
    case, size = draws.case, 1.0
    if isinstance(released, AipwReleased) and released.correction is not None:
        size = draws.reach * case.half_width / released.correction.half_width
    # a mean over the rows
    sds = _times(sds, {"score": size * _SHOWN / case.n})
    moved = _within(_scores_effects(settings, draws)[..., None])
    noise = math.hypot(sds["score"], case.half_width * moved)
    return Planned(math.nan, sds, noise, _scores_sampling(settings, draws))


def _times(sds: Mapping[str, float], factors: Mapping[str, float]) -> dict[str, float]:
    return {name: sd * factors.get(name, 1.0) for name, sd in sds.items()}


def _within(effects: FloatArray) -> float:
    """Return the sd within files, shape (files, fits, draws)."""
    _, fits, draws = effects.shape
    of_cells = float(effects.var(axis=2, ddof=1).mean()) if draws > 1 else 0.0
    if fits == 1:
        return math.sqrt(of_cells)
    of_fits = float(effects.mean(axis=2).var(axis=1, ddof=1).mean())
    return math.sqrt(of_fits + of_cells * (1.0 - 1.0 / draws))


def _cells(draws: _Draws, m: int, base: float) -> FloatArray:
    """Return counts and sums (in units of the range) by fit, shape (files, fits, 2, 2, m)."""
    files, scores, outcomes = draws.files, draws.propensities, draws.outcomes
    if scores is None:
        fits = 1 if outcomes is None else outcomes.reach.shape[1]
        scores = np.zeros((len(files.shares), fits, files.shares.shape[1]))
    cells = np.empty((*scores.shape[:2], 2, 2, m))
    for i, j in np.ndindex(*scores.shape[:2]):
        block = block_of(scores[i, j], m, base)
        arms = np.stack([1.0 - files.shares[i], files.shares[i]])
        sums = files.outcomes[i]
        if outcomes is not None:
            sums = (sums - arms * outcomes.at(i, j)) / outcomes.reach[i, j]
        for quantity, values in enumerate((arms, sums)):
            for arm in (0, 1):
                cells[i, j, quantity, arm] = np.bincount(block, values[arm], minlength=m)
    return cells * (draws.case.n / files.shares.shape[1])


def _cells_effects(released: CellsReleased, draws: _Draws) -> FloatArray:
    """Return effects with noise in models and cells, shape (files, fits, draws), in units of C."""
    m, outcomes = released.raw.shape[-1], draws.outcomes
    cells = _cells(draws, m, released.base)
    counts, sums = cells[..., 0, :, :], cells[..., 1, :, :]
    joint = released.form == "joint"
    halves = ((counts + sums) / 2.0, (counts - sums) / 2.0) if joint else (counts, sums)
    raw = np.stack(halves, axis=-3).reshape(-1, 2, 2, m)
    fits = len(raw)
    # with many blocks fewer draws do, and fit in memory
    each = max(min(_NOISES, _CELLS // m) // fits, 1)
    raw = np.repeat(raw, each, axis=0)
    noise = released.noise((len(raw), 2, m), np.random.default_rng(SEED + 1))
    noisy = released.cells(raw + noise)
    shape = (*cells.shape[:2], each)
    if outcomes is None:
        return np.asarray(block_effects(noisy, "ate").total.reshape(shape))
    own = np.repeat((outcomes.reach < 1.0).ravel(), each)
    total = np.empty(len(raw))
    for residuals in (False, True):
        chosen = own == residuals
        if chosen.any():
            part = replace(
                noisy,
                counts=noisy.counts[chosen],
                sums=noisy.sums[chosen],
                residuals=residuals,
            )
            total[chosen] = block_effects(part, "ate").total
    reach, contrast = outcomes.reach[..., None], outcomes.contrast[..., None]
    return np.asarray(contrast + reach * total.reshape(shape))


def _scores_effects(settings: Settings, draws: _Draws) -> FloatArray:
    """Return effects without the noise of the score, shape (files, fits), in units of C."""
    files, scores, outcomes = draws.files, draws.propensities, draws.outcomes
    if scores is None:
        scores = draws.population.score[None, None]
    e = np.clip(scores, settings.overlap, 1.0 - settings.overlap)
    if outcomes is None:
        control, treated = files.outcomes[:, :1], files.outcomes[:, 1:]
        return np.asarray((treated / e - control / (1.0 - e)).mean(axis=-1))
    effects = np.array(outcomes.contrast)
    for i, j in np.ndindex(*effects.shape):
        arms = np.stack([1.0 - files.shares[i], files.shares[i]])
        control, treated = files.outcomes[i] - arms * outcomes.at(i, j)
        own = e[i, j if e.shape[1] > 1 else 0]
        effects[i, j] += float((treated / own - control / (1.0 - own)).mean())
    return effects


def _left(draws: _Draws) -> FloatArray:
    """Return what some fitted outcome models leave of mean outcomes, shape (fits, 2, rows)."""
    means, outcomes = draws.population.means, draws.outcomes
    if outcomes is None:
        return means[None]
    every = list(np.ndindex(*outcomes.reach.shape))
    some = every[:: max(len(every) // _SOME, 1)]
    return np.stack([means - outcomes.at(i, j) for i, j in some])


def _left_variances(draws: _Draws) -> FloatArray:
    """Return the variance of residuals within arms, shape (2,)."""
    score = draws.population.score
    arms = np.stack([1.0 - score, score])
    arms /= arms.sum(axis=1, keepdims=True)
    left = _left(draws)
    left = left - (arms * left).sum(axis=-1, keepdims=True)
    return np.asarray((arms * left**2).sum(axis=-1).mean(axis=0) + draws.population.rest**2)


def _cells_sampling(draws: _Draws, blocks: int, base: float) -> float:
    case, share = draws.case, draws.case.treated_share
    if blocks > 1 and draws.propensities is not None:
        return case.half_width * math.sqrt(_blocks_variance(draws, blocks, base))
    spread = np.array([1.0 / (1.0 - share), 1.0 / share])
    variances = np.full(2, case.outcome_sd**2)
    if draws.outcomes is not None:
        variances = np.minimum(_left_variances(draws), variances)
    return case.half_width * math.sqrt(float(spread @ variances) / case.n)


def _blocks_variance(draws: _Draws, blocks: int, base: float) -> float:
    """Return the sampling variance from what is left within blocks of some noisy propensities."""
    case, score, found = draws.case, draws.population.score, draws.propensities
    if found is None:
        raise TypeError("the propensity must be fitted")
    every = list(np.ndindex(*found.shape[:2]))
    some = every[:: max(len(every) // _SOME, 1)]
    arms, total = np.stack([1.0 - score, score]), 0.0
    for i, j in some:
        left = draws.population.means
        if draws.outcomes is not None:
            left = left - draws.outcomes.at(i, j)
        block = block_of(found[i, j], blocks, base)
        size = np.bincount(block, minlength=blocks)
        for arm, values in zip(arms, left, strict=True):
            # a cell of less than a row cannot be told from one of a row
            mass = np.bincount(block, arm, minlength=blocks).clip(min=score.size / case.n)
            mean = np.bincount(block, arm * values, minlength=blocks) / mass
            square = np.bincount(block, arm * values**2, minlength=blocks) / mass
            within = np.maximum(square - mean**2, 0.0) + draws.population.rest**2
            total += float((size**2 * within / mass).sum())
    return total / (len(some) * score.size * case.n)


def _regression_sampling(draws: _Draws, outcomes: FittedOutcomes) -> float:
    score, rows = draws.population.score, outcomes.covariates
    variances, total = _left_variances(draws), 0.0
    for variance, arm in zip(variances, (1.0 - score, score), strict=True):
        away = np.average(rows, axis=0, weights=arm) - rows.mean(axis=0)
        spread = np.cov(rows.T, aweights=arm, ddof=0).reshape(len(away), len(away))
        lever = float(away @ np.linalg.pinv(spread) @ away)
        total += float(variance) * (1.0 + lever) / float(arm.mean())
    return draws.case.half_width * math.sqrt(total / draws.case.n)


def _scores_sampling(settings: Settings, draws: _Draws) -> float:
    score, rest = draws.population.score, draws.population.rest**2
    e = np.clip(score, settings.overlap, 1.0 - settings.overlap)
    left = _left(draws)
    control, treated = left[:, 0], left[:, 1]
    fits = draws.population.means - left
    gap = fits[:, 1] - fits[:, 0]
    first, second = gap + treated / e, gap - control / (1.0 - e)
    mean = score * first + (1.0 - score) * second
    square = score * (first**2 + rest / e**2)
    square += (1.0 - score) * (second**2 + rest / (1.0 - e) ** 2)
    variance = float((square.mean(axis=-1) - mean.mean(axis=-1) ** 2).mean())
    return draws.case.half_width * math.sqrt(variance / draws.case.n)
