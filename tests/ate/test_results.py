"""Everything a result shows, for every method and kind of run."""

from __future__ import annotations

import copy
import html.parser
import inspect
import json
import math
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from statsmodels.api import Logit
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

import dpstats as dp
from dpstats.storage import plain

INF = float("inf")
MODES = {
    "private": {"rng": None},
    "gaussian": {"rng": None, "delta": 1e-5},
    "seeded": {"rng": 3},
    "seeded gaussian": {"rng": 3, "delta": 1e-5},
    "exact": {"eps": INF},
}
METHODS = ["blocking", "ipw", "diff_means"]
RELEASE_COLUMNS = [
    "release",
    "partition",
    "mechanism",
    "norm",
    "sensitivity",
    "scale",
    "epsilon",
    "delta",
]


@pytest.fixture(scope="module", params=[f"{m}, {mode}" for m in METHODS for mode in MODES])
def result(request, estimate, _master):
    name, mode = request.param.split(", ")
    return estimate(_master, "y ~ x1 + g", method=name, **MODES[mode])


def exact(result):
    return math.isinf(result.privacy.epsilon)


def close(figure):
    import matplotlib.pyplot as plt

    plt.close(figure)


def test_series(result):
    for name in ("params", "bse", "tvalues", "pvalues"):
        series = getattr(result, name)
        assert isinstance(series, pd.Series)
        assert list(series.index) == ["ATE"]
        assert series.dtype == float
        assert np.isfinite(series).all()
    assert (result.bse > 0).all()
    assert result.pvalues.between(0, 1).all()
    assert result.tvalues["ATE"] == pytest.approx(result.params["ATE"] / result.bse["ATE"])
    assert result.nobs == 600


def test_a_series_is_a_copy(result):
    before = result.params["ATE"]
    changed = result.params
    changed["ATE"] = 99.0
    for table in (result.privacy.releases, result.tidy(), result.diagnostics, result.conf_int()):
        del table[table.columns[0]]
    assert list(result.privacy.releases.columns) == RELEASE_COLUMNS
    assert result.params["ATE"] == before


def test_conf_int(result):
    table = result.conf_int()
    assert list(table.columns) == [0, 1]
    assert list(table.index) == ["ATE"]
    low, high = table.loc["ATE"]
    assert low < result.params["ATE"] < high
    wider = result.conf_int(alpha=0.01).loc["ATE"]
    assert wider[0] <= low
    assert wider[1] >= high
    for alpha in (0, 1, -0.1, 2, float("nan"), True, "a", None):
        with pytest.raises(dp.DPStatsError, match="`alpha`"):
            result.conf_int(alpha)
    with pytest.raises(dp.DPStatsError, match="`which`"):
        result.conf_int(which="periods")


@settings(max_examples=60, deadline=None)
@given(alpha=st.floats(4e-4, 0.999), seed=st.integers(0, 11), which=st.integers(0, 2))
def test_pvalues_invert_intervals(null_results, alpha, seed, which):
    result = null_results[which][seed]
    p = result.pvalues["ATE"]
    assume(abs(p - alpha) > 1e-9)
    low, high = result.conf_int(alpha).loc["ATE"]
    assert (low <= 0 <= high) == (p > alpha)


@pytest.fixture(scope="module")
def null_results(estimate):
    from frames import make_frame

    frame = make_frame(300)
    frame["y"] = frame["x2"] + 0.3 * frame["w"]
    bounds = {"y": (-2, 2), "x1": (-3, 3), "x2": (-1, 1)}
    return [
        [estimate(frame, method=name, bounds=bounds, rng=seed) for seed in range(12)]
        for name in METHODS
    ]


def test_exact_pvalues_invert_intervals(estimate, frame):
    frame["y"] = frame["x2"] + 0.05 * frame["w"]
    for name in METHODS:
        result = estimate(frame, method=name, eps=INF, bounds=None)
        p = result.pvalues["ATE"]
        for alpha, inside in ((p * 1.001, False), (p * 0.999, True)):
            low, high = result.conf_int(alpha).loc["ATE"]
            assert (low <= 0 <= high) == inside


