"""Blocking on a private propensity (DPBlocking), and its one-block case."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.ate.balance import check_balance
from dpstats.ate.kernels.base import (
    Estimand,
    Kernel,
    Options,
    Public,
    RowWeights,
    Settings,
    Shares,
    propensity_scores,
    released_propensity,
)
from dpstats.ate.kernels.blockmeans import block_of
from dpstats.ate.kernels.cells import (
    CellsReleased,
    Form,
    cell_totals,
    release_cells,
    release_squares,
)
from dpstats.ate.kernels.outcome import OutcomeModel, release_outcome, residuals
from dpstats.ate.kernels.weights import scores_again
from dpstats.calls import check_count, check_number
from dpstats.errors import DPStatsError
from dpstats.passed import passed

if TYPE_CHECKING:
    from dpstats.ate.kernels.base import Arrays
    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms
    from dpstats.privacy.noise import FloatArray

__all__ = ["BlockSettings", "Blocking", "DiffMeans"]

# share of the release behind standard errors, and of counts where one block needs only one
_VARIANCES = 0.04
_COUNTS = 0.2
# share of the outcome model, rows that are enough for it, n eps from which on it pays for four
# covariates (measured)
_MOMENTS = 0.35
_ENOUGH_ROWS = 2**17
_ADJUST_FROM = 5000.0
# n eps from which on blocks pay for up to four columns; a propensity of more is noisier and takes
# more of the budget (measured, also on real files)
_BLOCKS_FROM = 1000.0
# share of a count of the treated, between these: so that their share of the rows has a noise sd of
# at most .05 from n eps = 700 on
_TREATED = 28.0
_LEAST_TREATED, _MOST_TREATED = 0.01, 0.04
# an arm with fewer rows is not what blocks can be centred on
_SMALLEST_BASE = 0.02
# without noise residuals are not clipped; in units of C
_WIDEST_RESIDUAL = 2.0
# that of the published rule at eps = 10; memory and time grow with them
_MOST_BLOCKS = 200


def _check_blocks(value: Any) -> int | str:
    if value == "published":
        return "published"
    rule = f"an integer from 1 to {_MOST_BLOCKS} or 'published'"
    check_count("blocks", value, rule)
    if value > _MOST_BLOCKS:
        raise DPStatsError(f"`blocks` must be {rule}; got {passed(value)}")
    return int(value)


def _check_min_count(value: Any) -> float:
    check_number("min_count", value, -math.ulp(0.0), math.inf, "a number of at least 0")
    return float(value)


def _check_flag(name: str, value: Any) -> bool:
    if value not in (True, False):
        raise DPStatsError(f"`{name}` must be None, True or False; got {passed(value)}")
    return bool(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSettings(Settings):
    """Public constants of `blocking`.

    Attributes
    ----------
    blocks : int
        m.
    min_count : float or None
        T; None for three noise standard deviations of a count.
    joint : bool
        Whether counts and sums are released together.
    smooth : bool
        Whether blocks borrow strength from each other.
    centred : bool
        Whether the scale of the blocks is centred on the noisy share of the treated.
    """

    @property
    def adjust(self) -> bool:
        """Whether blocks hold residuals from a linear model of the outcome."""
        return self.models_outcome

    blocks: int = 1
    min_count: float | None = None
    joint: bool = False
    smooth: bool = False
    centred: bool = False

    @property
    def counts_treated(self) -> bool:
        """Whether the share of the treated is a release of its own."""
        return self.centred and not self.models_outcome


class Blocking(Kernel[BlockSettings]):
    r"""Blocking on the propensity: m blocks, block effects weighted by size.

    Notes
    -----
    The propensity is released first (`dpstats.propensity`); given it, each row lies in a cell and
    counts and sums are released as `dpstats.ate.kernels.cells` says, with the proofs of their
    sensitivities. By default they come from one joint release, "counts"; a `split` that names
    "sums" asks for the two published ones. With one block no propensity is fitted and the method
    is a difference in means. Everything after the releases is post-processing
    (`dpstats.ate.kernels.blockmeans`), so ATE, ATT, ATC and the overlap effect come from one
    release.

    *Where blocks lie.* Plain blocks (`smooth=False`, published) are equal parts of [0, 1]. Others
    are equal parts of a scale on which the share of the treated lies in the middle
    (`dpstats.ate.kernels.blockmeans`): a noisy count of the treated, "treated", is released first
    (sensitivity 1, for 28 / (n eps) of the budget, kept between .01 and .04), or follows from the
    moments of an outcome model. A `split` without "treated" asks for equal
    parts.

    *Adjustment* (`adjust`, by default where a propensity is fitted and `blocks` left open, from
    n eps = 5000 max(1, (p/4)^3) on, p covariates). First a
    linear model of the outcome, with slopes common to both arms, is released as "moments"
    (`dpstats.ate.kernels.outcome`). Blocks then hold residuals, clipped to a range rho C that the
    release itself suggests: given the model a residual depends on its own row only, so the proofs
    for counts and sums hold with rho C for C, and noise shrinks with rho. The effect is
    the difference of the arms' levels plus the blocked effect on residuals, so that either model,
    that of the outcome or that of the propensity, takes out confounding that the other leaves.

    The published rules, ``blocks="published"`` and ``split="published"``, are
    min(max(5, floor(20 eps)), max(3, floor((n/1000 + (eps - .25)/.25)/2))) blocks, here
    at most 200, and shares .1, .35, .55; the published threshold is ``min_count=1.5``.

    References
    ----------
    Differentially Private Average Treatment Effect Estimation by Propensity Score Blocking
    (DPBlocking).
    """

    name = "blocking"
    title = "Propensity score blocking"
    estimands: ClassVar[tuple[Estimand, ...]] = ("ate", "att", "atc", "ato")
    uses_propensity = True
    published_split: ClassVar[Shares] = {"propensity": 0.1, "counts": 0.35, "sums": 0.55}
    options: ClassVar[tuple[str, ...]] = ("blocks", "min_count", "smooth", "adjust")
    method_options: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "blocks": _check_blocks,
        "min_count": _check_min_count,
        "smooth": partial(_check_flag, "smooth"),
        "adjust": partial(_check_flag, "adjust"),
        "balance": check_balance,
    }

    def may_model_outcome(self, method: Mapping[str, Any], fits_propensity: bool) -> bool:
        """Whether, with these options, settings may ask for the formula's right side."""
        return bool(method.get("adjust", fits_propensity))

    def settings(self, options: Options, public: Public) -> BlockSettings:
        """Fill in defaults from public quantities."""
        blocks, split = options.method.get("blocks"), options.split
        private = math.isfinite(public.epsilon)
        smooth = options.method.get("smooth")
        centred = smooth in (None, True) and blocks != "published"
        if smooth is None:
            smooth = private and blocks != "published"
        if blocks is None:
            # every row in one block: nothing to adjust for
            flat = options.probability is not None or not (public.columns or options.by_row)
            blocks = 1 if flat else default_blocks(public)
        elif blocks == "published":
            blocks = published_blocks(public)
        adjusts = _adjusts(options, public, int(blocks))
        return BlockSettings.of(
            options,
            blocks=int(blocks),
            min_count=options.method.get("min_count"),
            variances="variances" in split if split else private,
            joint=blocks > 1 and (split is None or "sums" not in split),
            smooth=smooth,
            centred=centred and int(blocks) > 1 and (adjusts or options.released("treated")),
            propensity=options.propensity if blocks > 1 else None,
            models_outcome=adjusts,
        )

    def shares(self, settings: BlockSettings, public: Public) -> Shares:
        """Return the default split of the budget, by release."""
        shares = self._without_moments(settings, public)
        if not settings.adjust:
            return shares
        left = {name: (1.0 - _MOMENTS) * share for name, share in shares.items()}
        return {"moments": _MOMENTS, **left}

    def _without_moments(self, settings: BlockSettings, public: Public) -> dict[str, float]:
        propensity = default_propensity_share(public) if settings.fits_propensity else 0.0
        rest = {"counts": 1.0} if settings.joint else {"counts": _COUNTS, "sums": 1.0 - _COUNTS}
        if settings.blocks > 1 and not settings.joint:
            rest = {"counts": 0.35 / 0.9, "sums": 0.55 / 0.9}
        shares = {}
        if settings.counts_treated:
            share = _TREATED / (public.n * public.epsilon)
            shares["treated"] = min(max(share, _LEAST_TREATED), _MOST_TREATED)
        left = 1.0 - shares.get("treated", 0.0) - (_VARIANCES if settings.variances else 0.0)
        shares |= {"propensity": propensity * left}
        shares |= {name: (1.0 - propensity) * left * part for name, part in rest.items()}
        if settings.variances:
            shares["variances"] = _VARIANCES
        return shares

    def constants(self, settings: BlockSettings) -> tuple[tuple[str, str], ...]:
        """Return the public constants that the summary shows."""
        fitted = (("Outcome model", "linear, private"),) if settings.adjust else ()
        return (("Blocks", str(settings.blocks)), *fitted)

    def served(self, settings: BlockSettings) -> tuple[Estimand, ...]:
        """Return the estimands that one release serves."""
        return self.estimands

    def run(self, arrays: Arrays, settings: BlockSettings, mechanisms: Mechanisms) -> CellsReleased:
        """Release the propensity, then counts and sums."""
        m, fitted, block = settings.blocks, None, None
        reach, model = arrays.half_width, None
        base = 0.5
        counted: tuple[Release, ...] = ()
        if settings.adjust:
            model = release_outcome(
                arrays, mechanisms, rounds={"moments": 1.0}, common=True, most=_ENOUGH_ROWS
            )
            arrays = _residuals(arrays, model, exact=mechanisms.source is None)
        if m > 1:
            scores, fitted = propensity_scores(arrays, settings, mechanisms)
            if settings.centred:
                base, counted = _share_of_treated(arrays, model, mechanisms)
            block = block_of(scores, m, base)
        form: Form = "joint" if settings.joint else "single" if m == 1 else "separate"
        found = _release(arrays, settings, mechanisms, block, form)
        propensity, records = released_propensity(fitted, (*counted, *found.records))
        found = replace(found, base=base, propensity=propensity, records=records)
        if model is None:
            return found
        smallest = min(model.smallest_range(), 1.0)
        records = (*model.records, *found.records)
        found = replace(found, reach=reach, records=records, smallest=smallest)
        if arrays.half_width == reach:
            # residuals would have needed the range of the outcome itself
            return found
        levels = _levels(model, reach)
        return replace(found, levels=levels, model=model, known=settings.by_row)

    def row_weights(
        self, arrays: Arrays, settings: BlockSettings, released: CellsReleased
    ) -> RowWeights:
        """Return the weight of each row: that of its block over the noisy count of its cell."""
        m, arm = settings.blocks, arrays.treated.astype(np.int64)
        block = np.zeros(arrays.n, dtype=np.int64)
        if m > 1:
            scores = scores_again(arrays, settings, released.propensity)
            block = block_of(scores, m, released.base)
        found = released.found(settings.estimand)
        counts = np.maximum(found.counts, 1.0)
        weights = np.where(found.kept, np.maximum(found.weights, 0.0), 0.0) / counts
        largest = np.maximum(weights.max(axis=1, keepdims=True), 1e-300)
        shares = np.clip(weights / largest, 0.0, 1.0)
        typical = (shares * counts).sum(axis=1) / counts.sum(axis=1)
        return RowWeights(shares[arm, block], float(typical.min()))


