"""From how many rows on do private bounds work: noisy histograms against private quantiles.

    python benchmarks/private_bounds.py [--trials 200] [--out FILE]

For q columns and a budget of eps_bounds, the smallest n (on a grid) from which on at least 95 % of
the trials find, for all q columns, an interval that holds at least 97 % of the rows and is at most
four times as wide as the range (or the largest absolute value) of the data. Columns cycle through
normal, lognormal incomes with 30 % zeros, ages, years and 0/1. The alternative picks each end by
the exponential mechanism over the same signed powers of two, with utility
min(t - above, above_next - t) (sensitivity 1), which is the best form we found.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from dpstats.errors import BoundsError
from dpstats.privacy import bounds as room
from dpstats.privacy.accounting import Cost
from dpstats.privacy.mechanisms import Mechanisms
from dpstats.privacy.noise import SeededSource

GRID = [round(10 ** (2 + i / 8)) for i in range(29)]


def columns(q: int, n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    makers = [
        lambda: rng.normal(size=n),
        lambda: np.where(rng.random(n) < 0.3, 0.0, rng.lognormal(10.0, 0.8, n)),
        lambda: rng.integers(18, 91, n).astype(float),
        lambda: rng.integers(1950, 2021, n).astype(float),
        lambda: (rng.random(n) < 0.4).astype(float),
    ]
    return {f"x{i}": makers[i % len(makers)]() for i in range(q)}


def good(values: np.ndarray, low: float, high: float) -> bool:
    inside = float(np.mean((values >= low) & (values <= high)))
    reach = max(float(np.ptp(values)), float(np.abs(values).max()))
    return inside >= 0.97 and high - low <= 4.0 * reach


def by_histogram(data: dict[str, np.ndarray], epsilon: float, seed: int) -> bool:
    mechanisms = Mechanisms(SeededSource(seed), "laplace", {"bounds": Cost(epsilon)})
    try:
        found, _ = room.private_bounds(data, mechanisms)
    except BoundsError:
        return False
    return all(good(values, *found[name]) for name, values in data.items())


def by_quantiles(data: dict[str, np.ndarray], epsilon: float, seed: int) -> bool:
    rng = np.random.default_rng(seed)
    each = epsilon / (2 * len(data))
    for values in data.values():
        counts = room._histogram(values)
        target = np.log(2 * len(data) * counts.size / 0.01) / each
        ends = []
        for side in (counts[::-1], counts):
            beyond = np.concatenate([[0.0], np.cumsum(side)[:-1]])
            utility = np.minimum(target - beyond, np.cumsum(side) - target)
            ends.append(int(np.argmax(utility + rng.gumbel(scale=2.0 / each, size=side.size))))
        last, first = counts.size - 1 - ends[0], ends[1]
        if first > last or not good(values, *room._interval(first, last)):
            return False
    return True


def rows_needed(q: int, epsilon: float, method: object, trials: int) -> float:
    for n in GRID:
        rng = np.random.default_rng([q, n])
        wins = sum(method(columns(q, n, rng), epsilon, seed) for seed in range(trials))
        if wins >= 0.95 * trials:
            return n
    return float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    for q in (1, 2, 3, 5, 10):
        for epsilon in (0.1, 0.25, 1.0):
            rows.append(
                {
                    "q": q,
                    "eps_bounds": epsilon,
                    "histogram": rows_needed(q, epsilon, by_histogram, options.trials),
                    "quantiles": rows_needed(q, epsilon, by_quantiles, options.trials),
                    "threshold": round(room.private_bounds_threshold(q, epsilon)),
                }
            )
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    table["histogram x eps / q"] = (table["histogram"] * table["eps_bounds"] / table["q"]).round(1)
    text = table.to_csv(index=False)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
