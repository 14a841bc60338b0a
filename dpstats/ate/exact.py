"""What a call at `eps=inf`, which is not private, takes from the rows and asks of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpstats.calls import warn_utility
from dpstats.errors import DPStatsError

if TYPE_CHECKING:
    from dpstats.ate.data import Columns, Schema
    from dpstats.ate.kernels.base import Estimand, Released
    from dpstats.privacy.bounds import Interval

__all__ = ["check_estimate", "check_rows", "observed"]

# standard errors in units of C that no estimate of an effect within 2C can have
_ABSURD = 20.0


def observed(columns: Columns, schema: Schema) -> dict[str, Interval]:
    """Return the range of each column: at `eps=inf` nothing is clipped unless bounds are given."""
    found = {}
    for name, kind in schema.kinds.items():
        if kind.kind == "numeric":
            low, high = float(columns.cells[name].min()), float(columns.cells[name].max())
            # a constant column gets some width, since intervals need it
            margin = 0.0 if low < high else max(0.5, abs(low) * 2.0**-10)
            found[name] = (low - margin, high + margin)
    return found


def check_rows(columns: Columns, schema: Schema) -> None:
    """At `eps=inf` only: refuse rows from which the ordinary estimator cannot be computed."""
    treated = int(columns.treated.sum())
    if min(treated, columns.n - treated) < 2:
        raise DPStatsError(
            f"`treat` must have at least two treated and two control rows at `eps` = inf; "
            f"{schema.roles.treat!r} has not"
        )
    unbounded = [
        name
        for name, values in columns.cells.items()
        if name not in schema.bounds and not np.isfinite(values).all()
    ]
    if unbounded:
        names = ", ".join(f"{name!r}" for name in unbounded)
        raise DPStatsError(
            f"`data` must be finite at `eps` = inf where no `bounds` clip it; {names} is not"
        )


def check_estimate(released: Released, estimand: Estimand, half_width: float) -> None:
    """At `eps=inf` only: refuse an estimate that does not exist, warn of one that says nothing."""
    cells = getattr(released, "blocks", None)
    if cells is not None and not cells(estimand, np.random.default_rng(0))["kept"].any():
        raise DPStatsError(
            "`blocks` must leave a block with treated and control rows at `eps` = inf: there is no "
            "overlap; ask for fewer blocks"
        )
    if not math.isfinite(released.estimate(estimand)):
        raise DPStatsError(
            "`propensity` must lie inside (0, 1) in every row at `eps` = inf: pass `overlap` to "
            "clip it"
        )
    if not released.standard_error(estimand) < _ABSURD * half_width:
        warn_utility(
            "weights without bounds make the standard error larger than any effect: pass "
            "`overlap` to clip propensities, as finite `eps` does by default",
            stacklevel=6,
        )
