"""Manage a background process that outlives the command which started it.

A file `pids/<name>.json` in the home records the pid and the identity (`process_identity`) of the
background process. A later process with the same pid is therefore not mistaken for that process.
"""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import psutil

from tidemark.base.errors import EngineError
from tidemark.base.files import atomic
from tidemark.base.files.private import make_folder
from tidemark.engine import masking

STARTED_AS = "TIDEMARK_STARTED_AS"
"""A variable in the environment of each managed process: the path of its record."""

_STARTED = 19
"""Index of the start time (in clock ticks since boot) among the fields of `/proc/<pid>/stat` that
follow the process name.
"""

_FAILURE = re.compile(r"(?=\S).*\w(Exception|Error)\b")
"""Matches an unindented line of output that names an exception of Java or Python."""

_INDENTED = re.compile(r"\s")

_FRAME = re.compile(r"\s*(at |\.\.\. \d+ more)")
"""Matches a line of a Java stack trace."""

_KILL_SECONDS = 10
"""The time in which a killed process must exit."""

_LONGEST = 300
"""Characters that a summary keeps of a line of output."""

_DEFAULTED = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM)
"""Signals whose default action is restored for a managed process, even if its parent ignores them.
"""

ProgressCallback = Callable[[str], None]
"""A callback for one line of progress."""


def ignore_progress(line: str) -> None:
    """Ignore a line of progress."""


@dataclass(frozen=True)
class Record:
    """The record by which later commands find and stop a background process.

    Args:
        group: the process group, which receives the signals that stop the process.
        began: the start time, in seconds since 1970, by the wall clock at that time.
        birth: the `process_identity`, which distinguishes the process from other processes with the
            same pid.
        port: the port on which the process listens.
    """

    pid: int
    group: int
    began: float
    birth: str
    port: int


