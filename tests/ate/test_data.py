"""What a frame may look like: dtypes, indexes, orders, missing values, bounds, names."""

from __future__ import annotations

import datetime
import decimal
import fractions
import warnings

import numpy as np
import pandas as pd
import pytest

import dpstats as dp
from dpstats.storage import plain

INF = float("inf")


def same(a, b):
    """Equal in every released number, hence in everything computed from them."""
    assert plain(a.released) == plain(b.released)
    assert a.facts.outcome_bounds == b.facts.outcome_bounds
    assert a.nobs == b.nobs


def identical(a, b):
    """Equal in everything that is shown, too."""
    same(a, b)
    assert a.facts == b.facts
    assert a.privacy == b.privacy


def arrow(name):
    pa = pytest.importorskip("pyarrow")
    return pd.ArrowDtype(getattr(pa, name)())


TREAT_DTYPES = {
    "int64": lambda w: w.astype("int64"),
    "int8": lambda w: w.astype("int8"),
    "uint8": lambda w: w.astype("uint8"),
    "bool": lambda w: w.astype(bool),
    "boolean": lambda w: w.astype("boolean"),
    "Int64": lambda w: w.astype("Int64"),
    "UInt8": lambda w: w.astype("UInt8"),
    "Float64": lambda w: w.astype("Float64"),
    "float64": lambda w: w.astype("float64"),
    "float32": lambda w: w.astype("float32"),
    "float16": lambda w: w.astype("float16"),
    "Categorical 0, 1": lambda w: pd.Series(pd.Categorical(w, categories=[0, 1]), w.index),
    "Categorical 1, 0": lambda w: pd.Series(pd.Categorical(w, categories=[1, 0]), w.index),
    "Categorical floats": lambda w: pd.Series(
        pd.Categorical(w.astype(float), categories=[0.0, 1.0]), w.index
    ),
    "Categorical bools": lambda w: pd.Series(
        pd.Categorical(w.astype(bool), categories=[False, True]), w.index
    ),
    "sparse": lambda w: w.astype(pd.SparseDtype("int64", 0)),
    "arrow bool": lambda w: w.astype(bool).astype(arrow("bool_")),
    "arrow int8": lambda w: w.astype(arrow("int8")),
    "arrow double": lambda w: w.astype(arrow("float64")),
}


@pytest.mark.parametrize("dtype", TREAT_DTYPES)
def test_dtype_of_the_treatment(estimate, frame, method, noise, dtype):
    expected = estimate(frame, method=method, **noise)
    found = estimate(frame.assign(w=TREAT_DTYPES[dtype](frame["w"])), method=method, **noise)
    identical(found, expected)
    if dtype == "boolean":
        assert found.to_dict() == expected.to_dict()
        assert str(found) == str(expected)


NAMED = {
    "object str": (lambda w: w.map({0: "no", 1: "yes"}).astype(object), "yes"),
    "str": (lambda w: w.map({0: "no", 1: "yes"}).astype("string"), "yes"),
    "pandas 3 str": (lambda w: w.map({0: "no", 1: "yes"}), "yes"),
    "Categorical": (lambda w: w.map({0: "no", 1: "yes"}).astype("category"), "yes"),
    "one and two": (lambda w: w + 1, 2),
    "minus one and one": (lambda w: 2 * w - 1, 1),
    "three codes": (lambda w: np.where(w == 1, 1, 2 * (w.index % 2)), 1),
    "object bools": (lambda w: w.astype(bool).astype(object), True),
    "bools, numpy level": (lambda w: w.astype(bool), np.True_),
    "dates": (
        lambda w: w.map({0: pd.Timestamp("2020-01-01"), 1: pd.Timestamp("2021-01-01")}),
        pd.Timestamp("2021-01-01"),
    ),
    "arrow str": (
        lambda w: w.map({0: "no", 1: "yes"}).astype(arrow("string")),
        "yes",
    ),
}


@pytest.mark.parametrize("kind", NAMED)
def test_treated_names_the_level(estimate, frame, method, kind):
    make, level = NAMED[kind]
    expected = estimate(frame, method=method)
    found = estimate(frame.assign(w=make(frame["w"])), method=method, treated=level)
    same(found, expected)


def test_treated_may_be_the_zero(estimate, frame, method):
    expected = estimate(frame.assign(w=1 - frame["w"]), method=method)
    same(estimate(frame, method=method, treated=0), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda w: w.map({0: "no", 1: "yes"}),
        lambda w: w.map({0: "no", 1: "yes"}).astype(object),
        lambda w: w.map({0: "no", 1: "yes"}).astype("category"),
        lambda w: w.astype(str),
        lambda w: w.astype(str).astype("category"),
        lambda w: w.astype(bool).astype(object),
        lambda w: w + 1,
        lambda w: 2 * w - 1,
        lambda w: np.where(w == 1, 1, 2 * (w.index % 2)),
        lambda w: pd.Categorical(w, categories=[0, 1, 2]),
        lambda w: w * 0.5,
        lambda w: w.where(w == 0, np.inf),
        lambda w: w + 1e-9,
        lambda w: w.map({0: pd.Timestamp("2020"), 1: pd.Timestamp("2021")}),
    ],
)
def test_other_treatments_are_refused(attempt, frame, method, make):
    error, charges = attempt(frame.assign(w=make(frame["w"])), method=method)
    assert isinstance(error, dp.DPStatsError)
    assert not charges
    assert "`treat`" in str(error)
    assert "treated=" in str(error)


