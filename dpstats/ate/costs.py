"""The budget of each release of a call, from public quantities."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from dpstats.privacy.accounting import Cost, allocate, check_split
from dpstats.privacy.bounds import private_bounds_share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpstats.ate.kernels.base import Kernel, Public, Settings

__all__ = ["release_costs"]


def release_costs(
    kernel: Kernel[Any],
    settings: Settings,
    public: Public,
    *,
    split: Mapping[str, float] | Literal["published"] | None,
    gaussian: bool,
    searched: int,
    rows_per_person: int,
) -> dict[str, Cost]:
    """Split the budget of a call over its releases.

    Parameters
    ----------
    kernel : Kernel
    settings : Settings
    public : Public
    split : mapping, "published" or None
        The user's split.
    gaussian : bool
        Whether the noise is Gaussian (the search for bounds has Laplace noise in any case).
    searched : int
        Columns whose bounds are found privately.
    rows_per_person : int

    Returns
    -------
    dict of str to Cost

    Raises
    ------
    DPStatsError
        If `split` does not fit the releases.
    """
    shares = kernel.published_split if split == "published" else kernel.shares(settings, public)
    shares = {k: v for k, v in shares.items() if k != "propensity" or settings.fits_propensity}
    total = math.fsum(shares.values())
    shares = {name: share / total for name, share in shares.items()}
    if searched:
        part = private_bounds_share(searched, public.n, public.epsilon, rows_per_person)
        shares = {"bounds": part, **{name: (1.0 - part) * s for name, s in shares.items()}}
    if split is not None and split != "published":
        shares = check_split(split, list(shares))
    named = set(shares) - {"bounds"} if gaussian else set()
    costs = allocate(public.epsilon, public.delta, shares, named)
    partitions = kernel.partitions(settings)
    if not partitions:
        return costs
    # disjoint rows: each part has all that the releases from all rows leave
    whole = [cost for name, cost in costs.items() if name not in partitions]
    epsilon = math.fsum((public.epsilon, *(-cost.epsilon for cost in whole)))
    delta = math.fsum((public.delta, *(-cost.delta for cost in whole)))
    for rows in dict.fromkeys(partitions.values()):
        inside = {name: shares[name] for name in shares if partitions.get(name) == rows}
        costs |= allocate(epsilon, delta, inside, set(inside) if gaussian else ())
    return costs
