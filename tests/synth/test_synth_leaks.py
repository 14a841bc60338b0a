"""Nothing of the donors leaves a call, except through noise.

Searched: raw cells, labels, means, ranges, in everything a result holds or prints. The positive
control finds them where no noise is added.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import struct
import warnings
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

import dpstats as dp

METHODS = ["moments", "did", "output", "objective"]
N, T, T0 = 40, 10, 7


@pytest.fixture(scope="module")
def panel():
    """Values that cannot be there by accident."""
    rng = np.random.default_rng(3)
    y = 7777.123 + rng.normal(size=(N + 1, T)).cumsum(axis=1) * 50
    return pd.DataFrame(
        {
            "unit": np.repeat(["treated-one", *(f"donor-{k:03d}" for k in range(N))], T),
            "time": np.tile(np.arange(T), N + 1),
            "y": y.ravel(),
        }
    )


def run(panel, **options):
    call = {"unit": "unit", "time": "time", "treated": "treated-one", "T0": T0 - 1, "eps": 1.0}
    call |= {"bounds": (7000.0, 9000.0), **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dp.dp_synth(panel, **call)


def secrets(panel):
    wide = panel.pivot(index="unit", columns="time", values="y")  # noqa: PD010
    donors = wide.drop(index="treated-one").to_numpy()
    scaled = (donors - 8000.0) / 1000.0
    before = donors[:, :T0].mean(axis=1)
    found = []
    for values in (donors, scaled, donors - before[:, None]):
        found += [values.ravel(), values.mean(axis=0), values.std(axis=0), values.mean(axis=1)]
        found += [values.min(axis=0), values.max(axis=0), values.sum(axis=0)]
    return np.unique(np.abs(np.concatenate(found)))


def atoms(value, seen):
    if value is None or isinstance(value, type | bool):
        return
    if isinstance(value, int | float | np.number | str):
        yield value
        return
    if id(value) in seen or (callable(value) and not dataclasses.is_dataclass(value)):
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        yield from value.ravel().tolist()
    elif isinstance(value, pd.DataFrame):
        yield from value.to_numpy().ravel().tolist()
        yield from atoms(list(value.index), seen)
    elif isinstance(value, pd.Series):
        yield from value.tolist()
        yield from atoms(list(value.index), seen)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from atoms(key, seen)
            yield from atoms(item, seen)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from atoms(item, seen)
    else:
        names = list(getattr(value, "__dict__", ()))
        for kind in type(value).__mro__:
            slots = getattr(kind, "__slots__", ())
            names += [slots] if isinstance(slots, str) else list(slots)
        for name in names:
            yield from atoms(getattr(value, name, None), seen)


def shown(result):
    views = [result.facts, result.released, result.privacy, result.params, result.bse]
    views += [result.effect, result.counterfactual, result.observed, result.tidy()]
    views += [result.glance(), result.diagnostics, result.conf_int(which="periods")]
    views += [result.to_dict(), result.privacy.releases, vars(result)["facts"]]
    if result.released.weights() is not None:
        views.append(result.weights)
    return views


def numbers(result):
    found = [a for a in atoms(shown(result), set()) if not isinstance(a, str)]
    values = np.abs(np.array([float(a) for a in found]))
    return np.unique(values[np.isfinite(values) & (values > 0)])


def texts(result, path):
    summary = result.summary()
    yield from (str(result), summary.as_html(), summary.as_latex(), summary.as_csv())
    yield from (result.privacy.statement(), repr(result.facts), repr(result.released))
    yield json.dumps(result.to_dict())
    result.save(path)
    yield path.read_text(encoding="utf-8")


def hits(found, hidden):
    place = np.clip(np.searchsorted(found, hidden), 1, len(found) - 1)
    near = np.minimum(np.abs(found[place] - hidden), np.abs(found[place - 1] - hidden))
    return hidden[(near <= 1e-10 * hidden) & (hidden > 1e-6)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_no_number_of_a_donor(panel, method, delta, tmp_path):
    result = run(panel, method=method, delta=delta)
    hidden = secrets(panel)
    assert hits(numbers(result), hidden).size == 0
    content = pickle.dumps(result)
    assert not [s for s in hidden if struct.pack("<d", s) in content]
    for text in texts(result, tmp_path / "r.json"):
        assert "donor-" not in text
        assert not [s for s in hidden[::7] if f"{s:.9g}" in text]
    assert b"donor-" not in content


def test_the_search_finds_what_is_there(panel):
    result = run(panel, method="did", eps=float("inf"), bounds=None)
    assert hits(numbers(result), secrets(panel)).size > 0


@pytest.mark.parametrize("method", ["moments", "output", "objective"])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_public_parts_do_not_depend_on_the_donors(panel, method, delta):
    """Scales, sensitivities, constants and the record are the same whatever the donors hold."""
    reference = run(panel, method=method, delta=delta)
    rng = np.random.default_rng(0)
    own = panel["unit"] == "treated-one"
    for values in (np.full(len(panel), 8000.0), rng.normal(8000, 900, len(panel))):
        changed = panel.assign(y=panel["y"].where(own, values))
        found = run(changed, method=method, delta=delta)
        tables = [result.privacy.releases for result in (found, reference)]
        # the prediction's sensitivity follows from the weights, which are released before it
        tables = [table[table["release"] != "prediction"] for table in tables]
        pd.testing.assert_frame_equal(*tables)
        assert found.privacy.public == reference.privacy.public
        assert found.facts.constants == reference.facts.constants


@pytest.mark.parametrize("method", METHODS)
def test_no_error_reads_the_donors(panel, method):
    """Anything finite or infinite a donor may hold gives a finite answer."""
    own = panel["unit"] == "treated-one"
    for value in (0.0, 1e308, -1e308, 5e-324, np.inf, -np.inf):
        changed = panel.assign(y=panel["y"].where(own, value))
        with np.errstate(all="raise", under="ignore"):
            result = run(changed, method=method)
        assert np.isfinite(result.params["ATT"])
        mixed = panel.assign(y=panel["y"].where(panel.index % 13 != 12, value))
        if not own[mixed.index % 13 == 12].any():
            continue
        mixed.loc[own, "y"] = panel.loc[own, "y"]
        assert np.isfinite(run(mixed, method=method).params["ATT"])


def test_the_input_is_not_modified(panel):
    before = panel.copy()
    for method in METHODS:
        run(panel, method=method)
    pd.testing.assert_frame_equal(panel, before)
    wide = panel.pivot(index="unit", columns="time", values="y")  # noqa: PD010
    kept = wide.copy()
    run(wide, wide=True, unit=None, time=None)
    pd.testing.assert_frame_equal(wide, kept)
