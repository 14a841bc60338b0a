"""The ledger: sums, refusals, processes, kills, files that fail, tighter totals."""

from __future__ import annotations

import contextvars
import copy
import json
import math
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import mpmath as mp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpstats as dp
from dpstats.privacy import ledger as ledger_module
from dpstats.privacy import noise, store
from dpstats.privacy.accounting import Release, charge, find_ledger
from dpstats.privacy.calibration import gaussian_scale

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
LIMIT = 1 + Fraction(1, 10**9)


def spend(ledger, eps=0.1, delta=0.0, relation="row", call="a call"):
    return ledger.charge(epsilon=eps, delta=delta, relation=relation, call=call)


@pytest.fixture
def path():
    """A file in memory where there is a place for it: syncing a disk takes most of the time."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else None))
    yield folder / "study.ledger"
    shutil.rmtree(folder)


@pytest.fixture(params=["file", "memory"])
def place(request, path):
    return path if request.param == "file" else ":memory:"


@pytest.fixture(scope="module")
def trial():
    return dp.simulate.ate("well_specified", 3_000, rng=1)


def run(trial, formula="y ~ x1", **options):
    options = {"treat": "w", "eps": 0.5, "bounds": trial.bounds, **options}
    return dp.dp_ate(formula, data=trial.data, **options)


# --- sums -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "charges"),
    [
        (0.3, [0.1] * 3),
        (1.0, [1 / 11] * 11),
        (1.0, [1 / 3] * 3),
        (1.0, [0.1] * 10),
        (0.7, [0.1] * 7),
        (3, [np.float64(0.5)] * 6),
        (1e-3, [1e-3 / 7] * 7),
        (1e6, [1e6 / 49] * 49),
        (3e-6, [1e-6] * 3),
    ],
)
def test_equal_shares_fit_and_a_real_excess_does_not(place, total, charges):
    ledger = dp.PrivacyLedger(place, eps=total, delta=1e-6)
    for cost in charges[:-1]:
        spend(ledger, cost)
    with pytest.raises(dp.BudgetExceededError):
        spend(ledger, charges[-1] + 1e-6 * total)
    spend(ledger, charges[-1])
    with pytest.raises(dp.BudgetExceededError, match="Remaining"):
        spend(ledger, max(1e-6 * total, 1e-9))
    assert ledger.spent == (pytest.approx(float(total), rel=1e-12), 0.0)
    assert ledger.remaining[0] <= 1e-9 * total
    ledger.verify()


def test_sums_read_as_they_were_written():
    ledger = dp.PrivacyLedger(":memory:", eps=1.0, delta=1e-6)
    for _ in range(3):
        spend(ledger, 0.1, 1e-7)
    assert ledger.spent == (0.3, 3e-7)
    assert ledger.remaining == (0.7, 7e-7)
    spend(ledger, 0.7, 7e-7)
    assert ledger.remaining == (0.0, 0.0)


BUDGETS = st.one_of(
    st.floats(2e-9, 10.0),
    st.sampled_from([0.1, 0.2, 0.3, 1 / 3, 1 / 7, 1 / 11, 1e-6, 2.5]),
)


SLACKS = st.one_of(
    st.floats(0.0, 0.1), st.sampled_from([0.0, 1e-6, 1e-13, 1e-300, 5e-324, 1 / 3e6])
)


@settings(max_examples=150, deadline=None)
@given(
    total=st.floats(0.01, 20.0),
    slack=st.sampled_from([0.0, 1e-12, 1e-6, 0.1]),
    costs=st.lists(st.tuples(BUDGETS, SLACKS), max_size=12),
)
def test_admission_is_the_exact_sum(total, slack, costs):
    ledger = dp.PrivacyLedger(":memory:", eps=total, delta=slack)
    eps = delta = Fraction(0)
    for cost, share in costs:
        written = Fraction(repr(cost)), Fraction(repr(share))
        # a sum within a few units of the limit may fall either way
        room = [
            Fraction(repr(whole)) * LIMIT - so_far - more
            for whole, so_far, more in zip((total, slack), (eps, delta), written, strict=True)
        ]
        if any(abs(r) < Fraction(1, 10**38) for r in room):
            return
        if min(room) > 0:
            spend(ledger, cost, share)
            eps, delta = eps + written[0], delta + written[1]
        else:
            with pytest.raises(dp.BudgetExceededError):
                spend(ledger, cost, share)
        assert ledger.spent[0] == pytest.approx(float(eps), rel=1e-15, abs=1e-38)
    assert len(ledger.history()) == round(ledger.datasets()["charges"][0])
    ledger.verify()


@pytest.mark.parametrize("cost", [1e-6, 1 / 3e6, 0.7e-6])
def test_a_million_charges_do_not_drift(cost):
    balance = 10**6 * ledger_module.in_units(cost)
    exact = 10**6 * Fraction(cost)
    assert abs(Fraction(balance, 10**40) / exact - 1) < Fraction(1, 2**52)


# --- refusals -------------------------------------------------------------------------------------


def test_over_budget_says_how_much(place):
    ledger = dp.PrivacyLedger(place, eps=1.0, delta=1e-6)
    spend(ledger, 0.75, 9e-7)
    with pytest.raises(dp.BudgetExceededError) as caught:
        spend(ledger, 0.3, 2e-7)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("`eps` and `delta` exceed what is left")
    assert lines[1:4] == [
        "Requested   eps = 0.3   delta = 2e-07",
        "Remaining   eps = 0.25   delta = 1e-07",
        "Difference  eps = 0.05   delta = 1e-07",
    ]
    with pytest.raises(dp.BudgetExceededError, match=r"^`delta` exceeds") as caught:
        spend(ledger, 0.1, 1.001e-7)
    assert "Difference  eps = 0   delta = 1e-10" in str(caught.value)
    with pytest.raises(dp.BudgetExceededError, match=r"^`eps` exceeds") as caught:
        spend(ledger, 0.250001)
    assert "Difference  eps = 1e-06   delta = 0" in str(caught.value)
    assert len(ledger.history()) == 1


@pytest.mark.parametrize("eps", [0, -1, math.nan, math.inf, -math.inf, True, "1", [1], 1j])
@pytest.mark.parametrize(
    "call",
    [
        lambda ledger, eps: dp.PrivacyLedger(":memory:", eps=eps),
        lambda ledger, eps: ledger.dataset("a", eps=eps),
        spend,
    ],
)
def test_bad_eps(place, eps, call):
    ledger = dp.PrivacyLedger(place, eps=1)
    with pytest.raises(dp.DPStatsError, match="`eps`"):
        call(ledger, eps)
    assert ledger.spent == (0.0, 0.0)
    assert list(ledger.datasets()["data"]) == [""]


@pytest.mark.parametrize("delta", [-1e-9, 1, 2, math.nan, math.inf, True, "0", [0]])
def test_bad_delta(place, delta):
    ledger = dp.PrivacyLedger(place, eps=1)
    with pytest.raises(dp.DPStatsError, match="`delta`"):
        dp.PrivacyLedger(":memory:", eps=1, delta=delta)
    with pytest.raises(dp.DPStatsError, match="`delta`"):
        ledger.dataset("a", eps=1, delta=delta)
    with pytest.raises(dp.DPStatsError, match="`delta`"):
        spend(ledger, 0.1, delta)
    assert ledger.spent == (0.0, 0.0)


@pytest.mark.parametrize("protects", ["rows", "", 1, ["row"]])
def test_bad_relation(protects):
    with pytest.raises(dp.DPStatsError, match="`protects`"):
        dp.PrivacyLedger(":memory:", eps=1, protects=protects)


@pytest.mark.parametrize(("mine", "other"), [("row", "unit"), ("unit", "row")])
def test_other_relation(place, mine, other):
    ledger = dp.PrivacyLedger(place, eps=1, protects=mine)
    with pytest.raises(dp.DPStatsError, match="`ledger` must protect") as caught:
        spend(ledger, relation=other)
    assert str(caught.value).endswith(f"PrivacyLedger(..., protects={other!r})")
    spend(ledger, relation=mine)
    assert ledger.spent == (0.1, 0.0)


def test_dp_ate_refuses_a_unit_ledger(trial):
    ledger = dp.PrivacyLedger(":memory:", eps=1, protects="unit")
    with pytest.raises(dp.DPStatsError, match="one unit, the call one row"):
        run(trial, ledger=ledger)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "options", [{"rng": 1}, {"rng": np.random.default_rng(1)}, {"eps": math.inf}]
)
def test_what_is_not_private_is_refused(trial, options, inside):
    ledger = dp.PrivacyLedger(":memory:", eps=10)
    if inside:
        with ledger, pytest.raises(dp.DPStatsError, match="leave the `with ledger:` block"):
            run(trial, **options)
    else:
        with pytest.raises(dp.DPStatsError, match="`ledger`"):
            run(trial, ledger=ledger, **options)
    assert ledger.history().empty


@pytest.mark.parametrize("ledger", [object(), "study.ledger", 1, dp.PrivacyLedger])
def test_not_a_ledger(trial, ledger):
    with pytest.raises(dp.DPStatsError, match="`ledger` must be a ledger"):
        run(trial, ledger=ledger)


# --- reopening ------------------------------------------------------------------------------------


def test_reopening(path):
    first = dp.PrivacyLedger(path, eps=3.0, delta=1e-6, protects="unit")
    spend(first, 1, 1e-7, "unit")
    for again in (
        dp.PrivacyLedger(path),
        dp.PrivacyLedger(str(path), 3, 1e-6, "unit"),
        dp.PrivacyLedger(path, protects="unit"),
    ):
        assert again.spent == (1.0, 1e-7)
        assert (again.epsilon, again.delta, again.protects) == (3.0, 1e-6, "unit")
    for wrong in (
        {"eps": 3.0000001, "delta": 1e-6, "protects": "unit"},
        {"eps": 3.0, "protects": "unit"},
        {"eps": 3.0, "delta": 1e-6},
        {"delta": 2e-6},
        {"protects": "row"},
    ):
        with pytest.raises(dp.DPStatsError, match="must be that of the existing ledger"):
            dp.PrivacyLedger(path, **wrong)
    assert first.remaining == (2.0, 9e-7)


@pytest.mark.parametrize("name", ["s?mode=memory.db", "a b#c%20.ledger", "ä'\".db", "file:x"])
def test_odd_file_names(tmp_path, name):
    spend(dp.PrivacyLedger(tmp_path / name, eps=1))
    assert dp.PrivacyLedger(tmp_path / name).spent == (0.1, 0.0)
    assert (tmp_path / name).is_file()


def test_relative_paths_survive_a_change_of_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = dp.PrivacyLedger("study.ledger", eps=1)
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    spend(ledger)
    assert list((tmp_path / "sub").iterdir()) == []
    assert dp.PrivacyLedger("../study.ledger").spent == (0.1, 0.0)


# --- data sets ------------------------------------------------------------------------------------


def test_datasets_have_totals_of_their_own(place):
    ledger = dp.PrivacyLedger(place, eps=3.0, delta=1e-6)
    nsw = ledger.dataset("nsw", eps=1.0)
    panel = ledger.dataset("panel", 2.0, 1e-7, "unit")
    spend(nsw, 0.9)
    spend(panel, 0.5, 1e-8, "unit")
    with pytest.raises(dp.BudgetExceededError, match="'nsw'"):
        spend(nsw, 0.2)
    spend(ledger, 3.0, call="other")
    assert ledger.dataset("nsw").remaining == (0.1, 0.0)
    assert ledger.dataset("panel", protects="unit").spent == (0.5, 1e-8)
    assert ledger.spent == (3.0, 0.0)
    frame = ledger.datasets()
    assert list(frame["data"]) == ["", "nsw", "panel"]
    assert list(frame["charges"]) == [1, 1, 1]
    assert list(nsw.history()["data"]) == ["nsw"]
    assert list(nsw.history(everything=True)["data"]) == ["nsw", "panel", ""]
    ledger.verify()


def test_a_misspelt_dataset_shows(place):
    ledger = dp.PrivacyLedger(place, eps=3.0)
    ledger.dataset("nsw", eps=1.0)
    with pytest.warns(
        dp.PrivacyWarning, match="'nws' is new in the ledger.*It has 'nsw'"
    ) as caught:
        slip = ledger.dataset("nws")
    assert caught[0].filename == __file__
    assert slip.remaining == (3.0, 0.0)
    with pytest.raises(dp.DPStatsError, match="`eps` must be that of the existing"):
        ledger.dataset("nsw", eps=2.0)
    for bad in ("", " ", "a\nb", None, 3, "\ud800"):
        with pytest.raises(dp.DPStatsError, match="`name`"):
            ledger.dataset(bad, eps=1.0)
    assert list(ledger.datasets()["data"]) == ["", "nsw", "nws"]


@pytest.mark.parametrize(
    ("given", "totals"),
    [
        ({}, (3.0, 1e-6, "unit")),
        ({"delta": 0}, (3.0, 0.0, "unit")),
        ({"protects": "row"}, (3.0, 1e-6, "row")),
        ({"delta": 1e-7, "protects": "unit"}, (3.0, 1e-7, "unit")),
    ],
    ids=str,
)
def test_a_new_dataset_without_eps_is_like_the_ledger(place, given, totals):
    ledger = dp.PrivacyLedger(place, eps=3.0, delta=1e-6, protects="unit")
    spend(ledger, 2.0, relation="unit")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(dp.PrivacyWarning):
            ledger.dataset("nsw", **given)
    # a warning that is an error makes nothing
    assert list(ledger.datasets()["data"]) == [""]
    with pytest.warns(dp.PrivacyWarning, match="eps = 3, delta"):
        nsw = ledger.dataset("nsw", **given)
    assert (nsw.epsilon, nsw.delta, nsw.protects) == totals
    # the ledger's totals, not what is left of them
    assert nsw.remaining == totals[:2]
    spend(nsw, 2.5, relation=totals[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = ledger.dataset("nsw")
        assert again.remaining == (0.5, totals[1])
        assert ledger.dataset("nsw", **given).spent == (2.5, 0.0)
    assert ledger.remaining == (1.0, 1e-6)
    with pytest.raises(dp.BudgetExceededError, match="'nsw'"):
        spend(again, 0.6, relation=totals[2])
    ledger.verify()


def test_a_dataset_that_was_made_meanwhile_keeps_its_totals(place, monkeypatch):
    ledger = dp.PrivacyLedger(place, eps=3.0)
    # another process is faster, with totals of its own
    monkeypatch.setattr(
        dp.PrivacyLedger, "_warn_new", lambda _, new: ledger.dataset("nsw", eps=1.0) and None
    )
    assert ledger.dataset("nsw").epsilon == 1.0


def test_a_dataset_inherits_the_relation(place):
    assert dp.PrivacyLedger(place, eps=1, protects="unit").dataset("a", eps=1).protects == "unit"


# --- with blocks ----------------------------------------------------------------------------------


def test_blocks_nest(trial):
    outer, inner, given_ = (dp.PrivacyLedger(":memory:", eps=2) for _ in range(3))
    with outer as entered:
        assert entered is outer
        run(trial, eps=0.1)
        with inner, outer, inner:
            run(trial, eps=0.2)
            run(trial, eps=0.3, ledger=given_)
        run(trial, eps=0.4)
        with pytest.raises(RuntimeError, match="stop"), inner:
            raise RuntimeError("stop")
        run(trial, eps=0.1)
    run(trial, eps=0.7)
    spent = [ledger.spent[0] for ledger in (outer, inner, given_)]
    assert spent == [0.6, 0.2, 0.3]


def test_a_thread_inside_a_block_does_not_go_uncharged(trial):
    ledger = dp.PrivacyLedger(":memory:", eps=2)
    with ledger, ThreadPoolExecutor(1) as pool:
        with pytest.raises(dp.DPStatsError, match="another thread"):
            pool.submit(run, trial).result()
        pool.submit(run, trial, ledger=ledger).result()
        pool.submit(contextvars.copy_context().run, run, trial, eps=0.25).result()
        with pytest.warns(dp.PrivacyWarning):
            pool.submit(run, trial, rng=1).result()
    assert ledger.spent == (0.75, 0.0)
    run(trial)
    assert ledger.spent == (0.75, 0.0)


def test_blocks_left_out_of_order():
    first, second = (dp.PrivacyLedger(":memory:", eps=2) for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert find_ledger(None, epsilon=1.0, seeded=False) is second
    second.__exit__(None, None, None)
    assert find_ledger(None, epsilon=1.0, seeded=False) is None
    assert charge(None, epsilon=1.0, delta=0.0, relation="row", call="") is None


# --- dp_ate ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"formula": "y ~ nothing"},
        {"formula": "y ~ center(x1)"},
        {"treat": "x1"},
        {"method": "magic"},
        {"split": {"sums": 1.0}},
        {"bounds": {"y": (1, 0)}},
        {"delta": 2.0},
        {"overlap": 0.7},
    ],
)
def test_a_failed_validation_charges_nothing(trial, wrong):
    ledger = dp.PrivacyLedger(":memory:", eps=2, delta=0.5)
    with pytest.raises(dp.DPStatsError):
        run(trial, ledger=ledger, **wrong)
    assert ledger.spent == (0.0, 0.0)


def test_the_charge_is_on_file_before_the_first_noise(trial, path, monkeypatch):
    ledger = dp.PrivacyLedger(path, eps=2, delta=1e-6)
    seen = []
    drawn = noise.SystemSource.gaussian

    def look(self, *arguments):
        with sqlite3.connect(path) as connection:
            seen.append(connection.execute("SELECT count(*) FROM charges").fetchone()[0])
        return drawn(self, *arguments)

    monkeypatch.setattr(noise.SystemSource, "gaussian", look)
    run(trial, delta=1e-7, propensity=0.5, ledger=ledger)
    assert seen[0] == 1

    def crash(self, *arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(noise.SystemSource, "gaussian", crash)
    with pytest.raises(KeyboardInterrupt):
        run(trial, delta=1e-7, propensity=0.5, ledger=ledger)
    assert ledger.spent == (1.0, 2e-7)
    assert [r is None for r in ledger.history()["releases"]] == [False, True]


def test_a_refused_call_draws_no_noise(trial, monkeypatch):
    ledger = dp.PrivacyLedger(":memory:", eps=0.4)
    for name in ("laplace", "gaussian", "knorm", "normal"):
        monkeypatch.setattr(noise.SystemSource, name, None)
    with pytest.raises(dp.BudgetExceededError, match=r"Requested   eps = 0\.5"):
        run(trial, ledger=ledger)


def test_history_holds_the_releases(trial, place):
    ledger = dp.PrivacyLedger(place, eps=2, delta=1e-6)
    before = pd.Timestamp.now("UTC")
    res = run(trial, ledger=ledger)
    spend(ledger, 0.2, 1e-7, call="odd \ud800 text")
    frame = ledger.history()
    assert list(frame.columns) == ["time", "data", "call", "epsilon", "delta", "releases"]
    assert pd.DataFrame(frame["releases"][0]).equals(res.privacy.releases)
    assert frame["releases"][1] is None
    assert frame["call"][0] == "dp_ate('y ~ x1', treat='w', method='blocking')"
    assert frame["epsilon"].tolist() == [0.5, 0.2]
    assert frame["delta"].tolist() == [0.0, 1e-7]
    assert str(frame["time"].dt.tz) == "UTC"
    assert before - pd.Timedelta("1s") <= frame["time"][0] <= pd.Timestamp.now("UTC")


def test_an_empty_history(place):
    frame = dp.PrivacyLedger(place, eps=2).history()
    assert frame.empty
    assert frame["epsilon"].dtype == float
    assert str(frame["time"].dt.tz) == "UTC"


def test_export(trial, path, tmp_path):
    ledger = dp.PrivacyLedger(path, eps=2, delta=1e-6)
    run(trial, ledger=ledger)
    spend(ledger.dataset("nsw", eps=1), 0.25)
    ledger.export(tmp_path / "own.csv")
    ledger.export(tmp_path / "all.CSV", everything=True)
    ledger.export(tmp_path / "all.json", everything=True)
    ledger.export(str(tmp_path / "own.json"))
    own, both = pd.read_csv(tmp_path / "own.csv"), pd.read_csv(tmp_path / "all.CSV")
    assert own["epsilon"].tolist() == [0.5]
    assert both["epsilon"].tolist() == [0.5, 0.25]
    assert json.loads(own["releases"][0])[0]["release"] == "propensity"
    pd.testing.assert_series_equal(
        pd.to_datetime(own["time"]).astype("datetime64[us, UTC]"),
        ledger.history()["time"].astype("datetime64[us, UTC]"),
    )
    content = json.loads((tmp_path / "all.json").read_text())
    assert [row["data"] for row in content["datasets"]] == ["", "nsw"]
    assert [row["epsilon"] for row in content["charges"]] == [0.5, 0.25]
    assert len(json.loads((tmp_path / "own.json").read_text())["charges"]) == 1
    for wrong in ("history.txt", "history", path):
        with pytest.raises(dp.DPStatsError, match="`path`"):
            ledger.export(tmp_path / wrong)
    with pytest.raises(dp.DPStatsError, match="`path` cannot be written"):
        ledger.export(tmp_path / "no" / "all.csv")
    named = tmp_path / "ledger.json"
    with pytest.raises(dp.DPStatsError, match="the ledger itself"):
        dp.PrivacyLedger(named, eps=1).export(named)


def test_the_file_holds_no_data_and_no_user(trial, path):
    ledger = dp.PrivacyLedger(path, eps=2)
    frame = trial.data.assign(y=trial.data["y"].clip(-5, 5) + 1234567.5)
    dp.dp_ate(
        "y ~ x1",
        treat="w",
        data=frame,
        eps=1,
        bounds={**trial.bounds, "y": (0, 2e6)},
        ledger=ledger,
    )
    text = path.read_bytes()
    assert b"12345" not in text
    assert str(path.parent).encode() not in text


# --- processes, threads, forks --------------------------------------------------------------------


def _worker(job):
    ledger, calls, cost = job
    if isinstance(ledger, str):
        ledger = dp.PrivacyLedger(ledger)
    admitted = 0
    for _ in range(calls):
        try:
            spend(ledger, cost)
        except dp.BudgetExceededError:
            continue
        admitted += 1
    return admitted


@posix
def test_eight_processes(path):
    _compete(path)


@posix
@pytest.mark.study
def test_eight_processes_on_disk(tmp_path):
    _compete(tmp_path / "study.ledger")


def _compete(path):
    ledger = dp.PrivacyLedger(path, eps=1.0)
    jobs = [(str(path) if i % 2 else ledger, 200, 0.001) for i in range(8)]
    with multiprocessing.get_context("fork").Pool(8) as pool:
        admitted = pool.map(_worker, jobs, chunksize=1)
    assert sum(admitted) == 1000
    assert sum(a > 0 for a in admitted) > 1
    assert len(ledger.history()) == 1000
    assert ledger.remaining == (0.0, 0.0)
    ledger.verify()


def _open(path):
    ledger = dp.PrivacyLedger(path, eps=1.0)
    ledger.dataset("a", eps=2.0)
    return spend(ledger, 0.001).number


@posix
def test_many_processes_make_one_ledger(path):
    with multiprocessing.get_context("fork").Pool(8) as pool:
        for trial_ in range(5):
            numbers = pool.map(_open, [path.with_suffix(f".{trial_}")] * 8, chunksize=1)
            assert sorted(numbers) == list(range(1, 9))
            ledger = dp.PrivacyLedger(path.with_suffix(f".{trial_}"))
            assert ledger.spent == (0.008, 0.0)
            assert len(ledger.datasets()) == 2


def test_threads(place):
    ledger = dp.PrivacyLedger(place, eps=1.0)
    with ThreadPoolExecutor(8) as pool:
        admitted = list(pool.map(_worker, [(ledger, 40, 0.005)] * 8))
    assert sum(admitted) == 200
    assert ledger.remaining == (0.0, 0.0)
    ledger.verify()


def _in_child(function):
    """Run in a fork; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = function() or 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@posix
