# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # LaLonde under differential privacy
#
# **The question.** The National Supported Work programme gave hard-to-employ men a job with
# training in the mid 1970s. Did it raise their earnings? It was an experiment, so the answer is
# known. LaLonde (1986) threw its control group away, took men from population surveys instead, and
# asked whether any adjustment recovers that answer. Most methods for observational data have been
# tried on these files since.
#
# **The constraint.** Here we ask what is left of it if earnings were confidential: all methods of
# `dp_ate`, several budgets, files of a few hundred to a few thousand men. It is a hard case on
# purpose. The files are small, the outcome has long tails, and in the largest of them the trained
# and the others have almost nothing in common.
#
# **About the numbers.** These are public teaching data, which is the only reason why estimates
# without noise are shown. Repeated runs use `rng=`, so that this page comes out the same each time.
# **A seeded run is not private**: its noise can be subtracted, and the package says so on every
# result. One run below is private, and its numbers are new in each build of this page, so no
# sentence quotes them. All other numbers in the text are computed.

# %%
import warnings

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf
from IPython.display import Markdown
from scipy.stats import wilcoxon

import dpstats as dp
from dpstats.ate.kernels import KERNELS

# seeds and hopeless budgets are the subject of this page: both warnings are shown once below
warnings.simplefilter("ignore", dp.PrivacyWarning)
warnings.simplefilter("ignore", dp.UtilityWarning)

# %% [markdown]
# ## The files
#
# 185 trained men, each time with other controls. The outcome `y` is the change in yearly earnings
# from 1974 to 1978, in units of 10,000 dollars of 1982. The bounds come from the design and from
# round numbers, never from the rows; `.DESCR` says why.

# %%
groups = {
    "nsw": "randomised",
    "psid3": "PSID, out of work 1975 or 1976",
    "psid2": "PSID, out of work 1976",
    "psid1": "PSID",
    "cps3": "CPS, unemployed and poor",
    "cps1": "CPS",
}
files = {name: dp.datasets.load_nsw(name) for name in groups}
nsw, psid1 = files["nsw"], files["psid1"]
pd.DataFrame(nsw.bounds, index=["lower", "upper"]).T

# %% [markdown]
# The raw difference in means (no outcome clipped), and how far the covariates tell trained men from
# controls (a logistic regression without noise: public data).

# %%
rows = {}
for name, file in files.items():
    formula = file.formula.replace("y ~", "treat ~")
    e = smf.logit(formula, file.data).fit(disp=0).predict()
    arms = file.data.groupby("treat")["y"].mean()
    rows[name] = {
        "controls": groups[name],
        "n": len(file.data),
        "raw difference": arms[1] - arms[0],
        "share with e < .1": (e < 0.1).mean(),
        "controls with e >= .1": int(((e >= 0.1) & (file.data["treat"] == 0)).sum()),
    }
overlap = pd.DataFrame(rows).T
overlap.infer_objects().round(3)

# %%
alike = overlap["controls with e >= .1"]
Markdown(
    f"In PSID1 {overlap.loc['psid1', 'share with e < .1']:.0%} of the propensities e are below "
    f".1: only {alike['psid1']} of {len(psid1.data) - 185} controls look at all like men who were "
    "trained. An average effect over *everybody* in that file is an effect on heads of household "
    "who would never have been in the programme: hardly anybody in the data can tell it."
)

# %% [markdown]
# ## Without noise
#
# First what the methods say with `eps=inf`, so that noise is not blamed for what is not its fault.
# `overlap=0.1` clips propensities to [.1, .9], as the private methods do.


# %%
def estimate(file, method, eps, rng=None, **changes):
    """One call, with the formula, treatment and bounds of a file."""
    bounds = {**file.bounds, **changes.pop("bounds", {})}
    return dp.dp_ate(
        file.formula,
        file.treat,
        file.data,
        eps,
        method=method,
        bounds=bounds,
        overlap=None if method in NO_PROPENSITY else 0.1,
        rng=rng,
        **changes,
    )


NO_PROPENSITY = ("diff_means", "regression", "agg_regression", "blocking")
shown = ("nsw", "psid3", "psid2", "psid1")
exact = {
    (method, name): estimate(files[name], method, float("inf"))  # NOT PRIVATE: public data
    for method in KERNELS
    for name in shown
}
reference = pd.DataFrame(
    {name: {method: exact[method, name].params["ATE"] for method in KERNELS} for name in shown}
)
reference.insert(0, "method", [kernel.title for kernel in KERNELS.values()])
reference.round(3)

