"""Fixtures for tests of sensors: a home without an engine and an instance of Dagster."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from helpers.dagster.ticks import QUIET
from tidemark.base.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return the settings of an empty home whose engine address does not respond."""
    return Settings(home=tmp_path, remote="sc://localhost:1")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """Yield an empty instance of Dagster."""
    with dg.DagsterInstance.local_temp(str(tmp_path), QUIET) as instance:
        yield instance
