"""From a frame and a formula to checked arrays: every dtype decision lives here."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpstats.ate.kernels.base import Arrays
from dpstats.ate.outside import strange_values
from dpstats.errors import BoundsError, DPStatsError, FormulaError
from dpstats.formula import ColumnKind, Design, Formula, parse_formula
from dpstats.hints import column_hint, near_names
from dpstats.passed import passed
from dpstats.privacy.bounds import Interval, check_interval
from dpstats.privacy.mechanisms import sum_lattice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from dpstats.privacy.noise import FloatArray

__all__ = ["Columns", "Roles", "Schema", "arrays_from", "read_columns", "read_schema"]


@dataclass(frozen=True, slots=True)
class Roles:
    """Which columns play which part: names only, nothing of the data.

    Attributes
    ----------
    outcome : Formula
        The left side alone.
    propensity : Formula or None
        The design of the propensity: the formula's right side, or one of its own.
    covariates : Formula or None
        The design of the outcome model: the formula's right side.
    treat : str
    known : str or None
        Column of known propensities.
    treated : Any
        Level of `treat` that means treated.
    """

    outcome: Formula
    propensity: Formula | None
    covariates: Formula | None
    treat: str
    known: str | None
    treated: Any

    @property
    def formulas(self) -> tuple[Formula, ...]:
        """The formulas in use, each once."""
        found = [self.outcome, self.propensity, self.covariates]
        return tuple(dict.fromkeys(formula for formula in found if formula is not None))


@dataclass(frozen=True, slots=True)
class Schema:
    """What is public about the columns in use.

    Attributes
    ----------
    text : str
        The formula as the user wrote it.
    roles : Roles
    kinds : dict of str to ColumnKind
    bounds : dict of str to (float, float)
        Public bounds of source columns.
    terms : dict of str to (float, float)
        Public bounds of derived terms.
    unbounded : tuple of str
        Numeric columns whose bounds are to be found privately.
    """

    text: str
    roles: Roles
    kinds: dict[str, ColumnKind]
    bounds: dict[str, Interval]
    terms: dict[str, Interval]
    unbounded: tuple[str, ...]

    @property
    def used(self) -> tuple[str, ...]:
        """Every column in use, each once."""
        roles = self.roles
        names = [*self.formula_columns, roles.treat]
        if roles.known is not None:
            names.append(roles.known)
        return tuple(dict.fromkeys(names))

    @property
    def formula_columns(self) -> tuple[str, ...]:
        """Columns of the outcome and of the designs."""
        return _formula_columns(self.roles)

    def without(self, design: Literal["propensity", "covariates"]) -> Schema:
        """Return the schema of a call that needs no such design."""
        if design == "propensity":
            roles = replace(self.roles, propensity=None)
        else:
            roles = replace(self.roles, covariates=None)
        terms = {name for formula in roles.formulas for name in formula.term_names()}
        kinds = {name: self.kinds[name] for name in _formula_columns(roles)}
        return replace(
            self,
            roles=roles,
            kinds=kinds,
            bounds={name: pair for name, pair in self.bounds.items() if name in kinds},
            terms={k: v for k, v in self.terms.items() if k in terms},
            unbounded=tuple(name for name in self.unbounded if name in kinds),
        )

    @property
    def levels(self) -> dict[str, tuple[Any, ...]]:
        """Declared levels of the categorical columns in use."""
        return {
            name: self.kinds[name].levels
            for name in self.formula_columns
            if self.kinds[name].kind == "categorical"
        }


@dataclass(frozen=True, slots=True)
class Columns:
    """The raw rows in use, without missing values, not yet clipped.

    Attributes
    ----------
    cells : dict of str to ndarray
        Floats, or codes for a categorical.
    treated : ndarray of bool
    known : ndarray or None
    n : int
    strange : dict of str to ndarray of bool
        Where a categorical has none of its levels, if that was asked for.
    """

    cells: dict[str, NDArray[Any]]
    treated: NDArray[np.bool_]
    known: FloatArray | None
    n: int
    strange: dict[str, NDArray[np.bool_]] = field(default_factory=dict)


def read_schema(
    data: pd.DataFrame,
    formula: str,
    treat: str,
    *,
    propensity: str | None,
    known: str | None,
    treated: Any,
    fits_propensity: bool,
    models_outcome: bool,
    bounds: Mapping[str, Any] | None,
    levels: Mapping[str, Sequence[Any]] | None,
    private: bool,
    whole: bool = True,
) -> Schema:
    """Check names, dtypes and public arguments. Reads no value of the data.

    `whole` says that `data` has every column of the file, so that a name in `bounds` which is none
    of them is a slip.

    Raises
    ------
    DPStatsError, FormulaError, BoundsError
    """
    import pandas as pd

    if not isinstance(data, pd.DataFrame):
        raise DPStatsError(f"`data` must be a pandas DataFrame; got {type(data).__name__}")
    for argument, name in (("treat", treat), ("propensity", known)):
        if argument == "treat" or name is not None:
            _check_column(data, argument, name)
    if known is not None:
        _check_known(data[known].dtype, known)
    declared = _check_levels(data, levels)
    kinds = _Kinds(data, declared)
    full = parse_formula(formula, kinds)
    outcome = parse_formula(f"{full.outcome} ~ 1", kinds)
    design = None
    if fits_propensity:
        design = full if propensity is None else parse_formula(propensity, kinds, outcome=False)
    roles = Roles(outcome, design, full if models_outcome else None, treat, known, treated)
    for name in _formula_columns(roles):
        kinds.require(name)
    if treat in {*full.columns, *_formula_columns(roles)}:
        raise FormulaError(
            f"`formula` must not use the treatment: {treat!r} enters by itself through `treat`; "
            "drop it from the formula"
        )
    if known == treat:
        raise DPStatsError(f"`propensity` must not be the treatment; got {known!r} for both")
    _check_treat(data[treat].dtype, treat, treated, declared.get(treat))
    used = {name: kinds[name] for name in _formula_columns(roles)}
    source, terms = _check_bounds(bounds, used, roles, list(data.columns), whole=whole)
    unbounded = _unbounded(roles, used, source, terms) if private else ()
    return Schema(formula, roles, used, source, terms, unbounded)


def read_columns(
    data: pd.DataFrame, schema: Schema, *, missing: str, strange: bool = False
) -> Columns:
    """Read the columns in use; the first look at values.

    Parameters
    ----------
    data : DataFrame
    schema : Schema
    missing : {"raise", "drop"}
    strange : bool
        Whether to find values that are none of their levels.

    Returns
    -------
    Columns

    Raises
    ------
    DPStatsError
        If values are missing (the columns are named, nothing else) or the treatment has values
        other than 0 and 1.
    """
    roles = schema.roles
    values = {name: _values(data[name], schema.kinds[name]) for name in schema.formula_columns}
    names = schema.levels if strange else {}
    outside = {name: strange_values(data[name], schema.kinds[name].levels) for name in names}
    known = None if roles.known is None else _floats(data[roles.known])
    raw = data[roles.treat]
    absent = {name: _is_missing(column) for name, column in values.items()}
    absent[roles.treat] = raw.isna().to_numpy(dtype=bool)
    if known is not None and roles.known is not None:
        absent[roles.known] = np.isnan(known)
    columns = [name for name, rows in absent.items() if rows.any()]
    if columns:
        if missing == "raise":
            raise DPStatsError(
                f"`data` must have no missing values in the columns in use; {_list(columns)} "
                f'{"has" if len(columns) == 1 else "have"} some: pass missing="drop" to '
                "protect the complete rows only, or fill them by a public rule"
            )
        keep = ~np.logical_or.reduce(list(absent.values()))
        values = {name: column[keep] for name, column in values.items()}
        outside = {name: rows[keep] for name, rows in outside.items()}
        known = None if known is None else known[keep]
        raw = raw[keep]
    return Columns(values, _treatment(raw, roles), known, len(raw), outside)


def arrays_from(
    columns: Columns,
    schema: Schema,
    bounds: Mapping[str, Interval],
    overlap: float | None,
    *,
    exact: bool = False,
) -> tuple[Arrays, Design]:
    """Clip, evaluate the formula on the clipped columns, centre and scale.

    Parameters
    ----------
    columns : Columns
    schema : Schema
    bounds : mapping of str to (float, float)
        Bounds of every numeric column, public or privately found.
    overlap : float or None
        To which known propensities are clipped.
    exact : bool
        At `eps=inf`: the outcome is not rounded to a grid, and centred only by given bounds.

    Returns
    -------
    arrays : Arrays
    outcome : Design
        The bound left side.
    """
    roles = schema.roles
    clipped = {
        name: np.clip(values, *bounds[name]) if name in bounds else values
        for name, values in columns.cells.items()
    }
    outcome = roles.outcome.bind(bounds, schema.terms)
    values = outcome.outcome_values(clipped)
    low, high = outcome.outcome_bounds or (0.0, 0.0)
    if exact:
        given = all(name in schema.bounds for name in roles.outcome.numeric)
        middle = (low + high) / 2.0 if given or schema.terms else 0.0
        half_width, lattice = max(high - middle, middle - low) or 1.0, 0
        y = (values - middle) / half_width
    else:
        y, half_width, lattice = _centre(values, low, high, columns.n)
    x = _design(roles.propensity, clipped, columns.n, bounds, schema)
    z = None
    if roles.covariates is not None:
        shared = roles.covariates is roles.propensity
        z = x if shared else _design(roles.covariates, clipped, columns.n, bounds, schema)
    known = columns.known
    if known is not None and overlap is not None:
        known = np.clip(known, overlap, 1.0 - overlap)
    return Arrays(y, columns.treated, x, known, half_width, lattice, z), outcome


def _design(
    formula: Formula | None,
    clipped: Mapping[str, NDArray[Any]],
    n: int,
    bounds: Mapping[str, Interval],
    schema: Schema,
) -> FloatArray:
    """Return the constant 1/2 and the columns of a formula, scaled to [-1, 1]."""
    if formula is None:
        return np.full((n, 1), 0.5)
    design = formula.bind(bounds, schema.terms)
    x = np.empty((n, 1 + len(design.names)), order="F")
    x[:, 0] = 0.5
    design.fill(clipped, x[:, 1:])
    for column, lo, hi in zip(x[:, 1:].T, design.lower, design.upper, strict=True):
        _scale(column, float(lo), float(hi))
    return x


def _centre(values: FloatArray, low: float, high: float, n: int) -> tuple[FloatArray, float, int]:
    """Centre at the midpoint, divide by the half-width, round to a grid of exact sums."""
    half_width = (high - low) / 2.0
    lattice = sum_lattice(1.0, n)
    y = values - (low + half_width)
    y *= math.ldexp(1.0 / half_width, -lattice)
    np.rint(y, out=y)
    top = math.ldexp(1.0, -lattice)
    np.clip(y, -top, top, out=y)
    np.ldexp(y, lattice, out=y)
    return y, half_width, lattice


def _scale(column: FloatArray, low: float, high: float) -> None:
    """Map [low, high] to [-1, 1] in place; a column without width becomes zero."""
    # widths beyond these would make infinities below, hence errors that depend on the rows
    if 2.0**-1000 < high - low < 2.0**1000:
        column -= low + (high - low) / 2.0
        column *= 2.0 / (high - low)
        np.clip(column, -1.0, 1.0, out=column)
    else:
        column[:] = 0.0


class _Kinds(dict[str, ColumnKind]):
    """Kinds of the frame's columns; one that cannot be used says why when it is asked for."""

    def __init__(self, data: pd.DataFrame, declared: Mapping[str, tuple[Any, ...]]) -> None:
        self._refused: dict[str, str] = {}
        repeated = set(data.columns[data.columns.duplicated()])
        super().__init__()
        names: list[Any] = list(data.columns)
        for name, dtype in zip(names, data.dtypes, strict=True):
            if not isinstance(name, str):
                # no formula can name it; hints look whether names are cells of a row
                self[name] = ColumnKind("numeric")
                continue
            kind = _kind(name, dtype, declared.get(name))
            if name in repeated:
                kind = f"`data` has more than one column {name!r}"
            if isinstance(kind, str):
                self._refused[name] = f"column {name!r}: {kind}"
                kind = ColumnKind("numeric")
            self[name] = kind

    def require(self, name: str) -> None:
        if name in self._refused:
            raise FormulaError(self._refused[name])


