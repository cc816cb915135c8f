"""Open the Delta tables below a folder, and return their identities, versions and properties."""

from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import SparkSession

from tidemark.store.committers import conditional
from tidemark.store.committers.client_options import open_delta_table
from tidemark.store.committers.file_systems import file_system, local_folder
from tidemark.store.committers.leftovers import written_at
from tidemark.store.committers.log_entry import version_id
from tidemark.store.committers.open_tables import OpenTables
from tidemark.store.committers.values import Head
from tidemark.store.refusals import translate_refusals
from tidemark.store.rows import arrow_schema


class TableAccess:
    """Access to the Delta tables below a folder, by name.

    Args:
        spark: writes and reads rows that do not fit in memory.
        folder: the folder or bucket that holds the tables. The object store's client takes its
            other settings, such as `AWS_ENDPOINT_URL`, from the environment.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        conditional.check_allowed(folder)
        self.spark = spark
        self._root = folder
        self._tables = OpenTables(folder)

    def path_of(self, table: str) -> str:
        return self._tables.path_of(table)

    def close_replaced_tables(self) -> bool:
        """Close the tables that were restored, recreated or dropped since this thread opened them.

        Return whether there was one.
        """
        return self._tables.close_replaced_tables()

    def pin_version(self, table: str) -> AbstractContextManager[None]:
        """Let all accesses to a table in the block use the same version of the table.

        A commit of the block adds its version. If another commit came first, it fails, and the next
        access finds that commit.
        """
        return self._tables.pin_version(table)

    def list_tables(self) -> list[str]:
        """Return the names of the Delta tables that exist."""
        return [name for name in self._list_folders() if self._tables.has_table(name)]

    def has_any_table(self) -> bool:
        """Return whether a Delta table exists."""
        return any(self._tables.has_table(name) for name in self._list_folders())

    def _list_folders(self) -> list[str]:
        """Return the names of the folders that may be tables, sorted."""
        system, folder = file_system(self._root)
        names = list[str]()
        for entry in system.get_file_info(pafs.FileSelector(folder, allow_not_found=True)):
            is_hidden = entry.base_name[0] in "._"
            if entry.type == pafs.FileType.Directory and not is_hidden:
                names.append(entry.base_name)
        return sorted(names)

    def find_head(self, table: str) -> Head | None:
        """Return a table's identity, newest version and properties; None without a table."""
        try:
            opened = self._tables.open_newest(table)
        except TableNotFoundError:
            return None
        except OSError as error:
            if "Not a directory" in str(error):
                return None
            raise
        return read_head(table, opened)

    def read_schema(self, table: str) -> pa.Schema:
        return arrow_schema(self._open_newest(table).schema())

    def read_properties(self, table: str) -> dict[str, str]:
        configuration = self._tables.open_newest(table).metadata().configuration
        return {name: value or "" for name, value in configuration.items()}

    def transaction_version(self, table: str, app: str) -> int:
        """Return an application's newest version in a table; -1 before its first commit."""
        version = self._tables.open_newest(table).transaction_version(app)
        return -1 if version is None else version

    def read_identity(self, table: str) -> Hashable:
        """Return a value that identifies the newest version of a table in this process.

        It differs from that of any other version, also from that of a version with the same number
        in another history of the table.
        """
        self._tables.open_newest(table)
        return self._tables.find_identity(table)

    def find_identity(self, table: str) -> Hashable:
        """Return the identity of the newest version of a table that this thread has seen.

        The table is not accessed.
        """
        return self._tables.find_identity(table)

    def find_opened(self, table: str) -> DeltaTable | None:
        """Return a table at the newest version that this thread has seen; None if none.

        The table is not accessed.
        """
        return self._tables.find_opened(table)

    def version_at(self, path: str) -> int | None:
        """Return the newest version of the Delta table at any path; None without a table."""
        try:
            return open_delta_table(path).version()
        except TableNotFoundError:
            return None

    def committed_at(self, table: str, version: int) -> int | None:
        """Return when a version was committed, in microseconds; None if the log lacks it."""
        system, folder = file_system(self.path_of(table))
        info = system.get_file_info(f"{folder}/_delta_log/{version:020}.json")
        if info.type == pafs.FileType.NotFound:
            return None
        return written_at(info)

    def version_id(self, table: str, version: int) -> str | None:
        """Return the identity of a version (`log_entry`); None if the log lacks its entry."""
        return version_id(self.path_of(table), version)

    @property
    def _is_local(self) -> bool:
        return local_folder(self._root) is not None

    def _open_newest(self, table: str) -> DeltaTable:
        return self._tables.open_newest(table)

    @contextmanager
    def _open_for_commit(self, table: str) -> Iterator[DeltaTable]:
        """Yield the newest version of a table, for one commit of the block."""
        with (
            translate_refusals(f"write table '{table}'"),
            self._tables.stage_commit(table, self._tables.base_of_commit(table)) as opened,
        ):
            yield opened


def read_head(table: str, opened: DeltaTable) -> Head:
    metadata = opened.metadata()
    return Head.from_properties(table, str(metadata.id), opened.version(), metadata.configuration)
