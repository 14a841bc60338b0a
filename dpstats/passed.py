"""What was passed, as an error may show it: never data that stand where something else belongs.

``dp_ate("y ~ x", "w", 1.0, people)`` passes the file as `eps`; a message that wrote out what it got
would show its rows.
"""

from __future__ import annotations

from typing import Any

__all__ = ["passed"]

# entries up to which a list is taken for one that somebody typed
_FEW = 6
_WIDTH = 120


def passed(value: Any) -> str:
    """Write out single values and short lists of them; of anything else say its kind and length.

    Parameters
    ----------
    value : object
        Of an argument that was refused.

    Examples
    --------
    >>> passed("one"), passed((1, 0)), passed({"counts": 0.5, "sums": None})
    ("'one'", '(1, 0)', "{'counts': 0.5, 'sums': None}")
    >>> import pandas as pd
    >>> passed(pd.DataFrame({"wage": [5.5, 7.25]})), passed(list(range(500)))
    ('DataFrame of 2', 'list of 500')
    >>> passed({"region": pd.Series(["north", "south"])})
    'dict of 1'
    """
    if _typed(value, depth=2):
        text = repr(value)
        if len(text) <= _WIDTH:
            return text
    try:
        return f"{type(value).__name__} of {len(value)}"
    except TypeError:
        return type(value).__name__


def _typed(value: Any, depth: int) -> bool:
    """Whether a value is single, or a short list of such: what somebody writes in a call."""
    from pandas.api.types import is_scalar

    if not isinstance(value, tuple | list | dict):
        return bool(is_scalar(value))
    entries = [*value, *value.values()] if isinstance(value, dict) else [*value]
    few = len(value) <= _FEW and depth > 0
    return few and all(_typed(entry, depth - 1) for entry in entries)
