"""A data set with what is publicly known about it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["Bounds", "Dataset"]

Bounds = dict[str, tuple[float, float]]

_PREVIEW_ROWS = 5


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Dataset:
    """A frame of public or simulated data, and the public facts an estimator may use.

    Every load and every simulation makes a new object with a frame of its own, so changing
    ``data`` changes nothing else. The repr shows rows: this class is for public and simulated data
    only.

    Attributes
    ----------
    name : str
        Short name, such as ``"nsw"``.
    data : pandas.DataFrame
        The rows; a fresh copy.
    bounds : dict of str to (float, float)
        Public bounds by column, for ``dp_ate(..., bounds=)``; for a panel
        ``dp_synth(..., bounds=dataset.bounds[dataset.outcome])``. They were chosen without the
        data, so some rows may lie outside, and these are clipped.
    DESCR : str
        What the data are: people, units, columns, sources, licence, and why these bounds.
    source : str
        Where the rows come from: a distribution and its file, or the simulated process.
    levels : dict of str to list
        Public levels of the categorical columns, for ``dp_ate(..., levels=)``.
    truth : dict of str to float, or None
        True effects by estimand (``"ATE"``, ``"ATT"``, ``"ATC"``, ``"ATO"``) of a simulated
        process; None for real data.
    published_bounds : dict of str to (float, float), or None
        The bounds used in the publication that is replicated, where they differ.
    formula : str, or None
        The usual formula for ``dp_ate``.
    treat : str, or None
        The treatment column for ``dp_ate``.
    propensity : ndarray of shape (n,), or None
        True P(W = 1 | x) of each simulated row. It is no column of ``data`` so that it is not used
        by mistake: ``data.assign(e=dataset.propensity)`` makes it one.
    unit, time, outcome : str, or None
        Columns of a panel, for ``dp_synth``.
    treated : hashable, or None
        Label of the treated unit of a panel.
    T0 : int, or None
        Label of the last period before the intervention.
    counterfactual : pandas.Series, or None
        Simulated panels: the realised untreated outcome of the treated unit, indexed by time.
    signal : pandas.Series, or None
        Simulated panels: the same without its own noise.

    Examples
    --------
    >>> from dpstats import simulate
    >>> simulate.ate("well_specified", 500, rng=1)
    Dataset 'well_specified': 500 rows x 6 columns
      columns   y, w, x1, x2, x3, x4
      formula   y ~ x1 + x2 + x3 + x4, treatment w
      truth     ATE 2, ATT 2, ATC 2, ATO 2
      source    dpstats.simulate.ate('well_specified', 500, tau=2.0)
      .bounds holds public bounds, .DESCR the description
    """

    name: str
    data: pd.DataFrame
    bounds: Bounds
    DESCR: str
    source: str
    levels: dict[str, list[int | str]] = field(default_factory=dict)
    truth: dict[str, float] | None = None
    published_bounds: Bounds | None = None
    formula: str | None = None
    treat: str | None = None
    propensity: npt.NDArray[np.float64] | None = None
    unit: str | None = None
    time: str | None = None
    outcome: str | None = None
    treated: Hashable = None
    T0: int | None = None
    counterfactual: pd.Series[Any] | None = None
    signal: pd.Series[Any] | None = None

    def _title(self) -> str:
        rows, columns = self.data.shape
        return f"Dataset {self.name!r}: {rows} rows x {columns} columns"

    def _facts(self) -> list[tuple[str, str]]:
        """Label and text of every fact that is set, in the order in which they are shown."""
        shown = [str(column) for column in self.data.columns[:12]]
        hidden = self.data.shape[1] - len(shown)
        facts = [("columns", ", ".join(shown) + (f", ... {hidden} more" if hidden else ""))]
        if self.formula is not None:
            facts.append(("formula", f"{self.formula}, treatment {self.treat}"))
        if self.unit is not None:
            facts.append(
                (
                    "panel",
                    f"{self.data[self.unit].nunique()} {self.unit}s x "
                    f"{self.data[self.time].nunique()} {self.time}s, outcome {self.outcome}",
                )
            )
            facts.append(("treated", f"{self.treated} after {self.time} {self.T0}"))
        if self.truth is not None:
            facts.append(("truth", ", ".join(f"{k} {v:.6g}" for k, v in self.truth.items())))
        facts.append(("source", self.source))
        return facts

    def __repr__(self) -> str:
        lines = [self._title()]
        lines += [f"  {label:<9} {text}" for label, text in self._facts()]
        lines.append("  .bounds holds public bounds, .DESCR the description")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Show the facts, the public bounds and levels, and the first rows."""
        facts = "".join(
            f"<tr><th style='text-align:left'>{escape(label)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for label, text in self._facts()
        )
        public = "".join(
            f"<tr><td style='text-align:left'>{escape(column)}</td>"
            f"<td>{low:g}</td><td>{high:g}</td></tr>"
            for column, (low, high) in self.bounds.items()
        )
        public += "".join(
            f"<tr><td style='text-align:left'>{escape(column)}</td>"
            f"<td colspan='2'>levels {escape(', '.join(map(str, levels)))}</td></tr>"
            for column, levels in self.levels.items()
        )
        preview = self.data.head(_PREVIEW_ROWS).to_html(index=False, border=0, max_cols=12)
        return (
            f"<div><strong>{escape(self._title())}</strong><table>{facts}</table>"
            "<details><summary>Public bounds and levels</summary><table><thead><tr>"
            "<th style='text-align:left'>column</th><th>lower</th><th>upper</th></tr></thead>"
            f"<tbody>{public}</tbody></table></details>"
            f"<details><summary>Description</summary><pre>{escape(self.DESCR)}</pre></details>"
            f"{preview}</div>"
        )
