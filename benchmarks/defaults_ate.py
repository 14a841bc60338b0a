"""The study behind the defaults of `blocking` and `ipw`, from the public API.

    python benchmarks/defaults_ate.py [--trials 60] [--quick] [--out FILE] [--show]

For each cell (process, n, eps) a grid around the defaults: number of blocks m by share of the
propensity; row norm R by penalty L (in units of the smallest free one, 2 / eps1); plain block means
(`smooth=False`) by m; thresholds; and for `ipw` share by penalty, and R. The same rows and, by
release name, the same seeded noise are used for all settings of a trial. One block is `diff_means`.

A finished cell is appended to the CSV at once, so an interrupted run goes on where it stopped.
Trial t of a cell draws rows from [3026, n, t] and noise from [3027, n, t]. The table printed at the
end takes the smallest error of each grid, which is below the true minimum of the grid by a few per
cent, since it is chosen after the fact.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import platform
import warnings
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path

import numpy as np
from processes import Sample, draw

import dpstats as dp

CELLS = [
    ("well_specified", 1000, 0.25),
    ("well_specified", 1000, 1.0),
    ("well_specified", 2500, 1.0),
    ("well_specified", 10000, 0.25),
    ("well_specified", 10000, 1.0),
    ("well_specified", 10000, 3.0),
    ("low_overlap", 1000, 1.0),
    ("low_overlap", 10000, 1.0),
    ("unbalanced", 1250, 1.0),
    ("unbalanced", 10000, 1.0),
    ("binary", 1000, 1.0),
    ("binary", 10000, 1.0),
    ("strong_confounding", 1000, 1.0),
    ("strong_confounding", 10000, 1.0),
    ("skewed_2", 1000, 1.0),
    ("skewed_2", 10000, 1.0),
    ("skewed_2_strong", 2500, 1.0),
    ("mixed_8", 1000, 1.0),
    ("mixed_8", 2500, 1.0),
    ("mixed_8", 10000, 1.0),
    ("mixed_8_strong", 10000, 1.0),
    ("mixed_8_varying", 10000, 1.0),
    ("mixed_20", 2500, 1.0),
    ("mixed_20", 10000, 1.0),
    ("mixed_20_strong", 10000, 1.0),
    ("randomised", 1000, 1.0),
    ("randomised", 10000, 1.0),
]
QUICK = [cell for cell in CELLS if cell[1] <= 1000]
# the share of standard errors, as in the defaults
VARIANCES = 0.04


@dataclass(frozen=True, slots=True)
class Setting:
    """One call; None leaves a default alone.

    Attributes
    ----------
    method : str
    blocks : int or None
        m.
    share : float or None
        The propensity's share of what is left after the variances.
    row_norm : float or None
        R.
    penalty : float or None
        L in units of 2 / eps1.
    smooth : bool or None
    min_count : float or None
        T.
    """

    method: str = "blocking"
    blocks: int | None = None
    share: float | None = None
    row_norm: float | None = None
    penalty: float | None = None
    smooth: bool | None = None
    min_count: float | None = None

    def split(self) -> dict[str, float] | None:
        """Return the split with this share, the rest in one release."""
        if self.share is None:
            return None
        left = 1.0 - VARIANCES
        rest = "score" if self.method == "ipw" else "counts"
        return {
            "propensity": self.share * left,
            rest: (1.0 - self.share) * left,
            "variances": VARIANCES,
        }

    def propensity(self, eps: float) -> dp.propensity.Objective | None:
        """Return the model, where it is not the default."""
        if self.row_norm is None and self.penalty is None:
            return None
        if self.penalty is None or self.method == "blocking":
            return dp.propensity.Objective(
                row_norm=self.row_norm, relative_penalty=self.penalty or 1.0
            )
        # `ipw` has a relative penalty of its own, so L is given outright
        own = eps * (0.5 if self.share is None else self.share) * (1.0 - VARIANCES)
        return dp.propensity.Objective(row_norm=self.row_norm, penalty=self.penalty * 2.0 / own)

    def estimate(self, sample: Sample, eps: float, seed: list[int]) -> float:
        """Return the estimate of one call."""
        result = dp.dp_ate(
            sample.formula,
            "w",
            sample.data,
            eps,
            bounds=sample.bounds,
            method=self.method,
            blocks=self.blocks,
            split=self.split(),
            propensity=self.propensity(eps),
            smooth=self.smooth,
            min_count=self.min_count,
            rng=seed,
        )
        # `params` would simulate standard errors too, which takes longer than the estimate
        return result.released.estimate("ate")


DEFAULT, IPW, ONE_BLOCK = Setting(), Setting("ipw"), Setting("diff_means")


def grid() -> list[Setting]:
    """Return the settings of a cell."""
    found = [DEFAULT, IPW, ONE_BLOCK]
    for m, share in itertools.product((2, 3, 4, 6, 8), (0.1, 0.2, 0.35, 0.5)):
        found.append(Setting(blocks=m, share=share))
    for row_norm, penalty in itertools.product((0.7, 1.0, 1.5), (0.5, 1.0, 2.0)):
        found.append(Setting(row_norm=row_norm, penalty=penalty))
    found += [Setting(blocks=m, smooth=False) for m in (2, 3, 5, 8, 12)]
    found += [Setting(min_count=least) for least in (0.0, 1.5)]
    for share, penalty in itertools.product((0.2, 0.35, 0.5, 0.65), (0.25, 0.5, 1.0)):
        found.append(Setting("ipw", share=share, penalty=penalty))
    found += [Setting("ipw", row_norm=row_norm) for row_norm in (0.7, 1.5)]
    return found


FIELDS = (
    "process",
    "n",
    "eps",
    *(field.name for field in fields(Setting)),
    "trials",
    "rmse",
    "rmse_se",
    "bias",
)


def run(process: str, n: int, eps: float, trials: int) -> list[dict[str, object]]:
    """Return one row a setting."""
    settings = grid()
    errors = np.empty((trials, len(settings)))
    for t in range(trials):
        sample = draw(process, n, [3026, n, t])
        for j, setting in enumerate(settings):
            errors[t, j] = setting.estimate(sample, eps, [3027, n, t]) - sample.truth
    rows = []
    for setting, column in zip(settings, errors.T, strict=True):
        squares = column**2
        rmse = float(np.sqrt(squares.mean()))
        rows.append(
            {"process": process, "n": n, "eps": eps, **asdict(setting), "trials": trials}
            | {
                "rmse": f"{rmse:.5f}",
                "rmse_se": f"{squares.std(ddof=1) / np.sqrt(trials) / (2.0 * rmse):.5f}",
                "bias": f"{column.mean():.5f}",
            }
        )
    return rows


def read(path: Path) -> list[dict[str, str]]:
    """Return the finished rows."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def show(rows: list[dict[str, str]]) -> None:
    """Print the best of each grid, the default and one block, a line a cell."""
    choices = [field.name for field in fields(Setting)]

    def text(row: dict[str, str]) -> str:
        words = [f"{name}={row[name]}" for name in choices[1:] if row[name]]
        return " ".join(words) or "default"

    def smallest(candidates: list[dict[str, str]]) -> dict[str, str]:
        return min(candidates, key=lambda row: float(row["rmse"]))

    print(
        "| process | n | eps | best of the grid | its setting | best plain | default | "
        "default/best | one block | default/one block | ipw | ipw/its best |"
    )
    print("|" + "---|" * 12)
    key = ("process", "n", "eps")
    for cell, group in itertools.groupby(rows, key=lambda row: tuple(row[name] for name in key)):
        members = list(group)
        blocking = [row for row in members if row["method"] == "blocking"]
        weighting = [row for row in members if row["method"] == "ipw"]
        one = next(row for row in members if row["method"] == "diff_means")
        best = smallest([*blocking, one])
        plain = smallest([row for row in blocking if row["smooth"] == "False"])
        usual, ipw = float(blocking[0]["rmse"]), float(weighting[0]["rmse"])
        setting = "one block" if best is one else text(best)
        print(
            f"| {' | '.join(cell)} | {float(best['rmse']):.4f} | {setting} | "
            f"{float(plain['rmse']):.4f} (m={plain['blocks']}) | "
            f"{usual:.4f} ± {float(blocking[0]['rmse_se']):.4f} | "
            f"{usual / float(best['rmse']):.2f} | {float(one['rmse']):.4f} | "
            f"{usual / float(one['rmse']):.2f} | {ipw:.4f} | "
            f"{ipw / float(smallest(weighting)['rmse']):.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--quick", action="store_true", help="small cells, 10 trials, no file")
    parser.add_argument("--show", action="store_true", help="only print the table of the file")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/defaults_ate.csv"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.quick:
        rows = [row for cell in QUICK for row in run(*cell, trials=10)]
        show([{name: "" if v is None else str(v) for name, v in row.items()} for row in rows])
        return
    path: Path = options.out
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        packages = ", ".join(f"{name} {version(name)}" for name in ("dpstats", "numpy", "scipy"))
        with path.open("w", newline="", encoding="utf-8") as file:
            file.write(f"# {platform.machine()}, Python {platform.python_version()}, {packages}\n")
            csv.DictWriter(file, FIELDS).writeheader()
    done = {(row["process"], int(row["n"]), float(row["eps"])) for row in read(path)}
    for cell in CELLS:
        if cell in done or options.show:
            continue
        rows = run(*cell, trials=options.trials)
        with path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, FIELDS).writerows(rows)
        print(*cell, "done", flush=True)
    show(read(path))


if __name__ == "__main__":
    main()
