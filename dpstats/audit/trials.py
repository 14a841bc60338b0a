"""Runs of a release on several data sets, one stream of random numbers a run."""

from __future__ import annotations

import inspect
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
)
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from dpstats.audit.bounds import FloatArray
from dpstats.errors import DPStatsError, PrivacyWarning, UtilityWarning

__all__ = ["Runs", "entropy_of", "run_trials", "stream"]

Entropy: TypeAlias = "tuple[int, ...]"
Key: TypeAlias = "tuple[int, ...]"
Passing: TypeAlias = Literal["data", "second", "rng"]
# text, category, file and line
_Warned: TypeAlias = "tuple[str, type[Warning], str, int]"
_Done: TypeAlias = "tuple[int, list[FloatArray], list[_Warned]]"

_Any = TypeVar("_Any")

_LARGEST_BATCH = 500


@dataclass(frozen=True, slots=True)
class Runs:
    """A data set, how often to run on it, and the key of its streams."""

    data: Any
    trials: int
    key: Key


def entropy_of(rng: Any) -> Entropy:
    """Return 256 bits that fix all streams; of the operating system where `rng` is None."""
    try:
        drawn = np.random.default_rng(rng).integers(2**63, size=4)
    except (TypeError, ValueError):
        raise DPStatsError(
            "`rng` must be None, an integer seed or a numpy.random.Generator; "
            f"got {type(rng).__name__}"
        ) from None
    return tuple(int(word) for word in drawn)


def stream(entropy: Entropy, key: Key, trial: int) -> np.random.Generator:
    """Return the generator of one run."""
    return np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(*key, trial)))


