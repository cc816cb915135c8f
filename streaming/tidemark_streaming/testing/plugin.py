"""pytest's fixtures for who tests a transform.

pytest loads this module wherever Tidemark is installed, so it imports nothing before a test asks
for a fixture.
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
    """The settings of a small engine that the tests of this process share.

    It has a home and a port of its own, starts with the first test that asks, and ends with the
    last. With `TIDEMARK_TEST_HOME` it is the engine of that home (and of `TIDEMARK_ENGINE_PORT`),
    started where it does not run and kept afterwards.
    """
    from tidemark import engine
    from tidemark_streaming.testing.small_engine import kept_or_new

    settings, kept = kept_or_new(tmp_path_factory.getbasetemp() / "tidemark")
    with pytest.MonkeyPatch.context() as patch:
        # Its Python workers import what transforms import, from where the tests do.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        engine.ensure(settings)
    yield settings
    if not kept:
        engine.stop(settings)


@pytest.fixture(scope="session")
def tidemark_warehouse(tidemark_engine: "Settings") -> "Iterator[Warehouse]":
    """An empty warehouse on that engine, by a session of its own."""
    from tidemark import engine
    from tidemark.store.warehouse import Warehouse

    spark = engine.session(tidemark_engine)
    yield Warehouse(spark, tidemark_engine.warehouse, "tests", registered=False)
    spark.stop()


@pytest.fixture
def tidemark_scenario(tidemark_warehouse: "Warehouse", tmp_path: Path) -> "Trials":
    """Runs transforms over given arrivals: `tidemark_scenario(transform, arrivals)` is a `Trial`.

    Its scenario, and what is drawn where it fails, are in the test's `tmp_path`.
    """
    from tidemark_streaming.testing.trial import Trials

    return Trials(tidemark_warehouse, tmp_path)
