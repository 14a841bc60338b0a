"""The tables and figures of the propensity score blocking paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dpstats.replicate import published
from dpstats.replicate.claims import (
    Claim,
    above,
    below,
    lower,
    near,
    reduction,
    significant,
)
from dpstats.replicate.effects import (
    DELTA,
    exact_methods,
    nsw,
    private,
    published_rules,
    shipped,
    simulated,
    standard_methods,
)
from dpstats.replicate.experiment import Cell, Experiment
from dpstats.replicate.search_experiments import SEARCH_EXPERIMENTS
from dpstats.replicate.tables import signed_rank_table

__all__ = ["EFFECT_EXPERIMENTS"]

_EPS = (0.25, 1.0, 3.0)
_SMALL = (1000, 2500, 5000, 10000)
_BASELINE = Claim(
    "DPBlocking beats a private difference in means, which adjusts for nothing.",
    lower("DPBlocking", "DiffMeans"),
    origin="here",
)


def _shipped_only(text: str, check: Any) -> Claim:
    """Return a claim about a printed number, which only the published code can meet."""
    return Claim(text, check, arms=("as shipped",))


def _at(eps: float) -> Callable[[Cell], bool]:
    return lambda cell: bool(cell["eps"] == eps)


_ERROR = Experiment(
    name="ate-error",
    title="Error against n, well-specified process",
    shows=(
        "Figure 1: root mean squared error against n from 500 to 100,000 at eps = 0.25, 1, 3 "
        "(tau = 2) of LGPM19, SeqIPW, DPBlocking and two estimates without noise."
    ),
    axes={"n": (500, 1000, 2500, 5000, 10000, 25000, 100000), "eps": _EPS},
    shared=("n",),
    sample=simulated("well_specified"),
    methods=standard_methods(),
    claims=(
        Claim("SeqIPW has lower error than LGPM19 for every n and eps.", lower("SeqIPW", "LGPM19")),
        Claim(
            "DPBlocking has lower error than LGPM19 for every n and eps.",
            lower("DPBlocking", "LGPM19"),
        ),
        Claim(
            "SeqIPW has the lowest error where n and eps are both low (n <= 1000, eps = 0.25).",
            lower("SeqIPW", "DPBlocking", where=lambda c: c["n"] <= 1000 and c["eps"] == 0.25),
        ),
        Claim(
            "DPBlocking has lower error than SeqIPW for larger n or eps (n >= 2500, eps >= 1).",
            lower("DPBlocking", "SeqIPW", where=lambda c: c["n"] >= 2500 and c["eps"] >= 1.0),
        ),
        Claim(
            "At eps = 1 DPBlocking's error is below 0.1 for n > 1000.",
            below("DPBlocking", 0.1, where=lambda c: c["eps"] == 1.0 and c["n"] > 1000),
        ),
        Claim(
            "At eps = 3 DPBlocking's error is comparable to that of IPW without noise.",
            lower("DPBlocking", "exact IPW", where=lambda c: c["eps"] == 3.0, factor=1.25),
        ),
        _shipped_only(
            "At n = 500, eps = 0.25 the error of DPBlocking is 0.58.",
            near(
                "DPBlocking",
                0.58,
                tolerance=0.25,
                where=lambda c: c["n"] == 500 and c["eps"] == 0.25,
            ),
        ),
        _shipped_only(
            "At n = 500, eps = 0.25 the error of LGPM19 is 2.5.",
            near("LGPM19", 2.5, tolerance=0.1, where=lambda c: c["n"] == 500 and c["eps"] == 0.25),
        ),
        *(
            Claim(
                f"At eps = {eps:g} DPBlocking's error is {percent} % below LGPM19's, averaged over "
                "n.",
                reduction("DPBlocking", "LGPM19", percent, where=_at(eps)),
            )
            for eps, percent in ((0.25, 63), (1.0, 75), (3.0, 84))
        ),
        Claim(
            "At n = 25,000, eps = 3 it is 90 % below.",
            reduction(
                "DPBlocking",
                "LGPM19",
                90,
                where=lambda c: c["eps"] == 3.0 and c["n"] == 25000,
            ),
        ),
        _BASELINE,
    ),
    x="n",
    panel="eps",
)

_BIAS = replace(
    _ERROR,
    name="ate-bias",
    title="Bias against n, well-specified process",
    shows="Figure 2: absolute bias against n at eps = 0.25, 1, 3, from the trials of Figure 1.",
    metric="bias",
    trials_of="ate-error",
    claims=(
        Claim(
            "DPBlocking has lower bias than SeqIPW.", lower("DPBlocking", "SeqIPW", column="bias")
        ),
        Claim(
            "LGPM19 has higher bias than DPBlocking.", lower("DPBlocking", "LGPM19", column="bias")
        ),
        Claim("LGPM19 has higher bias than SeqIPW.", lower("SeqIPW", "LGPM19", column="bias")),
    ),
)

_LOW_OVERLAP = Experiment(
    name="low-overlap",
    title="Low overlap, eps = 1",
    shows="Figure 3: error against n from 1,000 to 10,000 at eps = 1 where overlap is low.",
    axes={"n": (1000, 2500, 3000, 5000, 10000), "eps": (1.0,)},
    shared=("n",),
    sample=simulated("low_overlap"),
    methods=standard_methods(),
    claims=(
        Claim("DPBlocking has lower error than SeqIPW for all n.", lower("DPBlocking", "SeqIPW")),
        Claim("DPBlocking has lower error than LGPM19 for all n.", lower("DPBlocking", "LGPM19")),
        Claim(
            "For n > 2000 it has lower error than IPW without noise.",
            lower("DPBlocking", "exact IPW", where=lambda c: c["n"] > 2000),
        ),
        _BASELINE,
    ),
    x="n",
)

_UNBALANCED = replace(
    _LOW_OVERLAP,
    name="unbalanced",
    title="One row in ten treated, eps = 1",
    shows="Figure of the unbalanced setting: error against n from 1,000 to 10,000 at eps = 1.",
    axes={"n": _SMALL, "eps": (1.0,)},
    sample=simulated("unbalanced"),
    claims=(
        Claim("DPBlocking has lower error than SeqIPW.", lower("DPBlocking", "SeqIPW")),
        Claim("DPBlocking has lower error than LGPM19.", lower("DPBlocking", "LGPM19")),
        Claim(
            "For low n (1,000) it has lower error than IPW without noise.",
            lower("DPBlocking", "exact IPW", where=lambda c: c["n"] == 1000),
        ),
        _BASELINE,
    ),
    notes=("the intercept is reconstructed: one row in ten is treated",),
)

_BINARY = Experiment(
    name="binary-outcomes",
    title="Binary outcome, n = 10,000, eps = 1",
    shows=(
        "Table 1: root mean squared error of both methods beside that of Guha and Reiter (GR24), "
        "whose numbers were copied from their paper."
    ),
    axes={"n": (10000,), "eps": (1.0,)},
    shared=("n",),
    sample=simulated("binary"),
    methods=(
        *standard_methods(),
        private("binary, default", "GR24", method="binary"),
        private("agg_nipw, default", "AggNIPW", method="agg_nipw"),
    ),
    claims=(
        Claim("DPBlocking is more accurate than GR24.", lower("DPBlocking", "GR24")),
        Claim(
            "DPBlocking is more accurate than SeqIPW.",
            lower("DPBlocking", "SeqIPW"),
            origin="here",
        ),
        _BASELINE,
    ),
    x="n",
    notes=(
        "the process and GR24 are reconstructed; outcomes are moved to -1/2 and 1/2",
        "the printed values of GR24 are not in the text at hand and are not compared",
    ),
)

_NSW = Experiment(
    name="nsw-error",
    title="National Supported Work: error",
    shows=(
        "Table 2: error against a normalised IPW estimate without noise, on three samples of the "
        "National Supported Work data with PSID controls, at eps = 0.25, 1, 3."
    ),
    axes={"controls": ("psid1", "psid2", "psid3"), "eps": _EPS},
    shared=("controls",),
    sample=nsw,
    methods=standard_methods(exact=False),
    claims=(
        Claim(
            "On PSID1 DPBlocking has lower error than SeqIPW.",
            lower("DPBlocking", "SeqIPW", where=lambda c: c["controls"] == "psid1"),
        ),
        Claim(
            "On PSID2 and PSID3 SeqIPW has lower error than DPBlocking.",
            lower("SeqIPW", "DPBlocking", where=lambda c: c["controls"] != "psid1"),
        ),
        Claim(
            "DPBlocking has lower error than LGPM19 in all cases.", lower("DPBlocking", "LGPM19")
        ),
        _BASELINE,
    ),
    x="eps",
    panel="controls",
    notes=(
        "how the source centred y and scaled eight covariates into the unit ball is not in its "
        "text: y is moved by the midpoint of its bounds, columns are divided by their bounds and "
        "by sqrt(8)",
        "the reference estimate is itself biased where overlap is poor (PSID1)",
    ),
)

_NSW_BIAS = replace(
    _NSW,
    name="nsw-bias",
    title="National Supported Work: bias",
    shows="Table 3: bias on the same samples, from the trials of Table 2.",
    metric="bias",
    trials_of="nsw-error",
    claims=(
        Claim(
            "On PSID1 DPBlocking has lower bias than SeqIPW.",
            lower("DPBlocking", "SeqIPW", column="bias", where=lambda c: c["controls"] == "psid1"),
        ),
        Claim(
            "On PSID2 at eps = 1 and 3 DPBlocking has lower bias than SeqIPW.",
            lower(
                "DPBlocking",
                "SeqIPW",
                column="bias",
                where=lambda c: c["controls"] == "psid2" and c["eps"] >= 1.0,
            ),
        ),
    ),
)

_WILCOXON = replace(
    _NSW,
    name="nsw-wilcoxon",
    title="National Supported Work: p-values of differences in absolute error",
    shows=(
        "Table 4: two-sided Wilcoxon signed-rank tests of the absolute errors of each pair of "
        "methods, from the trials of Table 2."
    ),
    trials_of="nsw-error",
    tabulate=signed_rank_table,
    claims=(
        Claim(
            "All differences are statistically significant at 0.01 (with 500 trials).",
            significant(0.01),
        ),
    ),
    notes=("with more trials every difference becomes significant: a p-value is no size",),
)

_LEBJ25 = Experiment(
    name="lebj25",
    title="Subsample and aggregate (LEBJ25), eps = 1",
    shows=(
        "Figure 5: error of LEBJ25 (AIPW, K = 200) against n from 5,000 at eps = 1, beside the "
        "three others; the text adds n up to 40,000."
    ),
    axes={"n": (5000, 7500, 10000, 40000), "eps": (1.0,)},
    shared=("n",),
    sample=simulated("well_specified"),
    methods=(
        shipped("LEBJ25", published.nuisance_aggregation),
        published_rules("LEBJ25"),
        private("agg_aipw, default", "LEBJ25", method="agg_aipw"),
        *standard_methods(exact=False),
    ),
    claims=(
        Claim("LEBJ25 has higher error than LGPM19.", lower("LGPM19", "LEBJ25")),
        Claim("LEBJ25 has higher error than SeqIPW.", lower("SeqIPW", "LEBJ25")),
        Claim("LEBJ25 has higher error than DPBlocking.", lower("DPBlocking", "LEBJ25")),
        Claim(
            "Even at n = 40,000 its error is high (above 0.5).",
            above("LEBJ25", 0.5, where=lambda c: c["n"] == 40000),
        ),
    ),
    x="n",
    notes=("made private takes K = 200 as well; default takes K = floor(sqrt n)",),
)


def _gaussian_pair(role: str, run: Any) -> tuple[Any, ...]:
    gaussian = f"{role} Gaussian"
    rules: dict[str, Any] = {"noise": "gaussian", "delta": DELTA}
    method = {"SplitIPW": "split_ipw", "SeqIPW": "ipw", "DPBlocking": "blocking"}[role]
    again = published_rules(role, **rules)
    return (
        shipped(role, run, noise="laplace", label=f"{role} Laplace, as shipped"),
        shipped(gaussian, run, noise="gaussian", delta=DELTA),
        replace(published_rules(role), label=f"{role} Laplace, made private"),
        replace(again, role=gaussian, label=f"{gaussian}, made private"),
        private(f"{method} Laplace, default", role, method=method),
        private(f"{method} Gaussian, default", gaussian, method=method, **rules),
    )


_GAUSSIAN = Experiment(
    name="gaussian-laplace",
    title="Gaussian against Laplace noise",
    shows=(
        "Figure 6: SplitIPW (LGPM19 with Laplace noise), SeqIPW and DPBlocking with either noise, "
        "delta = 1e-6."
    ),
    axes={"n": _SMALL, "eps": _EPS},
    shared=("n",),
    sample=simulated("well_specified"),
    methods=(
        *_gaussian_pair("SplitIPW", published.split_ipw),
        *_gaussian_pair("SeqIPW", published.seq_ipw),
        *_gaussian_pair("DPBlocking", published.blocking),
    ),
    claims=(
        *(
            Claim(
                f"{role}: Laplace noise gives lower error than Gaussian for all n and eps.",
                lower(role, f"{role} Gaussian"),
            )
            for role in ("SplitIPW", "SeqIPW", "DPBlocking")
        ),
        Claim(
            "For low n and eps SplitIPW with Laplace noise beats SeqIPW with Gaussian noise.",
            lower(
                "SplitIPW",
                "SeqIPW Gaussian",
                where=lambda c: c["n"] == 1000 and c["eps"] == 0.25,
            ),
        ),
    ),
    x="n",
    panel="eps",
)

_OTHER_EPS = Experiment(
    name="other-eps",
    title="Other values of eps",
    shows="Figure 7: error against n at eps = 0.05, 0.1 and 5.",
    axes={"n": (1000, 2500, 5000, 10000, 25000), "eps": (0.05, 0.1, 5.0)},
    shared=("n",),
    sample=simulated("well_specified"),
    methods=standard_methods(),
    claims=(
        Claim("SeqIPW beats LGPM19 across the board.", lower("SeqIPW", "LGPM19")),
        Claim(
            "At eps = 0.05 and 0.1 SeqIPW typically (in most cells) beats DPBlocking.",
            lower("SeqIPW", "DPBlocking", where=lambda c: c["eps"] < 1.0, share=0.5),
        ),
        Claim(
            "At eps = 0.1 DPBlocking has lower error than LGPM19.",
            lower("DPBlocking", "LGPM19", where=lambda c: c["eps"] == 0.1),
        ),
        Claim(
            "At eps = 5 DPBlocking's error is comparable to, if not lower than, that of IPW "
            "without noise.",
            lower("DPBlocking", "exact IPW", where=lambda c: c["eps"] == 5.0, factor=1.25),
        ),
        _BASELINE,
    ),
    x="n",
    panel="eps",
)

_OTHER = Experiment(
    name="other-estimators",
    title="Other estimators",
    shows=(
        "Figure of appendix E.5: AggNIPW (after Guha and Reiter) and SeqNIPW (after Ohnishi and "
        "Awan) against n at eps = 0.25, 1, 3."
    ),
    axes={"n": (500, 1000, 2500, 5000, 10000, 25000), "eps": _EPS},
    shared=("n",),
    sample=simulated("well_specified"),
    methods=(
        shipped("AggNIPW", published.agg_nipw),
        shipped("SeqNIPW", published.seq_nipw),
        shipped("LGPM19", published.split_ipw),
        shipped("SeqIPW", published.seq_ipw),
        shipped("DPBlocking", published.blocking),
        published_rules("AggNIPW"),
        published_rules("SeqNIPW"),
        published_rules("LGPM19"),
        published_rules("SeqIPW"),
        published_rules("DPBlocking"),
        private("agg_nipw, default", "AggNIPW", method="agg_nipw"),
        private("nipw, default", "SeqNIPW", method="nipw"),
        private("split_ipw, default", "LGPM19", method="split_ipw"),
        private("ipw, default", "SeqIPW", method="ipw"),
        private("blocking, default", "DPBlocking", method="blocking"),
        private("aipw, default", "AIPW", method="aipw"),
        private("regression, default", "Regression", method="regression"),
        *(
            replace(
                private(f"{method}, default", role, method=method),
                where=lambda c: bool(c["n"] <= 10000),
            )
            for method, role in (
                ("agg_ipw", "AggIPW"),
                ("agg_aipw", "AggAIPW"),
                ("agg_regression", "AggRegression"),
            )
        ),
        private("diff_means, default", "DiffMeans", method="diff_means"),
        *exact_methods()[:1],
    ),
    claims=(
        Claim(
            "AggNIPW beats LGPM19 at n <= 10,000.",
            lower("AggNIPW", "LGPM19", where=lambda c: c["n"] <= 10000),
        ),
        Claim(
            "DPBlocking has lower error than AggNIPW across the board.",
            lower("DPBlocking", "AggNIPW"),
        ),
        Claim(
            "At eps = 0.25 and 1 SeqIPW beats AggNIPW.",
            lower("SeqIPW", "AggNIPW", where=lambda c: c["eps"] < 3.0),
        ),
        Claim(
            "At eps = 1 and n > 10,000 SeqNIPW's error is similar to DPBlocking's (within 1.5 x).",
            lower(
                "SeqNIPW",
                "DPBlocking",
                where=lambda c: c["eps"] == 1.0 and c["n"] > 10000,
                factor=1.5,
            ),
        ),
        _shipped_only(
            "At eps = 0.25 and n <= 2500 SeqNIPW's error is 5 or more.",
            above("SeqNIPW", 5.0, where=lambda c: c["eps"] == 0.25 and c["n"] <= 2500),
        ),
        *(
            Claim(
                f"DPBlocking has lower error than {role} (not in the source's figure).",
                lower("DPBlocking", role),
                origin="here",
                arms=("default",),
            )
            for role in ("AIPW", "Regression", "AggAIPW")
        ),
    ),
    x="n",
    panel="eps",
    notes=("agg_ipw, agg_aipw and agg_regression stop at n = 10,000, to save time",),
)

EFFECT_EXPERIMENTS: tuple[Experiment, ...] = (
    _ERROR,
    _BIAS,
    _LOW_OVERLAP,
    _UNBALANCED,
    _BINARY,
    _NSW,
    _NSW_BIAS,
    _WILCOXON,
    *SEARCH_EXPERIMENTS,
    _LEBJ25,
    _GAUSSIAN,
    _OTHER_EPS,
    _OTHER,
)
