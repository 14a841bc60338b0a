"""Ordinary least squares by arm, for runs without noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dpstats.ate.kernels.base import Arrays, Estimand
    from dpstats.privacy.noise import FloatArray

__all__ = ["ArmRegressions"]


@dataclass(frozen=True, slots=True)
class ArmRegressions:
    """Least squares fits of controls and treated, in units of C.

    Attributes
    ----------
    arrays : Arrays
    fitted : ndarray
        Shape (n, 2): predictions for every row by arm.
    bread : ndarray
        Shape (2, p, p): inverses (pseudo-inverses) of X'X by arm.
    """

    arrays: Arrays
    fitted: FloatArray
    bread: FloatArray

    @classmethod
    def of(cls, arrays: Arrays) -> ArmRegressions:
        """Fit both arms."""
        x = arrays.covariates
        if x is None:
            raise TypeError("an outcome model needs covariates")
        fitted, bread = np.empty((arrays.n, 2)), np.empty((2, x.shape[1], x.shape[1]))
        for arm, rows in enumerate((~arrays.treated, arrays.treated)):
            coefficients, *_ = np.linalg.lstsq(x[rows], arrays.outcome[rows], rcond=None)
            fitted[:, arm] = x @ coefficients
            bread[arm] = np.linalg.pinv(x[rows].T @ x[rows], hermitian=True)
        return cls(arrays, fitted, bread)

    @property
    def residuals(self) -> FloatArray:
        """Residual of each row from its own arm's fit."""
        own = np.where(self.arrays.treated, self.fitted[:, 1], self.fitted[:, 0])
        return self.arrays.outcome - own

    def members(self, estimand: Estimand) -> FloatArray:
        """Return 1 for each row of the population of the estimand, else 0."""
        treated = self.arrays.treated.astype(np.float64)
        return {"ate": np.ones(self.arrays.n), "att": treated, "atc": 1.0 - treated}[estimand]

    def contrast(self, estimand: Estimand) -> tuple[float, float]:
        """Return the mean difference of the fits over a population, and its standard error."""
        members = self.members(estimand)
        size = float(members.sum())
        gaps = self.fitted[:, 1] - self.fitted[:, 0]
        effect = float(gaps @ members) / size
        influence = (gaps - effect) * members / size
        influence += self.coefficients_influence(members / size, members / size)
        return effect, math.sqrt(float(influence @ influence))

    def coefficients_influence(self, treated: FloatArray, control: FloatArray) -> FloatArray:
        """Return what estimating the coefficients adds to the influence of each row.

        Parameters
        ----------
        treated, control : ndarray
            Shape (n,): weights with which predictions of the treated enter the estimate, and
            those with which predictions of the controls are taken off.
        """
        x = self.arrays.covariates
        if x is None:
            raise TypeError("an outcome model needs covariates")
        leverage = (
            x @ np.stack([self.bread[0] @ (x.T @ control), self.bread[1] @ (x.T @ treated)]).T
        )
        own = np.where(self.arrays.treated, leverage[:, 1], -leverage[:, 0])
        return np.asarray(own * self.residuals)
