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

from dpstats.ate.kernels import KERNELS
from dpstats.ate.kernels.base import Arrays, Options, Public
from dpstats.audit import from_samples as audit_scores
from dpstats.privacy.accounting import Cost, allocate
from dpstats.privacy.mechanisms import Mechanisms, sum_lattice
from dpstats.propensity import Objective

HALF_WIDTH = 1.5
KINDS = ("laplace", "gaussian")
# they deal rows out at random: row order matters only through who is dealt where
PARTITIONED = frozenset(
    {"agg_nipw", "agg_ipw", "agg_aipw", "agg_regression", "binary", "split_ipw"}
)


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
    one must be attained. `probability` is the propensity of `propensity="number"`. `control` is the
    share of the noise, or of the sensitivity, that every control must notice to be too little:
    smaller than a half where the sensitivity is loose on files of two or three rows.
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
    control: float = 0.5
    # of the search for neighbours: where a release depends on the noise of one before it
    epsilon: float = 1.0
    columns: int = 1

    def __str__(self) -> str:
        parts = [self.kernel, self.propensity, self.estimand]
        parts += [] if self.blocks is None else [f"{self.blocks}blocks"]
        parts += [] if self.overlap is None else [f"overlap{self.overlap:g}"]
        parts += [] if self.split is None else ["+".join(self.split)]
        parts += [f"{name}{value}" for name, value in self.method]
        parts += [] if self.columns == 1 else [f"{self.columns}columns"]
        parts += [] if self.epsilon == 1.0 else [f"eps{self.epsilon:g}"]
        return "-".join(parts)

    @property
    def partitioned(self) -> bool:
        return self.kernel in PARTITIONED

    @property
    def run_by(self):
        return KERNELS[self.kernel]

    @property
    def rounded(self) -> bool:
        """Whether an outcome is modelled: rows on a grid, residuals clipped."""
        adjusts = dict(self.method).get("adjust", False) or "moments" in (self.split or ())
        return adjusts or self.kernel in ("regression", "aipw")

    def public(self, epsilon: float, delta: float, n: int) -> Public:
        return Public(n, self.columns, epsilon, delta, self.columns)

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
        public = self.public(epsilon, delta, n)
        return self.run_by.settings(Options(**chosen, method=method), public)

    def costs(self, epsilon: float, delta: float, n: int):
        settings = self.settings(epsilon, delta, n)
        shares = self.run_by.shares(settings, self.public(epsilon, delta, n))
        if self.split is not None:
            shares = {k: v for k, v in shares.items() if k in self.split}
        if not settings.fits_propensity:
            shares = {k: v for k, v in shares.items() if k != "propensity"}
        gaussian = set(shares) if delta > 0.0 else set()
        parts = self.run_by.partitions(settings)
        found = {}
        for rows in dict.fromkeys(parts.get(name, "all rows") for name in shares):
            # disjoint rows have the whole budget each
            inside = {k: v for k, v in shares.items() if parts.get(k, "all rows") == rows}
            found |= allocate(epsilon, delta, inside, gaussian & set(inside))
        return found

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
_SEPARATE_ADJUSTED = ("moments", *_SEPARATE_KNOWN)
_ADJUST = (("adjust", True),)

