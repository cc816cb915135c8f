"""Keep tables open, so that each access reads only the commits since the previous access.

`local_tables` and `stored_tables` show how: on a local disk and in an object store.
"""

import threading
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from tidemark.store.committers.client_options import open_delta_table
from tidemark.store.committers.file_systems import file_system, local_folder
from tidemark.store.committers.local_tables import LocalTables

if TYPE_CHECKING:
    from tidemark.store.committers.stored_tables import StoredTables


class _Instant:
    """What a block of `pin_all_versions` has seen of the tables below a folder."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.seen_tables = set[str]()

    @cached_property
    def folders(self) -> frozenset[str]:
        """The names of the folders below the folder, from one listing."""
        system, folder = file_system(self._address)
        entries = system.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
        return frozenset(entry.base_name for entry in entries)


class _InstantOfThread(threading.local):
    instant: _Instant | None = None


class OpenTables:
    """The tables below a folder, each opened once per thread.

    Args:
        verifies: true to check at each access that an object store still has all files of this
            process's copies of transaction logs.
    """

    def __init__(self, address: str, *, verifies: bool = False) -> None:
        self._address = address
        self._tables = _tables_below(address, verifies=verifies)
        self._pinned_of_thread = threading.local()
        self._of_thread = _InstantOfThread()
        self._reported = threading.local()

    def path_of(self, table: str) -> str:
        return f"{self._address}/{table}"

    def open_separately(self, table: str) -> DeltaTable:
        """Return a table at its newest version, as an object that later calls do not update."""
        return open_delta_table(self.path_of(table))

    def base_of_commit(self, table: str) -> DeltaTable:
        """Return a table at its newest version, for a commit that must not follow another one.

        A later access does not update the returned object. So if another commit of this thread
        comes first, the commit fails, as after a commit of another process.
        """
        return self._tables.base_of_commit(table)

    def open_version(self, table: str, version: int) -> DeltaTable:
        """Return an earlier version of a table, as an object that later calls do not update.

        Raises:
            DeltaError: the transaction log does not have the version any more.
        """
        return self._tables.open_version(table, version)

    def has_table(self, table: str) -> bool:
        """Return whether a table exists, even if its transaction log is damaged."""
        return self._tables.has_table(table)

    def open_newest(self, table: str) -> DeltaTable:
        """Return a table at its newest version. The next call updates the returned object.

        Raises:
            TableNotFoundError: the table does not exist.
        """
        instant = self._of_thread.instant
        is_version_fixed = self._pinned.get(table, False)
        if instant is not None and self._has_seen(table, instant):
            is_version_fixed = True
        opened = self._tables.find_opened(table) if is_version_fixed else None
        if opened is None:
            opened = self._tables.open_newest(table)
        if table in self._pinned:
            self._pinned[table] = True
        if instant is not None:
            instant.seen_tables.add(table)
        return opened

    def _has_seen(self, table: str, instant: _Instant) -> bool:
        """Return whether a block of `pin_all_versions` has opened a table before.

        Raises:
            TableNotFoundError: the listing of the block does not have the table.
        """
        if table in instant.seen_tables:
            return True
        # A table that this thread has open shows by itself whether it still exists.
        is_new = self._tables.find_opened(table) is None
        if is_new and table not in instant.folders:
            raise TableNotFoundError(f"There is no table at {self.path_of(table)}")
        return False

    @contextmanager
    def pin_all_versions(self) -> Iterator[None]:
        """Let all accesses of the block use the version of each table that the first one finds.

        Tables that do not exist are found with one listing for all of them.
        """
        if self._of_thread.instant is not None:
            yield
            return
        self._of_thread.instant = _Instant(self._address)
        try:
            yield
        finally:
            self._of_thread.instant = None

    @contextmanager
    def pin_version(self, table: str) -> Iterator[None]:
        """Let all accesses to a table in the block use the version that the first one finds.

        A commit of the block adds its version. If another commit came first, it fails, and the next
        access finds that commit.
        """
        pinned = self._pinned
        if table in pinned:
            yield
            return
        pinned[table] = False
        try:
            yield
        finally:
            del pinned[table]

    def find_identity(self, table: str) -> Hashable:
        """Return a value that identifies the newest version of a table that this thread has seen.

        It differs from that of any other version, also from that of a version with the same number
        in another history of the table.
        """
        return self._tables.find_identity(table)

    def find_opened(self, table: str) -> DeltaTable | None:
        """Return a table at the newest version that this thread has seen; None if none."""
        return self._tables.find_opened(table)

    def create_table(self, table: str) -> AbstractContextManager[str]:
        """Yield the path at which to create a table.

        Raises:
            ConflictError: the table exists already, or another process has created it.
        """
        return self._tables.create_table(table)

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
            with self._tables.stage_commit(table, opened, reads_rows=reads_rows) as staged:
                yield staged
        except BaseException:
            # A failed commit may have changed the table in memory.
            self.close_table(table)
            raise

    def close_table(self, table: str) -> None:
        """Close a table, so that the next access opens it again, also if it is pinned."""
        if table in self._pinned:
            self._pinned[table] = False
        self._tables.close_table(table)

    def close_replaced_tables(self) -> bool:
        """Close the open tables that something else has taken the place of, such as a restored
        copy. Return whether this thread has found one since the last call.

        A table in an object store does not show it.
        """
        self._tables.close_outdated_tables()
        replaced = self._tables.count_replacements()
        reported = self._reported.__dict__.get("count", 0)
        self._reported.__dict__["count"] = replaced
        return replaced > reported

    def count_replacements(self, table: str) -> int:
        """Return how often this thread has found that something else has taken the place of a table
        that it had open."""
        return self._tables.count_replacements(table)

    @property
    def _pinned(self) -> dict[str, bool]:
        """The tables that this thread has pinned, each with whether its version is found."""
        return self._pinned_of_thread.__dict__


def _tables_below(address: str, *, verifies: bool) -> "LocalTables | StoredTables":
    folder = local_folder(address)
    if folder is not None:
        return LocalTables(address, folder)
    # The client of object stores is loaded only if it is needed.
    from tidemark.store.committers.stored_tables import StoredTables

    return StoredTables(address, verifies=verifies)
