"""plan_ate: what to expect of `dp_ate` before any data are touched."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from dpstats.ate.expected import FITS, METHODS, SWAMPED, expected
from dpstats.ate.kernels import KERNELS
from dpstats.ate.population import Case
from dpstats.calls import check_count, check_number, choice
from dpstats.errors import DPStatsError
from dpstats.inference import check_alpha
from dpstats.privacy.accounting import check_budget
from dpstats.privacy.bounds import check_interval
from dpstats.results import compare_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from dpstats.ate.expected import Planned

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
    adjust: bool | None = None,
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
        Columns of the propensity's design and of the outcome model's (a categorical counts its
        levels less one).
    method : {"blocking", "ipw", "diff_means", "regression", "aipw"}, optional
        None means all of these; others cannot be planned.
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
    searched : int
        Columns without bounds, which the call would have to find. A call that uses no covariates
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
        One row a method: `blocks`; `sd_bounds`, `sd_propensity`, `sd_moments`, `sd_outcome`,
        `sd_counts`, `sd_sums`, `sd_score`, `sd_variances`, the standard deviation of the noise in
        each number of a release (nan where the method has none; halves of counts where `dp_ate`
        releases counts and sums together; for the outcome models of `moments` and `outcome` that
        of an entry off the diagonal in the last round, where rows have length one; where residuals
        are released `sums`, `score` and `variances` go with their expected range); `noise_sd`, that
        of privacy noise in the effect; `sampling_sd`; `total_se`;
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
    linear in them and equally so in both arms. In each of 40 simulated files propensity and
    outcome model are fitted 10 times with their noise, cells are noised, and the same
    post-processing follows as in `dp_ate`: residuals have the range that each fit would give them,
    min(3 sqrt(residual variance + noise), ...). Variances within files are averaged. Without a
    propensity there is one file, with expected moments and 2000 fits. With one block, or a known
    propensity, and no outcome model nothing is assumed about covariates.

    Sampling errors take the propensity as known. An outcome model leaves residuals, whose variance
    counts for "regression", "aipw" and "blocking" with `adjust`; there is no other gain from
    adjustment: for "blocking" without it ``outcome_sd sqrt(E[1/e + 1/(1-e)] / n)``. Bias, of
    clipping, of covariates that do not enter linearly, and of what is left within blocks, is in
    none of the columns. The distribution of privacy noise is taken as normal in `detectable`. By
    the default rules errors jump where the number of blocks changes, where residuals take the place
    of outcomes (n eps = 5000, later with more than four covariates) and where "regression" turns to
    two rounds (2500), so that a smaller budget than `eps_needed` may do as well.

    *Measured.* Over n of 2000 and 10000, eps of .5, 1 and 3, delta of 0 and 1e-6 and two processes
    of `dpstats.simulate` (400 releases a cell) the noise was .92 to 1.10 of `noise_sd` for
    "blocking" with `adjust` (one cell .89), .92 to 1.14 for "regression", .95 to 1.09 for "aipw".

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

    _check_method(method)
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
    for name in METHODS if method is None else (method,):
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
    return pd.DataFrame(rows).set_index("method")


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
    if adjust is not None and adjust not in (True, False):
        raise DPStatsError(f"`adjust` must be None, True or False; got {adjust!r}")
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
        None if adjust is None else bool(adjust),
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


def _check_method(method: Any) -> None:
    if method in KERNELS and method not in METHODS:
        raise DPStatsError(
            f"`method` = {method!r} cannot be planned; those that can: {', '.join(METHODS)}"
        )
    if method is not None:
        choice("method", method, dict.fromkeys(METHODS))


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
