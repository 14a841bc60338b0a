"""Estimators without noise, against other solvers and published numbers."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize
from sklearn.linear_model import ElasticNet
from synth_panels import factor, panel_of, run

from dpstats.datasets import load_prop99
from dpstats.errors import DPStatsError
from dpstats.privacy.accounting import Release
from dpstats.storage import decode, encode
from dpstats.synth.kernels import KERNELS, RELEASED
from dpstats.synth.kernels.base import Panel
from dpstats.synth.kernels.exact import (
    elastic_net_weights,
    ridge_weights,
    robust_donors,
    simplex_weights,
)


@pytest.fixture(scope="module")
def prop99():
    data = load_prop99().data
    wide = data.pivot(index="state", columns="year", values="cigsale")
    return wide.drop("California").to_numpy(), wide.loc["California"].to_numpy(), 19


def test_simplex_on_prop99(prop99) -> None:
    donors, target, before = prop99
    released = run("simplex", panel_of(donors, target, before), math.inf, bounded=False)
    gap = target - released.predict(target[None])[0]
    assert gap[before:].mean() == pytest.approx(-19.5136, abs=5e-4)
    assert np.sqrt(np.mean(gap[:before] ** 2)) == pytest.approx(1.6564, abs=5e-4)
    assert released.exact
    assert released.records == ()
    weights = released.weights()[0]
    assert weights.min() >= 0.0
    assert weights.sum() == pytest.approx(1.0)


def test_simplex_against_slsqp() -> None:
    rng = np.random.default_rng(1)
    for n, before in ((3, 5), (8, 4), (1, 4)):
        X, y = rng.standard_normal((n, before)), rng.standard_normal(before)
        found = simplex_weights(X, y)
        other = minimize(
            lambda w, X=X, y=y: np.sum((y - X.T @ w) ** 2),
            np.full(n, 1 / n),
            bounds=[(0, 1)] * n,
            method="SLSQP",
            tol=1e-14,
            constraints=LinearConstraint(np.ones((1, n)), 1, 1),
        )
        assert np.sum((y - X.T @ found) ** 2) <= other.fun + 1e-9


@pytest.mark.parametrize(("n", "before"), [(5, 12), (30, 12), (1, 3)])
def test_ridge_closed_form(n: int, before: int) -> None:
    rng = np.random.default_rng(2)
    donors, target = rng.standard_normal((n, before + 4)), rng.standard_normal(before + 4)
    X, y = donors[:, :before], target[:before]
    expected = np.linalg.solve(X @ X.T + 1.5 * np.eye(n), X @ y)
    assert ridge_weights(X, y, 3.0) == pytest.approx(expected, abs=1e-10)
    released = run("output", panel_of(donors, target, before), math.inf, penalty=3.0)
    assert released.weights()[0] == pytest.approx(expected, abs=1e-10)
    assert released.predict(target[None])[0] == pytest.approx(donors.T @ expected, abs=1e-10)
    least = ridge_weights(X, y, 0.0)
    assert least == pytest.approx(np.linalg.lstsq(X.T, y, rcond=None)[0], abs=1e-8)


@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("penalty", [0.3, 5.0, 1e4])
@pytest.mark.parametrize(("n", "before"), [(6, 12), (25, 8), (150, 10)])
def test_elastic_net_against_scikit_learn(ratio, penalty, n, before) -> None:
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((n, before)), rng.standard_normal(before)
    found = elastic_net_weights(X, y, penalty, ratio)
    # scikit-learn halves the mean square
    other = (
        ElasticNet(
            penalty / 2.0 / before, l1_ratio=ratio, fit_intercept=False, max_iter=200_000, tol=1e-13
        )
        .fit(X.T, y)
        .coef_
    )
    assert found == pytest.approx(other, abs=1e-5)


def test_forms_of_the_elastic_net_agree(monkeypatch) -> None:
    donors, target, _ = factor(150, np.random.default_rng(7))
    for penalty in (1e-4, 1e-2, 1.0, 30.0):
        found = []
        for many in (100, 1000):
            monkeypatch.setattr("dpstats.synth.kernels.exact._MANY", many)
            found.append(elastic_net_weights(donors[:, :20], target[:20], penalty, 0.5))
        assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_elastic_net_ends() -> None:
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((4, 9)), rng.standard_normal(9)
    assert elastic_net_weights(X, y, 2.0, 0.0) == pytest.approx(ridge_weights(X, y, 2.0))
    least = np.linalg.lstsq(X.T, y, rcond=None)[0]
    assert elastic_net_weights(X, y, 0.0, 1.0) == pytest.approx(least, abs=1e-7)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_robust_recovers_a_low_rank_panel(share: float) -> None:
    rng = np.random.default_rng(5)
    left, right = rng.uniform(-1, 1, (300, 2)), rng.uniform(-1, 1, (2, 40))
    truth = left @ right
    seen = truth + 0.05 * rng.standard_normal(truth.shape)
    missing = rng.random(truth.shape) < share
    seen[missing] = math.nan
    clean, rank = robust_donors(seen, missing if share else None, threshold=None, rank=None)
    # centring at the middle of the range may add a constant
    assert rank in (2, 3)
    assert np.sqrt(np.mean((clean - truth) ** 2)) < (0.02 if share == 0.0 else 0.15)
    target = 0.5 * truth[0] + 0.5 * truth[1]
    panel = Panel(seen, target[None], 25, 0.0, 1.0, missing if share else None)
    path = run("robust", panel, math.inf, bounded=False, rank=2).predict(target[None])[0]
    assert np.sqrt(np.mean((path - target)[25:] ** 2)) < 0.1


def test_every_method_fits_a_factor_panel(prop99) -> None:
    donors, target, signal = factor(40, np.random.default_rng(6))
    panel = panel_of(donors, target, 20)
    for method in (
        "output",
        "objective",
        "simplex",
        "lasso",
        "elastic_net",
        "robust",
        "did",
        "moments",
    ):
        released = run(method, panel, math.inf, bounded=False)
        path = released.predict(target[None])[0]
        assert np.sqrt(np.mean((path - signal)[20:] ** 2)) < 0.12, method
        errors = released.errors(target, 200, np.random.default_rng(0), "both")
        assert 0.005 < errors.periods.std() < 0.5
        assert not released.errors(target, 5, np.random.default_rng(0), "privacy").att.any()
        assert released.exact


def test_released_numbers_survive_saving() -> None:
    donors, target, _ = factor(30, np.random.default_rng(8))
    panel = panel_of(donors, target, 20)
    types = {kind.__name__: kind for kind in (*RELEASED, Release)}
    for method in KERNELS:
        released = run(method, panel, math.inf if not KERNELS[method].private else 1.0)
        again = decode(json.loads(json.dumps(encode(released))), types)
        assert type(again) is type(released)
        found = [one.predict(target[None]) for one in (released, again)]
        assert np.array_equal(*found, equal_nan=True)
        assert again.records == released.records


def test_refusals() -> None:
    panel = panel_of(np.eye(3, 5), np.ones(5), 3)
    with pytest.raises(DPStatsError, match="`eps` = inf"):
        run("simplex", panel, 1.0)
    with pytest.raises(DPStatsError, match="`penalty`"):
        run("simplex", panel, math.inf, penalty=1.0)
    with pytest.raises(DPStatsError, match="`l1_ratio`"):
        run("elastic_net", panel, math.inf, l1_ratio=2.0)
    with pytest.raises(DPStatsError, match="`rank`"):
        run("robust", panel, math.inf, rank=0)
    with pytest.raises(DPStatsError, match="no option"):
        run("lasso", panel, math.inf, l1_ratio=0.2)
