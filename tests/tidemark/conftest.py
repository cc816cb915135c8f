"""A log of readings that has ended, for the tests of a module."""

import pytest

from helpers.data.support import READINGS, ingest, some_arrivals
from tidemark.store.warehouse import Warehouse


@pytest.fixture(scope="module")
def logged(shared: Warehouse) -> Warehouse:
    """A warehouse whose log of readings has ended; every test names an asset of its own."""
    ingest(shared, READINGS, some_arrivals())
    return shared