@pytest.mark.parametrize(
    "treated", [float("nan"), pd.NA, None.__class__, [1], {"a": 1}, (0, 1), np.array([1])]
)
def test_treated_is_one_level(attempt, frame, treated):
    for w in (frame["w"], frame["w"].astype("category")):
        error, charges = attempt(frame.assign(w=w), treated=treated)
        assert isinstance(error, dp.DPStatsError)
        assert "`treated`" in str(error)
        assert not charges


def test_treated_outside_declared_categories(attempt, frame):
    w = frame["w"].map({0: "no", 1: "yes"}).astype("category")
    error, charges = attempt(frame.assign(w=w), treated="Yes")
    assert isinstance(error, dp.DPStatsError)
    assert not charges


@pytest.mark.parametrize("treat", ["z", "W", "", None, 3, ["w"], ("w",), 1.5])
def test_treat_names_a_column(attempt, frame, treat):
    error, charges = attempt(frame, treat=treat)
    assert isinstance(error, dp.DPStatsError)
    assert "`treat`" in str(error)
    assert not charges


NUMERIC = {
    "float32": lambda x: x.astype("float32"),
    "Float64": lambda x: x.astype("Float64"),
    "Float32": lambda x: x.astype("Float32"),
    "longdouble": lambda x: x.astype(np.longdouble),
    "big-endian": lambda x: x.astype(">f8"),
    "sparse": lambda x: x.astype(pd.SparseDtype("float64")),
    "arrow": lambda x: x.astype(arrow("float64")),
}
BINARY = {
    "bool": lambda b: b.astype(bool),
    "boolean": lambda b: b.astype("boolean"),
    "Int64": lambda b: b.astype("Int64"),
    "UInt16": lambda b: b.astype("UInt16"),
    "int8": lambda b: b.astype("int8"),
    "float": lambda b: b.astype(float),
    "arrow": lambda b: b.astype(bool).astype(arrow("bool_")),
}
TEXT = {
    "object": lambda g: g.astype(object),
    "string": lambda g: g.astype("string"),
    "str": lambda g: g.astype("str"),
    "declared": lambda g: pd.Series(pd.Categorical(g, categories=["a", "b", "c"]), g.index),
    "reordered": lambda g: pd.Series(pd.Categorical(g, categories=["c", "b", "a"]), g.index),
    "ordered": lambda g: pd.Series(
        pd.Categorical(g, categories=["a", "b", "c"], ordered=True), g.index
    ),
    "arrow": lambda g: g.astype(arrow("string")),
}


@pytest.mark.parametrize("dtype", NUMERIC)
def test_numeric_dtypes(estimate, frame, method, dtype):
    expected = estimate(frame, method=method)
    change = {name: NUMERIC[dtype](frame[name]) for name in ("y", "x1", "x2")}
    same(estimate(frame.assign(**change), method=method), expected)
    expected = estimate(frame, method=method, eps=INF, bounds=None)
    found = estimate(frame.assign(**change), method=method, eps=INF, bounds=None)
    same(found, expected)


@pytest.mark.parametrize("dtype", BINARY)
def test_binary_covariate_and_outcome(estimate, frame, method, dtype):
    changed = frame.assign(b=BINARY[dtype](frame["b"]))
    # as in patsy, columns of True and False come before numbers; first in the formula, both agree
    for formula in ("y ~ b + x1", "b ~ x1"):
        expected = estimate(frame, formula, method=method)
        same(estimate(changed, formula, method=method), expected)


@pytest.mark.parametrize("dtype", TEXT)
def test_text_with_levels(estimate, frame, method, noise, dtype):
    expected = estimate(frame, "y ~ x1 + g", method=method, **noise)
    changed = frame.assign(g=TEXT[dtype](frame["g"]))
    same(estimate(changed, "y ~ x1 + g", method=method, **noise), expected)


def test_categories_are_taken_as_declared(estimate, frame):
    declared = frame.assign(g=pd.Categorical(frame["g"], categories=["a", "b", "c", "unseen"]))
    result = estimate(declared, "y ~ x1 + g", levels=None)
    assert result.privacy.public["levels"] == {"g": ("a", "b", "c", "unseen")}
    assert "unseen" in str(result)
    listed = estimate(frame, "y ~ x1 + g", levels={"g": ["a", "b", "c", "unseen"]})
    same(result, listed)


