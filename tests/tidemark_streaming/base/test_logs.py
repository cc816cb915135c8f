"""Logs as JSON: each line on standard error of real commands is one object."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from helpers.data.landing import HEADER, SOURCE, clock, land, land_some
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.base.foreground import list_commands
from tidemark_streaming.home import services
from tidemark_streaming.home.orchestrator import daemon_command, webserver_command
from tidemark_streaming.snapshot.snapshot import Snapshot

TIDEMARK = str(Path(sys.executable).with_name("tidemark"))
Lines = list[dict[str, Any]]


@pytest.fixture
def home(engine: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return settings with their own database and the domain `watched`, for processes that log as
    JSON."""
    told = {
        "home": engine.home,
        "engine_port": engine.engine_port,
        "warehouse": engine.warehouse,
        "database": f"logged_{uuid4().hex[:12]}",
        "landing": str(tmp_path / "landing"),
        "domains": "watched",
        "watch_port": free_port(),
        "log_format": "json",
    }
    for name, value in told.items():
        monkeypatch.setenv(f"TIDEMARK_{name.upper()}", str(value))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
    (tmp_path / "landing").mkdir()
    return Settings()


def parsed(path: Path) -> Lines:
    """Return the lines of a log as objects with a time, a level, a logger and an event."""
    # The last line may be incomplete.
    lines = [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()]
    for line in lines:
        assert {"timestamp", "level", "logger", "event"} <= line.keys(), line
    return lines


@contextmanager
def running(path: Path, *arguments: str) -> Iterator[Callable[..., Lines]]:
    """Run a long-running command with its log in a file, and stop it like a service. Yield a
    function that waits for a number of events in the log."""
    with path.open("w") as log:
        process = subprocess.Popen(
            [TIDEMARK, *arguments], stderr=log, stdout=subprocess.DEVNULL, env=dict(os.environ)
        )

    def told(event: str, count: int = 1) -> Lines:
        deadline = time.monotonic() + 180
        while path.read_text().rpartition("\n")[0].count(f'"event": "{event}"') < count:
            assert process.poll() is None, path.read_text()
            assert time.monotonic() < deadline, path.read_text()
            time.sleep(0.2)
        return [line for line in parsed(path) if line["event"] == event]

    try:
        yield told
    finally:
        # Use SIGTERM: processes that a shell starts in the background may ignore interrupts.
        process.send_signal(signal.SIGTERM)
        process.wait(120)


# Starts processes that ingest and stream.
@pytest.mark.slow
def test_each_log_line_of_ingest_and_stream_is_an_object(home: Settings, tmp_path: Path) -> None:
    land_some(Path(home.landing) / SOURCE.name, 3)
    ingest_log, stream_log = tmp_path / "ingest.log", tmp_path / "stream.log"
    with ExitStack() as stack:
        following = running(ingest_log, "ingest", "sensors", "--follow")
        arrived = stack.enter_context(following)("arrived", 3)
        assert [line["arrival"] for line in arrived] == [0, 1, 2]
        assert (
            sum(line["events"] for line in arrived) == Snapshot(home).arrivals_of("sensors").events
        )
        stream = stack.enter_context(running(stream_log, "stream", "by_minute"))
        (ran,) = stream("ran")[:1]
        told = {(c.kind, c.name): c for c in list_commands(home)}
        assert told.keys() == {("ingest", "sensors"), ("stream", "by_minute")}
        assert all(c.runs and c.error is None for c in told.values())
    assert list_commands(home) == [], "who ends them on purpose expects them no more"
    (run,) = Snapshot(home).runs_after("by_minute", -1)[:1]
    assert (ran["asset"], ran["run"], ran["commit_number"]) == ("by_minute", run["run"], 0)
    assert (ran["from_arrival"], ran["through_arrival"]) == (-1, run["through_arrival"])
    assert sum(ran["steps"].values()) == pytest.approx(ran["seconds"])
    lines = [*parsed(ingest_log), *parsed(stream_log)]
    (letter,) = [line for line in lines if line["event"] == "dead letter"]
    assert letter["level"] == "warning"
    assert letter["arrival"] == 1
    assert letter["correlation_id"] == f"sensors:1:{letter['position']}"
    assert letter["reason"] == "The field 'at' is not a valid TIMESTAMP."
    said = ingest_log.read_text() + stream_log.read_text()
    assert "gibberish" not in said, "a value of a row"
    token = (home.home / "token").read_text().strip()
    assert token not in said


# Starts processes that ingest and run.
@pytest.mark.nightly
@pytest.mark.slow
def test_runs_of_an_ingest_are_logged_and_listed(
    home: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("ingest", "sensors", "--follow", "--run", "by_minute")
    land_some(Path(home.landing) / SOURCE.name, 3)
    with running(tmp_path / "log", *command) as told:
        (ran,) = told("ran")
    assert (ran["logger"], ran["asset"], ran["commit_number"]) == (
        "tidemark.ingest",
        "by_minute",
        0,
    )
    (run,) = Snapshot(home).runs_after("by_minute", -1)
    assert (ran["run"], ran["through_arrival"]) == (run["run"], run["through_arrival"])
    assert ran["on_time"] == run["on_time"] > 0
    # In text format, a run is one line.
    monkeypatch.setenv("TIDEMARK_LOG_FORMAT", "text")
    land(Path(home.landing) / SOURCE.name, "more.csv", f"{HEADER}{clock(500)},a,1\n", 500)
    with (tmp_path / "text").open("w") as log:
        process = subprocess.Popen([TIDEMARK, *command], stderr=log)
    try:
        deadline = time.monotonic() + 120
        while "by_minute through arrival 3 " not in (tmp_path / "text").read_text():
            assert process.poll() is None, (tmp_path / "text").read_text()
            assert time.monotonic() < deadline, (tmp_path / "text").read_text()
            time.sleep(0.2)
        (command,) = list_commands(home)
        assert (command.runs, command.assets) == (True, ("by_minute",))
    finally:
        process.kill()
        process.wait()
    (command,) = list_commands(home)
    assert (command.runs, command.error) == (False, None), "it was killed"


def test_a_user_error_is_an_object_too(home: Settings, tmp_path: Path) -> None:
    done = subprocess.run([TIDEMARK, "ingest", "nowhere", "--follow"], capture_output=True)
    (tmp_path / "log").write_bytes(done.stderr)
    (line,) = parsed(tmp_path / "log")
    assert (done.returncode, line["level"]) == (2, "error")
    assert "nowhere" in line["event"]


def test_the_live_pages_service_logs_objects_too(
    home: Settings, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    own = Settings()
    broken = Path(own.warehouse, own.database, "by_minute", "_delta_log")
    broken.mkdir(parents=True)
    (broken / "00000000000000000000.json").write_text("no commit\n")
    try:
        services.start_watch(own)
        services.await_ready(own, "watch")
    finally:
        services.find_service(own, "watch").stop()
    lines = parsed(services.find_service(own, "watch").log)
    assert lines[0]["event"] == "listening"
    assert lines[0]["port"] == own.watch_port
    (trouble,) = [line for line in lines if line["event"] == "can't be read"]
    assert (trouble["what"], trouble["level"]) == ("by_minute", "warning")


def test_dagsters_processes_get_the_json_log_format() -> None:
    for command in (daemon_command(Path("w"), "json"), webserver_command(Path("w"), 1, "json")):
        assert command[-2:] == ["--log-format", "json"]
    assert "--log-format" not in daemon_command(Path("w"))
