"""Tests of background processes: how they are found, distinguished from others, and stopped."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from helpers.processes.clocks import shift_clock
from helpers.processes.ending import left
from tidemark.base.errors import EngineError
from tidemark.engine.ports import check_free, free_port, is_listening
from tidemark.engine.process import ManagedProcess, Record, summarize_output

SLEEP = ("sleep", "60")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); "
    "time.sleep(60)",
)

SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of `prctl`: orphans become children of the process that calls it."""


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[ManagedProcess]:
    process = ManagedProcess(tmp_path, "sleeper")
    yield process
    process.stop(deadline=0)


def start(managed: ManagedProcess, command: tuple[str, ...], folder: Path) -> Record:
    return managed.start(command, port=1234, env=os.environ, folder=folder)


def wait_for(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_process_is_found_by_its_home(managed: ManagedProcess, tmp_path: Path) -> None:
    record = start(managed, SLEEP, tmp_path)
    assert ManagedProcess(tmp_path, "sleeper").find_running() == record
    assert record.port == 1234
    assert os.getsid(record.pid) != os.getsid(0)


def test_stopping_ends_a_process_and_removes_its_record(
    managed: ManagedProcess, tmp_path: Path
) -> None:
    pid = start(managed, SLEEP, tmp_path).pid
    assert ManagedProcess(tmp_path, "sleeper").stop() is True
    assert gone(pid)
    assert managed.read_record() is None
    assert managed.stop() is False


def test_stopping_ends_child_processes(managed: ManagedProcess, tmp_path: Path) -> None:
    record = start(managed, ("/bin/sh", "-c", "sleep 60 & wait"), tmp_path)
    wait_for(psutil.Process(record.pid).children)
    children = psutil.Process(record.pid).children()
    managed.stop()
    assert children
    assert left(children) == []


def test_orphans_of_a_killed_process_are_killed(managed: ManagedProcess, tmp_path: Path) -> None:
    command = ("sh", "-c", 'sleep 60 & echo "$!"; wait')
    record = start(managed, command, tmp_path)
    wait_for(lambda: managed.log.read_text())
    child = int(managed.log.read_text())
    managed.kill_orphans()
    assert not gone(child), "its parent lives"
    os.kill(record.pid, signal.SIGKILL)
    wait_for(lambda: managed.find_running() is None)
    managed.kill_orphans()
    wait_for(lambda: gone(child))
    assert gone(child)


def test_a_process_group_with_a_number_that_was_used_before_is_left_alone(
    managed: ManagedProcess, tmp_path: Path
) -> None:
    record = start(managed, SLEEP, tmp_path)
    os.kill(record.pid, signal.SIGKILL)
    wait_for(lambda: managed.find_running() is None)
    with subprocess.Popen(SLEEP, start_new_session=True) as other:
        changed = {**json.loads(managed._file.read_text()), "group": other.pid}
        managed._file.write_text(json.dumps(changed))
        managed.kill_orphans()
        assert other.poll() is None
        other.kill()


def test_a_process_that_survives_its_kill_is_reported_and_stays_known(
    managed: ManagedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = start(managed, SLEEP, tmp_path)
    monkeypatch.setattr("tidemark.engine.process._KILL_SECONDS", 0.2)
    with monkeypatch.context() as during:
        during.setattr("tidemark.engine.process._signal_group", lambda *_: None)
        with pytest.raises(EngineError, match=f"sleeper, process {record.pid}, was killed, but"):
            managed.stop(deadline=0.2)
    assert managed.find_running() == record
    assert managed.stop() is True


def test_a_process_that_ignores_sigterm_is_killed_after_the_deadline(
    managed: ManagedProcess, tmp_path: Path
) -> None:
    record = start(managed, STUBBORN, tmp_path)
    wait_for(lambda: "up" in managed.log.read_text())
    begun = time.monotonic()
    assert managed.stop(deadline=0.5) is True
    assert 0.5 <= time.monotonic() - begun < 25
    assert gone(record.pid)


@pytest.mark.parametrize(
    "parent",
    [
        # An orphan's PID stays in use forever in a container without an init process.
        f"ctypes.CDLL(None).prctl({SUBREAPER}, 1)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])",
    ],
    ids=["never reaps", "ignores signals", "blocks signals"],
)
def test_a_process_is_stopped_at_once_whatever_its_parent_does(tmp_path: Path, parent: str) -> None:
    script = (
        "import ctypes, os, signal, sys; from pathlib import Path; "
        "from tidemark.engine.process import ManagedProcess; "
        f"{parent}; "
        "managed = ManagedProcess(Path(sys.argv[1]), 'sleeper'); "
        "managed.start(('sleep', '60'), 1, os.environ, Path(sys.argv[1])); "
        "print(managed.stop(deadline=40))"
    )
    begun = time.monotonic()
    ran = subprocess.run(
        (sys.executable, "-c", script, tmp_path), capture_output=True, text=True, check=False
    )
    assert (ran.stdout, ran.stderr) == ("True\n", "")
    assert time.monotonic() - begun < 40


def test_a_process_inherits_no_open_file(managed: ManagedProcess, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        start(managed, SLEEP, tmp_path)
    finally:
        os.close(writer)
    with os.fdopen(reader) as pipe:
        # The pipe ends, because no process has its other end open.
        assert pipe.read() == ""


def test_a_killed_process_is_detected(managed: ManagedProcess, tmp_path: Path) -> None:
    record = start(managed, SLEEP, tmp_path)
    os.kill(record.pid, signal.SIGKILL)
    wait_for(lambda: managed.find_running() is None)
    assert managed.find_running() is None
    assert managed.read_record() == record


def test_a_pid_reused_by_another_process_is_left_alone(
    managed: ManagedProcess, tmp_path: Path
) -> None:
    stranger = ManagedProcess(tmp_path, "stranger")
    record = start(stranger, SLEEP, tmp_path)
    file = tmp_path / "pids" / "sleeper.json"
    file.write_text(json.dumps({**vars(record), "birth": "another"}))
    try:
        assert managed.find_running() is None
        assert managed.stop() is False
        assert stranger.find_running() == record
    finally:
        stranger.stop()


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_process_is_recognized_after_a_clock_change(
    managed: ManagedProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """A clock change moves the boot time that the system reports, and each process's start."""
    record = start(managed, SLEEP, tmp_path)
    shift_clock(monkeypatch, hours)
    assert abs(psutil.Process(record.pid).create_time() - record.began) > 3000
    assert managed.find_running() == record
    assert managed.stop() is True
    assert gone(record.pid)


def test_a_partially_written_pid_file_is_ignored(managed: ManagedProcess, tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    (tmp_path / "pids" / "sleeper.json").write_text('{"pid": 1')
    assert managed.find_running() is None


def test_the_previous_log_is_kept(managed: ManagedProcess, tmp_path: Path) -> None:
    for word in ("first", "second"):
        start(managed, ("/bin/sh", "-c", f"echo {word}; exec sleep 60"), tmp_path)
        wait_for(lambda word=word: word in managed.log.read_text())
        managed.stop()
    assert managed.log.read_text() == "second\n"
    assert managed.log.with_name("sleeper.previous.log").read_text() == "first\n"


def test_the_log_masks_secrets_and_loses_no_line(managed: ManagedProcess, tmp_path: Path) -> None:
    says = 'trap "echo bye $SECRET; exit" TERM; echo "at sc://here/;token=$SECRET"; sleep 60 & wait'
    env = {**os.environ, "SECRET": "s3cr-t_"}
    record = managed.start(("/bin/sh", "-c", says), 0, env, tmp_path, masked="SECRET")
    assert managed.find_running() == record
    wait_for(lambda: "token" in managed.log.read_text())
    assert managed.stop() is True
    wait_for(lambda: "bye" in managed.log.read_text())
    assert managed.log.read_text() == "at sc://here/;token=***\nbye ***\n"


def test_last_log_lines_returns_the_line_with_the_exception(
    managed: ManagedProcess, tmp_path: Path
) -> None:
    managed.log.parent.mkdir()
    managed.log.write_text("starting\njava.net.BindException: taken\nbye\n")
    assert managed.last_log_lines() == f"java.net.BindException: taken (log: {managed.log})"


def test_the_summary_of_an_output_is_the_line_with_the_error_of_python() -> None:
    output = ["Traceback (most recent call last):", "", "x.OperationalError: locked", "(see e3q8)"]
    assert summarize_output(output) == "x.OperationalError: locked"
    config = [
        "x.ConfigError: Errors in dagster.yaml.",
        "    Error 1: Unexpected 'nonsense'.",
        "done",
    ]
    assert summarize_output(config) == " / ".join(line.strip() for line in config[:2])[:-1]
    java = ["a.SparkException: lost", "\tat a.Main.run", "Caused by: b.BindException: taken"]
    assert summarize_output([*java, "\t... 12 more", "INFO bye"]) == java[-1]
    assert summarize_output(["at Main.java", "one", "two"]) == "one / two"
    heap = ["Error occurred during initialization of VM", "Too small maximum heap"]
    assert summarize_output(heap) == " / ".join(heap)
    assert summarize_output([]) == "no output"


def test_a_missing_program_is_named_in_the_last_log_lines(
    managed: ManagedProcess, tmp_path: Path
) -> None:
    with contextlib.suppress(EngineError):
        start(managed, ("/nowhere/program",), tmp_path)
    wait_for(lambda: managed.find_running() is None)
    assert "/nowhere/program: not found" in managed.last_log_lines()


def test_a_port_conflict_names_the_home_that_uses_the_port(tmp_path: Path) -> None:
    """A user who tried the demo would not know what "another program" is."""
    port, home = free_port(), tmp_path / "demo"
    engine = ManagedProcess(home, "engine")
    serving = ("-m", "http.server", str(port), "--bind", "127.0.0.1")
    engine.start((sys.executable, *serving), port, os.environ, tmp_path)
    try:
        wait_for(lambda: is_listening(port))
        with pytest.raises(EngineError, match="Tidemark's own engine of the home") as told:
            check_free(port, "engine_port")
    finally:
        engine.stop(deadline=0)
    assert f"home {home}: stop it with `TIDEMARK_HOME={home} tidemark down`" in str(told.value)
    other = pytest.raises(EngineError, match="another program: stop that program, or set engine")
    with socket.create_server(("127.0.0.1", port)), other:
        check_free(port, "engine_port")
