"""The public choices of `moments`: sizes of the two rounds and their shares of the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpstats.privacy.calibration import gaussian_dp_level
from dpstats.synth.kernels.loadings import WISHART_EDGE, edge_of, entry_sd_of

if TYPE_CHECKING:
    from dpstats.synth.kernels.base import Public

__all__ = ["ROUNDS", "Design", "design_of"]

# measured choices; errors are flat around them
ROUNDS = {"directions": 0.3, "moments": 0.7}
_EDGE_SHARE = 0.3
_SMALLEST_BASIS = 6
# of a second round with fewer paths: when, the least number of them besides the targets' two
_NOISY_SHARE = 0.06
_DIRECTIONS = 6


@dataclass(frozen=True, slots=True)
class Design:
    """What is decided from public quantities alone.

    Attributes
    ----------
    level : float
        mu of Gaussian differential privacy, or epsilon; inf without noise.
    pure : bool
        Whether delta = 0.
    pre_basis, post_basis : int
        q0 and q1, the number of cosines.
    kept : int
        r, the number of pre-period paths in the second round, at most q0.
    """

    level: float
    pure: bool
    pre_basis: int
    post_basis: int
    kept: int

    @property
    def first_size(self) -> int:
        """Rows of the first matrix: the constant, q0 and q1."""
        return 1 + self.pre_basis + self.post_basis

    @property
    def last_size(self) -> int:
        """Rows of the second matrix: the constant, r and q1."""
        return 1 + self.kept + self.post_basis

    @property
    def first_level(self) -> float:
        """Level of the first round."""
        share = ROUNDS["directions"]
        return self.level * (share if self.pure else math.sqrt(share))

    @property
    def last_level(self) -> float:
        """Level of the second round."""
        share = ROUNDS["moments"]
        return self.level * (share if self.pure else math.sqrt(share))

    def entry_sd(self) -> float:
        """Noise sd of an off-diagonal entry in the second round."""
        return entry_sd_of(self.last_size, self.last_level, self.pure)

    def edge(self) -> float:
        """Edge of the spectrum of the second round's noise."""
        return edge_of(self.last_size, self.last_level, self.pure)


def design_of(public: Public) -> Design:
    """Choose the bases.

    Between 6 and T - 1 cosines, so that the noise edge of a second round of as many is at most
    .3 n; and fewer pre-period paths in that round where the edge would still be above .06 n.
    """
    before, periods = public.pre_periods, public.periods
    after = periods - before
    pure = public.delta == 0.0
    if math.isinf(public.epsilon):
        return Design(math.inf, pure, before - 1, after, before - 1)
    level = public.epsilon if pure else gaussian_dp_level(public.epsilon, public.delta)
    share = ROUNDS["moments"]
    room = _EDGE_SHARE * public.n * level
    wished = room * share / WISHART_EDGE - 0.5 if pure else share * (room / 2.0) ** 2
    q = min(max(int(min(wished, periods)), _SMALLEST_BASIS), periods - 1)
    q0, q1 = before - 1, after
    if q < periods - 1:
        q1 = min(max(2, round(q * after / periods)), after, q - 1)
        q0, q1 = max(min(q - q1, before - 1), 1), max(q1, 1)
    every = Design(level, pure, q0, q1, q0)
    if every.edge() <= _NOISY_SHARE * public.n:
        return every
    return replace(every, kept=min(q0, max(_DIRECTIONS, before // 4) + 2))
