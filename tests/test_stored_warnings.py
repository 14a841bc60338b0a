"""Every warning follows from what is stored: the JSON of a result alone, or its pickle."""

from __future__ import annotations

import pickle
import warnings

import pytest

import dpstats as dp
from dpstats.ate import results as ate_results
from dpstats.ate.kernels import KERNELS
from dpstats.synth import results as synth_results
from dpstats.synth.kernels import KERNELS as SYNTH_KERNELS

PANEL = dp.simulate.panel("factor", n_donors=400, rng=1).data


@pytest.fixture(autouse=True, scope="module")
def _few_draws():
    """The simulation behind a standard error has the same code for fewer draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ate_results, "DRAWS", 99)
        patch.setattr(synth_results, "_DRAWS", 99)
        yield


def quiet(function, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args, **options)


def stored_alike(result, folder):
    """The result says the same after it went through a file, and through a pickle."""
    path = folder / "r.json"
    result.save(path, overwrite=True)
    for other in (dp.load(path), pickle.loads(pickle.dumps(result))):
        assert not set(vars(other)) - set(other._STATE), "a number beside the stored ones"
        assert other.warnings == result.warnings
        for form in ("as_text", "as_html", "as_latex", "as_csv"):
            one, two = (r.summary(diagnostics=True) for r in (other, result))
            assert getattr(one, form)() == getattr(two, form)()
        assert other.to_dict() == result.to_dict()
        one, two = (quiet(dp.compare, [r], mixed=True) for r in (other, result))
        assert str(one) == str(two)


@pytest.mark.parametrize(("eps", "delta"), [(0.2, 0.0), (40.0, 1e-6), (float("inf"), 0.0)])
@pytest.mark.parametrize("method", KERNELS)
def test_effects(method, eps, delta, tmp_path):
    process = "binary" if method == "binary" else "low_overlap"
    trial = dp.simulate.ate(process, 1200, rng=1)
    data = trial.data.assign(y=trial.data["y"] * 1.5)
    # nothing is clipped without noise, and then there may be no estimate
    options = {"overlap": 0.1} if "overlap" in KERNELS[method].options else {}
    options |= {"balance": 0.2} if "balance" in KERNELS[method].method_options else {}
    # bounds of one column are left to be found where that takes few rows
    bounds = {k: v for k, v in trial.bounds.items() if k != "x1" or eps != 40.0}
    result = quiet(
        dp.dp_ate,
        *("y ~ x1 + x2", "w", data, eps),
        method=method,
        bounds=bounds,
        delta=delta,
        check_bounds=0.3,
        rng=None if eps > 1e9 else 1,
        **options,
    )
    if eps < 1.0:
        assert result.warnings
    stored_alike(result, tmp_path)


@pytest.mark.parametrize("bounds", [None, (-5.0, 5.0)])
@pytest.mark.parametrize("method", [name for name in SYNTH_KERNELS if SYNTH_KERNELS[name].private])
def test_synthetic_controls(method, bounds, tmp_path):
    delta = 1e-6 if "gaussian" in SYNTH_KERNELS[method].kinds else 0.0
    keys = {"unit": "unit", "time": "time", "outcome": "y", "treated": 0, "T0": 20}
    result = quiet(
        *(dp.dp_synth, PANEL),
        eps=4.0,
        delta=delta,
        method=method,
        bounds=bounds,
        rng=1,
        **keys,
    )
    stored_alike(result, tmp_path)