def test_numbers_with_levels(estimate, frame):
    codes = frame["g"].map({"a": 1, "b": 2, "c": 3})
    expected = estimate(frame.assign(g=codes), "y ~ g", levels={"g": [1, 2, 3]})
    for dtype in ("float64", "Int64", "Float64", "int8"):
        same(
            estimate(frame.assign(g=codes.astype(dtype)), "y ~ g", levels={"g": [1, 2, 3]}),
            expected,
        )


@pytest.mark.parametrize(
    "levels",
    [
        ["a", "b"],
        "ab",
        {"g": "abc"},
        {"g": ["a"]},
        {"g": []},
        {"g": ["a", "a", "b"]},
        {"g": ["a", None]},
        {"g": ["a", float("nan")]},
        {"g": [["a"], ["b"]]},
        {"g": {"a", "b", "c"}},
        {"g": 3},
        {"zzz": ["a", "b"]},
        {3: ["a", "b"]},
    ],
)
def test_bad_levels(attempt, frame, levels):
    error, charges = attempt(frame, "y ~ x1 + g", levels=levels)
    assert isinstance(error, dp.DPStatsError)
    assert "`levels`" in str(error)
    assert not charges


@pytest.mark.parametrize("values", [tuple, list, iter, np.array, pd.Index, pd.Series])
def test_levels_of_any_sequence(estimate, frame, values):
    expected = estimate(frame, "y ~ g")
    same(estimate(frame, "y ~ g", levels={"g": values(["a", "b", "c"])}), expected)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (lambda f: f["g"], "levels="),
        (lambda f: f["g"].astype("string"), "levels="),
        (lambda f: f["g"].astype("str"), "levels="),
        (lambda f: f["x1"].astype(object), "astype(float)"),
        (lambda f: f["x1"] + 0j, "complex"),
        (lambda f: pd.Timestamp("2020"), "datetime64"),
        (lambda f: pd.Timedelta("1D"), "timedelta64"),
        (lambda f: pd.period_range("2020", periods=len(f), freq="D"), "period"),
        (lambda f: pd.interval_range(0, len(f)), "interval"),
    ],
)
def test_unusable_columns_are_refused(attempt, frame, column, words):
    error, charges = attempt(frame.assign(x1=column(frame)), levels=None)
    assert isinstance(error, dp.FormulaError)
    assert "'x1'" in str(error)
    assert words in str(error)
    assert not charges


