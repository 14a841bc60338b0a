from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

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
