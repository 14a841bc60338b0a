"""What a report says about one result, in words; every estimator tells its own part."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpstats.privacy.accounting import PrivacyRecord

__all__ = ["Story", "plain_privacy", "references"]

_HEADING = re.compile(
    r"^References\n-{3,}\n(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", re.MULTILINE | re.DOTALL
)
# from this certainty on, that of a reader who had even odds before, the promise is weak
_WEAK = 0.99


@dataclass(frozen=True, slots=True)
class Story:
    """The part of a report that depends on the estimator.

    Parameters
    ----------
    title : str
        Heading of the report.
    question : str
        What the estimate answers, in plain words.
    model : tuple of (str, str)
        What was estimated: the formula, or the panel's columns.
    figures : tuple of (str, str)
        Kinds of plot and what each shows, the most telling first.
    sources : tuple of object
        Whatever has a docstring with references for the method.
    """

    title: str
    question: str
    model: tuple[tuple[str, str], ...]
    figures: tuple[tuple[str, str], ...]
    sources: tuple[object, ...]


def plain_privacy(privacy: PrivacyRecord) -> str:
    """Say what the guarantee is worth to somebody who has never heard of epsilon.

    Parameters
    ----------
    privacy : PrivacyRecord

    Returns
    -------
    str
        A few sentences; empty for a result without noise or from a seed, which have no guarantee.

    Notes
    -----
    Odds change by a factor of at most exp(eps), so who gave a guess even odds is sure of it with at
    most exp(eps) / (1 + exp(eps)) afterwards.

    Examples
    --------
    >>> from dpstats.privacy.accounting import PrivacyRecord
    >>> record = PrivacyRecord(1.0, 0.0, "replace one row", "any person.", {}, True, False, ())
    >>> "at most 73.1% sure" in plain_privacy(record)
    True
    """
    if not privacy.private:
        return ""
    sure = 1.0 / (1.0 + math.exp(-privacy.epsilon))
    shown = f"{100.0 * sure:.3g}%" if sure < 0.9995 else "99.9% or more"
    what = "the series of any one unit" if privacy.relation.endswith("unit") else "any one row"
    but = f", but for a probability of {privacy.delta:.3g}" if privacy.delta else ""
    weak = " That is a weak promise: a smaller eps would protect better." if sure > _WEAK else ""
    return (
        "In plain words: everything that was computed from protected data carries random noise, "
        f"which limits what anybody can learn about {what}. Somebody who gave a guess about it "
        f"even odds (50%) can, after reading this report, be at most {shown} sure of it, whatever "
        f"else they know{but}.{weak} Whatever else is published from the same data adds to this "
        "budget."
    )


def references(sources: tuple[object, ...]) -> tuple[str, ...]:
    """Return the references that docstrings name, each once.

    Parameters
    ----------
    sources : tuple of object
        Functions, modules, classes or their instances.

    Returns
    -------
    tuple of str
        One a source that has any.

    Examples
    --------
    >>> from dpstats import propensity
    >>> references((propensity, propensity, len))[0][:35]
    'Chaudhuri, K., Monteleoni, C. and S'
    """
    found: dict[str, None] = {}
    for source in sources:
        named = inspect.isroutine(source) or inspect.isclass(source) or inspect.ismodule(source)
        match = _HEADING.search(inspect.getdoc(source if named else type(source)) or "")
        if match:
            found[" ".join(match[1].split())] = None
    return tuple(found)
