"""Where randomness comes from: the operating system, or a seed for replication.

Both sources offer the same samplers. Streams are keyed by the name of the release, so two
releases of equal scale never share noise.
"""

from __future__ import annotations

import hashlib
import math
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpstats.errors import DPStatsError
from dpstats.passed import passed

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NoiseSource", "SeededSource", "SystemSource", "noise_source"]

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
Ball: TypeAlias = Literal["l2", "linf"]


class NoiseSource(Protocol):
    """What a mechanism needs of a source of randomness."""

    seeded: bool

    def laplace(self, name: str, values: IntArray, scale: float) -> IntArray:
        """Add discrete Laplace noise of `scale` (in lattice steps) to integers."""

    def gaussian(self, name: str, values: IntArray, scale: float) -> IntArray:
        """Add discrete Gaussian noise of standard deviation `scale` to integers."""

    def knorm(self, name: str, dimension: int, scale: float, ball: Ball) -> FloatArray:
        """Draw a vector with density proportional to exp(-norm / scale)."""

    def normal(self, name: str, dimension: int, scale: float) -> FloatArray:
        """Draw independent normals (the noise inside a perturbed objective)."""

    def permutation(self, name: str, n: int) -> IntArray:
        """Draw an order of n positions, for partitions that know nothing of the data."""


class SystemSource:
    """Cryptographic operating-system entropy; the default, and the only private source.

    Notes
    -----
    Laplace and Gaussian noise is drawn by OpenDP on the integers, so the released number carries no
    floating-point artefact: the sampler is exact. Vectors of the K-norm mechanism are made here
    from operating-system bits by exact transformations evaluated in double precision; they carry
    no floating-point proof.
    """

    seeded = False

    def laplace(self, name: str, values: IntArray, scale: float) -> IntArray:
        """Add discrete Laplace noise of `scale` (in lattice steps) to integers."""
        return _opendp_noise("laplace", values, scale)

    def gaussian(self, name: str, values: IntArray, scale: float) -> IntArray:
        """Add discrete Gaussian noise of standard deviation `scale` to integers."""
        return _opendp_noise("gaussian", values, scale)

    def knorm(self, name: str, dimension: int, scale: float, ball: Ball) -> FloatArray:
        """Draw a vector with density proportional to exp(-norm / scale)."""
        if ball == "linf":
            radius = _exponentials(dimension + 1).sum()
            return np.asarray(scale * radius * (2.0 * _uniforms(dimension) - 1.0))
        radius = _exponentials(dimension).sum()
        return np.asarray(scale * radius * _unit(_normals(dimension)))

    def normal(self, name: str, dimension: int, scale: float) -> FloatArray:
        """Draw independent normals from operating-system bits."""
        return scale * _normals(dimension)

    def permutation(self, name: str, n: int) -> IntArray:
        """Draw an order of n positions. It hides nothing, so an ordinary generator will do."""
        return np.random.default_rng(int.from_bytes(os.urandom(16), "little")).permutation(n)


