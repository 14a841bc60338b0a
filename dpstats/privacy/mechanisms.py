"""The one noise path: a sensitivity and a budget in, a noisy value *and* its record out.

References
----------
Dwork, C., McSherry, F., Nissim, K. and Smith, A. (2006). Calibrating noise to sensitivity in
private data analysis. TCC. doi:10.1007/11681878_14.
Hardt, M. and Talwar, K. (2010). On the geometry of differential privacy. STOC.
doi:10.1145/1806689.1806786 (the K-norm mechanism).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from dpstats.privacy.accounting import Cost, Release
from dpstats.privacy.calibration import gaussian_scale, laplace_scale

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from dpstats.privacy.noise import Ball, FloatArray, NoiseSource

__all__ = ["Mechanisms", "NoiseKind", "Noisy", "sum_lattice"]

NoiseKind = Literal["laplace", "gaussian"]

# values live on a grid of 2**_BITS steps a unit of their range; sums of them are exact integers
_BITS = 30
# steps in a standard deviation, at which the discrete Gaussian has the delta of the continuous one
_GAUSSIAN_BITS = 20
_LARGEST_STEP = 2.0**62


@dataclass(frozen=True, slots=True)
class Noisy:
    """A released value with the records of the noise in it.

    Attributes
    ----------
    value : ndarray
        The released numbers.
    scale : float
        Scale of the noise in each (0 where nothing was added).
    records : tuple of Release
        Empty where `eps=inf`.
    """

    value: FloatArray
    scale: float
    records: tuple[Release, ...]

    def sd(self, kind: NoiseKind) -> float:
        """Return the standard deviation of the noise in each number."""
        return self.scale * math.sqrt(2.0) if kind == "laplace" else self.scale


def sum_lattice(half_width: float, n: int) -> int:
    """Exponent g of the grid 2**g on which values in +-`half_width` are summed exactly.

    Sums of `n` multiples of 2**g stay below 2**53 steps, so they are exact in double precision in
    any order: the sensitivity holds to the last bit and row order cannot matter.
    """
    bits = min(_BITS, 52 - max(n - 1, 1).bit_length())
    return math.ceil(math.log2(half_width)) - bits


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """Every way to release a number.

    Parameters
    ----------
    source : NoiseSource or None
        None releases exact values without a record (`eps=inf`).
    kind : {"laplace", "gaussian"}
        Noise of the additive releases.
    costs : mapping of str to Cost
        Budget of each release by name.
    rows_per_person : int
        Sensitivities are multiplied by it (a person's rows are replaced one after another).
    partition : str
        Name of the rows the releases are computed from.
    """

    source: NoiseSource | None
    kind: NoiseKind
    costs: Mapping[str, Cost]
    rows_per_person: int = 1
    partition: str = "all rows"

    def additive(
        self,
        name: str,
        values: ArrayLike,
        *,
        l1: float,
        l2: float,
        lattice: int,
        divisor: float = 1.0,
        kind: NoiseKind | None = None,
    ) -> Noisy:
        """Add independent Laplace or Gaussian noise to each number.

        Parameters
        ----------
        name : str
            Name of the release; its budget is looked up by it.
        values : array_like
            Exact statistic, multiples of 2**`lattice`.
        l1, l2 : float
            Sensitivities of `values` under replacement of one row.
        lattice : int
            Exponent of the public grid.
        divisor : float
            Public number by which the noisy values (and what is recorded) are divided.
        kind : {"laplace", "gaussian"}, optional
            Overrides the noise of the call.

        Notes
        -----
        Values, noise and result are integers times 2**`lattice`, so nothing is rounded after the
        noise and the calibration is that of the integer mechanism, which for these fine grids is
        the continuous one (for the Laplace exactly: the ratio of neighbouring probabilities is
        exp(-1/scale) a step). Where a step is below 2**-50 of the scale (a tiny epsilon) the grid
        is coarsened; each rounded number then moves by up to one step more.
        """
        exact = np.asarray(values, dtype=np.float64)
        if self.source is None:
            return Noisy(exact / divisor, 0.0, ())
        kind = kind or self.kind
        cost = self.costs[name]
        l1, l2 = l1 * self.rows_per_person, l2 * self.rows_per_person
        sensitivity = l1 if kind == "laplace" else l2
        scale = _scale(kind, sensitivity, cost)
        if kind == "gaussian":
            lattice = min(lattice, math.floor(math.log2(scale)) - _GAUSSIAN_BITS)
        coarse = math.floor(math.log2(scale)) - 49
        if coarse > lattice:
            rounding = math.ldexp(float(exact.size), coarse)
            lattice, scale = coarse, _scale(kind, sensitivity + rounding, cost)
        steps = np.rint(np.ldexp(exact, -lattice))
        # clipping keeps the sensitivity where an integer would wrap around
        steps = np.clip(steps, -_LARGEST_STEP, _LARGEST_STEP).astype(np.int64)
        draw = self.source.laplace if kind == "laplace" else self.source.gaussian
        noisy = np.ldexp(draw(name, steps, math.ldexp(scale, -lattice)).astype(float), lattice)
        record = Release(
            name,
            self.partition,
            "Laplace" if kind == "laplace" else "Gaussian (analytic)",
            "l1" if kind == "laplace" else "l2",
            sensitivity / divisor,
            scale / divisor,
            cost.epsilon,
            cost.delta if kind == "gaussian" else 0.0,
        )
        return Noisy(noisy / divisor, scale / divisor, (record,))

    def knorm(
        self,
        name: str,
        values: FloatArray,
        *,
        sensitivity: float,
        cost: Cost | None = None,
        ball: Ball = "l2",
        grid_bits: int = 20,
    ) -> Noisy:
        """Add one K-norm Laplace vector, rounded afterwards to a public grid.

        Parameters
        ----------
        name : str
            Name of the release.
        values : ndarray
            Exact statistic, shape (d,).
        sensitivity : float
            In the norm of `ball`, under replacement of one row (before `rows_per_person`).
        cost : Cost, optional
            Budget; by default that of `name`.
        ball : {"l2", "linf"}
            Unit ball of the norm.
        grid_bits : int
            The result is rounded to multiples of a power of two that is `grid_bits` bits finer
            than the scale; 0 hides the rounding errors of a solver.
        """
        if self.source is None:
            return Noisy(values, 0.0, ())
        cost = cost or self.costs[name]
        sensitivity = sensitivity * self.rows_per_person
        scale = laplace_scale(sensitivity, cost.epsilon)
        noisy = values + self.source.knorm(name, values.size, scale, ball)
        grid = math.floor(math.log2(scale)) - grid_bits
        record = Release(
            name, self.partition, "K-norm Laplace", ball, sensitivity, scale, cost.epsilon, 0.0
        )
        return Noisy(np.ldexp(np.rint(np.ldexp(noisy, -grid)), grid), scale, (record,))


def _scale(kind: NoiseKind, sensitivity: float, cost: Cost) -> float:
    if kind == "laplace":
        return laplace_scale(sensitivity, cost.epsilon)
    return gaussian_scale(sensitivity, cost.epsilon, cost.delta)
