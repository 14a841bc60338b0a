"""The tool as its user meets it: loading, a call of `dp_ate`, the page, results and the plot."""

from __future__ import annotations

import math
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from audit_runs import drawn, run, same

import dpstats as dp
from dpstats import audit


def test_the_module_is_loaded_on_first_use() -> None:
    code = (
        "import sys, dpstats as dp; assert 'dpstats.audit' not in sys.modules; "
        "assert dp.audit.lower_bound; assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_call_of_dp_ate() -> None:
    """Two neighbours at the corners, told apart by what the call releases."""
    frame = pd.DataFrame({"y": [1.0, 0.0, 0.0, 0.0], "w": [1, 0, 1, 0]})

    def release(data, rng):
        result = dp.dp_ate(
            "y ~ 1",
            treat="w",
            data=data,
            eps=1.0,
            method="ipw",
            propensity=0.5,
            bounds={"y": (-1.0, 1.0)},
            split={"score": 1.0},
            rng=rng,
        )
        return result.params.iloc[0]

    pairs = audit.neighbours(frame, [{"y": -1.0}, {"y": 0.9}])
    found = audit.search(
        release, pairs, eps=1.0, trials=400, pilot=60, false_alarm=0.01, bits=True,
        rng=13, progress=False,
    )  # fmt: skip
    assert found.passed
    assert found.epsilon > 0.2
    # the same release is not private at a fifth of its eps
    again = audit.lower_bound(
        release, *pairs[found.pair], eps=0.2, trials=400, false_alarm=0.01, rng=14, progress=False
    )
    assert again.passed is False


def test_the_page_on_auditing_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "auditing.md").read_text("utf-8")
    refuted, passed = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    for (code, shown), verdict in ((refuted, False), (passed, True)):
        exec(code, names)
        assert names["found"].passed is verdict
        assert ("REFUTED" in shown) is not verdict
        # to the digit, but for another event that another version may choose
        bound = float(re.search(r"epsilon(?: >=|:) +([\d.]+)", shown)[1])
        assert names["found"].epsilon == pytest.approx(bound, rel=0.15)


def test_neighbours_of_a_frame() -> None:
    frame = pd.DataFrame(
        {"a": [1, 2], "b": pd.Categorical(["u", "v"], ["u", "v", "w"]), "c": [True, False]}
    )
    before = frame.copy()
    pairs = audit.neighbours(frame, [{"a": 0.5}, {"b": "w", "c": False}], at=-1)
    assert [pair[0] is frame for pair in pairs] == [True, True, False]
    assert pairs[0][1]["a"].tolist() == [1.0, 0.5]
    assert pairs[1][1]["b"].tolist() == ["u", "w"]
    assert pairs[1][1].dtypes.tolist() == frame.dtypes.tolist()
    assert pairs[2][0] is pairs[0][1]
    pd.testing.assert_frame_equal(frame, before)
    changed = audit.neighbours(np.arange(6.0).reshape(3, 2), [[7.0, 8.0]], at=1)
    assert changed[0][1].tolist() == [[0.0, 1.0], [7.0, 8.0], [4.0, 5.0]]


def test_results_can_be_read_kept_and_drawn() -> None:
    found = run(eps=3.0)
    assert str(found) == str(found.summary())
    for text in ("Lower bound on epsilon", "not refuted", "never prove"):
        assert text in str(found)
    assert "<table" in found._repr_html_()
    assert found.summary().as_latex()
    assert repr(found).startswith("<AuditResult: epsilon >= ")
    kept = pickle.loads(pickle.dumps(found))
    assert same(kept, found)
    assert kept.event == found.event
    assert found.trials == (200, 200)
    assert found.epsilon < found.ceiling < math.log(100)
    refuted = run(eps=0.0, trials=2000)
    assert "REFUTED" in str(refuted)
    assert run(eps=9.0).passed
    assert "run more" in str(run(eps=9.0)).replace("\n", " ")
    unclaimed = run(eps=None)
    assert unclaimed.passed is None
    assert unclaimed.delta_bound is None
    assert "no claim made" in str(unclaimed)


def test_the_plot() -> None:
    mpl = pytest.importorskip("matplotlib")
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    found = audit.from_samples(*drawn("laplace", 1.0, 0.0, 4000, seed=15), eps=1.0)
    before = dict(mpl.rcParams)
    fig, ax = found.plot()
    assert dict(mpl.rcParams) == before
    lines = {line.get_label(): line.get_xydata() for line in ax.lines}
    limit = lines["claimed: eps = 1"]
    for x, y in limit[::50]:
        assert y == pytest.approx(min(1.0, math.e * x, 1 - math.exp(-1) * (1 - x)))
    observed = lines["observed"]
    assert observed[0].tolist() == [0.0, 0.0]
    assert observed[-1].tolist() == [1.0, 1.0]
    point = lines["judged event and its limits"][0]
    assert point.tolist() == [found.best.seen_other / 2000, found.best.seen / 2000]
    again, axes = plt.subplots()
    assert run(eps=None).plot(ax=axes) == (again, axes)
    plt.close(fig)
    plt.close(again)
