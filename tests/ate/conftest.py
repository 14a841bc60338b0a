from __future__ import annotations

import math
import warnings
from typing import Any

import pandas as pd
import pytest
from frames import BOUNDS, LEVELS, FakeLedger, make_frame

import dpstats as dp


@pytest.fixture
def ledger():
    return FakeLedger()


@pytest.fixture(scope="session")
def _master() -> pd.DataFrame:
    return make_frame()


@pytest.fixture
def frame(_master: pd.DataFrame) -> pd.DataFrame:
    return _master.copy()


@pytest.fixture(scope="session")
def bounds() -> dict[str, tuple[float, float]]:
    return dict(BOUNDS)


@pytest.fixture(params=["blocking", "ipw", "diff_means"])
def method(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[{}, {"delta": 1e-5}], ids=["laplace", "gaussian"])
def noise(request: pytest.FixtureRequest) -> dict[str, float]:
    return request.param


@pytest.fixture(scope="session")
def estimate():
    """dp_ate with defaults for these tests: a seed, bounds, three blocks, warnings silenced."""

    def call(data: pd.DataFrame, formula: str = "y ~ x1 + x2", **options: Any) -> dp.ATEResults:
        options.setdefault("treat", "w")
        options.setdefault("eps", 1.0)
        options.setdefault("bounds", BOUNDS)
        options.setdefault("levels", LEVELS if "g" in data.columns else None)
        exact = isinstance(options["eps"], float) and math.isinf(options["eps"])
        if not exact and "ledger" not in options:
            options.setdefault("rng", 7)
        if options.get("method", "blocking") == "blocking":
            options.setdefault("blocks", 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dp.PrivacyWarning)
            warnings.simplefilter("ignore", dp.UtilityWarning)
            return dp.dp_ate(formula, data=data, **options)

    return call


@pytest.fixture
def attempt(estimate):
    """Call with the system's entropy and a ledger; return (error or None, charges)."""

    def call(data: Any, formula: Any = "y ~ x1 + x2", **options: Any):
        book = FakeLedger()
        try:
            estimate(data, formula, ledger=book, **options)
        except Exception as error:
            return error, book.calls
        return None, book.calls

    return call
