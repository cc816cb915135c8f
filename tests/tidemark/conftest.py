"""Fixture for tests that share one finished event log of readings."""

import pytest

from helpers.data.support import READINGS, ingest, some_arrivals
from tidemark.store.warehouse import Warehouse


@pytest.fixture(scope="module")
def logged(shared: Warehouse) -> Warehouse:
    """Return a warehouse with a finished event log. Each test uses its own asset name."""
    ingest(shared, READINGS, some_arrivals())
    return shared
