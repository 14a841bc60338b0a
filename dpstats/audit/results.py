"""What an audit found."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from dpstats.audit.bounds import clopper_pearson, delta_from, epsilon_from
from dpstats.audit.trials import Entropy, Key, stream
from dpstats.errors import DPStatsError
from dpstats.passed import passed
from dpstats.report._numbers import number

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dpstats.audit.bounds import FloatArray
    from dpstats.report.summary import PrivateSummary

__all__ = ["AuditResult", "Event"]

Which = Literal["data", "neighbour"]


@dataclass(frozen=True, slots=True)
class Event:
    """A set of released numbers, chosen on other runs than those that are counted here.

    Attributes
    ----------
    favours : {"data", "neighbour"}
        Under which of the two it is likelier.
    score : str
        The function of the released numbers that is compared with `cut`.
    side : {1, -1}
        1 where the event is score >= cut, -1 where it is score <= cut.
    cut : float
    seen, runs : int
        How often it was seen under `favours`, and in how many runs.
    seen_other, runs_other : int
        The same under the other data set.
    low, high : float
        Lower confidence limit of its probability under `favours`, upper one under the other.
    epsilon, delta : float
        Lower bounds: on epsilon at the delta of the audit, on delta at the claimed epsilon (nan
        without a claim).
    """

    favours: Which
    score: str
    side: int
    cut: float
    seen: int
    runs: int
    seen_other: int
    runs_other: int
    low: float
    high: float
    epsilon: float
    delta: float

    def __str__(self) -> str:
        sign = ">=" if self.side > 0 else "<="
        return f"{self.score} {sign} {number(self.cut)}"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AuditResult:
    """Lower confidence bounds on epsilon and delta, with the events they rest on.

    Attributes
    ----------
    epsilon : float
        Lower bound on epsilon at `delta`; never below 0. Exceeds the true epsilon with probability
        at most `false_alarm`.
    delta : float
        The delta at which `epsilon` is bounded.
    claimed : float or None
        The epsilon that is claimed.
    delta_bound : float or None
        Lower bound on delta at `claimed`; holds together with `epsilon`.
    trials : tuple of int
        Runs on either data set: for learning, choosing and judging together.
    false_alarm : float
        Probability with which any of the bounds may be too high, shared out over all events.
    events : tuple of Event
        Those judged: one a direction, with a claim up to two.
    curve : (ndarray, ndarray)
        Observed shares of the judged runs beyond each threshold of the best event's score, on the
        other data set and on the favoured one; for the plot, not a confidence statement.
    pair : int or None
        `search`: the number of the candidate that was judged.
    pilot : tuple of float
        `search`: what each candidate looked worth in the pilot. Not a confidence statement.
    """

    epsilon: float
    delta: float
    claimed: float | None
    delta_bound: float | None
    trials: tuple[int, int]
    false_alarm: float
    events: tuple[Event, ...]
    curve: tuple[FloatArray, FloatArray]
    entropy: Entropy | None = None
    pair: int | None = None
    pilot: tuple[float, ...] = ()
    _key: Key = field(default=())

    @property
    def passed(self) -> bool | None:
        """Whether the claim was not refuted, which does not prove it; None without a claim."""
        if self.claimed is None or self.delta_bound is None:
            return None
        return self.epsilon <= self.claimed and self.delta_bound <= self.delta

    @property
    def best(self) -> Event:
        """The event with the largest bound on epsilon."""
        return max(self.events, key=lambda event: event.epsilon)

    @property
    def event(self) -> str:
        """The event with the largest bound on epsilon, in words."""
        return f"{self.best}, likelier under `{self.best.favours}`"

    @property
    def ceiling(self) -> float:
        """The largest bound that so many runs could give, by an event always and never seen.

        Where it is below the claim, no fault could have been found; run more.
        """
        level = self.false_alarm / (2.0 * len(self.events))
        low, _ = clopper_pearson(self.best.runs, self.best.runs, level)
        _, high = clopper_pearson(0, self.best.runs_other, level)
        return float(epsilon_from(low, high, self.delta))

    @property
    def table(self) -> pd.DataFrame:
        """The judged events, one a row, with counts, limits and bounds."""
        import pandas as pd

        columns = list(Event.__dataclass_fields__)
        return pd.DataFrame(
            [[getattr(event, name) for name in columns] for event in self.events], columns=columns
        )

    def delta_at(self, eps: float) -> float:
        """Return a lower bound on delta at another epsilon, from the same events.

        All such bounds hold together with `epsilon`: they rest on the same confidence limits.

        Parameters
        ----------
        eps : float
            At least 0.
        """
        if not eps >= 0.0:
            raise DPStatsError(f"`eps` must be at least 0; got {passed(eps)}")
        return max(float(delta_from(event.low, event.high, eps)) for event in self.events)

    def rng(self, which: Which, trial: int) -> np.random.Generator:
        """Return the generator that one run had, fresh, to repeat it.

        Parameters
        ----------
        which : {"data", "neighbour"}
        trial : int
            From 0.
        """
        if self.entropy is None:
            raise DPStatsError("`rng` has no meaning for samples that were drawn elsewhere")
        if which not in ("data", "neighbour"):
            raise DPStatsError(f"`which` must be 'data' or 'neighbour'; got {passed(which)}")
        return stream(self.entropy, (*self._key, int(which == "neighbour")), trial)

    def summary(self) -> PrivateSummary:
        """Return the bounds, the claim and the judged events, with how to read them.

        Returns
        -------
        PrivateSummary
            A statsmodels `Summary`: `as_text`, `as_html`, `as_latex`, `as_csv`.
        """
        from dpstats.report._statsmodels import PrivateSummary, ReportTable

        left = [
            ("Lower bound on epsilon:", number(self.epsilon)),
            ("At delta:", number(self.delta)),
            ("Claimed epsilon:", "none" if self.claimed is None else number(self.claimed)),
            ("Verdict:", self._verdict()),
        ]
        right = [
            ("Runs on either data set:", " and ".join(map(str, dict.fromkeys(self.trials)))),
            ("Of which judged:", " and ".join(map(str, dict.fromkeys(self._judged())))),
            ("False alarm at most:", number(self.false_alarm)),
            ("Largest bound possible:", number(self.ceiling)),
        ]
        if self.delta_bound is not None:
            left.insert(3, ("Lower bound on delta there:", number(self.delta_bound)))
            right.append(("", ""))
        header = [(*one, *two) for one, two in zip(left, right, strict=True)]
        rows = [
            (
                str(event),
                event.favours,
                f"{event.seen}/{event.runs}",
                f"{event.seen_other}/{event.runs_other}",
                number(event.low),
                number(event.high),
                number(event.epsilon),
            )
            for event in self.events
        ]
        names = ("event", "likelier under", "seen", "seen there", "at least", "at most", "epsilon")
        tables = [
            ReportTable(header, title="Privacy Audit", aligns="lrlr", stubs=(0, 2), pairs=True),
            ReportTable(rows, names, title="Judged events", aligns="llrrrrr"),
        ]
        return PrivateSummary(tables, self._notes(), None)

    def plot(self, ax: Axes | None = None) -> tuple[Figure, Axes]:
        """Draw how well the best score tells the two data sets apart, beside what a claim allows.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Drawn into; without it a new figure is made.

        Returns
        -------
        (Figure, Axes)

        Raises
        ------
        ImportError
            If matplotlib is missing.
        """
        from dpstats.audit.plots import trade_off

        return trade_off(self, ax)

    def _judged(self) -> tuple[int, int]:
        runs = self.best.runs, self.best.runs_other
        return runs if self.best.favours == "data" else runs[::-1]

    def _verdict(self) -> str:
        return {None: "no claim made", True: "not refuted", False: "REFUTED"}[self.passed]

    def _notes(self) -> tuple[str, ...]:
        level = number(self.false_alarm / (2.0 * len(self.events)))
        seen = (
            "Each event was chosen on other runs than those counted. 'at least' and 'at most' are "
            f"Clopper-Pearson limits at {level} each; epsilon is log((at least - delta) / at most)."
        )
        proves = (
            "A lower bound can refute a claim and never prove one: another pair of data sets, "
            "another event or more runs may give a higher one."
        )
        notes = [seen, proves]
        if self.claimed is not None and self.ceiling <= self.claimed:
            notes.append(
                "So few runs could not have refuted the claim whatever the fault: run more."
            )
        if self.pair is not None:
            notes.append(
                f"Pair {self.pair} of {len(self.pilot)} was chosen in a pilot and judged on fresh "
                "runs."
            )
        return tuple(notes)

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        claim = "" if self.claimed is None else f"; claimed {number(self.claimed)}"
        return (
            f"<AuditResult: epsilon >= {number(self.epsilon)} at delta = {number(self.delta)}"
            f"{claim}: {self._verdict()}>"
        )

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def largest_epsilon(events: tuple[Event, ...]) -> float:
    """Return the bound on epsilon of the best event; no bound is below 0."""
    return max(0.0, max(event.epsilon for event in events))


def largest_delta(events: tuple[Event, ...]) -> float | None:
    """Return the bound on delta of the best event; None without a claim."""
    found = [event.delta for event in events if not math.isnan(event.delta)]
    return max(found) if found else None