INDEXES = {
    "duplicate strings": lambda n: ["r"] * n,
    "reversed": lambda n: range(n, 0, -1),
    "MultiIndex": lambda n: pd.MultiIndex.from_arrays(
        [np.arange(n) // 7, ["k"] * n], names=["y", "x1"]
    ),
    "dates": lambda n: pd.date_range("2020", periods=n, tz="UTC"),
    "missing labels": lambda n: [None, np.nan] * (n // 2),
    "booleans": lambda n: [True, False] * (n // 2),
    "named like a column": lambda n: pd.Index(np.arange(n) * 1.5, name="w"),
    "intervals": lambda n: pd.interval_range(0, n),
    "objects": lambda n: [object() for _ in range(n)],
}


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("missing", ["raise", "drop"])
def test_index_changes_nothing(estimate, frame, method, index, missing):
    if missing == "drop":
        frame.loc[3, "y"] = np.nan
        frame.loc[[7, 9], "x1"] = np.nan
    expected = estimate(frame, method=method, missing=missing)
    found = estimate(
        frame.set_axis(INDEXES[index](len(frame)), axis=0), method=method, missing=missing
    )
    identical(found, expected)


def nasty(frame):
    """Add columns that nothing uses and that would break anything that looked at them."""
    n = len(frame)
    decoys = pd.DataFrame(
        {
            "objects": [object()] * n,
            "lists": [[1]] * n,
            "nothing": [None] * n,
            "nans": np.nan,
            "mixed": [1, "a", None] * (n // 3),
            "dates": pd.Timestamp("2020"),
            3: 1.0,
            None: 2.0,
            ("a", "b"): 3.0,
            "y ~ x": 0,
            "x1 ": 1,
        },
        index=frame.index,
    )
    twice = pd.DataFrame(np.full((n, 2), np.nan), columns=["twice", "twice"], index=frame.index)
    return pd.concat([decoys, frame, twice], axis=1)


def test_decoys_and_column_order(estimate, frame, method, noise):
    expected = estimate(frame, method=method, **noise)
    for changed in (nasty(frame), frame[frame.columns[::-1]], frame[["x2", "w", "y", "x1", "g"]]):
        identical(estimate(changed, method=method, **noise), expected)


@pytest.mark.parametrize("name", ["y", "x1", "w"])
def test_duplicate_names_in_use_are_refused(attempt, frame, name):
    error, charges = attempt(pd.concat([frame, frame[[name]]], axis=1))
    assert isinstance(error, dp.DPStatsError)
    assert f"'{name}'" in str(error)
    assert not charges


@pytest.mark.parametrize("order", ["reversed", "shuffled", "sorted by w", "sorted by x1"])
@pytest.mark.parametrize("estimand", ["ate", "att"])
def test_row_order(estimate, frame, method, noise, order, estimand):
    permuted = {
        "reversed": frame.iloc[::-1],
        "shuffled": frame.sample(frac=1, random_state=1),
        "sorted by w": frame.sort_values("w"),
        "sorted by x1": frame.sort_values(["x1", "y"], ignore_index=True),
    }[order]
    expected = estimate(frame, "y ~ x1 + g", method=method, estimand=estimand, **noise)
    found = estimate(permuted, "y ~ x1 + g", method=method, estimand=estimand, **noise)
    identical(found, expected)


def test_row_order_with_other_propensities(estimate, frame, method):
    shuffled = frame.sample(frac=1, random_state=2)
    for propensity in (0.4, "p", "~ x2", dp.propensity.Output()):
        expected = estimate(frame, method=method, propensity=propensity)
        found = estimate(shuffled, method=method, propensity=propensity)
        identical(found, expected)


def test_the_frame_is_not_modified(frame, estimate, method):
    frame = nasty(frame.assign(b=frame["b"].astype("boolean"), g=frame["g"].astype("category")))
    frame.attrs["note"] = "kept"
    frame.iloc[3, frame.columns.get_loc("x1")] = np.nan
    before, dtypes = frame.copy(deep=True), frame.dtypes.copy()
    for eps in (1.0, INF):
        for propensity in (None, 0.3, "p"):
            estimate(
                frame,
                "y ~ x1 + b + g",
                method=method,
                eps=eps,
                missing="drop",
                propensity=propensity,
            )
    pd.testing.assert_frame_equal(frame, before)
    assert list(frame.dtypes) == list(dtypes)
    assert frame.columns.equals(before.columns)
    assert frame.attrs == {"note": "kept"}


def test_views_and_read_only_memory(estimate, frame, method):
    expected = estimate(frame, method=method)
    values = frame[["y", "w", "x1", "x2"]].to_numpy(dtype=float)
    values.flags.writeable = False
    view = pd.DataFrame(values, columns=["y", "w", "x1", "x2"], copy=False)
    same(estimate(view, method=method), expected)
    wide = pd.concat([frame, frame], ignore_index=True)
    same(estimate(wide.iloc[: len(frame)], method=method), expected)


def test_a_subclass_of_dataframe(estimate, frame):
    class Table(pd.DataFrame):
        @property
        def _constructor(self):
            return Table

    same(estimate(Table(frame)), estimate(frame))


@pytest.mark.parametrize("data", [None, [1, 2], {"y": [1]}, np.ones((3, 2)), pd.Series([1.0])])
def test_data_must_be_a_frame(data):
    with pytest.raises(dp.DPStatsError, match="`data` must be a pandas DataFrame"):
        dp.dp_ate("y ~ x", "w", data, 1.0)


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_rows(attempt, frame, method, n):
    error, charges = attempt(frame.head(n), method=method)
    assert isinstance(error, dp.DPStatsError)
    assert not charges


def holes(frame):
    frame = frame.set_axis(["i"] * len(frame), axis=0)
    for row, name in ((3, "y"), (7, "x1"), (9, "w"), (11, "g")):
        frame[name] = frame[name].astype(
            {"y": "float64", "x1": "Float64", "w": "Int64", "g": object}[name]
        )
        frame.iloc[row, frame.columns.get_loc(name)] = None
    return frame


def test_missing_raises_with_names_only(attempt, frame, method):
    formula = "y ~ x1 + g"
    error, charges = attempt(holes(frame), formula, method=method)
    assert isinstance(error, dp.DPStatsError)
    assert not charges
    used = {"y", "w"} if method == "diff_means" else {"y", "w", "x1", "g"}
    for name in ("y", "x1", "w", "g", "x2", "p"):
        assert (f"'{name}'" in str(error)) == (name in used)
    assert not any(char.isdigit() for char in str(error).replace("x1", "").replace("x2", ""))
    assert " have some: " in str(error)
    # one hole or many: the same message
    more = holes(frame)
    for name in used:
        more.iloc[20:90, more.columns.get_loc(name)] = None
    assert str(attempt(more, formula, method=method)[0]) == str(error)


def test_missing_drop_equals_dropped_before(estimate, frame, method, noise):
    formula, options = "y ~ x1 + g", {"method": method, **noise}
    data = holes(frame)
    names = ["y", "w"] if method == "diff_means" else ["y", "w", "x1", "g"]
    beforehand = data.dropna(subset=names)
    found = estimate(data, formula, missing="drop", **options)
    expected = estimate(beforehand, formula, **options)
    same(found, expected)
    assert found.nobs == len(beforehand) == found.privacy.public["n"]
    assert f"n = {len(beforehand)}" in str(found)
    assert "complete" in found.privacy.protects
    assert "complete" in str(found)
    assert "complete" not in expected.privacy.protects


@pytest.mark.parametrize("with_holes", [True, False])
def test_missing_drop_warns_whatever_is_missing(frame, bounds, method, with_holes):
    data = holes(frame) if with_holes else frame
    with pytest.warns(dp.PrivacyWarning, match="missing") as caught:
        result = dp.dp_ate("y ~ x1", "w", data, 1.0, method=method, bounds=bounds, missing="drop")
    assert [item for item in caught if item.filename == __file__]
    assert "complete" in result.privacy.protects


def test_missing_in_unused_columns_is_ignored(estimate, frame, method):
    frame["x2"] = np.nan
    frame["p"] = None
    estimate(frame, "y ~ x1", method=method)


def test_missing_known_propensity(attempt, estimate, frame):
    frame.loc[5, "p"] = np.nan
    error, _ = attempt(frame, propensity="p", method="ipw")
    assert isinstance(error, dp.DPStatsError)
    assert "'p'" in str(error)
    found = estimate(frame, propensity="p", method="ipw", missing="drop")
    same(found, estimate(frame.drop(index=5), propensity="p", method="ipw"))


def test_values_outside_declared_levels_count_as_the_first(attempt, estimate, frame):
    """Neither an error nor a dropped row: both would tell for free whether a row has the value."""
    levels = {"g": ["a", "b"]}
    assert attempt(frame, "y ~ g", levels=levels)[0] is None
    as_first = estimate(frame.assign(g=frame["g"].replace("c", "a")), "y ~ g", levels=levels)
    for missing in ("raise", "drop"):
        found = estimate(frame, "y ~ g", levels=levels, missing=missing)
        assert found.nobs == len(frame)
        assert found.params.equals(as_first.params)
    odd = frame["g"].astype(object)
    odd.iloc[0], odd.iloc[1] = ["a list"], {"a": "dict"}
    assert attempt(frame.assign(g=odd), "y ~ g", levels=levels)[0] is None


def test_a_missing_category_is_missing(attempt, frame):
    holes = frame["g"].where(frame.index != 3)
    error, charges = attempt(frame.assign(g=holes), "y ~ g", levels={"g": ["a", "b", "c"]})
    assert isinstance(error, dp.DPStatsError)
    assert "'g'" in str(error)
    assert not charges


@pytest.mark.parametrize("kind", ["text", "category", "complex", "date"])
def test_known_propensities_are_numbers(attempt, frame, kind):
    column = {
        "text": frame["p"].astype(str),
        "category": frame["g"].astype("category"),
        "complex": frame["p"].astype(complex),
        "date": pd.to_datetime(frame["x1"]),
    }[kind]
    error, charges = attempt(frame.assign(e=column), propensity="e")
    assert isinstance(error, dp.DPStatsError)
    assert str(error).startswith("`propensity`")
    assert not charges


def test_an_odd_cell_is_not_the_treated_level(attempt, frame):
    odd = frame["w"].map({0: "no", 1: "yes"}).astype(object)
    odd.iloc[0], odd.iloc[1] = np.array([1, 2]), {}
    assert attempt(frame.assign(w=odd), treated="yes")[0] is None


def test_numpy_settings_of_the_caller_do_not_matter(attempt, frame):
    tiny = frame["x1"].copy()
    tiny.iloc[0] = 1e-320
    with np.errstate(all="raise"):
        assert attempt(frame.assign(x1=tiny))[0] is None


def test_a_foreign_error_keeps_its_text(attempt, frame):
    class Model:
        def fit(self, X, W, *, eps, delta, source):
            raise KeyError(f"{X[3, 1]}")

    error, _ = attempt(frame, propensity=Model())
    assert isinstance(error, dp.DPStatsError)
    assert str(error).endswith("class Model raised KeyError")
    assert error.__cause__ is None


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"treat": "t", "treated": "Yes", "levels": {"t": ["no", "yes"]}}, "`treated`"),
        ({"treated": "1"}, "`treated`"),
        ({"bounds": {"Y": (-5, 8), "x1": (-3, 3), "x2": (-1, 1)}}, "`bounds`"),
    ],
)
def test_slips_of_the_pen_are_refused(attempt, frame, options, name):
    frame = frame.assign(t=frame["w"].map({0: "no", 1: "yes"}))
    error, charges = attempt(frame, **options)
    assert isinstance(error, dp.DPStatsError)
    assert str(error).startswith(name)
    assert not charges


