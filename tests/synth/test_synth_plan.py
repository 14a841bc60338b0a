"""Planning and the worked example."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import dpstats as dp
from dpstats.__main__ import main
from dpstats.privacy.calibration import gaussian_scale
from dpstats.synth import model, population
from dpstats.synth import plan as planning
from dpstats.synth.kernels.base import Public
from dpstats.synth.kernels.did import Did

PUBLIC = Public(1000, 30, 20, 1.0, 1e-6, False)
# share of the squared movement that units of the process have in common, over panels
COMMON = 0.967
BAD = "not better than carrying the last value forward"


def plan(n=1000, periods=30, before=20, eps=1.0, bounds=(-1, 1), **options):
    return dp.plan_synth(n, periods, before, eps, bounds, **options)


@pytest.fixture
def few_panels(monkeypatch):
    """Where it does not matter how sure the figures are."""
    for method in planning._PANELS:
        monkeypatch.setitem(planning._PANELS, method, 8)


def test_frame():
    table = plan(delta=1e-6)
    assert list(table.index) == ["moments", "did"]
    assert list(table.columns) == [
        "noise_sd",
        "total_se",
        "last_value",
        "detectable",
        "smallest_share",
        "eps_needed",
        "donors_needed",
        "advice",
    ]
    assert list(plan(method="did").index) == ["did"]
    assert (table["total_se"] >= table["noise_sd"]).all()
    assert table["detectable"].to_numpy() == pytest.approx(2.8 * table["total_se"].to_numpy())
    # one process for all: the last value is as good whatever the method
    assert table.loc["moments", "last_value"] == table.loc["did", "last_value"]
    # nor does it depend on donors and budget
    other = plan(200, eps=3.0, method="output")
    assert other["last_value"].tolist() == table["last_value"].tolist()[:1]


def test_last_value_by_hand():
    """All movement is one random walk: loadings cancel, and one step is what is missed."""
    rng = np.random.default_rng(0)
    walks = np.cumsum(rng.standard_normal((20_000, 11)), axis=1)
    moved = walks - walks[:, :10].mean(axis=1, keepdims=True)
    shares = (walks[:, 10] - walks[:, 9]) ** 2 / (moved**2).mean(axis=1)
    case = population.Case(50, 11, 10, 1.0, 0.0, 100.0, 5.0, 1.0, 1)
    # 64 panels
    error = population.last_value_error(case)
    assert error == pytest.approx(5.0 * np.sqrt(shares.mean()), rel=0.25)


def test_bounds_as_dp_synth_takes_them(few_panels):
    pair, named = (plan(60, method="did", bounds=b) for b in ((0, 50), {"sales": (0, 50)}))
    assert pair.equals(named)
    with pytest.raises(dp.DPStatsError, match="`bounds`"):
        plan(60, bounds={"a": (0, 1), "b": (0, 1)})


@pytest.mark.parametrize(("delta", "threshold"), [(1e-6, 82), (0.0, 103)])
def test_the_measured_threshold(delta, threshold, few_panels):
    """Not better than the last value below n eps of about 82 (Gaussian) and 103 (pure)."""
    options = {"delta": delta, "method": "moments"}
    for eps in (0.5, 1.0, 2.0):
        needed = plan(38, eps=eps, **options).loc["moments", "donors_needed"]
        assert needed * eps == pytest.approx(threshold, rel=0.12)
    assert plan(38, **options).loc["moments", "advice"] == BAD
    assert plan(5000, **options).loc["moments", "advice"] == "worth trying"


@pytest.mark.parametrize(
    ("method", "delta", "target"),
    [
        ("moments", 0.0, None),
        ("moments", 1e-6, None),
        ("moments", 1e-6, 0.12),
        ("did", 0.0, None),
        ("did", 1e-6, 0.19),
    ],
)
def test_what_is_needed_suffices(method, delta, target, few_panels):
    row = plan(delta=delta, target_se=target, method=method).loc[method]
    # targets that are never reached: no search again
    options = {"delta": delta, "target_se": 1e-300, "method": method}

    def does(found):
        # a search draws the noise of "moments" once a panel
        return found["total_se"] <= target * 1.03 if target else found["advice"] != BAD

    assert does(plan(eps=row["eps_needed"] * 1.02, **options).loc[method])
    assert does(plan(int(row["donors_needed"] * 1.02) + 1, **options).loc[method])
    worse = plan(eps=row["eps_needed"] / 1.1, **options).loc[method]
    assert not does(worse) or (target and worse["total_se"] > target)


def test_more_is_better(few_panels):
    options = {"target_se": 1e-300}
    for name in ("moments", "did"):
        totals = [
            plan(n, method=name, **options).loc[name, "total_se"] for n in (100, 1000, 10_000)
        ]
        assert totals == sorted(totals, reverse=True)
    for name in ("output", "objective"):
        weak, strong = (
            plan(10, eps=eps, method=name, **options).loc[name, "total_se"] for eps in (1.0, 1e4)
        )
        assert strong < weak


def test_units_do_not_matter(few_panels):
    one, ten = (
        plan(200, bounds=(-size, size), method="moments").loc["moments"] for size in (1, 10)
    )
    for name in ("noise_sd", "total_se", "last_value"):
        assert ten[name] == pytest.approx(10 * one[name], rel=1e-9)


def test_few_donors_with_a_larger_budget_stand_for_many(monkeypatch):
    monkeypatch.setitem(population._ROWS, "moments", 500)
    fewer = plan(1500, method="moments", target_se=1e-300).loc["moments", "noise_sd"]
    monkeypatch.setitem(population._ROWS, "moments", 1500)
    every = plan(1500, method="moments", target_se=1e-300).loc["moments", "noise_sd"]
    assert fewer == pytest.approx(every, rel=0.1)


def test_did_by_hand():
    """Where the choice of the row norm is certain: noise for twice the norm, n eps being large."""
    row = plan(10_000, method="did", delta=1e-6, deviation=0.1, target_se=1e-300).loc["did"]
    share = Did().shares(Did().settings(None, {}, PUBLIC), PUBLIC)["mean"]
    entry = gaussian_scale(2.0 / 10_000, share, 1e-6) * math.sqrt(1 / 10 + 1 / 20)
    # rows are .1 sqrt(30) = .55 long (root mean square), their median is near .5
    assert row["noise_sd"] == pytest.approx(2 * 0.5 * entry, rel=0.1)


def shown(method, n, eps, delta, panels, draws, monkeypatch):
    """Return noise sd in repeated calls over that of the plan, as it averages over panels."""
    # the bootstrap behind a warning takes most of the time of a call
    monkeypatch.setattr(model, "_warn_noise", lambda result: None)
    many = method == "moments"
    found, planned = [], []
    for i in range(panels):
        sample = dp.simulate.panel("factor", n_donors=n + 11 if many else n, rng=100 + i)
        wide = sample.data.pivot(index="unit", columns="time", values="y")
        values = wide.to_numpy()
        moved = values - values[:, :20].mean(axis=1, keepdims=True)
        deviation = float(np.sqrt((moved**2).mean()))
        effects = []
        for seed in range(1000 * i, 1000 * i + draws):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", dp.PrivacyWarning)
                result = dp.dp_synth(
                    wide,
                    wide=True,
                    treated=list(range(12)) if many else 0,
                    T0=wide.columns[19],
                    eps=eps,
                    delta=delta,
                    method=method,
                    bounds=None if method in ("moments", "did") else (-1, 1),
                    rng=seed,
                )
            effects.append(result.effect.to_numpy()[20:].mean(axis=0))
        found.append(math.sqrt(np.var(effects, axis=0, ddof=1).mean()) / deviation)
        # where bounds or row norms matter the scale does, and so each panel has a plan
        if i == 0 or not many:
            options = {"method": method, "deviation": deviation, "common": COMMON}
            row = plan(n, eps=eps, delta=delta, target_se=1e-300, **options).loc[method]
            planned.append(row["noise_sd"] / deviation)
    if many:
        # of a typical panel: the mean of the middle half
        inside = np.sort(found)[panels // 4 : panels - panels // 4]
        return inside.mean() / planned[0]
    return math.sqrt(np.mean(np.square(found)) / np.mean(np.square(planned)))


@pytest.mark.parametrize(("eps", "delta"), [(1.0, 0.0), (1.0, 1e-6), (4.0, 1e-6)])
def test_noise_of_did(eps, delta, monkeypatch):
    assert shown("did", 1000, eps, delta, 6, 40, monkeypatch) == pytest.approx(1.0, abs=0.15)


def test_noise_of_moments(monkeypatch):
    # panels differ by .45 in logs, so that the measured one is uncertain by 7 %
    found = shown("moments", 1000, 1.0, 1e-6, 48, 6, monkeypatch)
    assert found == pytest.approx(1.0, abs=0.15)


@pytest.mark.study
@pytest.mark.parametrize(
    ("method", "n", "eps", "delta"),
    [
        *(
            (method, n, eps, delta)
            for method in ("moments", "did")
            for n in (1000, 3000)
            for eps in (1, 2)
            for delta in (0, 1e-6)
        ),
        *((name, 20, 50, 0) for name in ("output", "objective")),
        *((name, 40, 20, 1e-6) for name in ("output", "objective")),
    ],
)
def test_noise_averaged_over_panels(method, n, eps, delta, monkeypatch):
    panels, draws = (96, 6) if method == "moments" else (40, 8)
    ratio = shown(method, n, eps, delta, panels, draws, monkeypatch)
    assert ratio == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"n": 0}, "n"),
        ({"n": 2.5}, "n"),
        ({"before": 1}, "pre_periods"),
        ({"before": 30}, "pre_periods"),
        ({"eps": math.inf}, "eps"),
        ({"eps": 0}, "eps"),
        ({"bounds": (1, 1)}, "bounds"),
        ({"deviation": -1}, "deviation"),
        ({"target_se": 0}, "target_se"),
        ({"method": "simplex"}, "method"),
        ({"common": 1.5}, "common"),
        ({"factors": 0}, "factors"),
        ({"delta": 1}, "delta"),
    ],
)
def test_refused(wrong, name):
    with pytest.raises(dp.DPStatsError, match=f"`{name}`"):
        plan(**wrong)


@pytest.mark.parametrize("shape", [(3, 2), (4, 2), (5, 4), (120, 100)])
def test_short_and_long(shape, few_panels):
    table = plan(200, *shape)
    assert (table["noise_sd"] > 0).all()


def test_demo(tmp_path, capsys):
    pytest.importorskip("synthdid")
    page = tmp_path / "page.html"
    assert main(["demo", "synth", "--output", str(page)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "38 donors are too few at eps = 1" in text
    assert "REFERENCE, NOT PRIVATE" in text
    assert "ATT -19.5136, RMSPE before T0 1.6564" in text
    assert "UtilityWarning" in text
    assert text.count("Private Synthetic Control") == 2
    markup = page.read_text(encoding="utf-8")
    assert markup.count("<img") == 6
    assert "NOT PRIVATE" in markup


def test_unknown_demo(capsys):
    assert main(["demo", "nothing"]) == 2
    assert "synth" in capsys.readouterr().err