def test_a_fork_spends_from_the_same_file(path, trial):
    ledger = dp.PrivacyLedger(path, eps=1.0)
    spend(ledger)

    def child():
        spend(ledger, 0.2)
        run(trial, eps=0.3)  # inside the block of the parent
        return 0

    with ledger:
        assert _in_child(child) == 0
    spend(ledger)
    assert ledger.spent == (0.7, 0.0)


@posix
def test_a_fork_does_not_double_a_ledger_in_memory():
    ledger = dp.PrivacyLedger(":memory:", eps=1.0)

    def child():
        try:
            spend(ledger)
        except dp.DPStatsError as error:
            return 7 if "belongs to the process" in str(error) else 1
        return 2

    assert _in_child(child) == 7
    spend(ledger)
    assert ledger.spent == (0.1, 0.0)


@posix
def test_forks_while_threads_charge(path):
    ledger = dp.PrivacyLedger(path, eps=1000.0)
    stop = threading.Event()
    made = []

    def work():
        while not stop.is_set():
            made.append(spend(ledger, 0.01))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    codes = [_in_child(lambda: spend(ledger, 1.0) and 0) for _ in range(15)]
    stop.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 15
    assert len(ledger.history()) == len(made) + 15
    ledger.verify()


# --- kills ----------------------------------------------------------------------------------------


