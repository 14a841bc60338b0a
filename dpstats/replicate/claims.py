"""Published conclusions as questions that a table answers.

A claim is asked of each arm: does it hold for the published code, for its rules with enough noise,
and for the package's defaults? The words of an answer are made from the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from dpstats.replicate.experiment import Arm

__all__ = [
    "Claim",
    "View",
    "above",
    "axis_lower",
    "below",
    "evaluate",
    "falls",
    "higher",
    "lower",
    "near",
    "near_best",
    "reduction",
    "significant",
    "slope",
    "varies",
]

Where: TypeAlias = Callable[[Mapping[str, Any]], bool]
Answer: TypeAlias = tuple[bool, str] | None
_ASKED: tuple[Arm, ...] = ("as shipped", "made private", "default")
# two standard errors of a difference apart counts as different
_Z = 2.0


@dataclass(frozen=True, slots=True)
class Claim:
    """One conclusion.

    Attributes
    ----------
    text : str
    check : callable
        Of a `View`: whether it holds, and the evidence in words; None where methods are missing.
    origin : {"source", "here"}
        Whether the source says so, or the question is asked here.
    arms : tuple of str
        Whom it is asked of.
    """

    text: str
    check: Callable[[View], Answer]
    origin: Literal["source", "here"] = "source"
    arms: tuple[Arm, ...] = _ASKED


@dataclass(frozen=True, slots=True)
class View:
    """What one arm shows, beside the references.

    Attributes
    ----------
    table : DataFrame
    arm : str
    axes : tuple of str
    """

    table: pd.DataFrame
    arm: Arm
    axes: tuple[str, ...]

    def role(self, role: str, where: Where | None = None) -> pd.DataFrame | None:
        """Return the rows of a role, indexed by cell; None where there are none.

        The arm's own if it has any, else the references', else those of a private baseline, which
        only the defaults have.
        """
        rows = self.table[self.table["role"] == role]
        arms = list(rows["arm"].unique())
        chosen = [arm for arm in (self.arm, "reference") if arm in arms]
        if not chosen and arms == ["default"]:
            chosen = arms
        if not chosen:
            return None
        rows = rows[rows["arm"] == chosen[0]]
        if where is not None:
            cells = rows[list(self.axes)].itertuples(index=False, name=None)
            rows = rows[[where(dict(zip(self.axes, cell, strict=True))) for cell in cells]]
        return None if rows.empty else rows.set_index(list(self.axes))

    def pair(
        self, first: str, second: str, where: Where | None
    ) -> tuple[pd.DataFrame, pd.DataFrame] | None:
        """Return the rows of two roles in the cells they share.

        The first role must be the arm's own: otherwise the question is not about this arm.
        """
        own = self.table[(self.table["role"] == first) & (self.table["arm"] == self.arm)]
        one, two = self.role(first, where), self.role(second, where)
        if own.empty or one is None or two is None:
            return None
        cells = one.index.intersection(two.index)
        return (one.loc[cells], two.loc[cells]) if len(cells) else None


def lower(
    first: str,
    second: str,
    *,
    where: Where | None = None,
    column: str = "rmse",
    factor: float = 1.0,
    share: float = 1.0,
) -> Callable[[View], Answer]:
    """Ask whether `first` errs less than `factor` times `second` in a `share` of the cells.

    A cell where they are within two standard errors of each other does not speak against it, but
    in half of the cells `first` must be lower.
    """

    def check(view: View) -> Answer:
        pair = view.pair(first, second, where)
        if pair is None:
            return None
        one, two = (rows[column].abs().to_numpy(dtype=float) for rows in pair)
        errors = [rows[f"{column}_se"].to_numpy(dtype=float) for rows in pair]
        two = factor * two
        slack = _Z * np.hypot(errors[0], factor * errors[1])
        against = int(np.sum(one > two + np.nan_to_num(slack)))
        wins, total = int(np.sum(one < two)), len(one)
        ratio = float(np.median(one / np.maximum(two / factor, 1e-300)))
        words = f"{first} lower in {wins} of {total} cells" if factor == 1.0 else ""
        words = words or f"{first} below {factor:g} x {second} in {wins} of {total} cells"
        words += f", clearly higher in {against}; median ratio to {second} {ratio:.2g}"
        held = against <= (1.0 - share) * total + 1e-9 and 2 * wins >= total
        return held, words

    return check


def higher(first: str, second: str, *, where: Where | None = None) -> Callable[[View], Answer]:
    """Ask whether `first` errs more than `second` in every cell, two standard errors allowed."""

    def check(view: View) -> Answer:
        pair = view.pair(first, second, where)
        if pair is None:
            return None
        one, two = (rows["rmse"].to_numpy(dtype=float) for rows in pair)
        errors = np.hypot(*(np.nan_to_num(rows["rmse_se"].to_numpy(dtype=float)) for rows in pair))
        against, total = int(np.sum(one + _Z * errors < two)), len(one)
        words = f"{first} higher in {int(np.sum(one > two))} of {total} cells"
        return against == 0, f"{words}; median ratio to {second} {np.median(one / two):.2g}"

    return check


def near(
    role: str, value: float, *, tolerance: float, where: Where | None = None
) -> Callable[[View], Answer]:
    """Ask whether the error is a published number, to a relative tolerance or two s.e."""

    def check(view: View) -> Answer:
        rows = view.role(role, where)
        if rows is None:
            return None
        found = float(rows["rmse"].mean())
        slack = max(tolerance * value, _Z * float(rows["rmse_se"].fillna(0.0).max()))
        return abs(found - value) <= slack, f"published {value:g}, here {found:.3g}"

    return check


def below(
    role: str, value: float, *, where: Where | None = None, column: str = "rmse"
) -> Callable[[View], Answer]:
    """Ask whether all errors are below a number."""
    return _compared(role, value, where, column, above_it=False)


def above(
    role: str, value: float, *, where: Where | None = None, column: str = "rmse"
) -> Callable[[View], Answer]:
    """Ask whether all errors are above a number."""
    return _compared(role, value, where, column, above_it=True)


def _compared(
    role: str, value: float, where: Where | None, column: str, *, above_it: bool
) -> Callable[[View], Answer]:
    def check(view: View) -> Answer:
        own = view.table[(view.table["role"] == role) & (view.table["arm"] == view.arm)]
        rows = view.role(role, where)
        if rows is None or own.empty:
            return None
        found = rows[column].abs()
        worst = float(found.min() if above_it else found.max())
        word = "smallest" if above_it else "largest"
        return (worst >= value if above_it else worst <= value), f"{word} {worst:.3g}"

    return check


def reduction(
    first: str, second: str, percent: float, *, tolerance: float = 10.0, where: Where | None = None
) -> Callable[[View], Answer]:
    """Ask whether `first` errs that many per cent less than `second`, on average over cells."""

    def check(view: View) -> Answer:
        pair = view.pair(first, second, where)
        if pair is None:
            return None
        one, two = (rows["rmse"].to_numpy(dtype=float) for rows in pair)
        found = 100.0 * float(np.mean(1.0 - one / two))
        return found >= percent - tolerance, f"published {percent:g} %, here {found:.0f} %"

    return check


def near_best(
    role: str, axis: str, values: Iterable[Any], *, factor: float
) -> Callable[[View], Answer]:
    """Ask whether one of the values is within a factor of the best of its axis, everywhere."""
    wanted = tuple(values)

    def check(view: View) -> Answer:
        wide = _by_axis(view, role, axis)
        if wide is None or not set(wanted) <= set(wide.columns):
            return None
        ratio = wide[list(wanted)].min(axis=1) / wide.min(axis=1)
        best = wide.idxmin(axis=1)
        chosen = ", ".join(map(str, sorted(set(best), key=str)))
        words = f"at most {ratio.max():.2f} x the best (median {ratio.median():.2f})"
        return bool(ratio.max() <= factor), f"{words}; best by cell: {chosen}"

    return check


def axis_lower(
    role: str, axis: str, first: Any, second: Any, *, where: Where | None = None
) -> Callable[[View], Answer]:
    """Ask whether one value of an axis gives lower errors than another, two s.e. allowed."""

    def check(view: View) -> Answer:
        own = view.table[(view.table["role"] == role) & (view.table["arm"] == view.arm)]
        rows = view.role(role, where)
        if own.empty or rows is None:
            return None
        one, two = (rows.xs(value, level=axis) for value in (first, second))
        slack = _Z * np.hypot(one["rmse_se"].fillna(0.0), two["rmse_se"].fillna(0.0))
        words = f"{one['rmse'].median():.3g} at {axis} = {first}"
        words += f", {two['rmse'].median():.3g} at {second}"
        return bool((one["rmse"] <= two["rmse"] + slack).all()), words

    return check


def varies(role: str, axis: str, *, factor: float) -> Callable[[View], Answer]:
    """Ask whether no single value of an axis is within a factor of the best everywhere."""

    def check(view: View) -> Answer:
        wide = _by_axis(view, role, axis)
        if wide is None:
            return None
        worst = (wide.div(wide.min(axis=1), axis=0)).max()
        least = worst.idxmin()
        return bool(worst.min() > factor), (
            f"the safest, {least}, is up to {worst.min():.2f} x worse than the best of a cell"
        )

    return check


def falls(role: str, axis: str) -> Callable[[View], Answer]:
    """Ask whether the error falls along an axis, two standard errors allowed."""

    def check(view: View) -> Answer:
        wide, errors = _by_axis(view, role, axis), _by_axis(view, role, axis, "rmse_se")
        if wide is None or errors is None:
            return None
        rise = wide.diff(axis=1).iloc[:, 1:]
        squares = errors.fillna(0.0) ** 2
        slack = _Z * np.sqrt(squares.iloc[:, 1:].to_numpy() + squares.iloc[:, :-1].to_numpy())
        against = int(np.sum(rise.to_numpy() > slack))
        first, last = wide.iloc[:, 0].median(), wide.iloc[:, -1].median()
        return against == 0, (
            f"from {first:.3g} at {axis} = {wide.columns[0]} to {last:.3g} at {wide.columns[-1]} "
            f"(medians over cells), {against} of {rise.size} steps up"
        )

    return check


def slope(
    role: str, axis: str, *, low: float, high: float, where: Where | None = None
) -> Callable[[View], Answer]:
    """Ask whether log error against log axis has a slope in an interval."""

    def check(view: View) -> Answer:
        own = view.table[(view.table["role"] == role) & (view.table["arm"] == view.arm)]
        rows = view.role(role, where)
        if rows is None or own.empty:
            return None
        values = np.log(rows.index.get_level_values(axis).to_numpy(dtype=float))
        errors = np.log(rows["rmse"].to_numpy(dtype=float))
        if len(set(values)) < 2:
            return None
        found = float(np.polyfit(values, errors, 1)[0])
        return low <= found <= high, f"error ~ {axis}^{found:.2f}"

    return check


def significant(level: float) -> Callable[[View], Answer]:
    """Ask whether every p-value of the arm is below a level."""

    def check(view: View) -> Answer:
        rows = view.table[view.table["arm"] == view.arm]
        if rows.empty:
            return None
        beyond = int((rows["p_value"] > level).sum())
        largest = float(rows["p_value"].max())
        return beyond == 0, (
            f"{beyond} of {len(rows)} p-values above {level:g}, the largest {largest:.2g}"
        )

    return check


def evaluate(claims: Iterable[Claim], table: pd.DataFrame, axes: tuple[str, ...]) -> pd.DataFrame:
    """Return one row a claim and arm: `claim, origin, arm, verdict, evidence`."""
    rows = []
    for claim in claims:
        for arm in claim.arms:
            answer = claim.check(View(table, arm, axes))
            if answer is None:
                if not (table["arm"] == arm).any():
                    continue
                verdict, evidence = "not run", "a method it needs is missing"
            else:
                verdict, evidence = ("holds" if answer[0] else "fails"), answer[1]
            rows.append((claim.text, claim.origin, arm, verdict, evidence))
    return pd.DataFrame(rows, columns=["claim", "origin", "arm", "verdict", "evidence"])


def _by_axis(view: View, role: str, axis: str, column: str = "rmse") -> pd.DataFrame | None:
    """Return errors with one column a value of an axis, one row a cell of the rest."""
    own = view.table[(view.table["role"] == role) & (view.table["arm"] == view.arm)]
    if own.empty or own[axis].nunique() < 2:
        return None
    rest = [name for name in view.axes if name != axis]
    wide: pd.DataFrame = own.assign(all=0).pivot_table(
        index=rest or "all", columns=axis, values=column, sort=False, dropna=False
    )
    return wide if math.prod(wide.shape) else None
