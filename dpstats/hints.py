"""What was probably meant: near names, what others call an argument, the columns there are.

Names of columns and arguments are public; no hint holds a value of the data.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from dpstats.errors import DPStatsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = [
    "ATE_NAMES",
    "PLAN_ATE_NAMES",
    "PLAN_SYNTH_NAMES",
    "SYNTH_NAMES",
    "argument_hint",
    "choice_hint",
    "closed",
    "column_hint",
    "near_names",
    "with_hints",
]

P = ParamSpec("P")
R = TypeVar("R")

# characters of a list of columns
_WIDTH = 150
_ARGUMENT = "here it is called `{}`"
_OUTCOME = "the outcome is the left side of `formula`"
_COVARIATES = "covariates stand on the right side of `formula`"
_WEIGHTS = "rows cannot be weighted"
_CLUSTERS = "standard errors are not clustered; `rows_per_person` protects who has several rows"
_LEVEL = "the level of intervals is an argument of conf_int() and summary()"


def _renamed(arguments: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return what to say of each name that others give to an argument."""
    return {
        name: _ARGUMENT.format(argument) for argument, names in arguments.items() for name in names
    }


_EPS = _renamed({"eps": ("epsilon", "budget", "privacy_budget")})
_COMMON = {
    **_EPS,
    **_renamed(
        {
            "rng": ("seed", "random_state", "random_seed"),
            "method": ("estimator",),
            "noise": ("mechanism",),
            "ledger": ("accountant",),
            "missing": ("na_action", "dropna"),
            "bounds": ("limits", "range", "outcome_bounds", "y_bounds"),
        }
    ),
}
_ADVICE = {
    "weights": _WEIGHTS,
    "weight": _WEIGHTS,
    "sample_weight": _WEIGHTS,
    "alpha": _LEVEL,
    "level": _LEVEL,
    "conf_level": _LEVEL,
}

# names of the same thing elsewhere: an argument of dp_ate, or what to do
ATE_NAMES: dict[str, str] = {
    **_COMMON,
    **_renamed(
        {
            "treat": ("treatment", "treatment_col", "w", "d"),
            "data": ("df", "frame", "dataset"),
            "levels": ("categories", "categorical"),
            "estimand": ("target", "effect"),
            "overlap": ("omega", "trim", "trimming", "clip"),
            "propensity": ("ps", "pscore", "propensity_score", "ps_formula"),
            "blocks": ("n_blocks", "strata"),
            "treated": ("treated_level", "treatment_level"),
        }
    ),
    **_ADVICE,
    **dict.fromkeys(("y", "outcome"), _OUTCOME),
    **dict.fromkeys(("x", "covariates", "controls", "confounders"), _COVARIATES),
    **dict.fromkeys(("cluster", "clusters", "groups", "cov_type", "vcov"), _CLUSTERS),
}

# the same for dp_synth
SYNTH_NAMES: dict[str, str] = {
    **_COMMON,
    **_renamed(
        {
            "panel": ("data", "df", "frame"),
            "unit": ("id", "unit_id", "units", "unit_col"),
            "time": ("year", "period", "periods", "time_col"),
            "T0": ("pre_periods", "intervention", "treatment_time", "cutoff", "t_0"),
            "treated": ("treat", "treatment", "target", "treated_unit"),
            "outcome": ("y", "outcome_col"),
            "penalty": ("lam", "lambda_", "ridge"),
        }
    ),
    **_ADVICE,
    "formula": "a panel has no formula: pass `unit`, `time` and `outcome`",
}


# methods and estimands as others call them, in lower case, and their names here
_CHOICES = {
    **dict.fromkeys(("ols", "lm", "linear", "linear_regression", "g_formula"), "regression"),
    **dict.fromkeys(("matching", "psm", "stratification", "subclassification"), "blocking"),
    **dict.fromkeys(("iptw", "ht", "weighting"), "ipw"),
    **dict.fromkeys(("hajek", "overlap"), "nipw"),
    **dict.fromkeys(("dr", "aipw_dr", "doubly_robust"), "aipw"),
    **dict.fromkeys(("dim", "ttest", "t_test", "difference"), "diff_means"),
    **dict.fromkeys(("atet", "tot"), "att"),
    **dict.fromkeys(("atu", "atut", "atnt"), "atc"),
}


