"""Decode Kafka records into a source's columns, from their values and their metadata."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemark.base.errors import DefinitionError
from tidemark.define.protection import Drop, Tokenize
from tidemark.define.source import CORRELATION, Source
from tidemark.store.event_log.dead_letters import DEAD, content_of, dead_letters_of
from tidemark.store.rows import compute as pc
from tidemark_streaming.connector import BYTES, CHUNK, CONTENT
from tidemark_streaming.payloads import Payload
from tidemark_streaming.payloads.column_types import arrow_type
from tidemark_streaming.payloads.payload import (
    decode_protected,
    misfit_reason,
    null_rows,
    undecoded_rows,
)
from tidemark_streaming.payloads.text_values import decode_utf8

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
"""Source columns that hold a record's metadata; a source declares the ones that it needs.

`kafka_topic_partition` is `topic-partition`, for per-partition watermarks. `kafka_timestamp_type`
is `CreateTime` or `LogAppendTime`. `kafka_key` may also be declared as a STRING. `kafka_headers` is
null if the name of a header is not UTF-8, because the client cannot read such headers.
"""

PLACES: Mapping[str, Callable[[str, int], str]] = {
    "kafka_topic": lambda topic, _: topic,
    "kafka_partition": lambda _, partition: str(partition),
    "kafka_topic_partition": lambda topic, partition: f"{topic}-{partition}",
}
"""The columns of `RECORD` that depend only on topic and partition, with functions that render their
values as text."""

_DEAD_LETTER_FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "headers",
)
"""The fields of a record that its dead letter keeps, in addition to the value."""

WRITTEN_FIELDS = {"kafka_key": "key", "kafka_timestamp": "timestamp_type"}
"""Columns that can be null although the record has a value for them, for example a key that is not
UTF-8 or a timestamp outside the years 1 to 9999. With each column comes a field of the record that
is null only if the record has no value for the column."""


def check_columns(source: Source, connector: str) -> None:
    """Refuse a source that declares a column of `RECORD` with another type, or a column that a
    Kafka connector can't protect as declared.

    Args:
        connector: the connector, for the error message.
    """
    for name, kind in source.record_columns.items():
        allowed = list[str]()
        if name in RECORD:
            allowed.append(RECORD[name])
        if name == "kafka_key":
            allowed.append("STRING")
        if allowed and _normalize_type(kind) not in map(_normalize_type, allowed):
            raise DefinitionError(
                f"{connector} reads the column '{name}' as {' or '.join(allowed)}, but it is "
                "declared "
                f"as {kind}: correct the declaration."
            )
        way = source.mask.get(name)
        if name in RECORD and way is not None and name not in ("kafka_key", "kafka_headers"):
            raise DefinitionError(
                f"{connector} needs the original value of '{name}', so this column can't be "
                "protected: "
                "remove it from `mask`."
            )
        if name not in RECORD and isinstance(way, Tokenize) and _normalize_type(kind) != "STRING":
            raise DefinitionError(
                f"{connector} can tokenize only STRING columns, but '{name}' is declared as "
                f"{kind}: "
                "declare it as STRING, or use Mask() or Drop()."
            )


def decode_records(
    records: pa.Table, source: Source, payload: Payload, correlation: str | None
) -> pa.Table:
    """Decode records (`records.SCHEMA`) into the rows that a connector reads.

    A record that cannot be decoded becomes a dead letter with its original bytes. If the source has
    protected columns, the dead letter has neither the bytes nor the key nor the headers.

    Args:
        payload: the format of the values.
        correlation: the header that holds an event's correlation ID.

    Raises:
        DataError: something needed for decoding, such as a schema registry, is unavailable at the
            moment.
        DefinitionError: the key for tokens does not exist.
    """
    value_columns = {n: t for n, t in source.record_columns.items() if n not in RECORD}
    events = decode_protected(records["value"], value_columns, source, payload)
    columns = {**events.columns, **_metadata_columns(records, source)}
    reasons = dict(events.reasons)
    for name, written in WRITTEN_FIELDS.items():
        if name in columns:
            for row in undecoded_rows(records[written], columns[name]):
                reasons.setdefault(row, misfit_reason(name, source.record_columns[name]))
    record_id = _join_columns(records, "topic", "partition", "offset")
    header = _header_values(records, correlation)
    rows = dict[str, Any]()
    for name, kind in source.record_columns.items():
        if name in columns:
            rows[name] = columns[name]
        else:
            rows[name] = pa.nulls(len(records), arrow_type(kind))
    if reasons:
        rows = {name: null_rows(column, reasons) for name, column in rows.items()}
    rows |= {CHUNK: records["chunk"], "position": records["position"]}
    rows["read_from"] = record_id
    rows[CORRELATION] = record_id if header is None else pc.coalesce(header, record_id)
    rows[BYTES] = _record_sizes(records)
    if reasons:
        rows[DEAD] = _dead_letters(records, reasons, source)
    if source.computed:
        rows[CONTENT] = content_of(len(records), _letter_fields(records, source))
    return pa.table(rows)


def _metadata_columns(records: pa.Table, source: Source) -> Mapping[str, Any]:
    columns = dict[str, Any]()
    for name in RECORD.keys() & source.record_columns.keys():
        if isinstance(source.mask.get(name), Drop):
            continue
        if name == "kafka_topic_partition":
            columns[name] = _join_columns(records, "topic", "partition")
            continue
        columns[name] = records[name.removeprefix("kafka_")]
        if name == "kafka_key" and _normalize_type(source.record_columns[name]) == "STRING":
            columns[name] = decode_utf8(columns[name])
    return columns


def _header_values(records: pa.Table, name: str | None) -> "pa.ChunkedArray[Any] | None":
    """Return each record's first value of a header as text. The value is null if the record does
    not have that header, if its headers can't be read, or if the value is not UTF-8. Return None if
    `name` is None or no record has headers."""
    if name is None or not pc.any(pc.greater(pc.list_value_length(records["headers"]), 0)).as_py():
        return None
    values = [_first_value(headers or (), name) for headers in records["headers"].to_pylist()]
    return decode_utf8(pa.chunked_array([pa.array(values, pa.binary())]))


def _first_value(headers: Sequence[Mapping[str, Any]], name: str) -> bytes | None:
    """Return the value of the first header with a name; None if there is none."""
    for header in headers:
        if header["key"] == name:
            return header["value"]
    return None


def _dead_letters(records: pa.Table, reasons: Mapping[int, str], source: Source) -> pa.ChunkedArray:
    """Return a dead letter for each record that has a reason, and null for each other record.

    Args:
        reasons: why records could not be decoded, by the index of the record.
    """
    return dead_letters_of(len(records), reasons, _letter_fields(records, source))


def _letter_fields(records: pa.Table, source: Source) -> dict[str, "pa.ChunkedArray[Any]"]:
    """Return the fields that dead letters of records have."""
    fields = {name: records[name] for name in _DEAD_LETTER_FIELDS}
    if not source.mask:
        fields["bytes"] = records["value"]
        return fields
    # The key and the headers may have the values that the source protects.
    fields.pop("key", None)
    fields.pop("headers", None)
    return fields


def _join_columns(records: pa.Table, *names: str) -> "pa.ChunkedArray[Any]":
    return pc.binary_join_element_wise(*(pc.cast(records[n], pa.string()) for n in names), "-")


def _record_sizes(records: pa.Table) -> "pa.ChunkedArray[Any]":
    if "size" in records.column_names:
        return records["size"]
    lengths = [pc.fill_null(pc.binary_length(records[n]), 0) for n in ("key", "value")]
    return pc.cast(pc.add(*lengths), pa.int64())


def _normalize_type(kind: str) -> str:
    return kind.replace(" ", "").upper()
