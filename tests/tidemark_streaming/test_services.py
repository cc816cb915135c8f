"""What is made in the background once the engine rests."""

from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tidemark.base.settings import Settings
from tidemark.engine import archive, jars
from tidemark.engine.java import find_java
from tidemark_streaming import services


@pytest.mark.parametrize("wanted", [False, True])
def test_no_archive_is_made_where_none_is_wanted_or_one_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    if wanted:
        monkeypatch.setattr(archive, "options", lambda *_: ["-XX:SharedArchiveFile=here"])
    assert not services.make_archive(Settings(home=tmp_path, engine_archive=wanted))
    assert not (tmp_path / "logs" / "archive.log").exists()


def test_it_is_made_by_a_process_of_its_own_which_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may have made it meanwhile: then that process has nothing to do."""
    if not archive.options(find_java(), jars.ensure(find_java())):
        pytest.skip("no archive of the engine's classes was made here: `make archive`")
    monkeypatch.setattr(archive, "options", lambda *_: [])
    settings = Settings(home=tmp_path, engine_archive=True)
    assert services.make_archive(settings)
    made = services.service(settings, "archive")
    record = made.recorded()
    assert record is not None
    with suppress(psutil.NoSuchProcess):
        psutil.Process(record.pid).wait(timeout=60)
    assert made.log.read_text() == ""
