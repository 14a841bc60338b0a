"""The audits: draw runs, learn scores, choose events, judge them on runs that were kept apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpstats.audit.bounds import (
    FloatArray,
    Gain,
    best_cuts,
    clopper_pearson,
    delta_from,
    epsilon_from,
)
from dpstats.audit.results import AuditResult, Event, Which, largest_delta, largest_epsilon
from dpstats.audit.scores import Score, fit_scores
from dpstats.audit.trials import Runs, entropy_of, run_trials
from dpstats.errors import DPStatsError
from dpstats.passed import passed
from dpstats.simulate.checks import whole

__all__ = ["from_samples", "lower_bound", "neighbours", "search"]

# a fifth of the runs to learn scores, three tenths to choose events, half to judge them
_LEARN, _CHOOSE = 0.2, 0.3
_LEAST = 40
# a pilot ranks, it does not claim: its limits may be wrong more often
_PILOT_LEVEL = 0.1
_JUDGED, _PILOT = 0, 1
_CURVE = 300


def lower_bound(
    release: Callable[..., Any],
    data: Any,
    neighbour: Any,
    *,
    eps: float | None = None,
    delta: float = 0.0,
    trials: int = 10_000,
    false_alarm: float = 0.05,
    bits: bool = False,
    jobs: int = 1,
    progress: bool = True,
    rng: Any = None,
) -> AuditResult:
    r"""Bound the epsilon of a release from below, by running it on two neighbouring data sets.

    Parameters
    ----------
    release : callable
        ``release(data)`` or ``release(data, rng)``: draws noise anew and returns what it would
        publish, a number or an array of numbers of the same size on every call. A parameter called
        ``rng``, or a second required one, gets a `numpy.random.Generator` of its own in each run;
        otherwise the release finds its own randomness. It must not change `data`.
    data, neighbour : object
        Two data sets that the privacy claim calls neighbours. Use made-up ones: thousands of runs
        on confidential data are thousands of releases.
    eps : float, optional
        The epsilon that is claimed. Nothing but the verdict and a bound on delta depends on it.
    delta : float
        The delta that is claimed, in [0, 1).
    trials : int
        Runs on each of the two, at least 40.
    false_alarm : float
        Probability with which any bound of the result may be too high, in (0, 0.5].
    bits : bool
        Look at the last bits of the numbers too, where noise drawn in floating point leaks
        whatever its scale: `numpy`'s samplers fail this at any epsilon, those of `dp_ate` pass.
    jobs : int
        Runs at a time. joblib's processes where it is installed (any function will do), else
        processes for a function that can be pickled, else threads.
    progress : bool
        Show a bar, where tqdm is installed.
    rng : None, int or Generator
        Fixes the streams; result.rng gives the one of any run.

    Returns
    -------
    AuditResult

    Raises
    ------
    DPStatsError
        If an argument breaks a rule, or runs differ in how many numbers they return. An error of
        `release` itself goes through.

    See Also
    --------
    search : looks for the pair of neighbours that tells most.
    from_samples : for runs that were drawn elsewhere.

    Notes
    -----
    A release is (epsilon, delta)-private if P(M(D) in S) <= exp(epsilon) P(M(D') in S) + delta for
    all neighbours and all sets S, so each S with a probability of at least `low` on one and at most
    `high` on the other shows that epsilon >= log((low - delta) / high), and that
    delta >= low - exp(epsilon) high. Scores are learned on a fifth of the runs
    (`dpstats.audit.scores`), events score >= cut or score <= cut are chosen on the next three
    tenths, for both directions (and, with `eps`, for each of the two bounds), and judged on the
    other half by Clopper-Pearson limits at false_alarm / (2 events) each.

    A statistic of your own, such as the log likelihood ratio of the noise at what you know of both
    data sets, is one more number for `release` to return: it is looked at beside the others.

    `PrivacyWarning` and `UtilityWarning` are silenced inside the runs, nowhere else. A release that
    draws from numpy's global generator should take `rng` instead: processes may share its state.

    References
    ----------
    Ding, Z. et al. (2018), doi:10.1145/3243734.3243818. Jagielski, M., Ullman, J. and Oprea, A.
    (2020), arXiv:2006.07709. Mironov, I. (2012), doi:10.1145/2382196.2382264 (the lowest bits).

    Examples
    --------
    A count with Laplace noise of scale 1 is private at eps = 1, at half the scale it is not:

    >>> from dpstats import audit
    >>> def noisy_count(data, rng, scale=1.0):
    ...     return sum(data) + rng.laplace(scale=scale)
    >>> found = audit.lower_bound(noisy_count, [1, 0, 1], [1, 0, 0], eps=1, rng=1, progress=False)
    >>> found.passed, 0.8 < found.epsilon <= 1
    (True, True)
    >>> def halved(data, rng):
    ...     return noisy_count(data, rng, scale=0.5)
    >>> audit.lower_bound(halved, [1, 0, 1], [1, 0, 0], eps=1, rng=1, progress=False).passed
    False
    """
    claim = _Claim.checked(eps, delta, false_alarm, bits)
    count = whole("trials", trials, _LEAST)
    entropy = entropy_of(rng)
    first, second = run_trials(
        release,
        [Runs(data, count, (_JUDGED, 0)), Runs(neighbour, count, (_JUDGED, 1))],
        entropy,
        jobs=whole("jobs", jobs, 1),
        progress=progress,
        label="audit",
    )
    return replace(_audit(first, second, claim), entropy=entropy, _key=(_JUDGED,))


def search(
    release: Callable[..., Any],
    candidates: Iterable[tuple[Any, Any]],
    *,
    eps: float | None = None,
    delta: float = 0.0,
    trials: int = 10_000,
    pilot: int = 1000,
    false_alarm: float = 0.05,
    bits: bool = False,
    jobs: int = 1,
    progress: bool = True,
    rng: Any = None,
) -> AuditResult:
    """Find the pair of neighbours that tells most in a pilot, then audit it on fresh runs.

    Parameters
    ----------
    release : callable
        As for `lower_bound`.
    candidates : iterable of (data, neighbour)
        Pairs of data sets, for example of `neighbours`.
    eps, delta, trials, false_alarm, bits, jobs, progress, rng
        As for `lower_bound`. The pilot costs no false alarm, since its runs are not judged.
    pilot : int
        Runs on each data set of each pair, at least 40.

    Returns
    -------
    AuditResult
        With `pair`, the number of the pair that was judged (from 0), and `pilot`.

    Raises
    ------
    DPStatsError
        As for `lower_bound`, or if there is no candidate.

    Examples
    --------
    >>> import numpy as np
    >>> from dpstats import audit
    >>> def noisy_mean(data, rng):  # clipped to [0, 1], as its noise supposes
    ...     return np.clip(data, 0, 1).mean() + rng.laplace(scale=1 / len(data))
    >>> pairs = audit.neighbours(np.array([0.1, 0.5]), [0.2, 0.0, 7.0])
    >>> found = audit.search(noisy_mean, pairs, eps=1, trials=2000, pilot=500, rng=1,
    ...                      progress=False)
    >>> found.pair in (2, 4, 5), found.passed  # those with 7.0 on one side
    (True, True)
    """
    claim = _Claim.checked(eps, delta, false_alarm, bits)
    count, tries = whole("trials", trials, _LEAST), whole("pilot", pilot, _LEAST)
    workers = whole("jobs", jobs, 1)
    pairs = [_pair(candidate) for candidate in candidates]
    if not pairs:
        raise DPStatsError("`candidates` must hold at least one pair of data sets; got none")
    entropy = entropy_of(rng)
    run = partial(run_trials, release, entropy=entropy, jobs=workers, progress=progress)
    wanted = [
        Runs(own, tries, (_PILOT, number, side))
        for number, pair in enumerate(pairs)
        for side, own in enumerate(pair)
    ]
    drawn = run(wanted, label="pilot")
    worth = [
        _worth(first, second, claim) for first, second in zip(drawn[::2], drawn[1::2], strict=True)
    ]
    chosen = max(range(len(pairs)), key=worth.__getitem__)
    data, neighbour = pairs[chosen]
    first, second = run(
        [Runs(data, count, (_JUDGED, 0)), Runs(neighbour, count, (_JUDGED, 1))], label="audit"
    )
    return replace(
        _audit(first, second, claim),
        entropy=entropy,
        _key=(_JUDGED,),
        pair=chosen,
        pilot=tuple(max(0.0, value) for value, _ in worth),
    )


def from_samples(
    first: Any,
    second: Any,
    *,
    eps: float | None = None,
    delta: float = 0.0,
    false_alarm: float = 0.05,
    bits: bool = False,
    learn: bool = True,
) -> AuditResult:
    """Bound epsilon from below, from runs that were drawn elsewhere.

    Parameters
    ----------
    first, second : array_like
        Independent runs on the two data sets, one a row: shape (runs,) or (runs, numbers), at
        least 40 runs each.
    eps, delta, false_alarm, bits
        As for `lower_bound`.
    learn : bool
        False: the numbers are scores already, such as a log likelihood ratio, and are compared
        with thresholds as they are. Half of the runs choose them then, instead of three tenths.

    Returns
    -------
    AuditResult

    Raises
    ------
    DPStatsError
        If an argument breaks a rule.

    Examples
    --------
    >>> import numpy as np
    >>> from dpstats import audit
    >>> rng = np.random.default_rng(1)
    >>> first, second = 1 + rng.laplace(size=20_000), rng.laplace(size=20_000)
    >>> 0.8 < audit.from_samples(first, second).epsilon <= 1
    True
    """
    claim = _Claim.checked(eps, delta, false_alarm, bits)
    one, two = (_rows(name, runs) for name, runs in (("first", first), ("second", second)))
    if one.shape[1] != two.shape[1]:
        raise DPStatsError(
            "`second` must have as many numbers a run as `first`; got "
            f"{two.shape[1]} and {one.shape[1]}"
        )
    return _audit(one, two, claim, learn=learn)


def neighbours(data: Any, rows: Iterable[Any], *, at: int = 0) -> list[tuple[Any, Any]]:
    """Make pairs of neighbours: a data set with one of its rows replaced by each of several.

    Parameters
    ----------
    data : DataFrame or ndarray
        Never modified. Its own row counts as a candidate too.
    rows : iterable
        What may stand in its place: scalars or arrays, or for a DataFrame mappings of some or all
        of its columns to values (the others keep theirs).
    at : int
        Position of the row that is replaced.

    Returns
    -------
    list of (data, neighbour)
        Each two of the data set and its variants, in a fixed order: first those with `data` itself.

    Raises
    ------
    DPStatsError
        If there is no such row, a column is not there, or `data` is neither.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpstats import audit
    >>> people = pd.DataFrame({"age": [30, 40], "income": [1.0, 2.0]})
    >>> pairs = audit.neighbours(people, [{"income": 9.0}, {"age": 99, "income": 0.0}])
    >>> len(pairs), pairs[0][1].to_dict("list")
    (3, {'age': [30, 40], 'income': [9.0, 2.0]})
    """
    size = len(data) if hasattr(data, "__len__") else 0
    if not -size <= at < size:
        raise DPStatsError(f"`at` must be the position of one of {size} rows; got {passed(at)}")
    variants = [data, *(_replaced(data, row, at) for row in rows)]
    return [(one, two) for place, one in enumerate(variants) for two in variants[place + 1 :]]


@dataclass(frozen=True, slots=True)
class _Claim:
    """Checked numbers of an audit."""

    eps: float | None
    delta: float
    false_alarm: float
    bits: bool

    @classmethod
    def checked(cls, eps: Any, delta: Any, false_alarm: Any, bits: bool) -> _Claim:
        claimed = None if eps is None else _number("eps", eps, "a number of at least 0")
        if claimed is not None and claimed < 0.0:
            raise DPStatsError(f"`eps` must be a number of at least 0; got {passed(eps)}")
        slack = _number("delta", delta, "a number in [0, 1)")
        if not 0.0 <= slack < 1.0:
            raise DPStatsError(f"`delta` must be a number in [0, 1); got {passed(delta)}")
        alarm = _number("false_alarm", false_alarm, "a number in (0, 0.5]")
        if not 0.0 < alarm <= 0.5:
            raise DPStatsError(
                f"`false_alarm` must be a number in (0, 0.5]; got {passed(false_alarm)}"
            )
        return cls(claimed, slack, alarm, bool(bits))

    def gains(self) -> list[Gain]:
        """Return what an event may be chosen for."""
        found: list[Gain] = [partial(epsilon_from, delta=self.delta)]
        if self.eps is not None:
            found.append(partial(delta_from, epsilon=self.eps))
        return found


@dataclass(frozen=True, slots=True)
class _Chosen:
    """An event before it is judged."""

    favours: Which
    score: Score
    side: int
    cut: float

    def judged(self, first: FloatArray, second: FloatArray, level: float, claim: _Claim) -> Event:
        pair = (first, second) if self.favours == "data" else (second, first)
        (seen, runs), (seen_other, runs_other) = (
            (int(np.sum(self.side * self.score(rows) >= self.side * self.cut)), len(rows))
            for rows in pair
        )
        low, _ = clopper_pearson(seen, runs, level)
        _, high = clopper_pearson(seen_other, runs_other, level)
        return Event(
            self.favours,
            self.score.name,
            self.side,
            self.cut,
            seen,
            runs,
            seen_other,
            runs_other,
            float(low),
            float(high),
            float(epsilon_from(low, high, claim.delta)),
            math.nan if claim.eps is None else float(delta_from(low, high, claim.eps)),
        )


def _audit(
    first: FloatArray, second: FloatArray, claim: _Claim, *, learn: bool = True
) -> AuditResult:
    (learn_1, choose_1, judge_1), (learn_2, choose_2, judge_2) = (
        _parts(runs, learn) for runs in (first, second)
    )
    # numbers of any size may be released; what overflows is clipped where it matters
    with np.errstate(all="ignore"):
        scores = (
            fit_scores(learn_1, learn_2, bits=claim.bits) if learn else _as_they_are(first.shape[1])
        )
        chosen = _choose(scores, choose_1, choose_2, claim)
        level = claim.false_alarm / (2.0 * len(chosen))
        events = tuple(event.judged(judge_1, judge_2, level, claim) for event in chosen)
        best = chosen[max(range(len(events)), key=lambda k: events[k].epsilon)]
        curve = _curve(best, judge_1, judge_2)
    return AuditResult(
        largest_epsilon(events),
        claim.delta,
        claim.eps,
        largest_delta(events),
        (len(first), len(second)),
        claim.false_alarm,
        events,
        curve,
    )


def _parts(runs: FloatArray, learn: bool) -> list[FloatArray]:
    """Split runs into those to learn from, to choose by, and to judge."""
    half = len(runs) // 2
    start = round(_LEARN * len(runs)) if learn else 0
    return [runs[:start], runs[start:half], runs[half:]]


def _as_they_are(numbers: int) -> list[Score]:
    def column(j: int) -> Callable[[FloatArray], FloatArray]:
        return lambda runs: runs[:, j]

    return [Score(f"value {j + 1}", column(j)) for j in range(numbers)]


def _choose(
    scores: Sequence[Score], first: FloatArray, second: FloatArray, claim: _Claim
) -> list[_Chosen]:
    """Choose the best event for each direction and each bound."""
    gains = claim.gains()
    # what is chosen depends little on the level, which depends on how many are chosen
    level = claim.false_alarm / (4.0 * len(gains))
    best: dict[tuple[int, Which], tuple[float, _Chosen]] = {}
    for score in scores:
        one, two = score(first), score(second)
        sides: tuple[tuple[Which, FloatArray, FloatArray], ...] = (
            ("data", one, two),
            ("neighbour", two, one),
        )
        for favours, p, q in sides:
            for number, cut in enumerate(best_cuts(p, q, level, gains)):
                key = (number, favours)
                # an event that shows no delta at all is not worth its share of the false alarms
                worthless = number > 0 and cut.value <= 0.0
                if not worthless and (key not in best or cut.value > best[key][0]):
                    best[key] = (cut.value, _Chosen(favours, score, cut.side, cut.at))
    found = {
        (event.favours, event.score.name, event.side, event.cut): event
        for _, event in best.values()
    }
    return list(found.values())


def _worth(first: FloatArray, second: FloatArray, claim: _Claim) -> tuple[float, float]:
    """Return what a pair looks worth in the pilot: a lax bound, then a gap of probabilities."""
    with np.errstate(all="ignore"):
        half = len(first) // 2
        scores = fit_scores(first[:half], second[:half], bits=claim.bits)
        own, other = first[half:], second[half:]
        gains: list[Gain] = [partial(epsilon_from, delta=claim.delta), np.subtract]
        bound = gap = -math.inf
        for score in scores:
            one, two = score(own), score(other)
            for p, q in ((one, two), (two, one)):
                found = best_cuts(p, q, _PILOT_LEVEL, gains)
                bound, gap = max(bound, found[0].value), max(gap, found[1].value)
    return bound, gap


def _curve(chosen: _Chosen, first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return observed shares beyond each threshold: on the other data set, on the favoured one."""
    pair = (first, second) if chosen.favours == "data" else (second, first)
    p, q = (np.sort(chosen.side * chosen.score(rows)) for rows in pair)
    cuts = np.quantile(np.concatenate([p, q]), np.linspace(1.0, 0.0, _CURVE), method="inverted_cdf")
    x, y = (1.0 - np.searchsorted(part, cuts) / part.size for part in (q, p))
    return np.concatenate([[0.0], x]), np.concatenate([[0.0], y])


def _pair(candidate: Any) -> tuple[Any, Any]:
    if not isinstance(candidate, tuple | list) or len(candidate) != 2:
        raise DPStatsError(
            "`candidates` must hold pairs (data, neighbour); got an entry of type "
            f"{type(candidate).__name__}"
        )
    return candidate[0], candidate[1]


def _rows(name: str, runs: Any) -> FloatArray:
    rows = np.asarray(runs, dtype=np.float64)
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2 or len(rows) < _LEAST or rows.shape[1] < 1:
        raise DPStatsError(
            f"`{name}` must have shape (runs,) or (runs, numbers) with at least {_LEAST} runs; got "
            f"shape {np.shape(runs)}"
        )
    return rows


def _replaced(data: Any, row: Any, at: int) -> Any:
    if isinstance(data, np.ndarray):
        changed = data.copy()
        changed[at] = row
        return changed
    if not (hasattr(data, "iloc") and hasattr(data, "columns")):
        raise DPStatsError(
            f"`data` must be a DataFrame or a numpy array; got {type(data).__name__}"
        )
    if not hasattr(row, "items"):
        raise DPStatsError(
            "`rows` must hold mappings of columns to values for a DataFrame; got an entry of type "
            f"{type(row).__name__}"
        )
    changed = data.copy()
    for name, value in row.items():
        if name not in changed.columns:
            raise DPStatsError(f"`rows` must name columns of `data`; {name!r} is none")
        column = changed[name]
        if value not in getattr(column.dtype, "categories", [value]):
            raise DPStatsError(f"`rows` must keep to the declared levels of {name!r}")
        values = column.tolist()
        values[at] = value
        # a whole number gives way to a fraction, declared levels stay
        replaced = type(column)(values, index=column.index, name=name)
        levels = hasattr(column.dtype, "categories")
        changed[name] = replaced.astype(column.dtype) if levels else replaced
    return changed


def _number(name: str, value: Any, rule: str) -> float:
    number = (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, number) or not math.isfinite(value):
        raise DPStatsError(f"`{name}` must be {rule}; got {passed(value)}")
    return float(value)
