"""Expressions that know their values and enclose them, and the operations they consist of."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from dpstats.errors import FormulaError
from dpstats.formula import intervals
from dpstats.formula.intervals import Interval, UndefinedError

__all__ = ["ColumnKind", "Contrast", "Expression", "Kind", "Node", "Operation"]

Kind = Literal["numeric", "bool", "categorical"]


@dataclass(frozen=True, slots=True)
class ColumnKind:
    """Public schema of one column of the frame.

    Parameters
    ----------
    kind : {"numeric", "bool", "categorical"}
        What the column holds.
    levels : tuple
        Declared public levels, in order; for a categorical column only.

    Examples
    --------
    >>> ColumnKind("categorical", ("a", "b")).levels
    ('a', 'b')
    """

    kind: Kind
    levels: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """One allowed operation: its values, the enclosure of its values, and what it accepts.

    Parameters
    ----------
    evaluate : callable
        Row-wise numpy function of arrays or scalars.
    enclose : callable
        The same function of intervals; raises `UndefinedError`.
    total : bool
        Whether it is defined for all numbers (overflow apart).
    result : {"numeric", "bool"} or None
        Kind of the result; None where it is numeric unless every operand is bool.
    """

    evaluate: Callable[..., Any]
    enclose: Callable[..., Interval]
    total: bool
    result: Literal["numeric", "bool"] | None = "numeric"


@dataclass(frozen=True, slots=True)
class Node:
    """An expression of one factor, with the kind of its values.

    Exactly one of `operation`, `column` and `value` is set.

    Parameters
    ----------
    kind : {"numeric", "bool", "categorical"}
        What the expression yields: floats, True and False, or codes of levels.
    text : str
        The expression as written.
    levels : tuple
        Levels of a categorical expression.
    operation : Operation or None
        What is done to `args`.
    args : tuple of Node
        Operands.
    column : str or None
        Name of the column that is read.
    value : float or None
        A constant.
    """

    kind: Kind
    text: str
    levels: tuple[Any, ...] = ()
    operation: Operation | None = None
    args: tuple[Node, ...] = ()
    column: str | None = None
    value: float | None = None

    def leaves(self) -> Iterator[Node]:
        """Yield the columns that are read, in order, with repetitions."""
        if self.column is not None:
            yield self
        for arg in self.args:
            yield from arg.leaves()

    def combine(self, args: list[Interval]) -> Interval:
        """Return the enclosure of this node, given those of its operands."""
        operation = cast("Operation", self.operation)
        try:
            return operation.enclose(*args)
        except UndefinedError as error:
            where = ", ".join(
                f"`{arg.text}` in [{lo:g}, {hi:g}]"
                for arg, (lo, hi) in zip(self.args, args, strict=True)
                if arg.value is None
            )
            reason = f"{error} for {where}" if where else str(error)
        raise FormulaError(
            "`formula` must be defined and finite for every value inside the bounds; "
            f"`{self.text}` is not: {reason}. Narrow `bounds`, or use np.clip or np.where "
            "with arguments that are defined everywhere."
        )

    def enclose(self, columns: Mapping[str, Interval]) -> Interval:
        """Return an interval that holds every value, given those of the columns."""
        if self.value is not None:
            return intervals.interval(self.value, self.value)
        if self.column is not None:
            return (0.0, 0.0) if self.kind == "categorical" else columns[self.column]
        return self.combine([arg.enclose(columns) for arg in self.args])

    def evaluate(self, columns: Mapping[str, Any], rows: slice) -> Any:
        """Return the values in some rows: floats, booleans (or 0 and 1), or codes."""
        if self.value is not None:
            return self.value
        if self.column is not None:
            return columns[self.column][rows]
        operation = cast("Operation", self.operation)
        return operation.evaluate(*(arg.evaluate(columns, rows) for arg in self.args))

    def survey(
        self, columns: Mapping[str, Interval], free: frozenset[str], blamed: set[str]
    ) -> Interval | None:
        """Enclose as far as possible, and collect the free columns of each part that is undefined.

        Parameters
        ----------
        columns : mapping
            Intervals of all columns.
        free : frozenset of str
            Columns whose interval may still be narrowed.
        blamed : set of str
            Filled with the free columns whose interval is too wide.

        Returns
        -------
        tuple of float or None
            None where the expression is not defined everywhere.

        Raises
        ------
        FormulaError
            If a part is undefined that depends on no free column.
        """
        if self.operation is None:
            return self.enclose(columns)
        args = [arg.survey(columns, free, blamed) for arg in self.args]
        known = [arg for arg in args if arg is not None]
        mine = {name for leaf in self.leaves() if (name := leaf.column) is not None} & free
        if len(known) < len(args):
            # Nothing is known of an operand, so an operation with poles may meet one of them.
            if not self.operation.total:
                blamed |= mine
            return None
        try:
            return self.combine(known)
        except FormulaError:
            if not mine:
                raise
            blamed |= mine
            return None


@dataclass(frozen=True, slots=True)
class Contrast:
    """A coding of levels, ``Treatment`` or ``Sum``.

    Parameters
    ----------
    scheme : {"Treatment", "Sum"}
        Name of patsy's contrast.
    level : object
        The reference (or omitted) level or its position; None for patsy's default.
    """

    scheme: str
    level: Any = None


@dataclass(frozen=True, slots=True)
class Expression:
    """One factor: a node, and its coding if it was wrapped in ``C()``.

    Parameters
    ----------
    node : Node
        The expression.
    coded : bool
        Whether the values are categories even if they are True and False.
    contrast : Contrast or None
        The coding asked for.
    """

    node: Node
    coded: bool = False
    contrast: Contrast | None = None

    @property
    def levels(self) -> tuple[Any, ...]:
        """Levels of a categorical or bool factor; empty for a numeric one."""
        return (False, True) if self.node.kind == "bool" else self.node.levels


def _number(value: Any) -> Any:
    # numpy computes functions of booleans in half precision or as integers.
    if isinstance(value, float):
        return np.float64(value)
    return np.asarray(value, dtype=np.float64)


def _on_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    def evaluate(*args: Any) -> Any:
        return function(*map(_number, args))

    return evaluate


def _raise_to(base: Any, exponent: Any) -> Any:
    # The square is exact to rounding, as its enclosure assumes.
    if isinstance(exponent, float) and exponent == 2.0:
        return np.square(_number(base))
    return _number(base) ** _number(exponent)


def _clip(value: Any, lower: Any, upper: Any) -> Any:
    return np.minimum(np.maximum(value, lower), upper)


def _where(condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition, a, b)


_ADD = Operation(_on_numbers(np.add), intervals.add, True)
_SUBTRACT = Operation(_on_numbers(np.subtract), intervals.subtract, True)
_MULTIPLY = Operation(_on_numbers(np.multiply), intervals.multiply, True, None)
_POWER = Operation(_raise_to, intervals.power, False)

ARITHMETIC: dict[type[ast.operator], Operation] = {
    ast.Add: _ADD,
    ast.Sub: _SUBTRACT,
    ast.Mult: _MULTIPLY,
    ast.Div: Operation(_on_numbers(np.true_divide), intervals.divide, False),
    ast.FloorDiv: Operation(_on_numbers(np.floor_divide), intervals.floor_divide, False),
    ast.Mod: Operation(_on_numbers(np.remainder), intervals.remainder, False),
    ast.Pow: _POWER,
}
LOGIC: dict[type[ast.operator], Operation] = {
    ast.BitAnd: Operation(np.logical_and, intervals.truth, True, "bool"),
    ast.BitOr: Operation(np.logical_or, intervals.truth, True, "bool"),
}
COMPARISONS: dict[type[ast.cmpop], Operation] = {
    ast.Lt: Operation(np.less, intervals.truth, True, "bool"),
    ast.LtE: Operation(np.less_equal, intervals.truth, True, "bool"),
    ast.Gt: Operation(np.greater, intervals.truth, True, "bool"),
    ast.GtE: Operation(np.greater_equal, intervals.truth, True, "bool"),
    ast.Eq: Operation(np.equal, intervals.truth, True, "bool"),
    ast.NotEq: Operation(np.not_equal, intervals.truth, True, "bool"),
}
NOT = Operation(np.logical_not, intervals.truth, True, "bool")
NEGATIVE = Operation(_on_numbers(np.negative), intervals.negative, True)
POSITIVE = Operation(_on_numbers(np.positive), intervals.positive, True)

#: Functions of one number that are smooth: True and False count as 1 and 0.
_SMOOTH: dict[str, Operation] = {
    name: Operation(_on_numbers(getattr(np, name)), getattr(intervals, name), total)
    for name, total in {
        "log": False,
        "log2": False,
        "log10": False,
        "log1p": False,
        "exp": False,
        "expm1": False,
        "sqrt": False,
        "square": True,
        "sin": True,
        "cos": True,
        "tanh": True,
        "arctan": True,
    }.items()
}
#: Functions for which numpy's answer to True and False depends on its version.
ROUGH: dict[str, Operation] = {
    name: Operation(_on_numbers(function), enclose, True)
    for name, function, enclose in (
        ("abs", np.abs, intervals.absolute),
        ("absolute", np.absolute, intervals.absolute),
        ("sign", np.sign, intervals.sign),
        ("floor", np.floor, intervals.floor),
        ("ceil", np.ceil, intervals.ceil),
        ("minimum", np.minimum, intervals.minimum),
        ("maximum", np.maximum, intervals.maximum),
        ("clip", _clip, intervals.clip),
    )
}
WHERE = Operation(_where, intervals.where, True, None)
FUNCTIONS: dict[str, Operation] = {**_SMOOTH, **ROUGH, "power": _POWER, "where": WHERE}
ARITY = {"minimum": 2, "maximum": 2, "power": 2, "clip": 3, "where": 3}
CONSTANTS = {"pi": math.pi, "e": math.e}
