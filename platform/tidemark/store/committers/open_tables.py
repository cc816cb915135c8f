"""Keep tables open, so that each access reads only the commits since the previous access.

Opening a table reads its newest checkpoint and the commits after it, which takes ten milliseconds.
Updating an open table lists its transaction log, which takes up to a millisecond. Three files show
within microseconds whether there is anything to update. A run takes about a second, and accesses
its tables about forty times.
"""

import os
import threading
import weakref
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.store.committers.durable import LAST_CHECKPOINT

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
    """

    table: DeltaTable
    log: int
    checkpoint: _FileIdentity | None


class OpenTables:
    """The tables below a folder, each opened once per thread."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._own = threading.local()
        self._in_object_store = threading.local()

    def path(self, table: str) -> str:
        return f"{self._place}/{table}"

    def reopen(self, table: str) -> DeltaTable:
        """Return a table at its newest version, as an object that later calls do not update."""
        return DeltaTable(self.path(table))

    def newest(self, table: str) -> DeltaTable:
        """Return a table at its newest version. The next call updates the returned object."""
        if "://" in self._place:
            # An object store does not show whether the table at a path was recreated, so the table
            # is opened each time. It is kept for `find_opened` alone.
            self._in_object_store.__dict__[table] = self.reopen(table)
            return self._in_object_store.__dict__[table]
        opened_tables: dict[str, _Open] = self._own.__dict__
        known = opened_tables.get(table)
        if known is not None and self._is_same(table, known):
            if _is_newest(known):
                return known.table
            checkpoint = _file_identity(known.log, LAST_CHECKPOINT)
            try:
                known.table.update_incremental()
            except DeltaError:
                # The table may have been restored to an earlier version. If not, opening the table
                # raises the same error.
                pass
            else:
                known.checkpoint = checkpoint
                return known.table
        opened_tables.pop(table, None)
        try:
            log = os.open(self._log(table), os.O_RDONLY)
        except OSError:
            return self.reopen(table)
        checkpoint = _file_identity(log, LAST_CHECKPOINT)
        try:
            opened = self.reopen(table)
        except BaseException:
            os.close(log)
            raise
        weakref.finalize(opened, os.close, log)
        opened_tables[table] = _Open(opened, log, checkpoint)
        return opened

    def find_opened(self, table: str) -> DeltaTable | None:
        """Return a table at the newest version that this thread has seen; None if none."""
        if "://" in self._place:
            return self._in_object_store.__dict__.get(table)
        open_: _Open | None = self._own.__dict__.get(table)
        return None if open_ is None else open_.table

    def forget(self, table: str) -> None:
        """Close a table that a failed commit may have changed in memory, so that it is reopened."""
        self._own.__dict__.pop(table, None)
        self._in_object_store.__dict__.pop(table, None)

    def close_replaced_tables(self) -> bool:
        """Close the open tables that something else has taken the place of, such as a restored
        copy. Return whether there was one.

        A table in an object store does not show it.
        """
        opened_tables: dict[str, _Open] = self._own.__dict__
        replaced = [
            table
            for table, known in opened_tables.items()
            if not self._is_same(table, known) or not _has_version(known)
        ]
        for table in replaced:
            del opened_tables[table]
        return bool(replaced)

    def _is_same(self, table: str, known: _Open) -> bool:
        """Return whether the open table is still the one at its path, not a recreated one."""
        try:
            current = os.stat(self._log(table))  # noqa: PTH116 (`Path.stat` takes five times as long)
            return os.path.samestat(current, os.fstat(known.log))
        except OSError:
            return False

    def _log(self, table: str) -> str:
        return f"{self.path(table)}/_delta_log"


def _is_newest(known: _Open) -> bool:
    """Return whether an open table has no newer commit. False if that is not certain.

    The entry of the next version may be absent because a later version was checkpointed and the
    transaction log was trimmed. The checkpoint is written before that. So it must be compared after
    the next entry was looked for, not before.
    """
    version = known.table.version()
    return (
        _file_identity(known.log, f"{version + 1:020d}.json") is None
        and _file_identity(known.log, LAST_CHECKPOINT) == known.checkpoint
        # The table may have been restored to an earlier version.
        and _has_version(known)
    )


def _has_version(known: _Open) -> bool:
    """Return whether the transaction log has the entry of an open table's version."""
    return _file_identity(known.log, f"{known.table.version():020d}.json") is not None


def _file_identity(folder: int, name: str) -> _FileIdentity | None:
    """Return the identity of a file in an open folder; None if it does not exist."""
    try:
        status = os.stat(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
