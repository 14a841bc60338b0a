"""The battery: every kernel, both noises, every form of its releases.

Seeds are fixed, so what passes once passes again. False alarms, had the seeds been drawn anew:
1e-6 a Kolmogorov-Smirnov test and 1e-5 an audit; every one has a positive control that must fail.
"""

from __future__ import annotations

import math
from dataclasses import replace

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
    Draws,
    FixedModel,
    Scaled,
    Silent,
    Tap,
    audit,
    build,
    epsilon_lower_bound,
    exhaustive_families,
    extreme_rows,
    random_arrays,
    same,
    search,
    searched,
)
from scipy.stats import kstest

import dpstats as dp
from dpstats.ate.kernels import KERNELS
from dpstats.ate.kernels.base import Kernel
from dpstats.privacy.mechanisms import Mechanisms
from dpstats.privacy.noise import SeededSource, SystemSource

DELTA = 1e-5
# delta of the audits: large enough for their events to be seen
AUDIT_DELTA = 0.01
FALSE_ALARM = 1e-5

every_case = pytest.mark.parametrize("case", CASES, ids=str)
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
            assert found.ratio >= 1.0 - 1e-8, (release, norm)


@every_case
def test_control_halved_sensitivity_is_noticed(case: Case) -> None:
    result = search(case, exhaustive_families(case, 2, few=True), fault=lambda size, _: size / 2.0)
    assert any(found.changed > found.declared for found in result.found.values())


def test_control_one_lattice_step_is_noticed() -> None:
    case = Case("blocking", "row", blocks=2)

    def fault(size: float, lattice: int) -> float:
        return size - math.ldexp(1.0, lattice)

    result = search(case, exhaustive_families(case, 2, few=True), fault=fault)
    assert all(found.changed > found.declared for found in result.found.values())


def test_joint_release_has_l1_two_and_l2_root_two() -> None:
    watched = CASES[0].watched(Silent(), "laplace", 1.0, 0.0, 50)
    CASES[0].run(random_arrays(CASES[0], 50, seed=1), watched)
    assert watched.seen[0].sensitivity == {"l1": 2.0, "l2": math.sqrt(2.0)}


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
    """Released minus exact over the recorded scale, by release, smoothed over a lattice step."""
    rng = np.random.default_rng(0)
    arrays = random_arrays(case, 12, seed=3)
    found: dict[str, list[np.ndarray]] = {}
    for _ in range(runs):
        watched = case.watched(source, kind, epsilon, DELTA, arrays.n)
        case.run(arrays, watched, epsilon, DELTA if kind == "gaussian" else 0.0)
        for seen in watched.seen:
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
    for name, values in standardised(case, kind, drawn_by, 250, 0.1).items():
        assert kstest(values, law(kind)).pvalue > 1e-6, name


@every_kind
def test_control_halved_noise_fails_the_distribution_test(kind: str) -> None:
    for case in (CASES[0], CASES[10]):
        for values in standardised(case, kind, Scaled(SeededSource(7)), 250, 0.1).values():
            assert kstest(values, law(kind)).pvalue < 1e-6


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

    # as many records as draws, in the same order, each with the scale that was asked for
    assert [record.release for record in records] == [draw[0] for draw in tap.draws]
    for seen, draw in zip(watched.seen, tap.draws[-len(watched.seen) :], strict=True):
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
    total = math.fsum(record.epsilon for record in records)
    slack = math.fsum(record.delta for record in records)
    assert total == pytest.approx(epsilon - (unspent.epsilon if unspent else 0.0), rel=1e-15)
    assert slack == pytest.approx(delta - (unspent.delta if unspent else 0.0), rel=1e-14)
    assert set(watched.costs) - {"propensity"} == {seen.name for seen in watched.seen}


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


# ----------------------------------------------------------------------------------- (d) limits


def exact_run(case: Case, arrays):
    settings = case.settings(1.0, 0.0, arrays.n)
    return case.run_by.run(arrays, settings, Mechanisms(None, "laplace", {}))


