"""Read the rows of a Delta table's versions, with the columns of the source."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.define.column_type import simple_type
from tidemark.store.rows import INSTANT
from tidemark_streaming.base.local_times import in_utc, zone_of
from tidemark_streaming.connector import CHUNK, Chunk
from tidemark_streaming.delta.table_checks import TableChecks
from tidemark_streaming.delta.table_history import TableHistory
from tidemark_streaming.delta.versions import (
    CHANGE_TYPE,
    COMMITTED_AT,
    POSITION,
    VERSION,
    ChunkFile,
    Commit,
    read_changes,
    read_frame,
    read_rows,
)
from tidemark_streaming.ingest.row_masking import mask_columns


@dataclass(frozen=True)
class RowReader:
    """Reads the rows of chunks, each of which is one version of the table.

    Args:
        history: the versions of the table.
        checks: the checks of the table, which have the options of its connector.
    """

    history: TableHistory
    checks: TableChecks

    def read_by_engine(self, spark: SparkSession, chunks: Sequence[Chunk]) -> DataFrame:
        """Return the rows of many files as a DataFrame. No row enters this process."""
        table = self.history.open_table()
        pieces = list[ChunkFile]()
        for number, chunk in enumerate(chunks):
            position = json.loads(chunk.position)
            is_whole = "whole" in position
            version = position["version"]
            commit = self._contributed_commit(table, version, is_whole=is_whole)
            for file in commit.files:
                pieces.append(ChunkFile(file, number, version, commit.committed_at))
        rows = read_frame(spark, table, pieces, self.checks.source.record_fields)
        change_columns = {
            CHANGE_TYPE: F.lit("insert"),
            "_commit_version": F.col(VERSION),
            "_commit_timestamp": F.col(COMMITTED_AT),
        }
        if self.checks.time_zone is not None:
            for local_column in self.checks.find_local_columns(table):
                local_time = F.col(f"`{local_column}`").cast("timestamp")
                instant = F.to_utc_timestamp(local_time, self.checks.time_zone)
                rows = rows.withColumn(local_column, instant)
        columns = list[Column]()
        fields = self.checks.source.record_fields
        for column, field in zip(self.checks.source.record_columns, fields, strict=True):
            values = change_columns.get(column, F.col(f"`{field}`"))
            columns.append(values.alias(column))
        return rows.select(
            *columns,
            CHUNK,
            F.col(POSITION).alias("position"),
            F.concat_ws("#", VERSION, POSITION).alias("read_from"),
        )

    def read_in_memory(self, chunks: Sequence[Chunk]) -> pa.Table:
        """Return the rows of few files as a table. Protected columns are masked."""
        table = self.history.open_table()
        tables = list[pa.Table]()
        for number, chunk in enumerate(chunks):
            position = json.loads(chunk.position)
            is_whole = "whole" in position
            version = position["version"]
            if self.checks.change_feed and not is_whole:
                rows = self._read_changes(table, version)
            else:
                rows = self._read_added(table, version, is_whole=is_whole)
            origins = [f"{version}#{row}" for row in range(len(rows))]
            rows = rows.append_column(CHUNK, pa.array([number] * len(rows), pa.int64()))
            rows = rows.append_column("position", pa.array(range(len(rows)), pa.int64()))
            rows = rows.append_column("read_from", pa.array(origins, pa.string()))
            tables.append(rows)
        return pa.concat_tables(tables)

    def _read_added(self, table: DeltaTable, version: int, *, is_whole: bool) -> pa.Table:
        """Return the rows that a version added, or all rows of the table as of that version."""
        commit = self._contributed_commit(table, version, is_whole=is_whole)
        rows = read_rows(table, commit.files, self.checks.source.record_fields)
        constants = {
            CHANGE_TYPE: pa.scalar("insert"),
            "_commit_version": pa.scalar(version),
            "_commit_timestamp": _commit_time(commit),
        }
        return self._source_columns(rows, constants)

    def _contributed_commit(self, table: DeltaTable, version: int, *, is_whole: bool) -> Commit:
        """Return a version's commit with only the files whose rows are ingested.

        If the version updates or deletes rows, there are no such files, unless `is_whole` is true.

        Args:
            is_whole: true to ingest all rows of the table as of the version.

        Raises:
            DataError: the version no longer exists.
        """
        commit = self.history.read_version(version, is_whole=is_whole)
        if commit is None:
            raise self.history.lost_error([version], table.version())
        if commit.changes and not is_whole:
            return replace(commit, files=())
        return commit

    def _read_changes(self, table: DeltaTable, version: int) -> pa.Table:
        commit = self.history.read_version(version, is_whole=False)
        if commit is None:
            raise self.history.lost_error([version], table.version())
        try:
            self.checks.check_feed(version)
            rows = read_changes(table, version, commit, self.checks.source.record_fields)
        except DeltaError as error:
            # The transaction log no longer reaches back to this version, or to the previous one.
            raise self.history.lost_error([version], table.version()) from error
        constants = {
            "_commit_version": pa.scalar(version),
            "_commit_timestamp": _commit_time(commit),
        }
        rows = self._source_columns(rows, constants)
        # The rows are sorted, so that every read returns the same order. They are sorted after they
        # are protected, so that the order does not reveal protected values.
        sort_keys = list[tuple[str, str]]()
        for column in rows.schema:
            if not pa.types.is_nested(column.type):
                sort_keys.append((column.name, "ascending"))
        return rows.sort_by(sort_keys)

    def _source_columns(self, rows: pa.Table, constants: dict[str, pa.Scalar]) -> pa.Table:
        columns = dict[str, Any]()
        fields = self.checks.source.record_fields
        for name, field in zip(self.checks.source.record_columns, fields, strict=True):
            if name in constants:
                columns[name] = pa.repeat(constants[name], len(rows))
            else:
                columns[name] = rows[field]
        if self.checks.time_zone is not None:
            zone = zone_of(self.checks.time_zone, self.checks.table_name)
            for name, kind in self.checks.source.record_columns.items():
                if simple_type(kind) == "timestamp" and _is_local(columns[name].type):
                    columns[name] = in_utc(columns[name], zone)
        for name, column in columns.items():
            if _is_instant(column.type):
                columns[name] = column.cast(INSTANT)
        rows_read = pa.table(columns)
        if self.checks.source.mask:
            return pa.table(mask_columns(rows_read, self.checks.source))
        return rows_read


def _commit_time(commit: Commit) -> pa.Scalar:
    return pa.scalar(commit.committed_at, pa.int64()).cast(INSTANT)


def _is_local(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is None


def _is_instant(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None