def _returned_until_killed(work, pause):
    """Kill a child that reports each returned result after `pause` seconds; count the reports."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            while True:
                work()
                os.write(write, b"x")
        finally:
            os._exit(1)
    os.close(write)
    time.sleep(pause)
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with os.fdopen(read, "rb") as pipe:
        return len(pipe.read())


def _kill(path, kills, work, longest):
    ledger = dp.PrivacyLedger(path, eps=1e9)
    clock = random.Random(kills)
    returned = charged = 0
    for _ in range(kills):
        results = _returned_until_killed(lambda: work(ledger), clock.uniform(0.0, longest))
        now = ledger.datasets()["charges"][0]
        # every result has its charge; at most one charge has no result
        assert results <= now - charged <= results + 1
        returned, charged = returned + results, now
    ledger.verify()
    assert returned > kills / 4
    return returned, charged


@posix
def test_kills_lose_no_charge(path):
    _kill(path, 30, spend, 0.03)


@posix
@pytest.mark.study
@pytest.mark.parametrize("disk", [False, True])
@pytest.mark.parametrize("work", ["charge", "dp_ate"])
def test_two_hundred_kills(path, tmp_path, trial, disk, work, capsys):
    done = spend if work == "charge" else lambda ledger: run(trial, ledger=ledger)
    run(trial)  # imports what it needs before the forks
    pause = (0.05 if work == "charge" else 0.4) + (0.3 if disk else 0.0)
    file = tmp_path / "study.ledger" if disk else path
    returned, charged = _kill(file, 200, done, pause)
    with capsys.disabled():
        print(f"\n200 kills, {work}, disk {disk}: {returned} results, {charged} charges")


@posix
@pytest.mark.parametrize("moment", range(12))
def test_kills_while_the_file_is_made(tmp_path, moment):
    path = tmp_path / "new.ledger"
    child = os.fork()
    if child == 0:
        dp.PrivacyLedger(path, eps=1.0)
        os._exit(0)
    time.sleep(moment * 4e-4)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    spend(dp.PrivacyLedger(path, eps=1.0))
    assert dp.PrivacyLedger(path).spent == (0.1, 0.0)


# --- copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda ledger: pickle.loads(pickle.dumps(ledger))]
)
@pytest.mark.parametrize("name", ["", "nsw"])
def test_copies_share_the_budget(path, clone, name):
    ledger = dp.PrivacyLedger(path, eps=1.0, delta=1e-6)
    if name:
        ledger = ledger.dataset(name, eps=1.0, delta=1e-6)
    twin = clone(ledger)
    spend(twin, 0.6)
    with pytest.raises(dp.BudgetExceededError):
        spend(ledger, 0.6)
    assert ledger.spent == twin.spent == (0.6, 0.0)
    assert repr(twin) == repr(ledger)


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("wrap", [lambda ledger: ledger, lambda ledger: ledger.dataset("a", eps=1)])
def test_memory_refuses_to_be_copied(clone, wrap):
    ledger = wrap(dp.PrivacyLedger(":memory:", eps=1.0))
    with pytest.raises(dp.DPStatsError, match="cannot be copied"):
        clone(ledger)


def test_a_pickle_needs_its_file(path, tmp_path):
    text = pickle.dumps(dp.PrivacyLedger(path, eps=1.0))
    path.unlink()
    with pytest.raises(dp.DPStatsError, match="`path`"):
        pickle.loads(text)
    assert not path.exists()
    dp.PrivacyLedger(path, eps=2.0)
    with pytest.raises(dp.DPStatsError, match="`eps`"):
        pickle.loads(text)


def test_results_hold_no_ledger(trial, path):
    ledger = dp.PrivacyLedger(path, eps=1.0)
    assert b"ledger" not in pickle.dumps(run(trial, ledger=ledger))


def test_repr_touches_no_file(path):
    ledger = dp.PrivacyLedger(path, eps=1.0, delta=1e-6).dataset("nsw", eps=0.5)
    path.unlink()
    assert repr(ledger) == (
        "PrivacyLedger('study.ledger', data='nsw', eps=0.5, delta=0, protects='row')"
    )


# --- files that fail ------------------------------------------------------------------------------


def test_missing_places(tmp_path):
    for path in (tmp_path / "no" / "study.ledger", tmp_path, "", b"x", 3, None, "a\0b"):
        with pytest.raises(dp.DPStatsError, match="`path`"):
            dp.PrivacyLedger(path, eps=1.0)
    with pytest.raises(dp.DPStatsError, match="`eps` be given"):
        dp.PrivacyLedger(tmp_path / "new")
    with pytest.raises(dp.DPStatsError, match="`eps` must be given"):
        dp.PrivacyLedger(":memory:")
    assert list(tmp_path.iterdir()) == []


def _foreign(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE datasets (id, name)")
    connection.close()


def _newer(path):
    dp.PrivacyLedger(path, eps=1.0)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("eps,delta\n1,0\n"),
        lambda path: path.write_bytes(os.urandom(20_000)),
        lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(5000)),
        _foreign,
        _newer,
    ],
)
@pytest.mark.parametrize("eps", [None, 1.0])
def test_files_that_are_no_ledger(path, make, eps):
    make(path)
    before = path.read_bytes()
    with pytest.raises(dp.DPStatsError, match=r"`path`|`ledger`"):
        dp.PrivacyLedger(path, eps=eps)
    assert path.read_bytes() == before


@pytest.mark.parametrize("seed", range(25))
def test_damage_gives_an_error_or_nothing(path, seed):
    ledger = dp.PrivacyLedger(path, eps=1e3)
    for _ in range(150):
        spend(ledger)
    content = bytearray(path.read_bytes())
    chance = random.Random(seed)
    if seed % 5 == 0:
        content = content[: chance.randrange(1, len(content))]
    else:
        start = chance.randrange(len(content) - 200)
        content[start : start + 200] = chance.randbytes(200)
    path.write_bytes(content)
    for step in (spend, lambda ledger: ledger.spent, lambda ledger: ledger.verify()):
        try:
            step(ledger)
        except dp.DPStatsError as error:
            assert "`" in str(error)  # noqa: PT017
    if seed % 5 == 0:
        with pytest.raises(dp.DPStatsError):
            ledger.verify()


def test_a_removed_file_is_no_fresh_budget(path):
    ledger = dp.PrivacyLedger(path, eps=1.0)
    path.unlink()
    for step in (spend, lambda ledger: ledger.spent):
        with pytest.raises(dp.DPStatsError, match="cannot be opened"):
            step(ledger)
    path.touch()
    with pytest.raises(dp.DPStatsError, match="another kind of file"):
        spend(ledger)
    dp.PrivacyLedger(path, eps=5.0)
    with pytest.raises(dp.DPStatsError, match="not the one that was opened"):
        spend(ledger)


def test_a_copied_file_is_another_budget(path, tmp_path):
    # documented as outside what software can stop
    ledger = dp.PrivacyLedger(path, eps=1.0)
    shutil.copy(path, tmp_path / "copy")
    spend(dp.PrivacyLedger(tmp_path / "copy"), 1.0)
    assert ledger.spent == (0.0, 0.0)


@posix
@pytest.mark.parametrize("read_only", ["file", "folder"])
def test_read_only(trial, read_only):
    folder = Path(tempfile.mkdtemp())
    path = folder / "study.ledger"
    try:
        ledger = dp.PrivacyLedger(path, eps=1.0)
        spend(ledger)
        path.chmod(0o444 if read_only == "file" else 0o666)
        folder.chmod(0o777 if read_only == "file" else 0o555)

        def child():
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            assert ledger.spent == dp.PrivacyLedger(path).spent == (0.1, 0.0)
            with pytest.raises(dp.DPStatsError, match=r"`ledger` could not be written.*nothing"):
                run(trial, ledger=ledger)
            return 0

        assert _in_child(child) == 0
        folder.chmod(0o755)
        assert ledger.spent == (0.1, 0.0)
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_full_disk(trial, path, monkeypatch):
    ledger = dp.PrivacyLedger(path, eps=100.0)
    connect = store.Store._connect

    def full(self, mode):
        connection = connect(self, mode)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(store.Store, "_connect", full)
    made = []
    with pytest.raises(dp.DPStatsError, match="the disk is full"):
        made.extend(spend(ledger, call="x" * 500) for _ in range(1000))
    with pytest.raises(dp.DPStatsError, match="the disk is full"):
        run(trial, formula=f"y ~ x1 + {' + '.join(['x1'] * 400)}", ledger=ledger)
    monkeypatch.undo()
    assert 0 < len(made) == len(ledger.history())
    ledger.verify()


_LIMITED = """
import resource, sys
import dpstats as dp
ledger = dp.PrivacyLedger(sys.argv[1], eps=100.0)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
made = 0
try:
    while made < 2000:
        ledger.charge(epsilon=0.01, delta=0.0, relation="row", call="x" * 500)
        made += 1
