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
from dpstats.synth.placebo import LEAST_PERIODS, default_periods

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.inference import Inference
    from dpstats.report.story import Story
    from dpstats.report.summary import SummaryContent, TableContent
    from dpstats.synth.placebo import Placebo
    from dpstats.synth.results import SynthResults

__all__ = ["diagnostic_rows", "draw", "summary_content"]

# more effects than this are left to `conf_int(which="periods")` and the plots
_MOST_ROWS = 24
# treated units whose placebo is read out
_MOST_READ = 3
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
        *([("RMSPE before T0:", size_words(fit))] if math.isfinite(fit) else []),
        ("Std. error, privacy:", size_words(result.noise_sd())),
        ("Std. error, sampling:", size_words(result.sampling_sd())),
    ]
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
        banner=_banner(result),
        warnings=result.warnings,
    )


def _banner(result: SynthResults) -> str | None:
    if result.privacy.private:
        return None
    exact = result.released.exact
    return "NOT PRIVATE: " + ("no noise (eps = inf)" if exact else "noise from a seed")


def effect_words(row: Inference, alpha: float = 0.05) -> str:
    """Write an effect with its interval: "0.31 [0.10, 0.52]"."""
    from dpstats.report._numbers import places, rounded

    digits = places(row.standard_error)
    low, high = row.interval(alpha)
    return f"{rounded(row.estimate, digits)} [{rounded(low, digits)}, {rounded(high, digits)}]"


def placebo_reading(result: SynthResults, rows: list[Inference], alpha: float = 0.05) -> str:
    """Say what a placebo in time found, for each of the first treated units."""
    units = result.facts.treated
    found = [
        effect_words(row, alpha) + (f" for {unit}" if len(units) > 1 else "")
        for unit, row in zip(units, rows, strict=False)
    ][:_MOST_READ]
    more = len(rows) - len(found)
    listed = "; ".join(found) + (f"; and for {more} more" if more else "")
    return (
        f"Before the intervention the same method finds an effect of {listed}, where there should "
        "be none."
    )


