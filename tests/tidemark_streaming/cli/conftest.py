"""The command line in this process, on the tests' engine and a database of its own."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from helpers.processes.commands import surround
from tidemark.base.settings import Settings


@pytest.fixture(scope="module")
def here(engine: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """The settings of the commands of one test module, also as variables of the environment."""
    landing = tmp_path_factory.mktemp("landing")
    database = f"cli_{uuid4().hex[:12]}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).parents[3])
        surround(patch, engine.model_copy(update={"landing": landing, "database": database}))
        patch.setenv("COLUMNS", "100")
        yield Settings()


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without an engine or data, where a command that needs neither must do."""
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TIDEMARK_REMOTE", "sc://localhost:1")
