"""Accuracy and coverage of the methods of `dp_ate` at their defaults, from the public API.

    python benchmarks/accuracy_ate.py --set table [--trials 2000] [--jobs 2] [--out DIR]
    python benchmarks/accuracy_ate.py --set coverage [--trials 400] ...
    python benchmarks/accuracy_ate.py --set sets [--trials 200] ...
    python benchmarks/accuracy_ate.py --set baseline [--trials 500] ...
    python benchmarks/accuracy_ate.py --set real [--trials 200] ...

Root mean squared error with its standard error, bias and median absolute error, with the public
bounds of the processes. "table": the cells of the published comparison, the default beside one
block. "coverage": every method on every process it is meant for, with the coverage of the 95 %
interval and its median width in units of 2 x 1.96 standard deviations of the estimates; cells with
coverage between 88 and 93.5 % are run again with five times the trials. "sets": the covariate sets
of `processes.py`. "baseline": the default beside one block on every process, where n eps goes from
250 to 30,000. "real": NSW and NHEFS, errors against the ordinary estimate of each file (weighting,
without noise), n as it is. A finished cell is appended to its CSV at once, so an interrupted run
goes on where it stopped. Trial t of a cell draws data from [2026, n, t] and noise from
[2027, n, t].
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from cells import arguments, errors_of, rows_of, run
from processes import PROCESSES, draw

import dpstats as dp
from dpstats.datasets import Dataset, load_nhefs, load_nsw

TABLE = [
    ("well_specified", n, eps) for n in (1000, 5000, 10000, 25000) for eps in (0.25, 1.0, 3.0)
] + [("well_specified", 2500, 1.0), ("low_overlap", 3000, 1.0), ("low_overlap", 10000, 1.0)]
GOOD = ("well_specified", "strong_confounding", "binary", "randomised")
EVERY = (*GOOD, "low_overlap", "unbalanced")
# processes that a method is meant for; overlap weights need no overlap
MEANT = {
    "blocking": EVERY,
    "regression": EVERY,
    "aipw": EVERY,
    "nipw": GOOD,
    "nipw ato": EVERY,
    "ipw": GOOD,
    "split_ipw": GOOD,
    "agg_nipw": GOOD,
    "agg_ipw": GOOD,
    "agg_aipw": GOOD,
    "agg_regression": GOOD,
    "binary": ("binary",),
    "diff_means": ("randomised",),
}
# the experiment, the same treated men with survey controls, and smokers who quit
FILES: dict[str, Callable[[], Dataset]] = {
    "nsw": lambda: load_nsw("nsw"),
    "nsw-cps3": lambda: load_nsw("cps3"),
    "nhefs": load_nhefs,
}
FIELDS = ("process", "n", "eps", "method", "trials", "rmse", "rmse_se", "bias", "mae")
REAL = (*FIELDS, "ordinary", "means")
COVERED = (*FIELDS, "coverage", "width")
KEY = ("process", "n", "eps", "method")


def trials_of(
    process: str, n: int, eps: float, method: str, trials: int, intervals: bool
) -> np.ndarray[Any, Any]:
    """Return errors, and both ends of the intervals less the truth, shape (trials, 3)."""
    warnings.simplefilter("ignore")
    name, _, estimand = method.partition(" ")
    found = np.full((trials, 3), np.nan)
    for t in range(trials):
        sample = draw(process, n, [2026, n, t])
        result = dp.dp_ate(
            sample.formula,
            "w",
            sample.data,
            eps,
            bounds=sample.bounds,
            method=name,
            estimand=estimand or "ate",
            rng=[2027, n, t],
        )
        found[t, 0] = result.released.estimate(estimand or "ate") - sample.truth
        if intervals:
            found[t, 1:] = result.conf_int().iloc[0].to_numpy() - sample.truth
    return found


def accuracy(
    process: str, n: int, eps: float, method: str, trials: int
) -> Iterator[dict[str, Any]]:
    errors = trials_of(process, n, eps, method, trials, False)[:, 0]
    cell = {"process": process, "n": n, "eps": eps, "method": method, "trials": trials}
    yield {**cell, **errors_of(errors)}


@cache
def ordinary(name: str, method: str) -> float:
    """Return the estimate of a real file without noise."""
    file = FILES[name]()
    result = dp.dp_ate(
        file.formula,
        file.treat,
        file.data,
        float("inf"),
        bounds=file.bounds,
        levels=file.levels,
        method=method,
    )
    return float(result.released.estimate("ate"))


def real(process: str, n: int, eps: float, method: str, trials: int) -> Iterator[dict[str, Any]]:
    warnings.simplefilter("ignore")
    file, errors = FILES[process](), np.zeros(trials)
    reference = ordinary(process, "nipw")
    for t in range(trials):
        result = dp.dp_ate(
            file.formula,
            file.treat,
            file.data,
            eps,
            bounds=file.bounds,
            levels=file.levels,
            method=method,
            rng=[2027, n, t],
        )
        errors[t] = result.released.estimate("ate") - reference
    cell = {"process": process, "n": n, "eps": eps, "method": method, "trials": trials}
    figures = {"ordinary": f"{reference:.4f}", "means": f"{ordinary(process, 'diff_means'):.4f}"}
    yield {**cell, **errors_of(errors), **figures}


def coverage(
    process: str, n: int, eps: float, method: str, trials: int
) -> Iterator[dict[str, Any]]:
    for count in (trials, 5 * trials):
        errors, low, high = trials_of(process, n, eps, method, count, True).T
        covered = float(np.mean((low <= 0.0) & (high >= 0.0)))
        if not 0.88 <= covered < 0.935:
            break
    width = float(np.median(high - low)) / (2.0 * 1.959964 * errors.std(ddof=1))
    cell = {"process": process, "n": n, "eps": eps, "method": method, "trials": count}
    yield {**cell, **errors_of(errors), "coverage": f"{covered:.4f}", "width": f"{width:.3f}"}


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], 400)
    parser.add_argument(
        "--set", choices=("table", "coverage", "sets", "baseline", "real"), default="table"
    )
    parser.add_argument("--only", nargs="*", help="methods")
    options = parser.parse_args()
    fields, work, name = FIELDS, accuracy, "accuracy_ate.csv"
    if options.set == "table":
        cells = [(*cell, method) for cell in TABLE for method in ("blocking", "diff_means")]
    elif options.set == "sets":
        sizes = itertools.product(PROCESSES, (2500, 10000), (0.25, 1.0, 3.0))
        methods = ("blocking", "regression", "aipw", "diff_means")
        cells = [(*cell, method) for cell in sizes for method in methods]
        name = "accuracy_sets.csv"
    elif options.set == "baseline":
        sizes = itertools.product(EVERY, (1000, 2500, 10000), (0.25, 0.5, 1.0, 3.0))
        cells = [(*cell, method) for cell in sizes for method in ("blocking", "diff_means")]
        name = "accuracy_baseline.csv"
    elif options.set == "real":
        fields, work, name = REAL, real, "accuracy_real.csv"
        methods = ("blocking", "regression", "aipw", "nipw", "diff_means")
        cells = [
            (file, len(FILES[file]().data), eps, method)
            for file, eps, method in itertools.product(FILES, (0.5, 1.0, 3.0, 10.0), methods)
        ]
    else:
        fields, work, name = COVERED, coverage, "coverage_ate.csv"
        cells = [
            (process, n, eps, method)
            for method, n, eps in itertools.product(MEANT, (1000, 10000), (0.5, 3.0))
            for process in MEANT[method]
        ]
    if options.only:
        cells = [cell for cell in cells if cell[3].split()[0] in options.only]
    path = options.out / name
    for row in run(path, fields, KEY, work, cells, options.jobs, options.trials):
        print(*row.values(), flush=True)
    print(f"{len(rows_of(path))} cells in {path}")


if __name__ == "__main__":
    main()
