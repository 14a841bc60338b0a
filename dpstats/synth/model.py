"""dp_synth: validate, charge, call one kernel, wrap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpstats.calls import (
    check_noise,
    check_spent,
    choice,
    warn_budget,
    warn_utility,
)
from dpstats.errors import BoundsError, DPStatsError, PanelError
from dpstats.hints import SYNTH_NAMES, argument_hint, with_hints
from dpstats.passed import passed
from dpstats.privacy.accounting import (
    Cost,
    PrivacyRecord,
    allocate,
    charge,
    check_budget,
    check_split,
    find_ledger,
)
from dpstats.privacy.bounds import (
    Interval,
    check_interval,
    private_bounds,
    private_bounds_share,
    private_bounds_threshold,
)
from dpstats.privacy.mechanisms import Mechanisms, NoiseKind
from dpstats.privacy.noise import noise_source
from dpstats.synth.data import read_panel
from dpstats.synth.kernels import KERNELS
from dpstats.synth.kernels.base import Panel, Public
from dpstats.synth.results import PanelFacts, SynthResults

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.privacy.accounting import Ledger, Release
    from dpstats.privacy.noise import FloatArray, NoiseSource
    from dpstats.synth.data import Cells
    from dpstats.synth.kernels.base import Kernel, Settings

__all__ = ["dp_synth"]

_SIMULATION_SEED = 20261130
# without bounds only what could not be squared is clipped
_WIDEST = 1e100
_ARGUMENTS = (
    *("panel", "T0", "unit", "time", "treated", "outcome", "eps", "delta", "method", "noise"),
    *("bounds", "penalty", "split", "missing", "ledger", "rng", "wide"),
)
# of all methods together
_OPTIONS = ("release", "project", "target_norm", "l1_ratio", "threshold", "rank")


@with_hints(SYNTH_NAMES)
def dp_synth(
    panel: pd.DataFrame,
    *,
    T0: Any,
    unit: str | None = None,
    time: str | None = None,
    treated: Any = None,
    outcome: str | None = None,
    eps: float,
    delta: float = 0.0,
    method: str = "moments",
    noise: NoiseKind | None = None,
    bounds: tuple[float, float] | Mapping[str, tuple[float, float]] | None = None,
    penalty: float | None = None,
    split: Mapping[str, float] | None = None,
    missing: Literal["raise", "keep"] = "raise",
    ledger: Ledger | None = None,
    rng: Any = None,
    wide: bool = False,
    **method_options: Any,
) -> SynthResults:
    r"""Estimate the effect of an intervention on one unit by synthetic control, privately.

    The donors are protected, each with its whole series; the treated unit is not.

    Parameters
    ----------
    panel : DataFrame
        Long, one row a unit and period, shape (units * periods, ...), in any order; with `wide`,
        shape (units, periods). Never modified.
    T0 : label
        Last period before the intervention, as it stands on the time axis: a year, a Timestamp, a
        Period, a date.
    unit, time : str
        Columns of a long panel. Time: numbers, dates, periods or an ordered Categorical.
    treated : label or list of labels, optional
        The treated unit or units, compared as they are. None: those with a 1 in a 0/1 column
        `treat` or `treated`, each 1 after `T0`.
    outcome : str, optional
        None where one numeric column is left.
    eps : float
        Privacy budget, positive. ``float("inf")`` gives the ordinary estimator, not private.
    delta : float
        Probability with which the guarantee may fail, in [0, 1). Positive: Gaussian noise.
    method : str
        "moments" (the default), "did", "output" or "objective"; with ``eps=inf`` also "simplex",
        "lasso", "elastic_net" and "robust".
    noise : {"laplace", "gaussian"}, optional
        By default Gaussian where `delta` > 0, else Laplace.
    bounds : (lo, hi), optional
        Public bounds of the outcome. Donors are clipped to them, treated series never. Where the
        method needs them and none are given, they are found privately, out of the same `eps`.
    penalty : float, optional
        Ridge weight, on data scaled by the bounds (unscaled where ``eps=inf`` and none are given).
    split : dict of str to float, optional
        Share of the budget of each release; by default a measured rule.
    missing : {"raise", "keep"}
        Missing cells of donors are kept by "robust" at ``eps=inf`` only.
    ledger : PrivacyLedger, optional
        One that protects units; charged after everything has been validated and before noise is
        drawn. By default that of the ``with ledger:`` block around the call, if any.
    rng : optional
        Seed or Generator for replication. The result is then not private.
    wide : bool
        Whether rows are units and columns are periods.
    **method_options
        Options of the method (`dpstats.synth.kernels`).

    Returns
    -------
    SynthResults

    Raises
    ------
    DPStatsError
        If an argument breaks a rule; `PanelError` and `BoundsError` are kinds of it. Nothing is
        spent, but for a `BoundsError` that says so.

    Warns
    -----
    PrivacyWarning
        For a seed, a large `eps` or `delta`.
    UtilityWarning
        Where the noise swamps the answer, or the estimate is not better than carrying the last
        value of the treated series forward; from public and released numbers. Where the time axis
        has a gap.

    Notes
    -----
    Two panels are neighbours when the whole series of one donor is replaced. The number of donors,
    the time axis, `T0` and the treated series are public. Each kernel's Notes hold its mechanism,
    sensitivity and proof. An error about missing or repeated cells is itself outside the guarantee.

    References
    ----------
    Rho, S., Cummings, R. and Misra, V. (2023). Differentially private synthetic control. AISTATS.
    arXiv:2303.14084. Abadie, A., Diamond, A. and Hainmueller, J. (2010),
    doi:10.1198/jasa.2009.ap08746.

    Examples
    --------
    >>> import dpstats as dp
    >>> sample = dp.simulate.panel("factor", n_donors=2000, effect=0.3, rng=1)
    >>> res = dp.dp_synth(sample.data, unit="unit", time="time", outcome="y", treated=0,
    ...                   T0=20, eps=1, delta=1e-6)
    >>> list(res.params.index), res.privacy.epsilon, res.privacy.private
    (['ATT'], 1.0, True)
    >>> bool(abs(res.params["ATT"] - 0.3) < 0.2)
    True
    """
    call = _check_call(eps, delta, method, noise, penalty, split, missing, ledger, rng)
    cells = read_panel(
        panel,
        T0=T0,
        unit=unit,
        time=time,
        treated=treated,
        outcome=outcome,
        wide=wide,
        keep=missing == "keep",
    )
    if isinstance(bounds, Mapping) and set(bounds) == {cells.outcome}:
        # as `dp_ate` takes them
        bounds = bounds[cells.outcome]
    interval = None if bounds is None else check_interval(cells.outcome, bounds)
    if not call.private:
        _check_exact(cells, interval)
    plan = _plan(call, cells, interval, penalty, method_options)
    if call.private:
        counts = (call.epsilon, call.delta, cells.n)
        warn_budget(*counts, seeded=call.seeded, whose="series", stacklevel=4)
    if gaps := cells.axis.gaps():
        warn_utility(
            f"`time` is not evenly spaced ({gaps} in column {cells.axis.name!r}): each period "
            "counts as one step after the one before",
            stacklevel=4,
        )
    receipt = charge(
        ledger,
        epsilon=call.epsilon,
        delta=call.delta,
        relation="unit",
        call=f"dp_synth(outcome={cells.outcome!r}, treated={treated!r}, T0={T0!s}, "
        f"method={method!r})",
    )
    # whatever the caller's numpy settings are, a donor must not show by a floating-point warning
    with np.errstate(all="ignore"):
        result = _estimate(call, plan, cells)
    if receipt is not None:
        receipt.keep(result.privacy.records)
    return result


@dataclass(frozen=True, slots=True)
class _Call:
    """Checked scalar arguments."""

    epsilon: float
    delta: float
    kernel: Kernel
    noise: NoiseKind
    split: Mapping[str, float] | None
    source: NoiseSource | None

    @property
    def private(self) -> bool:
        return self.source is not None

    @property
    def seeded(self) -> bool:
        return self.source is not None and self.source.seeded


@dataclass(frozen=True, slots=True)
class _Plan:
    """Public constants and costs."""

    public: Public
    settings: Settings
    costs: dict[str, Cost]
    bounds: Interval | None
    searched: bool


def _check_call(
    eps: float,
    delta: float,
    method: str,
    noise: str | None,
    penalty: Any,
    split: Any,
    missing: str,
    ledger: Any,
    rng: Any,
) -> _Call:
    epsilon, slack = check_budget(eps, delta)
    exact = math.isinf(epsilon)
    kernel: Kernel = choice("method", method, KERNELS)
    if not (kernel.private or exact):
        names = ", ".join(name for name, entry in KERNELS.items() if entry.private)
        raise DPStatsError(
            f"`method` = {method!r} is not private and needs `eps` = inf; private are {names}"
        )
    kind = check_noise(noise, epsilon, slack)
    if not exact and kind not in kernel.kinds:
        raise DPStatsError(
            f"`noise` must be one of {', '.join(kernel.kinds)} for method {method!r}; got {kind!r}"
        )
    choice("missing", missing, {"raise": 0, "keep": 0})
    if missing == "keep" and not (exact and method == "robust"):
        raise DPStatsError("`missing` = 'keep' needs method 'robust' and `eps` = inf")
    if penalty is not None:
        number = isinstance(penalty, int | float | np.integer | np.floating)
        if isinstance(penalty, bool) or not number or not 0.0 < float(penalty) < math.inf:
            raise DPStatsError(f"`penalty` must be a positive number; got {passed(penalty)}")
    if exact and split is not None:
        raise DPStatsError("`split` has no meaning at `eps` = inf: nothing is spent")
    if split is not None and not hasattr(split, "keys"):
        raise DPStatsError(f"`split` must be a dict of release to share; got {passed(split)}")
    source = noise_source(rng)
    find_ledger(ledger, epsilon=epsilon, seeded=source.seeded)
    return _Call(epsilon, slack, kernel, kind, split, None if exact else source)


def _check_exact(cells: Cells, bounds: Interval | None) -> None:
    """At `eps=inf` only: refuse donors from which the estimator cannot be computed."""
    kept = cells.donors if cells.missing is None else cells.donors[~cells.missing]
    if bounds is None and not np.isfinite(kept).all():
        raise PanelError(
            f"`panel` must hold finite values of {cells.outcome!r} at `eps` = inf where no "
            "`bounds` clip them"
        )


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse a keyword that is no option of any method, with what may be meant."""
    for name in options:
        if name in _OPTIONS:
            continue
        hint = argument_hint(name, [*_ARGUMENTS, *_OPTIONS], SYNTH_NAMES)
        raise DPStatsError(
            f"`{name}` must be an argument of dp_synth or an option of a method; got {name!r}"
            f"{hint and f' ({hint})'}"
        )


