"""The work of a call does not tell what is in the rows: passes over them, counted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from checks import attempt

import dpstats as dp
from dpstats import logistic

# those that fit by Newton steps to a tolerance; the others take a public number of steps
METHODS = ("blocking", "ipw", "nipw", "split_ipw", "aipw")
N = 3000
COVARIATES = ("x1", "x2", "x3")
BOUNDS = {"y": (-5.0, 8.0), **dict.fromkeys(COVARIATES, (-3.0, 3.0))}


def frames() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, N))
    w = (rng.random(N) < 1 / (1 + np.exp(-x[0]))).astype(int)
    plain = pd.DataFrame({"y": rng.normal(size=N), "w": w, **dict(zip(COVARIATES, x, strict=True))})
    return {
        "ordinary": plain,
        "separated": plain.assign(w=(x[0] > 0).astype(int)),
        "separated, constant": plain.assign(w=(x[0] > 0) * 1, x1=np.sign(x[0]) * 9, x2=3.0, x3=3.0),
        "constant": plain.assign(**dict.fromkeys(COVARIATES, 1.0)),
        "collinear": plain.assign(**dict.fromkeys(COVARIATES, x[0])),
        "all treated": plain.assign(w=1),
        "one treated": plain.assign(w=(np.arange(N) == 0) * 1),
        "denormal": plain.assign(y=5e-324, **dict.fromkeys(COVARIATES, 5e-324)),
        "extreme": plain.assign(y=np.inf, **dict.fromkeys(COVARIATES, -np.inf)),
    }


@pytest.mark.parametrize("eps", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("method", METHODS)
def test_passes_of_the_solver(monkeypatch, method, eps):
    passes = 0

    def counted(function):
        def run(*arguments):
            nonlocal passes
            passes += 1
            return function(*arguments)

        return run

    for name in ("gradient", "gradient_and_hessian"):
        monkeypatch.setattr(logistic._Sums, name, counted(getattr(logistic._Sums, name)))
    found = {}
    for name, frame in frames().items():
        for seed in range(3):
            passes = 0
            _, error, _ = attempt(
                lambda frame=frame, seed=seed: dp.dp_ate(
                    "y ~ x1 + x2 + x3", "w", frame, eps, method=method, bounds=BOUNDS, rng=seed
                )
            )
            assert error is None
            found[name, seed] = passes
    fewest, most = min(found.values()), max(found.values())
    # measured: 3 to 25, and up to 39 at eps = 1e6
    assert (most == 0) == (fewest == 0)
    assert most <= 30, found
