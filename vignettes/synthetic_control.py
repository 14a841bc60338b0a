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
# # Synthetic control with confidential donors
#
# **The question.** One unit is treated, many are not, and all have been followed over time. What
# would the treated one have done without the treatment? Synthetic control answers with a mixture of
# the *donors*, chosen so that it follows the treated unit before the intervention.
#
# **The constraint.** The donors are confidential: patients of other hospitals, customers, firms.
# Their series enter with weights of their own, and a weight is exactly the kind of number that
# gives a donor away. Here each donor is protected with its *whole series*. The treated unit is not:
# it is the one that the study is about, and its own series is taken as known.
#
# **How this page is made.** Estimates marked private draw new noise in each build; the sentences
# around them quote no number of theirs. Comparisons over several runs use `rng=`, which is not
# private, and everything without noise is computed from public teaching data or simulated rows
# only.

# %%
import warnings

import numpy as np
import pandas as pd
from IPython.display import Markdown

import dpstats as dp

INF = float("inf")
DELTA = 1e-6
# seeds are announced above; the warning about useless answers is shown where it belongs
warnings.simplefilter("ignore", dp.PrivacyWarning)


def estimate(panel, eps, method="moments", **more):
    """One call with the labels and bounds that come with a panel."""
    return dp.dp_synth(
        panel.data,
        unit=panel.unit,
        time=panel.time,
        outcome=panel.outcome,
        treated=panel.treated,
        T0=panel.T0,
        bounds=panel.bounds,
        eps=eps,
        delta=0.0 if eps == INF else DELTA,
        method=method,
        **more,
    )


# %% [markdown]
# ## Proposition 99: too few donors
#
# California taxed cigarettes from 1989 on. The textbook example has 38 donor states and 31 years.
# The states' sales are published, so nobody needs protection here; the example shows what a small
# pool means. First without noise, weights on the simplex.

# %%
prop99 = dp.datasets.load_prop99()
reference = estimate(prop99, INF, method="simplex")  # NOT PRIVATE: published totals
fig, ax = reference.plot("path")

# %%
low, high = reference.conf_int().loc["ATT"]
Markdown(
    f"Without noise the mean effect after {prop99.T0} is {reference.params['ATT']:.1f} packs a "
    f"head and year, with a 95 % interval of [{low:.1f}, {high:.1f}]."
)

# %% [markdown]
# The weights are what makes this work, and what cannot be published: a handful of donors carry
# nearly all of it.

# %%
reference.weights.sort_values(ascending=False).head(6).round(3)

# %% [markdown]
# Replace one of these states by another, and the answer is another one. A private answer must not
# change noticeably, so **with 38 donors it must not follow any of them closely**. That is no
# weakness of a method. It can be read off before any data are touched, from the numbers of donors
# and periods and a guess of how far a state typically moves from its own mean (`deviation`, 20
# packs):

# %%
plan = dp.plan_synth(38, 31, 19, eps=1, bounds=prop99.bounds["cigsale"], delta=DELTA, deviation=20)
plan.T

# %% [markdown]
# `last_value` is the error of assuming that sales stay where they were in the last year before the
# tax. `total_se` is what the methods can do: if it is the larger of the two, the donors teach
# nothing at this budget. The call says so as well, in a warning:

# %%
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", dp.UtilityWarning)
    private = estimate(prop99, eps=1)
for entry in caught:
    print(f"{entry.category.__name__}: {entry.message}")

# %%
fig, ax = private.plot("path")

# %% [markdown]
# This run is private and new in each build. Its interval is at least tens of packs wide whatever
# the draw, and often hundreds. That is the honest answer: there is nothing to learn here at this
# budget.
#
# From which budget on would it be? A few seeded runs of each method. The cells are root mean square
# distances of the mean effect from the simplex without noise, in packs.

# %%
METHODS = ("moments", "did", "output", "objective")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", dp.UtilityWarning)
    distance = {
        method: {
            f"eps = {eps:g}": np.sqrt(
                np.mean(
                    [
                        (
                            estimate(prop99, eps, method, rng=seed).params["ATT"]
                            - reference.params["ATT"]
                        )
                        ** 2
                        for seed in range(10)
                    ]
                )
            )
            for eps in (1.0, 4.0, 16.0, 64.0)
        }
        for method in METHODS
    }
distance = pd.DataFrame(distance).T
distance.round(1)

# %%
observed = prop99.data.query("state == 'California'").set_index("year")["cigsale"]
carried = observed.loc[1989:].mean() - observed.loc[1988]
Markdown(
    "Carrying the last value forward, which uses no donor and costs nothing, says "
    f"{carried:.1f}: it is {abs(carried - reference.params['ATT']):.1f} away. At eps = 1 the "
    f"nearest method is {distance['eps = 1'].min():.1f} away (`{distance['eps = 1'].idxmin()}`)."
)

# %% [markdown]
# `output` and `objective` are the published algorithms with sensitivities that are right. Their
# noise does not shrink with the number of donors, and at these budgets they say more about the
# noise than about cigarettes.

# %%
did = estimate(prop99, INF, "did")  # NOT PRIVATE
Markdown(
    "`did`, difference-in-differences with a noisy mean, has no weights to choose, and that is its "
    f"limit: without any noise it says {did.params['ATT']:.1f}, since the mean of all donors does "
    "not fall as California would have. No interval knows of that."
)

# %% [markdown]
# ## Five thousand donors
#
# What one donor can do to a *sum over donors* does not depend on how many there are, and what the
# sums tell grows with their number. `moments`, the default, releases noisy second moments of the
# donors' rows and derives everything else from them. So it needs hundreds to thousands of donors,
# not dozens.
#
# A simulated panel, so that the truth is known: three common random walks, units of different
# levels, 20 periods before and 10 after, and an effect on unit 0.

