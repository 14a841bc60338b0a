"""Audits of whole calls of `dp_ate` and `dp_synth` on worst-case neighbours, with controls.

    python benchmarks/audits.py [--trials 2500] [--eps 1] [--only ipw/known] [--out DIR]

Each cell runs a case of `audit_cases.py`, with the noise of the operating system, on two data sets
that attain the sensitivity of a release or come near to it, and gives everything that the result
holds to `dpstats.audit`. The control, at eps = 1, is the same call with too little noise: the first
of `FACTORS` that is caught is recorded. A finished cell is appended to the CSV at once; a second
run does what is missing. Figures differ from run to run, since the noise cannot be drawn again; an
honest call is refuted with probability `FALSE_ALARM` at most.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import platform
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from audit_cases import Case, Pair, cases
from cells import rows_of

import dpstats as dp
from dpstats import audit
from dpstats.ate.kernels import KERNELS
from dpstats.privacy.noise import noise_source
from dpstats.synth import results as synth_results
from dpstats.synth.kernels import KERNELS as SYNTH_KERNELS

EPSILONS = (1.0, 0.5, 4.0)
FALSE_ALARM = 2e-3
# of the controls, which need more runs the larger it is; and what is left of the noise in them
CONTROL_EPSILON = 1.0
FACTORS = (0.5, 0.25, 0.125, 0.03125)
PILOT, PILOT_EPSILON = 40, 4.0
FIELDS = (
    "function", "method", "case", "eps", "delta", "rows", "numbers", "trials", "bound", "passed",
    "factor", "control", "event", "control_event",
)  # fmt: skip
# of a simulation, from released numbers alone, that decides about a warning
synth_results._DRAWS_FOR_WARNING = 10
SOURCES = ("dpstats.ate.model.noise_source", "dpstats.synth.model.noise_source")


class Scaled:
    """The source of a call with its noise multiplied by `factor`."""

    def __init__(self, factor: float) -> None:
        self.inner, self.factor = noise_source(), factor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def laplace(self, name, values, scale):
        return self.inner.laplace(name, values, scale * self.factor)

    def gaussian(self, name, values, scale):
        return self.inner.gaussian(name, values, scale * self.factor)

    def knorm(self, name, dimension, scale, ball):
        return self.inner.knorm(name, dimension, scale * self.factor, ball)

    def normal(self, name, dimension, scale):
        return self.inner.normal(name, dimension, scale * self.factor)


class Silent:
    """A source without noise: the exact numbers, which an auditor knows."""

    seeded = False

    def laplace(self, name, values, scale):
        return values

    gaussian = laplace

    def knorm(self, name, dimension, scale, ball):
        return np.zeros(dimension)

    def normal(self, name, dimension, scale):
        return np.zeros(dimension)

    def permutation(self, name, n):
        return np.arange(n)


# ----------------------------------------------------------------------------- what is released


def numbers(value: Any) -> Iterator[float]:
    """Every number in a result; privacy records are public constants."""
    if value is None or isinstance(value, str):
        return
    if isinstance(value, bool | int | float | np.number | np.bool_):
        yield float(value)
    elif isinstance(value, np.ndarray):
        yield from value.astype(float).ravel().tolist()
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from numbers(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from numbers(part)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name != "records":
                yield from numbers(getattr(value, field.name))


def called(case: Case, eps: float, data: pd.DataFrame, source: Any = None) -> Any:
    """Call the function; its source of noise is replaced where one is given."""
    if source is not None:
        with (
            mock.patch(SOURCES[0], return_value=source),
            mock.patch(SOURCES[1], return_value=source),
        ):
            return called(case, eps, data)
    common = {"eps": eps, "method": case.method, **case.options}
    if case.function == "dp_ate":
        bounds = {"y": (-1.0, 1.0), "x": (-1.0, 1.0)}
        return dp.dp_ate(case.formula, treat="w", data=data, bounds=bounds, **common)
    return dp.dp_synth(data, wide=True, T0=data.columns[1], treated="target", **common)


def released(result: Any) -> list[float]:
    """Every number that a result holds, and the estimate; intervals follow from these."""
    if hasattr(result, "counterfactual"):
        return [*numbers(result.released), *result.counterfactual]
    return [*numbers(result.released), result.released.estimate("ate")]


def varying(case: Case) -> np.ndarray:
    """Which of the numbers are no constants and no copies of others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = np.array(
            [
                released(called(case, PILOT_EPSILON, data))
                for pair in case.pairs
                for data in pair
                for _ in range(3)
            ]
        )
    _, first = np.unique(runs, axis=1, return_index=True)
    return np.array([j for j in sorted(first) if len(np.unique(runs[:, j])) > 1])


