"""Normalised weighting in disjoint subsets, averaged (Guha and Reiter)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpstats.ate.kernels.subset_kernel import SubsetKernel, SubsetSettings
from dpstats.ate.kernels.subsets import (
    Contrasts,
    Subsets,
    contrast_change,
    contrasts,
    subset_scores,
)
from dpstats.ate.kernels.subsets_released import SubsetsReleased, release_mean, released

if TYPE_CHECKING:
    from dpstats.ate.kernels.base import Arrays, Public
    from dpstats.privacy.mechanisms import Mechanisms, Noisy

__all__ = ["AggNipw", "release_effects", "subset_contrasts"]


class AggNipw(SubsetKernel):
    r"""Normalised inverse probability weighting in K random subsets, averaged.

    Notes
    -----
    In each of K subsets of row positions (K = floor(sqrt n) by default, option `subsets`) a logit
    with a small fixed ridge gives propensities, clipped to :math:`[\omega, 1-\omega]`; the subset's
    estimate is the difference of weighted arm means, 0 where an arm is empty. Nothing but noisy
    means over the subsets is released:

    - "score": the mean effect. A replaced row changes one subset, whose estimate lies in
      [-2C, 2C]; that gives 4C/K. Since no weight is more than :math:`\rho = (1-\omega)/\omega`
      times another, an estimate moves by at most :math:`4C\rho/(1+\rho) = 4C(1-\omega)`, hence
      **4C(1 - omega)/K** (rho^2 in place of rho for ATT and ATC; 2C/K with one known probability;
      `dpstats.ate.kernels.subsets` has the proof). Two treated rows and one control attain it
      where propensities are known by row.
    - "variances": the mean of min((t_k - t)^2, R), t_k a subset's estimate and t the effect
      released before, hence a constant: sensitivity **R/K**. Its size over K is the sampling
      variance of the mean.

    For Laplace and Gaussian noise alike, since one number is released.

    References
    ----------
    Guha, S. and Reiter, J. P. (2025). Differentially private estimation of weighted average
    treatment effects for binary outcomes. arXiv:2408.14766 (there for binary outcomes).
    """

    name = "agg_nipw"
    title = "Normalised weighting in subsets"

    def default_count(self, public: Public) -> int:
        """Return floor(sqrt n), the published number of subsets."""
        return math.isqrt(public.n)

    def run(
        self, arrays: Arrays, settings: SubsetSettings, mechanisms: Mechanisms
    ) -> SubsetsReleased:
        """Release the noisy mean of the subsets' estimates."""
        found = subset_contrasts(arrays, settings, mechanisms)
        effect = release_effects(arrays, settings, mechanisms, self.effect_name, found)
        width = arrays.design.shape[1] if settings.needs_design else 0
        return released(arrays, settings, mechanisms, effect, found, None, width)


def subset_contrasts(arrays: Arrays, settings: SubsetSettings, mechanisms: Mechanisms) -> Contrasts:
    """Deal rows out to subsets and return the weighted contrast of each, in units of C."""
    count = settings.subsets
    subsets = Subsets.of(mechanisms.parts("subsets", arrays.n, count), count)
    scores = subset_scores(arrays, settings, subsets, settings.ridge)
    outcome, treated = subsets.gather(arrays.outcome), subsets.gather(arrays.treated)
    return contrasts(outcome, treated, scores, subsets.live, settings.estimand)


def release_effects(
    arrays: Arrays, settings: SubsetSettings, mechanisms: Mechanisms, name: str, found: Contrasts
) -> Noisy:
    """Release the mean of the subsets' effects."""
    return release_mean(
        mechanisms,
        name,
        found.effects,
        bounds=(-2.0, 2.0),
        unit=arrays.half_width,
        change=contrast_change(settings),
    )
