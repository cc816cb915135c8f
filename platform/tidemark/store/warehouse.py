"""Open the warehouse: Delta tables in one database, created, read and committed to by name.

Tables are also registered in the engine's catalog, for SQL and dbt. Tidemark itself finds them by
location.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
from pyarrow.fs import LocalFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidemark.base.errors import DataError, DefinitionError
from tidemark.define.tables import TableName, clash
from tidemark.engine.queries.planning import Planner, Planning
from tidemark.store import claims
from tidemark.store.catalog import Catalog
from tidemark.store.commits.conditions import Condition
from tidemark.store.committers import (
    Committer,
    Head,
    Merge,
    Vouches,
    durable,
)
from tidemark.store.committers.staged import file_system
from tidemark.store.rows import Rows

FORMAT = 5
"""The version of the table layout that this Tidemark writes."""

SCRATCH = "_scratch"
"""The folder of a database for temporary files. Each piece of work removes its own."""

_THREADS = 4
T = TypeVar("T")
_FEED = "delta.enableChangeDataFeed"


class Place(NamedTuple):
    """The arguments of a `Warehouse` other than its session."""

    location: str
    database: str
    registered: bool


class Warehouse:
    """Tidemark's tables in one database.

    Anyone may read the tables, but only Tidemark may write to them. Get a session from
    `tidemark.engine`: `Warehouse(engine.session(settings), settings.warehouse)`.

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
        self.spark = spark
        self.location = location.rstrip("/")
        self.database = database
        self.registered = registered
        # Tables known to exist, with a format that matches.
        self._known: set[str] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._planner = Planner(spark)
        self.catalog = Catalog(spark, database, self.path, self.run_in_background)
        self.committer = Committer(spark, f"{self.location}/{database}")

    @property
    def place(self) -> Place:
        """The arguments with which another session can open this warehouse."""
        return Place(self.location, self.database, self.registered)

    def path(self, table: str) -> str:
        """Return the location of a table."""
        return f"{self.location}/{self.database}/{table}"

    def create(
        self,
        table: str,
        like: str | StructType | Rows,
        comment: str = "",
        *,
        feed: bool = False,
        extra_properties: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a table. Return False if it exists already.

        A table with an owner and a role (`define.tables`) gets both as properties. An existing
        table must have the same owner and role.

        Args:
            like: its columns, as DDL or as rows that have them.
            feed: enables Delta's change data feed, so that consumers can read the table's changes.
                An append costs nothing more; an update or deletion writes its rows a second time.
            extra_properties: more properties of the table.

        Raises:
            DataError: the warehouse can't be written, or the table has another format.
            DefinitionError: the table belongs to another source or asset.
        """
        if (found := self.head(table)) is not None:
            _check_owner(table, found)
            return False
        if isinstance(like, str):
            like = self.spark.createDataFrame([], like)
        columns = like if isinstance(like, StructType) else like.schema
        properties = {"tidemark.format": str(FORMAT)}
        properties |= {_FEED: "true"} if feed else {}
        properties |= extra_properties or {}
        properties |= table.properties if isinstance(table, TableName) else {}
        made = self.committer.create(table, columns, comment, properties)
        if not made and (found := self.head(table)) is not None:
            _check_owner(table, found)
        if self.registered:
            self.catalog.register(table)
        return made

    def add_columns(self, table: str, schema: pa.Schema) -> None:
        """Add the columns of `schema` that a table lacks; they are null in its existing rows."""
        existing = set(self.schema(table).names)
        lacking = [field for field in schema if field.name not in existing]
        if lacking:
            self.committer.add_columns(table, pa.schema(lacking))

    def register(self, *tables: str) -> None:
        """Register tables in the catalog, if they exist and are not registered yet.

        The process that created them may have been killed before it registered them.
        """
        for table in tables if self.registered else ():
            if self.exists(table):
                self.catalog.register(table)

    def restore(self) -> None:
        """Register all tables of the database and of its marts that the catalog lacks."""
        for place in (self, self.marts()):
            if place.registered and (existing := place.committer.tables()):
                place.catalog.restore(existing)

    def marts(self, *, registered: bool | None = None) -> "Warehouse":
        """Return the database of the marts, which dbt writes.

        Args:
            registered: as for `Warehouse`; the default is this warehouse's.
        """
        name = f"{self.database}_marts"
        registered = self.registered if registered is None else registered
        return Warehouse(self.spark, self.location, name, registered)

    def head(self, table: str) -> Head | None:
        """Return a table's identity, version and properties; None if it does not exist.

        Raises:
            DataError: the table has a format that this Tidemark does not know.
        """
        found = self.committer.head(table)
        if found is not None and found.format not in (0, FORMAT):
            newer = found.format > FORMAT
            raise DataError(
                f"Table '{table}' was written by {'a newer' if newer else 'an earlier'} Tidemark "
                f"(format {found.format}; this one writes {FORMAT}): "
                + (
                    "upgrade Tidemark to use it."
                    if newer
                    else (
                        "choose another database or home, ingest again and backfill. The old "
                        "tables stay unchanged."
                    )
                )
            )
        if found is not None:
            self._known.add(table)
        return found

    def exists(self, table: str) -> bool:
        """Return whether the table exists."""
        return self.head(table) is not None

    def read(self, table: str, *bounds: Condition) -> DataFrame:
        """Return the current rows that satisfy all bounds, as a DataFrame.

        Raises:
            DataError: the table does not exist, or has another format.
        """
        self._demand(table)
        return self.committer.read(table, *bounds)

    def take(
        self, table: str, *bounds: Condition, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the current rows that satisfy all bounds, with all columns by default."""
        self._demand(table)
        return self.committer.take(table, *bounds, columns=columns)

    def table(self, table: str) -> DataFrame:
        """Return a table as a DataFrame of the engine's own Delta reader."""
        self._demand(table)
        return self.spark.read.format("delta").load(self.path(table))

    def rows_at(self, table: str, version: int) -> Rows:
        """Return the rows of a version of a table."""
        return self.committer.rows_at(table, version)

    def readable(self, table: str, version: int) -> bool:
        """Return whether a version of a table can still be read.

        Its commit must be in the transaction log, and all of its files must exist.
        """
        return self.committer.readable(table, version)

    def schema(self, table: str) -> pa.Schema:
        """Return the table's columns."""
        self._demand(table)
        return self.committer.schema(table)

    def max_value(self, table: str, column: str) -> int | None:
        """Return the greatest whole number in a column; None if there is none."""
        self._demand(table)
        return self.committer.max_value(table, column)

    def version(self, table: str) -> int:
        """Return the number of the table's newest commit; -1 if the table does not exist."""
        found = self.head(table)
        return -1 if found is None else found.version

    def changes(self, table: str, since: int) -> DataFrame:
        """Return the change data feed of the commits after `since`.

        The table must have been created with `feed`.
        """
        return self.committer.changes(table, since)

    def read_changes(self, table: str, since: int, through: int) -> pa.Table:
        """Return the changes of the commits (since, through] in memory.

        Raises:
            HistoryExpiredError: the table's history does not go back so far.
        """
        return self.committer.read_changes(table, since, through)

    def snapshot(self, table: str) -> tuple[Head, pa.Table]:
        """Return a table's head, and all of its rows as of that commit."""
        self._demand(table)
        return self.committer.snapshot(table)

    def transaction(self, table: str, app: str) -> int:
        """Return the newest version of an application in a table; -1 before its first commit."""
        return -1 if self.head(table) is None else self.committer.transaction(table, app)

    def spill(self, tables: Iterable[pa.Table], folder: str) -> DataFrame:
        """Write in-memory tables into a folder of the database. Return them as one DataFrame."""
        return self.committer.spill(self.path(folder), tables)

    def materialize(self, rows: DataFrame, folder: str, most: int) -> Rows:
        """Materialize rows: compute them once, in full, into a folder of the database.

        A commit of these rows reuses the files. At most `most` rows are returned in memory; more
        rows are returned as a DataFrame that reads the files.
        """
        return self.committer.materialize(self.path(folder), rows, most)

    def select(self, rows: Rows, *columns: str) -> pa.Table:
        """Return some columns of materialized rows, in memory."""
        if isinstance(rows, DataFrame):
            return self.committer.select(rows, columns)
        return rows.select(list(columns))

    def count(self, rows: Rows) -> int:
        """Return the number of materialized window rows, which all have a column `events`."""
        return self.select(rows, "events").num_rows

    def at_most(self, table: str, *bounds: Condition) -> int:
        """Return an upper bound of the rows that satisfy all bounds."""
        self._demand(table)
        return self.committer.at_most(table, *bounds)

    def append(
        self,
        rows: Rows,
        table: str,
        app: str | None = None,
        version: int = 0,
        *,
        also: pa.Table | None = None,
        vouches: Vouches | None = None,
    ) -> int | None:
        """Append rows, once for each (app, version). Return the number of rows.

        Return None if the table already has this version of the application. Without an
        application, every call appends.

        Args:
            also: a few additional rows with the table's columns.
            vouches: the versions of other tables that the commit vouches for (`store.integrity`).

        Raises:
            ConflictError: another writer used this app and version at the same time.
            DataError: the table can't be written, or has other columns.
        """
        return self.committer.append(table, rows, app, version, also=also, vouches=vouches)

    def replace(
        self,
        rows: Rows,
        table: str,
        where: str,
        app: str,
        version: int,
        *,
        also: pa.Table | None = None,
        vouches: Vouches | None = None,
    ) -> int | None:
        """Replace the rows for which `where` is true. Otherwise like `append`.

        If `where` is `TRUE`, the table takes over the columns of the new rows.
        """
        place = (table, rows, where, app, version)
        return self.committer.replace(*place, also=also, vouches=vouches)

    def merge(
        self,
        rows: Rows,
        table: str,
        merge: Merge,
        app: str | None = None,
        version: int = 0,
        *,
        vouches: Vouches | None = None,
    ) -> int | None:
        """Merge rows into a table, and return the number of rows written.

        Otherwise like `append`.
        """
        return self.committer.merge(table, rows, merge, app, version, vouches=vouches)

    def merge_if(self, rows: Callable[[], Rows], table: str, merge: Merge, app: str) -> int:
        """Merge rows that are read after the table was opened. Return the number of rows written.

        If the application has committed to the table in between, the rows are read again.
        """
        return self.committer.merge_if(table, rows, merge, app)

    def drop(self, table: str) -> bool:
        """Remove a table, its files and its catalog entry. Return whether it existed.

        Raises:
            DefinitionError: the table belongs to another source or asset.
        """
        self._known.discard(table)
        found = self.committer.head(table)
        if found is not None:
            _check_owner(table, found)
        if self.registered:
            self.catalog.unregister(table)
        if found is None:
            return False
        system, path = file_system(self.path(table))
        # The claim keeps other processes from sweeping the folder.
        handle = claims.claim(self.path(table))
        try:
            if isinstance(system, LocalFileSystem):
                # Move it in one step: a partly deleted table could still be opened.
                away, _, name = path.rpartition("/")
                path = f"{away}/{SCRATCH}/dropped-{uuid4().hex}-{name}"
                system.create_dir(f"{away}/{SCRATCH}")
                system.move(f"{away}/{name}", path)
                durable.sync_folder(away)
            system.delete_dir(path)
        finally:
            claims.release(handle)
        return True

    def remove(self, folder: str) -> None:
        """Remove a folder of the database with its contents, if it exists."""
        system, path = file_system(self.path(folder))
        if system.get_file_info(path).type != pafs.FileType.NotFound:
            system.delete_dir(path)

    def run_in_background(self, work: Callable[[], T]) -> Future[T]:
        """Run a function in a background thread; a query mostly waits for the engine."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="warehouse")
        return self._threads.submit(work)

    def planning(self, planning: Planning) -> AbstractContextManager[None]:
        """Use the given planner settings of the engine within the context."""
        return self._planner.planning(planning)

    def _demand(self, table: str) -> None:
        if table not in self._known and self.head(table) is None:
            raise DataError(f"There is no table '{table}' in '{self.location}' yet.")


def _check_owner(table: str, found: Head) -> None:
    """Raise an error if a table has another owner or role than its name says."""
    if not isinstance(table, TableName):
        return
    if found.name is None:
        raise DefinitionError(
            f"Table '{table}' does not belong to Tidemark, but would be {table.describe()}: "
            "rename one of them, or use another database."
        )
    if found.name.identity != table.identity:
        raise DefinitionError(clash(found.name, table))
