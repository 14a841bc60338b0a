"""dp_ate: validate, charge, call one kernel, wrap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from dpstats.ate.balance import RELEASE as BALANCE
from dpstats.ate.balance import (
    balance_share,
    check_balanced,
    check_share,
    release_balance,
    set_aside,
)
from dpstats.ate.costs import release_costs
from dpstats.ate.data import arrays_from, read_columns, read_schema
from dpstats.ate.exact import check_estimate, check_rows, observed
from dpstats.ate.kernels import KERNELS
from dpstats.ate.kernels.base import Options, Public
from dpstats.ate.options import check_options
from dpstats.ate.outside import OUTSIDE, check_countable, release_outside
from dpstats.ate.propensity_spec import PropensitySpec, propensity_words, read_propensity
from dpstats.ate.results import ATEResults, Facts
from dpstats.calls import (
    check_count,
    check_noise,
    check_number,
    check_spent,
    choice,
    warn_budget,
    warn_privacy,
    warn_utility,
)
from dpstats.errors import BoundsError, DPStatsError, FormulaError
from dpstats.hints import ATE_NAMES, choice_hint, with_hints
from dpstats.passed import passed
from dpstats.privacy.accounting import (
    Cost,
    PrivacyRecord,
    charge,
    check_budget,
    find_ledger,
)
from dpstats.privacy.bounds import (
    Interval,
    private_bounds,
    private_bounds_threshold,
)
from dpstats.privacy.mechanisms import Mechanisms, NoiseKind
from dpstats.privacy.noise import noise_source
from dpstats.propensity import Objective, Output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from dpstats.ate.data import Columns, Schema
    from dpstats.ate.kernels.base import Estimand, Kernel, Released, Settings
    from dpstats.formula import Formula
    from dpstats.privacy.accounting import Ledger, Release
    from dpstats.privacy.noise import NoiseSource

__all__ = ["dp_ate"]

_SIMULATION_SEED = 20261130
# a bin rarely holds more than a few per cent of the rows beyond the quantiles that matter
_ROWS_PER_THRESHOLD = 10.0
_WIDEST: Interval = (-(2.0**60), 2.0**60)


@with_hints(ATE_NAMES)
def dp_ate(
    formula: str,
    treat: str,
    data: pd.DataFrame,
    eps: float,
    *,
    delta: float = 0.0,
    method: str = "blocking",
    noise: NoiseKind | None = None,
    estimand: Estimand = "ate",
    bounds: Mapping[str, tuple[float, float]] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
    treated: Any = None,
    propensity: Any = None,
    overlap: float | None = None,
    blocks: int | Literal["published"] | None = None,
    min_count: float | None = None,
    balance: float | None = None,
    check_bounds: float | None = None,
    split: Mapping[str, float] | Literal["published"] | None = None,
    missing: Literal["raise", "drop"] = "raise",
    rows_per_person: int = 1,
    ledger: Ledger | None = None,
    rng: Any = None,
    **method_options: Any,
) -> ATEResults:
    r"""Estimate an average treatment effect with differential privacy.

    Parameters
    ----------
    formula : str
        ``"y ~ x1 + x2"``: the outcome, and the covariates of the propensity. Row-wise functions
        (``np.log``, ``I()``, ``C()``, interactions) are allowed, anything computed over rows is
        refused.
    treat : str
        Column of `data` with the treatment: 0/1 or bool, or any column with `treated` named.
    data : DataFrame
        One row a person, shape (n, ...). Never modified.
    eps : float
        Privacy budget, positive. ``float("inf")`` gives the ordinary estimator, not private.
    delta : float
        Probability with which the guarantee may fail, in [0, 1). Positive: Gaussian noise.
    method : {"blocking", "ipw", "nipw", "split_ipw", "regression", "aipw", "diff_means", ...}
        Estimator; see ``docs/methods.md``. Others that fit in random subsets: "agg_aipw",
        "agg_ipw", "agg_regression", "agg_nipw", "binary".
    noise : {"laplace", "gaussian"}, optional
        By default Gaussian where `delta` > 0, else Laplace.
    estimand : {"ate", "att", "atc", "ato"}
        Average over everybody, the treated, the controls, or the overlap population.
    bounds : dict of str to (lo, hi), optional
        Public bounds of columns (in their own units) or of terms as patsy writes them. Columns
        without bounds get them privately, out of the same `eps`.
    levels : dict of str to list, optional
        Public levels of categorical columns; those of a Categorical dtype are taken as declared.
        A value outside them counts as the first level.
    treated : optional
        The level of `treat` that means treated.
    propensity : str, float or object, optional
        A formula ``"~ x1 + x3"`` for a design of its own, a number (known by design), a column
        name (known by row), or an object of `dpstats.propensity`. By default a private logistic
        regression on the right side of `formula`.
    overlap : float, optional
        omega: propensities are clipped to [omega, 1 - omega] by `ipw`. By default 0.1.
    blocks : int or "published", optional
        Number of blocks (`blocking` only); by default a rule on n and eps.
    min_count : float, optional
        Noisy count from which on a cell of `blocking` is used; by default three noise standard
        deviations.
    balance : float, optional
        Share of the budget spent on the balance of the covariates before and after the adjustment
        (`ATEResults.balance`), for the methods that weigh or block rows; the other releases share
        the rest. By default nothing. Costs no budget at `eps=inf`.
    check_bounds : float, optional
        Share of the budget spent on the number of rows with a value in use outside its bounds
        (stated, or found privately) or levels: those that clipping changes (`ATEResults.outside`,
        the diagnostics and the notes of the summary). A small share does, since one row counts
        once: the noise is about 1.4 / (share eps) rows. Bounds of terms are not looked at.
    split : dict of str to float, or "published", optional
        Share of the budget of each release; by default a measured rule.
    missing : {"raise", "drop"}
        What to do about missing values in the columns in use.
    rows_per_person : int
        Rows one person may have (a public promise).
    ledger : PrivacyLedger, optional
        Charged after everything has been validated and before noise is drawn; by default that of
        the ``with ledger:`` block around the call, if any. Seeded runs and `eps=inf` are refused.
    rng : optional
        Seed or Generator for replication. The result is then not private.
    **method_options
        Options of one method; `None` means the default. "blocking": ``smooth`` (bool), whether
        blocks borrow strength (`dpstats.ate.kernels.blockmeans`), by default yes, but for
        ``blocks="published"`` and ``eps=inf``; ``adjust`` (bool), whether blocks hold residuals of
        a private linear model of the outcome on the right side of `formula`, by default where a
        propensity is fitted, ``blocks`` and ``smooth`` are left open and n eps is at least 5000
        (more with more than four covariates). "split_ipw": ``train_share``, the share of the rows
        that train the propensity, by default one half. "agg_nipw", "binary": ``subsets``, and
        "agg_ipw", "agg_aipw", "agg_regression": ``folds``, the number of random parts of the rows,
        by default a measured rule on n, eps and the number of columns.

    Returns
    -------
    ATEResults

    Raises
    ------
    DPStatsError
        If an argument breaks a rule; `FormulaError` and `BoundsError` are kinds of it. Nothing
        is spent, but for a `BoundsError` that says so.

    Warns
    -----
    PrivacyWarning
        For a seed, dropped rows, a large `eps` or `delta`.
    UtilityWarning
        Where the noise, judged from public quantities, swamps the range of the outcome.

    Notes
    -----
    Two data sets are neighbours when one row is replaced; n is public. Columns are clipped to
    their bounds before anything is computed. The budget is split over the releases listed in
    ``result.privacy.releases``; each kernel's Notes hold its sensitivity and proof
    (`dpstats.ate.kernels`), `dpstats.propensity` that of the propensity. An error about missing
    values or about a treatment other than 0/1 is itself outside the guarantee.

    References
    ----------
    Differentially Private Average Treatment Effect Estimation by Propensity Score Blocking
    (SeqIPW, DPBlocking). Lee et al. (2019), arXiv:1905.12592. Chaudhuri et al. (2011),
    arXiv:0912.0071.

    Examples
    --------
    >>> import dpstats as dp
    >>> trial = dp.simulate.ate("well_specified", 20_000, rng=1)
    >>> res = dp.dp_ate("y ~ x1 + x2 + x3 + x4", treat="w", data=trial.data, eps=1,
    ...                 bounds=trial.bounds)
    >>> list(res.params.index), res.privacy.epsilon, res.privacy.private
    (['ATE'], 1.0, True)
    >>> bool(abs(res.params["ATE"] - 2) < 0.2)
    True
    """
    call = _check_call(
        eps,
        delta,
        method,
        noise,
        estimand,
        overlap,
        {"blocks": blocks, "min_count": min_count, "balance": balance},
        check_bounds,
        method_options,
        split,
        missing,
        rows_per_person,
        ledger,
        rng,
    )
    spec = read_propensity(propensity, rows_per_person)
    schema = read_schema(
        data,
        formula,
        treat,
        propensity=spec.formula,
        known=spec.column,
        treated=treated,
        fits_propensity=(call.kernel.uses_propensity and spec.needs_design) or call.balance > 0.0,
        models_outcome=call.kernel.may_model_outcome(call.options, spec.needs_design),
        bounds=bounds,
        levels=levels,
        private=call.private,
    )
    n_rows = len(data)
    if n_rows < 2:
        raise DPStatsError(f"`data` must have at least 2 rows; got {n_rows}")
    # whatever the caller's numpy settings are, a row must not show by a floating-point warning
    with np.errstate(all="ignore"):
        columns = read_columns(data, schema, missing=missing, strange=call.check_bounds > 0.0)
    if columns.n < 2:
        raise DPStatsError("`data` must have at least 2 complete rows")
    if not call.private:
        check_rows(columns, schema)
    plan = _plan(call, spec, schema, columns)
    complete = missing == "drop"
    _warn_public(call, columns.n, complete)
    receipt = charge(
        ledger,
        epsilon=call.epsilon,
        delta=call.delta,
        relation="row",
        call=f"dp_ate({formula!r}, treat={treat!r}, method={method!r})",
    )
    with np.errstate(all="ignore"):
        result = _estimate(call, spec, plan, columns, complete)
    if receipt is not None:
        receipt.keep(result.privacy.records)
    return result


@dataclass(frozen=True, slots=True)
class _Call:
    """Checked scalar arguments."""

    epsilon: float
    delta: float
    kernel: Kernel[Any]
    noise: NoiseKind
    estimand: Estimand
    overlap: float | None
    options: Mapping[str, Any]
    split: Mapping[str, float] | Literal["published"] | None
    rows_per_person: int
    source: NoiseSource | None
    check_bounds: float

    @property
    def balance(self) -> float:
        """Share of the budget for the balance of the covariates."""
        return balance_share(self.options)

    @property
    def private(self) -> bool:
        return self.source is not None

    @property
    def seeded(self) -> bool:
        return self.source is not None and self.source.seeded


@dataclass(frozen=True, slots=True)
class _Plan:
    """Public constants, costs and the schema of what is really needed."""

    schema: Schema
    settings: Settings
    costs: dict[str, Cost]
    bounds: dict[str, Interval]


def _check_call(
    eps: float,
    delta: float,
    method: str,
    noise: str | None,
    estimand: str,
    overlap: float | None,
    shared: Mapping[str, Any],
    check_bounds: float | None,
    method_options: Mapping[str, Any],
    split: Any,
    missing: str,
    rows_per_person: int,
    ledger: Any,
    rng: Any,
) -> _Call:
    epsilon, slack = check_budget(eps, delta)
    kernel = choice("method", method, KERNELS)
    kind = check_noise(noise, epsilon, slack)
    estimand = estimand.lower() if isinstance(estimand, str) else estimand
    if estimand not in kernel.estimands:
        hint = choice_hint(estimand, kernel.estimands)
        raise DPStatsError(
            f"`estimand` must be one of {', '.join(kernel.estimands)} for method {method!r}; "
            f"got {passed(estimand)}{hint and f' ({hint})'}"
        )
    choice("missing", missing, {"raise": 0, "drop": 0})
    check_number("overlap", overlap, 1e-6, 0.5, "a number in (0.000001, 0.5)")
    options = check_options(kernel, shared, method_options)
    outside = check_share("check_bounds", check_bounds)
    if outside + balance_share(options) >= 1.0:
        raise DPStatsError(
            "`balance` and `check_bounds` must leave a share of the budget for the estimate; got "
            f"{balance_share(options):g} and {outside:g}"
        )
    check_count("rows_per_person", rows_per_person, "a positive integer")
    if math.isinf(epsilon) and split is not None:
        raise DPStatsError("`split` has no meaning at `eps` = inf: nothing is spent")
    if split is not None and split != "published" and not hasattr(split, "keys"):
        raise DPStatsError(f"`split` must be a dict or 'published'; got {passed(split)}")
    source = noise_source(rng)
    find_ledger(ledger, epsilon=epsilon, seeded=source.seeded)
    return _Call(
        epsilon,
        slack,
        kernel,
        kind,
        cast("Estimand", estimand),
        overlap,
        options,
        split,
        int(rows_per_person),
        None if math.isinf(epsilon) else source,
        outside,
    )


def _plan(call: _Call, spec: PropensitySpec, schema: Schema, columns: Columns) -> _Plan:
    """Choose every constant and cost; at finite eps from public quantities alone."""
    roles = schema.roles
    # validates the formula against the public bounds before anything is spent
    searched = dict.fromkeys(schema.unbounded, _WIDEST)
    bounds = {**(searched if call.private else observed(columns, schema)), **schema.bounds}
    design: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()
    try:
        outcome = roles.outcome.bind(bounds, schema.terms)
        if roles.propensity is not None:
            design = roles.propensity.bind(bounds, schema.terms).names
        if roles.covariates is not None:
            covariates = roles.covariates.bind(bounds, schema.terms).names
    except FormulaError:
        if bounds.keys() == schema.bounds.keys() or call.private:
            raise
        outcome = None
    if outcome is None:
        # the message above would show the range of the data, and so would it as a context
        raise FormulaError(
            "`formula` must be defined between the smallest and largest value of each column at "
            "`eps` = inf; it is not: pass `bounds` inside which it is defined"
        )
    _check_width(roles.outcome.outcome or "", outcome.outcome_bounds or (0.0, 1.0))
    wished = call.kernel.published_split if call.split == "published" else call.split
    split = None if wished is None else tuple(wished)
    options = Options(
        call.estimand,
        spec.model if call.kernel.uses_propensity else None,
        spec.probability,
        spec.column is not None,
        call.overlap,
        split,
        call.options,
    )
    public = Public(columns.n, len(design), call.epsilon, call.delta, len(covariates))
    settings = call.kernel.settings(options, public)
    if call.balance:
        check_balanced(settings, design)
    elif roles.propensity is not None and not settings.needs_design:
        # nothing of the right side is needed, so nothing is spent on its bounds
        schema = schema.without("propensity")
    if roles.covariates is not None and not (call.kernel.models_outcome or settings.models_outcome):
        schema = schema.without("covariates")
    if call.check_bounds:
        check_countable(schema, private=call.private)
    costs = _costs(call, settings, public, schema) if call.private else {}
    return _Plan(schema, settings, costs, schema.bounds)


def _check_width(name: str, interval: Interval) -> None:
    """Refuse an outcome whose width overflows when squared, before anything is spent."""
    low, high = interval
    if not 1e-100 < float(high) - float(low) < 1e100:
        raise BoundsError(
            f"`bounds` must give the outcome {name!r} a width between 1e-100 and 1e100; rescale it"
        )


def _costs(call: _Call, settings: Settings, public: Public, schema: Schema) -> dict[str, Cost]:
    searched = len(schema.unbounded)
    gaussian = call.noise == "gaussian"
    beside = {BALANCE: call.balance, OUTSIDE: call.check_bounds}
    public, own = set_aside(public, beside, gaussian)
    costs = release_costs(
        call.kernel,
        settings,
        public,
        split=call.split,
        gaussian=gaussian,
        searched=searched,
        rows_per_person=call.rows_per_person,
    )
    if searched:
        _check_rows(public.n, searched, costs["bounds"].epsilon, call.rows_per_person, schema)
    fit = costs.get("propensity")
    if fit is not None and isinstance(settings.propensity, Objective):
        with np.errstate(all="ignore"):
            # refuses a penalty that is too small for its budget
            settings.propensity.calibrated(fit.epsilon, fit.delta)
    return costs | own


def _check_rows(n: int, searched: int, epsilon: float, rows: int, schema: Schema) -> None:
    """Refuse a search for bounds that cannot work, before anything is spent."""
    needed = _ROWS_PER_THRESHOLD * private_bounds_threshold(searched, epsilon, rows)
    if n < needed:
        names = ", ".join(f"{name!r}" for name in schema.unbounded)
        raise BoundsError(
            f"`bounds` must be passed for {names}: finding them privately within this budget "
            f"needs at least {needed:.0f} rows; got {n}"
        )


def _estimate(
    call: _Call, spec: PropensitySpec, plan: _Plan, columns: Columns, complete: bool
) -> ATEResults:
    schema, settings = plan.schema, plan.settings
    records: tuple[Release, ...] = ()
    mechanisms = Mechanisms(
        call.source, call.noise, plan.costs, rows_per_person=call.rows_per_person
    )
    found: dict[str, Interval] = {}
    if call.private:
        searched = {name: columns.cells[name] for name in schema.unbounded}
        found, records = private_bounds(searched, mechanisms)
    else:
        found = observed(columns, schema)
    known_overlap = settings.overlap if spec.column is not None else None
    arrays, outcome = arrays_from(
        columns, schema, {**found, **plan.bounds}, known_overlap, exact=not call.private
    )
    released = call.kernel.run(arrays, settings, mechanisms)
    if not call.private:
        check_estimate(released, call.estimand, arrays.half_width)
    records += released.records
    balance = None
    if call.balance:
        weights = call.kernel.row_weights(arrays, settings, released)
        design = cast("Formula", schema.roles.propensity).bind(
            {**found, **plan.bounds}, schema.terms
        )
        balance, more = release_balance(arrays, design, weights, mechanisms)
        records += more
    outside = None
    if call.check_bounds:
        outside, more = release_outside(columns, schema, {**found, **plan.bounds}, mechanisms)
        records += more
    check_spent(call.epsilon, call.delta, records)
    _warn_noise(call, released, arrays.half_width)
    facts = Facts(
        schema.text,
        schema.roles.treat,
        schema.roles.outcome.outcome or "",
        call.kernel.name,
        call.kernel.title,
        call.estimand,
        call.kernel.served(settings),
        columns.n,
        outcome.outcome_bounds or (0.0, 0.0),
        propensity_words(spec, settings, private=call.private),
        call.kernel.constants(settings),
        _SIMULATION_SEED,
    )
    privacy = PrivacyRecord(
        call.epsilon,
        call.delta,
        "replace one row",
        _protects(call, settings, complete),
        _public_facts(call, settings, schema, columns.n, found),
        call.private and not call.seeded,
        call.seeded,
        records,
    )
    return ATEResults(facts, released, privacy, balance, outside)


def _warn_public(call: _Call, n: int, complete: bool) -> None:
    if not call.private:
        return
    warn_budget(call.epsilon, call.delta, n, seeded=call.seeded)
    if complete:
        # even where no row is missing: a neighbouring file may have one
        warn_privacy("`missing` = 'drop' takes as public which rows are complete, and their number")


def _warn_noise(call: _Call, released: Released, half_width: float) -> None:
    """Warn where public quantities alone say that the noise swamps the outcome's range."""
    if call.private and 1.96 * released.noise_sd() > half_width:
        warn_utility(
            "the privacy noise swamps the answer: it alone makes an interval about as wide as the "
            "range of the outcome; more rows, a larger `eps` or tighter `bounds` would help",
            stacklevel=6,
        )


