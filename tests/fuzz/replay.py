"""Replays a call on a neighbour: the same noisy numbers, the exact ones of another data set.

On the first data set every release is written down with its exact statistic. On the neighbour each
release gives the number that was written down, so that all that depends on released numbers is the
same, and its own exact statistic is compared: it may have moved by the declared sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from dpstats.privacy.mechanisms import Mechanisms
from dpstats.propensity import Objective
from dpstats.synth.kernels import objective as synth_objective

# statistics on a grid are exact; a vector in double precision, and the length of a row, are not
EXACT, ROUNDED = 1e-12, 1e-6


@dataclass
class Release:
    """What was released, from what, and what was promised of it."""

    kind: str
    name: str
    exact: Any
    promised: dict[str, Any]
    noisy: Any


@dataclass
class Tape:
    """Releases in their order, and how far the neighbour's statistics were from them."""

    releases: list[Release] = field(default_factory=list)
    place: int | None = None
    outer: bool = True
    # (release, share of the sensitivity)
    moved: list[tuple[str, float]] = field(default_factory=list)

    @property
    def replays(self) -> bool:
        return self.place is not None

    def rewind(self) -> None:
        self.place = 0

    def next(self, kind: str, name: str, promised: dict[str, Any]) -> Release:
        """Return the release that stands here; what is promised of it does not depend on rows."""
        assert self.place is not None
        assert self.place < len(self.releases), f"{kind} {name!r} is released on one file only"
        found = self.releases[self.place]
        self.place += 1
        assert (found.kind, found.name) == (kind, name)
        assert found.promised == promised, f"{name!r} promised something else"
        return found

    def judge(self, name: str, change: float, sensitivity: float, slack: float) -> None:
        assert change <= sensitivity * (1.0 + slack), (name, change, sensitivity)
        self.moved.append((name, change / sensitivity))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Releases of which another one is made are part of it."""
        self.outer = False
        try:
            yield
        finally:
            self.outer = True


@contextmanager
def taped() -> Iterator[Tape]:
    """Record every release of the calls inside, and replay them once the tape is rewound."""
    tape = Tape()
    with pytest.MonkeyPatch.context() as patch:
        for name, wrap in (
            ("additive", _additive),
            ("knorm", _knorm),
            ("choose", _choose),
            ("gram_rounds", _gram_rounds),
        ):
            patch.setattr(Mechanisms, name, wrap(tape, getattr(Mechanisms, name)))
        patch.setattr(Objective, "fit", _fit(tape, Objective.fit))
        patch.setattr(synth_objective, "_perturbed", _perturbed(tape, synth_objective._perturbed))
        yield tape


def _additive(tape: Tape, original: Callable[..., Any]) -> Callable[..., Any]:
    def additive(self, name, values, *, l1, l2, lattice, divisor=1.0, kind=None):
        def draw():
            return original(
                self, name, values, l1=l1, l2=l2, lattice=lattice, divisor=divisor, kind=kind
            )

        if not tape.outer or self.source is None:
            return draw()
        exact = np.ldexp(np.asarray(values, dtype=float), -lattice)
        noise = kind or self.kind
        promised = {"l1": l1, "l2": l2, "lattice": lattice, "divisor": divisor, "noise": noise}
        if not tape.replays:
            tape.releases.append(Release("additive", name, exact, promised, draw()))
            return tape.releases[-1].noisy
        found = tape.next("additive", name, promised)
        change = (exact - found.exact).ravel()
        sizes = {"laplace": (np.abs(change).sum(), l1), "gaussian": (np.linalg.norm(change), l2)}
        size, sensitivity = sizes[noise]
        tape.judge(name, float(size), math.ldexp(sensitivity, -lattice), EXACT)
        return found.noisy

    return additive


def _knorm(tape: Tape, original: Callable[..., Any]) -> Callable[..., Any]:
    def knorm(self, name, values, *, sensitivity, ball="l2", **options):
        def draw():
            return original(self, name, values, sensitivity=sensitivity, ball=ball, **options)

        if not tape.outer or self.source is None:
            return draw()
        promised = {"sensitivity": sensitivity, "ball": ball}
        if not tape.replays:
            tape.releases.append(Release("knorm", name, np.array(values), promised, draw()))
            return tape.releases[-1].noisy
        found = tape.next("knorm", name, promised)
        order = {"l2": 2, "linf": math.inf}[ball]
        change = float(np.linalg.norm(np.ravel(values - found.exact), order))
        tape.judge(name, change, sensitivity, ROUNDED)
        return found.noisy

    return knorm


def _choose(tape: Tape, original: Callable[..., Any]) -> Callable[..., Any]:
    def choose(self, name, scores, *, sensitivity=1.0):
        if self.source is None:
            return original(self, name, scores, sensitivity=sensitivity)
        promised = {"sensitivity": sensitivity}
        if not tape.replays:
            with tape.inside():
                chosen = original(self, name, scores, sensitivity=sensitivity)
            tape.releases.append(Release("choose", name, np.array(scores), promised, chosen))
            return chosen
        found = tape.next("choose", name, promised)
        change = float(np.abs(scores - found.exact).max())
        tape.judge(name, change, sensitivity, EXACT)
        return found.noisy

    return choose


def _gram_rounds(tape: Tape, original: Callable[..., Any]) -> Callable[..., Any]:
    def gram_rounds(self, budget, rounds, statistic, *, rows, lattice):
        if self.source is None:
            return original(self, budget, rounds, statistic, rows=rows, lattice=lattice)
        promised = {"rounds": dict(rounds), "rows": rows, "lattice": lattice, "noise": self.kind}
        if not tape.replays:
            exact = []

            def watched(released):
                exact.append(statistic(released))
                return exact[-1]

            noisy = original(self, budget, rounds, watched, rows=rows, lattice=lattice)
            tape.releases.append(Release("grams", budget, exact, promised, noisy))
            return noisy
        found = tape.next("grams", budget, promised)
        for place, before in enumerate(found.exact):
            change = statistic(found.noisy.values[:place]) - before
            size = np.abs(np.linalg.eigvalsh(change))
            # the two norms of the proof: of the Wishart difference, and of Gaussian noise
            tape.judge(f"{budget}, nuclear", float(size.sum()), 2.0, EXACT)
            tape.judge(f"{budget}, Frobenius", float(np.sqrt((size**2).sum())), math.sqrt(2), EXACT)
        return found.noisy

    return gram_rounds


def _fit(tape: Tape, original: Callable[..., Any]) -> Callable[..., Any]:
    def fit(self, X, W, *, eps, delta, source):
        if source is None:
            return original(self, X, W, eps=eps, delta=delta, source=source)
        promised = {"eps": eps, "delta": delta, "model": self}
        if not tape.replays:
            with tape.inside():
                fitted = original(self, X, W, eps=eps, delta=delta, source=source)
            tape.releases.append(Release("objective", "propensity", (X, W), promised, fitted))
            return fitted
        found = tape.next("objective", "propensity", promised)
        gradients, determinants = zip(
            *(_logistic(self, rows, found.noisy, eps, delta) for rows in (found.exact, (X, W))),
            strict=True,
        )
        shift = float(np.linalg.norm(gradients[0] - gradients[1]))
        tape.judge("propensity, gradient", shift, 2.0, EXACT)
        if delta == 0.0:
            budget, _, scale = self.calibrated(eps, delta)
            loss = shift / scale + abs(determinants[0] - determinants[1])
            # of one of the rows that a person may have
            tape.judge("propensity, loss", loss, budget / self.rows_per_person, 1e-7)
        return found.noisy

    return fit


def _logistic(
    model: Objective, rows: tuple[Any, Any], fitted: Any, eps: float, delta: float
) -> tuple[np.ndarray, float]:
    """Return the part of the gradient that rows make up, and the log determinant, at a release."""
    X, W = rows
    x = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), fitted.row_norm)
    signed = x * np.where(W, 1.0, -1.0)[:, None]
    _, penalty, _ = model.calibrated(eps, delta)
    wrong = expit(-signed @ fitted.coefficients)
    hessian = penalty * np.eye(x.shape[1]) + (x * (wrong * (1.0 - wrong))[:, None]).T @ x
    return wrong @ signed, float(np.linalg.slogdet(hessian)[1])


def _perturbed(tape: Tape, original: Callable[..., Any]) -> Callable[..., Any]:
    def perturbed(X, y, penalty, cost, name, mechanisms):
        promised = {"y": y.tolist(), "penalty": penalty, "cost": cost}
        if not tape.replays:
            with tape.inside():
                made = original(X, y, penalty, cost, name, mechanisms)
            tape.releases.append(Release("objective", name, X, promised, made))
            return made
        found = tape.next("objective", name, promised)
        weights, _, (record, *_) = found.noisy
        # at the same weights (and the same part of the gradient that the constraint takes up)
        gradients = [2.0 * rows @ (rows.T @ weights - y) for rows in (found.exact, X)]
        change = float(np.linalg.norm(gradients[0] - gradients[1]))
        tape.judge(f"{name}, gradient", change, record.sensitivity, EXACT)
        return found.noisy

    return perturbed