@every_kind
@every_case
def test_huge_epsilon_is_the_exact_run(case: Case, kind: str) -> None:
    n, epsilon = 400, 1e10
    arrays = random_arrays(case, n, seed=5)
    watched = case.watched(SeededSource(1), kind, epsilon, DELTA, n)
    # the settings of eps = 1, so that nothing but the noise differs
    released = case.run_by.run(arrays, case.settings(1.0, 0.0, n), watched)
    exact = exact_run(case, arrays)
    assert exact.exact
    assert not exact.records
    assert not released.exact
    for estimand in case.served():
        tolerance = 1e-7 if kind == "laplace" else 1e-4
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
            assert abs(released.estimate(estimand)) <= 2.0 * HALF_WIDTH
            errors = released.errors(estimand, 99, np.random.default_rng(0), "both")
            assert np.isfinite(errors).all()


# -------------------------------------------------------------------------------- (e) inference


@every_kind
@every_case
def test_simulated_errors_agree_with_repeated_releases(case: Case, kind: str) -> None:
    n, epsilon, runs, draws = 2000, 4.0, 1000, 40_000
    delta = DELTA if kind == "gaussian" else 0.0
    arrays, source = random_arrays(case, n, seed=6), SeededSource(11)
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
            sd = errors.std()
            assert errors.shape == (draws,)
            assert abs(errors.mean()) <= 0.05 * sd
            low, high = np.quantile(errors, [0.05, 0.95])
            assert -low == pytest.approx(high, rel=0.06)
        assert simulated["privacy"].std() == pytest.approx(observed, rel=0.15)
        parts = simulated["privacy"].var() + simulated["sampling"].var()
        assert simulated["both"].var() == pytest.approx(parts, rel=0.1)


# ------------------------------------------------------------------------------------ (f) audit


@every_kind
@every_case
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_audit_of_the_releases(case: Case, kind: str, epsilon: float) -> None:
    delta = AUDIT_DELTA if kind == "gaussian" else 0.0
    source = SeededSource(13)
    honest = audit(case, kind, epsilon, delta, source, 40_000, FALSE_ALARM)
    assert honest <= epsilon
    caught = audit(case, kind, epsilon, delta, Scaled(source), 40_000, FALSE_ALARM)
    assert caught > honest


@every_kind
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize(
    "case", [c for c in CASES if c.propensity in ("row", "none") and c.estimand == "ate"], ids=str
)
def test_control_halved_noise_is_caught_by_the_audit(
    case: Case, kind: str, epsilon: float
) -> None:
    delta = AUDIT_DELTA if kind == "gaussian" else 0.0
    caught = audit(case, kind, epsilon, delta, Scaled(SeededSource(13)), 40_000, FALSE_ALARM)
    assert caught > epsilon


def test_lower_bound_on_a_mechanism_of_known_epsilon() -> None:
    rng = np.random.default_rng(3)
    one, two = (rng.laplace(shift, 1.0, 200_000) for shift in (1.0, 0.0))
    assert 0.9 < epsilon_lower_bound(one, two, 0.0, FALSE_ALARM) <= 1.0


@every_kind
@every_case
def test_audit_draws_are_those_of_the_kernel(case: Case, kind: str) -> None:
    """What the audit draws in one go is what single runs draw: same requests, data by data."""
    _, rows, _ = searched(case).pairs[kind]
    draws = Draws.of(case, rows, kind, 1.0, DELTA)
    tap = Tap(SeededSource(0))
    case.run(build(rows, case), case.watched(tap, kind, 1.0, DELTA, len(rows)), 1.0, DELTA)
    assert [(d[0], d[1], d[3]) for d in tap.draws] == [(c[0], c[1], c[3]) for c in draws.calls]
    assert all(np.array_equal(np.ravel(d[2]), c[2]) for d, c in zip(tap.draws, draws.calls, strict=True))


# -------------------------------------------------------------------------------- (g) exactness


@every_case
@pytest.mark.parametrize("n", [2, 1000, 150_000])
def test_statistics_are_exact_and_ignore_row_order(case: Case, n: int) -> None:
    arrays = random_arrays(case, n, seed=8)
    order = np.random.default_rng(9).permutation(n)
    known = None if arrays.known is None else arrays.known[order]
    shuffled = replace(
        arrays,
        outcome=arrays.outcome[order],
        treated=arrays.treated[order],
        design=arrays.design[order],
        known=known,
    )
    runs = []
    for rows in (arrays, shuffled):
        watched = case.watched(Silent(), "laplace", 1.0, 0.0, n)
        case.run(rows, watched)
        runs.append(watched.seen)
    for one, two in zip(*runs, strict=True):
        assert np.array_equal(one.exact, two.exact)
        assert np.array_equal(one.steps, np.rint(one.steps))
        assert np.abs(one.steps).max() <= 2.0**53