def test_tidy_and_glance(result):
    tidy = result.tidy()
    assert list(tidy.columns) == [
        "term",
        "estimate",
        "std_error",
        "statistic",
        "p_value",
        "conf_low",
        "conf_high",
    ]
    assert tidy["term"].tolist() == ["ATE"]
    assert tidy["estimate"].iloc[0] == result.params["ATE"]
    assert tidy["conf_low"].iloc[0] == result.conf_int()[0].iloc[0]
    wide = result.tidy(alpha=0.01)
    assert wide["conf_low"].iloc[0] <= tidy["conf_low"].iloc[0]
    glance = result.glance()
    assert len(glance) == 1
    row = glance.iloc[0]
    assert row["nobs"] == 600
    assert row["epsilon"] == result.privacy.epsilon
    assert row["outcome"] == "y"
    assert row["treatment"] == "w"
    assert row["method"] == result.method
    assert row["private"] == result.privacy.private
    assert row["seeded"] == result.privacy.seeded


def test_to_dict_is_strict_json(result):
    content = result.to_dict()
    text = json.dumps(content, allow_nan=False)
    assert json.loads(text) == content
    assert content["estimates"][0]["estimate"] == result.params["ATE"]
    assert content["privacy"]["private"] == result.privacy.private
    assert len(content["privacy"]["releases"]) == len(result.privacy.releases)


def test_diagnostics(result):
    table = result.diagnostics
    assert list(table.columns) == ["quantity", "value", "reading"]
    assert all(isinstance(value, str) for value in table.to_numpy().ravel())
    assert "sd of privacy noise" in table["quantity"].tolist()
    if exact(result):
        assert "NOT PRIVATE" in " ".join(table["reading"])


def test_privacy_record(result):
    privacy = result.privacy
    releases = privacy.releases
    assert list(releases.columns) == RELEASE_COLUMNS
    assert privacy.relation == "replace one row"
    assert privacy.public["n"] == 600
    assert privacy.public["formula"] == "y ~ x1 + g"
    if result.method != "diff_means":
        assert privacy.public["levels"] == {"g": ("a", "b", "c")}
    if exact(result):
        assert len(releases) == 0
        assert not privacy.private
        assert not privacy.seeded
        return
    assert "row" in privacy.protects
    assert releases["partition"].eq("all rows").all()
    assert releases["epsilon"].sum() == pytest.approx(1.0, rel=1e-9)
    assert releases["delta"].sum() == pytest.approx(privacy.delta, rel=1e-9)
    assert (releases[["sensitivity", "scale", "epsilon"]] > 0).all().all()
    assert (releases["delta"] >= 0).all()
    assert privacy.seeded != privacy.private


def test_not_private_is_said_everywhere(result):
    private = result.privacy.private
    shown = [
        result.summary().as_text(),
        str(result),
        repr(result),
        result._repr_html_(),
        result.summary().as_latex(),
        result.summary().as_csv(),
        result.privacy.statement(),
    ]
    for text in shown:
        assert ("NOT PRIVATE" in text) == (not private)
    assert result.to_dict()["privacy"]["private"] == private


class Balance(html.parser.HTMLParser):
    VOID = frozenset({"br", "hr", "meta", "img", "col", "link"})

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.001])
def test_summary_formats(result, alpha):
    summary = result.summary(alpha)
    text = summary.as_text()
    assert max(map(len, text.splitlines())) <= 100
    assert "No. Observations:" in text
    assert "600" in text
    tail = f"{alpha / 2:g}"
    assert f"[{tail}" in text
    parser = Balance()
    parser.feed(summary.as_html())
    assert not parser.open
    latex = summary.as_latex()
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}")
    assert re.sub(r"\\[{}]", "", latex).count("{") == re.sub(r"\\[{}]", "", latex).count("}")
    assert "ATE" in summary.as_csv()
    assert result._repr_latex_() is None or "tabular" in result._repr_latex_()


def test_delta_is_never_rounded_to_zero(estimate, frame):
    text = str(estimate(frame, delta=1e-12))
    assert "1e-12" in text
    assert "0.000000" not in text


def test_the_summary_shows_what_is_public(result):
    if exact(result):
        return
    text = " ".join(str(result).split())
    for piece in ("n = 600", "y ~ x1 + g", "y in [-5, 8]"):
        assert piece in text
    if result.method != "diff_means":
        assert "levels of g: a, b, c" in text
        assert "x1 in [-3, 3]" in text
    for release in result.privacy.releases["release"]:
        assert release.split(" ")[0] in text


def test_statsmodels_knows_the_summary(result):
    from statsmodels.iolib.summary import Summary

    assert isinstance(result.summary(), Summary)


