"""What is asked of the engine in one request, where its client takes several.

A run of few rows asks some thirty times, and each request costs milliseconds. These go below the
client's public functions, whose `toArrow` asks for the columns before it asks for the rows that
come with them, whose `createDataFrame` asks for thirteen settings each time, and whose settings go
one by one. The client's version is pinned; the tests of the engine know what is used of it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect import proto
from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame
from pyspark.sql.connect.plan import LocalRelation
from pyspark.sql.pandas.types import to_arrow_schema

_SENT_WITH_PLAN = 1 << 20
"""Bytes up to which rows are part of the plan; what is more, the client keeps with the server."""


def fetch(rows: DataFrame) -> pa.Table:
    """Compute rows, into memory."""
    sent: Any = rows
    table, schema = sent._to_table()
    like = to_arrow_schema(
        rows.schema if schema is None else schema,
        error_on_duplicated_field_names_in_struct=True,
        timezone="UTC",
    )
    return table.cast(like)


def give(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows in memory, for the engine.

    Args:
        rows: of types that the engine's own rows have in memory: instants are microseconds in UTC.
    """
    if rows.nbytes >= _SENT_WITH_PLAN:
        return spark.createDataFrame(rows)
    made: Any = ConnectDataFrame(LocalRelation(rows), _own(spark))
    return made.coalesce(1)


@contextmanager
def setting(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session, as long as the block lasts; afterwards they are the engine's."""
    client = _own(spark).client
    pairs = [proto.KeyValue(key=key, value=value) for key, value in settings.items()]
    config = proto.ConfigRequest
    client.config(config.Operation(set=config.Set(pairs=pairs)))
    try:
        yield
    finally:
        client.config(config.Operation(unset=config.Unset(keys=[*settings])))


def _own(spark: SparkSession) -> Any:  # noqa: ANN401 (the client's own class, by another name)
    return spark
