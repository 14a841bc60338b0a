"""Everything a synthetic control result shows, for every method and kind of run."""

from __future__ import annotations

import copy
import inspect
import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.storage import plain
from dpstats.synth.kernels import KERNELS

INF = float("inf")
MODES = {
    "private": {"rng": None},
    "gaussian": {"rng": None, "delta": 1e-5},
    "seeded": {"rng": 3},
    "exact": {"eps": INF},
}
CASES = [
    f"{name}, {mode}, {targets}"
    for name, kernel in KERNELS.items()
    for mode in MODES
    for targets in (1, 3)
    if kernel.private or mode == "exact"
]
NO_FIT = ("output", "objective")


@pytest.fixture(scope="module", params=CASES)
def result(request, synth, _master_panel):
    name, mode, targets = request.param.split(", ")
    treated = 0 if targets == "1" else [2, 0, 5]
    bounds = (-8.0, 8.0) if name in NO_FIT else None
    return synth(_master_panel, method=name, treated=treated, bounds=bounds, **MODES[mode])


def several(result):
    return len(result.facts.treated) > 1


def labels(result):
    return [(unit, "ATT") for unit in (2, 0, 5)] if several(result) else ["ATT"]


def test_series(result):
    for name in ("params", "bse", "tvalues", "pvalues"):
        series = getattr(result, name)
        assert isinstance(series, pd.Series)
        assert list(series.index) == labels(result)
        assert series.dtype == float
        assert np.isfinite(series).all()
    assert isinstance(result.params.index, pd.MultiIndex) == several(result)
    assert result.pvalues.between(0, 1).all()
    assert result.nobs == (58 if several(result) else 60)


def test_paths(result):
    axis = pd.Index(range(2000, 2012), name="time")
    for value in (result.observed, result.counterfactual, result.effect):
        assert isinstance(value, pd.DataFrame if several(result) else pd.Series)
        assert list(value.index) == list(axis)
        if several(result):
            assert list(value.columns) == [2, 0, 5]
    gap = result.observed - result.counterfactual
    np.testing.assert_allclose(result.effect, gap, equal_nan=True)
    after = result.effect.loc[2008:]
    np.testing.assert_allclose(after.mean(), result.params.to_numpy(), rtol=1e-9)
    before = result.effect.loc[:2007].to_numpy()
    filled = result.method not in NO_FIT or result.released.exact
    assert np.isfinite(before).all() if filled else np.isnan(before).all()
    assert math.isfinite(result.rmspe()) == filled


def test_conf_int(result):
    table = result.conf_int()
    assert list(table.columns) == [0, 1]
    assert list(table.index) == labels(result)
    assert (table[0] <= result.params).all()
    assert (result.params <= table[1]).all()
    wider = result.conf_int(alpha=0.01)
    assert (wider[0] <= table[0]).all()
    for alpha in (0, 1, float("nan"), True, "a"):
        for which in ("params", "periods"):
            with pytest.raises(dp.DPStatsError, match="`alpha`"):
                result.conf_int(alpha, which)
    with pytest.raises(dp.DPStatsError, match="`which`"):
        result.conf_int(which="years")


def test_conf_int_by_period(result):
    table = result.conf_int(which="periods")
    assert len(table) == 4 * len(result.facts.treated)
    effect = result.effect.loc[2008:].to_numpy().reshape(4, -1).T.ravel()
    middle = table.mean(axis=1).to_numpy()
    np.testing.assert_allclose(middle, effect, rtol=1e-9, atol=1e-9)
    assert (table[1] >= table[0]).all()
    if several(result):
        assert list(table.index)[:2] == [(2, 2008), (2, 2009)]
    else:
        assert list(table.index) == [2008, 2009, 2010, 2011]


def test_pvalues_invert_intervals(result):
    for label in labels(result):
        p = result.pvalues[label]
        for alpha in (0.01, 0.05, 0.3, 0.9):
            low, high = result.conf_int(alpha).loc[label]
            if abs(p - alpha) > 1e-9:
                assert (low <= 0 <= high) == (p > alpha)