@pytest.mark.parametrize("missing", ["ignore", None, True, 0, "Drop"])
def test_missing_option(attempt, frame, missing):
    error, charges = attempt(frame, missing=missing)
    assert isinstance(error, dp.DPStatsError)
    assert "`missing`" in str(error)
    assert not charges


def test_all_rows_missing(attempt, frame):
    error, charges = attempt(frame.assign(y=np.nan), missing="drop")
    assert isinstance(error, dp.DPStatsError)
    assert not charges


@pytest.mark.parametrize(
    "pair",
    [
        (5, 5),
        (7, 3),
        (float("nan"), 1),
        (0, float("nan")),
        (0, INF),
        (-INF, 0),
        (-INF, INF),
        (0, None),
        (None, 1),
        (1,),
        (0, 1, 2),
        5,
        "01x",
        ("a", "b"),
        None,
        (-1e308, 1e308),
        (0, 5e-324),
        (-8e307, 8e307),
    ],
)
@pytest.mark.parametrize("eps", [1.0, INF])
def test_degenerate_bounds_of_the_outcome(attempt, estimate, frame, method, pair, eps):
    given = {"y": pair, "x1": (-3, 3), "x2": (-1, 1)}
    if eps == INF:
        with pytest.raises(dp.BoundsError, match="`bounds`"):
            estimate(frame, method=method, bounds=given, eps=eps)
        return
    error, charges = attempt(frame, method=method, bounds=given)
    assert isinstance(error, dp.BoundsError)
    assert "`bounds`" in str(error)
    assert "'y'" in str(error)
    assert not charges


