"""Handle dead letters: rows that could not be decoded, with their bytes and the reason.

A connector adds a `dead_letter` column to its rows, which is null for a row that fits the source's
columns. The event log takes the rows that fit, and the table `<source>_dead_letters` takes the
others. Each row that a connector reads in an arrival gets a position, even if it is a dead letter,
so the positions in the event log can have gaps. Only joins number their dead letters separately.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.define.helper_columns import name_helper
from tidemark.store.rows import INSTANT

LETTER_FIELDS = {
    "reason": "STRING",
    "bytes": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestamp_type": "STRING",
    "key": "BINARY",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""The fields of the column `DEAD`: the reason, the bytes, and a broker's metadata of the record."""

DEAD_LETTER_COLUMNS = {
    "arrival": "BIGINT",
    "position": "BIGINT",
    "arrived_at": "TIMESTAMP",
    "read_from": "STRING",
    "correlation_id": "STRING",
    **LETTER_FIELDS,
}
"""The columns of a dead-letter table.

`reason` is an error message without values of the row. `bytes` is the original payload; null if it
must not be stored. The columns after `bytes` are a broker's metadata of the record, null without a
broker.
"""

DEAD = name_helper("dead_letter")
"""The column of a connector's rows that is null if the row fits the source's columns."""


def dead_letter(
    reason: Column, content: Column, *, certain: bool = False, **record: Column
) -> Column:
    """Return the dead-letter struct of a row; null if `reason` is null.

    Args:
        content: the row's bytes.
        certain: true if `reason` is never null. The engine then knows that all rows with this
            column are dead letters, and does not compute them for a query that excludes these.
        record: a broker's metadata of the record, by the names in `DEAD_LETTER_COLUMNS`.
    """
    columns = {"reason": reason, "bytes": content, **record}
    fields = list[Column]()
    for name, kind in LETTER_FIELDS.items():
        column = columns.get(name, F.lit(None))
        fields.append(column.cast(kind).alias(name))
    letter = F.struct(fields)
    if not certain:
        letter = F.when(reason.isNotNull(), letter)
    return letter.alias(DEAD)


_LETTER = pa.struct(
    {
        "reason": pa.string(),
        "bytes": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": INSTANT,
        "timestamp_type": pa.string(),
        "key": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)


def dead_letters_of(
    rows: int, reasons: Mapping[int, str], record: Mapping[str, "pa.ChunkedArray[Any]"]
) -> "pa.ChunkedArray[Any]":
    """Return a dead-letter column for `rows` rows; null for rows that were decoded.

    Args:
        reasons: the reason of each dead letter, by row number.
        record: columns of all rows, by the names in `DEAD_LETTER_COLUMNS`.
    """
    numbers = sorted(reasons)
    indexes = pa.array(numbers, pa.int64())
    fields = list["pa.Array[Any]"]()
    for field in _LETTER:
        if field.name == "reason":
            texts = [reasons[number] for number in numbers]
            fields.append(pa.array(texts, field.type))
        elif field.name in record:
            column = record[field.name].take(indexes)
            fields.append(column.cast(field.type).combine_chunks())
        else:
            fields.append(pa.nulls(len(numbers), field.type))
    letters = pa.StructArray.from_arrays(fields, fields=list(_LETTER))
    # The index of each row's dead letter; -1 for a row that was decoded.
    letter_indexes = np.full(rows, -1)
    letter_indexes[numbers] = range(len(numbers))
    return pa.chunked_array([letters.take(pa.array(letter_indexes, mask=letter_indexes < 0))])


def content_of(rows: int, record: Mapping[str, "pa.ChunkedArray[Any]"]) -> "pa.ChunkedArray[Any]":
    """Return the fields of a dead letter for each row, with an empty reason.

    Args:
        record: as for `dead_letters_of`.
    """
    return dead_letters_of(rows, dict.fromkeys(range(rows), ""), record)


def is_dead(columns: Collection[str]) -> Column:
    """Return a BOOLEAN column: true for dead letters. Always false without a dead-letter column."""
    if DEAD in columns:
        return F.isnotnull(DEAD)
    return F.lit(False)
