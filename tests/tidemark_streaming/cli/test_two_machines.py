"""Commands on two machines with their own homes, which share an engine and a warehouse."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.processes.commands import call
from helpers.processes.machines import PER_MINUTE as ASSET
from helpers.processes.machines import READINGS as SOURCE
from helpers.processes.machines import land_reading, machine, readings_domain
from tidemark.base.settings import Settings
from tidemark_streaming.base import foreground
from tidemark_streaming.base.foreground import INGEST, STREAM
from tidemark_streaming.ingest.ingest_record import is_ingesting
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.streams import queries

# Starts streams and ingests, kills them, and waits until their leases end.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shared")]


@pytest.fixture(scope="module")
def shared(here: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Yield the settings of a home whose engine and warehouse the machines use."""
    with readings_domain(tmp_path_factory.mktemp("domain")):
        yield here


def refusal(shared: Settings, tmp_path: Path, name: str, *arguments: str) -> str:
    """Return the error message of a command that another machine's command excludes."""
    with machine(shared, tmp_path, name, *arguments) as process:
        _, messages = process.communicate(timeout=120)
    assert process.returncode == 2, messages
    return messages


def await_arrival(shared: Settings, number: int) -> None:
    deadline = time.monotonic() + 60
    while Snapshot(shared).newest_arrival(SOURCE) != number:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_an_ingest_of_a_killed_machine_is_taken_over(shared: Settings, tmp_path: Path) -> None:
    land_reading(shared, 0, "a")
    with machine(shared, tmp_path, "one", "ingest", SOURCE, "--follow") as first:
        await_arrival(shared, 0)
        assert is_ingesting(shared, SOURCE)
        messages = refusal(shared, tmp_path, "two", "ingest", SOURCE)
        assert f"being ingested already, by process {first.pid} on one" in messages
    assert is_ingesting(shared, SOURCE), "its lease has not ended yet"
    land_reading(shared, 1, "a")
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
