"""Weighted effects on a 0/1 outcome in disjoint subsets, with released variances."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from dpstats.ate.kernels.agg_nipw import release_effects, subset_contrasts
from dpstats.ate.kernels.subset_kernel import SubsetKernel, SubsetSettings
from dpstats.ate.kernels.subsets_released import SubsetsReleased, released

if TYPE_CHECKING:
    from dpstats.ate.kernels.base import Arrays, Public, Shares
    from dpstats.privacy.mechanisms import Mechanisms

__all__ = ["Binary"]

# fewest rows of a subset for each coefficient of its logit
_ROWS = 3


class Binary(SubsetKernel):
    r"""Weighted effects on a binary outcome: K random subsets, noisy effect and noisy variance.

    In the manner of Guha and Reiter; reconstructed, since their choices are not all published. Any
    outcome with bounds is accepted; the method is meant for 0/1.

    Notes
    -----
    In each of K subsets (option `subsets`) a logit gives propensities, clipped to
    :math:`[\omega, 1-\omega]`; from them follow the normalised weighted difference of arm means
    (ATE, ATT, ATC or overlap weights) and its estimated variance, the sum over arms of
    :math:`\sum v_i^2 (y_i - m)^2 / (1 - \sum v_i^2)`, v the weights of the arm scaled to sum to 1
    (propensities taken as fixed). Two noisy means over the subsets are released:

    - "effects": an effect lies in [-2C, 2C] (C = 1/2 for 0/1: [-1, 1]) and is 0 where an arm is
      empty. A replaced row changes one subset, by at most :math:`4C(1-\omega)`
      (`dpstats.ate.kernels.subsets`): sensitivity **4C(1 - omega)/K**, 2(1 - omega)/K for 0/1.
    - "variances": clipped to [0, R]; R where there is no estimate. Sensitivity **R/K**.

    The interval simulates the sampling error of the mean, with variance (noisy mean variance)/K,
    and the noise of both releases: one noise sd is added to the variance, and the noise of the
    effect is drawn again.

    References
    ----------
    Guha, S. and Reiter, J. P. (2025). Differentially private estimation of weighted average
    treatment effects for binary outcomes. arXiv:2408.14766.
    """

    name = "binary"
    title = "Binary outcome in subsets"
    published_split: ClassVar[Shares] = {"effects": 0.5, "variances": 0.5}
    effect_name = "effects"

    def default_count(self, public: Public) -> int:
        """Return the default number of subsets (a measured rule).

        sqrt(3 n / eps), where the bias of small fits is about half of the noise, and three rows a
        coefficient at the least; sqrt n at `eps=inf`.
        """
        most = max(public.n // (_ROWS * (1 + public.columns)), 1)
        if math.isinf(public.epsilon):
            return min(math.isqrt(public.n), most)
        return min(max(math.floor(math.sqrt(3.0 * public.n / public.epsilon)), 1), most)

    def run(
        self, arrays: Arrays, settings: SubsetSettings, mechanisms: Mechanisms
    ) -> SubsetsReleased:
        """Release the noisy means of the subsets' effects and variances."""
        found = subset_contrasts(arrays, settings, mechanisms)
        effect = release_effects(arrays, settings, mechanisms, self.effect_name, found)
        width = arrays.design.shape[1] if settings.needs_design else 0
        return released(arrays, settings, mechanisms, effect, found, found.variances, width)
