"""Keep tables on a local disk open, so that each access reads only the commits since the last one.

Opening a table reads its newest checkpoint and the commits after it, which takes ten milliseconds.
Updating an open table lists its transaction log, which takes up to a millisecond. Three files show
within microseconds whether there is anything to update. A run takes about a second, and accesses
its tables about forty times.

A restored copy of a table may have the same folder, the same identity and as many commits as the
open table. So an open table is only updated if the entry of its version is still the same file.
"""

import os
import threading
import weakref
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.store.committers import durable
from tidemark.store.committers.durable import LAST_CHECKPOINT

_FileIdentity = tuple[int, int, int]
"""The identity of a file's content: inode, time of the last change, and size."""


@dataclass
class _OpenTable:
    """An open table.

    Args:
        log: a file descriptor of the transaction log's folder. While the descriptor is open, the
            operating system can't give the folder's identity (inode) to another folder.
        checkpoint: the file that names the newest checkpoint, before the last update; None if it
            did not exist.
        version, entry: the newest version that this process has read or written, and its entry in
            the transaction log; None if the entry did not exist any more.
    """

    table: DeltaTable
    log: int
    checkpoint: _FileIdentity | None
    version: int = -1
    entry: _FileIdentity | None = None

    def __post_init__(self) -> None:
        self.note_version()

    def note_version(self) -> None:
        """Note the present version, which this process has just read or written."""
        self.version = self.table.version()
        self.entry = _file_identity(self.log, _entry_name(self.version))

    def has_same_history(self) -> bool:
        """Return whether the transaction log still has the same entry of the noted version.

        It does not if an earlier copy was restored. If the log was trimmed since, that is unknown,
        so the result is false.
        """
        if self.entry is None or self.version != self.table.version():
            return False
        return _file_identity(self.log, _entry_name(self.version)) == self.entry

    def is_newest(self) -> bool:
        """Return whether the table has no newer commit. False if that is not certain.

        The entry of the next version may be absent because a later version was checkpointed and the
        transaction log was trimmed. The checkpoint is written before that. So it must be compared
        after the next entry was looked for, not before.
        """
        if _file_identity(self.log, _entry_name(self.version + 1)) is not None:
            return False
        return _file_identity(self.log, LAST_CHECKPOINT) == self.checkpoint

    def update(self) -> bool:
        """Read the newer commits. Return False if the table must be opened again."""
        # A checkpoint that is written during the update is found by the next access.
        checkpoint = _file_identity(self.log, LAST_CHECKPOINT)
        try:
            self.table.update_incremental()
        except DeltaError:
            # The log may have been trimmed. If not, opening the table raises the same error.
            return False
        self.checkpoint = checkpoint
        self.note_version()
        return True


class LocalTables:
    """The tables below a folder on a local disk, each opened once per thread.

    `OpenTables` describes the methods.

    Args:
        address: the address of the folder, as delta-rs takes it.
        folder: the path of the folder.
    """

    def __init__(self, address: str, folder: str) -> None:
        self._address = address
        self._folder = folder
        self._of_thread = threading.local()
        self._replacements = threading.local()

    def base_of_commit(self, table: str) -> DeltaTable:
        return self._open_separately(table)

    def open_version(self, table: str, version: int) -> DeltaTable:
        return DeltaTable(self._path_of(table), version)

    def has_table(self, table: str) -> bool:
        return DeltaTable.is_deltatable(self._path_of(table))

    def open_newest(self, table: str) -> DeltaTable:
        self._close_outdated_table(table)
        cached = self._opened.get(table)
        if cached is not None and (cached.is_newest() or cached.update()):
            return cached.table
        self._opened.pop(table, None)
        try:
            log = os.open(self._log_folder(table), os.O_RDONLY)
        except OSError:
            return self._open_separately(table)
        checkpoint = _file_identity(log, LAST_CHECKPOINT)
        try:
            opened = self._open_separately(table)
        except BaseException:
            os.close(log)
            raise
        weakref.finalize(opened, os.close, log)
        self._opened[table] = _OpenTable(opened, log, checkpoint)
        return opened

    def find_identity(self, table: str) -> Hashable:
        cached = self._opened.get(table)
        if cached is None:
            return object()
        return (cached.version, cached.entry)

    def find_opened(self, table: str) -> DeltaTable | None:
        cached = self._opened.get(table)
        if cached is None:
            return None
        return cached.table

    @contextmanager
    def create_table(self, table: str) -> Iterator[str]:
        path = self._path_of(table)
        yield path
        durable.sync_log(path)

    @contextmanager
    def stage_commit(
        self, table: str, opened: DeltaTable, *, reads_rows: bool
    ) -> Iterator[DeltaTable]:
        yield opened
        cached = self._opened.get(table)
        if cached is not None and cached.table is opened:
            cached.note_version()
        durable.sync_commit(self._path_of(table), opened)

    def close_table(self, table: str) -> None:
        self._opened.pop(table, None)

    def close_outdated_tables(self) -> None:
        for table in list(self._opened):
            self._close_outdated_table(table)

    def count_replacements(self, table: str | None = None) -> int:
        counts = self._replacements.__dict__
        if table is None:
            return sum(counts.values())
        return counts.get(table, 0)

    @property
    def _opened(self) -> dict[str, _OpenTable]:
        """The open tables of this thread, by name."""
        return self._of_thread.__dict__

    def _path_of(self, table: str) -> str:
        return f"{self._address}/{table}"

    def _log_folder(self, table: str) -> str:
        return f"{self._folder}/{table}/{durable.LOG}"

    def _open_separately(self, table: str) -> DeltaTable:
        return DeltaTable(self._path_of(table))

    def _close_outdated_table(self, table: str) -> None:
        """Close a table if something else has taken its place since it was opened."""
        cached = self._opened.get(table)
        if cached is not None and not self._is_same(table, cached):
            del self._opened[table]
            self._replacements.__dict__[table] = self.count_replacements(table) + 1

    def _is_same(self, table: str, cached: _OpenTable) -> bool:
        """Return whether the open table is still the one at its path.

        It is not if the table was dropped, recreated, or restored from a copy.
        """
        try:
            current = os.stat(self._log_folder(table))  # noqa: PTH116 (`Path.stat` takes five times as long)
            is_same_folder = os.path.samestat(current, os.fstat(cached.log))
        except OSError:
            return False
        return is_same_folder and cached.has_same_history()


def _entry_name(version: int) -> str:
    """Return the name of a version's file in the transaction log."""
    return f"{version:020d}.json"


def _file_identity(folder: int, name: str) -> _FileIdentity | None:
    """Return the identity of a file in an open folder; None if it does not exist."""
    try:
        status = os.stat(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