@pytest.mark.parametrize("pair", [(5, 5), (7, 3), (float("nan"), 1), (0, INF), (1,), None])
def test_degenerate_bounds_of_a_covariate(attempt, frame, pair):
    error, charges = attempt(frame, bounds={"y": (-5, 8), "x1": pair, "x2": (-1, 1)})
    assert isinstance(error, dp.BoundsError)
    assert "'x1'" in str(error)
    assert not charges


@pytest.mark.parametrize("given", [[("y", (0, 1))], "y", 3, (0, 1)])
def test_bounds_must_be_a_dict(attempt, frame, given):
    error, charges = attempt(frame, bounds=given)
    assert isinstance(error, dp.BoundsError)
    assert not charges


def test_bounds_of_categories_and_bools(attempt, estimate, frame, bounds):
    error, _ = attempt(frame, "y ~ g", bounds={**bounds, "g": (0, 1)})
    assert isinstance(error, dp.BoundsError)
    flags = frame.assign(b=frame["b"].astype(bool))
    assert isinstance(attempt(flags, "y ~ b", bounds={**bounds, "b": (0, 0.5)})[0], dp.BoundsError)
    estimate(flags, "y ~ b", bounds={**bounds, "b": (0, 1)})
    # keys of columns the formula does not use are ignored
    estimate(frame, "y ~ x1", bounds={**bounds, "g": (0, 1), "zzz": "anything", 3: None})


@pytest.mark.parametrize(
    ("slip", "hint"),
    [("1x", " (near matches: 'x1')"), ("x_1", " (near matches: 'x1')"), ("salary", ""), (3, "")],
)
def test_bounds_of_no_column_where_one_has_none(attempt, estimate, frame, slip, hint):
    """A slip must not end in a search for bounds."""
    given = {"y": (-5, 8), slip: (-3, 3), "x2": (-1, 1)}
    error, charges = attempt(frame, bounds=given)
    assert isinstance(error, dp.BoundsError)
    assert str(error) == (
        "`bounds` must name columns of `data` or terms of the formula; got "
        f"{slip!r}{hint}, and nothing for 'x1'"
    )
    assert not charges
    with pytest.raises(dp.BoundsError, match="nothing for 'x1'"):
        estimate(frame, bounds=given, eps=INF)


def test_bounds_of_other_columns_do_no_harm(estimate, frame):
    """Those of a whole questionnaire, say; bounds of x1 are searched."""
    frame = pd.concat([frame] * 20, ignore_index=True)
    bounds = {"y": (-5, 8), "x2": (-1, 1), "p": (0, 1), "w": (0, 1)}
    found = estimate(frame, bounds=bounds).privacy.public["bounds found privately"]
    assert list(found) == ["x1"]


def test_a_plan_knows_only_the_columns_of_its_formula():
    study = {"n": 20_000, "formula": "y ~ re74", "method": "regression"}
    bounds = {"y": (0, 1), "re75": (0, 9)}
    assert "\n  bounds  " in str(dp.plan_ate(eps=1, bounds=bounds, **study))
    for slip in ("re47", "re774"):
        with pytest.raises(dp.BoundsError, match="near matches: 're74'"):
            dp.plan_ate(eps=1, bounds={"y": (0, 1), slip: (0, 9)}, **study)


