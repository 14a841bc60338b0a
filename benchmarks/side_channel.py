"""Does the run time of a call tell what is in the rows?

    python benchmarks/side_channel.py [--repeats 9] [--eps 1 100] [--out FILE]

Processor time of a warm call of each method of `dp_ate` and `dp_synth`, on ordinary data and on
data that a solver might choke on. Median over repeats (noise is drawn anew each time, by the same
seeds for every data set), as a ratio to ordinary data of the same size.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import dpstats as dp
from dpstats.ate.kernels import KERNELS
from dpstats.synth.kernels import KERNELS as SYNTH

SIZES = (2000, 20_000)
DONORS = (200, 2000)
PERIODS, BEFORE = 20, 15
COVARIATES = ("x1", "x2", "x3", "x4")
BOUNDS = {"y": (-5.0, 8.0), **dict.fromkeys(COVARIATES, (-3.0, 3.0))}


def people(n: int, seed: int = 1) -> dict[str, pd.DataFrame]:
    """Ordinary data, and what may be hard for a solver or for an arithmetic."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4, n))
    w = (rng.random(n) < 1 / (1 + np.exp(-0.8 * x[0]))).astype(int)
    y = 1 + 2 * w + x[0] + rng.normal(size=n)
    plain = pd.DataFrame({"y": y, "w": w, **dict(zip(COVARIATES, x, strict=True))})
    same = dict.fromkeys(COVARIATES, x[0])
    tiny = dict.fromkeys(COVARIATES, 5e-324)
    huge = {name: np.where(rng.random(n) < 0.5, 1e308, -np.inf) for name in COVARIATES}
    return {
        "ordinary": plain,
        "separated": plain.assign(w=(x[0] > 0).astype(int)),
        "constant": plain.assign(y=1.0, **dict.fromkeys(COVARIATES, 1.0)),
        "collinear": plain.assign(**same),
        "all treated": plain.assign(w=1),
        "one treated": plain.assign(w=(np.arange(n) == 0).astype(int)),
        "denormal": plain.assign(y=5e-324, **tiny),
        "extreme": plain.assign(y=np.where(w == 1, np.inf, -1e308), **huge),
    }


def panels(n: int, seed: int = 1) -> dict[str, pd.DataFrame]:
    """Wide panels; the treated series is the same in all."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(2, PERIODS)).cumsum(axis=1)
    plain = rng.normal(size=(n + 1, 2)) @ factors + rng.normal(size=(n + 1, PERIODS))
    grids = {
        "ordinary": plain,
        "constant": np.ones_like(plain),
        "collinear": np.tile(plain[1], (n + 1, 1)),
        "denormal": np.full_like(plain, 5e-324),
        "extreme": rng.choice([1e308, -np.inf, np.inf], plain.shape),
    }
    found = {}
    for name, grid in grids.items():
        grid[0] = np.clip(plain[0], -9, 9)
        found[name] = pd.DataFrame(grid)
    return found


def spent(call: Callable[[int], object], repeats: int) -> float:
    """Median processor seconds of a warm call."""
    call(0)
    found = []
    for seed in range(repeats):
        start = time.process_time()
        call(seed)
        found.append(time.process_time() - start)
    return float(np.median(found))


def row(
    group: str,
    method: str,
    n: int,
    eps: float,
    calls: dict[str, Callable[[int], object]],
    repeats: int,
) -> dict[str, object]:
    seconds = {name: spent(call, repeats) for name, call in calls.items()}
    base = seconds.pop("ordinary")
    ratios = {name: value / base for name, value in seconds.items()}
    print(
        group, method, n, eps, f"{1000 * base:.1f} ms", {k: round(v, 2) for k, v in ratios.items()}
    )
    return {
        "call": group,
        "method": method,
        "n": n,
        "eps": eps,
        "ordinary_ms": 1000 * base,
        **ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--eps", type=float, nargs="+", default=[1.0, 100.0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/side_channel.csv"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for n in SIZES:
        frames = people(n)
        for method, eps in itertools.product(KERNELS, given.eps):
            calls = {
                name: lambda seed, frame=frame, method=method, eps=eps: dp.dp_ate(
                    f"y ~ {' + '.join(COVARIATES)}",
                    "w",
                    frame,
                    eps,
                    method=method,
                    bounds=BOUNDS,
                    rng=seed,
                )
                for name, frame in frames.items()
            }
            rows.append(row("dp_ate", method, n, eps, calls, given.repeats))
    for n in DONORS:
        grids = panels(n)
        private = [name for name, kernel in SYNTH.items() if kernel.private]
        for method, eps in itertools.product(private, given.eps):
            calls = {
                name: lambda seed, grid=grid, method=method, eps=eps: dp.dp_synth(
                    grid,
                    wide=True,
                    treated=0,
                    T0=BEFORE - 1,
                    eps=eps,
                    bounds=(-10, 10),
                    method=method,
                    rng=seed,
                )
                for name, grid in grids.items()
            }
            rows.append(row("dp_synth", method, n, eps, calls, given.repeats))
    pd.DataFrame(rows).round(3).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
