"""Long-running commands: record which should run, and find those that ended unexpectedly.

`tidemark stream`, `tidemark ingest --follow`, `tidemark sink --follow` and the commands of extras
run in a terminal or under a service manager. Each command has a small file in the folder
`foreground` of the home for as long as the command should run. A lock next to the file is released
when the process ends. A command that is stopped on purpose removes its file. If a file exists but
its lock is free, the command was killed, or it ended with an error, which is in the file.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tidemark.base.files import atomic, locks
from tidemark.base.files.private import make_folder, open_lock
from tidemark.base.settings import Settings

STREAM, INGEST, SINK = "stream", "ingest", "sink"


@dataclass(frozen=True)
class Command:
    """A command that should run.

    Args:
        kind: `stream`, `ingest`, `sink`, or the name of an extra.
        name: the name of the asset, source or pipeline that the command processes.
        since: the start time, in microseconds.
        assets: the assets that an ingest runs after each commit.
        error: the error after which the command waits and retries, or that ended it; None if the
            command is healthy or was killed.
        restarts: how often the command has restarted its query.
        runs: true if the process exists.
    """

    kind: str
    name: str
    since: int
    assets: tuple[str, ...] = ()
    error: str | None = None
    restarts: int = 0
    runs: bool = True


class Entry:
    """The file of a running command.

    Args:
        path: the path of the file. None if another process with a command of the same kind and name
            has the lock, or if the lock file can't be opened: nothing is recorded then.
    """

    def __init__(self, path: Path | None, command: Command) -> None:
        self._path = path
        self._command = command
        self._write()

    def mark_waiting(self, error: Exception) -> None:
        """Record the error after which the command waits and retries, or that ends the command."""
        message = next(iter(str(error).splitlines()), type(error).__name__)
        self._update(replace(self._command, error=message))

    def mark_healthy(self, *, again: bool = False) -> None:
        """Record that the command is healthy. If `again` is true, count a restart of its query."""
        restarts = self._command.restarts + again
        self._update(replace(self._command, error=None, restarts=restarts))

    def remove(self) -> None:
        """Record that the command should not run any more."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()

    def _update(self, command: Command) -> None:
        if command != self._command:
            self._command = command
            self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        values = asdict(self._command)
        del values["runs"]
        # A home that can't be written must not end a command.
        with suppress(OSError):
            atomic.write(self._path, json.dumps(values))


@contextmanager
def running(
    settings: Settings, kind: str, name: str, assets: tuple[str, ...] = ()
) -> Iterator[Entry]:
    """Record a command as running for the duration of the block.

    An interrupt or the end of the block counts as an intended end; an error does not.
    """
    path, command = _file(settings, kind, name), Command(kind, name, time.time_ns() // 1000, assets)
    with _try_lock(path) as own:
        entry = Entry(path if own else None, command)
        try:
            yield entry
        except KeyboardInterrupt:
            entry.remove()
            raise
        except Exception as error:
            entry.mark_waiting(error)
            raise
        entry.remove()


def forget(settings: Settings, kind: str, name: str) -> bool:
    """Delete the file of a command that has ended, so that it is no longer expected to run. Return
    False if the command still runs or has no file."""
    path = _file(settings, kind, name)
    if locks.is_locked(_lock(path)) or not path.exists():
        return False
    path.unlink(missing_ok=True)
    return True


def commands(settings: Settings) -> list[Command]:
    """Return the commands that should run, for the database in the settings."""
    found = list[Command]()
    for file in sorted(_folder(settings).glob("[!.]*.json")):
        # The lock is checked before the file is read: a command that ends on purpose removes its
        # file before it releases the lock.
        runs = locks.is_locked(_lock(file))
        try:
            values: dict[str, Any] = json.loads(file.read_text())
        except FileNotFoundError:
            continue
        values |= {"assets": tuple(values["assets"]), "runs": runs}
        found.append(Command(**values))
    return found


@contextmanager
def _try_lock(file: Path) -> Iterator[bool]:
    """Take the lock next to a file for the duration of a `with` block, without waiting. Yield
    whether this process has the lock."""
    try:
        make_folder(file.parent)
        handle = open_lock(_lock(file))
    except OSError:
        yield False
        return
    try:
        yield locks.take(handle)
    finally:
        os.close(handle)


def _folder(settings: Settings) -> Path:
    return settings.home / "foreground" / settings.database


def _file(settings: Settings, kind: str, name: str) -> Path:
    return _folder(settings) / f"{kind}_{name}.json"


def _lock(file: Path) -> Path:
    return file.with_name(f".{file.stem}.lock")
