"""Coverage of the 95 % intervals of `dp_synth` (`moments`), from the public API.

    python benchmarks/coverage_synth.py [--trials 1000] [--jobs 2] [--out DIR]

For the realised untreated outcome of the fixed target, by period (averaged) and for the ATT, at
eps = 1. A finished cell is appended to the CSV at once. Trial t of a cell draws its panel from
[31, n, t] and its noise from [32, n, t].
"""

from __future__ import annotations

import argparse
import csv
import platform
import warnings
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np

import dpstats as dp

CELLS = [
    ("factor", 1000, 1e-6),
    ("smooth", 1000, 1e-6),
    ("factor", 10000, 1e-6),
    ("smooth", 10000, 1e-6),
    ("factor", 1000, 0.0),
    ("smooth", 1000, 0.0),
    ("factor", 10000, 0.0),
    ("smooth", 10000, 0.0),
]
FIELDS = ("process", "donors", "delta", "trials", "periods", "att", "half_width_att", "rmse_att")


def trial(process: str, n: int, delta: float, t: int) -> tuple[float, float, float, float]:
    warnings.simplefilter("ignore")
    panel = dp.simulate.panel(process, n_donors=n, rng=[31, n, t])
    result = dp.dp_synth(
        panel.data,
        unit=panel.unit,
        time=panel.time,
        outcome=panel.outcome,
        treated=panel.treated,
        T0=panel.T0,
        eps=1,
        delta=delta,
        rng=[32, n, t],
    )
    # there is no effect: an interval covers where it holds zero
    periods = result.conf_int(which="periods").to_numpy()
    low, high = result.conf_int().iloc[0]
    inside = float(np.mean((periods[:, 0] <= 0.0) & (periods[:, 1] >= 0.0)))
    return inside, float(low <= 0.0 <= high), (high - low) / 2.0, float(result.params.iloc[0])


def cell(job: tuple[str, int, float, int]) -> dict[str, object]:
    process, n, delta, trials = job
    runs = np.array([trial(process, n, delta, t) for t in range(trials)])
    return {
        "process": process,
        "donors": n,
        "delta": delta,
        "trials": trials,
        "periods": f"{runs[:, 0].mean():.4f}",
        "att": f"{runs[:, 1].mean():.4f}",
        "half_width_att": f"{np.median(runs[:, 2]):.5f}",
        "rmse_att": f"{np.sqrt(np.mean(runs[:, 3] ** 2)):.5f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    path = options.out / "coverage_synth.csv"
    done = set()
    if path.exists():
        lines = [line for line in path.read_text("utf-8").splitlines() if line[:1] != "#"]
        done = {
            (row["process"], int(row["donors"]), float(row["delta"]))
            for row in csv.DictReader(lines)
        }
    else:
        packages = ", ".join(f"{name} {version(name)}" for name in ("dpstats", "numpy", "scipy"))
        with path.open("w", newline="", encoding="utf-8") as file:
            file.write(f"# {platform.machine()}, Python {platform.python_version()}, {packages}\n")
            csv.DictWriter(file, FIELDS).writeheader()
    jobs = [(*job, options.trials) for job in CELLS if job not in done]
    with ProcessPoolExecutor(options.jobs) as pool:
        for row in pool.map(cell, jobs):
            with path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, FIELDS).writerow(row)
            print(row, flush=True)


if __name__ == "__main__":
    main()
