"""Estimates of other packages, run by an interpreter that has them (numpy is all else it needs).

    PYTHON -P peer_workers.py dpate|diffprivlib                 prints versions
    PYTHON -P peer_workers.py dpate|diffprivlib DATA.npz EPS    prints estimates, as JSON

DATA.npz holds x (trials, n, k), w and y (trials, n), lower and upper (k + 1 public bounds, the
outcome's last) and seed (trial t draws its noise from [*seed, t]). `peers_ate.py` writes it.

"dpate": the functions of the package at their own defaults. Covariates are clipped to their bounds
and divided by the norm of those bounds, as its documentation asks; the outcome is centred. In
"(centred)" covariates are also taken about the middle of their bounds, which the documentation does
not say and which leaves less to the penalty.

"diffprivlib": its logistic regression gives the propensities, the rest is here, with noise whose
scale follows from the sensitivities of docs/methods.md. The constant is a column of the design, so
that it is penalised and perturbed like the others: the library's own intercept has no penalty,
which its proof needs. Rows have norm one at most and the solver goes on to rounding error.
"""

from __future__ import annotations

import json
import math
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any
from unittest import mock

import numpy as np

OVERLAP = 0.1
MIN_COUNT = 1.5
# estimates that take .2 to 10 seconds: part of the trials, and the largest n
SLOW = {"dp_ate_by_aggregation": (0.25, math.inf), "dp_nuisance_aggregation": (0.1, 1000)}


class Rows:
    """One data set: covariates, treatment, and the outcome in [-C, C]."""

    def __init__(self, x: Any, w: Any, y: Any, lower: Any, upper: Any) -> None:
        x = np.clip(x, lower[:-1], upper[:-1])
        self.half = float(upper[-1] - lower[-1]) / 2.0
        self.w = w.astype(int)
        self.y = np.clip(y, lower[-1], upper[-1]) - (upper[-1] + lower[-1]) / 2.0
        # as documented: divided by the norm of the bounds
        self.divided = x / np.linalg.norm(np.maximum(np.abs(lower), np.abs(upper))[:-1])
        scaled = (2.0 * x - lower[:-1] - upper[:-1]) / (upper - lower)[:-1]
        reach = (upper - lower)[:-1] / 2.0
        self.centred = scaled * reach / np.linalg.norm(reach)
        design = np.column_stack([np.full(len(x), 0.5), scaled])
        norms = np.linalg.norm(design, axis=1, keepdims=True)
        self.design = design / np.maximum(norms, 1.0)


def dpate() -> dict[str, Callable[[Rows, float, np.random.Generator], float]]:
    import dpate as package

    def call(method: str) -> Callable[[Rows, float, np.random.Generator], float]:
        name, centred, _ = method.partition(" (centred)")
        function = getattr(package, name)

        def estimate(rows: Rows, eps: float, rng: np.random.Generator) -> float:
            # the package asks for a fresh generator at each draw, and permutes with the global one
            np.random.seed(int(rng.integers(2**32)))  # noqa: NPY002
            with mock.patch("numpy.random.default_rng", return_value=rng):
                x = rows.centred if centred else rows.divided
                return float(function(x, rows.w, rows.y, rows.half, eps))

        return estimate

    best = ("dp_prop_blocking", "dp_ipw_sequential", "dp_nipw_sequential")
    names = [*best, *(f"{name} (centred)" for name in best), "dp_ipw_split", *SLOW]
    return {name: call(name) for name in names}


def diffprivlib() -> dict[str, Callable[[Rows, float, np.random.Generator], float]]:
    return {"logistic + ipw": ipw, "logistic + nipw": nipw, "logistic + blocks": blocks}


def propensities(rows: Rows, eps: float, rng: np.random.Generator) -> Any:
    """Fit with C = 1, or the smaller C at which half the budget is left for the noise."""
    from diffprivlib.models import LogisticRegression

    penalty = max(1.0, 0.25 / math.expm1(eps / 4.0))
    model = LogisticRegression(
        epsilon=eps,
        data_norm=1.0,
        C=1.0 / penalty,
        fit_intercept=False,
        tol=1e-10,
        max_iter=1000,
        random_state=int(rng.integers(2**31)),
    )
    return model.fit(rows.design, rows.w).predict_proba(rows.design)[:, 1]


