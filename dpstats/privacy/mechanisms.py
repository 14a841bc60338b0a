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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from dpstats.privacy.accounting import Cost, Release
from dpstats.privacy.calibration import gaussian_dp_level, gaussian_scale, laplace_scale

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from dpstats.privacy.noise import Ball, FloatArray, NoiseSource

__all__ = ["Grams", "Mechanisms", "NoiseKind", "Noisy", "sum_lattice"]

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


@dataclass(frozen=True, slots=True)
class Grams:
    """Released sums of outer products of unit rows, one after another.

    Attributes
    ----------
    values : tuple of ndarray
        Symmetric matrices.
    levels : tuple of float
        What each was released at: mu of Gaussian differential privacy, or epsilon (Wishart
        difference); inf where nothing was added.
    records : tuple of Release
    """

    values: tuple[FloatArray, ...]
    levels: tuple[float, ...]
    records: tuple[Release, ...]


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
            Exact statistic, multiples of ``2**lattice``.
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
        Values, noise and result are integers times ``2**lattice``, so nothing is rounded after the
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

    def parts(self, name: str, n: int, count: int) -> NDArray[np.int64]:
        """Assign n row positions at random to `count` parts whose sizes differ by one at most.

        Returns
        -------
        ndarray
            Shape (n,): the part of each position. Nothing of the data enters. Without a source
            positions take turns.
        """
        turns = np.arange(n) % count
        return turns if self.source is None else turns[self.source.permutation(name, n)]

    def sample(self, name: str, n: int, size: int) -> NDArray[np.int64]:
        """Choose `size` of n row positions at random, one in each stretch of equal length.

        Nothing of the data enters. Without a source it is the first of each stretch.
        """
        edges = np.arange(size + 1) * n // size
        if self.source is None:
            return edges[:-1]
        # any position of a stretch, each about as likely as the others
        steps = self.source.permutation(name, 2**16)[np.arange(size) % 2**16]
        return edges[:-1] + steps * np.diff(edges) // 2**16

    def knorm(
        self,
        name: str,
        values: FloatArray,
        *,
        sensitivity: float,
        cost: Cost | None = None,
        ball: Ball = "l2",
        grid_bits: int = 20,
        divisor: float = 1.0,
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
        divisor : float
            Public number by which the noisy values (and what is recorded) are divided.
        """
        if self.source is None:
            return Noisy(values / divisor, 0.0, ())
        cost = cost or self.costs[name]
        sensitivity = sensitivity * self.rows_per_person
        scale = laplace_scale(sensitivity, cost.epsilon)
        noisy = values + self.source.knorm(name, values.size, scale, ball)
        grid = math.floor(math.log2(scale)) - grid_bits
        noisy = np.ldexp(np.rint(np.ldexp(noisy, -grid)), grid)
        sizes = (sensitivity / divisor, scale / divisor)
        record = Release(name, self.partition, "K-norm Laplace", ball, *sizes, cost.epsilon, 0.0)
        return Noisy(noisy / divisor, scale / divisor, (record,))

    def choose(
        self, name: str, scores: ArrayLike, *, sensitivity: float = 1.0
    ) -> tuple[int, tuple[Release, ...]]:
        """Choose the candidate with the highest noisy score (report noisy max).

        Parameters
        ----------
        name : str
            Name of the release.
        scores : array_like
            Whole numbers, one a public candidate.
        sensitivity : float
            Largest change of any one score under replacement of one row.

        Notes
        -----
        Laplace noise of scale 2 sensitivity / eps on each score and only the index comes out. For
        fixed noise of the others, candidate i wins from some threshold of its own noise on; with
        the neighbour that threshold moves by at most 2 sensitivity, which costs exp(eps) (ties go
        to the lower index, in both; Dwork and Roth 2014, claim 3.9).
        """
        noisy = self.additive(
            name, scores, l1=2.0 * sensitivity, l2=math.inf, lattice=-10, kind="laplace"
        )
        records = tuple(
            replace(
                record,
                mechanism="report noisy max (Laplace)",
                norm="linf",
                sensitivity=sensitivity * self.rows_per_person,
            )
            for record in noisy.records
        )
        return int(np.argmax(noisy.value)), records

    def gram_rounds(
        self,
        budget: str,
        rounds: Mapping[str, float],
        statistic: Callable[[tuple[FloatArray, ...]], FloatArray],
        *,
        rows: int,
        lattice: int,
    ) -> Grams:
        r"""Release sums of outer products b b' of rows with norm at most 1, one after another.

        Parameters
        ----------
        budget : str
            Name of the release whose budget all rounds share.
        rounds : mapping of str to float
            Name and share of each round, summing to 1: of :math:`\mu^2` for Gaussian noise and of
            epsilon for the Wishart difference.
        statistic : callable
            Exact matrix of the next round, shape (q, q), from the matrices released so far; or
            several, shape (parts, q, q), where each row adds to one of them.
        rows : int
            Public number of rows; no entry is larger.
        lattice : int
            Entries are multiples of ``2**lattice``.

        Notes
        -----
        Given what was released before, b depends on its own row only, so that a replaced row moves
        the sum by D = bb' - cc' with \|b\|, \|c\| at most 1. Several matrices are one matrix of
        blocks: a row that leaves one block for another moves it by D = bb' and -cc' in two blocks,
        for which the bounds on D below hold as they do for orthogonal b and c; independent noise
        in each block has the product of the densities.

        *Gaussian.* :math:`\|D\|_F^2 = |b|^4 + |c|^4 - 2 (b'c)^2 \le 2` (attained by orthonormal
        rows). Independent normals of sd 1/mu off the diagonal and sqrt(2)/mu on it are isotropic
        noise of sd sqrt(2)/mu in the coordinates (diagonal, sqrt(2) x off-diagonal), whose norm is
        Frobenius', so a round is mu-GDP. Rounds with :math:`\mu_r^2 = f_r \mu^2` compose
        adaptively to mu-GDP (Dong, Roth and Su 2022, corollary 3.3), and mu is the largest with
        (epsilon, delta): one record, since epsilons of the rounds would not add up to it. The
        noise is a discrete Gaussian on a grid of at least 2**20 steps a sd, where it is the
        continuous one up to exp(-2 pi^2 2^40).

        *Wishart difference* (delta = 0). :math:`\|D\|_* \le |b|^2 + |c|^2 \le 2`. With c =
        eps/2 let g(W) be proportional to exp(-c tr W) on the positive definite Q x Q matrices:
        W = GG'/(2c), G standard normal with Q + 1 columns, for which the determinant in Wishart's
        density has exponent 0. Let f be the density of E = W1 - W2, f(E) = int g(E + W) g(W) dW.
        For D >= 0, f(E + D) >= exp(-c tr D) f(E), since E + W > 0 implies E + D + W > 0, and
        f(E - D) = int g(E - D + W) g(W) dW >= int g(E + U) g(U + D) dU (over W = U + D, U > 0)
        = exp(-c tr D) f(E). Hence for any D = D+ - D-, f(E + D) >= exp(-c |D|_*) f(E): pure
        eps-DP. For Q = 1 it is Laplace noise of scale 2/eps. (One Wishart matrix is not private:
        its support is a cone.) Rounds add up. Made from normals in double precision and rounded to
        a grid of 2**-20 scales; it carries no floating-point proof.

        References
        ----------
        Dong, J., Roth, A. and Su, W. J. (2022). Gaussian differential privacy. JRSS-B 84(1), 3-37.
        doi:10.1111/rssb.12454.
        """
        values: tuple[FloatArray, ...] = ()
        levels: list[float] = []
        records: list[Release] = []
        cost = Cost(math.inf) if self.source is None else self.costs[budget]
        k = self.rows_per_person
        gaussian = self.kind == "gaussian"
        if self.source is None:
            total = math.inf
        else:
            total = gaussian_dp_level(cost.epsilon, cost.delta) if gaussian else cost.epsilon
        for name, share in rounds.items():
            level = total * (math.sqrt(share) if gaussian else share)
            exact = statistic(values)
            if self.source is None:
                noisy = exact
            elif gaussian:
                noisy = _symmetric_gaussian(self.source, name, exact, level / k, rows, lattice)
            else:
                noisy = _wishart_difference(self.source, name, exact, level / k)
                part = (2.0 * k, 2.0 * k / level, level, 0.0)
                records.append(
                    Release(name, self.partition, "Wishart difference", "nuclear", *part)
                )
            values, levels = (*values, noisy), [*levels, level / k]
        if self.source is not None and gaussian:
            size = math.sqrt(2.0) * k
            whole = (size, size / total, cost.epsilon, cost.delta)
            title = {1: "Gaussian (analytic)", 2: "Gaussian, two rounds"}.get(
                len(levels), f"Gaussian, {len(levels)} rounds"
            )
            records.append(Release(budget, self.partition, title, "Frobenius", *whole))
        return Grams(values, tuple(levels), tuple(records))


def _symmetric_gaussian(
    source: NoiseSource, name: str, exact: FloatArray, level: float, rows: int, lattice: int
) -> FloatArray:
    q = exact.shape[-1]
    sd = 1.0 / level
    fine = min(lattice, math.floor(math.log2(sd)) - _GAUSSIAN_BITS)
    # integers of 62 bits hold all sums and the noise
    step = max(fine, rows.bit_length() - 61, math.floor(math.log2(sd)) - 49)
    if step > lattice:
        # entries are rounded to a coarser grid: each may move by up to one step more
        sd *= 1.0 + exact.size / q * math.ldexp(1.0, step) / math.sqrt(2.0)
    steps = np.rint(np.ldexp(exact, -step))
    one, two = np.triu_indices(q, 1)
    noisy = np.empty(exact.shape)
    diagonal = np.diagonal(steps, axis1=-2, axis2=-1).astype(np.int64)
    places = np.arange(q)
    noisy[..., places, places] = source.gaussian(
        name, diagonal, math.ldexp(math.sqrt(2.0) * sd, -step)
    )
    off = source.gaussian(name, steps[..., one, two].astype(np.int64), math.ldexp(sd, -step))
    noisy[..., one, two] = off
    noisy[..., two, one] = off
    return np.ldexp(noisy, step)


def _wishart_difference(
    source: NoiseSource, name: str, exact: FloatArray, level: float
) -> FloatArray:
    q = exact.shape[-1]
    parts = exact.size // (q * q)
    normals = source.normal(name, 2 * parts * q * (q + 1), 1.0)
    first, second = normals.reshape(2, *exact.shape[:-2], q, q + 1)
    noise = first @ np.swapaxes(first, -1, -2) - second @ np.swapaxes(second, -1, -2)
    grid = math.floor(math.log2(2.0 / level)) - _GAUSSIAN_BITS
    noisy = np.ldexp(np.rint(np.ldexp(exact + noise / level, -grid)), grid)
    return np.tril(noisy) + np.swapaxes(np.tril(noisy, -1), -1, -2)


def _scale(kind: NoiseKind, sensitivity: float, cost: Cost) -> float:
    if kind == "laplace":
        return laplace_scale(sensitivity, cost.epsilon)
    return gaussian_scale(sensitivity, cost.epsilon, cost.delta)
