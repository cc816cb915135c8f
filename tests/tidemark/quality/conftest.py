"""Fixture for Great Expectations, whose imports raise deprecation warnings of other packages."""

import warnings
from importlib import import_module
from typing import Any

import pytest


@pytest.fixture(scope="session")
def gxe() -> Any:  # noqa: ANN401
    """Return the module `great_expectations.expectations`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module("great_expectations.expectations")
