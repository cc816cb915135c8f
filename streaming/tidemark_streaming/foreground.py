"""Commands that go on in a terminal, or under whatever keeps services up: which run, and which have
ended although nobody ended them.

`tidemark stream`, `tidemark ingest --follow`, `tidemark emit --follow` and `tidemark lane` each
have a small file in the folder `foreground` of the home for as long as they should run, with a lock
beside it that ends with their process. Who ends one on purpose has it remove its file. So a file
whose lock nobody has is of a command that was killed, or ended with an error, which it tells.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tidemark.base import atomic, locks
from tidemark.base.private import make_folder, open_lock
from tidemark.base.settings import Settings

STREAM, INGEST, EMIT, LANE = "stream", "ingest", "emit", "lane"


@dataclass(frozen=True)
class Command:
    """A command that should run.

    Args:
        kind: `stream`, `ingest`, `emit` or `lane`.
        name: of its asset, source or lane.
        since: when it was started, in microseconds.
        assets: those that an ingest runs on what it brings in.
        error: what it waits for, or why it ended; None where all is well, and of one that was
            killed.
        restarts: how often it has started its query again.
        runs: whether its process is there.
    """

    kind: str
    name: str
    since: int
    assets: tuple[str, ...] = ()
    error: str | None = None
    restarts: int = 0
    runs: bool = True


class Entry:
    """The file of a command that runs.

    Args:
        path: where it is; None where another process of the same kind and name has its lock.
    """

    def __init__(self, path: Path | None, command: Command) -> None:
        self._path = path
        self._command = command
        self._write()

    def waits(self, error: Exception) -> None:
        """It waits until an error has passed, or ends with it."""
        said = next(iter(str(error).splitlines()), type(error).__name__)
        self._tell(replace(self._command, error=said))

    def goes_on(self, *, again: bool = False) -> None:
        """All is well; `again` where its query was started anew for that."""
        restarts = self._command.restarts + again
        self._tell(replace(self._command, error=None, restarts=restarts))

    def remove(self) -> None:
        """It should run no more."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()

    def _tell(self, command: Command) -> None:
        if command != self._command:
            self._command = command
            self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        told = asdict(self._command)
        del told["runs"]
        # A home that can't be written ends no command.
        with suppress(OSError):
            atomic.write(self._path, json.dumps(told))


@contextmanager
def running(
    settings: Settings, kind: str, name: str, assets: tuple[str, ...] = ()
) -> Iterator[Entry]:
    """A command runs for as long as the block does. An interrupt ends it on purpose, and so does
    its own end; an error does not."""
    path, command = _file(settings, kind, name), Command(kind, name, _now(), assets)
    with _locked(path) as own:
        entry = Entry(path if own else None, command)
        try:
            yield entry
        except KeyboardInterrupt:
            entry.remove()
            raise
        except Exception as error:
            entry.waits(error)
            raise
        entry.remove()


def forget(settings: Settings, kind: str, name: str) -> bool:
    """Let a command that has ended be expected no more; False where none was."""
    path = _file(settings, kind, name)
    if locks.held(_lock(path)) or not path.exists():
        return False
    path.unlink(missing_ok=True)
    return True


def commands(settings: Settings) -> list[Command]:
    """The commands that should run, of the settings' database."""
    found = list[Command]()
    for file in sorted(_folder(settings).glob("[!.]*.json")):
        # Whether it runs is looked at first: one that ends on purpose removes its file before.
        runs = locks.held(_lock(file))
        try:
            told: dict[str, Any] = json.loads(file.read_text())
        except FileNotFoundError:
            continue
        told |= {"assets": tuple(told["assets"]), "runs": runs}
        found.append(Command(**told))
    return found


@contextmanager
def _locked(file: Path) -> Iterator[bool]:
    """Whether this process has the lock beside a file, which it then has for the block."""
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


def _now() -> int:
    return time.time_ns() // 1000


def _folder(settings: Settings) -> Path:
    return settings.home / "foreground" / settings.database


def _file(settings: Settings, kind: str, name: str) -> Path:
    return _folder(settings) / f"{kind}_{name}.json"


def _lock(file: Path) -> Path:
    return file.with_name(f".{file.stem}.lock")
