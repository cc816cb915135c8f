"""The files of a source's ingest on this machine: lock, blocking error and last poll.

Only one ingest of a source runs at a time. Some errors require manual action: an incompatible
change of the source, records that were deleted, a file that was changed. Each blocks that source
alone, with one message, until another ingest begins. Monitoring sees it for any ingest process. A
sensor that is off leaves no trace in Tidemark's home; one that is on touches a file at each tick.
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
from tidemark.store.upkeep.source_lock import wait_for_erasure
from tidemark.store.warehouse import Warehouse


@contextmanager
def lock_ingest(warehouse: Warehouse, source: Source) -> Iterator[None]:
    """Hold the lock that makes this the only ingest of a source on this machine, for the block.

    If the source's events are being erased, wait. The lock is released when the process ends,
    however it ends.
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
    """Return the path of a file on this machine next to a source's tables (`lock_file`)."""
    return lock_file(location, database, _file_name(source, ending))


def _file_name(source: str, ending: str) -> str:
    return f".{source}_ingest.{ending}"


class Ingest:
    """The errors of other work that an ingest does, which do not block its source."""

    def __init__(self) -> None:
        self.other_error: TidemarkError | None = None

    @contextmanager
    def other_work(self) -> Iterator[None]:
        """Mark the block as other work."""
        try:
            yield
        except TidemarkError as error:
            self.other_error = error
            raise


@contextmanager
def record_error(warehouse: Warehouse, source: Source) -> Iterator[Ingest]:
    """Run an ingest in the block. Clear the stored error first, and store the error that ends the
    ingest.
    """
    ingest = Ingest()
    file = ingest_file(warehouse.location, warehouse.database, source.name, "refused")
    # A full disk has its own error message.
    with suppress(OSError):
        file.unlink()
    try:
        yield ingest
    except ConflictError:
        raise
    except TidemarkError as error:
        if not error.retriable and error is not ingest.other_error:
            with suppress(OSError):
                file.write_text(str(error))
        raise


def blocking_error(settings: Settings, source: str) -> str | None:
    """Return the error of a source's newest ingest that blocks it; None if it is not blocked."""
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
        now: the time, in seconds.
    """
    try:
        return 0 <= now - _poll_file(settings, source).stat().st_mtime <= POLL_STALE_SECONDS
    except FileNotFoundError:
        return False


def _poll_file(settings: Settings, source: str) -> Path:
    return settings.home / "polls" / settings.database / source
