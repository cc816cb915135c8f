"""Read a table through the file list and the statistics in its transaction log.

Few rows are read into memory. Many rows are read by the engine, which gets the names of their
files. A value that the statistics contain, such as a maximum, is not read from the rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from tidemark.base import thresholds
from tidemark.store.commits.conditions import Condition
from tidemark.store.committers import statistics
from tidemark.store.committers.data_files import open_dataset
from tidemark.store.rows import arrow_schema, spark_schema, to_frame

_CHANGE_COLUMNS = pa.schema({"_change_type": pa.string(), "_commit_version": pa.int64()})
"""The columns that a change data feed adds to the table's own, to describe each change."""
_ListedFile = Mapping[str, Any]
"""A file in the table's transaction log, with its statistics."""


def max_row_count(opened: DeltaTable, conditions: Sequence[Condition]) -> int:
    """Return an upper bound of the number of rows that satisfy all conditions."""
    return sum(file["num_records"] for file in _select_files(opened, conditions))


def total_bytes(opened: DeltaTable) -> int:
    """Return the size of the table's data files in bytes."""
    return sum(file["size_bytes"] for file in _select_files(opened, ()))


def max_value(opened: DeltaTable, column: str) -> int | None:
    """Return the greatest value of a column; None if it has no value."""
    files = _select_files(opened, ())
    maxima = [file.get(f"max.{column}") for file in files]
    for file, maximum in zip(files, maxima, strict=True):
        has_only_nulls = file.get(f"null_count.{column}") == file["num_records"]
        if maximum is None and not has_only_nulls:
            # The statistics don't have the greatest value.
            maxima = load_files(opened, files, (), [column])[column].to_pylist()
            break
    return max((maximum for maximum in maxima if maximum is not None), default=None)


def load_rows(
    opened: DeltaTable,
    conditions: Sequence[Condition] = (),
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
) -> pa.Table:
    """Read rows into memory.

    Args:
        conditions: conditions on the rows. Files without such rows are skipped.
        columns: the columns to read; all by default.
        where: a further condition on the rows. No file is skipped because of it.
    """
    files = _select_files(opened, conditions)
    return load_files(opened, files, conditions, columns, where)


def frame_of(
    spark: SparkSession, path: str, opened: DeltaTable, conditions: Sequence[Condition]
) -> DataFrame:
    """Return the rows that satisfy all conditions, as a DataFrame.

    Args:
        path: the table's location, as the engine sees it.
    """
    files = _select_files(opened, conditions)
    if sum(file["num_records"] for file in files) <= thresholds.INLINE_ROWS:
        return to_frame(spark, load_files(opened, files, conditions))
    if len(files) > thresholds.LISTED_FILES:
        rows = spark.read.format("delta").load(path)
    else:
        schema = spark_schema(opened.schema())
        paths = [f"{path}/{file['path']}" for file in files]
        rows = spark.read.schema(schema).parquet(*paths)
    for condition in conditions:
        # Leave out a condition that all rows satisfy. The engine compiles a condition again if its
        # numbers are new, which takes longer than reading a run's arrivals.
        if not all(condition.holds_for_file(file) for file in files):
            rows = rows.where(condition.to_sql())
    return rows


def load_changes(
    opened: DeltaTable, base_version: int, last_version: int | None = None
) -> pa.Table:
    """Return the changes of the commits after a version, from the table's change data feed.

    Args:
        last_version: the last commit to include; None means the newest.
    """
    columns = arrow_schema(opened.schema())
    schema = pa.schema([*columns, *_CHANGE_COLUMNS])
    if opened.version() <= base_version:
        return schema.empty_table()
    # delta-rs returns a reader of another Arrow library.
    feed: Any = opened.load_cdf(base_version + 1, last_version)
    rows = pa.RecordBatchReader.from_stream(feed).read_all()
    return rows.select(schema.names).cast(schema)


def load_files(
    opened: DeltaTable,
    files: Sequence[_ListedFile],
    conditions: Sequence[Condition] = (),
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
) -> pa.Table:
    """Read rows of the given files of a table into memory, as `load_rows` does."""
    schema = arrow_schema(opened.schema())
    if not files:
        return schema.empty_table().select(columns or schema.names)
    if where is None:
        where = pc.scalar(True)
    for condition in conditions:
        where = where & condition.to_expression()
    dataset = open_dataset(opened.table_uri, files, schema)
    return dataset.to_table(columns=columns and list(columns), filter=where)


def _select_files(opened: DeltaTable, conditions: Sequence[Condition]) -> list[_ListedFile]:
    """Return the table's files that may contain rows that satisfy all conditions."""
    files = statistics.list_files(opened)
    return [file for file in files if all(condition.may_hold(file) for condition in conditions)]
