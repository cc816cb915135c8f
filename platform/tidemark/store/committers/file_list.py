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
from tidemark.store.rows import arrow_schema, frame, spark_schema

_CHANGE = pa.schema({"_change_type": pa.string(), "_commit_version": pa.int64()})
"""The columns that a change data feed adds to the table's own, to describe each change."""
_File = Mapping[str, Any]
"""A file in the table's transaction log, with its statistics."""


def at_most(opened: DeltaTable, bounds: Sequence[Condition]) -> int:
    """Return an upper bound of the number of rows that satisfy all conditions."""
    return sum(file["num_records"] for file in _files(opened, bounds))


def max_value(opened: DeltaTable, column: str) -> int | None:
    """Return the greatest value of a column; None if it has no value."""
    files = _files(opened, ())
    maxima = [file.get(f"max.{column}") for file in files]
    silent = [f for f, most in zip(files, maxima, strict=True) if most is None]
    empty = all(f.get(f"null_count.{column}") == f["num_records"] for f in silent)
    if not empty:
        maxima = read(opened, files, (), [column])[column].to_pylist()
    return max((most for most in maxima if most is not None), default=None)


def load(
    opened: DeltaTable,
    bounds: Sequence[Condition] = (),
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
) -> pa.Table:
    """Read rows into memory.

    Args:
        bounds: conditions on the rows. Files without such rows are skipped.
        columns: the columns to read; all by default.
        where: a further condition on the rows. No file is skipped because of it.
    """
    return read(opened, _files(opened, bounds), bounds, columns, where)


def frame_of(
    spark: SparkSession, path: str, opened: DeltaTable, bounds: Sequence[Condition]
) -> DataFrame:
    """Return the rows that satisfy all conditions, as a DataFrame.

    Args:
        path: the table's location, as the engine sees it.
    """
    files = _files(opened, bounds)
    if sum(file["num_records"] for file in files) <= thresholds.INLINE_ROWS:
        return frame(spark, read(opened, files, bounds))
    if len(files) > thresholds.LISTED_FILES:
        rows = spark.read.format("delta").load(path)
    else:
        schema = spark_schema(opened.schema())
        rows = spark.read.schema(schema).parquet(*(f"{path}/{f['path']}" for f in files))
    for bound in bounds:
        # Leave out a condition that all rows satisfy. The engine compiles a condition again if its
        # numbers are new, which takes longer than reading a run's arrivals.
        if not all(bound.holds(file) for file in files):
            rows = rows.where(bound.sql())
    return rows


def changes(opened: DeltaTable, since: int, through: int | None = None) -> pa.Table:
    """Return the changes of the commits after a version, from the table's change data feed.

    Args:
        through: the last commit to include; None means the newest.
    """
    columns = arrow_schema(opened.schema())
    schema = pa.schema([*columns, *_CHANGE])
    if opened.version() <= since:
        return schema.empty_table()
    # delta-rs returns a reader of another Arrow library.
    feed: Any = opened.load_cdf(since + 1, through)
    rows = pa.RecordBatchReader.from_stream(feed).read_all()
    return rows.select(schema.names).cast(schema)


def read(
    opened: DeltaTable,
    files: Sequence[_File],
    bounds: Sequence[Condition] = (),
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
) -> pa.Table:
    """Read rows of the given files of a table into memory, as `load` does."""
    schema = arrow_schema(opened.schema())
    if not files:
        return schema.empty_table().select(columns or schema.names)
    condition = pc.scalar(True) if where is None else where
    for bound in bounds:
        condition = condition & bound.expression()
    dataset = open_dataset(opened.table_uri, files, schema)
    return dataset.to_table(columns=columns and [*columns], filter=condition)


def _files(opened: DeltaTable, bounds: Sequence[Condition]) -> list[_File]:
    """Return the table's files that may contain rows that satisfy all conditions."""
    listed = statistics.files(opened)
    return [file for file in listed if all(bound.may_hold(file) for bound in bounds)]
