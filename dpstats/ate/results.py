"""Results of `dp_ate`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpstats.alarms import Signal
from dpstats.errors import DPStatsError
from dpstats.inference import DRAWS, Inference
from dpstats.passed import passed
from dpstats.results import (
    PrivateResults,
    coefficient_table,
    compare_sizes,
    format_budget,
    releases_table,
    simulation,
    size_words,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

    import pandas as pd

    from dpstats.ate.balance import Balance
    from dpstats.ate.kernels.base import Estimand, Released
    from dpstats.ate.outside import Outside
    from dpstats.privacy.accounting import PrivacyRecord
    from dpstats.report.story import Story
    from dpstats.report.summary import SummaryContent

__all__ = ["ATEResults", "Facts"]

ESTIMANDS = {
    "ate": "average treatment effect",
    "att": "average treatment effect on the treated",
    "atc": "average treatment effect on the controls",
    "ato": "average treatment effect in the overlap population",
}
# over whom an effect is averaged, in plain words
AMONG = {
    "ate": "everybody in the data",
    "att": "those who were treated",
    "atc": "those who were not treated",
    "ato": "those who might have gone either way (the overlap population)",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """Public facts of a call.

    Attributes
    ----------
    formula, treat, outcome : str
        The outcome is the left side as patsy writes it.
    method, title : str
    estimand : str
    estimands : tuple of str
        Those that the release serves.
    n : int
    outcome_bounds : (float, float)
        Bounds the outcome was clipped to.
    propensity : str
        The propensity in words.
    constants : tuple of (str, str)
        Public constants of the method, in words.
    seed : int
        Of the simulations behind standard errors; never of the noise.
    """

    formula: str
    treat: str
    outcome: str
    method: str
    title: str
    estimand: Estimand
    estimands: tuple[Estimand, ...]
    n: int
    outcome_bounds: tuple[float, float]
    propensity: str
    constants: tuple[tuple[str, str], ...]
    seed: int


class ATEResults(PrivateResults):
    """A treatment effect with its standard error and its privacy record.

    Returned by `dpstats.dp_ate`. Holds released values and strings only.

    Attributes
    ----------
    privacy : PrivacyRecord
        What was spent, whom it protects, what was taken as public.
    outside : Outside or None
        Released number of rows with a value outside its bounds or levels: `count`, `sd` (of the
        noise), `share`, `interval` and `reading()`. None unless the call spent a share on it
        (`check_bounds`).
    """

    _STATE = ("facts", "released", "privacy", "covariates", "outside")

    def __init__(
        self,
        facts: Facts,
        released: Released,
        privacy: PrivacyRecord,
        covariates: Balance | None = None,
        outside: Outside | None = None,
    ) -> None:
        self.facts = facts
        self.released = released
        self.privacy = privacy
        self.covariates = covariates
        self.outside = outside

    @property
    def nobs(self) -> int:
        """Rows used (public)."""
        return self.facts.n

    @property
    def method(self) -> str:
        """Name of the estimator."""
        return self.facts.method

    def _errors(self, parts: Literal["both", "sampling", "privacy"]) -> np.ndarray[Any, Any]:
        return self.released.errors(self.facts.estimand, DRAWS, simulation(self.facts.seed), parts)

    def _inferences(self) -> dict[Hashable, Inference]:
        estimand = self.facts.estimand
        value = self.released.estimate(estimand)
        if self.released.exact:
            found = Inference(value, self.released.standard_error(estimand))
        else:
            found = Inference.simulated(value, self._errors("both"))
        return {estimand.upper(): found}

    def _privacy_inferences(self) -> list[Inference]:
        estimate = float(self.params.iloc[0])
        if self.released.exact:
            return [Inference(estimate, 0.0)]
        return [Inference.simulated(estimate, self._errors("privacy"))]

    def estimand(self, name: Estimand) -> ATEResults:
        """Return another estimand from the same release: post-processing, at no cost.

        Parameters
        ----------
        name : {"ate", "att", "atc", "ato"}

        Returns
        -------
        ATEResults

        Raises
        ------
        DPStatsError
            If the release does not serve it.
        """
        wanted = name.lower() if isinstance(name, str) else name
        if wanted not in self.facts.estimands:
            advice = (
                f": call dp_ate with estimand={name!r}, at the cost of a new release"
                if wanted in ESTIMANDS
                else ""
            )
            raise DPStatsError(
                f"`name` must be {' or '.join(self.facts.estimands)} for this release; "
                f"got {passed(name)}{advice}"
            )
        facts = replace(self.facts, estimand=wanted)
        # the balance is that of the weights of the estimand of the call
        covariates = self.covariates if wanted == self.facts.estimand else None
        return ATEResults(facts, self.released, self.privacy, covariates, self.outside)

    @property
    def balance(self) -> pd.DataFrame:
        """Balance of the covariates before and after the adjustment, from released numbers.

        Returns
        -------
        DataFrame
            One row a column of the design: `mean_control`, `mean_treated`, `weighted_control`,
            `weighted_treated` (in units of the column), `before` and `after` (differences of
            treated less control, in standard deviations within arms before the adjustment),
            `before_sd` and `after_sd` (the noise in each).

        Raises
        ------
        DPStatsError
            If the call did not spend a share on it.
        """
        if self.covariates is None:
            raise DPStatsError(
                "`balance` must be a share of the budget in the call of dp_ate, with a method that "
                "weighs or blocks rows, for this table (and for another estimand a call of its own)"
            )
        from dpstats.report.readable import ReadableFrame

        return ReadableFrame(self.covariates.table())

    @property
    def blocks(self) -> pd.DataFrame:
        """Noisy cells: one row a block of the propensity.

        Returns
        -------
        DataFrame
            `block`, `lower`, `upper` (of the propensity), `control`, `treated` (noisy counts),
            `noise_sd` (of a count), `mean_control`, `mean_treated` (in units of the outcome),
            `effect`, `effect_lower`, `effect_upper` (95 % interval over sampling and privacy
            noise), `weight` and `kept`.

        Raises
        ------
        DPStatsError
            If the method has no blocks.
        """
        from dpstats.report.readable import ReadableFrame

        cells = getattr(self.released, "blocks", None)
        if cells is None:
            raise DPStatsError(f"`blocks` needs a method with blocks; this is {self.method!r}")
        table: pd.DataFrame = cells(self.facts.estimand, simulation(self.facts.seed))
        low, high = self.facts.outcome_bounds
        middle = low + (high - low) / 2.0
        table["mean_control"] += middle
        table["mean_treated"] += middle
        return ReadableFrame(table)

    def noise_sd(self) -> float:
        """Return the standard deviation that privacy noise alone gives the estimate."""
        return 0.0 if self.released.exact else float(np.sqrt(np.mean(self._errors("privacy") ** 2)))

    def sampling_sd(self) -> float:
        """Return the standard deviation that sampling alone gives the estimate."""
        if self.released.exact:
            return self.released.standard_error(self.facts.estimand)
        return float(np.sqrt(np.mean(self._errors("sampling") ** 2)))

    def _diagnostic_rows(self) -> list[tuple[str, str, str]]:
        noise, sampling = self.noise_sd(), self.sampling_sd()
        rows = [
            ("sd of privacy noise", size_words(noise), compare_sizes(noise, sampling)),
            ("sd of sampling error", size_words(sampling), self._sampling_reading()),
        ]
        rows += getattr(self.released, "diagnostics", list)()
        if self.covariates is not None:
            rows += self.covariates.diagnostics()
        if self.outside is not None:
            rows += self.outside.diagnostics()
        return rows

    def _outcome_bounds(self) -> tuple[float, float]:
        return self.facts.outcome_bounds

    def _signals(self) -> list[Signal]:
        signals = super()._signals() + getattr(self.released, "signals", list)()
        if self.covariates is not None:
            signals += self.covariates.signals()
        if self.outside is not None:
            signals.append(Signal("rows outside bounds", self.outside.interval[0]))
        if self._one_block() and (left_out := self._left_out()):
            signals.append(Signal("covariates adjusted for", 0.0, left_out))
        return signals

    def _left_out(self) -> str:
        """Return the right side of the formula where one block leaves it without any effect."""
        if self.facts.propensity.startswith("known"):
            return ""
        terms = self.facts.formula.partition("~")[2].strip()
        return "" if terms in {"", "1", "0", "-1"} else terms

    def _sampling_reading(self) -> str:
        if self.released.exact:
            if (models := getattr(self.released, "estimated", "")) != "":
                return f"ordinary, with the estimation of {models}"
            how = "estimated" if self._fit_in_error() else "taken as fixed"
            return f"ordinary, propensities {how}"
        if self.released.variances_released:
            return "from released variances, one noise sd added"
        return "an upper bound: no variance was released (Bhatia-Davis from the bounds)"

    def _fit_in_error(self) -> bool:
        return bool(getattr(self.released, "fit_in_error", False))

    def comparison_facts(self) -> dict[str, str]:
        """Return what a table of several results says about this one."""
        facts = self.facts
        return {
            "Outcome": facts.outcome,
            "Treatment": facts.treat,
            "Method": self._title(),
            "Estimand": facts.estimand.upper(),
            "N": str(facts.n),
        }

    def glance(self) -> pd.DataFrame:
        """Return one row for the model."""
        import pandas as pd

        facts, privacy = self.facts, self.privacy
        row = {
            "outcome": facts.outcome,
            "treatment": facts.treat,
            "method": facts.method,
            "estimand": facts.estimand,
            "nobs": facts.n,
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "private": privacy.private,
            "seeded": privacy.seeded,
            "noise_sd": self.noise_sd(),
        }
        return pd.DataFrame([row])

    def _summary_content(self, alpha: float) -> SummaryContent:
        from dpstats.report.summary import SummaryContent

        facts, privacy = self.facts, self.privacy
        exact = self.released.exact
        left = [
            ("Dep. Variable:", facts.outcome),
            ("Treatment:", facts.treat),
            ("Estimand:", facts.estimand.upper()),
            ("No. Observations:", str(facts.n)),
            ("Epsilon:", format_budget(privacy.epsilon)),
            ("Delta:", format_budget(privacy.delta)),
        ]
        right = [
            ("Method:", self._title()),
            ("Propensity:", facts.propensity),
            *((f"{name}:", value) for name, value in facts.constants),
            ("Std. error, privacy:", size_words(self.noise_sd())),
            ("Std. error, sampling:", size_words(self.sampling_sd())),
        ]
        banner = None
        if not privacy.private:
            banner = "NOT PRIVATE: " + ("no noise (eps = inf)" if exact else "noise from a seed")
        tables = () if exact else (releases_table(privacy),)
        return SummaryContent(
            title="Average Treatment Effect" if exact else "Private Average Treatment Effect",
            left=tuple(left),
            right=tuple(right),
            coefficients=coefficient_table(self, alpha),
            level=1.0 - alpha,
            tables=tables,
            notes=self._notes(),
            banner=banner,
            warnings=self.warnings,
        )

    def _one_block(self) -> bool:
        raw = getattr(self.released, "raw", None)
        return raw is not None and raw.shape[-1] == 1

    def _blocks_differ(self) -> bool:
        """Whether block effects can be told apart: one effect shared by all makes no picture."""
        differ = getattr(self.released, "effects_differ", None)
        return differ is not None and bool(differ(self.facts.estimand))

    def _title(self) -> str:
        return "Difference in means (one block)" if self._one_block() else self.facts.title

    def _notes(self) -> tuple[str, ...]:
        facts, privacy = self.facts, self.privacy
        notes = [privacy.statement()]
        public = privacy.public
        if not self.released.exact:
            notes.append("Taken as public: " + _public_text(public) + ".")
            found = public.get("bounds found privately") or {}
            if found:
                notes.append("Bounds found privately: " + _bounds_text(found) + ".")
            if self.outside is not None:
                notes.append(
                    "Rows with a value outside its bounds or levels, by a private count: "
                    f"{self.outside.reading()}."
                )
            given = (
                " They take the released propensities as given: confounding left within blocks, "
                "by noise in the propensities or by clipping is not in them."
            )
            given = getattr(self.released, "caveat", "") or given
            if facts.propensity.startswith(("none", "known")):
                given = ""
            given = getattr(self.released, "assumptions", given)
            notes.append(
                "Standard errors and intervals cover sampling and privacy noise (parametric "
                f"bootstrap of the release, {DRAWS} draws; P>|z| inverts the interval, so it is "
                f"never below 1/{DRAWS + 1}). The two standard errors above are those of either "
                f"source alone and need not add up.{given}"
            )
        else:
            notes.append(
                "Standard errors account for the estimation of "
                f"{getattr(self.released, 'estimated', 'the propensity')}."
                if self._fit_in_error()
                else "Standard errors take the fitted propensities as given."
            )
        if self._one_block() and not self._left_out():
            notes.append(
                "One block: the estimate is the difference in means, which is causal only if "
                "treatment was randomised."
            )
        notes += getattr(self.released, "notes", list)()
        adjusts = (
            not facts.propensity.startswith("none")
            or getattr(self.released, "model", None) is not None
        )
        if adjusts and not self._one_block():
            notes.append(
                f"{ESTIMANDS[facts.estimand].capitalize()} of {facts.treat} on {facts.outcome}, "
                "under unconfoundedness given the covariates and overlap."
            )
        return tuple(notes)

    def plot(
        self,
        kind: Literal["effect", "blocks", "overlap", "love", "budget"] | None = None,
        ax: Any = None,
    ) -> tuple[Any, Any]:
        """Draw the result from released numbers.

        Parameters
        ----------
        kind : {"effect", "blocks", "overlap", "love", "budget"}, optional
            By default the block effects where they differ, else the effect. "love": `balance`.
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        fig, ax
            A notebook shows the figure by itself.

        Raises
        ------
        DPStatsError
            If `kind` is not one of these, or the result has no blocks or no balance.
        ImportError
            If matplotlib is not installed (extra `plot`).
        """
        from dpstats.report import plots

        if kind is None:
            kind = "blocks" if self._blocks_differ() else "effect"
        if kind == "blocks":
            table = self.blocks.rename(columns={"lower": "from", "upper": "to"})
            table = table.rename(columns={"effect_lower": "lower", "effect_upper": "upper"})
            label = f"Effect of {self.facts.treat} on {self.facts.outcome}"
            return plots.blocks(table, ylabel=label, overall=float(self.params.iloc[0]), ax=ax)
        if kind == "overlap":
            return plots.overlap(self.blocks, ax=ax)
        if kind == "love":
            from dpstats.report.love import love

            return love(self.balance, ax=ax)
        if kind == "budget":
            return plots.budget(self.privacy.releases, ax=ax)
        if kind != "effect":
            raise DPStatsError(
                "`kind` must be 'effect', 'blocks', 'overlap', 'love' or 'budget'; got "
                f"{passed(kind)}"
            )
        return plots.effect(
            self._effect_rows(),
            xlabel=f"Effect of {self.facts.treat} on {self.facts.outcome}",
            ax=ax,
        )

    def _story(self) -> Story:
        from dpstats import propensity
        from dpstats.ate.kernels import KERNELS
        from dpstats.report.story import Story

        facts, exact = self.facts, self.released.exact
        what = f"of {facts.treat} on {facts.outcome}"
        figures = [("effect", f"Effect {what}: the 95% interval and the part that is noise.")]
        if getattr(self.released, "blocks", None) is not None and not self._one_block():
            text = "Rows by block of the propensity: where treated and controls meet."
            figures.append(("overlap", text))
        if self._blocks_differ():
            figures.append(("blocks", self._figure_text()))
        if not exact:
            figures.append(("budget", "How the budget was divided among the releases."))
        fitted = () if facts.propensity.startswith(("none", "known")) else (propensity,)
        return Story(
            f"Effect {what}",
            f"By how much does {facts.treat} change {facts.outcome}, on average over "
            f"{AMONG[facts.estimand]}?",
            (("Formula", facts.formula),),
            tuple(figures),
            (KERNELS.get(facts.method), *fitted),
        )

    def _figure_text(self) -> str:
        what = f"of {self.facts.treat} on {self.facts.outcome}"
        if self._blocks_differ():
            return f"Noisy effects {what} by block of the propensity, with 95% intervals."
        return f"Effect {what} with its 95% interval, and the part that is privacy noise."

    def _effect_rows(self) -> pd.DataFrame:
        import pandas as pd

        estimate, error = float(self.params.iloc[0]), float(self.bse.iloc[0])
        low, high = self.conf_int().iloc[0]
        narrow = self.privacy_interval().iloc[0]
        return pd.DataFrame(
            [(self.params.index[0], estimate, error, low, high, *narrow)],
            columns=[
                "name",
                "estimate",
                "std_error",
                "total_low",
                "total_high",
                "privacy_low",
                "privacy_high",
            ],
        )


def _public_text(public: dict[str, Any]) -> str:
    parts = [f"n = {public['n']}", f"the formula {public['formula']!r}"]
    bounds = public.get("bounds") or {}
    if bounds:
        parts.append("bounds " + _bounds_text(bounds))
    for name, levels in (public.get("levels") or {}).items():
        parts.append(f"levels of {name}: " + ", ".join(map(str, levels)))
    constants = public.get("constants") or {}
    if constants:
        parts.append("constants " + ", ".join(f"{k}: {v}" for k, v in constants.items()))
    parts += [str(item) for item in public.get("other") or ()]
    return "; ".join(parts)


def _bounds_text(bounds: dict[str, Any]) -> str:
    return ", ".join(f"{name} in [{low:g}, {high:g}]" for name, (low, high) in bounds.items())
