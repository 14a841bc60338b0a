"""A finished replication: its table, figure and conclusions, and its files."""

from __future__ import annotations

import os
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from dpstats.errors import DPStatsError
from dpstats.replicate.claims import evaluate
from dpstats.replicate.experiment import ARMS, Experiment

if TYPE_CHECKING:
    from os import PathLike

    from matplotlib.figure import Figure

__all__ = ["Replication", "read"]

_HIDDEN = ("role", "mae_se", "bias_se", "median", "first", "second")


@dataclass(frozen=True, slots=True, repr=False)
class Replication:
    """One published table or figure, redone.

    Attributes
    ----------
    experiment : Experiment
        What was run.
    table : DataFrame
        One row a cell and method, see `dpstats.replicate.tables`.
    metadata : dict of str to str
        Trials, seed, versions, machine, processor seconds.
    skipped : tuple of str
        Methods that do not exist yet and were left out.
    failures : dict of str to str
        Methods that gave no estimate somewhere, with the first reason.
    """

    experiment: Experiment
    table: pd.DataFrame
    metadata: dict[str, str]
    skipped: tuple[str, ...] = ()
    failures: dict[str, str] | None = None

    def conclusion(self) -> pd.DataFrame:
        """Ask the published conclusions of the table.

        Returns
        -------
        DataFrame
            One row a claim and arm: `claim`, `origin` (the "source", or a question asked "here"),
            `arm`, `verdict` ("holds", "fails", "not run") and `evidence`, in numbers of the table.
        """
        return evaluate(self.experiment.claims, self.table, tuple(self.experiment.axes))

    def plot(self) -> tuple[Figure, Any]:
        """Draw the figure.

        Returns
        -------
        Figure, and Axes or, with several panels, an array of Axes

        Raises
        ------
        ImportError
            If matplotlib is missing.
        """
        from dpstats.replicate.figures import draw

        return draw(self.experiment, self.table)

    def save(self, folder: str | PathLike[str]) -> list[Path]:
        """Write NAME.csv, and NAME.png and NAME.pdf where matplotlib is installed.

        Parameters
        ----------
        folder : path

        Returns
        -------
        list of Path
        """
        base = Path(folder)
        base.mkdir(parents=True, exist_ok=True)
        paths = [base / f"{self.experiment.name}.csv"]
        half_written = paths[0].with_suffix(".csv.part")
        with half_written.open("w", encoding="utf-8", newline="") as file:
            facts = {"experiment": self.experiment.name, **self.metadata}
            facts["skipped"] = "; ".join(self.skipped)
            file.writelines(f"# {name}: {value}\n" for name, value in facts.items())
            self.table.to_csv(file, index=False, float_format="%.6g", lineterminator="\n")
        os.replace(half_written, paths[0])
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            return paths
        fig, _ = self.plot()
        for suffix in (".png", ".pdf"):
            paths.append(base / f"{self.experiment.name}{suffix}")
            fig.savefig(paths[-1])
        plt.close(fig)
        return paths

    def __repr__(self) -> str:
        facts = f"trials={self.metadata.get('trials')}, rows={len(self.table)}"
        return f"Replication({self.experiment.name!r}, {facts})"

    def __str__(self) -> str:
        from tabulate import tabulate

        shown = self.table.drop(columns=[c for c in _HIDDEN if c in self.table])
        head = [self.experiment.title, *textwrap.wrap(self.experiment.shows, 100)]
        lines = [*head, "", tabulate(shown, "keys", showindex=False, floatfmt=".4g"), ""]
        arms = dict.fromkeys(self.table["arm"])
        lines += [f"{arm}: {ARMS[arm]}" for arm in arms]
        lines += [f"note: {note}" for note in self.experiment.notes]
        lines += [f"left out, not in this version of dpstats: {name}" for name in self.skipped]
        for name, reason in (self.failures or {}).items():
            lines.append(f"no estimate somewhere: {name}, first at {reason}")
        lines += ["", "Published conclusions"]
        for claim, rows in self.conclusion().groupby("claim", sort=False):
            origin = "" if rows["origin"].iloc[0] == "source" else " (not asked in the source)"
            lines += textwrap.wrap(f"{claim}{origin}", 100)
            lines += [f"  {row.arm:13} {row.verdict:8} {row.evidence}" for row in rows.itertuples()]
        facts = ", ".join(f"{name} {value}" for name, value in self.metadata.items())
        return "\n".join([*lines, "", *textwrap.wrap(facts, 100)])


def read(path: str | PathLike[str]) -> Replication:
    """Read a table that `run` or `Replication.save` wrote.

    Parameters
    ----------
    path : path
        NAME.csv.

    Returns
    -------
    Replication

    Raises
    ------
    DPStatsError
        If it is no such file.
    """
    from dpstats.replicate.registry import find

    facts: dict[str, str] = {}
    try:
        with Path(path).open(encoding="utf-8") as file:
            for line in file:
                if not line.startswith("# "):
                    break
                name, _, value = line[2:].rstrip("\n").partition(": ")
                facts[name] = value
    except (OSError, UnicodeDecodeError) as error:
        raise DPStatsError(f"`path` cannot be read: {error}") from error
    if "experiment" not in facts:
        raise DPStatsError(f"`path` must be a table written by dpstats.replicate; got {path!s}")
    experiment = find(facts.pop("experiment"))
    skipped = tuple(filter(None, facts.pop("skipped", "").split("; ")))
    table = pd.read_csv(path, comment="#")
    # a column of 1.0 and 3.0 would come back as integers
    for axis, values in experiment.axes.items():
        table[axis] = table[axis].astype(type(values[0]))
    return Replication(experiment, table, facts, skipped)
