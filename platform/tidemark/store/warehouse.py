"""The warehouse: Delta tables in one database, each created, read and committed to by its name.

Who commits is decided once, by where the warehouse is (`committers`). A table is registered in the
engine's catalog too, for SQL and dbt; Tidemark itself finds it by its location.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
from pyarrow.fs import LocalFileSystem
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidemark.base.errors import DataError, DefinitionError
from tidemark.define.tables import TableName, clash
from tidemark.engine.planning import Planner, Planning
from tidemark.store import claims
from tidemark.store.catalog import Catalog
from tidemark.store.committers import (
    Committer,
    Direct,
    Engine,
    Head,
    Merge,
    Vouches,
    atomic,
    durable,
)
from tidemark.store.committers.staged import file_system
from tidemark.store.conditions import Condition
from tidemark.store.rows import Rows

FORMAT = 2
"""The version of the tables' layout that this Tidemark writes."""

SCRATCH = "_scratch"
"""The folder of a database for files that go when the work that wrote them ends."""

_THREADS = 4
T = TypeVar("T")
_FEED = "delta.enableChangeDataFeed"


class Place(NamedTuple):
    """What a `Warehouse` takes beside its session."""

    location: str
    database: str
    registered: bool
    committer: str | None


class Warehouse:
    """Tidemark's tables in one database.

    To read them is for everybody; to write to them is for Tidemark. A session comes from
    `tidemark.engine`, as in `Warehouse(engine.session(settings), settings.warehouse)`.

    Args:
        spark: a session of the engine.
        location: the folder (or bucket) that holds the tables, as the engine sees it.
        database: the catalog's database, and the folder below `location`.
        registered: whether the tables are in the catalog too.
        committer: `direct` or `engine`; by default what is right for the location. One warehouse
            has one, always.
    """

    def __init__(
        self,
        spark: SparkSession,
        location: str,
        database: str = "tidemark",
        registered: bool = True,
        committer: Literal["direct", "engine"] | str | None = None,
    ) -> None:
        self.spark = spark
        self.location = location.rstrip("/")
        self.database = database
        self.registered = registered
        self._kind = committer
        direct = committer == "direct" or (committer is None and atomic(location))
        folder = f"{self.location}/{database}"
        # Tables that were seen to be there, in a layout that is known.
        self._known: set[str] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._planner = Planner(spark)
        self.catalog = Catalog(spark, database, self.path, self.beside)
        self.committer: Committer = Direct(spark, folder) if direct else Engine(spark, folder)

    @property
    def place(self) -> Place:
        """Where the tables are, to open them in another session."""
        return Place(self.location, self.database, self.registered, self._kind)

    def path(self, table: str) -> str:
        """Where a table lies."""
        return f"{self.location}/{self.database}/{table}"

    def create(
        self,
        table: str,
        like: str | StructType | Rows,
        comment: str = "",
        *,
        feed: bool = False,
        told: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a table, unless it is there; whether it was not.

        A table that has an owner and a role (`define.tables`) gets both as properties, and one that
        exists must have the same.

        Args:
            like: its columns, as DDL or as rows that have them.
            feed: whether consumers may read its changes (Delta's change data feed): an append
                costs nothing more, an update or deletion writes its rows once again.
            told: what the table is to say of itself: more properties.

        Raises:
            DataError: the warehouse can't be written, or another Tidemark wrote the table, or has
                another committer for it.
            DefinitionError: the table belongs to another source or asset.
        """
        if (found := self.head(table)) is not None:
            _check_owner(table, found)
            return False
        if isinstance(like, str):
            like = self.spark.createDataFrame([], like)
        columns = like if isinstance(like, StructType) else like.schema
        properties = {"tidemark.format": str(FORMAT), "tidemark.committer": self.committer.name}
        properties |= {_FEED: "true"} if feed else {}
        properties |= told or {}
        properties |= table.properties if isinstance(table, TableName) else {}
        made = self.committer.create(table, columns, comment, properties)
        if not made and (found := self.head(table)) is not None:
            _check_owner(table, found)
        if self.registered:
            self.catalog.enter(table)
        return made

    def widen(self, table: str, schema: pa.Schema) -> None:
        """Add those columns of `schema` to a table that it lacks; its rows have nulls there."""
        there = set(self.schema(table).names)
        lacking = [field for field in schema if field.name not in there]
        if lacking:
            self.committer.widen(table, pa.schema(lacking))

    def enter(self, *tables: str) -> None:
        """Enter those of some tables that are there into the catalog, unless they are in it: who
        created them may have been killed in between."""
        for table in tables if self.registered else ():
            if self.exists(table):
                self.catalog.enter(table)

    def restore(self) -> None:
        """Enter all tables of the database, and those of its marts, into the catalog if it lacks
        them."""
        for place in (self, self.of_marts()):
            if place.registered and (there := place.committer.tables()):
                place.catalog.restore(there)

    def of_marts(self) -> "Warehouse":
        """Return the database of the marts, which dbt writes."""
        name = f"{self.database}_marts"
        return Warehouse(self.spark, self.location, name, self.registered, self._kind)

    def head(self, table: str) -> Head | None:
        """Where a table stands; None where there is none.

        Raises:
            DataError: another Tidemark wrote it, in a layout that this one does not know; or
                another committer than this warehouse's commits to it.
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
                    else "choose another database or home, "
                    "ingest again and backfill; the old tables stay as they are."
                )
            )
        if found is not None and found.committer not in (None, self.committer.name):
            raise DataError(
                f"Table '{table}' in '{self.location}' has '{found.committer}' as its committer, "
                f"and this warehouse has '{self.committer.name}': with two of them commits would "
                "be lost, so it is not touched; a warehouse that was moved here from a store of "
                "another kind is to be made anew, in another database or home."
            )
        if found is not None:
            self._known.add(table)
        return found

    def exists(self, table: str) -> bool:
        """Whether the table is there."""
        return self.head(table) is not None

    def read(self, table: str, *bounds: Condition) -> DataFrame:
        """The table's rows as they are now, for the engine; those within all of the bounds.

        Raises:
            DataError: there is no such table, or another Tidemark wrote it.
        """
        self._demand(table)
        return self.committer.read(table, *bounds)

    def take(
        self, table: str, *bounds: Condition, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The same in memory; some of the columns, or all."""
        self._demand(table)
        return self.committer.take(table, *bounds, columns=columns)

    def table(self, table: str) -> DataFrame:
        """The table as the engine's own reader has it."""
        self._demand(table)
        return self.spark.read.format("delta").load(self.path(table))

    def rows_at(self, table: str, version: int) -> Rows:
        """The rows that a version of a table has."""
        return self.committer.rows_at(table, version)

    def readable(self, table: str, version: int) -> bool:
        """Whether a version of a table can still be read: its log tells of it, and its files are
        there."""
        return self.committer.readable(table, version)

    def schema(self, table: str) -> pa.Schema:
        """The table's columns."""
        self._demand(table)
        return self.committer.schema(table)

    def greatest(self, table: str, column: str) -> int | None:
        """The greatest whole number in a column; None where there is none."""
        self._demand(table)
        return self.committer.greatest(table, column)

    def version(self, table: str) -> int:
        """The number of the table's newest commit; -1 where there is no table."""
        found = self.head(table)
        return -1 if found is None else found.version

    def changes(self, table: str, since: int) -> DataFrame:
        """The change feed of a table that keeps one: what its commits after `since` changed."""
        return self.committer.changes(table, since)

    def changed(self, table: str, since: int, through: int) -> pa.Table:
        """The same in memory, of the commits (since, through].

        Raises:
            HistoryGone: the table's history does not go back so far.
        """
        return self.committer.changed(table, since, through)

    def whole(self, table: str) -> tuple[Head, pa.Table]:
        """Where a table stands, and all of its rows as of that commit."""
        self._demand(table)
        return self.committer.whole(table)

    def transaction(self, table: str, app: str) -> int:
        """The newest version that an application has committed to a table; -1 before the first."""
        return -1 if self.head(table) is None else self.committer.transaction(table, app)

    def spill(self, tables: Iterable[pa.Table], folder: str) -> DataFrame:
        """Write rows in memory, of one table or more, into a folder of the database, for the engine
        to read."""
        return self.committer.spill(self.path(folder), tables)

    def aside(self, rows: DataFrame, folder: str, most: int) -> Rows:
        """Rows, computed once and in full into a folder of the database, for the engine to read
        and for a commit to take over as they are; up to `most` of them come into memory."""
        return self.committer.aside(self.path(folder), rows, most)

    def pick(self, rows: Rows, *columns: str) -> pa.Table:
        """Some columns of rows that are held, in memory."""
        if isinstance(rows, DataFrame):
            return self.committer.pick(rows, columns)
        return rows.select(list(columns))

    def count(self, rows: Rows) -> int:
        """How many rows are held; of windows, which all have `events`."""
        return self.pick(rows, "events").num_rows

    def at_most(self, table: str, *bounds: Condition) -> int | None:
        """How many rows at most are within all of the bounds; None where that is not told without
        asking."""
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
        """Add rows, once for each (app, version): how many, None where the table had this version
        already. Without an app they are added whenever it is asked.

        Args:
            also: a few rows more, with the table's columns.
            vouches: what the commit says of other tables (`store.integrity`).

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
        """Put rows in the place of those of which `where` is true; otherwise as `append`. Where it
        is `TRUE` the table has the columns of the rows from then on."""
        place = (table, rows, where, app, version)
        return self.committer.replace(*place, also=also, vouches=vouches)

    def merge(
        self, rows: Rows, table: str, merge: Merge, app: str | None = None, version: int = 0
    ) -> int | None:
        """Merge rows into a table: how many were written; otherwise as `append`."""
        return self.committer.merge(table, rows, merge, app, version)

    def merge_if(self, rows: Callable[[], Rows], table: str, merge: Merge, app: str) -> int:
        """Merge rows that are read after the table was looked at, where the application has
        committed nothing to it in between; otherwise they are read again."""
        return self.committer.merge_if(table, rows, merge, app)

    def drop(self, table: str) -> bool:
        """Remove a table, its files and its entry in the catalog; whether it was there.

        Raises:
            DefinitionError: the table belongs to another source or asset.
        """
        self._known.discard(table)
        found = self.committer.head(table)
        if found is not None:
            _check_owner(table, found)
        if self.registered:
            self.catalog.leave(table)
        if found is None:
            return False
        system, path = file_system(self.path(table))
        # Who sweeps the scratch leaves it to this process.
        handle = claims.claim(self.path(table))
        try:
            if isinstance(system, LocalFileSystem):
                # At once: a table of which some files are gone could still be opened.
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
        """Remove a folder of the database, and all that is in it, if it is there."""
        system, path = file_system(self.path(folder))
        if system.get_file_info(path).type != pafs.FileType.NotFound:
            system.delete_dir(path)

    def beside(self, work: Callable[[], T]) -> Future[T]:
        """Do work at the same time, in a thread: most of what a query takes is waiting for it."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="warehouse")
        return self._threads.submit(work)

    def planning(self, planning: Planning) -> AbstractContextManager[None]:
        """Let the engine plan its queries meanwhile as is best for so many rows."""
        return self._planner.planning(planning)

    def _demand(self, table: str) -> None:
        if table not in self._known and self.head(table) is None:
            raise DataError(f"There is no table '{table}' in '{self.location}' yet.")


def _check_owner(table: str, found: Head) -> None:
    """Refuse a table that has another owner or role than its name says."""
    if not isinstance(table, TableName):
        return
    if found.name is None:
        raise DefinitionError(
            f"Table '{table}' is not Tidemark's, and would be {table.describe()}: rename one of "
            "them, or use another database."
        )
    if found.name.identity != table.identity:
        raise DefinitionError(clash(found.name, table))