# ----------------------------------------------------------------------------------------- cells


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A case with its pair and the numbers that are looked at."""

    case: Case
    pair: Pair
    kept: np.ndarray

    @classmethod
    def of(cls, case: Case) -> Prepared:
        """Choose the pair in a pilot, where there is most to see."""
        first = cls(case, case.pairs[0], varying(case))
        if len(case.pairs) == 1:
            return first
        pilot = audit.search(
            first.release(PILOT_EPSILON, FACTORS[-1]),
            case.pairs,
            delta=case.delta,
            trials=40,
            pilot=PILOT,
            progress=False,
        )
        return dataclasses.replace(first, pair=case.pairs[pilot.pair])

    def release(self, eps: float, factor: float) -> Callable[[pd.DataFrame], np.ndarray]:
        """Return what is audited: the numbers of a call with `factor` of its noise."""
        case = self.case
        if case.statistic is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exact = [called(case, eps, data, Silent()) for data in self.pair]

        def of(data: pd.DataFrame) -> np.ndarray:
            result = called(case, eps, data, None if factor == 1.0 else Scaled(factor))
            found = np.array(released(result))[self.kept]
            if case.statistic is None:
                return found
            return np.append(found, case.statistic(result, *exact))

        return of

    def study(self, eps: float, trials: int) -> dict[str, Any]:
        """Audit the call, and its control where one belongs to this epsilon."""
        case, trials = self.case, trials * self.case.runs
        common = {"delta": case.delta, "false_alarm": FALSE_ALARM, "bits": True, "progress": False}
        honest = audit.lower_bound(
            self.release(eps, 1.0), *self.pair, eps=eps, trials=trials, **common
        )
        row = {
            "function": case.function,
            "method": case.method,
            "case": case.name,
            "eps": eps,
            "delta": case.delta,
            "rows": len(self.pair[0]),
            "numbers": self.kept.size,
            "trials": trials,
            "bound": f"{honest.epsilon:.3f}",
            "passed": honest.passed,
            "event": honest.event,
        }
        if eps != CONTROL_EPSILON:
            return row
        for factor in FACTORS:
            spoiled, runs = self.release(eps, factor), max(trials // 2, 40)
            control = audit.lower_bound(spoiled, *self.pair, eps=eps, trials=runs, **common)
            if not control.passed:
                break
        return row | {
            "factor": "none" if control.passed else factor,
            "control": f"{control.epsilon:.3f}",
            "control_event": control.event,
        }


def table(path: Path) -> str:
    """Return the CSV as the table of docs/auditing.md: a line a case, bounds by epsilon."""
    found: dict[tuple[str, str, str], dict[float, dict[str, str]]] = {}
    for row in rows_of(path):
        key = row["function"], row["method"], row["case"]
        found.setdefault(key, {})[float(row["eps"])] = row
    epsilons = sorted(EPSILONS)
    titles = ["call", "method", "case", *(f"eps = {eps:g}" for eps in epsilons), "control"]
    lines = [titles, ["---"] * len(titles)]
    for key in sorted(found):
        rows = [found[key].get(eps, {}) for eps in epsilons]
        cells = [row.get("bound", "") for row in rows]
        caught = [f"{row['control']} at {row['factor']}" for row in rows if row.get("control")]
        cells.append("; ".join(caught))
        lines.append([*key, *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2500, help="runs on either data set")
    parser.add_argument("--eps", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--only", default="", help="cells whose 'method/case' starts so")
    parser.add_argument("--table", action="store_true", help="print the CSV as Markdown, no more")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    path = options.out / "audits.csv"
    if options.table:
        print(table(path))
        return
    # not `cells.run`: the budgets of a cell share its pilot, and each is kept once it is done
    done = {
        (row["function"], row["method"], row["case"], float(row["eps"])) for row in rows_of(path)
    }
    if not path.exists():
        packages = ", ".join(f"{name} {version(name)}" for name in ("dpstats", "numpy", "opendp"))
        with path.open("w", newline="", encoding="utf-8") as file:
            file.write(f"# {platform.machine()}, Python {platform.python_version()}, {packages}\n")
            csv.DictWriter(file, FIELDS).writeheader()
    # the first case of every method, then the second ones
    ranked, ranks = [], Counter()
    for case in cases():
        ranked.append((ranks[case.method], case))
        ranks[case.method] += 1
    wanted = set(KERNELS) | {name for name, kernel in SYNTH_KERNELS.items() if kernel.private}
    if missing := wanted - set(ranks):
        raise SystemExit(f"no case for {', '.join(sorted(missing))}")
    for _, case in sorted(ranked, key=lambda pair: pair[0]):
        key = (case.function, case.method, case.name)
        epsilons = [eps for eps in options.eps if (*key, eps) not in done]
        if not epsilons or not "/".join(key[1:]).startswith(options.only):
            continue
        prepared = Prepared.of(case)
        for eps in epsilons:
            start = time.process_time()
            row = prepared.study(eps, options.trials)
            with path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, FIELDS).writerow(row)
            print(row, f"{time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