class DiffMeans(Blocking):
    """The difference in means: one block, for randomised trials and as a baseline.

    Notes
    -----
    Releases a noisy count of treated rows (sensitivity 1, since n is public) and noisy sums of the
    outcome by arm (sensitivity 2C); see `dpstats.ate.kernels.cells`.
    """

    name = "diff_means"
    title = "Difference in means"
    uses_propensity = False
    published_split: ClassVar[Shares] = {"counts": 0.35, "sums": 0.55}
    options: ClassVar[tuple[str, ...]] = ("min_count",)
    method_options: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "min_count": _check_min_count,
        "balance": check_balance,
    }

    def may_model_outcome(self, method: Mapping[str, Any], fits_propensity: bool) -> bool:
        """Whether the formula's right side is needed: never."""
        return False

    def settings(self, options: Options, public: Public) -> BlockSettings:
        """Fill in defaults from public quantities: always one block."""
        return BlockSettings.of(
            options,
            propensity=None,
            min_count=options.method.get("min_count"),
            variances=options.released("variances") and math.isfinite(public.epsilon),
        )

    def constants(self, settings: BlockSettings) -> tuple[tuple[str, str], ...]:
        """Return the public constants that the summary shows."""
        return ()


def default_blocks(public: Public) -> int:
    """Return the default number of blocks, from n eps and k columns (a measured rule).

    One block below n eps = 1000 max(1, k/4), two below 2000, then (n eps)^(1/3) / 5 and at least
    four.
    """
    if math.isinf(public.epsilon):
        return exact_blocks(public.n)
    size = public.n * public.epsilon
    if size < _BLOCKS_FROM * max(1.0, public.columns / 4.0):
        return 1
    return 2 if size < 2000.0 else max(4, math.floor(size ** (1.0 / 3.0) / 5.0 + 0.5))


