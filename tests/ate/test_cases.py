"""Calls that broke other packages: arms, formulas, propensities, splits, ledgers, seeds."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.errors import UtilityWarning
from dpstats.privacy.accounting import Release
from dpstats.storage import plain

INF = float("inf")


def numbers(result):
    return plain(result.released)


def one_armed_block(f):
    """Propensities known: in the upper block everybody is treated."""
    return f.assign(p=np.where(f["w"] == 1, 0.9, 0.1))


ARMS = {
    "all treated": lambda f: f.assign(w=1),
    "none treated": lambda f: f.assign(w=0),
    "one treated": lambda f: f.assign(w=(np.arange(len(f)) == 3).astype(int)),
    "one control": lambda f: f.assign(w=(np.arange(len(f)) != 3).astype(int)),
    "separated": lambda f: f.assign(w=(f["x1"] > 0).astype(int)),
    "separated by x2 and x1": lambda f: f.assign(w=(f["x1"] + f["x2"] > 0).astype(int)),
    "constant covariate": lambda f: f.assign(x1=0.5),
    "covariates at a bound": lambda f: f.assign(x1=3.0, x2=-1.0),
    "constant outcome": lambda f: f.assign(y=1.0),
    "outcome at a bound": lambda f: f.assign(y=8.0),
    "collinear": lambda f: f.assign(x2=f["x1"] / 3),
    "two rows": lambda f: f.head(2),
    "ordinary": lambda f: f,
}


@pytest.mark.parametrize("arms", ARMS)
@pytest.mark.parametrize("propensity", [None, "output", 0.5, "p"])
def test_finite_eps_never_looks_at_the_arms(frame, bounds, method, noise, arms, propensity):
    """A finite answer from every release, and the same warnings whatever the rows are."""
    if propensity == "output":
        propensity = dp.propensity.Output()
    if len(ARMS[arms](frame)) == 2 and noise:
        pytest.skip("a delta above 1/n has a warning of its own")
    options = {"blocks": 3} if method == "blocking" else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = dp.dp_ate(
            "y ~ x1 + x2",
            "w",
            ARMS[arms](frame),
            1.0,
            bounds=bounds,
            method=method,
            propensity=propensity,
            rng=11,
            **noise,
            **options,
        )
        text = str(result)
        low, high = result.conf_int().iloc[0]
        table = result.diagnostics
    kinds = {item.category for item in caught}
    allowed = {dp.PrivacyWarning} | ({UtilityWarning} if arms == "two rows" else set())
    assert kinds <= allowed, [str(item.message) for item in caught]
    for values in (result.params, result.bse, result.pvalues):
        assert np.isfinite(values).all()
    assert np.isfinite([low, high]).all()
    assert result.bse.iloc[0] > 0
    assert low < high
    assert abs(result.params.iloc[0]) <= bounds["y"][1] - bounds["y"][0]
    assert "nan" not in text.lower().split()
    assert not table["value"].str.contains("nan").any()
    if method in ("blocking", "diff_means"):
        assert len(result.blocks) == (3 if options else 1)


@pytest.mark.parametrize("eps", [1e-6, 1e-3, 0.05, 5.0])
def test_any_finite_eps_is_honest(estimate, frame, method, eps):
    """No budget is so small that the interval has no width."""
    result = estimate(frame, method=method, eps=eps)
    assert np.isfinite(result.params).all()
    assert result.bse.iloc[0] > 0
    if eps <= 1e-3:
        assert result.pvalues.iloc[0] > 0.01


@pytest.mark.parametrize("eps", [1e-4, 0.01])
def test_an_estimate_at_the_edge_has_an_interval(estimate, frame, bounds, method, eps):
    """Noise may push an estimate to the end of the range; the interval must not shrink to it."""
    width = bounds["y"][1] - bounds["y"][0]
    for seed in range(25):
        result = estimate(frame, method=method, eps=eps, rng=seed)
        low, high = result.conf_int().iloc[0]
        assert high - low > 0.1 * width
        assert result.pvalues.iloc[0] > 0.02


EXACT = ["all treated", "none treated", "one treated", "one control"]


@pytest.mark.parametrize("arms", EXACT)
@pytest.mark.parametrize("propensity", [None, 0.5])
def test_without_noise_empty_arms_are_an_error(estimate, frame, method, arms, propensity):
    with pytest.raises(dp.DPStatsError, match="`treat`"):
        estimate(ARMS[arms](frame), method=method, propensity=propensity, eps=INF)


@pytest.mark.parametrize("name", ["blocking", "ipw"])
@pytest.mark.parametrize("arms", ["separated", "separated by x2 and x1"])
def test_without_noise_separation_is_an_error(estimate, frame, name, arms):
    with pytest.raises(dp.DPStatsError, match="separate"):
        estimate(ARMS[arms](frame), method=name, eps=INF, bounds=None)


def test_without_noise_no_overlap_is_an_error(estimate, frame):
    with pytest.raises(dp.DPStatsError, match="overlap"):
        estimate(one_armed_block(frame), method="blocking", blocks=2, propensity="p", eps=INF)
    zero = frame.assign(p=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(dp.DPStatsError, match="`overlap`"):
            estimate(zero, method="ipw", propensity="p", eps=INF)
    estimate(zero, method="ipw", propensity="p", eps=INF, overlap=0.1)


@pytest.mark.parametrize(
    "arms", ["constant covariate", "covariates at a bound", "constant outcome", "collinear"]
)
@pytest.mark.parametrize("given", [True, False])
def test_without_noise_degenerate_columns(estimate, frame, bounds, method, arms, given):
    result = estimate(ARMS[arms](frame), method=method, eps=INF, bounds=bounds if given else None)
    assert np.isfinite(result.params).all()
    str(result)
    if arms == "constant outcome" and method not in ("ipw", "aipw"):
        assert result.params.iloc[0] == pytest.approx(0, abs=1e-9)
        assert result.bse.iloc[0] == pytest.approx(0, abs=1e-6)
    if arms == "constant covariate" and method == "diff_means":
        assert result.params.iloc[0] == pytest.approx(
            frame["y"][frame["w"] == 1].mean() - frame["y"][frame["w"] == 0].mean()
        )


def test_without_noise_infinite_values_are_named(estimate, frame):
    frame.loc[3, "y"] = np.inf
    with pytest.raises(dp.DPStatsError, match="finite") as caught:
        estimate(frame, eps=INF, bounds=None)
    assert "'y'" in str(caught.value)
    assert "inf," not in str(caught.value)


REFUSED = {
    "y ~ center(x1)": "center",
    "y ~ standardize(x1)": "standardize",
    "y ~ scale(x1)": "scale",
    "y ~ bs(x1, df=4)": "bs",
    "y ~ cr(x1, df=4)": "cr",
    "y ~ x1 + I(x1 / x1.max())": "x1.max",
    "y ~ I(x1 - np.mean(x1))": "mean",
    "y ~ np.median(x1)": "median",
    "y ~ x1.rank()": "rank",
    "center(y) ~ x1": "center",
    "I(y / y.max()) ~ x1": "y.max",
    "y ~ np.log(x1 - 37)": "np.log(x1 - 37)",
    "y ~ np.sqrt(x2)": "np.sqrt(x2)",
    "y ~ I(1 / x1)": "1 / x1",
    "y ~ np.log(y)": "np.log(y)",
    "np.log(y) ~ x1": "np.log(y)",
    "y ~ x1 ** 0.5 + I(x1 ** 0.5)": "",
    "y ~ outside": "outside",
    "y ~ x1 + unseen_variable": "unseen_variable",
    "nope ~ x1": "nope",
    "y ~ x1 + w": "treat",
    "y ~ x1:w": "treat",
    "w ~ x1": "treat",
    "I(y * w) ~ x1": "treat",
    "y ~ __import__('os').getcwd()": "",
    "y ~ (lambda: 1)()": "",
    "y ~ [v for v in x1]": "",
    "y ~ g": "levels=",
    "g ~ x1": "levels=",
    "y + x2 ~ x1": "one outcome",
    "~ x1": "",
    "": "",
    "y": "",
    "y ~": "",
    "y ~ x1 ~ x2": "",
    "y ~ x1 +": "",
    "y ~ (x1": "",
}
REFUSED_BY_RIGHT_SIDE = {
    "y ~ g",
    "y ~ np.log(x1 - 37)",
    "y ~ np.sqrt(x2)",
    "y ~ I(1 / x1)",
    "y ~ np.log(y)",
}


@pytest.mark.parametrize("formula", REFUSED)
@pytest.mark.parametrize("given", [True, False])
def test_refused_formulas(attempt, frame, bounds, method, formula, given):
    if method == "diff_means" and formula in REFUSED_BY_RIGHT_SIDE:
        pytest.skip("a difference in means never evaluates the right side")
    outside = frame["x1"]  # a variable of the calling scope
    error, charges = attempt(
        frame, formula, method=method, levels=None, bounds=bounds if given else None
    )
    assert isinstance(error, dp.DPStatsError), outside.name
    # without bounds the column that needs them is named instead
    assert REFUSED[formula] in str(error) or (not given and "`bounds` must name" in str(error))
    assert not charges


@pytest.mark.parametrize("formula", [None, 3, ["y", "x1"], b"y ~ x1"])
def test_formula_must_be_text(attempt, frame, formula):
    error, charges = attempt(frame, formula)
    assert isinstance(error, dp.FormulaError)
    assert "`formula`" in str(error)
    assert not charges


@pytest.mark.parametrize(
    ("formula", "extra"),
    [
        ("y ~ np.log(x1 + 4)", {}),
        ("y ~ np.sqrt(np.abs(x2))", {}),
        ("y ~ I(1 / (x1 + 4))", {}),
        ("np.exp(y) ~ x1", {}),
        ("I(y ** 2) ~ x1 + I(x1 ** 2)", {}),
        ("y ~ x1 * x2", {}),
        ("y ~ C(g) * x1", {}),
        ("y ~ C(b, levels=[0, 1])", {}),
        ("y ~ (x1 > 0)", {}),
        ("y ~ np.where(x1 > 0, x1, -x1)", {}),
        ("y ~ np.clip(x1, -1, 1)", {}),
    ],
)
def test_allowed_formulas(attempt, frame, method, formula, extra):
    error, charges = attempt(frame, formula, method=method, **extra)
    if formula.startswith("y ~ C(b, levels"):
        assert error is None or isinstance(error, dp.FormulaError)
        return
    assert error is None
    assert len(charges) == 1


@dataclass
class Logit2:
    """A model from outside: output perturbation of a clipped mean difference, of a kind."""

    seen: list

    def fit(self, X, W, *, eps, delta, source):
        self.seen.append((X.copy(), W.copy(), eps, delta, source))
        total = (X * (2.0 * W - 1.0)[:, None]).sum(axis=0)
        records = ()
        if source is not None:
            scale = 2.0 * X.shape[1] / eps
            total = total + source.knorm("propensity", X.shape[1], scale, "l2")
            records = (
                Release(
                    "propensity", "all rows", "outside", "l2", 2.0 * X.shape[1], scale, eps, delta
                ),
            )
        return Fitted(total / len(W), records)


@dataclass
class Fitted:
    coefficients: np.ndarray
    records: tuple

    def predict(self, X):
        return 1 / (1 + np.exp(-X @ self.coefficients))


@pytest.mark.parametrize("name", ["blocking", "ipw"])
def test_a_model_from_outside(estimate, frame, bounds, noise, name):
    model = Logit2([])
    result = estimate(frame, method=name, propensity=model, **noise)
    ((X, W, eps, delta, source),) = model.seen
    assert X.shape == (len(frame), 3)
    assert np.abs(X).max() <= 1
    assert (X[:, 0] == 0.5).all()
    np.testing.assert_allclose(X[:, 1], frame["x1"].clip(-3, 3) / 3, atol=1e-12)
    assert ((frame["w"] == 1) == W).all()
    assert source is not None
    releases = result.privacy.releases
    assert releases["release"].iloc[0] == "propensity"
    assert releases["mechanism"].iloc[0] == "outside"
    assert releases["epsilon"].sum() == pytest.approx(1.0, rel=1e-9)
    assert releases["epsilon"].iloc[0] == eps
    assert (delta > 0) == bool(noise)
    assert releases["delta"].sum() == pytest.approx(noise.get("delta", 0.0), rel=1e-9)
    assert "Logit2" in str(result)
    assert result.released.propensity is None
    # a change of unit of the frame does not reach the model
    metres = frame.assign(x1=frame["x1"] * 1024, x2=frame["x2"] / 4)
    other = Logit2([])
    estimate(
        metres,
        method=name,
        propensity=other,
        **noise,
        bounds={**bounds, "x1": (-3072, 3072), "x2": (-0.25, 0.25)},
    )
    np.testing.assert_array_equal(other.seen[0][0], X)


@pytest.mark.parametrize("name", ["blocking", "ipw"])
def test_a_model_from_outside_without_noise(estimate, frame, name):
    model = Logit2([])
    result = estimate(frame, method=name, propensity=model, eps=INF)
    assert model.seen[0][2] == INF
    assert model.seen[0][4] is None
    assert np.isfinite(result.params.iloc[0])


@dataclass
class Wild:
    value: float

    def fit(self, X, W, *, eps, delta, source):
        return self

    records = ()

    def predict(self, X):
        return np.where(X[:, 1] > 0, self.value, 0.5)


@pytest.mark.parametrize("name", ["blocking", "ipw"])
@pytest.mark.parametrize("value", [-3.0, 7.0, INF, -INF, float("nan"), 0.0, 1.0])
def test_a_model_that_strays_outside_0_1(estimate, frame, name, value):
    """Its predictions depend on the rows, so they may not raise."""
    result = estimate(frame, method=name, propensity=Wild(value))
    assert np.isfinite(result.params.iloc[0])
    assert result.bse.iloc[0] > 0


def test_a_model_that_overspends_is_stopped(frame, bounds):
    class Greedy(Wild):
        records = (Release("propensity", "all rows", "greedy", "l2", 1.0, 1.0, 0.9, 0.0),)

    with pytest.raises(RuntimeError, match="budget"):
        dp.dp_ate("y ~ x1", "w", frame, 1.0, bounds=bounds, method="ipw", propensity=Greedy(0.5))


@pytest.mark.parametrize("name", ["blocking", "ipw"])
def test_own_formula_of_the_propensity(estimate, frame, name):
    found = estimate(frame, "y ~ x1", method=name, propensity="~ x1 + x2")
    expected = estimate(frame, "y ~ x1 + x2", method=name)
    assert numbers(found) == numbers(expected)
    assert "~ x1 + x2" in found.facts.propensity


@pytest.mark.parametrize(
    "make",
    [lambda: dp.propensity.Objective(), lambda: None],
)
def test_objective_is_the_default(estimate, frame, make):
    found = estimate(frame, method="ipw", propensity=make())
    assert numbers(found) == numbers(estimate(frame, method="ipw"))


@pytest.mark.parametrize("name", ["blocking", "ipw"])
def test_output_perturbation(estimate, frame, noise, name):
    result = estimate(frame, method=name, propensity=dp.propensity.Output(), **noise)
    assert "output perturbation" in str(result).replace("\n", " ")
    assert result.privacy.releases["epsilon"].sum() == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("name", ["blocking", "ipw"])
@pytest.mark.parametrize("p", [0.5, np.float32(0.25), np.float64(0.3)])
def test_known_probability_is_free(estimate, frame, noise, name, p):
    for propensity in (p, dp.propensity.Known(probability=p)):
        result = estimate(frame, method=name, propensity=propensity, **noise)
        assert not result.privacy.releases["release"].str.contains("propensity").any()
        assert result.privacy.releases["epsilon"].sum() == pytest.approx(1.0, rel=1e-9)
        assert "known by design" in str(result)


def test_known_column_is_a_public_promise(estimate, frame):
    for propensity in ("p", dp.propensity.Known(column="p")):
        result = estimate(frame, method="ipw", propensity=propensity)
        assert "known by design" in str(result)
        assert any("p" in item for item in result.privacy.public["other"])
        assert not result.privacy.releases["release"].str.contains("propensity").any()


@pytest.mark.parametrize(
    "propensity",
    [
        0,
        1,
        0.0,
        1.0,
        -0.1,
        1.5,
        True,
        False,
        float("nan"),
        INF,
        "",
        "zzz",
        "w",
        [0.5],
        {},
        object(),
        "~ w",
        "~ zzz",
        "~ center(x1)",
        "~ np.log(x1)",
        "y ~ x1",
        dp.propensity.Output,
        1j,
    ],
)
@pytest.mark.parametrize("name", ["blocking", "ipw"])
def test_bad_propensities(attempt, frame, propensity, name):
    error, charges = attempt(frame, method=name, propensity=propensity)
    assert isinstance(error, dp.DPStatsError)
    assert not charges


@pytest.mark.parametrize(
    "options",
    [
        {"method": "nope"},
        {"method": None},
        {"method": ["ipw"]},
        {"estimand": "late"},
        {"estimand": None},
        {"method": "ipw", "estimand": "ato"},
        {"blocks": 0},
        {"blocks": -1},
        {"blocks": 2.0},
        {"blocks": True},
        {"blocks": "many"},
        {"min_count": -0.5},
        {"min_count": float("nan")},
        {"min_count": INF},
        {"min_count": "1"},
        {"min_count": True},
        {"overlap": 0.0, "method": "ipw"},
        {"overlap": 0.5, "method": "ipw"},
        {"overlap": float("nan"), "method": "ipw"},
        {"overlap": True, "method": "ipw"},
        {"rows_per_person": 0},
        {"rows_per_person": 1.0},
        {"rows_per_person": True},
        {"rows_per_person": None},
        {"rng": "seed"},
        {"rng": True},
        {"rng": 1.5},
        {"rng": -1},
        {"ledger": 1},
        {"ledger": "file"},
    ],
    ids=str,
)
def test_bad_options(frame, bounds, options):
    with pytest.raises(
        dp.DPStatsError, match=f"`{list(options)[-1 if len(options) == 1 else 0]}`|`"
    ):
        dp.dp_ate("y ~ x1", "w", frame, 1.0, bounds=bounds, **options)


SPLITS = {
    "blocking": {"propensity": 0.2, "counts": 0.3, "sums": 0.5},
    "ipw": {"propensity": 0.3, "score": 0.7},
    "diff_means": {"counts": 0.25, "sums": 0.75},
}


@pytest.mark.parametrize("variances", [False, True])
def test_split_as_given(estimate, frame, method, noise, variances):
    split = dict(SPLITS[method])
    if variances:
        split = {name: 0.9 * share for name, share in split.items()} | {"variances": 0.1}
    result = estimate(frame, method=method, split=split, **noise)
    spent = result.privacy.releases.copy()
    spent["release"] = spent["release"].str.replace(" (solver)", "", regex=False)
    by_name = spent.groupby("release")["epsilon"].sum()
    assert by_name.to_dict() == pytest.approx(split, rel=1e-9)
    if noise:
        by_name = spent.groupby("release")["delta"].sum()
        expected = {name: share * 1e-5 for name, share in split.items()}
        assert by_name.to_dict() == pytest.approx(expected, rel=1e-9)


def test_published_split(estimate, frame, method, noise):
    result = estimate(frame, method=method, split="published", **noise)
    published = {
        "blocking": {"propensity": 0.1, "counts": 0.35, "sums": 0.55},
        "ipw": {"propensity": 0.2, "score": 0.8},
        "diff_means": {"counts": 0.35, "sums": 0.55},
    }[method]
    total = sum(published.values())
    spent = result.privacy.releases.copy()
    spent["release"] = spent["release"].str.replace(" (solver)", "", regex=False)
    by_name = spent.groupby("release")["epsilon"].sum().to_dict()
    assert by_name == pytest.approx({k: v / total for k, v in published.items()}, rel=1e-9)


@pytest.mark.parametrize("drop", ["", "propensity"])
def test_split_with_bounds_and_known_propensity(estimate, drop):
    from frames import make_frame

    frame = make_frame(20_000)
    split = {"bounds": 0.2, "propensity": 0.2, "score": 0.6}
    options = {}
    if drop:
        split = {"bounds": 0.3, "score": 0.7}
        options = {"propensity": 0.5}
    result = estimate(frame, method="ipw", bounds=None, split=split, **options)
    assert result.privacy.releases["epsilon"].sum() == pytest.approx(1.0, rel=1e-9)
    assert result.privacy.releases["release"].iloc[0] == "bounds"


@pytest.mark.parametrize(
    "change",
    [
        lambda s: {k: v * 1.001 for k, v in s.items()},
        lambda s: {k: v * (1 - 1e-6) for k, v in s.items()},
        lambda s: dict(list(s.items())[1:]),
        lambda s: {**s, "extra": 0.1},
        lambda s: {k.upper(): v for k, v in s.items()},
        lambda s: {**dict.fromkeys(s, 0.0), next(iter(s)): 1.0},
        lambda s: {**dict.fromkeys(s, -1.0), next(iter(s)): float(len(s))},
        lambda s: dict.fromkeys(s, float("nan")),
        lambda s: dict.fromkeys(s, INF),
        lambda s: dict.fromkeys(s, "a"),
        lambda s: dict.fromkeys(s, None),
        lambda s: {},
        lambda s: {1: 0.5, 2: 0.5},
        lambda s: list(s),
        lambda s: "publish",
        lambda s: 0.5,
        lambda s: True,
    ],
)
def test_bad_splits(attempt, frame, method, change):
    error, charges = attempt(frame, method=method, split=change(SPLITS[method]))
    assert isinstance(error, dp.DPStatsError)
    assert "`split`" in str(error)
    assert not charges


def test_split_tolerates_rounding(attempt, frame):
    third = {"propensity": 1 / 3, "counts": 1 / 3, "sums": 1 - 2 / 3 + 3e-11}
    assert attempt(frame, split=third)[0] is None


def test_published_blocks(estimate, frame):
    for eps, expected in ((1.0, 3), (0.25, 3)):
        result = estimate(frame, blocks="published", eps=eps, min_count=1.5)
        assert len(result.blocks) == expected
    from frames import make_frame

    # min(max(5, floor(20 eps)), max(3, floor((n/1000 + (eps - .25)/.25)/2)))
    large = make_frame(12_000)
    assert len(estimate(large, blocks="published", eps=0.25, min_count=1.5).blocks) == 5
    assert len(estimate(large, blocks="published", eps=1.0, min_count=1.5).blocks) == 7


@pytest.mark.parametrize("blocks", [1, 2, 7, 40])
def test_any_number_of_blocks(estimate, frame, noise, blocks):
    result = estimate(frame, blocks=blocks, **noise)
    table = result.blocks
    assert len(table) == blocks
    odds = (table["upper"] / (1.0 - table["upper"])).iloc[:-1]
    if blocks > 1:
        # equal parts of the scale on which the noisy share of the treated lies in the middle
        share = result.released.base
        assert 0.0 < abs(share - 0.5) <= 0.48
        own = odds * (1.0 - share) / share
        assert list(own / (1.0 + own)) == pytest.approx([i / blocks for i in range(1, blocks)])
        plain = estimate(frame, blocks=blocks, smooth=False, **noise).blocks
        assert list(plain["lower"]) == pytest.approx([i / blocks for i in range(blocks)])
    assert table["lower"].iloc[0] == 0
    assert table["upper"].iloc[-1] == 1
    assert table["block"].iloc[-1].endswith("]")


@pytest.mark.parametrize("k", [1, 2, 5])
def test_rows_per_person(estimate, frame, method, noise, k):
    one = estimate(frame, method=method, **noise).privacy.releases
    many = estimate(frame, method=method, rows_per_person=k, **noise)
    table = many.privacy.releases
    assert list(table["release"]) == list(one["release"])
    plain_rows = ~one["release"].str.contains("solver")
    np.testing.assert_allclose(
        table["sensitivity"][plain_rows], k * one["sensitivity"][plain_rows], rtol=1e-9
    )
    assert table["epsilon"].sum() == pytest.approx(1.0, rel=1e-9)
    assert (f"up to {k} rows" if k > 1 else "one row") in str(many).replace("\n    ", " ")
    if k > 1:
        with pytest.raises(dp.DPStatsError, match="rows_per_person"):
            estimate(frame, method="ipw", rows_per_person=k, propensity=Logit2([]))


def test_a_call_is_charged_once(attempt, frame, method, noise):
    error, charges = attempt(frame, method=method, **noise)
    assert error is None
    (charge,) = charges
    assert charge["epsilon"] == 1.0
    assert charge["delta"] == noise.get("delta", 0.0)
    assert charge["relation"] == "row"
    assert "y ~ x1 + x2" in charge["call"]


def test_a_refused_charge_draws_no_noise(frame, bounds, method, monkeypatch):
    from frames import FakeLedger

    import dpstats.ate.model as model

    class Poisoned:
        seeded = False

        def __getattr__(self, name):
            raise AssertionError("noise was drawn before the charge")

    monkeypatch.setattr(model, "noise_source", lambda rng: Poisoned())
    with pytest.raises(dp.BudgetExceededError):
        dp.dp_ate(
            "y ~ x1", "w", frame, 1.0, bounds=bounds, method=method, ledger=FakeLedger(refuse=True)
        )


def test_ledgers_refuse_what_is_not_private(frame, bounds, ledger):
    for options in ({"rng": 1}, {"eps": INF}):
        with pytest.raises(dp.DPStatsError, match="`ledger`"):
            dp.dp_ate(
                "y ~ x1",
                "w",
                frame,
                options.pop("eps", 1.0),
                bounds=bounds,
                ledger=ledger,
                **options,
            )
    assert not ledger.calls


def test_without_noise_split_and_delta_have_no_meaning(estimate, frame, method):
    for options in ({"split": SPLITS[method]}, {"split": "published"}, {"delta": 1e-6}):
        with pytest.raises(dp.DPStatsError, match="inf"):
            estimate(frame, method=method, eps=INF, **options)


def test_releases_of_equal_scale_have_independent_streams(frame, bounds, method, monkeypatch):
    """Case 18: no draw of one release appears in another, with one seed."""
    import dpstats.ate.model as model
    from dpstats.privacy.noise import SeededSource

    drawn = {}

    class Recorder(SeededSource):
        def laplace(self, name, values, scale):
            found = super().laplace(name, values, 1e6)
            drawn[name] = np.atleast_1d(found - values).ravel()
            return found

    monkeypatch.setattr(model, "noise_source", Recorder)
    split = {**SPLITS[method], "variances": 0.2}
    split = {name: share / sum(split.values()) for name, share in split.items()}
    with pytest.warns(dp.PrivacyWarning):
        dp.dp_ate(
            "y ~ x1",
            "w",
            frame,
            1.0,
            bounds=bounds,
            method=method,
            split=split,
            rng=5,
            **({"blocks": 3} if method == "blocking" else {}),
        )
    flat = np.concatenate(list(drawn.values()))
    assert len(drawn) >= 2
    assert len(np.unique(flat)) == flat.size


def test_seeds(estimate, frame, method, noise):
    def run(rng):
        return numbers(estimate(frame, method=method, rng=rng, **noise))

    assert run(5) == run(5) == run(np.random.default_rng(5)) == run(np.random.PCG64(5))
    assert run(5) != run(6)
    generator = np.random.default_rng(5)
    assert run(generator) != run(generator)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    run(5)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


def test_system_entropy_differs_each_time(attempt, frame, bounds, method):
    options = {"bounds": bounds, "method": method}
    first, second = (dp.dp_ate("y ~ x1", "w", frame, 1.0, **options) for _ in range(2))
    assert numbers(first) != numbers(second)
    assert first.privacy.private
    assert not first.privacy.seeded


def caught(frame, bounds, eps, **options):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        dp.dp_ate("y ~ x1 + x2", "w", frame, eps, bounds=bounds, **options)
    return [(item.category, str(item.message), item.filename) for item in found]


def test_privacy_warnings_point_at_the_caller(frame, bounds, method):
    for eps, options, words in (
        (1.0, {"rng": 1}, "rng"),
        (50.0, {}, "eps"),
        (1.0, {"delta": 0.01}, "delta"),
    ):
        ((category, text, filename),) = caught(frame, bounds, eps, method=method, **options)
        assert category is dp.PrivacyWarning
        assert f"`{words}`" in text
        assert filename == __file__
    assert caught(frame, bounds, 1.0, method=method, delta=1e-4) == []
    assert caught(frame, bounds, INF, method=method) == []


def test_no_warning_filter_is_installed(frame, bounds):
    before = list(warnings.filters)
    dp.dp_ate("y ~ x1", "w", frame, 1.0, bounds=bounds)
    assert warnings.filters == before


@pytest.mark.parametrize("name", ["blocking", "ipw", "diff_means"])
def test_utility_warning_where_the_noise_swamps_the_range(frame, bounds, name):
    found = caught(frame.head(50), bounds, 0.01, method=name)
    assert [category for category, _, _ in found] == [UtilityWarning]
    assert found[0][2] == __file__
    # from public quantities only: other rows, the same words
    other = frame.head(50).assign(y=8.0, w=1, x1=3.0)
    assert caught(other, bounds, 0.01, method=name) == found


@pytest.mark.parametrize("name", ["blocking", "ipw", "diff_means"])
def test_no_utility_warning_where_there_is_enough_data(bounds, name):
    from frames import make_frame

    frame = make_frame(20_000)
    assert caught(frame, bounds, 1.0, method=name) == []
    assert caught(frame, bounds, INF, method=name) == []


def test_the_shortest_call_spends_exactly_eps(frame):
    from frames import make_frame

    data = make_frame(20_000)
    result = dp.dp_ate("y ~ x1 + x2", treat="w", data=data, eps=1)
    assert result.privacy.releases["epsilon"].sum() == pytest.approx(1.0, rel=1e-9)
    assert result.privacy.private
    assert math.isfinite(result.params["ATE"])
    assert isinstance(result.params, pd.Series)