def test_blocks(result):
    if result.method == "ipw":
        with pytest.raises(dp.DPStatsError, match="`blocks`"):
            result.blocks  # noqa: B018
        return
    table = result.blocks
    assert list(table.columns) == [
        "block",
        "lower",
        "upper",
        "control",
        "treated",
        "noise_sd",
        "mean_control",
        "mean_treated",
        "effect",
        "effect_lower",
        "effect_upper",
        "weight",
        "kept",
    ]
    assert table["lower"].iloc[0] == 0
    assert table["upper"].iloc[-1] == 1
    assert (table["lower"].iloc[1:].to_numpy() == table["upper"].iloc[:-1].to_numpy()).all()
    np.testing.assert_allclose(
        table["effect"], table["mean_treated"] - table["mean_control"], atol=1e-9
    )
    assert table[["mean_control", "mean_treated"]].to_numpy().min() >= -5 - 1e-9
    assert table[["mean_control", "mean_treated"]].to_numpy().max() <= 8 + 1e-9
    assert table["weight"].sum() == pytest.approx(1)
    assert (table["weight"] * table["effect"]).sum() == pytest.approx(result.params["ATE"])
    if not exact(result):
        assert (table["effect_lower"] <= table["effect"]).all()
        assert (table["effect"] <= table["effect_upper"]).all()
    assert table["kept"].dtype == bool
    assert (table["noise_sd"] > 0).all() != exact(result)


def test_plots(result):
    pytest.importorskip("matplotlib")
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    before = len(plt.get_fignums())
    for kind in (None, "effect", "blocks", "overlap", "budget"):
        if result.method == "ipw" and kind in {"blocks", "overlap"}:
            with pytest.raises(dp.DPStatsError):
                result.plot(kind)
            continue
        figure, axis = result.plot(kind)
        assert axis.figure is figure
        figure.canvas.draw()
        close(figure)
        outer, given_axis = plt.subplots()
        figure, axis = result.plot(kind, ax=given_axis)
        assert axis is given_axis
        assert figure is outer
        close(outer)
    with pytest.raises(dp.DPStatsError, match="`kind`"):
        result.plot("pie")
    assert len(plt.get_fignums()) == before


def test_every_public_member_works(result):
    """Nothing public raises: attributes are read, methods called without arguments."""
    needs_arguments = {"save", "estimand", "report"}
    for name in dir(type(result)):
        if name.startswith("_") or name in needs_arguments | {"plot"}:
            continue
        if name == "balance" or (name == "blocks" and result.method == "ipw"):
            continue
        member = getattr(result, name)
        if callable(member):
            parameters = inspect.signature(member).parameters.values()
            assert all(p.default is not p.empty for p in parameters), name
            value = member()
            assert value is not None
            figure = getattr(value, "figure", None)
            if figure is not None:
                close(figure)
        assert type(result).__dict__.get(name) is None or inspect.getdoc(
            getattr(type(result), name)
        ), name
    pytest.importorskip("matplotlib")
    import matplotlib.pyplot as plt

    plt.close("all")


def roundtrips(result, tmp_path):
    path = tmp_path / "result.json"
    result.save(path)
    json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    yield dp.load(path)
    yield dp.load(str(path))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(result, protocol))
    yield copy.deepcopy(result)
    yield copy.copy(result)


def test_round_trips(result, tmp_path):
    text, content = str(result), result.to_dict()
    for number, back in enumerate(roundtrips(result, tmp_path)):
        assert type(back) is type(result)
        assert back.facts == result.facts
        assert back.privacy == result.privacy
        assert plain(back.released) == plain(result.released)
        if number < 3:
            assert str(back) == text
            assert back.to_dict() == content
            assert back.summary().as_latex() == result.summary().as_latex()
            pd.testing.assert_frame_equal(back.privacy.releases, result.privacy.releases)


def test_a_pickle_holds_the_parts_only(result):
    str(result)
    result.conf_int()
    assert set(result.__getstate__()) == {
        *("facts", "released", "privacy", "covariates", "outside")
    }
    assert len(pickle.dumps(result)) < 20_000


