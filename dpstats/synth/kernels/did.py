"""Difference in differences: the noisy mean path of the donors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.errors import DPStatsError
from dpstats.synth.kernels.base import Errors, Kernel, Parts, Public, Settings, Shares
from dpstats.synth.kernels.paths import Residuals, typical_deviation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import Mechanisms, NoiseKind, Noisy
    from dpstats.privacy.noise import FloatArray
    from dpstats.synth.kernels.base import Panel

__all__ = ["Did", "DidReleased"]

_SCALE_SHARE = 0.2
# the grid of row norms: powers of two around the target's own size, or around one without it
_NEAR, _FAR = 6, 40
# rows are shrunk to the private median of their norms, a power of two; to twice that where the
# noise is small enough (n eps from here on) for the bias of shrinking to matter more
_ROOMY = 500.0
_ROW_BITS = 30
_BLOCK = 8192


@dataclass(frozen=True, slots=True)
class DidReleased:
    """Released numbers of `Did`.

    Attributes
    ----------
    mean_path : ndarray
        Shape (T,): noisy mean of the donors' rows less their own pre-period means.
    scale : float
        Noise scale of each of its entries (K-norm: of the vector).
    row_norm : float
        Rows were shrunk to it; inf without noise.
    pre_periods : int
    kind : {"laplace", "gaussian"}
    records : tuple of Release
    """

    mean_path: FloatArray
    scale: float
    row_norm: float
    pre_periods: int
    kind: NoiseKind
    records: tuple[Release, ...]

    @property
    def exact(self) -> bool:
        """Whether nothing was added (`eps=inf`)."""
        return self.scale == 0.0

    @property
    def any_target(self) -> bool:
        """True: the mean path serves any target outside the donor pool."""
        return True

    def predict(self, targets: FloatArray) -> FloatArray:
        """Return counterfactual paths, shape (g, T)."""
        return self._predict(targets[:, : self.pre_periods], self.mean_path)

    def placebo(self, targets: FloatArray, pre_periods: int) -> FloatArray:
        """Return counterfactual paths with an intervention after `pre_periods` periods, free."""
        path = self.mean_path - self.mean_path[:pre_periods].mean()
        return np.asarray(targets[:, :pre_periods].mean(axis=1, keepdims=True) + path)

    def weights(self) -> None:
        """Return None: no donor weight is released."""
        return

    def noise_sd(self) -> float:
        """Return the noise sd of the ATT."""
        after = self.mean_path.size - self.pre_periods
        return self._entry_sd() * math.sqrt(1.0 / after + 1.0 / self.pre_periods)

    def errors(
        self, target: FloatArray, draws: int, rng: np.random.Generator, parts: Parts
    ) -> Errors:
        """Simulate errors: residuals of the target about the mean path, and the noise drawn again.

        Notes
        -----
        Residuals follow a first-order autoregression fitted to the pre-period, in which the noise
        of the mean path is part of the residual.
        """
        before = self.pre_periods
        periods = self.mean_path.size
        errors = np.zeros((draws, periods - before))
        if parts != "privacy":
            residuals = target[:before] - self.predict(target[None])[0, :before]
            model = Residuals.of(residuals, periods, 0.0)
            drawn = model.draw(model.spread(draws, rng), rng)
            errors += drawn[:, :before].mean(axis=1, keepdims=True) - drawn[:, before:]
        if parts != "sampling" and not self.exact:
            noise = self._noise((draws, periods), rng)
            errors += noise[:, before:] - noise[:, :before].mean(axis=1, keepdims=True)
        return Errors(errors, errors.mean(axis=1))

    def _predict(self, before: FloatArray, mean_path: FloatArray) -> FloatArray:
        path = mean_path - mean_path[: self.pre_periods].mean()
        return np.asarray(before.mean(axis=1, keepdims=True) + path)

    def _entry_sd(self) -> float:
        # a K-norm vector has mean square (d + 1) scale^2 in each of its d entries
        return self.scale * (math.sqrt(self.mean_path.size + 1) if self.kind == "laplace" else 1.0)

    def _noise(self, shape: tuple[int, int], rng: np.random.Generator) -> FloatArray:
        normals = rng.standard_normal(shape)
        if self.kind == "gaussian":
            return self.scale * normals
        radius = rng.gamma(shape[1], self.scale, shape[0])
        return np.asarray(normals * (radius / np.linalg.norm(normals, axis=1))[:, None])


class Did(Kernel):
    """The mean path of the donors, each measured from its own pre-period mean.

    Notes
    -----
    The counterfactual is the target's pre-period mean plus the noisy mean of the donors' rows
    z = x - mean(x_pre). Rows are shrunk to norm R.

    *scale.* R is the power of two chosen by report noisy max with score -|2 #(norms at most g) - n|
    over a public grid of powers of two g around the target's own size (around one for a target
    without variation). One row changes a count by at most 1 and the score by at most 2; only the
    order of scores matters.

    *mean.* The sum of the shrunk rows moves by at most 2R when a donor is replaced (attained by
    opposite rows): K-norm Laplace, or Gaussian noise by the analytic calibration. Entries are cut
    towards zero to a public grid on which sums are exact.
    """

    name: ClassVar[str] = "did"
    title: ClassVar[str] = "Difference in differences with a noisy mean of the donors"
    private: ClassVar[bool] = True
    pure: ClassVar[tuple[str, ...]] = ("scale",)

    def settings(
        self, penalty: float | None, options: Mapping[str, Any], public: Public
    ) -> Settings:
        """Refuse what has no meaning here."""
        if penalty is not None:
            raise DPStatsError("`penalty` has no meaning for method 'did'; leave it out")
        if options:
            raise DPStatsError(f"method 'did' has no option {', '.join(map(repr, options))}")
        return Settings(None, "projection", False, {})

    def shares(self, settings: Settings, public: Public) -> Shares:
        """Return the default split."""
        return {"scale": _SCALE_SHARE, "mean": 1.0 - _SCALE_SHARE}

    def constants(self, settings: Settings, public: Public) -> tuple[tuple[str, str], ...]:
        """Return what the row norm is chosen from."""
        return (("row norm", "private median of the rows' norms, as a power of two"),)

    def run(self, panel: Panel, settings: Settings, mechanisms: Mechanisms) -> DidReleased:
        """Release the mean path."""
        before = panel.pre_periods
        with np.errstate(over="ignore", invalid="ignore"):
            return self._run(panel, before, mechanisms)

    def _run(self, panel: Panel, before: int, mechanisms: Mechanisms) -> DidReleased:
        if mechanisms.source is None:
            mean = panel.donors.mean(axis=0)
            mean = mean - mean[:before].mean()
            return DidReleased(mean, 0.0, math.inf, before, mechanisms.kind, ())
        norms = _row_norms(panel.donors, before)
        grid = _norm_grid(panel)
        below = np.searchsorted(np.sort(norms), grid, side="right")
        scores = -np.abs(2.0 * below - panel.n)
        chosen, records = mechanisms.choose("scale", scores, sensitivity=2.0)
        roomy = panel.n * mechanisms.costs["mean"].epsilon >= _ROOMY
        row_norm = (2.0 if roomy else 1.0) * float(grid[chosen])
        noisy = _noisy_mean(panel.donors, before, norms, row_norm, mechanisms)
        return DidReleased(
            noisy.value,
            noisy.scale,
            row_norm,
            before,
            mechanisms.kind,
            (*records, *noisy.records),
        )


def _norm_grid(panel: Panel) -> FloatArray:
    """Return the public grid of row norms, ascending powers of two."""
    before, periods = panel.pre_periods, panel.donors.shape[1]
    size = typical_deviation(panel.targets, before) * math.sqrt(periods / before)
    middle, reach = (math.ceil(math.log2(size)), _NEAR) if size > 0.0 else (0, _FAR)
    return np.ldexp(1.0, np.arange(middle - reach, middle + reach + 1))


def _row_norms(donors: FloatArray, before: int) -> FloatArray:
    norms = np.empty(len(donors))
    for start in range(0, len(donors), _BLOCK):
        block = donors[start : start + _BLOCK]
        rows = block - block[:, :before].mean(axis=1, keepdims=True)
        norms[start : start + _BLOCK] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return norms


def _noisy_mean(
    donors: FloatArray, before: int, norms: FloatArray, row_norm: float, mechanisms: Mechanisms
) -> Noisy:
    n, periods = donors.shape
    bits = min(_ROW_BITS, 52 - n.bit_length())
    # a hair below the norm, so that no rounding makes a row longer
    factors = (1.0 - 2.0**-40) / np.maximum(norms / row_norm, 1.0)
    lattice = math.ceil(math.log2(row_norm)) - bits
    total = np.zeros(periods)
    for start in range(0, n, _BLOCK):
        block = donors[start : start + _BLOCK]
        rows = block - block[:, :before].mean(axis=1, keepdims=True)
        rows *= factors[start : start + _BLOCK, None]
        # a row too long for its norm to be a number counts as zero
        rows = np.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
        total += np.trunc(np.ldexp(rows, -lattice)).sum(axis=0)
    exact = np.ldexp(total, lattice)
    sensitivity = 2.0 * row_norm
    if mechanisms.kind == "gaussian":
        return mechanisms.additive(
            "mean",
            exact,
            l1=sensitivity * math.sqrt(periods),
            l2=sensitivity,
            lattice=lattice,
            divisor=float(n),
        )
    return mechanisms.knorm("mean", exact, sensitivity=sensitivity, divisor=float(n))
