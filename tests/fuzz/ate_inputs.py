"""Frames and calls for `dp_ate` that nobody would write on purpose, and what must not matter to it.

Structure (names, dtypes, index, formula, options) is drawn by hypothesis, values by numpy from a
drawn seed, so that an input of 300 rows costs no more to make than one of 3.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

import dpstats as dp
from dpstats.ate.kernels import KERNELS

# they deal rows out at random: row order holds in distribution only
PARTITIONED = {"split_ipw", "agg_nipw", "agg_ipw", "agg_aipw", "agg_regression", "binary"}

NAMES = (
    *("y", "x", "größe", "x_1", "Ω", "价格", "z9", "treat", "eps", "two words", "class", "lambda"),
    *("a:b", "x*2", "a~b", "x.y", "naïve café", "1st", "x+y", "C", "Q", "np", "I", "None", "True"),
    *("if", "🙂", "a|b", "(x)", "a^b", "x**2", "-1", "0", "say 'so'", 'a "b"', "back\\slash"),
    *("<b>&", "$x$", "{x}", "%s", "center", "bs", "x[T.True]", "Intercept", "_", "  ", "x%in%y"),
)
_CALLS = frozenset({"C", "Q", "I", "np", "center", "bs"})

# interval, and whether shifting it by a power of two is exact on a grid of 1/64
BOUNDS = (
    *((0.0, 1.0), (-1.0, 1.0), (-5.0, 8.0), (0.0, 100.0), (3000.0, 4000.0), (-1e-99, 1e-99)),
    *((-1e99, 1e99), (0.0, 1e-90), (1e15, 1e15 + 1.0), (2.0**53, 2.0**53 + 4.0), (-0.0, 1e50)),
    *((1e-300, 1.0), (-1e300, -1e300 + 1e290), (0.1, 0.1 + 1e-12), (5e-324, 2.0)),
)
OUTCOME_BOUNDS = tuple(b for b in BOUNDS if 1e-100 < b[1] - b[0] < 1e100 and abs(b[0]) < 1e200)
EXTREMES = np.array(
    [0.0, -0.0, 1e300, -1e300, 1e-300, -1e-300, 5e-324, 1.7e308, np.inf, -np.inf, 1.0, -1.0]
)
PROFILES = ("uniform", "normal", "constant", "two values", "extreme", "at the bounds", "beyond")
NUMERIC = ("float64", "float32", "Float64", "int64", "Int64", "int8", "uint8", "uint64", "Int32")
TEXTS = ("category", "ordered", "string", "object", "object", "numbers")
LEVELS = ("a", "b", "Zoë", "x y", "1", "")

METHOD_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "blocks": st.sampled_from([1, 2, 3, 5, 9, "published"]),
    "min_count": st.sampled_from([0.0, 1.5, 30.0, 1e9]),
    "smooth": st.booleans(),
    "adjust": st.booleans(),
    "balance": st.sampled_from([1e-6, 0.1, 0.5, 0.99]),
    "train_share": st.sampled_from([0.01, 0.3, 0.5, 0.9]),
    "folds": st.sampled_from([2, 3, 5, 10]),
    "subsets": st.sampled_from([2, 3, 5, 10]),
}


@dataclass(frozen=True)
class AteInput:
    """One call. `numeric` holds the bounds of numeric columns, `levels` those of text columns."""

    frame: pd.DataFrame
    formula: str
    treat: str
    eps: float
    options: dict[str, Any]
    outcome: str
    numeric: dict[str, tuple[float, float] | None]
    texts: dict[str, str]
    used: tuple[str, ...]
    seed: int
    shift: bool

    def __repr__(self) -> str:
        dtypes = {name: str(dtype) for name, dtype in self.frame.dtypes.items()}
        return (
            f"dp_ate({self.formula!r}, {self.treat!r}, eps={self.eps!r}, {self.options}) on "
            f"{len(self.frame)} rows of {dtypes} [seed {self.seed}]"
        )

    @property
    def method(self) -> str:
        return self.options["method"]

    def run(self) -> dp.ATEResults:
        return dp.dp_ate(
            self.formula, self.treat, self.frame, self.eps, rng=self.seed, **self.options
        )

    def on(self, frame: pd.DataFrame) -> AteInput:
        return replace(self, frame=frame)


def written(name: str) -> str:
    """How a formula names a column."""
    plain = name.isidentifier() and not keyword.iskeyword(name) and name not in _CALLS
    return name if plain else f"Q({name!r})"


# ------------------------------------------------------------------------------------ values


def numbers(
    rng: np.random.Generator, n: int, profile: str, dtype: str, bounds: tuple[float, float] | None
) -> pd.Series:
    low, high = bounds or (-5.0, 8.0)
    if dtype.lower().startswith(("int", "uint")):
        info = np.iinfo(dtype.lower())
        low, high = max(low, float(info.min)), min(high, float(info.max) / 2)
        low, high = (low, high) if low < high else (0.0, 100.0)
        top, bottom = int(info.max), int(info.min)
        ends = [int(max(math.floor(low), bottom)), int(min(math.ceil(high), top))]
        if profile == "constant":
            values = [ends[0]] * n
        elif profile == "two values":
            values = [ends[i] for i in rng.integers(2, size=n)]
        elif profile == "extreme":
            values = [[0, 1, top, bottom, ends[0], ends[1]][i] for i in rng.integers(6, size=n)]
        else:
            width = min(ends[1] - ends[0], 2**60)
            values = [ends[0] + int(i) for i in rng.integers(width + 1, size=n)]
        return pd.Series(np.array(values, dtype=dtype.lower())).astype(dtype)
    width = high - low
    if profile == "constant":
        values = np.full(n, rng.choice([low, high, low + width / 2, 0.0, 1e300]))
    elif profile == "two values":
        values = rng.choice([low, high], n)
    elif profile == "extreme":
        values = rng.choice(EXTREMES, n)
    elif profile == "at the bounds":
        values = rng.choice([low, high, np.nextafter(low, -np.inf), np.nextafter(high, low)], n)
    elif profile == "beyond":
        values = low + width * rng.normal(0.5, 5.0, n)
    elif profile == "normal":
        values = low + width * np.clip(rng.normal(0.5, 0.2, n), 0, 1)
    else:
        values = low + width * rng.uniform(size=n)
    with np.errstate(over="ignore"):
        return pd.Series(np.asarray(values, dtype=np.float64)).astype(dtype)


def texts(rng: np.random.Generator, n: int, kind: str, levels: list[Any]) -> pd.Series:
    # now and then a level is absent, or a value is none of the levels
    present = levels if rng.random() < 0.7 else levels[:1]
    values = [present[i] for i in rng.integers(len(present), size=n)]
    if kind in ("category", "ordered"):
        return pd.Series(pd.Categorical(values, categories=levels, ordered=kind == "ordered"))
    if kind == "string":
        return pd.Series(values, dtype="string")
    series = pd.Series(values, dtype=object)
    if kind == "object" and rng.random() < 0.3:
        series.iloc[int(rng.integers(n))] = "a stranger"
    return series if kind == "object" else series.astype(np.int64)


def treatment(rng: np.random.Generator, n: int, shape: str, score: np.ndarray) -> np.ndarray:
    if shape == "all":
        return np.ones(n, dtype=int)
    if shape == "none":
        return np.zeros(n, dtype=int)
    if shape == "one":
        return (np.arange(n) == rng.integers(n)).astype(int)
    if shape == "separated":
        return (score > np.median(score)).astype(int)
    return rng.integers(2, size=n)


TREATED: dict[str, tuple[Callable[[np.ndarray], pd.Series], Any]] = {
    "int64": (lambda w: pd.Series(w), None),
    "int8": (lambda w: pd.Series(w.astype(np.int8)), None),
    "float64": (lambda w: pd.Series(w.astype(float)), None),
    "bool": (lambda w: pd.Series(w.astype(bool)), None),
    "boolean": (lambda w: pd.Series(w.astype(bool)).astype("boolean"), None),
    "Int64": (lambda w: pd.Series(w).astype("Int64"), None),
    "codes": (lambda w: pd.Series(pd.Categorical(w, categories=[0, 1])), None),
    "text": (lambda w: pd.Series(np.where(w == 1, "yes", "no")).astype("string"), "yes"),
    "objects": (lambda w: pd.Series(np.where(w == 1, "yes", "no").astype(object)), "yes"),
    "category": (
        lambda w: pd.Series(pd.Categorical(np.where(w == 1, "t", "c"), categories=["t", "c", "u"])),
        "t",
    ),
    "one and two": (lambda w: pd.Series(w + 1), 2),
    "dates": (
        lambda w: pd.Series(pd.to_datetime(np.where(w == 1, "2020-01-02", "1999-12-31"))),
        pd.Timestamp("2020-01-02"),
    ),
}


def index_of(kind: str, n: int, rng: np.random.Generator) -> pd.Index:
    if kind == "duplicate":
        return pd.Index(rng.integers(3, size=n))
    if kind == "text":
        return pd.Index([f"row {i}" for i in rng.permutation(n)])
    if kind == "dates":
        return pd.date_range("2020-01-01", periods=n)[rng.permutation(n)]
    if kind == "levels":
        return pd.MultiIndex.from_arrays([rng.integers(2, size=n), rng.permutation(n)])
    if kind == "missing":
        return pd.Index([math.nan, *range(n - 1)])
    return pd.RangeIndex(n)


INDEXES = ("plain", "duplicate", "text", "dates", "levels", "missing")


def decoys(n: int, taken: set[str]) -> dict[str, Any]:
    """Columns that no formula names, of kinds that no formula could take."""
    found = {
        "when": pd.date_range("1990-01-01", periods=n, tz="UTC"),
        "span": pd.to_timedelta(np.arange(n), unit="s"),
        "lists": [[i] for i in range(n)],
        "gone": np.full(n, np.nan),
        "complex": np.full(n, 1j),
        "nothing": [None] * n,
        "period": pd.period_range("2000-01", periods=n, freq="M"),
    }
    return {name: values for name, values in found.items() if name not in taken}


# ---------------------------------------------------------------------------------- the input


@dataclass
class _Draft:
    rng: np.random.Generator
    n: int
    columns: dict[str, pd.Series] = field(default_factory=dict)
    numeric: dict[str, tuple[float, float] | None] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    levels: dict[str, list[Any]] = field(default_factory=dict)
    terms: list[str] = field(default_factory=list)


@st.composite
def ate_inputs(draw: st.DrawFn, sizes: tuple[int, ...] = (2, 3, 4, 7, 20, 60, 300)) -> AteInput:
    """Draw a frame and a call of any method on it."""
    seed = draw(st.integers(0, 2**32 - 1))
    draft = _Draft(np.random.default_rng(seed), draw(st.sampled_from(sizes)))
    rng, n = draft.rng, draft.n
    names = draw(st.lists(st.sampled_from(NAMES), min_size=6, max_size=6, unique=True))
    outcome, treat, known, *covariates = names
    method = draw(st.sampled_from(sorted(KERNELS)))
    kernel = KERNELS[method]

    shift = draw(st.booleans())
    if shift:
        # a grid on which adding a power of two is exact
        draft.numeric[outcome] = (-5.0, 8.0)
        draft.columns[outcome] = pd.Series(np.round(rng.uniform(-7, 9, n) * 64) / 64)
    else:
        _numeric(draw, draft, outcome, st.sampled_from(OUTCOME_BOUNDS))
    if draw(st.integers(0, 19)) == 0:
        draft.columns[outcome] = pd.Series(rng.random(n) < 0.5)
        del draft.numeric[outcome]
    for name in covariates[: draw(st.integers(0, 3))]:
        kind = draw(st.sampled_from(["numeric", "numeric", "numeric", "bool", "text"]))
        if kind == "numeric":
            _numeric(draw, draft, name, st.sampled_from(BOUNDS))
        elif kind == "bool":
            dtype = draw(st.sampled_from(["bool", "boolean"]))
            draft.columns[name] = pd.Series(rng.random(n) < rng.choice([0.0, 0.5, 1.0])).astype(
                dtype
            )
            draft.terms.append(written(name))
        else:
            _text(draw, draft, name)
    if len(draft.terms) > 1 and draw(st.booleans()):
        draft.terms.append(":".join(draft.terms[:2]))
    right = draw(st.sampled_from(["", "", "", "0 + "])) + (" + ".join(draft.terms) or "1")

    score = pd.to_numeric(draft.columns[outcome].astype(float)).to_numpy()
    make, treated = TREATED[draw(st.sampled_from(sorted(TREATED)))]
    shape = draw(st.sampled_from(["random", "random", "random", "all", "none", "one", "separated"]))
    draft.columns[treat] = make(treatment(rng, n, shape, score))

    options: dict[str, Any] = {"method": method, "treated": treated}
    options["estimand"] = draw(st.sampled_from(kernel.estimands))
    if draw(st.integers(0, 9)) > 0:
        options["bounds"] = {k: v for k, v in draft.numeric.items() if v is not None}
    if draft.levels:
        options["levels"] = draft.levels
    eps = draw(
        st.sampled_from([1e-9, 1e-3, 0.5, 1.0, 4.0, 100.0, 1e6])
        | st.floats(1e-9, 1e6, allow_nan=False)
    )
    options["delta"] = draw(st.sampled_from([0.0, 0.0, 1e-12, 1e-6, 1e-3, 0.3]))
    options["overlap"] = draw(st.sampled_from([None, None, 1e-5, 0.1, 0.49]))
    options["rows_per_person"] = draw(st.sampled_from([1, 1, 1, 2, 5]))
    options["split"] = draw(st.sampled_from([None, None, None, "published"]))
    for name, values in METHOD_OPTIONS.items():
        if name in kernel.method_options and draw(st.integers(0, 2)) == 0:
            options[name] = draw(values)
    if not draft.terms:
        options.pop("balance", None)
    options["propensity"] = draw(_propensities(written(outcome), draft, known))
    if options["propensity"] == known:
        draft.columns[known] = pd.Series(
            rng.choice([0.0, 1.0, 0.5, 0.1, 1e300, -np.inf, np.inf, 5e-324], n)
            if rng.random() < 0.5
            else rng.uniform(size=n)
        )
    if draw(st.integers(0, 5)) == 0:
        options["missing"] = "drop"
        _poke(rng, draft)

    columns: dict[str, Any] = dict(draft.columns)
    used = tuple(columns)
    if draw(st.booleans()):
        columns |= decoys(n, set(columns))
    order = list(columns)
    rng.shuffle(order)
    frame = pd.DataFrame({name: columns[name] for name in order})
    frame.index = index_of(draw(st.sampled_from(INDEXES)), n, rng)
    return AteInput(
        frame,
        f"{written(outcome)} ~ {right}",
        treat,
        eps,
        options,
        outcome,
        draft.numeric,
        draft.texts,
        used,
        draw(st.integers(0, 2**16)),
        shift and outcome in draft.numeric,
    )


def _numeric(
    draw: st.DrawFn, draft: _Draft, name: str, bounds: st.SearchStrategy[tuple[float, float]]
) -> None:
    interval = draw(bounds)
    profile, dtype = draw(st.sampled_from(PROFILES)), draw(st.sampled_from(NUMERIC))
    draft.columns[name] = numbers(draft.rng, draft.n, profile, dtype, interval)
    draft.numeric[name] = interval
    x = written(name)
    forms = ["{}", "{}", "{}", "I({}**2)", "np.abs({})", "np.tanh({})", "np.sqrt(np.abs({}))"]
    forms += ["I({} > 0.5)", "np.where({} > 1, 1, {})", "np.log({})", "np.exp({})", "I(1 / {})"]
    term = draw(st.sampled_from(forms)).replace("{}", x)
    draft.terms += [term] if len(draft.columns) > 1 else []


def _text(draw: st.DrawFn, draft: _Draft, name: str) -> None:
    kind = draw(st.sampled_from(TEXTS))
    levels: list[Any] = list(LEVELS[: draw(st.integers(2, len(LEVELS)))])
    if kind == "numbers":
        levels = list(range(len(levels)))
    draft.columns[name] = texts(draft.rng, draft.n, kind, levels)
    draft.texts[name] = kind
    if kind not in ("category", "ordered"):
        draft.levels[name] = levels
    forms = ["{}", "C({})", "C({}, Sum)"]
    draft.terms.append(draw(st.sampled_from(forms)).replace("{}", written(name)))


def _propensities(outcome: str, draft: _Draft, known: str) -> st.SearchStrategy[Any]:
    forms: list[Any] = [None, None, None, known, 1e-9, 0.3, 0.5, 0.999]
    forms += [dp.propensity.Output(), dp.propensity.Output(penalty=3.0, row_norm=0.1)]
    forms += [dp.propensity.Objective(relative_penalty=0.5), dp.propensity.Objective(penalty=1e-2)]
    if draft.terms:
        forms.append(f"~ {draft.terms[0]}")
    return st.sampled_from(forms)


def _poke(rng: np.random.Generator, draft: _Draft) -> None:
    """Make some cells missing, in columns that can have any."""
    for name, column in draft.columns.items():
        if column.dtype.kind in "iub" and not isinstance(
            column.dtype, pd.api.extensions.ExtensionDtype
        ):
            continue
        rows = np.flatnonzero(rng.random(draft.n) < rng.choice([0.0, 0.05, 0.3]))
        column = column.copy()
        column.iloc[rows] = None
        draft.columns[name] = column


# ------------------------------------------------------------------------ what must not matter


def reordered(case: AteInput, rng: np.random.Generator) -> AteInput | None:
    if case.method in PARTITIONED:
        return None
    return case.on(case.frame.iloc[rng.permutation(len(case.frame))])


def reindexed(case: AteInput, rng: np.random.Generator) -> AteInput:
    frame = case.frame.copy()
    frame.index = index_of(str(rng.choice(INDEXES)), len(frame), rng)
    return case.on(frame)


def columns_shuffled(case: AteInput, rng: np.random.Generator) -> AteInput:
    return case.on(case.frame[list(rng.permutation(np.array(case.frame.columns, dtype=object)))])


def without_decoys(case: AteInput, rng: np.random.Generator) -> AteInput:
    if len(case.used) < case.frame.shape[1]:
        return case.on(case.frame[list(case.used)])
    frame = case.frame.copy()
    for name, values in decoys(len(frame), set(frame.columns)).items():
        frame[name] = values
    return case.on(frame)


def retyped(case: AteInput, rng: np.random.Generator) -> AteInput | None:
    frame, changed = case.frame.copy(), False
    for name in case.numeric:
        column = frame[name]
        for dtype in rng.permutation(["float32", "Float64", "float64", "Int64", "int64", "int16"]):
            other = _recast(column, str(dtype))
            if other is not None:
                frame[name], changed = other, True
                break
    for name, kind in case.texts.items():
        levels = case.options.get("levels", {}).get(name)
        column = frame[name]
        if kind == "string":
            frame[name], changed = column.astype(object), True
        elif kind == "object" and set(column.dropna()) <= set(levels):
            frame[name], changed = pd.Categorical(column, categories=levels), True
        elif kind == "numbers":
            frame[name], changed = column.astype("Int64"), True
    treated = frame[case.treat]
    if case.options["treated"] is None and not isinstance(treated.dtype, pd.CategoricalDtype):
        frame[case.treat], changed = treated.astype("Float64"), True
    return case.on(frame) if changed else None


def _recast(column: pd.Series, dtype: str) -> pd.Series | None:
    """Convert, where no value changes."""
    if str(column.dtype) == dtype:
        return None
    try:
        with np.errstate(all="ignore"):
            other = column.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return None
    mine, its = (c.to_numpy(dtype=np.float64, na_value=np.nan) for c in (column, other))
    return other if np.array_equal(mine, its, equal_nan=True) else None


def beyond_the_bound(case: AteInput, rng: np.random.Generator) -> tuple[AteInput, AteInput] | None:
    """A value at a bound, and the same value far beyond it."""
    bounds = case.options.get("bounds") or {}
    names = [k for k in bounds if case.frame[k].dtype == np.float64]
    if not names:
        return None
    name = names[int(rng.integers(len(names)))]
    low, high = bounds[name]
    at = int(rng.integers(len(case.frame)))
    up = bool(rng.integers(2))
    far = [np.inf, 1.7e308, high + (high - low)] if up else [-np.inf, -1.7e308, low - (high - low)]
    pair = []
    for value in (high if up else low, far[int(rng.integers(3))]):
        frame = case.frame.copy()
        frame.iloc[at, frame.columns.get_loc(name)] = value
        pair.append(case.on(frame))
    return pair[0], pair[1]


def outside_the_levels(
    case: AteInput, rng: np.random.Generator
) -> tuple[AteInput, AteInput] | None:
    """A value that is no level counts as the first."""
    names = [name for name, kind in case.texts.items() if kind == "object"]
    if not names:
        return None
    levels = case.options["levels"][names[0]]
    at = int(rng.integers(len(case.frame)))
    pair = []
    for value in (levels[0], ["a stranger", 17, ("a", "b"), 1e300][int(rng.integers(4))]):
        frame = case.frame.copy()
        cells = frame[names[0]].tolist()
        cells[at] = value
        frame[names[0]] = pd.Series(cells, index=frame.index, dtype=object)
        pair.append(case.on(frame))
    return pair[0], pair[1]


def shifted(case: AteInput, rng: np.random.Generator) -> AteInput | None:
    """Outcome and bounds moved by a power of two."""
    bounds = case.options.get("bounds") or {}
    if not case.shift or case.outcome not in bounds:
        return None
    by = float(2 ** int(rng.integers(3, 20))) * float(rng.choice([-1, 1]))
    low, high = bounds[case.outcome]
    moved = case.on(case.frame.assign(**{case.outcome: case.frame[case.outcome] + by}))
    bounds = {**bounds, case.outcome: (low + by, high + by)}
    return replace(moved, options={**case.options, "bounds": bounds})


def renamed(case: AteInput, rng: np.random.Generator) -> AteInput | None:
    """The treatment under another name: nothing but the text of the result depends on it."""
    return replace(
        case, frame=case.frame.rename(columns={case.treat: "a new name"}), treat="a new name"
    )


CHANGES: dict[str, Callable[..., Any]] = {
    "row order": reordered,
    "index": reindexed,
    "column order": columns_shuffled,
    "decoys": without_decoys,
    "dtype": retyped,
    "clipping": beyond_the_bound,
    "levels": outside_the_levels,
    "location": shifted,
    "labels": renamed,
}


def one_row_replaced(case: AteInput, rng: np.random.Generator) -> AteInput:
    """A neighbour: one row that is anything its columns may hold, and complete if it was."""
    frame = case.frame.copy()
    at = int(rng.integers(len(frame)))
    other = int(rng.integers(len(frame)))
    for name in case.used:
        column = frame[name]
        if pd.isna(column.iloc[at]) or (pd.isna(column.iloc[other])):
            continue
        place = frame.columns.get_loc(name)
        dtype = column.dtype
        numeric = name in case.numeric or name == case.options["propensity"]
        if numeric and str(dtype).lower().startswith(("float", "int", "uint")):
            if str(dtype).lower().startswith("float"):
                value = rng.choice(EXTREMES)
                with np.errstate(all="ignore"):
                    value = value if "64" in str(dtype) else np.float32(value)
            else:
                info = np.iinfo(str(dtype).lower())
                value = [info.min, info.max, 0, 1][int(rng.integers(4))]
        elif name in case.texts and case.texts[name] == "object":
            value = ["a", "a stranger", 3][int(rng.integers(3))]
        else:
            # the treatment, bools, declared levels: the value of another row
            value = column.iloc[other]
        frame.iloc[at, place] = value
    return case.on(frame)


def whole_arm_moved(case: AteInput, rng: np.random.Generator) -> AteInput:
    """Not a neighbour but n steps away: one arm, constants, separation, infinities."""
    frame = case.frame.copy()
    if rng.random() < 0.5 and not frame[case.treat].isna().any():
        at = int(rng.integers(len(frame)))
        frame[case.treat] = frame[case.treat].iloc[[at] * len(frame)].set_axis(frame.index)
    for name in case.numeric:
        if frame[name].dtype == np.float64 and not frame[name].isna().any():
            frame[name] = np.full(len(frame), rng.choice(EXTREMES))
    return case.on(frame)
