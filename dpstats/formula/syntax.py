"""What patsy reads in the text of a formula, and the formula that the columns make of it."""

from __future__ import annotations

import json
import keyword
import re
import tokenize
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from patsy import ModelDesc, PatsyError
from patsy.desc import INTERCEPT, Evaluator
from patsy.parse_formula import parse_formula as parse_tree

from dpstats.errors import FormulaError
from dpstats.formula.compiler import (
    POWERS,
    UnknownColumnError,
    column_names,
    compile_expression,
)
from dpstats.formula.design import Factor, Formula, build_formula
from dpstats.formula.nodes import ColumnKind
from dpstats.hints import column_hint

__all__ = ["formula_words", "parse_formula"]


# patsy guards some of its parser by assertions only.
_UNREADABLE = (
    PatsyError,
    SyntaxError,
    ValueError,
    AssertionError,
    tokenize.TokenError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class _Syntax:
    """A parsed formula, of which the factors are still text."""

    left: tuple[tuple[str, ...], ...]
    right: tuple[tuple[str, ...], ...]
    intercept: bool
    words: frozenset[str]
    cautions: tuple[str, ...]


def parse_formula(
    formula: str, kinds: Mapping[str, ColumnKind], *, outcome: bool = True
) -> Formula:
    """Read a formula whose names are columns and whose functions are row-wise.

    Parameters
    ----------
    formula : str
        A patsy formula, ``"y ~ x1 + np.log(x2)"``.
    kinds : mapping of str to ColumnKind
        Public schema of the columns that may be used. Keys that are not strings are ignored.
    outcome : bool, default True
        Whether the formula has a left side (exactly one term) or none.

    Returns
    -------
    Formula
        The formula, not yet bound to intervals.

    Raises
    ------
    FormulaError
        If the formula cannot be parsed, names anything that is not a column, calls anything that
        is not on the allow-list, or has a wrong left side.

    Warns
    -----
    UserWarning
        If a power outside ``I()`` means the term itself, or if the formula removes the intercept
        (which stays: categories keep a reference level).

    Notes
    -----
    patsy parses the formula and codes categories. The factors are never run as Python: an
    allow-list over the syntax tree turns them into expressions, so nothing outside `kinds` can be
    read and nothing can depend on several rows at once. Only the text and the public schema
    decide what is raised.

    Examples
    --------
    >>> kinds = {"y": ColumnKind("numeric"), "x": ColumnKind("numeric")}
    >>> parse_formula("y ~ np.log1p(x) + x", kinds).columns
    ('y', 'x')
    >>> parse_formula("y ~ center(x)", kinds)
    Traceback (most recent call last):
        ...
    dpstats.errors.FormulaError: `formula` holds `center(x)`, which is refused: the transform \
`center` is computed from all rows of the private data.
    """
    syntax = _parse(_text(formula))
    _check_sides(formula, syntax, outcome)
    # Only the columns that the text may read, so that the cache serves frames of any width.
    schema = tuple((name, kinds[name]) for name in sorted(syntax.words) if name in kinds)
    # 1, 1.0 and True are equal levels with different names.
    types = tuple(tuple(map(type, kind.levels)) for _, kind in schema)
    try:
        parsed = _build(formula, schema, types)
    except UnknownColumnError as error:
        unknown = error.name
    except TypeError:
        raise FormulaError("`levels` must be hashable, such as strings or numbers.") from None
    else:
        for caution in syntax.cautions:
            warnings.warn(caution, UserWarning, stacklevel=2)
        return parsed
    raise FormulaError(_unknown_message(unknown, kinds))


def formula_words(formula: str) -> frozenset[str]:
    """Return every word of a formula that may name a column: without data, nobody knows which.

    Parameters
    ----------
    formula : str

    Raises
    ------
    FormulaError
        If it cannot be parsed.

    Examples
    --------
    >>> sorted(formula_words("y ~ np.log(x) + Q('years of schooling')"))
    ['Q', 'np', 'np.log', 'x', 'y', 'years of schooling']
    """
    return _parse(_text(formula)).words


def _text(formula: Any) -> str:
    if not isinstance(formula, str):
        raise FormulaError(
            f'`formula` must be a string such as "y ~ x1 + x2"; got {type(formula).__name__}.'
        )
    return formula


@lru_cache(maxsize=128)
def _parse(formula: str) -> _Syntax:
    try:
        tree = parse_tree(formula)
        described = ModelDesc.from_formula(tree)
        cautions = _cautions(tree)
    except _UNREADABLE as error:
        detail = str(error).partition("\n")[0]
    else:
        left, right = (
            tuple(tuple(factor.name() for factor in term.factors) for term in terms)
            for terms in (described.lhs_termlist, described.rhs_termlist)
        )
        intercept = INTERCEPT in described.rhs_termlist
        if not intercept:
            cautions += (
                "`formula` removes the intercept, which is ignored: the models fitted to the "
                "covariates keep theirs, and categories keep a reference level.",
            )
        words = frozenset().union(
            *(column_names(code) for term in (*left, *right) for code in term)
        )
        right = tuple(term for term in right if term)
        return _Syntax(left, right, intercept, words, cautions)
    detail = _foreign(formula) or detail
    raise FormulaError(
        f'`formula` must be one that patsy can read, such as "y ~ x1 + I(x2 ** 2)" (arithmetic '
        f"stands inside I()); got {formula!r}{detail and ': '}{detail}."
    )


def _foreign(formula: str) -> str:
    """Return what stands for the signs of other languages that a formula holds."""
    quoted = re.search("`([^`]*)`", formula)
    if quoted is not None:
        name = quoted[1]
        if name.isidentifier() and not keyword.iskeyword(name):
            return f"write {name} without backticks"
        return f"a name in backticks is written Q({json.dumps(name, ensure_ascii=False)})"
    if "^" in formula:
        return POWERS
    return "an interaction is written a:b, or a*b with both alone" if "#" in formula else ""


def _cautions(tree: Any) -> tuple[str, ...]:
    """Find products and powers of one term with itself, which patsy reduces to the term."""
    found: list[str] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        waiting.extend(reversed(node.args))
        if node.type not in {"**", "*", ":"}:
            continue
        left, right = node.args
        terms = Evaluator().eval(left).terms
        if len(terms) != 1:
            continue
        if node.type == "**":
            same = right.token.extra != "1"
        else:
            same = Evaluator().eval(right).terms == terms
        if same:
            text = node.origin.relevant_code()
            found.append(
                f"`formula`: `{text}` means `{terms[0].name()}`, because outside I() an operator "
                f"combines terms; for arithmetic write I({text})."
            )
    return tuple(dict.fromkeys(found))


def _check_sides(formula: str, syntax: _Syntax, outcome: bool) -> None:
    if not outcome:
        if syntax.left:
            raise FormulaError(
                f'`formula` must have no left side here, as in "~ x1 + x2"; got {formula!r}.'
            )
        if not formula.strip():
            raise FormulaError('`formula` must not be empty; for no covariates write "~ 1".')
        return
    if len(syntax.left) != 1 or not syntax.left[0]:
        raise FormulaError(
            '`formula` must have exactly one outcome on its left side, as in "y ~ x1 + x2" '
            f"(arithmetic stands inside I()); got {formula!r}."
        )


@lru_cache(maxsize=128)
def _build(
    formula: str,
    schema: tuple[tuple[str, ColumnKind], ...],
    types: tuple[tuple[type, ...], ...],
) -> Formula:
    syntax = _parse(formula)
    kinds = dict(schema)
    codes = dict.fromkeys(code for term in (*syntax.left, *syntax.right) for code in term)
    factors = tuple(Factor(code, compile_expression(code, kinds)) for code in codes)
    place = {code: index for index, code in enumerate(codes)}
    left, right = (
        tuple(tuple(place[code] for code in term) for term in terms)
        for terms in (syntax.left, syntax.right)
    )
    return build_formula(formula, factors, left[0] if left else (), right, syntax.intercept)


def _unknown_message(name: str, kinds: Mapping[str, ColumnKind]) -> str:
    hint = column_hint(name, kinds)
    return (
        f"`formula` may name columns of `data` only (never variables of the calling scope); "
        f"`{name}` is not a column{hint and f' ({hint})'}."
    )
