"""What less noise would cost, release by release."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpstats.errors import DPStatsError
from dpstats.privacy.calibration import gaussian_dp_level
from dpstats.propensity import Objective
from dpstats.results import PrivateResults

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    from dpstats.privacy.accounting import Release

__all__ = ["sensitivity_table"]

_LARGEST = 1e9
_OBJECTIVES = ("objective, K-norm", "objective, Gaussian")


def sensitivity_table(res: PrivateResults) -> pd.DataFrame:
    """Say what each release of a result cost, and what it would cost with half the noise.

    Reads the privacy record only: it costs no budget.

    Parameters
    ----------
    res : ATEResults or SynthResults
        Any result of this package.

    Returns
    -------
    DataFrame
        One row a release: `release`, `partition`, `mechanism`, `sensitivity`, `scale`, `epsilon`,
        `delta`, `epsilon_half` (the epsilon at which `scale` would be half as large, with the same
        delta; nan where the mechanism is not one of this package), `extra` (what that is more) and
        `total` (the epsilon of the call if only this release were changed). Empty where nothing
        was released with noise. It prints whole.

    Raises
    ------
    DPStatsError
        If `res` is not a result.

    Notes
    -----
    Laplace, K-norm and Wishart noise is inversely proportional to epsilon: half the noise costs
    twice the budget. Gaussian noise is calibrated exactly at the delta of the release, which
    costs somewhat more than twice the epsilon. Objective perturbation is calibrated again, with a
    penalty that stays in proportion to 1/epsilon, as it does by default.

    Examples
    --------
    >>> import dpstats as dp
    >>> trial = dp.simulate.ate("randomised", 2000, rng=1)
    >>> res = dp.dp_ate("y ~ 1", treat="w", data=trial.data, eps=1, bounds=trial.bounds,
    ...                 method="diff_means")
    >>> dp.sensitivity_table(res)[["release", "epsilon", "epsilon_half", "total"]].round(3)
         release  epsilon  epsilon_half  total
    0     counts    0.192         0.384  1.192
    1       sums    0.768         1.536  1.768
    2  variances    0.040         0.080  1.040
    """
    if not isinstance(res, PrivateResults):
        raise DPStatsError(
            f"`res` must be a result of dp_ate or dp_synth; got {type(res).__name__}"
        )
    from dpstats.report.readable import ReadableFrame

    privacy = res.privacy
    frame = privacy.releases.drop(columns="norm")
    halves = [_half(record) for record in privacy.records]
    frame["epsilon_half"] = halves
    frame = frame.astype({"epsilon_half": float})
    frame["extra"] = frame["epsilon_half"] - frame["epsilon"]
    frame["total"] = privacy.epsilon + frame["extra"]
    return ReadableFrame(frame)


def _half(record: Release) -> float:
    """Return the epsilon at which the scale of a release would be half as large."""
    if record.mechanism in _OBJECTIVES:
        return _objective(record)
    if record.mechanism.startswith("Gaussian"):
        wanted = 2.0 * gaussian_dp_level(record.epsilon, record.delta)
        return _smallest(
            lambda epsilon: gaussian_dp_level(epsilon, record.delta) >= wanted, record.epsilon
        )
    known = ("Laplace", "K-norm", "Wishart")
    if record.delta == 0.0 and any(name in record.mechanism for name in known):
        return 2.0 * record.epsilon
    return math.nan


def _objective(record: Release) -> float:
    rows = max(round(record.sensitivity / 2.0), 1)

    def scale(epsilon: float, relative: float) -> float:
        model = Objective(rows_per_person=rows, relative_penalty=relative)
        try:
            return model.calibrated(epsilon, record.delta)[2]
        except DPStatsError:
            # the penalty is too small for this budget
            return math.inf

    # what the record states is left after the solver's share
    whole = record.epsilon / Objective().calibrated(1.0, 0.0)[0]
    # the noise tells the penalty: it is larger where the penalty is below 2 rows / eps
    relative = 1.0
    if scale(whole, 1.0) < record.scale * (1.0 - 1e-9):
        low = 0.0
        for _ in range(60):
            middle = 0.5 * (low + relative)
            enough = scale(whole, middle) <= record.scale
            low, relative = (low, middle) if enough else (middle, relative)
    wanted = 0.5 * scale(whole, relative)
    needed = _smallest(lambda epsilon: scale(epsilon, relative) <= wanted, whole)
    return needed * record.epsilon / whole


def _smallest(enough: Callable[[float], bool], start: float) -> float:
    """Return the smallest epsilon from `start` on that is enough."""
    low, high = start, 2.0 * start
    while not enough(high):
        low, high = high, 2.0 * high
        if high > _LARGEST:
            return math.nan
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
