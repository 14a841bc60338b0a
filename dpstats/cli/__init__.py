"""The command line: ``python -m dpstats ate|synth|plan|show|compare|ledger|demo``.

One room a step: `arguments` makes options out of a function's signature, `study` reads the TOML
file, `files` reads the data and guards what would be overwritten, `commands` calls the functions.

Notes
-----
Every error is one line on stderr and exit code 2. No line holds a value of the data: messages of
this package never do, of any other exception only the class is shown.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstats.cli.values import as_flags, stranger
from dpstats.errors import DPStatsError, PrivacyWarning, UtilityWarning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["main"]

_HELP = """\
usage: python -m dpstats COMMAND ...

Causal estimates from confidential microdata with differential privacy.

commands:
  ate        a treatment effect from a CSV, Parquet or Stata file (dp_ate)
  synth      a synthetic control from a panel in such a file (dp_synth)
  plan       errors and budgets to expect, without data: plan ate, plan synth
  show       a saved result again
  compare    saved results side by side
  ledger     what a ledger holds: totals, spent, left, history
  demo       the worked example on public data (the default); demo synth: the panel one

`python -m dpstats COMMAND --help` lists the options of a command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command line without the program's name; by default that of the process.

    Returns
    -------
    int
        Exit code: 0, or 2 after an error.

    Examples
    --------
    >>> main(["plan", "ate", "--n", "10000", "--eps", "1", "--y-bounds", "0", "100",
    ...       "--method", "diff_means"])
    Plan of dp_ate: n = 10000, eps = 1, outcome in [0, 100]
    ====================================================
                                              diff_means
    ----------------------------------------------------
    Std. error of privacy noise                  0.05261
    Std. error of sampling                           0.5
    Std. error of both                            0.5028
    Smallest effect found (power 80%)              1.409
    Eps where noise equals sampling                0.106
    Blocks                                             1
    ----------------------------------------------------
    Noise sd of one released number
      counts                                       7.366
      sums                                         184.1
      variances                                    88388
    ====================================================
    diff_means: sampling error dominates: noise is 0.11 of it
    Assumed: 1 column; 50% treated; outcomes with sd 25 about 50 (controls) and 50 (treated);
      logit_sd 1, confounding 0.5, explained 0.5.
    No data were touched. Bias is in none of these numbers.
    0
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with _own_warnings():
        try:
            return _run(words)
        except KeyboardInterrupt:
            return _fail("interrupted")
        except Exception as error:
            return _fail(_line(error))


def _run(words: list[str]) -> int:
    if words and words[0] in ("-h", "--help"):
        print(_HELP, end="")
        return 0
    if words and words[0] == "--version":
        from dpstats import __version__

        print(f"dpstats {__version__}")
        return 0
    if not words or words[0].startswith("-"):
        words = ["demo", *words]
    from dpstats.cli.commands import COMMANDS

    command = COMMANDS.get(words[0])
    if command is None:
        raise DPStatsError(stranger("`command` must be known", words[0], COMMANDS))
    command(words[1:])
    return 0


@contextmanager
def _own_warnings() -> Iterator[None]:
    """Show this package's warnings in one line each; what others say might quote the data."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if isinstance(message, PrivacyWarning | UtilityWarning):
            text = " ".join(str(message).split())
            print(f"dpstats: {type(message).__name__}: {text}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # restored together with the filters
        warnings.showwarning = show
        yield


def _fail(text: str) -> int:
    print(f"dpstats: error: {text}", file=sys.stderr)
    return 2


def _line(error: Exception) -> str:
    """Return an error in one line, without anything that might quote the data."""
    if isinstance(error, DPStatsError):
        parts = (" ".join(line.split()) for line in str(error).splitlines())
        return as_flags("; ".join(part for part in parts if part))
    if isinstance(error, ImportError):
        return " ".join(str(error).split())
    if isinstance(error, OSError):
        where = "" if error.filename is None else f": {error.filename}"
        return f"{error.strerror or type(error).__name__}{where}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(last.filename).name}, line {last.lineno}"
    return f"unexpected {type(error).__name__} ({place}); its text is not shown: it may hold data"