def _kind(name: str, dtype: Any, levels: tuple[Any, ...] | None) -> ColumnKind | str:
    import pandas as pd

    if isinstance(dtype, pd.CategoricalDtype):
        return ColumnKind("categorical", levels or tuple(dtype.categories))
    if levels is not None:
        return ColumnKind("categorical", levels)
    if pd.api.types.is_bool_dtype(dtype):
        return ColumnKind("bool")
    if pd.api.types.is_complex_dtype(dtype):
        return "complex numbers are not supported"
    if pd.api.types.is_numeric_dtype(dtype):
        return ColumnKind("numeric")
    if pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype):
        return (
            f"a text column needs its public levels: pass levels={{{name!r}: [...]}} or convert it "
            "to a Categorical with declared categories (numbers stored as objects: convert with "
            "astype(float))"
        )
    return f"dtype {dtype} is not supported; convert it to numbers"


def _check_levels(
    data: pd.DataFrame, levels: Mapping[str, Sequence[Any]] | None
) -> dict[str, tuple[Any, ...]]:
    if levels is not None and not hasattr(levels, "items"):
        raise DPStatsError(
            f"`levels` must be a dict of column to its levels; got {type(levels).__name__}"
        )
    declared = {}
    for name, values in (levels or {}).items():
        _check_column(data, "levels", name)
        # the order of levels decides the reference, and a set has none
        if isinstance(values, str | bytes | set | frozenset) or not hasattr(values, "__iter__"):
            raise DPStatsError(
                f"`levels` of {name!r} must be a list of levels; got {passed(values)}"
            )
        listed = tuple(values)
        if not all(_is_level(level) for level in listed):
            raise DPStatsError(
                f"`levels` of {name!r} must be single values and none missing; got a "
                f"{type(values).__name__} of {len(listed)}"
            )
        if len(listed) < 2 or len(set(listed)) != len(listed):
            raise DPStatsError(
                f"`levels` of {name!r} must hold at least two levels, each once; got "
                f"{len(listed)}, {len(set(listed))} of them different"
            )
        declared[name] = listed
    return declared


