"""Long-running commands are listed while they run and after they exit without being stopped.
Inspecting a lock does not block it."""

import fcntl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tidemark.base.errors import DataError
from tidemark.base.files import locks
from tidemark.base.settings import Settings
from tidemark_streaming.base import foreground
from tidemark_streaming.base.foreground import INGEST, STREAM, list_commands

FOLLOWING = """
import sys, time
from tidemark.base.settings import Settings
from tidemark_streaming.base import foreground

with foreground.record_running(Settings(home=sys.argv[1]), "ingest", "clicks", ("one", "two")):
    print("runs", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


def test_a_command_is_listed_until_it_is_stopped(settings: Settings) -> None:
    assert list_commands(settings) == []
    with foreground.record_running(settings, STREAM, "one") as entry:
        (known,) = list_commands(settings)
        assert (known.kind, known.name, known.runs, known.error) == (STREAM, "one", True, None)
        entry.mark_waiting(DataError("The engine has exited.\nIn all detail."))
        assert list_commands(settings)[0].error == "The engine has exited."
        entry.mark_healthy(is_restart=True)
        (known,) = list_commands(settings)
        assert (known.error, known.restarts) == (None, 1)
        # A second command of its kind is not listed in its place and leaves it unchanged.
        with foreground.record_running(settings, STREAM, "one") as other:
            other.mark_waiting(DataError("It runs already."))
        assert list_commands(settings) == [known]
        assert foreground.forget_command(settings, STREAM, "one")
        assert not foreground.forget_command(settings, STREAM, "one"), "it is not expected any more"
    assert list_commands(settings) == []
    with pytest.raises(KeyboardInterrupt), foreground.record_running(settings, STREAM, "one"):
        raise KeyboardInterrupt
    assert list_commands(settings) == []


def test_a_failed_command_is_listed_until_it_runs_again(settings: Settings) -> None:
    with pytest.raises(DataError), foreground.record_running(settings, INGEST, "clicks"):
        raise DataError("Records are gone.")
    (known,) = list_commands(settings)
    assert (known.runs, known.error) == (False, "Records are gone.")
    with foreground.record_running(settings, INGEST, "clicks"):
        (known,) = list_commands(settings)
        assert (known.runs, known.error) == (True, None)
    assert list_commands(settings) == []
    with pytest.raises(DataError), foreground.record_running(settings, INGEST, "clicks"):
        raise DataError("Records are gone.")
    assert foreground.forget_command(settings, INGEST, "clicks")
    assert list_commands(settings) == []


def test_a_killed_command_is_listed(settings: Settings) -> None:
    arguments = [sys.executable, "-c", FOLLOWING, str(settings.home)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (known,) = list_commands(settings)
        assert (known.runs, known.assets) == (True, ("one", "two"))
        process.kill()
    (known,) = list_commands(settings)
    assert (known.runs, known.error, known.name) == (False, None, "clicks")


def test_an_unwritable_warehouse_does_not_stop_a_command(tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("no folder")
    settings = Settings(home=tmp_path, warehouse=str(tmp_path / "warehouse"))
    with foreground.record_running(settings, STREAM, "one") as entry:
        entry.mark_waiting(DataError("The engine has exited."))
    assert list_commands(settings) == []


def test_inspecting_a_lock_does_not_block_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open() as looks, path.open() as takes:
        fcntl.flock(looks, fcntl.LOCK_SH)
        threading.Timer(0.5, fcntl.flock, (looks, fcntl.LOCK_UN)).start()
        assert locks.take_lock(takes.fileno())
        assert not locks.take_lock(looks.fileno()), "it is another's"
