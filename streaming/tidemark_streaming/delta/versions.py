"""Read the versions of a Delta table from its transaction log, and the rows of their files.

If the rows are few, they are read into memory. If they are many, the engine gets the names of the
files and reads them.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tidemark.base.errors import DataError, summarize_error
from tidemark.define.helper_columns import name_helper
from tidemark.store.committers import statistics
from tidemark.store.committers.client_options import open_delta_table
from tidemark.store.committers.file_systems import file_system
from tidemark.store.rows import arrow_schema, spark_schema
from tidemark_streaming.connector import CHUNK

POSITION = name_helper("position")
"""The index of a row in its chunk."""

VERSION = name_helper("version")
"""The version that added a row."""

COMMITTED_AT = name_helper("committed_at")
"""The commit time of the version that added a row."""

CHANGE_TYPE = "_change_type"
"""The column of a change data feed that describes a change."""

_PATH, _ROW, _FIRST, _AT, _VALUE = map(name_helper, ("path", "row", "first", "at", "value "))
_LISTED = f"{_PATH} STRING, {CHUNK} BIGINT, {_FIRST} BIGINT, {VERSION} BIGINT, {_AT} BIGINT"
_PARQUET = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")


class VersionPart(Enum):
    """The part of a version to read: the rows that it added, the table as of that version, or its
    changes.
    """

    ADDED = auto()
    WHOLE = auto()
    CHANGES = auto()


class File(NamedTuple):
    """A file of a table: its path relative to the table, partition values, size in bytes, row
    count, and whether a deletion vector marks some of its rows as deleted."""

    path: str
    values: dict[str, str | None]
    size: int
    rows: int
    marked: bool = False


class ChunkFile(NamedTuple):
    """A file whose rows belong to a chunk, and the version to which the file belongs.

    Args:
        chunk: the index of the chunk.
        committed_at: the commit time of the version, in microseconds.
    """

    file: File
    chunk: int
    version: int
    committed_at: int


@dataclass(frozen=True)
class Commit:
    """The commit time and the files of a version.

    Args:
        committed_at: the commit time, in microseconds.
        files: the files with new data, or all files of the table as of the version.
        changes: true if the version updated or deleted rows.
        removed: the files that the version removed.
        feed: the change data files, if the version has any.
    """

    committed_at: int
    files: Sequence[File]
    changes: bool
    removed: Sequence[File] = ()
    feed: Sequence[File] = ()

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(file.size for file in self.files)

    @property
    def rows(self) -> int:
        """The number of rows in the files."""
        return sum(file.rows for file in self.files)


def read_commit(path: str, version: int, part: VersionPart) -> Commit | None:
    """Return the commit of a version.

    Return None if the version's log entry no longer exists. Also return None if a file that is
    needed to read `part` no longer exists.

    Args:
        path: the location of the table.
        part: the part of the version that the caller wants to read.
    """
    system, root = file_system(path)
    file = f"{root}/_delta_log/{version:020}.json"
    try:
        with system.open_input_stream(file) as log:
            actions = [json.loads(line) for line in log.read().splitlines() if line.strip()]
    except FileNotFoundError:
        return None
    files = _list_action_files(path, actions, "add")
    removed = _list_action_files(path, actions, "remove")
    feed = _list_action_files(path, actions, "cdc")
    changes = bool(removed) or any(file.marked for file in files)
    needed_files = files
    if part is VersionPart.WHOLE:
        try:
            files = _list_files(open_delta_table(path, version))
        except DeltaError:
            return None
        needed_files = files
    elif part is VersionPart.CHANGES:
        needed_files = feed or [*files, *removed]
    elif changes:
        needed_files = []
    infos = system.get_file_info([f"{root}/{needed.path}" for needed in needed_files])
    if any(info.type == pafs.FileType.NotFound for info in infos):
        return None
    committed_at = _commit_time(actions, system.get_file_info(file))
    return Commit(committed_at, files, changes, removed, feed)


def _list_action_files(path: str, actions: Sequence[dict[str, Any]], kind: str) -> list[File]:
    """Return the files of one kind of action in a log entry.

    An added or removed file without new data, as a compaction writes it, is left out.
    """
    files = list[File]()
    for action in actions:
        if kind in action and (kind == "cdc" or action[kind].get("dataChange")):
            files.append(_to_file(path, action[kind]))
    return files


def _commit_time(actions: Sequence[dict[str, Any]], file: pafs.FileInfo) -> int:
    """Return the commit time of a version in microseconds, as the protocol defines it.

    This is the in-commit timestamp if the table has in-commit timestamps, else the modification
    time of the commit's file. `commitInfo` and all of its fields are optional.
    """
    for action in actions:
        in_commit_millis = action.get("commitInfo", {}).get("inCommitTimestamp")
        if in_commit_millis is not None:
            return in_commit_millis * 1000
    return file.mtime_ns // 1000


def read_rows(table: DeltaTable, files: Sequence[File], columns: Collection[str]) -> pa.Table:
    """Return the rows of files. Columns that the table no longer has are left out."""
    return _read_files(table, files, arrow_schema(_arrow_schema(table, columns)), {})


def read_changes(
    table: DeltaTable, version: int, commit: Commit, columns: Collection[str]
) -> pa.Table:
    """Return the changes of a version: rows with `columns` and `_change_type`.

    The changes are read from the version's change data files. If there are none, the changes are
    the rows of added and removed files, except for rows that the version wrote again unchanged.
    """
    kind = pa.field(CHANGE_TYPE, pa.string())
    if commit.feed:
        schema = arrow_schema(_arrow_schema(table, columns)).append(kind)
        return _read_files(table, commit.feed, schema, {})
    # To find unchanged rows, all columns are compared, including those that the source does not
    # declare.
    schema = arrow_schema(table.schema() if commit.changes else _arrow_schema(table, columns))
    tables = list[pa.Table]()
    for name, files, at_version in (
        ("insert", commit.files, version),
        ("delete", commit.removed, version - 1),
    ):
        rows = _read_files(table, files, schema, _kept_rows(table, files, at_version))
        tables.append(rows.append_column(kind, pa.repeat(pa.scalar(name), len(rows))))
    rows = pa.concat_tables(tables)
    if commit.changes:
        return drop_unchanged(rows, CHANGE_TYPE)
    return rows


def _read_files(
    table: DeltaTable, files: Sequence[File], schema: pa.Schema, masks: Mapping[str, pa.Array]
) -> pa.Table:
    """Return the rows of files.

    Args:
        masks: masks of the rows to return, by the path of the file. If a file has no mask, all of
            its rows are returned.
    """
    all_partition_columns = table.metadata().partition_columns
    partition_columns = [name for name in all_partition_columns if name in schema.names]
    stored = pa.schema([field for field in schema if field.name not in partition_columns])
    system, root = file_system(table.table_uri)
    rows = [schema.empty_table()]
    for file in files:
        path = f"{root}/{file.path}"
        try:
            read = ds.dataset(path, stored, _PARQUET, system).to_table()
        except pa.ArrowInvalid as error:
            raise DataError(
                f"File '{path}' does not fit the columns of its Delta table: "
                f"{summarize_error(error)}. "
                "Rewrite the file with the table's column types, or read a copy (CREATE TABLE … AS "
                "SELECT)."
            ) from error
        except FileNotFoundError:
            raise DataError(
                f"File '{path}' was deleted before it was read, probably by VACUUM. The "
                "next ingest reports which versions are lost.",
                retriable=True,
            ) from None
        if file.path in masks:
            read = read.filter(masks[file.path])
        for name in partition_columns:
            value = _partition_value(file.values[name], schema.field(name).type)
            read = read.append_column(name, pa.repeat(value, len(read)))
        rows.append(read.select(schema.names).cast(schema))
    return pa.concat_tables(rows)


def _kept_rows(table: DeltaTable, files: Sequence[File], version: int) -> dict[str, pa.Array]:
    """Return a mask of the rows that are not deleted, for each file with a deletion vector.

    Args:
        version: the version of the table whose deletion vectors apply.

    Returns:
        The masks, by the path of the file.
    """
    marked = [file.path for file in files if file.marked]
    if not marked:
        return {}
    vectors = pa.table(open_delta_table(table.table_uri, version).deletion_vectors()).to_pylist()
    selections = dict[str, Any]()
    for vector in vectors:
        selections[_decode_path(vector["filepath"])] = vector["selection_vector"]
    masks = dict[str, pa.Array]()
    for path in marked:
        # The table lists absolute paths, and the log relative ones.
        ending = f"/{_decode_path(path)}"
        stored_path = next(stored for stored in selections if stored.endswith(ending))
        masks[path] = pa.array(selections[stored_path])
    return masks


def _relative_path(table: str, path: str) -> str:
    if path.startswith("/") or urlsplit(path).scheme:
        raise DataError(
            f"Delta table '{table}' has files outside of its folder, like a shallow clone. Read "
            "the table that it was cloned from, or a copy (CREATE TABLE … AS SELECT)."
        )
    return unquote(path)


def _decode_path(path: str) -> str:
    """Return a path without percent-encoding. delta-rs may encode a path more than once."""
    while (plain := unquote(path)) != path:
        path = plain
    return path


def drop_unchanged(rows: pa.Table, kind: str) -> pa.Table:
    """Return changes without the rows that were deleted and inserted again unchanged.

    A version that rewrites a file but has no change data files, such as a MERGE of Spark that has
    no effect, deletes and inserts each row of the file.

    Args:
        rows: inserts and deletes, with all columns of the table.
        kind: the column that distinguishes inserts from deletes.
    """
    named = dict[str, Any]()
    for name in rows.column_names:
        if name == kind:
            continue
        named[name] = rows[name]
        # Arrow can't group by nested values.
        if pa.types.is_nested(rows[name].type):
            named[name] = pa.array(map(repr, rows[name].to_pylist()), pa.string())
    inserted = [change_kind == "insert" for change_kind in rows[kind].to_pylist()]
    numbered = pa.table(named | {_ROW: pa.array(range(len(rows)), pa.int64())})
    alike = numbered.group_by(list(named)).aggregate([(_ROW, "list")])[f"{_ROW}_list"]
    stays = [True] * len(rows)
    for numbers in alike.to_pylist():
        added = [n for n in numbers if inserted[n]]
        removed = [n for n in numbers if not inserted[n]]
        for added_row, removed_row in zip(added, removed, strict=False):
            stays[added_row] = False
            stays[removed_row] = False
    return rows.filter(pa.array(stays, pa.bool_()))


def read_frame(
    spark: SparkSession, table: DeltaTable, pieces: Sequence[ChunkFile], columns: Collection[str]
) -> DataFrame:
    """Return the rows of files as a DataFrame. Columns that the table no longer has are left out.

    The DataFrame also has the columns `CHUNK`, `POSITION`, `VERSION` and `COMMITTED_AT`.

    Args:
        pieces: one or more files of a table that the engine sees under the same path.
    """
    schema = spark_schema(_arrow_schema(table, columns))
    partition_columns = [name for name in table.metadata().partition_columns if name in columns]
    system, root = file_system(table.table_uri)
    folder = table.table_uri.rstrip("/")
    if isinstance(system, pafs.LocalFileSystem):
        folder = root
    file_rows = list[tuple[Any, ...]]()
    row_counts = Counter[int]()
    paths = dict[str, None]()
    for piece in pieces:
        path = piece.file.path
        paths[_escape_wildcards(f"{folder}/{path}")] = None
        values = [piece.file.values[name] for name in partition_columns]
        first_row = row_counts[piece.chunk]
        file_row = (path, piece.chunk, first_row, piece.version, piece.committed_at, *values)
        file_rows.append(file_row)
        metadata = pq.read_metadata(f"{root}/{path}", filesystem=system)
        row_counts[piece.chunk] += metadata.num_rows
    names = [f"`{_VALUE}{name}` STRING" for name in partition_columns]
    listed = spark.createDataFrame(file_rows, ", ".join([_LISTED, *names]))
    stored = StructType([field for field in schema if field.name not in partition_columns])
    # The engine returns a URI: its path is percent-encoded, but a plus is not an encoded space.
    rows = spark.read.schema(stored).parquet(*paths)
    origin = rows.metadataColumn("_metadata")
    path = F.url_decode(F.replace(origin["file_path"], F.lit("+"), F.lit("%2B")))
    below = F.substring_index(path, f"{folder.partition('://')[2] or folder}/", -1)
    rows = rows.withColumns({_PATH: below, _ROW: origin["row_index"]})
    rows = rows.join(F.broadcast(listed), _PATH, "left")
    lost = F.raise_error(F.concat(F.lit("The engine reports an unknown path, "), _PATH))
    declared_columns = list[Column]()
    for field in schema:
        column = F.col(f"`{field.name}`")
        if field.name in partition_columns:
            column = F.col(f"`{_VALUE}{field.name}`").cast(field.dataType).alias(field.name)
        declared_columns.append(column)
    return rows.select(
        *declared_columns,
        F.coalesce(F.col(CHUNK), lost).alias(CHUNK),
        (F.col(_FIRST) + F.col(_ROW)).alias(POSITION),
        VERSION,
        F.timestamp_micros(_AT).alias(COMMITTED_AT),
    )


def _arrow_schema(table: DeltaTable, columns: Collection[str]) -> Schema:
    """Return the schema with `columns` only, because other columns may have unsupported types."""
    return Schema([field for field in table.schema().fields if field.name in columns])


def _escape_wildcards(path: str) -> str:
    """Return a path with its wildcards escaped for the engine."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)