except dp.DPStatsError as error:
    assert "`ledger` could not be written" in str(error), error
    print(made)
"""


@posix
def test_a_file_that_may_not_grow(path):
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ledger = dp.PrivacyLedger(path)
    assert len(ledger.history()) == int(done.stdout)
    ledger.verify()


def test_a_locked_file(path, monkeypatch):
    ledger = dp.PrivacyLedger(path, eps=1.0)
    monkeypatch.setattr(store, "_PATIENCE", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert ledger.spent == (0.0, 0.0)
    with pytest.raises(dp.DPStatsError, match="another program kept the file locked"):
        spend(ledger)
    other.execute("COMMIT")
    spend(ledger)
    other.close()


def test_a_failed_record_of_releases_keeps_result_and_charge(trial, path, monkeypatch):
    ledger = dp.PrivacyLedger(path, eps=1.0)
    insert = store.Store.write
    steps = []

    def once(self):
        steps.append(1)
        if len(steps) > 1:
            raise dp.DPStatsError("`ledger` could not be written")
        return insert(self)

    monkeypatch.setattr(store.Store, "write", once)
    assert math.isfinite(run(trial, ledger=ledger).params["ATE"])
    assert ledger.spent == (0.5, 0.0)
    assert ledger.history()["releases"][0] is None


# --- what only grows ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM charges",
        "UPDATE charges SET epsilon = 0.01",
        "UPDATE datasets SET epsilon = 9",
        "DELETE FROM datasets",
        "DELETE FROM releases",
    ],
)
def test_a_slip_cannot_change_the_past(trial, path, statement):
    ledger = dp.PrivacyLedger(path, eps=1.0)
    run(trial, ledger=ledger)
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="only grows"):
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE datasets SET spent_epsilon = '0'",
        "UPDATE datasets SET charges = charges - 1",
        "UPDATE datasets SET spent_delta = '1'",
        "INSERT INTO charges (dataset, time, call, epsilon, delta) VALUES (1, '', '', 0.1, 0)",
        "INSERT INTO charges (dataset, time, call, epsilon, delta) VALUES (7, '', '', 0.1, 0)",
    ],
)
def test_verify_finds_changed_sums(path, statement):
    ledger = dp.PrivacyLedger(path, eps=1.0)
    spend(ledger)
    ledger.verify()
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(dp.DPStatsError, match="damaged"):
        ledger.verify()


def test_damaged_releases_are_an_error(path):
    pytest.importorskip("dp_accounting")
    ledger = dp.PrivacyLedger(path, eps=1.0, delta=1e-6)
    number = spend(ledger).number
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO releases VALUES (?, '[{\"a\": 1}]')", (number,))
    connection.close()
    for step in (ledger.history, lambda: ledger.total("pld")):
        with pytest.raises(dp.DPStatsError, match="damaged"):
            step()


@pytest.mark.parametrize("value", ["'many'", "'-5'", "x'00ff'", "''"])
def test_damaged_sums_admit_nothing(path, value):
    ledger = dp.PrivacyLedger(path, eps=1.0)
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE datasets SET spent_epsilon = {value}")
    connection.close()
    with pytest.raises(dp.DPStatsError, match="damaged"):
        spend(ledger)


# --- a million charges ----------------------------------------------------------------------------


def _bulk(path, count):
    """Write `count` charges of 1e-6 as fast as SQLite can."""
    dp.PrivacyLedger(path, eps=3.0, delta=1e-3)
    with sqlite3.connect(path) as connection:
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO charges (dataset, time, call, epsilon, delta) SELECT 1, "
            "'2026-01-01T00:00:00.000000+00:00', 'dp_ate(''y ~ x1'')', 1e-6, 1e-10 FROM n",
            (count,),
        )
        connection.execute(
            "UPDATE datasets SET charges = ?, spent_epsilon = ?, spent_delta = ?",
            (count, str(count * 10**34), str(count * 10**30)),
        )
    connection.close()


def test_a_million_charges_open_at_once(path):
    _bulk(path, 1_000_000)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        ledger = dp.PrivacyLedger(path)
        spent, remaining = ledger.spent, ledger.remaining
        times.append(time.perf_counter() - start)
    assert (spent, remaining) == ((1.0, 1e-4), (2.0, 9e-4))
    assert min(times) < 0.05
    start = time.perf_counter()
    spend(ledger)
    print(f"open and read {1e3 * min(times):.1f} ms, charge {time.perf_counter() - start:.4f} s")
    ledger.verify()


# --- tighter totals -------------------------------------------------------------------------------

mp.mp.dps = 40


def _solve(delta_of, delta, high):
    """Find the epsilon at which a decreasing function is `delta`."""
    low, high = mp.mpf(0), mp.mpf(high)
    if delta_of(low) <= delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return float(high)


def _responses(groups):
    """Delta of composed randomised responses [(eps, delta, times)], summed over all outcomes."""
    losses = {mp.mpf(0): mp.mpf(1)}
    certain = mp.mpf(1)
    for eps, slack, times in groups:
        e = mp.mpf(eps)
        certain *= (1 - mp.mpf(slack)) ** times
        heads = 1 / (1 + mp.exp(-e))
        step = {
            (times - 2 * j) * e: mp.binomial(times, j) * heads ** (times - j) * (1 - heads) ** j
            for j in range(times + 1)
        }
        combined: dict = {}
        for a, p in losses.items():
            for b, q in step.items():
                combined[a + b] = combined.get(a + b, 0) + p * q
        losses = combined

    def delta_of(eps):
        finite = mp.fsum(p * (1 - mp.exp(eps - loss)) for loss, p in losses.items() if loss > eps)
        return 1 - certain + certain * finite

    return delta_of


@pytest.mark.parametrize(
    ("groups", "delta"),
    [
        ([(0.1, 0.0, 100)], 1e-6),
        ([(0.5, 0.0, 1)], 1e-6),
        ([(0.25, 0.0, 20)], 1e-3),
        ([(0.1, 1e-8, 50)], 1e-6),
        ([(0.05, 0.0, 40), (0.3, 0.0, 7)], 1e-5),
        ([(0.1, 1e-7, 20), (1.0, 0.0, 3), (0.37, 1e-9, 5)], 1e-5),
        ([(1 / 3, 0.0, 9)], 1e-4),
    ],
)
def test_pure_charges_against_all_outcomes(groups, delta):
    pytest.importorskip("dp_accounting")
    ledger = dp.PrivacyLedger(":memory:", eps=20.0, delta=1e-3)
    for eps, slack, times in groups:
        for _ in range(times):
            spend(ledger, eps, slack)
    exact = _solve(_responses(groups), delta, 20)
    eps, at = ledger.total("pld", delta=delta)
    assert at == delta
    assert exact * (1 - 1e-9) <= eps <= exact * 1.01 + 1e-3
    assert eps <= ledger.total()[0]
    assert ledger.total() == ledger.spent


def _kept(ledger, releases, copies=1):
    for _ in range(copies):
        eps = math.fsum(record.epsilon for record in releases)
        delta = math.fsum(record.delta for record in releases)
        spend(ledger, eps, delta).keep(releases)


def _gaussian(eps, delta, sensitivity=2.0):
    scale = gaussian_scale(sensitivity, eps, delta)
    return Release("sums", "all rows", "Gaussian (analytic)", "l2", sensitivity, scale, eps, delta)


def _laplace(eps, norm="l1", mechanism="Laplace", partition="all rows"):
    return Release("counts", partition, mechanism, norm, 2.0, 2.0 / eps, eps, 0.0)


def _gaussian_delta(strength):
    def delta_of(eps):
        m = mp.mpf(strength)
        return mp.ncdf(m / 2 - eps / m) - mp.exp(eps) * mp.ncdf(-m / 2 - eps / m)

    return delta_of


@pytest.mark.parametrize("copies", [1, 4, 60])
@pytest.mark.parametrize(("eps", "delta"), [(0.5, 1e-7), (0.05, 1e-8)])
def test_gaussian_releases_add_in_quadrature(copies, eps, delta):
    pytest.importorskip("dp_accounting")
    ledger = dp.PrivacyLedger(":memory:", eps=100.0, delta=1e-4)
    _kept(ledger, [_gaussian(eps, delta), _gaussian(2 * eps, delta, 7.0)], copies)
    strength = math.sqrt(
        copies * (gaussian_scale(1.0, eps, delta) ** -2 + gaussian_scale(1.0, 2 * eps, delta) ** -2)
    )
    exact = _solve(_gaussian_delta(strength), 1e-5, 100)
    found, _ = ledger.total("pld", delta=1e-5)
    assert exact * (1 - 1e-6) <= found <= exact * 1.01 + 1e-3
    assert found < ledger.spent[0]


def _one_laplace(strength):
    """Delta of Lap(0, 1) against Lap(strength, 1), for any real epsilon."""

    def delta_of(eps):
        if eps >= strength:
            return mp.mpf(0)
        if eps <= -strength:
            return 1 - mp.exp(eps)
        return 1 - mp.exp((eps - strength) / 2)

    return delta_of


def _two_laplaces(first, second):
    inner, a = _one_laplace(mp.mpf(second)), mp.mpf(first)

    def delta_of(eps):
        def at(loss):
            return mp.exp((loss - a) / 2) / 4 * inner(eps - loss)

        kinks = sorted({-a, a, *(max(-a, min(a, eps + s * mp.mpf(second))) for s in (-1, 1))})
        body = mp.quad(at, kinks)
        return inner(eps - a) / 2 + mp.exp(-a) / 2 * inner(eps + a) + body

    return delta_of


@pytest.mark.parametrize(
    ("strengths", "delta"), [((0.5,), 1e-3), ((1.0,), 0.1), ((0.5, 0.5), 1e-2), ((0.3, 1.2), 1e-2)]
)
def test_laplace_releases_against_quadrature(strengths, delta):
    pytest.importorskip("dp_accounting")
    ledger = dp.PrivacyLedger(":memory:", eps=10.0)
    for strength in strengths:
        _kept(ledger, [_laplace(strength)])
    delta_of = _one_laplace(*strengths) if len(strengths) == 1 else _two_laplaces(*strengths)
    exact = _solve(delta_of, delta, 5)
    found, _ = ledger.total("pld", delta=delta)
    assert exact - 1e-9 <= found <= exact + 1e-3


@pytest.mark.parametrize(("a", "c"), [(0.2, 0.2), (0.1, 1.5), (1.0, 1.0), (0.5, 3.0)])
def test_one_coordinate_dominates_two(a, c):
    both, one = _two_laplaces(a, c), _one_laplace(mp.mpf(a + c))
    for eps in np.linspace(-(a + c), a + c, 23):
        assert both(mp.mpf(eps)) <= one(mp.mpf(eps)) + mp.mpf(10) ** -15


@pytest.mark.parametrize(
    "releases",
    [
        [_laplace(0.2, "l2", "K-norm Laplace")] * 5,
        [_laplace(0.2, partition=p) for p in "abcde"],
        [_laplace(0.2, mechanism="objective perturbation")] * 5,
    ],
)
def test_other_mechanisms_count_as_charged(releases):
    pytest.importorskip("dp_accounting")
    ledger, plain = (dp.PrivacyLedger(":memory:", eps=50.0, delta=1e-3) for _ in range(2))
    _kept(ledger, releases, 10)
    whole = len({record.partition for record in releases}) > 1
    for _ in range(10 if whole else 50):
        spend(plain, 1.0 if whole else 0.2)
    assert ledger.total("pld", delta=1e-6) == plain.total("pld", delta=1e-6)


def test_incomplete_records_count_in_full():
    pytest.importorskip("dp_accounting")
    ledger, plain = (dp.PrivacyLedger(":memory:", eps=50.0, delta=1e-3) for _ in range(2))
    for _ in range(20):
        spend(ledger, 0.5).keep([_laplace(0.4)])
        spend(plain, 0.5)
    assert ledger.total("pld") == plain.total("pld")


def test_corners_of_the_tighter_total(place):
    pytest.importorskip("dp_accounting")
    ledger = dp.PrivacyLedger(place, eps=1000.0, delta=1e-6)
    assert ledger.total("pld") == (0.0, 1e-6)
    for _ in range(30):
        spend(ledger, 0.1, 1e-8)
    assert ledger.total("pld", delta=0.0) == (math.inf, 0.0)
    assert ledger.total("pld", delta=1e-12) == (math.inf, 1e-12)
    # by the sum of the deltas, the sum of the epsilons always holds
    assert ledger.total("pld", delta=3e-7)[0] <= 3.0
    spend(ledger, 500.0)
    assert ledger.total("pld") == (503.0, 1e-6)
    with pytest.raises(dp.DPStatsError, match="`method`"):
        ledger.total("rdp")
    with pytest.raises(dp.DPStatsError, match="`delta`"):
        ledger.total("basic", delta=0.1)
    with pytest.raises(dp.DPStatsError, match="`delta`"):
        ledger.total("pld", delta=1.0)


def test_the_tighter_total_never_admits():
    pytest.importorskip("dp_accounting")
    ledger = dp.PrivacyLedger(":memory:", eps=10.0, delta=1e-6)
    for _ in range(100):
        spend(ledger, 0.1)
    assert ledger.total("pld")[0] < 5
    with pytest.raises(dp.BudgetExceededError):
        spend(ledger, 0.1)


def test_real_calls_have_a_tighter_total(trial):
    pytest.importorskip("dp_accounting")
    ledger = dp.PrivacyLedger(":memory:", eps=20.0, delta=1e-5)
    for _ in range(8):
        run(trial, delta=1e-7, propensity=0.5, ledger=ledger)
    eps, delta = ledger.total("pld")
    assert delta == 1e-5
    assert 0.3 < eps < 0.6 * ledger.spent[0]


def test_without_dp_accounting(monkeypatch):
    ledger = dp.PrivacyLedger(":memory:", eps=1.0, delta=1e-6)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(ImportError, match=r"dpstats\[accounting\]"):
        ledger.total("pld")


def test_a_million_charges_have_a_tighter_total(path):
    pytest.importorskip("dp_accounting")
    _bulk(path, 200_000)
    eps, _ = dp.PrivacyLedger(path).total("pld")
    exact = _solve(_gaussian_delta(1e-6 * math.sqrt(200_000)), 1e-3 - 2e-5, 1)
    assert exact * 0.99 <= eps <= 0.2
