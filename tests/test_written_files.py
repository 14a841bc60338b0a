"""Written files: nothing is lost to another process, and nobody may read more than before."""

from __future__ import annotations

import json
import os
import stat
import threading

import pytest

import dpstats as dp
from dpstats.cli import files
from dpstats.cli.files import check_outputs
from dpstats.report import _files
from dpstats.report._files import write_bytes, write_text
from dpstats.storage import write_json


def test_a_file_that_is_replaced_keeps_who_may_read_it(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, 1)
    path.chmod(0o600)
    write_json(path, 2, overwrite=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text(encoding="utf-8")) == 2


def test_the_draft_is_not_open_to_others_either(tmp_path, monkeypatch):
    """Not even while it is written."""
    path = tmp_path / "a.html"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o600)
    modes = []

    def watched(number):
        modes.append(stat.S_IMODE(os.fstat(number).st_mode))

    monkeypatch.setattr(_files.os, "fsync", watched)
    write_text(path, "new")
    assert modes == [0o600]


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_json(path, 1)
    # the system manager may write anything, so the answer of the system is given here
    monkeypatch.setattr(_files.os, "access", lambda place, mode: place != path.resolve())
    with pytest.raises(PermissionError, match=r"a\.json"):
        write_json(path, 2, overwrite=True)
    assert json.loads(path.read_text(encoding="utf-8")) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_names_may_be_as_long_as_the_system_lets_them(tmp_path):
    """Nobody wants to be told after the budget is spent that the draft's name is too long."""
    path = tmp_path / ("a" * 250 + ".json")
    write_json(path, 1)
    write_json(path, 2, overwrite=True)
    assert json.loads(path.read_text(encoding="utf-8")) == 2


def test_of_many_who_write_a_new_file_one_does(tmp_path):
    """Each looks first and sees no file; what one has written must not be written over."""
    writers, rounds = 4, 30
    gate = threading.Barrier(writers)
    wrote = [[] for _ in range(writers)]

    def write(who):
        for place in range(rounds):
            gate.wait()
            try:
                write_json(tmp_path / f"{place}.json", who)
            except dp.ResultExistsError:
                continue
            wrote[who].append(place)

    threads = [threading.Thread(target=write, args=(who,)) for who in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(place for places in wrote for place in places) == list(range(rounds))
    for who, places in enumerate(wrote):
        for place in places:
            assert json.loads((tmp_path / f"{place}.json").read_text(encoding="utf-8")) == who


def test_a_file_made_since_it_was_looked_for(tmp_path, monkeypatch):
    """The same without chance: another process writes right after the look."""
    path = tmp_path / "a.json"
    monkeypatch.setattr(_files.os, "fsync", lambda _: path.write_text("theirs", encoding="utf-8"))
    with pytest.raises(dp.ResultExistsError, match=r"a\.json"):
        write_json(path, "ours")
    assert path.read_text(encoding="utf-8") == "theirs"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_a_link_is_followed_and_stays(tmp_path):
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there" / "a.bin")
    write_bytes(link, b"one", new=True)
    write_bytes(link, b"two")
    assert link.is_symlink()
    assert (tmp_path / "there" / "a.bin").read_bytes() == b"two"
    with pytest.raises(FileExistsError):
        write_bytes(link, b"three", new=True)
    assert (tmp_path / "there" / "a.bin").read_bytes() == b"two"


def test_the_command_line_asks_for_the_folder_too(tmp_path, monkeypatch):
    """The file is replaced by one beside it: where none can be made, that is said at no cost."""
    path = tmp_path / "a.json"
    write_json(path, 1)
    check_outputs({"save": str(path)}, {})
    check_outputs({"save": os.devnull}, {})
    monkeypatch.setattr(files.os, "access", lambda place, mode: place == path)
    with pytest.raises(dp.DPStatsError, match="`save` must be a file that can be written"):
        check_outputs({"save": str(path)}, {})