def placebo_content(
    result: SynthResults, table: Placebo, before: int, alpha: float
) -> SummaryContent:
    """Return what the summary of a placebo in time shows."""
    import pandas as pd

    from dpstats.report._numbers import places, rounded
    from dpstats.report.summary import SummaryContent, TableContent

    facts = result.facts
    words = facts.axis.words()
    rows = list(result._placebo_inferences(before).values())
    interval = table.conf_int(alpha)
    coefficients = pd.DataFrame({"coef": table.params, "std err": table.bse})
    ratio = (table.params / table.bse).where(table.params != 0.0, 0.0)
    coefficients["z"], coefficients["P>|z|"] = ratio, table.pvalues
    coefficients["lower"], coefficients["upper"] = interval[0], interval[1]
    several = len(facts.treated) > 1
    paths = table.to_numpy(dtype=float).reshape(len(table), -1, 3)
    digits = places(float(table.bse.min()))
    periods = []
    for place, unit in enumerate(facts.treated):
        for t in range(before, len(table)):
            name = (str(unit), words[t]) if several else (words[t],)
            periods.append((*name, *(rounded(float(v), digits) for v in paths[t, place])))
    names = (facts.unit, facts.axis.name) if several else (facts.axis.name,)
    headers = (*names, "observed", "counterfactual", "effect")
    shown = (TableContent("Effect by period", headers, tuple(periods)),)
    return SummaryContent(
        title="Placebo in Time",
        left=(
            ("Dep. Variable:", facts.outcome),
            ("Treated:", facts.names()),
            ("Pretended T0:", words[before - 1]),
            ("True T0:", words[facts.pre_periods - 1]),
        ),
        right=(
            ("Method:", facts.method),
            ("Periods:", f"{before} before, {len(table) - before} after"),
            ("No. Donors:", str(facts.n)),
            ("Further cost:", "none"),
        ),
        coefficients=coefficients,
        level=1.0 - alpha,
        tables=shown if len(periods) <= _MOST_ROWS else (),
        notes=(
            placebo_reading(result, rows, alpha),
            "From the release of the result itself, so it costs nothing. The treated is predicted "
            "from its periods up to the pretended T0, by a release that was made for all periods "
            "up to the true one. Intervals are made as for the result.",
            result.privacy.statement(),
        ),
        banner=_banner(result),
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
    from dpstats.synth.results import _DRAWS

    facts, privacy = result.facts, result.privacy
    notes = [privacy.statement()]
    if not result.released.exact:
        notes.append("Taken as public: " + _public_text(result) + ".")
        searched = privacy.public.get("bounds found privately") or {}
        if searched:
            notes.append("Bounds found privately: " + _bounds_text(searched) + ".")
        if (found := result.reading()).useful:
            notes.append(f"{found.text[:1].upper()}{found.text[1:]}.")
    hidden = ""
    if _hides(result):
        hidden = " What the noise hides of the donors' movements counts as sampling error."
    constants = _constants_text(result) if result.released.exact else ""
    constants = f" ({constants})" if constants else ""
    redrawn = "the treated" if result.released.exact else "the treated and of the release"
    over = "sampling" if result.released.exact else "sampling and privacy noise"
    notes.append(
        f"Method: {facts.title}{constants}. Intervals are for the realised untreated outcome of "
        f"the treated, over {over} (parametric bootstrap of {redrawn}, "
        f"{_DRAWS} draws; P>|z| inverts the interval, so it is never below 1/{_DRAWS + 1}); by "
        "period they hold one at a time, not jointly."
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


def _constants_text(result: SynthResults) -> str:
    return ", ".join(f"{name}: {value}" for name, value in result.facts.constants)


def _public_text(result: SynthResults) -> str:
    public = result.privacy.public
    parts = [
        f"n = {public['n']} donors",
        f"the time axis ({public['time axis']}, {public['periods']} periods)",
        f"T0 = {public['T0']}",
    ]
    if public.get("bounds"):
        parts.append("bounds " + _bounds_text(public["bounds"]))
    parts += [str(item) for item in public.get("other") or ()]
    if constants := _constants_text(result):
        parts.append(f"constants {constants}")
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
    if getattr(result.released, "any_target", False) and facts.pre_periods >= LEAST_PERIODS:
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
    from dpstats.report._numbers import places, rounded

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
    if pretended := result._default_placebo():
        facts = result.facts
        start = facts.axis.words()[default_periods(facts.pre_periods) - 1]
        largest = max(pretended, key=lambda row: abs(row.estimate))
        value = rounded(largest.estimate, places(largest.standard_error))
        rows.append((f"placebo after {start}", value, placebo_reading(result, pretended)))
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
    if facts.pre_periods < LEAST_PERIODS:
        raise DPStatsError(
            f"`kind` = 'placebo' needs at least three periods up to T0; got {facts.pre_periods}"
        )
    earlier = facts.axis.index()[default_periods(facts.pre_periods) - 1] if T0 is None else T0
    table = band_table(result, place)
    frame = result.placebo_in_time(earlier)
    gaps = frame["effect"] if len(facts.treated) == 1 else frame[(facts.treated[place], "effect")]
    before, after = frame._before, facts.axis.size - facts.pre_periods
    half = result._placebo_half_widths(place, before, 0.05)
    effects = gaps.to_numpy(dtype=float)
    for column, values in (
        ("placebo", effects),
        ("placebo_low", np.concatenate([np.full(before, np.nan), effects[before:] - half])),
        ("placebo_high", np.concatenate([np.full(before, np.nan), effects[before:] + half])),
    ):
        table[column] = np.concatenate([values, np.full(after, np.nan)])
    found = list(result._placebo_inferences(before, place + 1).values())[place]
    return panel_plots.placebo(
        table,
        pretended=words[before - 1],
        found=effect_words(found),
        ylabel=f"Effect on {label}",
        ax=ax,
        **labels,
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
