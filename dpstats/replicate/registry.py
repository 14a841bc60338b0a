"""Every experiment by name."""

from __future__ import annotations

from difflib import get_close_matches

from dpstats.errors import DPStatsError
from dpstats.replicate.effect_experiments import EFFECT_EXPERIMENTS
from dpstats.replicate.experiment import Experiment
from dpstats.replicate.panel_experiments import PANEL_EXPERIMENTS

__all__ = ["EXPERIMENTS", "find", "names"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (*EFFECT_EXPERIMENTS, *PANEL_EXPERIMENTS)
}


def names() -> list[str]:
    """Return the names of all tables and figures that can be redone.

    Examples
    --------
    >>> import dpstats as dp
    >>> dp.replicate.names()[:3]
    ['ate-error', 'ate-bias', 'low-overlap']
    """
    return list(EXPERIMENTS)


def find(name: str) -> Experiment:
    """Return an experiment by name.

    Raises
    ------
    DPStatsError
        For an unknown name, with the nearest ones.
    """
    if isinstance(name, str) and name in EXPERIMENTS:
        return EXPERIMENTS[name]
    close = get_close_matches(str(name), EXPERIMENTS, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(EXPERIMENTS)}"
    raise DPStatsError(f"`name` must be a published table or figure; got {name!r}: {hint}")
