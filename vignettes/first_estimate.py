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
# # A first private estimate
#
# **The question.** What does giving up smoking do to body weight? NHEFS follows 1,566 cigarette
# smokers from 1971 to 1982. Some gave up in between (`qsmk`), and we know how their weight changed
# (`wt82_71`, kilograms). Those who gave up differ from the others in age, sex, schooling and how
# much they smoked, so we adjust for that with a propensity score.
#
# **The constraint.** Suppose the file were confidential: no number that leaves it may tell much
# about any one person. Differential privacy makes that precise. Noise of a known size is added to a
# few sums, everything that you see is computed from those noisy sums, and you choose beforehand how
# much may be learnt about one person: the budget `eps`.
#
# The noise is new at every run, so **your numbers differ from those of anybody else**, and nothing
# in the text below depends on a particular draw.

# %%
import os
import tempfile

import numpy as np
import pandas as pd

import dpstats as dp
from dpstats.datasets import load_nhefs

# %% [markdown]
# ## What must be known from outside
#
# A formula, a treatment column, a budget, and *bounds*: the interval in which each column lies,
# from public knowledge. The survey took people aged 25 to 74; four packs are 80 cigarettes; nobody
# expects a change of more than 50 kg. Bounds are **never** the minimum and maximum of the data:
# those are facts about two people. Values beyond the bounds are clipped.
#
# The data sets of the package carry such bounds, and the levels of the categories in the
# questionnaire.

# %%
nhefs = load_nhefs()
print(nhefs.formula)
pd.DataFrame(nhefs.bounds, index=["lower", "upper"]).T

# %%
nhefs.levels

# %% [markdown]
# ## The estimate
#
# One call. It spends eps = 2 and returns a result that behaves like one of statsmodels. We adjust
# for the six covariates that matter most, not for all the columns above: each costs noise.

# %%
formula = "wt82_71 ~ age + sex + race + smokeintensity + smokeyrs + wt71"
result = dp.dp_ate(formula, treat="qsmk", data=nhefs.data, eps=2, bounds=nhefs.bounds)
result

# %% [markdown]
# How to read it:
#
# * **coef** is the effect in kilograms; **std err** and the interval cover sampling *and* privacy
#   noise. The two parts stand in the header: if that of privacy is the larger one, most of the
#   uncertainty is the price of privacy, not of the sample.
# * **Noisy releases** is the whole of what was taken from the file. The shares add up to 100 %.
# * The **notes** say whom this protects and what was taken as public.

# %%
result.conf_int()

# %%
result.diagnostics

# %% [markdown]
# ## What was released
#
# Five things: the coefficients of the propensity; a very small amount of noise that covers the
# solver's tolerance; the number of the treated, on which the blocks are centred; counts, with the
# sums of the outcome in the same vector; and two sums of squares for the standard error. Each has a
# sensitivity (how far one person can move it), a scale of noise and a cost.

# %%
releases = result.privacy.releases
releases[["release", "mechanism", "sensitivity", "norm", "scale", "epsilon"]]

# %%
# the costs add up to the budget
assert np.isclose(releases["epsilon"].sum(), 2.0)
print(result.privacy.statement())

# %% [markdown]
# ## Twice the budget
#
# At eps = 4 all noise is half as large. It also means that the odds of a guess about a person may
# change by a factor of exp(4), about 55, instead of 7.4. That is a decision about people, not about
# statistics: make it before you see results.
#
# **Budgets add up.** Somebody who sees both results has seen eps = 6 of this file.

# %%
larger = dp.dp_ate(formula, treat="qsmk", data=nhefs.data, eps=4, bounds=nhefs.bounds)
pd.DataFrame(
    {
        f"eps = {found.privacy.epsilon:g}": {
            "estimate": found.params["ATE"],
            "std err": found.bse["ATE"],
            "of which privacy": found.noise_sd(),
            "of which sampling": found.sampling_sd(),
            "blocks": len(found.blocks),
        }
        for found in (result, larger)
    }
).round(3)

# %% [markdown]
# ## Half the budget, and every column
#
# The full formula has 18 columns once categories are spread out. At eps = 1 a propensity of 18
# columns would be mostly noise, and would take half of the budget. The number of blocks follows a
# public rule on n, eps and the number of columns, and here the rule says *one*: nothing is adjusted
# for, and the notes say so. That is the better estimate at this budget (measured in
# [docs/methods.md](../docs/methods.md)), but it is a difference in means. Only more budget, more
# rows or fewer columns make it more.

# %%
plain = dp.dp_ate(
    nhefs.formula,
    treat=nhefs.treat,
    data=nhefs.data,
    eps=1,
    bounds=nhefs.bounds,
    levels=nhefs.levels,
)
assert len(plain.blocks) == 1
plain

# %% [markdown]
# ## Inside: the noisy blocks
#
# People are sorted into blocks of the propensity, here a private one. A row of the table is one
# block: noisy numbers of controls and treated, their mean outcomes, the effect with its interval,
# and its weight. `noise_sd` says how far off a count may be; a block is not `kept` where a count
# cannot be told from noise.

# %%
larger.blocks.round(2)

# %%
fig, ax = larger.plot()

# %% [markdown]
# Do not be surprised if the effects of all blocks are equal. Each arm is described by a line in the
# propensity, and blocks leave that line, or the two arms get different slopes, only as far as the
# difference can be told from noise. Equal effects mean that *at this budget* no variation can be
# seen, not that there is none. `blocks`, `plot` and everything else here is computed from the
# released numbers: it costs nothing more.

