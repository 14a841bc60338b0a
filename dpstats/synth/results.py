"""Results of `dp_synth`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpstats.alarms import Signal
from dpstats.errors import DPStatsError
from dpstats.inference import Inference, check_alpha
from dpstats.passed import passed
from dpstats.results import PrivateResults, simulation, size_words
from dpstats.synth.axis import TimeAxis
from dpstats.synth.data import before_after
from dpstats.synth.earlier import placebo_errors
from dpstats.synth.kernels.base import Public
from dpstats.synth.placebo import LEAST_PERIODS, default_periods, placebo_frame

if TYPE_CHECKING:
    from collections.abc import Hashable

    import pandas as pd

    from dpstats.privacy.accounting import PrivacyRecord
    from dpstats.privacy.noise import FloatArray
    from dpstats.report.story import Story
    from dpstats.report.summary import SummaryContent
    from dpstats.synth.kernels.base import Errors, Parts, Released
    from dpstats.synth.placebo import Placebo

__all__ = ["PanelFacts", "Reading", "SynthResults"]

# each draw redraws the target and, in turn, one of a few hundred releases
_DRAWS = 999
_DRAWS_FOR_WARNING = 100
_MOST_NAMES = 5
# spreads and the reading are taken over these many treated units
_TARGETS_DESCRIBED = 8


@dataclass(frozen=True, slots=True, eq=False)
class PanelFacts:
    """Public facts of a call.

    Attributes
    ----------
    outcome, unit : str
        Names of columns.
    axis : TimeAxis
    method, title : str
    n : int
        Number of donors.
    pre_periods : int
        T0 as a number of periods.
    treated : tuple
        Labels of the treated units.
    targets : ndarray
        Shape (g, T): their own series, which is not protected.
    bounds : (float, float) or None
        What donors were clipped to and scaled by.
    constants : tuple of (str, str)
        Public constants of the method, in words.
    donors : tuple of str
        Labels of the donors; empty unless the run was exact (`eps=inf`).
    seed : int
        Of the simulations behind intervals; never of the noise.
    """

    outcome: str
    unit: str
    axis: TimeAxis
    method: str
    title: str
    n: int
    pre_periods: int
    treated: tuple[int | float | str, ...]
    targets: FloatArray
    bounds: tuple[float, float] | None
    constants: tuple[tuple[str, str], ...]
    donors: tuple[str, ...]
    seed: int

    def names(self) -> str:
        """Return the treated units in words, the first few of many."""
        listed = ", ".join(map(str, self.treated[:_MOST_NAMES]))
        more = len(self.treated) - _MOST_NAMES
        return f"{listed} and {more} more" if more > 0 else listed


@dataclass(frozen=True, slots=True)
class Reading:
    """Whether the estimate is worth having, from released and public numbers.

    Attributes
    ----------
    useful : bool
    text : str
    error : float
        Root mean square of the simulated errors of the counterfactual.
    last_value : float
        The same for carrying the treated series' last value forward, measured at the same horizons
        inside its own pre-period.
    """

    useful: bool
    text: str
    error: float
    last_value: float


class SynthResults(PrivateResults):
    """The effect of an intervention by synthetic control, with its privacy record.

    Returned by `dpstats.dp_synth`. Holds released values, the treated units' own series and
    strings only.

    Attributes
    ----------
    privacy : PrivacyRecord
        What was spent, whom it protects, what was taken as public.

    Examples
    --------
    >>> import dpstats as dp
    >>> sample = dp.simulate.panel("factor", n_donors=2000, effect=0.3, rng=1)
    >>> res = dp.dp_synth(sample.data, unit="unit", time="time", outcome="y", treated=0,
    ...                   T0=20, eps=1, delta=1e-6)
    >>> res.effect.shape, res.conf_int(which="periods").shape
    ((30,), (10, 2))
    >>> list(res.placebo_in_time(13).columns)
    ['observed', 'counterfactual', 'effect']
    >>> res.predict(res.observed + 1.0).index.equals(res.effect.index)
    True
    >>> res.privacy.relation
    'replace one unit'
    """

    _STATE = ("facts", "released", "privacy")

    def __init__(self, facts: PanelFacts, released: Released, privacy: PrivacyRecord) -> None:
        self.facts = facts
        self.released = released
        self.privacy = privacy

    @property
    def nobs(self) -> int:
        """Number of donors (public)."""
        return self.facts.n

    @property
    def method(self) -> str:
        """Name of the estimator."""
        return self.facts.method

    @property
    def observed(self) -> pd.Series[float] | pd.DataFrame:
        """Outcome of the treated unit (several: one column a unit), on the time axis."""
        return self._on_axis(self.facts.targets)

    @property
    def counterfactual(self) -> pd.Series[float] | pd.DataFrame:
        """Outcome without the intervention, on the time axis.

        Before the intervention it is the fit, and nan for methods that do not release it. Several
        treated units: one column a unit.
        """
        return self._on_axis(self._paths())

    @property
    def effect(self) -> pd.Series[float] | pd.DataFrame:
        """Observed less counterfactual outcome, on the time axis."""
        return self._on_axis(self.facts.targets - self._paths())

    @property
    def params(self) -> pd.Series[float]:
        """Mean effect after `T0`: "ATT"; several treated units: a MultiIndex (unit, "ATT")."""
        import pandas as pd

        index = pd.Index(self._names())
        return pd.Series(self._effects(), index=index, name="coef", dtype=float)

    @property
    def weights(self) -> pd.Series[float] | pd.DataFrame:
        """Released weights of the donors, in the order of their sorted labels.

        A private result keeps no label of a donor, so the index counts donors from 0.

        Raises
        ------
        DPStatsError
            If the method releases none.
        """
        import pandas as pd

        values = self.released.weights()
        if values is None:
            raise DPStatsError(
                f"`weights` needs a method that releases them; this is {self.method!r}"
            )
        donors: list[Any] = list(self.facts.donors) or list(range(self.facts.n))
        index = pd.Index(donors, name="donor")
        if values.shape[0] == 1:
            return pd.Series(values[0].copy(), index=index, name="weight")
        return pd.DataFrame(values.T.copy(), index=index, columns=self._units())

    def conf_int(
        self, alpha: float = 0.05, which: Literal["params", "periods"] = "params"
    ) -> pd.DataFrame:
        """Confidence intervals over sampling and privacy noise.

        Parameters
        ----------
        alpha : float
            One minus the level.
        which : {"params", "periods"}
            The mean effect, or the effect in each period after the intervention (each on its own,
            not jointly).

        Returns
        -------
        DataFrame
            Columns 0 and 1, one row a parameter or period.

        Raises
        ------
        DPStatsError
            If `alpha` is not in (0, 1) or `which` is none of these.

        Notes
        -----
        For the realised untreated outcome of the treated unit: a parametric bootstrap of its
        residuals and of the release, with a stored seed of its own.
        """
        import pandas as pd

        if which == "params":
            return super().conf_int(alpha)
        if which != "periods":
            raise DPStatsError(f"`which` must be 'params' or 'periods'; got {passed(which)}")
        level = check_alpha(alpha)
        places = range(len(self.facts.treated))
        half = np.stack([self._half_widths(place, "both", level) for place in places])
        effect = (self.facts.targets - self._paths())[:, self.facts.pre_periods :]
        ends = np.stack([effect - half, effect + half], axis=-1)
        after = self.facts.axis.index()[self.facts.pre_periods :]
        if len(self.facts.treated) == 1:
            return pd.DataFrame(ends[0], index=after, columns=[0, 1])
        index = pd.MultiIndex.from_product([self._units(), after])
        return pd.DataFrame(ends.reshape(-1, 2), index=index, columns=[0, 1])

    def predict(self, y: Any) -> pd.Series[float]:
        """Return the counterfactual of another unit from the same release, at no cost.

        Parameters
        ----------
        y : Series or array_like
            Its outcome: a Series on (part of) the time axis with all periods up to `T0`, or an
            array of length T0 or T. Later periods are not read.

        Returns
        -------
        Series
            On the time axis.

        Raises
        ------
        DPStatsError
            If the release serves its own targets only, or `y` has no full pre-period.

        Notes
        -----
        Post-processing, as long as the unit is no donor: the series of a donor is protected.
        """
        import pandas as pd

        facts = self.facts
        if not self.released.any_target:
            raise DPStatsError(
                f"`predict` needs a release that serves any target; that of {self.method!r} does "
                "not: call dp_synth with the new unit as `treated`, at the cost of a new release"
            )
        low, half = self._scale()
        series = self._pre_period(y)
        path = self.released.predict((series[None] - low) / half)[0] * half + low
        return pd.Series(path, index=facts.axis.index(), name=facts.outcome)

    def placebo_in_time(self, T0: Any = None) -> Placebo:
        """Pretend that the intervention came earlier, where nothing happened: at no cost.

        Parameters
        ----------
        T0 : label, optional
            Last period before the pretended intervention; by default two thirds into the
            pre-period.

        Returns
        -------
        Placebo
            A DataFrame that prints as a summary. On the time axis up to the true `T0`: `observed`,
            `counterfactual`, `effect` (several treated units: columns (unit, name)). Its `params`,
            `bse`, `pvalues` and `conf_int` are those of the mean effect between the two dates,
            which should be near zero.

        Raises
        ------
        DPStatsError
            If the label does not lie on the axis before the true `T0` with two periods up to it,
            or if the method cannot do this without a new release.
        """
        import pandas as pd

        facts = self.facts
        if T0 is None and facts.pre_periods < LEAST_PERIODS:
            raise DPStatsError(
                "`placebo_in_time` needs at least three periods up to the true `T0`; there are "
                f"{facts.pre_periods}"
            )
        before = default_periods(facts.pre_periods)
        if T0 is not None:
            before = before_after(facts.axis, T0)
        if before >= facts.pre_periods:
            true = facts.axis.words()[facts.pre_periods - 1]
            raise DPStatsError(f"`T0` must lie before the true one, {true}; got {passed(T0)}")
        paths = self._placebo_paths(before)
        if paths is None:
            raise DPStatsError(
                f"`placebo_in_time` is not free for {self.method!r}: call dp_synth on the periods "
                "up to the true T0 with the earlier one, at the cost of a new release"
            )
        end = facts.pre_periods
        frames = {}
        for unit, series, path in zip(facts.treated, facts.targets[:, :end], paths, strict=True):
            columns = {"observed": series, "counterfactual": path, "effect": series - path}
            frames[unit] = pd.DataFrame(columns, index=facts.axis.index()[:end])
        frame = frames[facts.treated[0]] if len(frames) == 1 else pd.concat(frames, axis=1)
        return placebo_frame(frame, self, before)

    def noise_sd(self) -> float:
        """Return the standard deviation that privacy noise alone gives the estimate."""
        return 0.0 if self.released.exact else self._spread("privacy")

    def sampling_sd(self) -> float:
        """Return the standard deviation that sampling alone gives the estimate."""
        return self._spread("sampling")

    def _outcome_bounds(self) -> tuple[float, float] | None:
        return self.facts.bounds

    def _signals(self) -> list[Signal]:
        found = self.reading()
        signal = Signal("gain over the last value", float(found.useful), found.text)
        found_before = self._placebo_signals()
        own: list[Signal] = getattr(self.released, "signals", list)()
        return [*super()._signals(), signal, *found_before, *own]

    def _placebo_signals(self) -> list[Signal]:
        """Return the largest effect of the default placebo, over the first treated units."""
        from dpstats.synth.tables import effect_words

        rows = self._default_placebo()
        found = [row for row in rows if row.standard_error > 0.0]
        if not found:
            return []
        worst = max(found, key=lambda row: abs(row.estimate) / row.standard_error)
        value = abs(worst.estimate) / worst.standard_error
        return [Signal("placebo effect, in standard errors", value, effect_words(worst))]

    def _default_placebo(self) -> list[Inference]:
        """Return what the default placebo finds for the first treated units, if it is free."""
        size = self.facts.pre_periods
        before = default_periods(size)
        if size < LEAST_PERIODS or self._placebo_paths(before) is None:
            return []
        return list(self._placebo_inferences(before, _TARGETS_DESCRIBED).values())

    def rmspe(self) -> float:
        """Return the root mean squared error of the fit before the intervention, or nan."""
        gap = (self.facts.targets - self._paths())[:, : self.facts.pre_periods]
        return float(np.sqrt(np.mean(gap**2)))

    def reading(self) -> Reading:
        """Say whether the estimate beats carrying the last value forward.

        Returns
        -------
        Reading
            From released numbers and the treated series.
        """
        return self._judged

    @cached_property
    def _judged(self) -> Reading:
        after = self.facts.axis.size - self.facts.pre_periods
        span = min(after, self.facts.pre_periods - 1)
        targets = self.facts.targets[:_TARGETS_DESCRIBED]
        last = _last_value_error(targets[:, : self.facts.pre_periods], span)
        low, half = self._scale()
        drawn = []
        for target in (targets - low) / half:
            rng = simulation(self.facts.seed)
            errors = self.released.errors(target, _DRAWS_FOR_WARNING, rng, "both")
            drawn.append(errors.periods[:, :span])
        error = half * float(np.sqrt(np.mean(np.square(drawn))))
        sizes = f"expected error {size_words(error)}, against {size_words(last)} for the last value"
        exact = self.released.exact
        cure = "" if exact else "; more donors or a larger `eps` would help"
        if getattr(self.released, "directions", 1) == 0:
            text = (
                f"no common movement of the donors was found{'' if exact else ' above the noise'}: "
                "the estimate is little more than the treated unit's own forecast "
                f"({sizes}){cure}"
            )
            return Reading(False, text, error, last)
        if not self._enough() or not error < last:
            reason = "" if self._enough() else "too few donors for this `eps` by the public rule; "
            text = f"not better than carrying the last value forward ({reason}{sizes}){cure}"
            return Reading(False, text, error, last)
        return Reading(True, f"better than carrying the last value forward: {sizes}", error, last)

    def _enough(self) -> bool:
        """Whether the public rule gives the default method a chance; others have no such rule."""
        from dpstats.synth.plan import enough_donors

        facts, privacy = self.facts, self.privacy
        if self.released.exact or facts.method != "moments":
            return True
        budget = (privacy.epsilon, privacy.delta)
        return enough_donors(Public(facts.n, facts.axis.size, facts.pre_periods, *budget, False))

    def comparison_facts(self) -> dict[str, str]:
        """Return what a table of several results says about this one."""
        facts = self.facts
        return {
            "Outcome": facts.outcome,
            "Treated unit": facts.names(),
            "Method": facts.method,
            "Estimand": "ATT",
            "N (donors)": str(facts.n),
        }

    def glance(self) -> pd.DataFrame:
        """Return one row for the model."""
        import pandas as pd

        facts, privacy = self.facts, self.privacy
        row = {
            "outcome": facts.outcome,
            "treated": facts.names(),
            "method": facts.method,
            "T0": facts.axis.words()[facts.pre_periods - 1],
            "nobs": facts.n,
            "periods": facts.axis.size,
            "pre_periods": facts.pre_periods,
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "private": privacy.private,
            "seeded": privacy.seeded,
            "rmspe": self.rmspe(),
            "noise_sd": self.noise_sd(),
        }
        return pd.DataFrame([row])

    def plot(
        self,
        kind: Literal["path", "gap", "placebo", "budget"] | None = None,
        ax: Any = None,
        *,
        unit: Any = None,
        T0: Any = None,
    ) -> tuple[Any, Any]:
        """Draw the result from released numbers and the treated series.

        Parameters
        ----------
        kind : {"path", "gap", "placebo", "budget"}, optional
            Observed and counterfactual paths (the default); the effect; the effect beside that of
            a pretended earlier intervention; the budget.
        ax : matplotlib Axes, optional
            Where to draw.
        unit : label, optional
            Which of several treated units; by default the first.
        T0 : label, optional
            Of the pretended intervention; by default two thirds into the pre-period.

        Returns
        -------
        fig, ax
            A notebook shows the figure by itself.

        Raises
        ------
        DPStatsError
            If `kind` is not one of these, or the method has no placebo in time.
        ImportError
            If matplotlib is not installed (extra `plot`).
        """
        from dpstats.synth.tables import draw

        return draw(self, kind or "path", ax, unit, T0)

    def _story(self) -> Story:
        from dpstats.synth.tables import story

        return story(self)

    def _figure_text(self) -> str:
        return (
            f"Observed {self.facts.outcome} of {self.facts.treated[0]} and its counterfactual, "
            "with the 95% band and the part of it that is privacy noise."
        )

    def _diagnostic_rows(self) -> list[tuple[str, str, str]]:
        from dpstats.synth.tables import diagnostic_rows

        return diagnostic_rows(self)

    def _summary_content(self, alpha: float) -> SummaryContent:
        from dpstats.synth.tables import summary_content

        return summary_content(self, alpha)

    def _names(self) -> list[Any]:
        treated = self.facts.treated
        return ["ATT"] if len(treated) == 1 else [(unit, "ATT") for unit in treated]

    def _units(self) -> pd.Index[Any]:
        import pandas as pd

        return pd.Index(list(self.facts.treated), name=self.facts.unit)

    def _on_axis(self, values: FloatArray) -> pd.Series[float] | pd.DataFrame:
        import pandas as pd

        index = self.facts.axis.index()
        if values.shape[0] == 1:
            return pd.Series(values[0].copy(), index=index, name=self.facts.outcome)
        return pd.DataFrame(values.T.copy(), index=index, columns=self._units())

    def _scale(self) -> tuple[float, float]:
        """Return midpoint and half-width of the released numbers' units."""
        if self.facts.bounds is None:
            return 0.0, 1.0
        low, high = self.facts.bounds
        half = (high - low) / 2.0
        return low + half, half

    def _paths(self) -> FloatArray:
        low, half = self._scale()
        return self.released.predict((self.facts.targets - low) / half) * half + low

    def _effects(self) -> list[float]:
        gaps = (self.facts.targets - self._paths())[:, self.facts.pre_periods :]
        return [float(value) for value in gaps.mean(axis=1)]

    def _errors(self, place: int, parts: Parts) -> Errors:
        """Simulate errors of one target, in scaled units; kept, not pickled."""
        cache: dict[tuple[int, str], Errors] = self.__dict__.setdefault("_simulated", {})
        if (place, parts) not in cache:
            low, half = self._scale()
            target = (self.facts.targets[place] - low) / half
            rng = simulation(self.facts.seed)
            cache[place, parts] = self.released.errors(target, _DRAWS, rng, parts)
        return cache[place, parts]

    def _placebo_paths(self, before: int) -> FloatArray | None:
        """Return counterfactual paths up to the true intervention, None where they are not free."""
        low, half = self._scale()
        paths = self.released.placebo((self.facts.targets - low) / half, before)
        return None if paths is None else paths[:, : self.facts.pre_periods] * half + low

    def _placebo_inferences(
        self, before: int, most: int | None = None
    ) -> dict[Hashable, Inference]:
        """Return the mean effects of a placebo; simulations are kept, not pickled."""
        paths = self._placebo_paths(before)
        if paths is None:
            return {}
        gaps = self.facts.targets[:, before : self.facts.pre_periods] - paths[:, before:]
        half = self._scale()[1]
        return {
            name: _inference(
                float(gaps[place].mean()), half * self._placebo_errors(place, before).att
            )
            for place, name in enumerate(self._names()[:most])
        }

    def _placebo_errors(self, place: int, before: int) -> Errors:
        cache: dict[tuple[int, int], Errors] = self.__dict__.setdefault("_pretended", {})
        if (place, before) not in cache:
            low, half = self._scale()
            target = (self.facts.targets[place] - low) / half
            rng = simulation(self.facts.seed)
            cache[place, before] = placebo_errors(self.released, target, before, _DRAWS, rng)
        return cache[place, before]

    def _placebo_half_widths(self, place: int, before: int, alpha: float) -> FloatArray:
        """Return half-widths of one target's intervals by period after a pretended intervention."""
        columns = self._scale()[1] * self._placebo_errors(place, before).periods.T
        return np.array([_inference(0.0, column).interval(alpha)[1] for column in columns])

    def _spread(self, parts: Parts) -> float:
        """Root mean square over the first targets: a description, no inference."""
        places = range(min(len(self.facts.treated), _TARGETS_DESCRIBED))
        squares = [np.mean(self._errors(place, parts).att ** 2) for place in places]
        return float(self._scale()[1] * np.sqrt(np.mean(squares)))

    def _half_widths(self, place: int, parts: Parts, alpha: float) -> FloatArray:
        """Return half-widths of one target's intervals by period."""
        columns = self._scale()[1] * self._errors(place, parts).periods.T
        return np.array([_inference(0.0, column).interval(alpha)[1] for column in columns])

    def _inferences(self) -> dict[Hashable, Inference]:
        half = self._scale()[1]
        named = enumerate(zip(self._names(), self._effects(), strict=True))
        return {
            name: _inference(value, half * self._errors(place, "both").att)
            for place, (name, value) in named
        }

    def _privacy_inferences(self) -> list[Inference]:
        if self.released.exact:
            return [Inference(value, 0.0) for value in self._effects()]
        half = self._scale()[1]
        return [
            _inference(value, half * self._errors(place, "privacy").att)
            for place, value in enumerate(self._effects())
        ]

    def _pre_period(self, y: Any) -> FloatArray:
        import pandas as pd

        facts = self.facts
        size, before = facts.axis.size, facts.pre_periods
        series = np.full(size, np.nan)
        if isinstance(y, pd.Series):
            found = [facts.axis.position(label) for label in y.index]
            places = [place for place in found if place is not None]
            if len(set(places)) < len(found):
                raise DPStatsError(
                    f"`y` must be indexed by periods of column {facts.axis.name!r}, each once, as "
                    "they stand there"
                )
            series[places] = _as_floats(y.to_numpy(dtype=object))
        else:
            values = _as_floats(y)
            if values.shape not in {(before,), (size,)}:
                raise DPStatsError(
                    f"`y` must have one value a period up to T0 ({before}) or in all ({size}); got "
                    f"shape {values.shape}"
                )
            series[: values.size] = values
        if not np.isfinite(series[:before]).all():
            raise DPStatsError("`y` must have a finite value in each period up to T0")
        series[before:] = np.nan
        return series


def _as_floats(values: Any) -> FloatArray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DPStatsError("`y` must hold numbers") from None


def _inference(estimate: float, errors: FloatArray) -> Inference:
    if not np.isfinite(errors).all():
        return Inference(estimate, math.nan)
    return Inference.simulated(estimate, errors)


def _last_value_error(before: FloatArray, span: int) -> float:
    """Root mean square over `span` horizons of y[t + h] - y[t] inside the pre-period."""
    squares = [np.mean((before[:, h:] - before[:, :-h]) ** 2) for h in range(1, span + 1)]
    return float(np.sqrt(np.mean(squares)))