def _plan(
    call: _Call,
    cells: Cells,
    bounds: Interval | None,
    penalty: float | None,
    options: Mapping[str, Any],
) -> _Plan:
    """Choose every constant and cost from public quantities alone."""
    kernel = call.kernel
    public = Public(
        cells.n, cells.axis.size, cells.pre_periods, call.epsilon, call.delta, bounds is not None
    )
    _check_options(options)
    settings = kernel.settings(None if penalty is None else float(penalty), options, public)
    searched = call.private and settings.needs_bounds and bounds is None
    costs = _costs(call, settings, public, searched, cells.outcome) if call.private else {}
    return _Plan(public, settings, costs, bounds, searched)


def _costs(
    call: _Call, settings: Settings, public: Public, searched: bool, outcome: str
) -> dict[str, Cost]:
    shares = dict(call.kernel.shares(settings, public))
    total = math.fsum(shares.values())
    shares = {name: share / total for name, share in shares.items()}
    if searched:
        part = private_bounds_share(1, public.n, call.epsilon)
        shares = {"bounds": part, **{name: (1.0 - part) * s for name, s in shares.items()}}
    if call.split is not None:
        shares = check_split(call.split, list(shares))
    pure = {"bounds", *call.kernel.pure}
    gaussian = set(shares) - pure if call.noise == "gaussian" else set()
    costs = allocate(call.epsilon, call.delta, shares, gaussian)
    if searched:
        needed = 2.0 * private_bounds_threshold(1, costs["bounds"].epsilon)
        if public.n < needed:
            raise BoundsError(
                f"`bounds` must be passed for {outcome!r}: finding them privately within this "
                f"budget needs at least {needed:.0f} donors; got {public.n}"
            )
    return costs


