"""How fast a whole private estimate is, as ratios to peers in the same run.

    python benchmarks/speed.py [--rows 10000 100000 1000000] [--repeats 7] [--out FILE]

Times, interleaved: the whole ``dp_ate`` call from a frame (blocking, bounds given), statsmodels'
``Logit(...).fit`` alone on a ready matrix, scikit-learn's ``LogisticRegression`` alone, and one
pass X'(w X) as the physical unit. Medians. Peak memory of ``dp_ate`` is what it allocates beyond
its input, in units of the (n, k + 1) design matrix. A warm small call (n = 500, k = 3) is timed
beside patsy's own ``dmatrix`` of the same formula.
"""

from __future__ import annotations

import argparse
import platform
import time
import tracemalloc
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd

COLUMNS = 10


def make(n: int, columns: int = COLUMNS) -> tuple[pd.DataFrame, dict[str, tuple[float, float]]]:
    rng = np.random.default_rng(20261130)
    names = [f"x{i}" for i in range(columns)]
    x = rng.normal(size=(n, columns))
    frame = pd.DataFrame(x, columns=names)
    slope = np.linspace(-0.5, 0.5, columns)
    frame["w"] = (rng.random(n) < 1.0 / (1.0 + np.exp(-x @ slope))).astype(int)
    frame["y"] = frame["w"] + x[:, 0] + rng.normal(size=n)
    bounds = dict.fromkeys(names, (-4.0, 4.0)) | {"y": (-6.0, 7.0)}
    return frame, bounds


def formula(columns: int) -> str:
    return "y ~ " + " + ".join(f"x{i}" for i in range(columns))


def timed(jobs: dict[str, object], repeats: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()
    for _ in range(repeats):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in seconds.items()}


def large(n: int, repeats: int) -> dict[str, object]:
    import statsmodels.api as sm
    from sklearn.linear_model import LogisticRegression

    import dpstats as dp

    frame, bounds = make(n)
    design = np.column_stack([np.ones(n), frame.iloc[:, :COLUMNS].to_numpy()])
    treated = frame["w"].to_numpy().astype(float)
    weights = np.full(n, 0.25)

    def private() -> object:
        return dp.dp_ate(formula(COLUMNS), "w", frame, 1.0, bounds=bounds)

    jobs = {
        "dp_ate": private,
        "statsmodels Logit": lambda: sm.Logit(treated, design).fit(disp=0),
        "scikit-learn": lambda: LogisticRegression().fit(design, treated),
        "X'(wX)": lambda: design.T @ (weights[:, None] * design),
    }
    medians = timed(jobs, repeats)
    tracemalloc.start()
    private()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    row: dict[str, object] = {"n": n, "k": COLUMNS}
    row |= {f"{name} (s)": round(value, 5) for name, value in medians.items()}
    row["dp_ate / Logit"] = round(medians["dp_ate"] / medians["statsmodels Logit"], 3)
    row["dp_ate / scikit-learn"] = round(medians["dp_ate"] / medians["scikit-learn"], 3)
    row["dp_ate / X'(wX)"] = round(medians["dp_ate"] / medians["X'(wX)"], 2)
    row["peak / design"] = round(peak / (8.0 * n * (COLUMNS + 1)), 2)
    return row


def small(repeats: int) -> dict[str, object]:
    import patsy

    import dpstats as dp

    frame, bounds = make(500, 3)
    text = formula(3)
    medians = timed(
        {
            "dp_ate": lambda: dp.dp_ate(text, "w", frame, 1.0, bounds=bounds),
            "patsy dmatrices": lambda: patsy.dmatrices(text, frame),
        },
        max(repeats * 10, 50),
    )
    return {
        "n": 500,
        "k": 3,
        "warm dp_ate (ms)": round(1e3 * medians["dp_ate"], 2),
        "patsy dmatrices (ms)": round(1e3 * medians["patsy dmatrices"], 2),
        "ratio": round(medians["dp_ate"] / medians["patsy dmatrices"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    packages = ("dpstats", "numpy", "scipy", "pandas", "statsmodels", "scikit-learn", "opendp")
    lines = [
        f"# {platform.machine()}, Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in packages)
    ]
    table = pd.DataFrame([large(n, options.repeats) for n in options.rows])
    lines.append(table.to_csv(index=False).strip())
    lines.append(pd.DataFrame([small(options.repeats)]).to_csv(index=False).strip())
    text = "\n".join(lines)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
