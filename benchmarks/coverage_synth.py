"""Coverage of the 95 % intervals of `dp_synth` (`moments`), from the public API.

    python benchmarks/coverage_synth.py [--trials 400] [--jobs 2] [--out DIR]

For the realised untreated outcome of the fixed target, by period (averaged) and for the ATT, at
eps = 1. A finished cell is appended to the CSV at once. Trial t of a cell draws its panel from
[31, n, t] and its noise from [32, n, t].
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from cells import arguments, rows_of, run

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
KEY = ("process", "donors", "delta")
FIELDS = (*KEY, "trials", "periods", "att", "half_width_att", "rmse_att")


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


def coverage(process: str, n: int, delta: float, trials: int) -> Iterator[dict[str, Any]]:
    runs = np.array([trial(process, n, delta, t) for t in range(trials)])
    yield {
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
    parser = arguments((__doc__ or "").splitlines()[0], 400)
    options = parser.parse_args()
    path = options.out / "coverage_synth.csv"
    for row in run(path, FIELDS, KEY, coverage, CELLS, options.jobs, options.trials):
        print(*row.values(), flush=True)
    print(f"{len(rows_of(path))} cells in {path}")


if __name__ == "__main__":
    main()
