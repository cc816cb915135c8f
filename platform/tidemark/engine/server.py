"""Run the embedded engine: one Spark Connect server per home, started on demand.

The server listens only on 127.0.0.1, and accepts only requests with the home's token. Any process
of a home may call `ensure_engine` at any time. Concurrent calls start only one server, and a call
restarts a server that has died. Tables and metastore are outside the server, in the home, so that
a new server has the same tables.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from tidemark.base.errors import EngineError
from tidemark.base.files.private import make_folder, open_lock
from tidemark.base.instants import is_wait_over
from tidemark.base.settings import Settings
from tidemark.engine.connect import engine_address, import_client, reach_engine
from tidemark.engine.launch import archive, jars
from tidemark.engine.launch import command as launch
from tidemark.engine.launch.java import find_java
from tidemark.engine.ports import check_free, is_listening
from tidemark.engine.probe import Answer, demand_still_ready, probe_engine
from tidemark.engine.process import ManagedProcess, ProgressCallback, ignore_progress
from tidemark.engine.token import token_of

_START_DEADLINE = 180.0
"""Seconds within which a started server must answer for the first time."""

HUNG_DEADLINE = 30.0
"""Seconds after which a live server that does not answer is considered hung, and is stopped."""


@dataclass(frozen=True)
class Status:
    """The address of the engine, whether it answers, and the process in which it runs.

    Args:
        address: the engine's address, without a token.
        embedded: true if Tidemark starts the engine, because the setting `remote` names none.
        answer: the result of a probe of the engine.
        pid, since, memory: the process ID, start time and resident memory (in bytes) of the
            embedded engine; None if it is not running.
        log: the log file of the embedded engine; None for another engine.
        pages: the address of Spark's web UI, if the UI is on.
        event_log: the folder of Spark's event log, if Spark writes one.
    """

    address: str
    embedded: bool
    answer: Answer
    pid: int | None = None
    since: datetime | None = None
    memory: int | None = None
    log: Path | None = None
    pages: str | None = None
    event_log: Path | None = None


def ensure_engine(
    settings: Settings,
    on_progress: ProgressCallback = ignore_progress,
    while_starting: Callable[[], None] | None = None,
    tasks: int | None = None,
) -> str:
    """Return the address of an engine that answers, including the token if one is required.

    Start the embedded engine if necessary.

    Args:
        on_progress: a function that is called with lines of progress if a server must be started.
        while_starting: work that the caller needs anyway and that can run while a server starts,
            such as slow imports. This function is not called if a server is already running.
        tasks: the number of concurrent tasks of a new server; the default is one for each
            processor.

    Raises:
        EngineError: the engine can't be started or reached.
        EngineLostError: the engine has answered, and then no more.
    """
    if settings.is_remote:
        return reach_engine(settings)
    with _explain_unwritable_home(settings):
        url = engine_address(settings)
    managed = managed_of(settings)
    if _runs_here(managed, settings) and probe_engine(url) is Answer.READY:
        return url
    with _hold_lock(settings, on_progress):
        if _runs_here(managed, settings):
            _adopt_server(managed, url, on_progress)
        if managed.find_running() is None:
            if managed.read_record() is not None:
                on_progress("The engine died: restarting it")
            _start_server(managed, url, settings, on_progress, while_starting, tasks)
    return url


def stop_engine(settings: Settings, deadline: float = 30) -> bool:
    """Stop the embedded engine. Return False if it was not running.

    Args:
        deadline: seconds after which the engine is killed.
    """
    if not settings.home.is_dir():
        return False
    managed = managed_of(settings)
    with _hold_lock(settings, ignore_progress):
        managed.kill_orphans()
        return managed.stop(deadline)


def read_status(settings: Settings) -> Status:
    """Return the engine's current state, without starting the engine."""
    managed = managed_of(settings)
    shown = settings.engine_address
    if settings.remote is not None:
        return Status(shown, False, probe_engine(engine_address(settings)))
    record = managed.find_running()
    port = settings.engine_ui_port
    logged = settings.engine_event_log
    if record is None:
        return Status(shown, True, Answer.SILENT, log=managed.log, event_log=logged)
    return Status(
        address=f"sc://localhost:{record.port}",
        embedded=True,
        answer=probe_engine(f"sc://localhost:{record.port}/;token={token_of(settings)}"),
        pid=record.pid,
        since=datetime.fromtimestamp(record.began, UTC),
        memory=psutil.Process(record.pid).memory_info().rss,
        log=managed.log,
        # The setting may have changed since the engine was started.
        pages=f"http://127.0.0.1:{port}" if port and is_listening(port) else None,
        event_log=logged,
    )


