"""Read the rows of tables, and rows that the engine has computed.

Few rows are read into memory without the engine. Many rows are returned as a DataFrame.
"""

import re
from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession

from tidemark.base import thresholds
from tidemark.engine.queries.requests import fetch_dataframe, fetched_schema
from tidemark.store.commits.conditions import Condition
from tidemark.store.committers import file_list
from tidemark.store.committers.file_systems import file_system
from tidemark.store.committers.staged import Staged, spill_tables, stage_rows
from tidemark.store.committers.table_access import TableAccess, read_head
from tidemark.store.committers.values import Head
from tidemark.store.refusals import history_expired_error, translate_refusals
from tidemark.store.rows import Rows, delta_schema, spark_schema, to_frame


class RowReader(TableAccess):
    """Reads the tables below a folder, and lets the engine compute rows once."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        super().__init__(spark, folder)
        self._materialized = WeakKeyDictionary[DataFrame, Staged]()

    def load_rows(
        self, table: str, *bounds: Condition, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the current rows that satisfy all conditions, in memory.

        Args:
            columns: the columns to return; all by default.
        """
        return file_list.load_rows(self._open_newest(table), bounds, columns)

    def read_frame(self, table: str, *bounds: Condition) -> DataFrame:
        """Return the current rows that satisfy all conditions, as a DataFrame."""
        return file_list.frame_of(self.spark, self.path_of(table), self._open_newest(table), bounds)

    def load_snapshot(self, table: str) -> tuple[Head, pa.Table]:
        """Return a table's head, and all rows of the version in that head."""
        opened = self._open_newest(table)
        return read_head(table, opened), file_list.load_rows(opened, ())

    def max_value(self, table: str, column: str) -> int | None:
        """Return the greatest value of a column of whole numbers; None if it has no value."""
        return file_list.max_value(self._open_newest(table), column)

    def max_row_count(self, table: str, *bounds: Condition) -> int:
        """Return an upper bound of the number of rows that satisfy all conditions."""
        return file_list.max_row_count(self._open_newest(table), bounds)

    def total_bytes(self, table: str) -> int:
        """Return the size of the table's current data files in bytes, without reading them."""
        return file_list.total_bytes(self._open_newest(table))

    def read_change_feed(self, table: str, after_version: int) -> DataFrame:
        """Return the change data feed of the commits after `after_version`.

        The table must have been created with `feed`.
        """
        return to_frame(
            self.spark, file_list.load_changes(self._open_with_changes(table), after_version)
        )

    def load_changes(self, table: str, after_version: int, last_version: int) -> pa.Table:
        """Return the changes of the commits (after_version, last_version] in memory.

        Raises:
            HistoryExpiredError: the table does not have the changes any more.
        """
        if after_version < last_version and self.committed_at(table, after_version + 1) is None:
            raise history_expired_error(table, after_version + 1)
        try:
            return file_list.load_changes(
                self._open_with_changes(table), after_version, last_version
            )
        except (DeltaError, OSError, pa.ArrowException) as error:
            if re.search("not found|No such file", str(error), re.IGNORECASE):
                raise history_expired_error(table, after_version + 1) from error
            raise

    def rows_at(self, table: str, version: int) -> Rows:
        """Return the rows of a version of a table; in memory if they are known to be few."""
        opened = self._tables.open_version(table, version)
        if file_list.max_row_count(opened, ()) <= thresholds.SMALL_BATCH_ROWS:
            return file_list.load_rows(opened, ())
        reader = self.spark.read.format("delta").option("versionAsOf", version)
        return reader.load(self.path_of(table))

    def is_readable(self, table: str, version: int) -> bool:
        """Return whether a version can be read: its log entries and all of its files exist."""
        try:
            opened = self._tables.open_version(table, version)
        except DeltaError:
            return False
        system, folder = file_system(self.path_of(table))
        paths = pa.table(opened.get_add_actions(flatten=True))["path"].to_pylist()
        infos = system.get_file_info([f"{folder}/{path}" for path in paths])
        return all(info.type == pafs.FileType.File for info in infos)

    def materialize_rows(self, rows: DataFrame, folder: str, max_rows: int) -> Rows:
        """Let the engine compute rows, once and in full, and write them into files.

        At most `max_rows` rows are returned in memory. More rows are returned as a DataFrame that
        reads the files; a commit of this DataFrame reuses them.

        Args:
            folder: the folder for the files, next to the Delta tables.
        """
        with translate_refusals("compute rows"):
            files = stage_rows(rows, self.path_of(folder))
            schema = rows.schema
        if files.row_count <= max_rows:
            return files.open_reader(fetched_schema(schema)).read_all()
        materialized = self.spark.read.schema(schema).parquet(files.folder)
        self._materialized[materialized] = files
        return materialized

    def spill_rows(self, tables: Iterable[pa.Table], folder: str) -> DataFrame:
        """Write Arrow tables into `folder`, next to the Delta tables. Return their rows.

        Args:
            tables: one or more, with the same columns.
        """
        with translate_refusals("compute rows"):
            path, schema = spill_tables(tables, self.path_of(folder))
            return self.spark.read.schema(spark_schema(delta_schema(schema))).parquet(path)

    def select_columns(self, rows: Rows, *columns: str) -> pa.Table:
        """Return the given columns of rows, in memory.

        If `materialize_rows` wrote the rows into files, they are read without the engine.
        """
        if not isinstance(rows, DataFrame):
            return rows.select(list(columns))
        files = self._materialized.get(rows)
        if files is None:
            return fetch_dataframe(rows.select(*columns))
        schema = fetched_schema(rows.schema)
        return files.open_reader(pa.schema([schema.field(name) for name in columns])).read_all()

    def count_windows(self, rows: Rows) -> int:
        """Return the number of rows, which must be windows: only their column `events` is read."""
        return self.select_columns(rows, "events").num_rows

    def _open_with_changes(self, table: str) -> DeltaTable:
        """Return a table through which delta-rs can read the change data feed."""
        if self._is_local:
            return self._open_newest(table)
        return self._tables.open_separately(table)
