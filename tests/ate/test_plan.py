"""Planning agrees with what `dp_ate` releases and with the noise in its estimates."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import dpstats as dp
from dpstats.ate.expected import METHODS
from dpstats.privacy.calibration import gaussian_scale
from dpstats.propensity import Objective

FORMULA = "y ~ x1 + x2 + x3 + x4"
# public facts of the two processes
FACTS = {
    "well_specified": {"logit_sd": 1.14, "confounding": -0.84},
    "randomised": {"logit_sd": 0.0, "confounding": 0.98},
}
COMMON = {"k": 4, "outcome_sd": 0.122, "explained": 0.97, "means": (0.0, 2.0), "target_se": 1e-12}
BOUNDS = (-0.5, 2.5)


def plan(n=10_000, eps=1.0, bounds=BOUNDS, **options):
    return dp.plan_ate(n, eps, bounds, **{"method": None, "k": 4, **options})


def run(trial, eps, seed, **options):
    options.setdefault("bounds", trial.bounds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.PrivacyWarning)
        warnings.simplefilter("ignore", dp.UtilityWarning)
        return dp.dp_ate(options.pop("formula", FORMULA), "w", trial.data, eps, rng=seed, **options)


def measured(trial, eps, repetitions, file=0, **options):
    """Return the sd over noise; cells of a grid and files have seeds of their own."""
    first = 1000 * (file + 100 * round(2 * eps) + len(trial.data))
    return np.std(
        [
            run(trial, eps, seed, **options).released.estimate("ate")
            for seed in range(first, first + repetitions)
        ]
    )


def over_files(name, n, eps, files, repetitions, **options):
    """Return the root mean square, over files of a process, of the sd over noise."""
    sds = [
        measured(dp.simulate.ate(name, n, rng=100 + i), eps, repetitions, i, **options)
        for i in range(files)
    ]
    return math.sqrt(np.mean(np.square(sds)) * repetitions / (repetitions - 1))


@pytest.fixture(scope="module")
def trials():
    return {
        (name, n): dp.simulate.ate(name, n, rng=3) for name in FACTS for n in (500, 2000, 10_000)
    }


def test_frame():
    table = plan(target_se=1.0)
    assert tuple(table.index) == METHODS
    assert list(table.columns) == [
        "blocks",
        "sd_bounds",
        "sd_propensity",
        "sd_moments",
        "sd_outcome",
        "sd_counts",
        "sd_sums",
        "sd_score",
        "sd_variances",
        "noise_sd",
        "sampling_sd",
        "total_se",
        "detectable",
        "eps_needed",
        "advice",
    ]
    total = np.hypot(table["noise_sd"], table["sampling_sd"])
    assert np.allclose(table["total_se"], total)
    assert np.allclose(table["detectable"], 2.801585 * total)
    assert list(plan(method="ipw", target_se=1.0).index) == ["ipw"]
    assert plan(method="all", target_se=1.0).equals(table)
    assert dp.plan_ate(1000, 1.0, (0, 1)).index[0] == "blocking"


def sd_by_hand(release, two_rounds):
    """Return the sd of one number, off the diagonal of a matrix of 1, four covariates and y."""
    mechanism, scale = release["mechanism"], release["scale"]
    if mechanism == "Wishart difference":
        # GG' - HH' over the level, with q + 1 = 7 columns, and 2 / level for a scale
        return math.sqrt(2.0 * 7.0) * scale / 2.0
    if release["norm"] == "Frobenius":
        # sqrt(2) / mu for a scale; the last of two rounds has .65 of mu^2
        return scale / math.sqrt(2.0) / math.sqrt(0.65 if two_rounds else 1.0)
    factor = math.sqrt(2.0) if mechanism == "Laplace" else 1.0
    return scale * (math.sqrt(6.0) if "K-norm" in mechanism else factor)


@pytest.mark.parametrize("options", [{}, {"delta": 1e-6}, {"rows_per_person": 3}], ids=str)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("eps", [0.4, 4.0])
def test_scales_are_those_of_the_call(trials, method, options, eps):
    trial = trials["well_specified", 2000]
    row = plan(2000, eps, method=method, target_se=1e-12, **options).loc[method]
    result = run(trial, eps, 1, method=method, **options)
    releases = result.privacy.releases.set_index("release").drop(
        index=["propensity (solver)", "moments (first)"], errors="ignore"
    )
    assert set(releases.index) == {
        name[3:] for name in row.index if name.startswith("sd_") and row[name] == row[name]
    }
    # these go with the range of residuals, which is random
    random = {"score"} if method == "aipw" else set()
    if method == "blocking" and eps == 4.0:
        random = {"variances"}
    for name, release in releases.drop(index=random).iterrows():
        wished = sd_by_hand(release, two_rounds=method == "regression" and 2000 * eps >= 2500)
        assert row[f"sd_{name}"] == pytest.approx(wished, rel=1e-9)
    if method in ("blocking", "diff_means"):
        assert row["blocks"] == len(result.blocks)
    else:
        assert math.isnan(row["blocks"])


@pytest.mark.parametrize("split", ["published", {"propensity": 0.3, "counts": 0.7}], ids=str)
def test_split_and_blocks_are_those_of_the_call(trials, split):
    row = plan(2000, 2.0, method="blocking", split=split, blocks=3, target_se=1e-12).loc["blocking"]
    result = run(trials["well_specified", 2000], 2.0, 1, split=split, blocks=3)
    scale = result.privacy.releases.set_index("release").loc["counts", "scale"]
    assert row["sd_counts"] == pytest.approx(math.sqrt(2.0) * scale)
    assert row["blocks"] == 3


def test_searched_bounds_are_paid_for(trials):
    bounds = {"y": BOUNDS, "x1": (-1, 5), "x2": (1, 7), "x3": (-1, 5)}
    result = run(trials["well_specified", 10_000], 2.0, 1, bounds=bounds)
    row = plan(10_000, 2.0, method="blocking", searched=1, target_se=1e-12).loc["blocking"]
    scales = math.sqrt(2.0) * result.privacy.releases.set_index("release")["scale"]
    assert row["sd_bounds"] == pytest.approx(scales["bounds"])
    assert row["sd_counts"] == pytest.approx(scales["counts"])
    # without a propensity only the outcome's bounds can be needed
    one, four = (
        plan(method="diff_means", searched=q, target_se=1e-12).loc["diff_means", "sd_bounds"]
        for q in (1, 4)
    )
    assert one == four


GRID = [(n, eps) for n in (2000, 10_000) for eps in (0.5, 1.0, 3.0)]


@pytest.mark.parametrize(("n", "eps"), [(2000, 1.0), (10_000, 3.0)])
def test_noise_of_blocking(n, eps):
    # files differ; the measured sd is itself uncertain by about 4 %
    row = plan(n, eps, method="blocking", **COMMON, **FACTS["well_specified"]).loc["blocking"]
    found = over_files("well_specified", n, eps, 10, 40)
    assert found == pytest.approx(row["noise_sd"], rel=0.15)


@pytest.mark.parametrize(("n", "eps"), GRID)
def test_noise_of_diff_means(trials, n, eps):
    row = plan(n, eps, method="diff_means", **COMMON, **FACTS["randomised"]).loc["diff_means"]
    found = measured(trials["randomised", n], eps, 400, method="diff_means", formula="y ~ 1")
    assert found == pytest.approx(row["noise_sd"], rel=0.15)


@pytest.mark.parametrize(("n", "eps"), GRID)
def test_noise_of_ipw(trials, n, eps):
    """Of the score alone, which is exact, and with that of the propensity."""
    trial, facts = trials["randomised", n], {**COMMON, **FACTS["randomised"]}
    row = plan(n, eps, method="ipw", propensity=0.5, **facts).loc["ipw"]
    assert row["noise_sd"] == row["sd_score"]
    options = {"method": "ipw", "propensity": 0.5, "formula": "y ~ 1"}
    assert row["sd_score"] == pytest.approx(run(trial, eps, 1, **options).released.noise_sd())
    assert measured(trial, eps, 400, **options) == pytest.approx(row["sd_score"], rel=0.15)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("name", sorted(FACTS))
@pytest.mark.parametrize("method", ["blocking", "ipw"])
def test_noise_with_that_of_the_propensity(trials, method, name, delta):
    row = plan(2000, 1.0, method=method, delta=delta, **COMMON, **FACTS[name]).loc[method]
    found = measured(trials[name, 2000], 1.0, 200, method=method, delta=delta)
    assert found == pytest.approx(row["noise_sd"], rel=0.15)


MODELS = [{"method": "blocking", "adjust": True}, {"method": "regression"}, {"method": "aipw"}]


@pytest.mark.parametrize(
    ("name", "n", "eps", "delta"),
    [
        ("well_specified", 2000, 0.5, 0.0),
        ("randomised", 2000, 3.0, 0.0),
        ("well_specified", 10_000, 1.0, 1e-6),
    ],
)
@pytest.mark.parametrize("options", MODELS, ids=lambda options: options["method"])
def test_noise_of_outcome_models(options, name, n, eps, delta):
    # the measured sd is itself uncertain by about 4 %
    options = {**options, "delta": delta}
    planned = plan(n, eps, **options, **COMMON, **FACTS[name])["noise_sd"].iloc[0]
    assert over_files(name, n, eps, 10, 40, **options) == pytest.approx(planned, rel=0.15)


def test_residuals_take_the_place_of_outcomes_as_in_the_call(trials):
    """By default from n eps = 5000 on, or as asked for."""
    facts = {**COMMON, **FACTS["well_specified"], "method": "blocking"}
    for eps, adjust, adjusted in [(2.4, None, False), (2.6, None, True), (2.4, True, True)]:
        row = plan(2000, eps, adjust=adjust, **facts).loc["blocking"]
        assert math.isfinite(row["sd_moments"]) == adjusted
        result = run(trials["well_specified", 2000], eps, 1, **({"adjust": True} if adjust else {}))
        assert ("moments" in set(result.privacy.releases["release"])) == adjusted
    plain = plan(2000, 2.6, adjust=False, **facts).loc["blocking"]
    assert math.isnan(plain["sd_moments"])


@pytest.mark.study
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("name", sorted(FACTS))
@pytest.mark.parametrize(
    "options",
    [{"method": "blocking"}, {"method": "ipw"}, *MODELS],
    ids=lambda options: " ".join(options.values() if len(options) == 1 else options),
)
@pytest.mark.parametrize(("n", "eps"), GRID)
def test_noise_averaged_over_files(options, name, n, eps, delta):
    options = {**options, "delta": delta}
    planned = plan(n, eps, **options, **COMMON, **FACTS[name])["noise_sd"].iloc[0]
    assert over_files(name, n, eps, 20, 40, **options) == pytest.approx(planned, rel=0.15)


def test_sampling_error_of_a_trial():
    estimates = [
        run(trial, math.inf, None, method="diff_means", formula="y ~ 1").released.estimate("ate")
        for trial in (dp.simulate.ate("randomised", 500, rng=i) for i in range(300))
    ]
    row = plan(500, 1.0, method="diff_means", **COMMON).loc["diff_means"]
    assert np.std(estimates) == pytest.approx(row["sampling_sd"], rel=0.15)


@pytest.mark.parametrize("adjust", [False, True])
def test_sampling_error_within_blocks(adjust):
    """With next to no noise estimates of files differ by sampling alone."""
    options = {"method": "blocking", "blocks": 4, "adjust": adjust}
    estimates = [
        run(dp.simulate.ate("strong_confounding", 500, rng=i), 300.0, i, **options).params["ATE"]
        for i in range(150)
    ]
    bounds = dp.simulate.ate("strong_confounding", 2, rng=0).bounds["y"]
    facts = {"outcome_sd": 1.49, "explained": 0.55, "confounding": -0.61, "logit_sd": 1.14}
    row = plan(500, 300.0, bounds, target_se=1.0, **facts, **options).loc["blocking"]
    # without a model of the outcome what covariates explain within blocks counts as error
    ratio = np.std(estimates) / row["sampling_sd"]
    assert (0.83 if adjust else 0.68) < ratio < 1.17
    assert row["noise_sd"] < row["sampling_sd"] / 10.0
    # all of the outcome's variance, as if blocks removed nothing, is too much
    whole = plan(500, 300.0, bounds, target_se=1.0, **{**facts, "confounding": 0.0}, **options)
    if not adjust:
        assert whole.loc["blocking", "sampling_sd"] > 1.2 * row["sampling_sd"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_what_is_needed_suffices(method, delta):
    # a fixed number of blocks: at its rule's steps errors jump
    options = {"method": method, "delta": delta, "k": 2, "blocks": 4}
    first = plan(5000, 1.0, **options).loc[method]
    target = math.sqrt(2.0) * first["sampling_sd"]
    better = plan(5000, 1.1 * first["eps_needed"], target_se=1.0, **options).loc[method]
    worse = plan(5000, first["eps_needed"] / 1.1, target_se=1.0, **options).loc[method]
    assert better["total_se"] <= 1.01 * target <= 1.02 * worse["total_se"]
    # no budget buys a smaller sampling error
    target = 0.9 * first["sampling_sd"]
    assert math.isnan(plan(5000, 1.0, target_se=target, **options).loc[method, "eps_needed"])


def test_units_do_not_matter():
    one = plan(3000, 1.0, (0, 1), k=1, target_se=1.0)
    hundred = plan(3000, 1.0, (-20, 80), k=1, target_se=100.0)
    for name in ("noise_sd", "sampling_sd", "detectable", "eps_needed"):
        assert np.allclose(100.0 * one[name] if name != "eps_needed" else one[name], hundred[name])


DESIGNS = [
    ("y ~ x", {}, 1, 0),
    ("y ~ 1", {}, 0, 0),
    ("y ~ x + g", {}, 3, 0),
    ("y ~ x * g", {}, 5, 0),
    ("y ~ C(g) + np.log(1 + abs(x)) + I(x ** 2)", {}, 4, 0),
    ("y ~ x + z + u", {}, 3, 2),
    ("y ~ Q('years of schooling') + z", {"years of schooling": (0, 20)}, 2, 1),
    ("np.log(y) ~ x", {"y": (1, 10)}, 1, 0),
    ("y ~ treat + treat_", {"treat": (0, 1)}, 2, 1),
]


@pytest.mark.parametrize(("formula", "more", "k", "searched"), DESIGNS, ids=lambda x: str(x))
@pytest.mark.parametrize("method", ["blocking", "diff_means"])
def test_plan_by_formula(formula, more, k, searched, method):
    bounds = {"y": (-2, 5), "x": (0, 3), **more}
    levels = {"g": ["a", "b", "c"]}
    options = {"method": method, "target_se": 1e-12}
    found = dp.plan_ate(5000, 2, formula=formula, bounds=bounds, levels=levels, **options)
    outcome = (0.0, math.log(10)) if formula.startswith("np.log") else bounds["y"]
    # a difference in means searches nothing where the outcome has bounds
    searched = 0 if method == "diff_means" else searched
    by_hand = dp.plan_ate(5000, 2, outcome, k=k, searched=searched, **options)
    numbers = [name for name in found.columns if name != "advice"]
    np.testing.assert_allclose(found[numbers].astype(float), by_hand[numbers].astype(float))


def test_the_design_is_that_of_the_call(trials):
    """Columns and searched bounds by formula are those that dp_ate reports."""
    trial = trials["well_specified", 10_000]
    data = trial.data.assign(g=np.where(trial.data["x4"] > 4, "high", "low"))
    formula, levels = "y ~ x1 * g + I(x2 ** 2) + x3", {"g": ["low", "high"]}
    bounds = {name: trial.bounds[name] for name in ("y", "x1", "x2")}
    row = dp.plan_ate(10_000, 2, formula=formula, bounds=bounds, levels=levels, target_se=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = dp.dp_ate(formula, "w", data, 2, bounds=bounds, levels=levels, rng=1)
    releases = result.privacy.releases.set_index("release")
    for name in ("bounds", "counts"):
        assert row.loc["blocking", f"sd_{name}"] == pytest.approx(
            math.sqrt(2.0) * releases.loc[name, "scale"]
        )
    # the noise of a vector tells its length: the constant and five columns
    factor = math.sqrt(5 + 2)
    assert row.loc["blocking", "sd_propensity"] == pytest.approx(
        factor * releases.loc["propensity", "scale"]
    )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "y_bounds"),
        ({"bounds": {"y": (0, 1)}}, "bounds"),
        ({"levels": {"g": ["a", "b"]}}, "levels"),
        ({"formula": "y ~ x", "bounds": {"x": (0, 1)}}, "bounds"),
        ({"formula": "y ~ x", "y_bounds": (0, 1), "k": 1}, "k"),
        ({"formula": "y ~ x", "y_bounds": (0, 1), "bounds": {"y": (0, 2)}}, "y_bounds"),
        ({"formula": "y ~ x", "y_bounds": (1, 0)}, "y_bounds"),
        ({"formula": "y ~ x", "y_bounds": 3}, "y_bounds"),
        ({"formula": "y ~ np.log(x)", "y_bounds": (0, 1)}, "bounds"),
        ({"formula": "y ~ np.log(x)", "y_bounds": (0, 1), "bounds": {"x": (0, 1)}}, "formula"),
        ({"formula": "y ~ x^2", "y_bounds": (0, 1)}, "formula"),
        ({"formula": "y ~ x.mean()", "y_bounds": (0, 1)}, "formula"),
        ({"formula": 3, "y_bounds": (0, 1)}, "formula"),
        ({"formula": "~ x", "y_bounds": (0, 1)}, "formula"),
        ({"formula": "y ~ g", "y_bounds": (0, 1), "levels": {"g": ["a"]}}, "levels"),
        ({"formula": "y ~ g", "y_bounds": (0, 1), "levels": 3}, "levels"),
        ({"formula": "y ~ age", "y_bounds": (0, 1), "bounds": {"agee": (0, 1)}}, "bounds"),
    ],
    ids=str,
)
def test_formulas_that_cannot_be_planned(options, named):
    with pytest.raises(dp.DPStatsError, match=f"`{named}`"):
        dp.plan_ate(1000, 1, **options)


def test_small_files():
    for n in (2, 3, 50):
        table = plan(n, 0.01, k=0, target_se=1.0)
        assert np.isfinite(table["total_se"]).all()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"n": 1}, "n"),
        ({"n": 10.5}, "n"),
        ({"eps": math.inf}, "eps"),
        ({"eps": -1}, "eps"),
        ({"bounds": (1, 0)}, "y_bounds"),
        ({"k": -1}, "k"),
        ({"k": True}, "k"),
        ({"method": "magic"}, "method"),
        ({"method": "nipw"}, "method"),
        ({"adjust": 2}, "adjust"),
        ({"delta": 1.0}, "delta"),
        ({"treated_share": 1.0}, "treated_share"),
        ({"outcome_sd": 0}, "outcome_sd"),
        ({"alpha": 0}, "alpha"),
        ({"power": 1}, "power"),
        ({"target_se": -1}, "target_se"),
        ({"blocks": 0}, "blocks"),
        ({"split": 3}, "split"),
        ({"split": {"counts": 1.0}}, "split"),
        ({"searched": -1}, "searched"),
        ({"rows_per_person": 0}, "rows_per_person"),
        ({"propensity": 0}, "propensity"),
        ({"overlap": 0.6}, "overlap"),
        ({"means": (0, 3)}, "means"),
        ({"means": 1}, "means"),
        ({"logit_sd": -1}, "logit_sd"),
        ({"confounding": 1.1}, "confounding"),
        ({"explained": 1.1}, "explained"),
    ],
    ids=str,
)
def test_refusals(options, named):
    with pytest.raises(dp.DPStatsError, match=f"`{named}`"):
        plan(**options)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("method", METHODS)
def test_half_the_noise(trials, method, delta):
    result = run(trials["well_specified", 2000], 1.0, 1, method=method, delta=delta)
    table = dp.sensitivity_table(result)
    assert list(table["release"]) == list(result.privacy.releases["release"])
    assert np.allclose(table["total"], 1.0 + table["extra"])
    for _, row in table.iterrows():
        if row["delta"] == 0.0 and row["mechanism"] != "objective, K-norm":
            assert row["epsilon_half"] == 2.0 * row["epsilon"]
        elif row["mechanism"].startswith("Gaussian"):
            scale = gaussian_scale(row["sensitivity"], row["epsilon_half"], row["delta"])
            assert scale == pytest.approx(row["scale"] / 2.0, rel=1e-6)
        else:
            relative = 0.5 if method in ("ipw", "aipw") else 1.0
            model = Objective(relative_penalty=relative)
            part = model.calibrated(1.0, delta)[0]
            scale = model.calibrated(row["epsilon_half"] / part, row["delta"])[2]
            assert scale == pytest.approx(row["scale"] / 2.0, rel=1e-6)


def test_half_the_noise_of_panels_and_without_noise(trials):
    panel = dp.simulate.panel("factor", n_donors=300, effect=0.1, rng=1)
    for method, delta in (("moments", 1e-6), ("moments", 0.0), ("did", 1e-6)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = dp.dp_synth(
                panel.data,
                unit="unit",
                time="time",
                treated=0,
                outcome="y",
                T0=20,
                eps=1,
                delta=delta,
                method=method,
                rng=1,
            )
        table = dp.sensitivity_table(result)
        assert len(table) == len(result.privacy.records)
        assert (table["epsilon_half"] >= 2.0 * table["epsilon"] * (1.0 - 1e-9)).all()
    exact = run(trials["randomised", 500], math.inf, None, method="diff_means")
    assert dp.sensitivity_table(exact).empty
    with pytest.raises(dp.DPStatsError, match="`res`"):
        dp.sensitivity_table(3)


def test_methods_that_cannot_be_planned_are_told_apart():
    with pytest.raises(dp.DPStatsError, match="cannot be planned; those that can: blocking, ipw"):
        plan(method="agg_ipw")
    with pytest.raises(dp.DPStatsError, match="must be one of"):
        plan(method="magic")


def test_noise_that_swamps_the_answer():
    table = plan(100, 0.01, bounds=(-1, 1), target_se=0.5)
    assert set(table["advice"]) == {"the privacy noise swamps the answer"}
    # clipped estimates spread less than this, but they say nothing
    assert (table["noise_sd"] > 0.5).all()
    assert (table["eps_needed"] > 0.1).all()