def choice_hint(value: Any, choices: Iterable[str]) -> str:
    """Return which of the choices was probably meant.

    Parameters
    ----------
    value : object
        What was passed and is none of them.
    choices : iterable of str

    Examples
    --------
    >>> choice_hint("regresion", ["ipw", "regression"]), choice_hint("OLS", ["ipw", "regression"])
    ('near matches: regression', "here it is called 'regression'")
    >>> choice_hint("ATET", ["ate", "att"])
    "here it is called 'att'"
    """
    if not isinstance(value, str):
        return ""
    names = list(choices)
    known = _CHOICES.get(value.lower())
    if known in names:
        return f"here it is called {known!r}"
    near = near_names(value, names)
    return f"near matches: {', '.join(near)}" if near else ""


_PLAN = {
    **_EPS,
    **_renamed(
        {
            "method": ("estimator",),
            "target_se": ("se", "target", "precision", "standard_error"),
        }
    ),
    "mde": "the smallest effect found is in the plan: `detectable`",
    "effect": "the smallest effect found is in the plan: `detectable`",
}

# the same for plan_ate
PLAN_ATE_NAMES: dict[str, str] = {
    **_PLAN,
    **_renamed(
        {
            "n": ("n_rows", "rows", "nobs", "sample_size", "n_obs"),
            "k": ("columns", "p", "n_covariates", "n_columns"),
            "y_bounds": ("outcome_bounds", "range", "limits"),
            "treated_share": ("share_treated", "p_treated", "prop_treated", "share"),
            "outcome_sd": ("sd", "sigma", "y_sd", "sd_y"),
            "propensity": ("ps", "pscore"),
        }
    ),
}

