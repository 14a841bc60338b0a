"""dp_synth: scalars, budget, ledger, warnings, eps = inf."""

from __future__ import annotations

import math
import re
import warnings

import numpy as np
import pytest

import dpstats as dp
from dpstats.synth.kernels import KERNELS

INF = float("inf")
PRIVATE = [name for name, kernel in KERNELS.items() if kernel.private]
EXACT_ONLY = [name for name, kernel in KERNELS.items() if not kernel.private]
BOUNDS = (-8.0, 8.0)

REFUSED = {
    "eps nan": ({"eps": float("nan")}, "`eps`"),
    "eps zero": ({"eps": 0}, "`eps`"),
    "eps negative": ({"eps": -1}, "`eps`"),
    "eps bool": ({"eps": True}, "`eps`"),
    "eps text": ({"eps": "1"}, "`eps`"),
    "delta one": ({"delta": 1.0}, "`delta`"),
    "method": ({"method": "magic"}, "`method`"),
    "noise": ({"noise": "cauchy"}, "`noise`"),
    "gaussian without delta": ({"noise": "gaussian"}, "`noise`.*`delta`"),
    "laplace with delta": ({"noise": "laplace", "delta": 1e-6}, "`noise`"),
    "penalty": ({"penalty": -1.0, "method": "output"}, "`penalty`"),
    "penalty bool": ({"penalty": True, "method": "output"}, "`penalty`"),
    "penalty for moments": ({"penalty": 1.0}, "`penalty`"),
    "bounds equal": ({"bounds": (5, 5)}, "`bounds`"),
    "bounds reversed": ({"bounds": (7, 3)}, "`bounds`"),
    "bounds nan": ({"bounds": (float("nan"), 1)}, "`bounds`"),
    "bounds one-sided": ({"bounds": (0, INF)}, "`bounds`"),
    "bounds a number": ({"bounds": 3}, "`bounds`"),
    "missing": ({"missing": "drop"}, "`missing`"),
    "missing kept": ({"missing": "keep"}, "`missing`"),
    "split": ({"split": {"moments": 0.5}}, "`split`"),
    "split names": ({"split": {"counts": 1.0}}, "`split`"),
    "split text": ({"split": "published"}, "`split`"),
    "option": ({"colour": "blue"}, "colour"),
    "wide": ({"wide": "yes"}, "`wide`|`unit`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_any_charge(panel, attempt, case):
    options, message = REFUSED[case]
    error, charges = attempt(panel, **options)
    assert isinstance(error, dp.DPStatsError), error
    assert re.search(message, str(error)), str(error)
    assert charges == []


@pytest.mark.parametrize("name", EXACT_ONLY)
def test_exact_only_methods(panel, attempt, synth, name):
    error, charges = attempt(panel, method=name)
    assert "`method`" in str(error)
    assert charges == []
    assert np.isfinite(synth(panel, method=name, eps=INF).params["ATT"])


@pytest.mark.parametrize("method", PRIVATE)
@pytest.mark.parametrize("noise", [{}, {"delta": 1e-5}], ids=["laplace", "gaussian"])
def test_the_budget_is_spent_exactly(panel, synth, method, noise):
    for eps in (0.7, np.float32(2)):
        result = synth(panel, method=method, eps=eps, bounds=BOUNDS, **noise)
        table = result.privacy.releases
        assert result.privacy.epsilon == eps
        assert table["epsilon"].sum() == pytest.approx(float(eps), rel=1e-9)
        assert table["delta"].sum() == pytest.approx(noise.get("delta", 0.0), rel=1e-9)
        assert table["partition"].eq("all donors").all()
        assert result.privacy.relation == "replace one unit"


@pytest.mark.parametrize("method", ["output", "objective"])
def test_private_bounds(synth, attempt, method):
    sample = dp.simulate.panel("smooth", n_donors=1500, rng=2)
    options = {"method": method, "T0": sample.T0, "outcome": "y"}
    result = synth(sample.data, eps=1.0, **options)
    found = result.privacy.public["bounds found privately"]["y"]
    assert found[0] == 0.0
    assert 20 < found[1] <= 64
    assert result.facts.bounds == found
    assert result.privacy.public["bounds"] == {}
    assert "found privately" in str(result)
    assert result.privacy.releases["release"].iloc[0] == "bounds"
    assert result.privacy.releases["epsilon"].sum() == pytest.approx(1.0, rel=1e-9)
    few = sample.data[sample.data["unit"] < 50]
    error, charges = attempt(few, **options)
    assert isinstance(error, dp.BoundsError)
    assert charges == []


def test_the_ledger_is_charged_once_for_a_unit(panel, attempt):
    error, charges = attempt(panel, delta=1e-6)
    assert error is None
    (charge,) = charges
    assert charge["relation"] == "unit"
    assert (charge["epsilon"], charge["delta"]) == (1.0, 1e-6)
    assert "dp_synth" in charge["call"]


def test_a_real_ledger(panel):
    ledger = dp.PrivacyLedger(":memory:", eps=2.0, delta=1e-5, protects="unit")
    call = {"unit": "unit", "time": "time", "treated": 0, "T0": 2007, "eps": 1.5}
    with warnings.catch_warnings(), ledger:
        warnings.simplefilter("ignore", dp.UtilityWarning)
        result = dp.dp_synth(panel, **call)
    assert len(result.privacy.releases) == 2
    assert ledger.spent[0] == 1.5
    with pytest.raises(dp.BudgetExceededError):
        dp.dp_synth(panel, **call, ledger=ledger)
    rows = dp.PrivacyLedger(":memory:", eps=9.0, delta=1e-5, protects="row")
    with pytest.raises(dp.DPStatsError):
        dp.dp_synth(panel, **call, ledger=rows)
    for wrong in ({"rng": 1}, {"eps": INF}):
        with pytest.raises(dp.DPStatsError, match="`ledger`"):
            dp.dp_synth(panel, **{**call, **wrong}, ledger=ledger)
    assert ledger.spent[0] == 1.5


def caught(panel, **options):
    call = {"unit": "unit", "time": "time", "treated": 0, "T0": 2007, "eps": 1.0, **options}
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        dp.dp_synth(panel, **call)
    assert all(entry.filename == __file__ for entry in found), "the warning points at the caller"
    return [(entry.category, str(entry.message)) for entry in found]


@pytest.mark.parametrize(
    ("options", "word"),
    [({"rng": 1}, "`rng`"), ({"eps": 11}, "`eps`"), ({"delta": 0.5}, "`delta`")],
)
def test_privacy_warnings(panel, options, word):
    texts = [text for kind, text in caught(panel, **options) if kind is dp.PrivacyWarning]
    assert len(texts) == 1
    assert word in texts[0]


def test_utility_warning_where_it_is_of_no_use():
    small = dp.simulate.panel("factor", n_donors=38, rng=1)
    large = dp.simulate.panel("factor", n_donors=5000, rng=1)
    for sample, expected in ((small, 1), (large, 0)):
        found = caught(sample.data, T0=sample.T0, outcome="y", delta=1e-6)
        assert sum(kind is dp.UtilityWarning for kind, _ in found) == expected
    found = caught(small.data, T0=small.T0, outcome="y", method="output", bounds=(-1, 1))
    assert [kind for kind, _ in found] == [dp.UtilityWarning]
    assert caught(small.data, T0=small.T0, outcome="y", eps=INF, method="simplex") == []


@pytest.mark.parametrize("method", list(KERNELS))
def test_exact_runs(panel, synth, method):
    result = synth(panel, method=method, eps=INF)
    assert not result.privacy.private
    assert len(result.privacy.releases) == 0
    assert "NOT PRIVATE" in str(result)
    assert synth(panel, method=method, eps=INF, rng=5).to_dict() == result.to_dict()
    for name, value in (("split", {"moments": 1.0}), ("ledger", object())):
        with pytest.raises(dp.DPStatsError, match=name):
            synth(panel, method=method, eps=INF, **{name: value})
    with pytest.raises(dp.DPStatsError, match="`delta`"):
        synth(panel, method=method, eps=INF, delta=1e-6)
    panel.loc[100, "y"] = np.inf
    with pytest.raises(dp.PanelError, match="finite"):
        synth(panel, method=method, eps=INF)


def test_robust_keeps_missing_cells(panel, synth):
    rng = np.random.default_rng(1)
    gaps = panel.assign(y=panel["y"].where((panel["unit"] == 0) | (rng.random(len(panel)) > 0.05)))
    result = synth(gaps, method="robust", eps=INF, missing="keep")
    assert np.isfinite(result.params["ATT"])
    absent = synth(gaps.dropna(), method="robust", eps=INF, missing="keep")
    assert absent.params.equals(result.params)
    with pytest.raises(dp.PanelError, match="missing"):
        synth(gaps, method="robust", eps=INF)
    gaps.loc[0, "y"] = np.nan
    with pytest.raises(dp.PanelError, match="missing"):
        synth(gaps, method="robust", eps=INF, missing="keep")


@pytest.fixture(scope="module")
def prop99():
    pytest.importorskip("synthdid")
    return dp.datasets.load_prop99()


def tobacco(prop99, **options):
    call = {"unit": "state", "time": "year", "outcome": "cigsale", "treated": "California"}
    return dp.dp_synth(prop99.data, T0=1988, **call, **options)


def test_prop99_simplex(prop99):
    result = tobacco(prop99, eps=INF, method="simplex")
    assert result.params["ATT"] == pytest.approx(-19.5136, abs=5e-4)
    assert result.rmspe() == pytest.approx(1.6564, abs=5e-4)
    weights = result.weights
    assert weights.sum() == pytest.approx(1.0)
    assert set(weights.nlargest(3).index) == {"Utah", "Montana", "Nevada"}


@pytest.mark.parametrize("penalty", [1.0, 50.0, 1e4])
@pytest.mark.parametrize("bounds", [None, (0.0, 300.0)])
def test_prop99_ridge_is_the_closed_form(prop99, penalty, bounds):
    result = tobacco(prop99, eps=INF, method="output", penalty=penalty, bounds=bounds)
    wide = prop99.data.set_index(["state", "year"])["cigsale"].unstack()
    middle, half = (0.0, 1.0) if bounds is None else (150.0, 150.0)
    y = (wide.loc["California"].to_numpy() - middle) / half
    X = (wide.drop(index="California").to_numpy() - middle) / half
    before = X[:, :19]
    f = np.linalg.solve(before @ before.T + penalty / 2 * np.eye(38), before @ y[:19])
    effect = half * (y - X.T @ f)
    np.testing.assert_allclose(result.weights, f, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(result.effect, effect, rtol=1e-6, atol=1e-6)
    assert result.params["ATT"] == pytest.approx(effect[19:].mean(), abs=1e-6)


def test_prop99_by_the_treated_column(prop99):
    named = tobacco(prop99, eps=INF, method="simplex")
    marked = dp.dp_synth(prop99.data, unit="state", time="year", T0=1988, eps=INF, method="simplex")
    assert marked.params.equals(named.params)
    assert math.isclose(marked.rmspe(), named.rmspe())


def test_prop99_is_too_small_for_eps_one(prop99):
    with pytest.warns(dp.UtilityWarning):
        tobacco(prop99, eps=1, delta=1e-6)


def test_did_is_the_difference_of_means(panel, synth):
    result = synth(panel, method="did", eps=INF)
    wide = panel.set_index(["unit", "time"])["y"].unstack()
    change = wide.loc[:, 2008:].mean(axis=1) - wide.loc[:, :2007].mean(axis=1)
    assert result.params["ATT"] == pytest.approx(change[0] - change[1:].mean(), abs=1e-9)
    huge = synth(panel, method="did", eps=1e9)
    assert huge.params["ATT"] == pytest.approx(result.params["ATT"], abs=1e-2)
