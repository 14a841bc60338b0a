"""Nothing of the rows leaves a call, except through noise.

The search is for raw values, for exact statistics (counts, sums, means, ranges, coefficients) and
for their digits, in everything reachable from a result, in everything it prints, and in every
error, warning and log record. Positive controls: the search finds them where no noise is added.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import logging
import pickle
import re
import struct
import warnings
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

import dpstats as dp
from dpstats.ate import model
from dpstats.ate.kernels import KERNELS
from dpstats.cli import main

INF = float("inf")
N = 400
BOUNDS = {"y": (7000.0, 9000.0), "x1": (3000.0, 4000.0), "x2": (-1.0, 1.0)}
METHODS = list(KERNELS)
METHOD_OPTIONS = ("balance", "folds", "subsets", "train_share", "adjust")
# they fit a logit of their own in each subset, or none
SUBSETS = ["agg_nipw", "agg_ipw", "agg_aipw", "agg_regression", "binary"]


@pytest.fixture(scope="module")
def data():
    """Values that cannot be there by accident: 8123.456 and the like."""
    rng = np.random.default_rng(8)
    x1 = 3333.123 + rng.permutation(N) + rng.random(N) / 8
    x2 = rng.uniform(-1, 1, N)
    w = (rng.random(N) < 1 / (1 + np.exp(-(x1 - 3533) / 80))).astype(int)
    y = 7777.123 + 100 * w + 0.5 * (x1 - 3333) + rng.normal(0, 20, N)
    g = rng.choice(["a", "b"], N).astype(object)
    return pd.DataFrame({"y": y, "w": w, "x1": x1, "x2": x2, "g": g})


def atoms(value, seen=None):
    """Every number and string reachable from a value, through any container or attribute."""
    seen = set() if seen is None else seen
    if value is None or isinstance(value, type | bool | np.bool_):
        return
    if isinstance(value, int | float | np.integer | np.floating | str | bytes):
        yield value
        return
    if id(value) in seen or (callable(value) and not dataclasses.is_dataclass(value)):
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        yield from value.ravel().tolist()
    elif isinstance(value, pd.DataFrame):
        yield from atoms(value.to_dict("list"), seen)
        yield from atoms(list(value.index), seen)
    elif isinstance(value, pd.Series | pd.Index):
        yield from value.tolist()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from atoms(key, seen)
            yield from atoms(item, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from atoms(item, seen)
    else:
        for name in attributes(value):
            yield from atoms(getattr(value, name, None), seen)


def attributes(value):
    names = list(getattr(value, "__dict__", ()))
    for kind in type(value).__mro__:
        slots = getattr(kind, "__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return names


def views(result):
    """Everything a result shows, also what is computed on request."""
    yield from (result.params, result.bse, result.tvalues, result.pvalues, result.conf_int())
    yield from (result.tidy(), result.glance(), result.diagnostics, result.privacy.releases)
    yield result.to_dict()
    yield [result.noise_sd(), result.sampling_sd()]
    for name in result.facts.estimands:
        yield result.estimand(name).params
    if result.method in ("blocking", "diff_means"):
        yield result.blocks
    if result.covariates is not None:
        yield result.balance
    yield dp.compare([result]).effects


def texts(result, path):
    summary = result.summary()
    yield from (str(result), repr(result), result._repr_html_(), result.privacy.statement())
    yield from (summary.as_text(), summary.as_html(), summary.as_latex(), summary.as_csv())
    full = result.summary(diagnostics=True)
    yield from (full.as_text(), full.as_html(), full.as_latex(), full.as_csv())
    table = dp.compare([result], stars=True)
    yield from (table.as_text(), table.as_html(), table.as_latex(), table.as_markdown())
    yield from (repr(result.facts), repr(result.released), repr(result.privacy))
    yield json.dumps(result.to_dict())
    result.save(path)
    yield path.read_text(encoding="utf-8")


def held(result):
    """Every attribute; not the cache of simulated errors, which follows from them and a seed."""
    return {name: value for name, value in vars(result).items() if name != "_inference"}


def numbers_of(result):
    found = [a for a in atoms(held(result)) if not isinstance(a, str | bytes)]
    for view in views(result):
        found += [a for a in atoms(view) if not isinstance(a, str | bytes)]
    values = np.array([float(a) for a in found])
    return np.unique(values[np.isfinite(values)])


def matches(found, secrets, rtol=1e-9):
    """Secrets that are among the numbers found."""
    hits = []
    for name, secret in secrets:
        near = np.abs(found - secret) <= rtol * abs(secret)
        if near.any():
            hits.append((name, secret))
    return hits


@functools.cache
def digits(value):
    """Text forms of a secret that are long enough not to be there by accident."""
    forms = {repr(float(value)), f"{value:.8g}", f"{value:.10g}", f"{value:.4f}", f"{value:.6f}"}
    return tuple(form for form in forms if sum(map(str.isdigit, form.lstrip("-0."))) >= 8)


def printed(text, secrets):
    """Secrets whose digits are in a text."""
    long = {token for token in re.findall(r"[-+.\de]+", text) if sum(map(str.isdigit, token)) >= 8}
    text = " ".join(sorted(long))
    return [(name, s) for name, s in secrets if any(form in text for form in digits(s))]


def pickled(content, secrets):
    """Secrets whose eight bytes are in a pickle, in either order."""
    return [
        (name, s)
        for name, s in secrets
        if struct.pack("<d", s) in content or struct.pack(">d", s) in content
    ]


def scaled(values, low, high):
    middle, half = (low + high) / 2, (high - low) / 2
    return (values - middle) / half, values - middle


def raw_values(data):
    """Each row's values, also as the estimators use them."""
    for name in ("y", "x1", "x2"):
        for value in data[name]:
            yield name, float(value)
        for moved in scaled(data[name].to_numpy(), *BOUNDS[name]):
            for value in moved:
                yield f"scaled {name}", float(value)


