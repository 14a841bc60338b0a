"""What `compare` returns: a table of several results in every format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpstats.report._float import check_float, floated
from dpstats.report._grid import Grid, html_grid, latex_grid, markdown_grid, text_grid

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Comparison"]


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Several results side by side. Returned by `dpstats.compare`.

    Holds strings and released numbers only, so it may be pickled and published as the results may.

    Attributes
    ----------
    grid : Grid
        The cells of the table, as strings.
    effects : DataFrame
        One row a result and parameter: `name, estimate, std_error, total_low, total_high,
        privacy_low, privacy_high, private`, as the forest plot shows them.
    level : float
        Of the intervals in `effects`.
    decimals : int or None
        Digits after the point; None: by each standard error.
    label : str
        What the effects are effects of.
    privacy : tuple of str
        What the guarantees are worth, in plain words.
    citations : tuple of str
        Of the methods.
    """

    grid: Grid
    effects: pd.DataFrame
    level: float
    decimals: int | None
    label: str
    privacy: tuple[str, ...] = ()
    citations: tuple[str, ...] = ()

    def as_text(self) -> str:
        """Return the table as text, at most 100 characters wide."""
        return text_grid(self.grid)

    def as_html(self) -> str:
        """Return the table as an HTML fragment."""
        return html_grid(self.grid)

    def as_latex(
        self,
        caption: str | None = None,
        label: str | None = None,
        position: str | None = None,
    ) -> str:
        r"""Return the table for LaTeX: `\input` it, in a float or in the text.

        The rules are those of booktabs, or plain ones where the document does not load it.

        Parameters
        ----------
        caption, label : str, optional
            With either the table stands in a `table` environment of its own. The caption is
            escaped and takes the place of the title; the label is what `\ref` names.
        position : str, optional
            Of the environment, such as "htbp".

        Raises
        ------
        DPStatsError
            If LaTeX could not read one of them.

        Examples
        --------
        >>> import dpstats as dp
        >>> trial = dp.simulate.ate("well_specified", 5000, rng=1)
        >>> res = dp.dp_ate("y ~ x1 + x2 + x3 + x4", treat="w", data=trial.data, eps=1,
        ...                 bounds=trial.bounds)
        >>> source = dp.compare([res]).as_latex(caption="Effect of w", label="tab:w")
        >>> print(*source.splitlines()[:3], sep="\n")
        \begin{table}
        \caption{Effect of w}
        \label{tab:w}
        """
        check_float(caption, label, position)
        grid = self.grid if caption is None else replace(self.grid, title="")
        return floated(latex_grid(grid), caption, label, position)

    def as_markdown(self) -> str:
        """Return the table in GitHub's Markdown."""
        return markdown_grid(self.grid)

    def __str__(self) -> str:
        return self.as_text()

    def __repr__(self) -> str:
        return self.as_text()

    def _repr_html_(self) -> str:
        return self.as_html()

    def _repr_latex_(self) -> str:
        return self.as_latex()

    def plot(self, ax: Axes | None = None) -> tuple[Figure, Axes]:
        """Draw a forest plot: estimates, total intervals, and the part that is privacy noise.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw.

        Returns
        -------
        fig, ax
            A notebook shows the figure by itself.

        Raises
        ------
        ImportError
            If matplotlib is not installed (extra `plot`).
        """
        from dpstats.report.forest import forest

        return forest(
            self.effects, level=self.level, decimals=self.decimals, xlabel=self.label, ax=ax
        )

    def report(
        self,
        path: str | PathLike[str],
        *,
        title: str | None = None,
        question: str | None = None,
        caption: str | None = None,
        label: str | None = None,
    ) -> Path:
        r"""Write a report: the table, a forest plot, privacy in plain words, citations.

        Parameters
        ----------
        path : str or path
            Its suffix says what is written. `.html`: one page that needs no other file and no
            network. `.tex`: a document to compile, the figure as PDF beside it and, as
            `<stem>-table.tex`, the table to `\input` into a paper. `.md`: Markdown, the figure as
            PNG beside it. The figure needs matplotlib (extra `plot`); without it it is left out.
        title, question : str, optional
            Heading and what stands below it, in your words.
        caption, label : str, optional
            Of the table in LaTeX, see `as_latex`.

        Returns
        -------
        pathlib.Path
            Where it was written.

        Raises
        ------
        DPStatsError
            If the suffix is another, or LaTeX could not read the label.

        Examples
        --------
        >>> import tempfile
        >>> import dpstats as dp
        >>> trial = dp.simulate.ate("well_specified", 5000, rng=1)
        >>> res = dp.dp_ate("y ~ x1 + x2 + x3 + x4", treat="w", data=trial.data, eps=1,
        ...                 bounds=trial.bounds)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dp.compare([res, res.estimand("att")]).report(f"{folder}/effects.md").name
        'effects.md'
        """
        from dpstats.report.files import write_comparison

        return write_comparison(
            self, path, title=title, question=question, caption=caption, label=label
        )
