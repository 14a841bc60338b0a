"""Audits of whole calls of `dp_ate` and `dp_synth` on worst-case neighbours, with controls.

    python benchmarks/audits.py [--trials 2000] [--eps 1] [--only ipw/known] [--out DIR]

Each cell runs a call, with the noise of the operating system, on two data sets of a few extreme
rows and gives everything that the result holds to `dpstats.audit`. The pair is chosen in a pilot at
eps = 4. The control is the same call with too little noise (`FACTORS`); the first factor that is
caught is recorded. A finished cell is appended to the CSV at once; a second run does what is
missing. Figures differ from run to run, since the noise cannot be drawn again; an honest call is
refuted with probability `FALSE_ALARM` at most.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from cells import rows_of

import dpstats as dp
from dpstats import audit
from dpstats.ate.kernels import KERNELS
from dpstats.privacy.noise import noise_source

EPSILONS = (4.0, 1.0, 0.5)
DELTA = 0.01
FALSE_ALARM = 2e-3
# what is left of the noise in the controls; a call whose releases depend on each other, or add up
# to more than these neighbours show, is not caught at half
FACTORS = {"dp_ate": (0.5, 0.125, 0.03125), "dp_synth": (0.03125,)}
PILOT, PILOT_EPSILON = 40, 4.0
FIELDS = (
    "function", "method", "case", "eps", "delta", "rows", "numbers", "trials", "bound", "passed",
    "factor", "control", "event", "control_event",
)  # fmt: skip

# Options of each method that leave little room between what a release may cost and what these
# neighbours show of it; "fitted" spends on a propensity too. A method that is not named here is
# called with a known propensity and else with its defaults.
CASES: dict[str, dict[str, dict[str, Any]]] = {
    "blocking": {
        "known propensity": {"propensity": 0.5, "blocks": 1, "split": {"counts": 0.5, "sums": 0.5}},
        "fitted": {"blocks": 2, "split": {"propensity": 0.4, "counts": 0.3, "sums": 0.3}},
    },
    "diff_means": {
        "default": {},
        "Gaussian": {"delta": DELTA, "split": {"counts": 0.5, "sums": 0.5}},
    },
    "ipw": {
        "known propensity": {"propensity": 0.5, "split": {"score": 1.0}},
        "Gaussian": {"propensity": 0.5, "split": {"score": 1.0}, "delta": DELTA},
        "fitted": {"overlap": 0.45, "split": {"propensity": 0.5, "score": 0.5}},
    },
    "nipw": {"known propensity": {"propensity": 0.5, "split": {"numerators": 1.0}}},
    "agg_nipw": {"known propensity": {"propensity": 0.5, "split": {"score": 1.0}}},
    "binary": {"known propensity": {"propensity": 0.5, "split": {"effects": 1.0}}},
}
KNOWN: dict[str, dict[str, Any]] = {"known propensity": {"propensity": 0.5}}
SYNTH: dict[str, dict[str, dict[str, Any]]] = {
    method: {"default": {}} for method in ("moments", "did", "output", "objective")
}
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


def ate(method: str, eps: float, options: Mapping[str, Any], factor: float) -> Callable:
    def release(data: pd.DataFrame) -> list[float]:
        result = dp.dp_ate(
            "y ~ x",
            treat="w",
            data=data,
            eps=eps,
            method=method,
            bounds={"y": (-1.0, 1.0), "x": (-1.0, 1.0)},
            **options,
        )
        return [*numbers(result.released), *result.params]

    return with_noise(release, factor)


def synth(method: str, eps: float, options: Mapping[str, Any], factor: float) -> Callable:
    def release(panel: pd.DataFrame) -> list[float]:
        result = dp.dp_synth(
            panel,
            wide=True,
            T0=3,
            treated="target",
            eps=eps,
            method=method,
            bounds=(-1.0, 1.0),
            **options,
        )
        return [*numbers(result.released), *result.counterfactual, *result.params]

    return with_noise(release, factor)


def with_noise(release: Callable, factor: float) -> Callable:
    if factor == 1.0:
        return release

    def spoiled(data: pd.DataFrame) -> list[float]:
        with (
            mock.patch(SOURCES[0], return_value=Scaled(factor)),
            mock.patch(SOURCES[1], return_value=Scaled(factor)),
        ):
            return release(data)

    return spoiled


def varying(release: Callable, pairs: Sequence[tuple[Any, Any]]) -> np.ndarray:
    """Which of the numbers are no constants and no copies of others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = np.array([release(data) for pair in pairs for data in pair for _ in range(3)])
    _, first = np.unique(runs, axis=1, return_index=True)
    return np.array([j for j in sorted(first) if len(np.unique(runs[:, j])) > 1])