class ManagedProcess:
    """One background process of a home, identified by its name.

    The output of the process goes to `logs/<name>.log`. When the process is started again, that log
    is renamed to `logs/<name>.previous.log`.
    """

    def __init__(self, home: Path, name: str) -> None:
        self.name = name
        self.log = home / "logs" / f"{name}.log"
        self._file = home / "pids" / f"{name}.json"

    def start(
        self,
        command: Sequence[str],
        port: int,
        env: Mapping[str, str],
        folder: Path,
        *,
        masked: str | None = None,
    ) -> Record:
        """Start the process in a new session, so that no terminal or parent process ends it.

        Args:
            port: the port on which the process will listen, for its record.
            folder: the working folder of the process.
            masked: the name of a variable in `env` whose value is masked in the log.

        Raises:
            EngineError: the process exited immediately.
        """
        for parent in (self.log.parent, self._file.parent):
            make_folder(parent)
        if self.log.exists():
            self.log.replace(self.log.with_name(f"{self.name}.previous.log"))
        # The shell exits at once. The managed process is then not a child of the current process,
        # and leaves no zombie.
        script = 'exec 2>>"$0" </dev/null; "$@" >>"$0" & echo $!'
        arguments = [str(self.log.resolve()), str(folder)]
        if masked is not None:
            script = (
                'exec 3>&1 2>>"$0" </dev/null; name=$1 python=$2 mask=$3; shift 3; '
                '{ "$@" 3>&- 2>&1 & echo $! >&3; } | "$python" "$mask" "$name" >>"$0" 3>&- &'
            )
            arguments += [masked, sys.executable, masking.__file__]
        arguments += command
        script = f'cd "$1" || exit; shift; {script}'
        with self.log.open("a"):
            group, output = _run_in_new_session(
                ["/bin/sh", "-c", script, *arguments],
                {**env, STARTED_AS: str(self._file.resolve())},
            )
        pid = int(output)
        try:
            began = psutil.Process(pid).create_time()
            record = Record(pid, group, began, process_identity(pid), port)
        except psutil.NoSuchProcess:
            _await_end(group)
            raise EngineError(f"{self.name} exited immediately: {self.last_log_lines()}") from None
        atomic.write_atomically(self._file, json.dumps(asdict(record)))
        return record

    def find_running(self) -> Record | None:
        """Return the record of the process if the process is alive, else None."""
        record = self.read_record()
        if record is not None and _find_process(record) is not None:
            return record
        return None

    def find_running_at(self, port: int, title: str, setting: str, stopper: str) -> Record | None:
        """Return the record of the process if the process is alive, else None.

        Args:
            port: the port that the settings now specify for the process.
            title: the name of the process in messages.
            setting: the name of the setting that specifies the port.
            stopper: the command that stops the process.

        Raises:
            EngineError: the process is alive, but was started with another port.
        """
        record = self.find_running()
        if record is not None and record.port != port:
            home = self.log.parents[1]
            raise EngineError(
                f"The {title} of {home} runs on port {record.port}, but {setting} "
                f"(TIDEMARK_{setting.upper()}) is {port}: stop it with `{stopper}`, or set "
                f"{setting} to {record.port}."
            )
        return record

    def await_ready(self, title: str, ready: Callable[[], bool], deadline: float) -> None:
        """Wait until the process is ready.

        Args:
            title: the name of the process in messages.
            ready: a function that returns whether the process is ready.
            deadline: seconds within which the process must be ready.

        Raises:
            EngineError: the process exited, or was not ready within the deadline.
        """
        begun = time.monotonic()
        while not ready():
            problem = None
            if self.find_running() is None:
                problem = "exited while it was starting"
            elif time.monotonic() - begun > deadline:
                problem = f"was not ready within {deadline:.0f} seconds"
            if problem is not None:
                raise EngineError(f"The {title} {problem}: {self.last_log_lines()}", retriable=True)
            time.sleep(0.1)

    def read_record(self) -> Record | None:
        """Return the record of the process, even if the process has died.

        Return None if the process was never started, or was stopped by `stop`.
        """
        try:
            return Record(**json.loads(self._file.read_text()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, TypeError):
            # A power cut may leave a truncated file, which names no process.
            return None

    def stop(self, deadline: float = 30) -> bool:
        """Stop the process and its process group. Return False if the process was not running.

        Args:
            deadline: seconds after which the process group is killed.

        Raises:
            EngineError: the process still exists `_KILL_SECONDS` after it was killed.
        """
        record = self.find_running()
        if record is not None:
            _signal_group(record.group, signal.SIGTERM)
            if not _wait_until(lambda: _find_process(record) is None, deadline):
                _signal_group(record.group, signal.SIGKILL)
                if not _wait_until(lambda: _find_process(record) is None, _KILL_SECONDS):
                    raise EngineError(
                        f"{self.name}, process {record.pid}, was killed, but has not exited within "
                        f"{_KILL_SECONDS} seconds: it waits for a disk or network. Try again when "
                        "that responds.",
                        retriable=True,
                    )
        self._file.unlink(missing_ok=True)
        return record is not None

    def kill_orphans(self) -> None:
        """Kill the children of a process that has died. They might wait for it for minutes."""
        record = self.read_record()
        if record is None or _find_process(record) is not None:
            return
        # Most of them end with it.
        _await_end(record.group)
        for process in psutil.process_iter():
            with suppress(ProcessLookupError, psutil.NoSuchProcess, psutil.AccessDenied):
                # Another process group may have the same number by now.
                in_group = os.getpgid(process.pid) == record.group
                if in_group and process.environ().get(STARTED_AS) == str(self._file.resolve()):
                    process.kill()

    def last_log_lines(self) -> str:
        """Return the log lines that best explain why the process exited, and the log's path."""
        record = self.read_record()
        if record is not None:
            _await_end(record.group)
        return f"{summarize_output(_read_tail(self.log))} (log: {self.log})"


def summarize_output(lines: Iterable[str]) -> str:
    """Return the lines of a program's output that best explain why it failed, without a final
    period.
    """
    messages = [line for line in lines if line.strip() and not _FRAME.match(line)]
    failures = [index for index, line in enumerate(messages) if _FAILURE.match(line)]
    if not failures:
        relevant = messages[-3:]
    else:
        # The message of an exception continues in the indented lines after it.
        details = takewhile(_INDENTED.match, messages[failures[-1] + 1 :])
        relevant = [messages[failures[-1]], *islice(details, 2)]
    return " / ".join(line.strip()[:_LONGEST] for line in relevant).rstrip(".") or "no output"


def process_identity(pid: int) -> str:
    """Return an identifier that no other process with the same pid has.

    On Linux, the identifier does not change when the machine's clock is set. The start time that
    psutil reports would change.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # The process has exited, or the system is not Linux.
        return str(psutil.Process(pid).create_time())
    # The second field, the name, is in parentheses and may contain any characters.
    return f"{boot} {stat.rpartition(')')[2].split()[_STARTED]}"


def has_exited(process: psutil.Process) -> bool:
    """Return whether a process and all its threads have exited.

    A zombie counts as exited if it has no other threads that still run. The pid of a zombie stays
    in use until its parent, usually process 1, reaps it. Some parents reap only now and then, and
    in a container, process 1 may never reap zombies.
    """
    try:
        zombie = process.status() == psutil.STATUS_ZOMBIE
        return not process.is_running() or (zombie and process.num_threads() <= 1)
    except psutil.NoSuchProcess:
        return True


def _run_in_new_session(command: list[str], env: Mapping[str, str]) -> tuple[int, bytes]:
    """Run a command that exits at once. Return its pid and its output.

    The command and its children react to signals as usual. With `subprocess`, they would ignore
    signals that this process ignores, for example because of a library.
    """
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as output:
        try:
            file_actions: list[Any] = [
                (os.POSIX_SPAWN_CLOSE, file) for file in _inheritable_files()
            ]
            file_actions.append((os.POSIX_SPAWN_DUP2, writer, 1))
            pid = os.posix_spawn(
                command[0],
                command,
                env,
                file_actions=file_actions,
                setsid=True,
                setsigmask=(),
                setsigdef=_DEFAULTED,
            )
        finally:
            os.close(writer)
        text = output.read()
    os.waitpid(pid, 0)
    return pid, text


def _inheritable_files() -> Iterator[int]:
    for entry in Path("/dev/fd").iterdir():
        file = int(entry.name)
        # The descriptor with which the folder was listed is closed by now.
        with suppress(OSError):
            if file > 2 and os.get_inheritable(file):
                yield file


def _find_process(record: Record) -> psutil.Process | None:
    try:
        process = psutil.Process(record.pid)
        same = process_identity(record.pid) == record.birth
        if same and not has_exited(process):
            return process
        return None
    except psutil.NoSuchProcess:
        return None


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _await_end(group: int) -> None:
    """Wait up to two seconds until a process group has exited, so that its log is complete.

    A process that masks the output belongs to the group, and may still be copying it.
    """
    _wait_until(lambda: not _has_running(group), 2)


def _has_running(group: int) -> bool:
    for process in psutil.process_iter():
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and not has_exited(process):
                return True
    return False


def _wait_until(ended: Callable[[], bool], deadline: float) -> bool:
    begun = time.monotonic()
    while not (has_ended := ended()) and time.monotonic() - begun < deadline:
        time.sleep(0.02)
    return has_ended


def _read_tail(file: Path) -> list[str]:
    if not file.exists():
        return []
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - 20_000))
        return stream.read().decode(errors="replace").splitlines()