def run_trials(
    release: Callable[..., Any],
    wanted: Sequence[Runs],
    entropy: Entropy,
    *,
    jobs: int,
    progress: bool,
    label: str,
) -> list[FloatArray]:
    """Run a release; return one array of shape (trials, numbers) for each of `wanted`.

    What is returned does not depend on `jobs`, provided that the release draws from its generator.
    """
    passing = _passing(release)
    size = max(1, min(_LARGEST_BATCH, sum(runs.trials for runs in wanted) // (8 * jobs) or 1))
    places = [
        (place, start, min(start + size, runs.trials))
        for place, runs in enumerate(wanted)
        for start in range(0, runs.trials, size)
    ]
    batches = [
        _Batch(release, wanted[place].data, passing, entropy, wanted[place].key, start, stop)
        for place, start, stop in places
    ]
    found: dict[int, list[FloatArray]] = {}
    warned: dict[_Warned, None] = {}
    with _bar(sum(runs.trials for runs in wanted), progress, label) as bar:
        for number, rows, told in _run(batches, jobs):
            found[number] = rows
            warned.update(dict.fromkeys(told))
            bar.update(len(rows))
    for text, category, file, line in warned:
        warnings.warn_explicit(text, category, file, line)
    return _stacked(places, [found[number] for number in range(len(batches))], len(wanted))


@dataclass(frozen=True, slots=True)
class _Batch:
    release: Callable[..., Any]
    data: Any
    passing: Passing
    entropy: Entropy
    key: Key
    start: int
    stop: int

    def __call__(self) -> tuple[list[FloatArray], list[_Warned]]:
        """Run, and return what was warned of beside privacy and utility, once each."""
        with _listening() as heard:
            rows = self.rows()
        return rows, _distinct(heard)

    def rows(self) -> list[FloatArray]:
        """Run."""
        return [_numbers(self._once(trial)) for trial in range(self.start, self.stop)]

    def _once(self, trial: int) -> Any:
        if self.passing == "data":
            return self.release(self.data)
        rng = stream(self.entropy, self.key, trial)
        if self.passing == "rng":
            return self.release(self.data, rng=rng)
        return self.release(self.data, rng)


@contextmanager
def _listening() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as heard:
        # thousands of runs would repeat what one of them says
        warnings.simplefilter("ignore", PrivacyWarning)
        warnings.simplefilter("ignore", UtilityWarning)
        yield heard


def _distinct(heard: Iterable[warnings.WarningMessage]) -> list[_Warned]:
    found = ((str(w.message), w.category, w.filename, w.lineno) for w in heard)
    return list(dict.fromkeys(found))


def _passing(release: Callable[..., Any]) -> Passing:
    """Return how a release takes its generator, if it takes one."""
    if not callable(release):
        raise DPStatsError(f"`release` must be a function; got {type(release).__name__}")
    try:
        parameters = list(inspect.signature(release).parameters.values())
    except (TypeError, ValueError):
        return "data"
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p for p in parameters if p.name == "rng" and p.kind is not p.POSITIONAL_ONLY]
    if named and named[0] not in positional[:1]:
        return "rng"
    if len(positional) > 1 and positional[1].default is inspect.Parameter.empty:
        return "second"
    return "data"


def _numbers(value: Any) -> FloatArray:
    # raised outside the handler: numpy's error, which shows the value, is not to hang on it
    with suppress(TypeError, ValueError):
        return np.asarray(value, dtype=np.float64).ravel()
    raise DPStatsError(
        f"`release` must return a number or an array of numbers; got {type(value).__name__}"
    )


def _stacked(
    places: Sequence[tuple[int, int, int]], found: Sequence[list[FloatArray]], count: int
) -> list[FloatArray]:
    rows: list[list[FloatArray]] = [[] for _ in range(count)]
    for (place, _, _), part in zip(places, found, strict=True):
        rows[place] += part
    sizes = sorted({row.size for part in rows for row in part})
    if len(sizes) != 1 or sizes[0] == 0:
        raise DPStatsError(
            "`release` must return the same number of numbers, at least one, on every run; got "
            + " and ".join(map(str, sizes[:2]))
        )
    return [np.array(part) for part in rows]


def _run(batches: Sequence[_Batch], jobs: int) -> Iterator[_Done]:
    if jobs == 1:
        for number, batch in enumerate(batches):
            yield (number, *batch())
        return
    try:
        from joblib import Parallel, delayed
    except ImportError:
        if _can_be_sent(batches[0]):
            yield from _in_processes(batches, jobs)
        else:
            yield from _in_threads(batches, jobs)
        return
    try:
        # its own pickling knows closures and functions of a notebook
        done = Parallel(n_jobs=jobs, return_as="generator")(delayed(batch)() for batch in batches)
        for number, (rows, told) in enumerate(done):
            yield number, rows, told
    except pickle.PicklingError:
        yield from _in_threads(batches, jobs)


def _can_be_sent(batch: _Batch) -> bool:
    """Whether a process that was started afresh can be given the release."""
    if getattr(batch.release, "__module__", "__main__") == "__main__":
        return False
    try:
        pickle.dumps(batch)
    except Exception:
        return False
    return True


def _in_processes(batches: Sequence[_Batch], jobs: int) -> Iterator[_Done]:
    # not forked: a fork would copy numpy's global generator into every worker
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(batch): number for number, batch in enumerate(batches)}
        for future in _completed(pool, futures):
            yield (futures[future], *future.result())


def _in_threads(batches: Sequence[_Batch], jobs: int) -> Iterator[_Done]:
    # threads share their filters of warnings
    with _listening() as heard, ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(batch.rows): number for number, batch in enumerate(batches)}
        for future in _completed(pool, futures):
            yield futures[future], future.result(), _distinct(heard)


def _completed(pool: Executor, futures: Iterable[Future[_Any]]) -> Iterator[Future[_Any]]:
    try:
        for future in as_completed(futures):
            future.result()
            yield future
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise


class _NoBar:
    """Stands in for a progress bar."""

    def __enter__(self) -> _NoBar:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, _: int) -> None:
        pass


def _bar(total: int, progress: bool, label: str) -> Any:
    if not progress:
        return _NoBar()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _NoBar()
    return tqdm(total=total, desc=label, unit="run", leave=False)
