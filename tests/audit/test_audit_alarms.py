"""The rate of false alarms, where bounds are sharp, scores are learned and pairs searched."""

from __future__ import annotations

import math

import numpy as np
import pytest
from audit_runs import flipped
from scipy.stats import binom

from dpstats import audit


def exceedances(bounds, truth: float) -> int:
    return sum(bound > truth for bound in bounds)


def allowed(audits: int, false_alarm: float) -> int:
    """As many exceedances as a rate of `false_alarm` gives but once in a million."""
    return int(binom.ppf(1.0 - 1e-6, audits, false_alarm))


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_false_alarms_where_the_bound_is_sharp(epsilon: float) -> None:
    """Randomised response: both of its events have log ratios of exactly eps."""
    rng, alarm, bounds, naive = np.random.default_rng(10), 0.1, [], []
    for _ in range(200):
        first, second = flipped(rng, 200, 1, epsilon), flipped(rng, 200, 0, epsilon)
        found = audit.from_samples(first, second, eps=epsilon, false_alarm=alarm)
        bounds.append(found.epsilon)
        assert (found.epsilon > epsilon) <= (not found.passed)
        naive.append(math.log(first[100:].mean() / second[100:].mean()))
    assert exceedances(bounds, epsilon) <= allowed(200, alarm)
    # the check has teeth: observed ratios without limits fail it
    assert exceedances(naive, epsilon) > allowed(200, alarm)


def test_false_alarms_of_learned_scores() -> None:
    rng, alarm, bounds, deltas = np.random.default_rng(11), 0.2, [], []
    for _ in range(60):
        noise = rng.laplace(size=(2, 200, 2))
        # the events x1 >= 1 have log ratios of exactly eps = 1
        found = audit.from_samples([1.0, 0.0] + noise[0], noise[1], eps=1.0, false_alarm=alarm)
        bounds.append(found.epsilon)
        deltas.append(found.delta_bound)
    assert exceedances(bounds, 1.0) <= allowed(60, alarm)
    assert exceedances(deltas, 0.0) <= allowed(60, alarm)


def test_false_alarms_of_a_search() -> None:
    """Equal pairs: the luckiest one of the pilot is not lucky any more when it is judged."""
    alarm, bounds, pilots = 0.2, [], []
    for seed in range(40):
        found = audit.search(
            lambda truth, rng: flipped(rng, None, truth, 0.5),
            [(1, 0)] * 6,
            eps=0.5,
            trials=100,
            pilot=60,
            false_alarm=alarm,
            progress=False,
            rng=seed,
        )
        bounds.append(found.epsilon)
        pilots.append(max(found.pilot))
    assert exceedances(bounds, 0.5) <= allowed(40, alarm)
    # the bounds of the pilot would not do
    assert np.mean(pilots) > np.mean(bounds)
