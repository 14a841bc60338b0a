"""The file behind a ledger: one SQLite database, one short connection a step.

Notes
-----
A connection lives for one step only and no other step of this process runs meanwhile, so that none
is ever shared by threads or inherited by a fork. A charge is read, decided and written inside one
``BEGIN IMMEDIATE`` transaction: SQLite lets one writer in at a time, over all processes. It returns
after the commit was synchronised to disk (``synchronous=EXTRA``: ``FULL``, and the folder too, so
that a finished commit cannot be rolled back by a power failure).

References
----------
SQLite: atomic commit, https://www.sqlite.org/atomiccommit.html; file locking,
https://www.sqlite.org/lockingv3.html.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dpstats.errors import DPStatsError
from dpstats.passed import passed

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MEMORY", "Store"]

MEMORY = ":memory:"

_APPLICATION = 0x64705374  # "dpSt", in the header of the file
_VERSION = 1
_PATIENCE = 30.0  # seconds to wait for other writers

# a charge can be added, never changed or taken back; sums are whole numbers too large for INTEGER
_SCHEMA = (
    """CREATE TABLE datasets (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,
        epsilon REAL NOT NULL, delta REAL NOT NULL, protects TEXT NOT NULL,
        spent_epsilon TEXT NOT NULL DEFAULT '0', spent_delta TEXT NOT NULL DEFAULT '0',
        charges INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE charges (
        id INTEGER PRIMARY KEY AUTOINCREMENT, dataset INTEGER NOT NULL REFERENCES datasets (id),
        time TEXT NOT NULL, call TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL)""",
    """CREATE TABLE releases (
        charge INTEGER PRIMARY KEY REFERENCES charges (id), records TEXT NOT NULL)""",
    *(
        f"""CREATE TRIGGER {table}_{verb} BEFORE {verb} {columns} ON {table}
        BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END"""
        for table, verb, columns in (
            ("charges", "update", ""),
            ("charges", "delete", ""),
            ("releases", "update", ""),
            ("releases", "delete", ""),
            ("datasets", "update", "OF id, name, epsilon, delta, protects"),
            ("datasets", "delete", ""),
        )
    ),
)

# what SQLite says, and what it means here
_MEANINGS = {
    "readonly": "the file or its folder is read-only",
    "disk is full": "the disk is full",
    "disk i/o": "the disk failed or is full",
    "unable to open": "the file or its folder cannot be opened for this",
    "locked": f"another program kept the file locked for {_PATIENCE:.0f} seconds",
    "not a database": "the file is no SQLite database",
    "malformed": "the file is damaged",
}

_LOCK = threading.RLock()

if hasattr(os, "register_at_fork"):
    # no connection is open while a process forks, so SQLite's state is clean in the child
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
    )


class Store:
    """A ledger's database, in a file or in memory.

    Parameters
    ----------
    path : str or path-like
        A file, made where `create`, or ``":memory:"``.
    create : bool
        Whether the file may be made.

    Raises
    ------
    DPStatsError
        If the file does not exist or is not a ledger.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool) -> None:
        self.path: Path | None = None
        self._memory: sqlite3.Connection | None = None
        self._process = os.getpid()
        if path == MEMORY:
            if not create:
                raise DPStatsError("`eps` must be given: a ledger in memory cannot be reopened")
            self._memory = sqlite3.connect(MEMORY, check_same_thread=False, isolation_level=None)
            fresh = True
        else:
            self.path = _absolute(path)
            fresh = _is_fresh(self.path) or not self._holds_ledger()
            if fresh and not create:
                raise DPStatsError(
                    f"`path` must be a ledger, or `eps` be given to make one; got {self.path}"
                )
        if fresh:
            self._create()
            with self.read():
                # another process may have made another kind of file
                pass

    def _holds_ledger(self) -> bool:
        """Whether the file holds a ledger, or nothing: its maker was killed and all was undone."""
        with self._open("read", "BEGIN") as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            if application == 0 and _tables(connection) == 0:
                return False
            _check_identity(connection, self.path)
            return True

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Open one consistent view of the ledger."""
        with self._open("read", "BEGIN") as connection:
            _check_identity(connection, self.path)
            yield connection

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Open the ledger alone; committed and on disk on return, undone after an exception."""
        with self._open("written", "BEGIN IMMEDIATE") as connection:
            _check_identity(connection, self.path)
            yield connection

    def _create(self) -> None:
        with self._open("made", "BEGIN IMMEDIATE", "rwc") as connection:
            # another process may have been first
            if not _tables(connection):
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                connection.execute(f"PRAGMA user_version = {_VERSION}")

    @contextmanager
    def _open(self, step: str, begin: str, mode: str = "rw") -> Iterator[sqlite3.Connection]:
        with _LOCK, _explained(step, self.path):
            connection = self._connect(mode)
            try:
                connection.execute(begin)
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    # a commit that failed may have ended the transaction itself
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            finally:
                if connection is not self._memory:
                    connection.close()

    def _connect(self, mode: str) -> sqlite3.Connection:
        if self._memory is not None:
            if os.getpid() != self._process:
                raise DPStatsError(
                    "`ledger` in memory belongs to the process that made it: its budget would be "
                    "spent twice; use a file"
                )
            return self._memory
        if self.path is None:
            raise DPStatsError("`ledger` has no file")
        # mode=rw: a file that has been removed is an error, never a fresh budget
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}", uri=True, timeout=_PATIENCE, isolation_level=None
        )
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")
        return connection


def _absolute(path: object) -> Path:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise DPStatsError(f"`path` must be the name of a file or ':memory:'; got {passed(path)}")
    text = os.fspath(path)
    if not isinstance(text, str) or "\0" in text:
        raise DPStatsError(f"`path` must be the name of a file or ':memory:'; got {passed(path)}")
    return Path(os.path.abspath(Path(text).expanduser()))


def _is_fresh(path: Path) -> bool:
    """Whether there is no file, or an empty one (left by a process killed while making it)."""
    if not path.parent.is_dir():
        raise DPStatsError(f"`path` must lie in a folder that exists; got {path}")
    if path.exists() and not path.is_file():
        raise DPStatsError(f"`path` must be a file; got {path}")
    try:
        return not path.exists() or path.stat().st_size == 0
    except OSError as error:
        raise DPStatsError(f"`path` cannot be read ({error.strerror}); got {path}") from error


def _tables(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(count)


def _check_identity(connection: sqlite3.Connection, path: Path | None) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise DPStatsError(f"`path` must be a ledger of dpstats; {path} is another kind of file")
    if version != _VERSION:
        raise DPStatsError(f"`path` was made by another version of dpstats ({version}); got {path}")


@contextmanager
def _explained(step: str, path: Path | None) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        meaning = next((v for k, v in _MEANINGS.items() if k in text.lower()), "unexpected")
        raise DPStatsError(
            f"`ledger` could not be {step}: {meaning} (SQLite: {text}); nothing was computed; "
            f"file {path or MEMORY}"
        ) from error
