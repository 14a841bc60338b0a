"""What every result has: labelled views of released numbers, inference, tables, storage."""

from __future__ import annotations

import importlib.metadata
import math
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpstats.alarms import Signal, alarms
from dpstats.errors import DPStatsError
from dpstats.inference import Inference, check_alpha, intervals
from dpstats.passed import passed
from dpstats.storage import FORMAT, encode, plain, write_json

if TYPE_CHECKING:
    from collections.abc import Hashable
    from os import PathLike
    from pathlib import Path

    import pandas as pd

    from dpstats.privacy.accounting import PrivacyRecord, Release
    from dpstats.report.html import Block
    from dpstats.report.story import Story
    from dpstats.report.summary import PrivateSummary, SummaryContent, TableContent

__all__ = ["PrivateResults"]


class PrivateResults(ABC):
    """A fitted model that holds released values and strings only.

    Subclasses keep their state in the frozen dataclasses named by `_STATE`; tables and figures
    are made from it on request, so that a pickle or a saved file holds nothing else.
    """

    _STATE: tuple[str, ...]
    privacy: PrivacyRecord

    @abstractmethod
    def _inferences(self) -> dict[Hashable, Inference]:
        """Return one inference a parameter."""

    @abstractmethod
    def _privacy_inferences(self) -> list[Inference]:
        """Return one inference a parameter, over privacy noise alone."""

    @abstractmethod
    def noise_sd(self) -> float:
        """Return the standard deviation that privacy noise alone gives the estimate."""

    @abstractmethod
    def comparison_facts(self) -> dict[str, str]:
        """Return what a table of several results says about this one."""

    @abstractmethod
    def _summary_content(self, alpha: float) -> SummaryContent:
        """Return what the summary shows."""

    @abstractmethod
    def _diagnostic_rows(self) -> list[tuple[str, str, str]]:
        """Return (quantity, value, reading) from released numbers."""

    @abstractmethod
    def _outcome_bounds(self) -> tuple[float, float] | None:
        """Return the bounds that the outcome was clipped to, if there are any."""

    @abstractmethod
    def sampling_sd(self) -> float:
        """Return the standard deviation that sampling alone gives the estimate."""

    def _signals(self) -> list[Signal]:
        """Return what the rules for warnings look at (`dpstats.alarms`)."""
        signals = []
        interval, bounds = self.conf_int(0.05), self._outcome_bounds()
        if bounds is not None:
            width = float((interval[1] - interval[0]).min())
            name = "95% interval over the outcome's range"
            signals.append(Signal(name, width / (bounds[1] - bounds[0])))
        noise, estimate = self.noise_sd(), float(self.params.abs().max())
        if noise > self.sampling_sd():
            signals.append(Signal("estimate, in noise sd", estimate / noise))
        found = self.privacy.public.get("bounds found privately") or {}
        if found:
            spent = sum(row.epsilon for row in self.privacy.records if row.release == "bounds")
            share = spent / self.privacy.epsilon
            signals.append(Signal("bounds searched", share, ", ".join(found)))
        return signals

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the estimate doubtful, by the rules of `dpstats.alarms`; may be empty.

        Every rule compares one released number with a public limit. Summaries, reports and
        comparisons show the same sentences.
        """
        return alarms(self._signals())

    @property
    @abstractmethod
    def nobs(self) -> int:
        """Rows used (public)."""

    @cached_property
    def _inference(self) -> dict[Hashable, Inference]:
        return self._inferences()

    def _series(self, values: list[float], name: str) -> pd.Series[float]:
        import pandas as pd

        return pd.Series(values, index=pd.Index(list(self._inference)), name=name, dtype=float)

    @property
    def params(self) -> pd.Series[float]:
        """Estimates, indexed by parameter."""
        return self._series([row.estimate for row in self._inference.values()], "coef")

    @property
    def bse(self) -> pd.Series[float]:
        """Standard errors over sampling and privacy noise (root mean squared error)."""
        return self._series([row.standard_error for row in self._inference.values()], "std err")

    @property
    def tvalues(self) -> pd.Series[float]:
        """Estimates over standard errors."""
        # an estimate that is zero without error is 0, not 0/0
        return (self.params / self.bse).where(self.params != 0.0, 0.0).rename("z")

    @property
    def pvalues(self) -> pd.Series[float]:
        """Two-sided p-values of zero; they invert `conf_int`."""
        return self._series([row.pvalue() for row in self._inference.values()], "P>|z|")

    def conf_int(self, alpha: float = 0.05, which: Literal["params"] = "params") -> pd.DataFrame:
        """Confidence intervals over sampling and privacy noise.

        Parameters
        ----------
        alpha : float
            One minus the level.
        which : {"params"}
            What they are for.

        Returns
        -------
        DataFrame
            Columns 0 and 1, one row a parameter.

        Raises
        ------
        DPStatsError
            If `alpha` is not in (0, 1).
        """
        if which != "params":
            raise DPStatsError(f"`which` must be 'params' for this result; got {passed(which)}")
        return intervals(self._inference.values(), self.params.index, alpha)

    def privacy_interval(self, alpha: float = 0.05) -> pd.DataFrame:
        """Intervals over privacy noise alone: how far the noise may have moved the estimates.

        Parameters
        ----------
        alpha : float
            One minus the level.

        Returns
        -------
        DataFrame
            Columns 0 and 1, one row a parameter. Not a confidence interval: it leaves out sampling.

        Raises
        ------
        DPStatsError
            If `alpha` is not in (0, 1).
        """
        return intervals(self._privacy_inferences(), self.params.index, alpha)

    @property
    def diagnostics(self) -> pd.DataFrame:
        """Checks computed from released numbers only: `quantity`, `value`, `reading`.

        It prints whole, long readings wrapped; `summary(diagnostics=True)` shows it too.
        """
        from dpstats.report.readable import ReadableFrame

        return ReadableFrame(self._diagnostic_rows(), columns=["quantity", "value", "reading"])

    def tidy(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return one row a parameter, in the column names of R's broom.

        Parameters
        ----------
        alpha : float
            One minus the level of the interval.
        """
        interval = self.conf_int(alpha)
        frame = self.params.to_frame("estimate")
        frame["std_error"] = self.bse
        frame["statistic"] = self.tvalues
        frame["p_value"] = self.pvalues
        frame["conf_low"] = interval[0]
        frame["conf_high"] = interval[1]
        # several targets: (unit, parameter)
        names = ("unit", "term")[-frame.index.nlevels :]
        return frame.rename_axis(list(names)).reset_index()

    @abstractmethod
    def glance(self) -> pd.DataFrame:
        """Return one row for the model."""

    def summary(
        self, alpha: float = 0.05, *, diagnostics: bool = False, decimals: int | None = None
    ) -> PrivateSummary:
        """Return the summary table.

        Parameters
        ----------
        alpha : float
            One minus the level of the intervals shown.
        diagnostics : bool
            Whether to show `diagnostics` too, with every reading in full.
        decimals : int, optional
            Digits after the point of estimates, errors and intervals, up to 10. By default as many
            as show the standard error with two significant digits, and on which side of zero the
            interval ends.

        Returns
        -------
        PrivateSummary
            A statsmodels `Summary`: `as_text`, `as_html`, `as_latex`, `as_csv`.

        Raises
        ------
        DPStatsError
            If `alpha` is not in (0, 1), or `decimals` no such number.
        """
        from dpstats.report._numbers import check_decimals
        from dpstats.report.summary import TableContent, build_summary

        content = self._summary_content(check_alpha(alpha))
        content = replace(content, decimals=check_decimals(decimals))
        if diagnostics:
            title, heads = (
                "Diagnostics, from released numbers only",
                ("quantity", "value", "reading"),
            )
            table = TableContent(title, heads, tuple(self._diagnostic_rows()))
            content = replace(content, tables=(*content.tables, table))
        return build_summary(content)

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def _repr_latex_(self) -> str:
        return self.summary().as_latex()

    def to_dict(self) -> dict[str, Any]:
        """Return everything released, ready for JSON."""
        privacy = self.privacy
        return {
            "dpstats": _version(),
            "model": self.glance().iloc[0].map(plain).to_dict(),
            "estimates": [
                {key: plain(value) for key, value in row.items()}
                for row in self.tidy().to_dict("records")
            ],
            "privacy": {
                "epsilon": plain(privacy.epsilon),
                "delta": privacy.delta,
                "relation": privacy.relation,
                "protects": privacy.protects,
                "private": privacy.private,
                "seeded": privacy.seeded,
                "public": plain(privacy.public),
                "releases": [plain(record) for record in privacy.records],
            },
            "diagnostics": self.diagnostics.to_dict("records"),
            "warnings": list(self.warnings),
            "released": {name: plain(getattr(self, name)) for name in self._STATE},
        }

    def save(self, path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the result as JSON; `dpstats.load` reads it back.

        Parameters
        ----------
        path : str or path
            File to write.
        overwrite : bool
            Whether it may replace a file that exists. A private result that is lost cannot be
            computed again without paying again.

        Raises
        ------
        ResultExistsError
            A `FileExistsError`, if the file exists and `overwrite` is false.

        Examples
        --------
        >>> import tempfile
        >>> import dpstats as dp
        >>> trial = dp.simulate.ate("well_specified", 2000, rng=1)
        >>> res = dp.dp_ate("y ~ x1 + x2 + x3 + x4", treat="w", data=trial.data, eps=1,
        ...                 bounds=trial.bounds)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     res.save(f"{folder}/effect.json")
        ...     same = dp.load(f"{folder}/effect.json")
        >>> same.params.equals(res.params)
        True
        """
        state = {name: encode(getattr(self, name)) for name in self._STATE}
        content = {"format": FORMAT, "dpstats": _version(), "class": type(self).__name__}
        write_json(path, {**content, "state": state}, overwrite=overwrite)

    def report(
        self,
        path: str | PathLike[str],
        *,
        alpha: float = 0.05,
        title: str | None = None,
        question: str | None = None,
        caption: str | None = None,
        label: str | None = None,
        decimals: int | None = None,
    ) -> Path:
        r"""Write a report: question, estimate, privacy in plain words, releases, plots, citation.

        Parameters
        ----------
        path : str or path
            Its suffix says what is written. `.html`: one page that needs no other file and no
            network. `.tex`: a document to compile, its figures as PDF beside it and, as
            `<stem>-table.tex`, a table to `\input` into a paper. `.md`: Markdown, its figures as
            PNG beside it. Figures are named after the file and need matplotlib (extra `plot`);
            without it they are left out.
        alpha : float
            One minus the level of the intervals.
        title, question : str, optional
            Heading and what stands below it, in your words.
        caption, label : str, optional
            Of the table in LaTeX: with either it stands in a `table` environment of its own. The
            caption is escaped; the label is what `\ref` names.
        decimals : int, optional
            As for `summary`.

        Returns
        -------
        pathlib.Path
            Where it was written.

        Raises
        ------
        DPStatsError
            If the suffix is another, `alpha` is not in (0, 1) or LaTeX could not read the label.

        Examples
        --------
        >>> import tempfile
        >>> import dpstats as dp
        >>> trial = dp.simulate.ate("well_specified", 2000, rng=1)
        >>> res = dp.dp_ate("y ~ x1 + x2 + x3 + x4", treat="w", data=trial.data, eps=1,
        ...                 bounds=trial.bounds)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     res.report(f"{folder}/effect.html").name
        'effect.html'
        """
        from dpstats.report.files import write_report

        level = check_alpha(alpha)
        return write_report(
            self,
            path,
            alpha=level,
            title=title,
            question=question,
            caption=caption,
            label=label,
            decimals=decimals,
        )

    def report_blocks(self) -> tuple[Block, ...]:
        """Return the blocks of this result in an HTML page: summary, plot, diagnostics."""
        from dpstats.report.html import Figure, Html, Table

        blocks: list[Block] = [Html(self.summary().as_html())]
        try:
            figure, _ = self.plot()
        except ImportError:
            pass
        else:
            from dpstats.report.plots import close

            close(figure)
            blocks.append(Figure(figure, alt=self._figure_text(), caption=self._figure_text()))
        blocks.append(Table(self.diagnostics, caption="Diagnostics, from released numbers only"))
        return tuple(blocks)

    @abstractmethod
    def _story(self) -> Story:
        """Return what a report says about this result."""

    @abstractmethod
    def _figure_text(self) -> str:
        """Describe the default plot in a sentence."""

    @abstractmethod
    def plot(self, kind: Any = None, ax: Any = None) -> tuple[Any, Any]:
        """Draw the result; returns (fig, ax)."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._STATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def coefficient_table(results: PrivateResults, alpha: float) -> pd.DataFrame:
    """Return the table of estimates as the summary shows it."""
    interval = results.conf_int(alpha)
    frame = results.params.to_frame("coef")
    frame["std err"], frame["z"] = results.bse, results.tvalues
    frame["P>|z|"] = results.pvalues
    frame["lower"], frame["upper"] = interval[0], interval[1]
    return frame


def releases_table(privacy: PrivacyRecord, *, whole: bool = False) -> TableContent:
    """Return the table of releases: every one, or as the summary shows them.

    There what a solver adds to a fit stands in the row of the fit, whose cost holds both: its noise
    is of no practical size, and `privacy.releases` has it apart.
    """
    from dpstats.report._numbers import number
    from dpstats.report.summary import TableContent

    total = privacy.epsilon
    rows = tuple(
        (
            record.release,
            record.mechanism,
            f"{number(record.sensitivity)} ({record.norm})",
            number(record.scale),
            number(record.epsilon),
            f"{record.delta:.2g}" if record.delta else "0",
            _share(record.epsilon / total),
        )
        for record in (privacy.records if whole else _with_solvers(privacy.records))
    )
    headers = ("release", "mechanism", "sensitivity", "scale", "eps", "delta", "share")
    return TableContent("Noisy releases", headers, rows)


def _with_solvers(records: tuple[Release, ...]) -> list[Release]:
    found: list[Release] = []
    for record in records:
        fit = found[-1] if found else record
        if record.release != f"{fit.release} (solver)":
            found.append(record)
            continue
        mechanism = f"{fit.mechanism}, and solver"
        epsilon, delta = fit.epsilon + record.epsilon, fit.delta + record.delta
        found[-1] = replace(fit, mechanism=mechanism, epsilon=epsilon, delta=delta)
    return found


def _share(part: float) -> str:
    """Write a share of the budget in per cent; what is next to nothing as such."""
    return "<0.1%" if 0.0 < part < 5e-4 else f"{100.0 * part:.3g}%"


def size_words(value: float) -> str:
    """Write a standard error by itself, with two significant digits."""
    from dpstats.report._numbers import places, rounded

    return rounded(value, places(value))


def format_budget(value: float) -> str:
    """Format an epsilon or delta: short, and scientific where it is tiny."""
    if value == 0.0:
        return "0"
    return "inf" if math.isinf(value) else f"{value:.6g}"


def compare_sizes(noise: float, sampling: float) -> str:
    """Say in words how the noise compares with the sampling error."""
    if noise == 0.0:
        return "no noise was added: NOT PRIVATE"
    ratio = noise / sampling if sampling > 0.0 else math.inf
    if ratio > 1.5:
        return f"privacy noise dominates: {ratio:.1f} times the sampling error"
    if ratio > 0.67:
        return f"privacy noise and sampling error are of one size: ratio {ratio:.2f}"
    return f"sampling error dominates: noise is {ratio:.2f} of it"


def simulation(seed: int) -> np.random.Generator:
    """Return the generator of a result's simulations."""
    return np.random.default_rng(seed)


def _version() -> str:
    try:
        return importlib.metadata.version("dpstats")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
