"""Options of the methods of `dp_ate`, by keyword."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpstats.ate.kernels import KERNELS
from dpstats.errors import DPStatsError
from dpstats.hints import ATE_NAMES, argument_hint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpstats.ate.kernels.base import Kernel

__all__ = ["check_options"]

_ARGUMENTS = (
    *("formula", "treat", "data", "eps"),
    *("delta", "method", "noise", "estimand", "bounds", "levels", "treated", "propensity"),
    *("overlap", "blocks", "min_count", "balance", "check_bounds", "split"),
    *("missing", "rows_per_person"),
    *("ledger", "rng"),
)


def check_options(
    kernel: Kernel[Any], shared: Mapping[str, Any], own: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of a method that were given, checked.

    Parameters
    ----------
    kernel : Kernel
    shared : mapping of str to object
        Arguments that every method takes, and some have no use for.
    own : mapping of str to object
        Options by keyword; each must be one of the method's.

    Raises
    ------
    DPStatsError
        If the method has no option of this name, or a value breaks a rule.
    """
    known = {name: check for k in KERNELS.values() for name, check in k.method_options.items()}
    for name, value in own.items():
        if name in kernel.method_options or (value is None and name in known):
            continue
        hint = argument_hint(name, [*kernel.method_options, *_ARGUMENTS], ATE_NAMES)
        takes = ", ".join(kernel.method_options) or "none"
        raise DPStatsError(
            f"`{name}` must be an argument of dp_ate or an option of method {kernel.name!r} "
            f"({takes}); got {name!r}{hint and f' ({hint})'}"
        )
    given = {name: value for name, value in {**shared, **own}.items() if value is not None}
    checked = {name: known[name](value) for name, value in given.items()}
    return {name: value for name, value in checked.items() if name in kernel.method_options}
