"""Blocks of residuals: against a second derivation, its options, texts, errors and intervals."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import dpstats as dp
from dpstats.propensity import Objective

COVARIATES = "y ~ x1 + x2 + x3 + x4"
INF = math.inf
ESTIMANDS = ("ate", "att", "atc", "ato")
NOISES = pytest.mark.parametrize("noise", [{}, {"delta": 1e-6}], ids=["laplace", "gaussian"])


def run(data, formula: str = COVARIATES, **options) -> dp.ATEResults:
    options = {"eps": 3.0, "bounds": data.bounds, "rng": 1, "adjust": True, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dp.dp_ate(formula, treat="w", data=options.pop("frame", data.data), **options)


def names(found: dp.ATEResults) -> list[str]:
    return list(found.privacy.releases["release"])


# ------------------------------------------------------------------------- when it is done


def test_the_default_is_a_rule_on_public_quantities(trial) -> None:
    assert "moments" in names(run(trial, adjust=None, eps=1.25))
    for options in (
        {"eps": 1.2},
        {"propensity": 0.4},
        {"propensity": "p"},
        {"blocks": 1},
        {"blocks": "published"},
        {"split": "published"},
        {"adjust": False},
        {"split": {"propensity": 0.2, "counts": 0.8}},
    ):
        frame = trial.data.assign(p=0.4)
        assert "moments" not in names(run(trial, frame=frame, **{"adjust": None, **options}))
    assert "moments" not in names(run(trial, "y ~ 1", adjust=None))
    asked = run(trial, adjust=True, eps=0.1)
    assert "moments" in names(asked)
    split = {"moments": 0.4, "propensity": 0.2, "counts": 0.4}
    found = run(trial, adjust=None, split=split, eps=1.0).privacy.releases.set_index("release")
    assert found.loc["moments", "epsilon"] == pytest.approx(0.4)
    with pytest.raises(dp.DPStatsError, match="has no share for moments"):
        run(trial, split="published")
    with pytest.raises(dp.DPStatsError, match="`adjust` must be None, True or False"):
        run(trial, adjust="yes")
    with pytest.raises(dp.DPStatsError, match="`split` must give a share"):
        run(trial, split={"propensity": 0.2, "counts": 0.8})


def test_other_methods_refuse_it(trial) -> None:
    assert "score" in names(run(trial, method="ipw", adjust=None))
    with pytest.raises(dp.DPStatsError, match="`adjust` must be"):
        run(trial, method="ipw", adjust=True)


def test_bounds_are_found_for_what_is_used_only(trial) -> None:
    """With a known propensity the right side is used, and its bounds are needed, if adjusted."""
    bounds = {"y": trial.bounds["y"]}
    for adjust in (False, True):
        found = run(trial, bounds=bounds, propensity=0.4, adjust=adjust, eps=8.0)
        assert ("bounds" in names(found)) == adjust


# ----------------------------------------------------------------------------- without noise


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_exact_run_by_hand(trial, estimand) -> None:
    """Pooled slopes, residuals as they are, the maximum likelihood logit, five blocks."""
    frame = trial.data
    found = run(
        trial, eps=INF, rng=None, blocks=5, estimand=estimand, bounds=None, propensity="~ x1 + x2"
    )
    y, w = frame["y"].to_numpy(), frame["w"].to_numpy()
    x = frame[["x1", "x2", "x3", "x4"]].to_numpy()
    b = sm.OLS(y, np.c_[1 - w, w, x]).fit().params
    rest = y - np.c_[1 - w, w, x] @ b
    logit = sm.Logit(w, sm.add_constant(x[:, :2])).fit(disp=0)
    # equal parts of the scale on which the odds of the whole file lie in the middle
    odds = logit.predict() / (1 - logit.predict()) * (1 - w.mean()) / w.mean()
    block = np.minimum((odds / (1 + odds) * 5).astype(int), 4)
    total, weight, variance = 0.0, 0.0, 0.0
    for j in range(5):
        own = [rest[(block == j) & (w == a)] for a in (0, 1)]
        sizes = [len(part) for part in own]
        size = {
            "ate": sum(sizes),
            "att": sizes[1],
            "atc": sizes[0],
            "ato": sizes[0] * sizes[1] / sum(sizes),
        }[estimand]
        total += size * (own[1].mean() - own[0].mean())
        variance += size**2 * sum(part.var(ddof=1) / len(part) for part in own)
        weight += size
    assert found.params.iloc[0] == pytest.approx(b[1] - b[0] + total / weight, rel=1e-8)
    assert found.bse.iloc[0] == pytest.approx(math.sqrt(variance) / weight, rel=1e-6)
    plain = run(
        trial, eps=INF, rng=None, blocks=5, estimand=estimand, bounds=None, adjust=False,
        propensity="~ x1 + x2",
    )  # fmt: skip
    assert found.bse.iloc[0] < 0.5 * plain.bse.iloc[0]


@NOISES
@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_huge_epsilon_is_the_exact_run_but_for_clipped_residuals(trial, noise, estimand) -> None:
    options = {"blocks": 5, "estimand": estimand, "smooth": False, "min_count": 0.0}
    exact = run(trial, eps=INF, rng=None, **options)
    found = run(trial, eps=1e9, **options, **noise)
    # three residual sds of .02, one row in 400 beyond them
    assert found.params.iloc[0] == pytest.approx(exact.params.iloc[0], abs=1e-3)


# ------------------------------------------------------------------------------- releases


@NOISES
def test_records(trial, noise) -> None:
    found = run(trial, rows_per_person=2, eps=6.0, **noise)
    table = found.privacy.releases.set_index("release")
    solver = ["propensity", "propensity (solver)"]
    assert list(table.index) == ["moments", *solver, "counts", "variances"]
    assert table["epsilon"].sum() == pytest.approx(6.0, rel=1e-12)
    assert table["delta"].sum() == pytest.approx(noise.get("delta", 0.0), rel=1e-9)
    assert table.loc["moments", "epsilon"] == pytest.approx(0.35 * 6.0)
    assert table.loc["moments", "sensitivity"] == pytest.approx(
        2.0 * (math.sqrt(2.0) if noise else 2.0)
    )
    assert table.loc["counts", "sensitivity"] == pytest.approx(
        2.0 * (math.sqrt(2.0) if noise else 2.0)
    )
    share = found.released.half_width / 1.5
    assert 0.0 < share < 0.5
    assert found.released.reach == pytest.approx(1.5)
    assert table.loc["variances", "sensitivity"] == pytest.approx(2.0 * (1.5 * share) ** 2)


@NOISES
@pytest.mark.parametrize("propensity", [None, "~ x1", 0.4, "p", Objective(penalty=3.0)])
def test_propensities_of_every_kind(trial, noise, propensity) -> None:
    frame = trial.data.assign(p=np.where(trial.data["x1"] > 2.0, 0.3, 0.6))
    found = run(trial, frame=frame, propensity=propensity, blocks=3, **noise)
    assert found.params.iloc[0] == pytest.approx(2.0, abs=0.06)
    for estimand in ESTIMANDS:
        other = found.estimand(estimand)
        assert other.params.iloc[0] == pytest.approx(2.0, abs=0.06)
        assert 0.0 < other.bse.iloc[0] < 0.1


def test_a_design_of_its_own_is_never_taken_for_the_covariates(trial) -> None:
    for propensity, shared in ((None, True), ("~ x4 + x3 + x2 + x1", False)):
        released = run(trial, propensity=propensity).released
        assert released.model.shared is shared
        apart = released.model.last().means
        left = released._imbalance(released.model, released.found("ate"), np.random.default_rng(0))
        assert np.array_equal(left, apart[1] - apart[0]) == (not shared)
    assert np.linalg.norm(left) > 0.1


def test_adjustment_takes_out_what_the_propensity_leaves() -> None:
    """A propensity on the wrong covariate, and covariates that tell little of the outcome."""
    data = dp.simulate.ate("well_specified", 20_000, rng=5)
    plain, adjusted = (
        run(data, adjust=adjust, propensity="~ x4", eps=20.0) for adjust in (False, True)
    )
    assert plain.params.iloc[0] - 2.0 < -0.07
    assert abs(adjusted.params.iloc[0] - 2.0) < 0.005
    other = run(data, "y ~ x4", propensity=COVARIATES[2:], eps=20.0)
    assert abs(other.params.iloc[0] - 2.0) < 0.02


@NOISES
def test_units_rows_and_dtypes_do_not_matter(noise) -> None:
    rng = np.random.default_rng(1)
    x = np.rint(rng.normal(0.0, 40.0, (1500, 2)).clip(-128, 128))
    w = (rng.random(1500) < 1.0 / (1.0 + np.exp(-x[:, 0] / 40.0))).astype(int)
    y = np.rint(100.0 * w + x[:, 0] + rng.normal(0.0, 10.0, 1500)).clip(-256, 256)
    frame = pd.DataFrame({"y": y, "w": w, "a": x[:, 0], "b": x[:, 1]})
    bounds = {"y": (-256.0, 256.0), "a": (-128.0, 128.0), "b": (-128.0, 128.0)}

    def fit(frame, **more):
        found = dp.dp_ate(
            "y ~ a + b", "w", frame, 9.0, bounds={**bounds, **more}, rng=1, adjust=True, **noise
        )
        assert found.released.model is not None
        return [*found.params, *found.bse, *found.conf_int().to_numpy().ravel()]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = fit(frame)
        assert fit(frame.assign(y=frame["y"] + 4096.0), y=(3840.0, 4352.0)) == plain
        larger = fit(frame.assign(y=frame["y"] * 8.0), y=(-2048.0, 2048.0))
        assert larger == pytest.approx([8.0 * value for value in plain], rel=1e-12)
        assert fit(frame.sample(frac=1.0, random_state=3)) == plain
        for change in (
            {"y": "float32", "a": "float32"},
            {"y": "int64", "b": "int32", "w": "bool"},
            {"y": "Int64", "a": "Float64", "w": "boolean"},
        ):
            assert fit(frame.astype(change)) == plain, change


def test_pairs_in_order_lose_no_arm() -> None:
    """More rows than the model needs: a part of them, which no rhythm of the file can spoil."""
    n = 2**17 + 2
    rng = np.random.default_rng(3)
    x = rng.uniform(-1.0, 1.0, n)
    w = np.arange(n) % 2
    y = 0.2 * w + 0.5 * x + rng.normal(scale=0.02, size=n)
    frame = pd.DataFrame({"y": y, "w": w, "x": x})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = dp.dp_ate(
            "y ~ x", "w", frame, 3.0, bounds={"y": (-1, 1), "x": (-1, 1)}, rng=1, adjust=True
        )
    assert found.released.model.n == 2**17
    assert found.params.iloc[0] == pytest.approx(0.2, abs=0.002)
    counts = found.released.model.last().counts
    assert counts == pytest.approx([n / 2, n / 2], rel=0.05)


# ------------------------------------------------------------------------------ inference


@pytest.mark.parametrize(("noise", "eps"), [({}, 3.0), ({"delta": 1e-6}, 1.0)])
def test_simulated_errors_agree_with_repeated_releases(trial, noise, eps) -> None:
    released = [run(trial, eps=eps, rng=seed, **noise).released for seed in range(250)]
    for estimand in ("ate", "att"):
        observed = np.std([found.estimate(estimand) for found in released])
        simulated = [
            found.errors(estimand, 1000, np.random.default_rng(seed), "privacy").std()
            for seed, found in enumerate(released[:40])
        ]
        # an sd of 250 draws with long tails is known to 7 %
        assert np.median(simulated) == pytest.approx(observed, rel=0.35)


@pytest.mark.parametrize("process", ["well_specified", "strong_confounding"])
@pytest.mark.parametrize("eps", [0.5, 3.0])
def test_intervals_cover(process, eps) -> None:
    """60 files: fewer than 50 covered has probability .3 % at a coverage of 93 %."""
    covered, errors, widths = 0, [], []
    for seed in range(60):
        data = dp.simulate.ate(process, 10_000, rng=900 + seed)
        found = run(data, eps=eps, rng=seed, adjust=None)
        low, high = found.conf_int().iloc[0]
        covered += low <= 2.0 <= high
        errors.append(found.params.iloc[0] - 2.0)
        widths.append(high - low)
    assert covered >= 50
    assert np.median(widths) < 1.8 * 2.0 * 1.96 * np.std(errors)


@pytest.mark.study
@pytest.mark.parametrize("method", ["regression", "aipw", "blocking"])
@pytest.mark.parametrize("eps", [0.5, 3.0])
@pytest.mark.parametrize(
    "process", ["well_specified", "low_overlap", "strong_confounding", "randomised"]
)
def test_intervals_cover_at_length(process, eps, method) -> None:
    """400 files: fewer than 355 covered has probability .2 % at a coverage of 93 %."""
    covered = 0
    for seed in range(400):
        data = dp.simulate.ate(process, 10_000, rng=5000 + seed)
        found = run(data, eps=eps, rng=seed, method=method, adjust=None)
        low, high = found.conf_int().iloc[0]
        covered += low <= 2.0 <= high
    assert covered >= 355


# ---------------------------------------------------------------------------------- texts


def test_texts_and_storage(trial, tmp_path) -> None:
    found = run(trial)
    text = " ".join(found.summary(diagnostics=True).as_text().split())
    for words in (
        "Outcome model: linear, private",
        "They count the noise in the outcome model where blocks do not balance the arms",
        "range of residuals",
        "noise in sums shrinks as much",
        "under unconfoundedness given the covariates and overlap",
    ):
        assert words in text, words
    assert "take the released propensities as given" not in text
    plain = run(trial, adjust=False).summary(diagnostics=True).as_text()
    assert "Outcome model" not in plain
    assert "residuals" not in plain
    assert "adjust" in str(found.privacy.public["constants"])
    found.save(tmp_path / "r.json")
    again = dp.load(tmp_path / "r.json")
    one, two = (r.summary(diagnostics=True).as_text() for r in (found, again))
    assert one == two
    assert again.to_dict() == found.to_dict()
    assert again.estimand("att").params.equals(found.estimand("att").params)
    pd.testing.assert_frame_equal(again.blocks, found.blocks)


def test_blocks_show_means_of_the_outcome(trial) -> None:
    """Levels of the model come back in: means in the outcome's units, effects about 2."""
    found = run(trial, eps=20.0)
    table = found.blocks
    assert np.abs(table["mean_treated"] - table["mean_control"] - table["effect"]).max() < 1e-9
    assert table["effect"].to_numpy() == pytest.approx(2.0, abs=0.1)
    low, high = found.facts.outcome_bounds
    assert table[["mean_control", "mean_treated"]].to_numpy().min() >= low
    assert table[["mean_control", "mean_treated"]].to_numpy().max() <= high
    weighted = (table["weight"] * table["effect"]).sum()
    assert weighted == pytest.approx(found.params.iloc[0], abs=1e-9)