def _to_file(table: str, add: dict[str, Any]) -> File:
    rows = json.loads(add.get("stats") or "{}").get("numRecords", 0)
    stored_values = add.get("partitionValues") or {}
    values = {name: value or None for name, value in stored_values.items()}
    marked = add.get("deletionVector") is not None
    return File(_relative_path(table, add["path"]), values, add.get("size") or 0, rows, marked)


def _list_files(table: DeltaTable) -> list[File]:
    partition_columns = table.metadata().partition_columns
    files = list(statistics.list_files(table))
    files.sort(key=lambda entry: (entry["modification_time"], entry["path"]))
    listed = list[File]()
    for entry in files:
        path = _relative_path(table.table_uri, entry["path"])
        values = dict[str, str | None]()
        for name in partition_columns:
            values[name] = _partition_text(entry[f"partition.{name}"])
        listed.append(File(path, values, entry["size_bytes"], entry.get("num_records") or 0))
    return listed


def _partition_text(value: object) -> str | None:
    """Return a partition value as the transaction log stores it."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    if value is None:
        return None
    return str(value)


def _partition_value(value: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return a partition value, which the transaction log stores as text, as a scalar."""
    if value is not None and pa.types.is_timestamp(kind):
        plain = pa.array([value.replace("T", " ").removesuffix("Z")]).cast(pa.timestamp("us"))
        return plain.cast(pa.int64()).cast(kind)[0]
    return pa.array([value], pa.string()).cast(kind)[0]
