"""Commands that go on are known to run, and to have ended though nobody ended them; a look at a
lock is in nobody's way."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tidemark.base.errors import DataError
from tidemark.base.files import locks
from tidemark.base.settings import Settings
from tidemark_streaming.base import foreground
from tidemark_streaming.base.foreground import INGEST, STREAM, commands
from tidemark_streaming.ingest.sole import at_work, beside

FOLLOWING = """
import sys, time
from tidemark.base.settings import Settings
from tidemark_streaming.base import foreground

with foreground.running(Settings(home=sys.argv[1]), "ingest", "clicks", ("one", "two")):
    print("runs", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


def test_a_command_is_there_until_it_ends_on_purpose(settings: Settings) -> None:
    assert commands(settings) == []
    with foreground.running(settings, STREAM, "one") as entry:
        (known,) = commands(settings)
        assert (known.kind, known.name, known.runs, known.error) == (STREAM, "one", True, None)
        entry.waits(DataError("The engine is gone.\nIn all detail."))
        assert commands(settings)[0].error == "The engine is gone."
        entry.goes_on(again=True)
        (known,) = commands(settings)
        assert (known.error, known.restarts) == (None, 1)
        # Another one of its kind is not told in its place, and leaves it as it is.
        with foreground.running(settings, STREAM, "one") as other:
            other.waits(DataError("It runs already."))
        assert commands(settings) == [known]
        assert not foreground.forget(settings, STREAM, "one")
    assert commands(settings) == []
    with pytest.raises(KeyboardInterrupt), foreground.running(settings, STREAM, "one"):
        raise KeyboardInterrupt
    assert commands(settings) == []


def test_one_that_ends_with_an_error_is_told_until_it_runs_again(settings: Settings) -> None:
    with pytest.raises(DataError), foreground.running(settings, INGEST, "clicks"):
        raise DataError("Records are gone.")
    (known,) = commands(settings)
    assert (known.runs, known.error) == (False, "Records are gone.")
    with foreground.running(settings, INGEST, "clicks"):
        (known,) = commands(settings)
        assert (known.runs, known.error) == (True, None)
    assert commands(settings) == []
    with pytest.raises(DataError), foreground.running(settings, INGEST, "clicks"):
        raise DataError("Records are gone.")
    assert foreground.forget(settings, INGEST, "clicks")
    assert commands(settings) == []


def test_one_that_was_killed_is_told(settings: Settings) -> None:
    arguments = [sys.executable, "-c", FOLLOWING, str(settings.home)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (known,) = commands(settings)
        assert (known.runs, known.assets) == (True, ("one", "two"))
        process.kill()
    (known,) = commands(settings)
    assert (known.runs, known.error, known.name) == (False, None, "clicks")


def test_a_home_that_can_t_be_written_ends_no_command(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    settings = Settings(home=tmp_path / "home")
    with foreground.running(settings, STREAM, "one") as entry:
        entry.waits(DataError("The engine is gone."))
    assert commands(settings) == []


def test_a_pid_that_a_killed_ingest_left_feeds_nothing(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, warehouse=str(tmp_path / "warehouse"))
    assert not at_work(settings, "clicks")
    lock = beside(settings.warehouse, settings.database, "clicks", "lock")
    lock.parent.mkdir(parents=True)
    # By now it may be anybody's: this one's, say.
    lock.write_text(str(os.getpid()))
    assert not at_work(settings, "clicks")
    with lock.open() as handle:
        assert locks.take(handle.fileno())
        assert at_work(settings, "clicks")
    assert not at_work(settings, "clicks")


def test_who_looks_at_a_lock_is_in_nobody_s_way(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open() as looks, path.open() as takes:
        fcntl.flock(looks, fcntl.LOCK_SH)
        threading.Timer(0.5, fcntl.flock, (looks, fcntl.LOCK_UN)).start()
        assert locks.take(takes.fileno())
        assert not locks.take(looks.fileno()), "it is another's"
