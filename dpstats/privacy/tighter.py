r"""A tighter total of many charges, by privacy loss distributions; for reading only.

Notes
-----
Each mechanism is replaced by a pair of distributions that dominates it under replacement of one
protected row or unit, and the pairs are composed numerically by dp-accounting, rounding up.

* Laplace noise on a vector of l1 sensitivity :math:`\Delta` and scale b is dominated by the pair
  Lap(0, b), Lap(:math:`\Delta`, b). Proof: let b = 1 and let two coordinates move by a and c. The
  privacy loss of a coordinate is :math:`a - 2\min(X^+, a)` with X standard Laplace. Compare
  :math:`S = \min(X_1^+, a) + \min(X_2^+, c)` with :math:`T = \min(X^+, a + c)`, for
  :math:`a \le c`. On [0, a + c), :math:`P(T > t) = e^{-t}/2`, and :math:`2 e^t P(S > t)` is
  :math:`(3 + t)/2` below a, :math:`1 + a/2` from a to c, and :math:`(1 + a + c - t)/2`
  above: it crosses 1 once, from above. The likelihood ratios
  :math:`e^{2S - a - c}` and :math:`e^{2T - a - c}` both have mean 1, so by the single crossing the
  second is larger in convex order, and so is every hockey-stick divergence
  :math:`E(1 - e^\epsilon R)^+`. More coordinates by induction; the other direction by symmetry.
* Gaussian noise on a vector of l2 sensitivity :math:`\Delta`: along the shift it is the pair
  N(0, s), N(:math:`\Delta`, s), and nothing else changes.
* Anything else, such as K-norm noise, a perturbed objective, or a charge without complete records,
  is dominated by the (epsilon, delta) it was charged (Kairouz, Oh and Viswanath): infinite loss
  with probability delta, else randomised response. So is a charge over several partitions.

References
----------
Kairouz, P., Oh, S. and Viswanath, P. (2017). The composition theorem for differential privacy.
IEEE Transactions on Information Theory. doi:10.1109/TIT.2017.2685505.
Sommer, D., Meiser, S. and Mohammadi, E. (2019). Privacy loss classes: the central limit theorem in
differential privacy. PoPETs. doi:10.2478/popets-2019-0029.
Doroshenko, V., Ghazi, B., Kamath, P., Kumar, R. and Manurangsi, P. (2022). Connect the dots:
tighter discrete approximations of privacy loss distributions. arXiv:2207.04380.
Zhu, Y., Dong, J. and Wang, Y.-X. (2022). Optimal accounting of differential privacy via
characteristic function. AISTATS. arXiv:2106.08567 (dominating pairs).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from dpstats.privacy.calibration import gaussian_scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dpstats.privacy.accounting import Release

__all__ = ["Charges", "tighter_epsilon"]

# losses are rounded up to multiples of an interval, at most this, in at most so many steps
_INTERVAL = 1e-4
_STEPS = 1_000_000
# above, exp(epsilon) is so large that a tighter total says nothing
_LARGEST = 100.0


class Charges(NamedTuple):
    """Equal charges."""

    epsilon: float
    delta: float
    records: Sequence[Release]
    times: int


class _Pair(NamedTuple):
    """A dominating pair: `strength` is sensitivity / scale, or epsilon where kind is "budget"."""

    kind: str
    strength: float
    delta: float = 0.0


def tighter_epsilon(charges: Iterable[Charges], delta: float) -> float:
    """Smallest epsilon that holds at `delta` for all charges together, rounded up.

    Parameters
    ----------
    charges : iterable of Charges
        Fixed in advance (the total is not valid for adaptively chosen budgets).
    delta : float
        In (0, 1).

    Returns
    -------
    float
        inf where `delta` is too small for these charges.

    Raises
    ------
    ImportError
        If dp-accounting is not installed.
    """
    distribution = _library()
    pairs: Counter[_Pair] = Counter()
    for charge in charges:
        for pair in _pairs(charge):
            pairs[pair] += charge.times
    if not pairs:
        return 0.0
    if any(pair.strength > _LARGEST for pair in pairs):
        return math.inf
    interval = _interval(pairs)
    composed = distribution.identity(value_discretization_interval=interval)
    for pair, count in sorted(pairs.items()):
        loss = _distribution(distribution, pair, interval)
        composed = composed.compose(loss if count == 1 else loss.self_compose(count))
    return float(composed.get_epsilon_for_delta(delta))


def _library() -> Any:
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError as error:
        raise ImportError(
            "`total('pld')` needs dp-accounting: pip install 'dpstats[accounting]'"
        ) from error
    return privacy_loss_distribution


def _pairs(charge: Charges) -> list[_Pair]:
    records = charge.records
    complete = (
        len({record.partition for record in records}) == 1
        and _same(math.fsum(record.epsilon for record in records), charge.epsilon)
        and _same(math.fsum(record.delta for record in records), charge.delta)
    )
    if not complete:
        return [_Pair("budget", charge.epsilon, charge.delta)]
    return [_pair(record) for record in records]


def _same(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-9)


def _pair(record: Release) -> _Pair:
    # where rounding was paid for, the scale is larger than the recorded sensitivity asks for
    recorded = record.sensitivity / record.scale
    if record.mechanism == "Laplace" and record.norm == "l1" and record.delta == 0.0:
        return _Pair("laplace", max(record.epsilon, recorded))
    if record.mechanism == "Gaussian (analytic)" and record.norm == "l2" and record.delta > 0.0:
        return _Pair(
            "gaussian", max(1.0 / gaussian_scale(1.0, record.epsilon, record.delta), recorded)
        )
    return _Pair("budget", record.epsilon, record.delta)


def _interval(pairs: Counter[_Pair]) -> float:
    """Fine enough for the smallest loss, coarse enough for their sum to fit."""
    smallest = min(pair.strength for pair in pairs)
    largest = max(pair.strength for pair in pairs)
    return max(min(_INTERVAL, smallest / 10.0), 10.0 * largest / _STEPS)


def _distribution(distribution: Any, pair: _Pair, interval: float) -> Any:
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    if pair.kind == "laplace":
        return distribution.from_laplace_mechanism(
            1.0, sensitivity=pair.strength, value_discretization_interval=interval
        )
    if pair.kind == "gaussian":
        return distribution.from_gaussian_mechanism(
            1.0, sensitivity=pair.strength, value_discretization_interval=interval
        )
    return distribution.from_privacy_parameters(
        DifferentialPrivacyParameters(pair.strength, pair.delta), interval
    )
