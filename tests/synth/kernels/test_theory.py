"""The accuracy bounds lie above the measured error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from synth_panels import panel_of, run

from dpstats.errors import DPStatsError
from dpstats.privacy.noise import SeededSource
from dpstats.synth.kernels.exact import ridge_weights
from dpstats.synth.kernels.weights import project_l1
from dpstats.synth.theory import Setting, fit_bound, objective_bound, output_bound

TRIALS = 120


def world(seed: int, n: int, before: int, after: int, sigma: float):
    """Donors of full rank, so that f and M_post lie in the range of X_pre."""
    rng = np.random.default_rng(seed)
    signal = 0.8 * np.sign(rng.standard_normal((n, before + after)))
    f = project_l1(rng.standard_normal(n))
    noise = sigma * rng.uniform(-1, 1, signal.shape) * math.sqrt(3.0)
    target = f @ signal + sigma * rng.uniform(-1, 1, before + after) * math.sqrt(3.0)
    return signal, np.clip(signal + noise, -1, 1), target, f


def measured(method: str, eps: float, delta: float, n: int, sigma: float, penalty, **options):
    before, after = 16, 4
    squares, smallest, post, norms, top = [], math.inf, 0.0, 0.0, 0.0
    for seed in range(TRIALS):
        signal, donors, target, f = world(seed, n, before, after, sigma)
        panel = panel_of(donors, target, before)
        released = run(
            method, panel, 2.0 * eps, 2.0 * delta, SeededSource(seed), penalty, **options
        )
        gap = released.predict(target[None])[0, before:] - f @ signal[:, before:]
        squares.append(np.mean(gap**2))
        smallest = min(smallest, np.linalg.svd(donors[:, :before])[1][-1] ** 2)
        post = max(post, np.linalg.norm(signal[:, before:], 2))
        norms = max(norms, float(np.linalg.norm(target[:before])))
        top = max(top, float(np.abs(target[:before]).max()))
    xi = 1.0 - smallest / before
    setting = Setting(n, before, after, sigma, xi=xi, post_norm=post)
    return math.sqrt(np.mean(squares)), setting, norms, top


@pytest.mark.parametrize("eps", [1.0, 20.0, 1e4])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("release", ["projection", "matrix"])
@pytest.mark.parametrize("project", [True, False])
def test_output(eps, delta, release, project) -> None:
    error, setting, norm, _ = measured(
        "output", eps, delta, 5, 0.05, 4.0, release=release, project=project
    )
    bound = output_bound(
        setting,
        eps,
        eps,
        penalty=4.0,
        release=release,
        project=project,
        target_norm=norm,
        delta_weights=delta,
        delta_prediction=delta,
    )
    assert error <= bound.rmse
    if not project and eps == 1.0:
        # and of the right order where noise of the mechanism is all there is
        assert bound.rmse < 6.0 * error


@pytest.mark.parametrize("eps", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("release", ["projection", "matrix"])
def test_objective(eps, delta, release) -> None:
    error, setting, _, top = measured("objective", eps, delta, 5, 0.05, 4.0, release=release)
    bound = objective_bound(
        setting,
        eps,
        eps,
        penalty=4.0,
        release=release,
        largest_target=top,
        delta_weights=delta,
        delta_prediction=delta,
    )
    assert error <= bound.rmse


@pytest.mark.parametrize("n", [2, 8, 16])
@pytest.mark.parametrize("penalty", [0.5, 16.0, 100.0])
def test_fit(n: int, penalty: float) -> None:
    squares, smallest = [], math.inf
    for seed in range(200):
        _, donors, target, f = world(seed, n, 16, 1, 0.05)
        weights = ridge_weights(donors[:, :16], target[:16], penalty)
        squares.append(np.sum((weights - f) ** 2))
        smallest = min(smallest, np.linalg.svd(donors[:, :16])[1][-1] ** 2)
    setting = Setting(n, 16, 1, 0.05, xi=min(1.0, 1.0 - smallest / 16.0))
    assert math.sqrt(np.mean(squares)) <= fit_bound(setting, penalty)


def test_published_constants_are_too_small() -> None:
    """The noise alone exceeds what the published theorem has for all of the error."""
    n = 30
    setting = Setting(n, 16, 4, 0.0)
    bound = output_bound(setting, 1.0, 1.0, release="matrix", project=False)
    # E||v|| is n times the scale, not the scale
    assert bound.weights > 0.9 * n * setting.gain * math.sqrt(2.0)


def test_assumptions_are_printed() -> None:
    text = str(output_bound(Setting(10, 10, 3, 0.01), 1.0, 1.0))
    assert "Assumed:" in text
    assert "range of X_pre" in text
    assert "||f||_1 <= 1" in text
    with pytest.raises(DPStatsError, match="`xi`"):
        Setting(10, 10, 3, 0.01, xi=2.0)
    with pytest.raises(DPStatsError, match="`release`"):
        output_bound(Setting(10, 10, 3, 0.01), 1.0, 1.0, release="both")
