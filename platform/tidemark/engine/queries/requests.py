"""Send requests to the engine, each of which replaces several requests of Spark's client.

A run of few rows makes about thirty requests, and each takes milliseconds. The functions here
bypass the public functions of the client, which send needless requests. `toArrow` requests the
columns before the rows, although the response with the rows includes the columns. `createDataFrame`
requests thirteen settings each time, and the client requests settings one by one. `observe` lets
the engine analyze the plan, to know whether it is a stream. The version of the client is pinned,
and the engine's tests cover the internals that are used here.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql.connect import proto
from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame
from pyspark.sql.connect.plan import LocalRelation
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidemark.base import thresholds
from tidemark.base.errors import EngineLostError

Settings = Mapping[str, str | None]
"""The values of Spark settings by name; the value None stands for a setting that is not set."""


def fetch_dataframe(rows: DataFrame) -> pa.Table:
    sent: Any = rows
    table, schema = sent._to_table()
    return table.cast(fetched_schema(rows.schema if schema is None else schema))


def fetch_chunks(rows: DataFrame, size: int) -> Iterator[pa.Table]:
    """Compute rows, and yield them in chunks of about `size` rows.

    Without rows, yield one empty chunk.
    """
    plain: Any = rows
    client = plain.sparkSession.client
    answers = client.to_table_as_iterator(plain._plan.to_proto(client), plain._plan.observations)
    schema = fetched_schema(rows.schema)
    waiting = []
    gathered = 0
    chunks = 0
    for answer in answers:
        if isinstance(answer, StructType):
            continue
        waiting.append(answer)
        gathered += answer.num_rows
        if gathered >= size:
            yield pa.concat_tables(waiting).cast(schema)
            waiting = []
            gathered = 0
            chunks = chunks + 1
    if waiting or not chunks:
        yield _join_tables(waiting, schema)


def _join_tables(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    if not tables:
        return schema.empty_table()
    return pa.concat_tables(tables).cast(schema)


def fetched_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of rows that are fetched from a DataFrame with this schema."""
    return to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")


def to_dataframe(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return a DataFrame of rows in memory.

    Args:
        rows: the rows, with the types that `fetched_schema` returns: timestamps are in microseconds
            and in UTC.
    """
    if rows.nbytes >= thresholds.INLINE_BYTES:
        return spark.createDataFrame(rows)
    frame: Any = ConnectDataFrame(LocalRelation(rows), _as_connect_session(spark))
    return frame.coalesce(1)


def observe_rows(rows: DataFrame, observation: Observation, column: Column) -> DataFrame:
    """Return a DataFrame that also computes an aggregate, for an observation.

    Args:
        rows: a DataFrame that is not a stream.
    """
    # The property is computed once for each DataFrame, by a request.
    vars(rows)["isStreaming"] = False
    return rows.observe(observation, column)


def read_settings(spark: SparkSession, names: Iterable[str]) -> Settings:
    """Return a session's values of some settings, in one request."""
    config = proto.ConfigRequest
    request = config.Operation(get_option=config.GetOption(keys=list(names)))
    return dict(_as_connect_session(spark).client.config(request).pairs)


@contextmanager
def override_settings(spark: SparkSession, restored: Settings, values: Settings) -> Iterator[None]:
    """Change settings of a session within the context.

    At the end of the context, the old values are set again. To unset the settings instead would be
    wrong: the options with which the engine was started are session settings too, and would be
    lost. If the engine is lost, it has no settings any more, so nothing is set again.

    Args:
        restored: the values to set at the end, for the same names as `values`.
        values: the values within the context.
    """
    _apply_settings(spark, values)
    try:
        yield
    finally:
        # This error must not hide the one that ended the context, such as an interrupt.
        with suppress(EngineLostError):
            _apply_settings(spark, restored)


def _apply_settings(spark: SparkSession, values: Settings) -> None:
    client = _as_connect_session(spark).client
    config = proto.ConfigRequest
    pairs = [proto.KeyValue(key=k, value=v) for k, v in values.items() if v is not None]
    client.config(config.Operation(set=config.Set(pairs=pairs)))
    if none := [key for key, value in values.items() if value is None]:
        client.config(config.Operation(unset=config.Unset(keys=none)))


def _as_connect_session(spark: SparkSession) -> Any:  # noqa: ANN401 (the client's own class, by another name)
    return spark
