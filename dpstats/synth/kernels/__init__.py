"""The registry: one line an estimator."""

from __future__ import annotations

from dpstats.synth.kernels.base import Kernel
from dpstats.synth.kernels.did import Did, DidReleased
from dpstats.synth.kernels.exact import ElasticNet, ExactReleased, Lasso, Robust, Simplex
from dpstats.synth.kernels.moments import Moments, MomentsReleased
from dpstats.synth.kernels.objective import Objective
from dpstats.synth.kernels.output import Output
from dpstats.synth.kernels.weights import WeightsReleased

__all__ = ["KERNELS", "RELEASED"]

KERNELS: dict[str, Kernel] = {
    "moments": Moments(),
    "did": Did(),
    "output": Output(),
    "objective": Objective(),
    "simplex": Simplex(),
    "lasso": Lasso(),
    "elastic_net": ElasticNet(),
    "robust": Robust(),
}

# the dataclasses that a saved result may hold
RELEASED: tuple[type, ...] = (MomentsReleased, DidReleased, WeightsReleased, ExactReleased)