# %%
truth = exact["diff_means", "nsw"]
low, high = truth.conf_int().loc["ATE"]
spread = reference[list(shown)].agg(["min", "max"])
Markdown(
    f"The experiment says {truth.params['ATE']:.3f}, that is {truth.params['ATE'] * 10_000:,.0f} "
    f"dollars a year, with a 95 % interval of [{low:.3f}, {high:.3f}]. In the experiment itself "
    f"the methods say {spread.loc['min', 'nsw']:.2f} to {spread.loc['max', 'nsw']:.2f}; with "
    f"PSID1 as controls {spread.loc['min', 'psid1']:.2f} to {spread.loc['max', 'psid1']:.2f}, "
    "and not one of these numbers has any noise in it."
)

# %% [markdown]
# What goes wrong in PSID1, before privacy enters:
#
# * **Plain weighting** (`ipw`, `split_ipw`, `agg_ipw`) divides by clipped propensities. Where most
#   of them are below .1 the weights no longer add up to one. The outcome is centred at the middle
#   of its bounds, far from what is typical, so a missing part of the weights is a bias.
#   **Normalised** weights (`nipw`) do not have this fault.
# * **Regressions** (`regression`, `aipw`, `agg_regression`) extrapolate a line fitted to trained
#   men to men with many times their earnings.
# * The **subset methods** cut the file into parts of about the root of n rows. `agg_nipw` and
#   `binary` see a handful of trained men in each: little adjustment is left, and they come out near
#   the raw difference. `agg_aipw` and `agg_regression` fit eight slopes to some twenty or fifty
#   rows and are far off *in the experiment*, too: without noise they have no ridge to hold them.
#
# The question that PSID1 *can* answer is another one: the effect on those who were trained. With
# `blocking` it comes from the same release.

# %%
pd.DataFrame(
    {
        name: {
            "everybody (ATE)": exact["blocking", name].params["ATE"],
            "trained (ATT)": exact["blocking", name].estimand("att").params["ATT"],
            "both common (ATO)": exact["blocking", name].estimand("ato").params["ATO"],
        }
        for name in shown
    }
).T.round(3)

# %% [markdown]
# ## One private run
#
# This is what a statistician with the confidential file would do, once: choose the method and the
# budget beforehand, call, keep the result. There is no `rng`, and the numbers differ in each build.

# %%
private = estimate(nsw, "blocking", eps=1)
private

# %% [markdown]
# The record of what was released is part of the result. It holds no row, and it is all that was
# computed from rows.

# %%
private.privacy.releases[["release", "mechanism", "sensitivity", "norm", "scale", "epsilon"]]

# %%
assert private.privacy.private
private.diagnostics

# %% [markdown]
# With so few rows the rule for the number of blocks leaves one. That is a difference in means: the
# right thing in an experiment, and no adjustment at all in a comparison with a survey.
#
# ## What privacy costs
#
# Ten seeded runs of each method and budget, on the experiment and on PSID1. A cell is the root mean
# square *distance from the experiment's answer*, over the runs. In the column without noise nothing
# is left but what the method itself gets wrong.

# %%
BUDGETS, REPEATS = (0.25, 1.0, 3.0), 10
ANSWER = truth.params["ATE"]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    runs = pd.DataFrame(
        [
            (name, method, eps, seed, estimate(files[name], method, eps, rng=seed).params["ATE"])
            for name in ("nsw", "psid1")
            for method in KERNELS
            for eps in BUDGETS
            for seed in range(REPEATS)
        ],
        columns=["file", "method", "eps", "seed", "estimate"],
    )
runs["error"] = (runs["estimate"] - ANSWER).abs()
said = {}
for entry in caught:
    said.setdefault(entry.category.__name__, str(entry.message))
print("\n".join(f"{kind}: {text}" for kind, text in said.items()))


# %%
def distance(name):
    """Root mean square distance from the experiment's answer, by method and eps."""
    table = runs[runs["file"] == name].pivot_table(
        index="method", columns="eps", values="error", aggfunc=lambda e: np.sqrt((e**2).mean())
    )
    table = table.loc[list(KERNELS)].rename(columns="eps = {:g}".format)
    table["no noise"] = [abs(exact[method, name].params["ATE"] - ANSWER) for method in KERNELS]
    return table.rename_axis(columns=None)


distance("nsw").round(3)

# %%
distance("psid1").round(3)

