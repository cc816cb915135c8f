"""Protect a column in memory, before its connector stores it anywhere."""

from typing import Any

import pyarrow as pa

from tidemark.define.protection import Protection


def protect(values: "pa.Array[Any] | pa.ChunkedArray[Any]", by: Protection) -> "pa.Array[Any]":
    """Return the protected values of a column of strings or bytes; null stays null."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    change = by.change()
    # Change each distinct value only once.
    coded = whole.cast(pa.binary()).dictionary_encode()
    changed = pa.array([change(value) for value in coded.dictionary.to_pylist()], pa.binary())
    return changed.take(coded.indices).cast(whole.type)
