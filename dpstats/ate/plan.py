"""plan_ate: what to expect of `dp_ate` before any data are touched."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from dpstats.ate.expected import FITS, METHODS, SWAMPED, expected
from dpstats.ate.kernels import KERNELS
from dpstats.ate.population import Case
from dpstats.ate.public_design import public_design
from dpstats.calls import check_count, check_number, choice
from dpstats.errors import DPStatsError
from dpstats.hints import PLAN_ATE_NAMES, closed
from dpstats.inference import check_alpha
from dpstats.passed import passed
from dpstats.privacy.accounting import check_budget
from dpstats.privacy.bounds import check_interval
from dpstats.results import compare_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpstats.ate.expected import Planned
    from dpstats.report.plan_table import PlanTable

__all__ = ["plan_ate"]

_RELEASES = (
    "bounds",
    "propensity",
    "moments",
    "outcome",
    "counts",
    "sums",
    "score",
    "variances",
)
# fits while searching for eps
_FEWER_FITS = 80
_EPS_RANGE = (1e-3, 1e3)


@closed(PLAN_ATE_NAMES)
def plan_ate(
    n: int,
    eps: float,
    y_bounds: tuple[float, float] | None = None,
    *,
    k: int | None = None,
    formula: str | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
    method: str | None = "blocking",
    delta: float = 0.0,
    treated_share: float | None = None,
    outcome_sd: float | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    target_se: float | None = None,
    blocks: int | Literal["published"] | None = None,
    adjust: bool | None = None,
    split: Mapping[str, float] | Literal["published"] | None = None,
    searched: int | None = None,
    rows_per_person: int = 1,
    propensity: float | None = None,
    overlap: float | None = None,
    means: tuple[float, float] | None = None,
    logit_sd: float = 1.0,
    confounding: float = 0.5,
    explained: float = 0.5,
) -> PlanTable:
    r"""Say how large the errors of `dp_ate` will be, and which budget a question needs.

    Touches no data.

    Parameters
    ----------
    n : int
        Number of rows.
    eps, delta : float
        Privacy budget; Gaussian noise where `delta` > 0.
    y_bounds : (lo, hi), optional
        Public bounds of the outcome; needed unless `formula` and `bounds` give them.
    k : int, optional
        Columns of the propensity's design and of the outcome model's (a categorical counts its
        levels less one); by default 1. Not together with `formula`.
    formula, bounds, levels : optional
        As `dp_ate` will have them: the number of columns, the outcome's bounds and `searched` then
        follow. Every column that is not in `levels` counts as a number; 0/1 and bool columns have
        bounds (0, 1).
    method : {"blocking", "ipw", "diff_means", "regression", "aipw", "all"}, optional
        "all" or None means all of these; others cannot be planned.
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
    blocks, adjust, split, rows_per_person, overlap
        As in `dp_ate`; `blocks` and `adjust` concern "blocking" only, `overlap` "ipw" and "aipw".
    searched : int, optional
        Columns without bounds, which the call would have to find; by default the covariates that
        `bounds` leaves out, without `formula` none. A call that uses no covariates searches the
        outcome's only.
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
    PlanTable
        A DataFrame that prints as a table to read. One row a method: `blocks`; `sd_bounds`,
        `sd_propensity`, `sd_moments`, `sd_outcome`, `sd_counts`, `sd_sums`, `sd_score`,
        `sd_variances`, the standard deviation of the noise in each number of a release (nan where
        the method has none; halves of counts where `dp_ate` releases counts and sums together; for
        the outcome models of `moments` and `outcome` that of an entry off the diagonal in the last
        round, where rows have length one; where residuals are released `sums`, `score` and
        `variances` go with their expected range); `noise_sd`, that of privacy noise in the effect;
        `sampling_sd`; `total_se`; `detectable`, the smallest effect that is found; `eps_needed`
        (nan where no budget up to 1000 would do); `advice`.

    Raises
    ------
    DPStatsError
        If an argument breaks a rule; a formula is refused as `dp_ate` would refuse it.

    Notes
    -----
    Scales are those of the kernel itself, run on a few rows of zeros. Privacy noise in the effect
    is simulated with a fixed seed under these assumptions: independent normal covariates whose
    bounds are 2.5 standard deviations from their means, log odds linear in their sum, mean outcomes
    linear in them and equally so in both arms. In each of 40 simulated files propensity and
    outcome model are fitted 10 times with their noise, cells are noised, and the same
    post-processing follows as in `dp_ate`: residuals have the range that each fit would give them,
    min(3 sqrt(residual variance + noise), ...). Variances within files are averaged. Without a
    propensity there is one file, with expected moments and 2000 fits. With one block, or a known
    propensity, and no outcome model nothing is assumed about covariates.

    Sampling errors take the propensity as known. For "blocking" they come from the variances that
    are left within blocks of propensities fitted with noise,
    :math:`\sum_b p_b^2 [\sigma_{1b}^2/n_{1b} + \sigma_{0b}^2/n_{0b}]`, of outcomes or, with
    `adjust`, of residuals. An outcome model leaves residuals, whose variance counts for
    "regression" and "aipw". Bias, of
    clipping, of covariates that do not enter linearly, and of what is left within blocks, is in
    none of the columns. The distribution of privacy noise is taken as normal in `detectable`. By
    the default rules errors jump where the number of blocks changes, where residuals take the place
    of outcomes (n eps = 5000, later with more than four covariates) and where "regression" turns to
    two rounds (2500), so that a smaller budget than `eps_needed` may do as well.

    *Measured.* Over n of 2000 and 10000, eps of .5, 1 and 3, delta of 0 and 1e-6 and two processes
    of `dpstats.simulate` (400 releases a cell) the noise was .92 to 1.10 of `noise_sd` for
    "blocking" with `adjust` (one cell .89), .92 to 1.14 for "regression", .95 to 1.09 for "aipw".
    The sampling error of "blocking", by estimates of 120 files of 2000 rows with next to no noise
    on four processes, was .87 to 1.02 of `sampling_sd` with `adjust`; without it .59 to 1.07, and
    .44 where covariates explain nearly all of the outcome and none of the treatment.

    Examples
    --------
    >>> import dpstats as dp
    >>> plan = dp.plan_ate(10_000, 1.0, (0, 100), k=4, method="diff_means")
    >>> plan[["noise_sd", "sampling_sd", "detectable"]].round(2).loc["diff_means"].tolist()
    [0.05, 0.5, 1.41]
    >>> plan.loc["diff_means", "advice"]
    'sampling error dominates: noise is 0.11 of it'
    >>> by_formula = dp.plan_ate(10_000, 1.0, formula="y ~ age + region", method="diff_means",
    ...                          bounds={"y": (0, 100), "age": (18, 90)},
    ...                          levels={"region": ["north", "south", "west"]})
    >>> print("\n".join(by_formula.as_text().splitlines()[:8]))
    Plan of dp_ate: n = 10000, eps = 1, outcome in [0, 100]
    ====================================================
                                              diff_means
    ----------------------------------------------------
    Std. error of privacy noise                  0.05261
    Std. error of sampling                           0.5
    Std. error of both                            0.5028
    Smallest effect found (power 80%)              1.409
    """
    import pandas as pd

    from dpstats.report.plan_table import plan_table

    _check_method(method)
    y_bounds, k, searched, of_outcome = _from_formula(
        formula, bounds, levels, y_bounds, k, searched
    )
    case = _check(
        n,
        eps,
        delta,
        y_bounds,
        k,
        treated_share,
        outcome_sd,
        blocks,
        adjust,
        split,
        searched,
        of_outcome,
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
    for name in METHODS if method in (None, "all") else (str(method),):
        planned = expected(case, name, FITS)
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
    low, high = y_bounds
    return plan_table(
        pd.DataFrame(rows).set_index("method"),
        _title(case, float(low), float(high)),
        _labels(float(power), target_se),
        _notes(case, float(low), float(high)),
    )


def _from_formula(
    formula: Any, bounds: Any, levels: Any, y_bounds: Any, k: Any, searched: Any
) -> tuple[Any, Any, Any, int]:
    """Return outcome bounds, columns, and how many are searched, in all and of the outcome."""
    if formula is None:
        for name, value in (("bounds", bounds), ("levels", levels)):
            if value is not None:
                raise DPStatsError(f"`{name}` must come with `formula`; else pass `y_bounds`, `k`")
        if y_bounds is None:
            raise DPStatsError("`y_bounds` must be given, or `formula` with `bounds`")
        searched = 0 if searched is None else searched
        return y_bounds, 1 if k is None else k, searched, 1 if searched else 0
    if k is not None:
        raise DPStatsError(
            f"`k` follows from `formula`: leave one of them out; got k = {passed(k)}"
        )
    found = public_design(formula, bounds, levels)
    if found.outcome_bounds is None:
        if y_bounds is None:
            raise DPStatsError(
                f"`bounds` must name the outcome {found.outcome!r}, or pass `y_bounds`"
            )
        check_interval(found.outcome, y_bounds, "y_bounds")
        found = public_design(formula, {**(bounds or {}), found.outcome: y_bounds}, levels)
    elif y_bounds is not None and tuple(y_bounds) != found.outcome_bounds:
        low, high = found.outcome_bounds
        raise DPStatsError(
            f"`y_bounds` must be left out where `bounds` give those of the outcome, [{low:g}, "
            f"{high:g}]; got {passed(y_bounds)}"
        )
    columns = len(found.columns)
    if searched is None:
        return found.outcome_bounds, columns, len(found.searched), 0
    return found.outcome_bounds, columns, searched, 1 if searched else 0


def _title(case: Case, low: float, high: float) -> str:
    delta = f", delta = {case.delta:g}" if case.delta else ""
    return f"Plan of dp_ate: n = {case.n}, eps = {case.epsilon:g}{delta}, outcome in " + (
        f"[{low:g}, {high:g}]"
    )


def _labels(power: float, target_se: float | None) -> dict[str, str]:
    needed = "where noise equals sampling"
    if target_se is not None:
        needed = f"for a std. error of {target_se:.4g}"
    return {
        "noise_sd": "Std. error of privacy noise",
        "sampling_sd": "Std. error of sampling",
        "total_se": "Std. error of both",
        "detectable": f"Smallest effect found (power {100.0 * power:.3g}%)",
        "eps_needed": f"Eps {needed}",
        "blocks": "Blocks",
    }


def _notes(case: Case, low: float, high: float) -> tuple[str, ...]:
    middle, half = (low + high) / 2.0, case.half_width
    control, treated = (middle + half * mean for mean in case.means)
    searched = f", bounds of {case.searched} found privately" if case.searched else ""
    plural = "" if case.columns == 1 else "s"
    known = "" if case.probability is None else ", propensity known"
    return (
        f"Assumed: {case.columns} column{plural}{searched}; {100.0 * case.treated_share:.3g}% "
        f"treated{known}; outcomes with sd {half * case.outcome_sd:.4g} about {control:.4g} "
        f"(controls) and {treated:.4g} (treated); logit_sd {case.logit_sd:g}, confounding "
        f"{case.confounding:g}, explained {case.explained:g}.",
        "No data were touched. Bias is in none of these numbers.",
    )


def _check(
    n: Any,
    eps: Any,
    delta: Any,
    y_bounds: Any,
    k: Any,
    treated_share: Any,
    outcome_sd: Any,
    blocks: Any,
    adjust: Any,
    split: Any,
    searched: Any,
    of_outcome: int,
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
        raise DPStatsError(f"`n` must be an integer of at least 2; got {passed(n)}")
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
    if adjust is not None and adjust not in (True, False):
        raise DPStatsError(f"`adjust` must be None, True or False; got {passed(adjust)}")
    if split is not None and split != "published" and not hasattr(split, "keys"):
        raise DPStatsError(f"`split` must be a dict or 'published'; got {passed(split)}")
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
        None if adjust is None else bool(adjust),
        split,
        int(searched),
        of_outcome,
        int(rows_per_person),
        None if propensity is None else float(propensity),
        overlap,
        _check_means(means, low, high),
        float(logit_sd),
        float(confounding),
        float(explained),
    )


def _check_method(method: Any) -> None:
    if method in KERNELS and method not in METHODS:
        raise DPStatsError(
            f"`method` = {method!r} cannot be planned; those that can: {', '.join(METHODS)}"
        )
    if method is not None:
        choice("method", method, dict.fromkeys((*METHODS, "all")))


def _check_means(means: Any, low: float, high: float) -> tuple[float, float]:
    if means is None:
        return 0.0, 0.0
    rule = "`means` must be two numbers within `y_bounds`: of controls and of treated"
    try:
        first, second = (float(mean) for mean in means)
    except (TypeError, ValueError):
        first = second = math.nan
    if not (low <= first <= high and low <= second <= high):
        raise DPStatsError(f"{rule}; got {passed(means)}")
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    return (first - middle) / half, (second - middle) / half


def _check_power(power: Any) -> float:
    check_number("power", power, 0.0, 1.0, "a number in (0, 1)")
    return float(power)


def _advice(case: Case, planned: Planned) -> str:
    if SWAMPED * planned.noise > case.half_width:
        return "the privacy noise swamps the answer"
    return compare_sizes(planned.noise, planned.sampling)


def _quantile(level: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(level))


def _eps_needed(case: Case, name: str, target: float) -> float:
    """Return an eps (to 1 %) from which on the total standard error is below `target`."""

    def plan(epsilon: float, fits: int) -> Planned:
        return expected(replace(case, epsilon=epsilon), name, fits)

    def does(epsilon: float, factor: float) -> bool:
        planned = plan(epsilon, _FEWER_FITS)
        return math.hypot(factor * planned.noise, planned.sampling) <= target

    low, high = _EPS_RANGE
    if not does(high, 1.0):
        return math.nan
    near = _bisect(lambda epsilon: does(epsilon, 1.0), low, high, 1.05)[1]
    # what few fits miss is nearly the same factor for any eps around here
    factor = plan(near, FITS).noise / plan(near, _FEWER_FITS).noise
    low, high = near / 1.3, near * 1.3
    return float(f"{_bisect(lambda epsilon: does(epsilon, factor), low, high, 1.01)[1]:.3g}")


def _bisect(
    does: Callable[[float], bool], low: float, high: float, precision: float
) -> tuple[float, float]:
    while high / low > precision:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if does(middle) else (middle, high)
    return low, high
