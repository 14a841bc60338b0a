"""Results as JSON: exact, strict, and from known classes only."""

from __future__ import annotations

import json
import math
import os
import stat
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpstats as dp
from dpstats.storage import decode, encode, plain, read_json, write_json


@dataclass(frozen=True, slots=True)
class Leaf:
    value: Any
    name: str


@dataclass(frozen=True, slots=True)
class Tree:
    leaves: tuple[Leaf, ...]
    table: dict[str, Any]
    array: Any


TYPES = {"Leaf": Leaf, "Tree": Tree}

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(), st.text(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(
            st.one_of(st.text(max_size=5), st.integers(), st.floats(allow_nan=False)),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


def equal(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (
            a == b and math.copysign(1, a) == math.copysign(1, b)
        )
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return (
            isinstance(b, dict) and list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
        )
    return type(a) is type(b) and a == b


@given(values)
def test_round_trip(value):
    text = json.dumps(encode(value), allow_nan=False)
    assert equal(decode(json.loads(text), TYPES), value)


@given(values)
def test_plain_is_strict_json(value):
    json.dumps(plain(value), allow_nan=False)


@pytest.mark.parametrize(
    "array",
    [
        np.array([1.5, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1.7976931348623157e308, 0.1]),
        np.arange(12, dtype=np.int64).reshape(3, 2, 2),
        np.array([[True], [False]]),
        np.empty((0, 3)),
        np.array(2.5),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ],
)
def test_arrays(array):
    back = decode(json.loads(json.dumps(encode(array), allow_nan=False)), TYPES)
    assert back.shape == array.shape
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
    json.dumps(plain(array), allow_nan=False)


def test_dataclasses():
    tree = Tree((Leaf(1.0, "a"), Leaf((math.inf, None), "b")), {"x": (0.0, 1.0)}, np.ones(2))
    back = decode(json.loads(json.dumps(encode(tree), allow_nan=False)), TYPES)
    assert back.leaves == tree.leaves
    assert back.table == tree.table
    np.testing.assert_array_equal(back.array, tree.array)


@pytest.mark.parametrize("value", [np.float64(0.1), np.int8(3), np.bool_(True), np.float32(0.5)])
def test_numpy_scalars_become_python(value):
    assert encode(value) == value.item()
    assert type(encode(value)) is type(value.item())
    assert plain(value) == value.item()


def test_unknown_classes_are_not_built():
    with pytest.raises(KeyError):
        decode({"type": "Popen", "fields": {"args": "ls"}}, TYPES)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        '"text"',
        "{}",
        '{"format": 0}',
        '{"format": 99, "class": "ATEResults", "state": {}}',
        '{"format": 1}',
        '{"format": 1, "class": "ATEResults"}',
        '{"format": 1, "class": "Popen", "state": {}}',
        '{"format": 1, "class": ["ATEResults"], "state": {}}',
        '{"format": 1, "class": "ATEResults", "state": {}}',
        '{"format": 1, "class": "ATEResults", "state": 5}',
        '{"format": 1, "class": "ATEResults", "state": {"facts": {"type": "Nope", "fields": {}}}}',
        '{"format": 1, "class": "ATEResults", "state": {"facts": {"type": "Facts", "fields": {}}}}',
        "\x00\x01",
    ],
)
def test_files_that_are_not_results(tmp_path, text):
    path = tmp_path / "result.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(dp.DPStatsError, match="`path`"):
        dp.load(path)


def test_binary_file(tmp_path):
    path = tmp_path / "result.bin"
    path.write_bytes(b"\xff\xfe\x80pickle")
    with pytest.raises(dp.DPStatsError, match="`path`"):
        dp.load(path)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        dp.load(tmp_path / "none.json")


def test_nothing_is_written_over(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"format": 1, "first": True})
    with pytest.raises(dp.ResultExistsError, match=r"`path` must be a new file.*overwrite=True"):
        write_json(path, {"format": 1})
    with pytest.raises(FileExistsError):
        write_json(path, {"format": 1})
    assert read_json(path) == {"format": 1, "first": True}
    write_json(path, {"format": 1}, overwrite=True)
    assert read_json(path) == {"format": 1}
    # no draft is left beside it
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


def test_a_folder_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trial = dp.simulate.ate("well_specified", 2000, rng=1)
    result = dp.dp_ate("y ~ x1", "w", trial.data, 1, bounds=trial.bounds, method="diff_means")
    for write in (result.save, lambda path: result.report(path.replace("json", "html"))):
        with pytest.raises(FileNotFoundError) as caught:
            write("no/folder/a.json")
        assert "`path` must lie in a folder that exists" in str(caught.value)
        assert caught.value.filename == "no/folder".replace("/", os.sep)
        assert ".dpstats." not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_written_to(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_json(path, {"format": 1})
    assert json.loads(os.read(reader, 1000)) == {"format": 1}
    os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_results_are_not_written_over(tmp_path):
    trial = dp.simulate.ate("well_specified", 500, rng=1)
    path = tmp_path / "result.json"
    first, second = (
        dp.dp_ate("y ~ x1", "w", trial.data, 1, bounds=trial.bounds, method="diff_means")
        for _ in range(2)
    )
    first.save(path)
    with pytest.raises(dp.ResultExistsError):
        second.save(str(path))
    assert dp.load(path).to_dict() == first.to_dict()
    second.save(path, overwrite=True)
    assert dp.load(path).to_dict() == second.to_dict() != first.to_dict()


def test_text_survives(tmp_path):
    path = tmp_path / "x.json"
    content = {"format": 1, "name": 'é中<b>\\ \u2028 "q"'}
    write_json(path, content)
    assert read_json(str(path)) == content
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"x": float("nan")})
    # a failed write leaves the old file as it was
    assert read_json(path) == content
