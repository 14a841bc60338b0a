"""A placebo in time: its mean effect, interval, summary, plot and warning."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.alarms import RULES
from dpstats.synth.earlier import placebo_errors
from dpstats.synth.kernels.paths import Residuals

(LIMIT,) = (rule.limit for rule in RULES if rule.name.startswith("placebo"))


@pytest.fixture(scope="module")
def sample():
    return dp.simulate.panel("factor", n_donors=1500, effect=0.3, rng=5).data


def fit(synth, data, **options):
    return synth(data, **{"T0": 20, "delta": 1e-6, **options})


@pytest.mark.parametrize("method", ["moments", "did"])
@pytest.mark.parametrize("treated", [0, [3, 0]])
def test_mean_effect_is_that_of_the_path(synth, sample, method, treated):
    result = fit(synth, sample, method=method, treated=treated)
    placebo = result.placebo_in_time(14)
    assert isinstance(placebo, pd.DataFrame)
    assert list(placebo.params.index) == list(result.params.index)
    for label, value in placebo.params.items():
        gaps = placebo["effect"] if treated == 0 else placebo[(label[0], "effect")]
        assert value == pytest.approx(gaps.loc[15:20].mean(), rel=1e-12)
    interval = placebo.conf_int()
    np.testing.assert_allclose(interval.mean(axis=1), placebo.params)
    # p-values invert the interval
    inside = (interval[0] <= 0.0) & (interval[1] >= 0.0)
    assert ((placebo.pvalues > 0.05) == inside).all()
    assert (placebo.conf_int(0.2)[1] < interval[1]).all()
    with pytest.raises(dp.DPStatsError, match="`alpha`"):
        placebo.conf_int(2)


def test_default_is_two_thirds_into_the_pre_period(synth, sample):
    result = fit(synth, sample)
    pd.testing.assert_frame_equal(
        pd.DataFrame(result.placebo_in_time()), pd.DataFrame(result.placebo_in_time(13))
    )
    with pytest.raises(dp.DPStatsError, match="at least three periods"):
        fit(synth, sample, T0=2, method="did").placebo_in_time()


def test_it_costs_nothing_and_copies_and_pickles(synth, sample):
    result = fit(synth, sample)
    before = result.privacy
    placebo = result.placebo_in_time(14)
    text = str(placebo)
    assert result.privacy == before
    for back in (copy.deepcopy(placebo), pickle.loads(pickle.dumps(placebo))):
        assert str(back.copy()) == str(pd.DataFrame(back))
    assert str(pickle.loads(pickle.dumps(placebo))) == text
    # a saved result says the same
    assert str(pickle.loads(pickle.dumps(result)).placebo_in_time(14)) == text
    # what is taken out is an ordinary frame
    assert type(placebo.tail(2)) is type(placebo * 2) is pd.DataFrame


def test_summary_says_it_plainly(synth, sample):
    placebo = fit(synth, sample).placebo_in_time(14)
    text = " ".join(str(placebo).split())
    for part in ("Placebo in Time", "Pretended T0: 14", "True T0: 20", "14 before, 6 after"):
        assert part in text
    low, high = placebo.conf_int().iloc[0]
    digits = len(
        text.split("Before the intervention the same method finds an effect of ")[1]
        .split()[0]
        .split(".")[1]
    )
    words = f"{placebo.params.iloc[0]:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
    assert f"finds an effect of {words}, where there should be none." in placebo.reading
    assert placebo.reading in text
    assert "NOT PRIVATE" in str(placebo)
    assert placebo._repr_html_().count("<table") >= 2


def test_errors_of_did_are_those_of_a_textbook(synth, sample):
    """Without noise the error is a mean of autoregressive residuals, before less after."""
    result = fit(synth, sample, method="did", eps=float("inf"), delta=0.0)
    target, before = result.facts.targets[0], 14
    errors = placebo_errors(result.released, target, before, 200_000, np.random.default_rng(0))
    path = result.released.mean_path
    residuals = (target - path)[:before]
    model = Residuals.of(residuals - residuals.mean(), 30, 0.0)
    covariance = model.variance * model.root @ model.root.T
    contrast = np.zeros(30)
    contrast[:before], contrast[before:20] = 1.0 / before, -1.0 / 6.0
    # Student residuals: the spread has mean square d / (d - 2)
    expected = contrast @ covariance @ contrast * model.degrees / (model.degrees - 2.0)
    assert np.mean(errors.att**2) == pytest.approx(expected, rel=0.03)
    assert errors.periods.shape == (200_000, 6)


def test_intervals_hold_zero_as_often_as_they_say(synth):
    """Panels without any effect before T0; binomial limits at four standard errors."""
    trials, covered = 25, 0
    for seed in range(trials):
        data = dp.simulate.panel("factor", n_donors=600, effect=0.3, rng=seed).data
        low, high = fit(synth, data, rng=seed).placebo_in_time().conf_int().iloc[0]
        covered += low <= 0.0 <= high
    assert covered / trials > 0.95 - 4.0 * np.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize("method", ["moments", "did"])
def test_warned_of_where_something_happened_before(synth, sample, method):
    moved = sample.copy()
    jump = (moved["unit"] == 0) & moved["time"].between(14, 20)
    moved.loc[jump, "y"] += 2.0
    for data, wrong in ((sample, False), (moved, True)):
        result = fit(synth, data, method=method)
        placebo = result.placebo_in_time()
        ratio = abs(placebo.params / placebo.bse).max()
        told = [text for text in result.warnings if "placebo in time" in text]
        assert (ratio > LIMIT) == wrong == bool(told)
    assert f"{ratio:.1f} standard errors from zero" in told[0]
    rows = result.diagnostics.set_index("quantity")
    assert "where there should be none" in rows.loc["placebo after 13", "reading"]


def test_plot_shows_the_band(synth, sample):
    pytest.importorskip("matplotlib")
    result = fit(synth, sample)
    fig, ax = result.plot("placebo", T0=14)
    bands = [c for c in ax.collections if np.isclose(c.get_paths()[0].vertices[:, 0].max(), 20)]
    (band,) = bands
    heights = band.get_paths()[0].vertices
    half = result._placebo_half_widths(0, 14, 0.05)
    effect = result.placebo_in_time(14)["effect"].loc[15:20].to_numpy()
    last = heights[np.isclose(heights[:, 0], 20)][:, 1]
    assert last.max() == pytest.approx(effect[-1] + half[-1])
    assert last.min() == pytest.approx(effect[-1] - half[-1])
    words = result.placebo_in_time(14).reading.split("effect of ")[1].split(", where")[0]
    texts = [text.get_text() for text in fig.legends[0].get_texts()]
    assert any(words.replace("-", "\N{MINUS SIGN}") in t or words in t for t in texts)