def _estimate(call: _Call, plan: _Plan, cells: Cells) -> SynthResults:
    kernel, settings = call.kernel, plan.settings
    mechanisms = Mechanisms(call.source, call.noise, plan.costs, partition="all donors")
    bounds = plan.bounds
    records: tuple[Release, ...] = ()
    if plan.searched:
        bounds, records = _search(cells, mechanisms)
    panel = _scaled(cells, bounds)
    released = kernel.run(panel, settings, mechanisms)
    records = (*records, *released.records)
    check_spent(call.epsilon, call.delta, records)
    facts = PanelFacts(
        cells.outcome,
        cells.unit,
        cells.axis,
        kernel.name,
        kernel.title,
        cells.n,
        cells.pre_periods,
        cells.treated,
        cells.targets,
        bounds,
        tuple(kernel.constants(settings, plan.public)),
        () if call.private else tuple(str(label) for label in cells.labels),
        _SIMULATION_SEED,
    )
    privacy = PrivacyRecord(
        call.epsilon,
        call.delta,
        "replace one unit",
        _protects(facts),
        _public_facts(call, plan, facts),
        call.private and not call.seeded,
        call.seeded,
        records,
    )
    result = SynthResults(facts, released, privacy)
    if call.private:
        _warn_noise(result)
    return result


