"""From a formula and public intervals to a bounded design matrix.

patsy decides which columns a term has, how categories are coded and what the columns are called,
from declared levels alone. Each column of the design is a product of factors, so its bounds are the
product of their intervals, and its values are computed a block of rows at a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from patsy import NAAction, Sum, Term, Treatment, design_matrix_builders
from patsy.categorical import C
from patsy.eval import EvalEnvironment

from dpstats.errors import BoundsError, FormulaError
from dpstats.formula import intervals
from dpstats.formula.intervals import Interval, UndefinedError
from dpstats.formula.nodes import Expression

__all__ = ["Design", "Factor", "Formula", "build_formula"]

#: Rows of temporary arrays, few enough for a processor's cache.
BLOCK = 2**15

#: The widest interval that bounds found privately can take.
WIDEST: Interval = (-(2.0**60), 2.0**60)

_NO_BOUNDS: Mapping[str, Interval] = MappingProxyType({})

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor: its name as patsy writes it, and the expression it stands for."""

    name: str
    expression: Expression

    @property
    def categorical(self) -> bool:
        """Whether patsy codes it by levels."""
        return self.expression.coded or self.expression.node.kind != "numeric"


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A column of the design: a product of factors, each possibly looked up in a contrast."""

    name: str
    parts: tuple[tuple[int, FloatArray | None], ...]

    def enclose(self, factors: list[Interval | None], text: str) -> Interval:
        """Multiply the intervals of the parts (None for a factor that is only looked up)."""
        result: Interval = (1.0, 1.0)
        try:
            for place, contrast in self.parts:
                if contrast is None:
                    part = cast("Interval", factors[place])
                else:
                    part = float(contrast.min()), float(contrast.max())
                result = intervals.multiply(result, part)
        except UndefinedError as error:
            reason = str(error)
        else:
            return result
        raise FormulaError(
            f"`formula` must be finite for every value inside the bounds; `{text}` is not: "
            f"{reason}. Narrow `bounds`."
        )


@dataclass(frozen=True, slots=True, eq=False)
class Formula:
    """A parsed formula over public column kinds; see `parse_formula`.

    Parameters
    ----------
    text : str
        The formula as given.
    outcome : str or None
        The left side as patsy writes it; None for a one-sided formula.
    columns : tuple of str
        Columns of the frame that are read, in order of first use, left side first.
    numeric : tuple of str
        Those of kind ``"numeric"``, which need bounds.
    intercept : bool
        False if the formula removes the intercept. The design is coded as if it had one.

    Examples
    --------
    >>> from dpstats.formula import ColumnKind, parse_formula
    >>> number = ColumnKind("numeric")
    >>> formula = parse_formula("y ~ x + I(x**2)", {"y": number, "x": number})
    >>> formula.outcome, formula.columns, formula.term_names()
    ('y', ('y', 'x'), ('x', 'I(x ** 2)', 'y'))
    >>> design = formula.bind({"y": (0, 1), "x": (-3, 2)})
    >>> design.names, design.lower, design.upper
    (('x', 'I(x ** 2)'), array([-3.,  0.]), array([2., 9.]))
    """

    text: str
    outcome: str | None
    columns: tuple[str, ...]
    numeric: tuple[str, ...]
    intercept: bool
    _boolean: tuple[str, ...] = field(repr=False)
    _factors: tuple[Factor, ...] = field(repr=False)
    _left: Column | None = field(repr=False)
    _right: tuple[Column, ...] = field(repr=False)

    def term_names(self) -> tuple[str, ...]:
        """Return the names a user's bounds may use besides those of columns of the frame.

        Returns
        -------
        tuple of str
            Columns of the design, factors and the left side, as patsy writes them.
        """
        names = [column.name for column in self._right]
        names += [factor.name for factor in self._factors]
        if self.outcome is not None:
            names.append(self.outcome)
        return tuple(dict.fromkeys(names))

    def needs_public_bounds(self, bounds: Mapping[str, Interval] = _NO_BOUNDS) -> tuple[str, ...]:
        """Return the columns whose bounds may not be left to be found privately.

        Parameters
        ----------
        bounds : mapping of str to tuple of float, optional
            Bounds the user gave. The other columns are taken to range over +-2**60.

        Returns
        -------
        tuple of str
            Numeric columns without bounds inside a part that is not defined and finite over
            these intervals. If there are none, `bind` succeeds with these bounds and any others
            within +-2**60.

        Raises
        ------
        FormulaError
            If a part is not defined whatever the bounds of the other columns are.
        """
        free = frozenset(self.numeric).difference(bounds)
        source = self._source(dict.fromkeys(free, WIDEST) | dict(bounds))
        blamed: set[str] = set()
        known = [factor.expression.node.survey(source, free, blamed) for factor in self._factors]
        for column in self._all_columns():
            uncoded = [place for place, contrast in column.parts if contrast is None]
            if any(known[place] is None for place in uncoded):
                continue
            mine = free.intersection(
                leaf.column or ""
                for place in uncoded
                for leaf in self._factors[place].expression.node.leaves()
            )
            try:
                column.enclose(known, column.name)
            except FormulaError:
                if not mine:
                    raise
                blamed |= mine
        return tuple(name for name in self.numeric if name in blamed)

    def bind(
        self, bounds: Mapping[str, Interval], term_bounds: Mapping[str, Interval] = _NO_BOUNDS
    ) -> Design:
        """Derive the bounds of every column of the design from those of the frame's columns.

        Parameters
        ----------
        bounds : mapping of str to tuple of float
            Bounds of each numeric column; other keys are ignored. Bool columns are in (0, 1).
        term_bounds : mapping of str to tuple of float, optional
            Further bounds of factors, columns of the design or the left side, by name as
            `term_names` gives them. Each narrows the derived interval; other keys are ignored.

        Returns
        -------
        Design
            Bounds of the design, with the means to compute it.

        Raises
        ------
        BoundsError
            If bounds are missing, degenerate, given for a category, or leave nothing of the
            derived interval.
        FormulaError
            If a factor is undefined or not finite anywhere inside the intervals.

        Notes
        -----
        The derived intervals come from interval arithmetic: they hold every value that the
        formula can take, and may be wider. An interval with no width (``I(0 * x)``) is widened,
        so that ``lower < upper`` always.
        """
        for name in self.numeric:
            if name not in bounds:
                raise BoundsError(f"`bounds` must hold every numeric column; `{name}` has none.")
        source = self._source(bounds)
        narrowed: list[Interval | None] = []
        limits: list[Interval | None] = []
        for factor in self._factors:
            derived = factor.expression.node.enclose(source)
            limit = _limit(factor, term_bounds)
            limits.append(limit)
            narrowed.append(derived if limit is None else _meet(factor.name, derived, limit))
        right = [self._bounds(column, narrowed, term_bounds) for column in self._right]
        left = None if self._left is None else self._bounds(self._left, narrowed, term_bounds)
        pairs = np.array(right, dtype=np.float64).reshape(-1, 2)
        lower, upper = pairs[:, 0].copy(), pairs[:, 1].copy()
        lower.flags.writeable = upper.flags.writeable = False
        return Design(
            names=tuple(column.name for column in self._right),
            lower=lower,
            upper=upper,
            intercept=self.intercept,
            outcome_bounds=left,
            _factors=self._factors,
            _limits=tuple(limits),
            _left=self._left,
            _right=self._right,
        )

    def _all_columns(self) -> tuple[Column, ...]:
        return self._right if self._left is None else (self._left, *self._right)

    def _source(self, bounds: Mapping[str, Interval]) -> dict[str, Interval]:
        source = {name: _checked(name, bounds[name]) for name in self.numeric}
        return source | dict.fromkeys(self._boolean, (0.0, 1.0))

    def _bounds(
        self,
        column: Column,
        factors: list[Interval | None],
        term_bounds: Mapping[str, Interval],
    ) -> Interval:
        derived = column.enclose(factors, column.name)
        single = len(column.parts) == 1 and column.name == self._factors[column.parts[0][0]].name
        if column.name in term_bounds and not single:
            derived = _meet(column.name, derived, _checked(column.name, term_bounds[column.name]))
        return _with_width(derived)


def _checked(name: str, bounds: Interval) -> Interval:
    lo, hi = map(float, bounds)
    if not (math.isfinite(lo) and math.isfinite(hi) and lo < hi):
        raise BoundsError(
            f"`bounds` must be finite with lower < upper; `{name}` has ({lo:g}, {hi:g})."
        )
    return intervals.interval(lo, hi)


def _limit(factor: Factor, term_bounds: Mapping[str, Interval]) -> Interval | None:
    if factor.name not in term_bounds:
        return None
    if factor.expression.coded or factor.expression.node.kind == "categorical":
        raise BoundsError(f"`bounds` must not name a category; `{factor.name}` is one.")
    return _checked(factor.name, term_bounds[factor.name])


def _meet(name: str, derived: Interval, given: Interval) -> Interval:
    lo, hi = max(derived[0], given[0]), min(derived[1], given[1])
    if lo > hi or (lo == hi and derived[0] < derived[1]):
        raise BoundsError(
            f"`bounds` of a term must overlap the values it can take; `{name}` is in "
            f"[{derived[0]:g}, {derived[1]:g}], its bounds are ({given[0]:g}, {given[1]:g})."
        )
    return lo, hi


def _with_width(bounds: Interval) -> Interval:
    lo, hi = bounds
    if lo < hi:
        return bounds
    # Users of the bounds divide by their width.
    margin = max(0.5, abs(lo) * 2.0**-10)
    return lo - margin, hi + margin


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """A design matrix of known bounds that is yet to be filled; made by `Formula.bind`.

    Parameters
    ----------
    names : tuple of str
        Columns as patsy writes them, without the intercept.
    lower, upper : ndarray, shape (p,)
        Bounds of the columns, read-only; ``lower < upper``.
    intercept : bool
        False if the formula removes the intercept.
    outcome_bounds : tuple of float or None
        Bounds of the left side.

    Examples
    --------
    >>> import numpy as np
    >>> from dpstats.formula import ColumnKind, parse_formula
    >>> kinds = {"x": ColumnKind("numeric"), "g": ColumnKind("categorical", ("a", "b", "c"))}
    >>> design = parse_formula("~ g + np.sqrt(x)", kinds, outcome=False).bind({"x": (0, 9)})
    >>> design.names
    ('g[T.b]', 'g[T.c]', 'np.sqrt(x)')
    >>> out = np.empty((2, 3))
    >>> design.fill({"x": np.array([1.0, 4.0]), "g": np.array([2, 0])}, out)
    >>> out
    array([[0., 1., 1.],
           [0., 0., 2.]])
    """

    names: tuple[str, ...]
    lower: FloatArray
    upper: FloatArray
    intercept: bool
    outcome_bounds: Interval | None
    _factors: tuple[Factor, ...] = field(repr=False)
    _limits: tuple[Interval | None, ...] = field(repr=False)
    _left: Column | None = field(repr=False)
    _right: tuple[Column, ...] = field(repr=False)

    def fill(self, columns: Mapping[str, NDArray[Any]], out: FloatArray) -> None:
        """Write the design, each column clipped to its bounds.

        Parameters
        ----------
        columns : mapping of str to ndarray, shape (n,)
            Clipped float64 values of numeric columns, 0.0 and 1.0 of bool ones, integer codes of
            levels of categorical ones; nothing missing.
        out : ndarray, shape (n, p)
            Overwritten; any memory order.

        Raises
        ------
        ValueError
            If `out` does not have one column a name.

        Notes
        -----
        Blocks of rows keep the temporary memory constant in n.
        """
        if out.ndim != 2 or out.shape[1] != len(self.names):
            raise ValueError(
                f"`out` must have {len(self.names)} columns; its shape is {out.shape}."
            )
        for rows in _blocks(out.shape[0]):
            values: dict[int, NDArray[Any]] = {}
            for place, column in enumerate(self._right):
                product = self._product(column, columns, rows, values)
                np.clip(product, self.lower[place], self.upper[place], out=out[rows, place])

    def outcome_values(self, columns: Mapping[str, NDArray[Any]]) -> FloatArray:
        """Return the left side, clipped to its bounds.

        Parameters
        ----------
        columns : mapping of str to ndarray, shape (n,)
            As in `fill`.

        Returns
        -------
        ndarray, shape (n,)
            A new array.

        Raises
        ------
        ValueError
            If the formula has no left side.
        """
        if self._left is None or self.outcome_bounds is None:
            raise ValueError("the formula has no left side.")
        first = next(self._factors[self._left.parts[0][0]].expression.node.leaves())
        result = np.empty(len(columns[first.column or ""]), dtype=np.float64)
        for rows in _blocks(len(result)):
            product = self._product(self._left, columns, rows, {})
            np.clip(product, *self.outcome_bounds, out=result[rows])
        return result

    def _product(
        self,
        column: Column,
        columns: Mapping[str, NDArray[Any]],
        rows: slice,
        values: dict[int, NDArray[Any]],
    ) -> NDArray[Any]:
        product: NDArray[Any] | None = None
        for place, contrast in column.parts:
            if place not in values:
                values[place] = self._evaluate(place, columns, rows)
            value = values[place] if contrast is None else contrast[values[place]]
            product = value if product is None else product * value
        return cast("FloatArray", product)

    def _evaluate(
        self, place: int, columns: Mapping[str, NDArray[Any]], rows: slice
    ) -> NDArray[Any]:
        factor, limit = self._factors[place], self._limits[place]
        # The intervals exclude invalid values; a warning here would be an output of the data.
        with np.errstate(all="ignore"):
            value = np.asarray(factor.expression.node.evaluate(columns, rows))
        if factor.categorical:
            return value.astype(np.intp, copy=False)
        return value if limit is None else np.clip(value, *limit)


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK))


class _PublicFactor:
    """A factor as patsy sees it when it codes a design: its kind and levels, and no data."""

    origin = None

    def __init__(self, place: int, factor: Factor) -> None:
        self.place = place
        self.factor = factor

    def name(self) -> str:
        return self.factor.name

    def memorize_passes_needed(self, state: dict[str, Any], eval_env: EvalEnvironment) -> int:
        return 0

    def eval(self, state: dict[str, Any], data: object) -> Any:
        if not self.factor.categorical:
            return np.ones(1)
        expression = self.factor.expression
        levels = list(expression.levels)
        contrast = None
        if expression.contrast is not None:
            scheme = Sum if expression.contrast.scheme == "Sum" else Treatment
            contrast = scheme(expression.contrast.level)
        return C(levels[:1], contrast, levels=levels)


def build_formula(
    text: str,
    factors: tuple[Factor, ...],
    left: tuple[int, ...],
    right: tuple[tuple[int, ...], ...],
    intercept: bool,
) -> Formula:
    """Code the terms of a formula.

    Parameters
    ----------
    text : str
        The formula.
    factors : tuple of Factor
        All factors, those of the left side first.
    left : tuple of int
        Positions of the factors of the left term; empty for a one-sided formula.
    right : tuple of tuple of int
        Positions of the factors of each term, without the intercept.
    intercept : bool
        Whether the formula keeps its intercept.

    Returns
    -------
    Formula
        The formula with its columns.

    Raises
    ------
    FormulaError
        If the left side is categorical, a term has no columns, or a part is undefined whatever
        the bounds are.
    """
    outcome = ":".join(factors[place].name for place in left) or None
    for place in left:
        expression = factors[place].expression
        if expression.coded or expression.node.kind == "categorical":
            raise FormulaError(
                f"`formula` must have a numeric outcome; `{factors[place].name}` is categorical."
            )
    leaves = {leaf.column or "": leaf for f in factors for leaf in f.expression.node.leaves()}
    formula = Formula(
        text=text,
        outcome=outcome,
        columns=tuple(leaves),
        numeric=tuple(name for name, leaf in leaves.items() if leaf.kind == "numeric"),
        intercept=intercept,
        _boolean=tuple(name for name, leaf in leaves.items() if leaf.kind == "bool"),
        _factors=factors,
        _left=None if outcome is None else Column(outcome, tuple((p, None) for p in left)),
        _right=_coded(factors, right),
    )
    # Refuses what no bounds can mend, such as np.log(0 * b) for a bool b.
    formula.needs_public_bounds()
    return formula


def _coded(factors: tuple[Factor, ...], terms: tuple[tuple[int, ...], ...]) -> tuple[Column, ...]:
    if any([factors[place].name for place in term] == ["Intercept"] for term in terms):
        # patsy takes two terms of one name for one
        raise FormulaError(
            "`formula` must not have a term `Intercept`, as the constant is called; for the column "
            'of that name write Q("Intercept").'
        )
    public = [_PublicFactor(place, factor) for place, factor in enumerate(factors)]
    termlist = [Term([])] + [Term([public[place] for place in term]) for term in terms]
    (info,) = design_matrix_builders(
        [termlist], lambda: iter([{}]), EvalEnvironment([]), NA_action=NAAction(NA_types=[])
    )
    names = iter(info.column_names)
    columns: list[Column] = []
    for term, subterms in info.term_codings.items():
        before = len(columns)
        for subterm in subterms:
            contrasts = [subterm.contrast_matrices.get(factor) for factor in subterm.factors]
            widths = [1 if coding is None else coding.matrix.shape[1] for coding in contrasts]
            # patsy's order: the leftmost factor varies fastest.
            for choice in itertools.product(*map(range, reversed(widths))):
                parts = tuple(
                    (
                        factor.place,
                        None if coding is None else coding.matrix[:, index].astype(np.float64),
                    )
                    for factor, coding, index in zip(
                        subterm.factors, contrasts, reversed(choice), strict=True
                    )
                )
                name = next(names)
                if parts:
                    columns.append(Column(name, parts))
        if term.factors and len(columns) == before:
            raise FormulaError(f"`formula`: the term `{term.name()}` has no columns.")
    return tuple(columns)
