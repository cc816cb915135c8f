"""Allow only one ingest per source: a lock on this machine, released when its process ends."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemark.base.errors import ConflictError, DataError
from tidemark.base.files import locks
from tidemark.base.files.private import make_folder, open_lock
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.engine.launch import cache
from tidemark.store.warehouse import Warehouse

_SHARED = cache.folder("ingests")
"""The folder for the locks of ingests that write to an object store, one folder per user."""


@contextmanager
def lock_ingest(warehouse: Warehouse, source: Source) -> Iterator[None]:
    """Hold the lock that makes this the only ingest of a source on this machine, for the block.

    The lock is released when the process ends, however it ends.

    Raises:
        ConflictError: another process holds the lock.
        DataError: the lock can't be written.
    """
    path = ingest_file(warehouse.location, warehouse.database, source.name, "lock")
    try:
        _make(path.parent)
        handle = open_lock(path)
    except OSError as error:
        raise _not_written(warehouse, error) from error
    try:
        if not locks.take(handle):
            holder = os.read(handle, 32).decode() or "unknown"
            raise ConflictError(
                f"Source '{source.name}' is being ingested already, by process {holder}: wait "
                "until it ends, or stop it."
            )
        try:
            os.ftruncate(handle, 0)
            os.write(handle, str(os.getpid()).encode())
        except OSError as error:
            raise _not_written(warehouse, error) from error
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
    """Return the path of a file on this machine next to a source's tables.

    For tables in an object store, it is in a folder of this user: in a shared temporary folder,
    another user could place a link.
    """
    name = f".{source}_ingest.{ending}"
    location = location.rstrip("/").removeprefix("file://")
    if "://" in location:
        bucket = location.replace("/", "_").replace(":", "_")
        return _SHARED / bucket / database / name
    return Path(location) / database / name


def _make(folder: Path) -> None:
    if folder.is_relative_to(_SHARED):
        make_folder(folder)
    else:
        # This folder is next to tables, which others may be allowed to read.
        folder.mkdir(parents=True, exist_ok=True)


def _not_written(warehouse: Warehouse, error: OSError) -> DataError:
    why = "the disk is full" if error.errno == errno.ENOSPC else (error.strerror or str(error))
    return DataError(f"Warehouse '{warehouse.location}' can't be written: {why.lower()}.")