def _adjusts(options: Options, public: Public, blocks: int) -> bool:
    """Whether to adjust: as asked for, else by a rule on n eps (measured)."""
    chosen = options.method.get("adjust")
    if chosen is not None:
        return bool(chosen)
    if options.split is not None:
        return "moments" in options.split
    # who fixes the blocks or the smoothing wants the plain method
    if not options.method.keys().isdisjoint({"blocks", "smooth"}) or math.isinf(public.epsilon):
        return False
    fits = options.probability is None and not options.by_row and blocks > 1
    pays = _ADJUST_FROM * max(1.0, (public.covariates / 4.0) ** 3)
    return fits and public.covariates > 0 and public.n * public.epsilon >= pays


def _share_of_treated(
    arrays: Arrays, model: OutcomeModel | None, mechanisms: Mechanisms
) -> tuple[float, tuple[Release, ...]]:
    """Return the noisy share of the treated, kept off 0 and 1, and the record of its noise."""
    records: tuple[Release, ...] = ()
    count = float(np.count_nonzero(arrays.treated))
    if model is not None:
        control, count = map(float, model.last().counts)
        share = count / max(control + count, 1.0)
    elif mechanisms.source is None:
        share = count / arrays.n
    else:
        noisy = mechanisms.additive("treated", np.array([count]), l1=1.0, l2=1.0, lattice=0)
        share, records = float(noisy.value[0]) / arrays.n, noisy.records
    return min(max(share, _SMALLEST_BASE), 1.0 - _SMALLEST_BASE), records