class SeededSource:
    """Reproducible noise for simulations. A result drawn from it is not private.

    Parameters
    ----------
    rng : int, sequence of int, SeedSequence, BitGenerator or Generator
        As `numpy.random.default_rng` takes it. A Generator is advanced by four draws, so two
        calls with the same Generator differ.
    """

    seeded = True

    def __init__(
        self,
        rng: int
        | Sequence[int]
        | np.random.SeedSequence
        | np.random.BitGenerator
        | np.random.Generator,
    ) -> None:
        entropy = np.random.default_rng(rng).integers(2**63, size=4)
        self._entropy = [int(word) for word in entropy]
        self._uses: dict[str, int] = {}

    def _stream(self, name: str) -> np.random.Generator:
        use = self._uses[name] = self._uses.get(name, -1) + 1
        digest = hashlib.sha256(name.encode()).digest()
        words = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
        return np.random.default_rng(np.random.SeedSequence(self._entropy, spawn_key=(*words, use)))

    def laplace(self, name: str, values: IntArray, scale: float) -> IntArray:
        """Add discrete Laplace noise of `scale` (in lattice steps) to integers."""
        stream = self._stream(name)
        # the floor of an exponential is geometric; two of them differ by a discrete Laplace draw
        up = np.floor(stream.exponential(scale, values.shape))
        down = np.floor(stream.exponential(scale, values.shape))
        return values + (up - down).astype(np.int64)

    def gaussian(self, name: str, values: IntArray, scale: float) -> IntArray:
        """Add normal noise of standard deviation `scale`, rounded to the lattice, to integers."""
        noise = self._stream(name).normal(scale=scale, size=values.shape)
        return values + np.rint(noise).astype(np.int64)

    def knorm(self, name: str, dimension: int, scale: float, ball: Ball) -> FloatArray:
        """Draw a vector with density proportional to exp(-norm / scale)."""
        stream = self._stream(name)
        if ball == "linf":
            radius = stream.gamma(dimension + 1, scale)
            return np.asarray(radius * stream.uniform(-1.0, 1.0, dimension))
        radius = stream.gamma(dimension, scale)
        return np.asarray(radius * _unit(stream.standard_normal(dimension)))

    def normal(self, name: str, dimension: int, scale: float) -> FloatArray:
        """Draw independent normals."""
        return self._stream(name).normal(scale=scale, size=dimension)

    def permutation(self, name: str, n: int) -> IntArray:
        """Draw an order of n positions."""
        return self._stream(name).permutation(n)


def noise_source(rng: Any = None) -> NoiseSource:
    """Return the source for a call: the operating system, or a seeded one where `rng` is given.

    Parameters
    ----------
    rng : None, int, SeedSequence, BitGenerator or Generator
        None is the only choice that protects anybody.

    Raises
    ------
    DPStatsError
        If `rng` is none of these.
    """
    if rng is None:
        return SystemSource()
    if isinstance(rng, bool | np.bool_ | str | float):
        raise DPStatsError(
            "`rng` must be None, an integer seed or a numpy.random.Generator; "
            f"got {type(rng).__name__}"
        )
    with suppress(TypeError, ValueError):
        return SeededSource(rng)
    # numpy's error writes out what it got, so it is no context of this one
    raise DPStatsError(
        f"`rng` must be None, an integer seed or a numpy.random.Generator; got {passed(rng)}"
    )


def _opendp_noise(kind: Literal["laplace", "gaussian"], values: IntArray, scale: float) -> IntArray:
    import opendp.domains as domains
    import opendp.measurements as measurements
    import opendp.metrics as metrics
    from opendp.mod import enable_features

    enable_features("contrib")
    space = domains.vector_domain(domains.atom_domain(T="i64"), size=values.size)
    if kind == "laplace":
        mechanism = measurements.make_laplace(space, metrics.l1_distance(T="i64"), scale=scale)
    else:
        mechanism = measurements.make_gaussian(space, metrics.l2_distance(T=float), scale=scale)
    noisy = mechanism([int(value) for value in values.ravel()])
    return np.array(noisy, dtype=np.int64).reshape(values.shape)


def _uniforms(size: int) -> FloatArray:
    # 64 bits and the half step keep zero out and the far tail in
    bits = np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
    return (bits.astype(np.float64) + 0.5) * 2.0**-64


def _exponentials(size: int) -> FloatArray:
    return np.asarray(-np.log(_uniforms(size)))


def _normals(size: int) -> FloatArray:
    pairs = (size + 1) // 2
    radius = np.sqrt(2.0 * _exponentials(pairs))
    angle = 2.0 * math.pi * _uniforms(pairs)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size]


def _unit(vector: FloatArray) -> FloatArray:
    length = float(np.linalg.norm(vector))
    if length == 0.0:
        # only a draw of exact zeros lands here; any fixed direction will do
        vector, length = np.eye(1, vector.size)[0], 1.0
    return vector / length