def test_wide_bounds_give_wide_noise(estimate, frame, method, noise):
    frame["y"] = frame["y"].clip(0, 1)
    narrow = estimate(
        frame, method=method, bounds={"y": (0, 1), "x1": (-3, 3), "x2": (-1, 1)}, **noise
    )
    wide = estimate(
        frame, method=method, bounds={"y": (0, 100), "x1": (-3, 3), "x2": (-1, 1)}, **noise
    )
    release = "score" if method == "ipw" else "counts" if method == "blocking" else "sums"
    scales = [r.privacy.releases.set_index("release")["scale"][release] for r in (narrow, wide)]
    if method != "blocking":
        assert scales[1] == pytest.approx(100 * scales[0], rel=1e-6)
    assert wide.noise_sd() > 20 * narrow.noise_sd()
    assert wide.bse.iloc[0] > 20 * narrow.bse.iloc[0]


@pytest.mark.parametrize("name", ["y", "x1", "x2"])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("value", [1e9, INF])
def test_a_value_beyond_its_bound(estimate, frame, bounds, method, name, side, value):
    at, beyond = frame.copy(), frame.copy()
    at.loc[5, name] = bounds[name][side]
    beyond.loc[5, name] = value if side else -value
    formula = "y ~ x1 + x2 + I(x1**2) + x1:x2"
    expected = estimate(at, formula, method=method)
    identical(estimate(beyond, formula, method=method), expected)


def test_a_known_propensity_beyond_the_overlap(estimate, frame):
    at = frame.assign(p=frame["p"].clip(0.2, 0.8))
    expected = estimate(at, propensity="p", method="ipw", overlap=0.2)
    beyond = frame.assign(p=frame["p"].where((frame["p"] >= 0.2), -1e9))
    beyond["p"] = beyond["p"].where(beyond["p"] <= 0.8, INF)
    found = estimate(beyond, propensity="p", method="ipw", overlap=0.2)
    identical(found, expected)


def test_given_bounds_clip_without_noise_too(estimate, frame, bounds, method):
    beyond = frame.assign(y=frame["y"].where(frame.index != 5, 1e9))
    at = frame.assign(y=frame["y"].where(frame.index != 5, bounds["y"][1]))
    same(estimate(beyond, method=method, eps=INF), estimate(at, method=method, eps=INF))


def test_bounds_of_terms(estimate, frame, bounds, method):
    """A term's own bounds clip the derived value; the left side too."""
    clipped = frame.assign(y=frame["y"].clip(-1, 4), x1=frame["x1"].clip(-1, 1))
    expected = estimate(clipped, method=method, bounds={**bounds, "y": (-1, 4), "x1": (-1, 1)})
    found = estimate(
        frame,
        "I(y) ~ I(x1) + x2",
        method=method,
        bounds={**bounds, "I(y)": (-1, 4), "I(x1)": (-1, 1)},
    )
    same(found, expected)


def test_unknown_bounds_are_found_privately(estimate, method):
    from frames import make_frame

    frame = make_frame(20_000)
    result = estimate(frame, method=method, bounds=None)
    names = {"y"} if method == "diff_means" else {"y", "x1", "x2"}
    found = result.privacy.public["bounds found privately"]
    assert set(found) == names
    for low, high in found.values():
        assert low < high
        for end in (low, high):
            assert end == 0 or np.log2(abs(end)).is_integer()
    assert "Bounds found privately" in str(result).replace("\n", " ")
    assert result.params.iloc[0] == pytest.approx(3 if method == "diff_means" else 2.2, abs=1)


def test_private_bounds_need_rows(attempt, frame):
    error, charges = attempt(frame.head(60), bounds=None)
    assert isinstance(error, dp.BoundsError)
    assert "rows" in str(error)
    assert not charges


@pytest.mark.parametrize(
    "eps",
    [
        float("nan"),
        0,
        0.0,
        -0.0,
        -1,
        -INF,
        True,
        np.True_,
        "1",
        None,
        [1.0],
        np.array([1.0]),
        1j,
        decimal.Decimal(1),
        fractions.Fraction(1, 2),
        pd.NA,
        datetime.timedelta(1),
    ],
)
def test_bad_eps(attempt, frame, method, eps):
    error, charges = attempt(frame, method=method, eps=eps)
    assert isinstance(error, dp.DPStatsError)
    assert "`eps`" in str(error)
    assert not charges


@pytest.mark.parametrize("eps", [1, np.float32(1), np.float64(1), np.int8(1), np.float16(1)])
def test_good_eps(estimate, frame, method, eps):
    identical(estimate(frame, method=method, eps=eps), estimate(frame, method=method, eps=1.0))


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 1.5, float("nan"), INF, True, "0", None, [0]])
def test_bad_delta(attempt, frame, delta):
    error, charges = attempt(frame, delta=delta)
    assert isinstance(error, dp.DPStatsError)
    assert "`delta`" in str(error)
    assert not charges


@pytest.mark.parametrize("noise_name", ["Laplace", "normal", 1, True])
def test_bad_noise(attempt, frame, noise_name):
    error, charges = attempt(frame, noise=noise_name)
    assert isinstance(error, dp.DPStatsError)
    assert not charges