@pytest.mark.parametrize("name", METHODS)
def test_round_trip_of_odd_contents(estimate, frame, name, tmp_path):
    """Private bounds, levels that are not text, every estimand."""
    from frames import make_frame

    large = make_frame(20_000)
    day = large["g"].map({"a": "2020-01-01", "b": "2021-01-01", "c": "2022-01-01"})
    large["g"] = pd.Categorical(pd.to_datetime(day))
    estimands = ["ate", "att", "atc"] + (["ato"] if name != "ipw" else [])
    for estimand in estimands:
        result = estimate(
            large, "y ~ x1 + g", method=name, bounds=None, levels=None, estimand=estimand
        )
        path = tmp_path / f"{estimand}.json"
        result.save(path)
        back = dp.load(path)
        assert str(back) == str(result)
        assert back.to_dict() == result.to_dict()
        assert list(back.params.index) == [estimand.upper()]


def test_estimands_of_one_release(result):
    for name in ("ate", "att", "atc", "ato"):
        if name in result.facts.estimands:
            other = result.estimand(name)
            assert list(other.params.index) == [name.upper()]
            assert other.privacy == result.privacy
            assert plain(other.released) == plain(result.released)
            assert str(other)
        else:
            with pytest.raises(dp.DPStatsError, match="estimand"):
                result.estimand(name)
    with pytest.raises(dp.DPStatsError):
        result.estimand("late")


@pytest.mark.parametrize("name", ["blocking", "diff_means"])
def test_estimand_by_call_and_by_result_agree(estimate, frame, name):
    base = estimate(frame, method=name)
    for estimand in ("att", "atc", "ato"):
        asked = estimate(frame, method=name, estimand=estimand)
        found = base.estimand(estimand)
        assert asked.params.iloc[0] == found.params.iloc[0]
        assert asked.bse.iloc[0] == found.bse.iloc[0]
        assert str(asked) == str(found)


PROPENSITIES = {
    "default": None,
    "output": dp.propensity.Output(),
    "number": 0.4,
    "column": "p",
    "large penalty": dp.propensity.Objective(penalty=40.0),
    "own formula": "~ x2",
}


def gaussian_delta(shift, epsilon):
    """Balle and Wang (2018), theorem 5: delta of Gaussian noise of standard deviation 1."""
    return norm.cdf(shift / 2 - epsilon / shift) - math.exp(epsilon) * norm.cdf(
        -shift / 2 - epsilon / shift
    )


@pytest.mark.parametrize("private_bounds", [False, True])
@pytest.mark.parametrize("propensity", PROPENSITIES)
@pytest.mark.parametrize("estimand", ["ate", "att"])
def test_the_budget_is_spent_exactly(estimate, method, noise, propensity, estimand, private_bounds):
    from frames import make_frame

    frame = make_frame(12_000 if private_bounds else 300)
    options = {"bounds": None} if private_bounds else {}
    for eps in (0.7, 4.0):
        if private_bounds and eps < 1:
            continue
        result = estimate(
            frame,
            method=method,
            propensity=PROPENSITIES[propensity],
            estimand=estimand,
            eps=eps,
            **noise,
            **options,
        )
        table = result.privacy.releases
        assert table["epsilon"].sum() == pytest.approx(eps, rel=1e-9)
        assert table["delta"].sum() == pytest.approx(noise.get("delta", 0.0), rel=1e-9)
        assert not table["release"].duplicated().any()
        if private_bounds:
            assert table["release"].iloc[0] == "bounds"
            assert table["mechanism"].iloc[0] == "Laplace"
        for row in table.itertuples():
            if row.mechanism in {"Laplace", "K-norm Laplace", "Wishart difference"}:
                assert row.scale == pytest.approx(row.sensitivity / row.epsilon, rel=1e-9)
                assert row.delta == 0
            elif row.mechanism == "Gaussian (analytic)":
                found = gaussian_delta(row.sensitivity / row.scale, row.epsilon)
                assert found == pytest.approx(row.delta, rel=1e-6)
                assert row.norm == ("Frobenius" if row.release in {"moments", "outcome"} else "l2")
            else:
                check_objective(row, free_jacobian=propensity == "large penalty")


def check_objective(row, *, free_jacobian):
    """Scale of a perturbed objective, from section 1 of the methods.

    A penalty of at least 2/eps makes the Jacobian free; below it part of eps pays for it and the
    noise is larger.
    """
    assert row.mechanism.startswith("objective")
    e = row.epsilon
    if row.delta == 0:
        needed, used = 2 / e, row.scale
    else:
        x = 2 / row.scale
        log_delta = 0.5 * math.log(2 * math.pi) + math.log(x) + e + norm.logsf(e / x + x / 2)
        needed, used = math.exp(log_delta), row.delta
    if free_jacobian:
        assert used == pytest.approx(needed, rel=1e-6)
    else:
        assert used >= needed * (1 - 1e-6)


