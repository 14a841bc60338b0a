"""The worked example for treatment effects: ``python -m dpstats``.

Estimates the effect of a training programme (NSW, against experimental and against PSID controls)
and of quitting smoking (NHEFS) with privacy, beside the ordinary estimates of the same method.
The data are public teaching data: that is the only reason why the ordinary estimates are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpstats.ate.results import ATEResults
    from dpstats.datasets import Dataset

__all__ = ["run"]

_REFERENCE = (
    "REFERENCE, NOT PRIVATE. Shown only because these are public teaching data; on confidential "
    "data the line would be a leak."
)


@dataclass(frozen=True, slots=True)
class _Example:
    """One estimate of the worked example."""

    heading: str
    question: str
    unit: str
    dataset: Dataset
    formula: str = ""


def run(eps: float, output: str) -> None:
    """Run the example.

    Parameters
    ----------
    eps : float
        Privacy budget of each estimate.
    output : str
        HTML page to write.

    Raises
    ------
    ImportError
        If the data are not installed (extra `datasets`).
    """
    pairs = [(example, *_estimates(example, eps)) for example in _examples()]
    for example, private, ordinary in pairs:
        _show(example, private, ordinary)
    print(_overview(pairs))
    path = _write_page(pairs, output)
    print(f"\nHTML report: {path}")


def _examples() -> list[_Example]:
    from dpstats.datasets import load_nhefs, load_nsw

    training = "What did the training programme do to earnings (change 1974 to 1978)?"
    return [
        _Example(
            "NSW, experimental controls", training, "10,000 dollars", load_nsw(controls="nsw")
        ),
        _Example("NSW, PSID3 controls", training, "10,000 dollars", load_nsw(controls="psid3")),
        _Example(
            "NHEFS",
            "What does quitting smoking do to weight (1971 to 1982)?",
            "kg",
            load_nhefs(),
            # the 18 columns of the usual formula are too many for this budget
            "wt82_71 ~ age + sex + race + smokeintensity + smokeyrs + wt71",
        ),
    ]


def _estimates(example: _Example, eps: float) -> tuple[ATEResults, ATEResults]:
    from dpstats.ate.model import dp_ate

    data = example.dataset
    formula, treat = example.formula or str(data.formula), str(data.treat)

    def run(budget: float) -> ATEResults:
        return dp_ate(
            formula, treat, data.data, budget, bounds=data.bounds, levels=data.levels or None
        )

    return run(eps), run(float("inf"))


def _show(example: _Example, private: ATEResults, ordinary: ATEResults) -> None:
    title = f"{example.heading}: {example.question} Unit: {example.unit}"
    print("\n" + title + "\n" + "#" * min(len(title), 100))
    print(private.summary().as_text())
    estimate, low, high = _numbers(ordinary)
    print(f"{_REFERENCE}\n  eps = inf: {estimate:.4f}  [{low:.4f}, {high:.4f}]")
    print("Reading: " + _reading(private))


def _reading(private: ATEResults) -> str:
    noise, sampling = private.noise_sd(), private.sampling_sd()
    reading = str(private.diagnostics["reading"].iloc[0])
    sizes = f"sd {noise:.3g} from noise, {sampling:.3g} from sampling"
    text = f"at eps = {private.privacy.epsilon:g} and n = {private.nobs}, {reading} ({sizes})."
    if noise > sampling:
        text += " The noise falls in proportion to n and to eps: it is the price of a small file."
    return text


def _numbers(result: ATEResults) -> tuple[float, float, float]:
    low, high = result.conf_int().iloc[0]
    return float(result.params.iloc[0]), float(low), float(high)


def _overview(pairs: Sequence[tuple[_Example, ATEResults, ATEResults]]) -> str:
    from tabulate import tabulate

    rows = []
    for example, private, ordinary in pairs:
        estimate, low, high = _numbers(private)
        noise, sampling = private.noise_sd(), private.sampling_sd()
        row = [example.heading, private.nobs, f"{estimate:.3f}", f"[{low:.3f}, {high:.3f}]"]
        rows.append([*row, f"{noise:.3f}", f"{sampling:.3f}", f"{_numbers(ordinary)[0]:.3f}"])
    headers = ["data", "n", "private", "95% interval", "sd noise", "sd sampling", "NOT PRIVATE"]
    return "\nOverview\n" + tabulate(rows, headers, disable_numparse=True)


def _write_page(pairs: Sequence[tuple[_Example, ATEResults, ATEResults]], path: str) -> str:
    from dpstats.report.html import Paragraph, Section, write_page

    sections = []
    for example, private, ordinary in pairs:
        estimate, low, high = _numbers(ordinary)
        reference = f"{_REFERENCE} At eps = inf: {estimate:.4f}, 95% [{low:.4f}, {high:.4f}]."
        question = Paragraph(f"{example.question} Unit: {example.unit}.")
        after = (Paragraph("Reading: " + _reading(private)), Paragraph(reference))
        sections.append(Section(example.heading, (question, *private.report_blocks(), *after)))
    lead = (
        "Treatment effects with differential privacy, beside the ordinary estimates of the same "
        "method, which are shown only because the data are public."
    )
    return str(write_page(path, "dpstats: a worked example", sections, lead=lead))
