"""Files and databases that are created before services start, and in the background."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from helpers.processes.ending import left
from tidemark.base.errors import EngineError
from tidemark.base.settings import Settings
from tidemark.engine import ManagedProcess
from tidemark.engine.launch import archive, jars
from tidemark.engine.launch.java import find_java
from tidemark.engine.ports import free_port
from tidemark_streaming.home import services


@pytest.mark.parametrize("wanted", [False, True])
def test_no_archive_is_built_if_disabled_or_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    if wanted:
        monkeypatch.setattr(archive, "archive_options", lambda *_: ["-XX:SharedArchiveFile=here"])
    assert not services.make_archive(Settings(home=tmp_path, engine_archive=wanted))
    assert not (tmp_path / "logs" / "archive.log").exists()


# Only `make test-nightly` builds the archive.
@pytest.mark.nightly
@pytest.mark.slow
def test_the_archive_is_built_by_a_process_that_checks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have built it in the meantime; then nothing is left to do."""
    if not archive.archive_options(find_java(), jars.class_path(find_java())):
        pytest.skip("no archive of the engine's classes was made here: `make archive`")
    monkeypatch.setattr(archive, "archive_options", lambda *_: [])
    settings = Settings(home=tmp_path, engine_archive=True)
    assert services.make_archive(settings)
    made = services.find_service(settings, "archive")
    record = made.read_record()
    assert record is not None
    with suppress(psutil.NoSuchProcess):
        assert left([psutil.Process(record.pid)]) == []
    assert made.log.read_text() == ""


def _tables(database: Path) -> set[str]:
    with closing(sqlite3.connect(database)) as open_:
        return {name for (name,) in open_.execute("SELECT name FROM sqlite_master")}


def test_shared_databases_are_created_before_the_services_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two services that create them concurrently see incomplete tables."""
    found: list[tuple[str, set[str]]] = []

    def start(self: ManagedProcess, _: Sequence[str], *__: object) -> None:
        folder = tmp_path / "dagster"
        found.append((self.name, _tables(folder / "history" / "runs.db")))
        assert "event_logs" in _tables(folder / "history" / "runs" / "index.db")
        assert "job_ticks" in _tables(folder / "schedules" / "schedules.db")

    monkeypatch.setattr(ManagedProcess, "start", start)
    settings = Settings(home=tmp_path, webserver_port=free_port())
    services.start_orchestrator(settings, tmp_path / "workspace.yaml")
    assert [name for name, _ in found] == ["webserver", "daemon"]
    assert all("runs" in tables for _, tables in found)


# Starts Dagster's processes.
@pytest.mark.slow
def test_a_killed_daemon_is_restarted_and_the_web_interface_keeps_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    settings = Settings(webserver_port=free_port())
    monkeypatch.setenv("TIDEMARK_WEBSERVER_PORT", str(settings.webserver_port))
    workspace = tmp_path / "workspace.yaml"
    workspace.write_text("load_from: []\n")
    names = ("webserver", "daemon")
    try:
        services.start_orchestrator(settings, workspace)
        started = {name: services.find_service(settings, name).find_running() for name in names}
        assert started["daemon"] is not None
        daemon = psutil.Process(started["daemon"].pid)
        daemon.kill()
        assert left([daemon]) == []
        services.start_orchestrator(settings, workspace)
        for name in names:
            services.await_ready(settings, name)
        assert services.find_service(settings, "webserver").find_running() == started["webserver"]
        restarted = services.find_service(settings, "daemon").find_running()
        assert restarted is not None
        assert restarted.pid != daemon.pid
    finally:
        for name in names:
            services.find_service(settings, name).stop()


def test_databases_that_cannot_be_created_are_reported(tmp_path: Path) -> None:
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text("nonsense: true\n")
    settings = Settings(home=tmp_path, webserver_port=free_port())
    with pytest.raises(EngineError, match=r"Dagster's databases .* can't be created: .*nonsense"):
        services.start_orchestrator(settings, tmp_path / "workspace.yaml")
    assert services.find_service(settings, "webserver").find_running() is None