def _search(cells: Cells, mechanisms: Mechanisms) -> tuple[Interval, tuple[Release, ...]]:
    """Find bounds from each donor's value of largest size: one count a donor."""
    largest = np.abs(cells.donors).argmax(axis=1)
    extremes = cells.donors[np.arange(cells.n), largest]
    found, records = private_bounds({cells.outcome: extremes}, mechanisms)
    low, high = found[cells.outcome]
    return (min(low, 0.0), max(high, 0.0)), records


def _scaled(cells: Cells, bounds: Interval | None) -> Panel:
    """Clip the donors, then scale donors and targets by public bounds."""
    low, high = bounds or (-_WIDEST, _WIDEST)
    donors = np.clip(cells.donors, low, high)
    middle, half = 0.0, 1.0
    targets: FloatArray = cells.targets
    if bounds is not None:
        half = (high - low) / 2.0
        middle = low + half
        donors -= middle
        donors /= half
        # rounding must not carry a value across a bound
        np.clip(donors, -1.0, 1.0, out=donors)
        targets = (targets - middle) / half
    return Panel(donors, targets, cells.pre_periods, middle, half, cells.missing)


def _warn_noise(result: SynthResults) -> None:
    """Warn from released and public numbers where the estimate is of no use."""
    found = result.reading()
    if not found.useful:
        warn_utility(found.text, stacklevel=6)


def _protects(facts: PanelFacts) -> str:
    return (
        f"each of the {facts.n} donors of {facts.unit!r}, with its whole series (replaced by "
        f"anything else). Not protected: the treated ({facts.names()}), whose own series is public "
        "here."
    )


def _public_facts(call: _Call, plan: _Plan, facts: PanelFacts) -> dict[str, Any]:
    words = facts.axis.words()
    given = {} if plan.bounds is None else {facts.outcome: plan.bounds}
    found = {facts.outcome: facts.bounds} if plan.searched else {}
    return {
        "n": facts.n,
        "periods": facts.axis.size,
        "pre_periods": facts.pre_periods,
        "time axis": f"{words[0]} to {words[-1]}",
        "T0": words[facts.pre_periods - 1],
        "bounds": given,
        "bounds found privately": found if call.private else {},
        "treated": tuple(map(str, facts.treated)),
        "other": ("the treated series",),
    }
