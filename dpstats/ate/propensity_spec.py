"""What the user may say about the propensity, and how it is put in words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpstats.errors import DPStatsError
from dpstats.propensity import Known, Objective, Output, PropensityModel

if TYPE_CHECKING:
    from dpstats.ate.kernels.base import Settings

__all__ = ["PropensitySpec", "propensity_words", "read_propensity"]


@dataclass(frozen=True, slots=True)
class PropensitySpec:
    """The propensity the user asked for."""

    model: PropensityModel | None
    probability: float | None = None
    column: str | None = None
    formula: str | None = None

    @property
    def needs_design(self) -> bool:
        """Whether a design matrix is needed: a model is to be fitted."""
        return self.model is not None


def read_propensity(propensity: Any, rows_per_person: int) -> PropensitySpec:
    """Read the argument `propensity` of `dp_ate`.

    Raises
    ------
    DPStatsError
        If it is none of the forms that are allowed.
    """
    if propensity is None:
        return PropensitySpec(Objective(rows_per_person=rows_per_person))
    if isinstance(propensity, str):
        if propensity.lstrip().startswith("~"):
            return PropensitySpec(Objective(rows_per_person=rows_per_person), formula=propensity)
        return PropensitySpec(None, column=propensity)
    if isinstance(propensity, int | float | np.integer | np.floating):
        propensity = Known(probability=float(propensity))
    if isinstance(propensity, Known):
        if propensity.column is not None:
            return PropensitySpec(None, column=propensity.column)
        return PropensitySpec(None, probability=float(propensity.probability or 0.0))
    if isinstance(propensity, Objective | Output):
        return PropensitySpec(replace(propensity, rows_per_person=rows_per_person))
    if not isinstance(propensity, type) and isinstance(propensity, PropensityModel):
        if rows_per_person != 1:
            raise DPStatsError("`rows_per_person` > 1 needs a propensity of dpstats.propensity")
        return PropensitySpec(propensity)
    raise DPStatsError(
        "`propensity` must be a formula '~ x1 + x2', a probability, a column of `data` or an "
        f"object with fit(X, W, *, eps, delta, source); got {type(propensity).__name__}"
    )


def propensity_words(spec: PropensitySpec, settings: Settings, *, private: bool) -> str:
    """Describe the propensity of a call in a few words."""
    if settings.probability is not None:
        return f"known by design: {settings.probability:g}"
    if settings.by_row:
        return f"known by design: column {spec.column}"
    if settings.own_propensity:
        return settings.own_propensity + (f", on {spec.formula}" if spec.formula else "")
    if settings.propensity is None:
        return "none (one block)" if getattr(settings, "blocks", None) == 1 else "none"
    form = f" on {spec.formula}" if spec.formula else ""
    if not private:
        return f"logit, maximum likelihood{form}"
    if isinstance(settings.propensity, Objective):
        return f"logit, objective perturbation{form}"
    if isinstance(settings.propensity, Output):
        return f"logit, output perturbation{form}"
    return f"{type(settings.propensity).__name__}{form}"
