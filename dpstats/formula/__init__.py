"""Formulas made safe for private data.

patsy parses; variables come from the declared columns only, never from the caller's scope;
everything that depends on more than one row is refused by name; and the bounds of every derived
column follow from public intervals by interval arithmetic, so that no error and no warning can
depend on the data.
"""

from __future__ import annotations

from dpstats.formula.design import Design, Formula
from dpstats.formula.intervals import Interval
from dpstats.formula.nodes import ColumnKind
from dpstats.formula.syntax import formula_words, parse_formula

__all__ = ["ColumnKind", "Design", "Formula", "Interval", "formula_words", "parse_formula"]
