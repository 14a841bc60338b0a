"""Noise of `gram_rounds` and `choose`: distribution, privacy, records, both sources."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from synth_panels import Silent

from dpstats.privacy.accounting import Cost
from dpstats.privacy.calibration import gaussian_dp_level, gaussian_log_delta
from dpstats.privacy.mechanisms import Mechanisms
from dpstats.privacy.noise import SeededSource, SystemSource

ROUNDS = {"directions": 0.3, "moments": 0.7}


def release(source, kind, eps, delta, matrix, rounds=ROUNDS, rows=1000):
    mechanisms = Mechanisms(source, kind, {"moments": Cost(eps, delta)})
    return mechanisms.gram_rounds("moments", rounds, lambda _: matrix, rows=rows, lattice=-30)


def draws(source, kind, eps, delta, q, count):
    zero = np.zeros((q, q))
    rounds = {"moments": 1.0}
    return np.array(
        [release(source, kind, eps, delta, zero, rounds).values[0] for _ in range(count)]
    )


def test_level_is_that_of_gaussian_dp() -> None:
    mu = gaussian_dp_level(1.0, 1e-6)
    assert mu == pytest.approx(0.23671, abs=1e-5)
    assert gaussian_log_delta(mu, 1.0) <= math.log(1e-6) < gaussian_log_delta(mu * 1.0001, 1.0)


@pytest.mark.parametrize("source", [SeededSource(1), SystemSource()], ids=["seeded", "system"])
def test_gaussian_entries(source) -> None:
    mu = gaussian_dp_level(1.0, 1e-6)
    found = draws(source, "gaussian", 1.0, 1e-6, 4, 250)
    assert np.array_equal(found, found.swapaxes(1, 2))
    upper = found[:, [0, 0, 0, 1], [1, 2, 3, 2]]
    assert stats.kstest(upper.ravel() * mu, "norm").pvalue > 1e-4
    diagonal = found[:, range(4), range(4)]
    assert stats.kstest(diagonal.ravel() * mu / math.sqrt(2.0), "norm").pvalue > 1e-4


@pytest.mark.parametrize("source", [SeededSource(2), SystemSource()], ids=["seeded", "system"])
def test_wishart_difference_of_size_one_is_laplace(source) -> None:
    found = draws(source, "laplace", 0.5, 0.0, 1, 1500).ravel()
    assert stats.kstest(found, "laplace", (0.0, 2.0 / 0.5)).pvalue > 1e-4


@pytest.mark.parametrize("q", [2, 5, 20])
def test_wishart_difference_moments(q: int) -> None:
    eps, count = 0.7, 400
    found = draws(SeededSource(3), "laplace", eps, 0.0, q, count)
    assert np.array_equal(found, found.swapaxes(1, 2))
    traces = np.trace(found, axis1=1, axis2=2)
    # a trace is a difference of two chi-squares with q(q + 1) degrees of freedom
    sd = math.sqrt(4.0 * q * (q + 1)) / eps
    assert abs(traces.mean()) < 4.5 * sd / math.sqrt(count)
    assert traces.std() == pytest.approx(sd, rel=0.2)
    off = found[:, 0, 1]
    assert off.std() == pytest.approx(math.sqrt(2.0 * (q + 1)) / eps, rel=0.2)
    largest = np.linalg.eigvalsh(found)[:, -1]
    if q == 20:
        # free convolution of two Marchenko-Pastur laws; the formula is on the safe side
        assert 0.8 < np.median(largest) / (3.33 * (q + 0.5) / eps) < 1.02


def test_wishart_difference_density_ratio() -> None:
    """Monte Carlo of the density of 2 x 2 noise: neighbours are within eps, and close to it."""
    rng = np.random.default_rng(0)
    c = 0.5
    root = np.random.default_rng(1).standard_normal((200_000, 2, 3)) / math.sqrt(4.0 * c)
    flat = root @ root.swapaxes(1, 2)

    def log_density(e):
        a = flat + e
        inside = (a[:, 0, 0] > 0.0) & (a[:, 0, 0] * a[:, 1, 1] > a[:, 0, 1] ** 2)
        return -c * np.trace(e) + math.log(inside.mean())

    worst = 0.0
    for _ in range(60):
        e = rng.standard_normal((2, 2))
        e = (e + e.T) * rng.choice([0.3, 1.0, 1.5])
        b, d = rng.standard_normal((2, 2))
        b, d = b / np.linalg.norm(b), d / np.linalg.norm(d)
        shift = np.outer(b, b) - np.outer(d, d)
        worst = max(worst, abs(log_density(e + shift) - log_density(e)))
    assert 0.6 < worst < 1.02


def test_norms_of_a_replaced_row() -> None:
    """Random and adversarial unit rows: sqrt 2 and 2 are attained, never exceeded."""
    rng = np.random.default_rng(4)
    frobenius = nuclear = 0.0
    for _ in range(3000):
        q = rng.integers(2, 6)
        b, c = rng.standard_normal((2, q)) * rng.choice([0.0, 1.0], (2, q), p=[0.4, 0.6])
        b, c = (v / max(np.linalg.norm(v), 1e-300) for v in (b, c))
        eigenvalues = np.linalg.eigvalsh(np.outer(b, b) - np.outer(c, c))
        frobenius = max(frobenius, float(np.linalg.norm(eigenvalues)))
        nuclear = max(nuclear, float(np.abs(eigenvalues).sum()))
    assert frobenius == pytest.approx(math.sqrt(2.0), abs=1e-9)
    assert nuclear == pytest.approx(2.0, abs=1e-9)


def test_records() -> None:
    matrix = np.eye(3)
    gaussian = release(SeededSource(5), "gaussian", 1.0, 1e-6, matrix)
    (record,) = gaussian.records
    mu = gaussian_dp_level(1.0, 1e-6)
    assert (record.release, record.mechanism) == ("moments", "Gaussian, two rounds")
    assert (record.norm, record.sensitivity) == ("Frobenius", math.sqrt(2.0))
    assert record.scale == pytest.approx(math.sqrt(2.0) / mu)
    assert (record.epsilon, record.delta) == (1.0, 1e-6)
    assert gaussian.levels == pytest.approx((mu * math.sqrt(0.3), mu * math.sqrt(0.7)))

    pure = release(SeededSource(5), "laplace", 1.0, 0.0, matrix)
    assert [record.release for record in pure.records] == ["directions", "moments"]
    assert [record.epsilon for record in pure.records] == pytest.approx([0.3, 0.7])
    assert {record.mechanism for record in pure.records} == {"Wishart difference"}
    for record in pure.records:
        assert (record.norm, record.sensitivity) == ("nuclear", 2.0)
        assert record.scale == pytest.approx(2.0 / record.epsilon)
        assert record.delta == 0.0

    exact = release(None, "laplace", math.inf, 0.0, matrix)
    assert exact.records == ()
    assert np.array_equal(exact.values[0], matrix)


@pytest.mark.parametrize(("kind", "delta"), [("gaussian", 1e-6), ("laplace", 0.0)])
@pytest.mark.parametrize("eps", [1e-8, 1e-3, 1.0, 1e6, 1e12])
def test_any_budget_gives_numbers(kind, delta, eps) -> None:
    matrix = 1000.0 * np.eye(3)
    found = release(SeededSource(6), kind, eps, delta, matrix)
    assert all(np.isfinite(value).all() for value in found.values)
    if eps == 1e12:
        assert found.values[1] == pytest.approx(matrix, abs=1e-4)


def test_rounds_have_noise_of_their_own() -> None:
    zero = np.zeros((3, 3))
    source = SeededSource(7)
    first, second = release(source, "gaussian", 1.0, 1e-6, zero, {"a": 0.5, "b": 0.5}).values
    assert not np.any(first == second)


def test_choose_is_the_argmax_without_noise_and_within_epsilon_with_it() -> None:
    scores = np.array([1.0, 5.0, 3.0])
    assert Mechanisms(None, "laplace", {}).choose("scale", scores) == (1, ())
    silent = Silent()
    found, (record,) = Mechanisms(silent, "gaussian", {"scale": Cost(0.5)}).choose("scale", scores)
    assert found == 1
    assert (record.norm, record.sensitivity, record.scale) == ("linf", 1.0, 4.0)
    assert record.mechanism == "report noisy max (Laplace)"

    # neighbours: every score moves by one
    eps, trials = 1.0, 6000
    counts = []
    for seed, near in ((1, [0.0, 1.0]), (2, [1.0, 0.0])):
        mechanisms = Mechanisms(SeededSource(seed), "laplace", {"scale": Cost(eps)})
        chosen = [mechanisms.choose("scale", near)[0] for _ in range(trials)]
        counts.append(np.mean(chosen))
    ratio = math.log(counts[0] / counts[1])
    assert 0.3 < ratio < eps + 0.1