# ------------------------------------------------------------------------------------ neighbours


def frames() -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Files of four rows; the first moves between the corners of what a row may be."""
    rows = {"y": [1.0, -1.0, 0.0, 0.0], "w": [1, 0, 1, 0], "x": [1.0, -1.0, 1.0, -1.0]}
    corners = [(0, -1.0, 1.0), (1, -1.0, 1.0), (0, 1.0, -1.0)]
    moved = [{"w": w, "y": y, "x": x} for w, y, x in corners]
    return audit.neighbours(pd.DataFrame(rows), moved)


def panels() -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Two donors; the whole series of the first moves."""
    target = np.array([1.0, -1.0, 1.0, -1.0, 0.0, 0.0])
    loud = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    calm = np.array([1.0, 1.0, -1.0, -1.0, -1.0, -1.0])
    found = []
    for other in (0.0 * loud, calm):
        panel = pd.DataFrame([target, loud, other], index=["target", "first", "second"])
        found += audit.neighbours(panel, [dict(enumerate(row)) for row in (-loud, calm)], at=1)
    return found


# ----------------------------------------------------------------------------------------- cells


def otherwise(kernel: Any) -> dict[str, dict[str, Any]]:
    """Return the cases of a method that `CASES` does not name."""
    return KNOWN if kernel.uses_propensity else {"default": {}}


def cells() -> list[tuple[str, str, str, dict[str, Any]]]:
    """Function, method, case and options; what takes longest comes last."""
    found = [
        (function, method, case, options)
        for function, cases in (
            (
                "dp_ate",
                {name: CASES.get(name, otherwise(kernel)) for name, kernel in KERNELS.items()},
            ),
            ("dp_synth", SYNTH),
        )
        for method in cases
        for case, options in cases[method].items()
    ]
    return sorted(found, key=lambda cell: cell[2] == "fitted")


def study(
    function: str,
    method: str,
    case: str,
    options: Mapping[str, Any],
    epsilons: Sequence[float],
    trials: int,
) -> Iterator[dict[str, Any]]:
    call, pairs = (ate, frames()) if function == "dp_ate" else (synth, panels())
    delta = options.get("delta", 0.0)
    kept = varying(call(method, PILOT_EPSILON, options, 1.0), pairs)

    def released(eps: float, factor: float) -> Callable:
        release = call(method, eps, options, factor)
        return lambda data: np.array(release(data))[kept]

    # the pair is chosen once, where there is most to see
    pilot = audit.search(
        released(PILOT_EPSILON, FACTORS[function][-1]),
        pairs,
        delta=delta,
        trials=40,
        pilot=PILOT,
        progress=False,
    )
    pair = pairs[pilot.pair]
    common = {"delta": delta, "false_alarm": FALSE_ALARM, "bits": True, "progress": False}
    for eps in epsilons:
        honest = audit.lower_bound(released(eps, 1.0), *pair, eps=eps, trials=trials, **common)
        for factor in FACTORS[function]:
            release = released(eps, factor)
            control = audit.lower_bound(release, *pair, eps=eps, trials=trials, **common)
            if not control.passed:
                break
        yield {
            "function": function,
            "method": method,
            "case": case,
            "eps": eps,
            "delta": delta,
            "rows": len(pair[0]),
            "numbers": kept.size,
            "trials": trials,
            "bound": f"{honest.epsilon:.3f}",
            "passed": honest.passed,
            "factor": "none" if control.passed else factor,
            "control": f"{control.epsilon:.3f}",
            "event": honest.event,
            "control_event": control.event,
        }


def table(path: Path) -> str:
    """Return the CSV as the table of docs/auditing.md."""
    rows = sorted(
        rows_of(path),
        key=lambda row: (row["function"], row["method"], row["case"], float(row["eps"])),
    )
    titles = (
        "call",
        "method",
        "case",
        "eps",
        "runs",
        "bound",
        "noise left",
        "bound of the control",
    )
    names = ("function", "method", "case", "eps", "trials", "bound", "factor", "control")
    shown = [titles, ["---"] * len(titles)] + [[row[name] for name in names] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000, help="runs on either data set")
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
    for function, method, case, keywords in cells():
        epsilons = [e for e in options.eps if (function, method, case, e) not in done]
        if not epsilons or not f"{method}/{case}".startswith(options.only):
            continue
        start = time.process_time()
        for row in study(function, method, case, keywords, epsilons, options.trials):
            with path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, FIELDS).writerow(row)
            print(row, f"{time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
