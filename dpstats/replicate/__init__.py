"""The tables and figures of the two source papers, redone by name.

``dp.replicate.run("ate-error")`` or ``python -m dpstats.replicate ate-error``: the published code
(NOT PRIVATE, errors included) beside its rules with noise that is large enough and the package's
defaults, with the published conclusions asked of each.
"""

from __future__ import annotations

from dpstats.replicate.registry import names
from dpstats.replicate.result import Replication, read
from dpstats.replicate.runner import run

__all__ = ["Replication", "names", "read", "run"]