def _is_level(value: Any) -> bool:
    """Whether a value can be a level: a scalar that is not missing."""
    import pandas as pd

    return bool(pd.api.types.is_scalar(value)) and not pd.isna(value)


def _check_column(data: pd.DataFrame, argument: str, name: Any) -> None:
    try:
        present = name in data.columns
    except TypeError:
        present = False
    if not isinstance(name, str) or not present:
        shown = repr(name) if isinstance(name, str | int | float | None) else type(name).__name__
        hint = column_hint(name, data.columns) if isinstance(name, str) else ""
        raise DPStatsError(
            f"`{argument}` must name a column of `data`; got {shown}{hint and f' ({hint})'}"
        )
    if list(data.columns).count(name) > 1:
        raise DPStatsError(f"`{argument}` must name one column; `data` has {name!r} more than once")


def _check_known(dtype: Any, name: str) -> None:
    """Refuse a column of known propensities by its dtype."""
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_complex_dtype(dtype):
        raise DPStatsError(
            f"`propensity` must name a column of numbers; {name!r} has dtype {dtype}"
        )


def _check_treat(dtype: Any, treat: str, treated: Any, levels: tuple[Any, ...] | None) -> None:
    """Refuse treatment columns by dtype, before any value is read."""
    import pandas as pd

    how = "pass `treated=` with the level that means treated"
    if treated is not None:
        if not _is_level(treated):
            raise DPStatsError(f"`treated` must be one level of {treat!r}; got {passed(treated)}")
        if isinstance(dtype, pd.CategoricalDtype) and treated not in dtype.categories:
            raise DPStatsError(
                f"`treated` must be a declared level of {treat!r}; got {passed(treated)}"
            )
        if levels is not None and treated not in levels:
            raise DPStatsError(
                f"`treated` must be a declared level of {treat!r}; got {passed(treated)}"
            )
        numbers = pd.api.types.is_numeric_dtype(dtype)
        texts = pd.api.types.is_string_dtype(dtype) and not pd.api.types.is_object_dtype(dtype)
        if (numbers and isinstance(treated, str)) or (texts and not isinstance(treated, str)):
            raise DPStatsError(
                f"`treated` must be a level of {treat!r}, which has dtype {dtype}; got "
                f"{passed(treated)}"
            )
        return
    if isinstance(dtype, pd.CategoricalDtype):
        if not set(dtype.categories) <= {0, 1}:
            raise DPStatsError(f"`treat` must be 0/1 or bool; {treat!r} has other levels: {how}")
    elif not (pd.api.types.is_bool_dtype(dtype) or pd.api.types.is_numeric_dtype(dtype)):
        raise DPStatsError(f"`treat` must be 0/1 or bool; {treat!r} has dtype {dtype}: {how}")
    elif pd.api.types.is_complex_dtype(dtype):
        raise DPStatsError(f"`treat` must be 0/1 or bool; {treat!r} has dtype {dtype}")


