"""What becomes of records whose values are plain JSON: the same as in `decode`, in this process.

Each question to the engine takes a tenth of a second, whatever it is asked, and records that it is
to decode have to be sent to it.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidemark.define.protection import Drop
from tidemark.define.source import CORRELATION, Source
from tidemark.store.rows import compute as pc
from tidemark_streaming.feed import BYTES, CHUNK
from tidemark_streaming.kafka.decode import RECORD, payload_fields
from tidemark_streaming.payloads.plain import parsed


def decoded(records: pa.Table, source: Source, correlation: str | None) -> pa.Table | None:
    """Records, as `records.SCHEMA` has them, as the rows that a feed reads; None where that is for
    the engine to say.

    Args:
        correlation: the header that holds an event's correlation id.
    """
    told = _told(records, source)
    if told is None or (correlation is not None and pc.any(_lengths(records["headers"])).as_py()):
        return None
    parts = parsed(records["value"], payload_fields(source))
    if parts is None:
        return None
    events = {n: parts[source.field_of(n)] for n in source.columns if n not in RECORD}
    for name, way in source.protect.items():
        if name in events and isinstance(way, Drop):
            events[name] = pa.chunked_array([pa.nulls(len(records), events[name].type)])
    place = _joined(records, "topic", "partition", "offset")
    rows = {name: told.get(name, events.get(name)) for name in source.columns}
    rows |= {CHUNK: records["chunk"], "position": records["position"]}
    return pa.table({**rows, "read_from": place, CORRELATION: place, BYTES: _sizes(records)})


def _told(records: pa.Table, source: Source) -> Mapping[str, Any] | None:
    """What Kafka says of the records, by the columns that the source has."""
    found = dict[str, Any]()
    for name in RECORD.keys() & source.columns.keys():
        if isinstance(source.protect.get(name), Drop) or name == "kafka_headers":
            return None
        if name == "kafka_topic_partition":
            found[name] = _joined(records, "topic", "partition")
            continue
        found[name] = records[name.removeprefix("kafka_")]
        if name == "kafka_key" and source.columns[name].strip().upper() == "STRING":
            try:
                found[name] = pc.cast(found[name], pa.string())
            except pa.ArrowInvalid:
                return None
    return found


def _joined(records: pa.Table, *names: str) -> "pa.ChunkedArray[Any]":
    return pc.binary_join_element_wise(*(pc.cast(records[n], pa.string()) for n in names), "-")


def _sizes(records: pa.Table) -> "pa.ChunkedArray[Any]":
    """The bytes of a record, as it came."""
    if "size" in records.column_names:
        return records["size"]
    lengths = [pc.fill_null(pc.binary_length(records[n]), 0) for n in ("key", "value")]
    return pc.cast(pc.add(*lengths), pa.int64())


def _lengths(headers: "pa.ChunkedArray[Any]") -> "pa.ChunkedArray[Any]":
    return pc.greater(pc.fill_null(pc.list_value_length(headers), 0), 0)