def test_published_sensitivities(estimate, frame, noise):
    """The table of the estimators, C = 6.5, omega = .1, n = 600."""
    c, omega, n = 6.5, 0.1, 600
    blocks = estimate(frame, split="published", **noise).privacy.releases.set_index("release")
    assert blocks.loc["counts", "sensitivity"] == pytest.approx(math.sqrt(2) if noise else 2)
    assert blocks.loc["sums", "sensitivity"] == pytest.approx(2 * c)
    means = estimate(frame, method="diff_means", **noise).privacy.releases.set_index("release")
    assert means.loc["counts", "sensitivity"] == pytest.approx(1)
    assert means.loc["sums", "sensitivity"] == pytest.approx(2 * c)
    ipw = estimate(frame, method="ipw", **noise).privacy.releases.set_index("release")
    assert ipw.loc["score", "sensitivity"] == pytest.approx(2 * c / (n * omega))
    known = estimate(frame, method="ipw", propensity=0.3, **noise).privacy.releases
    known = known.set_index("release")
    assert known.loc["score", "sensitivity"] == pytest.approx(2 * c / (n * 0.3))


def test_scales_do_not_depend_on_the_rows(estimate, frame, method, noise):
    expected = estimate(frame, method=method, **noise).privacy.releases
    for changed in (
        frame.assign(y=8.0),
        frame.assign(w=1),
        frame.assign(x1=-3.0, x2=0.0),
        frame.assign(y=frame["y"] * 1e6),
    ):
        found = estimate(changed, method=method, **noise).privacy.releases
        pd.testing.assert_frame_equal(found, expected)


def logit(frame, names=("x1", "x2")):
    X = np.column_stack([np.ones(len(frame)), frame[list(names)].to_numpy()])
    return Logit(frame["w"].to_numpy(), X).fit(disp=0, tol=1e-14, maxiter=100).predict(X)


@pytest.mark.parametrize("shift", [0.0, 1e5])
def test_exact_difference_in_means(estimate, frame, shift):
    frame["y"] += shift
    result = estimate(frame, method="diff_means", eps=INF, bounds=None)
    treated, control = (frame["y"][frame["w"] == arm] for arm in (1, 0))
    means = CompareMeans(DescrStatsW(treated), DescrStatsW(control))
    assert result.params["ATE"] == pytest.approx(treated.mean() - control.mean(), rel=1e-9)
    assert result.bse["ATE"] == pytest.approx(means.std_meandiff_separatevar, rel=1e-6)
    low, high = means.zconfint_diff(usevar="unequal")
    np.testing.assert_allclose(result.conf_int().loc["ATE"], [low, high], rtol=1e-6)
    assert result.pvalues["ATE"] == pytest.approx(means.ztest_ind(usevar="unequal")[1], abs=1e-12)


@pytest.mark.parametrize("name", ["diff_means", "blocking"])
def test_exact_standard_errors_far_from_zero(estimate, frame, name):
    """A variance is not the difference of two huge sums."""
    expected = estimate(frame, method=name, eps=INF, bounds=None)
    found = estimate(frame.assign(y=frame["y"] + 2.0**27), method=name, eps=INF, bounds=None)
    assert found.params["ATE"] == pytest.approx(expected.params["ATE"], rel=1e-6)
    assert found.bse["ATE"] == pytest.approx(expected.bse["ATE"], rel=1e-6)


@pytest.mark.parametrize("overlap", [None, 0.2])
def test_exact_weighting(estimate, frame, overlap):
    e = logit(frame)
    if overlap:
        e = e.clip(overlap, 1 - overlap)
    y, w = frame["y"].to_numpy(), frame["w"].to_numpy()
    expected = {
        "ate": np.mean(w * y / e - (1 - w) * y / (1 - e)),
        "att": np.sum(w * y - (1 - w) * y * e / (1 - e)) / w.sum(),
        "atc": np.sum(w * y * (1 - e) / e - (1 - w) * y) / (1 - w).sum(),
    }
    for estimand, value in expected.items():
        result = estimate(
            frame, method="ipw", eps=INF, bounds=None, estimand=estimand, overlap=overlap
        )
        assert result.params.iloc[0] == pytest.approx(value, rel=1e-8, abs=1e-8)
    scores = w * y / e - (1 - w) * y / (1 - e)
    result = estimate(frame, method="ipw", eps=INF, bounds=None, overlap=overlap)
    assert result.bse["ATE"] == pytest.approx(scores.std() / math.sqrt(len(y)), rel=1e-6)


