"""Read and change the records of a database's workers."""

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from threading import Lock

from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark.store.committers.file_systems import local_folder
from tidemark.store.refusals import store_failure
from tidemark.store.workers.record import WorkerRecord
from tidemark.store.workers.shared_folder import SharedFile, open_folder

FOLDER = "_workers"
"""The folder of a database that holds the records."""

_LISTING_SECONDS = 30.0
"""Seconds for which a listing of an object store is reused."""

INGEST = "ingest"
"""The kind of the work that only one process does for a source: it changes the event log."""

REWRITE = "rewrite"
"""The kind of the work that rewrites the event log of a source: an erasure, or a promotion."""

MART = "mart"
"""The kind of the work that builds a mart."""

POLL = "poll"
"""The kind of the sensor that polls a source."""

STREAM = "stream"
"""The kind of an asset's stream that runs without a command."""

SUPERVISOR = "supervisor"
"""The kind of the work that restarts the streams of a domain."""

COMMAND = "command_"
"""How the kinds of long-running commands begin."""

_LISTED = (f"{INGEST}.", f"{POLL}.", f"{STREAM}.", f"{SUPERVISOR}.", COMMAND)
"""How the names of the files begin that `list_records` reads."""

Change = Callable[[WorkerRecord], WorkerRecord]
"""Returns the changed record, or raises an error to leave the record as it is."""


class WorkerRecords:
    """The records of a database's workers.

    Each method raises `StoreError` if an object store fails, and `DataError` if a disk does.

    Args:
        location: the folder (or bucket) of the warehouse.
        database: the name of the database, and of its folder.
    """

    def __init__(self, location: str, database: str) -> None:
        self._location = location.rstrip("/")
        self._folder = open_folder(f"{self._location}/{database}/{FOLDER}")
        is_on_disk = local_folder(location) is not None
        self._listing_seconds = 0.0 if is_on_disk else _LISTING_SECONDS
        self._listed_at = -self._listing_seconds
        self._files = dict[str, SharedFile]()
        self._lock = Lock()

    def read_record(self, kind: str, name: str) -> WorkerRecord:
        """Return the record of a worker. It is empty if nothing was recorded yet."""
        file_name = _file_name(kind, name)
        with self._explained_errors():
            file = self._folder.read_file(file_name)
        with self._lock:
            if file is None:
                self._files.pop(file_name, None)
            else:
                self._files[file_name] = file
        return _to_record(kind, name, file)

    def list_records(self, *kinds: str) -> list[WorkerRecord]:
        """Return the records whose kinds begin with one of `kinds`, sorted by kind and name.

        Records of builds of marts and of rewrites are not listed.
        """
        with self._lock:
            age = time.monotonic() - self._listed_at
            if not self._listing_seconds or age > self._listing_seconds:
                with self._explained_errors():
                    self._files |= self._folder.read_files(self._files, _LISTED)
                self._listed_at = time.monotonic()
            files = sorted(self._files.items())
        records = (WorkerRecord.from_json(file.content) for _, file in files)
        return [record for record in records if record.kind.startswith(kinds)]

    def change_record(self, kind: str, name: str, change: Change) -> WorkerRecord:
        """Change a record, and return it.

        Args:
            change: is called with the current record; again if another process has changed the
                record in the meantime.
        """
        while True:
            changed = self.try_change_record(self.read_record(kind, name), change)
            if changed is not None:
                return changed

    def try_change_record(self, seen_record: WorkerRecord, change: Change) -> WorkerRecord | None:
        """Change a record that was read or written before, without reading it again, and return it.
        Return None, without a change, if it has changed in the meantime.
        """
        file_name = _file_name(seen_record.kind, seen_record.name)
        with self._lock:
            seen_file = self._files.get(file_name)
        if _to_record(seen_record.kind, seen_record.name, seen_file) != seen_record:
            return None
        changed = change(seen_record)
        if changed == seen_record:
            return seen_record
        changed = replace(changed, revision=seen_record.revision + 1)
        with self._explained_errors():
            written = self._folder.swap_file(file_name, changed.to_json(), seen_file)
        if written is None:
            return None
        with self._lock:
            self._files[file_name] = written
        return changed

    @contextmanager
    def _explained_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise store_failure(error) or _unwritable_error(self._location, error) from error


def _unwritable_error(location: str, error: OSError) -> DataError:
    """Return the error for a warehouse in which no file can be written."""
    reason = error.strerror or str(error)
    if error.errno == errno.ENOSPC:
        reason = "the disk is full"
    return DataError(f"Warehouse '{location}' can't be written: {reason.lower()}.")


@lru_cache(maxsize=64)
def worker_records(location: str, database: str) -> WorkerRecords:
    """Return the records of the workers of a database.

    Args:
        location: the folder (or bucket) of the warehouse.
    """
    return WorkerRecords(location, database)


def records_of(settings: Settings) -> WorkerRecords:
    """Return the records of the workers of a project's database."""
    return worker_records(settings.warehouse, settings.database)


def _file_name(kind: str, name: str) -> str:
    return f"{kind}.{name}.json"


def _to_record(kind: str, name: str, file: SharedFile | None) -> WorkerRecord:
    if file is None:
        return WorkerRecord(kind, name)
    return WorkerRecord.from_json(file.content)
