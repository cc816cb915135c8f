"""Commands on two machines with their own homes, which share an engine and a warehouse."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from helpers.processes.commands import call
from tidemark.base.settings import Settings
from tidemark.engine.connect import engine_address
from tidemark_streaming.base import foreground
from tidemark_streaming.base.foreground import INGEST, STREAM
from tidemark_streaming.ingest.ingest_record import is_ingesting
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.streams import queries

# Starts streams and ingests, kills them, and waits until their leases end.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared")]

SOURCE, ASSET = "readings", "per_minute"
LEASE_SECONDS = 6

DOMAIN = """
from helpers.data import support
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.files import FileConnector

SOURCE = support.READINGS
readings = Ingestion(source=SOURCE, connector=lambda folder: FileConnector(SOURCE, folder))
"""

MACHINE = f"""
import socket, sys
from tidemark.store.workers import hold

machine = sys.argv.pop(1)
socket.gethostname = lambda: machine
hold.LEASE_SECONDS, hold._RENEW_SECONDS = {LEASE_SECONDS}, 1.0
from tidemark_streaming.cli import app
app()
"""


@pytest.fixture(scope="module")
def shared(here: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Yield the settings of a home whose engine and warehouse the machines use."""
    folder, domain = tmp_path_factory.mktemp("domain"), f"machines_{uuid4().hex[:8]}"
    (folder / domain).mkdir()
    (folder / domain / "__init__.py").touch()
    (folder / domain / "connectors.py").write_text(DOMAIN)
    (folder / domain / "transforms.py").write_text(
        "from helpers.data.support import PER_MINUTE as per_minute"
    )
    (folder / domain / "sources.py").write_text("from helpers.data.support import READINGS")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{Path(__file__).parents[2]}")
        patch.setenv("TIDEMARK_DOMAINS", domain)
        yield here


@contextmanager
def machine(
    shared: Settings, tmp_path: Path, name: str, *arguments: str
) -> Iterator["subprocess.Popen[str]"]:
    """Run a command as on a machine that has its own name and home."""
    environment = {
        **os.environ,
        "TIDEMARK_HOME": str(tmp_path / name),
        "TIDEMARK_REMOTE": engine_address(shared),
        "TIDEMARK_WAREHOUSE": shared.warehouse,
        "TIDEMARK_LANDING": str(shared.landing),
    }
    with subprocess.Popen(
        [sys.executable, "-c", MACHINE, name, *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def refusal(shared: Settings, tmp_path: Path, name: str, *arguments: str) -> str:
    """Return the error message of a command that another machine's command excludes."""
    with machine(shared, tmp_path, name, *arguments) as process:
        _, messages = process.communicate(timeout=120)
    assert process.returncode == 2, messages
    return messages


def land(shared: Settings, minute: int) -> None:
    folder = Path(shared.landing) / SOURCE
    folder.mkdir(exist_ok=True)
    row = f'{{"sensor": "a", "value": 1.0, "ts": "2024-01-01T00:{minute:02}:00Z"}}\n'
    partial = folder / f".{minute:02}"
    partial.write_text(row)
    partial.rename(folder / f"{minute:02}.json")


def await_arrival(shared: Settings, number: int) -> None:
    deadline = time.monotonic() + 60
    while Snapshot(shared).newest_arrival(SOURCE) != number:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_ingest_of_a_killed_machine_is_taken_over(shared: Settings, tmp_path: Path) -> None:
    land(shared, 0)
    with machine(shared, tmp_path, "one", "ingest", SOURCE, "--follow") as first:
        await_arrival(shared, 0)
        assert is_ingesting(shared, SOURCE)
        messages = refusal(shared, tmp_path, "two", "ingest", SOURCE)
        assert f"being ingested already, by process {first.pid} on one" in messages
    assert is_ingesting(shared, SOURCE), "its lease has not ended yet"
    land(shared, 1)
    began = time.monotonic()
    with machine(shared, tmp_path, "three", "ingest", SOURCE, "--follow") as third:
        await_arrival(shared, 1)
        assert time.monotonic() - began < 60
        (command,) = foreground.list_commands(shared)
        assert (command.kind, command.runs) == (INGEST, True)
        third.terminate()
        _, messages = third.communicate(timeout=60)
        assert f"process {first.pid} on one may still work on '{SOURCE}'" in messages
    assert foreground.list_commands(shared) == []
    assert not is_ingesting(shared, SOURCE)


def test_a_stream_of_a_killed_machine_is_taken_over(shared: Settings, tmp_path: Path) -> None:
    assert call("ingest", SOURCE).exit_code == 0
    runs = list[str]()
    for name in ("one", "two"):
        with machine(shared, tmp_path, name, "stream", ASSET) as process:
            assert process.stderr is not None
            began = time.monotonic()
            assert any(line.startswith("arrivals") for line in process.stderr)
            assert time.monotonic() - began < 60
            runs.append(queries.find_running(shared, [ASSET])[ASSET].run)
            messages = refusal(shared, tmp_path, "three", "stream", ASSET)
            assert "already running" in messages
    assert runs[0] != runs[1]
    (command,) = foreground.list_commands(shared)
    assert (command.kind, command.name) == (STREAM, ASSET)
    assert call("stream", ASSET, "--stop").exit_code == 0
    assert foreground.list_commands(shared) == []
