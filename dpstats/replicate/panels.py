"""Samples and estimators of the synthetic control experiments."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.replicate.experiment import Arm, Cell, Method
from dpstats.replicate.published_synth import dpsc_obj, dpsc_out, published_bound
from dpstats.synth.kernels.exact import ridge_weights
from dpstats.synth.theory import Bound, Setting, fit_bound, objective_bound, output_bound

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.privacy.noise import FloatArray

__all__ = [
    "LinearPanel",
    "Paths",
    "baselines",
    "bounds",
    "linear_as_run",
    "panel_methods",
    "text_panel",
]

AFTER = 3
_NOISE_SD = 0.1


@dataclass(frozen=True)
class Paths:
    """Donors and a target on [-1, 1], and what is to be predicted.

    Attributes
    ----------
    donors : ndarray
        Shape (n, T).
    target : ndarray
        Shape (T,), with noise.
    goal : ndarray
        Shape (T1,): what predictions are compared with.
    pre_periods : int
        T0.
    """

    donors: FloatArray
    target: FloatArray
    goal: FloatArray
    pre_periods: int

    def score(self, path: Any) -> tuple[float, float]:
        """Return the mean error over the post-period and the root mean square; a bound as it is."""
        if isinstance(path, Bound | float):
            size = path.rmse if isinstance(path, Bound) else path
            return size, size
        gap = np.asarray(path, dtype=float) - self.goal
        return float(gap.mean()), math.sqrt(float(np.mean(gap**2)))

    @property
    def before(self) -> FloatArray:
        """The target before the intervention."""
        return self.target[: self.pre_periods]

    @cached_property
    def clipped(self) -> FloatArray:
        """Donors within [-1, 1], which is what noise is made for."""
        return np.clip(self.donors, -1.0, 1.0)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The panel as `dp_synth` takes it: unit 0 is treated."""
        import pandas as pd

        values = np.vstack([self.target, self.donors])
        units, periods = values.shape
        return pd.DataFrame(
            {
                "unit": np.repeat(np.arange(units), periods),
                "time": np.tile(np.arange(1, periods + 1), units),
                "y": values.ravel(),
            }
        )

    def predict(
        self, method: str, eps: float, rng: np.random.Generator, **options: Any
    ) -> FloatArray:
        """Return the counterfactual after T0 by the public `dp_synth`."""
        from dpstats.synth.model import dp_synth

        result = dp_synth(
            self.frame,
            T0=self.pre_periods,
            unit="unit",
            time="time",
            outcome="y",
            treated=0,
            eps=eps,
            method=method,
            bounds=(-1.0, 1.0),
            rng=rng,
            **options,
        )
        path: FloatArray = result.counterfactual.to_numpy(dtype=float)[self.pre_periods :]
        return path


@dataclass(frozen=True)
class LinearPanel(Paths):
    """A linear panel whose signal is known, for the accuracy bounds.

    Attributes
    ----------
    signal : ndarray
        Shape (n, T): donors without noise.
    weights : ndarray
        Shape (n,): f, with target signal M'f.
    sigma : float
        Standard deviation of the noise.
    """

    signal: FloatArray
    weights: FloatArray
    sigma: float

    @cached_property
    def setting(self) -> Setting:
        """What the bounds may assume of this panel."""
        n, before = len(self.donors), self.pre_periods
        smallest = float(np.linalg.svd(self.donors[:, :before], compute_uv=False)[-1] ** 2)
        return Setting(
            n,
            before,
            self.goal.size,
            self.sigma,
            xi=min(1.0, max(0.0, 1.0 - smallest / before)),
            weight_norm=float(np.linalg.norm(self.weights)),
            post_norm=float(np.linalg.norm(self.signal[:, before:], 2)),
            largest_weight=self.largest_weight,
        )

    @property
    def largest_weight(self) -> float:
        """The largest ridge weight without noise, at lambda = T0 (psi)."""
        before = self.pre_periods
        return float(np.abs(ridge_weights(self.donors[:, :before], self.before, before)).max())


def linear_as_run(cell: Cell, rng: np.random.Generator) -> Paths:
    """Draw the panel of the published code; the goal is the target after T0, with its noise."""
    from dpstats.simulate import panel

    n, before = int(cell["donors"]), int(cell["T0"])
    sample = panel("linear_as_run", n_donors=n, periods=before + AFTER, pre_periods=before, rng=rng)
    values = sample.data["y"].to_numpy(dtype=float).reshape(n + 1, -1)
    return Paths(values[1:], values[0], values[0, before:], before)


def text_panel(cell: Cell, rng: np.random.Generator) -> LinearPanel:
    """Draw the panel of the source's text, its target a mean of the donors; the goal is M'f.

    theta_i t plus noise, theta from N(4, 1) truncated to [3, 5], scaled by public bounds. The
    noise, of sd .1 before that, is uniform, so that no value leaves the bounds.
    """
    from dpstats.simulate.checks import truncated_normal

    n, before = int(cell["donors"]), int(cell["T0"])
    periods = before + AFTER
    spread = _NOISE_SD * math.sqrt(3.0)
    low, high = 3.0 - spread, 5.0 * periods + spread
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    theta = 4.0 + truncated_normal(rng, -1.0, 1.0, (n, 1))
    signal = (theta * np.arange(1, periods + 1) - middle) / half
    noise = rng.uniform(-spread, spread, (n + 1, periods)) / half
    weights = np.full(n, 1.0 / n)
    path = weights @ signal
    return LinearPanel(
        signal + noise[1:],
        path + noise[0],
        path[before:],
        before,
        signal,
        weights,
        _NOISE_SD / half,
    )


