"""What is asked of the engine in one request, where its client takes several.

A run of few rows asks some thirty times, and each request costs milliseconds. These go below the
client's public functions, whose `toArrow` asks for the columns before it asks for the rows that
come with them, whose `createDataFrame` asks for thirteen settings each time, and whose settings go
one by one. The client's version is pinned; the tests of the engine know what is used of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect import proto
from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame
from pyspark.sql.connect.plan import LocalRelation
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

Settings = Mapping[str, str | None]
"""Settings by their names; None where there is no value."""

_SENT_WITH_PLAN = 8 << 20
"""Bytes up to which rows are part of the plan; what is more, the client keeps with the server."""


def fetch(rows: DataFrame) -> pa.Table:
    """Compute rows, into memory."""
    sent: Any = rows
    table, schema = sent._to_table()
    return table.cast(as_fetched(rows.schema if schema is None else schema))


def fetch_chunks(rows: DataFrame, size: int) -> Iterator[pa.Table]:
    """Compute rows and give them one chunk after the other, each of about `size` rows; one without
    rows if there are none."""
    plain: Any = rows
    client = plain.sparkSession.client
    answers = client.to_table_as_iterator(plain._plan.to_proto(client), plain._plan.observations)
    schema, waiting, gathered = as_fetched(rows.schema), [], 0
    chunks = 0
    for answer in answers:
        if isinstance(answer, StructType):
            continue
        waiting.append(answer)
        gathered += answer.num_rows
        if gathered >= size:
            yield pa.concat_tables(waiting).cast(schema)
            waiting, gathered, chunks = [], 0, chunks + 1
    if waiting or not chunks:
        yield pa.concat_tables(waiting).cast(schema) if waiting else schema.empty_table()


def as_fetched(schema: StructType) -> pa.Schema:
    """The columns that rows of the engine have in memory."""
    return to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")


def give(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows in memory, for the engine.

    Args:
        rows: of types that the engine's own rows have in memory: instants are microseconds in UTC.
    """
    if rows.nbytes >= _SENT_WITH_PLAN:
        return spark.createDataFrame(rows)
    made: Any = ConnectDataFrame(LocalRelation(rows), _own(spark))
    return made.coalesce(1)


def settings(spark: SparkSession, names: Iterable[str]) -> Settings:
    """What a session has for some settings, in one request."""
    config = proto.ConfigRequest
    asked = config.Operation(get_option=config.GetOption(keys=[*names]))
    return dict(_own(spark).client.config(asked).pairs)


@contextmanager
def changed(spark: SparkSession, old: Settings, new: Settings) -> Iterator[None]:
    """Settings of a session in the place of old ones, all of the same names, as long as the block
    lasts.

    Not by taking back what was set: what an engine was started with is a setting of its sessions,
    and would go too.
    """
    _set(spark, new)
    try:
        yield
    finally:
        _set(spark, old)


def _set(spark: SparkSession, values: Settings) -> None:
    client, config = _own(spark).client, proto.ConfigRequest
    pairs = [proto.KeyValue(key=k, value=v) for k, v in values.items() if v is not None]
    client.config(config.Operation(set=config.Set(pairs=pairs)))
    if none := [key for key, value in values.items() if value is None]:
        client.config(config.Operation(unset=config.Unset(keys=none)))


def _own(spark: SparkSession) -> Any:  # noqa: ANN401 (the client's own class, by another name)
    return spark
