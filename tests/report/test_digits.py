"""Digits by the standard error, the same in every output."""

import math
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpstats as dp
from dpstats.report._numbers import places, rounded, signed_places

# sizes of money, shares and rates
SCALES = [1e-6, 1e-3, 1.0, 100.0, 1e5, 1e8]


@pytest.fixture(scope="module")
def fit():
    trial = dp.simulate.ate("well_specified", 3000, rng=1)
    found = {}

    def call(scale=1.0):
        if scale not in found:
            data = trial.data.assign(y=trial.data["y"] * scale)
            bounds = {**trial.bounds, "y": tuple(scale * end for end in trial.bounds["y"])}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                formula = "y ~ x1 + x2 + x3 + x4"
                found[scale] = dp.dp_ate(formula, "w", data, 1.0, bounds=bounds, rng=1)
        return found[scale]

    return call


@given(st.floats(1e-290, 1e300), st.integers(1, 4))
def test_errors_show_the_digits_asked_for(error, digits):
    """The error is written with that many digits, or all of those before the point."""
    found = places(error, digits)
    whole = math.floor(math.log10(float(f"{error:.{digits - 1}e}"))) + 1
    assert found == max(digits - whole, 0)
    text = rounded(error, found)
    assert float(text) == pytest.approx(error, rel=0.5 * 10.0 ** (1 - digits) + 1e-12)
    assert len(text) <= 24


@pytest.mark.parametrize(
    ("error", "decimals", "text"),
    [
        (0.8635, 2, "0.86"), (0.0996, 2, "0.10"), (9.96, 0, "10"), (9.94, 1, "9.9"),
        (671.0, 0, "671"), (12345.6, 0, "12346"), (0.00204, 4, "0.0020"), (2e-7, 8, "0.00000020"),
        (0.0, None, "0"), (math.nan, None, "nan"), (math.inf, None, "inf"),
    ],
)  # fmt: skip
def test_examples(error, decimals, text):
    assert places(error) == decimals
    assert rounded(error, decimals) == text


@given(
    st.floats(-1e308, 1e308) | st.sampled_from([math.nan, math.inf, -math.inf]),
    st.none() | st.integers(0, 320),
)
def test_any_number_is_written_and_short(value, decimals):
    text = rounded(value, decimals)
    assert len(text) <= 36
    assert float(text) == pytest.approx(value, abs=10.0 ** -(decimals or 0), rel=6e-4, nan_ok=True)
    assert not re.fullmatch(r"-0\.?0*", text)


def written(result, **options):
    """Return coefficient, error and interval as each output writes them."""
    summary = result.summary(**options)
    row = next(x for x in str(summary).splitlines() if x.startswith("ATE"))
    coef, error, _, _, low, high = row.split()[1:]
    table = dp.compare([result], ci=True, **options).grid.sections[0]
    estimate, below, interval = (line.cells[0] for line in table)
    assert (estimate, below) == (coef, f"({error})")
    assert interval == f"[{low}, {high}]"
    html = re.sub(r"<[^>]*>", " ", summary.as_html()).split()
    latex = summary.as_latex().replace("$", "")
    for number in (coef, error, low, high):
        assert number in html
        assert number in latex
    return coef, error, low, high


@pytest.mark.parametrize("scale", SCALES)
def test_every_output_writes_the_same(fit, tmp_path, scale):
    result = fit(scale)
    coef, error, low, high = written(result)
    truth = float(result.bse["ATE"])
    assert "e" not in coef + error + low + high
    significant = len(error.replace(".", "").lstrip("0"))
    assert significant == max(2, math.floor(math.log10(truth)) + 1)
    if truth < 10.0:
        # oracle: decimal rounding to two digits
        assert float(error) == float(f"{truth:.2g}")
    after = [len(x.partition(".")[2]) for x in (coef, error, low, high)]
    assert len(set(after)) == 1
    assert abs(float(coef) - result.params["ATE"]) <= 0.5 * 10.0 ** -after[0] * (1 + 1e-9)
    text = result.report(tmp_path / "r.md").read_text(encoding="utf-8")
    assert f"The estimate is {coef} with a standard error of {error}" in text
    assert f"runs from {low} to {high}" in text
    assert re.search(rf"\| ATE \|\s+{re.escape(coef)} \|\s+{re.escape(error)} \|", text)
    assert f"({error})" in text


def test_plots_write_the_same(fit):
    pytest.importorskip("matplotlib")
    result = fit()
    coef, _, low, high = written(result)
    label = f"{coef}  [{low}, {high}]".replace("-", "\N{MINUS SIGN}")
    for _, ax in (result.plot("effect"), dp.compare([result]).plot()):
        assert label in [text.get_text() for text in ax.texts]