def test_noise_and_delta_go_together(attempt, frame):
    for options in ({"noise": "gaussian"}, {"noise": "laplace", "delta": 1e-6}):
        error, charges = attempt(frame, **options)
        assert isinstance(error, dp.DPStatsError)
        assert "delta" in str(error)
        assert not charges


@pytest.mark.parametrize("shift", [-37.5, 2.0**30])
@pytest.mark.parametrize("estimand", ["ate", "atc"])
def test_location_shift(estimate, frame, bounds, method, noise, shift, estimand):
    options = {"method": method, "estimand": estimand, **noise}
    expected = estimate(frame, **options)
    moved = {**bounds, "y": (bounds["y"][0] + shift, bounds["y"][1] + shift)}
    found = estimate(frame.assign(y=frame["y"] + shift), bounds=moved, **options)
    pd.testing.assert_series_equal(found.params, expected.params, rtol=1e-6)
    pd.testing.assert_series_equal(found.bse, expected.bse, rtol=1e-6)
    moved = {**bounds, "x1": (bounds["x1"][0] + shift, bounds["x1"][1] + shift)}
    found = estimate(frame.assign(x1=frame["x1"] + shift), bounds=moved, **options)
    pd.testing.assert_series_equal(found.params, expected.params, rtol=1e-5)


@pytest.mark.parametrize("power", [-30, -7, 30])
def test_scale(estimate, frame, bounds, method, power):
    """A change of unit by a power of two scales the effect exactly."""
    factor = 2.0**power
    expected = estimate(frame, method=method)
    scaled = {**bounds, "y": (bounds["y"][0] * factor, bounds["y"][1] * factor)}
    found = estimate(frame.assign(y=frame["y"] * factor), method=method, bounds=scaled)
    assert found.params.iloc[0] == pytest.approx(factor * expected.params.iloc[0], rel=1e-6)
    assert found.bse.iloc[0] == pytest.approx(factor * expected.bse.iloc[0], rel=1e-6)


@pytest.mark.parametrize("name", ["<b>_%", "&#$", "{x}~", "^\\", "a'b\"c", "w w", "é中", "lambda"])
def test_any_name(estimate, frame, method, name, tmp_path):
    from dpstats.report._escape import html_text, latex_text

    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    renamed = frame.rename(columns={"w": name, "x1": name + "1", "y": name + "2"})
    result = estimate(
        renamed,
        f'Q("{quoted}2") ~ Q("{quoted}1") + x2',
        treat=name,
        method=method,
        bounds={name + "2": (-5, 8), name + "1": (-3, 3), "x2": (-1, 1)},
    )
    expected = estimate(frame, method=method)
    same(result, expected)
    summary = result.summary()
    assert html_text(name) in summary.as_html()
    assert latex_text(name) in summary.as_latex()
    if "<" in name:
        assert name not in summary.as_html()
        assert "<b>" not in result._repr_html_()
    result.save(tmp_path / "r.json")
    assert str(dp.load(tmp_path / "r.json")) == str(result)


def test_levels_with_odd_names(estimate, frame):
    odd = {"a": "<b>a</b>", "b": "50%_&", "c": "{~^\\}"}
    result = estimate(
        frame.assign(g=frame["g"].map(odd)), "y ~ g", levels={"g": list(odd.values())}
    )
    assert "<b>" not in result.summary().as_html()
    assert "50%_&" not in result.summary().as_latex()
    same(result, estimate(frame, "y ~ g"))


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_any_number_of_covariates(estimate, frame, method, noise, k):
    rng = np.random.default_rng(k)
    names = [f"z{j}" for j in range(k)]
    data = frame.assign(**{name: rng.uniform(-1, 1, len(frame)) for name in names})
    bounds = {"y": (-5, 8), **dict.fromkeys(names, (-1, 1))}
    for eps in (1.0, INF):
        options = {} if eps == INF else noise
        result = estimate(
            data, "y ~ " + " + ".join(names), method=method, bounds=bounds, eps=eps, **options
        )
        assert np.isfinite(result.params.iloc[0])
        if method == "ipw":
            assert result.released.propensity.coefficients.shape == (k + 1,)


def test_without_covariates_blocking_is_a_difference_in_means(estimate, frame, noise):
    simple = estimate(frame, method="diff_means", **noise)
    for formula in ("y ~ 1", "y ~ x1"):
        same(estimate(frame, formula, method="diff_means", **noise), simple)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.PrivacyWarning)
        result = dp.dp_ate(
            "y ~ 1", "w", frame, 1.0, bounds={"y": (-5, 8)}, rng=7, method="blocking", **noise
        )
    assert list(result.privacy.releases["release"]) == list(simple.privacy.releases["release"])
    assert len(result.blocks) == 1
    exact = estimate(frame, "y ~ 1", method="blocking", blocks=1, eps=INF)
    means = frame.groupby("w")["y"].mean()
    assert exact.params["ATE"] == pytest.approx(means[1] - means[0], rel=1e-12)
