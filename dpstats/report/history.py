"""What a ledger's history looks like in print."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dpstats.report.readable import ReadableFrame

__all__ = ["History"]


class History(ReadableFrame):
    """The charges of a ledger: prints whole, with the names of releases and times to the second.

    Examples
    --------
    >>> charge = {
    ...     "time": pd.Timestamp("2026-11-30 15:00:00.123", tz="UTC"),
    ...     "call": "dp_ate(...)",
    ...     "epsilon": 1.0,
    ...     "releases": [{"release": "counts"}, {"release": "sums"}],
    ... }
    >>> print(History([charge]))
    time                 call         epsilon  releases
    -------------------------------------------------------
    2026-11-30 15:00:00  dp_ate(...)        1  counts, sums
    """

    def as_text(self, width: int | None = None) -> str:
        """Return the history as text.

        Parameters
        ----------
        width : int, optional
            As for other frames: by default pandas' option `display.width`.
        """
        frame = pd.DataFrame(self)
        if "time" in frame and isinstance(frame["time"].dtype, pd.DatetimeTZDtype):
            frame["time"] = frame["time"].dt.strftime("%Y-%m-%d %H:%M:%S").fillna("")
        if "releases" in frame:
            frame["releases"] = [_names(found) for found in frame["releases"]]
        if "data" in frame and not frame["data"].astype(bool).any():
            frame = frame.drop(columns="data")
        return ReadableFrame(frame).as_text(width)


def _names(releases: Any) -> str:
    if not isinstance(releases, list):
        return "did not end"
    return ", ".join(dict.fromkeys(str(one.get("release", "")) for one in releases))
