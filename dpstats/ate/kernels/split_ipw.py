"""Weighting on split rows: some train the propensity, the others are averaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.ate.balance import check_balance
from dpstats.ate.kernels.base import Options, Public, Shares, propensity_scores
from dpstats.ate.kernels.ipw import Ipw, IpwReleased, IpwSettings, release_scores
from dpstats.calls import check_number
from dpstats.errors import DPStatsError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dpstats.ate.kernels.base import Arrays
    from dpstats.privacy.mechanisms import Mechanisms

__all__ = ["SplitIpw"]

_TRAINING, _ESTIMATION = "training rows", "estimation rows"
# a measured choice
_TRAIN_SHARE = 0.5
_VARIANCES = 0.04


def _check_train_share(value: Any) -> float:
    check_number("train_share", value, 0.0, 1.0, "a number in (0, 1)")
    return float(value)


class SplitIpw(Ipw):
    r"""Weighting with a propensity trained on other rows than those that are averaged.

    Notes
    -----
    Row positions are split at random, without looking at the data: round(n `train_share`) of them,
    a public number, train the propensity with the whole budget; the mean score of the other
    :math:`n_{est}` rows is released with the whole budget (`dpstats.ate.kernels.ipw` with n
    replaced: sensitivity :math:`2C/(n_{est}\omega)`), the parts of which are the shares of "score",
    "variances" and, for ATT and ATC, "counts". With Gaussian noise it is LGPM19.

    *Parallel composition.* Fix the split. A replaced row is in one part. In the training rows, it
    moves the released propensity within (eps, delta) and given that nothing else changes; in the
    estimation rows the propensity has the same law for both data sets and the rest is within (eps,
    delta) for every value of it. So the pair is (eps, delta)-DP for every split, hence for a random
    one drawn from noise of its own. What is released from all rows (bounds) adds up with it.

    *k rows a person*, of which j are in the training rows. With noise for k rows, Laplace noise
    costs eps in proportion to the rows that are replaced: (k - j)/k eps for scores, by the
    triangle inequality. For the perturbed objective the log ratio is a sum over replaced rows of
    terms of at most eps/k each (`dpstats.propensity.Objective`), hence j/k eps; its solver moves by
    at most 2 tau/L whatever j, with noise for k times that, at most eps_tol/k <= j/k eps_tol. The
    total is eps for every j. Gaussian noise is not linear in this way: k > 1 is refused.

    With a known propensity there is nothing to train, and all rows are averaged.

    References
    ----------
    Lee, S. K., Gresele, L., Park, M. and Muandet, K. (2019). Privacy-preserving causal inference
    via inverse probability weighting. arXiv:1905.12592.
    """

    name = "split_ipw"
    title = "Inverse probability weighting on split rows"
    published_split: ClassVar[Shares] = {"propensity": 1.0, "score": 1.0}
    options: ClassVar[tuple[str, ...]] = ("overlap", "train_share")
    method_options: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "balance": check_balance,
        "train_share": _check_train_share,
    }

    def settings(self, options: Options, public: Public) -> IpwSettings:
        """Fill in defaults from public quantities."""
        settings = super().settings(options, public)
        if not settings.fits_propensity:
            return settings
        if public.delta > 0.0 and getattr(settings.propensity, "rows_per_person", 1) > 1:
            raise DPStatsError(
                "`rows_per_person` > 1 cannot be combined with Gaussian noise for method "
                "'split_ipw', since a person's rows may lie in both parts: drop `delta`"
            )
        share = options.method.get("train_share")
        return replace(settings, train_share=_TRAIN_SHARE if share is None else share)

    def shares(self, settings: IpwSettings, public: Public) -> Shares:
        """Return the default split of the budget, by release, within each part of the rows."""
        shares = {"propensity": 1.0, "score": 1.0}
        if settings.estimand != "ate":
            shares["counts"] = 0.16
        if settings.variances:
            shares["variances"] = _VARIANCES
        return shares

    def constants(self, settings: IpwSettings) -> tuple[tuple[str, str], ...]:
        """Return the public constants that the summary shows."""
        known = super().constants(settings)
        if settings.train_share is None:
            return known
        return (*known, ("Training rows", f"{100.0 * settings.train_share:g}%"))

    def partitions(self, settings: IpwSettings) -> Mapping[str, str]:
        """Return the disjoint sets of rows behind the releases."""
        if settings.train_share is None:
            return {}
        rest = dict.fromkeys(("score", "counts", "variances"), _ESTIMATION)
        return {"propensity": _TRAINING, **rest}

    def run(self, arrays: Arrays, settings: IpwSettings, mechanisms: Mechanisms) -> IpwReleased:
        """Release the propensity from some rows, the mean of the scores from the others."""
        if settings.train_share is None:
            return super().run(arrays, settings, mechanisms)
        training = _training(arrays.n, settings.train_share, mechanisms)
        rows = arrays.rows(np.flatnonzero(~training))
        if mechanisms.source is None and (rows.treated.all() or not rows.treated.any()):
            raise DPStatsError(
                "`train_share` must leave treated and control rows for the score at `eps` = inf; "
                f"got {settings.train_share:g}"
            )
        scores, fitted = propensity_scores(
            rows, settings, mechanisms, arrays.rows(np.flatnonzero(training))
        )
        own = replace(mechanisms, partition=_ESTIMATION)
        part = (_TRAINING, int(training.sum()))
        return release_scores(rows, scores, fitted, settings, own, part)


def _training(n: int, share: float, mechanisms: Mechanisms) -> NDArray[np.bool_]:
    """Choose the rows that train, by position: a random order, and evenly spread places in it."""
    size = min(max(round(share * n), 1), n - 1)
    order = mechanisms.parts("rows", n, n)
    return (order + 1) * size // n > order * size // n
