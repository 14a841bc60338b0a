"""Tables of errors from trials."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dpstats.replicate.experiment import cell_key

if TYPE_CHECKING:
    from dpstats.replicate.experiment import Experiment, Trials

__all__ = ["error_table", "signed_rank_table"]


def error_table(experiment: Experiment, trials: Trials) -> pd.DataFrame:
    """Return one row a cell and method.

    Parameters
    ----------
    experiment : Experiment
    trials : mapping
        Errors and sizes by (cell, method); nan where a method gave no estimate.

    Returns
    -------
    DataFrame
        The axes; `method, arm, role, private`; `rmse, rmse_se, bias, bias_se, mae, mae_se, median`
        (`bias` is the mean error, `mae` the mean and `median` the median of its size); `trials`
        (those with an estimate) and `failed`.

    Notes
    -----
    `rmse` is the root of the mean square of the sizes, with the standard error of the delta method,
    or their mean where the source averages so.
    """
    rows = []
    for cell in experiment.cells():
        for method in experiment.methods:
            found = trials.get((cell_key(cell), method.label))
            if found is None:
                continue
            kept = np.isfinite(found[0]) & np.isfinite(found[1])
            numbers = _errors(found[0][kept], found[1][kept], experiment.average)
            identity = {"method": method.label, "arm": method.arm, "role": method.role}
            identity["private"] = method.private
            failed = int(np.sum(~kept))
            rows.append(
                {**cell, **identity, **numbers, "trials": int(kept.sum()), "failed": failed}
            )
    return pd.DataFrame(rows)


def _errors(errors: np.ndarray, sizes: np.ndarray, average: str) -> dict[str, float]:
    names = ("rmse", "rmse_se", "bias", "bias_se", "mae", "mae_se", "median")
    n = errors.size
    if n == 0:
        return dict.fromkeys(names, math.nan)

    def error_of_mean(values: np.ndarray) -> float:
        return float(values.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan

    mae, mae_se = float(sizes.mean()), error_of_mean(sizes)
    rmse, rmse_se = mae, mae_se
    if average == "root mean square":
        # sizes of 1e200 have no square
        scale = float(sizes.max()) or 1.0
        squares = (sizes / scale) ** 2
        rmse = scale * math.sqrt(float(squares.mean()))
        rmse_se = scale * error_of_mean(squares) / (2.0 * rmse / scale) if rmse > 0.0 else 0.0
    found = (rmse, rmse_se, float(errors.mean()), error_of_mean(errors), mae, mae_se)
    return dict(zip(names, (*found, float(np.median(sizes))), strict=True))


def signed_rank_table(experiment: Experiment, trials: Trials) -> pd.DataFrame:
    """Return two-sided Wilcoxon signed-rank p-values of absolute errors, pairs within each arm.

    Returns
    -------
    DataFrame
        The axes; `method` ("A against B"), `arm, first, second, private`; `p_value`; `smaller`, the
        method with the smaller median of the paired differences; `trials`.
    """
    from scipy.stats import wilcoxon

    rows: list[dict[str, Any]] = []
    for cell in experiment.cells():
        found = {
            method: trials[cell_key(cell), method.label][1]
            for method in experiment.methods
            if (cell_key(cell), method.label) in trials and method.arm != "reference"
        }
        for first, second in combinations(found, 2):
            if first.arm != second.arm:
                continue
            gap = found[first] - found[second]
            gap = gap[np.isfinite(gap)]
            p_value = float(wilcoxon(gap).pvalue) if np.any(gap) else 1.0
            rows.append(
                {
                    **cell,
                    "method": f"{first.role} against {second.role}",
                    "arm": first.arm,
                    "first": first.role,
                    "second": second.role,
                    "private": first.private,
                    "p_value": p_value,
                    "smaller": first.role if float(np.median(gap)) < 0.0 else second.role,
                    "trials": int(gap.size),
                }
            )
    return pd.DataFrame(rows)