def _residuals(arrays: Arrays, model: OutcomeModel, *, exact: bool) -> Arrays:
    """Return rows with residuals for outcomes, or as they are where those range no less far."""
    reach = _WIDEST_RESIDUAL if exact else model.residual_range()
    if reach >= 1.0 and not exact:
        return arrays
    rest = residuals(arrays, model.norm, *model.model(), reach, exact=exact)
    return replace(arrays, outcome=rest, half_width=arrays.half_width * reach)


def _levels(model: OutcomeModel, half_width: float) -> tuple[float, float]:
    """Return the fitted means of both arms at the mean of the covariates."""
    fit, (levels, slopes) = model.last(), model.model()
    mean = (fit.counts / model.n) @ fit.means
    control, treated = half_width * (levels + slopes @ mean)
    return float(control), float(treated)


def default_propensity_share(public: Public) -> float:
    """Return the propensity's share: k / 20, kept between .2 and .5 (a measured rule)."""
    return min(max(public.columns / 20.0, 0.2), 0.5)


def published_blocks(public: Public) -> int:
    """Return the published number of blocks."""
    eps = public.epsilon
    if math.isinf(eps):
        return exact_blocks(public.n)
    growing = math.floor((public.n / 1000.0 + (eps - 0.25) / 0.25) / 2.0)
    # the rule grows without end in eps, and so would the memory of a call
    return min(max(5, math.floor(20.0 * eps)), max(3, growing), _MOST_BLOCKS)


def exact_blocks(n: int) -> int:
    """Return the number of blocks without noise, as in the source: 5, 10 or 20."""
    return 5 if n <= 5000 else 10 if n <= 25000 else 20


def _release(
    arrays: Arrays,
    settings: BlockSettings,
    mechanisms: Mechanisms,
    block: np.ndarray | None,
    form: Form,
) -> CellsReleased:
    m, c = settings.blocks, arrays.half_width
    counts, sums = cell_totals(arrays, block, m)
    variances = squares = None
    square_scale = 0.0
    records: tuple[Release, ...]
    if mechanisms.source is None:
        form, raw, scales, records = "separate", np.stack([counts, c * sums]), (0.0, 0.0), ()
        variances = _exact_variances(arrays, block, counts, sums)
    else:
        raw, scales, records = release_cells(arrays, counts, sums, form, mechanisms)
        if settings.variances:
            noisy = release_squares(arrays, mechanisms)
            squares, square_scale = noisy.value, noisy.scale
            records += noisy.records
    return CellsReleased(
        arrays.n,
        mechanisms.kind,
        form,
        raw,
        scales,
        squares,
        square_scale,
        c,
        _threshold(settings, form, scales[0], mechanisms),
        settings.smooth,
        variances,
        None,
        records,
        c,
    )


def _threshold(settings: BlockSettings, form: Form, scale: float, mechanisms: Mechanisms) -> float:
    """Return T: by default three standard deviations of the noise in a count."""
    if settings.min_count is not None:
        return settings.min_count
    variance = scale**2 * (2.0 if mechanisms.kind == "laplace" else 1.0)
    return 3.0 * math.sqrt(2.0 * variance if form == "joint" else variance)


def _exact_variances(
    arrays: Arrays, block: np.ndarray | None, counts: FloatArray, sums: FloatArray
) -> FloatArray:
    # around the mean of the cell: the difference of two large sums would lose every digit
    means = sums / np.maximum(counts, 1.0)
    arm = arrays.treated.astype(np.int64)
    residuals = arrays.outcome - means[arm, 0 if block is None else block]
    _, squares = cell_totals(replace(arrays, outcome=residuals**2), block, counts.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        within = squares / (counts - 1.0)
    # a cell with one row takes the variance within the other cells
    pooled = float(squares.sum()) / max(float(np.maximum(counts - 1.0, 0.0).sum()), 1.0)
    within = np.where(counts == 1.0, pooled, within)
    return np.asarray(within * arrays.half_width**2)
