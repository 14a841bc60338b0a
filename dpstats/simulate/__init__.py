"""Simulated cross sections and panels whose true effects are known.

Every process is drawn from a generator of its own (``rng=``), never from global state, and comes
as a :class:`dpstats.datasets.Dataset` with ``truth``, public ``bounds`` and a description.
"""

from __future__ import annotations

from typing import Literal

from dpstats.datasets.dataset import Dataset
from dpstats.simulate.checks import choose
from dpstats.simulate.cross_section import PROCESSES as _CROSS_SECTIONS
from dpstats.simulate.cross_section import ate
from dpstats.simulate.panels import PROCESSES as _PANELS
from dpstats.simulate.panels import panel

__all__ = ["Dataset", "ate", "names", "panel"]


def names(kind: Literal["ate", "panel"] | None = None) -> tuple[str, ...]:
    """Name the processes of :func:`ate`, of :func:`panel`, or of both.

    Parameters
    ----------
    kind : {"ate", "panel"}, optional
        Which function; by default both, cross sections first.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> from dpstats import simulate
    >>> simulate.names("panel")
    ('linear', 'linear_as_run', 'factor', 'smooth')
    """
    if kind is None:
        return (*_CROSS_SECTIONS, *_PANELS)
    return tuple(choose("kind", kind, {"ate": _CROSS_SECTIONS, "panel": _PANELS}))
