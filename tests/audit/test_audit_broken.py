"""Broken mechanisms are caught, and their honest twins are not."""

from __future__ import annotations

import numpy as np
import pytest
from audit_runs import FALSE_ALARM, flipped, gaussian_scale, geometric, knorm

from dpstats import audit


def additive(shift, noise):
    """A release of `shift` on one data set and of zeros on the other."""

    def runs(rng, size):
        return shift + noise(rng, size), 0.0 * shift + noise(rng, size)

    return runs


def clipped_at_the_maximum(rng, size):
    # a mean, its noise scaled by the largest value of the data
    own, other = np.array([0.1, 0.2, 0.3, 5.0]), np.array([0.1, 0.2, 0.3, 0.2])
    return tuple(d.mean() + rng.laplace(scale=d.max() / 4, size=size) for d in (own, other))


def scaled_by_the_range(rng, size):
    # the same mean, but numbers as shares of the range, which nobody protects
    own, other = np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.5, 0.7])
    return tuple(d.mean() / d.max() + rng.laplace(scale=1 / 3, size=size) for d in (own, other))


def exact_intercept(rng, size):
    noise = rng.laplace(scale=3.0, size=(2, size, 3))
    noise[:, :, 0] = 0.0
    return np.array([1.0, 0.5, 0.5]) + noise[0], noise[1]


def variance_of_the_data(rng, size):
    # the mean is the same, the correlation of the noise is not
    normals = rng.standard_normal((2, size, 2))
    return normals[0] @ np.array([[1.0, 0.9], [0.0, 0.2]]), normals[1]


def sometimes_the_row_itself(rng, size):
    # one release in 20 is the value, with no noise
    values = []
    for row in (0.123, 0.456):
        open_ = rng.uniform(size=size) < 0.05
        values.append(np.where(open_, row, rng.normal(scale=3.0, size=size)))
    return values


def often_no_answer(rng, size):
    noise = rng.laplace(scale=5.0, size=(2, size))
    noise[0, rng.uniform(size=size) < 0.1] = np.nan
    return noise


def leaks_by_order(rng, size):
    """Two numbers in an order that tells; each of them alone tells nothing."""
    pairs = np.sort(rng.uniform(size=(2, size, 2)), axis=2)
    swap = rng.uniform(size=size) < 0.5
    pairs[1, swap] = pairs[1, swap, ::-1]
    return pairs


def exponential_radius(d):
    return additive(
        np.eye(d)[0],
        lambda rng, size: knorm(rng, size, d, 1.0, lambda r, scale, m: r.exponential(scale, m)),
    )


BROKEN = {
    "noise halved": (additive(1.0, lambda r, m: r.laplace(scale=0.5, size=m)), 1.0, 0.0),
    "geometric halved": (additive(1, lambda r, m: geometric(r, m, 2.0)), 1.0, 0.0),
    "response flipped too rarely": (
        lambda r, m: (flipped(r, m, 1, 1.3), flipped(r, m, 0, 1.3)),
        1.0,
        0.0,
    ),
    "gaussian halved": (
        additive(1.0, lambda r, m: r.normal(scale=gaussian_scale(1.0, 0.05) / 2, size=m)),
        1.0,
        0.05,
    ),
    "one draw for two numbers": (
        additive(np.array([1.0, 0.0]), lambda r, m: r.laplace(scale=9.0, size=(m, 1))),
        1.0,
        0.0,
    ),
    "one draw for ten numbers": (
        additive(np.full(10, 0.1) * np.arange(10), lambda r, m: r.laplace(scale=9.0, size=(m, 1))),
        1.0,
        0.0,
    ),
    "three draws for ten numbers": (
        additive(
            np.eye(10)[0],
            lambda r, m: (
                r.laplace(scale=20.0, size=(m, 3)) @ np.random.default_rng(5).normal(size=(3, 10))
            ),
        ),
        1.0,
        0.0,
    ),
    "exponential radius, d = 2": (exponential_radius(2), 1.0, 0.0),
    "exponential radius, d = 5": (exponential_radius(5), 1.0, 0.0),
    "exponential radius, d = 20": (exponential_radius(20), 1.0, 0.0),
    "clipped at the maximum": (clipped_at_the_maximum, 1.0, 0.0),
    "scaled by the range": (scaled_by_the_range, 0.1, 0.0),
    "exact intercept": (exact_intercept, 1.0, 0.0),
    "correlation of the data": (variance_of_the_data, 1.0, 0.0),
    "sometimes the row itself": (sometimes_the_row_itself, 1.0, 1e-3),
    "often no answer": (often_no_answer, 1.0, 0.0),
    "order": (leaks_by_order, 1.0, 0.0),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_mechanisms_are_caught(name: str) -> None:
    runs, claimed, delta = BROKEN[name]
    samples = runs(np.random.default_rng(6), 10_000)
    found = audit.from_samples(*samples, eps=claimed, delta=delta, false_alarm=FALSE_ALARM)
    assert found.epsilon > claimed
    assert found.delta_bound > delta
    assert found.passed is False


@pytest.mark.parametrize(
    "name", ["one draw for two numbers", "three draws for ten numbers", "exact intercept"]
)
def test_a_number_without_noise_gives_the_largest_bound_there_is(name: str) -> None:
    samples = BROKEN[name][0](np.random.default_rng(7), 10_000)
    found = audit.from_samples(*samples, false_alarm=FALSE_ALARM)
    assert found.epsilon >= 0.99 * found.ceiling > 6.0


HONEST = {
    "independent draws": additive(
        np.array([0.5, -0.5]), lambda r, m: r.laplace(scale=1.0, size=(m, 2))
    ),
    "gamma radius": additive(np.eye(5)[0], lambda r, m: knorm(r, m, 5, 1.0)),
    "one draw for equal shifts": additive(
        np.ones(3), lambda r, m: r.laplace(scale=1.0, size=(m, 1))
    ),
    "atoms on both": lambda r, m: np.maximum(
        np.array([[1.0], [0.0]]) + r.laplace(size=(2, m)), 0.0
    ),
    "nothing but constants": lambda r, m: np.ones((2, m, 2)),
    "infinite on both": lambda r, m: 1.0 / (r.uniform(size=(2, m)) < 0.5),
    "huge on both": lambda r, m: r.normal(size=(2, m, 2)) * 1e300,
}


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("seed", range(3))
def test_honest_twins_pass(name: str, seed: int) -> None:
    with np.errstate(divide="ignore"):
        samples = HONEST[name](np.random.default_rng([8, seed]), 10_000)
    assert audit.from_samples(*samples, eps=1.0, false_alarm=FALSE_ALARM).passed


def test_the_last_bits_of_floating_point_noise() -> None:
    """Mironov (2012): noise that a sampler of doubles adds to 0 is finer than what it adds to 1."""
    rng = np.random.default_rng(9)
    first, second = 1.0 + rng.laplace(size=10_000), rng.laplace(size=10_000)
    assert audit.from_samples(first, second, eps=1.0, false_alarm=FALSE_ALARM).passed
    found = audit.from_samples(first, second, eps=1.0, false_alarm=FALSE_ALARM, bits=True)
    assert found.epsilon > 4.0
    assert "lowest bit" in found.event
    # on a grid there is nothing to see
    gridded = [np.ldexp(np.rint(np.ldexp(runs, 30)), -30) for runs in (first, second)]
    assert audit.from_samples(*gridded, eps=1.0, false_alarm=FALSE_ALARM, bits=True).passed