# %%
fig, ax = larger.plot("budget")

# %% [markdown]
# ## The effect on those who gave up
#
# The same release serves other averages: over the treated (`att`), the controls (`atc`) and the
# population in which both are common (`ato`). No new noise is drawn and nothing more is spent.

# %%
treated = larger.estimand("att")
treated.tidy().round(3)

# %%
assert treated.privacy == larger.privacy

# %% [markdown]
# ## Keep it
#
# A result cannot be made again: a second call draws new noise and spends a second budget. So save
# it. The file is JSON and holds released numbers only; like a pickle of the result, it is as safe
# to share as the summary.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "smoking.json")
    larger.save(path)
    again = dp.load(path)
assert again.params.equals(larger.params)
again.tidy().round(3)

# %% [markdown]
# `summary().as_latex()`, `summary().as_html()`, `tidy()` and `to_dict()` are there for papers and
# pipelines.
#
# ## Beside the ordinary estimate
#
# These are public teaching data, so here, **and only for that reason**, we may look at what the
# same method gives without noise. `eps=float("inf")` says in its first line that it is not private.
# On confidential data this line would be a leak, and comparing the two would tell exactly what the
# noise was.

# %%
reference = dp.dp_ate(  # NOT PRIVATE: public teaching data
    formula, treat="qsmk", data=nhefs.data, eps=float("inf"), bounds=nhefs.bounds
)
reference

# %% [markdown]
# ## When noise dominates
#
# The first lines of `diagnostics` compare privacy noise with sampling error. If noise dominates,
# there are four honest ways out, and none of them is to try again until it looks better.
#
# 1. **Tighter bounds.** Noise in the sums is proportional to the width of the outcome's bounds.
#    Weight changes of more than 25 kg in eleven years are rare; a reviewer who accepts [-25, 25]
#    from the literature halves that noise.
# 2. **Fewer covariates.** The noise in the propensity grows with the number of columns. Keep those
#    that matter for both treatment and outcome.
# 3. **Design.** In a randomised trial say so (`propensity=0.5`, or `method="diff_means"`): then
#    nothing is spent on a propensity.
# 4. **More rows or a larger budget.** Noise falls in proportion to n and to eps, faster than
#    sampling error.
#
# The size of the noise is known *before* anything is spent, so plan on simulated rows. Below, the
# standard deviation that privacy noise gives an estimate, for a process with strong confounding.
# Seeds are fine here, since nobody is protected in simulated rows; the package says so with a
# warning, which we switch off.

# %%
import warnings

plan = {}
with warnings.catch_warnings():
    warnings.simplefilter("ignore", dp.PrivacyWarning)
    for n in (2_000, 10_000, 50_000):
        sample = dp.simulate.ate("strong_confounding", n, rng=1)
        for eps in (0.5, 1.0, 3.0):
            found = dp.dp_ate(
                sample.formula, sample.treat, sample.data, eps, bounds=sample.bounds, rng=1
            )
            plan[n, eps] = {"privacy": found.noise_sd(), "sampling": found.sampling_sd()}
pd.DataFrame(plan).T.rename_axis(["n", "eps"]).round(3)

# %% [markdown]
# ## Without bounds
#
# If nobody can vouch for bounds, the package finds them privately, out of the same budget: noisy
# histograms over powers of two. That needs rows: about 500 for each column, divided by the budget
# spent on bounds (here a quarter of eps), so it suits 20,000 rows and not 1,566. With hopelessly
# few rows the call is refused before anything is spent; with too few, the search may find nothing,
# and that answer has cost the budget of the call.

# %%
big = dp.simulate.ate("well_specified", 20_000)
blind = dp.dp_ate("y ~ x1 + x2 + x3 + x4", treat="w", data=big.data, eps=1)
blind

# %%
small = dp.simulate.ate("well_specified", 100)
try:
    dp.dp_ate("y ~ x1 + x2 + x3 + x4", treat="w", data=small.data, eps=1)
except dp.BoundsError as error:
    print(error)

# %% [markdown]
# The bounds that were found are in the notes. They are powers of two: often wider than what an
# expert would write down, and sometimes so tight that the tails are clipped, which biases the
# estimate. Pass bounds if you can.
#
# ## What not to do
#
# * **`bounds={"age": (df.age.min(), df.age.max())}`**: a leak that no software can see.
# * **Run it again, keep the nicer one.** Every call spends; what you report has then cost all of
#   them together.
# * **Filter first.** `df[df.sex == 1]` makes the number of women public, and protects a woman only
#   among files with as many women.
# * **`rng=1` on real data.** Noise from a seed can be subtracted. The result says NOT PRIVATE.
# * **Standardise, centre or bin by quantiles in the formula.** Such transforms are computed from
#   all rows without noise, and are refused:

# %%
try:
    dp.dp_ate(
        "wt82_71 ~ standardize(age)",
        treat="qsmk",
        data=nhefs.data,
        eps=1,
        bounds=nhefs.bounds,
    )
except dp.FormulaError as error:
    print(error)

# %% [markdown]
# * **Read the interval as more than it is.** It covers sampling and privacy noise given the
#   released propensity. It does not cover confounding by what was not measured, nor what is left
#   when the propensity itself is very noisy (many covariates, few rows, small eps). How often
#   intervals cover in simulations is in [docs/methods.md](../docs/methods.md); what the guarantee
#   does not reach is in [docs/limitations.md](../docs/limitations.md).
