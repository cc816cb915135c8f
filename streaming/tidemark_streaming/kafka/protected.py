"""Records of a source with protected columns: what is to be protected of them is, and what the
source does not keep is not in them any more.

It is done in the memory of the process that has read them: what the engine is sent, it may write to
files of its own, and show in its log.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemark.compute.protect import protect
from tidemark.define.protection import Change
from tidemark.define.source import CORRELATION, Source
from tidemark_streaming.kafka.decode import payload_fields

_NO_OBJECT = b"-"
"""Instead of a value that is no JSON object: of such, nobody can tell what is to be protected."""

_SPACE = " \t\n\r"
_value = json.JSONDecoder().raw_decode


def protected(
    records: pa.Table, source: Source, correlation: str | None, *, is_json: bool
) -> pa.Table:
    """Records, as `records.SCHEMA` has them, protected as their source declares; and `size`, their
    bytes as they came.

    Args:
        correlation: the header that holds an event's correlation id.
        is_json: whether their values are; of another format they are protected when they are
            decoded, and stay here as they came.

    Raises:
        DefinitionError: the key of tokens is not there.
    """
    fields = list(payload_fields(source))
    ways = {source.field_of(name): way.change() for name, way in source.protect.items()}
    columns: dict[str, Any] = {
        "key": _key(records["key"], source),
        "value": [_object(value, fields, ways) for value in records["value"].to_pylist()]
        if is_json
        else records["value"],
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


def _object(value: bytes | None, fields: Sequence[str], ways: Mapping[str, Change]) -> bytes | None:
    """A value with those of its members that are the source's columns, protected."""
    if value is None:
        return None
    try:
        members = _members(value.decode())
    except (ValueError, RecursionError):
        return _NO_OBJECT
    there = ((name, members[name]) for name in fields if name in members)
    told = (f"{json.dumps(n)}:{_member(t, ways[n]) if n in ways else t}" for n, t in there)
    return f"{{{','.join(told)}}}".encode()


def _members(text: str) -> dict[str, str]:
    """The members of a JSON object, their values as they are written there.

    Raises:
        ValueError: it is none.
    """
    found: dict[str, str] = {}
    at = _expect(text, 0, "{")
    if text[at : at + 1] == "}":
        at += 1
    else:
        while True:
            name, at = _value(text, at)
            if not isinstance(name, str):
                raise ValueError("a member without a name")
            start = _expect(text, at, ":")
            _, end = _value(text, start)
            found[name] = text[start:end]
            at = _past(text, end)
            if text[at : at + 1] != ",":
                break
            at = _past(text, at + 1)
        at = _expect(text, at, "}")
    if _past(text, at) != len(text):
        raise ValueError("more than an object")
    return found


def _expect(text: str, at: int, sign: str) -> int:
    """Where the text goes on behind a sign and space."""
    at = _past(text, at)
    if text[at : at + 1] != sign:
        raise ValueError(f"no {sign}")
    return _past(text, at + 1)


def _past(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _member(text: str, change: Change) -> str:
    """A member's value, protected as text; of one that is no text, as it is written."""
    if text == "null":
        return text
    plain = str(json.loads(text)) if text.startswith('"') else text
    changed = change(plain.encode(errors="replace"))
    return "null" if changed is None else json.dumps(changed.decode())


def _unchanged(value: bytes) -> bytes:
    return value
