"""Reading a table by the files that its log lists, with their statistics.

A table of few rows is read from memory, a larger one by the engine, which is given the names of
its files; what the files' statistics tell is not asked of their rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from tidemark.store.committers import statistics
from tidemark.store.committers.staged import file_system
from tidemark.store.conditions import Condition
from tidemark.store.rows import SENT, arrow_schema, frame, spark_schema

_MANY_FILES = 400
"""Files up to which the engine is given their names, and need not read the table's log."""
_CHANGE = pa.schema({"_change_type": pa.string(), "_commit_version": pa.int64()})
"""What a change feed tells of each row."""
_File = Mapping[str, Any]
"""A file as the table's log lists it, with its statistics."""


def at_most(opened: DeltaTable, bounds: Sequence[Condition]) -> int:
    """How many rows at most are within the bounds."""
    return sum(file["num_records"] for file in _files(opened, bounds))


def greatest(opened: DeltaTable, column: str) -> int | None:
    """The greatest value of a column; None where there is none."""
    files = _files(opened, ())
    told = [file.get(f"max.{column}") for file in files]
    silent = [f for f, most in zip(files, told, strict=True) if most is None]
    empty = all(f.get(f"null_count.{column}") == f["num_records"] for f in silent)
    if not empty:
        told = _load(opened, files, (), [column])[column].to_pylist()
    return max((most for most in told if most is not None), default=None)


def load(
    opened: DeltaTable, bounds: Sequence[Condition], columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows within the bounds, in memory; of all columns by default."""
    return _load(opened, _files(opened, bounds), bounds, columns)


def frame_of(
    spark: SparkSession, path: str, opened: DeltaTable, bounds: Sequence[Condition]
) -> DataFrame:
    """The rows within the bounds, for the engine, which sees the table at a path."""
    files = _files(opened, bounds)
    if sum(file["num_records"] for file in files) <= SENT:
        return frame(spark, _load(opened, files, bounds))
    if len(files) > _MANY_FILES:
        found = spark.read.format("delta").load(path)
    else:
        schema = spark_schema(opened.schema())
        found = spark.read.schema(schema).parquet(*(f"{path}/{f['path']}" for f in files))
    for bound in bounds:
        # Each condition with other numbers is compiled anew, which takes longer than to read
        # the arrivals of a run.
        if not all(bound.holds(file) for file in files):
            found = found.where(bound.sql())
    return found


def changes(opened: DeltaTable, since: int, through: int | None = None) -> pa.Table:
    """What the commits after a version changed, as the table's change feed has it.

    Args:
        through: the last commit to tell of; the newest by default.
    """
    columns = arrow_schema(opened.schema())
    schema = pa.schema([*columns, *_CHANGE])
    if opened.version() <= since:
        return schema.empty_table()
    # Its reader is of another Arrow library.
    feed: Any = opened.load_cdf(since + 1, through)
    rows = pa.RecordBatchReader.from_stream(feed).read_all()
    return rows.select(schema.names).cast(schema)


def _load(
    opened: DeltaTable,
    files: Sequence[_File],
    bounds: Sequence[Condition],
    columns: Sequence[str] | None = None,
) -> pa.Table:
    schema = arrow_schema(opened.schema())
    if not files:
        return schema.empty_table().select(columns or schema.names)
    condition = pc.scalar(True)
    for bound in bounds:
        condition = condition & bound.expression()
    system, folder = file_system(opened.table_uri)
    paths = [f"{folder}/{file['path']}" for file in files]
    found = ds.dataset(paths, schema=schema, format="parquet", filesystem=system)
    return found.to_table(columns=columns and [*columns], filter=condition)


def _files(opened: DeltaTable, bounds: Sequence[Condition]) -> list[_File]:
    """The table's files that may hold rows within the bounds."""
    listed = statistics.files(opened)
    return [file for file in listed if all(bound.may_hold(file) for bound in bounds)]
