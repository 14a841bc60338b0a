"""Rows outside bounds or levels: a count by another route, sensitivity, noise, refusals."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dp
from dpstats.ate.data import read_columns, read_schema
from dpstats.ate.kernels import KERNELS
from dpstats.ate.outside import OUTSIDE, Outside, outside_rows, release_outside
from dpstats.privacy.accounting import Cost, composed
from dpstats.privacy.mechanisms import Mechanisms
from dpstats.privacy.noise import noise_source

N = 3000
BOUNDS = {"y": (-4.0, 6.0), "x": (-1.0, 1.5)}
LEVELS = {"g": ["north", "south"]}
FORMULA = "y ~ x + g + b"


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(7)
    x, w = rng.normal(size=N), rng.random(N) < 0.5
    y = x + 2.0 * w + rng.normal(size=N)
    g = rng.choice(["north", "south", "west"], N, p=[0.6, 0.35, 0.05])
    return pd.DataFrame(
        {"y": y, "w": w.astype(int), "x": x, "g": g, "b": rng.random(N) < 0.5, "unused": 1e9 * x}
    )


def run(data, formula=FORMULA, **options):
    options = {"eps": 2.0, "bounds": BOUNDS, "levels": LEVELS, "check_bounds": 0.1, **options}
    options.setdefault("rng", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dp.dp_ate(formula, "w", data, options.pop("eps"), **options)


def by_hand(data, columns=("y", "x", "g"), bounds=BOUNDS):
    """By pandas, from the frame."""
    out = pd.Series(False, index=data.index)
    for name in columns:
        if name in bounds:
            out |= ~data[name].between(*bounds[name]) & data[name].notna()
        else:
            out |= ~data[name].isin(LEVELS[name]) & data[name].notna()
    return int(out.sum())


# ------------------------------------------------------------------------------------ the count


@pytest.mark.parametrize("method", sorted(KERNELS))
def test_without_noise_it_is_the_count(frame, method):
    """Of the columns that the method uses: a difference in means has the outcome's only."""
    data = frame.assign(y=(frame["y"] > 0) * 7.0) if method == "binary" else frame
    bounds = {**BOUNDS, "y": (0.0, 1.0)} if method == "binary" else BOUNDS
    found = run(data, method=method, eps=math.inf, rng=None, bounds=bounds).outside
    columns = ("y",) if method == "diff_means" else ("y", "x", "g")
    assert found == Outside(by_hand(data, columns, bounds), 0.0, 0.0, N)
    assert found.count > 0


@pytest.mark.parametrize("dtype", ["object", "category", "string"])
def test_levels_of_any_dtype(frame, dtype):
    data = frame.assign(g=frame["g"].astype(dtype))
    found = run(data, eps=math.inf, rng=None).outside
    assert found.count == by_hand(frame)
    declared = data.assign(g=pd.Categorical(frame["g"], ["north", "south", "west"]))
    assert run(declared, eps=math.inf, rng=None, levels=None).outside.count == by_hand(
        frame, ("y", "x")
    )


def test_odd_cells_count_as_none_of_the_levels(frame):
    odd = frame.assign(g=frame["g"].astype(object))
    odd["g"] = [["a list"], *odd["g"].tolist()[1:]]
    odd.loc[1, "x"], odd.loc[2, "x"] = np.inf, -np.inf
    odd.loc[[0, 1, 2, 3], "y"] = BOUNDS["y"][1]
    plain = frame.assign(g=frame["g"].astype(object))
    plain.loc[[0, 1, 2, 3], ["y", "x", "g"]] = [6.0, 0.0, "north"]
    plain.loc[3, ["x", "g"]] = odd.loc[3, ["x", "g"]]
    more = run(odd, eps=math.inf, rng=None).outside.count
    assert more == run(plain, eps=math.inf, rng=None).outside.count + 3


def test_only_complete_rows_and_used_columns(frame):
    data = frame.astype({"x": "Float64"})
    data.loc[::7, "x"] = pd.NA
    data.loc[::11, "g"] = None
    found = run(data, eps=math.inf, rng=None, missing="drop").outside
    kept = data.dropna()
    assert found == Outside(by_hand(kept), 0.0, 0.0, len(kept))
    assert run(frame, "y ~ 1", eps=math.inf, rng=None).outside.count == by_hand(frame, ("y",))


