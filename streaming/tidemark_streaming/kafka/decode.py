"""What becomes of a record: a source's columns, from its value and from what Kafka says of it."""

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError
from tidemark.define.protection import Drop, Tokenise
from tidemark.define.source import Source
from tidemark.store.dead_letters import dead_letter
from tidemark_streaming.feed import BYTES, CHUNK
from tidemark_streaming.payloads import InMemory, Payload
from tidemark_streaming.payloads.payload import decoded as decoded_here

RECORD = {
    "kafka_topic": "STRING",
    "kafka_partition": "INT",
    "kafka_topic_partition": "STRING",
    "kafka_offset": "BIGINT",
    "kafka_timestamp": "TIMESTAMP",
    "kafka_timestamp_type": "STRING",
    "kafka_key": "BINARY",
    "kafka_headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""The columns in which a source keeps what Kafka says of a record: those of them that it has.

`kafka_topic_partition` is `topic-partition`, by which a watermark goes; `kafka_timestamp_type` is
`CreateTime` or `LogAppendTime`; `kafka_key` may be a STRING too. `kafka_headers` is null where the
name of one is no UTF-8, which nobody can read.
"""

PLACES: Mapping[str, Callable[[str, int], str]] = {
    "kafka_topic": lambda topic, _: topic,
    "kafka_partition": lambda _, partition: str(partition),
    "kafka_topic_partition": lambda topic, partition: f"{topic}-{partition}",
}
"""What those columns of `RECORD` have, as text, that go by a record's place."""

KEPT = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "headers")
"""What a dead letter keeps of a record, beside its value."""


def check(source: Source, what: str) -> None:
    """Refuse a source whose columns are not what `RECORD` says.

    Raises:
        DefinitionError: a column of `RECORD` of another type, or a column that can't be protected
            so; `what` fills it.
    """
    for name, kind in source.columns.items():
        allowed = [RECORD[name]] if name in RECORD else []
        allowed += ["STRING"] if name == "kafka_key" else []
        if allowed and _plain(kind) not in map(_plain, allowed):
            raise DefinitionError(
                f"{what} fills the column '{name}' as {' or '.join(allowed)}, and it is declared "
                f"as {kind}."
            )
        way = source.protect.get(name)
        if name in RECORD and way is not None and name not in ("kafka_key", "kafka_headers"):
            raise DefinitionError(f"{what} needs '{name}' as it is, so it can't be protected.")
        if name not in RECORD and isinstance(way, Tokenise) and _plain(kind) != "STRING":
            raise DefinitionError(
                f"{what} makes tokens of text, and '{name}' is declared as {kind}: as STRING it "
                "can have them."
            )


def decoded(
    spark: SparkSession,
    records: pa.Table,
    source: Source,
    payload: Payload,
    correlation: str | None,
) -> DataFrame:
    """Records, as `records.SCHEMA` has them, as the rows that a feed reads.

    A value that is not what the source's columns say is a dead letter, with its bytes as they came;
    without them, its key and its headers where the source has protected columns.

    Args:
        payload: the format of the values.
        correlation: the header that holds an event's correlation id.
    """
    fields = payload_fields(source)
    ways = {source.field_of(column): way for column, way in source.protect.items()}
    rows = (
        decoded_here(spark, records, fields, payload.event, ways)
        if isinstance(payload, InMemory)
        else payload.decode(spark, records, fields)
    )
    place = F.concat_ws("-", "topic", "partition", "offset")
    kept = [name for name in KEPT if not source.protect or name not in ("key", "headers")]
    content = F.lit(None) if source.protect else F.col("value")
    return rows.select(
        *(
            F.when(F.isnull("reason"), column(n, t, source)).alias(n)
            for n, t in source.columns.items()
        ),
        F.col("chunk").alias(CHUNK),
        "position",
        place.alias("read_from"),
        F.coalesce(header(correlation), place).alias("correlation_id"),
        _sizes(records.column_names).alias(BYTES),
        dead_letter(F.col("reason"), content, **{c: F.col(c) for c in kept}),
    )


def payload_fields(source: Source) -> dict[str, str]:
    """Return the fields of a value and their types: those of all columns that `RECORD` does not
    fill."""
    return {source.field_of(n): t for n, t in source.columns.items() if n not in RECORD}


def column(name: str, kind: str, source: Source) -> Column:
    """A column of a source, of rows that a payload has decoded."""
    if isinstance(source.protect.get(name), Drop):
        return F.lit(None).cast(kind)
    if name not in RECORD:
        return F.col(f"event.`{source.field_of(name)}`")
    if name == "kafka_topic_partition":
        return F.concat_ws("-", "topic", "partition")
    return F.col(name.removeprefix("kafka_")).cast(kind)


def header(name: str | None) -> Column:
    """The first value of a header, as text; null without the name of one, and where the headers
    can't be read."""
    if name is None:
        return F.lit(None).cast("string")
    found = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(found, F.lit(1))["value"].cast("string")


def _sizes(names: Sequence[str]) -> Column:
    """The bytes of a record, as it came; without asking the engine which columns there are."""
    return F.col("size") if "size" in names else _size("key") + _size("value")


def _size(name: str) -> Column:
    return F.coalesce(F.length(name), F.lit(0)).cast("bigint")


def _plain(kind: str) -> str:
    return kind.replace(" ", "").upper()