# In subsets: (t_k - t)^2 = 0 needs a released t that is a possible t_k, which that of `Blind` is
# not (0.9999996 of the sensitivity), and a variance of 0 needs two equal rows in each arm, which
# the search never draws (0.2 to 0.3); `test_subsets.py` attains both by hand.
_SPREAD = (("variances", "l1"), ("variances", "l2"))
# a row that stays in its arm needs a residual of zero, which the model leaves to none of these
_RESIDUAL = (("variances", "l2"),)
# fits of two or three rows do not reach every corner that the proof allows: 0.73 of the
# sensitivity for a logit with a ridge, 0.83 for doubly robust scores, 0.5 for regressions, whose
# room goes to 2C
_FITTED = tuple((name, norm) for name in ("score", "effects") for norm in ("l1", "l2"))

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
    Case("nipw", "row"),
    Case("nipw", "fixed", overlap=0.07),
    Case("nipw", "number"),
    Case("nipw", "row", "att"),
    Case("nipw", "fixed", "att", overlap=0.25),
    Case("nipw", "number", "att"),
    Case("nipw", "row", "atc"),
    Case("nipw", "number", "atc"),
    Case("nipw", "row", "ato"),
    Case("nipw", "row", "ato", overlap=0.2),
    Case("nipw", "number", "ato"),
    Case("nipw", "row", split=("numerators", "denominators", "variances")),
    Case("nipw", "row", "atc", split=("numerators", "denominators")),
    Case("nipw", "row", split=("numerators",)),
    Case("split_ipw", "row"),
    Case("split_ipw", "fixed", overlap=0.07),
    Case("split_ipw", "fixed", method=(("train_share", 0.6),), split=("propensity", "score")),
    Case("split_ipw", "fixed", "att"),
    Case("split_ipw", "number", "atc"),
    Case("agg_nipw", "row", loose=_SPREAD),
    Case("agg_nipw", "row", overlap=0.3, split=("score",)),
    Case("agg_nipw", "number", "atc", loose=_SPREAD),
    Case("agg_nipw", "row", "att", loose=_SPREAD),
    Case("agg_nipw", "row", "ato", loose=_SPREAD),
    Case("agg_nipw", "objective", loose=_FITTED + _SPREAD),
    Case("binary", "row", loose=_SPREAD),
    Case("binary", "row", "atc", loose=_SPREAD),
    Case("binary", "number", "att", split=("effects",)),
    Case("binary", "row", "ato", overlap=0.2, loose=_SPREAD),
    Case("binary", "objective", loose=_FITTED + _SPREAD),
    Case("agg_ipw", "row", loose=_SPREAD),
    Case("agg_ipw", "number", method=(("folds", 2),), loose=_SPREAD),
    Case("agg_ipw", "objective", overlap=0.3, loose=_FITTED + _SPREAD),
    Case("agg_aipw", "row", loose=_FITTED + _SPREAD),
    Case("agg_aipw", "objective", split=("score",), loose=_FITTED, control=0.25),
    Case("agg_regression", "objective", loose=_FITTED + _SPREAD, control=0.2),
    # so little noise that residuals range less far than outcomes, and of rounds there are two
    Case("regression", "none", epsilon=1e4),
    Case("regression", "none", columns=2),
    Case("aipw", "row", epsilon=1e4),
    Case("aipw", "fixed", overlap=0.07, epsilon=1e4, columns=2),
    Case("aipw", "number", "att", epsilon=1e4),
    Case("aipw", "fixed", "atc", overlap=0.25, epsilon=1e4),
    Case("aipw", "row", split=("outcome", "score"), epsilon=1e4),
    Case("blocking", "row", blocks=3, method=_ADJUST, epsilon=1e4, loose=_RESIDUAL),
    Case("blocking", "fixed", blocks=2, method=_ADJUST),
    Case("blocking", "fixed", blocks=2, method=_ADJUST, epsilon=1e4, columns=2, loose=_RESIDUAL),
    Case("blocking", "row", blocks=2, split=_SEPARATE_ADJUSTED, epsilon=1e4, loose=_RESIDUAL),
    Case("blocking", "number", blocks=1, method=_ADJUST, epsilon=1e4, loose=_RESIDUAL),
)

