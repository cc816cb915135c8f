"""Allow only one ingest per source: a lock on this machine, released when its process ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemark.base.errors import ConflictError
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

    Raises:
        ConflictError: another process holds the lock.
        DataError: the lock can't be written.
    """
    wait_for_erasure(warehouse, source)
    handle = open_lock_file(warehouse, _name(source.name, "lock"))
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
    return lock_file(location, database, _name(source, ending))


def _name(source: str, ending: str) -> str:
    return f".{source}_ingest.{ending}"