# %%
EFFECT, SEED = 0.1, 99
panel = dp.simulate.panel("factor", n_donors=5_000, effect=EFFECT, rng=SEED)
panel

# %% [markdown]
# ### Plan first

# %%
dp.plan_synth(5_000, 30, 20, eps=1, bounds=panel.bounds["y"], delta=DELTA).T

# %%
pools = {
    donors: dp.plan_synth(donors, 30, 20, eps=1, bounds=panel.bounds["y"], delta=DELTA).loc[
        "moments", ["total_se", "last_value", "detectable", "advice"]
    ]
    for donors in (38, 200, 1_000, 5_000)
}
pd.DataFrame(pools).T.rename_axis("donors")

# %% [markdown]
# ### Then, once, the estimate

# %%
result = estimate(panel, eps=1)
result

# %% [markdown]
# How to read it: the line on **RMSPE** says how closely the treated unit was followed before;
# **Std. error, privacy** and **sampling** are the two parts of the error; the note says whether the
# answer is better than carrying the last value forward. The table by period has intervals that hold
# one at a time.

# %%
fig, ax = result.plot("path")

# %%
fig, ax = result.plot("gap")

# %% [markdown]
# With so many donors the band of privacy noise alone is too thin to be seen: nearly all uncertainty
# is that of synthetic control itself.
#
# Before the intervention the gap ought to stay near zero. A sharper check pretends that the
# intervention came earlier: at a date where nothing happened, nothing should be found. With
# `moments` this is **free**, since the released moments serve any date before the true one, and any
# treated series.

# %%
fig, ax = result.plot("placebo")

# %%
result.placebo_in_time(14).tail(8).round(3)

# %% [markdown]
# A placebo *in space*, which treats donors one by one as if they had been treated, is not free: it
# is a fresh question about a protected series.
#
# ### Intervals
#
# `conf_int()` has the mean effect, `which="periods"` each period, over sampling and privacy noise.
# `result.predict(y)` gives the counterfactual of any further series outside the pool, from the same
# release.

# %%
result.conf_int()

# %%
result.conf_int(which="periods").round(3)

# %% [markdown]
# Do they hold? Twenty panels with a fresh seed each. Among them, the share of intervals that
# contain the truth, beside the errors of the estimates. Twenty runs are few: the standard error of
# a share near .95 is .05. [docs/methods_synth.md](../docs/methods_synth.md) has the long study.

# %%
with warnings.catch_warnings():
    warnings.simplefilter("ignore", dp.UtilityWarning)
    rows = []
    for seed in range(20):
        fresh = dp.simulate.panel("factor", n_donors=5_000, effect=EFFECT, rng=seed)
        unit = fresh.data[fresh.data["unit"] == fresh.treated].set_index("time")["y"]
        last = unit.loc[fresh.T0 + 1 :].mean() - unit.loc[fresh.T0]
        # the realised mean effect: what is left when the unit's own untreated path is taken off
        truth = float((unit - fresh.counterfactual).loc[fresh.T0 + 1 :].mean())
        rows.append(("last value", last - truth, np.nan, np.nan))
        for method in METHODS:
            if method in ("output", "objective") and seed >= 5:
                continue
            found = estimate(fresh, 1.0, method, rng=seed)
            low, high = found.conf_int().loc["ATT"]
            rows.append((method, found.params["ATT"] - truth, low <= truth <= high, high - low))
        ridge = estimate(fresh, INF, "moments")
        rows.append(("moments, no noise", ridge.params["ATT"] - truth, np.nan, np.nan))
study = pd.DataFrame(rows, columns=["method", "error", "covers", "width"])
summary = study.groupby("method", sort=False).agg(
    runs=("error", "size"),
    rmse=("error", lambda e: np.sqrt(np.mean(e**2))),
    covers=("covers", "mean"),
    width=("width", "median"),
)
summary.astype(float).round(3)

# %%
rmse = summary["rmse"]
Markdown(
    f"With 5,000 donors at eps = 1 `moments` has an error of {rmse['moments']:.3f}, against "
    f"{rmse['moments, no noise']:.3f} without any noise, {rmse['did']:.3f} for "
    f"difference-in-differences, {rmse['last value']:.3f} for the last value and "
    f"{rmse['output']:.2f} for output perturbation. The effect to be found is {EFFECT:g}."
)

# %% [markdown]
# ## What is protected, and what is not
#
# * **Protected:** each donor with its whole series, against everybody who sees the result. Replace
#   any donor by anything, and all that was released is nearly as likely as before.
# * **Not protected:** the treated unit. Its series is drawn in every plot. If it is confidential
#   too, the figures must not leave the building.
# * **Public:** the number of donors, the time axis, `T0`, the bounds. If it is a secret *who* is in
#   the pool, it must not be shown by other means (a list of participants, a row count by region).
# * **No donor weights.** `moments` never forms any: the counterfactual is a function of the
#   released sums and the treated series. `output` and `objective` release noisy ones, without the
#   donors' labels.

# %%
print(result.privacy.statement())

# %%
result.privacy.releases[
    ["release", "mechanism", "sensitivity", "norm", "scale", "epsilon", "delta"]
]

# %% [markdown]
# ## Rules of thumb
#
# 1. Ask `plan_synth` first. Dozens of donors and eps = 1 do not go together, whatever the method.
# 2. Choose the unit of protection with care. 50 hospitals with 10,000 patients each are 50 donors
#    if hospitals are protected.
# 3. Fix `T0`, the bounds and the pool before the call. Other dates and other treated units are free
#    afterwards; another pool is a new release.
# 4. If the warning says that the last value does as well, believe it, and use the last value.