def _check_bounds(
    bounds: Mapping[str, Any] | None,
    kinds: Mapping[str, ColumnKind],
    roles: Roles,
    columns: Sequence[Any],
    *,
    whole: bool,
) -> tuple[dict[str, Interval], dict[str, Interval]]:
    if bounds is not None and not hasattr(bounds, "items"):
        raise BoundsError(
            f"`bounds` must be a dict of column (or term) to (lo, hi); got {type(bounds).__name__}"
        )
    names = {name for formula in roles.formulas for name in formula.term_names()}
    source: dict[str, Interval] = {}
    terms: dict[str, Interval] = {}
    strangers: list[Any] = []
    for name, value in (bounds or {}).items():
        if name in kinds:
            if kinds[name].kind == "categorical":
                raise BoundsError(f"`bounds` must not name a categorical column; got {name!r}")
            interval = check_interval(name, value)
            if kinds[name].kind == "bool" and not (interval[0] <= 0.0 and interval[1] >= 1.0):
                raise BoundsError(f"`bounds` of the bool column {name!r} must hold 0 and 1")
            if kinds[name].kind == "numeric":
                source[name] = interval
        elif name in names:
            terms[name] = check_interval(name, value)
        elif name not in columns:
            strangers.append(name)
    missing = [
        name for name, kind in kinds.items() if kind.kind == "numeric" and name not in source
    ]
    # where nothing has to be searched, names of no column do no harm
    for name in strangers if missing else ():
        near = [column for column in missing if _alike(column.lower(), str(name).lower())]
        if whole or near:
            near = near or near_names(str(name), missing)
            hint = f" (near matches: {_list(near)})" if near else ""
            raise BoundsError(
                f"`bounds` must name columns of `data` or terms of the formula; got {passed(name)}"
                f"{hint}, and nothing for {_list(missing)}"
            )
    return source, terms


