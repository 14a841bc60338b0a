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
# # Replicating the two papers
#
# **The question.** This package grew out of two papers: one on treatment effects (SeqIPW,
# DPBlocking, and LGPM19 which they improve on), one on synthetic control (DPSC). Both come with
# code, and in both the noise of that code is too small for the privacy it claims
# ([treatment effects](../docs/methods.md), [synthetic control](../docs/methods_synth.md)). So what
# is left of the published conclusions once the noise is right?
#
# Every table and figure can be redone by name. Each compares up to three *arms*:
#
# * **as shipped**: the published code with its errors, rebuilt. Its numbers are NOT PRIVATE;
# * **made private**: the published rules (bounds, blocks, split of the budget) with noise that is
#   proved to be large enough;
# * **default**: this package with nothing tuned;
#
# and references: estimates without noise, and predictions that use no data.
#
# Every number and every verdict on this page is computed from the kept tables. There is nothing
# private in here: samples are simulated, or public teaching data, and all seeds are recorded.

# %%
from pathlib import Path

import numpy as np
import pandas as pd
from IPython.display import Markdown

import dpstats as dp

pd.set_option("display.max_colwidth", None)
pd.set_option("display.max_rows", None)
dp.replicate.names()

# %% [markdown]
# ## The kept results
#
# One CSV a table or figure, with the number of trials, the versions and the processor time in its
# head. `dp.replicate.read` brings one back with its figure and its conclusions.

# %%
here = Path.cwd()
places = [here / "results", Path(dp.__file__).parents[1] / "vignettes" / "results"]
places += [folder / "vignettes" / "results" for folder in (here, *here.parents)]
folder = next(place for place in places if place.is_dir())
results = {
    name: dp.replicate.read(folder / f"{name}.csv")
    for name in dp.replicate.names()
    if (folder / f"{name}.csv").exists()
}
pd.DataFrame(
    {
        name: {
            "shows": result.experiment.shows.split(":")[0],
            "trials": result.metadata["trials"],
            "rows": len(result.table),
            "processor seconds": result.metadata["seconds"],
            "left out": ", ".join(result.skipped) or "-",
        }
        for name, result in results.items()
    }
).T

# %% [markdown]
# ## Which conclusions stand, and which fall
#
# A conclusion is a question to a table: is this method's error lower than that one's in every cell?
# `conclusion()` asks it of each arm. Differences within two standard errors count for neither side.


# %%
def reading(verdicts: pd.Series) -> str:
    """Say in words what the verdicts of the three arms add up to."""
    shipped, private = verdicts.get("as shipped"), verdicts.get("made private")
    default = verdicts.get("default")
    if shipped == "fails":
        return "not reproduced"
    corrected = {private, default} & {"holds", "fails"}
    if not corrected:
        return "reproduced (only the published code can be asked)"
    if corrected == {"holds"}:
        return "stands"
    if corrected == {"fails"}:
        return "falls"
    return "stands for the defaults only" if default == "holds" else "falls for the defaults"


asked = pd.concat([result.conclusion().assign(experiment=name) for name, result in results.items()])
verdicts = asked.pivot_table(
    index=["experiment", "origin", "claim"],
    columns="arm",
    values="verdict",
    aggfunc="first",
    sort=False,
).reindex(columns=["as shipped", "made private", "default"])
verdicts["reading"] = verdicts.apply(reading, axis=1)
published = verdicts.xs("source", level="origin")
published["reading"].value_counts().to_frame("published conclusions")

# %%
counts = published["reading"].value_counts()
lines = [f"Of {len(published)} published conclusions that were asked here,"]
lines += [f"* {number}: {text}" for text, number in counts.items()]
Markdown("\n".join([lines[0], "", *lines[1:]]))

# %% [markdown]
# ### Those that fall with enough noise

# %%
evidence = asked.pivot_table(
    index=["experiment", "claim"], columns="arm", values="evidence", aggfunc="first", sort=False
)
evidence = evidence.reindex(columns=["as shipped", "made private", "default"])
fallen = published.index[published["reading"].str.startswith("falls")]
evidence.loc[fallen].fillna("-")

# %% [markdown]
# ### Those that stand for the defaults only

# %%
partly = published.index[published["reading"] == "stands for the defaults only"]
evidence.loc[partly].fillna("-")

# %% [markdown]
# ### Those that the published code itself does not show here
#
# Few trials make this list longer than it should be: errors of DPBlocking as shipped have heavy
# tails, because it divides by noisy counts that may be near the threshold.

