"""Open the warehouse: Delta tables in one database, created, read and committed to by name.

Tables are also registered in the engine's catalog, for SQL and dbt. Tidemark itself finds them by
location.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple, TypeVar
from uuid import uuid4

import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.fs import LocalFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.settings import Settings
from tidemark.define.tables import TableName, describe_clash
from tidemark.engine.queries.planning import Planner, Planning
from tidemark.store import claims
from tidemark.store.catalog import Catalog
from tidemark.store.committers import durable
from tidemark.store.committers.committer import Committer
from tidemark.store.committers.file_systems import file_system
from tidemark.store.committers.values import Head
from tidemark.store.rows import Rows

FORMAT = 6
"""The version of the table layout that this version of Tidemark writes."""

SCRATCH = "_scratch"
"""The folder of a database for temporary files. Each piece of work removes its own files."""

_THREADS = 4
_T = TypeVar("_T")
_FEED = "delta.enableChangeDataFeed"


class Place(NamedTuple):
    """Identifies a database, so that its `Warehouse` can be opened with another session."""

    location: str
    database: str
    registered: bool


class Warehouse(Committer):
    """Tidemark's tables in one database.

    Anyone may read the tables, but only Tidemark may write to them. Get a session from
    `tidemark.engine`: `Warehouse(engine.connect_session(settings), settings.warehouse)`.

    Args:
        spark: a session of the engine.
        location: the folder (or bucket) that holds the tables, as the engine sees it.
        database: the catalog's database, and the folder below `location`.
        registered: true if the tables are also registered in the catalog.

    Raises:
        StoreError: the location is in a store that can't hold tables.
    """

    def __init__(
        self,
        spark: SparkSession,
        location: str,
        database: str = "tidemark",
        registered: bool = True,
    ) -> None:
        self.location = location.rstrip("/")
        self.database = database
        super().__init__(spark, f"{self.location}/{database}")
        self.registered = registered
        # Tables known to exist, with a format that matches.
        self._known: set[str] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._planner = Planner(spark)
        self.catalog = Catalog(spark, database, self.path_of, self.run_in_background)

    @classmethod
    def of_project(cls, settings: Settings, spark: SparkSession) -> "Warehouse":
        """Return the warehouse of a project.

        Raises:
            DataError: the database in the engine's catalog is another project's.
        """
        warehouse = cls(spark, settings.warehouse, settings.database)
        if settings.is_remote:
            warehouse.catalog.check_location()
        return warehouse

    @property
    def place(self) -> Place:
        """The arguments with which another session can open this warehouse."""
        return Place(self.location, self.database, self.registered)

    def ensure_table(
        self,
        table: str,
        columns_like: str | StructType | Rows,
        comment: str = "",
        *,
        feed: bool = False,
        extra_properties: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a table. Return False if it exists already.

        A table with an owner and a role (`define.tables`) gets both as properties, and the owners
        of the tables that it reads. The latter are updated if the table exists and they differ.

        Args:
            columns_like: the table's columns, as DDL, as a Spark schema, or as rows that have them.
            feed: enables Delta's change data feed, so that consumers can read the table's changes.
                An append costs nothing more; an update or deletion writes its rows a second time.
            extra_properties: more properties of the table.

        Raises:
            DefinitionError: the table exists already, with another owner or role, or with none.
        """
        head = self.find_head(table)
        if head is not None:
            _check_owner(table, head)
            self._update_bases(table, head)
            return False
        if isinstance(columns_like, str):
            columns_like = self.spark.createDataFrame([], columns_like)
        columns = columns_like if isinstance(columns_like, StructType) else columns_like.schema
        properties = {"tidemark.format": str(FORMAT)}
        if feed:
            properties[_FEED] = "true"
        if extra_properties is not None:
            properties.update(extra_properties)
        if isinstance(table, TableName):
            properties.update(table.table_properties)
        is_new = self.create_table(table, columns, comment, properties)
        if not is_new:
            # Another process has created the table in the meantime.
            head = self.find_head(table)
            if head is not None:
                _check_owner(table, head)
        if self.registered:
            self.catalog.register_table(table)
        return is_new

    def _update_bases(self, table: str, head: Head) -> None:
        """Record the bases of a table's owner again if the definition has changed them."""
        if not isinstance(table, TableName) or head.name is None:
            return
        if table.bases and table.bases != head.name.bases:
            self.set_properties(table, table.bases_property)

    def register_tables(self, *tables: str) -> None:
        """Register tables in the catalog, if they exist and are not registered yet.

        The process that created them may have been killed before it registered them.
        """
        if not self.registered:
            return
        for table in tables:
            if self.has_table(table):
                self.catalog.register_table(table)

    def register_missing_tables(self) -> None:
        """Register all tables of the database and of its marts that the catalog lacks."""
        for warehouse in (self, self.open_marts()):
            if not warehouse.registered:
                continue
            existing = warehouse.list_tables()
            if existing:
                warehouse.catalog.register_missing_tables(existing)

    def open_marts(self, *, registered: bool | None = None) -> "Warehouse":
        """Return the database of the marts, which dbt writes.

        Args:
            registered: as for `Warehouse`; the default is this warehouse's.
        """
        if registered is None:
            registered = self.registered
        return Warehouse(self.spark, self.location, f"{self.database}_marts", registered)

    def find_head(self, table: str) -> Head | None:
        """Return a table's identity, version and properties; None if it does not exist.

        Raises:
            DataError: another version of Tidemark wrote the table, in another format.
        """
        head = super().find_head(table)
        if head is None:
            return None
        # A table that Tidemark did not create has format 0.
        if head.format not in (0, FORMAT):
            raise _format_error(table, head.format)
        self._known.add(table)
        return head

    def has_table(self, table: str) -> bool:
        """Return whether the table exists."""
        return self.find_head(table) is not None

    def read_with_engine(self, table: str) -> DataFrame:
        """Return a table as a DataFrame of the engine's own Delta reader."""
        self._open_newest(table)
        return self.spark.read.format("delta").load(self.path_of(table))

    def newest_version(self, table: str) -> int:
        """Return the number of the table's newest commit; -1 if the table does not exist."""
        head = self.find_head(table)
        if head is None:
            return -1
        return head.version

    def transaction_version(self, table: str, app: str) -> int:
        """Return an application's newest version in a table; -1 before its first commit."""
        with self.pin_version(table):
            if self.find_head(table) is None:
                return -1
            return super().transaction_version(table, app)

    def drop_table(self, table: str) -> bool:
        """Remove a table, its files and its catalog entry. Return whether the table existed.

        A table whose transaction log is damaged is removed, too.
        """
        self._known.discard(table)
        if not self.has_files(table):
            if self.registered:
                self.catalog.unregister_table(table)
            return False
        with suppress(DeltaError):
            head = super().find_head(table)
            if head is not None:
                _check_owner(table, head)
        if self.registered:
            self.catalog.unregister_table(table)
        system, path = file_system(self.path_of(table))
        # The claim keeps other processes from sweeping the folder.
        handle = claims.claim_folder(self.path_of(table))
        try:
            if isinstance(system, LocalFileSystem):
                # Move it in one step: a partly deleted table could still be opened.
                folder, _, name = path.rpartition("/")
                path = f"{folder}/{SCRATCH}/dropped-{uuid4().hex}-{name}"
                system.create_dir(f"{folder}/{SCRATCH}")
                system.move(f"{folder}/{name}", path)
                durable.sync_folder(folder)
            system.delete_dir(path)
        finally:
            claims.release_claim(handle)
        return True

    def has_files(self, table: str) -> bool:
        """Return whether a table exists, even if its transaction log is damaged."""
        system, path = file_system(self.path_of(table))
        log = system.get_file_info(f"{path}/{durable.LOG}")
        return log.type == pafs.FileType.Directory

    def remove_folder(self, folder: str) -> None:
        """Remove a folder of the database with its contents, if it exists."""
        system, path = file_system(self.path_of(folder))
        if system.get_file_info(path).type != pafs.FileType.NotFound:
            system.delete_dir(path)

    def run_in_background(self, work: Callable[[], _T]) -> Future[_T]:
        """Run a function in one of a few background threads, so that it may wait for the engine."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="warehouse")
        return self._threads.submit(work)

    def use_planning(self, planning: Planning) -> AbstractContextManager[None]:
        """Use the given planner settings of the engine within the context."""
        return self._planner.use_planning(planning)

    def _open_newest(self, table: str) -> DeltaTable:
        with self.pin_version(table):
            if table not in self._known and self.find_head(table) is None:
                raise DataError(
                    f"There is no table '{table}' in '{self.location}' yet: `tidemark ingest` "
                    "creates the tables of a source, and `tidemark run` those of an asset."
                )
            return super()._open_newest(table)


def _format_error(table: str, table_format: int) -> DataError:
    """Return the error for a table in a format that this version does not read."""
    if table_format > FORMAT:
        writer = "a newer"
        remedy = "upgrade Tidemark to use it."
    else:
        writer = "an earlier"
        remedy = (
            "choose another database or home, ingest again and backfill. The old tables stay "
            "unchanged."
        )
    return DataError(
        f"Table '{table}' was written by {writer} Tidemark (format {table_format}; this one writes "
        f"{FORMAT}): {remedy}"
    )


def _check_owner(table: str, head: Head) -> None:
    if not isinstance(table, TableName):
        return
    if head.name is None:
        raise DefinitionError(
            f"Table '{table}' does not belong to Tidemark, but has the name of "
            f"{table.describe_role()}: rename one of them, or use another database."
        )
    if head.name.table_identity != table.table_identity:
        raise DefinitionError(describe_clash(head.name, table))
