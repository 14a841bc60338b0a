"""The budget of each release of a call, from public quantities."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from dpstats.errors import DPStatsError
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
        The user's split. Where releases are made from disjoint rows, each part has the whole
        budget: shares of all releases that one row takes part in sum to 1.
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
    if split == "published":
        _check_published(kernel, settings, public, shares)
    total = math.fsum(shares.values())
    shares = {name: share / total for name, share in shares.items()}
    if searched:
        part = private_bounds_share(searched, public.n, public.epsilon, rows_per_person)
        shares = {"bounds": part, **{name: (1.0 - part) * s for name, s in shares.items()}}
    partitions = kernel.partitions(settings)
    if split is not None and split != "published":
        shares = _chosen(split, list(shares), partitions)
    named = set(shares) - {"bounds"} if gaussian else set()
    if not partitions:
        return allocate(public.epsilon, public.delta, shares, named)
    return _by_rows(public, shares, named, partitions)


def _check_published(
    kernel: Kernel[Any], settings: Settings, public: Public, shares: Mapping[str, float]
) -> None:
    """Refuse the published split, before anything is spent, where it has no share for a release."""
    made = kernel.shares(settings, public)
    absent = [
        name
        for name, share in made.items()
        if share > 0.0 and name not in shares and (name != "propensity" or settings.fits_propensity)
    ]
    if absent:
        raise DPStatsError(
            f"`split` must be a dict for this call: the published one of method {kernel.name!r} "
            f"has no share for {', '.join(absent)}"
        )


def _chosen(
    split: Mapping[str, float], names: list[str], partitions: Mapping[str, str]
) -> dict[str, float]:
    """Return the user's shares: those of all releases that one row takes part in sum to 1."""
    if not partitions or set(split) != set(names):
        return check_split(split, names)
    for rows in dict.fromkeys(partitions.values()):
        inside = [name for name in names if partitions.get(name, rows) == rows]
        try:
            check_split({name: split[name] for name in inside}, inside)
        except DPStatsError as error:
            raise DPStatsError(
                f"{error}, over the releases that {rows} take part in ({', '.join(inside)})"
            ) from None
    return {name: float(split[name]) for name in names}


def _by_rows(
    public: Public, shares: Mapping[str, float], gaussian: set[str], partitions: Mapping[str, str]
) -> dict[str, Cost]:
    """Split a budget over releases from disjoint rows: each part has all that the rest leaves."""
    parts = [
        {name for name in shares if partitions.get(name) == rows}
        for rows in dict.fromkeys(partitions.values())
    ]
    whole = {name: share for name, share in shares.items() if name not in partitions}
    costs: dict[str, Cost] = {}
    for part in parts:
        inside = {name: share for name, share in shares.items() if name in part}
        rest = (1.0 - math.fsum(whole.values())) / math.fsum(inside.values())
        path = {**whole, **{name: rest * share for name, share in inside.items()}}
        if not costs:
            found = allocate(public.epsilon, public.delta, path, gaussian & set(path))
            costs = {name: found[name] for name in whole}
        epsilon = math.fsum((public.epsilon, *(-costs[name].epsilon for name in whole)))
        delta = math.fsum((public.delta, *(-costs[name].delta for name in whole)))
        costs |= allocate(epsilon, delta, inside, gaussian & set(inside))
    return {name: costs[name] for name in shares}
