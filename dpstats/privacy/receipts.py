"""What a charge in a ledger was for: the records of its releases."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dpstats.errors import DPStatsError
from dpstats.privacy.accounting import Release

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpstats.privacy.store import Store

__all__ = ["Receipt", "as_dicts", "read_records"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """A charge that was made; the call adds what it released."""

    store: Store
    number: int

    def keep(self, records: Sequence[Release]) -> None:
        """Store the records of the releases, as far as possible; the charge stands anyway."""
        text = json.dumps([asdict(record) for record in records])
        try:
            with self.store.write() as connection:
                connection.execute("INSERT INTO releases VALUES (?, ?)", (self.number, text))
        except DPStatsError:
            # without records the charge counts in full, and the result has been paid for
            return


def read_records(text: str | None) -> list[Release] | None:
    """Read the records of a charge, None where there are none."""
    try:
        return None if text is None else [Release(**record) for record in json.loads(text)]
    except (TypeError, ValueError) as error:
        raise DPStatsError("`ledger` is damaged: its releases cannot be read") from error


def as_dicts(records: list[Release] | None) -> list[dict[str, Any]] | None:
    """Return records as dicts, None where there are none."""
    return None if records is None else [asdict(record) for record in records]
