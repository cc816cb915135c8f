"""Keep tables in an object store open, with a copy of each transaction log (`log_copy`)."""

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable

from tidemark.base.errors import ConflictError
from tidemark.store.committers.client_options import open_delta_table
from tidemark.store.committers.log_copy import CopiedTable, LogCopy, shared_copy

_COPIED_FILES = 60
_COPIED_BYTES = 16 << 20


class StoredTables:
    """The tables below an address in an object store, each opened once per thread.

    `OpenTables` describes the methods.

    Args:
        verifies: true to check at each access that the store still has all files of the copy.
    """

    def __init__(self, address: str, *, verifies: bool) -> None:
        self._address = address
        self._verifies = verifies
        self._of_thread = threading.local()
        self._copies: dict[str, LogCopy] = {}

    def base_of_commit(self, table: str) -> DeltaTable:
        return self.open_newest(table)

    def open_version(self, table: str, version: int) -> DeltaTable:
        return self._log_copy(table).open_version(version)

    def has_table(self, table: str) -> bool:
        return self._log_copy(table).has_table()

    def open_newest(self, table: str) -> DeltaTable:
        # If the table does not exist any more, it must not stay open.
        known_copy = self._opened.pop(table, None)
        opened = self._log_copy(table).open_newest(known_copy, verify=self._verifies)
        self._opened[table] = opened
        return opened

    def find_identity(self, table: str) -> Hashable:
        opened = self._opened[table]
        return opened.version(), opened.tag

    def find_opened(self, table: str) -> DeltaTable | None:
        return self._opened.get(table)

    @contextmanager
    def create_table(self, table: str) -> Iterator[str]:
        with self._log_copy(table).stage_first() as folder:
            yield str(folder)

    @contextmanager
    def stage_commit(
        self, table: str, opened: DeltaTable, *, reads_rows: bool
    ) -> Iterator[DeltaTable]:
        if reads_rows and not _has_few_rows(opened):
            # delta-rs reads the rows from the store, and makes the commit there itself.
            current = open_delta_table(f"{self._address}/{table}")
            if _read_version(current) != _read_version(opened):
                raise ConflictError(f"Another commit to '{table}' came first.")
            yield current
            self.close_table(table)
            return
        copy = self._log_copy(table)
        with copy.stage_commit(opened.version(), with_rows=reads_rows) as staged:
            yield staged
        self._opened[table] = copy.open_newest(self._opened.get(table), refresh=False)

    def close_table(self, table: str) -> None:
        self._opened.pop(table, None)

    def close_outdated_tables(self) -> None:
        """Do nothing: a table in an object store does not show that it was replaced."""

    def count_replacements(self, table: str | None = None) -> int:
        return 0

    @property
    def _opened(self) -> dict[str, CopiedTable]:
        """The open tables of this thread, by name."""
        return self._of_thread.__dict__

    def _log_copy(self, table: str) -> LogCopy:
        copy = self._copies.get(table)
        if copy is None:
            copy = shared_copy(f"{self._address}/{table}")
            self._copies[table] = copy
        return copy


def _has_few_rows(opened: DeltaTable) -> bool:
    """Return whether the data files of a table are copied for a commit that reads its rows."""
    sizes = pa.table(opened.get_add_actions(flatten=True))["size_bytes"].to_pylist()
    return len(sizes) <= _COPIED_FILES and sum(sizes) <= _COPIED_BYTES


def _read_version(opened: DeltaTable) -> tuple[str, int]:
    return str(opened.metadata().id), opened.version()
