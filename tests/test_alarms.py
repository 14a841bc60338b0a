"""Warnings at the estimate: each rule where it must speak, and where it must not."""

import re
import warnings
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import dpstats as dp
from dpstats.alarms import RULES, Signal, alarms
from dpstats.ate.kernels import KERNELS

LIMITS = {rule.name: rule for rule in RULES}
FORMULA = "y ~ x1 + x2 + x3 + x4"


def fit(data, bounds, eps=1.0, formula=FORMULA, treat="w", **options):
    options.setdefault("rng", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dp.dp_ate(formula, treat, data, eps, bounds=bounds, **options)


def told(result, word):
    """Return the warnings that hold a word."""
    return [text for text in result.warnings if word in text]


@pytest.fixture(scope="module")
def trial():
    return dp.simulate.ate("well_specified", 20_000, rng=1)


@pytest.fixture(scope="module")
def one_sided():
    """Scores that run from 0 to 1, and 40 % of the rows where all or none are treated."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1.0, 1.0, 20_000)
    w = np.where(np.abs(x) > 0.6, x > 0.0, rng.random(x.size) < expit(2.0 * x)).astype(int)
    y = 0.5 * x + 0.2 * w + rng.normal(0.0, 0.1, x.size)
    return pd.DataFrame({"x": x, "w": w, "y": y}), {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}


def test_rules_have_names_and_sides_of_their_own():
    assert len(LIMITS) == len(RULES)
    for rule in RULES:
        beyond = rule.limit + (0.01 if rule.side == "above" else -0.01)
        within = rule.limit - (0.01 if rule.side == "above" else -0.01)
        assert len(alarms([Signal(rule.name, beyond, "AN OBJECT")])) == 1
        for quiet in (within, rule.limit, float("nan")):
            assert alarms([Signal(rule.name, quiet, "AN OBJECT")]) == ()


def test_the_gravest_comes_first():
    found = alarms(
        [Signal("bounds searched", 0.25, "y"), Signal("covariates adjusted for", 0, "x")]
    )
    assert [text.split()[0] for text in found] == ["NOT", "The"]


def test_documentation_lists_every_rule():
    path = Path(__file__).parents[1] / "docs" / "warnings.md"
    if not path.exists():
        pytest.skip("needs a checkout")
    lines = re.findall(
        r"^\| (.*) \| (above|below) (\S+) \| (.*) \|$", path.read_text(), re.MULTILINE
    )
    shown = {
        name.replace("\\|", "|"): (side, float(limit), text) for name, side, limit, text in lines
    }
    assert shown == {
        rule.name: (rule.side, rule.limit, re.sub(r"\{(value|what)[^}]*\}", "...", rule.text))
        for rule in RULES
    }


def test_a_good_result_is_not_warned_of(trial):
    for method in ("blocking", "regression"):
        assert fit(trial.data, trial.bounds, method=method).warnings == ()


def test_one_block_says_loudly_that_nothing_was_adjusted(trial):
    few = trial.data.head(500)
    result = fit(few, trial.bounds, eps=0.5)
    assert result.facts.constants[0][1] == "1"
    (text,) = told(result, "NOT ADJUSTED")
    assert "NOT ADJUSTED for x1 + x2 + x3 + x4" in text
    # a trial: there is nothing to adjust for, or it is known
    assert not told(fit(few, trial.bounds, eps=0.5, formula="y ~ 1"), "NOT ADJUSTED")
    assert not told(fit(few, trial.bounds, eps=0.5, propensity=0.5), "NOT ADJUSTED")
    assert told(fit(few, trial.bounds, eps=0.5, method="diff_means"), "NOT ADJUSTED")


def test_noise_that_could_have_made_the_estimate(trial):
    few = trial.data.head(400)
    for seed in range(8):
        result = fit(few, trial.bounds, eps=0.02, formula="y ~ 1", rng=seed)
        noise, estimate = result.noise_sd(), abs(result.params.iloc[0])
        assert noise > result.sampling_sd()
        assert bool(told(result, "noise alone")) == (estimate < 2.0 * noise)
        low, high = result.conf_int().iloc[0]
        span = np.ptp(result.facts.outcome_bounds)
        assert bool(told(result, "95% interval")) == (high - low > 0.5 * span)
    # no effect, but sampling is what limits it
    null = dp.simulate.ate("randomised", 3000, rng=2, tau=0.0)
    result = fit(null.data, null.bounds, eps=50.0, formula="y ~ 1")
    assert result.noise_sd() < result.sampling_sd()
    assert result.warnings == ()


def test_an_arm_that_cannot_be_told_from_zero(trial):
    lone = trial.data.assign(w=0.0)
    (text,) = told(fit(lone, trial.bounds, eps=0.5, blocks=1), "cannot be told from zero")
    assert "treated rows" in text
    lone["w"] = 1.0
    (text,) = told(fit(lone, trial.bounds, eps=0.5, blocks=1), "cannot be told from zero")
    assert "control rows" in text


def test_blocks_without_one_arm_are_poor_overlap(one_sided):
    data, bounds = one_sided
    result = fit(data, bounds, formula="y ~ x", blocks=10, adjust=False, eps=4.0)
    (text,) = told(result, "Poor overlap")
    table = result.blocks
    left_out = table.loc[~table["kept"], ["control", "treated"]].to_numpy().sum() / len(data)
    share = float(re.search(r"at least (\d+)%", text)[1]) / 100.0
    assert left_out > 0.15
    assert abs(share - left_out) < 0.02
    row = result.diagnostics.set_index("quantity").loc["thin blocks"]
    assert int(row["value"].split()[0]) == int((~table["kept"]).sum())
    assert f"about {left_out:.0%} of the rows" in row["reading"]


@pytest.mark.parametrize("smooth", [True, False])
def test_blocks_without_anybody_are_not_poor_overlap(smooth):
    """Scores lie between .3 and .7: the outer blocks of eight are empty, and that is no fault."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-1.0, 1.0, 20_000)
    w = (rng.random(x.size) < 0.5 + 0.2 * x).astype(int)
    y = 0.5 * x + 0.2 * w + rng.normal(0.0, 0.1, x.size)
    data, bounds = pd.DataFrame({"x": x, "w": w, "y": y}), {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}
    result = fit(data, bounds, formula="y ~ x", blocks=8, adjust=False, smooth=smooth, eps=4.0)
    table = result.blocks
    true = np.histogram(0.5 + 0.2 * x, bins=8, range=(0.0, 1.0))[0]
    assert (true[[0, 1, 6, 7]] == 0).all()
    assert table["kept"].tolist() == [False] * 2 + [True] * 4 + [False] * 2
    assert not told(result, "overlap")
    rows = result.diagnostics.set_index("quantity")
    assert rows.loc["thin blocks", "value"] == "0 of 8"
    assert rows.loc["empty blocks", "value"] == "4 of 8"
    assert "nobody" in rows.loc["empty blocks", "reading"]
    assert not any("overlap" in reading for reading in rows["reading"])
    assert float(rows.loc["smallest noisy count", "value"]) > 100
    exact = fit(data, bounds, formula="y ~ x", blocks=8, smooth=smooth, eps=float("inf"), rng=None)
    assert exact.diagnostics.set_index("quantity").loc["empty blocks", "value"] == "4 of 8"
    assert exact.warnings == ()


def test_clipped_propensities(one_sided):
    data, bounds = one_sided
    result = fit(data, bounds, formula="y ~ x", method="ipw", eps=4.0)
    shown = float(
        result.diagnostics.set_index("quantity").loc["share of clipped propensities", "value"]
    )
    assert shown > 0.1
    assert told(result, "clipped propensity") == [
        f"Poor overlap: about {shown:.0%} of the rows have a clipped propensity. Their weights are "
        "cut short, which biases the estimate."
    ]
    assert not told(
        fit(data, bounds, formula="y ~ x", method="ipw", overlap=1e-3, eps=4.0), "clipped"
    )


def test_sums_of_weights(one_sided):
    data, bounds = one_sided
    result = fit(data, bounds, formula="y ~ x", method="nipw", overlap=0.3, eps=4.0)
    rows = result.diagnostics.set_index("quantity")["value"]
    for arm in ("control", "treated"):
        off = abs(float(rows[f"sum of {arm} weights over n"]) - 1.0)
        assert bool(told(result, f"sum of {arm} weights")) == (off > 0.1)
    assert told(result, "sum of")


def test_an_outcome_model_that_noise_hides():
    # n eps = 3000 for twelve covariates
    rng = np.random.default_rng(2)
    x = rng.uniform(-1.0, 1.0, (6000, 12))
    w = (rng.random(6000) < expit(1.5 * x[:, 0])).astype(int)
    data = pd.DataFrame(x, columns=[f"x{j}" for j in range(12)])
    data = data.assign(w=w, y=0.5 * x[:, 0] + rng.normal(0.0, 0.1, 6000))
    bounds = dict.fromkeys([*data.columns[:12], "y"], (-1.0, 1.0))
    formula = "y ~ " + " + ".join(data.columns[:12])
    found = fit(data, bounds, formula=formula, method="regression", eps=0.1)
    seen = found.diagnostics.set_index("quantity").loc["adjustment seen", "value"]
    (text,) = told(found, "Noise hides")
    assert f"{seen} of it was adjusted for" in text
    assert not told(fit(data, bounds, formula=formula, method="regression", eps=20.0), "hides")


def test_bounds_that_were_searched(trial):
    result = fit(trial.data, {})
    (text,) = told(result, "not given but searched")
    spent = sum(row.epsilon for row in result.privacy.records if row.release == "bounds")
    assert spent > 0
    assert "y, x1, x2, x3, x4" in text
    assert f"for {spent / 1.0:.0%} of the budget" in text
    assert told(fit(trial.data, {k: v for k, v in trial.bounds.items() if k != "x2"}), "of x2 were")


def test_rows_outside_their_bounds(trial):
    tight = {**trial.bounds, "x1": (1.5, 2.5)}
    result = fit(trial.data, tight, check_bounds=0.2)
    outside = [
        ~trial.data[name].between(*ends) for name, ends in tight.items() if name in trial.data
    ]
    true = float(np.any(outside, axis=0).mean())
    (text,) = told(result, "outside its bounds")
    shown = float(re.search(r"At least (\d+)%", text)[1]) / 100.0
    assert true - 0.03 < shown <= true + 0.005
    assert not told(fit(trial.data, trial.bounds, check_bounds=0.2), "outside its bounds")
    assert not told(fit(trial.data, tight), "outside its bounds")


def test_covariates_that_stay_unbalanced(one_sided):
    data, bounds = one_sided
    left = fit(
        data, bounds, formula="y ~ x", blocks=2, adjust=False, smooth=False, balance=0.3, eps=9.0
    )
    row = left.balance.loc["x"]
    least = abs(row["after"]) - 2.0 * row["after_sd"]
    assert least > 0.1
    assert f"differ in x after the adjustment, by {least:.2f}" in told(left, "still differ")[0]
    trial = dp.simulate.ate("randomised", 5000, rng=1)
    even = fit(trial.data, trial.bounds, blocks=3, adjust=False, balance=0.3, eps=9.0)
    assert not told(even, "still differ")


def test_a_panel_with_too_few_donors():
    prop99 = dp.datasets.load_prop99()
    keys = {"unit": "state", "time": "year", "outcome": "cigsale", "treated": "California"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        few = dp.dp_synth(prop99.data, T0=1988, eps=1, delta=1e-6, bounds=(0, 400), rng=1, **keys)
    assert not few.reading().useful
    assert told(few, few.reading().text)
    sample = dp.simulate.panel("factor", n_donors=3000, effect=0.3, rng=1)
    many = dp.dp_synth(
        sample.data, unit="unit", time="time", outcome="y", treated=0, T0=20, eps=1, delta=1e-6
    )
    assert many.reading().useful
    assert many.warnings == ()


@pytest.mark.parametrize("method", sorted(KERNELS))
@pytest.mark.parametrize("eps", [0.3, 30.0, float("inf")])
def test_every_method_speaks_by_the_rules(trial, method, eps):
    data = dp.simulate.ate("binary", 3000, rng=1) if method == "binary" else trial
    options = {"overlap": 0.05} if np.isinf(eps) and method != "diff_means" else {}
    options = options if "overlap" in KERNELS[method].options else {}
    result = fit(data.data.head(3000), data.bounds, eps=eps, method=method, **options)
    for signal in result._signals():
        assert signal.name in LIMITS
        assert np.isfinite(signal.value)
    assert result.warnings == alarms(result._signals())
    assert all(text == text.strip() and text.endswith(".") for text in result.warnings)
    assert "{" not in "".join(result.warnings)


class _Text(HTMLParser):
    def __init__(self):
        super().__init__()
        self.text = ""

    def handle_data(self, data):
        self.text += data


def squeeze(text):
    """Return letters and digits: every format escapes the rest in its own way."""
    return re.sub(r"[^A-Za-z0-9]+", "", text)


def test_every_output_shows_them(trial, tmp_path):
    shown = fit(trial.data.head(500), trial.bounds, eps=0.1, rng=3)
    assert len(shown.warnings) >= 2
    summary = shown.summary()
    assert f"{len(shown.warnings)}, see below" in str(summary)
    outputs = [summary.as_text(), summary.as_latex(), summary.as_csv(), _text(summary.as_html())]
    for place, text in enumerate(shown.warnings, 1):
        for output in outputs:
            assert squeeze(f"W{place} {text}") in squeeze(output)
    for suffix in ("html", "md", "tex"):
        body = shown.report(tmp_path / f"r.{suffix}").read_text(encoding="utf-8")
        body = _text(body) if suffix == "html" else body
        # near the estimate: before the section on privacy
        start = re.split(r"\n(?:## |\\section\*\{)?Privacy", body)[0]
        assert len(start) < len(body)
        assert all(squeeze(text) in squeeze(start) for text in shown.warnings)
    shown.save(tmp_path / "r.json")
    assert dp.load(tmp_path / "r.json").warnings == shown.warnings
    assert shown.to_dict()["warnings"] == list(shown.warnings)


def _text(markup):
    reader = _Text()
    reader.feed(markup)
    return reader.text


def test_comparisons_name_the_columns(trial):
    few = trial.data.head(500)
    alone, both = fit(few, trial.bounds, eps=0.1), fit(few, trial.bounds, eps=0.2, rng=2)
    good = fit(trial.data, trial.bounds)
    table = dp.compare({"a": alone, "b": both, "c": good})
    text = " ".join(str(table).split())
    common = told(alone, "NOT ADJUSTED")[0]
    assert f"Warning, a, b: {common}" in text
    assert "Warning, c" not in text
    rows = {row.stub: row.cells for section in table.grid.sections for row in section}
    assert rows["Warnings"] == (
        f"{len(alone.warnings)}, see notes", f"{len(both.warnings)}, see notes", ""
    )  # fmt: skip
    assert "Warning: NOT ADJUSTED" in " ".join(str(dp.compare([alone])).split())
    assert "Warning" not in str(dp.compare([good]))
