"""Accuracy of `dp_synth` at its defaults, from the public API.

    python benchmarks/accuracy_synth.py [--set defaults] [--trials 200] [--jobs 2] [--out DIR]
    python benchmarks/accuracy_synth.py --set published --trials 20 ...
    python benchmarks/accuracy_synth.py --set processes ...

Median over panels of the root mean squared error of the post-period path (30 periods, T0 = 20,
eps = 1), against the untreated signal and against the realised untreated outcome, for the private
methods beside non-private ridge, difference in differences and the last value carried forward.
`ratio` is to the ridge, with a bootstrap standard error. "ridge" is the better, in the median, of
two: rows less their own pre-period mean, with and without the donors' mean path taken out, penalty
by leaving out one period. "output" and "objective" get the process's public bounds, the others
none. "published" (peers_synth.csv) is the published form of the two with correct noise: weights
not projected, noise for a target at its bounds, and the donors' outcomes released as a matrix.
"processes" (processes_synth.csv) are the panels of panels_synth.py, "moments" and "did" only. A
finished cell is appended to the CSV at once, so an interrupted run goes on where it stopped. Seeds
are recorded: trial t of a cell draws its panel from [2028, n, t] and noise from [2029, n, t].
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from cells import arguments, rows_of, run
from panels_synth import PROCESSES, draw

import dpstats as dp

_MATRIX: dict[str, Any] = {"release": "matrix", "project": False}
# by set of methods: what `dp_synth` is told
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "defaults": {name: {"method": name} for name in ("moments", "did", "output", "objective")},
    "published": {
        "output (published)": {"method": "output", "target_norm": "bound", **_MATRIX},
        "objective (published)": {"method": "objective", "target_norm": "bound", **_MATRIX},
    },
    "processes": {name: {"method": name} for name in ("moments", "did")},
}
FILES = {
    "defaults": "accuracy_synth.csv",
    "published": "peers_synth.csv",
    "processes": "processes_synth.csv",
}
DELTAS = (1e-6, 0.0)
CELLS = list(itertools.product(("factor", "smooth"), (100, 1000, 5000, 10000), DELTAS))
OTHER_CELLS = list(itertools.product(PROCESSES, (200, 1000), DELTAS))
KEY = ("process", "donors", "delta")
ERRORS = ("rmse", "ratio", "ratio_se", "rmse_realised", "ratio_realised")
FIELDS = (*KEY, "method", "trials", *ERRORS)


def ridge(donors: np.ndarray, target: np.ndarray, before: int, centre: bool) -> np.ndarray:
    """Predict without privacy: ridge across donors, penalty by leaving out one pre-period."""
    rows = donors - donors[:, :before].mean(axis=1, keepdims=True)
    path = rows.mean(axis=0) if centre else np.zeros(rows.shape[1])
    rows = rows - path
    level = target[:before].mean()
    y = target[:before] - level - path[:before]
    inner = rows[:, :before].T @ rows[:, :before]
    across = rows[:, before:].T @ rows[:, :before]
    best, chosen = np.inf, path
    for factor in 10.0 ** np.arange(-4, 2.1, 0.5):
        mu = factor * np.trace(inner) / before
        loss = 0.0
        for t in range(before):
            kept = np.arange(before) != t
            block = inner[np.ix_(kept, kept)] + mu * np.eye(before - 1)
            loss += (y[t] - inner[t, kept] @ np.linalg.solve(block, y[kept])) ** 2
        if loss < best:
            solved = np.linalg.solve(inner + mu * np.eye(before), y)
            best, chosen = loss, path[before:] + across @ solved
    return level + chosen


def trial(
    process: str, n: int, delta: float, t: int, methods: str
) -> dict[str, tuple[float, float]]:
    """Return errors against the signal and the realised outcome, by method."""
    warnings.simplefilter("ignore")
    sample = draw(process, n, [2028, n, t])
    before, paths, frame = sample.before, sample.paths, sample.frame
    donors, target = paths[1:], paths[0]
    found = {
        "ridge (plain)": ridge(donors, target, before, centre=False),
        "ridge (centred)": ridge(donors, target, before, centre=True),
        "did (not private)": target[:before].mean()
        + donors[:, before:].mean(axis=0)
        - donors[:, :before].mean(),
        "last value": np.full(paths.shape[1] - before, target[before - 1]),
    }
    for name, told in METHODS[methods].items():
        result = dp.dp_synth(
            frame,
            T0=before,
            unit="unit",
            time="time",
            outcome="y",
            treated=0,
            eps=1.0,
            delta=delta,
            bounds=sample.bounds if told["method"] in ("output", "objective") else None,
            rng=[2029, n, t],
            **told,
        )
        found[name] = result.counterfactual.to_numpy()[before:]
    signal, realised = sample.signal[before:], target[before:]
    return {
        name: tuple(float(np.sqrt(np.mean((path - goal) ** 2))) for goal in (signal, realised))
        for name, path in found.items()
    }


def accuracy(
    process: str, n: int, delta: float, trials: int, methods: str
) -> Iterator[dict[str, Any]]:
    runs = [trial(process, n, delta, t, methods) for t in range(trials)]
    errors = {name: np.array([found[name] for found in runs]) for name in runs[0]}
    forms = [errors.pop("ridge (plain)"), errors.pop("ridge (centred)")]
    reference = min(forms, key=lambda e: np.median(e[:, 0]))
    again = np.random.default_rng(0).integers(trials, size=(500, trials))
    for name, found in {"ridge": reference, **errors}.items():
        middle, base = np.median(found, axis=0), np.median(reference, axis=0)
        ratios = np.median(found[again, 0], axis=1) / np.median(reference[again, 0], axis=1)
        yield {
            "process": process,
            "donors": n,
            "delta": delta,
            "method": name,
            "trials": trials,
            "rmse": f"{middle[0]:.5f}",
            "ratio": f"{middle[0] / base[0]:.3f}",
            "ratio_se": f"{ratios.std():.3f}",
            "rmse_realised": f"{middle[1]:.5f}",
            "ratio_realised": f"{middle[1] / base[1]:.3f}",
        }


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], 200)
    parser.add_argument("--set", choices=tuple(METHODS), default="defaults")
    options = parser.parse_args()
    path = options.out / FILES[options.set]
    extra = (options.trials, options.set)
    cells = OTHER_CELLS if options.set == "processes" else CELLS
    for row in run(path, FIELDS, KEY, accuracy, cells, options.jobs, *extra):
        print(*row.values(), flush=True)
    print(f"{len(rows_of(path))} rows in {path}")


if __name__ == "__main__":
    main()
