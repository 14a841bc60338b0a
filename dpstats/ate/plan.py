"""plan_ate: what to expect of `dp_ate` before any data are touched."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpstats.ate.costs import release_costs
from dpstats.ate.kernels import KERNELS
from dpstats.ate.kernels.base import Arrays, Options, Public
from dpstats.ate.kernels.blockmeans import block_effects
from dpstats.ate.kernels.cells import CellsReleased
from dpstats.ate.kernels.ipw import IpwReleased
from dpstats.ate.population import FITS_A_FILE, SEED, Case, Files, Population, fitted
from dpstats.calls import check_count, check_noise, check_number, choice
from dpstats.errors import DPStatsError
from dpstats.inference import check_alpha
from dpstats.privacy.accounting import check_budget
from dpstats.privacy.bounds import check_interval
from dpstats.privacy.calibration import laplace_scale
from dpstats.privacy.mechanisms import Mechanisms, sum_lattice
from dpstats.privacy.noise import noise_source
from dpstats.propensity import NAME, Objective
from dpstats.results import compare_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from dpstats.ate.kernels.base import Settings
    from dpstats.privacy.accounting import Release
    from dpstats.privacy.noise import FloatArray

__all__ = ["plan_ate"]

_METHODS = ("blocking", "ipw", "diff_means")
_RELEASES = ("bounds", "propensity", "counts", "sums", "score", "variances")
# releases of `ipw` that are means over n rows
_MEANS = ("score", "variances")
# rows on which a kernel shows its scales
_SHOWN = 64
# fits with new noise: in all, in all while searching for eps; noisy cells
_FITS, _FEWER_FITS, _NOISES = 400, 80, 8000
_CELLS = 100_000
# `dp_ate` warns where this many standard deviations of noise fill half the outcome's range
_SWAMPED = 1.96
_EPS_RANGE = (1e-3, 1e3)


def plan_ate(
    n: int,
    eps: float,
    y_bounds: tuple[float, float],
    *,
    k: int = 1,
    method: str | None = "blocking",
    delta: float = 0.0,
    treated_share: float | None = None,
    outcome_sd: float | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    target_se: float | None = None,
    blocks: int | Literal["published"] | None = None,
    split: Mapping[str, float] | Literal["published"] | None = None,
    searched: int = 0,
    rows_per_person: int = 1,
    propensity: float | None = None,
    overlap: float | None = None,
    means: tuple[float, float] | None = None,
    logit_sd: float = 1.0,
    confounding: float = 0.5,
    explained: float = 0.5,
) -> pd.DataFrame:
    r"""Say how large the errors of `dp_ate` will be, and which budget a question needs.

    Touches no data.

    Parameters
    ----------
    n : int
        Number of rows.
    eps, delta : float
        Privacy budget; Gaussian noise where `delta` > 0.
    y_bounds : (lo, hi)
        Public bounds of the outcome.
    k : int
        Columns of the propensity's design (a categorical counts its levels less one).
    method : {"blocking", "ipw", "diff_means"}, optional
        None means all.
    treated_share : float, optional
        Expected share of treated rows; by default `propensity`, else one half.
    outcome_sd : float, optional
        Expected standard deviation of the outcome within an arm; by default a quarter of the
        width of `y_bounds`.
    alpha, power : float
        Level of the two-sided test and its power, for `detectable`.
    target_se : float, optional
        Total standard error for which `eps_needed` is given; by default the one at which privacy
        noise and sampling error are equal, sqrt(2) times `sampling_sd`.
    blocks, split, rows_per_person, overlap
        As in `dp_ate`; `blocks` concerns "blocking" only, `overlap` "ipw" only.
    searched : int
        Columns without bounds, which the call would have to find. A call that fits no propensity
        searches the outcome's only.
    propensity : float, optional
        The probability of treatment, where it is known by design.
    means : (float, float), optional
        Expected mean outcome of controls and of treated; by default the midpoint of `y_bounds`
        for both. Noise in counts matters more, the farther means are from the midpoint.
    logit_sd : float
        How far the log odds of treatment are expected to spread; 0 where treatment is randomised
        and `dp_ate` is not told so.
    confounding : float
        Expected correlation, within arms, of the outcome with the log odds of treatment (or, where
        they do not vary, with the sum of the covariates), in [-1, 1].
    explained : float
        Expected share of the outcome's variance within arms that all covariates explain, in
        [0, 1]; no less than the square of `confounding` is taken.

    Returns
    -------
    DataFrame
        One row a method: `blocks`; `sd_bounds`, `sd_propensity`, `sd_counts`, `sd_sums`,
        `sd_score`, `sd_variances`, the standard deviation of the noise in each number of a release
        (nan where the method has none; halves of counts where `dp_ate` releases counts and sums
        together); `noise_sd`, that of privacy noise in the effect; `sampling_sd`; `total_se`;
        `detectable`, the smallest effect that is found; `eps_needed` (nan where no budget up to
        1000 would do); `advice`.

    Raises
    ------
    DPStatsError
        If an argument breaks a rule.

    Notes
    -----
    Scales are those of the kernel itself, run on a few rows of zeros. Privacy noise in the effect
    is simulated with a fixed seed under these assumptions: independent normal covariates whose
    bounds are 2.5 standard deviations from their means, log odds linear in their sum, mean outcomes
    linear in them and equally so in both arms. In each of 40 simulated files the propensity is
    fitted 10 times with its noise, cells are noised, and the same post-processing follows as in
    `dp_ate`; variances within files are averaged. With one block, or a known propensity, nothing is
    assumed about covariates.

    Sampling errors take the propensity as known, and no gain from adjustment: for "blocking"
    ``outcome_sd sqrt(E[1/e + 1/(1-e)] / n)``. Bias, of clipping and of what is left within blocks,
    is in none of the columns. The distribution of privacy noise is taken as normal in `detectable`.
    By the default rule for blocks errors jump where their number changes, so that a smaller budget
    than `eps_needed` may do as well.

    Examples
    --------
    >>> import dpstats as dp
    >>> plan = dp.plan_ate(10_000, 1.0, (0, 100), k=4, method="diff_means")
    >>> plan[["noise_sd", "sampling_sd", "detectable"]].round(2).loc["diff_means"].tolist()
    [0.05, 0.5, 1.41]
    >>> plan.loc["diff_means", "advice"]
    'sampling error dominates: noise is 0.11 of it'
    """
    import pandas as pd

    if method is not None:
        choice("method", method, dict.fromkeys(_METHODS))
    case = _check(
        n,
        eps,
        delta,
        y_bounds,
        k,
        treated_share,
        outcome_sd,
        blocks,
        split,
        searched,
        rows_per_person,
        propensity,
        overlap,
        means,
        logit_sd,
        confounding,
        explained,
    )
    detected = _quantile(1.0 - check_alpha(alpha) / 2.0) + _quantile(_check_power(power))
    check_number("target_se", target_se, 0.0, math.inf, "a positive number")
    rows = []
    for name in _METHODS if method is None else (method,):
        planned = _plan(case, name, _FITS)
        total = math.hypot(planned.noise, planned.sampling)
        target = math.sqrt(2.0) * planned.sampling if target_se is None else float(target_se)
        rows.append(
            {
                "method": name,
                "blocks": planned.blocks,
                **{f"sd_{release}": planned.sds.get(release, math.nan) for release in _RELEASES},
                "noise_sd": planned.noise,
                "sampling_sd": planned.sampling,
                "total_se": total,
                "detectable": detected * total,
                "eps_needed": _eps_needed(case, name, target),
                "advice": _advice(case, planned),
            }
        )
    return pd.DataFrame(rows).set_index("method")


@dataclass(frozen=True, slots=True)
class _Planned:
    """What is expected of one method."""

    blocks: float
    sds: dict[str, float]
    noise: float
    sampling: float


def _check(
    n: Any,
    eps: Any,
    delta: Any,
    y_bounds: Any,
    k: Any,
    treated_share: Any,
    outcome_sd: Any,
    blocks: Any,
    split: Any,
    searched: Any,
    rows_per_person: Any,
    propensity: Any,
    overlap: Any,
    means: Any,
    logit_sd: Any,
    confounding: Any,
    explained: Any,
) -> Case:
    check_count("n", n, "an integer of at least 2")
    if n < 2:
        raise DPStatsError(f"`n` must be an integer of at least 2; got {n}")
    for name, value in (("k", k), ("searched", searched)):
        if value != 0 or isinstance(value, bool):
            check_count(name, value, "a non-negative integer")
    check_count("rows_per_person", rows_per_person, "a positive integer")
    if blocks is not None and blocks != "published":
        check_count("blocks", blocks, "a positive integer or 'published'")
    epsilon, slack = check_budget(eps, delta)
    if math.isinf(epsilon):
        raise DPStatsError("`eps` must be finite: without noise there is nothing to plan")
    low, high = check_interval("the outcome", y_bounds, "y_bounds")
    half, least = (high - low) / 2.0, -math.ulp(0.0)
    share = "a number in (0, 1)"
    check_number("treated_share", treated_share, 0.0, 1.0, share)
    check_number("propensity", propensity, 0.0, 1.0, share)
    check_number("overlap", overlap, 1e-6, 0.5, "a number in (0.000001, 0.5)")
    check_number("outcome_sd", outcome_sd, 0.0, math.inf, "a positive number")
    check_number("logit_sd", logit_sd, least, math.inf, "a number of at least 0")
    edge = 1.0 + math.ulp(1.0)
    check_number("confounding", confounding, -edge, edge, "a number in [-1, 1]")
    check_number("explained", explained, least, edge, "a number in [0, 1]")
    if split is not None and split != "published" and not hasattr(split, "keys"):
        raise DPStatsError(f"`split` must be a dict or 'published'; got {split!r}")
    if treated_share is None:
        treated_share = 0.5 if propensity is None else propensity
    return Case(
        int(n),
        epsilon,
        slack,
        half,
        int(k),
        float(treated_share),
        0.5 if outcome_sd is None else float(outcome_sd) / half,
        blocks,
        split,
        int(searched),
        int(rows_per_person),
        None if propensity is None else float(propensity),
        overlap,
        _check_means(means, low, high),
        float(logit_sd),
        float(confounding),
        float(explained),
    )


def _check_means(means: Any, low: float, high: float) -> tuple[float, float]:
    if means is None:
        return 0.0, 0.0
    rule = "`means` must be two numbers within `y_bounds`: of controls and of treated"
    try:
        first, second = (float(mean) for mean in means)
    except (TypeError, ValueError):
        raise DPStatsError(f"{rule}; got {means!r}") from None
    if not (low <= first <= high and low <= second <= high):
        raise DPStatsError(f"{rule}; got {means!r}")
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    return (first - middle) / half, (second - middle) / half


def _check_power(power: Any) -> float:
    check_number("power", power, 0.0, 1.0, "a number in (0, 1)")
    return float(power)


def _advice(case: Case, planned: _Planned) -> str:
    if _SWAMPED * planned.noise > case.half_width:
        return "the privacy noise swamps the answer"
    return compare_sizes(planned.noise, planned.sampling)


def _quantile(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(level))


def _plan(case: Case, name: str, fits: int) -> _Planned:
    """Plan one method."""
    kernel = KERNELS[name]
    kind = check_noise(None, case.epsilon, case.delta)
    wished = kernel.published_split if case.split == "published" else case.split
    options = Options(
        "ate",
        Objective(rows_per_person=case.rows_per_person) if kernel.uses_propensity else None,
        case.probability,
        False,
        case.overlap if name == "ipw" else None,
        None if wished is None else tuple(wished),
        {"blocks": case.blocks} if name == "blocking" and case.blocks is not None else {},
    )
    public = Public(case.n, case.columns, case.epsilon, case.delta)
    settings = kernel.settings(options, public)
    searched = case.searched if settings.fits_propensity else min(case.searched, 1)
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
    sds = {record.release: _sd(record, case) for record in released.records}
    if searched:
        scale = laplace_scale(2.0 * searched * case.rows_per_person, costs["bounds"].epsilon)
        sds["bounds"] = math.sqrt(2.0) * scale
    population = Population.of(case)
    files, models = Files.expected(population), None
    if settings.fits_propensity:
        files = Files.of(case, population, fits // FITS_A_FILE)
        # the noise of a vector comes from the record, the penalty from the model
        record = next(record for record in released.records if record.release == NAME)
        models = fitted(case, settings, costs[NAME], record, population, files)
    if isinstance(released, CellsReleased):
        released = replace(released, n=case.n)
        blocks = released.raw.shape[-1]
        noise, rough = _cells_noise(released, case, files, models), released.noise_sd()
        if _SWAMPED * rough > case.half_width:
            # clipping bounds the spread of an estimate that says nothing; it must not look good
            noise = max(noise, rough)
        sampling = _cells_sampling(case, population, blocks)
        return _Planned(blocks, sds, noise, sampling)
    if not isinstance(released, IpwReleased):
        raise TypeError(f"method {name!r} cannot be planned")
    sds |= {name: sds[name] * _SHOWN / case.n for name in _MEANS if name in sds}
    clipped = np.clip(population.score, settings.overlap, 1.0 - settings.overlap)
    score = sds["score"]
    moved = 0.0 if models is None else _ipw_moved(case, settings, files, models)
    return _Planned(
        math.nan, sds, math.hypot(score, moved), _ipw_sampling(case, population, clipped)
    )


def _shown(case: Case) -> Arrays:
    """Return rows without content, on which a kernel shows its scales."""
    design = np.zeros((_SHOWN, 1 + case.columns))
    design[:, 0] = 0.5
    treated = np.arange(_SHOWN) % 2 == 0
    lattice = sum_lattice(1.0, case.n)
    return Arrays(np.zeros(_SHOWN), treated, design, None, case.half_width, lattice)


def _sd(record: Release, case: Case) -> float:
    """Return the standard deviation of the noise in one number of a release."""
    if "K-norm" in record.mechanism:
        # a vector of d numbers has mean square (d + 1) scale^2 in each
        return record.scale * math.sqrt(case.columns + 2.0)
    return record.scale * (math.sqrt(2.0) if "Laplace" in record.mechanism else 1.0)


def _within(effects: FloatArray) -> float:
    """Return the sd within files, shape (files, fits, draws)."""
    _, fits, draws = effects.shape
    of_cells = float(effects.var(axis=2, ddof=1).mean()) if draws > 1 else 0.0
    if fits == 1:
        return math.sqrt(of_cells)
    of_fits = float(effects.mean(axis=2).var(axis=1, ddof=1).mean())
    return math.sqrt(of_fits + of_cells * (1.0 - 1.0 / draws))


def _cells(n: int, files: Files, models: FloatArray | None, m: int) -> FloatArray:
    """Return counts and sums (in units of C) of each fit, shape (files, fits, 2, 2, m)."""
    if models is None:
        models = np.zeros((len(files.shares), 1, files.shares.shape[1]))
    cells = np.empty((*models.shape[:2], 2, 2, m))
    for i, j in np.ndindex(*models.shape[:2]):
        block = np.minimum((models[i, j] * m).astype(np.int64), m - 1)
        arms = np.stack([1.0 - files.shares[i], files.shares[i]])
        for quantity, values in enumerate((arms, files.outcomes[i])):
            for arm in (0, 1):
                cells[i, j, quantity, arm] = np.bincount(block, values[arm], minlength=m)
    return cells * (n / files.shares.shape[1])


def _cells_noise(
    released: CellsReleased, case: Case, files: Files, models: FloatArray | None
) -> float:
    """Return the sd of the effect over noise in propensities and cells."""
    c, m = case.half_width, released.raw.shape[-1]
    cells = _cells(case.n, files, models, m)
    counts, sums = cells[..., 0, :, :], cells[..., 1, :, :]
    joint = released.form == "joint"
    halves = ((counts + sums) / 2.0, (counts - sums) / 2.0) if joint else (counts, c * sums)
    raw = np.stack(halves, axis=-3).reshape(-1, 2, 2, m)
    # with many blocks fewer draws do, and fit in memory
    draws = min(_NOISES, _CELLS // m)
    raw = np.repeat(raw, max(draws // len(raw), 1), axis=0)
    noise = released.noise((len(raw), 2, m), np.random.default_rng(SEED + 1))
    total = block_effects(released.cells(raw + noise), "ate").total
    return _within(total.reshape(*cells.shape[:2], -1))


def _cells_sampling(case: Case, population: Population, blocks: int) -> float:
    share = case.treated_share
    spread = 1.0 / (share * (1.0 - share))
    if blocks > 1:
        score = np.clip(population.score, 1.0 / case.n, 1.0 - 1.0 / case.n)
        spread = float((1.0 / (score * (1.0 - score))).mean())
    return case.half_width * case.outcome_sd * math.sqrt(spread / case.n)


def _ipw_moved(case: Case, settings: Settings, files: Files, models: FloatArray) -> float:
    """Return the sd that noise in the propensities gives the mean score."""
    fitted = np.clip(models, settings.overlap, 1.0 - settings.overlap)
    control, treated = files.outcomes[:, :1], files.outcomes[:, 1:]
    effects = (treated / fitted - control / (1.0 - fitted)).mean(axis=-1, keepdims=True)
    return case.half_width * _within(effects)


def _ipw_sampling(case: Case, population: Population, clipped: FloatArray) -> float:
    score, (control, treated) = population.score, population.means
    rest = population.rest**2
    mean = score * treated / clipped - (1.0 - score) * control / (1.0 - clipped)
    square = score * (treated**2 + rest) / clipped**2
    square += (1.0 - score) * (control**2 + rest) / (1.0 - clipped) ** 2
    variance = float(square.mean()) - float(mean.mean()) ** 2
    return case.half_width * math.sqrt(variance / case.n)


def _eps_needed(case: Case, name: str, target: float) -> float:
    """Return an eps (to 1 %) from which on the total standard error is below `target`."""

    def plan(epsilon: float, fits: int) -> _Planned:
        return _plan(replace(case, epsilon=epsilon), name, fits)

    def does(epsilon: float, factor: float) -> bool:
        planned = plan(epsilon, _FEWER_FITS)
        return math.hypot(factor * planned.noise, planned.sampling) <= target

    low, high = _EPS_RANGE
    if not does(high, 1.0):
        return math.nan
    near = _bisect(lambda epsilon: does(epsilon, 1.0), low, high, 1.05)[1]
    # what few fits miss is nearly the same factor for any eps around here
    factor = plan(near, _FITS).noise / plan(near, _FEWER_FITS).noise
    low, high = near / 1.3, near * 1.3
    return float(f"{_bisect(lambda epsilon: does(epsilon, factor), low, high, 1.01)[1]:.3g}")


def _bisect(
    does: Callable[[float], bool], low: float, high: float, precision: float
) -> tuple[float, float]:
    while high / low > precision:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if does(middle) else (middle, high)
    return low, high