# and for plan_synth
PLAN_SYNTH_NAMES: dict[str, str] = {
    **_PLAN,
    **_renamed(
        {
            "n": ("n_donors", "donors", "units", "n_units"),
            "periods": ("n_periods", "t", "time"),
            "bounds": ("y_bounds", "outcome_bounds", "range", "limits"),
            "deviation": ("outcome_sd", "sd", "sigma"),
            "factors": ("n_factors", "rank"),
        }
    ),
    "t0": "here it is `pre_periods`, how many periods there are up to T0",
    "post_periods": "pass `periods`, all there are, and `pre_periods`, those up to T0",
}


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names like this one, each once, those that differ in case first.

    Examples
    --------
    >>> near_names("Wage", ["age", "wages", "wage", "wage"])
    ['wage', 'age', 'wages']
    """
    names = list(dict.fromkeys(known))
    same = [other for other in names if other.lower() == name.lower()]
    return list(dict.fromkeys([*same, *difflib.get_close_matches(name, names, 3)]))[:3]


def column_hint(name: str, columns: Iterable[Any]) -> str:
    """Return the columns that may be meant: near ones, else all of them as far as space allows.

    Nothing where a name looks like a cell (a number, a date, True): a file without a header then
    gives the values of its first row for names.

    Examples
    --------
    >>> column_hint("educ", ["y", "w", "age"])
    "columns: 'y', 'w', 'age'"
    >>> column_hint("Age", ["y", "w", "age"])
    "near matches: 'age'"
    >>> column_hint("educ", ["0.731", "34", "Miller"])
    ''
    """
    names = list(dict.fromkeys(columns))
    if any(map(_is_cell, names)):
        return ""
    if near := near_names(name, names):
        return f"near matches: {', '.join(map(repr, near))}"
    if not all(map(_is_word, names)):
        return ""
    shown = ""
    for place, column in enumerate(names):
        if len(shown) > _WIDTH:
            return f"columns: {shown} and {len(names) - place} more"
        shown += f", {column!r}" if shown else repr(column)
    return f"columns: {shown}" if shown else ""


def _is_cell(name: Any) -> bool:
    """Whether a name is a cell of a row: digits and signs only, or not a text at all.

    A spreadsheet without a header gives numbers and dates as they are.
    """
    return not isinstance(name, str) or name.lower() in _CELLS or bool(_NUMBER.fullmatch(name))


def _is_word(name: str) -> bool:
    """Whether a name starts as words do."""
    return name[:1].isalpha() or name[:1] == "_"


# cells of a row that look like words
_CELLS = {"true", "false", "nan", "na", "null", "none", "inf", "infinity"}
# numbers, dates, times and sums of money; "1.0.1" is how pandas tells two equal names apart
_NUMBER = re.compile(r"[\d\s.,:;/+\-%$€£]+([eE][+\-]?[\d.]+)?")


def argument_hint(name: str, known: Iterable[str], foreign: Mapping[str, str]) -> str:
    """Return what a keyword that no function knows may be meant for.

    Parameters
    ----------
    name : str
    known : iterable of str
        Arguments and options there are.
    foreign : dict of str to str
        Names that others use, in lower case, and what to say of them.

    Examples
    --------
    >>> argument_hint("Epsilon", ["eps", "delta"], ATE_NAMES)
    'here it is called `eps`'
    >>> argument_hint("bound", ["eps", "bounds"], ATE_NAMES)
    'near matches: bounds'
    """
    if name.lower() in foreign:
        return foreign[name.lower()]
    near = near_names(name, known)
    return f"near matches: {', '.join(near)}" if near else ""


def with_hints(foreign: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function that lacks an argument say so where it came under another name.

    Python would name the argument that is missing only, before the function sees the other name.

    Parameters
    ----------
    foreign : dict of str to str
        Names that others use, in lower case, and what to say of them.

    Examples
    --------
    >>> @with_hints(ATE_NAMES)
    ... def estimate(data, eps, **more):
    ...     return eps
    >>> estimate(0, 1)
    1
    >>> estimate(0, epsilon=1)
    Traceback (most recent call last):
        ...
    dpstats.errors.DPStatsError: `epsilon` must be an argument of estimate; got 'epsilon' \
(here it is called `eps`)
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters.values()
        named = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
        names = [p.name for p in named]
        places = [p.name for p in named if p.kind is p.POSITIONAL_OR_KEYWORD]
        required = {p.name for p in named if p.default is p.empty}

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            missing = required - {*places[: len(args)], *kwargs}
            for name in kwargs if missing else ():
                # a name near one that is there would be an option of a method
                hint = "" if name in names else argument_hint(name, missing, foreign)
                if hint:
                    rule = f"`{name}` must be an argument of {function.__name__}"
                    raise DPStatsError(f"{rule}; got {name!r} ({hint})")
            return function(*args, **kwargs)

        return call

    return decorate


def closed(foreign: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function without further options refuse keywords it lacks, and name what is missing.

    Parameters
    ----------
    foreign : dict of str to str
        Names that others use, in lower case, and what to say of them.

    Examples
    --------
    >>> @closed(PLAN_SYNTH_NAMES)
    ... def plan(n, periods, *, delta=0.0):
    ...     return n
    >>> plan(n_donors=38, periods=31)
    Traceback (most recent call last):
        ...
    dpstats.errors.DPStatsError: `n_donors` must be an argument of plan; got 'n_donors' \
(here it is called `n`)
    >>> plan(38)
    Traceback (most recent call last):
        ...
    dpstats.errors.DPStatsError: `periods` must be given: plan needs `n`, `periods`
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters.values()
        names = [p.name for p in parameters]
        places = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        required = [p.name for p in parameters if p.default is p.empty]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name not in names:
                    hint = argument_hint(name, names, foreign)
                    raise DPStatsError(
                        f"`{name}` must be an argument of {function.__name__}; got {name!r}"
                        f"{hint and f' ({hint})'}"
                    )
            given = {*places[: len(args)], *kwargs}
            missing = [f"`{name}`" for name in required if name not in given]
            if missing:
                needs = ", ".join(f"`{name}`" for name in required)
                raise DPStatsError(
                    f"{', '.join(missing)} must be given: {function.__name__} needs {needs}"
                )
            return function(*args, **kwargs)

        return call

    return decorate
