from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpstats as dp

N = 600


def make_frame(n: int = N, seed: int = 3) -> pd.DataFrame:
    """Confounded data; numbers are multiples of 1/64, so that float32 holds them exactly."""
    rng = np.random.default_rng(seed)
    x1, x2 = rng.normal(size=n), rng.uniform(-1, 1, n)
    p = 1 / (1 + np.exp(-0.8 * x1 + 0.3 * x2))
    w = (rng.random(n) < p).astype(int)
    y = 1 + 2 * w + x1 + rng.normal(size=n)
    frame = pd.DataFrame({"y": y, "w": w, "x1": x1, "x2": x2, "p": p.clip(0.05, 0.95)})
    for name in ("y", "x1", "x2", "p"):
        frame[name] = np.round(frame[name] * 64) / 64
    frame["b"] = (rng.random(n) < 0.4).astype(int)
    frame["g"] = rng.choice(["a", "b", "c"], n).astype(object)
    return frame


BOUNDS = {"y": (-5.0, 8.0), "x1": (-3.0, 3.0), "x2": (-1.0, 1.0), "b": (0.0, 1.0)}
LEVELS = {"g": ["a", "b", "c"]}


class FakeLedger:
    """Records its calls; refuses if told so."""

    def __init__(self, refuse: bool = False) -> None:
        self.calls: list[dict[str, Any]] = []
        self.refuse = refuse

    def charge(self, **call: Any) -> None:
        if self.refuse:
            raise dp.BudgetExceededError("`ledger` is exhausted")
        self.calls.append(call)


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
