"""Intervals of `moments` where the release holds next to nothing."""

from __future__ import annotations

import dataclasses
import math
import warnings

import numpy as np
import pytest
from synth_panels import factor, panel_of, run

import dpstats as dp
from dpstats.privacy.noise import SeededSource
from dpstats.simulate.panels import PROCESSES

KINDS = [pytest.param(1e-6, id="gaussian"), pytest.param(0.0, id="pure")]
# the rule: no interval is wider than three times the range of what the outcome can plausibly be
WIDEST = 3.0
RANGES = {"factor": 2.0, "smooth": 40.0, "packs": 300.0}


def widths(released, target, draws=400):
    """Widths of the 95% intervals: of the mean, and of the widest period."""
    errors = released.errors(target, draws, np.random.default_rng(1), "both")
    mean = 2.0 * np.quantile(np.abs(errors.att), 0.95)
    return mean, 2.0 * np.quantile(np.abs(errors.periods), 0.95, axis=0).max()


@pytest.fixture(scope="module")
def tobacco():
    pytest.importorskip("synthdid")
    return dp.datasets.load_prop99().data


def test_tobacco_intervals_have_a_sane_width(tobacco) -> None:
    call = {"unit": "state", "time": "year", "outcome": "cigsale", "treated": "California"}
    nothing = 0
    for seed in range(60):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = dp.dp_synth(tobacco, T0=1988, eps=1, delta=1e-6, rng=seed, **call)
        nothing += result.released.directions == 0
        for which in ("params", "periods"):
            found = result.conf_int(which=which).to_numpy()
            assert np.ptp(found, axis=1).max() <= WIDEST * RANGES["packs"], (seed, which)
    assert nothing >= 5


@pytest.mark.parametrize("eps", [0.1, 1.0])
@pytest.mark.parametrize("delta", KINDS)
def test_intervals_of_untreated_states_cover(tobacco, eps: float, delta: float) -> None:
    wide = tobacco.pivot(index="state", columns="year", values="cigsale").drop(index="California")
    series = wide.to_numpy(dtype=float)
    covered = []
    for place, target in enumerate(series):
        panel = panel_of(np.delete(series, place, axis=0), target, 19)
        for seed in range(2):
            released = run("moments", panel, eps, delta, SeededSource([seed, place]))
            errors = released.errors(target, 400, np.random.default_rng(1), "both")
            gap = (released.predict(target[None])[0] - target)[19:]
            covered.append(np.abs(gap) <= np.quantile(np.abs(errors.periods), 0.95, axis=0))
    # real states are no draws of the model
    assert np.mean(covered) > 0.9


@pytest.mark.parametrize("process", ["factor", "smooth"])
@pytest.mark.parametrize("delta", KINDS)
@pytest.mark.parametrize("n", [3, 10])
def test_a_handful_of_donors(process: str, delta: float, n: int) -> None:
    covered = []
    for seed in range(40):
        rng = np.random.default_rng([41, n, seed])
        paths = np.sum(PROCESSES[process].draw(rng, n + 1, 30), axis=0)
        panel = panel_of(paths[1:], paths[0], 20)
        released = run("moments", panel, 1.0, delta, SeededSource([42, n, seed]))
        errors = released.errors(paths[0], 400, np.random.default_rng(1), "both")
        gap = (released.predict(paths[:1])[0] - paths[0])[20:]
        covered.append(np.abs(gap) <= np.quantile(np.abs(errors.periods), 0.95, axis=0))
        assert max(widths(released, paths[0])) <= WIDEST * RANGES[process]
    assert np.mean(covered) > 0.9


@pytest.mark.parametrize("eps", [1e-6, 1e-2, 30.0, 1e4, 1e6, 1e9])
@pytest.mark.parametrize("delta", KINDS)
@pytest.mark.parametrize("n", [3, 10, 38])
def test_tiny_and_huge_budgets(eps: float, delta: float, n: int) -> None:
    for seed in range(5):
        paths = np.sum(PROCESSES["smooth"].draw(np.random.default_rng(seed), n + 1, 30), axis=0)
        panel = panel_of(paths[1:], paths[0], 20)
        released = run("moments", panel, eps, delta, SeededSource([43, seed]))
        assert max(widths(released, paths[0])) <= WIDEST * RANGES["smooth"]


@pytest.mark.parametrize("eps", [1e3, 1e6, 1e9])
def test_an_exact_factor_model_leaves_no_rounding_error(eps: float) -> None:
    rng = np.random.default_rng(44)
    paths = rng.standard_normal((301, 2)) @ rng.standard_normal((2, 30))
    released = run("moments", panel_of(paths[1:], paths[0], 20), eps, 1e-6)
    assert max(widths(released, paths[0])) < 0.05


@pytest.mark.parametrize("delta", KINDS)
def test_a_release_of_noise_inflates_by_no_more_than_the_public_bound(delta: float) -> None:
    """sqrt(n (1/even + even/s^2)), for a metric that found nothing either."""
    donors, target, _ = factor(38, np.random.default_rng(45))
    plain = run("moments", panel_of(donors, target, 20), 1.0, delta)
    size = len(plain.matrix)
    plain = dataclasses.replace(plain, metric=np.eye(size))
    even = 38.0 / (size - 1.0)
    s = plain.entry_sd * math.sqrt(2.0 / size)
    bound = math.sqrt(38.0 * (1.0 / even + even / s**2))
    assert 2.0 < bound < 7.0
    rng = np.random.default_rng(46)
    spreads = []
    for _ in range(300):
        basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
        values = plain.noise_edge * rng.uniform(rng.uniform(-3.0, 0.0), 1.0, size)
        noise = dataclasses.replace(plain, matrix=(basis * values) @ basis.T)
        if noise.directions == 0:
            errors = noise.errors(target, 50, np.random.default_rng(1), "sampling")
            spreads.append([np.std(errors.periods), np.std(errors.att)])
    # what is simulated before the factor, at least 1, does not depend on the release
    ratios = np.max(spreads, axis=0) / np.min(spreads, axis=0)
    assert len(spreads) > 100
    assert (ratios > 1.5).all()
    assert (ratios <= bound).all()


def test_a_mean_is_no_further_off_than_its_periods() -> None:
    for seed in range(40):
        donors, target, _ = factor(30, np.random.default_rng([47, seed]))
        released = run("moments", panel_of(donors, target, 20), 1.0, 1e-6, SeededSource(seed))
        errors = released.errors(target, 200, np.random.default_rng(1), "both")
        square = np.mean(errors.att**2)
        assert square <= np.mean(errors.periods**2) * (1.0 + 1e-9)
