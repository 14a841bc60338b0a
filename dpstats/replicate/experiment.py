"""What an experiment is: a grid, samples, methods, and the published conclusions to check."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.replicate.claims import Claim

__all__ = [
    "ARMS",
    "NOT_PRIVATE",
    "Arm",
    "Cell",
    "Experiment",
    "Method",
    "Scored",
    "Trials",
    "cell_key",
    "stream",
]

Cell: TypeAlias = Mapping[str, Any]
Arm: TypeAlias = Literal["as shipped", "made private", "default", "reference"]

ARMS: dict[Arm, str] = {
    "as shipped": "the published code, errors included (NOT PRIVATE)",
    "made private": "the published rules with noise that is large enough",
    "default": "the package at its defaults",
    "reference": "no noise (NOT PRIVATE), or no data",
}
NOT_PRIVATE: tuple[Arm, ...] = ("as shipped", "reference")


class Scored(Protocol):
    """One simulated sample, which knows the truth."""

    def score(self, estimate: Any) -> tuple[float, float]:
        """Return the signed error of an estimate and its size."""


@dataclass(frozen=True, slots=True)
class Method:
    """One estimator in one experiment.

    Attributes
    ----------
    label : str
        Unique in the experiment.
    arm : str
        One of `ARMS`.
    role : str
        Which published method it stands for: claims are about roles.
    run : callable
        Of the sample, the cell and a generator; returns the estimate.
    needs : str or None
        A method of `dp_ate` that must exist.
    where : callable or None
        Whether it runs in a cell.
    reads : bool
        Whether it reads what is protected.
    """

    label: str
    arm: Arm
    role: str
    run: Callable[[Any, Cell, np.random.Generator], Any]
    needs: str | None = None
    where: Callable[[Cell], bool] | None = None
    reads: bool = True

    @property
    def private(self) -> str:
        """Whether its numbers are differentially private, but for the fixed seed, in words."""
        if not self.reads:
            return "reads nothing protected"
        return "NOT PRIVATE" if self.arm in NOT_PRIVATE else "yes"


# errors and sizes by (cell, method), each of shape (trials,)
Trials: TypeAlias = Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One published table or figure.

    Attributes
    ----------
    name, title : str
    shows : str
        What the source shows, with the number of its figure or table as far as its text tells.
    axes : mapping of str to tuple
        The grid: values by name; cells are their product.
    shared : tuple of str
        Axes that fix a sample: cells that agree in them get the same sample in each trial.
    sample : callable
        Of a cell and a generator.
    methods : tuple of Method
    claims : tuple of Claim
    x, panel : str
        Axes of the figure; `panel` may be empty.
    metric : {"rmse", "bias", "mae", "median"}
        What the figure shows.
    average : {"root mean square", "mean"}
        How sizes of errors become the column `rmse`.
    trials_of : str or None
        Another experiment, of which this one shows the same trials.
    tabulate : callable or None
        Of the experiment and its `Trials`: a table of its own.
    notes : tuple of str
        What was reconstructed or assumed.
    """

    name: str
    title: str
    shows: str
    axes: Mapping[str, tuple[Any, ...]]
    shared: tuple[str, ...]
    sample: Callable[[Cell, np.random.Generator], Scored]
    methods: tuple[Method, ...]
    claims: tuple[Claim, ...]
    x: str
    panel: str = ""
    metric: Literal["rmse", "bias", "mae", "median"] = "rmse"
    average: Literal["root mean square", "mean"] = "root mean square"
    trials_of: str | None = None
    tabulate: Callable[[Experiment, Trials], pd.DataFrame] | None = None
    notes: tuple[str, ...] = ()

    def cells(self) -> list[dict[str, Any]]:
        """Return the grid."""
        return [
            dict(zip(self.axes, values, strict=True))
            for values in itertools.product(*self.axes.values())
        ]

    def groups(self) -> list[tuple[str, list[dict[str, Any]]]]:
        """Return the cells by what they share, with the key of each group."""
        found: dict[str, list[dict[str, Any]]] = {}
        for cell in self.cells():
            key = cell_key({axis: cell[axis] for axis in self.shared})
            found.setdefault(key, []).append(cell)
        return list(found.items())

    def available(self) -> tuple[Method, ...]:
        """Return the methods that can run: those of `dp_ate` that exist by now."""
        from dpstats.ate.kernels import KERNELS

        return tuple(m for m in self.methods if m.needs is None or m.needs in KERNELS)

    def skipped(self) -> tuple[Method, ...]:
        """Return the methods that cannot run yet."""
        ready = self.available()
        return tuple(m for m in self.methods if m not in ready)


def cell_key(cell: Cell) -> str:
    """Return a cell as text, the same in every process and version."""
    return ", ".join(f"{axis}={value}" for axis, value in cell.items())


def stream(seed: int, trial: int, *words: str) -> np.random.Generator:
    """Return the generator of one trial, keyed by words: the same however trials are divided.

    Parameters
    ----------
    seed : int
        Of the whole replication.
    trial : int
    *words : str
        Experiment, cell, and method (for noise).

    Examples
    --------
    >>> from dpstats.replicate.experiment import stream
    >>> first = stream(1, 0, "ate-error", "n=500").random()
    >>> first == stream(1, 0, "ate-error", "n=500").random()
    True
    >>> first == stream(1, 1, "ate-error", "n=500").random()
    False
    """
    digest = hashlib.sha256("\x1f".join(words).encode()).digest()[:16]
    entropy = [seed, *np.frombuffer(digest, dtype="<u4").tolist(), trial]
    return np.random.default_rng(np.random.SeedSequence(entropy))
