"""Fixtures of the platform's tests: a finished event log, and Great Expectations."""

import warnings
from importlib import import_module
from typing import Any

import pytest

from helpers.data.support import READINGS, ingest, some_arrivals
from tidemark.store.warehouse import Warehouse


@pytest.fixture(scope="module")
def logged(shared: Warehouse) -> Warehouse:
    """Return a warehouse with a finished event log. Each test uses its own asset name."""
    ingest(shared, READINGS, some_arrivals())
    return shared


@pytest.fixture(scope="session")
def gxe() -> Any:  # noqa: ANN401
    """Return the module `great_expectations.expectations`.

    Its imports raise deprecation warnings of other packages.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module("great_expectations.expectations")