# %%
cost = distance("nsw")
near = cost.index[cost["eps = 1"] < 2 * truth.bse["ATE"]]
far = cost.index[cost["eps = 1"] > 5 * ANSWER]
Markdown(
    f"In the experiment ({len(nsw.data)} rows) at eps = 1, the error is below twice the sampling "
    f"error for {', '.join(f'`{name}`' for name in near)}, and more than five times the *effect* "
    f"for {', '.join(f'`{name}`' for name in far)}."
)

# %% [markdown]
# What separates them is how far one man can move the answer. He moves a sum of outcomes by the
# width of the bounds, a weighted sum by ten times that (1 / .1), and a mean over a few subsets by
# the whole range divided by their number. That is why the simplest method stands first here.
#
# In PSID1 some methods come *nearer* with noise than without. That is no merit of noise: the
# penalty that comes with it holds adjusted estimates near the raw difference, which happens to be
# right in this file (see below).
#
# `blocking` equals `diff_means` in the experiment: for eight covariates and so few rows the rule
# leaves one block at all three budgets. Where treatment was randomised, say so (`propensity=`, or
# `method="diff_means"`): with more rows the default buys a propensity, for nothing.
#
# ### A short interval can be the worst
#
# Intervals cover sampling and privacy noise *given the released propensity*. A bias is in none of
# them.

# %%
wrong = estimate(psid1, "ipw", eps=1, rng=0)
low, high = wrong.conf_int().loc["ATE"]
without = exact["ipw", "psid1"].conf_int().loc["ATE"]
Markdown(
    f"One seeded run: `ipw` on PSID1 at eps = 1 says {wrong.params['ATE']:.2f} with the interval "
    f"[{low:.2f}, {high:.2f}], a gain of some {wrong.params['ATE'] * 10_000:,.0f} dollars. The "
    f"experiment says {ANSWER * 10_000:,.0f}. Privacy is not to blame: without noise the interval "
    f"is [{without.iloc[0]:.2f}, {without.iloc[1]:.2f}]."
)

# %% [markdown]
# ### Which method is closer, by a test
#
# The source paper compares methods on these files by a Wilcoxon signed-rank test of absolute
# errors, paired over runs. The same here for `blocking` against each of the others, on PSID1 at eps
# = 1. It says which is closer *on this file*, not which is right.

# %%
errors = runs[(runs["file"] == "psid1") & (runs["eps"] == 1)]
errors = errors.pivot_table(index="seed", columns="method", values="error")[list(KERNELS)]
pd.DataFrame(
    {
        other: {
            "median error": errors[other].median(),
            "runs in which blocking is closer": f"{(errors['blocking'] < errors[other]).sum():d}",
            "p (Wilcoxon)": wilcoxon(errors["blocking"], errors[other]).pvalue,
        }
        for other in errors.columns.drop("blocking")
    }
).T.infer_objects().round(3)

# %%
Markdown(
    f"The median error of `blocking` is {errors['blocking'].median():.2f}. The difference in means "
    f"does well in this file by luck: the raw difference is "
    f"{exact['diff_means', 'psid1'].params['ATE']:.2f}, near the experiment's {ANSWER:.2f}, "
    "though the two groups have hardly anything in common. In PSID3 it would be "
    f"{exact['diff_means', 'psid3'].params['ATE']:.2f}."
)

# %% [markdown]
# ## Intervals
#
# A forest plot: the line is the 95 % interval over sampling and privacy noise, the bar what privacy
# noise alone would give, and the marks are hollow because nothing here is private (seeds, or no
# noise). First the width of the intervals in the experiment at eps = 1, by method, then the four
# shortest beside the estimate without noise. `blocking` equals `diff_means` there since it has one
# block.

# %%
once = {method: estimate(nsw, method, eps=1, rng=5) for method in KERNELS}
widths = pd.Series(
    {method: float(np.diff(found.conf_int().loc["ATE"])[0]) for method, found in once.items()},
    name="width of the 95 % interval",
).sort_values()
widths.to_frame().round(2)

# %%
best = list(widths.index[:4])
forest = dp.compare(
    {"no noise": truth} | {f"{method}, eps = 1": once[method] for method in best}, mixed=True
)
fig, ax = forest.plot()

# %% [markdown]
# And by comparison group and budget, with the default method. In the two small files that is a
# difference in means. PSID1 has enough rows for blocks of a noisy propensity, and pays
# for them: its intervals are the longest although it is the largest file.

