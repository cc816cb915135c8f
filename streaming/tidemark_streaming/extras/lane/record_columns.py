"""Read the metadata of records with Spark's expressions, by the rules of `kafka.decode`."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.instants import BEGINNING, INFINITY
from tidemark_streaming.kafka.decode import WRITTEN_FIELDS
from tidemark_streaming.payloads.payload import misfit_reason

_REPLACEMENT = "\ufffd"
"""What Kafka's Java client puts into the name of a header that is not UTF-8."""


def record_column(name: str, kind: str) -> Column:
    """Return a column of `RECORD`, for the records of Spark's connector with their headers.

    Args:
        kind: the Spark DDL type with which the source declares it.
    """
    if name == "kafka_topic_partition":
        return F.concat_ws("-", "topic", "partition")
    if name == "kafka_key":
        key = F.col("key").cast(kind)
        return F.when(F.is_valid_utf8(key), key) if kind.strip().upper() == "STRING" else key
    if name == "kafka_timestamp":
        is_in_range = F.unix_micros("timestamp").between(BEGINNING, INFINITY)
        return F.when(F.isnotnull("timestamp_type") & is_in_range, F.col("timestamp"))
    if name == "kafka_headers":
        return _headers().cast(kind)
    return F.col(name.removeprefix("kafka_")).cast(kind)


def record_fault(name: str, kind: str) -> Column:
    """Return why a column of `RECORD` does not have the value that was written, else null."""
    if name not in WRITTEN_FIELDS:
        return F.lit(None).cast("STRING")
    is_lost = F.isnotnull(WRITTEN_FIELDS[name]) & F.isnull(record_column(name, kind))
    return F.when(is_lost, F.lit(misfit_reason(name, kind)))


def header(name: str | None) -> Column:
    """Return the first value of a header as text. It is null if `name` is None, the value is not
    UTF-8, or the headers can't be read."""
    if name is None:
        return F.lit(None).cast("STRING")
    found = F.filter(_headers(), lambda header: header["key"] == name)
    value = F.try_element_at(found, F.lit(1))["value"].cast("STRING")
    return F.when(F.is_valid_utf8(value), value)


def _headers() -> Column:
    unreadable = F.exists("headers", lambda header: F.contains(header["key"], F.lit(_REPLACEMENT)))
    return F.when(F.isnull("headers") | ~unreadable, F.col("headers"))
