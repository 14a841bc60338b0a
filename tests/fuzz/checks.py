"""What no result, error or warning may be, whatever the input."""

from __future__ import annotations

import json
import re
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, settings

import dpstats as dp
from dpstats.privacy.accounting import composed
from dpstats.storage import encode

QUICK = settings(
    derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
LONG = settings(QUICK, derandomize=False)
ALLOWED = (dp.PrivacyWarning, dp.UtilityWarning)
# of the text of a formula, which is public
_OF_FORMULAS = "`formula` "


def attempt(call: Callable[[], Any]) -> tuple[Any, str | None, tuple[str, ...]]:
    """Run a call; return (result, error, kinds of warnings). Other errors and warnings go on."""
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="warn"):
        warnings.simplefilter("always")
        result, error = None, None
        try:
            result = call()
        except dp.DPStatsError as refused:
            error = f"{type(refused).__name__}: {refused}"
            for hidden in (refused.__cause__, refused.__context__):
                # an error below it would show what this one keeps to itself
                error += "" if hidden is None else f" [{hidden}]"
    for item in caught:
        public = item.category is UserWarning and str(item.message).startswith(_OF_FORMULAS)
        allowed = public or issubclass(item.category, ALLOWED)
        assert allowed, f"{item.category.__name__}: {item.message}"
    shown = tuple(f"{item.category.__name__}: {item.message}" for item in caught)
    return result, error, shown


def check_texts(texts: list[str], frame: pd.DataFrame) -> None:
    """No text holds a value of the frame that has enough digits to be told from others."""
    whole = " ".join(texts)
    long = [t for t in re.findall(r"[-+.\de]+", whole) if sum(map(str.isdigit, t)) >= 8]
    if not long:
        return
    for name in frame.columns:
        column = frame[name]
        if column.dtype.kind != "f":
            continue
        for value in column.to_numpy(dtype=float)[:50]:
            shown = repr(float(value))
            if sum(map(str.isdigit, shown)) >= 8:
                assert shown not in whole, f"{shown} of {name!r} in {whole}"


def check_result(result: Any, eps: float, delta: float, reach: float) -> None:
    """Finite everywhere, within the budget, and no larger than the bounds of the outcome allow."""
    params, bse, interval = result.params, result.bse, result.conf_int()
    assert np.isfinite(params).all(), params
    assert (np.abs(params) <= reach * (1 + 1e-9)).all(), (params, reach)
    assert np.isfinite(bse).all(), bse
    assert (bse >= 0).all(), bse
    assert np.isfinite(interval.to_numpy()).all(), interval
    assert (interval[0] <= interval[1]).all(), interval
    assert not result.tvalues.isna().any(), result.tvalues
    assert result.pvalues.between(0, 1).all(), result.pvalues
    assert np.isfinite(result.noise_sd())
    check_record(result, eps, delta)


def check_panel(result: Any, eps: float, delta: float) -> None:
    """The same of a synthetic control, whose effects have no public limit."""
    interval, path = result.conf_int(), result.conf_int(which="periods")
    for numbers in (result.params, result.bse, interval, path):
        assert np.isfinite(numbers.to_numpy()).all(), numbers
    assert (result.bse >= 0).all(), result.bse
    for table in (interval, path):
        assert (table[0] <= table[1]).all(), table
    assert not result.tvalues.isna().any(), result.tvalues
    assert result.pvalues.between(0, 1).all(), result.pvalues
    after = result.effect.to_numpy()[-1]
    assert np.isfinite(after).all(), after
    check_record(result, eps, delta)


def check_record(result: Any, eps: float, delta: float) -> None:
    """What was spent, and that no text shows a number that is none."""
    spent, slack = composed(result.privacy.records)
    assert spent <= eps * (1 + 1e-9), (spent, eps)
    assert slack <= delta * (1 + 1e-9), (slack, delta)
    scales = result.privacy.releases["scale"].to_numpy(dtype=float)
    assert (scales > 0).all(), scales
    assert np.isfinite(scales).all(), scales
    for text in (
        result.diagnostics.to_string(),
        result.summary().as_text(),
        result.summary(diagnostics=True).as_latex(),
    ):
        assert not re.search(r"\bnan\b", text), text
    json.dumps(result.to_dict(), allow_nan=False)


def released(result: Any) -> str:
    """Every released number to the last bit, with its record."""
    return json.dumps([encode(result.released), encode(result.privacy.records)])


class Count:
    """How inputs ended."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()
        self.faults: dict[str, tuple[int, str]] = {}

    def add(self, end: str) -> None:
        self.ends[end] += 1

    def fault(self, kind: str, example: str) -> None:
        number, first = self.faults.get(kind, (0, example))
        self.faults[kind] = (number + 1, first)

    def report(self, title: str) -> str:
        lines = [f"{title}: {sum(self.ends.values())} inputs"]
        lines += [f"  {number:7d}  {end}" for end, number in sorted(self.ends.items())]
        for kind, (number, example) in self.faults.items():
            lines.append(f"  FAULT x{number}: {kind}\n    {example}")
        return "\n".join(lines)


def rule(error: str) -> str:
    """The argument that an error is about."""
    return re.sub(r"'[^']*'|\"[^\"]*\"", "...", error.split("; got")[0])[:60]


def tally(count: Count, check: Callable[..., str], *args: object) -> None:
    """Count how an input ends; a fault does not stop the run, but fails it in the end."""
    try:
        count.add(check(*args))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{check.__name__}: {type(error).__name__} in {place.name}, {place.line}: "
        kind += rule(str(error))
        count.add("FAULT")
        count.fault(kind, repr(args))