@given(st.floats(1e-6, 1e6), st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2))
def test_the_side_of_zero_is_seen(error, ends):
    """Fewest digits, not below those of the error, with which no end reads as zero."""
    found = signed_places(error, ends)
    least = places(error)
    seen = [end for end in ends if end != 0 and abs(end) >= 1e-15]
    assert found >= least
    for end in seen:
        # as it is written: in scientific notation where many digits would be needed
        written = float(rounded(end, found))
        assert (written > 0) == (end > 0)
        assert (written < 0) == (end < 0)
    if found > least and len(seen) == len([end for end in ends if end != 0]):
        assert any(float(rounded(end, found - 1)) == 0 for end in seen)


def test_an_end_near_zero_keeps_its_sign_everywhere(fit, tmp_path, monkeypatch):
    """The sentence, the tables and the plots agree on what the interval covers."""
    pytest.importorskip("matplotlib")
    result = fit(100.0)
    ends = pd.DataFrame([[-400.0, -0.0123]], index=result.params.index)
    monkeypatch.setattr(type(result), "conf_int", lambda *_, **__: ends.copy())
    _, error, low, high = written(result)
    assert (low, high) == ("-400.00", "-0.01")
    assert error == f"{result.bse['ATE']:.2f}"
    text = result.report(tmp_path / "r.md").read_text(encoding="utf-8")
    assert "runs from -400.00 to -0.01; it does not cover zero" in text
    label = "[-400.00, -0.01]".replace("-", "\N{MINUS SIGN}")
    for _, ax in (result.plot("effect"), dp.compare([result]).plot()):
        assert [text for text in ax.texts if text.get_text().endswith(label)]
    # no interval, no need
    assert dp.compare([result]).grid.sections[0][1].cells[0] == f"({result.bse['ATE']:.1f})"
    # digits that were asked for stay
    assert written(result, decimals=1)[3] == "0.0"


@pytest.mark.parametrize("decimals", [0, 1, 4, 10])
def test_decimals_override(fit, tmp_path, decimals):
    result = fit(100.0)
    coef, error, _, _ = written(result, decimals=decimals)
    assert coef == f"{result.params['ATE']:.{decimals}f}"
    assert error == f"{result.bse['ATE']:.{decimals}f}"
    text = result.report(tmp_path / "r.md", decimals=decimals).read_text(encoding="utf-8")
    assert f"The estimate is {coef} with" in text


@pytest.mark.parametrize("decimals", [-1, 11, 1.5, True, "2", math.nan])
def test_decimals_are_checked(fit, tmp_path, decimals):
    for call in (
        lambda: fit().summary(decimals=decimals),
        lambda: dp.compare([fit()], decimals=decimals),
        lambda: fit().report(tmp_path / "r.md", decimals=decimals),
    ):
        with pytest.raises(dp.DPStatsError, match="`decimals` must be an integer from 0 to 10"):
            call()
    assert list(tmp_path.iterdir()) == []
    assert fit().summary(decimals=np.int64(2))


def test_each_coefficient_has_its_own_digits():
    fake = SimpleNamespace(
        params=pd.Series({"dollars": 1794.3, "share": 0.0123456}),
        bse=pd.Series({"dollars": 670.9, "share": 0.0031}),
        pvalues=pd.Series({"dollars": 0.5, "share": 0.5}),
        nobs=10,
    )
    rows = [row.cells[0] for row in dp.compare([fake]).grid.sections[0]]
    assert rows == ["1794", "(671)", "0.0123", "(0.0031)"]


def test_periods_of_a_panel_share_their_digits():
    panel = dp.simulate.panel("factor", n_donors=500, effect=0.3, rng=1)
    result = dp.dp_synth(
        panel.data, unit="unit", time="time", treated=0, outcome="y", T0=20,
        eps=math.inf, method="did",
    )  # fmt: skip
    (table,) = (x for x in result._summary_content(0.1).tables if x.title == "Effect by period")
    assert len({len(cell.partition(".")[2]) for row in table.rows for cell in row[1:]}) == 1
    ends = result.conf_int(0.1, which="periods").to_numpy()
    error = np.min(ends[:, 1] - ends[:, 0]) / 2 / 1.6448536269514722
    assert len(table.rows[0][1].partition(".")[2]) == 1 - math.floor(math.log10(error))


def test_releases_are_not_in_scientific_notation_without_need(fit):
    text = str(fit(1e4).summary())
    rows = text[text.index("Noisy releases") : text.index("Notes")]
    assert "e+0" not in rows
