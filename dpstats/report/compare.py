"""Several results side by side, as a published table of regressions shows them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.alarms import RULES
from dpstats.errors import DPStatsError
from dpstats.inference import check_alpha
from dpstats.report._grid import Grid, Head, Row
from dpstats.report._numbers import check_decimals, places, rounded, signed_places
from dpstats.report.comparison import Comparison
from dpstats.report.story import plain_privacy, references
from dpstats.results import PrivateResults, format_budget
from dpstats.storage import plain as json_ready

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "compare"]

MARK = "NOT PRIVATE"
_STARS = ((0.01, "***"), (0.05, "**"), (0.1, "*"))
_LEGEND = "* p < 0.1, ** p < 0.05, *** p < 0.01."
# rules of alarms: a comparison that may be biased, or that says nothing, is not significant of an
# effect
_WITHOUT_STARS = frozenset(
    (
        "covariates adjusted for",
        "rows of an arm, in noise sd",
        "gain over the last value",
        "95% interval over the outcome's range",
        "adjustment seen",
        "slope of treatment",
    )
)
_NEEDED = ("params", "bse", "pvalues", "nobs")


@dataclass(frozen=True, slots=True)
class _Effect:
    """One parameter of one result, with the interval and the part that is privacy noise."""

    estimate: float
    error: float
    pvalue: float
    interval: tuple[float, float]
    privacy: tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Column:
    """What one result contributes; strings and released numbers only.

    `why` says why it is not private, and is empty where it is; `release` is the same for two
    results of one release, and empty where nothing was released. `doubted` says that a warning
    forbids stars.
    """

    effects: dict[str, _Effect]
    facts: dict[str, str]
    why: str
    noisy: bool
    epsilon: float
    delta: float
    relation: str
    protects: str
    release: str
    warnings: tuple[str, ...] = ()
    doubted: bool = False
    plain: str = ""
    citations: tuple[str, ...] = ()


# rows below the estimates, in this order; those with no entry at all are left out
_MODEL_ROWS = ("Outcome", "Treatment", "Treated unit", "Method", "Estimand", "N", "N (donors)")
_PRIVACY_ROWS = ("Epsilon", "Delta", "Relation", "Private", "Std. error of noise alone", "Warnings")


def compare(
    results: Mapping[Any, Any] | Sequence[Any] | PrivateResults,
    *,
    stars: bool = False,
    ci: bool = False,
    alpha: float = 0.05,
    decimals: int | None = None,
    mixed: bool = False,
    rename: Mapping[str, str] | None = None,
    keep: Sequence[str] | None = None,
    title: str = "",
    notes: Sequence[str] = (),
) -> Comparison:
    r"""Put several results side by side, as a published table of regressions does.

    Standard errors stand in parentheses below the estimates, what was spent and whom it protects
    below both. What is not private is marked NOT PRIVATE in every format.

    Parameters
    ----------
    results : mapping, sequence or one result
        Results by column name; those of a sequence are numbered (1), (2), and so on. Results of
        `dp_ate` and `dp_synth`; with `mixed`, also any with `params`, `bse`, `pvalues` and `nobs`,
        as statsmodels has them.
    stars : bool
        Whether to mark p-values below .1, .05 and .01. A result whose warnings say that the
        comparison may be biased (nothing adjusted for, say) gets none, and a note says so.
    ci : bool
        Whether to show intervals, in brackets.
    alpha : float
        One minus the level of the intervals.
    decimals : int, optional
        Digits after the point of estimates, errors and intervals, up to 10. By default each
        estimate has as many as show its standard error with two significant digits, and on which
        side of zero an interval ends.
    mixed : bool
        Whether results computed without noise (`eps=inf`, statsmodels) may stand beside those with
        noise. Publishing them discloses the data exactly as without dpstats.
    rename : mapping of str to str, optional
        New names of parameters, `{"w": "ATE"}`, so that a coefficient stands in the row of the
        effect it estimates.
    keep : sequence of str, optional
        Parameters to show, by their new names, in this order; by default all.
    title : str
        Above the table.
    notes : sequence of str
        Below the notes that stand there anyway.

    Returns
    -------
    Comparison
        With `as_text`, `as_html`, `as_latex`, `as_markdown` and `plot`; Jupyter shows the HTML.

    Raises
    ------
    DPStatsError
        If there is no result, one is of another kind, results without noise stand beside others
        and `mixed` is not set, or `rename` or `keep` names a parameter that no result has.

    Notes
    -----
    The total by basic composition holds where all columns come from one file and all of its
    estimates are shown. Estimands of one release (`res.estimand`) count once.

    For a compact row for a paper, `dp.compare([res]).as_latex()` will do. The rules are those of
    booktabs where the document loads it.

    Examples
    --------
    >>> import dpstats as dp
    >>> trial = dp.simulate.ate("well_specified", 5000, rng=1)
    >>> def fit(eps):
    ...     return dp.dp_ate("y ~ x1 + x2 + x3 + x4", treat="w", data=trial.data, eps=eps,
    ...                      bounds=trial.bounds)
    >>> table = dp.compare({"low": fit(1), "high": fit(2)}, stars=True)
    >>> print(table.as_markdown().splitlines()[0])
    |                           |            low            |           high            |
    >>> "Together the columns cost eps = 3" in str(table)
    True
    """
    level = check_alpha(alpha)
    digits = check_decimals(decimals)
    named = _named(results)
    columns = {name: _column(name, result, level, digits) for name, result in named.items()}
    _check_mixed(columns, mixed)
    columns = _renamed(columns, rename or {}, keep)
    sections = (
        _estimate_rows(columns, stars=stars, ci=ci, decimals=digits),
        _fact_rows(columns, _MODEL_ROWS),
        _fact_rows(columns, _PRIVACY_ROWS),
    )
    heads = tuple(Head(name, MARK if column.why else "") for name, column in columns.items())
    grid = Grid(heads, sections, title, (*_notes(columns, stars, ci, level), *_user_notes(notes)))
    return Comparison(
        grid,
        _effects(columns),
        1.0 - level,
        digits,
        _label(columns),
        _plain(columns),
        tuple(dict.fromkeys(text for column in columns.values() for text in column.citations)),
    )


def _user_notes(notes: Any) -> tuple[str, ...]:
    return (notes,) if isinstance(notes, str) else tuple(map(str, notes))


def _named(results: Any) -> dict[str, Any]:
    if isinstance(results, PrivateResults):
        results = [results]
    if isinstance(results, Mapping):
        named = {str(name): result for name, result in results.items()}
        if len(named) < len(results):
            raise DPStatsError("`results` must have columns of different names")
    elif isinstance(results, Iterable) and not isinstance(results, str | bytes):
        named = {f"({place})": result for place, result in enumerate(results, 1)}
    else:
        raise DPStatsError(
            f"`results` must be a mapping or a sequence of results; got {type(results).__name__}"
        )
    if not named:
        raise DPStatsError("`results` must hold at least one result; got none")
    return named


def _column(name: str, result: Any, alpha: float, decimals: int | None) -> _Column:
    if isinstance(result, PrivateResults):
        return _own(result, alpha, decimals)
    if all(hasattr(result, needed) for needed in _NEEDED):
        return _foreign(name, result, alpha)
    raise DPStatsError(
        "`results` must hold results of dp_ate and dp_synth, or ones with "
        f"{', '.join(_NEEDED)} as statsmodels has them; got {type(result).__name__} for {name!r}"
    )


def _own(result: PrivateResults, alpha: float, decimals: int | None) -> _Column:
    privacy = result.privacy
    noisy = math.isfinite(privacy.epsilon)
    interval, noise = result.conf_int(alpha), result.privacy_interval(alpha)
    effects = {
        _parameter(label): _Effect(
            float(result.params.iloc[place]),
            float(result.bse.iloc[place]),
            float(result.pvalues.iloc[place]),
            _ends(interval, place),
            _ends(noise, place),
        )
        for place, label in enumerate(result.params.index)
    }
    why = "" if privacy.private else "no noise (eps = inf)"
    if noisy and not privacy.private:
        why = "its noise was drawn from a seed and can be subtracted"
    facts = {
        **result.comparison_facts(),
        "Epsilon": format_budget(privacy.epsilon),
        "Delta": format_budget(privacy.delta) if noisy else "n/a",
        "Relation": privacy.relation if noisy else "n/a",
        "Private": MARK if why else "yes",
    }
    if noisy:
        noise_sd = result.noise_sd()
        digits = places(noise_sd) if decimals is None else decimals
        facts["Std. error of noise alone"] = rounded(noise_sd, digits)
    if warnings := result.warnings:
        facts["Warnings"] = f"{len(warnings)}, see notes"
    # two estimands of one release cost what one does
    release = json.dumps([json_ready(getattr(result, "released", None)), privacy.epsilon])
    return _Column(
        effects,
        facts,
        why,
        noisy,
        privacy.epsilon,
        privacy.delta,
        privacy.relation,
        privacy.protects,
        release if noisy else "",
        warnings,
        _doubted(result),
        plain_privacy(privacy),
        references(result._story().sources),
    )


def _doubted(result: PrivateResults) -> bool:
    """Whether a warning says that the estimate is of something else, or of nothing."""
    limits = {rule.name: rule for rule in RULES if rule.name in _WITHOUT_STARS}
    return any(
        signal.name in limits and limits[signal.name].broken(signal.value)
        for signal in result._signals()
    )


def _ends(interval: pd.DataFrame, place: int) -> tuple[float, float]:
    low, high = interval.to_numpy(dtype=float)[place]
    return float(low), float(high)


def _foreign(name: str, result: Any, alpha: float) -> _Column:
    """Take what statsmodels has; the result itself holds the data and is not kept."""
    model = getattr(result, "model", None)
    try:
        values = [np.asarray(getattr(result, part), dtype=float) for part in _NEEDED[:3]]
        nobs = float(result.nobs)
    except (TypeError, ValueError):
        raise DPStatsError(
            f"`results` must hold numbers in `params`, `bse`, `pvalues` and `nobs`; those of "
            f"{name!r} are of another kind"
        ) from None
    params, errors, pvalues = values
    if params.ndim != 1 or any(value.shape != params.shape for value in values):
        raise DPStatsError(
            "`results` must hold one value a parameter in `params`, `bse` and `pvalues`; those of "
            f"{name!r} have shapes {', '.join(str(value.shape) for value in values)}"
        )
    labels = getattr(result.params, "index", None)
    if labels is None:
        labels = getattr(model, "exog_names", None)
    if labels is None or len(labels) != params.size:
        labels = [f"x{place}" for place in range(params.size)]
    ends = np.full((params.size, 2), math.nan)
    if hasattr(result, "conf_int"):
        ends = np.asarray(result.conf_int(alpha), dtype=float).reshape(params.size, 2)
    effects = {
        _parameter(label): _Effect(
            float(params[j]),
            float(errors[j]),
            float(pvalues[j]),
            (float(ends[j, 0]), float(ends[j, 1])),
            (math.nan, math.nan),
        )
        for j, label in enumerate(labels)
    }
    outcome = getattr(model, "endog_names", "")
    method = type(model).__name__ if model is not None else type(result).__name__
    facts = {
        "Outcome": outcome if isinstance(outcome, str) else "",
        "Method": method,
        "N": f"{nobs:.0f}",
        "Epsilon": "inf",
        "Delta": "n/a",
        "Relation": "n/a",
        "Private": MARK,
    }
    return _Column(
        effects, facts, "not computed by dpstats, no noise", False, math.inf, 0.0, "", "", ""
    )


def _parameter(label: Any) -> str:
    """Name a parameter; of several treated units, (unit, "ATT")."""
    if not isinstance(label, tuple):
        return str(label)
    *units, name = map(str, label)
    return f"{name} ({', '.join(units)})" if units else name


def _check_mixed(columns: Mapping[str, _Column], mixed: bool) -> None:
    exact = [name for name, column in columns.items() if not column.noisy]
    if mixed or not exact or len(exact) == len(columns):
        return
    raise DPStatsError(
        "`mixed` must be True where results computed without noise stand beside others: a reader "
        "could take them for private, and publishing them discloses the data; without noise are "
        + ", ".join(map(repr, exact))
    )


def _renamed(
    columns: dict[str, _Column], rename: Mapping[str, str], keep: Sequence[str] | None
) -> dict[str, _Column]:
    known = {name for column in columns.values() for name in column.effects}
    for name in rename:
        if str(name) not in known:
            raise DPStatsError(f"`rename` must name parameters of the results; got {name!r}")
    names = {str(old): str(new) for old, new in rename.items()}
    out = {}
    for head, column in columns.items():
        effects: dict[str, _Effect] = {}
        for old, effect in column.effects.items():
            new = names.get(old, old)
            if new in effects:
                raise DPStatsError(
                    f"`rename` must not give two parameters of one result the same name; {new!r} "
                    f"stands twice in {head!r}"
                )
            effects[new] = effect
        out[head] = replace(column, effects=effects)
    if keep is None:
        return out
    wanted = [keep] if isinstance(keep, str) else [str(name) for name in keep]
    shown = {name for column in out.values() for name in column.effects}
    for name in wanted:
        if name not in shown:
            raise DPStatsError(
                f"`keep` must name parameters of the results, as renamed; got {name!r}"
            )
    if not wanted:
        raise DPStatsError("`keep` must name at least one parameter; got none")
    return {
        head: replace(
            column,
            effects={name: column.effects[name] for name in wanted if name in column.effects},
        )
        for head, column in out.items()
    }


def _order(columns: Mapping[str, _Column]) -> list[str]:
    """Return the parameters, those of results with noise first."""
    ranked = sorted(columns.values(), key=lambda column: not column.noisy)
    return list(dict.fromkeys(name for column in ranked for name in column.effects))


def _estimate_rows(
    columns: Mapping[str, _Column], *, stars: bool, ci: bool, decimals: int | None
) -> tuple[Row, ...]:
    rows = []
    for name in _order(columns):
        found = [
            _Written(effect, _digits(effect, ci=ci) if decimals is None else decimals)
            if (effect := column.effects.get(name))
            else None
            for column in columns.values()
        ]
        starred = [stars and not column.doubted for column in columns.values()]
        cells = [e.estimate(stars=s) if e else "" for e, s in zip(found, starred, strict=True)]
        rows.append(Row(name, tuple(cells)))
        rows.append(Row("", tuple(e.error() if e else "" for e in found)))
        if ci:
            rows.append(Row("", tuple(e.interval() if e else "" for e in found)))
    return tuple(rows)


def _digits(effect: _Effect, *, ci: bool) -> int | None:
    return signed_places(effect.error, effect.interval if ci else ())


@dataclass(frozen=True, slots=True)
class _Written:
    """An effect as the table writes it."""

    effect: _Effect
    decimals: int | None

    def estimate(self, *, stars: bool) -> str:
        mark = _stars(self.effect.pvalue) if stars else ""
        return rounded(self.effect.estimate, self.decimals) + mark

    def error(self) -> str:
        return f"({rounded(self.effect.error, self.decimals)})"

    def interval(self) -> str:
        low, high = self.effect.interval
        if math.isnan(low) or math.isnan(high):
            return ""
        return f"[{rounded(low, self.decimals)}, {rounded(high, self.decimals)}]"


def _stars(pvalue: float) -> str:
    return next((mark for most, mark in _STARS if pvalue < most), "")


def _fact_rows(columns: Mapping[str, _Column], names: Sequence[str]) -> tuple[Row, ...]:
    rows = [
        Row(name, tuple(column.facts.get(name, "") for column in columns.values()))
        for name in names
    ]
    return tuple(row for row in rows if any(row.cells))


def _notes(columns: Mapping[str, _Column], stars: bool, ci: bool, alpha: float) -> tuple[str, ...]:
    noisy = any(column.noisy for column in columns.values())
    over = "; with noise, they cover sampling and privacy noise" if noisy else ""
    notes = [f"Standard errors in parentheses{over}."]
    if noisy and all(column.noisy for column in columns.values()):
        notes = ["Standard errors in parentheses, over sampling and privacy noise."]
    if ci:
        notes.append(f"{100.0 * (1.0 - alpha):.6g}% intervals in brackets.")
    if stars:
        notes.append(_LEGEND)
        doubted = [head for head, column in columns.items() if column.doubted]
        where = "here" if len(columns) == 1 else f"in {', '.join(doubted)}"
        if doubted:
            notes.append(
                f"No stars {where}: by the warning below the comparison may be biased or says "
                "nothing, which a p-value does not see."
            )
    notes += _warnings(columns)
    private = {head: column for head, column in columns.items() if not column.why}
    for text, heads in _grouped(
        {head: column.protects for head, column in private.items()}, len(columns)
    ):
        notes.append(f"Differentially private, {heads}: protects {text}")
    for text, heads in _grouped(
        {head: c.why for head, c in columns.items() if c.why}, len(columns)
    ):
        notes.append(f"{MARK}, {heads}: {text}.")
    total = _total(columns)
    return (*notes, total) if total else tuple(notes)


def _warnings(columns: Mapping[str, _Column]) -> list[str]:
    """Return what makes estimates doubtful, with the columns it is about."""
    heads: dict[str, list[str]] = {}
    for head, column in columns.items():
        for text in column.warnings:
            heads.setdefault(text, []).append(head)
    if len(columns) == 1:
        return [f"Warning: {text}" for text in heads]
    return [f"Warning, {', '.join(names)}: {text}" for text, names in heads.items()]


def _plain(columns: Mapping[str, _Column]) -> tuple[str, ...]:
    """Return the guarantees in plain words, with the columns they are about."""
    texts = {head: column.plain for head, column in columns.items() if column.plain}
    found = _grouped(texts, len(columns))
    if len(columns) == 1:
        return tuple(text for text, _ in found)
    return tuple(f"{heads[:1].upper()}{heads[1:]}. {text}" for text, heads in found)


def _grouped(texts: Mapping[str, str], count: int) -> list[tuple[str, str]]:
    """Return each text with the columns it is about, of `count` in all."""
    heads: dict[str, list[str]] = {}
    for head, text in texts.items():
        heads.setdefault(text, []).append(head)
    if len(texts) > 1 and len(heads) == 1 and len(texts) == count:
        return [(text, "all columns") for text in heads]
    return [(text, ", ".join(names)) for text, names in heads.items()]


def _total(columns: Mapping[str, _Column]) -> str:
    """Say what the private columns cost together, if they are of one relation."""
    private = [column for column in columns.values() if not column.why]
    if len(private) < 2 or len({column.relation for column in private}) > 1:
        return ""
    releases = {column.release: column for column in private}
    epsilon = math.fsum(column.epsilon for column in releases.values())
    delta = math.fsum(column.delta for column in releases.values())
    budget = f"eps = {format_budget(epsilon)}"
    budget += f", delta = {format_budget(delta)}" if delta else ""
    which = "columns" if len(private) == len(columns) else "private columns"
    if len(releases) == 1:
        return f"All {which} come from one release: together they cost {budget}."
    shared = "; columns of one release count once" if len(releases) < len(private) else ""
    return (
        f"Together the {which} cost {budget} where they come from one file (basic "
        f"composition{shared})."
    )


def _label(columns: Mapping[str, _Column]) -> str:
    """Name the effect, as far as the columns share it."""
    text = "Effect"
    # a panel's effect is one on its treated unit
    units = {column.facts.get("Treated unit", "") for column in columns.values()} - {""}
    if len(units) == 1 and not any("Treatment" in column.facts for column in columns.values()):
        text += f" on {units.pop()}"
        outcomes = {column.facts.get("Outcome", "") for column in columns.values()} - {""}
        return f"{text} ({outcomes.pop()})" if len(outcomes) == 1 else text
    for fact, word in (("Treatment", "of"), ("Outcome", "on")):
        named = {column.facts.get(fact, "") for column in columns.values()} - {""}
        if len(named) == 1:
            text += f" {word} {named.pop()}"
    return text


def _effects(columns: Mapping[str, _Column]) -> pd.DataFrame:
    import pandas as pd

    shown = _order(columns)
    if any(column.noisy for column in columns.values()):
        # beside private effects the other coefficients of a regression are no effects
        noisy = {n for column in columns.values() if column.noisy for n in column.effects}
        shown = [name for name in shown if name in noisy]
    rows = [
        (
            head if len(shown) == 1 else f"{head} {name}",
            effect.estimate,
            effect.error,
            *effect.interval,
            *effect.privacy,
            not column.why,
        )
        for name in shown
        for head, column in columns.items()
        if (effect := column.effects.get(name)) is not None
    ]
    names = [
        "name",
        "estimate",
        "std_error",
        "total_low",
        "total_high",
        "privacy_low",
        "privacy_high",
    ]
    return pd.DataFrame(rows, columns=[*names, "private"])