@pytest.mark.parametrize("m", [1, 2, 4, 7])
def test_exact_blocking(estimate, frame, m):
    data = frame.assign(e=logit(frame))
    share = frame["w"].mean()
    # the logit, less that of the whole file
    place = 1.0 / (1.0 + np.exp(-np.log(data["e"] / (1 - data["e"]) * (1 - share) / share)))
    data["k"] = np.minimum((place * m).astype(int), m - 1)
    cells = data.groupby(["k", "w"])["y"].agg(["mean", "count", "var"]).unstack("w")  # noqa: PD010
    cells = cells.dropna(subset=[("mean", 0), ("mean", 1)])
    effect = cells["mean"][1] - cells["mean"][0]
    sizes = {
        "ate": cells["count"].sum(axis=1),
        "att": cells["count"][1],
        "atc": cells["count"][0],
        "ato": cells["count"][0] * cells["count"][1] / cells["count"].sum(axis=1),
    }
    for estimand, size in sizes.items():
        result = estimate(frame, blocks=m, eps=INF, bounds=None, estimand=estimand)
        weight = size / size.sum()
        assert result.params.iloc[0] == pytest.approx((weight * effect).sum(), rel=1e-8)
        if (cells["count"] > 1).all().all():
            within = (cells["var"] / cells["count"]).sum(axis=1)
            se = math.sqrt((weight**2 * within).sum())
            assert result.bse.iloc[0] == pytest.approx(se, rel=1e-6)
    table = result.blocks.loc[cells.index]
    np.testing.assert_allclose(table["effect"], effect, rtol=1e-8)
    np.testing.assert_allclose(table["control"], cells["count"][0])
    np.testing.assert_allclose(table["treated"], cells["count"][1])


@pytest.mark.parametrize("estimand", ["ate", "att", "atc"])
@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("blocking", {"smooth": False}),
        ("blocking", {"smooth": True}),
        ("ipw", {}),
        ("diff_means", {}),
    ],
)
def test_huge_eps_tends_to_its_twin(estimate, frame, noise, estimand, name, extra):
    """The twin shares bounds, overlap, row norm, penalty and what follows the release."""
    options = {"method": name, "estimand": estimand, "overlap": 0.1, **extra}
    if name != "diff_means":
        options["propensity"] = dp.propensity.Objective(penalty=2.0, row_norm=0.8)
    twin = estimate(frame, eps=INF, **options)
    result = estimate(frame, eps=1e9, **options, **noise)
    assert result.params.iloc[0] == pytest.approx(twin.params.iloc[0], rel=1e-3)
    nearer = estimate(frame, eps=1e13, **options, **noise)
    assert nearer.params.iloc[0] == pytest.approx(twin.params.iloc[0], rel=1e-5)


def test_without_bounds_nothing_is_clipped(estimate, frame):
    frame.loc[0, "y"] = 1e6
    result = estimate(frame, method="diff_means", eps=INF, bounds=None)
    means = frame.groupby("w")["y"].mean()
    assert result.params["ATE"] == pytest.approx(means[1] - means[0], rel=1e-9)


def test_the_exact_run_is_reproducible_and_ignores_seeds(estimate, frame, method):
    a, b = (estimate(frame, method=method, eps=INF, rng=seed) for seed in (1, 2))
    assert a.to_dict() == b.to_dict()
    assert not a.privacy.seeded


@pytest.mark.parametrize("released", [True, False])
def test_the_reading_says_where_the_sampling_sd_comes_from(estimate, frame, method, released):
    shares = {
        "blocking": {"propensity": 0.4, "counts": 0.5},
        "ipw": {"propensity": 0.4, "score": 0.5},
        "diff_means": {"counts": 0.4, "sums": 0.5},
    }[method]
    last = {"variances": 0.1} if released else {}
    total = sum([*shares.values(), *last.values()])
    split = {name: share / total for name, share in {**shares, **last}.items()}
    readings = " ".join(estimate(frame, method=method, split=split).diagnostics["reading"])
    assert ("from released variances" in readings) == released
    assert ("no variance was released" in readings) != released
