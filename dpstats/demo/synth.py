"""The worked example for panels: ``python -m dpstats demo synth``.

Proposition 99 has 38 donor states, too few for a small epsilon: the example says so, and shows at
which epsilon or number of donors it would work. Then a simulated panel of 5000 donors, where it
does. The data are public teaching data or simulated: that is the only reason why a reference
without noise is shown.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.datasets import Dataset
    from dpstats.report.html import Section
    from dpstats.synth.results import SynthResults

__all__ = ["run"]

_DELTA = 1e-6
_LADDER = (1.0, 4.0, 16.0, 40.0)
_POOLS = (38, 200, 1000, 5000)
_BUDGETS = "The same call with a larger eps (a fresh release each)"
_FEWER = "The same process with fewer donors (a fresh panel and release each)"
_DONORS = 5000
_EFFECT = 0.1
_SEED = 99
_REFERENCE = (
    "REFERENCE, NOT PRIVATE. Shown only because these are public teaching data; on confidential "
    "data the line would be a leak."
)


@dataclass(frozen=True, slots=True)
class _Case:
    """One panel of the example."""

    heading: str
    question: str
    dataset: Dataset
    result: SynthResults
    plan: pd.DataFrame
    warnings: tuple[str, ...]


def run(eps: float, output: str) -> None:
    """Run the example.

    Parameters
    ----------
    eps : float
        Privacy budget of the estimates.
    output : str
        HTML page to write.

    Raises
    ------
    ImportError
        If the data are not installed (extra `datasets`).
    """
    from dpstats.datasets import load_prop99
    from dpstats.simulate import panel

    prop99 = load_prop99()
    simulated = panel("factor", n_donors=_DONORS, effect=_EFFECT, rng=_SEED)
    tobacco = _case(
        "Proposition 99",
        "What did California's tobacco programme do to cigarette sales? Unit: packs a head and "
        "year.",
        prop99,
        eps,
    )
    large = _case(
        f"A simulated panel of {_DONORS} donors",
        f"Three common factors, thirty periods, an effect of {_EFFECT:g} after period 20.",
        simulated,
        eps,
    )
    budgets = _budgets(prop99)
    donors = _donors(eps)
    reference = _simplex(prop99)
    truth = _truth(simulated)
    _show(tobacco)
    print(_verdict(tobacco))
    print(f"\n{_BUDGETS}\n{_text(budgets)}\n{reference}")
    _show(large)
    print(f"{_verdict(large)}\n{truth}\n\n{_FEWER}\n{_text(donors)}")
    sections = (
        _section(tobacco, budgets, _BUDGETS, reference),
        _section(large, donors, _FEWER, truth),
    )
    print(f"\nHTML report: {_write(sections, output)}")


def _estimate(dataset: Dataset, eps: float, method: str = "moments") -> SynthResults:
    from dpstats.synth.model import dp_synth

    exact = eps == float("inf")
    return dp_synth(
        dataset.data,
        unit=dataset.unit,
        time=dataset.time,
        outcome=dataset.outcome,
        treated=dataset.treated,
        T0=dataset.T0,
        eps=eps,
        delta=0.0 if exact else _DELTA,
        method=method,
    )


def _case(heading: str, question: str, dataset: Dataset, eps: float) -> _Case:
    from dpstats.synth.plan import plan_synth

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = _estimate(dataset, eps)
    facts = result.facts
    plan = plan_synth(
        facts.n,
        facts.axis.size,
        facts.pre_periods,
        eps,
        dataset.bounds[str(dataset.outcome)],
        delta=_DELTA,
    )
    # the utility warning is the reading below the summary
    texts = tuple(
        f"{entry.category.__name__}: {entry.message}"
        for entry in caught
        if str(entry.message) != result.reading().text
    )
    return _Case(heading, question, dataset, result, plan, texts)


def _budgets(dataset: Dataset) -> pd.DataFrame:
    """Estimate with ever larger budgets: only there do 38 donors suffice."""
    import pandas as pd

    return pd.DataFrame([{"eps": f"{eps:g}", **_line(dataset, eps)} for eps in _LADDER])


def _donors(eps: float) -> pd.DataFrame:
    """Estimate from ever more simulated donors."""
    import pandas as pd

    from dpstats.simulate import panel

    rows = []
    for count in _POOLS:
        dataset = panel("factor", n_donors=count, effect=_EFFECT, rng=_SEED)
        rows.append({"donors": str(count), **_line(dataset, eps)})
    return pd.DataFrame(rows)


def _line(dataset: Dataset, eps: float) -> dict[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = _estimate(dataset, eps)
    low, high = result.conf_int().iloc[0]
    found = result.reading()
    return {
        "ATT": f"{result.params.iloc[0]:.3g}",
        "95% interval": f"[{low:.3g}, {high:.3g}]",
        "expected error": f"{found.error:.3g}",
        "last value": f"{found.last_value:.3g}",
        "worth it": "yes" if found.useful else "no",
    }


def _simplex(dataset: Dataset) -> str:
    result = _estimate(dataset, float("inf"), "simplex")
    return (
        f"{_REFERENCE}\n  eps = inf, weights on the simplex: ATT {result.params.iloc[0]:.4f}, "
        f"RMSPE before T0 {result.rmspe():.4f}"
    )


def _truth(dataset: Dataset) -> str:
    att = (dataset.truth or {}).get("ATT", float("nan"))
    return f"Truth, known because the panel is simulated: ATT {att:g}."


def _verdict(case: _Case) -> str:
    result, plan = case.result, case.plan.loc["moments"]
    n, eps = result.nobs, result.privacy.epsilon
    found = result.reading()
    text = f"{'Reading' if found.useful else 'UtilityWarning'}: {found.text}."
    if plan["advice"] == "worth trying":
        return text
    return (
        f"{text} {n} donors are too few at eps = {eps:g}: by the public rule of plan_synth there "
        f"is no chance below eps = {plan['eps_needed']:g} with {n} donors, or below "
        f"{plan['donors_needed']:.0f} donors with eps = {eps:g}."
    )


def _show(case: _Case) -> None:
    print(f"\n{case.heading}: {case.question}\n" + "#" * 78)
    print("Before any data are touched: plan_synth")
    print(_text(_plan_table(case)))
    for text in case.warnings:
        print(text)
    print("\n" + case.result.summary().as_text())


def _plan_table(case: _Case) -> pd.DataFrame:
    table = case.plan.reset_index()
    for name in ("noise_sd", "detectable", "smallest_share", "eps_needed", "donors_needed"):
        table[name] = [f"{value:.3g}" if value == value else "" for value in table[name]]
    return table


def _text(table: pd.DataFrame) -> str:
    from tabulate import tabulate

    return tabulate(table.to_dict("list"), headers="keys", disable_numparse=True)


def _section(case: _Case, table: pd.DataFrame, caption: str, reference: str) -> Section:
    from dpstats.report.html import Block, Figure, Paragraph, Section, Table

    blocks: list[Block] = [
        Paragraph(case.question),
        Table(_plan_table(case), caption="Before any data are touched: plan_synth"),
        Paragraph("\n\n".join((*case.warnings, _verdict(case)))),
        *case.result.report_blocks(),
    ]
    try:
        from dpstats.report.plots import close

        for kind, text in (
            ("gap", "Effect over time, with the 95% band and the part that is privacy noise."),
            ("placebo", "Effect beside that of an intervention pretended to have come earlier."),
        ):
            figure, _ = case.result.plot(kind)  # type: ignore[arg-type]
            close(figure)
            blocks.append(Figure(figure, alt=text, caption=text))
    except ImportError:
        pass
    note = "Worth it: the expected error is below that of carrying the last value forward."
    blocks += [Table(table, caption=caption, note=note), Paragraph(reference)]
    return Section(case.heading, tuple(blocks))


def _write(sections: tuple[Section, ...], path: str) -> str:
    from dpstats.report.html import write_page

    lead = (
        "The effect of an intervention on one unit with differential privacy for the donors, "
        "where it works and where it does not."
    )
    return str(write_page(path, "dpstats: synthetic control", sections, lead=lead))