def test_bounds_found_privately_are_looked_at_too(frame):
    data = frame.assign(x=frame["x"] * np.where(np.arange(N) < 20, 1e6, 1.0))
    result = run(data, bounds={"y": BOUNDS["y"]}, eps=20.0, check_bounds=0.5)
    low, high = result.privacy.public["bounds found privately"]["x"]
    exact = by_hand(data, bounds={"y": BOUNDS["y"], "x": (low, high)})
    assert abs(result.outside.count - exact) <= result.outside.sd * 6
    assert composed(result.privacy.records)[0] == pytest.approx(20.0, rel=1e-12)


# ---------------------------------------------------------------------------------- sensitivity


def schema_of(data):
    return read_schema(
        *(data, FORMULA, "w"),
        propensity=None,
        known=None,
        treated=None,
        fits_propensity=True,
        models_outcome=True,
        bounds=BOUNDS,
        levels=LEVELS,
        private=True,
    )


def count_of(data):
    schema = schema_of(data)
    columns = read_columns(data, schema, missing="raise", strange=True)
    return int(outside_rows(columns, schema, schema.bounds).sum())


def test_sensitivity_is_attained_and_never_exceeded():
    """Every replacement of one row of every file of two rows from a small domain."""
    ys, xs = (-4.0, 6.0, 6.000001), (-1.0, -1e300, np.inf)
    rows = [*itertools.product(ys, xs, ("north", "west", 3), (True,), (0, 1))]
    rows = rows[::2]
    names = ["y", "x", "g", "b", "w"]
    alone = {}
    for place, row in enumerate(rows):
        data = pd.DataFrame([row, (0.0, 0.0, "south", True, 1)], columns=names)
        alone[place] = count_of(data)
    assert set(alone.values()) == {0, 1}
    # a count of rows: that of two is the sum, so a replacement changes it by at most one
    changes = set()
    for i, j, k in itertools.product(range(0, len(rows), 3), repeat=3):
        if i < 9 or j < 9:
            first = count_of(pd.DataFrame([rows[i], rows[k]], columns=names))
            second = count_of(pd.DataFrame([rows[j], rows[k]], columns=names))
            assert first == alone[i] + alone[k]
            changes.add(first - second)
    assert changes == {-1, 0, 1}


@pytest.mark.parametrize(("kind", "delta"), [("laplace", 0.0), ("gaussian", 1e-5)])
@pytest.mark.parametrize("k", [1, 3])
def test_noise_is_that_of_one_row(frame, kind, delta, k):
    """Scale and distribution, from 4,000 releases (false alarm 1e-3)."""
    schema = schema_of(frame)
    columns = read_columns(frame, schema, missing="raise", strange=True)
    costs = {OUTSIDE: Cost(0.05, delta)}
    found = []
    for seed in range(4000):
        mechanisms = Mechanisms(noise_source(seed), kind, costs, rows_per_person=k)
        released, records = release_outside(columns, schema, schema.bounds, mechanisms)
        found.append(released.count - by_hand(frame))
    (record,) = records
    assert (record.release, record.sensitivity) == ("outside", float(k))
    if kind == "laplace":
        assert record.scale == pytest.approx(k / 0.05)
        law = stats.laplace(scale=record.scale)
    else:
        law = stats.norm(scale=record.scale)
    # half a row of rounding is far below the scale
    assert stats.kstest(found, law.cdf).pvalue > 1e-3
    assert released.sd == pytest.approx(law.std())
    assert released.margin == pytest.approx(law.ppf(0.975), rel=1e-3)
    assert np.mean(np.abs(found) <= released.margin) == pytest.approx(0.95, abs=0.015)


def test_another_row_count_would_be_told(frame):
    """Positive control: at a budget that protects nothing the number is the exact one."""
    data = frame.copy()
    one = run(data, eps=1e4, check_bounds=0.5).outside.count
    assert one == by_hand(data)
    inside = np.flatnonzero(data["y"].between(0, 1) & data["x"].between(0, 1))
    inside = next(i for i in inside if data.loc[i, "g"] == "north")
    data.loc[inside, ["y", "x", "g"]] = [1e6, -1e6, "nowhere"]
    assert run(data, eps=1e4, check_bounds=0.5).outside.count == one + 1


# -------------------------------------------------------------------------------------- release


