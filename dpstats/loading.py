"""Saved results back from their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpstats.errors import DPStatsError
from dpstats.storage import NOT_SAVED, decode, read_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from dpstats.results import PrivateResults

__all__ = ["load"]


def load(path: str | PathLike[str]) -> PrivateResults:
    """Read a result written by `save`.

    Parameters
    ----------
    path : str or path
        File to read.

    Returns
    -------
    ATEResults or SynthResults
        The same class that was saved.

    Raises
    ------
    DPStatsError
        If the file was not written by `save`.
    """
    from dpstats.privacy.accounting import PrivacyRecord, Release

    content = read_json(path)
    try:
        results, parts = _REGISTRY[content["class"]]()
        types = {kind.__name__: kind for kind in (PrivacyRecord, Release, *parts)}
        state = {name: decode(content["state"][name], types) for name in results._STATE}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DPStatsError(NOT_SAVED) from None
    blank = results.__new__(results)
    blank.__setstate__(state)
    return blank


def _treatment_effects() -> tuple[type[PrivateResults], tuple[type[Any], ...]]:
    from dpstats.ate.balance import Balance
    from dpstats.ate.kernels import RELEASED
    from dpstats.ate.outside import Outside
    from dpstats.ate.results import ATEResults, Facts
    from dpstats.propensity import FittedPropensity

    return ATEResults, (Facts, FittedPropensity, Balance, Outside, *RELEASED)


def _synthetic_controls() -> tuple[type[PrivateResults], tuple[type[Any], ...]]:
    from dpstats.synth.axis import TimeAxis
    from dpstats.synth.kernels import RELEASED
    from dpstats.synth.results import PanelFacts, SynthResults

    return SynthResults, (PanelFacts, TimeAxis, *RELEASED)


# class of results by the name in a saved file, and the dataclasses its state may hold
_REGISTRY: dict[str, Callable[[], tuple[type[PrivateResults], tuple[type[Any], ...]]]] = {
    "ATEResults": _treatment_effects,
    "SynthResults": _synthetic_controls,
}
