from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp

N, T, T0 = 60, 12, 8
START = 2000


def make_panel(n: int = N, seed: int = 4, periods: int = T) -> pd.DataFrame:
    """Long panel, unit 0 treated; values are multiples of 1/64, so that float32 holds them."""
    rng = np.random.default_rng(seed)
    factors = np.cumsum(rng.normal(size=(2, periods)), axis=1)
    y = rng.normal(size=(n + 1, 1)) + (1 + 0.5 * rng.normal(size=(n + 1, 2))) @ factors
    y = np.round((y + 0.1 * rng.normal(size=y.shape)) * 64) / 64
    return pd.DataFrame(
        {
            "unit": np.repeat(np.arange(n + 1), periods),
            "time": np.tile(START + np.arange(periods), n + 1),
            "y": y.ravel(),
        }
    )


class FakeLedger:
    """Records its calls."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def charge(self, **call: Any) -> None:
        self.calls.append(call)


@pytest.fixture(scope="session")
def _master_panel() -> pd.DataFrame:
    return make_panel()


@pytest.fixture
def panel(_master_panel: pd.DataFrame) -> pd.DataFrame:
    return _master_panel.copy()


@pytest.fixture(scope="session")
def synth():
    """dp_synth with defaults for these tests: a seed, unit 0 treated, warnings silenced."""

    def call(data: Any, **options: Any) -> dp.SynthResults:
        if not options.get("wide"):
            options.setdefault("unit", "unit")
            options.setdefault("time", "time")
        options.setdefault("treated", 0)
        options.setdefault("T0", START + T0 - 1)
        options.setdefault("eps", 1.0)
        exact = isinstance(options["eps"], float) and math.isinf(options["eps"])
        if not exact and "ledger" not in options:
            options.setdefault("rng", 7)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dp.PrivacyWarning)
            warnings.simplefilter("ignore", dp.UtilityWarning)
            return dp.dp_synth(data, **options)

    return call


@pytest.fixture
def attempt(synth):
    """Call with the system's entropy and a ledger; return (error or None, charges)."""

    def call(data: Any, **options: Any):
        book = FakeLedger()
        try:
            synth(data, ledger=book, **options)
        except Exception as error:
            return error, book.calls
        return None, book.calls

    return call