def _protects(call: _Call, settings: Settings, complete: bool) -> str:
    person = "one row" if call.rows_per_person == 1 else f"up to {call.rows_per_person} rows"
    text = f"any person who contributes {person} of the data (replaced by anything else)."
    if settings.fits_propensity and not isinstance(settings.propensity, Objective | Output):
        text += (
            f" Provided that the propensity of class {type(settings.propensity).__name__}, which "
            "is not part of dpstats, keeps to its budget."
        )
    if complete:
        text += " The protected file is the complete rows: which rows are complete is public."
    return text


def _public_facts(
    call: _Call, settings: Settings, schema: Schema, n: int, found: Mapping[str, Interval]
) -> dict[str, Any]:
    constants = {name: getattr(settings, name) for name in call.kernel.options}
    if constants.get("min_count", 0) is None:
        constants["min_count"] = "3 noise sd"
    if isinstance(settings.propensity, Objective | Output) and settings.fits_propensity:
        constants["propensity"] = settings.propensity.describe()
    other = [f"rows per person: {call.rows_per_person}"] if call.rows_per_person > 1 else []
    bounds = {**schema.bounds, **schema.terms}
    if call.private and schema.roles.known is not None:
        other.append(f"that {schema.roles.known} is known by design")
    return {
        "n": n,
        "formula": schema.text,
        "bounds": bounds,
        "bounds found privately": dict(found) if call.private else {},
        "levels": {name: tuple(map(str, levels)) for name, levels in schema.levels.items()},
        "constants": constants,
        "other": tuple(other),
    }