def _penalty(cell: Cell) -> float:
    return float(cell.get("lambda", cell["T0"]))


def _shipped(role: str, run: Any) -> Method:
    def estimate(sample: Paths, cell: Cell, rng: np.random.Generator) -> FloatArray:
        half = float(cell["eps"]) / 2.0
        path: FloatArray = run(
            sample.donors, sample.before, half, half, rng, penalty=_penalty(cell)
        )
        return path

    return Method(f"{role}, as shipped", "as shipped", role, estimate)


def _proved(sample: Paths, cell: Cell, rng: np.random.Generator) -> FloatArray:
    half = float(cell["eps"]) / 2.0
    return dpsc_out(
        sample.clipped, sample.before, half, half, rng, penalty=_penalty(cell), radius="gamma"
    )


def _private(label: str, role: str, method: str, *, arm: Arm = "default", **options: Any) -> Method:
    def estimate(sample: Paths, cell: Cell, rng: np.random.Generator) -> FloatArray:
        own = dict(options)
        if method in ("output", "objective"):
            own["penalty"] = _penalty(cell)
        return sample.predict(method, float(cell["eps"]), rng, **own)

    return Method(label, arm, role, estimate)


_AS_PUBLISHED = {"release": "matrix", "project": False, "target_norm": "bound"}
# the constraint is what makes it private
_CONSTRAINED = {"release": "matrix", "target_norm": "bound"}


def _fast_enough(cell: Cell) -> bool:
    """Leave out cells where long matrices are drawn for little change of the error."""
    return bool(cell["T0"] == 10 or cell["eps"] <= 10.0 or cell["eps"] == 200.0)


def baselines() -> tuple[Method, ...]:
    """Return the ridge without noise, and two predictions that need no donors at all."""
    return (
        Method(
            "ridge without noise",
            "reference",
            "exact ridge",
            lambda sample, cell, rng: (
                ridge_weights(sample.donors[:, : sample.pre_periods], sample.before, _penalty(cell))
                @ sample.donors[:, sample.pre_periods :]
            ),
        ),
        Method(
            "predict 0",
            "reference",
            "zero",
            lambda sample, cell, rng: np.zeros(sample.goal.size),
            reads=False,
        ),
        Method(
            "last value",
            "reference",
            "last value",
            lambda sample, cell, rng: np.full(sample.goal.size, sample.before[-1]),
            reads=False,
        ),
    )


def panel_methods(*, ours: bool) -> tuple[Method, ...]:
    """Return the published algorithms in their arms; `ours` adds "moments" and "did"."""
    found: tuple[Method, ...] = (
        _shipped("DPSC_out", dpsc_out),
        _shipped("DPSC_obj", dpsc_obj),
        Method(
            "DPSC_out, proved noise for the published sensitivity",
            "made private",
            "DPSC_out published sensitivity",
            _proved,
        ),
        _private(
            "DPSC_out, exact sensitivity", "DPSC_out", "output", arm="made private", **_AS_PUBLISHED
        ),
        _private(
            "DPSC_obj, constrained", "DPSC_obj", "objective", arm="made private", **_CONSTRAINED
        ),
        _private("output, default", "DPSC_out", "output"),
        _private("objective, default", "DPSC_obj", "objective"),
    )
    if ours:
        moments = replace(_private("moments", "moments", "moments"), where=_fast_enough)
        found += (moments, _private("did", "did", "did"))
    return (*found, *baselines())


def bounds() -> tuple[Method, ...]:
    """Return the accuracy bounds as methods: what they promise, beside what is measured."""

    def published(sample: LinearPanel, cell: Cell, rng: np.random.Generator) -> float:
        half = float(cell["eps"]) / 2.0
        penalty = _penalty(cell)
        return published_bound(
            len(sample.donors),
            sample.pre_periods,
            half,
            half,
            penalty=penalty,
            sigma=sample.sigma,
            gain=sample.setting.gain,
            fit=fit_bound(sample.setting, penalty),
            largest_weight=sample.largest_weight,
        )

    def proved(sample: LinearPanel, cell: Cell, rng: np.random.Generator) -> Bound:
        half = float(cell["eps"]) / 2.0
        return output_bound(
            sample.setting, half, half, penalty=_penalty(cell), release="matrix", project=False
        )

    def constrained(sample: LinearPanel, cell: Cell, rng: np.random.Generator) -> Bound:
        half = float(cell["eps"]) / 2.0
        return objective_bound(
            sample.setting,
            half,
            half,
            penalty=_penalty(cell),
            release="matrix",
            largest_target=max(1.0, float(np.abs(sample.before).max())),
        )

    return (
        Method("published bound (DPSC_out)", "reference", "published bound", published),
        Method("corrected bound (output)", "reference", "output bound", proved),
        Method("corrected bound (objective)", "reference", "objective bound", constrained),
    )
