"""What the random inputs found, each pinned by the smallest input that shows it."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from checks import attempt

import dpstats as dp
from dpstats.synth.kernels import loadings


def trial(n: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {"y": rng.uniform(size=n), "w": rng.integers(2, size=n), "Intercept": np.arange(n) / n}
    )


BOUNDS = {"y": (0, 1), "Intercept": (0, 1)}


def test_a_column_called_as_patsy_calls_the_constant():
    """patsy stopped with an AssertionError."""
    frame = trial()

    def run(formula):
        return attempt(
            lambda: dp.dp_ate(formula, "w", frame, 1.0, bounds=BOUNDS, method="aipw", rng=1)
        )

    result, error, _ = run("y ~ Intercept")
    assert result is None
    assert 'Q("Intercept")' in error
    quoted, error, _ = run('y ~ Q("Intercept")')
    assert error is None
    # under another name it is the same column
    frame = frame.rename(columns={"Intercept": "x"})
    bounds = {"y": (0, 1), "x": (0, 1)}
    other, error, _ = attempt(
        lambda: dp.dp_ate("y ~ x", "w", frame, 1.0, bounds=bounds, method="aipw", rng=1)
    )
    assert error is None
    assert math.isclose(quoted.params["ATE"], other.params["ATE"])


@pytest.mark.parametrize("eps", [1e3, 1e6])
def test_the_published_number_of_blocks_has_an_end(eps):
    """At eps = 340,000 the published rule asked for 680,000 blocks of two rows: it took hours."""
    result, error, _ = attempt(
        lambda: dp.dp_ate(
            "y ~ 1", "w", trial(), eps, bounds=BOUNDS, blocks="published", adjust=False, rng=1
        )
    )
    assert error is None
    assert len(result.blocks) == 200
    _, error, _ = attempt(
        lambda: dp.dp_ate("y ~ 1", "w", trial(), eps, bounds=BOUNDS, blocks=201, rng=1)
    )
    assert "from 1 to 200" in error


def test_an_estimate_of_zero_without_error_has_no_nan():
    """A treated series of zeros: the synthetic one is zero whatever the weights; z was 0/0."""
    grid = np.vstack([np.zeros(6), np.random.default_rng(1).uniform(-1, 1, (1, 6))])
    result, error, _ = attempt(
        lambda: dp.dp_synth(
            pd.DataFrame(grid), wide=True, treated=0, T0=3, eps=1e6, bounds=(-1, 1), rng=1
        )
    )
    assert error is None
    assert result.params["ATT"] == result.bse["ATT"] == 0.0
    assert result.tvalues["ATT"] == 0.0
    assert result.pvalues["ATT"] == 1.0
    assert "nan" not in str(result.summary())


def test_a_score_without_an_arm_at_infinite_eps():
    """Dividing by a share of controls of zero raised a ZeroDivisionError."""
    frame = trial(20).assign(w=lambda f: (np.arange(len(f)) >= 2).astype(int))
    for estimand in ("ate", "att", "atc"):
        ends = set()
        for share in (0.1, 0.3, 0.5, 0.7, 0.9):
            result, error, _ = attempt(
                lambda estimand=estimand, share=share: dp.dp_ate(
                    "y ~ 1",
                    "w",
                    frame,
                    math.inf,
                    method="split_ipw",
                    estimand=estimand,
                    train_share=share,
                )
            )
            ends.add(error is None)
            assert error is not None or np.isfinite(result.params).all()
            assert error is None or "`train_share`" in error or "`propensity`" in error
        assert ends == {True, False}


def test_scores_where_the_identity_is_lost_in_rounding():
    """Without noise, numpy found a singular matrix: the limit is the pseudo-inverse."""
    upper, weights = np.ones((2, 2)), np.full(2, 1e-20)
    found = loadings.score_map(upper, weights)
    np.testing.assert_allclose(found, np.linalg.pinv(upper), rtol=1e-12)
    batch = loadings.score_map(np.stack([upper, np.eye(2)]), np.stack([weights, np.ones(2)]))
    np.testing.assert_allclose(batch, [np.linalg.pinv(upper), np.eye(2) / 2], rtol=1e-12)
    root = loadings.score_root(upper, weights)
    # what no coordinate tells keeps the variance of 1
    np.testing.assert_allclose(root @ root.T, [[0.5, -0.5], [-0.5, 0.5]], atol=1e-12)


def test_lasso_with_a_donor_that_is_zero_beside_a_large_one():
    """A penalty over the length of a series of zeros overflowed."""
    rng = np.random.default_rng(1)
    grid = np.vstack([rng.uniform(size=4), np.zeros(4), [2.0**14] * 4, rng.uniform(size=(5, 4))])
    panel = pd.DataFrame(grid)
    weights = []
    for frame in (panel, panel.drop(index=1)):
        result, error, _ = attempt(
            lambda frame=frame: dp.dp_synth(
                frame, wide=True, treated=0, T0=1, eps=math.inf, method="lasso"
            )
        )
        assert error is None
        weights.append(result.weights)
    assert weights[0].iloc[0] == 0.0
    np.testing.assert_allclose(weights[0].iloc[1:], weights[1], atol=1e-9)
