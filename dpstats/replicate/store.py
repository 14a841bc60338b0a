"""Finished trials on disk: one line of JSON a chunk, so that an interruption loses none.

A line is written whole in one call. What an interruption may leave is a torn last line, which is
cut off on opening. The first line says which experiment, seed and version of the code the trials
are of; trials of anything else are set aside as ``*.bak`` and everything starts anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy

import dpstats
from dpstats.replicate.experiment import Trials

__all__ = ["Chunk", "TrialStore", "code_version"]

_FORMAT = 1
# what cannot change a number: output, storage of results, the ledger's words
_SILENT = (
    "audit/",
    "cli/",
    "demo",
    "planning",
    "report/",
    "replicate/__",
    "replicate/claims",
    "replicate/figures",
    "replicate/result",
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive trials of one group of cells.

    Attributes
    ----------
    group : str
    first : int
        Number of the first trial.
    errors, sizes : dict
        By cell and method, one value a trial.
    failures : dict
        First error message by cell and method, where a method gave no estimate.
    seconds : float
        Processor time.
    """

    group: str
    first: int
    errors: dict[str, dict[str, list[float]]]
    sizes: dict[str, dict[str, list[float]]]
    failures: dict[str, dict[str, str]]
    seconds: float

    @property
    def trials(self) -> range:
        """Numbers of the trials."""
        some = next(iter(next(iter(self.errors.values())).values()))
        return range(self.first, self.first + len(some))

    def line(self) -> bytes:
        """Return the chunk as one line."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return json.dumps(fields).encode() + b"\n"


@lru_cache(maxsize=1)
def code_version() -> str:
    """Return a fingerprint of the code that makes the numbers, and of numpy and scipy."""
    root = Path(dpstats.__file__).parent
    digest = hashlib.sha256(f"{dpstats.__version__} {np.__version__} {scipy.__version__}".encode())
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not name.startswith(_SILENT):
            digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass
class TrialStore:
    """Chunks of one experiment, in a file or in memory.

    Attributes
    ----------
    path : Path or None
        None keeps them in memory only.
    header : dict
        What the trials are of.
    chunks : list of Chunk
    """

    path: Path | None
    header: dict[str, Any]
    chunks: list[Chunk] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path | None, header: dict[str, Any]) -> TrialStore:
        """Read what there is, or begin anew where it is of other code or another seed."""
        header = {"format": _FORMAT, **header}
        store = cls(path, header)
        if path is None:
            return store
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if lines and _parsed(lines[0]) != header:
            os.replace(path, path.with_name(path.name + ".bak"))
            lines = []
        if not lines:
            _write(path, json.dumps(header).encode() + b"\n")
            return store
        whole = len(lines[0])
        for line in lines[1:]:
            fields = _parsed(line)
            if fields is None:
                break
            store.chunks.append(Chunk(**fields))
            whole += len(line)
        os.truncate(path, whole)
        return store

    def add(self, chunk: Chunk) -> None:
        """Keep a finished chunk, on disk before this returns."""
        if self.path is not None:
            _write(self.path, chunk.line())
        self.chunks.append(chunk)

    def missing(self, groups: list[str], trials: int, size: int) -> list[tuple[str, int, int]]:
        """Return (group, first, stop) of what is left to do, at most `size` trials each."""
        done: dict[str, set[int]] = {group: set() for group in groups}
        for chunk in self.chunks:
            done.setdefault(chunk.group, set()).update(chunk.trials)
        work = []
        for group in groups:
            first = 0
            while first < trials:
                if first in done[group]:
                    first += 1
                    continue
                stop = first + 1
                while stop < min(first + size, trials) and stop not in done[group]:
                    stop += 1
                work.append((group, first, stop))
                first = stop
        return work

    def trials(self, trials: int) -> Trials:
        """Return errors and sizes of trials 0, 1, ..., by cell and method."""
        found: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
        for chunk in self.chunks:
            numbers = [i for i in chunk.trials if i < trials]
            for cell, methods in chunk.errors.items():
                for method, errors in methods.items():
                    if (cell, method) not in found:
                        found[cell, method] = (np.full(trials, math.nan), np.full(trials, math.nan))
                    for k, kept in enumerate((errors, chunk.sizes[cell][method])):
                        found[cell, method][k][numbers] = kept[: len(numbers)]
        return found

    def failures(self) -> dict[str, str]:
        """Return one message a method that gave no estimate somewhere."""
        found: dict[str, str] = {}
        for chunk in self.chunks:
            for cell, messages in chunk.failures.items():
                for method, message in messages.items():
                    found.setdefault(method, f"{cell}: {message}")
        return found

    def seconds(self) -> float:
        """Return the processor time of all chunks."""
        return math.fsum(chunk.seconds for chunk in self.chunks)


def _write(path: Path, line: bytes) -> None:
    # on the disk before anybody counts it as done
    with path.open("ab", buffering=0) as file:
        file.write(line)
        os.fsync(file.fileno())


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return a line's fields; None for a torn one."""
    if not line.endswith(b"\n"):
        return None
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None
