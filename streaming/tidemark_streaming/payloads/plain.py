"""JSON that means the same to everybody, parsed in memory.

The engine decides what a text means, and takes a tenth of a second to say it of a single one. Most
values leave nothing to decide: an object on one line, whose fields are of the types of the columns.
Where all of some values are so, they are parsed here, to just what the engine would have made of
them; one that is not, and they are the engine's.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import json

from tidemark.store.rows import INSTANT
from tidemark.store.rows import compute as pc

_KINDS: Mapping[str, pa.DataType] = {
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.string(),
}
"""Types of which a plain value means the same here and there, and as what it is parsed."""

_INSTANT = r"^(19|20)\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-](0\d|1[0-3]):[0-5]\d)$"
"""A plain instant, which says its offset from UTC."""

_BYTES = 1 << 30
"""More than this is not parsed at once."""

_BLOCK = 1 << 20
"""Bytes that one thread parses at once."""


def parsed(
    values: "pa.ChunkedArray[Any]", columns: Mapping[str, str]
) -> "dict[str, pa.ChunkedArray[Any]] | None":
    """The columns of these values, binary; None where one of them is not plain.

    Args:
        columns: their Spark DDL types.
    """
    kinds = {name: kind.strip().upper() for name, kind in columns.items()}
    if not set(kinds.values()) <= set(_KINDS) or not kinds or not len(values):
        return None
    lines = _lines(values)
    if lines is None:
        return None
    schema = pa.schema({name: _KINDS[kind] for name, kind in kinds.items()})
    options = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    longest = pc.max(pc.binary_length(values)).as_py()
    blocks = json.ReadOptions(block_size=max(_BLOCK, 2 * longest))
    try:
        rows = json.read_json(pa.BufferReader(lines), blocks, options)
        # One value may hold two objects.
        if rows.num_rows != len(values):
            return None
        rows.validate(full=True)
        return {name: _plain(rows[name], kind) for name, kind in kinds.items()}
    except pa.ArrowException:
        return None


def _lines(values: "pa.ChunkedArray[Any]") -> pa.Buffer | None:
    """The values, each on a line; None where one is no object on one line."""
    if values.nbytes > _BYTES:
        return None
    whole = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}"))
    if not pc.all(whole).as_py() or pc.any(pc.match_substring(values, b"\n")).as_py():
        return None
    flat = pa.concat_arrays(values.chunks)
    all_ = pa.ListArray.from_arrays(pa.array([0, len(flat)], pa.int32()), flat)
    return pc.binary_join(all_, b"\n")[0].as_buffer()


def _plain(column: "pa.ChunkedArray[Any]", kind: str) -> "pa.ChunkedArray[Any]":
    """A column as the log has it.

    Raises:
        pa.ArrowInvalid: a value is not plain: no number, or no day of the calendar.
    """
    told = {"DOUBLE": pc.is_finite, "TIMESTAMP": _is_instant}.get(kind)
    if told is not None and pc.all(told(column)).as_py() is False:
        raise pa.ArrowInvalid("A value is not plain.")
    return pc.cast(column, INSTANT) if kind == "TIMESTAMP" else column


def _is_instant(texts: "pa.ChunkedArray[Any]") -> "pa.ChunkedArray[Any]":
    return pc.match_substring_regex(texts, _INSTANT)
