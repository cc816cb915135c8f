"""Locate and open the lock files of sources.

They are on this machine: next to the tables or, for tables in an object store, in the user's cache.
"""

import os
from pathlib import Path

from tidemark.base.files.private import make_folder, open_lock
from tidemark.engine.launch import cache
from tidemark.store.warehouse import Warehouse
from tidemark.store.workers.record_store import unwritable

_SHARED = cache.folder("locks")
"""The folder of this user's lock files for all warehouses in object stores."""


def lock_file(location: str, database: str, name: str) -> Path:
    """Return the path of a lock file, which is next to the database's tables.

    For tables in an object store, it is in a folder of this user on this machine. It is not in a
    temporary folder that users share: another user could place a link there under the file's name.
    """
    location = location.rstrip("/").removeprefix("file://")
    if "://" in location:
        bucket = location.replace("/", "_").replace(":", "_")
        return _SHARED / bucket / database / name
    return Path(location) / database / name


def open_lock_file(warehouse: Warehouse, name: str, *, writable: bool = True) -> int:
    """Open a lock file, create it if it is missing, and return its handle.

    Args:
        writable: false if the caller only shares the lock: the file is then opened for reading.
    """
    path = lock_file(warehouse.location, warehouse.database, name)
    try:
        if path.is_relative_to(_SHARED):
            make_folder(path.parent)
        else:
            # The tables in this folder may be readable for other users.
            path.parent.mkdir(parents=True, exist_ok=True)
        return open_lock(path, writable=writable)
    except OSError as error:
        raise unwritable(warehouse.location, error) from error


def write_note(warehouse: Warehouse, handle: int, text: str) -> None:
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, text.encode(), 0)
    except OSError as error:
        raise unwritable(warehouse.location, error) from error


def read_note(handle: int) -> str:
    return os.pread(handle, 200, 0).decode()
