"""The solver: scipy's optimisers, statsmodels and scikit-learn are the oracles.

The objective is convex, so a small gradient *computed elsewhere* (here by scipy's `expit` in
extended precision) is a certificate. Fixed seeds, deterministic.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from dpstats.logistic import minimise, row_scales, sigmoid_of


def gradient_at(coef, X, W, scales, penalty, linear):
    """The gradient in extended precision."""
    rows = np.asarray(X, dtype=np.longdouble)
    if scales is not None:
        rows = rows * np.asarray(scales, dtype=np.longdouble)[:, None]
    coef = np.asarray(coef, dtype=np.longdouble)
    return rows.T @ (special.expit(rows @ coef) - W) + penalty * coef + linear


def objective_at(coef, X, W, scales, penalty, linear):
    z = (X if scales is None else X * scales[:, None]) @ coef
    return np.logaddexp(0.0, np.where(W, -z, z)).sum() + penalty / 2 * coef @ coef + linear @ coef


def solve(X, W, *, scales=None, penalty=1.0, linear=None, tolerance=1e-9):
    linear = np.zeros(X.shape[1]) if linear is None else linear
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = minimise(X, W, scales, penalty=penalty, linear=linear, tolerance=tolerance)
    actual = float(np.linalg.norm(gradient_at(found.coefficients, X, W, scales, penalty, linear)))
    # what it says about itself is true, up to rounding
    assert actual <= found.gradient_norm + tolerance
    return found


def sample(rng, n, d, kind="plain"):
    X = rng.uniform(-1.0, 1.0, (n, d))
    X[:, 0] = 0.5
    u = X @ rng.normal(size=d)
    W = rng.random(n) < special.expit(2.0 * u)
    if kind == "separated":
        W = u > np.median(u)
    if kind == "one arm":
        W = np.ones(n, dtype=bool)
    if kind == "collinear" and d > 1:
        X[:, -1] = -X[:, 0]
    if kind == "nearly collinear" and d > 1:
        X[:, -1] = X[:, 0] * (1.0 + 1e-10 * rng.random(n))
    if kind == "zero columns" and d > 1:
        X[:, 1:] = 0.0
    if kind == "badly scaled":
        X *= 10.0 ** rng.uniform(-8.0, 0.0, d)
    if kind == "rare":
        W = rng.random(n) < 0.01
    return X, W


KINDS = (
    "plain",
    "separated",
    "one arm",
    "collinear",
    "nearly collinear",
    "zero columns",
    "badly scaled",
    "rare",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 30, 2000])
@pytest.mark.parametrize("d", [1, 2, 6])
@pytest.mark.parametrize("penalty", [1e-8, 1e-2, 2.0, 1e4])
def test_the_tolerance_is_reached(kind, n, d, penalty):
    rng = np.random.default_rng(n * 100 + d)
    X, W = sample(rng, n, d, kind)
    scales = row_scales(X, 1.0)
    for linear in (np.zeros(d), penalty * rng.normal(size=d), 30 * penalty * rng.normal(size=d)):
        found = solve(X, W, scales=scales, penalty=penalty, linear=linear)
        assert found.gradient_norm <= 1e-9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("penalty", [1e-2, 2.0])
def test_scipy_finds_no_lower_point(kind, penalty):
    rng = np.random.default_rng(5)
    X, W = sample(rng, 200, 4, kind)
    linear = rng.normal(size=4)
    found = solve(X, W, penalty=penalty, linear=linear)
    arguments = (X, W, None, penalty, linear)
    theirs = optimize.minimize(
        objective_at,
        np.zeros(4),
        args=arguments,
        jac=lambda *a: np.asarray(gradient_at(*a), dtype=float),
        method="BFGS",
        options={"gtol": 1e-9, "maxiter": 5000},
    )
    assert objective_at(found.coefficients, *arguments) <= theirs.fun + 1e-10 * abs(theirs.fun)
    assert found.coefficients == pytest.approx(theirs.x, abs=1e-4, rel=1e-4)


@pytest.mark.parametrize("n", [60, 3000])
@pytest.mark.parametrize("d", [1, 3, 6])
def test_statsmodels(n, d):
    from statsmodels.discrete.discrete_model import Logit

    X, W = sample(np.random.default_rng(d), n, d)
    theirs = Logit(W.astype(float), X).fit(disp=0, method="newton", maxiter=200, tol=1e-14).params
    found = solve(X, W, penalty=0.0)
    assert found.coefficients == pytest.approx(theirs, abs=1e-8, rel=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strength", [0.01, 1.0, 100.0])
def test_scikit_learn(kind, strength):
    """It minimises C sum(loss) + ||w||^2 / 2: our penalty is 1 / C, not per row."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    X, W = sample(np.random.default_rng(2), 400, 4, kind)
    if W.all():
        pytest.skip("scikit-learn wants two arms")
    model = linear_model.LogisticRegression(
        C=strength, fit_intercept=False, solver="newton-cholesky", tol=1e-12, max_iter=1000
    ).fit(X, W)
    found = solve(X, W, penalty=1.0 / strength)
    assert found.coefficients == pytest.approx(model.coef_[0], abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_huge_noise(size):
    """With ||b|| far above n the minimum is near -b / L; rounding is relative to ||b||."""
    rng = np.random.default_rng(1)
    X, W = sample(rng, 50, 3)
    scales = row_scales(X, 1.0)
    linear = size * rng.normal(size=3)
    for penalty in (size / 10.0, size, 10.0 * size):
        tolerance = max(1e-9, 1e-13 * size)
        found = solve(X, W, scales=scales, penalty=penalty, linear=linear, tolerance=tolerance)
        assert found.gradient_norm <= tolerance
        assert np.linalg.norm(found.coefficients + linear / penalty) <= 50.0 / penalty


def test_a_flat_objective_is_not_claimed_to_be_solved():
    """Separated, no penalty: there is no minimum; with a linear term it is unbounded below."""
    X = np.array([[1.0], [-1.0]])
    W = np.array([True, False])
    found = solve(X, W, penalty=0.0)
    assert np.isfinite(found.coefficients).all()
    found = solve(X, W, penalty=0.0, linear=np.array([-1.0]))
    assert found.gradient_norm > 0.5
    assert np.isfinite(found.coefficients).all()


def test_separation_with_a_tiny_penalty():
    """x = 1, W = 1 twice: 2 sigma(-w) = L w, solved by brentq."""
    X, W = np.ones((2, 1)), np.ones(2, dtype=bool)
    for penalty in (1e-12, 1e-9, 1e-3, 1.0, 1e3):
        root = optimize.brentq(
            lambda w, p=penalty: 2.0 * special.expit(-w) - p * w, 0.0, 100.0, xtol=1e-15
        )
        found = solve(X, W, penalty=penalty, tolerance=min(1e-3 * penalty, 1e-10))
        assert found.coefficients[0] == pytest.approx(root, rel=1e-3, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    n=st.integers(1, 40),
    d=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    log_ratio=st.floats(-4.0, 2.0),
    log_scale=st.floats(-8.0, 6.0),
)
def test_every_perturbed_objective_is_solved(n, d, seed, log_ratio, log_scale):
    """The range `Objective` admits: penalty at least 1e-4 of the noise scale."""
    rng = np.random.default_rng(seed)
    X = np.sign(rng.normal(size=(n, d))) if seed % 2 else rng.uniform(-1, 1, (n, d))
    W = rng.random(n) < rng.random()
    scale = 10.0**log_scale
    direction = rng.normal(size=d)
    linear = scale * rng.gamma(d) * direction / np.linalg.norm(direction)
    penalty = scale * 10.0**log_ratio
    tolerance = max(1e-9 * max(1.0, scale / penalty * 1e-2), 1e-12 * d * scale)
    found = solve(
        X,
        W,
        scales=row_scales(X, 1.0),
        penalty=penalty,
        linear=linear,
        tolerance=tolerance,
    )
    assert found.gradient_norm <= tolerance


@pytest.mark.parametrize("kind", ["plain", "separated", "one arm", "sorted", "periodic"])
def test_large_files_start_from_a_part_and_end_at_the_same_place(kind):
    """Above 98,304 rows; also where the evenly spaced rows are nothing like the rest."""
    rng = np.random.default_rng(3)
    n = 4 * 24576 + 5000
    X, W = sample(rng, n, 3, kind)
    if kind == "sorted":
        order = np.argsort(X[:, 1] + W)
        X, W = X[order], W[order]
    if kind == "periodic":
        W = np.arange(n) % 4 == 0
    scales = row_scales(X, 1.0)
    linear = rng.normal(size=3)
    found = solve(X, W, scales=scales, penalty=2.0, linear=linear)
    assert found.gradient_norm <= 1e-9
    half = n // 2
    parts = gradient_at(found.coefficients, X[:half], W[:half], scales[:half], 0.0, 0.0)
    parts = parts + gradient_at(found.coefficients, X[half:], W[half:], scales[half:], 2.0, linear)
    assert float(np.linalg.norm(parts)) <= 2e-9


def test_blocks_of_rows_add_up():
    """One row more or fewer than a block of 16,384 changes nothing but that row."""
    rng = np.random.default_rng(9)
    for n in (16383, 16384, 16385, 32769):
        X, W = sample(rng, n, 2)
        solve(X, W, penalty=1.0)
        fitted = sigmoid_of(X, None, np.array([0.3, -2.0]))
        assert fitted == pytest.approx(special.expit(X @ [0.3, -2.0]), abs=1e-15)


def test_inputs_are_left_alone():
    X, W = sample(np.random.default_rng(0), 100, 3)
    linear, scales = np.ones(3), row_scales(X, 1.0)
    copies = [a.copy() for a in (X, W, linear, scales)]
    minimise(X, W, scales, penalty=1.0, linear=linear, tolerance=1e-9)
    for now, before in zip((X, W, linear, scales), copies, strict=True):
        assert np.array_equal(now, before)


@pytest.mark.parametrize("layout", ["C", "F", "strided"])
def test_memory_layout_does_not_matter(layout):
    X, W = sample(np.random.default_rng(0), 300, 3)
    wide = np.repeat(X, 2, axis=0)[::2] if layout == "strided" else np.array(X, order=layout)
    assert solve(wide, W).coefficients == pytest.approx(solve(X, W).coefficients, abs=1e-10)


# ------------------------------------------------------------------- scaling


@settings(max_examples=60, deadline=None)
@given(
    row_norm=st.floats(0.1, 10.0), n=st.integers(1, 30), d=st.integers(1, 6), seed=st.integers(0)
)
def test_scaled_rows_have_norm_at_most_one(row_norm, n, d, seed):
    X = np.random.default_rng(seed).normal(size=(n, d)) * 3.0
    X[0] = 0.0
    scales = row_scales(X, row_norm)
    norms = np.linalg.norm(X, axis=1)
    assert (np.linalg.norm(X * scales[:, None], axis=1) <= 1.0 + 1e-15).all()
    with np.errstate(divide="ignore"):
        assert scales == pytest.approx(np.minimum(1.0, row_norm / norms) / row_norm, rel=1e-14)


def test_without_a_row_norm_rows_stay_as_they_are():
    assert row_scales(np.ones((3, 2)), None) is None


@pytest.mark.parametrize("size", [0.0, 1.0, 30.0, 800.0, 1e6, 1e300])
def test_probabilities(size):
    X = np.array([[1.0], [-1.0], [0.5], [0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = sigmoid_of(X, None, np.array([size]))
    assert fitted == pytest.approx(special.expit(X[:, 0] * size), rel=1e-12, abs=1e-300)
    assert fitted[3] == 0.5
