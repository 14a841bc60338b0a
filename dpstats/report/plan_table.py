"""Plans as a table to read: a DataFrame that prints with words in place of names of columns."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import pandas as pd

from dpstats.report._layout import WIDEST, pad, wrap
from dpstats.report._numbers import number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["PlanTable", "plan_table"]

_LABEL = 40
_GAP = 2
_NOISE = "sd_"


class PlanTable(pd.DataFrame):
    """A DataFrame that prints as a table to read; what is taken out of it is an ordinary frame.

    Returned by `dpstats.plan_ate` and `dpstats.plan_synth`, one row a method, and by
    `dpstats.plan_curve`, one row a budget and method. ``print(plan)``, a notebook and the command
    line show `as_text`; ``plan.T`` or ``plan[["noise_sd"]]`` print as pandas does.
    """

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def as_text(self) -> str:
        r"""Return the table as text, at most 100 characters wide.

        Examples
        --------
        >>> import dpstats as dp
        >>> plan = dp.plan_ate(10_000, 1.0, (0, 100), method="diff_means")
        >>> print("\n".join(plan.as_text().splitlines()[:5]))
        Plan of dp_ate: n = 10000, eps = 1, outcome in [0, 100]
        ====================================================
                                                  diff_means
        ----------------------------------------------------
        Std. error of privacy noise                  0.05261
        """
        about = self.attrs
        if not {"title", "labels", "notes"} <= set(about):
            return str(pd.DataFrame(self))
        by_method = self.index.name == "method"
        lines, width = _transposed(self) if by_method else _upright(self)
        title = wrap(about["title"], WIDEST, indent=2)
        notes = [line for note in about["notes"] for line in wrap(note, WIDEST - 10, indent=2)]
        if by_method and "advice" in self:
            said = [f"{name}: {text}" for name, text in self["advice"].items()]
            notes = [line for text in said for line in wrap(text, WIDEST - 10, indent=2)] + notes
        return "\n".join([*title, "=" * width, *lines, "=" * width, *notes])

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return self.as_text()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.as_text())}</pre>"


def plan_table(
    frame: pd.DataFrame, title: str, labels: Mapping[str, str], notes: Sequence[str]
) -> PlanTable:
    """Make a frame one that prints as a table to read.

    Parameters
    ----------
    frame : DataFrame
        Indexed by method, or with one row a budget.
    title : str
    labels : dict of str to str
        What columns are called; those without a label are not shown, but for noise scales.
    notes : sequence of str
        Stand below.
    """
    table = PlanTable(frame)
    table.attrs = {"title": title, "labels": dict(labels), "notes": list(notes)}
    return table


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value != value else number(value)


def _transposed(plan: PlanTable) -> tuple[list[str], int]:
    """Return one line a quantity, one column a method."""
    labels = plan.attrs["labels"]
    main = [(label, name) for name, label in labels.items() if name in plan]
    scales = [(f"  {n[len(_NOISE) :]}", n) for n in plan.columns if str(n).startswith(_NOISE)]
    # a quantity that none of the methods has says nothing
    main, scales = ([row for row in rows if plan[row[1]].notna().any()] for rows in (main, scales))
    heads = [str(name) for name in plan.index]
    cells = {name: [_cell(value) for value in plan[name]] for _, name in main + scales}
    columns = list(zip(*cells.values(), strict=True))
    widths = [
        max(len(head), *map(len, column)) for head, column in zip(heads, columns, strict=True)
    ]
    width = _LABEL + sum(_GAP + wide for wide in widths)

    def line(label: str, texts: Sequence[str]) -> str:
        parts = [pad(text, _GAP + wide, "r") for text, wide in zip(texts, widths, strict=True)]
        return (pad(label, _LABEL, "l") + "".join(parts)).rstrip()

    lines = [line("", heads), "-" * width, *(line(label, cells[name]) for label, name in main)]
    if scales:
        lines += ["-" * width, "Noise sd of one released number"]
        lines += [line(label, cells[name]) for label, name in scales]
    return lines, width


def _upright(plan: PlanTable) -> tuple[list[str], int]:
    """Return one line a row."""
    labels = plan.attrs["labels"]
    names = [name for name in labels if name in plan and plan[name].notna().any()]
    columns = [[labels[name], *(_cell(value) for value in plan[name])] for name in names]
    widths = [max(map(len, column)) for column in columns]
    rows = [
        (" " * _GAP).join(
            pad(text, wide, "l" if name == "method" else "r")
            for name, text, wide in zip(names, row, widths, strict=True)
        )
        for row in zip(*columns, strict=True)
    ]
    width = sum(widths) + _GAP * (len(widths) - 1)
    return [rows[0], "-" * width, *(row.rstrip() for row in rows[1:])], width
