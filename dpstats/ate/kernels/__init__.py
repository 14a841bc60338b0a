"""The registry: one line an estimator."""

from __future__ import annotations

from typing import Any

from dpstats.ate.kernels.base import Kernel
from dpstats.ate.kernels.blocking import Blocking, DiffMeans
from dpstats.ate.kernels.cells import CellsReleased
from dpstats.ate.kernels.ipw import Ipw, IpwReleased

__all__ = ["KERNELS", "RELEASED"]

KERNELS: dict[str, Kernel[Any]] = {
    "blocking": Blocking(),
    "ipw": Ipw(),
    "diff_means": DiffMeans(),
}

# the dataclasses that a saved result may hold
RELEASED: tuple[type, ...] = (CellsReleased, IpwReleased)
