"""Output and objective perturbation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from synth_panels import Scaled, Silent, lower_bound, panel_of, run

from dpstats.errors import DPStatsError
from dpstats.privacy.accounting import Cost
from dpstats.privacy.calibration import objective_log_delta
from dpstats.privacy.mechanisms import Mechanisms
from dpstats.privacy.noise import SeededSource
from dpstats.synth.kernels.exact import ridge_weights
from dpstats.synth.kernels.objective import (
    gradient_sensitivity,
    jacobian_penalty,
    log_jacobian,
    minimise_on_ball,
)
from dpstats.synth.kernels.output import certified_ridge, ridge_sensitivity
from dpstats.synth.kernels.weights import project_l1, release_prediction

KINDS = [pytest.param(1e-6, id="gaussian"), pytest.param(0.0, id="laplace")]


def signs(rng, shape):
    return rng.choice([-1.0, 1.0], shape)


# ----------------------------------------------------------------------------------- output


@pytest.mark.parametrize("penalty", [1.0, 4.0, 8.0, 40.0])
@pytest.mark.parametrize(("n", "before"), [(1, 3), (2, 4), (5, 4)])
def test_ridge_sensitivity_is_attained_and_never_exceeded(penalty, n, before) -> None:
    rng = np.random.default_rng(1)
    bound = ridge_sensitivity(1.0, before, penalty)

    def ratio(v):
        rest = np.clip(v[: (n - 1) * before].reshape(n - 1, before), -1.0, 1.0)
        x, other, y = v[(n - 1) * before :].reshape(3, before)
        y = y / max(np.linalg.norm(y), 1e-300)
        pair = [np.vstack([rest, np.clip(row, -1.0, 1.0)]) for row in (x, other)]
        return np.linalg.norm(np.subtract(*(ridge_weights(X, y, penalty) for X in pair))) / bound

    y = signs(rng, before) / math.sqrt(before)
    mu = penalty / 2.0
    # the pair of the proof; shrunk to norm sqrt(mu) where rows may be longer
    length = min(1.0, math.sqrt(mu / before))
    row = length * math.sqrt(before) * y
    best = ratio(np.concatenate([np.zeros((n - 1) * before), row, -row, y]))
    assert best == pytest.approx(1.0, abs=1e-9)
    for _ in range(3):
        start = rng.standard_normal((n + 2) * before)
        found = minimize(
            lambda v: -ratio(v), start, method="Nelder-Mead", options={"maxiter": 1500}
        )
        best = max(best, -found.fun)
    for _ in range(500):
        best = max(best, ratio(rng.standard_normal((n + 2) * before) * rng.choice([0.3, 1, 3])))
    assert best <= 1.0 + 1e-9


def test_known_values_of_the_ridge_sensitivity() -> None:
    for before in (10, 100):
        norm = math.sqrt(before)
        assert ridge_sensitivity(norm, before, before) == pytest.approx(math.sqrt(2.0))
        assert ridge_sensitivity(norm, before, 2.0 * before) == pytest.approx(1.0)
        assert ridge_sensitivity(norm, before, 6.0 * before) == pytest.approx(0.5)


def test_certified_ridge_is_close_or_zero() -> None:
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-1, 1, (30, 10)), rng.uniform(-1, 1, 10)
    exact = np.linalg.solve(X @ X.T + 2.0 * np.eye(30), X @ y)
    assert certified_ridge(X, y, 4.0, 1e-9) == pytest.approx(exact, abs=1e-9)
    assert not certified_ridge(X, y, 4.0, 1e-300).any()


@pytest.mark.parametrize("delta", KINDS)
@pytest.mark.parametrize("method", ["output", "objective"])
@pytest.mark.parametrize("release", ["projection", "matrix"])
@pytest.mark.parametrize("targets", [1, 3])
def test_records(method, release, targets, delta) -> None:
    rng = np.random.default_rng(3)
    donors, y = rng.uniform(-1, 1, (12, 9)), rng.uniform(-1, 1, (targets, 9))
    released = run(method, panel_of(donors, y, 6), 3.0, delta, release=release)
    assert sum(r.epsilon for r in released.records) == pytest.approx(3.0, rel=1e-12)
    assert sum(r.delta for r in released.records) == pytest.approx(delta, rel=1e-12)
    assert released.weights().shape == (targets, 12)
    path = released.predict(y)
    assert np.isnan(path[:, :6]).all()
    assert np.isfinite(path[:, 6:]).all()
    assert np.abs(released.weights()).sum(axis=1).max() <= 1.0 + 1e-12
    last = released.records[-1]
    assert last.release == "prediction"
    if release == "matrix":
        assert last.sensitivity == pytest.approx(2.0 * math.sqrt(3.0), rel=1e-6)
    else:
        largest = np.linalg.norm(released.weights(), axis=0).max()
        assert last.sensitivity == pytest.approx(2.0 * math.sqrt(3.0) * largest, rel=1e-6)
    if method == "output":
        bounds = [ridge_sensitivity(float(np.linalg.norm(row[:6])), 6, 6.0) for row in y]
        expected = math.sqrt(sum(bound**2 for bound in bounds))
        assert released.records[0].sensitivity == pytest.approx(expected, rel=1e-6)
    else:
        assert released.records[0].sensitivity == gradient_sensitivity(12, 6)


@pytest.mark.parametrize("delta", KINDS)
def test_output_noise_is_as_recorded(delta: float) -> None:
    rng = np.random.default_rng(4)
    panel = panel_of(rng.uniform(-1, 1, (4, 8)), rng.uniform(-1, 1, 8), 6)
    quiet = run("output", panel, 2.0, delta, Silent(), project=False)
    noise = (
        np.array(
            [
                run("output", panel, 2.0, delta, SeededSource(s), project=False).weights()[0]
                for s in range(800)
            ]
        )
        - quiet.weights()
    )
    scale = quiet.records[0].scale
    if delta:
        assert stats.kstest(noise.ravel() / scale, "norm").pvalue > 1e-4
    else:
        radius = np.linalg.norm(noise, axis=1)
        assert stats.kstest(radius, "gamma", (4, 0.0, scale)).pvalue > 1e-4
        angle = noise[:, 0] / radius
        # the first coordinate of a uniform direction in four dimensions
        assert stats.kstest((1.0 + angle) / 2.0, "beta", (1.5, 1.5)).pvalue > 1e-4
    assert quiet.weight_sd == pytest.approx(noise.std(), rel=0.1)


def test_prediction_sensitivity_is_attained_and_never_exceeded() -> None:
    rng = np.random.default_rng(5)
    worst = 0.0
    for _ in range(200):
        g, n, after = rng.integers(1, 4, 3)
        weights = project_l1(rng.standard_normal(n))[None] * rng.uniform(-1, 1, (g, 1))
        post = signs(rng, (n, after))
        other = post.copy()
        row = int(np.argmax(np.linalg.norm(weights, axis=0)))
        other[row] = -other[row] if rng.random() < 0.5 else rng.uniform(-1, 1, after)
        mechanisms = Mechanisms(Silent(), "laplace", {"prediction": Cost(1.0)})
        pair = [release_prediction(mechanisms, p, weights, "projection") for p in (post, other)]
        moved = np.linalg.norm(pair[0][0] - pair[1][0])
        worst = max(worst, moved / pair[0][2][0].sensitivity)
    assert 0.999 < worst <= 1.0 + 1e-5


# ---------------------------------------------------------------------------------- objective


@pytest.mark.parametrize("size", [1.0, 1.5, 3.0])
@pytest.mark.parametrize(("n", "before"), [(1, 3), (2, 3), (3, 2), (4, 2), (6, 2), (9, 2)])
def test_gradient_sensitivity_is_attained_and_never_exceeded(n, before, size) -> None:
    rng = np.random.default_rng(6)
    bound = gradient_sensitivity(n, before, size)
    worst = 0.0
    for trial in range(3000):
        X, other = signs(rng, (n, before)), signs(rng, before)
        y = size * signs(rng, before)
        if trial % 3:
            X[:] = X[0] * signs(rng, (n, 1))
            other, y = -X[0], size * rng.choice([-1, 1]) * X[0]
        if trial % 5 == 0:
            X *= rng.uniform(0, 1, X.shape)
            other *= rng.uniform(0, 1, before)
        f = np.zeros(n)
        f[rng.integers(n)] = rng.choice([-1.0, 1.0])
        if trial % 7 == 0:
            f = rng.dirichlet(np.full(n, 0.3)) * signs(rng, n)
        moved = X.copy()
        moved[0] = other
        if n == 1 and trial % 2:
            # one donor: from the bound to the point where the parabola peaks
            X, y, f = np.full_like(X, 1.0), np.full(before, -size), np.ones(1)
            moved = np.full_like(X, max(-size / 2.0, -1.0))
        gradients = [2.0 * rows @ (rows.T @ f - y) for rows in (X, moved)]
        worst = max(worst, float(np.linalg.norm(gradients[0] - gradients[1])))
    assert worst <= bound * (1.0 + 1e-12)
    assert worst >= bound * 0.999


@pytest.mark.parametrize(("n", "before", "penalty"), [(1, 2, 3.0), (2, 2, 4.0), (4, 3, 6.0)])
def test_jacobian_is_attained_and_never_exceeded(n, before, penalty) -> None:
    rng = np.random.default_rng(7)
    worst = 0.0
    for k in range(1, n + 1):
        for trial in range(1500):
            sign = signs(rng, k)
            # tangent space of the face of k vertices; None: the interior (of a coordinate plane)
            interior = trial % 3 == 0 or k == 1
            V = np.eye(k) if interior else np.linalg.svd(sign[None])[2][1:].T
            X = signs(rng, (k, before))
            if trial % 2 and k > 1:
                X[1:] = sign[1:, None] * X[1][None] * sign[1]
                X[0] = -sign[0] * sign[1] * X[1]
            moved = X.copy()
            moved[0] = -X[0] if trial % 5 else 0.0
            logs = [
                np.linalg.slogdet(V.T @ (2.0 * A @ A.T + penalty * np.eye(k)) @ V)[1]
                for A in (X, moved)
            ]
            worst = max(worst, abs(logs[0] - logs[1]))
    bound = log_jacobian(n, before, penalty)
    assert worst <= bound + 1e-9
    assert worst == pytest.approx(bound, abs=1e-9)
    assert log_jacobian(n, before, jacobian_penalty(n, before, 0.7)) == pytest.approx(0.7)


@pytest.mark.parametrize("n", [1, 2, 10, 200])
@pytest.mark.parametrize("size", [0.0, 1.0, 300.0])
def test_minimum_on_the_ball(n: int, size: float) -> None:
    """The first-order conditions, from outside: no vertex of the ball is better."""
    rng = np.random.default_rng(8)
    X, y, b = rng.uniform(-1, 1, (n, 6)), rng.uniform(-1, 1, 6), size * rng.standard_normal(n)
    f, residual = minimise_on_ball(X, y, 3.0, b, 1e-10 * max(1.0, size))
    gradient = 2.0 * X @ (X.T @ f - y) + 3.0 * f + b
    gap = gradient @ f + np.abs(gradient).max()
    inside = np.linalg.norm(gradient)
    assert residual <= 1e-10 * max(1.0, size)
    assert np.abs(f).sum() <= 1.0 + 1e-12
    assert min(abs(gap), inside) < 1e-7 * max(1.0, size)


def test_projection_on_the_ball() -> None:
    rng = np.random.default_rng(9)
    for n in (1, 2, 7):
        for _ in range(50):
            v = rng.standard_normal(n) * 3.0
            f = project_l1(v)
            assert np.abs(f).sum() <= 1.0 + 1e-12
            other = project_l1(rng.standard_normal(n))
            assert (v - f) @ (other - f) <= 1e-9


def test_gaussian_scale_of_the_objective() -> None:
    rng = np.random.default_rng(10)
    panel = panel_of(rng.uniform(-1, 1, (6, 8)), rng.uniform(-1, 1, 8), 5)
    record = run("objective", panel, 2.0, 1e-5).records[0]
    strength = max(5.0, jacobian_penalty(6, 5, record.epsilon / 2.0))
    left = record.epsilon - log_jacobian(6, 5, strength)
    spent = objective_log_delta(record.sensitivity / record.scale, left)
    assert spent == pytest.approx(math.log(record.delta), abs=1e-6)


def test_huge_epsilon_is_the_exact_run() -> None:
    rng = np.random.default_rng(11)
    donors, y = rng.uniform(-1, 1, (12, 9)), rng.uniform(-1, 1, 9)
    panel = panel_of(donors, y, 6)
    for method in ("output", "objective"):
        exact = run(method, panel, math.inf, penalty=40.0)
        noisy = run(method, panel, 1e8, penalty=40.0)
        assert noisy.weights() == pytest.approx(exact.weights(), abs=1e-4)
        assert noisy.predict(y[None])[0, 6:] == pytest.approx(
            exact.predict(y[None])[0, 6:], abs=1e-4
        )


@pytest.mark.parametrize("delta", KINDS)
@pytest.mark.parametrize("method", ["output", "objective"])
def test_audit_with_a_positive_control(method: str, delta: float) -> None:
    """The neighbours of the proof, told apart by the weight of the donor that changes."""
    y = np.ones(5)
    for noise in (1.0, 0.03):
        scores = []
        for seed, value in ((1, 1.0), (2, -1.0)):
            panel = panel_of(np.full((1, 5), value), y, 4)
            scores.append(
                np.array(
                    [
                        run(
                            method,
                            panel,
                            2.0,
                            delta,
                            Scaled(SeededSource([seed, t]), noise),
                            penalty=8.0,
                        ).weights()[0, 0]
                        for t in range(600)
                    ]
                )
            )
        bound = lower_bound(*scores, delta)
        assert (bound <= 2.0) == (noise == 1.0), bound


def test_section_six() -> None:
    """The published experiment with correct noise, at two budgets (see the design)."""
    t = np.arange(1, 14.0)

    def truncated(rng, mean, sd, low, high, shape):
        a, b = (low - mean) / sd, (high - mean) / sd
        return stats.truncnorm.rvs(a, b, mean, sd, shape, random_state=rng)

    for eps, expected in ((10.0, 9.9), (20.0, 2.7)):
        found = []
        for seed in range(300):
            rng = np.random.default_rng([seed, 6])
            units = truncated(rng, 4, 1, 3, 5, (11, 1)) * t
            units = (units + truncated(rng, 0, 0.1, -1, 1, (11, 13))) / 61.7
            released = run(
                "output",
                panel_of(units[1:], units[0], 10),
                eps,
                0.0,
                SeededSource(seed),
                release="matrix",
                project=False,
                target_norm="bound",
            )
            gap = (released.predict(units[:1]) - units[:1])[0, 10:]
            found.append(np.sqrt(np.mean(gap**2)))
        assert np.mean(found) == pytest.approx(expected, rel=0.15)


def test_errors_are_finite_and_options_checked() -> None:
    rng = np.random.default_rng(12)
    panel = panel_of(rng.uniform(-1, 1, (5, 7)), rng.uniform(-1, 1, 7), 4)
    for method in ("output", "objective"):
        for project in (True, False):
            released = run(method, panel, 1.0, 0.0, project=project)
            for parts in ("both", "sampling", "privacy"):
                errors = released.errors(panel.targets[0], 50, rng, parts)
                assert np.isfinite(errors.periods).all()
            assert released.noise_sd() > 0.0
        with pytest.raises(DPStatsError, match="`release`"):
            run(method, panel, 1.0, release="both")
        with pytest.raises(DPStatsError, match="`penalty`"):
            run(method, panel, 1.0, penalty=0.0)
        with pytest.raises(DPStatsError, match="no option"):
            run(method, panel, 1.0, rank=2)
        with pytest.raises(DPStatsError, match="only for the units"):
            released.predict(np.zeros((1, 7)))
