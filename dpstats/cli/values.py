"""Values as they are written on a command line, and names that are close to known ones."""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from typing import TYPE_CHECKING, Any

from dpstats.errors import DPStatsError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["parse_toml", "read_value", "stranger"]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document.

    Raises
    ------
    DPStatsError
        If the parser is missing (Python 3.10 without `tomli`).
    ValueError
        If the text is not TOML.
    """
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    try:
        parser = importlib.import_module(name)
    except ModuleNotFoundError:
        raise DPStatsError(
            "TOML needs the package tomli on Python 3.10: pip install tomli"
        ) from None
    found: dict[str, Any] = parser.loads(text)
    return found


def read_value(text: str) -> Any:
    """Read a number, a TOML value or, where it is neither, the text itself.

    Parameters
    ----------
    text : str
        One word of the command line.

    Returns
    -------
    object

    Examples
    --------
    >>> [read_value(text) for text in ("1988", ".5", "true", "published", "[1, 2]", "'1988'")]
    [1988, 0.5, True, 'published', [1, 2], '1988']
    >>> read_value("1988-12-31"), read_value("{counts = 0.5, sums = 0.5}")
    (datetime.date(1988, 12, 31), {'counts': 0.5, 'sums': 0.5})
    """
    if _NUMBER.fullmatch(text):
        try:
            return int(text)
        except ValueError:
            return float(text)
    try:
        found = parse_toml(f"value = {text}")
    except ValueError:
        return text
    return found["value"] if len(found) == 1 else text


def stranger(rule: str, name: str, known: Iterable[str]) -> str:
    """Return the message about a name that is none of the known ones.

    Examples
    --------
    >>> stranger("`command` must be known", "syn", ["ate", "plan", "synth"])
    "`command` must be known; got 'syn' (near matches: synth)"
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 3, 0.7)
    hint = f"near matches: {', '.join(near)}" if near else f"known: {', '.join(names)}"
    return f"{rule}; got {name!r} ({hint})"