def test_tidy_glance_and_dict(result):
    tidy = result.tidy()
    first = ["unit", "term"] if several(result) else ["term"]
    numbers = ["estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high"]
    assert list(tidy.columns) == first + numbers
    assert len(tidy) == len(result.facts.treated)
    row = result.glance().iloc[0]
    assert (row["nobs"], row["T0"], row["pre_periods"]) == (result.nobs, "2007", 8)
    assert row["private"] == result.privacy.private
    content = result.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["estimates"][0]["estimate"] == result.params.iloc[0]


def test_privacy(result):
    privacy = result.privacy
    assert privacy.relation == "replace one unit"
    assert "donors" in privacy.protects
    assert "Not protected: the treated" in privacy.protects
    assert privacy.public["n"] == result.nobs
    private = privacy.private
    shown = [
        result.summary().as_text(),
        str(result),
        result._repr_html_(),
        result.summary().as_latex(),
        privacy.statement(),
    ]
    for text in shown:
        assert ("NOT PRIVATE" in text) == (not private)
    if result.released.exact:
        return
    assert privacy.seeded != private
    text = " ".join(str(result).split())
    assert "Taken as public: n = " in text
    assert "last value" in text or "no common movement" in text


def test_diagnostics(result):
    table = result.diagnostics
    assert list(table.columns) == ["quantity", "value", "reading"]
    assert all(isinstance(value, str) for value in table.to_numpy().ravel())
    assert "error of the last value" in table["quantity"].tolist()
    assert result.noise_sd() >= 0
    assert result.sampling_sd() >= 0
    assert (result.noise_sd() == 0) == result.released.exact


def test_summary_layout(result):
    text = str(result)
    assert max(map(len, text.splitlines())) <= 100
    assert "Effect by period" in text
    for word in ("2008", "2011", "No. Donors:", "T0:", "60" if not several(result) else "58"):
        assert word in text


def test_plots(result):
    pytest.importorskip("matplotlib")
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    before = len(plt.get_fignums())
    free = result.method in {"moments", "did"}
    for kind in (None, "path", "gap", "placebo", "budget"):
        if kind == "placebo" and not free:
            with pytest.raises(dp.DPStatsError, match="not free"):
                result.plot(kind)
            continue
        figure, axis = result.plot(kind)
        assert axis.figure is figure
        figure.canvas.draw()
        plt.close(figure)
        outer, given = plt.subplots()
        figure, axis = result.plot(kind, ax=given)
        assert axis is given
        assert figure is outer
        plt.close(outer)
    with pytest.raises(dp.DPStatsError, match="`kind`"):
        result.plot("pie")
    with pytest.raises(dp.DPStatsError, match="`unit`"):
        result.plot("gap", unit=17)
    assert len(plt.get_fignums()) == before


def test_every_public_member_works(result):
    skipped = {"save", "predict", "placebo_in_time", "plot", "report"}
    if result.released.weights() is None:
        skipped.add("weights")
    for name in dir(type(result)):
        if name.startswith("_") or name in skipped:
            continue
        member = getattr(result, name)
        if callable(member):
            assert member() is not None
        assert inspect.getdoc(getattr(type(result), name)), name


def roundtrips(result, tmp_path):
    path = tmp_path / "result.json"
    result.save(path)
    json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    yield dp.load(path)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(result, protocol))
    yield copy.deepcopy(result)


def test_round_trips(result, tmp_path):
    text, content = str(result), result.to_dict()
    for back in roundtrips(result, tmp_path):
        assert type(back) is type(result)
        assert plain(back.facts) == plain(result.facts)
        assert back.privacy == result.privacy
        assert str(back) == text
        assert back.to_dict() == content
        assert back.summary().as_latex() == result.summary().as_latex()
        if several(result):
            pd.testing.assert_frame_equal(back.effect, result.effect)
        else:
            pd.testing.assert_series_equal(back.effect, result.effect)
    assert set(result.__getstate__()) == {"facts", "released", "privacy"}


def test_weights(result):
    values = result.released.weights()
    if values is None:
        with pytest.raises(dp.DPStatsError, match="`weights`"):
            result.weights  # noqa: B018
        return
    assert len(result.weights) == result.nobs
    first = result.weights.index[0]
    # labels of donors are kept by exact runs only
    assert isinstance(first, str) == result.released.exact


