"""The battery: every kernel, both noises, every form of its releases.

Seeds are fixed, so what passes once passes again. False alarms, had the seeds been drawn anew:
1e-6 a Kolmogorov-Smirnov test and 1e-5 an audit; every one has a positive control that must fail.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace

import mpmath
import numpy as np
import pandas as pd
import pytest
from battery import (
    CASES,
    FITTED,
    HALF_WIDTH,
    KINDS,
    Blind,
    Case,
    Dealt,
    FixedModel,
    Row,
    Scaled,
    Silent,
    Tap,
    Watched,
    audit,
    audit_of_matrices,
    build,
    epsilon_lower_bound,
    exhaustive_families,
    extreme_rows,
    random_arrays,
    same,
    search,
    searched,
)
from scipy.special import expit
from scipy.stats import ks_2samp, kstest, wishart

import dpstats as dp
from dpstats.ate.kernels import KERNELS
from dpstats.ate.kernels.base import Kernel
from dpstats.privacy.accounting import composed
from dpstats.privacy.mechanisms import Mechanisms
from dpstats.privacy.noise import SeededSource, SystemSource
from dpstats.propensity import FittedPropensity, Objective

DELTA = 1e-5
# delta of the audits: large enough for their events to be seen
AUDIT_DELTA = 0.01
FALSE_ALARM = 1e-5
# entries of the rows behind a matrix are rounded towards zero to a grid of 2**-20
ROUNDING = 1e-5

every_case = pytest.mark.parametrize("case", CASES, ids=str)
# with one propensity for all, every block but one is empty: not a case of little noise
with_all_blocks = pytest.mark.parametrize(
    "case", [c for c in CASES if c.propensity != "number" or c.blocks in (None, 1)], ids=str
)
with_matrices = pytest.mark.parametrize("case", [c for c in CASES if c.rounded], ids=str)
every_kind = pytest.mark.parametrize("kind", KINDS)


def test_every_kernel_has_cases() -> None:
    assert {case.kernel for case in CASES} == set(KERNELS)
    for name, kernel in KERNELS.items():
        assert isinstance(kernel, Kernel)
        tested = {e for case in CASES if case.kernel == name for e in case.served()}
        assert tested == set(kernel.estimands)


# ------------------------------------------------------------------------------- (a) sensitivity


@every_case
def test_sensitivity_is_attained_and_never_exceeded(case: Case) -> None:
    for (release, norm), found in searched(case).found.items():
        # rounding to the grid may take a few of its steps off, nothing may add one
        assert found.changed <= found.declared * (1.0 + 1e-15), (release, norm)
        if (release, norm) not in case.loose:
            lost = ROUNDING if norm in ("nuclear", "Frobenius") else 1e-8
            assert found.ratio >= 1.0 - lost, (release, norm)


@every_case
def test_control_halved_sensitivity_is_noticed(case: Case) -> None:
    families = exhaustive_families(case, 2, few=True)
    result = search(case, families, fault=lambda size, _: size * case.control)
    assert any(found.changed > found.declared for found in result.found.values())


def test_control_one_lattice_step_is_noticed() -> None:
    # without the number of the treated, whose one step is all it may move
    case = Case("blocking", "row", blocks=2, split=("counts", "variances"))

    def fault(size: float, lattice: int) -> float:
        return size - math.ldexp(1.0, lattice)

    result = search(case, exhaustive_families(case, 2, few=False), fault=fault)
    assert all(found.changed > found.declared for found in result.found.values())


def test_joint_release_has_l1_two_and_l2_root_two() -> None:
    watched = CASES[0].watched(Silent(), "laplace", 1.0, 0.0, 50)
    CASES[0].run(random_arrays(CASES[0], 50, seed=1), watched)
    found = {seen.name: seen.sensitivity for seen in watched.seen}
    assert found["counts"] == {"l1": 2.0, "l2": math.sqrt(2.0)}
    assert found["treated"] == {"l1": 1.0, "l2": 1.0}


@pytest.mark.parametrize("kernel", [name for name, k in KERNELS.items() if len(k.estimands) > 1])
def test_estimands_of_one_release_see_the_same_statistics(kernel: str) -> None:
    case = next(case for case in CASES if case.kernel == kernel)
    if len(case.served()) == 1:
        pytest.skip("each estimand has its own release")
    arrays, seen = random_arrays(case, 60, seed=2), []
    for estimand in case.served():
        watched = case.watched(Silent(), "laplace", 1.0, 0.0, 60)
        replace(case, estimand=estimand).run(arrays, watched)
        seen.append([(r.name, r.sensitivity, r.exact) for r in watched.seen])
    assert all(same(seen[0], other) for other in seen[1:])


class Wild(FixedModel):
    """A pluggable model whose predictions are not probabilities."""

    def predict(self, X):
        return np.select(
            [X[:, 1] < -0.5, X[:, 1] < 0.0, X[:, 1] < 0.7], [np.nan, -3.0, 7.0], np.inf
        )


@pytest.mark.parametrize("case", [c for c in CASES if c.propensity == "fixed"], ids=str)
def test_wild_predictions_neither_raise_nor_exceed(case: Case, monkeypatch) -> None:
    monkeypatch.setattr(FixedModel, "predict", Wild.predict)
    result = search(case, exhaustive_families(case, 2, few=False))
    for found in result.found.values():
        assert found.changed <= found.declared


# ------------------------------------------------------------------------------------- (b) noise


def standardised(case: Case, kind: str, source, runs: int, epsilon: float) -> dict[str, np.ndarray]:
    """Released minus exact over the recorded scale, by release, smoothed over a lattice step.

    Matrices have a law of their own: see `noise_of_matrices`.
    """
    rng = np.random.default_rng(0)
    arrays = random_arrays(case, 12, seed=3)
    found: dict[str, list[np.ndarray]] = {}
    for _ in range(runs):
        watched = case.watched(source, kind, epsilon, DELTA, arrays.n)
        case.run(arrays, watched, epsilon, DELTA if kind == "gaussian" else 0.0)
        for seen in watched.seen:
            if seen.matrix:
                continue
            (record,) = seen.noisy.records
            noise = np.ravel(seen.noisy.value * seen.divisor - seen.exact)
            if kind == "laplace":
                noise = noise + math.ldexp(1.0, seen.lattice) * rng.uniform(-0.5, 0.5, noise.size)
            found.setdefault(seen.name, []).append(noise / (record.scale * seen.divisor))
    return {name: np.concatenate(values) for name, values in found.items()}


def law(kind: str) -> str:
    return "laplace" if kind == "laplace" else "norm"


@every_kind
@every_case
@pytest.mark.parametrize("source", ["seeded", "system"])
def test_noise_follows_the_record(case: Case, kind: str, source: str) -> None:
    drawn_by = SeededSource(7) if source == "seeded" else SystemSource()
    runs = 250 if source == "seeded" else 120
    for name, values in standardised(case, kind, drawn_by, runs, 0.1).items():
        assert kstest(values, law(kind)).pvalue > 1e-6, name


@every_kind
def test_control_halved_noise_fails_the_distribution_test(kind: str) -> None:
    for case in (CASES[0], CASES[10]):
        for values in standardised(case, kind, Scaled(SeededSource(7)), 600, 0.1).values():
            assert kstest(values, law(kind)).pvalue < 1e-6


def noise_of_matrices(case: Case, kind: str, source, runs: int) -> dict[str, np.ndarray]:
    """Released minus exact in units of the recorded scale, (2 runs, q, q) by release."""
    delta = DELTA if kind == "gaussian" else 0.0
    arrays = random_arrays(case, 12, seed=3)
    found: dict[str, list[np.ndarray]] = {}
    for _ in range(runs):
        watched = case.watched(source, kind, case.epsilon, DELTA, arrays.n)
        case.run(arrays, watched, case.epsilon, delta)
        matrices = [seen for seen in watched.seen if seen.matrix]
        for seen, value in zip(matrices, matrices[0].noisy.values, strict=True):
            assert np.array_equal(value, np.swapaxes(value, -1, -2))
            scales = {record.release: record.scale for record in matrices[0].noisy.records}
            # one record stands for all Gaussian rounds, which share its budget
            scale = scales.get(seen.name, 0.0)
            if kind == "gaussian":
                share = 1.0 if len(matrices) == 1 else {"moments": 0.65}.get(seen.name, 0.35)
                scale = scales[seen.budget] / math.sqrt(share)
            found.setdefault(seen.name, []).append((value - seen.exact) / scale)
    return {name: np.concatenate(values) for name, values in found.items()}


def matrix_pvalues(noise: np.ndarray, kind: str) -> list[float]:
    """Of entries against the normal law, or of a few numbers against other Wishart matrices."""
    q = noise.shape[-1]
    one, two = np.triu_indices(q, 1)
    if kind == "gaussian":
        # isotropic in the coordinates (diagonal, sqrt(2) x off-diagonal)
        entries = [np.diagonal(noise, axis1=1, axis2=2), math.sqrt(2.0) * noise[:, one, two]]
        return [kstest(part.ravel(), "norm").pvalue for part in entries]
    law = wishart(df=q + 1, scale=np.eye(q))
    # the scale is 2 / eps and a matrix is (GG' - HH') / eps
    other = (law.rvs(4000, random_state=1) - law.rvs(4000, random_state=2)) / 2.0
    numbers = [
        lambda m: np.trace(m, axis1=1, axis2=2),
        lambda m: m[:, 0, 1],
        lambda m: m[:, -1, -1],
        lambda m: np.linalg.eigvalsh(m)[:, -1],
    ]
    return [ks_2samp(number(noise), number(other)).pvalue for number in numbers]


@every_kind
@with_matrices
@pytest.mark.parametrize("source", ["seeded", "system"])
def test_noise_of_matrices_follows_the_record(case: Case, kind: str, source: str) -> None:
    drawn_by = SeededSource(7) if source == "seeded" else SystemSource()
    for name, noise in noise_of_matrices(case, kind, drawn_by, 150).items():
        assert min(matrix_pvalues(noise, kind)) > 1e-6, name
        # each arm has its own noise
        control, treated = noise[0::2, 0, 1], noise[1::2, 0, 1]
        assert abs(np.corrcoef(control, treated)[0, 1]) < 5.0 / math.sqrt(len(control))


@every_kind
def test_control_halved_noise_of_matrices_is_noticed(kind: str) -> None:
    case = Case("regression", "none", columns=2)
    # a Wishart matrix is quadratic in its normals
    factor = 0.5 if kind == "gaussian" else math.sqrt(0.5)
    for noise in noise_of_matrices(case, kind, Scaled(SeededSource(7), factor), 600).values():
        assert min(matrix_pvalues(noise, kind)) < 1e-6


def gaussian_delta(shift: float, epsilon: float) -> mpmath.mpf:
    """Privacy profile of Gaussian noise to 60 digits (Balle and Wang 2018, theorem 8)."""
    with mpmath.workdps(60):
        x, e = mpmath.mpf(shift), mpmath.mpf(epsilon)
        return mpmath.ncdf(x / 2 - e / x) - mpmath.exp(e) * mpmath.ncdf(-x / 2 - e / x)


@every_kind
@pytest.mark.parametrize("case", [*CASES, *FITTED], ids=str)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.0])
def test_records_equal_calibration_and_costs_sum(case: Case, kind: str, epsilon: float) -> None:
    n, delta = 30, DELTA if kind == "gaussian" else 0.0
    tap = Tap(SeededSource(5))
    watched = case.watched(tap, kind, epsilon, delta, n)
    released = case.run(random_arrays(case, n, seed=4), watched, epsilon, delta)
    records = released.records

    matrices = [seen for seen in watched.seen if seen.matrix]
    others = [seen for seen in watched.seen if not seen.matrix]
    rounds = {seen.name for seen in matrices}
    budgets = {seen.budget for seen in matrices}
    check_matrices(matrices, [draw for draw in tap.draws if draw[0] in rounds], kind, watched)

    # as many records as draws, in the same order, each with the scale that was asked for
    draws = [draw for draw in tap.draws if draw[0] not in rounds]
    rest = [record for record in records if record.release not in rounds | budgets]
    assert [record.release for record in rest] == [draw[0] for draw in draws]
    for seen, draw in zip(others, draws[len(draws) - len(others) :], strict=True):
        (record,) = seen.noisy.records
        assert record in records
        ratio = math.log2(record.scale * seen.divisor / draw[3])
        assert ratio == pytest.approx(round(ratio), abs=1e-12)
        norm = "l1" if kind == "laplace" else "l2"
        assert record.norm == norm
        assert record.sensitivity * seen.divisor == pytest.approx(seen.sensitivity[norm], rel=1e-15)
        if kind == "laplace":
            assert record.scale == pytest.approx(record.sensitivity / record.epsilon, rel=1e-15)
            assert record.delta == 0.0
        else:
            reached = gaussian_delta(record.sensitivity / record.scale, record.epsilon)
            assert record.delta * (1 - 1e-6) <= reached <= record.delta * (1 + 1e-9)

    unspent = watched.costs.get("propensity") if case.propensity == "fixed" else None
    if case.run_by.partitions(case.settings(epsilon, delta, n)):
        # the budget of the propensity is that of other rows
        unspent = None
    total, slack = composed(records)
    assert total == pytest.approx(epsilon - (unspent.epsilon if unspent else 0.0), rel=1e-15)
    assert slack == pytest.approx(delta - (unspent.delta if unspent else 0.0), rel=1e-14)
    assert set(watched.costs) - {"propensity"} == {seen.budget for seen in watched.seen}


def check_matrices(matrices, draws, kind: str, watched) -> None:
    """The records of matrices, against what the source was asked for."""
    if not matrices:
        return
    records, cost = matrices[0].noisy.records, watched.costs[matrices[0].budget]
    assert {seen.budget for seen in matrices} == {matrices[0].budget}
    q = matrices[0].exact.shape[-1]
    if kind == "laplace":
        assert [record.release for record in records] == [seen.name for seen in matrices]
        assert math.fsum(record.epsilon for record in records) == pytest.approx(cost.epsilon)
        for record, (name, how, _, scale), level in zip(
            records, draws, matrices[0].noisy.levels, strict=True
        ):
            assert (name, how, scale) == (record.release, "normal", 1.0)
            assert (record.norm, record.sensitivity, record.delta) == ("nuclear", 2.0, 0.0)
            assert record.scale == pytest.approx(2.0 / record.epsilon, rel=1e-14)
            assert level == pytest.approx(record.epsilon, rel=1e-14)
        return
    (record,) = records
    assert (record.norm, record.sensitivity) == ("Frobenius", math.sqrt(2.0))
    assert (record.epsilon, record.delta) == (cost.epsilon, cost.delta)
    shift = record.sensitivity / record.scale
    assert record.delta * (1 - 1e-6) <= gaussian_delta(shift, record.epsilon)
    assert gaussian_delta(shift, record.epsilon) <= record.delta * (1 + 1e-9)
    shifts = []
    for (_, _, diagonal, wide), (_, _, upper, narrow) in zip(draws[::2], draws[1::2], strict=True):
        assert diagonal.shape == (2, q)
        assert upper.shape == (2, q * (q - 1) // 2)
        assert wide == pytest.approx(math.sqrt(2.0) * narrow, rel=1e-14)
        shifts.append(narrow)
    # in steps of grids that are powers of two: what is asked for is 1 / level
    for narrow, level in zip(shifts, matrices[0].noisy.levels, strict=True):
        ratio = math.log2(narrow * level)
        assert ratio == pytest.approx(round(ratio), abs=1e-12)
    total = math.fsum(level**2 for level in matrices[0].noisy.levels)
    assert math.sqrt(total) == pytest.approx(shift, rel=1e-12)


@every_kind
@with_matrices
def test_rows_per_person_multiply_the_noise_of_matrices(case: Case, kind: str) -> None:
    n, noises = 30, []
    arrays = random_arrays(case, n, seed=4)
    for persons in (1, 3):
        costs = case.costs(case.epsilon, DELTA if kind == "gaussian" else 0.0, n)
        watched = Watched(SeededSource(5), kind, costs, rows_per_person=persons)
        case.run(arrays, watched, case.epsilon, DELTA if kind == "gaussian" else 0.0)
        first = next(seen for seen in watched.seen if seen.matrix)
        noises.append(first.noisy.values[0] - first.exact)
        record = first.noisy.records[0]
        assert record.sensitivity == pytest.approx(
            persons * (2.0 if kind == "laplace" else math.sqrt(2.0)), rel=1e-14
        )
    step = 2.0**-18 * np.abs(noises[0]).max()
    assert np.allclose(noises[1], 3.0 * noises[0], rtol=0.0, atol=step)


# -------------------------------------------------------------- (c) nothing without a record


@every_case
def test_nothing_leaves_but_through_the_noise(case: Case) -> None:
    """With a source that ignores what it is given, results on different data are the same bits."""
    n = 25
    degenerate = build([extreme_rows(case, n)[0]] * n, case)
    results = []
    for arrays in (random_arrays(case, n, 1), random_arrays(case, n, 2), degenerate):
        tap = Tap(Blind())
        released = case.run(arrays, case.watched(tap, "laplace", 1.0, 0.0, n))
        assert len(released.records) == len(tap.draws) > 0
        derived = [released]
        for estimand in case.served():
            derived.append(released.estimate(estimand))
            derived.append(released.errors(estimand, 50, np.random.default_rng(0), "both"))
        for extra in ("diagnostics", "variance"):
            if hasattr(released, extra):
                derived.append(getattr(released, extra)())
        if hasattr(released, "blocks"):
            table = released.blocks(case.estimand, np.random.default_rng(0))
            derived.append([table[column].to_numpy() for column in table])
        results.append(derived)
    assert same(results[0], results[1])
    assert same(results[0], results[2])


@every_kind
@pytest.mark.parametrize("case", [*CASES, *FITTED], ids=str)
def test_the_rough_noise_is_public(case: Case, kind: str) -> None:
    """It decides on a warning, which is the same whatever the rows are and the noise is."""
    n, delta = 40, DELTA if kind == "gaussian" else 0.0
    degenerate = build([extreme_rows(case, n)[0]] * n, case)
    found = []
    for seed, arrays in enumerate(
        (random_arrays(case, n, 1), random_arrays(case, n, 2), degenerate)
    ):
        for epsilon in (2.0, 2e3):
            watched = case.watched(SeededSource(seed), kind, epsilon, DELTA, n)
            found.append(case.run(arrays, watched, epsilon, delta).noise_sd())
    assert found[0] == pytest.approx(found[2], rel=1e-12)
    assert found[0] == pytest.approx(found[4], rel=1e-12)
    assert found[1] == pytest.approx(found[3], rel=1e-12)
    assert found[1] == pytest.approx(found[5], rel=1e-12)
    assert 0.0 < found[1] < found[0]


# ----------------------------------------------------------------------------------- (d) limits


def exact_run(case: Case, arrays):
    settings = case.settings(1.0, 0.0, arrays.n)
    return case.run_by.run(arrays, settings, Mechanisms(None, "laplace", {}))


@every_kind
@with_all_blocks
def test_huge_epsilon_is_the_exact_run(case: Case, kind: str) -> None:
    n, epsilon = 400, 1e10
    arrays = random_arrays(case, n, seed=5)
    watched = case.watched(Dealt(SeededSource(1)), kind, epsilon, DELTA, n)
    # the settings of eps = 1, so that nothing but the noise differs
    released = case.run_by.run(arrays, case.settings(1.0, 0.0, n), watched)
    exact = exact_run(case, arrays)
    assert exact.exact
    assert not exact.records
    assert not released.exact
    for estimand in case.served():
        tolerance = 1e-7 if kind == "laplace" else 1e-4
        if case.rounded:
            # rows on a grid, and outcomes that are further off than three residual sds are clipped
            tolerance = 1e-5 if case.kernel == "regression" else 2e-3
        assert released.estimate(estimand) == pytest.approx(exact.estimate(estimand), abs=tolerance)
        assert 0.0 < exact.standard_error(estimand) < HALF_WIDTH


@every_kind
@every_case
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 1e4])
def test_degenerate_files_give_finite_answers(case: Case, kind: str, epsilon: float) -> None:
    n = 9
    rows = extreme_rows(case, n)
    for corner in (rows[0], rows[-1], rows[len(rows) // 2]):
        arrays = build([corner] * n, case)
        watched = case.watched(SeededSource(2), kind, epsilon, DELTA, n)
        released = case.run(arrays, watched, epsilon, DELTA if kind == "gaussian" else 0.0)
        for estimand in case.served():
            assert abs(released.estimate(estimand)) <= 2.0 * HALF_WIDTH * (1.0 + 1e-12)
            errors = released.errors(estimand, 99, np.random.default_rng(0), "both")
            assert np.isfinite(errors).all()


# -------------------------------------------------------------------------------- (e) inference


@every_kind
@pytest.mark.parametrize(
    "case",
    [c for c in CASES if not c.rounded and (c.propensity != "number" or c.blocks in (None, 1))],
    ids=str,
)
def test_simulated_errors_agree_with_repeated_releases(case: Case, kind: str) -> None:
    n, epsilon, runs, draws = 2000, 4.0, 400, 20_000
    if case.partitioned:
        # each of many models meets every row
        n, runs = 1000, 250
    delta = DELTA if kind == "gaussian" else 0.0
    arrays, source = random_arrays(case, n, seed=6), Dealt(SeededSource(11))
    settings = case.settings(epsilon, delta, n)
    mechanisms = Mechanisms(source, kind, case.costs(epsilon, delta, n))
    results = [case.run_by.run(arrays, settings, mechanisms) for _ in range(runs)]
    for estimand in case.served():
        observed = np.std([released.estimate(estimand) for released in results])
        simulated = {
            parts: results[0].errors(estimand, draws, np.random.default_rng(1), parts)
            for parts in ("privacy", "sampling", "both")
        }
        for errors in simulated.values():
            assert errors.shape == (draws,)
            # spread is symmetric about the middle
            low, middle, high = np.quantile(errors, [0.05, 0.5, 0.95])
            assert middle - low == pytest.approx(high - middle, rel=0.12)
        assert abs(simulated["both"].mean()) <= 0.3 * simulated["both"].std()
        if not getattr(settings, "smooth", False):
            for errors in simulated.values():
                assert abs(errors.mean()) <= 0.05 * errors.std()
        assert simulated["privacy"].std() == pytest.approx(observed, rel=0.15)
        parts = simulated["privacy"].var() + simulated["sampling"].var()
        assert simulated["both"].var() == pytest.approx(parts, rel=0.1)


@every_kind
@pytest.mark.parametrize("case", [c for c in [*CASES, *FITTED] if c.rounded], ids=str)
def test_simulated_errors_with_outcome_models(case: Case, kind: str) -> None:
    """The range of residuals is noisy too, so several releases are asked for their errors.

    Sizes are two thirds quantiles: in one release of 25 the arms get slopes of their own by luck.
    """
    n, epsilon, runs, asked = 2000, 4.0, 300, 25
    delta = DELTA if kind == "gaussian" else 0.0
    arrays, source = random_arrays(case, n, seed=6), SeededSource(11)
    settings = case.settings(epsilon, delta, n)
    mechanisms = Mechanisms(source, kind, case.costs(epsilon, delta, n))
    results = [case.run_by.run(arrays, settings, mechanisms) for _ in range(runs)]
    for estimand in case.served():
        estimates = np.array([released.estimate(estimand) for released in results])
        observed = np.quantile(np.abs(estimates - np.median(estimates)), 2 / 3)
        spreads, leans = [], []
        for seed, released in enumerate(results[:asked]):
            errors = {
                parts: released.errors(estimand, 2000, np.random.default_rng(seed), parts)
                for parts in ("privacy", "sampling", "both")
            }
            assert all(found.shape == (2000,) for found in errors.values())
            spreads.append({k: np.quantile(np.abs(v), 2 / 3) for k, v in errors.items()})
            leans.append(errors["both"].mean() / errors["both"].std())
        privacy, sampling, both = (
            np.median([spread[parts] for spread in spreads])
            for parts in ("privacy", "sampling", "both")
        )
        assert abs(np.median(leans)) < 0.2
        if case.propensity == "fixed":
            # nothing is known of what a model of the user's leaves, so it is taken to leave all
            assert 0.85 * observed <= privacy <= 6.0 * observed
            continue
        # a quantile of 300 draws is known to 5 %
        assert 0.75 * observed <= privacy <= 1.4 * observed
        assert both == pytest.approx(math.hypot(privacy, sampling), rel=0.15)


@every_kind
@every_case
def test_the_sampling_error_is_never_taken_for_nothing(case: Case, kind: str) -> None:
    """However the noise falls, an interval has a sampling part."""
    n, source = 300, SeededSource(12)
    arrays = random_arrays(case, n, seed=7)
    for _ in range(60):
        watched = case.watched(source, kind, 1.0, DELTA, n)
        released = case.run(arrays, watched, 1.0, DELTA if kind == "gaussian" else 0.0)
        errors = released.errors(case.estimand, 200, np.random.default_rng(1), "sampling")
        # a tenth of the truth, at the very least
        assert errors.std() > 0.002


# ------------------------------------------------------------------------------------ (f) audit


# `regression` has nothing but a matrix; what follows one is audited at one epsilon
AUDITED = [
    pytest.param(case, epsilon, id=f"{case}-{epsilon}")
    for case in CASES
    for epsilon in ([1.0] if case.rounded else [0.5, 1.0, 4.0])
    if case.kernel != "regression"
]


@every_kind
@pytest.mark.parametrize(("case", "epsilon"), AUDITED)
def test_audit_of_the_releases(case: Case, kind: str, epsilon: float) -> None:
    delta = AUDIT_DELTA if kind == "gaussian" else 0.0
    source = SeededSource(13)
    for name, found in audit(case, kind, epsilon, delta, source, 10_000, FALSE_ALARM).items():
        assert found.bound <= found.promised, name
    spoiled = Scaled(source, case.control)
    assert any(
        found.bound > found.promised
        for trials in (10_000, 40_000, 200_000)
        for found in audit(case, kind, epsilon, delta, spoiled, trials, FALSE_ALARM).values()
    )


@every_kind
@with_matrices
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_audit_of_the_matrices(case: Case, kind: str, epsilon: float) -> None:
    """`tests/synth/kernels/test_grams.py` has the density of a small Wishart difference."""
    delta = AUDIT_DELTA if kind == "gaussian" else 0.0
    for name, found in audit_of_matrices(
        case, kind, epsilon, delta, SeededSource(13), 10_000, FALSE_ALARM
    ).items():
        assert found.bound <= found.promised, name


@every_kind
def test_control_audit_of_the_matrices(kind: str) -> None:
    case = Case("regression", "none", columns=2)
    delta = AUDIT_DELTA if kind == "gaussian" else 0.0
    source = Scaled(SeededSource(13), 1 / 2 if kind == "gaussian" else 1 / math.sqrt(3))
    for found in audit_of_matrices(case, kind, 1.0, delta, source, 40_000, FALSE_ALARM).values():
        assert found.bound > found.promised


def test_lower_bound_on_a_mechanism_of_known_epsilon() -> None:
    rng = np.random.default_rng(3)
    one, two = (rng.laplace(shift, 1.0, 200_000) for shift in (1.0, 0.0))
    assert 0.9 < epsilon_lower_bound(one, two, 0.0, FALSE_ALARM) <= 1.0


@every_kind
def test_calls_of_dp_ate_are_within_epsilon(kind: str) -> None:
    """Whole calls, told apart by the estimate alone; ipw with one release makes that tight."""
    honest, caught = (whole_calls(kind, factor, trials=400) for factor in (1.0, 0.2))
    assert honest <= 1.0 < caught


def whole_calls(kind: str, factor: float, trials: int) -> float:
    delta = AUDIT_DELTA if kind == "gaussian" else 0.0
    scores = []
    for outcome in (HALF_WIDTH, -HALF_WIDTH):
        frame = pd.DataFrame({"y": [outcome, 0.0, 0.0, 0.0], "w": [1, 0, 1, 0]})
        estimates = []
        for seed in range(trials):
            with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                spoiled = Scaled(SeededSource([seed, int(outcome > 0.0)]), factor)
                patch.setattr("dpstats.ate.model.noise_source", lambda _, use=spoiled: use)
                result = dp.dp_ate(
                    "y ~ 1",
                    treat="w",
                    data=frame,
                    eps=1.0,
                    delta=delta,
                    method="ipw",
                    propensity=0.5,
                    bounds={"y": (-HALF_WIDTH, HALF_WIDTH)},
                    split={"score": 1.0},
                    rng=0,
                )
            estimates.append(float(result.params.iloc[0]))
        scores.append(np.array(estimates))
    return epsilon_lower_bound(*scores, delta, FALSE_ALARM)


@pytest.mark.study
@every_kind
def test_calls_of_dp_ate_at_length(kind: str) -> None:
    honest, caught = (whole_calls(kind, factor, trials=20_000) for factor in (1.0, 0.5))
    assert honest <= 1.0 < caught


@pytest.mark.study
@every_kind
@every_case
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_audit_of_the_operating_system_source(case: Case, kind: str, epsilon: float) -> None:
    """Not seeded: raises a false alarm in 1e-5 of the runs of each release."""
    delta = AUDIT_DELTA if kind == "gaussian" else 0.0
    source = SystemSource()
    for name, found in audit(case, kind, epsilon, delta, source, 50_000, FALSE_ALARM).items():
        assert found.bound <= found.promised, name


@dataclass(frozen=True)
class Replayed:
    """A fitted model with coefficients that were released before."""

    coefficients: np.ndarray

    def fit(self, X, W, *, eps, delta, source):
        return FittedPropensity(self.coefficients, 1.0, ())


@pytest.mark.study
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize(("kernel", "control"), [("blocking", 1 / 2), ("ipw", 1 / 3)])
def test_audit_with_a_fitted_propensity(kernel: str, control: float, epsilon: float) -> None:
    """Everything that is released, by the exact likelihood ratio of the whole chain."""
    honest, caught = (chain(kernel, epsilon, factor, trials=20_000) for factor in (1.0, control))
    assert honest <= epsilon < caught


def chain(kernel: str, epsilon: float, factor: float, trials: int) -> float:
    # with much overlap every propensity is nearly the worst one
    options = {"blocks": 2} if kernel == "blocking" else {"overlap": 0.45}
    case = Case(kernel, "objective", **options)
    costs = case.costs(epsilon, 0.0, 2)
    penalty = 2.001 / costs["propensity"].epsilon
    settings = case.settings(epsilon, 0.0, 2)
    settings = replace(settings, propensity=Objective(penalty=penalty, row_norm=1.0))
    other = Row(0.0, False, 0.5, 0.0)
    pair = [build([Row(1.0, treated, 0.5, 1.0), other], case) for treated in (True, False)]
    source = Scaled(SeededSource(17), factor)
    scores = []
    for own in pair:
        ratios = np.empty(trials)
        for trial in range(trials):
            watched = case.watched(source, "laplace", epsilon, 0.0, 2)
            released = case.run_by.run(own, settings, watched)
            coefficients = released.propensity.coefficients
            fixed = replace(settings, propensity=Replayed(coefficients))
            scale = released.records[0].scale
            totals = []
            for arrays in pair:
                replay = case.watched(Silent(), "laplace", epsilon, 0.0, 2)
                case.run_by.run(arrays, fixed, replay)
                total = objective_log_density(arrays, coefficients, penalty, scale)
                for seen, was in zip(replay.seen, watched.seen, strict=True):
                    gap = np.abs(was.noisy.value * was.divisor - seen.exact)
                    total -= float(gap.sum()) / (was.noisy.scale * was.divisor)
                totals.append(total)
            ratios[trial] = totals[0] - totals[1]
        scores.append(ratios)
    return epsilon_lower_bound(*scores, 0.0, FALSE_ALARM)


def objective_log_density(arrays, w: np.ndarray, penalty: float, scale: float) -> float:
    """Log density of the minimum: that of the noise which makes it one, times the Jacobian."""
    norms = np.maximum(np.linalg.norm(arrays.design, axis=1), 1.0)
    signed = arrays.design / norms[:, None] * np.where(arrays.treated, 1.0, -1.0)[:, None]
    sigma = expit(-signed @ w)
    noise = penalty * w - sigma @ signed
    jacobian = penalty * np.eye(w.size) + (signed * (sigma * (1.0 - sigma))[:, None]).T @ signed
    return float(-np.linalg.norm(noise) / scale + np.linalg.slogdet(jacobian)[1])


# -------------------------------------------------------------------------------- (g) exactness


@every_case
@pytest.mark.parametrize("n", [2, 1000, 150_000])
def test_statistics_are_exact_and_ignore_row_order(case: Case, n: int) -> None:
    """Where rows are dealt out at random: once every row is dealt to the same part."""
    if case.partitioned:
        # each of many models meets every row
        n = min(n, 20_000)
    elif case.rounded:
        # beyond 2**17 rows the moments are those of a random part
        n = min(n, 120_000)
    arrays = random_arrays(case, n, seed=8)
    order = np.random.default_rng(9).permutation(n)
    known = None if arrays.known is None else arrays.known[order]
    shuffled = replace(
        arrays,
        outcome=arrays.outcome[order],
        treated=arrays.treated[order],
        design=arrays.design[order],
        known=known,
        covariates=arrays.covariates[order],
    )
    runs = []
    for rows, dealt in ((arrays, np.arange(n)), (shuffled, order)):
        watched = case.watched(Dealt(Silent(), dealt), "laplace", 1.0, 0.0, n)
        case.run(rows, watched)
        runs.append(watched.seen)
    for one, two in zip(*runs, strict=True):
        if case.partitioned:
            # a fit inside a part may round differently
            assert np.allclose(one.exact, two.exact, rtol=1e-7, atol=0.0)
        else:
            assert np.array_equal(one.exact, two.exact)
        assert np.array_equal(one.steps, np.rint(one.steps))
        assert np.abs(one.steps).max() <= 2.0**53
