"""Other packages beside `dp_ate`, on the same simulated data.

    python benchmarks/peers_ate.py --dpate PYTHON --diffprivlib PYTHON [--trials 200] [--jobs 2]

PYTHON is an interpreter that has the package: `dpate` 0.0.1 needs Python >= 3.12, `diffprivlib`
needs scikit-learn < 1.8, so neither can be had here. A package without an interpreter is left out.
`peer_workers.py` says how each is called. The data are those of `accuracy_ate.py` (trial t from
[2026, n, t], noise from [2027, n, t]), with the public bounds of the processes. `private` says
whether noise is calibrated to a proven sensitivity: that of dpate is not (docs/methods.md, section
11). `failed` counts trials in which a package raised or returned no finite number; errors are those
of the others. `seconds` is the median of one estimate, preparation of arrays left out for the
peers and included for `dp_ate`. A finished cell is appended to the CSV at once.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cells import arguments, errors_of, rows_of, run
from processes import draw

import dpstats as dp

WORKER = Path(__file__).with_name("peer_workers.py")
OURS = ("blocking", "regression", "aipw", "nipw ato", "diff_means")
CELLS = [("well_specified", n, eps) for n in (1000, 10000) for eps in (0.25, 1.0, 3.0)] + [
    ("low_overlap", 10000, 1.0),
    ("strong_confounding", 10000, 1.0),
]
PRIVATE = {"dpstats": "yes", "dpate": "no", "diffprivlib": "yes"}
KEY = ("process", "n", "eps", "package")
ERRORS = ("rmse", "rmse_se", "bias", "mae")
FIELDS = (*KEY, "method", "private", "trials", "failed", *ERRORS, "seconds")


def ours(process: str, n: int, eps: float, trials: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield estimates of our methods at their defaults; diff_means is one block."""
    warnings.simplefilter("ignore")
    for method in OURS:
        name, _, estimand = method.partition(" ")
        found, seconds = [], []
        for t in range(trials):
            sample = draw(process, n, [2026, n, t])
            start = time.perf_counter()
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
            seconds.append(time.perf_counter() - start)
            found.append(float(result.released.estimate(estimand or "ate")))
        yield method, {"estimates": found, "seconds": float(np.median(seconds))}


def theirs(
    package: str, python: str, process: str, n: int, eps: float, trials: int
) -> dict[str, dict[str, Any]]:
    """Hand the data to the worker and return what it found, by method."""
    samples = [draw(process, n, [2026, n, t]) for t in range(trials)]
    columns = [name for name in samples[0].bounds if name != "y"]
    bounds = np.array([samples[0].bounds[name] for name in (*columns, "y")])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(
            path,
            x=np.array([sample.data[columns].to_numpy() for sample in samples]),
            w=np.array([sample.data["w"].to_numpy() for sample in samples]),
            y=np.array([sample.data["y"].to_numpy() for sample in samples]),
            lower=bounds[:, 0],
            upper=bounds[:, 1],
            seed=[2027, n],
        )
        return dict(json.loads(ask(python, package, str(path), str(eps))))


def ask(python: str, *words: str) -> str:
    done = subprocess.run(
        [python, "-P", str(WORKER), *words], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def compare(
    process: str, n: int, eps: float, package: str, trials: int, pythons: dict[str, str]
) -> Iterator[dict[str, Any]]:
    if package == "dpstats":
        found = dict(ours(process, n, eps, trials))
    else:
        found = theirs(package, pythons[package], process, n, eps, trials)
    truth = draw(process, n, [2026, n, 0]).truth
    for method, made in found.items():
        errors = np.array(made["estimates"]) - truth
        finite = np.isfinite(errors)
        yield {
            **dict(zip(KEY, (process, n, eps, package), strict=True)),
            "method": method,
            "private": PRIVATE[package],
            "trials": errors.size,
            "failed": int((~finite).sum()),
            **errors_of(errors[finite]),
            "seconds": f"{made['seconds']:.4f}",
        }


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], 200)
    parser.add_argument("--dpate", metavar="PYTHON", help="an interpreter that has dpate")
    parser.add_argument("--diffprivlib", metavar="PYTHON", help="one that has diffprivlib")
    options = parser.parse_args()
    named = {"dpate": options.dpate, "diffprivlib": options.diffprivlib}
    pythons = {package: python for package, python in named.items() if python}
    note = "; ".join(ask(python, package) for package, python in pythons.items())
    cells = [(*cell, package) for cell in CELLS for package in ("dpstats", *pythons)]
    path = options.out / "peers_ate.csv"
    extra = (options.trials, pythons)
    for row in run(path, FIELDS, KEY, compare, cells, options.jobs, *extra, note=note):
        print(*row.values(), flush=True)
    print(f"{len(rows_of(path))} rows in {path}")


if __name__ == "__main__":
    main()