def test_predict(result, panel):
    new = panel.loc[panel["unit"] == 0].set_index("time")["y"] + 3.0
    if not result.released.any_target:
        with pytest.raises(dp.DPStatsError, match="`predict`"):
            result.predict(new)
        return
    path = result.predict(new)
    assert list(path.index) == list(range(2000, 2012))
    assert np.isfinite(path.loc[2008:]).all()
    for same in (new.sort_index(ascending=False), new.loc[:2007], new.to_numpy(), list(new)[:8]):
        pd.testing.assert_series_equal(result.predict(same), path)
    later = new.copy()
    later.loc[2009] = np.nan
    pd.testing.assert_series_equal(result.predict(later), path)
    if not several(result):
        own = result.predict(new - 3.0)
        np.testing.assert_allclose(own, result.counterfactual, rtol=1e-9)
    wrong = (new.loc[2001:], new.set_axis(range(12)), [1.0], "abc", [np.nan] * 8, new.to_frame())
    for y in wrong:
        with pytest.raises(dp.DPStatsError, match="`y`"):
            result.predict(y)


def test_placebo(result):
    if result.method not in {"moments", "did"}:
        with pytest.raises(dp.DPStatsError, match="not free"):
            result.placebo_in_time(2004)
        return
    table = result.placebo_in_time(2004)
    assert list(table.index) == list(range(2000, 2008))
    assert np.isfinite(table.to_numpy()).all()
    if several(result):
        assert list(table.columns)[:3] == [
            (2, name) for name in ("observed", "counterfactual", "effect")
        ]
    for label in (2000, 2007, 2009, 1999, "2004"):
        with pytest.raises(dp.DPStatsError, match="`T0`"):
            result.placebo_in_time(label)


def test_a_series_is_a_copy(result):
    before = result.params.iloc[0]
    effect = result.effect
    effect.iloc[:] = 0.0
    observed = result.observed
    observed.iloc[:] = 0.0
    assert result.params.iloc[0] == before
    assert (result.effect.loc[2008:].to_numpy() != 0).any()


def test_many_targets_share_one_release(synth, panel):
    together = synth(panel, treated=list(range(20)))
    assert len(together.privacy.releases) == 2
    assert len(together.params) == 20
    assert "Effect by period" not in str(together)
    assert "15 more" in together.facts.names()
    assert together.privacy.epsilon == 1.0


@pytest.mark.parametrize("method", ["moments", "did"])
def test_scale_and_shift(synth, panel, method):
    """y -> a y + b moves the effect by a; the noise is drawn for the scaled rows."""
    reference = synth(panel, method=method)
    for a, b in ((1.0, 1024.0), (4.0, 0.0), (0.25, -64.0)):
        changed = synth(panel.assign(y=a * panel["y"] + b), method=method)
        np.testing.assert_allclose(changed.effect, a * reference.effect, atol=1e-6)


def test_report_blocks(result):
    pytest.importorskip("matplotlib")
    assert len(result.report_blocks()) == 3


ODD = r"a_%&#$ {b} ~^\ <i>"


def test_odd_names_are_escaped(synth, panel):
    """Case 16."""
    named = panel.rename(columns={"y": ODD, "unit": "u" + ODD, "time": "t" + ODD})
    names = panel["unit"].map(lambda unit: f"{ODD} {unit}")
    named["u" + ODD] = names
    result = synth(
        named, unit="u" + ODD, time="t" + ODD, outcome=ODD, treated=[f"{ODD} 0", f"{ODD} 1"]
    )
    markup, latex = result.summary().as_html(), result.summary().as_latex()
    assert "<i>" not in markup
    assert "&lt;i&gt;" in markup
    assert r"\_\%\&\#\$" in latex
    pytest.importorskip("matplotlib")
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    for kind in ("path", "gap", "placebo", "budget"):
        figure, _ = result.plot(kind)
        figure.canvas.draw()
        plt.close(figure)


def test_load_refuses_other_files(tmp_path, synth, panel):
    path = tmp_path / "result.json"
    synth(panel).save(path)
    content = json.loads(path.read_text())
    for change in ({"class": "Panel"}, {"class": ["x"]}, {"format": 99}, {"state": {}}):
        path.write_text(json.dumps({**content, **change}))
        with pytest.raises(dp.DPStatsError, match="`path`"):
            dp.load(path)
