"""Weighting on split rows: partitions, budgets, and agreement with weighting by hand."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpstats as dp
from dpstats.privacy.accounting import composed
from dpstats.propensity import Objective, Output

COVARIATES = "y ~ x1 + x2 + x3 + x4"
TRAINING, ESTIMATION = "training rows", "estimation rows"


@pytest.fixture(scope="module")
def trial():
    return dp.simulate.ate("well_specified", 3000, rng=1)


def run(trial, formula: str = COVARIATES, **options) -> dp.ATEResults:
    options = {"eps": 1.0, "bounds": trial.bounds, "method": "split_ipw", "rng": 1, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dp.dp_ate(formula, treat="w", data=trial.data, **options)


@pytest.mark.parametrize("noise", [{}, {"delta": 1e-6}], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("estimand", ["ate", "att", "atc"])
def test_each_part_has_the_whole_budget(trial, noise, estimand) -> None:
    found = run(trial, estimand=estimand, train_share=0.4, **noise)
    table = found.privacy.releases.set_index("release")
    parts = table.groupby("partition")[["epsilon", "delta"]].sum()
    assert set(parts.index) == {TRAINING, ESTIMATION}
    for part in (TRAINING, ESTIMATION):
        assert parts.loc[part, "epsilon"] == pytest.approx(1.0, rel=1e-12)
        assert parts.loc[part, "delta"] == pytest.approx(noise.get("delta", 0.0), rel=1e-9)
    assert composed(found.privacy.records)[0] == pytest.approx(1.0, rel=1e-12)
    assert list(table.index[table["partition"] == TRAINING]) == [
        "propensity",
        "propensity (solver)",
    ]
    largest = {"ate": 10.0, "att": 9.0, "atc": 9.0}[estimand]
    # C = 1.5; 1800 of 3000 rows are averaged
    assert table.loc["score", "sensitivity"] == pytest.approx(2.0 * 1.5 * largest / 1800)


def test_bounds_use_all_rows_and_add_up(trial) -> None:
    found = run(trial, bounds={k: v for k, v in trial.bounds.items() if k != "y"})
    parts = found.privacy.releases.groupby("partition")["epsilon"].sum()
    assert set(parts.index) == {"all rows", TRAINING, ESTIMATION}
    for part in (TRAINING, ESTIMATION):
        assert parts["all rows"] + parts[part] == pytest.approx(1.0, rel=1e-12)
    assert composed(found.privacy.records)[0] == pytest.approx(1.0, rel=1e-12)


def test_shares_of_a_split_sum_to_one_for_every_row(trial) -> None:
    wished = {"propensity": 1.0, "score": 0.9, "variances": 0.1}
    table = run(trial, split=wished).privacy.releases.set_index("release")["epsilon"]
    assert table["score"] == pytest.approx(0.9)
    assert table["variances"] == pytest.approx(0.1)
    assert table["propensity"] + table["propensity (solver)"] == pytest.approx(1.0)
    wished = {"bounds": 0.2, "propensity": 0.8, "score": 0.8}
    bounds = {k: v for k, v in trial.bounds.items() if k != "y"}
    found = run(trial, split=wished, bounds=bounds, eps=3.0).privacy.releases
    table = found.set_index("release")["epsilon"]
    assert table["bounds"] == pytest.approx(0.6)
    assert table["score"] == pytest.approx(2.4)
    published = run(trial, split="published").privacy.releases.set_index("release")["epsilon"]
    assert published["score"] == pytest.approx(1.0)
    assert "variances" not in published
    with pytest.raises(dp.DPStatsError, match=r"sum to 1.*estimation rows take part in \(score"):
        run(trial, split={"propensity": 1.0, "score": 0.5, "variances": 0.1})
    with pytest.raises(dp.DPStatsError, match="`split` must give a share to each release"):
        run(trial, split={"propensity": 1.0})


def test_a_known_propensity_needs_no_training(trial) -> None:
    split, whole = (run(trial, propensity=0.4, method=method) for method in ("split_ipw", "ipw"))
    assert set(split.privacy.releases["partition"]) == {"all rows"}
    assert "Training rows" not in split.summary().as_text()
    sizes = [r.privacy.releases.set_index("release")["sensitivity"] for r in (split, whole)]
    assert sizes[0]["score"] == sizes[1]["score"]


def test_exact_run_is_weighting_with_a_logit_of_the_training_rows(trial) -> None:
    found = run(trial, eps=math.inf, rng=None, bounds=None, train_share=0.25)
    data = trial.data
    # positions take turns: rows 3, 7, 11, ... train
    training = np.arange(len(data)) % 4 == 3
    x = sm.add_constant(data[["x1", "x2", "x3", "x4"]].to_numpy())
    w, y = data["w"].to_numpy(float), data["y"].to_numpy(float)
    fit = sm.Logit(w[training], x[training]).fit(disp=0, maxiter=200)
    e = fit.predict(x[~training])
    w, y = w[~training], y[~training]
    scores = w * y / e - (1 - w) * y / (1 - e)
    assert found.params["ATE"] == pytest.approx(scores.mean(), rel=1e-7)
    assert found.bse["ATE"] == pytest.approx(scores.std() / math.sqrt(y.size), rel=1e-7)


def test_the_split_is_random_and_knows_nothing_of_the_rows(trial, monkeypatch) -> None:
    seen = []
    original = Objective.fit

    def spy(self, X, W, **rest):
        seen.append(X)
        return original(self, X, W, **rest)

    monkeypatch.setattr(Objective, "fit", spy)
    marked = trial.data.assign(x1=np.linspace(-0.5, 4.5, len(trial.data)))
    for data in (trial.data, marked, marked.assign(y=0.0, w=1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dp.dp_ate(
                COVARIATES,
                treat="w",
                data=data,
                eps=1.0,
                bounds=trial.bounds,
                method="split_ipw",
                train_share=0.3,
                rng=5,
            )
    assert {len(x) for x in seen} == {900}
    # which positions: read off the marks
    positions = [np.rint((x[:, 1] + 1.0) / 2.0 * 2999).astype(int) for x in seen[1:]]
    np.testing.assert_array_equal(*positions)
    assert not np.array_equal(positions[0], np.arange(900))
    # uniform over the file: chi-square of tenths, false alarm 1e-4
    counts = np.bincount(positions[0] * 10 // 3000, minlength=10)
    assert ((counts - 90) ** 2 / (90 * 0.7)).sum() < 33.7


def test_several_rows_a_person(trial) -> None:
    one, three = (run(trial, rows_per_person=k).privacy.releases for k in (1, 3))
    ratio = three.set_index("release")["sensitivity"] / one.set_index("release")["sensitivity"]
    assert ratio["score"] == pytest.approx(3.0)
    assert ratio["variances"] == pytest.approx(3.0)
    assert ratio["propensity"] == pytest.approx(3.0)
    for model in (None, Objective(), Output()):
        with pytest.raises(dp.DPStatsError, match="`rows_per_person` > 1 cannot be combined"):
            run(trial, rows_per_person=2, delta=1e-6, propensity=model)
    run(trial, rows_per_person=2, delta=1e-6, propensity=0.5)


@pytest.mark.parametrize("value", [0.0, 1.0, True, "half"])
def test_train_share_is_checked(trial, value) -> None:
    with pytest.raises(dp.DPStatsError, match=r"`train_share` must be a number in \(0, 1\)"):
        run(trial, train_share=value)


def test_smallest_file() -> None:
    data = pd.DataFrame({"y": [0.0, 1.0], "w": [0, 1], "x": [0.0, 1.0]})
    for share in (1e-9, 0.5, 1.0 - 1e-9):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = dp.dp_ate(
                "y ~ x",
                treat="w",
                data=data,
                eps=1.0,
                bounds={"y": (0, 1), "x": (0, 1)},
                method="split_ipw",
                train_share=share,
                rng=1,
            )
        assert math.isfinite(found.params["ATE"])
        assert math.isfinite(found.bse["ATE"])


def test_a_ledger_is_charged_once_and_adds_up(trial, tmp_path) -> None:
    pytest.importorskip("dp_accounting")
    ledger = dp.PrivacyLedger(tmp_path / "book", eps=3.0, delta=0.0, protects="row")
    for _ in range(2):
        run(trial, rng=None, ledger=ledger)
    assert ledger.spent == pytest.approx((2.0, 0.0))
    epsilon, _ = ledger.total("pld", delta=1e-6)
    assert 0.0 < epsilon <= 2.0 * (1.0 + 1e-3)


def test_tables_and_plots_of_a_result_with_parts(trial, tmp_path) -> None:
    found = run(trial)
    table = dp.sensitivity_table(found)
    # less noise in one part costs more in all: the other part is at the total already
    np.testing.assert_allclose(table["total"], 1.0 + table["extra"])
    found.save(tmp_path / "r.json")
    assert dp.load(tmp_path / "r.json").summary().as_text() == found.summary().as_text()
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    fig, ax = found.plot("budget")
    assert ax.get_xlabel() == "epsilon (total 1)"
    matplotlib.pyplot.close(fig)
    text = found.summary().as_text()
    assert "50%" in text
    assert "does not add up" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100
