"""A home without an engine, and an instance of Dagster, for tests of sensors."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from helpers.dagster.ticks import QUIET
from tidemark.base.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A home of its own; no engine answers at its address."""
    return Settings(home=tmp_path, remote="sc://localhost:1")


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An empty instance of Dagster."""
    with dg.DagsterInstance.local_temp(str(tmp_path), QUIET) as instance:
        yield instance
