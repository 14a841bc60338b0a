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

__all__ = ["as_flags", "parse_toml", "read_value", "stranger"]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


_NAME = r"""('[^']*'|"[^"]*")"""
# what messages tell to write in a call, and how it is written here
_FLAGS = (
    (
        re.compile(rf"pass levels=\{{{_NAME}: \[\.\.\.\]\}} or convert .*astype\(float\)\)"),
        r"\1 = [...] below the line [levels] of the TOML file, or --levels \1 LEVEL LEVEL ...",
    ),
    (re.compile(r'missing="drop"'), "--missing drop"),
    (re.compile(r"`treated=`"), "--treated"),
)


def as_flags(text: str) -> str:
    """Return a message with options in place of the arguments that it tells to pass.

    Examples
    --------
    >>> as_flags('pass missing="drop" to protect the complete rows only')
    'pass --missing drop to protect the complete rows only'
    """
    for pattern, words in _FLAGS:
        text = pattern.sub(words, text)
    return text


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
