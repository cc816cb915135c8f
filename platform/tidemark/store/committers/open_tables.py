"""Keep tables open, so that each access reads only the commits since the previous access.

`local_tables` and `stored_tables` show how: on a local disk and in an object store.
"""

import threading
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from tidemark.store.committers.client_options import open_delta_table
from tidemark.store.committers.file_systems import local_folder
from tidemark.store.committers.local_tables import LocalTables

if TYPE_CHECKING:
    from tidemark.store.committers.stored_tables import StoredTables


class OpenTables:
    """The tables below a folder, each opened once per thread.

    Args:
        reads_again: true to read transaction logs in an object store again, although this process
            has copies of them.
    """

    def __init__(self, address: str, *, reads_again: bool = False) -> None:
        self._address = address
        self._tables = _tables_below(address, reads_again=reads_again)
        self._pinned_of_thread = threading.local()
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
        """Return a table at its newest version. The next call updates the returned object."""
        is_version_fixed = self._pinned.get(table, False)
        opened = self._tables.find_opened(table) if is_version_fixed else None
        if opened is None:
            opened = self._tables.open_newest(table)
        if table in self._pinned:
            self._pinned[table] = True
        return opened

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


def _tables_below(address: str, *, reads_again: bool) -> "LocalTables | StoredTables":
    folder = local_folder(address)
    if folder is not None:
        return LocalTables(address, folder)
    # The client of object stores is loaded only if it is needed.
    from tidemark.store.committers.stored_tables import StoredTables

    return StoredTables(address, reads_again=reads_again)
