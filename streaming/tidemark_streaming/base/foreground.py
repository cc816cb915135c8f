"""Long-running commands: record which should run, and find those that ended unexpectedly.

`tidemark stream`, `tidemark ingest --follow`, `tidemark sink --follow` and the commands of extras
run in a terminal or under a service manager. Each command has a record in the warehouse
(`store.workers`). Its wish exists for as long as the command should run, and its owner is the
process that runs it. A command that is stopped on purpose withdraws the wish. A wish without an
owner means that the command was killed, or ended with an error, which is in the record.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from tidemark.base.errors import TidemarkError
from tidemark.base.settings import Settings
from tidemark.store.workers.hold import Hold, OwnedElsewhereError, hold_work, is_free
from tidemark.store.workers.record import WorkerRecord
from tidemark.store.workers.record_store import COMMAND, WorkerRecords, records_of

STREAM, INGEST, SINK = "stream", "ingest", "sink"


@dataclass(frozen=True)
class Command:
    """A long-running command that should run, such as `ingest --follow`, as its record shows it.

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


@dataclass(frozen=True)
class _Report:
    """The report of a command about itself, see `Command`."""

    error: str | None = None
    restarts: int = 0


class Entry:
    """Writes the record of a running command, in which other processes see its state.

    Args:
        hold: the command's hold on its record. None if another process with a command of the same
            kind and name has the record, or if it can't be written: nothing is recorded then.
    """

    def __init__(self, hold: Hold | None) -> None:
        self._held = hold
        self._report = _Report()

    def record_wish(self, wish: Mapping[str, Any]) -> None:
        """Record that the command should run."""
        self._change_record(lambda record: replace(record, wish=wish, report={}))

    def mark_waiting(self, error: Exception) -> None:
        """Record the error after which the command waits and retries, or that ends the command."""
        message = next(iter(str(error).splitlines()), type(error).__name__)
        self._write_report(replace(self._report, error=message))

    def mark_healthy(self, *, is_restart: bool = False) -> None:
        """Record that the command is healthy. If `is_restart` is true, count a restart of its
        query."""
        self._write_report(_Report(restarts=self._report.restarts + is_restart))

    def withdraw_wish(self) -> None:
        """Record that the command should not run any more."""
        self._change_record(lambda record: replace(record, wish=None, report={}))

    def _write_report(self, report: _Report) -> None:
        if report != self._report:
            self._report = report
            self._change_record(lambda record: replace(record, report=asdict(report)))

    def _change_record(self, change: Callable[[WorkerRecord], WorkerRecord]) -> None:
        if self._held is not None:
            # A warehouse that can't be written must not end a command here.
            with suppress(TidemarkError):
                self._held.change_record(change)


@contextmanager
def record_running(
    settings: Settings, kind: str, name: str, assets: tuple[str, ...] = ()
) -> Iterator[Entry]:
    """Record a command as running for the duration of the block.

    An interrupt or the end of the block counts as an intended end; an error does not. If another
    machine may still run the command, wait until that is known.
    """
    wish = {"since": time.time_ns() // 1000, "assets": assets}
    with _try_hold(records_of(settings), kind, name) as hold:
        entry = Entry(hold)
        entry.record_wish(wish)
        try:
            yield entry
        except KeyboardInterrupt:
            entry.withdraw_wish()
            raise
        except Exception as error:
            entry.mark_waiting(error)
            raise
        entry.withdraw_wish()


def forget_command(settings: Settings, kind: str, name: str) -> bool:
    """Withdraw the wish for a command, so that it is no longer expected to run. Return False if it
    was not expected.

    Its process may still run: whether a process on another machine was killed may not be known yet.
    """
    was_expected = False

    def withdraw_record(record: WorkerRecord) -> WorkerRecord:
        nonlocal was_expected
        was_expected = record.wish is not None
        return replace(record, wish=None, report={})

    records_of(settings).change_record(f"{COMMAND}{kind}", name, withdraw_record)
    return was_expected


def list_commands(settings: Settings) -> list[Command]:
    """Return the commands that should run, for the database in the settings."""
    records = records_of(settings).list_records(COMMAND)
    return [command for record in records if (command := _read_command(record)) is not None]


def _read_command(record: WorkerRecord) -> Command | None:
    if record.wish is None:
        return None
    return Command(
        kind=record.kind.removeprefix(COMMAND),
        name=record.name,
        since=record.wish["since"],
        assets=tuple(record.wish["assets"]),
        runs=not is_free(record),
        **record.report,
    )


@contextmanager
def _try_hold(records: WorkerRecords, kind: str, name: str) -> Iterator[Hold | None]:
    """Hold the record of a command for the duration of a `with` block. Yield None if this process
    can't have it."""
    with ExitStack() as stack:
        hold: Hold | None = None
        with suppress(OwnedElsewhereError, TidemarkError):
            hold = stack.enter_context(hold_work(records, f"{COMMAND}{kind}", name))
        yield hold
