"""What every kernel is put through.

One line in `CASES` a kernel and a form of its releases; sources and mechanisms that watch; a search
for the neighbours that move a statistic most; an audit by Clopper-Pearson bounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from scipy.special import expit
from scipy.stats import beta

from dpstats.ate.kernels import KERNELS
from dpstats.ate.kernels.base import Arrays, Options, Public
from dpstats.privacy.accounting import allocate
from dpstats.privacy.mechanisms import Mechanisms, sum_lattice
from dpstats.propensity import Objective

HALF_WIDTH = 1.5
KINDS = ("laplace", "gaussian")


@dataclass(frozen=True)
class FixedModel:
    """A propensity that is a fixed function of the row: what is left once a model is released."""

    slope: float = 6.0

    def fit(self, X, W, *, eps, delta, source):
        return self

    @property
    def records(self):
        return ()

    def predict(self, X):
        return expit(self.slope * X[:, 1])


@dataclass(frozen=True)
class Case:
    """A kernel with one form of its releases.

    `loose` names the (release, norm) whose declared sensitivity is an upper bound only; every other
    one must be attained. `probability` is the propensity of `propensity="number"`.
    """

    kernel: str
    propensity: Literal["row", "number", "fixed", "objective", "none"]
    estimand: str = "ate"
    probability: float = 0.3
    blocks: int | None = None
    overlap: float | None = None
    split: tuple[str, ...] | None = None
    method: tuple[tuple[str, Any], ...] = ()
    loose: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        parts = [self.kernel, self.propensity, self.estimand]
        parts += [] if self.blocks is None else [f"{self.blocks}blocks"]
        parts += [] if self.overlap is None else [f"overlap{self.overlap:g}"]
        parts += [] if self.split is None else ["+".join(self.split)]
        parts += [f"{name}{value}" for name, value in self.method]
        return "-".join(parts)

    @property
    def run_by(self):
        return KERNELS[self.kernel]

    def settings(self, epsilon: float, delta: float, n: int):
        model = {"fixed": FixedModel(), "objective": Objective()}.get(self.propensity)
        chosen = {
            "estimand": self.estimand,
            "propensity": model,
            "probability": self.probability if self.propensity == "number" else None,
            "by_row": self.propensity == "row",
            "overlap": self.overlap,
            "split": self.split,
        }
        method = {"blocks": self.blocks, "min_count": 0.0, **dict(self.method)}
        known = self.run_by.method_options
        method = {k: known[k](v) for k, v in method.items() if k in known and v is not None}
        return self.run_by.settings(Options(**chosen, method=method), Public(n, 1, epsilon, delta))

    def costs(self, epsilon: float, delta: float, n: int):
        settings = self.settings(epsilon, delta, n)
        shares = self.run_by.shares(settings, Public(n, 1, epsilon, delta))
        if self.split is not None:
            shares = {k: v for k, v in shares.items() if k in self.split}
        if not settings.fits_propensity:
            shares = {k: v for k, v in shares.items() if k != "propensity"}
        return allocate(epsilon, delta, shares, set(shares) if delta > 0.0 else ())

    def watched(self, source, kind: str, epsilon: float, delta: float, n: int, **extra):
        return Watched(
            source, kind, self.costs(epsilon, delta if kind == "gaussian" else 0.0, n), **extra
        )

    def run(self, arrays: Arrays, mechanisms: Watched, epsilon: float = 1.0, delta: float = 0.0):
        return self.run_by.run(arrays, self.settings(epsilon, delta, arrays.n), mechanisms)

    def served(self) -> tuple[str, ...]:
        return self.run_by.served(self.settings(1.0, 0.0, 100))


_SEPARATE = ("propensity", "counts", "sums", "variances")
_SEPARATE_KNOWN = ("counts", "sums", "variances")

# A new kernel gets every test of this folder by its lines here.
CASES: tuple[Case, ...] = (
    Case("blocking", "row", blocks=3),
    Case("blocking", "fixed", blocks=3),
    Case("blocking", "number", blocks=2),
    Case("blocking", "row", blocks=3, split=_SEPARATE_KNOWN),
    Case("blocking", "fixed", blocks=2, split=_SEPARATE),
    Case("blocking", "row", blocks=2, split=("counts", "sums")),
    Case("blocking", "number", blocks=1),
    Case("blocking", "row", blocks=1),
    Case("diff_means", "none"),
    Case("diff_means", "none", split=("counts", "sums")),
    Case("ipw", "row"),
    Case("ipw", "fixed", overlap=0.07),
    Case("ipw", "number"),
    Case("ipw", "row", "att"),
    Case("ipw", "fixed", "att", overlap=0.25),
    Case("ipw", "number", "att"),
    Case("ipw", "row", "atc"),
    Case("ipw", "fixed", "atc", overlap=0.05),
    Case("ipw", "number", "atc"),
    Case("ipw", "row", split=("score",)),
)

# the same kernels with a model that is fitted: their releases depend on a release before them
FITTED: tuple[Case, ...] = (
    Case("blocking", "objective", blocks=3),
    Case("blocking", "objective", blocks=3, split=_SEPARATE),
    Case("ipw", "objective"),
    Case("ipw", "objective", "att"),
    Case("ipw", "objective", "atc"),
)


# ------------------------------------------------------------------------------------- sources


class Silent:
    """Adds nothing."""

    seeded = True

    def laplace(self, name, values, scale):
        return values

    gaussian = laplace

    def knorm(self, name, dimension, scale, ball):
        return np.zeros(dimension)

    def normal(self, name, dimension, scale):
        return np.zeros(dimension)

    def permutation(self, name, n):
        return np.arange(n)


@dataclass
class Tap:
    """Passes everything on to `inner`, and writes down what it was asked for."""

    inner: Any
    draws: list[tuple[str, str, Any, float]] = field(default_factory=list)
    seeded: bool = True

    def laplace(self, name, values, scale):
        self.draws.append((name, "laplace", values, scale))
        return self.inner.laplace(name, values, scale)

    def gaussian(self, name, values, scale):
        self.draws.append((name, "gaussian", values, scale))
        return self.inner.gaussian(name, values, scale)

    def knorm(self, name, dimension, scale, ball):
        self.draws.append((name, "knorm", None, scale))
        return self.inner.knorm(name, dimension, scale, ball)

    def normal(self, name, dimension, scale):
        self.draws.append((name, "normal", None, scale))
        return self.inner.normal(name, dimension, scale)

    def permutation(self, name, n):
        return self.inner.permutation(name, n)


@dataclass
class Scaled:
    """Multiplies the noise of `inner`: the positive control of every audit has `factor` 1/2."""

    inner: Any
    factor: float = 0.5
    seeded: bool = True

    def laplace(self, name, values, scale):
        return self.inner.laplace(name, values, scale * self.factor)

    def gaussian(self, name, values, scale):
        return self.inner.gaussian(name, values, scale * self.factor)

    def knorm(self, name, dimension, scale, ball):
        return self.inner.knorm(name, dimension, scale * self.factor, ball)

    def normal(self, name, dimension, scale):
        return self.inner.normal(name, dimension, scale * self.factor)

    def permutation(self, name, n):
        return self.inner.permutation(name, n)


class Blind:
    """Returns numbers that do not depend on what it is given: whatever else differs has leaked."""

    seeded = True

    def laplace(self, name, values, scale):
        rng = np.random.default_rng(list(name.encode()))
        return np.rint(rng.uniform(1.0, 9.0, np.shape(values)) * 2.0**20).astype(np.int64)

    gaussian = laplace

    def permutation(self, name, n):
        return np.random.default_rng(list(name.encode())).permutation(n)


# ---------------------------------------------------------------------------------- mechanisms


@dataclass(frozen=True)
class Seen:
    """One release: exact statistic, declared sensitivities by norm, grid, what came out."""

    name: str
    exact: np.ndarray
    sensitivity: dict[str, float]
    lattice: int | None
    divisor: float
    noisy: Any

    @property
    def steps(self) -> np.ndarray:
        """The statistic in lattice steps, flat."""
        if self.lattice is None:
            return self.exact.ravel()
        return np.ldexp(self.exact, -self.lattice).ravel()

    def declared(self, norm: str) -> float:
        """Sensitivity in lattice steps."""
        size = self.sensitivity[norm]
        return size if self.lattice is None else math.ldexp(size, -self.lattice)


@dataclass(frozen=True)
class Watched(Mechanisms):
    """`Mechanisms` that remembers every release; `fault` spoils the declared sensitivities."""

    seen: list[Seen] = field(default_factory=list)
    fault: Any = None

    def additive(self, name, values, *, l1, l2, lattice, divisor=1.0, kind=None):
        if self.fault is not None:
            l1, l2 = self.fault(l1, lattice), self.fault(l2, lattice)
        noisy = super().additive(
            name, values, l1=l1, l2=l2, lattice=lattice, divisor=divisor, kind=kind
        )
        exact = np.array(values, dtype=float)
        self.seen.append(Seen(name, exact, {"l1": l1, "l2": l2}, lattice, divisor, noisy))
        return noisy

    def knorm(self, name, values, *, sensitivity, cost=None, ball="l2", grid_bits=20):
        if self.fault is not None:
            sensitivity = self.fault(sensitivity, -1074)
        noisy = super().knorm(
            name, values, sensitivity=sensitivity, cost=cost, ball=ball, grid_bits=grid_bits
        )
        exact = np.array(values, dtype=float)
        self.seen.append(Seen(name, exact, {ball: sensitivity}, None, 1.0, noisy))
        return noisy


# ------------------------------------------------------------------------------------- the data


@dataclass(frozen=True)
class Row:
    outcome: float
    treated: bool
    known: float
    x: float


def build(rows: Sequence[Row], case: Case) -> Arrays:
    n = len(rows)
    design = np.full((n, 2), 0.5)
    design[:, 1] = [row.x for row in rows]
    return Arrays(
        outcome=np.array([row.outcome for row in rows]),
        treated=np.array([row.treated for row in rows]),
        design=design,
        known=np.array([row.known for row in rows]) if case.propensity == "row" else None,
        half_width=HALF_WIDTH,
        lattice=sum_lattice(1.0, n),
    )


def extreme_rows(case: Case, n: int, *, few: bool = False) -> list[Row]:
    """Rows at the corners and edges of what a row may be, and a lattice step inside them."""
    step = math.ldexp(1.0, sum_lattice(1.0, n))
    outcomes = [-1.0, 1.0] if few else [-1.0, step - 1.0, 0.0, 0.5, 1.0]
    if case.propensity == "row":
        places = [0.0, 1.0] if few else [0.0, math.nextafter(1 / 3, 0.0), 0.95, 1.0]
        places = [(e, 0.0) for e in places]
    elif case.propensity in ("fixed", "objective"):
        places = [(0.5, x) for x in ([-1.0, 1.0] if few else [-1.0, -0.3, 0.4, 1.0])]
    else:
        places = [(0.5, 0.0)]
    return [Row(y, w, e, x) for y, w, (e, x) in itertools.product(outcomes, [False, True], places)]


def random_row(rng: np.random.Generator, n: int) -> Row:
    g = sum_lattice(1.0, n)
    y = math.ldexp(float(rng.integers(-(2**-g), 2**-g, endpoint=True)), g)
    e = float(rng.choice([0.0, 1.0, rng.uniform()], p=[0.05, 0.05, 0.9]))
    return Row(y, bool(rng.integers(2)), e, float(rng.uniform(-1.0, 1.0)))


def random_arrays(case: Case, n: int, seed: int) -> Arrays:
    """Draw an ordinary file: overlap, an effect, outcomes with all their bits."""
    rng = np.random.default_rng(seed)
    g = sum_lattice(1.0, n)
    x = rng.uniform(-0.4, 0.4, n)
    e = expit(4.0 * x) if case.propensity != "number" else np.full(n, case.probability)
    treated = rng.uniform(size=n) < e
    y = np.clip(0.3 * treated + 0.5 * x + rng.normal(scale=0.15, size=n), -1.0, 1.0)
    return Arrays(
        outcome=np.ldexp(np.rint(np.ldexp(y, -g)), g),
        treated=treated,
        design=np.c_[np.full(n, 0.5), x],
        known=e if case.propensity == "row" else None,
        half_width=HALF_WIDTH,
        lattice=g,
    )


# ---------------------------------------------------------------------------------- the search


Family = list[list[Row]]
TOTAL = "all releases"


def exhaustive_families(case: Case, n: int, *, few: bool) -> Iterable[Family]:
    """All files of `n` extreme rows, grouped so that any two of a group are neighbours."""
    rows = extreme_rows(case, n, few=few)
    for place in range(n):
        for others in itertools.product(rows, repeat=n - 1):
            yield [[*others[:place], row, *others[place:]] for row in rows]


def random_families(case: Case, n: int, groups: int, seed: int) -> Iterable[Family]:
    rng = np.random.default_rng(seed)
    rows = extreme_rows(case, n)
    for _ in range(groups):
        others = [random_row(rng, n) for _ in range(n - 1)]
        if rng.integers(2):
            # everybody in one corner
            others = [rows[rng.integers(len(rows))]] * (n - 1)
        place = int(rng.integers(n))
        moved = [*rows, *(random_row(rng, n) for _ in range(20))]
        yield [[*others[:place], row, *others[place:]] for row in moved]


@dataclass
class Found:
    """Largest change of one release over neighbours, in lattice steps."""

    declared: float
    changed: float = 0.0

    @property
    def ratio(self) -> float:
        return self.changed / self.declared


@dataclass
class Search:
    """Largest change by (release, norm), and the neighbours that make it.

    `pairs` holds, by (noise, release), the neighbours with the largest loss in that release, and
    under the name `TOTAL` those with the largest loss over all releases together.
    """

    found: dict[tuple[str, str], Found]
    pairs: dict[tuple[str, str], tuple[float, Family]]

    def propose(self, kind: str, name: str, losses: np.ndarray, family: Family) -> None:
        first, second = np.unravel_index(int(losses.argmax()), losses.shape)
        loss = float(losses[first, second])
        if loss > self.pairs.get((kind, name), (0.0, []))[0]:
            self.pairs[kind, name] = (loss, [family[first], family[second]])


def search(
    case: Case, families: Iterable[Family], fault: Any = None, seen: Search | None = None
) -> Search:
    result = seen or Search({}, {})
    memo: dict[tuple[Row, ...], list[Seen]] = {}
    for family in families:
        runs = []
        for rows in family:
            key = tuple(rows)
            if key not in memo:
                # the same released numbers throughout: a later release may depend on an earlier one
                watched = case.watched(Blind(), "laplace", 1.0, 0.0, len(rows), fault=fault)
                case.run(build(rows, case), watched)
                memo[key] = watched.seen
            runs.append(memo[key])
        total: dict[str, Any] = dict.fromkeys(KINDS, 0.0)
        for releases in zip(*runs, strict=True):
            first = releases[0]
            assert all(r.name == first.name and r.lattice == first.lattice for r in releases)
            assert all(r.sensitivity == first.sensitivity for r in releases)
            steps = np.stack([r.steps for r in releases])
            gaps = np.abs(steps[:, None, :] - steps[None, :, :])
            sizes = {"l1": gaps.sum(-1), "l2": np.sqrt((gaps**2).sum(-1)), "linf": gaps.max(-1)}
            for norm in first.sensitivity:
                declared = first.declared(norm)
                entry = result.found.setdefault((first.name, norm), Found(declared))
                entry.declared = min(entry.declared, declared)
                entry.changed = max(entry.changed, float(sizes[norm].max()))
            epsilon = case.costs(1.0, 0.0, len(family[0]))[first.name].epsilon
            for kind, norm, power in (("laplace", "l1", 1), ("gaussian", "l2", 2)):
                if norm in first.sensitivity:
                    losses = (epsilon * sizes[norm] / first.declared(norm)) ** power
                    result.propose(kind, first.name, losses, family)
                    total[kind] = total[kind] + losses
        for kind in KINDS:
            result.propose(kind, TOTAL, total[kind], family)
    return result


@cache
def searched(case: Case) -> Search:
    """Search files of 2 and 3 rows exhaustively, larger ones at random."""
    result = search(case, exhaustive_families(case, 2, few=False))
    result = search(case, exhaustive_families(case, 3, few=True), seen=result)
    larger = Search({}, {})
    for n in (7, 40):
        search(case, random_families(case, n, 6, seed=n), seen=larger)
    for key, entry in larger.found.items():
        # grids differ with n, so the two are compared as shares of what was declared
        if entry.ratio > result.found[key].ratio:
            result.found[key] = entry
    return result


# ----------------------------------------------------------------------------------- the audit


def epsilon_lower_bound(
    first: np.ndarray, second: np.ndarray, delta: float, false_alarm: float
) -> float:
    """Lower confidence bound on epsilon at `delta` from scores of runs on two neighbours.

    Thresholds are chosen on one half of the runs and judged on the other by Clopper-Pearson bounds
    at `false_alarm`/4 each (two probabilities, two directions), so the bound exceeds the true
    epsilon with probability at most `false_alarm`.
    """
    half = first.size // 2
    best = 0.0
    for p, q in ((first, second), (-second, -first)):
        cuts = np.unique(np.quantile(p[:half], np.linspace(0.3, 0.9995, 200)))
        guesses = _log_ratio(p[:half], q[:half], cuts, delta, false_alarm / 4.0)
        cut = cuts[[int(guesses.argmax())]]
        best = max(best, float(_log_ratio(p[half:], q[half:], cut, delta, false_alarm / 4.0)[0]))
    return best


def _log_ratio(p, q, cuts, delta, level):
    n = p.size
    above_p = n - np.searchsorted(np.sort(p), cuts, side="left")
    above_q = n - np.searchsorted(np.sort(q), cuts, side="left")
    low = np.where(above_p > 0, beta.ppf(level, np.maximum(above_p, 1), n - above_p + 1), 0.0)
    high = np.where(
        above_q < n, beta.ppf(1.0 - level, above_q + 1, np.maximum(n - above_q, 1)), 1.0
    )
    with np.errstate(divide="ignore"):
        return np.log(np.maximum(low - delta, 0.0) / high)


@dataclass
class Draws:
    """What a run asks its source for, given the numbers that were released before each draw."""

    calls: list[tuple[str, str, np.ndarray, float]]

    @classmethod
    def of(cls, case: Case, rows: list[Row], kind: str, epsilon: float, delta: float) -> Draws:
        tap = Tap(Blind())
        arrays = build(rows, case)
        case.run(arrays, case.watched(tap, kind, epsilon, delta, arrays.n), epsilon, delta)
        return cls([(name, how, np.ravel(steps), scale) for name, how, steps, scale in tap.draws])

    def released(self, source: Any, trials: int) -> list[np.ndarray]:
        """Draw `trials` runs at once from the same sampler: (trials, numbers) for each release."""
        return [
            getattr(source, how)(name, np.tile(steps, (trials, 1)), scale)
            for name, how, steps, scale in self.calls
        ]

    def log_density(self, released: list[np.ndarray]) -> dict[str, np.ndarray]:
        """Log density of each release, and of all, by the scales that were asked for."""
        found = {}
        for (name, how, steps, scale), values in zip(self.calls, released, strict=True):
            z = (values - steps) / scale
            found[name] = -(np.abs(z) if how == "laplace" else 0.5 * z * z).sum(-1)
        return {**found, TOTAL: np.sum(list(found.values()), axis=0)}


@dataclass(frozen=True)
class Audited:
    """Lower bound on epsilon beside the epsilon that was promised."""

    bound: float
    promised: float


def audit(
    case: Case,
    kind: str,
    epsilon: float,
    delta: float,
    source: Any,
    trials: int,
    false_alarm: float,
) -> dict[str, Audited]:
    """Audit each release, and all together, on their worst neighbours by the likelihood ratio."""
    costs = case.costs(epsilon, delta, 2)
    result = {}
    for (noise, name), (_, pair) in searched(case).pairs.items():
        if noise != kind:
            continue
        one, two = (Draws.of(case, rows, kind, epsilon, delta) for rows in pair)
        scores = []
        for draws in (one, two):
            released = draws.released(source, trials)
            scores.append(one.log_density(released)[name] - two.log_density(released)[name])
        promised, slack = epsilon, delta
        if name != TOTAL:
            promised, slack = costs[name].epsilon, costs[name].delta
        bound = epsilon_lower_bound(scores[0], scores[1], slack, false_alarm)
        result[name] = Audited(bound, promised)
    return result


def same(first: Any, second: Any) -> bool:
    """Whether two results hold the same bits throughout."""
    if is_dataclass(first) and type(first) is type(second):
        return all(same(getattr(first, f.name), getattr(second, f.name)) for f in fields(first))
    if isinstance(first, np.ndarray):
        return isinstance(second, np.ndarray) and same(first.tolist(), second.tolist())
    if isinstance(first, tuple | list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if isinstance(first, float) and math.isnan(first):
        return isinstance(second, float) and math.isnan(second)
    return bool(first == second)
