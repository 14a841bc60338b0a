"""The searches for parameters in the appendix of the propensity score blocking paper."""

from __future__ import annotations

from typing import Any

from dpstats.replicate import published
from dpstats.replicate.claims import Claim, axis_lower, near_best, varies
from dpstats.replicate.effects import private, published_rules, shipped, simulated
from dpstats.replicate.experiment import Cell, Experiment

__all__ = ["SEARCH_EXPERIMENTS"]

_EPS = (0.25, 1.0, 3.0)
_GRID: dict[str, tuple[Any, ...]] = {"n": (1000, 5000, 10000), "eps": _EPS}
_ALPHAS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)

_SEARCH_ALPHA = Experiment(
    name="search-alpha",
    title="SeqIPW: share of the budget for the propensity",
    shows="Figure 4 (appendix D.1): error of SeqIPW for alpha = 0.2, ..., 0.8 over n and eps.",
    axes={**_GRID, "alpha": _ALPHAS},
    shared=("n",),
    sample=simulated("well_specified"),
    methods=(
        shipped("SeqIPW", published.seq_ipw, share=lambda c: c["alpha"]),
        published_rules(
            "SeqIPW",
            split=lambda c: {"propensity": c["alpha"], "score": round(1.0 - c["alpha"], 12)},
        ),
    ),
    claims=(
        Claim(
            "alpha = 0.2 or 0.3 achieves low error across the board (1.1 x the best).",
            near_best("SeqIPW", "alpha", (0.2, 0.3), factor=1.1),
        ),
    ),
    x="alpha",
    panel="eps",
)

_SEARCH_BLOCKS = Experiment(
    name="search-blocks",
    title="DPBlocking: number of blocks",
    shows="Appendix D.2 (a summary in words): DPBlocking for several m, n and eps.",
    axes={**_GRID, "blocks": (1, 2, 3, 5, 8, 12)},
    shared=("n",),
    sample=simulated("well_specified"),
    methods=(
        shipped("DPBlocking", published.blocking, blocks=lambda c: c["blocks"]),
        published_rules(
            "DPBlocking",
            blocks=lambda c: c["blocks"],
            # with one block no propensity is released
            split=lambda c: (
                {"counts": 0.35 / 0.9, "sums": 0.55 / 0.9} if c["blocks"] == 1 else "published"
            ),
        ),
        private(
            "blocking, default but for blocks",
            "DPBlocking",
            method="blocking",
            blocks=lambda c: c["blocks"],
        ),
    ),
    claims=(
        Claim(
            "No single m does well for all n and eps (within 1.5 x the best).",
            varies("DPBlocking", "blocks", factor=1.5),
        ),
        Claim(
            "Where n and eps are low (n = 1000, eps = 0.25) three blocks beat five.",
            axis_lower(
                "DPBlocking",
                "blocks",
                3,
                5,
                where=lambda c: c["n"] == 1000 and c["eps"] == 0.25,
            ),
        ),
    ),
    x="blocks",
    panel="eps",
)

_SHARES = {
    "published": (0.1, 0.35, 0.55),
    "thirds": (1 / 3, 1 / 3, 1 / 3),
    "e: .3": (0.3, 0.28, 0.42),
    "counts: .55": (0.1, 0.55, 0.35),
    "e: .05": (0.05, 0.37, 0.58),
}


def _named_shares(cell: Cell) -> dict[str, float]:
    return dict(zip(("propensity", "counts", "sums"), _SHARES[cell["shares"]], strict=True))


_SEARCH_SHARES = Experiment(
    name="search-shares",
    title="DPBlocking: shares of the budget",
    shows="Appendix D.2 (a summary in words): shares for propensity, counts and sums.",
    axes={**_GRID, "shares": tuple(_SHARES)},
    shared=("n",),
    sample=simulated("well_specified"),
    methods=(
        shipped("DPBlocking", published.blocking, shares=lambda c: _SHARES[c["shares"]]),
        published_rules("DPBlocking", split=_named_shares),
    ),
    claims=(
        Claim(
            "Shares .1, .35, .55 achieve low error for all n and eps (1.25 x the best).",
            near_best("DPBlocking", "shares", ("published",), factor=1.25),
        ),
    ),
    x="shares",
    panel="eps",
)

_SEARCH_COUNT = Experiment(
    name="search-min-count",
    title="DPBlocking: smallest noisy count of a block",
    shows="Appendix D.2 (a summary in words): the threshold T.",
    axes={**_GRID, "min_count": (0.5, 1.5, 5.0, 15.0, 50.0)},
    shared=("n",),
    sample=simulated("well_specified"),
    methods=(
        shipped("DPBlocking", published.blocking, min_count=lambda c: c["min_count"]),
        published_rules("DPBlocking", min_count=lambda c: c["min_count"]),
    ),
    claims=(
        Claim(
            "T = 1.5 achieves low error for all n and eps (1.25 x the best).",
            near_best("DPBlocking", "min_count", (1.5,), factor=1.25),
        ),
    ),
    x="min_count",
    panel="eps",
)

SEARCH_EXPERIMENTS: tuple[Experiment, ...] = (
    _SEARCH_ALPHA,
    _SEARCH_BLOCKS,
    _SEARCH_SHARES,
    _SEARCH_COUNT,
)