def test_without_room_for_residuals_blocks_hold_outcomes(trial) -> None:
    """Noise so large that residuals would range as far: the model is paid for and not used."""
    found = run(trial, eps=0.01, blocks=2)
    assert "moments" in names(found)
    assert found.released.model is None
    assert found.released.half_width == found.released.reach
    assert "range of residuals" not in found.summary(diagnostics=True).as_text()


@pytest.mark.parametrize(
    ("columns", "size", "blocks"),
    [
        *((columns, size, 1) for columns in (1, 4) for size in (250, 999)),
        *((columns, 1000, 2) for columns in (1, 4)),
        *((columns, 1999, 2) for columns in (1, 4, 7)),
        *((columns, 2000, 4) for columns in (1, 4, 8)),
        (6, 1499, 1),
        (6, 1500, 2),
        (8, 1999, 1),
        (18, 4499, 1),
        (18, 4500, 4),
        (4, 30_000, 6),
        (20, 30_000, 6),
    ],
)
def test_the_number_of_blocks_is_a_rule_on_public_quantities(
    columns: int, size: int, blocks: int
) -> None:
    rng = np.random.default_rng(0)
    n = 100
    named = [f"x{j}" for j in range(columns)]
    frame = pd.DataFrame(rng.uniform(size=(n, columns)), columns=named)
    frame = frame.assign(y=rng.uniform(size=n), w=np.arange(n) % 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = dp.dp_ate(
            "y ~ " + " + ".join(named),
            "w",
            frame,
            size / n,
            bounds=dict.fromkeys([*named, "y"], (0.0, 1.0)),
            adjust=False,
            rng=1,
        )
    assert len(found.blocks) == blocks
