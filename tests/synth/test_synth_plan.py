"""Planning and the worked example."""

from __future__ import annotations

import math

import pytest

import dpstats as dp
from dpstats.__main__ import main
from dpstats.privacy.calibration import gaussian_scale
from dpstats.synth.kernels.base import Public
from dpstats.synth.kernels.did import Did

PUBLIC = Public(1000, 30, 20, 1.0, 1e-6, False)
BAD = "not better than carrying the last value forward"


def plan(n=1000, periods=30, before=20, eps=1.0, bounds=(-1, 1), **options):
    return dp.plan_synth(n, periods, before, eps, bounds, **options)


def test_frame():
    table = plan(delta=1e-6)
    assert list(table.index) == ["moments", "did"]
    assert list(table.columns) == [
        "noise_sd",
        "detectable",
        "smallest_share",
        "eps_needed",
        "donors_needed",
        "advice",
    ]
    assert list(plan(method="did").index) == ["did"]


@pytest.mark.parametrize(("delta", "threshold"), [(1e-6, 82), (0.0, 103)])
def test_the_measured_threshold(delta, threshold):
    """Not better than the last value below n eps of about 82 (Gaussian) and 103 (pure)."""
    for eps in (0.5, 1.0, 2.0):
        needed = plan(38, eps=eps, delta=delta).loc["moments", "donors_needed"]
        assert needed * eps == pytest.approx(threshold, rel=0.12)
    assert plan(38, delta=delta).loc["moments", "advice"] == BAD
    assert plan(5000, delta=delta).loc["moments", "advice"] == "worth trying"


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("method", ["moments", "did"])
@pytest.mark.parametrize("target", [None, 0.05])
def test_what_is_needed_suffices(method, delta, target):
    row = plan(delta=delta, target_se=target).loc[method]
    options = {"delta": delta, "target_se": target, "method": method}
    for better in (
        plan(eps=row["eps_needed"] * 1.01, **options),
        plan(int(row["donors_needed"]) + 1, **options),
    ):
        found = better.loc[method]
        assert found["noise_sd"] <= 0.05 if target else found["advice"] != BAD
    worse = plan(eps=row["eps_needed"] / 1.05, **options).loc[method]
    assert worse["noise_sd"] > 0.05 if target else worse["advice"] == BAD


def test_more_is_better():
    for name in ("moments", "did"):
        sds = [plan(n).loc[name, "noise_sd"] for n in (100, 1000, 10_000)]
        assert sds == sorted(sds, reverse=True)
    assert plan(delta=1e-6).loc["moments", "noise_sd"] < plan().loc["moments", "noise_sd"]


def test_did_by_hand():
    row = plan(method="did", delta=1e-6, deviation=0.1).loc["did"]
    share = Did().shares(Did().settings(None, {}, PUBLIC), PUBLIC)["mean"]
    entry = gaussian_scale(2 * math.sqrt(2) * 0.1 * math.sqrt(30) / 1000, share, 1e-6)
    assert row["noise_sd"] == pytest.approx(entry * math.sqrt(1 / 10 + 1 / 20), rel=1e-9)


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
        ({"method": "output"}, "method"),
        ({"delta": 1}, "delta"),
    ],
)
def test_refused(wrong, name):
    with pytest.raises(dp.DPStatsError, match=f"`{name}`"):
        plan(**wrong)


@pytest.mark.parametrize("shape", [(3, 2), (4, 2), (5, 4), (120, 100)])
def test_short_and_long(shape):
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
    with pytest.raises(SystemExit):
        main(["demo", "nothing"])
    assert "demo synth" in capsys.readouterr().err
