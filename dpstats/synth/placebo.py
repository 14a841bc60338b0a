"""A placebo in time: what the method finds where nothing happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from dpstats.inference import check_alpha, intervals

if TYPE_CHECKING:
    from collections.abc import Hashable

    from dpstats.inference import Inference
    from dpstats.report.summary import PrivateSummary
    from dpstats.synth.results import SynthResults

__all__ = ["LEAST_PERIODS", "Placebo", "default_periods", "placebo_frame"]

# periods up to T0 without which there is no placebo in time
LEAST_PERIODS = 3


def default_periods(pre_periods: int) -> int:
    """Return how many periods come before the pretended intervention by default: two thirds."""
    return max(2, (2 * pre_periods) // 3)


class Placebo(pd.DataFrame):
    """Paths of a placebo in time, with the mean effect that it finds and its interval.

    Returned by `SynthResults.placebo_in_time`: a DataFrame that prints as a summary; what is taken
    out of it is an ordinary frame. Everything in it follows from what was released.

    Examples
    --------
    >>> import dpstats as dp
    >>> sample = dp.simulate.panel("factor", n_donors=2000, effect=0.3, rng=1)
    >>> res = dp.dp_synth(sample.data, unit="unit", time="time", outcome="y", treated=0,
    ...                   T0=20, eps=1, delta=1e-6)
    >>> placebo = res.placebo_in_time(13)
    >>> list(placebo.params.index), placebo.conf_int().shape
    (['ATT'], (1, 2))
    >>> placebo.reading.split(" effect")[0]
    'Before the intervention the same method finds an'
    """

    # pandas keeps attributes that are named here, in a pickle too
    _metadata = ["_result", "_before"]  # noqa: RUF012
    _result: SynthResults
    _before: int

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    @property
    def params(self) -> pd.Series[float]:
        """Mean effect between the pretended and the true intervention, indexed as the result's."""
        return self._series("coef", [row.estimate for row in self._inferences().values()])

    @property
    def bse(self) -> pd.Series[float]:
        """Standard errors over sampling and privacy noise."""
        return self._series("std err", [row.standard_error for row in self._inferences().values()])

    @property
    def pvalues(self) -> pd.Series[float]:
        """Two-sided p-values of zero; they invert `conf_int`."""
        return self._series("P>|z|", [row.pvalue() for row in self._inferences().values()])

    def conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Confidence intervals of the mean effect, over sampling and privacy noise.

        Parameters
        ----------
        alpha : float
            One minus the level.

        Returns
        -------
        DataFrame
            Columns 0 and 1, one row a treated unit.

        Raises
        ------
        DPStatsError
            If `alpha` is not in (0, 1).
        """
        return intervals(self._inferences().values(), self.params.index, alpha)

    @property
    def reading(self) -> str:
        """What was found, in a sentence."""
        from dpstats.synth.tables import placebo_reading

        return placebo_reading(self._result, list(self._inferences().values()))

    def summary(self, alpha: float = 0.05) -> PrivateSummary:
        """Return the summary table: mean effect with its interval, effects by period, a reading.

        Parameters
        ----------
        alpha : float
            One minus the level of the intervals shown.

        Raises
        ------
        DPStatsError
            If `alpha` is not in (0, 1).
        """
        from dpstats.report.summary import build_summary
        from dpstats.synth.tables import placebo_content

        return build_summary(placebo_content(self._result, self, self._before, check_alpha(alpha)))

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def _inferences(self) -> dict[Hashable, Inference]:
        return self._result._placebo_inferences(self._before)

    def _series(self, name: str, values: list[float]) -> pd.Series[float]:
        return pd.Series(values, pd.Index(list(self._inferences())), name=name, dtype=float)


def placebo_frame(frame: pd.DataFrame, result: SynthResults, before: int) -> Placebo:
    """Make a frame of paths one that knows its mean effect.

    Parameters
    ----------
    frame : DataFrame
        Paths up to the true intervention.
    result : SynthResults
    before : int
        Periods up to the pretended intervention.
    """
    table = Placebo(frame)
    table._result, table._before = result, before
    return table