def exact_statistics(data):
    """Counts, sums, means, variances and ranges, over everybody and by arm."""
    y, w = data["y"].to_numpy(), data["w"].to_numpy()
    unit, centred = scaled(y, *BOUNDS["y"])
    for label, rows in (("all", w >= 0), ("treated", w == 1), ("control", w == 0)):
        for kind, values in (("y", y), ("centred y", centred), ("scaled y", unit)):
            yield f"sum of {kind}, {label}", values[rows].sum()
            yield f"mean of {kind}, {label}", values[rows].mean()
            yield f"sum of squared {kind}, {label}", (values[rows] ** 2).sum()
            yield f"variance of {kind}, {label}", values[rows].var()
            yield f"variance of {kind}, {label}", values[rows].var(ddof=1)
        for name in ("x1", "x2", "y"):
            yield f"mean of {name}, {label}", data[name][rows].mean()
            yield f"smallest {name}, {label}", data[name][rows].min()
            yield f"largest {name}, {label}", data[name][rows].max()
    difference = y[w == 1].mean() - y[w == 0].mean()
    yield "difference in means", difference
    yield "scaled difference in means", difference / 1000
    yield "share of treated", w.mean()


def counts(data):
    treated = int(data["w"].sum())
    yield "treated rows", float(treated)
    yield "control rows", float(len(data) - treated)


def coefficients(data, penalty, row_norm, names=("x1", "x2")):
    """A logistic regression without noise, by another optimiser."""
    X = np.column_stack(
        [np.full(len(data), 0.5)]
        + [scaled(data[name].to_numpy(), *BOUNDS[name])[0] for name in names]
    )
    if row_norm:
        X = X / np.maximum(np.linalg.norm(X, axis=1), row_norm)[:, None]
    s = 2 * data["w"].to_numpy() - 1

    def objective(b):
        margin = s * (X @ b)
        fitted = 1 / (1 + np.exp(margin))
        return (
            np.logaddexp(0, -margin).sum() + penalty / 2 * b @ b,
            -(X * (s * fitted)[:, None]).sum(axis=0) + penalty * b,
        )

    found = minimize(
        objective, np.zeros(X.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9}
    )
    return [(f"coefficient {j}", float(b)) for j, b in enumerate(found.x)]


