"""pytest fixtures for tests of transforms.

pytest loads this module in every environment with Tidemark installed, so it imports nothing before
a test requests a fixture.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidemark.base.settings import Settings
    from tidemark.store.warehouse import Warehouse
    from tidemark_streaming.testing.trial import Trials


@pytest.fixture(scope="session")
def tidemark_engine(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Settings]":
    """Yield the settings of a small engine that the tests of this process share.

    The engine has its own home and port, starts when the first test requests it, and stops after
    the last test. If `TIDEMARK_TEST_HOME` is set, tests use the engine of that home (on the port
    `TIDEMARK_ENGINE_PORT`) instead: it is started if necessary, and keeps running afterwards.
    """
    from tidemark import engine
    from tidemark_streaming.testing.small_engine import start_or_reuse

    settings, is_reused = start_or_reuse(tmp_path_factory.getbasetemp() / "tidemark")
    with pytest.MonkeyPatch.context() as patch:
        # The engine's Python workers import the transforms' dependencies from the same paths as the
        # tests.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        engine.ensure_engine(settings)
    yield settings
    if not is_reused:
        engine.stop_engine(settings)


@pytest.fixture(scope="session")
def tidemark_warehouse(tidemark_engine: "Settings") -> "Iterator[Warehouse]":
    """Yield an empty warehouse with its own session on the engine of `tidemark_engine`."""
    from tidemark import engine
    from tidemark.store.warehouse import Warehouse

    spark = engine.connect_session(tidemark_engine)
    yield Warehouse(spark, tidemark_engine.warehouse, "tests", registered=False)
    spark.stop()


@pytest.fixture
def tidemark_scenario(tidemark_warehouse: "Warehouse", tmp_path: Path) -> "Trials":
    """Return a function that runs transforms over given arrivals: `tidemark_scenario(transform,
    arrivals)` is a `Trial`.

    Each trial is written to the test's `tmp_path` as a scenario, with a picture if it fails.
    """
    from tidemark_streaming.testing.trial import Trials

    return Trials(tidemark_warehouse, tmp_path)
