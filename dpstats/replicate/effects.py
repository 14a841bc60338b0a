"""Samples and estimators of the treatment effect experiments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpstats.replicate import published
from dpstats.replicate.experiment import Arm, Cell, Method

if TYPE_CHECKING:
    from dpstats.datasets import Dataset

__all__ = [
    "DELTA",
    "Effect",
    "exact_methods",
    "nsw",
    "private",
    "published_rules",
    "shipped",
    "simulated",
    "standard_methods",
]

# for Gaussian noise; the value of Lee et al. (2019)
DELTA = 1e-6


@dataclass(frozen=True)
class Effect:
    """One sample with its truth.

    Attributes
    ----------
    data : Dataset
    truth : float
        What an estimate should be.
    scale : {"norm", "columns"}
        How the published code brings covariates into the unit ball: divided by the norm of the
        bounds, or each by its own bound and then by sqrt(k).
    """

    data: Dataset
    truth: float
    scale: Literal["norm", "columns"] = "norm"

    @cached_property
    def rows(self) -> published.Rows:
        """The sample as the published code takes it."""
        X = self.columns
        size = np.linalg.norm(self._tops) if self.scale == "norm" else np.sqrt(X.shape[1])
        return self._rows(X / size)

    @cached_property
    def reference_rows(self) -> published.Rows:
        """The same without the last division: rows may be longer than 1."""
        return self._rows(self.columns)

    @cached_property
    def columns(self) -> np.ndarray:
        """Covariates clipped to the published bounds, and divided by them if `scale` says so."""
        frame = self.data.data[self._names].to_numpy(dtype=float)
        bounds = self.data.published_bounds or self.data.bounds
        lows = np.array([bounds[name][0] for name in self._names])
        clipped = np.clip(frame, lows, self._tops)
        return np.asarray(clipped / self._tops if self.scale == "columns" else clipped)

    def estimate(
        self,
        eps: float,
        rng: np.random.Generator,
        *,
        published_bounds: bool = False,
        **options: Any,
    ) -> float:
        """Return the effect by the public `dp_ate`."""
        from dpstats.ate.model import dp_ate

        bounds = self.data.published_bounds if published_bounds else None
        result = dp_ate(
            str(self.data.formula),
            str(self.data.treat),
            self.data.data,
            eps,
            bounds=bounds or self.data.bounds,
            rng=rng,
            **options,
        )
        # as in `params`, but without the simulations behind a standard error
        return float(result.released.estimate(result.facts.estimand))

    def score(self, estimate: float) -> tuple[float, float]:
        """Return the error of an estimate and its absolute value."""
        error = float(estimate) - self.truth
        return error, abs(error)

    @property
    def _names(self) -> list[str]:
        return [name.strip() for name in str(self.data.formula).split("~")[1].split("+")]

    @property
    def _tops(self) -> np.ndarray:
        bounds = self.data.published_bounds or self.data.bounds
        return np.array([bounds[name][1] for name in self._names])

    def _rows(self, X: np.ndarray) -> published.Rows:
        frame = self.data.data
        low, high = self.data.bounds["y"]
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        y = np.clip(frame["y"].to_numpy(dtype=float) - middle, -half, half)
        return published.Rows(X, frame[str(self.data.treat)].to_numpy() == 1, y, half)


def simulated(process: str) -> Callable[[Cell, np.random.Generator], Effect]:
    """Return the sampler of a process of `dpstats.simulate.ate`."""

    def sample(cell: Cell, rng: np.random.Generator) -> Effect:
        from dpstats.simulate import ate

        data = ate(process, int(cell["n"]), rng=rng)
        return Effect(data, float((data.truth or {})["ATE"]))

    return sample


def nsw(cell: Cell, rng: np.random.Generator) -> Effect:
    """Return National Supported Work data with the controls of the cell, always the same rows."""
    return _nsw(str(cell["controls"]))


@lru_cache(maxsize=8)
def _nsw(controls: str) -> Effect:
    from dpstats.datasets import load_nsw

    data = load_nsw(controls=controls)
    found = Effect(data, 0.0, "columns")
    return Effect(data, published.exact_nipw(found.reference_rows), "columns")


def shipped(role: str, run: Callable[..., float], *, label: str = "", **options: Any) -> Method:
    """Return a function of `published` as a method; options named after an axis vary with it."""

    def estimate(sample: Effect, cell: Cell, rng: np.random.Generator) -> float:
        return run(sample.rows, float(cell["eps"]), rng, **_from_cell(options, cell))

    return Method(label or f"{role}, as shipped", "as shipped", role, estimate)


def private(
    label: str, role: str, *, arm: Arm = "default", rules: bool = False, **options: Any
) -> Method:
    """Return a call of `dp_ate` as a method.

    Parameters
    ----------
    label, role, arm : str
    rules : bool
        Whether the published bounds of the covariates are used.
    **options
        Arguments of `dp_ate`; a callable is a function of the cell.
    """

    def estimate(sample: Effect, cell: Cell, rng: np.random.Generator) -> float:
        chosen = _from_cell(options, cell)
        return sample.estimate(float(cell["eps"]), rng, published_bounds=rules, **chosen)

    return Method(label, arm, role, estimate, needs=options["method"])


def published_rules(role: str, **changes: Any) -> Method:
    """Return a published method by its own rules, with the noise it needs."""
    label = f"{role}, made private"
    return private(label, role, arm="made private", rules=True, **{**_RULES[role], **changes})


_SPLIT: dict[str, Any] = {"method": "split_ipw", "train_share": 0.5, "split": "published"}
_RULES: dict[str, dict[str, Any]] = {
    "LGPM19": {**_SPLIT, "noise": "gaussian", "delta": DELTA},
    "SplitIPW": _SPLIT,
    "SeqIPW": {"method": "ipw", "split": "published"},
    "DPBlocking": {
        "method": "blocking",
        "blocks": "published",
        "split": "published",
        "min_count": 1.5,
    },
    "SeqNIPW": {"method": "nipw", "split": "published"},
    "AggNIPW": {"method": "agg_nipw", "split": "published"},
    "LEBJ25": {
        "method": "agg_aipw",
        "folds": 200,
        "split": "published",
        "noise": "gaussian",
        "delta": DELTA,
    },
}


def exact_methods() -> tuple[Method, ...]:
    """Return the source's two references."""
    return (
        Method(
            "IPW without noise",
            "reference",
            "exact IPW",
            lambda sample, cell, rng: published.exact_ipw(sample.rows),
        ),
        Method(
            "blocking without noise",
            "reference",
            "exact blocking",
            lambda sample, cell, rng: published.exact_blocking(sample.rows),
        ),
    )


def standard_methods(*, exact: bool = True) -> tuple[Method, ...]:
    """Return what most figures compare: three published methods in three arms, and baselines."""
    return (
        shipped("LGPM19", published.split_ipw),
        shipped("SeqIPW", published.seq_ipw),
        shipped("DPBlocking", published.blocking),
        published_rules("LGPM19"),
        published_rules("SeqIPW"),
        published_rules("DPBlocking"),
        private("split_ipw, default", "LGPM19", method="split_ipw"),
        private("ipw, default", "SeqIPW", method="ipw"),
        private("blocking, default", "DPBlocking", method="blocking"),
        private("diff_means, default", "DiffMeans", method="diff_means"),
        *(exact_methods() if exact else ()),
    )


def _from_cell(options: dict[str, Any], cell: Cell) -> dict[str, Any]:
    return {name: value(cell) if callable(value) else value for name, value in options.items()}
