"""Records of a source with protected columns: their keys and headers are protected, and what the
source does not keep is not in them any more. Their values are protected when they are decoded.

All of it happens in the memory of the process that has read them: what the engine is sent, it may
write to files of its own, and show in its log.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemark.compute.protect import protect
from tidemark.define.protection import Change
from tidemark.define.source import CORRELATION, Source


def protected(records: pa.Table, source: Source, correlation: str | None) -> pa.Table:
    """Records, as `records.SCHEMA` has them, protected as their source declares; and `size`, their
    bytes as they came.

    Args:
        correlation: the header that holds an event's correlation id.

    Raises:
        DefinitionError: the key of tokens is not there.
    """
    ways = {name: way.change() for name, way in source.protect.items()}
    columns: dict[str, Any] = {
        "key": _key(records["key"], source),
        "headers": [
            _headers(each, "kafka_headers" in source.columns, correlation, ways)
            for each in records["headers"].to_pylist()
        ],
    }
    sizes = [len(k or b"") + len(v or b"") for k, v in _contents(records)]
    for name, column in columns.items():
        place, kind = records.column_names.index(name), records.schema.field(name).type
        column = pa.array(column, kind) if isinstance(column, list) else column
        records = records.set_column(place, name, column)
    return records.append_column("size", pa.array(sizes, pa.int64()))


def _contents(records: pa.Table) -> Iterator[tuple[bytes | None, bytes | None]]:
    return zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True)


def _key(keys: "pa.ChunkedArray[Any]", source: Source) -> "pa.Array[Any] | pa.ChunkedArray[Any]":
    if "kafka_key" not in source.columns:
        return pa.nulls(len(keys), keys.type)
    way = source.protect.get("kafka_key")
    return keys if way is None else protect(keys, way)


def _headers(
    headers: Sequence[Mapping[str, Any]] | None,
    kept: bool,
    correlation: str | None,
    ways: Mapping[str, Change],
) -> list[dict[str, Any]] | None:
    """The headers that the source keeps, if it does, and the one with the correlation id, which is
    protected as the others are unless it is in a way of its own; None where they can't be read."""
    if headers is None:
        return None
    usual = ways.get("kafka_headers", _unchanged)
    own = ways.get(CORRELATION, usual)
    told = [(h["key"], h["value"]) for h in headers]
    return [
        {"key": k, "value": None if v is None else (own if k == correlation else usual)(v)}
        for k, v in told
        if kept or k == correlation
    ]


def _unchanged(value: bytes) -> bytes:
    return value
