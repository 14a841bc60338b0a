"""The registry: one line an estimator."""

from __future__ import annotations

from typing import Any

from dpstats.ate.kernels.agg_folds import AggAipw, AggIpw, AggRegression
from dpstats.ate.kernels.agg_nipw import AggNipw
from dpstats.ate.kernels.aipw import Aipw, AipwReleased
from dpstats.ate.kernels.base import Kernel
from dpstats.ate.kernels.binary import Binary
from dpstats.ate.kernels.blocking import Blocking, DiffMeans
from dpstats.ate.kernels.cells import CellsReleased
from dpstats.ate.kernels.ipw import Ipw, IpwReleased
from dpstats.ate.kernels.nipw import Nipw, NipwReleased
from dpstats.ate.kernels.outcome import OutcomeModel
from dpstats.ate.kernels.regression import Regression, RegressionReleased
from dpstats.ate.kernels.split_ipw import SplitIpw
from dpstats.ate.kernels.spread import Spread
from dpstats.ate.kernels.subsets_released import SubsetsReleased

__all__ = ["KERNELS", "RELEASED"]

KERNELS: dict[str, Kernel[Any]] = {
    "blocking": Blocking(),
    "ipw": Ipw(),
    "nipw": Nipw(),
    "split_ipw": SplitIpw(),
    "diff_means": DiffMeans(),
    "regression": Regression(),
    "aipw": Aipw(),
    "agg_nipw": AggNipw(),
    "agg_ipw": AggIpw(),
    "agg_aipw": AggAipw(),
    "agg_regression": AggRegression(),
    "binary": Binary(),
}

# the dataclasses that a saved result may hold
RELEASED: tuple[type, ...] = (
    CellsReleased,
    IpwReleased,
    NipwReleased,
    Spread,
    SubsetsReleased,
    OutcomeModel,
    RegressionReleased,
    AipwReleased,
)
