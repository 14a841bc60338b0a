"""Private balance: a second derivation, sensitivity by search, noise, and what it refuses."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.ate.balance import _totals, factor, sensitivities
from dpstats.ate.kernels.base import Arrays
from dpstats.privacy.accounting import composed

COVARIATES = "y ~ x1 + x2 + x3 + x4"
NAMES = ["x1", "x2", "x3", "x4"]
METHODS = ("ipw", "nipw", "split_ipw", "blocking", "diff_means")


@pytest.fixture(scope="module")
def trial():
    return dp.simulate.ate("well_specified", 4000, rng=1)


def run(trial, formula: str = COVARIATES, **options) -> dp.ATEResults:
    options = {
        "eps": 2.0,
        "bounds": trial.bounds,
        "method": "nipw",
        "balance": 0.2,
        "rng": 1,
        **options,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dp.dp_ate(formula, treat="w", data=trial.data, **options)


@pytest.mark.parametrize("estimand", ["ate", "att", "atc", "ato"])
def test_exact_table_against_weighted_means(trial, estimand) -> None:
    """With a known propensity, by numpy from the frame."""
    data = trial.data.assign(p=np.linspace(0.2, 0.8, len(trial.data)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = dp.dp_ate(
            COVARIATES,
            treat="w",
            data=data,
            eps=math.inf,
            method="nipw",
            propensity="p",
            estimand=estimand,
            balance=0.5,
        ).balance
    p, w = data["p"].to_numpy(), data["w"].to_numpy()
    treated = {"ate": 1 / p, "att": p / p, "atc": (1 - p) / p, "ato": 1 - p}[estimand]
    control = {"ate": 1 / (1 - p), "att": p / (1 - p), "atc": p / p, "ato": p}[estimand]
    for name in NAMES:
        x = data[name].to_numpy()
        means = x[w == 0].mean(), x[w == 1].mean()
        weighted = np.average(x, weights=(1 - w) * control), np.average(x, weights=w * treated)
        sd = math.sqrt(sum(((x[w == a] - means[a]) ** 2).sum() for a in (0, 1)) / len(x))
        expected = [*means, *weighted, (means[1] - means[0]) / sd, (weighted[1] - weighted[0]) / sd]
        row = found.loc[name]
        columns = ["mean_control", "mean_treated", "weighted_control", "weighted_treated"]
        np.testing.assert_allclose(row[[*columns, "before", "after"]], expected, rtol=1e-7)
        assert row["before_sd"] == row["after_sd"] == 0.0


def test_exact_blocks_against_cells(trial) -> None:
    found = run(trial, method="blocking", blocks=4, eps=math.inf, rng=None, bounds=None)
    cells = found.blocks
    data = trial.data
    # weights of a block over its rows in the arm: recomputed from the propensity by statsmodels
    import statsmodels.api as sm

    x = sm.add_constant(data[NAMES])
    e = sm.Logit(data["w"], x).fit(disp=0, maxiter=100).predict(x).to_numpy()
    w = data["w"].to_numpy()
    odds = e / (1 - e) * (1 - w.mean()) / w.mean()
    block = np.minimum((odds / (1 + odds) * 4).astype(int), 3)
    counts = np.array([[((block == j) & (w == a)).sum() for j in range(4)] for a in (0, 1)])
    kept = cells["kept"].to_numpy()[block]
    weight = np.where(kept, counts.sum(axis=0)[block] / counts[w, block], 0.0)
    for name in NAMES:
        values = data[name].to_numpy()
        for arm, column in enumerate(("weighted_control", "weighted_treated")):
            mine = np.average(values[w == arm], weights=weight[w == arm])
            assert found.balance.loc[name, column] == pytest.approx(mine, rel=1e-6)


# ------------------------------------------------------------------------------- sensitivity


def vectors(rows, lam: float) -> np.ndarray:
    """The released vector of one row by another route, for all (x, u, w) in `rows`."""
    out = []
    for x, u, w in rows:
        x = np.asarray(x)
        zero = np.zeros_like(x)
        parts = [[float(w)], zero if w else x, x if w else zero, x**2 - 0.5]
        parts += [[0.0 if w else lam * u, lam * u if w else 0.0]]
        parts += [zero if w else lam * u * x, lam * u * x if w else zero]
        out.append(np.concatenate(parts))
    return np.array(out)


@pytest.mark.parametrize("lam", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_sensitivities_are_attained_and_never_exceeded(k, lam) -> None:
    rng = np.random.default_rng(0)
    grid = (-1.0, -0.5, 0.0, 0.6, 1.0)
    corners = itertools.product(itertools.product(grid, repeat=k), (0.0, 0.5, 1.0), (0, 1))
    rows = [*corners] if k < 3 else []
    rows += [([s] * k, u, w) for s in (-1.0, 1.0) for u in (0.0, 1.0) for w in (0, 1)]
    rows += [(rng.uniform(-1, 1, k), rng.uniform(), int(rng.integers(2))) for _ in range(300)]
    found = vectors(rows, lam)
    change = found[:, None, :] - found[None, :, :]
    l1, l2 = sensitivities(k, lam)
    assert np.abs(change).sum(-1).max() == pytest.approx(l1, rel=1e-12)
    assert np.sqrt((change**2).sum(-1)).max() == pytest.approx(l2, rel=1e-12)


def test_totals_are_sums_of_rows_in_any_order() -> None:
    rng = np.random.default_rng(1)
    n, k, lam, lattice = 500, 3, 2.0, -28
    design = np.c_[np.full(n, 0.5), rng.uniform(-1, 1, (n, k))]
    treated, shares = rng.random(n) < 0.4, rng.random(n)
    arrays = Arrays(np.zeros(n), treated, design, None, 1.0, -30)
    totals = _totals(arrays, shares, lam, lattice)
    rows = zip(design[:, 1:], shares, treated.astype(int), strict=True)
    np.testing.assert_allclose(totals, vectors(rows, lam).sum(axis=0), atol=n * 2.0**lattice)
    order = rng.permutation(n)
    again = _totals(arrays.rows(order), shares[order], lam, lattice)
    np.testing.assert_array_equal(totals, again)
    np.testing.assert_array_equal(np.ldexp(totals, -lattice), np.rint(np.ldexp(totals, -lattice)))


def test_factor_is_a_power_of_two_from_one_to_four() -> None:
    values = [factor(t) for t in (0.0, 1e-3, 0.05, 0.2, 0.6, 1.0, 7.0)]
    assert values == [4.0, 4.0, 4.0, 2.0, 1.0, 1.0, 1.0]


# ----------------------------------------------------------------------------------- release


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("noise", [{}, {"delta": 1e-6}], ids=["laplace", "gaussian"])
def test_share_of_the_budget(trial, method, noise) -> None:
    found = run(trial, method=method, **noise)
    table = found.privacy.releases.set_index("release")
    assert table.loc["balance", "epsilon"] == pytest.approx(0.4)
    assert table.loc["balance", "delta"] == pytest.approx(0.2 * noise.get("delta", 0.0))
    assert table.loc["balance", "partition"] == "all rows"
    epsilon, delta = composed(found.privacy.records)
    assert epsilon == pytest.approx(2.0, rel=1e-12)
    assert delta == pytest.approx(noise.get("delta", 0.0), rel=1e-9)
    assert list(found.balance.index) == NAMES
    assert np.isfinite(found.balance.to_numpy()).all()
    assert "largest |SMD| after" in list(found.diagnostics["quantity"])


def test_without_it_nothing_is_spent_and_the_table_says_how(trial) -> None:
    found = run(trial, balance=None)
    assert "balance" not in list(found.privacy.releases["release"])
    with pytest.raises(dp.DPStatsError, match="`balance` must be a share of the budget"):
        _ = found.balance


def test_splits_share_what_is_left(trial) -> None:
    split = {"propensity": 0.5, "numerators": 0.5}
    table = run(trial, split=split).privacy.releases.set_index("release")["epsilon"]
    assert table["numerators"] == pytest.approx(0.8)


def test_noise_sds_of_the_table_are_those_of_repeated_releases(trial) -> None:
    """200 releases: an sd is known to 5 %, five of them are compared at 20 %."""
    runs = [run(trial, eps=8.0, propensity=0.45, rng=seed).balance for seed in range(200)]
    for column in ("before", "after"):
        observed = np.std([table[column] for table in runs], axis=0)
        stated = np.median([table[f"{column}_sd"] for table in runs], axis=0)
        np.testing.assert_allclose(stated, observed, rtol=0.2)


def test_weighting_balances_what_was_not(trial) -> None:
    table = run(trial, eps=50.0).balance
    assert table["before"].abs().max() > 0.5
    assert table["after"].abs().max() < 0.15
    # a design of its own is what is balanced
    own = run(trial, propensity="~ x1 + x3", eps=50.0).balance
    assert list(own.index) == ["x1", "x3"]


def test_bounds_found_privately(trial) -> None:
    found = run(trial, bounds={k: v for k, v in trial.bounds.items() if k != "x1"}, eps=8.0)
    assert composed(found.privacy.records)[0] == pytest.approx(8.0, rel=1e-12)
    low, high = found.privacy.public["bounds found privately"]["x1"]
    assert low <= found.balance.loc["x1", "mean_control"] <= high


def test_refusals(trial) -> None:
    for bad in (0.0, 1.0, -0.1, True, "half"):
        with pytest.raises(dp.DPStatsError, match="`balance` must be a share of the budget"):
            run(trial, balance=bad)
    with pytest.raises(dp.DPStatsError, match="`balance` needs covariates"):
        run(trial, formula="y ~ 1")

    class Foreign:
        def fit(self, X, W, *, eps, delta, source):
            raise AssertionError("nothing may be fitted")

    with pytest.raises(dp.DPStatsError, match="`balance` needs a propensity of dpstats"):
        run(trial, propensity=Foreign())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("arm", [0, 1])
def test_one_arm_is_finite(trial, method, arm) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = dp.dp_ate(
            COVARIATES,
            treat="w",
            data=trial.data.assign(w=arm, x1=1.0),
            eps=0.01,
            bounds=trial.bounds,
            method=method,
            balance=0.3,
            rng=3,
        )
    assert np.isfinite(found.balance.to_numpy()).all()


def test_row_order_and_storage(trial, tmp_path) -> None:
    found = run(trial)
    shuffled = trial.data.sample(frac=1.0, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = dp.dp_ate(
            COVARIATES,
            treat="w",
            data=shuffled,
            eps=2.0,
            bounds=trial.bounds,
            method="nipw",
            propensity=0.5,
            balance=0.2,
            rng=1,
        )
    pd.testing.assert_frame_equal(run(trial, propensity=0.5).balance, again.balance)
    found.save(tmp_path / "r.json")
    loaded = dp.load(tmp_path / "r.json")
    pd.testing.assert_frame_equal(loaded.balance, found.balance)
    assert loaded.summary(diagnostics=True).as_text() == found.summary(diagnostics=True).as_text()


def test_other_estimands_have_no_balance(trial) -> None:
    found = run(trial, method="blocking", blocks=3)
    assert found.estimand("ate").balance.equals(found.balance)
    with pytest.raises(dp.DPStatsError, match="another estimand"):
        _ = found.estimand("att").balance


def test_love_plot(trial) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("dpstats.report.love")
    matplotlib.use("Agg")
    found = run(trial)
    fig, ax = found.plot("love")
    assert [label.get_text() for label in ax.get_yticklabels()] == NAMES
    matplotlib.pyplot.close(fig)
    with pytest.raises(dp.DPStatsError, match="`balance`"):
        run(trial, balance=None).plot("love")