# the same kernels with a model that is fitted: their releases depend on a release before them
FITTED: tuple[Case, ...] = (
    Case("blocking", "objective", blocks=3),
    Case("blocking", "objective", blocks=3, split=_SEPARATE),
    Case("ipw", "objective"),
    Case("ipw", "objective", "att"),
    Case("ipw", "objective", "atc"),
    Case("nipw", "objective"),
    Case("nipw", "objective", "ato"),
    Case("split_ipw", "objective"),
    Case("split_ipw", "objective", "att"),
    Case("aipw", "objective", columns=2),
    Case("blocking", "objective", blocks=3, method=_ADJUST, columns=2),
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
class Dealt:
    """Draws noise from `inner`, but deals rows out in a given order, by default by turns."""

    inner: Any
    order: np.ndarray | None = None
    seeded: bool = True

    def laplace(self, name, values, scale):
        return self.inner.laplace(name, values, scale)

    def gaussian(self, name, values, scale):
        return self.inner.gaussian(name, values, scale)

    def knorm(self, name, dimension, scale, ball):
        return self.inner.knorm(name, dimension, scale, ball)

    def normal(self, name, dimension, scale):
        return self.inner.normal(name, dimension, scale)

    def permutation(self, name, n):
        return np.arange(n) if self.order is None else self.order


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

    def normal(self, name, dimension, scale):
        # added to the matrix of `Watched`, which is blind by itself
        return np.zeros(dimension)

    def permutation(self, name, n):
        return np.random.default_rng(list(name.encode())).permutation(n)


def is_blind(source: Any) -> bool:
    return isinstance(getattr(source, "inner", source), Blind)


@cache
def blind_matrix(shape: tuple[int, ...], n: int) -> np.ndarray:
    """Moments of rows that nobody has: small outcomes, a slope, both arms."""
    parts, q, _ = shape
    rng = np.random.default_rng(5)
    rows = np.c_[np.full(40, 0.63), rng.uniform(-0.3, 0.3, (40, q - 2)), np.zeros(40)]
    found = np.empty(shape)
    for part in range(parts):
        rows[:, -1] = 0.05 * (1 + part) + 0.2 * rows[:, 1:-1].sum(axis=1)
        rows[:, -1] += rng.uniform(-0.03, 0.03, 40)
        found[part] = rows.T @ rows * (n / parts / 40.0)
    return np.ldexp(np.rint(np.ldexp(found, 20)), -20)


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
    budget: str

    @property
    def matrix(self) -> bool:
        return "nuclear" in self.sensitivity

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
        self.seen.append(Seen(name, exact, {"l1": l1, "l2": l2}, lattice, divisor, noisy, name))
        return noisy

    def knorm(self, name, values, *, sensitivity, cost=None, ball="l2", grid_bits=20):
        if self.fault is not None:
            sensitivity = self.fault(sensitivity, -1074)
        noisy = super().knorm(
            name, values, sensitivity=sensitivity, cost=cost, ball=ball, grid_bits=grid_bits
        )
        exact = np.array(values, dtype=float)
        self.seen.append(Seen(name, exact, {ball: sensitivity}, None, 1.0, noisy, name))
        return noisy

    def gram_rounds(self, budget, rounds, statistic, *, rows, lattice):
        exact = []

        def watch(released):
            exact.append(np.array(statistic(released)))
            if is_blind(self.source):
                # noise is added to the matrix outside the source, so it is blinded here
                return blind_matrix(exact[-1].shape, rows)
            return exact[-1]

        noisy = super().gram_rounds(budget, rounds, watch, rows=rows, lattice=lattice)
        sizes = {"nuclear": 2.0, "Frobenius": math.sqrt(2.0)}
        if self.fault is not None:
            sizes = {norm: self.fault(size, lattice) for norm, size in sizes.items()}
        for name, matrix in zip(rounds, exact, strict=True):
            self.seen.append(Seen(name, matrix, sizes, lattice, 1.0, noisy, budget))
        return noisy


# ------------------------------------------------------------------------------------- the data


@dataclass(frozen=True)
class Row:
    outcome: float
    treated: bool
    known: float
    x: float
    # the second column of a design that has two
    other: float = 0.0


def build(rows: Sequence[Row], case: Case) -> Arrays:
    n = len(rows)
    design = np.full((n, 1 + case.columns), 0.5)
    design[:, 1] = [row.x for row in rows]
    if case.columns == 2:
        design[:, 2] = [row.other for row in rows]
    return Arrays(
        outcome=np.array([row.outcome for row in rows]),
        treated=np.array([row.treated for row in rows]),
        design=design,
        known=np.array([row.known for row in rows]) if case.propensity == "row" else None,
        half_width=HALF_WIDTH,
        lattice=sum_lattice(1.0, n),
        covariates=design,
    )


def extreme_rows(case: Case, n: int, *, few: bool = False) -> list[Row]:
    """Rows at the corners and edges of what a row may be, and a lattice step inside them."""
    step = math.ldexp(1.0, sum_lattice(1.0, n))
    outcomes = [-1.0, 1.0] if few else [-1.0, step - 1.0, 0.0, 0.5, 1.0]
    x = [-1.0, 1.0] if few else [-1.0, -0.3, 0.4, 1.0]
    if case.rounded and not few:
        # fewer of them, since a run takes longer; corners are longer than what rows are shrunk to
        outcomes, x = [-1.0, 0.0, 1.0], [-1.0, 0.4, 1.0]
    if case.propensity == "row":
        places = [0.0, 1.0] if few else [0.0, math.nextafter(1 / 3, 0.0), 0.95, 1.0]
        places = [(e, x[0] if e < 0.5 else x[-1]) for e in places] if case.rounded else places
        places = [place if isinstance(place, tuple) else (place, 0.0) for place in places]
    elif case.propensity in ("fixed", "objective") or case.rounded:
        places = [(0.5, place) for place in x]
    else:
        places = [(0.5, 0.0)]
    return [
        Row(y, w, e, x, abs(x) if case.columns == 2 else 0.0)
        for y, w, (e, x) in itertools.product(outcomes, [False, True], places)
    ]


def random_row(rng: np.random.Generator, n: int) -> Row:
    g = sum_lattice(1.0, n)
    y = math.ldexp(float(rng.integers(-(2**-g), 2**-g, endpoint=True)), g)
    e = float(rng.choice([0.0, 1.0, rng.uniform()], p=[0.05, 0.05, 0.9]))
    treated, x = bool(rng.integers(2)), float(rng.uniform(-1.0, 1.0))
    return Row(y, treated, e, x, float(rng.uniform(-1.0, 1.0)))


def random_arrays(case: Case, n: int, seed: int) -> Arrays:
    """Draw an ordinary file: overlap, an effect, outcomes with all their bits."""
    rng = np.random.default_rng(seed)
    g = sum_lattice(1.0, n)
    x = rng.uniform(-0.4, 0.4, n)
    e = expit(4.0 * x) if case.propensity != "number" else np.full(n, case.probability)
    treated = rng.uniform(size=n) < e
    y = np.clip(0.3 * treated + 0.5 * x + rng.normal(scale=0.15, size=n), -1.0, 1.0)
    design = np.c_[np.full(n, 0.5), x]
    if case.columns == 2:
        design = np.c_[design, rng.uniform(-1.0, 1.0, n)]
    return Arrays(
        outcome=np.ldexp(np.rint(np.ldexp(y, -g)), g),
        treated=treated,
        design=design,
        known=e if case.propensity == "row" else None,
        half_width=HALF_WIDTH,
        lattice=g,
        covariates=design,
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


def search(case: Case, families: Iterable[Family], fault: Any = None) -> Search:
    result = Search({}, {})
    memo: dict[tuple[Row, ...], list[Seen]] = {}
    for family in families:
        runs = []
        for rows in family:
            key = tuple(rows)
            if key not in memo:
                # the same released numbers throughout: a later release may depend on an earlier one
                eps = case.epsilon
                watched = case.watched(Blind(), "laplace", eps, 0.0, len(rows), fault=fault)
                case.run(build(rows, case), watched, eps)
                memo[key] = watched.seen
            runs.append(memo[key])
        total: dict[str, Any] = dict.fromkeys(KINDS, 0.0)
        for releases in zip(*runs, strict=True):
            first = releases[0]
            assert all(r.name == first.name and r.lattice == first.lattice for r in releases)
            assert all(r.sensitivity == first.sensitivity for r in releases)
            sizes = change_sizes(releases)
            for norm in first.sensitivity:
                declared = first.declared(norm)
                entry = result.found.setdefault((first.name, norm), Found(declared))
                entry.declared = min(entry.declared, declared)
                entry.changed = max(entry.changed, float(sizes[norm].max()))
            epsilon = case.costs(1.0, 0.0, len(family[0]))[first.budget].epsilon
            matrix = first.matrix
            for kind, norm, power in (
                ("laplace", "nuclear" if matrix else "l1", 1),
                ("gaussian", "Frobenius" if matrix else "l2", 2),
            ):
                if norm in first.sensitivity:
                    losses = (epsilon * sizes[norm] / first.declared(norm)) ** power
                    result.propose(kind, first.name, losses, family)
                    # `audit` has no likelihood of matrices: it holds them fixed
                    total[kind] = total[kind] + losses * (not matrix)
        for kind in KINDS:
            result.propose(kind, TOTAL, total[kind], family)
    return result


def change_sizes(releases: Sequence[Seen]) -> dict[str, np.ndarray]:
    """Norms of the changes between any two of a family, in lattice steps."""
    steps = np.stack([r.steps for r in releases])
    if releases[0].matrix:
        parts, q, _ = releases[0].exact.shape
        one, two = np.triu_indices(len(releases), 1)
        values = np.abs(np.linalg.eigvalsh((steps[one] - steps[two]).reshape(-1, parts, q, q)))
        found = {"nuclear": values.sum((-1, -2)), "Frobenius": np.sqrt((values**2).sum((-1, -2)))}
        sizes = {norm: np.zeros((len(releases), len(releases))) for norm in found}
        for norm, size in found.items():
            sizes[norm][one, two] = sizes[norm][two, one] = size
        return sizes
    gaps = np.abs(steps[:, None, :] - steps[None, :, :])
    return {"l1": gaps.sum(-1), "l2": np.sqrt((gaps**2).sum(-1)), "linf": gaps.max(-1)}


@cache
def searched(case: Case) -> Search:
    """Search files of 2 and 3 rows exhaustively, larger ones at random."""
    result = search(case, exhaustive_families(case, 2, few=False))
    three = search(case, exhaustive_families(case, 3, few=True))
    for key, pair in three.pairs.items():
        result.pairs[key] = max(result.pairs.get(key, (0.0, [])), pair, key=lambda p: p[0])
    for other in (three, *(search(case, random_families(case, n, 6, seed=n)) for n in (7, 40))):
        for name, entry in other.found.items():
            # grids and sensitivities differ with n: compared as shares of what was declared
            if entry.ratio > result.found[name].ratio:
                result.found[name] = entry
    return result


# ----------------------------------------------------------------------------------- the audit


def epsilon_lower_bound(
    first: np.ndarray, second: np.ndarray, delta: float, false_alarm: float
) -> float:
    """Lower confidence bound on epsilon at `delta` from scores of runs on two neighbours.

    Exceeds the true epsilon with probability at most `false_alarm`.
    """
    found = audit_scores(first, second, delta=delta, false_alarm=false_alarm, learn=False)
    return found.epsilon


@dataclass
class Draws:
    """What a run asks its source for, given the numbers that were released before each draw."""

    calls: list[tuple[str, str, np.ndarray, float]]

    @classmethod
    def of(cls, case: Case, rows: list[Row], kind: str, epsilon: float, delta: float) -> Draws:
        tap = Tap(Blind())
        arrays = build(rows, case)
        watched = case.watched(tap, kind, epsilon, delta, arrays.n)
        case.run(arrays, watched, epsilon, delta)
        matrices = {seen.name for seen in watched.seen if seen.matrix}
        # matrices are held fixed: `audit_of_matrices` is for them
        draws = [draw for draw in tap.draws if draw[0] not in matrices]
        return cls([(name, how, np.ravel(steps), scale) for name, how, steps, scale in draws])

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
    matrices = {name for name, norm in searched(case).found if norm == "nuclear"}
    for (noise, name), (_, pair) in searched(case).pairs.items():
        if noise != kind or name in matrices:
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


def audit_of_matrices(
    case: Case,
    kind: str,
    epsilon: float,
    delta: float,
    source: Any,
    trials: int,
    false_alarm: float,
) -> dict[str, Audited]:
    """Audit each matrix on its worst neighbours by its inner product with their difference.

    The Wishart difference has no density in closed form, so this is a lower bound on what could
    be told; for Gaussian noise it is the likelihood ratio.
    """
    result = {}
    for (noise, name), (_, pair) in searched(case).pairs.items():
        norms = {norm for release, norm in searched(case).found if release == name}
        if noise != kind or "nuclear" not in norms:
            continue
        exact = []
        for rows in pair:
            watched = case.watched(Blind(), "laplace", case.epsilon, 0.0, len(rows))
            case.run(build(rows, case), watched, case.epsilon)
            (seen,) = [seen for seen in watched.seen if seen.name == name]
            exact.append(seen.exact)
        parts, q, _ = exact[0].shape
        mechanisms = Mechanisms(source, kind, {name: Cost(epsilon, delta)})
        scores = []
        for matrix in exact:
            # the noise of many runs at once: blocks of one release are independent
            many = np.broadcast_to(matrix, (trials, parts, q, q)).reshape(-1, q, q)
            (value,) = mechanisms.gram_rounds(
                name,
                {name: 1.0},
                lambda _, many=many: many,
                rows=len(pair[0]),
                lattice=seen.lattice,
            ).values
            change = (exact[0] - exact[1]).ravel()
            scores.append(value.reshape(trials, -1) @ change)
        result[name] = Audited(epsilon_lower_bound(*scores, delta, false_alarm), epsilon)
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
