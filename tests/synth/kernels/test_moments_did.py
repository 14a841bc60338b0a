"""The kernels that release moments of the donors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from synth_panels import Scaled, Silent, factor, lower_bound, panel_of, run

from dpstats.errors import DPStatsError
from dpstats.privacy.accounting import Cost
from dpstats.privacy.mechanisms import Grams, Mechanisms
from dpstats.privacy.noise import SeededSource, SystemSource
from dpstats.simulate.panels import PROCESSES
from dpstats.synth.kernels import KERNELS, design
from dpstats.synth.kernels.base import Public
from dpstats.synth.kernels.moments import _gram
from dpstats.synth.kernels.paths import cosines

KINDS = [pytest.param(1e-6, id="gaussian"), pytest.param(0.0, id="pure")]
BITS = 18


def gram(donors, pre, post, metric, constant=0.1):
    return _gram(np.asarray(donors, dtype=float), pre, post, constant, metric, BITS)


def bases(before, columns, after, post_columns):
    return (
        cosines(before, columns, constant=False),
        cosines(after, post_columns, constant=True),
    )


# --------------------------------------------------------------------------------- sensitivity


def test_moments_sensitivity_is_attained_and_never_exceeded() -> None:
    rng = np.random.default_rng(1)
    frobenius = nuclear = 0.0
    for trial in range(400):
        pre, post = bases(4, 3, 2, 2)
        if trial % 4 > 1:
            # a second round with fewer paths
            pre = pre @ np.linalg.qr(rng.standard_normal((3, 2)))[0]
        size = 3 + pre.shape[1]
        metric = np.eye(size)
        if trial % 2:
            root = rng.standard_normal((size, size)) * rng.choice([0.01, 1.0, 30.0], (size, 1))
            metric = root @ root.T
        size = 10.0 ** rng.uniform(-8, 8)
        donors = size * rng.standard_normal((2, 6))
        donors[:, : rng.integers(0, 4)] = 0.0
        best = 0.0
        for step in range(60):
            moved = donors + (0.0 if step == 0 else size * rng.standard_normal(donors.shape) * 0.3)
            one, two = (gram(row[None], pre, post, metric, size) for row in moved)
            change = one - two
            eigenvalues = np.linalg.eigvalsh(change)
            if np.linalg.norm(eigenvalues) > best:
                best, donors = float(np.linalg.norm(eigenvalues)), moved
            frobenius = max(frobenius, float(np.linalg.norm(eigenvalues)))
            nuclear = max(nuclear, float(np.abs(eigenvalues).sum()))
    assert 1.40 < frobenius <= math.sqrt(2.0)
    assert 1.98 < nuclear <= 2.0


@pytest.mark.parametrize("size", [1e-300, 1e-10, 1.0, 1e100, 1e307])
def test_no_row_is_longer_than_one(size: float) -> None:
    donors = size * np.random.default_rng(2).uniform(-1.0, 1.0, (500, 9))
    pre, post = bases(6, 5, 3, 3)
    for row in donors:
        total = gram(row[None], pre, post, np.eye(9), 1e-3)
        assert np.trace(total) <= 1.0
        assert np.array_equal(total, total.T)


def test_sums_are_exact_in_any_order() -> None:
    donors, target, _ = factor(20_000, np.random.default_rng(3))
    order = np.random.default_rng(4).permutation(len(donors))
    paths = [
        run("moments", panel_of(rows, target, 20), 1.0, 1e-6, SeededSource(1)).predict(target[None])
        for rows in (donors, donors[order])
    ]
    assert np.array_equal(*paths)
    paths = [
        run("did", panel_of(rows, target, 20), 1.0, 0.0, SeededSource(1)).mean_path
        for rows in (donors, donors[order])
    ]
    assert np.array_equal(*paths)


def test_did_sensitivity_is_attained_and_never_exceeded() -> None:
    rng = np.random.default_rng(5)
    target = np.array([0.0, 1.0, 0.0, 1.0, 2.0])
    worst = 0.0
    for _ in range(400):
        donors = rng.standard_normal((3, 5)) * 10.0 ** rng.uniform(-2, 3)
        other = donors.copy()
        other[0] = -donors[0] if rng.random() < 0.5 else rng.standard_normal(5) * 1e3
        one, two = (
            run("did", panel_of(rows, target, 4), 1.0, 0.0, Silent()) for rows in (donors, other)
        )
        if one.row_norm == two.row_norm:
            record = one.records[-1]
            moved = float(np.linalg.norm(one.mean_path - two.mean_path))
            assert record.sensitivity == pytest.approx(2.0 * one.row_norm / 3.0)
            # the released number is rounded to a grid of 2**-20 scales
            worst = max(worst, moved / record.sensitivity)
    assert 0.99 < worst <= 1.0 + 1e-5


# ------------------------------------------------------------------------------- noise, records


@pytest.mark.parametrize("delta", KINDS)
def test_costs_add_up_to_the_budget(delta: float) -> None:
    donors, target, _ = factor(50, np.random.default_rng(6))
    for method in ("moments", "did"):
        released = run(method, panel_of(donors, target, 20), 0.8, delta)
        assert sum(r.epsilon for r in released.records) == pytest.approx(0.8, rel=1e-12)
        assert sum(r.delta for r in released.records) == pytest.approx(delta, rel=1e-12)


def test_did_noise_is_as_recorded() -> None:
    donors, target, _ = factor(40, np.random.default_rng(7))
    panel = panel_of(donors, target, 20)
    for delta in (1e-6, 0.0):
        found = [run("did", panel, 10.0, delta, SeededSource(s)) for s in range(300)]
        quiet = run("did", panel, 10.0, delta, Silent())
        same = [r for r in found if r.row_norm == quiet.row_norm]
        assert len(same) > 100
        noise = np.array([r.mean_path - quiet.mean_path for r in same])
        expected = quiet._entry_sd()
        assert noise.std() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("delta", KINDS)
def test_both_sources_agree(delta: float) -> None:
    donors, target, _ = factor(300, np.random.default_rng(8))
    panel = panel_of(donors, target, 20)
    for source in (SeededSource(3), SystemSource()):
        released = run("moments", panel, 5.0, delta, source)
        assert np.isfinite(released.predict(target[None])).all()
        assert released.matrix[0, 1] != run("moments", panel, 5.0, delta, source).matrix[0, 1]


@pytest.mark.parametrize("delta", KINDS)
@pytest.mark.parametrize("n", [500, 4000])
def test_noise_of_the_second_round(delta: float, n: int) -> None:
    donors, target, _ = factor(n, np.random.default_rng(19))
    panel = panel_of(donors, target, 20)
    entries, largest = [], []
    for seed in range(25):
        released = run("moments", panel, 1.0, delta, SeededSource(seed))
        assert (released.pre_basis == 8) == (n == 500)
        noise = released.matrix - exact_matrix(donors, released)
        entries.append(noise[np.triu_indices(len(noise), 1)])
        largest.append(np.linalg.eigvalsh(noise)[-1])
    assert np.std(entries) == pytest.approx(released.entry_sd, rel=0.05)
    # the edge is that of a large matrix
    assert 0.8 < np.median(largest) / released.noise_edge < 1.02


@pytest.mark.parametrize("delta", KINDS)
def test_huge_epsilon_is_the_exact_run(delta: float) -> None:
    donors, target, _ = factor(200, np.random.default_rng(9))
    panel = panel_of(donors, target, 20)
    for method, tolerance in (("moments", 1e-3), ("did", 0.05)):
        noisy = run(method, panel, 1e7, delta).predict(target[None])
        exact = run(method, panel, math.inf).predict(target[None])
        assert np.abs(noisy - exact).max() < tolerance


@pytest.mark.parametrize("method", ["moments", "moments of fewer paths", "did"])
@pytest.mark.parametrize("delta", KINDS)
def test_audit_with_a_positive_control(method: str, delta: float) -> None:
    """Orthogonal (moments) or opposite (did) donors, told apart by the best linear statistic."""
    for factor_of_noise in (1.0, 0.1):
        bound = lower_bound(*audited(method, delta, factor_of_noise, trials=600), delta)
        assert (bound <= 2.0) == (factor_of_noise == 1.0), bound


def audited(method: str, delta: float, noise: float, trials: int):
    loud = np.array([1.0, -1.0, 1.0, -1.0, 3.0, -3.0])
    calm = np.array([1.0, 1.0, -1.0, -1.0, -2.0, -2.0]) if method == "moments" else -loud
    target = np.array([2.0, -2.0, 2.0, -2.0, 0.0, 0.0])
    before, others = 4, 1
    if method.endswith("paths"):
        before, others = 11, 119
        loud, calm = (np.append(np.zeros(before), end) for end in ([1.0, 1.0], [1.0, -1.0]))
        target = 0.1 * np.append(np.resize([1.0, -1.0], before), [0.0, 0.0])
    scores = []
    for seed, donor in ((1, loud), (2, calm)):
        panel = panel_of(np.vstack([donor, np.zeros((others, loud.size))]), target, before)
        one = np.empty(trials)
        for t in range(trials):
            source = Scaled(SeededSource([seed, t]), noise)
            released = run(method.split()[0], panel, 2.0, delta, source)
            if method == "did":
                one[t] = released.mean_path @ loud / released.row_norm
                continue
            assert (released.pre_basis < before - 1) == (before == 11)
            change = exact_matrix(loud[None], released) - exact_matrix(calm[None], released)
            one[t] = np.sum(change * released.matrix) / np.linalg.norm(change)
        scores.append(one)
    return scores


def exact_matrix(donors, released):
    """Return the sum of the second round without noise."""
    post = cosines(released.periods - released.pre_periods, released.post_basis, constant=True)
    return gram(donors, released.basis, post, released.metric, released.constant)


# ------------------------------------------------------------------------------ what it predicts


def test_equivariance_and_outliers() -> None:
    donors, target, signal = factor(2000, np.random.default_rng(10))

    def path(rows, y):
        return run("moments", panel_of(rows, y, 20), 1.0, 1e-6, SeededSource(5)).predict(y[None])

    base = path(donors, target)
    moved = path(1e4 * donors - 7.0, 1e4 * target - 7.0)
    assert (moved + 7.0) / 1e4 == pytest.approx(base, abs=1e-4)
    wild = donors.copy()
    wild[:20] *= 1e9
    assert np.sqrt(np.mean((path(wild, target) - signal)[0, 20:] ** 2)) < 0.05


@pytest.mark.parametrize("delta", KINDS)
@pytest.mark.parametrize(("periods", "before"), [(3, 2), (6, 2), (5, 4), (30, 29), (4, 3)])
def test_odd_shapes_and_flat_panels(delta: float, periods: int, before: int) -> None:
    rng = np.random.default_rng(11)
    for donors in (rng.standard_normal((8, periods)), np.full((8, periods), 0.3)):
        for target in (rng.standard_normal(periods), np.full(periods, 0.1), np.zeros(periods)):
            for method in ("moments", "did"):
                for eps in (0.01, 1.0, math.inf):
                    panel = panel_of(donors, target, before)
                    released = run(method, panel, eps, 0.0 if math.isinf(eps) else delta)
                    assert np.isfinite(released.predict(target[None])).all()
                    for parts in ("both", "sampling", "privacy"):
                        errors = released.errors(target, 21, rng, parts)
                        assert errors.periods.shape == (21, periods - before)
                        assert np.isfinite(errors.periods).all()
                        assert np.isfinite(errors.att).all()
                    assert np.isfinite(released.noise_sd())
                    if before > 2:
                        assert np.isfinite(released.placebo(target[None], before - 1)).all()


def test_accuracy_at_a_thousand_donors() -> None:
    errors = {"moments": [], "last": [], "did": []}
    for seed in range(25):
        donors, target, signal = factor(1000, np.random.default_rng([12, seed]))
        panel = panel_of(donors, target, 20)
        for method in ("moments", "did"):
            path = run(method, panel, 1.0, 1e-6, SeededSource(seed)).predict(target[None])[0]
            errors[method].append(np.sqrt(np.mean((path - signal)[20:] ** 2)))
        errors["last"].append(np.sqrt(np.mean((target[19] - signal[20:]) ** 2)))
    middle = {name: np.median(values) for name, values in errors.items()}
    # .0136, .06 and .09 in the study
    assert middle["moments"] < 0.02
    assert middle["moments"] < 0.4 * middle["did"]
    assert middle["did"] < middle["last"]


@pytest.mark.parametrize("delta", KINDS)
@pytest.mark.parametrize(("process", "least"), [("factor", 0.9), ("smooth", 0.87)])
def test_errors_cover(delta: float, process: str, least: float) -> None:
    covered = np.zeros(2)
    trials = 60
    for seed in range(trials):
        rng = np.random.default_rng([13, seed])
        if process == "factor":
            donors, target, _ = factor(1000, rng)
        else:
            paths = np.sum(PROCESSES[process].draw(rng, 1001, 30), axis=0)
            donors, target = paths[1:], paths[0]
        released = run("moments", panel_of(donors, target, 20), 1.0, delta, SeededSource(seed))
        gap = released.predict(target[None])[0, 20:] - target[20:]
        errors = released.errors(target, 400, np.random.default_rng(seed), "both")
        covered += [
            np.mean(np.abs(gap) <= np.quantile(np.abs(errors.periods), 0.95, axis=0)),
            abs(gap.mean()) <= np.quantile(np.abs(errors.att), 0.95),
        ]
    assert (covered / trials > least).all()


def test_targets_are_served_after_the_release() -> None:
    donors, target, _ = factor(3000, np.random.default_rng(14))
    released = run("moments", panel_of(donors[:-1], target, 20), 1.0, 1e-6)
    assert released.any_target
    path = released.predict(donors[-1:])
    assert np.sqrt(np.mean((path - donors[-1:])[:, 20:] ** 2)) < 0.06
    placebo = released.placebo(target[None], 15)
    assert np.sqrt(np.mean((placebo - target)[:, 15:20] ** 2)) < 0.08
    assert released.directions >= 1
    assert released.weights() is None


@pytest.mark.parametrize("n", [100, 400])
def test_post_periods_of_the_target_are_not_read(n: int) -> None:
    donors, target, _ = factor(n, np.random.default_rng(15))
    released = run("moments", panel_of(donors, target, 20), 1.0, 1e-6)
    changed = target.copy()
    changed[20:] += 100.0
    assert np.array_equal(released.predict(target[None]), released.predict(changed[None]))
    two = run("moments", panel_of(donors, changed, 20), 1.0, 1e-6)
    assert np.array_equal(released.matrix, two.matrix)
    assert np.array_equal(released.basis, two.basis)


# ------------------------------------------------------------- a second round with fewer paths


class Watched(Mechanisms):
    """Gives one released first round to all and keeps the exact sum of the second."""

    def gram_rounds(self, budget, rounds, statistic, *, rows, lattice):
        released = (self.costs["first"],)
        self.costs["second"] = statistic(released)
        return Grams((*released, self.costs["second"]), (0.3, 0.7), ())


@pytest.mark.parametrize("targets", [1, 3])
def test_replacing_a_donor_changes_the_second_round_by_no_more_than_one_row(targets) -> None:
    """Neighbouring panels, from the same first release: nuclear norm 2, attained."""
    rng = np.random.default_rng(20)
    panel, goal, _ = factor(500, rng)
    kernel = KERNELS["moments"]
    public = Public(500, 30, 20, 1.0, 0.0, False)
    settings = kernel.settings(None, {}, public)
    goals = goal + 0.1 * rng.standard_normal((targets, 30))
    root = rng.standard_normal((30, 3))
    first = 500.0 * root @ root.T / 90.0 + rng.standard_normal((30, 30))
    watched = Watched(SeededSource(1), "laplace", {"moments": Cost(1.0), "first": first + first.T})
    worst = 0.0
    for _ in range(30):
        sums = []
        # what is left in the post-period is not projected
        for end in np.linalg.qr(rng.standard_normal((10, 2)))[0].T:
            donors = panel.copy()
            donors[7] = np.append(np.zeros(20), 10.0 ** rng.uniform(0, 8) * end)
            released = kernel.run(panel_of(donors, goals, 20), settings, watched)
            sums.append(watched.costs["second"])
        assert released.pre_basis == 8
        worst = max(worst, float(np.abs(np.linalg.eigvalsh(sums[0] - sums[1])).sum()))
    assert 1.9 < worst <= 2.0


@pytest.mark.parametrize("delta", KINDS)
def test_the_paths_hold_those_of_the_target(delta: float) -> None:
    donors, target, _ = factor(500, np.random.default_rng(21))
    released = run("moments", panel_of(donors, target, 20), 1.0, delta)
    basis = released.basis
    assert basis.shape == (20, 8)
    np.testing.assert_allclose(basis.T @ basis, np.eye(8), atol=1e-12)
    np.testing.assert_allclose(basis.sum(axis=0), 0.0, atol=1e-12)
    deviation = target[:20] - target[:20].mean()
    np.testing.assert_allclose(basis @ (basis.T @ deviation), deviation, atol=1e-12)
    spectrum = np.linalg.eigvalsh(released.metric)
    assert spectrum[0] > 0.0
    assert spectrum[-1] <= 1.0 + 1e-12
    shown = dict(KERNELS["moments"].constants(None, Public(500, 30, 20, 1.0, delta, False)))
    assert shown["paths before T0 in the second round"] == "8"


def test_residuals_of_the_target_itself_lack_degrees_of_freedom() -> None:
    """Its noise is in the paths; that of other units is left outside of them."""
    donors, target, _ = factor(501, np.random.default_rng(24))
    released = run("moments", panel_of(donors[1:], target, 20), 1.0, 0.0)
    outside = 20.0 - 1.0 - released.basis.shape[1]
    own, *others = (
        released._hidden(path[:20] - released.predict(path[None])[0, :20], 3.0)
        for path in (target, *donors[:60])
    )
    assert own == pytest.approx(outside / 2.0)
    # what is left outside is compared with residuals that hold some of the signal too
    assert 0.0 <= np.mean(others) < 0.7 * own
    assert max(others) < own
    every = run("moments", panel_of(donors[1:], target, 20), 100.0, 0.0)
    assert every._hidden(target[:20] - every.predict(target[None])[0, :20], 3.0) == 0.0


def test_targets_without_variation_and_several_of_them() -> None:
    donors, target, _ = factor(400, np.random.default_rng(22))
    for goals in (np.zeros(30), np.full(30, 1e100), np.stack([target, 1e-300 * target, -target])):
        released = run("moments", panel_of(donors, goals, 20), 1.0, 0.0)
        assert released.basis.shape == (20, 8)
        assert np.isfinite(released.predict(np.atleast_2d(goals))).all()
        assert np.isfinite(released.placebo(np.atleast_2d(goals), 12)).all()


def test_fewer_paths_are_closer_to_the_signal(monkeypatch) -> None:
    """1000 donors, pure: .75 of the error of a second round as large as the first (300 panels)."""
    logs = []
    for seed in range(40):
        donors, target, signal = factor(1000, np.random.default_rng([23, seed]))
        errors = []
        for share in (design._NOISY_SHARE, math.inf):
            with monkeypatch.context() as patch:
                patch.setattr(design, "_NOISY_SHARE", share)
                released = run(
                    "moments", panel_of(donors, target, 20), 1.0, 0.0, SeededSource(seed)
                )
            path = released.predict(target[None])[0]
            errors.append(np.sqrt(np.mean((path - signal)[20:] ** 2)))
        logs.append(math.log(errors[0] / errors[1]))
    assert np.mean(logs) + 2.0 * np.std(logs) / math.sqrt(len(logs)) < 0.0


# -------------------------------------------------------------------------------- public choices


def test_design_of_public_quantities() -> None:
    def sizes(n, eps, delta, periods=30, before=20):
        found = design.design_of(Public(n, periods, before, eps, delta, False))
        return found.pre_basis, found.kept, found.post_basis

    assert sizes(1000, 1.0, 1e-6) == (19, 19, 10)
    assert sizes(500, 1.0, 1e-6) == (19, 8, 10)
    assert sizes(100, 1.0, 1e-6) == (5, 5, 3)
    assert sizes(1000, 1.0, 0.0) == (19, 8, 10)
    assert sizes(3000, 1.0, 0.0) == (19, 19, 10)
    assert sizes(2000, 1.0, 0.0, periods=60, before=40) == (39, 12, 20)
    assert sizes(10, 0.1, 0.0) == (4, 4, 2)
    assert sizes(10, math.inf, 0.0) == (19, 19, 10)
    assert sizes(10, 1.0, 0.0, periods=3, before=2) == (1, 1, 1)
    smallest = design.design_of(Public(10, 3, 2, 1.0, 0.0, False))
    assert (smallest.first_size, smallest.last_size) == (3, 3)


def test_options_are_refused() -> None:
    donors, target, _ = factor(5, np.random.default_rng(16))
    panel = panel_of(donors, target, 20)
    for method in ("moments", "did"):
        with pytest.raises(DPStatsError, match="no option 'rounds'"):
            run(method, panel, 1.0, rounds=3)
        with pytest.raises(DPStatsError, match="`penalty`"):
            run(method, panel, 1.0, penalty=3.0)


@pytest.mark.study
@pytest.mark.parametrize("process", ["factor", "smooth"])
@pytest.mark.parametrize("n", [100, 1000, 10_000])
@pytest.mark.parametrize("delta", KINDS)
def test_coverage(process: str, n: int, delta: float) -> None:
    """A thousand panels a cell; three binomial standard errors of slack on either side."""
    covered, trials = np.zeros(2), 1000
    for seed in range(trials):
        rng = np.random.default_rng([17, n, seed])
        paths = np.sum(PROCESSES[process].draw(rng, n + 1, 30), axis=0)
        donors, target = paths[1:], paths[0]
        source = SeededSource([18, n, seed])
        released = run("moments", panel_of(donors, target, 20), 1.0, delta, source)
        gap = released.predict(target[None])[0, 20:] - target[20:]
        errors = released.errors(target, 1000, np.random.default_rng(seed), "both")
        covered += [
            np.mean(np.abs(gap) <= np.quantile(np.abs(errors.periods), 0.95, axis=0)),
            abs(gap.mean()) <= np.quantile(np.abs(errors.att), 0.95),
        ]
    periods, att = covered / trials
    assert 0.93 - 0.02 < periods < 0.99 + 0.01
    assert 0.93 - 0.024 < att < 0.99 + 0.01
