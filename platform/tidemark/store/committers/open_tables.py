"""Keep tables open, so that each access reads only the commits since the previous access.

Opening a table reads its newest checkpoint and the commits after it, which takes ten milliseconds.
Updating an open table lists its transaction log, which takes up to a millisecond. Three files show
within microseconds whether there is anything to update. A run takes about a second, and accesses
its tables about forty times.

A restored copy of a table may have the same folder, the same identity and as many commits as the
open table. So an open table is only updated if the entry of its version is still the same file.

In an object store, one listing shows whether there is anything to update (`log_copy`).
"""

import os
import threading
import weakref
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.base.errors import ConflictError
from tidemark.store.committers import durable
from tidemark.store.committers.durable import LAST_CHECKPOINT
from tidemark.store.committers.file_systems import local_folder

if TYPE_CHECKING:
    from tidemark.store.committers.log_copy import CopiedTable, LogCopy

_COPIED_FILES = 60
_COPIED_BYTES = 16 << 20
_FileIdentity = tuple[int, int, int]
"""The identity of a file's content: inode, time of the last change, and size."""


@dataclass
class _Open:
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
        return (
            self.entry is not None
            and self.version == self.table.version()
            and _file_identity(self.log, _entry_name(self.version)) == self.entry
        )


class OpenTables:
    """The tables below a folder, each opened once per thread.

    Args:
        reads_again: true to read transaction logs in an object store again, although this process
            has copies of them.
    """

    def __init__(self, address: str, *, reads_again: bool = False) -> None:
        self._place = address
        self._reads_again = reads_again
        self._folder = local_folder(address)
        self._own = threading.local()
        self._in_object_store = threading.local()
        self._pinned = threading.local()
        self._replacements = threading.local()
        self._reported = threading.local()
        self._copies: dict[str, LogCopy] = {}

    def path_of(self, table: str) -> str:
        return f"{self._place}/{table}"

    def open_separately(self, table: str) -> DeltaTable:
        """Return a table at its newest version, as an object that later calls do not update."""
        return DeltaTable(self.path_of(table))

    def base_of_commit(self, table: str) -> DeltaTable:
        """Return a table at its newest version, for a commit that must not follow another one.

        A later access does not update the returned object. So if another commit of this thread
        comes first, the commit fails, as after a commit of another process.
        """
        if self._folder is None:
            return self.open_newest(table)
        return self.open_separately(table)

    def open_version(self, table: str, version: int) -> DeltaTable:
        """Return an earlier version of a table, as an object that later calls do not update.

        Raises:
            DeltaError: the transaction log does not have the version any more.
        """
        if self._folder is not None:
            return DeltaTable(self.path_of(table), version)
        return self._log_copy(table).open_version(version)

    def has_table(self, table: str) -> bool:
        """Return whether a table exists, even if its transaction log is damaged."""
        if self._folder is not None:
            return DeltaTable.is_deltatable(self.path_of(table))
        return self._log_copy(table).has_table()

    def open_newest(self, table: str) -> DeltaTable:
        """Return a table at its newest version. The next call updates the returned object."""
        pinned_tables: dict[str, bool] = self._pinned.__dict__
        opened = self._open_current(table, pinned=pinned_tables.get(table, False))
        if table in pinned_tables:
            pinned_tables[table] = True
        return opened

    @contextmanager
    def pin_version(self, table: str) -> Iterator[None]:
        """Let all accesses to a table in the block use the version that the first one finds.

        A commit of the block adds its version. If another commit came first, it fails, and the next
        access finds that commit.
        """
        pinned_tables: dict[str, bool] = self._pinned.__dict__
        if table in pinned_tables:
            yield
            return
        pinned_tables[table] = False
        try:
            yield
        finally:
            del pinned_tables[table]

    def _open_current(self, table: str, *, pinned: bool) -> DeltaTable:
        """Return a table at its newest version, or at the newest version that is known."""
        if self._folder is None:
            copied_tables: dict[str, CopiedTable] = self._in_object_store.__dict__
            known_copy = copied_tables.get(table)
            if pinned and known_copy is not None:
                return known_copy
            copied_tables.pop(table, None)
            copied_tables[table] = self._log_copy(table).open_newest(known_copy)
            return copied_tables[table]
        opened_tables: dict[str, _Open] = self._own.__dict__
        if pinned and table in opened_tables:
            return opened_tables[table].table
        self._close_outdated_table(table)
        cached = opened_tables.get(table)
        if cached is not None:
            if _is_newest(cached):
                return cached.table
            checkpoint = _file_identity(cached.log, LAST_CHECKPOINT)
            try:
                cached.table.update_incremental()
            except DeltaError:
                # The log may have been trimmed. If not, opening the table raises the same error.
                pass
            else:
                cached.checkpoint = checkpoint
                cached.note_version()
                return cached.table
        opened_tables.pop(table, None)
        try:
            log = os.open(self._log_folder(table), os.O_RDONLY)
        except OSError:
            return self.open_separately(table)
        checkpoint = _file_identity(log, LAST_CHECKPOINT)
        try:
            opened = self.open_separately(table)
        except BaseException:
            os.close(log)
            raise
        weakref.finalize(opened, os.close, log)
        opened_tables[table] = _Open(opened, log, checkpoint)
        return opened

    def find_identity(self, table: str) -> Hashable:
        """Return a value that identifies the newest version of a table that this thread has seen.

        It differs from that of any other version, also from that of a version with the same number
        in another history of the table.
        """
        if self._folder is None:
            opened: CopiedTable = self._in_object_store.__dict__[table]
            return opened.version(), opened.tag
        cached: _Open | None = self._own.__dict__.get(table)
        if cached is None:
            return object()
        return (cached.version, cached.entry)

    def find_opened(self, table: str) -> DeltaTable | None:
        """Return a table at the newest version that this thread has seen; None if none."""
        if self._folder is None:
            return self._in_object_store.__dict__.get(table)
        open_: _Open | None = self._own.__dict__.get(table)
        return None if open_ is None else open_.table

    @contextmanager
    def create_table(self, table: str) -> Iterator[str]:
        """Yield the path at which to create a table.

        Raises:
            ConflictError: the table exists already, or another process has created it.
        """
        if self._folder is not None:
            yield self.path_of(table)
            durable.sync_log(self.path_of(table))
            return
        with self._log_copy(table).stage_first() as folder:
            yield str(folder)

    @contextmanager
    def stage_commit(
        self, table: str, opened: DeltaTable, *, reads_rows: bool = False
    ) -> Iterator[DeltaTable]:
        """Yield the object with which to make the next commit, which is durable after the block.

        Args:
            opened: the table at the version on which the commit is based.
            reads_rows: true if delta-rs reads the rows of the table for the commit.

        Raises:
            ConflictError: another commit came first.
        """
        try:
            if self._folder is not None:
                yield opened
                cached: _Open | None = self._own.__dict__.get(table)
                if cached is not None and cached.table is opened:
                    cached.note_version()
                durable.sync_commit(self.path_of(table), opened)
            elif reads_rows and not _has_few_rows(opened):
                current = self.open_separately(table)
                if _read_version(current) != _read_version(opened):
                    raise ConflictError(f"Another commit to '{table}' came first.")
                yield current
                self.close_table(table)
            else:
                copied_tables: dict[str, CopiedTable] = self._in_object_store.__dict__
                copy = self._log_copy(table)
                with copy.stage_commit(opened.version(), with_rows=reads_rows) as staged:
                    yield staged
                copied_tables[table] = copy.open_newest(copied_tables.get(table), refresh=False)
        except BaseException:
            # A failed commit may have changed the table in memory.
            self.close_table(table)
            raise

    def close_table(self, table: str) -> None:
        """Close a table, so that the next access opens it again, also if it is pinned."""
        pinned_tables: dict[str, bool] = self._pinned.__dict__
        if table in pinned_tables:
            pinned_tables[table] = False
        self._own.__dict__.pop(table, None)
        self._in_object_store.__dict__.pop(table, None)

    def close_replaced_tables(self) -> bool:
        """Close the open tables that something else has taken the place of, such as a restored
        copy. Return whether this thread has found one since the last call.

        A table in an object store does not show it.
        """
        for table in [*self._own.__dict__]:
            self._close_outdated_table(table)
        replaced = sum(self._replacements.__dict__.values())
        reported = self._reported.__dict__.get("count", 0)
        self._reported.__dict__["count"] = replaced
        return replaced > reported

    def count_replacements(self, table: str) -> int:
        """Return how often this thread has found that something else has taken the place of a table
        that it had open."""
        return self._replacements.__dict__.get(table, 0)

    def _close_outdated_table(self, table: str) -> None:
        """Close a table if something else has taken its place since it was opened."""
        opened_tables: dict[str, _Open] = self._own.__dict__
        cached = opened_tables.get(table)
        if cached is not None and not self._is_same(table, cached):
            del opened_tables[table]
            self._replacements.__dict__[table] = self.count_replacements(table) + 1

    def _is_same(self, table: str, cached: _Open) -> bool:
        """Return whether the open table is still the one at its path.

        It is not if the table was dropped, recreated, or restored from a copy.
        """
        try:
            current = os.stat(self._log_folder(table))  # noqa: PTH116 (`Path.stat` takes five times as long)
            is_same_folder = os.path.samestat(current, os.fstat(cached.log))
        except OSError:
            return False
        return is_same_folder and cached.has_same_history()

    def _log_folder(self, table: str) -> str:
        return f"{self._folder}/{table}/{durable.LOG}"

    def _log_copy(self, table: str) -> "LogCopy":
        copy = self._copies.get(table)
        if copy is None:
            # The client of object stores is loaded only if it is needed.
            from tidemark.store.committers.log_copy import LogCopy, shared_copy

            new_copy = LogCopy if self._reads_again else shared_copy
            copy = self._copies[table] = new_copy(self.path_of(table))
        return copy


def _has_few_rows(opened: DeltaTable) -> bool:
    """Return whether the data files of a table are copied for a commit that reads its rows."""
    sizes = pa.table(opened.get_add_actions(flatten=True))["size_bytes"].to_pylist()
    return len(sizes) <= _COPIED_FILES and sum(sizes) <= _COPIED_BYTES


def _read_version(opened: DeltaTable) -> tuple[str, int]:
    return str(opened.metadata().id), opened.version()


def _is_newest(cached: _Open) -> bool:
    """Return whether an open table has no newer commit. False if that is not certain.

    The entry of the next version may be absent because a later version was checkpointed and the
    transaction log was trimmed. The checkpoint is written before that. So it must be compared after
    the next entry was looked for, not before.
    """
    return (
        _file_identity(cached.log, _entry_name(cached.version + 1)) is None
        and _file_identity(cached.log, LAST_CHECKPOINT) == cached.checkpoint
    )


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