class Silent:
    """A broken source: no noise at all."""

    seeded = False

    def laplace(self, name, values, scale):
        return values

    gaussian = laplace

    def knorm(self, name, dimension, scale, ball):
        return np.zeros(dimension)

    def normal(self, name, dimension, scale):
        return np.zeros(dimension)


def run(data, formula="y ~ x1 + x2", **options):
    method = options.get("method", "blocking")
    if method == "blocking":
        options.setdefault("blocks", 3)
    # options of other methods would be refused
    strange = {*METHOD_OPTIONS}.difference(KERNELS[method].method_options)
    options = {name: value for name, value in options.items() if name not in strange}
    options.setdefault("bounds", BOUNDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dp.dp_ate(formula, "w", data, options.pop("eps", 1.0), **options)


CALLS = {
    "system": {"rng": None},
    "laplace": {},
    "gaussian": {"delta": 1e-5},
    "att": {"estimand": "att"},
    "published": {"split": "published"},
    "output": {"propensity": dp.propensity.Output()},
    "known": {"propensity": 0.4},
    "levels": {"formula": "y ~ x1 + g", "levels": {"g": ["a", "b"]}},
    "drop": {"missing": "drop"},
    "large eps": {"eps": 8.0},
    "residuals": {"adjust": True, "eps": 12.0},
    "atc": {"estimand": "atc"},
    "ato": {"estimand": "ato"},
    "overlap": {"overlap": 0.25},
    "balance": {"balance": 0.3},
    "balance, gaussian": {"balance": 0.3, "delta": 1e-5},
    # a share at which no public scale has the digits of a row
    "outside": {"check_bounds": 0.2, "bounds": {**BOUNDS, "x1": (3300.0, 3600.0)}},
    "outside, gaussian": {
        **{"formula": "y ~ x1 + g", "levels": {"g": ["a", "c"]}},
        **{"check_bounds": 0.2, "delta": 1e-5},
    },
    "parts": {"folds": 4, "subsets": 7, "train_share": 0.3},
    "rows": {"rows_per_person": 3},
    "propensity": {"propensity": "~ x2"},
    "found": {"formula": "y ~ x1", "bounds": None, "eps": 40.0},
}


def serves(method, call):
    """Whether the method takes the options of a call; others would only be refused."""
    kernel, options = KERNELS[method], CALLS[call]
    own = set(METHOD_OPTIONS).intersection(options)
    if own and not own.intersection(kernel.method_options):
        return False
    if call == "output" or (call in ("overlap", "propensity") and method == "diff_means"):
        return method not in (*SUBSETS, "diff_means", "regression")
    if call == "published" and method in SUBSETS[:4]:
        # it leaves no share to the variances
        return False
    return options.get("estimand", "ate") in kernel.estimands


SERVED = [(method, call) for method in METHODS for call in CALLS if serves(method, call)]


@pytest.mark.parametrize(("method", "call"), SERVED)
def test_results_hold_no_raw_value_and_no_exact_statistic(data, method, call, tmp_path):
    # a seed, so that no number can be near a secret by accident on some days only
    options = {"rng": 5, **CALLS[call]}
    result = run(data, options.pop("formula", "y ~ x1 + x2"), method=method, **options)
    raw, exact = list(raw_values(data)), list(exact_statistics(data))
    hidden = raw + exact
    found = numbers_of(result)
    assert matches(found, raw, 1e-13) == []
    assert matches(found, exact, 1e-12 if call == "system" else 1e-7) == []
    rough = coefficients(data, 0.0, None) + coefficients(data, 2.0, None)
    assert matches(found, rough, 1e-6) == []
    content = pickle.dumps(result)
    assert pickled(content, hidden) == []
    text = "\n".join(texts(result, tmp_path / "r.json"))
    assert printed(text, hidden) == []
    for start in ("7777.", "3333."):
        assert start not in text
    # nothing as long as the data is kept at all
    assert max(map(len, arrays(held(result))), default=0) < N
    # the cache of the inference is the one that a reader of the pickle would make
    again = pickle.loads(content)
    for key, row in result._inference.items():
        np.testing.assert_array_equal(row.errors, again._inference[key].errors)


def arrays(value, seen=None):
    """Every sized container reachable from a result, flattened."""
    seen = set() if seen is None else seen
    if id(value) in seen or value is None or isinstance(value, str | bytes | int | float):
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        yield value.ravel()
    elif isinstance(value, Mapping):
        yield list(value)
        for item in value.values():
            yield from arrays(item, seen)
    elif isinstance(value, list | tuple | set):
        yield list(value)
        for item in value:
            yield from arrays(item, seen)
    elif not callable(value):
        for name in attributes(value):
            yield from arrays(getattr(value, name, None), seen)


@pytest.mark.parametrize("method", ["blocking", "diff_means"])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_counts_are_noisy(data, method, delta):
    """With fixed seeds, so that no lucky draw of zero fails the test."""
    for seed in range(3):
        result = run(data, method=method, rng=seed, eps=0.3, blocks=1, delta=delta)
        assert matches(numbers_of(result), counts(data)) == []


# the numbers of the others are not recomputed here
@pytest.mark.parametrize("method", ["blocking", "ipw", "diff_means"])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_search_finds_what_a_broken_source_gives_away(
    data, monkeypatch, method, delta, tmp_path
):
    monkeypatch.setattr(model, "noise_source", lambda rng: Silent())
    # on the grid of the sums, so that they come out to the last digit
    data = data.assign(y=np.round(data["y"] * 1.024) / 1.024)
    options = {"blocks": 1} if method == "blocking" else {}
    penalty, norm = 20.0, 0.8
    options["propensity"] = dp.propensity.Objective(penalty=penalty, row_norm=norm)
    result = run(data, method=method, delta=delta, **options)
    found = numbers_of(result)
    hits = dict(matches(found, [*exact_statistics(data), *counts(data)]))
    if method == "ipw":
        rough = coefficients(data, penalty, norm)
        assert len(matches(found, rough, 1e-3)) == len(rough)
        y, w = scaled(data["y"].to_numpy(), *BOUNDS["y"])[1], data["w"].to_numpy()
        e = np.clip(fitted(data, rough, norm), 0.1, 0.9)
        score = np.mean(w * y / e - (1 - w) * y / (1 - e))
        assert matches(found, [("score", score)], 1e-3)
        return
    assert "treated rows" in hits
    assert "control rows" in hits
    assert "sum of centred y, treated" in hits or "sum of scaled y, treated" in hits
    assert "difference in means" in hits
    assert any(pickled(pickle.dumps(result), list(counts(data))))
    sums = [(k, v) for k, v in hits.items() if k.startswith("sum of")]
    assert any(printed(text, sums) for text in texts(result, tmp_path / "r.json"))


def test_the_search_finds_moments_that_a_broken_source_gives_away(data, monkeypatch):
    monkeypatch.setattr(model, "noise_source", lambda rng: Silent())
    for method in ("regression", "aipw"):
        found = numbers_of(run(data, method=method))
        # rows of a moment are (sqrt .4, ...), rounded to 2**-20
        assert len(matches(found / 0.4, list(counts(data)), 1e-5)) == 2


def fitted(data, named, row_norm):
    X = np.column_stack(
        [np.full(len(data), 0.5)]
        + [scaled(data[name].to_numpy(), *BOUNDS[name])[0] for name in ("x1", "x2")]
    )
    X = X / np.maximum(np.linalg.norm(X, axis=1), row_norm)[:, None]
    return 1 / (1 + np.exp(-X @ np.array([b for _, b in named])))


def test_the_search_finds_raw_values_and_digits(data):
    """Controls for each part of the search by itself."""
    secrets = list(raw_values(data))
    assert matches(np.array([1.0, data["y"].iloc[7]]), secrets)

    class Holder:
        __slots__ = ("inside",)

    for hide in (
        lambda v: {"a": [{"b": v}]},
        lambda v: (np.array([[v]]),),
        lambda v: pd.DataFrame({"x": [v]}),
        lambda v: pd.Series([v]),
        lambda v: {v: 1},
    ):
        holder = Holder()
        holder.inside = hide(float(data["x1"].iloc[3]))
        assert matches(np.array([a for a in atoms(holder) if not isinstance(a, str)]), secrets)
    for form in (".4f", ".8g", ".10g", "r"):
        shown = repr(float(data["y"].iloc[0])) if form == "r" else f"{data['y'].iloc[0]:{form}}"
        assert printed(f"...({shown}) ...", secrets)
    assert pickled(pickle.dumps([float(data["y"].iloc[0])]), secrets)
    assert pickled(pickle.dumps(data["y"].to_numpy()), secrets)
    assert max(map(len, arrays([data["y"].to_numpy()]))) == N


class Telltale:
    """A propensity of the user's that fails and says why."""

    def fit(self, X, W, *, eps, delta, source):
        raise ValueError(f"{X[3, 1]!r} {int(W.sum())} 7777.123")


def broken(data, **change):
    return data.assign(**change)


FAILING = {
    "missing": lambda d: (broken(d, y=d["y"].where(d.index != 3)), {}),
    "missing covariate": lambda d: (broken(d, x1=d["x1"].where(d["x1"] < 3400)), {}),
    "treatment codes": lambda d: (broken(d, w=d["y"]), {}),
    "treatment text": lambda d: (broken(d, w=d["y"].astype(str)), {}),
    "treatment categories": lambda d: (broken(d, w=d["w"].map({0: "no", 1: "yes"})), {}),
    "text": lambda d: (broken(d, x1=d["x1"].astype(str)), {}),
    "objects": lambda d: (broken(d, y=d["y"].astype(object)), {}),
    "formula": lambda d: (d, {"formula": "y ~ center(x1)"}),
    "undefined": lambda d: (d, {"formula": "y ~ np.log(x2)"}),
    "typo": lambda d: (d, {"formula": "y ~ x3"}),
    "bounds": lambda d: (d, {"bounds": {**BOUNDS, "y": (1, 1)}}),
    "too few rows": lambda d: (d.head(40), {"bounds": None}),
    "private bounds": lambda d: (
        broken(d, y=np.ldexp(np.where(np.arange(N) % 2, 1.0, -1.0), np.arange(N) % 75 - 20)),
        {"bounds": {"x1": (0, 1), "x2": (0, 1)}, "rng": 1},
    ),
    "eps": lambda d: (d, {"eps": -1}),
    "split": lambda d: (d, {"split": {"sums": 1.0}}),
    "propensity": lambda d: (d, {"propensity": "zzz"}),
    "ledger": lambda d: (d, {"ledger": 3}),
    "foreign propensity": lambda d: (d, {"propensity": Telltale()}),
    "foreign propensity, no noise": lambda d: (d, {"propensity": Telltale(), "eps": INF}),
    "separated, no noise": lambda d: (
        broken(d, w=(d["x1"] > 3500).astype(int)),
        {"eps": INF, "bounds": None},
    ),
    "one arm, no noise": lambda d: (broken(d, w=1), {"eps": INF, "bounds": None}),
    "infinite, no noise": lambda d: (
        broken(d, y=d["y"].where(d.index != 3, INF)),
        {"eps": INF, "bounds": None},
    ),
    "undefined, no noise": lambda d: (
        d,
        {"formula": "y ~ np.log(x1 - 3600)", "eps": INF, "bounds": None},
    ),
    "undefined outcome, no noise": lambda d: (
        d,
        {"formula": "np.log(y - 7900) ~ x1", "eps": INF, "bounds": None},
    ),
}


def chain(error):
    while error is not None:
        yield error
        if error.__cause__ is not None:
            yield from chain(error.__cause__)
        error = error.__context__


@pytest.mark.parametrize("failing", FAILING)
@pytest.mark.parametrize("method", METHODS)
def test_errors_hold_no_value(data, caplog, capsys, method, failing):
    frame, options = FAILING[failing](data)
    options = {"bounds": BOUNDS, "method": method, **options}
    formula, eps = options.pop("formula", "y ~ x1 + x2"), options.pop("eps", 1.0)
    if method == "blocking":
        options.setdefault("blocks", 3)
    caught = None
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            dp.dp_ate(formula, "w", frame, eps, **options)
        except Exception as error:
            caught = error
    right_side = {
        "missing covariate",
        "text",
        "undefined",
        "propensity",
        "separated, no noise",
        "undefined, no noise",
        "too few rows",
    }
    harmless = method == "diff_means" and failing in right_side
    foreign = failing.startswith("foreign")
    harmless |= foreign and method in ("diff_means", "regression", "agg_regression")
    # they fit no propensity, or small ones with a ridge
    harmless |= method in ("regression", *SUBSETS) and failing == "separated, no noise"
    if not harmless:
        assert isinstance(caught, dp.DPStatsError), caught
    shown = [str(item.message) for item in warned]
    shown += [record.getMessage() for record in caplog.records]
    shown += list(capsys.readouterr())
    for error in chain(caught):
        shown += [str(error), repr(error), repr(error.args), repr(vars(error))]
        shown += list(getattr(error, "__notes__", ()))
    secrets = [*raw_values(data), *exact_statistics(data)]
    assert printed(" ".join(shown), secrets) == []
    for text in shown:
        for start in ("7777.", "3333.", "8123."):
            assert start not in text
        for count in (
            int(data["w"].sum()),
            int(frame["y"].isna().sum()),
            int(frame["x1"].isna().sum()),
        ):
            if count > 1:
                assert str(count) not in text.split()


@pytest.mark.parametrize("method", METHODS)
def test_good_calls_are_silent(data, caplog, capsys, method):
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings():
        warnings.simplefilter("error")
        options = {"blocks": 3} if method == "blocking" else {}
        # so much budget that no method warns of its noise
        result = dp.dp_ate("y ~ x1 + x2", "w", data, 8.0, bounds=BOUNDS, method=method, **options)
        str(result)
    assert not [r for r in caplog.records if r.name.startswith("dpstats")]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("suffix", ["html", "tex", "md"])
@pytest.mark.parametrize("method", METHODS)
def test_written_reports_hold_no_value(data, tmp_path, method, suffix):
    pytest.importorskip("matplotlib")
    result = run(data, method=method, balance=0.3, rng=5)
    secrets = [*raw_values(data), *exact_statistics(data)]
    result.report(tmp_path / f"r.{suffix}")
    written = [path for path in tmp_path.iterdir() if path.suffix in (".html", ".tex", ".md")]
    assert written
    for path in written:
        text = path.read_text(encoding="utf-8")
        # pictures are pixels: their digits are no numbers
        text = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
        assert printed(text, secrets) == []
        for start in ("7777.", "3333."):
            assert start not in text


@pytest.mark.parametrize("method", METHODS)
def test_the_command_line_shows_no_value(data, tmp_path, capsys, method):
    """Both of its streams, for calls that work and calls that fail."""
    data.to_csv(tmp_path / "people.csv", index=False)
    broken(data, x1=data["x1"].where(data["x1"] < 3400)).to_csv(tmp_path / "gaps.csv", index=False)
    broken(data, w=data["y"]).to_csv(tmp_path / "codes.csv", index=False)
    broken(data, x1=data["x1"].astype(str) + "x").to_csv(tmp_path / "text.csv", index=False)
    secrets = [*raw_values(data), *exact_statistics(data)]
    for name, works in (("people", True), ("gaps", False), ("codes", False), ("text", False)):
        words = ["ate", "y ~ x1 + x2", "--treat", "w", "--eps", "8", "--method", method]
        words += ["--data", str(tmp_path / f"{name}.csv"), "--seed", "5"]
        config = tmp_path / "study.toml"
        pairs = [f"{key} = [{low}, {high}]" for key, (low, high) in BOUNDS.items()]
        config.write_text("[bounds]\n" + "\n".join(pairs) + "\n", encoding="utf-8")
        code = main([*words, "--config", str(config)])
        shown = capsys.readouterr()
        if works or method != "diff_means":
            assert (code == 0) is works, shown.err
        assert shown.err
        for text in (shown.out, shown.err):
            assert "Traceback" not in text
            assert printed(text, secrets) == []
            for start in ("7777.", "3333.", "8123."):
                assert start not in text


def test_errors_of_audits_hold_no_value(data):
    """A release that fails, or that returns something else on the second file."""
    value = float(data["y"].iloc[3])

    def uneven(values, rng):
        return values[: 1 + int(values[0] > 7000)]

    def text(values, rng):
        return f"y is {values[3]}"

    def pairs():
        return data["y"].to_numpy(), np.zeros(N)

    secrets = [*raw_values(data)]
    for release in (uneven, text):
        with pytest.raises(dp.DPStatsError) as caught:
            dp.audit.lower_bound(release, *pairs(), eps=1, trials=40, progress=False, rng=1)
        shown = [f"{error} {error!r} {vars(error)}" for error in chain(caught.value)]
        assert printed(" ".join(shown), secrets) == []
        assert f"{value:.3f}"[:7] not in " ".join(shown)
    with pytest.raises(dp.DPStatsError) as caught:
        dp.audit.neighbours(data, "not rows")
    assert printed(" ".join(map(str, chain(caught.value))), secrets) == []


def test_the_report_holds_no_value(data):
    pytest.importorskip("matplotlib")
    import matplotlib.pyplot as plt

    result = run(data, method="blocking")
    secrets = [*raw_values(data), *exact_statistics(data)]
    for kind in ("effect", "blocks", "overlap", "budget"):
        figure, _ = result.plot(kind)
        file = io.StringIO()
        with plt.rc_context({"svg.fonttype": "none"}):
            figure.savefig(file, format="svg")
        assert printed(file.getvalue(), secrets) == []
        drawn = [line.get_xydata() for axis in figure.axes for line in axis.lines]
        values = np.concatenate([d.ravel() for d in drawn]) if drawn else np.zeros(1)
        assert matches(values, secrets) == []
        plt.close(figure)


def test_nothing_is_remembered_between_calls(data):
    """No cache of the package holds rows: the frame's memory is free after the call."""
    import gc
    import weakref

    class Table(pd.DataFrame):
        pass

    frame = Table(data.copy())
    result = run(frame, method="blocking")
    str(result)
    gone = weakref.ref(frame)
    del frame
    gc.collect()
    assert gone() is None


ROWS = [
    {"x1": 3000.0},
    {"x1": 4000.0},
    {"x1": 0.0},
    {"x1": -0.0},
    {"x1": INF},
    {"x1": -INF},
    {"x1": 1e308},
    {"x1": 5e-324},
    {"x1": 3500.0},
    {"y": INF},
    {"y": -1e308},
    {"y": 8000.0},
    {"y": 7000.0},
    {"x2": 0.0},
    {"x2": 1e-320},
    {"w": 0},
    {"w": 1},
    {"g": "a"},
    {"g": "b"},
    {"p": 0.0},
    {"p": 1.0},
    {"p": 17.0},
    {"p": -INF},
    {"p": 0.5},
]
QUESTIONS = {
    "plain": {},
    "terms": {"formula": "y ~ np.log(x1) + I(1 / x1) + np.sqrt(x1 - 3000) + I(x1**2) + x1:x2"},
    "where": {"formula": "y ~ np.where(x1 > 3500, x2, -x2) + (x1 == 3500) + I(x1 // 1)"},
    "powers": {"formula": "y ~ I(x1 ** 80) + I((x1 - 3500) ** -0) + np.exp(x2)"},
    "outcome": {"formula": "np.log(y - 6999) ~ x1"},
    "levels": {"formula": "y ~ g * x1", "levels": {"g": ["a", "b"]}},
    "no width": {"formula": "y ~ I(x2 * 1e-320) + I(x1 * 0)"},
    "huge": {"formula": "y ~ I(x2 * 1.7e308) + I(x1 * 4e304)"},
    "known": {"propensity": "p"},
    "known at inf": {"propensity": "p", "overlap": 0.4},
    "drop": {"missing": "drop"},
    "private bounds": {"bounds": None, "formula": "y ~ x1", "eps": 40.0},
    "output": {"propensity": dp.propensity.Output()},
    "treated": {"treated": 1, "delta": 1e-3},
    "balance": {"balance": 0.3},
    "outside": {"check_bounds": 0.2},
    "outside levels": {
        **{"formula": "y ~ g * x1", "levels": {"g": ["a", "b"]}, "check_bounds": 0.2},
    },
    "outside, found": {"bounds": None, "formula": "y ~ x1", "eps": 40.0, "check_bounds": 0.1},
    "adjust": {"adjust": True, "eps": 12.0},
    "published": {"split": "published"},
    "overlap": {"overlap": 0.01, "eps": 0.1},
    "rows": {"rows_per_person": 4, "eps": 0.05},
}


def outcome_of(data, options, show=False):
    """What can be seen of a call for free: the error, if any, and the warnings."""
    options = dict(options)
    options.setdefault("bounds", BOUNDS)
    error = None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            result = dp.dp_ate(
                options.pop("formula", "y ~ x1 + x2"),
                "w",
                data,
                options.pop("eps", 1.0),
                rng=1,
                **options,
            )
            if show:
                str(result)
        except Exception as caught:
            error = f"{type(caught).__name__}: {caught}"
    return error, [(item.category, str(item.message)) for item in warned]


ASKED = [
    (method, question)
    for method in METHODS
    for question in QUESTIONS
    if not (question == "output" and method in SUBSETS)
    and set(QUESTIONS[question]).isdisjoint({*METHOD_OPTIONS} - {*KERNELS[method].method_options})
]


@pytest.mark.parametrize(("method", "question"), ASKED)
def test_no_free_question(data, method, question):
    """One row replaced by any valid other: the same error or none, the same warnings."""
    options = {"method": method, **QUESTIONS[question]}
    if method == "blocking":
        options["blocks"] = 3
    frame = data.assign(p=0.25 + (data["x2"] + 1) / 4)
    expected = outcome_of(frame, options)
    if question not in ("powers", "published"):
        assert expected[0] is None
    for row in ROWS:
        changed = frame.copy()
        for name, value in row.items():
            changed.loc[N - 1, name] = value
        assert outcome_of(changed, options) == expected, row


@pytest.mark.parametrize("method", METHODS)
def test_whole_frames_are_no_free_question_either(data, method):
    """Not one row but all of them: arms, ties, constants, infinities."""
    options = {"method": method, "blocks": 3} if method == "blocking" else {"method": method}
    expected = outcome_of(data, options, show=True)
    assert expected[0] is None
    for change in (
        {"w": 0},
        {"w": 1},
        {"w": (data["x1"] > 3500).astype(int)},
        {"y": 7000.0},
        {"y": INF},
        {"x1": -INF, "x2": INF},
        {"x1": 3500.0, "x2": 0.0},
        {"x1": data["y"], "x2": data["y"]},
    ):
        found = outcome_of(data.assign(**change), options, show=True)
        assert found == expected, list(change)
