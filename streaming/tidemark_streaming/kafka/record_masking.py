"""Protect the keys and headers of records whose source has protected columns.

Fields that the source does not keep are removed. Values are protected later, when they are decoded.
All of this happens in the memory of the process that reads the records. The engine may write the
data that it receives to files, and show it in its log.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemark.define.protection import Change
from tidemark.define.source import CORRELATION, Source


def protect_records(records: pa.Table, source: Source, correlation: str | None) -> pa.Table:
    """Return records (`records.SCHEMA`) protected as their source declares, with `size`, their
    original size in bytes.

    Args:
        correlation: the header that holds an event's correlation ID.

    Raises:
        DefinitionError: the key for tokens does not exist.
    """
    ways = {name: way.change() for name, way in source.mask.items()}
    columns: dict[str, Any] = {
        "key": _key(records["key"], source),
        "headers": [
            _headers(each, "kafka_headers" in source.columns, correlation, ways)
            for each in records["headers"].to_pylist()
        ],
    }
    keys, values = records["key"].to_pylist(), records["value"].to_pylist()
    sizes = [len(k or b"") + len(v or b"") for k, v in zip(keys, values, strict=True)]
    for name, column in columns.items():
        place, kind = records.column_names.index(name), records.schema.field(name).type
        column = pa.array(column, kind) if isinstance(column, list) else column
        records = records.set_column(place, name, column)
    return records.append_column("size", pa.array(sizes, pa.int64()))


def _key(keys: "pa.ChunkedArray[Any]", source: Source) -> "pa.Array[Any] | pa.ChunkedArray[Any]":
    if "kafka_key" not in source.columns:
        return pa.nulls(len(keys), keys.type)
    way = source.mask.get("kafka_key")
    return keys if way is None else way.protect(keys)


def _headers(
    headers: Sequence[Mapping[str, Any]] | None,
    kept: bool,
    correlation: str | None,
    ways: Mapping[str, Change],
) -> list[dict[str, Any]] | None:
    """Return the protected headers that the source keeps, and the header with the correlation ID.
    That header is protected like the others unless it has a protection of its own. Return None if
    the headers can't be read."""
    if headers is None:
        return None
    usual = ways.get("kafka_headers", _keep)
    own = ways.get(CORRELATION, usual)
    pairs = [(h["key"], h["value"]) for h in headers]
    return [
        {"key": k, "value": None if v is None else (own if k == correlation else usual)(v)}
        for k, v in pairs
        if kept or k == correlation
    ]


def _keep(value: bytes) -> bytes:
    return value