def ipw(rows: Rows, eps: float, rng: np.random.Generator) -> float:
    """Mean of unnormalised scores; half of the budget for each of the two steps."""
    e = np.clip(propensities(rows, eps / 2.0, rng), OVERLAP, 1.0 - OVERLAP)
    scores = np.where(rows.w == 1, rows.y / e, -rows.y / (1.0 - e))
    noise = rng.laplace(scale=2.0 * rows.half / (OVERLAP * len(e) * eps / 2.0))
    return clipped(scores.mean() + noise, 2.0 * rows.half)


def nipw(rows: Rows, eps: float, rng: np.random.Generator) -> float:
    """Ratios of noisy sums; half of the budget, a quarter for sums, a quarter for their weights."""
    e = np.clip(propensities(rows, eps / 2.0, rng), OVERLAP, 1.0 - OVERLAP)
    weights = np.where(rows.w == 1, 1.0 / e, 1.0 / (1.0 - e))
    scale = 2.0 / (OVERLAP * eps / 4.0)
    means = []
    for arm in (0, 1):
        mine = rows.w == arm
        total = (weights * rows.y)[mine].sum() + rng.laplace(scale=rows.half * scale)
        weight = max(weights[mine].sum() + rng.laplace(scale=scale), 1.0)
        means.append(clipped(total / weight, rows.half))
    return means[1] - means[0]


def blocks(rows: Rows, eps: float, rng: np.random.Generator) -> float:
    """Equal blocks with the published number, split and threshold; means are kept in [-C, C]."""
    n = len(rows.w)
    wanted = max(3, math.floor((n / 1000.0 + (eps - 0.25) / 0.25) / 2.0))
    m = min(max(5, math.floor(20.0 * eps)), wanted)
    e = propensities(rows, 0.1 * eps, rng)
    cell = 2 * np.minimum((e * m).astype(int), m - 1) + rows.w
    counts = np.bincount(cell, minlength=2 * m) + rng.laplace(scale=2.0 / (0.35 * eps), size=2 * m)
    sums = np.bincount(cell, rows.y, minlength=2 * m)
    sums += rng.laplace(scale=2.0 * rows.half / (0.55 * eps), size=2 * m)
    counts, sums = counts.reshape(m, 2), sums.reshape(m, 2)
    kept = (counts >= MIN_COUNT).all(axis=1)
    if not kept.any():
        return 0.0
    means = np.clip(sums[kept] / counts[kept], -rows.half, rows.half)
    return float(np.average(means[:, 1] - means[:, 0], weights=counts[kept].sum(axis=1)))


def clipped(value: float, bound: float) -> float:
    return float(min(max(value, -bound), bound))


def estimates(package: str, path: str, eps: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield for each method its estimates (not a number where it raised) and seconds for one."""
    with np.load(path) as file:
        data = {name: file[name] for name in file.files}
    trials, n = data["w"].shape
    seed = [int(part) for part in data["seed"]]
    for name, method in {"dpate": dpate, "diffprivlib": diffprivlib}[package]().items():
        share, largest = SLOW.get(name, (1.0, math.inf))
        if n > largest:
            continue
        found, seconds = [], []
        for t in range(max(2, round(trials * share))):
            rows = Rows(data["x"][t], data["w"][t], data["y"][t], data["lower"], data["upper"])
            rng = np.random.default_rng([*seed, t])
            start = time.perf_counter()
            try:
                found.append(method(rows, eps, rng))
            except ValueError:  # scikit-learn's, for a part of the rows with one arm only
                found.append(math.nan)
            seconds.append(time.perf_counter() - start)
        yield name, {"estimates": found, "seconds": float(np.median(seconds))}


def versions(package: str) -> str:
    others = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scikit-learn"))
    return f"{package} {version(package)} (Python {platform.python_version()}, {others})"


def main() -> None:
    warnings.simplefilter("ignore")
    package, *rest = sys.argv[1:]
    if not rest:
        print(versions(package))
        return
    print(json.dumps(dict(estimates(package, rest[0], float(rest[1])))))


if __name__ == "__main__":
    main()
