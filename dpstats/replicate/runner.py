"""Run an experiment: what is left of its trials, in parallel, each chunk kept when it is done."""

from __future__ import annotations

import math
import os
import platform
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import dpstats
from dpstats.calls import check_count
from dpstats.errors import DPStatsError, PrivacyWarning, UtilityWarning
from dpstats.replicate.experiment import cell_key, stream
from dpstats.replicate.published import ShippedFailure
from dpstats.replicate.registry import EXPERIMENTS, find
from dpstats.replicate.result import Replication
from dpstats.replicate.store import Chunk, TrialStore, code_version
from dpstats.replicate.tables import error_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from dpstats.replicate.experiment import Experiment


__all__ = ["SEED", "run"]

SEED = 2026
# trials of one group of cells that are kept, or lost, together
_CHUNK = 10


def run(
    name: str,
    trials: int = 500,
    jobs: int = 1,
    out: str | PathLike[str] | None = None,
    progress: bool = True,
    *,
    seed: int = SEED,
) -> Replication:
    """Redo one published table or figure, with the published code and with the corrected one.

    Parameters
    ----------
    name : str
        One of `names`.
    trials : int
        Simulated samples a cell (for real data: draws of the noise). The source used 500.
    jobs : int
        Processes. More than one needs joblib (``dpstats[replicate]``). The numbers do not depend
        on it.
    out : path, optional
        Folder for the finished trials, the table and the figure. An interrupted run goes on where
        it stopped, and more trials are added to those there are. None keeps nothing.
    progress : bool
        Show a progress bar, where tqdm is installed.
    seed : int
        Of everything random.

    Returns
    -------
    Replication
        With `table`, `plot()` and `conclusion()`.

    Raises
    ------
    DPStatsError
        An unknown name, or numbers of trials or jobs that are none.
    ImportError
        If `jobs` is larger than 1 and joblib is missing, or a data set is.

    Notes
    -----
    Each trial has streams of its own, keyed by seed, experiment, cell, method and number. They are
    reproducible, so nothing here is private: samples are simulated, or public teaching data. Trials
    made by other code (a fingerprint of the sources), or with another seed, are set aside.

    Examples
    --------
    >>> import dpstats as dp
    >>> found = dp.replicate.run("unbalanced", trials=2, progress=False)
    >>> found.table["method"].nunique() >= 6
    True
    >>> list(found.conclusion().columns)
    ['claim', 'origin', 'arm', 'verdict', 'evidence']
    """
    experiment = find(name)
    check_count("trials", trials, "a positive integer")
    check_count("jobs", jobs, "a positive integer")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise DPStatsError(f"`seed` must be an integer of at least 0; got {seed!r}")
    owner = experiment if experiment.trials_of is None else EXPERIMENTS[experiment.trials_of]
    folder = None if out is None else Path(out)
    ready = [method.label for method in owner.available()]
    header = {"experiment": owner.name, "seed": int(seed), "code": code_version(), "methods": ready}
    path = None if folder is None else folder / f"{owner.name}.trials.jsonl"
    store = TrialStore.open(path, header)
    groups = [key for key, _ in owner.groups()]
    work = [(owner.name, seed, *unit) for unit in store.missing(groups, trials, _CHUNK)]
    total = trials * len(groups)
    with _Progress(progress, total, total - sum(w[4] - w[3] for w in work), owner.name) as advance:
        for chunk in _chunks(work, jobs):
            store.add(chunk)
            advance(len(chunk.trials))
    table = (experiment.tabulate or error_table)(experiment, store.trials(trials))
    skipped = tuple(method.label for method in experiment.skipped())
    result = Replication(
        experiment,
        table,
        _metadata(experiment, trials, int(seed), store),
        skipped,
        store.failures(),
    )
    if folder is not None:
        result.save(folder)
    return result


def simulate_chunk(name: str, seed: int, group: str, first: int, stop: int) -> Chunk:
    """Run trials `first` to `stop` - 1 of one group of cells."""
    experiment = find(name)
    cells = dict(experiment.groups())[group]
    methods = experiment.available()
    errors: dict[str, dict[str, list[float]]] = {}
    sizes: dict[str, dict[str, list[float]]] = {}
    failures: dict[str, dict[str, str]] = {}
    start = time.process_time()
    for trial in range(first, stop):
        sample = experiment.sample(cells[0], stream(seed, trial, name, group))
        for cell in cells:
            key = cell_key(cell)
            for method in methods:
                if method.where is not None and not method.where(cell):
                    continue
                rng = stream(seed, trial, name, key, method.label)
                error = size = math.nan
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", PrivacyWarning)
                        warnings.simplefilter("ignore", UtilityWarning)
                        error, size = sample.score(method.run(sample, cell, rng))
                except (ShippedFailure, DPStatsError) as refusal:
                    # counted in the table: a method that fails is part of the answer
                    failures.setdefault(key, {}).setdefault(method.label, str(refusal))
                errors.setdefault(key, {}).setdefault(method.label, []).append(error)
                sizes.setdefault(key, {}).setdefault(method.label, []).append(size)
    return Chunk(group, first, errors, sizes, failures, time.process_time() - start)


def _chunks(work: list[tuple[str, int, str, int, int]], jobs: int) -> Iterator[Chunk]:
    """Yield chunks as they are done."""
    if jobs == 1 or len(work) < 2:
        for unit in work:
            yield simulate_chunk(*unit)
        return
    try:
        import joblib
    except ImportError as error:
        raise ImportError(
            '`jobs` above 1 needs joblib, which is not installed: pip install "dpstats[replicate]"'
        ) from error
    # one thread a process: small matrices gain nothing from more
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
        try:
            yield from parallel(joblib.delayed(simulate_chunk)(*unit) for unit in work)
        except BaseException:
            # after an interruption nobody waits for what the processes are still doing
            joblib.externals.loky.get_reusable_executor().shutdown(wait=False, kill_workers=True)
            raise


class _Progress:
    """A progress bar as a context, which hands out the function that moves it."""

    def __init__(self, wanted: bool, total: int, done: int, name: str) -> None:
        self.bar: Any = None
        if not wanted:
            return
        try:
            from tqdm import tqdm
        except ImportError:
            print(f"{name}: {total - done} trials", file=sys.stderr)
            return
        self.bar = tqdm(total=total, initial=done, desc=name, unit="trial", file=sys.stderr)

    def __enter__(self) -> Callable[[int], object]:
        return (lambda steps: None) if self.bar is None else self.bar.update

    def __exit__(self, *problem: object) -> None:
        if self.bar is not None:
            self.bar.close()


def _metadata(experiment: Experiment, trials: int, seed: int, store: TrialStore) -> dict[str, str]:
    packages = ("numpy", "scipy", "pandas")
    return {
        "rmse": f"{experiment.average} of the errors' sizes",
        "trials": str(trials),
        "seed": str(seed),
        "dpstats": dpstats.__version__,
        "code": str(store.header["code"]),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "seconds": f"{store.seconds():.0f}",
    }
