"""Handle rows before they are written to a table: few rows in memory, many rows in the engine.

Few rows are an Arrow table, which is written without the engine, or sent to it in milliseconds.
Many rows are a DataFrame, which the engine's workers write. The functions here accept both.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute
from deltalake import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidemark.define.helper_columns import IS_DELETED
from tidemark.engine.queries.requests import fetch_dataframe, to_dataframe
from tidemark.store.refusals import changed_columns

compute: Any = pyarrow.compute
"""Arrow's compute functions. Most are created at import time: type checkers do not see them."""

INSTANT = pa.timestamp("us", "UTC")
"""The Arrow type of instants in memory."""

OUT_OF_RANGE_ERRORS = (OverflowError, ValueError)
"""The exceptions that Python raises for an instant or a date outside of the years 1 to 9999."""

_COMPARABLE_TYPES = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_timestamp,
    pa.types.is_date32,
)

Rows = pa.Table | DataFrame
"""Few rows in memory, or many in the engine."""


def to_frame(spark: SparkSession, rows: Rows) -> DataFrame:
    if isinstance(rows, DataFrame):
        return rows
    if not rows.num_rows:
        return spark.createDataFrame([], spark_schema(delta_schema(rows.schema)))
    return to_dataframe(spark, rows)


def to_micros(column: pa.ChunkedArray | pa.Array) -> list[int]:
    return column.cast(INSTANT).cast(pa.int64()).to_pylist()


def to_dicts(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as Python dictionaries, with instants in microseconds."""
    columns = dict[str, Any]()
    for field in table.schema:
        column = table[field.name]
        columns[field.name] = to_micros(column) if pa.types.is_timestamp(field.type) else column
    return pa.table(columns).to_pylist()


def to_display(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as Python dictionaries for display; values beyond Python's range are text."""
    return to_python(rows, _as_text)


def to_python(
    rows: pa.Table, beyond: "Callable[[pa.Scalar[Any]], object]" = lambda _: None
) -> list[dict[str, Any]]:
    """Return rows as Python dictionaries.

    Args:
        beyond: a function that replaces a value outside of Python's range. By default, such a value
            becomes None.
    """
    try:
        return rows.to_pylist()
    except OUT_OF_RANGE_ERRORS:
        converted = [dict[str, Any]() for _ in range(rows.num_rows)]
        for name in rows.column_names:
            for row, value in zip(converted, rows[name], strict=True):
                row[name] = _convert_value(value, beyond)
        return converted


def _convert_value(value: "pa.Scalar[Any]", beyond: "Callable[[pa.Scalar[Any]], object]") -> object:
    try:
        return value.as_py()
    except OUT_OF_RANGE_ERRORS:
        return beyond(value)


def _as_text(value: "pa.Scalar[Any]") -> str | None:
    if pa.types.is_date(value.type):
        return str(np.datetime64(value.cast(pa.int32()).as_py(), "D"))
    if not pa.types.is_timestamp(value.type):
        return None
    micros = value.cast(pa.timestamp("us", value.type.tz)).cast(pa.int64()).as_py()
    return f"{np.datetime64(micros, 'us')}Z"


def fetch_rows(rows: Rows) -> pa.Table:
    if isinstance(rows, DataFrame):
        return fetch_dataframe(rows)
    return rows


def is_empty(rows: Rows) -> bool:
    """Return whether rows in memory are empty; False for a DataFrame, which is not computed."""
    return not isinstance(rows, DataFrame) and rows.num_rows == 0


def is_comparable(kind: pa.DataType) -> bool:
    """Return whether values of a type are equal and ordered in Arrow as in the engine."""
    return any(is_one(kind) for is_one in _COMPARABLE_TYPES)


def drop_deleted(rows: Rows) -> Rows:
    """Return the rows that are not `IS_DELETED`, without that column.

    Rows that lack the column are returned unchanged.
    """
    if IS_DELETED not in column_names(rows):
        return rows
    if isinstance(rows, DataFrame):
        return rows.where(f"NOT {IS_DELETED}").drop(IS_DELETED)
    is_kept = pa.array([not is_deleted for is_deleted in rows[IS_DELETED].to_pylist()], pa.bool_())
    return rows.filter(is_kept).drop_columns([IS_DELETED])


def column_names(rows: Rows) -> list[str]:
    if isinstance(rows, DataFrame):
        return rows.columns
    return rows.column_names


def delta_schema(schema: StructType | pa.Schema) -> Schema:
    """Return columns as Delta types that are nullable, including nested types."""
    text = schema.json() if isinstance(schema, StructType) else Schema.from_arrow(schema).to_json()
    return Schema.from_json(_nullable_text(text))


def spark_schema(schema: Schema) -> StructType:
    """Return a Delta table's columns as Spark types."""
    return StructType.fromJson(json.loads(schema.to_json()))


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return a Delta table's columns as Arrow types."""
    return pa.schema(cast(Any, schema.to_arrow()))


def fit_to_schema(rows: Rows, schema: Schema, table: str) -> Rows:
    """Return rows with their columns in the order of a table's columns.

    Raises:
        DataError: the names or the types of the columns differ.
    """
    table_types = _column_types(schema)
    row_types = _column_types(delta_schema(rows.schema))
    if table_types != row_types:
        names = {**table_types, **row_types}
        differing = [name for name in names if table_types.get(name) != row_types.get(name)]
        raise changed_columns(f"write table '{table}'", ", ".join(differing))
    if isinstance(rows, DataFrame):
        return rows.select([f"`{name}`" for name in table_types])
    return rows.select(list(table_types)).cast(arrow_schema(schema))


def _column_types(schema: Schema) -> dict[str, Any]:
    """Return the type of each column, as in the JSON of a schema with only nullable columns."""
    fields = json.loads(_nullable_text(schema.to_json()))["fields"]
    return {field["name"]: field["type"] for field in fields}


# Each commit compares the columns of its rows with those of its table, which rarely change.
@lru_cache(maxsize=256)
def _nullable_text(text: str) -> str:
    """Return a schema in JSON with only nullable columns."""
    return json.dumps(_make_nullable(json.loads(text)))


def _make_nullable(plain: Any) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(plain, list):
        return [_make_nullable(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    nullable = dict[str, Any]()
    for key, value in plain.items():
        if key in ("nullable", "containsNull", "valueContainsNull"):
            nullable[key] = True
        elif key == "metadata":
            nullable[key] = {}
        else:
            nullable[key] = _make_nullable(value)
    return nullable