def _alike(a: str, b: str) -> bool:
    """Whether two names are near, or one is the other with letters exchanged."""
    return sorted(a) == sorted(b) or difflib.SequenceMatcher(None, a, b).ratio() > 0.8


def _unbounded(
    roles: Roles,
    kinds: Mapping[str, ColumnKind],
    bounds: Mapping[str, Interval],
    terms: Mapping[str, Interval],
) -> tuple[str, ...]:
    formulas = roles.formulas
    partial = {name for formula in formulas for name in formula.needs_public_bounds(bounds)}
    missing = tuple(n for n, kind in kinds.items() if kind.kind == "numeric" and n not in bounds)
    refused = sorted(partial & set(missing))
    if refused:
        raise BoundsError(
            f"`bounds` must name {_list(refused)}: the formula uses a function of it that is not "
            "defined for every number, so its bounds must be public"
        )
    if missing and terms:
        raise BoundsError(
            f"`bounds` must name {_list(missing)} too, since they name the term "
            f"{_list(list(terms))}: bounds found privately might not fit the term's own"
        )
    return missing


def _formula_columns(roles: Roles) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for formula in roles.formulas for name in formula.columns))


def _values(column: pd.Series[Any], kind: ColumnKind) -> NDArray[Any]:
    if kind.kind != "categorical":
        return _floats(column)
    import pandas as pd

    place = {level: code for code, level in enumerate(kind.levels)}
    if isinstance(column.dtype, pd.CategoricalDtype):
        # the extra last entry is where the code -1 of a missing value leads
        steps = [_code(level, place) for level in column.cat.categories] + [-1]
        return np.array(steps, dtype=np.int64)[column.cat.codes.to_numpy()]
    codes = np.array([_code(value, place) for value in column.astype(object)], dtype=np.int64)
    codes[column.isna().to_numpy(dtype=bool)] = -1
    return codes


def _code(value: Any, place: Mapping[Any, int]) -> int:
    """Return the place of a value; one outside the declared levels counts as the first level.

    Like clipping: were it an error or a missing value, a user could ask for free whether some row
    has it.
    """
    try:
        return place.get(value, 0)
    except TypeError:
        return 0


def _floats(column: pd.Series[Any]) -> FloatArray:
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    return values < 0 if values.dtype.kind == "i" else np.isnan(values)


def _treatment(raw: pd.Series[Any], roles: Roles) -> NDArray[np.bool_]:
    import pandas as pd

    if roles.treated is not None:
        if not (
            pd.api.types.is_object_dtype(raw.dtype) or isinstance(raw.dtype, pd.CategoricalDtype)
        ):
            return (raw == roles.treated).to_numpy(dtype=bool)
        return np.array([_same(value, roles.treated) for value in raw.astype(object)], dtype=bool)
    if isinstance(raw.dtype, pd.CategoricalDtype):
        raw = raw.astype(object)
    values = raw.to_numpy(dtype=np.float64)
    treated = values == 1.0
    if not np.all(treated | (values == 0.0)):
        raise DPStatsError(
            f"`treat` must be 0/1 or bool; {roles.treat!r} holds other numbers: recode it or pass "
            "`treated=` with the level that means treated"
        )
    return treated


def _same(value: Any, level: Any) -> bool:
    """Compare, taking what cannot be compared for different: an odd cell must not raise."""
    try:
        return bool(value == level)
    except Exception:
        return False


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"{name!r}" for name in names)