# %%
ladder = {"experiment, no noise": truth}
for name, label in (("nsw", "experiment"), ("psid3", "PSID3"), ("psid1", "PSID1")):
    for eps in (1.0, 3.0):
        ladder[f"{label}, eps = {eps:g}"] = estimate(files[name], "blocking", eps, rng=5)
fig, ax = dp.compare(ladder, mixed=True).plot()

# %% [markdown]
# ## As a table for a paper
#
# `compare` puts results side by side as a journal does, and never without the privacy that was
# paid. These columns are seeded, so they are marked; `as_latex()`, `as_html()` and `as_markdown()`
# have the same content.

# %%
table = dp.compare(
    {
        "(1)": estimate(nsw, "diff_means", eps=1, rng=5),
        "(2)": estimate(nsw, "diff_means", eps=3, rng=5),
        "(3)": estimate(psid1, "blocking", eps=3, rng=5).estimand("att"),
        "(4)": exact["diff_means", "nsw"],
    },
    mixed=True,
    stars=True,
    title="Training and the change in earnings (10,000 dollars)",
)
print(table)

# %% [markdown]
# ## How far more rows would help
#
# All of this could have been known before any row was read. `plan_ate` needs public quantities
# only: rows, bounds, columns, the share of the treated and a standard deviation, which one takes
# from published tables.

# %%
public = {"y_bounds": nsw.bounds["y"], "k": 8, "outcome_sd": 0.8}
sizes = {"nsw": 185 / 445, "psid3": 185 / 313, "psid2": 185 / 438, "psid1": 185 / 2675}
plans = {
    (name, len(files[name].data)): dp.plan_ate(
        len(files[name].data), 1, treated_share=share, method="diff_means", **public
    ).loc["diff_means"]
    for name, share in sizes.items()
}
for n in (5_000, 20_000):
    plans["half treated", n] = dp.plan_ate(n, 1, method="diff_means", **public).loc["diff_means"]
planned = pd.DataFrame(plans).T[["noise_sd", "sampling_sd", "detectable", "eps_needed"]]
planned.rename_axis(["file", "n"]).astype(float).round(3)

# %%
found = planned.loc[("nsw", len(nsw.data)), "detectable"]
Markdown(
    f"At eps = 1 the experiment's file could find an effect of {found:.2f} or more (with a "
    f"probability of 80 %); the effect is {truth.params['ATE']:.2f}. Even without privacy it was "
    "close: the sampling error alone needs an effect of "
    f"{2.8 * truth.bse['ATE']:.2f}. Noise falls with n, sampling error with its root, so at "
    "20,000 rows privacy is cheap."
)

# %% [markdown]
# ### What tighter bounds would buy
#
# The upper bound of 7.5 stands for men who earn 75,000 dollars more than four years before. Who is
# ready to argue, from outside knowledge, that 25,000 either way is plenty for this population,
# halves the noise at least: sums move less, and bounds that are symmetric about what is typical
# keep the errors of noisy counts and weights small. A cell is the root mean square distance from
# the same method and bounds without noise. (Men beyond the bounds are clipped: that is the bias one
# accepts.)

# %%
tight = {"y": (-2.5, 2.5)}
bought = {}
for method in ("diff_means", "nipw", "ipw", "regression"):
    for label, changed in (("[-2.5, 7.5]", {}), ("[-2.5, 2.5]", tight)):
        without = estimate(nsw, method, float("inf"), bounds=changed).params["ATE"]
        off = [
            estimate(nsw, method, 1.0, rng=seed, bounds=changed).params["ATE"] - without
            for seed in range(REPEATS)
        ]
        bought.setdefault(method, {})[label] = np.sqrt(np.mean(np.square(off)))
pd.DataFrame(bought).T.round(3)

# %% [markdown]
# ## What can and what cannot be said
#
# **Can be said**, at these sizes and eps = 1:
#
# * in the experiment, a difference in means with an interval that holds what it promises. It is
#   wide, and all it excludes are very large effects;
# * in the surveys, a *raw* difference, private and honest about its noise.
#
# **Cannot be said:**
#
# * that the programme worked: the experiment's own effect is smaller than what these files can
#   detect at eps = 1;
# * anything that rests on weights by propensities, on eight covariates and a few hundred rows.
#   Methods that are good without noise are not the methods that are good with it;
# * the average effect over everybody in PSID1. No budget mends missing overlap, and neither does
#   `eps=inf`.
#
# If such a study were planned today: randomise and say so, argue for tight bounds, ask for the
# effect on the trained, and collect more rows. The vignette on planning goes through that.
