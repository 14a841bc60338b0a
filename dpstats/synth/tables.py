"""What a synthetic control result shows: summary, diagnostics, plots."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.errors import DPStatsError
from dpstats.passed import passed
from dpstats.results import (
    coefficient_table,
    compare_sizes,
    format_budget,
    releases_table,
    size_words,
)

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.report.story import Story
    from dpstats.report.summary import SummaryContent, TableContent
    from dpstats.synth.results import SynthResults

__all__ = ["diagnostic_rows", "draw", "summary_content"]

# more effects than this are left to `conf_int(which="periods")` and the plots
_MOST_ROWS = 24
# periods up to T0 without which there is no placebo in time
_LEAST_PLACEBO = 3
_KINDS = ("path", "gap", "placebo", "budget")


def summary_content(result: SynthResults, alpha: float) -> SummaryContent:
    """Return what the summary shows."""
    from dpstats.report.summary import SummaryContent

    facts, privacy = result.facts, result.privacy
    exact = result.released.exact
    words = facts.axis.words()
    after = facts.axis.size - facts.pre_periods
    treated = facts.names()
    left = [
        ("Dep. Variable:", facts.outcome),
        ("Treated:", treated),
        ("T0:", words[facts.pre_periods - 1]),
        ("No. Donors:", str(facts.n)),
        ("Periods:", f"{facts.pre_periods} before, {after} after"),
        ("Epsilon:", format_budget(privacy.epsilon)),
        ("Delta:", format_budget(privacy.delta)),
    ]
    fit = result.rmspe()
    right = [
        ("Method:", facts.method),
        *((f"{name[:1].upper()}{name[1:]}:", value) for name, value in facts.constants),
        *([("RMSPE before T0:", size_words(fit))] if math.isfinite(fit) else []),
        ("Std. error, privacy:", size_words(result.noise_sd())),
        ("Std. error, sampling:", size_words(result.sampling_sd())),
    ]
    banner = None
    if not privacy.private:
        banner = "NOT PRIVATE: " + ("no noise (eps = inf)" if exact else "noise from a seed")
    tables = _period_tables(result, alpha)
    if not exact:
        tables = (*tables, releases_table(privacy))
    return SummaryContent(
        title="Synthetic Control" if exact else "Private Synthetic Control",
        left=tuple(left),
        right=tuple(right),
        coefficients=coefficient_table(result, alpha),
        level=1.0 - alpha,
        tables=tables,
        notes=_notes(result),
        banner=banner,
        warnings=result.warnings,
    )


def _period_tables(result: SynthResults, alpha: float) -> tuple[TableContent, ...]:
    from dpstats.report._numbers import places, rounded
    from dpstats.report.summary import TableContent, number

    facts = result.facts
    count = len(facts.treated) * (facts.axis.size - facts.pre_periods)
    if count > _MOST_ROWS:
        return ()
    several = len(facts.treated) > 1
    intervals = result.conf_int(alpha, "periods").to_numpy().reshape(len(facts.treated), -1, 2)
    paths = result.counterfactual.to_numpy(dtype=float).reshape(facts.axis.size, -1).T
    # one number of digits for the column: that of the narrowest interval
    narrowest = np.nanmin(intervals[..., 1] - intervals[..., 0])
    digits = places(float(narrowest) / (2.0 * NormalDist().inv_cdf(1.0 - alpha / 2.0)))
    words = facts.axis.words()
    rows = []
    for place, unit in enumerate(facts.treated):
        for step, t in enumerate(range(facts.pre_periods, facts.axis.size)):
            seen, path = facts.targets[place, t], paths[place, t]
            values = (seen, path, seen - path, *intervals[place, step])
            name = (str(unit), words[t]) if several else (words[t],)
            rows.append((*name, *(rounded(float(value), digits) for value in values)))
    tail = alpha / 2.0
    ends = (f"[{number(tail)}", f"{number(1 - tail, 6)}]")
    names = (facts.unit, facts.axis.name) if several else (facts.axis.name,)
    headers = (*names, "observed", "counterfactual", "effect", *ends)
    return (TableContent("Effect by period", headers, tuple(rows)),)


def _notes(result: SynthResults) -> tuple[str, ...]:
    facts, privacy = result.facts, result.privacy
    notes = [privacy.statement()]
    if not result.released.exact:
        notes.append("Taken as public: " + _public_text(privacy.public) + ".")
        searched = privacy.public.get("bounds found privately") or {}
        if searched:
            notes.append("Bounds found privately: " + _bounds_text(searched) + ".")
        if (found := result.reading()).useful:
            notes.append(f"{found.text[:1].upper()}{found.text[1:]}.")
    hidden = ""
    if _hides(result):
        hidden = " What the noise hides of the donors' movements counts as sampling error."
    over = "sampling" if result.released.exact else "sampling and privacy noise"
    notes.append(
        f"Method: {facts.title}. Intervals are for the realised untreated outcome of the treated, "
        f"over {over} (parametric bootstrap); by period they hold one at a time, not jointly."
        f"{hidden}"
    )
    notes += getattr(result.released, "notes", list)()
    notes.append(
        f"Mean effect on {facts.outcome} after T0, if donors are untouched by the intervention and "
        "what related them to the treated before goes on."
    )
    return tuple(notes)


def _hides(result: SynthResults) -> bool:
    """Whether noise also costs by what falls below it, which no redrawn noise shows."""
    return not result.released.exact and hasattr(result.released, "directions")


def _public_text(public: dict[str, Any]) -> str:
    parts = [
        f"n = {public['n']} donors",
        f"the time axis ({public['time axis']}, {public['periods']} periods)",
        f"T0 = {public['T0']}",
    ]
    if public.get("bounds"):
        parts.append("bounds " + _bounds_text(public["bounds"]))
    parts += [str(item) for item in public.get("other") or ()]
    return "; ".join(parts)


def _bounds_text(bounds: dict[str, Any]) -> str:
    return ", ".join(f"{name} in [{low:g}, {high:g}]" for name, (low, high) in bounds.items())


def story(result: SynthResults) -> Story:
    """Return what a report says about the result."""
    from dpstats.report.story import Story, references
    from dpstats.synth.kernels import KERNELS
    from dpstats.synth.model import dp_synth

    facts = result.facts
    last = facts.axis.words()[facts.pre_periods - 1]
    after = facts.axis.size - facts.pre_periods
    named = all(isinstance(label, str) for label in facts.treated)
    who = facts.names() if named else f"{facts.unit} {facts.names()}"
    first = facts.treated[0] if named else f"{facts.unit} {facts.treated[0]}"
    kernel = KERNELS.get(facts.method)
    figures = [
        ("path", f"Observed {facts.outcome} of {first}, and what it would have been without."),
        ("gap", f"Effect on {first} over time: the 95% band and the part that is noise."),
    ]
    if getattr(result.released, "any_target", False) and facts.pre_periods >= _LEAST_PLACEBO:
        text = "Effect beside that of an intervention that is pretended to have come earlier."
        figures.append(("placebo", text))
    if not result.released.exact:
        figures.append(("budget", "How the budget was divided among the releases."))
    return Story(
        f"Effect on {facts.outcome} of {who} after {last}",
        f"By how much did the intervention after {last} change {facts.outcome} of {who}, on "
        f"average over the {after} periods that followed?",
        (("Panel", f"{facts.outcome} by {facts.unit} and {facts.axis.name}"),),
        tuple(figures),
        (kernel if references((kernel,)) else dp_synth,),
    )


def diagnostic_rows(result: SynthResults) -> list[tuple[str, str, str]]:
    """Return (quantity, value, reading) from released and public numbers."""
    noise, sampling = result.noise_sd(), result.sampling_sd()
    found = result.reading()
    fit = result.rmspe()
    reading = compare_sizes(noise, sampling)
    if _hides(result):
        reading += "; what the noise hides counts as sampling error"
    rows = [
        ("sd of privacy noise", size_words(noise), reading),
        ("sd of sampling error", size_words(sampling), "from what the fit leaves of the treated"),
        ("expected error by period", size_words(found.error), found.text),
        (
            "error of the last value",
            size_words(found.last_value),
            "carried forward inside the pre-period, at the same horizons",
        ),
    ]
    if math.isfinite(fit):
        rows.append(("RMSPE before T0", size_words(fit), "fit of the treated series"))
    directions = getattr(result.released, "directions", None)
    if directions is not None:
        rows.append(("directions found", str(directions), "common movements above the noise"))
    rows += getattr(result.released, "diagnostics", list)()
    return rows


def draw(
    result: SynthResults, kind: str, ax: Any, unit: Any = None, T0: Any = None
) -> tuple[Any, Any]:
    """Draw one of the kinds of plot."""
    from dpstats.report import panel_plots, plots

    facts = result.facts
    if kind not in _KINDS:
        raise DPStatsError(
            f"`kind` must be 'path', 'gap', 'placebo' or 'budget'; got {passed(kind)}"
        )
    if kind == "budget":
        return plots.budget(result.privacy.releases, ax=ax)
    if unit is not None and unit not in facts.treated:
        raise DPStatsError(f"`unit` must be one of the treated; got {passed(unit)}")
    place = 0 if unit is None else facts.treated.index(unit)
    words = facts.axis.words()
    name = facts.treated[place]
    title = name if isinstance(name, str) else f"{facts.unit} {name}"
    labels = {"title": title, "last": words[facts.pre_periods - 1], "xlabel": facts.axis.name}
    label = facts.outcome
    if kind == "path":
        return panel_plots.path(band_table(result, place), ylabel=label, ax=ax, **labels)
    if kind == "gap":
        return panel_plots.gap(
            band_table(result, place), ylabel=f"Effect on {label}", ax=ax, **labels
        )
    if facts.pre_periods < _LEAST_PLACEBO:
        raise DPStatsError(
            f"`kind` = 'placebo' needs at least three periods up to T0; got {facts.pre_periods}"
        )
    before = max(2, (2 * facts.pre_periods) // 3)
    earlier = facts.axis.index()[before - 1] if T0 is None else T0
    table = band_table(result, place)
    frame = result.placebo_in_time(earlier)
    gaps = frame["effect"] if len(facts.treated) == 1 else frame[(facts.treated[place], "effect")]
    table["placebo"] = np.concatenate(
        [gaps.to_numpy(dtype=float), np.full(facts.axis.size - facts.pre_periods, np.nan)]
    )
    start = facts.axis.position(earlier)
    pretended = words[start if start is not None else 0]
    return panel_plots.placebo(
        table, pretended=pretended, ylabel=f"Effect on {label}", ax=ax, **labels
    )


def band_table(result: SynthResults, place: int, alpha: float = 0.05) -> pd.DataFrame:
    """Return one target's paths with the total band and that of privacy noise alone."""
    import pandas as pd

    facts = result.facts
    path = result.counterfactual.to_numpy(dtype=float).reshape(facts.axis.size, -1)[:, place]
    table = pd.DataFrame({"time": axis_values(result), "label": facts.axis.words()})
    table["observed"], table["counterfactual"] = facts.targets[place], path
    blank = np.full(facts.pre_periods, np.nan)
    for name, parts in (("total", "both"), ("privacy", "privacy")):
        if parts == "privacy" and result.released.exact:
            half = np.full(facts.axis.size, np.nan)
        else:
            half = np.concatenate([blank, result._half_widths(place, parts, alpha)])  # type: ignore[arg-type]
        table[f"{name}_low"], table[f"{name}_high"] = path - half, path + half
    return table


def axis_values(result: SynthResults) -> Any:
    """Return the periods as matplotlib places them: numbers, dates, or positions."""
    axis = result.facts.axis
    index: Any = axis.index()
    if axis.kind == "period":
        return index.to_timestamp()
    if axis.kind in {"number", "datetime"}:
        return index
    if axis.kind == "date":
        import pandas as pd

        return pd.DatetimeIndex(index)
    return np.arange(axis.size)
