"""What several modules of kernels are tried on."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from statsmodels.treatment import tests as treatment_tests

import dpstats as dp

CATTANEO = Path(treatment_tests.__file__).parent / "results" / "cataneo2.csv"


@pytest.fixture(scope="module")
def births() -> pd.DataFrame:
    """Cattaneo's data, as statsmodels ships them."""
    return pd.read_csv(CATTANEO)


@pytest.fixture(scope="module")
def trial() -> dp.datasets.Dataset:
    """An ordinary file with overlap."""
    return dp.simulate.ate("well_specified", 4000, rng=2)
