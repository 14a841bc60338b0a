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
# # Planning a private study
#
# **The question.** A health insurer ran a programme that helps people to give up smoking. Does it
# change body weight? The file has 8,000 members, some of whom took part, with five covariates, and
# it is confidential. What may leave the building is limited by a budget `eps` that is agreed on
# *before* anybody looks, and that can be spent once.
#
# So three things have to be settled first, all from public knowledge: how small an effect must be
# found, which budget that takes, and how the budget is shared by the estimates of the study. The
# functions below touch no data: calling them again and again costs nothing.

# %%
import os
import tempfile

import pandas as pd

import dpstats as dp

# %% [markdown]
# ## From a question to numbers
#
# Clinicians say that 1 kg matters and less does not. Changes of weight are known from the
# literature: about 2 kg on average with a standard deviation of 8, and hardly anybody beyond 30 kg
# in either direction. This is what a plan needs: the number of rows, the bounds, the number of
# columns of the propensity, the standard deviation, the expected means.

# %%
study = {
    "n": 8_000,
    "y_bounds": (-30, 30),
    "k": 5,
    "treated_share": 0.4,
    "outcome_sd": 8,
    "means": (2, 3),
}
plan = dp.plan_ate(**study, eps=1, method="all")
print(plan)

# %% [markdown]
# How to read it, one column a method; in brackets the columns of `plan`, which is a DataFrame:
#
# * The first three lines are what privacy adds to the effect (`noise_sd`), what the sample adds
#   anyway (`sampling_sd`), and both together (`total_se`).
# * The smallest effect found (`detectable`) is the true effect that a test at 5 % finds with a
#   probability of 80 %.
# * At the next `eps` noise is as large as the sampling error (`eps_needed`): with more than that,
#   most of the error is no longer the price of privacy.
# * The last lines are the noise in what is released (`sd_...`).
#
# The difference in means is by far the most precise, and answers another question unless treatment
# was randomised: it adjusts for nothing. Bias is in none of these columns.
#
# Where the formula of the call is settled, it can stand in place of `k`, with its bounds and
# levels: a category counts its levels less one, `I(age ** 2)` one more, and a column without bounds
# is one that the call would have to search.

# %%
by_formula = dp.plan_ate(
    8_000,
    eps=1,
    formula="kg ~ age + I(age ** 2) + female + region",
    bounds={"kg": (-30, 30), "age": (18, 90), "female": (0, 1)},
    levels={"region": ["north", "south", "west"]},
    outcome_sd=8,
)
print(by_formula)

# %% [markdown]
# ## The smallest effect that can be found
#
# To find 1 kg, the total standard error must be 1 / 2.8 = 0.36 kg at most. Larger budgets help
# until sampling error is all that is left.

# %%
rows = {eps: dp.plan_ate(**study, eps=eps).loc["blocking"] for eps in (0.5, 1, 2, 4)}
columns = ["blocks", "noise_sd", "sampling_sd", "total_se", "detectable", "advice"]
pd.DataFrame(rows).T[columns].rename_axis("eps")

# %% [markdown]
# As a picture, with the target as a line; the axis on the right reads the solid lines as smallest
# effects. The curve of one block (a difference in means, which adjusts for nothing) stands left of
# the jump.

# %%
curve = dp.plan_curve("ate", eps=[0.1, 0.2, 0.5, 1, 2, 5, 10], **study)
fig, ax = dp.plot_plan(curve, target_se=1 / 2.8, ylabel="Error of the effect (kg)")

# %% [markdown]
# Or the other way round. `target_se` asks for the budget:

# %%
target = 1 / 2.8
plan = dp.plan_ate(**study, eps=1, target_se=target).loc["blocking"]
print(f"eps needed for 1 kg: {plan['eps_needed']:g}")

# %% [markdown]
# ## What to change if that is too much
#
# Bounds, columns, rows and design, not luck. Here is what each of them buys.

# %%
options = {
    "as planned": {},
    "bounds [-20, 20]": {"y_bounds": (-20, 20)},
    "two covariates": {"k": 2},
    "16,000 rows": {"n": 16_000},
    "delta = 1e-6": {"delta": 1e-6},
    "randomised": {"propensity": 0.4},
    "bounds found privately": {"searched": 6},
    "three rows a person": {"rows_per_person": 3},
}
pd.DataFrame(
    {
        name: dp.plan_ate(**{**study, **changes}, eps=1, target_se=target).loc["blocking"]
        for name, changes in options.items()
    }
).T[["noise_sd", "sampling_sd", "detectable", "eps_needed"]].astype(float).round(3)

