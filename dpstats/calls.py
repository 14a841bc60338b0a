"""What every entry point checks and warns about: scalars, noise, the spent budget."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dpstats.errors import DPStatsError, PrivacyWarning, UtilityWarning
from dpstats.hints import choice_hint
from dpstats.passed import passed
from dpstats.privacy.accounting import composed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpstats.privacy.accounting import Release
    from dpstats.privacy.mechanisms import NoiseKind

__all__ = [
    "check_count",
    "check_noise",
    "check_number",
    "check_spent",
    "choice",
    "warn_budget",
    "warn_privacy",
    "warn_utility",
]

_EPSILON_WARNING = 10.0


def choice(name: str, value: Any, choices: Mapping[str, Any]) -> Any:
    """Return what `choices` holds under `value`.

    Raises
    ------
    DPStatsError
        If it is none of them.
    """
    if not isinstance(value, str) or value not in choices:
        hint = choice_hint(value, choices)
        raise DPStatsError(
            f"`{name}` must be one of {', '.join(choices)}; got {passed(value)}"
            f"{hint and f' ({hint})'}"
        )
    return choices[value]


def check_number(name: str, value: Any, low: float, high: float, rule: str) -> None:
    """Refuse what is neither None nor a number strictly between `low` and `high`."""
    if value is None:
        return
    number = (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, number) or not low < float(value) < high:
        raise DPStatsError(f"`{name}` must be {rule}; got {passed(value)}")


def check_count(name: str, value: Any, rule: str) -> None:
    """Refuse what is not a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise DPStatsError(f"`{name}` must be {rule}; got {passed(value)}")


def check_noise(noise: str | None, epsilon: float, delta: float) -> NoiseKind:
    """Return the kind of noise: by default Gaussian where `delta` > 0, else Laplace.

    Raises
    ------
    DPStatsError
        If noise and `delta` do not fit.
    """
    kind = noise or ("gaussian" if delta > 0.0 else "laplace")
    choice("noise", kind, {"laplace": 0, "gaussian": 0})
    if kind == "gaussian" and delta == 0.0 and math.isfinite(epsilon):
        raise DPStatsError("`noise` = 'gaussian' needs `delta` > 0; got delta = 0")
    if kind == "laplace" and delta > 0.0:
        raise DPStatsError(
            f"`noise` = 'laplace' spends no delta; got delta = {delta:g}: drop `delta`"
        )
    return cast("NoiseKind", kind)


def check_spent(epsilon: float, delta: float, records: Sequence[Release]) -> None:
    """Stop a result whose releases cost more than was charged (a fault of a kernel)."""
    if math.isinf(epsilon):
        return
    spent, slack = composed(records)
    if spent > epsilon * (1 + 1e-9) or slack > delta * (1 + 1e-9):
        raise RuntimeError("the releases cost more than the budget: please report this")


def warn_budget(
    epsilon: float, delta: float, n: int, *, seeded: bool, whose: str = "row", stacklevel: int = 5
) -> None:
    """Warn of a seed, a large `eps` and a large `delta`, from public quantities."""
    if seeded:
        warn_privacy(
            "`rng` is given: noise from a seed can be subtracted; the result is not private",
            stacklevel + 1,
        )
    if epsilon > _EPSILON_WARNING:
        warn_privacy(
            f"`eps` = {epsilon:g} protects little: values up to 10 are common", stacklevel + 1
        )
    if delta > 1.0 / n:
        warn_privacy(
            f"`delta` = {delta:g} is above 1/n: it allows publishing somebody's {whose}",
            stacklevel + 1,
        )


def warn_privacy(text: str, stacklevel: int = 5) -> None:
    """Warn that something weakens the guarantee."""
    warnings.warn(text, PrivacyWarning, stacklevel=stacklevel)


def warn_utility(text: str, stacklevel: int = 5) -> None:
    """Warn that the noise swamps the answer."""
    warnings.warn(text, UtilityWarning, stacklevel=stacklevel)
