"""How releases are run: jobs, streams, generators, warnings, the bar."""

from __future__ import annotations

import sys
import threading
import warnings

import numpy as np
import pytest
from audit_runs import noisy_sum, run, same

import dpstats as dp
from dpstats import audit


def test_two_jobs_give_what_one_gives() -> None:
    pytest.importorskip("joblib")
    scale = 0.5
    assert same(run(jobs=2), run())
    closure = lambda data, rng: np.sum(data) + rng.laplace(scale=scale)  # noqa: E731
    assert same(run(closure, jobs=2), run(closure))


def test_without_joblib(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "joblib", None)
    # processes, then threads for what cannot be sent to one
    assert same(run(jobs=2), run())
    lock = threading.Lock()

    def guarded(data, rng):
        with lock:
            warnings.warn("the result is not private", dp.PrivacyWarning, stacklevel=1)
            return noisy_sum(data, rng)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(run(guarded, jobs=2), run())


def test_what_no_process_can_be_sent_runs_in_threads() -> None:
    pytest.importorskip("joblib")
    lock = threading.Lock()

    def guarded(data, rng):
        with lock:
            return noisy_sum(data, rng)

    assert same(run(guarded, jobs=2), run())


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_of_the_release_goes_through(jobs: int) -> None:
    def fails(data, rng):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(fails, jobs=jobs)


def test_every_run_has_a_stream_of_its_own_and_can_be_repeated() -> None:
    seen = []

    def watched(data, rng):
        value = noisy_sum(data, rng)
        seen.append((sum(data), *value))
        return value

    found = run(watched)
    assert len(set(seen)) == 400
    expected = {(2, *noisy_sum([1, 0, 1], found.rng("data", t))) for t in range(200)}
    expected |= {(1, *noisy_sum([1, 0, 0], found.rng("neighbour", t))) for t in range(200)}
    assert set(seen) == expected
    assert same(run(), run())
    assert not same(run(), run(rng=4))
    assert not same(run(rng=None), run(rng=None))


def test_a_search_judges_on_fresh_runs() -> None:
    seen = {}

    def watched(data, rng):
        value = noisy_sum(data, rng)
        seen.setdefault(tuple(data), []).append(float(value[0]))
        return value

    pairs = [([1, 0], [0, 0]), ([9, 0], [0, 0]), ([2, 0], [0, 0])]
    found = audit.search(watched, pairs, eps=1.0, trials=100, pilot=50, progress=False, rng=1)
    assert found.pair == 1
    assert found.pilot[1] == max(found.pilot)
    assert found.passed is False
    assert len(seen[9, 0]) == len(set(seen[9, 0])) == 150
    assert len(seen[0, 0]) == len(set(seen[0, 0])) == 250
    assert "Pair 1 of 3" in str(found).replace("\n", " ")


def test_how_a_release_takes_its_generator() -> None:
    def by_name(data, *, scale=1.0, rng=None):
        return noisy_sum(data, rng)

    def second(data, generator):
        return noisy_sum(data, generator)

    class Callable_:
        def __call__(self, data, rng):
            return noisy_sum(data, rng)

    for release in (by_name, second, Callable_()):
        assert same(run(release), run())
    own = np.random.default_rng(5)

    def alone(data, scale=1.0):
        assert scale == 1.0
        return noisy_sum(data, own)

    assert run(alone).passed is not None


def test_warnings_are_silenced_inside_the_runs_only() -> None:
    def release(data, rng):
        warnings.warn("seed", dp.PrivacyWarning, stacklevel=1)
        warnings.warn("noise", dp.UtilityWarning, stacklevel=1)
        warnings.warn("mine", UserWarning, stacklevel=1)
        return noisy_sum(data, rng)

    for jobs in (1, 2):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            run(release, jobs=jobs)
            warnings.warn("outside", dp.PrivacyWarning, stacklevel=1)
        texts = [str(w.message) for w in heard if issubclass(w.category, UserWarning)]
        assert texts == ["mine", "outside"]


def test_the_progress_bar(capsys, monkeypatch) -> None:
    pytest.importorskip("tqdm")
    run(progress=True)
    assert "audit" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert same(run(progress=True), run())
    assert capsys.readouterr().err == ""