# %%
missing = published.index[published["reading"] == "not reproduced"]
evidence.loc[missing].fillna("-")

# %% [markdown]
# ### All of them

# %%
published.fillna("-")

# %% [markdown]
# ## Error against n
#
# Dashed lines are the published code, dotted ones its rules made private, solid ones the defaults.

# %%
fig, axes = results["ate-error"].plot()


# %%
def ratio(name: str, role: str, first: str, second: str) -> pd.Series:
    """Error of a role in one arm over that in another, by cell."""
    table = results[name].table
    axes = list(results[name].experiment.axes)
    rows = table[table["role"] == role].pivot_table(index=axes, columns="arm", values="rmse")
    return rows[first] / rows[second]


price = {
    role: ratio("ate-error", role, "made private", "as shipped")
    for role in ("SeqIPW", "DPBlocking")
}
gain = {
    role: ratio("ate-error", role, "default", "made private") for role in ("SeqIPW", "DPBlocking")
}
pd.DataFrame(
    {
        "made private / as shipped": {role: values.median() for role, values in price.items()},
        "default / made private": {role: values.median() for role, values in gain.items()},
    }
).round(2)

# %% [markdown]
# The first column is what honest noise costs the published rules (the median over n and eps; below
# 1 where the published code has other faults that cost more), the second what better rules change
# at the same privacy. By cell, the cost of honest noise:

# %%
pd.DataFrame(price).round(2)

# %% [markdown]
# ## A baseline that the papers do not have
#
# A private difference in means adjusts for nothing, needs no propensity and so spends its budget on
# two sums. Where does blocking earn its keep?

# %%
baseline = verdicts.xs("here", level="origin").drop(columns="reading")
baseline[baseline.index.get_level_values("claim").str.contains("difference in means")]

# %% [markdown]
# ## Real data
#
# The National Supported Work samples are small, and the estimate that stands in for the truth is
# itself biased where overlap is poor, so these say more about noise than about causality.

# %%
fig, axes = results["nsw-error"].plot()

# %% [markdown]
# ## Synthetic control
#
# The lines "predict 0" and "last value" use no donor at all. A private method that is above them is
# of no use.

# %%
fig, axes = results["synth-eps"].plot()

# %%
table = results["synth-eps"].table.pivot_table(
    index=["T0", "donors", "eps"], columns="method", values="rmse"
)
arms = {
    "DPSC_out, as shipped": "published code",
    "DPSC_out, exact sensitivity": "its rules made private",
    "output, default": "output, default",
    "moments": "moments",
}
useful = {}
for method, words in arms.items():
    better = table[method] < table[["predict 0", "last value"]].min(axis=1)
    first = better[better].reset_index().groupby(["T0", "donors"])["eps"].min()
    useful[words] = first.reindex(table.index.droplevel("eps").unique())
pd.DataFrame(useful).rename_axis(index=["T0", "donors"]).fillna(np.inf)

# %% [markdown]
# The table has the smallest eps of the sweep at which a method beats both lines (`inf`: at none).
#
# ### Theory and practice
#
# The accuracy theorem takes the mean length of a noise vector for its scale. That happens to be
# right for the length drawn by the published code, which is not private, and is too small by the
# dimension for the noise that the privacy proof needs.

# %%
fig, axes = results["synth-theory"].plot()
results["synth-theory"].conclusion()[["claim", "arm", "verdict", "evidence"]]

# %% [markdown]
# ## Run one now
#
# A few trials of one figure, compared with the kept table: differences in standard errors. The
# trials are seeded, so the first ones of the kept run are the same as these if the code is.

# %%
again = dp.replicate.run("unbalanced", trials=8, progress=False)
keys = ["n", "eps", "method"]
both = again.table.merge(results["unbalanced"].table, on=keys, suffixes=("", "_kept"))
both["difference"] = (both["rmse"] - both["rmse_kept"]) / np.hypot(
    both["rmse_se"], both["rmse_se_kept"]
)
both[[*keys, "rmse", "rmse_kept", "difference"]].round(3)

# %% [markdown]
# ## Run them all
#
# ```text
# python -m dpstats.replicate all --trials 500 --jobs 2 --out vignettes/results
# ```
#
# Stop it whenever you like; the same command goes on from there. Processor time of the kept run:

# %%
owners = {result.experiment.trials_of or name for name, result in results.items()}
seconds = sum(float(results[name].metadata["seconds"]) for name in owners if name in results)
print(f"{seconds / 60:.0f} minutes on one core")
