r"""Counts and sums by block and arm: what `blocking` and `diff_means` release.

Notes
-----
*Cells.* A row lies in one cell (block, arm). The releases are sums over the rows of each cell.

*Joint release* (the default of `blocking`). A row with centred outcome y in [-C, C] adds
:math:`a = (1 + y/C)/2` to the upper and :math:`b = (1 - y/C)/2` to the lower half of its cell:
it splits itself, a + b = 1. Replacing a row therefore takes away a total of 1 and adds a total of
1: l1 sensitivity 2, whatever y (attained by moving between cells). In l2 a row is a vector of
length at most 1 without negative entries, so two of them have an inner product of at least 0 and
differ by at most sqrt(2). The whole
budget of counts and sums goes into this one release; then N = A + B is a noisy count and
S = C (A - B) a noisy sum. Two separate releases that split the budget evenly have twice the
variance in both.

*Separate releases* (as published). Counts: 2 in l1, sqrt(2) in l2. Sums: 2C in both (a row that
stays in its cell and changes sign; moving between cells gives C + C in l1).

*One block.* n is public, so one noisy count of treated rows is enough: sensitivity 1.

*Variances.* The noisy sum of :math:`y^2 - C^2/2` over both arms, each arm its own sum: a row
contributes between -C^2/2 and C^2/2 to one of the two, so replacing it moves them by at most C^2
in l1 and in l2. Used for standard errors only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from dpstats.alarms import Signal
from dpstats.ate.kernels.base import (
    Estimand,
    Parts,
    noise_draws,
    variance_bound,
)
from dpstats.ate.kernels.blockmeans import (
    BlockEffects,
    Cells,
    block_effects,
    block_of,
    propensity_at,
    trust,
)

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from dpstats.ate.kernels.base import Arrays
    from dpstats.ate.kernels.outcome import OutcomeModel
    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms, NoiseKind, Noisy
    from dpstats.privacy.noise import FloatArray
    from dpstats.propensity import FittedPropensity

__all__ = ["CellsReleased", "Form", "cell_totals", "release_cells", "release_squares"]

# draws of the outcome model in a bootstrap, and normal rows by arm
_MODEL_DRAWS = 500
_PSEUDO_ROWS = 2000
# share of the rows below which a block is called empty in words
_NOBODY = 0.05

Form: TypeAlias = Literal["joint", "separate", "single"]


@dataclass(frozen=True, slots=True)
class CellsReleased:
    """Released counts and sums by block and arm.

    Attributes
    ----------
    n : int
    kind : {"laplace", "gaussian"}
    form : {"joint", "separate", "single"}
        One release of both, two releases, or one block with one noisy count.
    raw : ndarray
        Shape (2, 2, m): what was released. First axis: upper and lower halves for "joint", counts
        and sums otherwise (for "single" both counts follow from the one released); second axis:
        controls and treated.
    scales : (float, float)
        Noise scales of the two.
    squares : ndarray or None
        Shape (2,): noisy sums of squared outcomes by arm.
    square_scale : float
    half_width : float
        C, or where residuals were released the range they were clipped to.
    min_count : float
        T.
    smooth : bool
        Whether cells borrow strength from each other.
    exact_variances : ndarray or None
        Shape (2, m): variances within cells, without noise only.
    reach : float
        C, the half-width of the outcome's bounds.
    levels : (float, float)
        What is added to the means of controls and treated: the released outcome model at the mean
        of the covariates, where residuals were released.
    model : OutcomeModel or None
        That outcome model.
    known : bool
        Whether propensities are known by design and row.
    smallest : float
        Range of residuals that the noise of an outcome model alone leaves, in units of C: public.
    base : float
        Noisy share of the treated that the scale of the blocks is centred on.
    """

    n: int
    kind: NoiseKind
    form: Form
    raw: FloatArray
    scales: tuple[float, float]
    squares: FloatArray | None
    square_scale: float
    half_width: float
    min_count: float
    smooth: bool
    exact_variances: FloatArray | None
    propensity: FittedPropensity | None
    records: tuple[Release, ...]
    reach: float
    levels: tuple[float, float] = (0.0, 0.0)
    model: OutcomeModel | None = None
    known: bool = False
    smallest: float = 1.0
    base: float = 0.5

    @property
    def exact(self) -> bool:
        """Whether nothing was added (`eps=inf`)."""
        return self.exact_variances is not None

    @property
    def variances_released(self) -> bool:
        """Whether variances were released."""
        return self.squares is not None

    @property
    def assumptions(self) -> str:
        """What intervals take as given."""
        if self.model is not None:
            return (
                " They count the noise in the outcome model where blocks do not balance the arms; "
                "bias that is left where both models are wrong is not in them."
            )
        if self.raw.shape[-1] == 1:
            return ""
        if self.propensity is not None and self.smooth:
            return (
                " They allow for what a noisy propensity leaves within blocks as far as its slope "
                "shows it (up to as much again as was adjusted for); other bias is not in them."
            )
        return (
            " They take the propensities as given: confounding left within blocks is not in them."
        )

    def cells(self, raw: FloatArray) -> Cells:
        """Turn released numbers, shape (..., 2, 2, m), into counts and sums."""
        c = self.half_width
        factor = 2.0 if self.kind == "laplace" else 1.0
        first, second = (factor * scale**2 for scale in self.scales)
        counts, sums = raw[..., 0, :, :], raw[..., 1, :, :]
        if self.form == "joint":
            counts, sums = counts + sums, c * (counts - sums)
            first, second = 2.0 * first, 2.0 * first * c**2
        residuals = self.model is not None
        noise, smooth = (first, second), self.smooth
        return Cells(counts, sums, self.n, c, self.min_count, *noise, smooth, residuals, self.base)

    def found(self, estimand: Estimand) -> BlockEffects:
        """Return block effects from the released numbers."""
        return block_effects(self.cells(self.raw), estimand)

    def estimate(self, estimand: Estimand) -> float:
        """Return the effect."""
        control, treated = self.levels
        total = float(self.found(estimand).total) + treated - control
        return min(max(total, -2.0 * self.reach), 2.0 * self.reach)

    def standard_error(self, estimand: Estimand) -> float:
        """Return the ordinary standard error of an exact run (blocks taken as fixed)."""
        found = self.found(estimand)
        variances = np.zeros_like(self.raw[0])
        if self.exact_variances is not None:
            variances = self.exact_variances
        with np.errstate(divide="ignore", invalid="ignore"):
            within = (variances / self.raw[0]).sum(axis=0)
        return math.sqrt(float(np.nansum(np.where(found.kept, found.weights**2 * within, 0.0))))

    def errors(
        self, estimand: Estimand, draws: int, rng: np.random.Generator, parts: Parts
    ) -> FloatArray:
        """Simulate errors: cells are sampled anew around the released ones, and noised again."""
        found = self.found(estimand)
        simulated = self._simulate(found, draws, rng, parts)
        # cells drawn around shrunken means are shrunk once more: the errors lean a little to one
        # side, which makes intervals wider, never narrower
        errors = np.asarray(block_effects(simulated, estimand).total - found.total)
        if parts != "sampling":
            errors = errors + self._model_errors(found, draws, rng)
        if parts == "both":
            errors = errors + self._left(found) * rng.random(draws)
        return errors

    def _left(self, found: BlockEffects) -> float:
        """Return the largest confounding that a noisy propensity is taken to leave.

        A propensity of which the share of the treated has slope lambda < 1 hides 1 - lambda of what
        the right one tells, so that blocks take out lambda of the confounding: left is
        (1 - lambda) / lambda times what they took out, or less where the lines correct for it. At
        most as much again is allowed for.
        """
        if self.propensity is None or self.model is not None or not self.smooth:
            return 0.0
        cells, limit = self.cells(self.raw), self.half_width
        slope = max(float(trust(cells)), 0.5)
        counts = np.maximum(cells.counts.sum(axis=-1), max(self.min_count, 1.0))
        means = np.clip(cells.sums.sum(axis=-1) / counts, -limit, limit)
        taken = float(means[1] - means[0] - found.total)
        return taken * max(1.0 / slope - 1.0, 0.0)

    def _model_errors(
        self, found: BlockEffects, draws: int, rng: np.random.Generator
    ) -> FloatArray | float:
        """Simulate what noise in the outcome model leaves: confounding within blocks.

        Slopes that are off by d leave d times the difference of the arms' covariates within blocks.
        That difference is found by passing normal covariates, with the released means and
        variances of the arms, through the released propensity. Propensities that are known leave
        what lies within blocks; of others nothing is known, and they are taken to leave all of it.
        """
        if self.model is None or not self.model.columns:
            return 0.0
        fits = self.model.noisy_fits(min(draws, _MODEL_DRAWS), rng)
        off = (fits.slopes - self.model.last().slopes)[:, 0]
        return self.reach * np.resize(off @ self._imbalance(self.model, found, rng), draws)

    def _imbalance(
        self, model: OutcomeModel, found: BlockEffects, rng: np.random.Generator
    ) -> FloatArray:
        """Return the difference of the arms' mean covariates within blocks, shape (k,)."""
        means, m = model.last().means, self.raw.shape[-1]
        apart = means[1] - means[0]
        if self.known:
            return np.asarray(apart * self._within_blocks(found))
        rows = model.pseudo_rows(_PSEUDO_ROWS, rng)
        scores = [e for z in rows if (e := model.scores(z, self.propensity)) is not None]
        if not scores:
            # nothing is known of what blocks take out
            return np.asarray(apart)
        blocks = [block_of(e, m, self.base) for e in scores]
        total, weight = np.zeros(apart.size), 0.0
        for block, share in enumerate(found.weights):
            inside = [z[own == block] for z, own in zip(rows, blocks, strict=True)]
            if min(map(len, inside)) > 0:
                total += share * (inside[1].mean(axis=0) - inside[0].mean(axis=0))
                weight += float(share)
        return total / weight if weight > 0.0 else np.asarray(apart)

    def _within_blocks(self, found: BlockEffects) -> float:
        """Return the share of the arms' difference that blocks on a right propensity leave.

        The arms differ by its variance over that of the treatment, overall and within blocks.
        """
        m = self.raw.shape[-1]
        size = np.maximum(found.counts.sum(axis=0), 1.0)
        share, treated = size / size.sum(), np.clip(found.counts[1] / size, 0.0, 1.0)
        centre = (np.arange(m) + 0.5) / m
        score = propensity_at(centre, self.base)
        # how fast the propensity changes along the scale
        rate = score * (1.0 - score) / (centre * (1.0 - centre))
        inside = float(share @ rate**2) / (12.0 * m * m)
        variance = inside + float(share @ (score - share @ score) ** 2)
        spread = float(share @ treated) * (1.0 - float(share @ treated))
        left = inside / variance * spread / max(float(share @ (treated * (1.0 - treated))), 1e-3)
        return min(left, 1.0)

    def noise_sd(self) -> float:
        """Return a rough noise sd of the effect with even arms, from public quantities only."""
        variance = self.cells(self.raw).sum_variance
        # the range in use is not public where it follows from a released model
        public = self.smallest * self.reach / self.half_width
        return public * math.sqrt(2.0 * self.raw.shape[-1] * variance) / (self.n / 2.0)

    def _simulate(
        self, found: BlockEffects, draws: int, rng: np.random.Generator, parts: Parts
    ) -> Cells:
        counts, means = found.counts, found.at_rows
        counts = counts * (self.n / max(float(counts.sum()), 1.0))
        shape = (draws, *counts.shape)
        sizes, sums = np.broadcast_to(counts, shape), np.broadcast_to(counts * means, shape)
        if parts != "privacy":
            # a multinomial draw, in its normal limit: n stays what it is
            moved = np.sqrt(counts) * rng.standard_normal(shape)
            moved -= counts / self.n * moved.sum(axis=(-2, -1), keepdims=True)
            sizes = np.maximum(counts + moved, 0.0)
            spread = np.sqrt(counts * self._within(counts, means))
            sums = sizes * means + spread * rng.standard_normal(shape)
        raw = np.stack([sizes, sums], axis=-3)
        if self.form == "joint":
            scaled = sums / self.half_width
            raw = np.stack([(sizes + scaled) / 2.0, (sizes - scaled) / 2.0], axis=-3)
        if parts != "sampling":
            raw = raw + self.noise(shape, rng)
        return self.cells(raw)

    def noise(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw the noise of the release again, for cells of this shape (draws, 2, m)."""
        first = noise_draws(rng, self.kind, self.scales[0], shape)
        if self.form == "single":
            # one noisy count, of the treated; n is public
            first = first[:, :1] * np.array([-1.0, 1.0])[:, None]
        return np.stack([first, noise_draws(rng, self.kind, self.scales[1], shape)], axis=-3)

    def _within(self, counts: FloatArray, means: FloatArray) -> FloatArray:
        """Variance of the outcome within cells: released by arm, or the Bhatia-Davis bound."""
        # a mean that noise took to the edge must not stand for a variance of zero
        unsure = math.sqrt(self.cells(self.raw).sum_variance) / np.maximum(counts, 1.0)
        inside = np.maximum(np.abs(means) - unsure, 0.0)
        ceiling = variance_bound(inside, self.half_width)
        if self.squares is None:
            return ceiling
        size = np.maximum(counts.sum(axis=1), 1.0)
        factor = math.sqrt(2.0) if self.kind == "laplace" else 1.0
        noise = factor * self.square_scale / size
        square = self.squares / size + self.half_width**2 / 2.0
        explained = (counts * means**2).sum(axis=1) / size
        # one noise sd is added so that the interval does not rest on a lucky draw
        return np.minimum((np.maximum(square - explained, 0.0) + noise)[:, None], ceiling)

    def blocks(self, estimand: Estimand, rng: np.random.Generator) -> pd.DataFrame:
        """Return the noisy cells, one row a block, with intervals for the block effects."""
        import pandas as pd

        m = self.raw.shape[-1]
        found = self.found(estimand)
        half = np.full(m, np.nan)
        if not self.exact:
            simulated = self._simulate(found, 1999, rng, "both")
            errors = block_effects(simulated, estimand).effects - found.effects
            half = np.quantile(np.abs(errors), 0.95, axis=0)
        edges = propensity_at(np.linspace(0.0, 1.0, m + 1), self.base)
        means = np.clip(found.means + np.array(self.levels)[:, None], -self.reach, self.reach)
        shift = self.levels[1] - self.levels[0]
        effects = self._shown(found) + shift
        return pd.DataFrame(
            {
                "block": [_label(edges[i], edges[i + 1], i == m - 1) for i in range(m)],
                "lower": edges[:-1],
                "upper": edges[1:],
                "control": found.counts[0],
                "treated": found.counts[1],
                "noise_sd": math.sqrt(self.cells(self.raw).count_variance),
                "mean_control": means[0],
                "mean_treated": means[1],
                "effect": effects,
                "effect_lower": found.effects + shift - half,
                "effect_upper": found.effects + shift + half,
                "weight": found.weights,
                "kept": found.kept,
            }
        )

    def _shown(self, found: BlockEffects) -> FloatArray:
        """Return block effects; without noise and smoothing an empty block has none."""
        if self.exact and not self.smooth:
            return np.where(found.kept, found.effects, np.nan)
        return found.effects

    def effects_differ(self, estimand: Estimand) -> bool:
        """Whether there are block effects that can be told apart."""
        effects = self._shown(self.found(estimand))
        spread = float(np.nanmax(effects) - np.nanmin(effects))
        return spread >= 1e-9 * self.half_width

    def notes(self) -> list[str]:
        """Return what a reader of the estimate must know."""
        several = self.raw.shape[-1] > 1
        if several and self.smooth and not self.exact and not self.effects_differ("ate"):
            return [
                "No difference between the effects of the blocks could be told from noise: they "
                "share one effect, so ATE, ATT and ATC coincide.",
            ]
        return []

    def diagnostics(self) -> list[tuple[str, str, str]]:
        """Return readings of the noisy cells."""
        found, m = self.found("ate"), self.raw.shape[-1]
        sd = math.sqrt(self.cells(self.raw).count_variance)
        empty = ~found.kept & (found.counts < max(self.min_count, 1.0)).all(axis=0)
        thin = int((~found.kept & ~empty).sum())
        reading = "every block with rows has enough of them in both arms"
        if thin:
            how = "the fitted line stands in" if self.smooth else "they are left out"
            share = float(found.counts[:, ~found.kept & ~empty].sum()) / self.n
            reading = (
                f"blocks with a noisy count below {self.min_count:.3g} in one arm: {how} for about "
                f"{share:.0%} of the rows"
            )
        # a block without rows is no sign of poor overlap
        smallest = float(found.counts[:, ~empty if not empty.all() else empty].min())
        overlap = "" if smallest > 4.0 * sd else ": poor overlap there, or too few rows"
        model = []
        if self.model is not None:
            share = self.half_width / self.reach
            model = [
                self.model.reading(),
                (
                    "range of residuals",
                    f"{share:.2g}",
                    "of the outcome's: noise in sums shrinks as much",
                ),
            ]
        if self.model is None and self.smooth and m > 1:
            right = float(trust(self.cells(self.raw)))
            trusted = "of treatment on the propensity: noise took little of it"
            if right < 0.8:
                trusted = "noise in the propensity leaves confounding within blocks"
            model = [("slope of treatment", f"{right:.2f}", trusted)]
        return [
            *model,
            ("thin blocks", f"{thin} of {m}", reading),
            *self._empty(found, empty),
            ("smallest noisy count", f"{smallest:.0f}", f"noise sd {sd:.3g}{overlap}"),
            ("noisy share of treated", f"{float(found.counts[1].sum()) / self.n:.3f}", ""),
        ]

    def _empty(self, found: BlockEffects, empty: NDArray[np.bool_]) -> list[tuple[str, str, str]]:
        """Return the reading of blocks in which neither arm has rows to speak of."""
        if not empty.any():
            return []
        share = float(found.counts[:, empty].sum()) / self.n
        reading = f"about {share:.0%} of the rows, too few to be told from noise"
        if share < _NOBODY:
            reading = "nobody, or next to nobody, has such propensities"
        return [("empty blocks", f"{int(empty.sum())} of {empty.size}", reading)]

    def signals(self) -> list[Signal]:
        """Return what the rules for warnings look at."""
        found, cells, m = self.found("ate"), self.cells(self.raw), self.raw.shape[-1]
        signals = [] if self.model is None else self.model.signals()
        sd = math.sqrt(cells.count_variance)
        if not self.exact:
            signals += [
                Signal("rows of an arm, in noise sd", float(size) / (math.sqrt(m) * sd), arm)
                for arm, size in zip(("control", "treated"), found.counts.sum(axis=1), strict=True)
            ]
        if m > 1:
            # what noise alone would count there is taken off
            rows = float(found.counts[:, ~found.kept].sum())
            rows -= 2.0 * sd * math.sqrt(2.0 * int((~found.kept).sum()))
            signals.append(Signal("rows without counterparts", max(rows, 0.0) / self.n))
            if self.model is None and self.smooth:
                signals.append(Signal("slope of treatment", float(trust(cells))))
        return signals


def _label(low: float, high: float, last: bool) -> str:
    return f"[{low:.3g}, {high:.3g}" + ("]" if last else ")")


def cell_totals(arrays: Arrays, block: np.ndarray | None, m: int) -> tuple[FloatArray, FloatArray]:
    """Count rows and add up outcomes by arm and block.

    Returns
    -------
    counts, sums : ndarray
        Shape (2, m): controls, treated. Sums are in units of C, and exact.
    """
    cell = arrays.treated.astype(np.int64)
    cell *= m
    if block is not None:
        cell += block
    counts = np.bincount(cell, minlength=2 * m).astype(np.float64)
    sums = np.bincount(cell, weights=arrays.outcome, minlength=2 * m).astype(np.float64)
    return counts.reshape(2, m), sums.reshape(2, m)


def release_cells(
    arrays: Arrays, counts: FloatArray, sums: FloatArray, form: Form, mechanisms: Mechanisms
) -> tuple[FloatArray, tuple[float, float], tuple[Release, ...]]:
    """Release counts and sums in the given form; returns raw numbers, scales and records."""
    c, root = arrays.half_width, math.sqrt(2.0)
    if form == "joint":
        halves = np.stack([(counts + sums) / 2.0, (counts - sums) / 2.0])
        noisy = mechanisms.additive("counts", halves, l1=2.0, l2=root, lattice=arrays.lattice - 1)
        return noisy.value, (noisy.scale, noisy.scale), noisy.records
    if form == "single":
        first = mechanisms.additive("counts", counts[1], l1=1.0, l2=1.0, lattice=0)
        both = np.stack([arrays.n - first.value, first.value])
    else:
        first = mechanisms.additive("counts", counts, l1=2.0, l2=root, lattice=0)
        both = first.value
    total = mechanisms.additive(
        "sums", sums, l1=2.0, l2=2.0, lattice=arrays.lattice, divisor=1.0 / c
    )
    return np.stack([both, total.value]), (first.scale, total.scale), first.records + total.records


def release_squares(arrays: Arrays, mechanisms: Mechanisms) -> Noisy:
    """Release the sums of y^2 - C^2/2 by arm."""
    values = np.rint(np.ldexp(arrays.outcome**2 - 0.5, -arrays.lattice))
    by_arm = np.bincount(arrays.treated.astype(np.int64), weights=values, minlength=2)
    return mechanisms.additive(
        "variances",
        np.ldexp(by_arm, arrays.lattice),
        l1=1.0,
        l2=1.0,
        lattice=arrays.lattice,
        divisor=arrays.half_width**-2,
    )
