"""The warehouse: Delta tables in one database, created, read and written by path.

A table is registered in the engine's catalog, for SQL and dbt, and used here by its location,
which saves the catalog's part of each write. Every write carries an application name and a
version: Delta skips a version that it already has, so a write repeated after a crash counts once.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidemark.base.errors import ConflictError, DataError

FORMAT = 1
"""The version of the tables' layout that this Tidemark writes."""

_FEED = "delta.enableChangeDataFeed"
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_MISSING = (
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
    "PATH_NOT_FOUND",
    "Not a directory",
)
_CONFLICT = (
    *("CONCURRENT", "Concurrent", "PROTOCOL_CHANGED", "METADATA_CHANGED", "ALREADY_EXISTS"),
    "NON_EMPTY_LOCATION",
)
_GONE = re.compile(r"error while reading file (\S+)\. File does not exist")
_PATIENCE = 5.0
"""Seconds in which a table that another process is creating should be there."""
_UNWRITABLE = {
    "Permission denied": "the engine may not write there",
    "AccessDeniedException": "the engine may not write there",
    "Not a directory": "a file is in the way",
    "Read-only file system": "the file system is read-only",
    "No space left": "the disk is full",
    "CANNOT_CREATE_LOG_PATH": "no folder can be made there (read-only, or a file is in the way)",
    "Mkdirs failed": "no folder can be made there (read-only, or a file is in the way)",
}


class Place(NamedTuple):
    """What a `Warehouse` takes beside its session."""

    location: str
    database: str
    registered: bool


