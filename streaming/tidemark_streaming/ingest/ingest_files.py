"""The files of a source's ingest on this machine: lock, blocking error and last poll.

Only one ingest of a source runs at a time. Some errors require manual action: an incompatible
change of the source, records that were deleted, a file that was changed. Such an error blocks only
its own source, until another ingest of the source begins. The error is stored in a file, so that
monitoring sees it, no matter which process ingests.

Dagster's sensor of a source touches a file at each tick. Without this file, Tidemark's home would
not show whether the sensor is on.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidemark.base.errors import ConflictError, TidemarkError
from tidemark.base.files import locks
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.store.lock_files import lock_file, open_lock_file, read_note, write_note
from tidemark.store.operations import UnfinishedOperationError
from tidemark.store.upkeep.source_lock import wait_for_erasure
from tidemark.store.warehouse import Warehouse


@contextmanager
def lock_ingest(warehouse: Warehouse, source: Source) -> Iterator[None]:
    """Hold the ingest lock of a source for the duration of a `with` block, so that no other ingest
    of the source runs on this machine.

    If the source's events are being erased, wait. The lock is also released when the process ends,
    even if the process is killed.

    Raises:
        ConflictError: another process ingests the source.
    """
    wait_for_erasure(warehouse, source)
    handle = open_lock_file(warehouse, _file_name(source.name, "lock"))
    try:
        if not locks.take(handle):
            holder = read_note(handle) or "unknown"
            raise ConflictError(
                f"Source '{source.name}' is being ingested already, by process {holder}: wait "
                "until it ends, or stop it."
            )
        write_note(warehouse, handle, str(os.getpid()))
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def is_ingesting(settings: Settings, source: str) -> bool:
    """Return whether an ingest of a source runs on this machine at present."""
    return locks.is_locked(ingest_file(settings.warehouse, settings.database, source, "lock"))


def ingest_file(location: str, database: str, source: str, ending: str) -> Path:
    """Return the path of a file that the ingests of a source share on this machine, for example
    their lock. `lock_file` describes the folder of the file.

    Args:
        ending: the extension of the file, such as "lock".
    """
    return lock_file(location, database, _file_name(source, ending))


def _file_name(source: str, ending: str) -> str:
    return f".{source}_ingest.{ending}"


class Ingest:
    """An ingest that may also do other work, such as runs. Errors of other work do not block the
    source."""

    def __init__(self) -> None:
        self.other_error: TidemarkError | None = None

    @contextmanager
    def other_work(self) -> Iterator[None]:
        """Mark the work in a `with` block as other work than the ingest."""
        try:
            yield
        except TidemarkError as error:
            self.other_error = error
            raise


@contextmanager
def record_error(warehouse: Warehouse, source: Source) -> Iterator[Ingest]:
    """Run an ingest in a `with` block. Delete the stored error first. If an error that requires
    manual action ends the ingest, store it.
    """
    ingest = Ingest()
    file = ingest_file(warehouse.location, warehouse.database, source.name, "refused")
    # An error here is ignored: if the disk is full, the ingest itself reports it.
    with suppress(OSError):
        file.unlink()
    try:
        yield ingest
    except (ConflictError, UnfinishedOperationError):
        # Another ingest, or an operation that is itself a finding, blocks this one.
        raise
    except TidemarkError as error:
        if not error.retriable and error is not ingest.other_error:
            with suppress(OSError):
                file.write_text(str(error))
        raise


def blocking_error(settings: Settings, source: str) -> str | None:
    """Return the message of the error that blocks a source; None if the source is not blocked."""
    file = ingest_file(settings.warehouse, settings.database, source, "refused")
    try:
        return file.read_text() or None
    except OSError:
        return None


POLL_STALE_SECONDS = 120.0
"""The seconds after which a poll is stale."""


def record_poll(settings: Settings, source: str) -> None:
    """Record that a sensor polls a source now."""
    file = _poll_file(settings, source)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    os.utime(file)


def is_polled(settings: Settings, source: str, now: float) -> bool:
    """Return whether a sensor polled a source in the last two minutes.

    Args:
        now: the current time, in seconds since 1970.
    """
    try:
        return 0 <= now - _poll_file(settings, source).stat().st_mtime <= POLL_STALE_SECONDS
    except FileNotFoundError:
        return False


def _poll_file(settings: Settings, source: str) -> Path:
    return settings.home / "polls" / settings.database / source
