"""Redo a published table or figure: ``python -m dpstats.replicate NAME``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from dpstats.errors import DPStatsError
from dpstats.replicate.registry import EXPERIMENTS, names
from dpstats.replicate.runner import SEED, run

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command line without the program's name.

    Returns
    -------
    int
        Exit code: 0, 2 after an error, 130 after an interruption.
    """
    parser = argparse.ArgumentParser(
        prog="python -m dpstats.replicate",
        description="Redo a published table or figure. What an interrupted run finished is kept.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="which one, or 'all'")
    parser.add_argument("--list", action="store_true", help="list the names and stop")
    parser.add_argument("--trials", type=int, default=500, help="a cell (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="(default: %(default)s)")
    parser.add_argument(
        "--out",
        default="replication",
        help="folder for trials, tables and figures (default: %(default)s)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    options = parser.parse_args(arguments)
    if options.list:
        width = max(map(len, EXPERIMENTS))
        for experiment in EXPERIMENTS.values():
            where = experiment.shows.split(":")[0]
            print(f"{experiment.name:{width}}  {experiment.title} [{where}]")
        return 0
    if options.name is None:
        parser.error("NAME is missing; --list shows the names")
    try:
        for name in names() if options.name == "all" else [options.name]:
            result = run(
                name,
                options.trials,
                options.jobs,
                options.out,
                not options.quiet,
                seed=options.seed,
            )
            print(result)
            print(f"\nWritten to {options.out}: {name}.csv, {name}.png, {name}.pdf\n")
    except (DPStatsError, ImportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
