"""Accuracy of `dp_ate` at its defaults, from the public API.

    python benchmarks/accuracy_ate.py [--trials 500] [--jobs 2] [--set table|other|all] [--out DIR]

Root mean squared error with its standard error, bias, median absolute error, coverage of the 95 %
interval and its median half-width over 1.96, for `blocking`, `ipw` and `diff_means`, with the good
public bounds. A finished cell is appended to the CSV at once, so an interrupted run goes on where
it stopped. Seeds are recorded: trial t of a cell draws data from [2026, n, t] and noise from
[2027, n, t].
"""

from __future__ import annotations

import argparse
import csv
import itertools
import platform
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np

import dpstats as dp

METHODS = ("blocking", "ipw", "diff_means")
# the smallest entry of the published or sketched figures (design, section 5)
TABLE = [
    ("well_specified", n, eps) for n in (1000, 5000, 10000, 25000) for eps in (0.25, 1.0, 3.0)
] + [("well_specified", 2500, 1.0), ("low_overlap", 3000, 1.0), ("low_overlap", 10000, 1.0)]
OTHER = [
    (process, n, eps)
    for process, n, eps in itertools.product(
        ("low_overlap", "unbalanced", "binary", "strong_confounding", "randomised"),
        (1000, 10000),
        (0.25, 1.0, 3.0),
    )
    if (process, n, eps) not in TABLE
]
FIELDS = (
    "process",
    "n",
    "eps",
    "method",
    "trials",
    "rmse",
    "rmse_se",
    "bias",
    "mae",
    "coverage",
    "se_median",
)


def trial(process: str, n: int, eps: float, t: int) -> dict[str, tuple[float, float, float]]:
    warnings.simplefilter("ignore")
    data = dp.simulate.ate(process, n, rng=[2026, n, t])
    found = {}
    for method in METHODS:
        result = dp.dp_ate(
            data.formula,
            data.treat,
            data.data,
            eps,
            bounds=data.bounds,
            method=method,
            rng=[2027, n, t],
        )
        low, high = result.conf_int().iloc[0]
        found[method] = (float(result.params["ATE"]) - data.truth["ATE"], low, high)
        found[method] = (found[method][0], low - data.truth["ATE"], high - data.truth["ATE"])
    return found


def cell(job: tuple[str, int, float, int]) -> list[dict[str, object]]:
    process, n, eps, trials = job
    runs = [trial(process, n, eps, t) for t in range(trials)]
    rows = []
    for method in METHODS:
        errors, low, high = np.array([run[method] for run in runs]).T
        squares = errors**2
        rmse = float(np.sqrt(squares.mean()))
        rows.append(
            {
                "process": process,
                "n": n,
                "eps": eps,
                "method": method,
                "trials": trials,
                "rmse": f"{rmse:.5f}",
                "rmse_se": f"{squares.std(ddof=1) / np.sqrt(trials) / (2 * rmse):.5f}",
                "bias": f"{errors.mean():.5f}",
                "mae": f"{np.median(np.abs(errors)):.5f}",
                "coverage": f"{np.mean((low <= 0) & (high >= 0)):.3f}",
                "se_median": f"{np.median(high - low) / 2 / 1.959964:.5f}",
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--set", choices=("table", "other", "all"), default="table")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    cells = {"table": TABLE, "other": OTHER, "all": TABLE + OTHER}[options.set]
    path = options.out / "accuracy_ate.csv"
    done = set()
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            lines = [line for line in file if not line.startswith("#")]
        done = {(row["process"], int(row["n"]), float(row["eps"])) for row in csv.DictReader(lines)}
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        packages = ", ".join(f"{name} {version(name)}" for name in ("dpstats", "numpy", "scipy"))
        with path.open("w", newline="", encoding="utf-8") as file:
            file.write(f"# {platform.machine()}, Python {platform.python_version()}, {packages}\n")
            csv.DictWriter(file, FIELDS).writeheader()
    jobs = [(*job, options.trials) for job in cells if job not in done]
    with ProcessPoolExecutor(options.jobs) as pool:
        for rows in pool.map(cell, jobs):
            with path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, FIELDS).writerows(rows)
            print(rows[0], flush=True)


if __name__ == "__main__":
    main()
