"""What `audits.py` audits: calls, and the neighbours on which they can be told apart best.

A bound near eps needs neighbours that attain the sensitivity of a release (`docs/methods.md` has
the proofs), and a budget that goes to that release nearly whole: what a split cannot leave out has
`_REST` of it. Where several numbers carry the loss, a statistic is looked at besides: the log
likelihood ratio of the noise, whose law and exact values on both data sets the auditor knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy.special import expit, kve

from dpstats import audit
from dpstats.propensity import Objective

__all__ = ["DELTA", "Case", "Pair", "cases"]

Pair: TypeAlias = tuple[Any, Any]
# a number made of a result, and of those on both data sets without noise
Statistic: TypeAlias = Callable[[Any, Any, Any], float]

# so large that the events that cost all of eps are common: at 0.01 and eps = 1 they have
# probabilities of 0.05 and 0.01, which thousands of runs hardly tell apart; here of 0.3 and 0.06
DELTA = 0.1
_REST = 0.02


@dataclass(frozen=True)
class Case:
    """A call and its neighbours.

    Attributes
    ----------
    function, method, name : str
    pairs : sequence of (data, neighbour)
        Of several, a pilot chooses.
    options : mapping
        Further arguments of the call.
    formula : str
        Of `dp_ate`.
    statistic : callable, optional
        Looked at besides what is released.
    runs : int
        Times so many of them, where the loss is spread over so many numbers that an event which
        costs much of it is rare.
    """

    function: str
    method: str
    name: str
    pairs: Sequence[Pair]
    options: Mapping[str, Any] = field(default_factory=dict)
    formula: str = "y ~ x"
    statistic: Statistic | None = None
    runs: int = 1

    @property
    def delta(self) -> float:
        """Of the call."""
        return float(self.options.get("delta", 0.0))

    def gaussian(self, statistic: Statistic | None = None) -> Case:
        """Return the case with Gaussian noise."""
        options = {**self.options, "delta": DELTA}
        # one case has one name in the table, whatever its noise
        name = "Gaussian" if self.name == "Laplace" else f"{self.name}, Gaussian"
        return Case(self.function, self.method, name, self.pairs, options, self.formula, statistic)


def cases() -> Iterator[Case]:
    """Every method of both functions, with Laplace and with Gaussian noise."""
    yield from _cells()
    yield from _weights()
    yield from _outcomes()
    yield from _subsets()
    yield from _synth()
    yield from _fitted()


# ------------------------------------------------------------------------------------- the data


def _file(rows: Sequence[tuple[float, int, float, float]]) -> pd.DataFrame:
    """Return rows of outcome, treatment, covariate and known propensity."""
    return pd.DataFrame(rows, columns=["y", "w", "x", "e"])


def _pair(
    first: tuple[float, int, float, float],
    second: tuple[float, int, float, float],
    others: Sequence[tuple[float, int, float, float]],
) -> list[Pair]:
    return [(_file([first, *others]), _file([second, *others]))]


_CONTROL = (0.0, 0, 0.0, 0.5)
# a treated row, alone in its arm, turns its outcome over
_TURN = _pair((1.0, 1, 0.0, 0.5), (-1.0, 1, 0.0, 0.5), [_CONTROL] * 3)
# a row changes arms
_MOVE = _pair((1.0, 1, 1.0, 0.5), (1.0, 0, 1.0, 0.5), [_CONTROL] * 3)


def _corners() -> list[Pair]:
    """Files of four rows; the first moves between the corners of what a row may be."""
    rows = [(1.0, 1, 1.0, 0.5), (-1.0, 0, -1.0, 0.5), (0.0, 1, 1.0, 0.5), (0.0, 0, -1.0, 0.5)]
    corners = [(0, -1.0, 1.0), (1, -1.0, 1.0), (0, 1.0, -1.0)]
    return audit.neighbours(_file(rows), [{"w": w, "y": y, "x": x} for w, y, x in corners])


def _panel(target: Sequence[float], *donors: Sequence[float]) -> pd.DataFrame:
    names = ["target", *(f"donor {place}" for place in range(len(donors)))]
    return pd.DataFrame([target, *donors], index=names, dtype=float)


# ------------------------------------------------------------------------- likelihood ratios


def _ratio(read: Callable[[Any], np.ndarray], log_density: Callable[..., float]) -> Statistic:
    """Return the log likelihood ratio of numbers with noise of one law around the exact ones."""

    def of(result: Any, first: Any, second: Any) -> float:
        values = read(result)
        one, two = (log_density(result, values - read(exact)) for exact in (first, second))
        return one - two

    return of


def _laplace(result: Any, noise: np.ndarray) -> float:
    scales = np.array(result.released.scales)
    return -float(np.abs(noise / scales.reshape(-1, *[1] * (noise.ndim - 1))).sum())


def _normal(result: Any, noise: np.ndarray) -> float:
    scales = np.array(result.released.scales)
    return -float(((noise / scales.reshape(-1, *[1] * (noise.ndim - 1))) ** 2).sum()) / 2.0


def _raw(result: Any) -> np.ndarray:
    return np.asarray(result.released.raw)


_CELLS, _NORMAL_CELLS = _ratio(_raw, _laplace), _ratio(_raw, _normal)


def _matrices(read: Callable[[Any], np.ndarray], level: Callable[[Any], float]) -> Statistic:
    """Return a ratio for differences of Wishart matrices: along the directions that move.

    Their joint density has no closed form. Along a unit vector the noise is the difference of two
    Gamma variables of shape (q + 1)/2, with the rate level/2.
    """

    def of(result: Any, first: Any, second: Any) -> float:
        values, one, two = (
            read(r).reshape(-1, *read(r).shape[-2:]) for r in (result, first, second)
        )
        shape, rate = (values.shape[-1] + 1) / 2.0, level(result) / 2.0
        total = 0.0
        for matrix, own, other in zip(values, one, two, strict=True):
            _, vectors = np.linalg.eigh(own - other)
            for noise, sign in ((matrix - own, 1.0), (matrix - other, -1.0)):
                along = np.einsum("iv,ij,jv->v", vectors, noise, vectors)
                total += sign * float(_log_gamma_difference(rate * along, shape).sum())
        return total

    return of


def _log_gamma_difference(x: np.ndarray, shape: float) -> np.ndarray:
    """Return the log density, up to a constant, of the difference of two Gamma variables."""
    size = np.maximum(np.abs(x), 1e-9)
    order = shape - 0.5
    return np.asarray(order * np.log(size) + np.log(kve(order, size)) - size)


def _normal_matrices(read: Callable[[Any], np.ndarray]) -> Statistic:
    """Return what a likelihood ratio of symmetric Gaussian noise rises with."""
    return lambda result, first, second: float(((read(first) - read(second)) * read(result)).sum())


# ----------------------------------------------------------------------------------- the methods


def _cells() -> Iterator[Case]:
    """`blocking` and `diff_means`: an outcome turned over moves one sum by 2C, or two halves."""
    sums = {"split": {"counts": _REST, "sums": 1.0 - _REST}}
    one = Case("dp_ate", "blocking", "one block", _TURN, {"propensity": 0.5, "blocks": 1, **sums})
    halves = {"propensity": 0.5, "blocks": 2, "split": {"counts": 1.0}}
    two = Case("dp_ate", "blocking", "two blocks", _TURN, halves, statistic=_CELLS)
    means = Case("dp_ate", "diff_means", "Laplace", _TURN, sums)
    yield from (one, one.gaussian(), two, two.gaussian(_NORMAL_CELLS), means, means.gaussian())
    # as shipped: a row that changes arms moves the count and both sums
    yield Case("dp_ate", "diff_means", "defaults", _MOVE, statistic=_CELLS)


def _weights() -> Iterator[Case]:
    """`ipw`, `nipw`, `split_ipw` with a known propensity: a score turned over."""
    known = {"propensity": 0.5}
    score = {**known, "split": {"score": 1.0}}
    for method in ("ipw", "split_ipw"):
        case = Case("dp_ate", method, "known", _TURN, score)
        yield from (case, case.gaussian())
    joint = {**known, "split": {"numerators": 1.0}}
    both = Case("dp_ate", "nipw", "joint", _TURN, joint, statistic=_CELLS)
    apart = {**known, "split": {"numerators": 1.0 - _REST, "denominators": _REST}}
    yield from (both, both.gaussian(_NORMAL_CELLS))
    yield Case("dp_ate", "nipw", "separate", _TURN, apart)


def _outcomes() -> Iterator[Case]:
    """`regression`: a row of norm 1 changes arms. `aipw`: a residual turned over."""

    def raw(result: Any) -> np.ndarray:
        return np.asarray(result.released.model.raw)

    def level(result: Any) -> float:
        return float(result.released.records[0].epsilon)

    moved = Case("dp_ate", "regression", "Laplace", _MOVE, statistic=_matrices(raw, level), runs=2)
    yield from (moved, moved.gaussian(_normal_matrices(raw)))
    # so many rows that the model fits the others' zeros, and both residuals are clipped
    others = [_CONTROL, (0.0, 1, 0.0, 0.5)] * 1500
    many = _pair((1.0, 1, 0.0, 0.5), (-1.0, 1, 0.0, 0.5), others)
    options = {"propensity": 0.5, "split": {"outcome": 0.1, "score": 0.9}}
    score = Case("dp_ate", "aipw", "known", many, options, "y ~ 1", _residual_score)
    yield from (score, score.gaussian(_residual_score))


def _residual_score(result: Any, first: Any, second: Any) -> float:
    """Return how far the released score is from the middle of both data sets', in noise scales.

    The score depends on the released model and its range: where the others' residuals are known,
    what is left is twice the residual of the row that is turned over.
    """
    found, model = result.released.correction, result.released.model
    levels, reach = model.model()[0], model.residual_range()
    others = (found.n - 1) // 2
    control, treated = np.clip(-levels, -reach, reach)
    ends = np.clip(np.array([1.0, -1.0]) - levels[1], -reach, reach)
    exact = 2.0 * (others * (treated - control) + ends) / found.n
    one, two = np.abs(found.score - exact) / found.score_scale
    return float(two - one)


def _subsets() -> Iterator[Case]:
    """Subsets and folds: one subset of all rows, or folds of one row each."""
    for method, release in (("agg_nipw", "score"), ("binary", "effects")):
        options = {"subsets": 1, "split": {release: 1.0}}
        known = Case("dp_ate", method, "known", _TURN, {"propensity": 0.5, **options})
        yield from (known, known.gaussian())
        # both means move: weights of 10 and 1.1 beside each other
        others = [(-1.0, 0, 0.0, 0.0), (-1.0, 1, 0.0, 1.0)]
        by_row = _pair((1.0, 0, 0.0, 1.0), (1.0, 1, 0.0, 0.0), others)
        yield Case("dp_ate", method, "known by row", by_row, {"propensity": "e", **options})
        # the worst of an exhaustive search over files of three rows: 0.73 of the sensitivity
        others = [(-1.0, 0, -1.0, 0.5), (-1.0, 1, 1.0, 0.5)]
        fitted = _pair((1.0, 0, 1.0, 0.5), (1.0, 1, -1.0, 0.5), others)
        yield Case("dp_ate", method, "fitted", fitted, options)
    score = {"split": {"score": 1.0}}
    known = Case("dp_ate", "agg_ipw", "known", _TURN, {"propensity": 0.5, "folds": 2, **score})
    yield from (known, known.gaussian())
    # all models but the row's own go from one end of [-2C, 2C] to the other
    rare = _pair((1.0, 1, 0.0, 0.5), (-1.0, 1, 0.0, 0.5), [_CONTROL] * 19)
    options = {"propensity": 0.01, "folds": 20, **score}
    known = Case("dp_ate", "agg_aipw", "known", rare, options)
    yield from (known, known.gaussian())
    # the row's own model does: a line through treated rows near 0, read where the others are
    near, far = [(0.0, 1, 0.2, 0.5)] * 7, [(0.0, 0, 1.0, 0.5)] * 192
    lever = _pair((1.0, 1, 0.0, 0.5), (-1.0, 1, 0.0, 0.5), [*near, *far])
    lines = Case("dp_ate", "agg_regression", "Laplace", lever, {"folds": 2, **score})
    yield from (lines, lines.gaussian())


def _synth() -> Iterator[Case]:
    """One donor, two periods before and one after; what there is of noise is in few dimensions."""
    flat, here, far = (0.0, 0.0, 0.0), (1.0, -1.0, 0.0), (1e20, -1e20, 0.0)

    def matrix(result: Any) -> np.ndarray:
        return np.asarray(result.released.matrix)

    # orthogonal rows: of the periods before, and of the one after
    across = [(_panel(flat, here), _panel(flat, (0.0, 0.0, 1.0)))]
    moments = Case(
        "dp_synth",
        "moments",
        "Laplace",
        across,
        statistic=_matrices(matrix, lambda result: float(result.released.level)),
        runs=3,
    )
    yield from (moments, moments.gaussian(_normal_matrices(matrix)))
    # longer than any norm that rows may be shrunk to
    turned = [(_panel(flat, far), _panel(flat, [-x for x in far]))]
    mean = {"split": {"scale": _REST, "mean": 1.0 - _REST}}
    did = Case("dp_synth", "did", "mean", turned, mean, statistic=_ratio(_path, _knorm))
    yield from (did, did.gaussian(_ratio(_path, _knorm_normal)))
    # the lowest 3 of 13 norms are best, or all but those are
    quiet = (0.106, -0.106, 0.0)
    norms = [(_panel(here, flat, quiet), _panel(here, far, quiet))]
    scale = {"split": {"scale": 1.0 - _REST, "mean": _REST}}
    yield Case("dp_synth", "did", "scale", norms, scale, runs=2)
    # a donor along the target turned over, and as long as the penalty makes worst
    along = [
        (_panel((1.0, 1.0, 0.0), (1.0, 1.0, 1.0)), _panel((1.0, 1.0, 0.0), (-1.0, -1.0, -1.0)))
    ]
    options = {"bounds": (-1.0, 1.0), "penalty": 4.0, "project": False}
    weights = {"split": {"weights": 1.0 - _REST, "prediction": _REST}}
    output = Case("dp_synth", "output", "weights", along, {**options, **weights})
    yield from (output, output.gaussian())
    prediction = {"split": {"weights": _REST, "prediction": 1.0 - _REST}}
    yield Case(
        "dp_synth", "output", "prediction", along, {**options, **prediction}, statistic=_of_weight
    )
    # a target beyond the bounds, and a penalty under which nothing reaches the edge of the ball
    beyond = (3.0, 3.0, 0.0)
    along = [(_panel(beyond, (1.0, 1.0, 1.0)), _panel(beyond, (-1.0, -1.0, -1.0)))]
    options = {"bounds": (-1.0, 1.0), "penalty": 1000.0}
    objective = Case("dp_synth", "objective", "weights", along, {**options, **weights})
    yield from (objective, objective.gaussian())


def _path(result: Any) -> np.ndarray:
    """Rows are shrunk to a norm that is released: in units of it."""
    return np.asarray(result.released.mean_path / result.released.row_norm)


def _knorm(result: Any, noise: np.ndarray) -> float:
    return -float(np.linalg.norm(noise)) * result.released.row_norm / result.released.scale


def _knorm_normal(result: Any, noise: np.ndarray) -> float:
    return -0.5 * _knorm(result, noise) ** 2


def _of_weight(result: Any, first: Any, second: Any) -> float:
    """Return the prediction from one donor over its weight: its outcome and noise of one scale."""
    return float(result.released.post[0, 0] / result.released.donor_weights[0, 0])


def _fitted() -> Iterator[Case]:
    """Perturbed objectives. Others' rows make both versions of the row badly predicted."""
    # everybody else is a control, so both treated rows have all of the slope they can have
    others = [(0.0, 0, 0.0, 0.5)] * 400
    pair = _pair((0.0, 1, 1.0, 0.5), (0.0, 1, -1.0, 0.5), others)
    split = {"propensity": 1.0 - _REST, "score": _REST}
    ipw = Case("dp_ate", "ipw", "fitted", pair, {"split": split}, statistic=_coefficients)
    yield from (ipw, ipw.gaussian(_coefficients))
    split = {"propensity": 1.0 - _REST, "counts": _REST}
    options = {"blocks": 2, "split": split}
    yield Case("dp_ate", "blocking", "fitted", pair, options, statistic=_coefficients)
    # one row of twenty trains, the others are weighed
    turned = _pair((1.0, 1, 0.0, 0.5), (-1.0, 1, 0.0, 0.5), [_CONTROL] * 19)
    options = {"overlap": 0.45, "train_share": 0.05, "split": {"propensity": 1.0, "score": 1.0}}
    yield Case("dp_ate", "split_ipw", "fitted", turned, options)
    # all releases of the defaults together
    yield Case("dp_ate", "blocking", "two blocks, fitted", _corners(), {"blocks": 2})