class Warehouse:
    """Tidemark's tables in one database.

    Args:
        spark: a session of the engine.
        location: the folder (or bucket) that holds the tables, as the engine sees it.
        database: the catalog's database, and the folder below `location`.
        registered: whether the tables are in the catalog too. Those that are not are for one writer
            alone, for a while; each is made by its first write, which is sooner.
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
        self._known: set[str] = set()
        self._new: set[str] = set()

    @property
    def place(self) -> Place:
        """Where the tables are, to open them in another session."""
        return Place(self.location, self.database, self.registered)

    def path(self, table: str) -> str:
        """Where a table lies."""
        return f"{self.location}/{self.database}/{table}"

    def create(
        self, table: str, like: str | DataFrame, comment: str = "", *, feed: bool = False
    ) -> bool:
        """Create a table, unless it is there; whether it was not.

        Args:
            like: its columns, as DDL or as rows that have them. The engine is asked for the rows'
                columns, which takes a while, only where the table is not there.
            feed: whether consumers may read its changes (Delta's change data feed): an append
                costs nothing more, an update or deletion writes its rows once again. Tables that
                are not registered have none.

        Raises:
            DataError: the warehouse can't be written, or a newer Tidemark wrote the table.
        """
        if table in self._known:
            return False
        if not self.exists(table):
            if not self.registered:
                self._known.add(table)
                self._new.add(table)
                return True
            columns = like if isinstance(like, str) else _ddl(like.schema)
            properties = {"tidemark.format": FORMAT} | ({_FEED: "true"} if feed else {})
            try:
                with translated(f"create table '{table}' in '{self.location}'"):
                    self.spark.sql(
                        f"CREATE TABLE IF NOT EXISTS {self._place(table)} ({columns}) USING delta "
                        f"LOCATION '{self.path(table)}' COMMENT '{_quoted(comment)}' "
                        f"TBLPROPERTIES ({_pairs(properties)})"
                    )
            except ConflictError:
                # Another process is creating it at the same time, which is as good.
                deadline = time.monotonic() + _PATIENCE
                while not self.exists(table) and time.monotonic() < deadline:
                    time.sleep(0.2)
            if not self.exists(table):
                raise DataError(
                    f"Table '{table}' can't be created in '{self.location}': its folder holds "
                    "something else, or the engine's catalog has it elsewhere; set the warehouse "
                    "back to where its tables are, or choose another database."
                )
            self._known.add(table)
            self._new.add(table)
            return True
        self._check_format(table)
        return False

    def _place(self, table: str) -> str:
        self.spark.sql(f"CREATE DATABASE IF NOT EXISTS `{self.database}`")
        return f"`{self.database}`.`{table}`"

    def exists(self, table: str) -> bool:
        """Whether the table is there."""
        if table in self._known:
            return True
        try:
            _ = self.spark.read.format("delta").load(self.path(table)).schema
        except PySparkException as error:
            if any(word in str(error) for word in _MISSING):
                return False
            raise
        return True

    def read(self, table: str) -> DataFrame:
        """The table's rows as they are now.

        Raises:
            DataError: there is no such table, or a newer Tidemark wrote it.
        """
        if table not in self._known:
            if not self.exists(table):
                raise DataError(f"There is no table '{table}' in '{self.location}' yet.")
            self._check_format(table)
        return self.spark.read.format("delta").load(self.path(table))

    def version(self, table: str) -> int:
        """The number of the table's newest commit; -1 where there is no table."""
        if not self.exists(table):
            return -1
        return int(newest(self.spark, self.path(table)).version)

    def changes(self, table: str, since: int) -> DataFrame:
        """The change feed of a table that keeps one: what its commits after `since` changed."""
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        rows = reader.option("startingVersion", max(since, 0)).load(self.path(table))
        return rows.where(F.col("_commit_version") > since)

    def add(self, rows: DataFrame, table: str) -> None:
        """Add rows, again whenever it is asked."""
        for last in (False, True):
            try:
                with translated(f"write table '{table}'"):
                    rows.write.format("delta").mode("append").save(self.path(table))
                return
            except ConflictError:
                # Another first write made the table meanwhile: from then on rows are only added.
                if last:
                    raise

    def append(
        self, rows: DataFrame, table: str, app: str, version: int, **measures: Column
    ) -> dict[str, Any] | None:
        """Add rows, once for each (app, version).

        Args:
            measures: aggregates over the rows, computed while they are written.

        Returns:
            The measures; None where the table had this version already, and nothing was written.

        Raises:
            ConflictError: another writer used this app and version at the same time.
        """
        return self._write(rows, table, "append", app, version, {}, measures)

    def replace(
        self, rows: DataFrame, table: str, where: str, app: str, version: int, **measures: Column
    ) -> dict[str, Any] | None:
        """Put rows in the place of those of which `where` is true; otherwise as `append`."""
        if table in self._new:
            # Nothing of an earlier version is there to replace, and an append takes half the time.
            return self.append(rows, table, app, version, **measures)
        options = {"replaceWhere": where}
        return self._write(rows, table, "overwrite", app, version, options, measures)

    def _write(
        self,
        rows: DataFrame,
        table: str,
        mode: str,
        app: str,
        version: int,
        options: dict[str, str],
        measures: dict[str, Column],
    ) -> dict[str, Any] | None:
        self._new.discard(table)
        seen = Observation()
        rows = rows.observe(seen, F.count(F.lit(1)).alias("rows"), *_named(measures))
        options |= {"txnAppId": app, "txnVersion": str(version)}
        with translated(f"write table '{table}'"):
            rows.write.format("delta").mode(mode).options(**options).save(self.path(table))
        # A write that Delta passed over has observed nothing.
        return seen.get or None

    @contextmanager
    def interpreting(self) -> Iterator[None]:
        """Let the engine interpret its plans meanwhile: for few rows, compiling them takes longer
        than what it saves."""
        for key, value in _INTERPRETED.items():
            self.spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in _INTERPRETED:
                self.spark.conf.unset(key)

    def merge(
        self, rows: DataFrame, table: str, on: Sequence[str], within: str, app: str, version: int
    ) -> int | None:
        """Insert rows, update those that agree in the columns `on` (nulls agree too), or delete
        these where `gone` is true.

        Args:
            within: a condition on the target `t` that lets Delta pass over files.

        Returns:
            How many rows were written; None where the table had this version already.
        """
        self._new.discard(table)
        view = f"merge_{table}"
        rows.createOrReplaceTempView(view)
        same = " AND ".join(f"t.`{c}` <=> s.`{c}`" for c in on)
        with translated(f"write table '{table}'"), self._transaction(app, version):
            done = self.spark.sql(
                f"MERGE INTO delta.`{self.path(table)}` t USING {view} s ON {same} AND {within} "
                "WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN UPDATE SET * "
                "WHEN NOT MATCHED AND NOT s.gone THEN INSERT *"
            ).collect()
        return done[0]["num_affected_rows"] if done else None

    @contextmanager
    def _transaction(self, app: str, version: int) -> Iterator[None]:
        # MERGE takes its transaction from the session, not from options.
        settings = {"txnAppId": app, "txnVersion": str(version)}
        for key, value in settings.items():
            self.spark.conf.set(f"spark.databricks.delta.write.{key}", value)
        try:
            yield
        finally:
            for key in settings:
                self.spark.conf.unset(f"spark.databricks.delta.write.{key}")

    def _check_format(self, table: str) -> None:
        rows = self.spark.sql(f"SHOW TBLPROPERTIES delta.`{self.path(table)}`").collect()
        written = int({r["key"]: r["value"] for r in rows}.get("tidemark.format", FORMAT))
        if written > FORMAT:
            raise DataError(
                f"Table '{table}' was written by a newer Tidemark (format {written}; this one "
                f"knows up to {FORMAT}): upgrade Tidemark to use it."
            )
        self._known.add(table)


def newest(spark: SparkSession, path: str) -> Row:
    """The newest commit of the Delta table at a path, as its history has it: `version`, …"""
    return spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()[0]


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn the engine's refusals that a user can mend into one sentence."""
    try:
        yield
    except PySparkException as error:
        text = str(error)
        if any(sign in text for sign in _CONFLICT):
            raise ConflictError(f"Can't {what}: another run wrote it at the same time.") from error
        if "schema mismatch" in text or "FAILED_TO_MERGE_FIELDS" in text:
            raise DataError(
                f"Can't {what}: its columns are not those of the definition any more; give the "
                "changed asset a new name, or drop the tables that bear its name."
            ) from error
        if gone := _GONE.search(text):
            raise DataError(
                f"Can't {what}: the file '{gone[1]}' is gone, which it reads; a reference keeps "
                "the versions that arrivals recorded only while nobody vacuums them away."
            ) from error
        for sign, reason in _UNWRITABLE.items():
            if sign in text:
                raise DataError(f"Can't {what}: {reason}.") from error
        raise


def _named(columns: dict[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in columns.items()]


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in schema.fields)


def _pairs(properties: Mapping[str, object]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
