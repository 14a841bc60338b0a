"""What a formula, bounds and levels say about a call without any data: columns and their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpstats.ate.data import read_schema
from dpstats.errors import DPStatsError
from dpstats.formula import formula_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpstats.privacy.bounds import Interval

__all__ = ["PublicDesign", "public_design"]

_WIDEST: Interval = (-(2.0**60), 2.0**60)


@dataclass(frozen=True, slots=True)
class PublicDesign:
    """A design that is known before the data are.

    Attributes
    ----------
    outcome : str
        The left side as patsy writes it.
    columns : tuple of str
        Columns of the design, without the constant.
    outcome_bounds : (float, float) or None
        None where they are not public.
    searched : tuple of str
        Columns without bounds, which the call would have to find.
    outcome_columns : tuple of str
        Columns of the data in the outcome.
    """

    outcome: str
    columns: tuple[str, ...]
    outcome_bounds: Interval | None
    searched: tuple[str, ...]
    outcome_columns: tuple[str, ...]


def public_design(
    formula: str,
    bounds: Mapping[str, Any] | None,
    levels: Mapping[str, Sequence[Any]] | None,
) -> PublicDesign:
    """Read a formula as `dp_ate` would, for a file whose columns are those that it names.

    Parameters
    ----------
    formula : str
    bounds : dict of str to (lo, hi), optional
    levels : dict of str to list, optional
        Columns with levels are categorical, all others numbers.

    Raises
    ------
    DPStatsError
        What `dp_ate` would raise about these arguments before it sees a row.

    Examples
    --------
    >>> found = public_design("y ~ age + region", {"y": (0, 10)}, {"region": ["n", "s", "w"]})
    >>> found.columns, found.outcome_bounds, found.searched
    (('region[T.s]', 'region[T.w]', 'age'), (0.0, 10.0), ('age',))
    """
    import pandas as pd

    if levels is not None and not hasattr(levels, "items"):
        raise DPStatsError(
            f"`levels` must be a dict of column to its levels; got {type(levels).__name__}"
        )
    names = formula_words(formula) | {name for name in levels or {} if isinstance(name, str)}
    treat = "treat"
    while treat in names:
        treat += "_"
    types = {name: "object" if name in (levels or {}) else "float64" for name in sorted(names)}
    empty = {name: pd.Series([], dtype=dtype) for name, dtype in types.items()}
    schema = read_schema(
        pd.DataFrame({**empty, treat: pd.Series([], dtype="float64")}),
        formula,
        treat,
        propensity=None,
        known=None,
        treated=None,
        fits_propensity=True,
        models_outcome=True,
        bounds=bounds,
        levels=levels,
        private=True,
        whole=False,
    )
    roles = schema.roles
    every = {**dict.fromkeys(schema.unbounded, _WIDEST), **schema.bounds}
    outcome = roles.outcome.bind(every, schema.terms)
    own = () if roles.propensity is None else roles.propensity.bind(every, schema.terms).names
    open_ended = set(roles.outcome.columns) & set(schema.unbounded)
    return PublicDesign(
        str(roles.outcome.outcome),
        own,
        None if open_ended else outcome.outcome_bounds,
        schema.unbounded,
        roles.outcome.columns,
    )
