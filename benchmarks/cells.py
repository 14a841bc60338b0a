"""A study as a table of cells: each finished cell is a row of a CSV, and a second run goes on."""

from __future__ import annotations

import argparse
import csv
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["arguments", "errors_of", "rows_of", "run"]

Row = Mapping[str, object]


def arguments(description: str, trials: int) -> argparse.ArgumentParser:
    """Return a parser with the options that every study has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--trials", type=int, default=trials)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    return parser


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the finished rows of a study; none where the file is not there."""
    if not path.exists():
        return []
    lines = [line for line in path.read_text("utf-8").splitlines() if line[:1] != "#"]
    return list(csv.DictReader(lines))


def run(
    path: Path,
    fields: Sequence[str],
    key: Sequence[str],
    work: Callable[..., Iterable[Row]],
    cells: Iterable[tuple[Any, ...]],
    jobs: int,
    *extra: Any,
    note: str = "",
) -> Iterator[Row]:
    """Do the cells that are missing; yields rows once they are written.

    Parameters
    ----------
    path : Path
        Of the CSV.
    fields, key : sequence of str
        Columns, and those of them that name a cell, in the order of its tuple.
    work : callable
        Takes a cell and `extra` and returns its rows.
    cells : iterable of tuple
    jobs : int
        Processes.
    note : str
        What the first line says besides the machine and the versions of our packages.
    """
    done = {tuple(row[name] for name in key) for row in rows_of(path)}
    missing = [cell for cell in cells if tuple(map(str, cell)) not in done]
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        packages = ", ".join(f"{name} {version(name)}" for name in ("dpstats", "numpy", "scipy"))
        machine = f"{platform.machine()}, Python {platform.python_version()}"
        with path.open("w", newline="", encoding="utf-8") as file:
            file.write(f"# {machine}, {packages}{'; ' if note else ''}{note}\n")
            csv.DictWriter(file, fields).writeheader()
    with ProcessPoolExecutor(jobs) as pool:
        futures = [pool.submit(_listed, work, cell, extra) for cell in missing]
        for future in futures:
            for row in future.result():
                with path.open("a", newline="", encoding="utf-8") as file:
                    csv.DictWriter(file, fields).writerow(row)
                yield row


def _listed(
    work: Callable[..., Iterable[Row]], cell: tuple[Any, ...], extra: tuple[Any, ...]
) -> list[Row]:
    return list(work(*cell, *extra))


def errors_of(errors: NDArray[np.float64]) -> dict[str, object]:
    """Return root mean square with its standard error, bias, and median absolute error."""
    squares = errors**2
    rmse = float(np.sqrt(squares.mean()))
    spread = squares.std(ddof=1) / np.sqrt(errors.size) / (2.0 * rmse) if rmse > 0.0 else 0.0
    return {
        "rmse": f"{rmse:.5f}",
        "rmse_se": f"{spread:.5f}",
        "bias": f"{errors.mean():.5f}",
        "mae": f"{np.median(np.abs(errors)):.5f}",
    }
