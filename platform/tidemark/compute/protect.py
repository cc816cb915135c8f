"""A column in memory, protected: by who has read it, before it goes anywhere."""

from typing import Any

import pyarrow as pa

from tidemark.define.protection import Protection


def protect(values: "pa.Array[Any] | pa.ChunkedArray[Any]", by: Protection) -> "pa.Array[Any]":
    """The protected values of a column of texts or bytes; null stays null.

    Raises:
        DefinitionError: the key is not there.
    """
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    change = by.change()
    # Each value once, however often it comes.
    coded = whole.cast(pa.binary()).dictionary_encode()
    changed = pa.array([change(value) for value in coded.dictionary.to_pylist()], pa.binary())
    return changed.take(coded.indices).cast(whole.type)
