"""PrivacyLedger: one budget for everything that is ever computed from a confidential file."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpstats.errors import DPStatsError, PrivacyWarning
from dpstats.passed import passed
from dpstats.privacy.accounting import Relation, check_budget, close_block, open_block
from dpstats.privacy.balance import (
    SELECT,
    Balance,
    Totals,
    check_totals,
    find_balance,
    in_units,
    to_float,
)
from dpstats.privacy.receipts import Receipt, as_dicts, read_records
from dpstats.privacy.store import MEMORY, Store
from dpstats.privacy.tighter import Charges, tighter_epsilon

if TYPE_CHECKING:
    import sqlite3
    from types import TracebackType

    import pandas as pd

__all__ = ["PrivacyLedger"]

# below, rounding errors of the Fourier transform are of the size of delta
_SMALLEST_DELTA = 1e-10
_COLUMNS = ["time", "data", "call", "epsilon", "delta", "releases"]


class PrivacyLedger:
    r"""A privacy budget in a file, shared by notebooks, days and processes.

    Every private call that is given the ledger (``ledger=``, or inside ``with ledger:``) is
    charged before its first noise is drawn, or refused.

    Parameters
    ----------
    path : str or path-like
        A file (SQLite), made if there is none, or ``":memory:"`` for this process only.
    eps : float, optional
        Total of epsilon, positive and finite. May be left out to reopen a ledger.
    delta : float, optional
        Total of delta, in [0, 1). By default 0 where `eps` is given.
    protects : {"row", "unit"}, optional
        What is replaced between neighbouring data sets: one row (``dp_ate``) or one donor unit
        with its whole series (``dp_synth``). By default "row" where `eps` is given.

    Attributes
    ----------
    path : Path or None
        The file, None in memory.
    name : str
        Name of the data set, empty for the unnamed one.
    epsilon, delta : float
        The totals.
    protects : str
        "row" or "unit".

    Raises
    ------
    DPStatsError
        If a total is not a number in its range, if an existing ledger has other totals or
        protects something else, or if the file cannot be used.

    See Also
    --------
    PrivacyLedger.dataset : a named data set with totals of its own.

    Notes
    -----
    **What is protected.** One data set under one relation. The promise is about everything that
    was charged together: whoever sees all of it can change the odds of any guess about one row (or
    unit) by a factor of at most exp(`eps`), but for probability `delta`. A charge is never taken
    back: a call that fails or is killed after its charge has spent it.

    *Groups.* For k rows of one household the factor is exp(k eps), and the probability
    :math:`\delta (e^{k\epsilon} - 1)/(e^\epsilon - 1)`. *Several data sets.* A person who is in
    two of them is protected by the sum of both totals. *Disjoint subsets.* Where a file is cut by
    something public that the replaced row cannot change (the site of a trial, whose numbers of
    rows are published), each part may be a data set of its own, and its rows are protected by the
    total of their part alone. Where the row itself decides its part (sex, income), replacing it
    changes two parts, so the sum of the two counts, and the sizes of the parts become public.

    **Why the plain sum.** An analyst who has seen results chooses the next budget by them. Let the
    steps left cost at most (e, d) on every path. Claim: :math:`P(S) \le e^{e} P'(S) + d` for every
    event S over the rest, for neighbouring data sets. By induction from the end: let the next step
    be :math:`(\epsilon_1, \delta_1)`-private with outcome a. The rest costs at most
    :math:`(e - \epsilon_1, d - \delta_1)` whatever a is, so :math:`P(S \mid a) \le g(a) + d -
    \delta_1` with :math:`g(a) = \min(1, e^{e - \epsilon_1} P'(S \mid a))`. As g lies in [0, 1], its
    mean under P is at most :math:`e^{\epsilon_1}` times that under P', plus :math:`\delta_1`.
    Together: :math:`P(S) \le e^{e} P'(S) + d`. The ledger enforces the premise: the sum stays
    within the totals on every path; whether a call is refused depends on budgets alone.

    A tighter accountant (advanced composition, privacy loss distributions) bounds the chance that
    the losses of a *fixed* list of budgets add up to something unlikely. Somebody who may choose
    the next budget, or when to stop, after seeing the loss so far, can wait for that something:
    its bound at the realised list is then no bound (Rogers et al.). Such totals are shown by
    `total`, and never admit a charge.

    **Arithmetic.** A charge is the decimal number that was written (0.1, not the double next to
    it; they differ by 2**-53 of it at most), rounded up to 1e-40, and sums are exact integers. It
    is admitted if the sum is at most (1 + 1e-9) times the total: three times 0.1 fit in 0.3,
    eleven times 1/11 in 1.

    **Durability.** Sum and charge are written in one transaction that locks out other processes
    and is on disk before noise is drawn: killed at any instant, a result that was returned has its
    charge. A copy of the ledger (`copy`, `pickle`, a fork) is the same file, not a new budget, and
    a ledger in memory refuses to be copied. What software cannot stop: copying the *file*,
    deleting it, or writing in it by other means; keep it where only its owner may. On network
    folders SQLite needs working file locks.

    **Threads.** ``with ledger:`` holds for its own thread. A private call in a thread that was
    started inside the block is refused unless it is given ``ledger=``. **Processes** see the block
    only if they were forked inside it: give ``ledger=`` to the workers of a pool.

    The file holds budgets, the texts of calls (formulas and column names are public) and UTC
    times; no data, no user.

    References
    ----------
    Dwork, C. and Roth, A. (2014). The algorithmic foundations of differential privacy. Sections
    2.3 (groups) and 3.5 (composition). doi:10.1561/0400000042.
    Rogers, R., Roth, A., Ullman, J. and Vadhan, S. (2016). Privacy odometers and filters:
    pay-as-you-go composition. NeurIPS. arXiv:1605.08294.
    McSherry, F. (2009). Privacy integrated queries. SIGMOD. doi:10.1145/1559845.1559850 (parallel
    composition).

    Examples
    --------
    >>> import dpstats as dp
    >>> ledger = dp.PrivacyLedger(":memory:", eps=1.0, delta=1e-6, protects="row")
    >>> trial = dp.simulate.ate("well_specified", 5_000, rng=1)
    >>> with ledger:
    ...     res = dp.dp_ate("y ~ x1 + x2", treat="w", data=trial.data, eps=0.7,
    ...                     bounds=trial.bounds)
    >>> ledger.spent, ledger.remaining
    ((0.7, 0.0), (0.3, 1e-06))
    >>> list(ledger.history()["call"])
    ["dp_ate('y ~ x1 + x2', treat='w', method='blocking')"]
    >>> dp.dp_ate("y ~ x1", treat="w", data=trial.data, eps=0.5, bounds=trial.bounds,
    ...           ledger=ledger)
    Traceback (most recent call last):
    ...
    dpstats.errors.BudgetExceededError: `eps` exceeds what is left in the ledger (:memory:)
    Requested   eps = 0.5   delta = 0
    Remaining   eps = 0.3   delta = 1e-06
    Difference  eps = 0.2   delta = 0
    Nothing was computed or charged.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        eps: float | None = None,
        delta: float | None = None,
        protects: Relation | None = None,
    ) -> None:
        wanted = check_totals(eps, delta, protects, "row")
        self._join(Store(path, create=wanted.complete), "", wanted, wanted)

    def _join(self, store: Store, name: str, wanted: Totals, new: Totals) -> None:
        """Open the data set `name` of a store, or make it with the totals `new`."""
        self._store = store
        self.path = store.path
        self.name = name
        with store.read() as connection:
            row = find_balance(connection, name)
        if row is None and new.complete:
            if not wanted.complete:
                # before it is made: where warnings are errors, nothing is made
                self._warn_new(new)
            with store.write() as connection:
                # another process may have been first
                connection.execute(
                    "INSERT INTO datasets (name, epsilon, delta, protects) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (name) DO NOTHING",
                    (name, new.epsilon, new.delta, new.protects),
                )
                row = find_balance(connection, name)
        if row is None:
            raise DPStatsError(f"`ledger` has no data set {name!r} ({self._place})")
        wanted.check(row, self._place)
        self.epsilon, self.delta, self.protects = row.epsilon, row.delta, row.protects

    def dataset(
        self,
        name: str,
        eps: float | None = None,
        delta: float | None = None,
        protects: Relation | None = None,
    ) -> PrivacyLedger:
        """Open or make a named data set with totals of its own, in the same file.

        Parameters
        ----------
        name : str
            Any printable name, the same one every time: **another name is another budget**, whether
            that is meant or a slip of the keyboard.
        eps, delta, protects : optional
            Totals and relation, as for `PrivacyLedger`. To open a data set that is there they may
            be left out; what is given must be what it has. For a new one without `eps`, what is
            left out is as in this ledger (its totals, not what is left of them). With `eps`,
            `delta` is 0 and `protects` that of this ledger by default.

        Returns
        -------
        PrivacyLedger
            To be used like any other.

        Raises
        ------
        DPStatsError
            If the name or a total breaks a rule, or the data set has other totals.

        Warns
        -----
        PrivacyWarning
            Where a new data set is made and `eps` was left out, so that a misspelt name shows.

        Notes
        -----
        Charges to one data set do not count against another. That is right where they hold
        different people, or disjoint parts of a file that was cut by something public; see "What
        is protected" in `PrivacyLedger`.

        Examples
        --------
        >>> import dpstats as dp
        >>> ledger = dp.PrivacyLedger(":memory:", eps=3.0)
        >>> nsw = ledger.dataset("nsw", eps=1.0, delta=1e-7)
        >>> ledger.dataset("nsw").remaining, ledger.remaining
        ((1.0, 1e-07), (3.0, 0.0))

        A new one without totals is made like the ledger, with a warning:

        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     psid = ledger.dataset("psid")
        >>> psid.remaining, caught[0].category.__name__
        ((3.0, 0.0), 'PrivacyWarning')
        """
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise DPStatsError(f"`name` must be a printable text; got {passed(name)}")
        wanted = check_totals(eps, delta, protects, self.protects)
        new = wanted
        if not wanted.complete:
            new = Totals(
                self.epsilon,
                self.delta if wanted.delta is None else wanted.delta,
                wanted.protects or self.protects,
            )
        child = object.__new__(type(self))
        child._join(self._store, name, wanted, new)
        return child

    @property
    def spent(self) -> tuple[float, float]:
        """(eps, delta) charged so far."""
        row = self._row()
        return to_float(row.spent_epsilon), to_float(row.spent_delta)

    @property
    def remaining(self) -> tuple[float, float]:
        """(eps, delta) that may still be charged."""
        epsilon, delta = self._row().left
        return to_float(max(epsilon, 0)), to_float(max(delta, 0))

    def charge(self, *, epsilon: float, delta: float, relation: Relation, call: str) -> Receipt:
        """Record a charge durably, or refuse it.

        Parameters
        ----------
        epsilon, delta : float
            The cost of the call.
        relation : {"row", "unit"}
            What the call protects.
        call : str
            Public text that says what was computed.

        Returns
        -------
        Receipt
            With which the call adds the records of its releases.

        Raises
        ------
        BudgetExceededError
            If it does not fit. Nothing is charged.
        DPStatsError
            If it is not a finite budget, if the ledger protects something else, or if it cannot be
            written. Nothing must be computed then.
        """
        epsilon, delta = check_budget(epsilon, delta)
        if math.isinf(epsilon):
            raise DPStatsError("`ledger` refuses `eps` = inf: the result is not private")
        if relation != self.protects:
            raise DPStatsError(
                f"`ledger` must protect what the call protects: it protects one {self.protects}, "
                f"the call one {relation}: use another, PrivacyLedger(..., protects={relation!r})"
            )
        cost = in_units(epsilon), in_units(delta)
        # lone surrogates cannot be stored
        text = str(call).encode("utf-8", "backslashreplace").decode("utf-8")
        now = datetime.now(timezone.utc).isoformat(timespec="microseconds")
        with self._store.write() as connection:
            row = self._checked(connection)
            row.admit(cost, self._place)
            connection.execute(
                "UPDATE datasets SET spent_epsilon = ?, spent_delta = ?, charges = charges + 1 "
                "WHERE id = ?",
                (str(row.spent_epsilon + cost[0]), str(row.spent_delta + cost[1]), row.id),
            )
            number = connection.execute(
                "INSERT INTO charges (dataset, time, call, epsilon, delta) VALUES (?, ?, ?, ?, ?)",
                (row.id, now, text, epsilon, delta),
            ).lastrowid
        return Receipt(self._store, int(number or 0))

    def history(self, *, everything: bool = False) -> pd.DataFrame:
        """Return one row a charge, oldest first; refused calls are not there.

        Parameters
        ----------
        everything : bool
            Whether to list all data sets of the file instead of this one.

        Returns
        -------
        DataFrame
            `time` (UTC), `data` (name of the data set), `call`, `epsilon`, `delta` and `releases`:
            a list with one dict a noisy release, None where the call did not come to an end.
        """
        import pandas as pd

        from dpstats.report.history import History

        rows = [
            (*charge, as_dicts(read_records(text))) for *charge, text in self._charges(everything)
        ]
        frame = pd.DataFrame(rows, columns=_COLUMNS).astype({"epsilon": float, "delta": float})
        frame["time"] = pd.to_datetime(frame["time"], utc=True, format="ISO8601")
        return History(frame)

    def export(self, path: str | os.PathLike[str], *, everything: bool = False) -> None:
        """Write the history to a file.

        Parameters
        ----------
        path : str or path-like
            Ends in ``.csv`` (one row a charge) or ``.json`` (also the totals). Overwritten.
        everything : bool
            Whether to write all data sets of the file instead of this one.

        Raises
        ------
        DPStatsError
            If the name ends otherwise, is the ledger's own, or cannot be written.
        """
        target = Path(path)
        suffix = target.suffix.lower()
        if suffix not in (".csv", ".json"):
            raise DPStatsError(f"`path` must end in .csv or .json; got {target.name!r}")
        if self.path is not None and target.exists() and target.samefile(self.path):
            raise DPStatsError("`path` must not be the ledger itself")
        frame = self.history(everything=everything)
        frame["time"] = [time.isoformat() for time in frame["time"]]
        try:
            if suffix == ".csv":
                frame["releases"] = [r if r is None else json.dumps(r) for r in frame["releases"]]
                frame.to_csv(target, index=False)
            else:
                sets = self.datasets()
                chosen = sets if everything else sets[sets["data"] == self.name]
                content = {
                    "datasets": chosen.to_dict("records"),
                    "charges": frame.astype(object).to_dict("records"),
                }
                target.write_text(json.dumps(content, indent=1), encoding="utf-8")
        except OSError as error:
            raise DPStatsError(f"`path` cannot be written ({error.strerror})") from error

    def datasets(self) -> pd.DataFrame:
        """Return one row a data set of the file, with its totals and what is spent."""
        import pandas as pd

        with self._store.read() as connection:
            rows = [Balance.read(row) for row in connection.execute(f"{SELECT} ORDER BY id")]
        return pd.DataFrame(
            {
                "data": [row.name for row in rows],
                "protects": [row.protects for row in rows],
                "epsilon": [row.epsilon for row in rows],
                "delta": [row.delta for row in rows],
                "spent_epsilon": [to_float(row.spent_epsilon) for row in rows],
                "spent_delta": [to_float(row.spent_delta) for row in rows],
                "charges": [row.charges for row in rows],
            }
        )

    def total(
        self, method: Literal["basic", "pld"] = "basic", *, delta: float | None = None
    ) -> tuple[float, float]:
        """Return what all charges cost together.

        Parameters
        ----------
        method : {"basic", "pld"}
            The sum that admits charges, or a tighter total by dp-accounting (extra
            ``accounting``).
        delta : float, optional
            For "pld", the delta at which epsilon is stated; by default the ledger's total.

        Returns
        -------
        tuple of float
            (eps, delta).

        Raises
        ------
        ImportError
            If dp-accounting is not installed.

        Notes
        -----
        The tighter total is for reading, and only valid where the budgets were fixed in advance
        (see `PrivacyLedger`); it never admits a charge. Proofs are in `dpstats.privacy.tighter`. It
        is the smaller of the two totals where both hold; with `delta` below 1e-10 the plain sum.

        Examples
        --------
        >>> import dpstats as dp
        >>> ledger = dp.PrivacyLedger(":memory:", eps=20.0, delta=1e-6)
        >>> for _ in range(100):
        ...     _ = ledger.charge(epsilon=0.1, delta=0.0, relation="row", call="a count")
        >>> ledger.total()
        (10.0, 0.0)
        >>> eps, delta = ledger.total("pld")
        >>> round(eps, 1), delta
        (4.8, 1e-06)
        """
        if method not in ("basic", "pld"):
            raise DPStatsError(f"`method` must be basic or pld; got {passed(method)}")
        if method == "basic":
            if delta is not None:
                raise DPStatsError("`delta` is for `method` = 'pld'")
            return self.spent
        _, at = check_budget(1.0, self.delta if delta is None else delta)
        with self._store.read() as connection:
            row = self._checked(connection)
            groups = [
                Charges(epsilon, slack, read_records(records) or (), count)
                for epsilon, slack, records, count in connection.execute(
                    "SELECT c.epsilon, c.delta, r.records, count(*) FROM charges c LEFT JOIN "
                    "releases r ON r.charge = c.id WHERE c.dataset = ? GROUP BY 1, 2, 3",
                    (row.id,),
                )
            ]
        tighter = tighter_epsilon(groups, max(at, _SMALLEST_DELTA))
        if at < _SMALLEST_DELTA:
            tighter = math.inf
        plain = to_float(row.spent_epsilon) if row.spent_delta <= in_units(at) else math.inf
        return min(tighter, plain), at

    def verify(self) -> None:
        """Check the file, and that the running sums are those of the charges.

        Raises
        ------
        DPStatsError
            If not: the file has been damaged or changed by other means.
        """
        with self._store.read() as connection:
            (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            rows = [Balance.read(row) for row in connection.execute(SELECT)]
            sums: dict[int, Counter[str]] = {row.id: Counter() for row in rows}
            for dataset, epsilon, delta, count in connection.execute(
                "SELECT dataset, epsilon, delta, count(*) FROM charges GROUP BY 1, 2, 3"
            ):
                amounts = {
                    "charges": count,
                    "epsilon": count * in_units(epsilon),
                    "delta": count * in_units(delta),
                }
                sums.setdefault(dataset, Counter()).update(amounts)
        told = {row.id: (row.charges, row.spent_epsilon, row.spent_delta) for row in rows}
        found = {key: (s["charges"], s["epsilon"], s["delta"]) for key, s in sums.items()}
        if state != "ok" or told != found:
            raise DPStatsError(
                f"`ledger` is damaged: {self._place} does not add up to its own charges"
            )

    def __enter__(self) -> PrivacyLedger:
        open_block(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        close_block(self)

    def __repr__(self) -> str:
        label = f", data={self.name!r}" if self.name else ""
        return (
            f"{type(self).__name__}({MEMORY if self.path is None else self.path.name!r}{label}, "
            f"eps={self.epsilon:.10g}, delta={self.delta:g}, protects={self.protects!r})"
        )

    def __copy__(self) -> PrivacyLedger:
        self._refuse_copy()
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PrivacyLedger:
        self._refuse_copy()
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        self._refuse_copy()
        # nothing but where it is, and what it must be
        totals = (self.epsilon, self.delta, self.protects)
        return _reopen, (type(self), str(self.path), self.name, *totals)

    def _warn_new(self, new: Totals) -> None:
        others = ", ".join(map(repr, _names(self._store))) or "no other"
        warnings.warn(
            f"`name` = {self.name!r} is new in the ledger and gets a budget of its own, the "
            f"ledger's totals: eps = {new.epsilon:.10g}, delta = {new.delta:g}, protects one "
            f"{new.protects}. It has {others}. If the name is not misspelt, pass `eps` to say so",
            PrivacyWarning,
            stacklevel=4,
        )

    def _refuse_copy(self) -> None:
        if self.path is None:
            raise DPStatsError(
                "`ledger` in memory cannot be copied or pickled: that would double its budget; "
                "use a file"
            )

    @property
    def _place(self) -> str:
        place = MEMORY if self.path is None else str(self.path)
        return f"data set {self.name!r} of {place}" if self.name else place

    def _row(self) -> Balance:
        with self._store.read() as connection:
            return self._checked(connection)

    def _checked(self, connection: sqlite3.Connection) -> Balance:
        """Read the sums; the file may have been exchanged since it was opened."""
        row = find_balance(connection, self.name)
        mine = self.epsilon, self.delta, self.protects
        if row is None or (row.epsilon, row.delta, row.protects) != mine:
            raise DPStatsError(f"`ledger` is not the one that was opened: {self._place}")
        return row

    def _charges(self, everything: bool) -> list[tuple[Any, ...]]:
        with self._store.read() as connection:
            row = self._checked(connection)
            return connection.execute(
                "SELECT c.time, d.name, c.call, c.epsilon, c.delta, r.records FROM charges c "
                "JOIN datasets d ON d.id = c.dataset LEFT JOIN releases r ON r.charge = c.id "
                "WHERE ? OR d.id = ? ORDER BY c.id",
                (everything, row.id),
            ).fetchall()


def _names(store: Store) -> list[str]:
    with store.read() as connection:
        rows = connection.execute("SELECT name FROM datasets WHERE name != '' ORDER BY id")
        return [name for (name,) in rows]


def _reopen(
    kind: type[PrivacyLedger],
    path: str,
    name: str,
    epsilon: float,
    delta: float,
    protects: Relation,
) -> PrivacyLedger:
    """Open the file of a pickled ledger, which must still be there and the same."""
    ledger = object.__new__(kind)
    nothing = Totals(None, None, None)
    ledger._join(Store(path, create=False), name, nothing, nothing)
    Totals(epsilon, delta, protects).check(ledger._row(), ledger._place)
    return ledger