@pytest.mark.parametrize("method", sorted(KERNELS))
@pytest.mark.parametrize("noise", [{}, {"delta": 1e-6}], ids=["laplace", "gaussian"])
def test_share_of_the_budget(frame, method, noise):
    data = frame.assign(y=(frame["y"] > 0) * 1.0) if method == "binary" else frame
    result = run(data, method=method, **noise)
    table = result.privacy.releases.set_index("release")
    assert table.loc["outside", "epsilon"] == pytest.approx(0.2)
    assert table.loc["outside", "delta"] == pytest.approx(0.1 * noise.get("delta", 0.0))
    assert table.loc["outside", "partition"] == "all rows"
    epsilon, delta = composed(result.privacy.records)
    assert epsilon == pytest.approx(2.0, rel=1e-12)
    assert delta == pytest.approx(noise.get("delta", 0.0), rel=1e-9)
    assert "outside" in set(dp.sensitivity_table(result)["release"])


def test_with_the_balance(frame):
    result = run(frame, method="nipw", balance=0.3)
    table = result.privacy.releases.set_index("release")["epsilon"]
    assert table["balance"] == pytest.approx(0.6)
    assert table["outside"] == pytest.approx(0.2)
    assert table.sum() == pytest.approx(2.0)
    with pytest.raises(dp.DPStatsError, match="`balance` and `check_bounds` must leave"):
        run(frame, method="nipw", balance=0.5, check_bounds=0.5)


def test_a_ledger_is_charged_for_it_within_eps(frame):
    ledger = dp.PrivacyLedger(":memory:", eps=2.0)
    run(frame, rng=None, ledger=ledger)
    assert ledger.spent == (2.0, 0.0)


def test_without_it_nothing_is_spent(frame):
    result = run(frame, check_bounds=None)
    assert result.outside is None
    assert "outside" not in set(result.privacy.releases["release"])
    assert "rows outside" not in result.summary(diagnostics=True).as_text()


def test_where_it_is_shown(frame, tmp_path):
    result = run(frame, eps=8.0)
    text = " ".join(result.summary(diagnostics=True).as_text().split())
    share = f"{100 * by_hand(frame) / N:.0f}"
    assert "rows outside bounds or levels" in text
    assert "Rows with a value outside its bounds or levels, by a private count: " in text
    low, high = result.outside.interval
    assert low <= by_hand(frame) / N <= high
    assert low < float(share) / 100 + 0.01
    assert result.outside.reading() in text
    assert [text for text in result.warnings if "outside its bounds or levels" in text]
    assert result.estimand("att").outside == result.outside
    assert result.to_dict()["released"]["outside"]["count"] == result.outside.count
    result.save(tmp_path / "r.json")
    back = dp.load(tmp_path / "r.json")
    assert back.outside == result.outside
    assert str(back) == str(result)


@pytest.mark.parametrize(
    ("count", "margin", "reading"),
    [
        (120.0, 30.0, "0.9% to 1.5% of the rows: clipping moves their values"),
        (-3.0, 30.0, "at most 0.27% of the rows; there may be none"),
        (30.0, 30.0, "at most 0.6% of the rows; there may be none"),
        (-500.0, 30.0, "at most 0% of the rows; there may be none"),
        (20_000.0, 30.0, "100% to 100% of the rows"),
        (0.0, 0.0, "every value is within bounds and levels"),
        (25.0, 0.0, "0.25% of the rows"),
    ],
)
def test_readings(count, margin, reading):
    found = Outside(count, margin / 2, margin, 10_000)
    assert found.reading().startswith(reading)
    low, high = found.interval
    assert 0.0 <= low <= high <= 1.0
    assert 0.0 <= found.share <= 1.0


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, math.nan, True, "half"])
def test_shares_that_are_refused(frame, share):
    with pytest.raises(dp.DPStatsError, match="`check_bounds` must be a share of the budget"):
        run(frame, check_bounds=share)


def test_nothing_to_count_is_refused_before_anything_is_spent(frame):
    ledger = dp.PrivacyLedger(":memory:", eps=2.0)
    with pytest.raises(dp.DPStatsError, match="`check_bounds` needs a column in use"):
        run(frame.assign(y=frame["y"] > 0), "y ~ b", rng=None, ledger=ledger)
    assert ledger.spent == (0.0, 0.0)
    with pytest.raises(dp.DPStatsError, match="`check_bounds` needs a column in use"):
        run(frame, "y ~ x", eps=math.inf, rng=None, bounds=None, levels=None)