def _start_server(
    managed: ManagedProcess,
    url: str,
    settings: Settings,
    on_progress: ProgressCallback,
    while_starting: Callable[[], None] | None,
    tasks: int | None,
) -> None:
    """Start a server, and wait until it answers. If it exits before, start it once more.

    Something may have killed the first server, for example the system when memory was scarce. If
    the second one exits, too, its log says why.
    """
    for may_exit in (True, False):
        with _explain_unwritable_home(settings):
            _launch_server(managed, settings, on_progress, tasks)
        begun = time.monotonic()
        import_client()
        if while_starting is not None:
            while_starting()
            while_starting = None
        if _await_server(managed, url, on_progress, begun, may_exit=may_exit):
            return
        on_progress("The engine exited while it was starting: starting it again")


def managed_of(settings: Settings) -> ManagedProcess:
    return ManagedProcess(settings.home, "engine")


def _runs_here(managed: ManagedProcess, settings: Settings) -> bool:
    port = settings.engine_port
    record = managed.find_running_at(port, "engine", "engine_port", "tidemark down")
    return record is not None


def _adopt_server(managed: ManagedProcess, url: str, on_progress: ProgressCallback) -> None:
    """Make a running server usable, or stop the server so that the caller starts another one.

    Wait for a server that is still starting: another process started it and was then killed. Stop a
    server that does not answer within `HUNG_DEADLINE`.
    """
    record = managed.find_running()
    if record is None:
        return
    if not (is_listening(record.port) or is_wait_over(_START_DEADLINE, record.began, time.time())):
        _await_server(managed, url, on_progress, time.monotonic(), may_exit=True)
    elif probe_engine(url, HUNG_DEADLINE) is Answer.SILENT:
        on_progress("The engine is running but does not answer: restarting it")
        managed.stop(deadline=5)
    else:
        demand_still_ready(url)


def _launch_server(
    managed: ManagedProcess, settings: Settings, on_progress: ProgressCallback, tasks: int | None
) -> None:
    port = settings.engine_port
    check_free(port, "engine_port")
    java = find_java()
    if settings.engine_ui_port is not None:
        check_free(settings.engine_ui_port, "engine_ui_port")
    more = jars.check_extra_jars(settings.engine_jars)
    paths = jars.class_path(java, settings.maven_repository)
    # Python workers of a killed server.
    managed.kill_orphans()
    scratch = settings.home / "scratch"
    # Leftovers of a killed server: shuffle files and Python workers' sockets.
    shutil.rmtree(scratch, ignore_errors=True)
    make_folder(scratch)
    make_folder(settings.home / "metastore")
    on_progress(
        f"Starting the Spark engine on 127.0.0.1:{port} with {settings.engine_memory} of memory"
    )
    # An archive is valid only for exactly the jars in `paths`, in this order.
    shared = list[str]()
    if not more:
        shared = archive.archive_options(java, paths)
    if settings.engine_event_log is not None:
        settings.engine_event_log.mkdir(parents=True, exist_ok=True)
    command = launch.start_command(settings, java, paths + more, scratch, shared, tasks)
    # When a worker of a Spark stream starts, it logs its address, which includes the token.
    environment = launch.server_environment(settings, scratch)
    managed.start(command, port, environment, scratch, masked=launch.TOKEN)


def _await_server(
    managed: ManagedProcess,
    url: str,
    on_progress: ProgressCallback,
    begun: float,
    *,
    may_exit: bool,
) -> bool:
    """Wait until a server that is starting answers. Return False if it exited.

    Args:
        begun: when the wait began, as `time.monotonic()`.
        may_exit: false to raise an error if the server exited.
    """
    try:
        managed.await_ready(
            "engine", lambda: probe_engine(url) is not Answer.SILENT, _START_DEADLINE
        )
    except EngineError:
        # A server that never answered would block the next start.
        if managed.find_running() is not None:
            managed.stop(deadline=5)
        elif may_exit:
            return False
        raise
    demand_still_ready(url)
    on_progress(f"The engine answers after {time.monotonic() - begun:.0f} seconds")
    return True


@contextmanager
def _hold_lock(settings: Settings, on_progress: ProgressCallback) -> Iterator[None]:
    """Hold the lock for starting or stopping the engine.

    If the process that holds the lock exits, the lock is released.
    """
    with _explain_unwritable_home(settings):
        lock = open_lock(make_folder(settings.home) / "engine.lock")
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_progress("Another process is starting or stopping the engine: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def _explain_unwritable_home(settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise EngineError(
            f"Tidemark can't write in its home {settings.home} ({error.strerror or error}): make "
            "that folder writable, or set TIDEMARK_HOME to another folder."
        ) from None
