"""Fixtures for command-line tests, which run in this process, on the tests' engine, in their own
database."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from helpers.processes.commands import surround
from tidemark.base.settings import Settings


@pytest.fixture(scope="module")
def here(engine: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Yield the settings of a test module's commands, also set as environment variables."""
    landing = tmp_path_factory.mktemp("landing")
    database = f"cli_{uuid4().hex[:12]}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).parents[3])
        surround(patch, engine.model_copy(update={"landing": str(landing), "database": database}))
        patch.setenv("COLUMNS", "100")
        yield Settings()


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a home without an engine and data, for commands that need neither."""
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TIDEMARK_REMOTE", "sc://localhost:1")