# %% [markdown]
# Tighter bounds cut the noise in proportion, but values beyond them are clipped: that is a bias
# which no plan can tell, so take bounds from the literature. If treatment was randomised, say so:
# nothing is spent on a propensity. Gaussian noise (delta > 0) pays where one person moves many
# numbers at once; here a person moves two, and Laplace noise is smaller.
#
# A plan rests on its assumptions. It is cheap to see what becomes of it where they fail:

# %%
assumptions = {
    "as planned": {},
    "sd 12 instead of 8": {"outcome_sd": 12},
    "treatment depends strongly on covariates": {"logit_sd": 2},
    "one in ten treated": {"treated_share": 0.1},
    "strong confounding": {"confounding": 0.9},
}
pd.DataFrame(
    {
        name: dp.plan_ate(**{**study, **changes}, eps=1).loc["blocking"]
        for name, changes in assumptions.items()
    }
).T[["noise_sd", "sampling_sd", "total_se", "detectable"]].astype(float).round(3)

# %% [markdown]
# ## A second question: synthetic control
#
# The programme started in one region in 2010. A panel of 3,000 practices with 20 years before and
# 10 after would show the effect on that region. Here a *practice* is protected, with its whole
# series; `plan_synth` says whether so many are enough. It runs the method itself on simulated
# panels in which units move by 5 typically; `last_value` is the error of assuming that the region
# would have stayed as it was in the last year.

# %%
dp.plan_synth(3_000, 30, 20, eps=1, bounds=(0, 100), delta=1e-6, deviation=5).T

# %% [markdown]
# With 38 donors, as in the study of California, it says so plainly:

# %%
dp.plan_synth(38, 30, 20, eps=1, bounds=(0, 100), delta=1e-6, deviation=5)["advice"]

# %% [markdown]
# ## Write the budget down
#
# The board agrees to eps = 3 for the members' file: 2 for the main estimate, the rest for one
# subgroup or one check. A ledger keeps that promise: a file that every notebook of the study opens,
# charged before the first noise is drawn. The two files protect different people, so each has a
# ledger of its own.

# %%
folder = tempfile.TemporaryDirectory()
ledger = dp.PrivacyLedger(os.path.join(folder.name, "study.ledger"), eps=3.0, protects="row")
ledger.remaining

# %% [markdown]
# ## Then, once, the data
#
# Here they are simulated. `rng` makes the *rows*; the noise of the estimate is new at every run.

# %%
members = dp.simulate.ate("strong_confounding", 8_000, rng=1)
result = dp.dp_ate(
    members.formula, members.treat, members.data, eps=2, bounds=members.bounds, ledger=ledger
)
result.tidy().round(3)

# %% [markdown]
# Was the plan right? With the public facts of this process, privacy noise ought to be near what was
# planned, and so ought the sampling error.

# %%
planned = dp.plan_ate(
    8_000,
    2,
    members.bounds["y"],
    k=4,
    outcome_sd=1.6,
    means=(-1, 1),
    logit_sd=1.1,
    confounding=-0.7,
).loc["blocking"]
pd.DataFrame(
    {
        "planned": [planned["noise_sd"], planned["sampling_sd"]],
        "in the result": [result.noise_sd(), result.sampling_sd()],
    },
    index=["privacy", "sampling"],
).round(3)

# %% [markdown]
# ## Where would more budget help?
#
# `sensitivity_table` lists each release with the epsilon at which its noise would be half as large.
# It reads the privacy record only, so it is free.

# %%
dp.sensitivity_table(result)[["release", "scale", "epsilon", "epsilon_half", "total"]].round(3)

# %% [markdown]
# Laplace noise falls with 1 / eps: half of it costs twice as much. With delta > 0 it is a little
# more than twice.
#
# ## What is left, and what happens beyond it

# %%
ledger.history()[["epsilon", "call"]]

# %%
try:
    dp.dp_ate(members.formula, members.treat, members.data, 2, bounds=members.bounds, ledger=ledger)
except dp.BudgetExceededError as error:
    print(str(error).replace(folder.name, "..."))

# %% [markdown]
# Nothing was computed. One unit of eps is left, and a plan says what it would buy before it is
# spent:

# %%
left, _ = ledger.remaining
dp.plan_ate(8_000, left, members.bounds["y"], k=4, outcome_sd=1.6, means=(-1, 1))[
    ["noise_sd", "sampling_sd", "detectable", "advice"]
].T

# %%
folder.cleanup()

# %% [markdown]
# ## The rules of a good plan
#
# 1. Settle `eps`, bounds, covariates and the estimates *before* the first call, and write them
#    down.
# 2. Plan with numbers that are public: published standard deviations, not those of the file.
# 3. Few estimates. Every one has its part of the budget, so ten estimates have ten times the noise
#    each.
# 4. Keep every result (`save`): it can be used for ever, and running it again costs again.
