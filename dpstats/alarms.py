"""When a released number says that an estimate is not to be used as it stands: the rules.

Every rule compares one number, computed from released and public numbers alone, with a limit that
is the same for every call, so a warning tells nothing that was not released.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["RULES", "Rule", "Signal", "alarms"]


@dataclass(frozen=True, slots=True)
class Signal:
    """One number that a rule looks at.

    Parameters
    ----------
    name : str
        Of the rule.
    value : float
        From released and public numbers.
    what : str
        Words that the sentence of the rule takes in; may be empty.
    """

    name: str
    value: float
    what: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit, and what to tell a reader beyond it.

    Parameters
    ----------
    name : str
        Of the signal.
    side : {"above", "below"}
        Where the signal is alarming.
    limit : float
        In the unit of the signal.
    text : str
        One sentence or two; `{value}` and `{what}` are those of the signal.
    """

    name: str
    side: Literal["above", "below"]
    limit: float
    text: str

    def broken(self, value: float) -> bool:
        """Return whether the value is alarming; one that is not a number is not."""
        return value > self.limit if self.side == "above" else value < self.limit


# the gravest first
RULES: tuple[Rule, ...] = (
    Rule(
        "covariates adjusted for",
        "below",
        1.0,
        "NOT ADJUSTED for {what}: there is one block, so the estimate is the plain difference in "
        "means. It is causal only if treatment was randomised.",
    ),
    Rule(
        "rows of an arm, in noise sd",
        "below",
        3.0,
        "The noisy number of {what} rows cannot be told from zero: the estimate says nothing. "
        "Check `treat` and `treated`.",
    ),
    Rule("gain over the last value", "below", 1.0, "Of little use: {what}."),
    Rule(
        "placebo effect, in standard errors",
        "above",
        3.0,
        "Before the intervention the same method finds an effect of {what} where there should be "
        "none, {value:.1f} standard errors from zero (placebo in time): what it finds after the "
        "intervention may be as wrong.",
    ),
    Rule(
        "95% interval over the outcome's range",
        "above",
        0.5,
        "The 95% interval is {value:.2g} times as wide as the whole range of the outcome: the "
        "estimate says next to nothing.",
    ),
    Rule(
        "estimate, in noise sd",
        "below",
        2.0,
        "Privacy noise alone could have made this estimate out of no effect: it is {value:.1f} "
        "standard deviations of the noise from zero, and the noise is larger than the sampling "
        "error. More rows or a larger eps would help.",
    ),
    Rule(
        "adjustment seen",
        "below",
        0.8,
        "Noise hides much of what differs between the arms: {value:.0%} of it was adjusted for, "
        "and the rest biases the estimate towards the unadjusted comparison, unless treatment was "
        "randomised.",
    ),
    Rule(
        "slope of treatment",
        "below",
        0.8,
        "Noise hides part of what the propensity should tell about who was treated (slope "
        "{value:.2f}; 1 where it is right): confounding is left within blocks and biases the "
        "estimate towards the unadjusted comparison, unless treatment was randomised. Fewer "
        "covariates, more rows or a larger eps would help.",
    ),
    Rule(
        "rows without counterparts",
        "above",
        0.1,
        "Poor overlap: at least {value:.0%} of the rows lie in blocks where an arm has next to "
        "nobody, so that their effect is not seen in the data.",
    ),
    Rule(
        "share of clipped propensities",
        "above",
        0.1,
        "Poor overlap: about {value:.0%} of the rows have a clipped propensity. Their weights are "
        "cut short, which biases the estimate.",
    ),
    Rule(
        "sum of weights, off by",
        "above",
        0.1,
        "The {what} is off by {value:.0%}, farther than noise explains: propensities are clipped "
        "or do not fit, which biases the estimate.",
    ),
    Rule(
        "largest |SMD| after",
        "above",
        0.1,
        "The arms still differ in {what} after the adjustment, by {value:.2f} standard deviations "
        "at least (0.1 is the usual limit).",
    ),
    Rule(
        "rows a coefficient",
        "below",
        10.0,
        "Each subset has only {value:.1f} rows a coefficient: small fits are biased. Ask for fewer "
        "subsets.",
    ),
    Rule(
        "sd of one subset's estimate, over half the outcome's range",
        "above",
        0.5,
        "Estimates of single subsets are so scattered ({value:.2g} of half the outcome's range) "
        "that clipping and small samples bias them.",
    ),
    Rule(
        "rows outside bounds",
        "above",
        0.05,
        "At least {value:.0%} of the rows have a value outside its bounds or levels. They were "
        "clipped, which moves the estimate.",
    ),
    Rule(
        "bounds searched",
        "above",
        0.0,
        "The bounds of {what} were not given but searched in the data, for {value:.0%} of the "
        "budget. Values beyond them were clipped, which moves the estimate if there are many; "
        "public `bounds` cost nothing.",
    ),
)


def alarms(signals: Iterable[Signal]) -> tuple[str, ...]:
    """Return the sentences of the rules that are broken, the gravest first.

    Parameters
    ----------
    signals : iterable of Signal
        In any order.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> alarms([Signal("adjustment seen", 0.95), Signal("share of clipped propensities", 0.33)])[0]
    'Poor overlap: about 33% of the rows have a clipped propensity. Their weights are cut short, which biases the estimate.'
    """  # noqa: E501
    found = list(signals)
    return tuple(
        rule.text.format(value=signal.value, what=signal.what)
        for rule in RULES
        for signal in found
        if signal.name == rule.name and rule.broken(signal.value)
    )