def _coefficients(result: Any, first: Any, second: Any) -> float:
    """Return the log likelihood ratio of the minimum of a perturbed objective.

    The density of the noise that makes it one, times the Jacobian; the row that differs has the
    same Jacobian in both data sets up to its direction.
    """
    fitted = result.released.propensity
    (record, solver), w = fitted.records, fitted.coefficients
    relative = 0.5 if result.method == "ipw" else 1.0
    budget = record.epsilon + solver.epsilon
    _, penalty, scale = Objective(relative_penalty=relative).calibrated(budget, record.delta)
    rows = np.array([[0.5, 0.0]] * 400)
    total = []
    for x in (1.0, -1.0):
        own = np.array([0.5, x]) / math.hypot(0.5, x)
        noise = penalty * w - expit(-own @ w) * own + expit(rows @ w) @ rows
        flat = (expit(rows @ w) * expit(-(rows @ w)))[:, None] * rows
        bent = float(expit(own @ w) * expit(-own @ w))
        hessian = penalty * np.eye(2) + rows.T @ flat + bent * np.outer(own, own)
        size = float(np.linalg.norm(noise)) / scale
        loss = size if record.delta == 0.0 else 0.5 * size**2
        total.append(float(np.linalg.slogdet(hessian)[1]) - loss)
    return total[0] - total[1]
