"""Dead letters: rows that came and could not be decoded, with their bytes and the reason.

A feed gives each row that it reads a `dead_letter`, which is null where the row fits the source's
columns. The log takes the rows that fit, and the table `<source>_dead_letters` the others: they
have a place in the same arrival, which the positions of the log's rows leave out.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.define.helper_columns import helper
from tidemark.store.rows import INSTANT, Rows

_TOLD = {
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

DEAD_LETTER_COLUMNS = {
    "arrival": "BIGINT",
    "position": "BIGINT",
    "arrived_at": "TIMESTAMP",
    "read_from": "STRING",
    "correlation_id": "STRING",
    **_TOLD,
}
"""The columns of a table of dead letters.

`reason` is a sentence, without the row's values. `bytes` are as they came; null where they may not
be kept. What follows is what a broker says of a record, null where there was none.
"""

DEAD = helper("dead_letter")
"""The column of a feed's rows that is null where a row fits the source's columns."""

_FITS = f"{DEAD} IS NULL"


def dead_letter(reason: Column, content: Column, **record: Column) -> Column:
    """What a feed says of a row that does not fit; null where `reason` is.

    Args:
        content: the row's bytes.
        record: what a broker says of it, by the names in `DEAD_LETTER_COLUMNS`.
    """
    told = {"reason": reason, "bytes": content, **record}
    fields = [told.get(n, F.lit(None)).cast(kind).alias(n) for n, kind in _TOLD.items()]
    return F.when(reason.isNotNull(), F.struct(*fields)).alias(DEAD)


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
    """Return the dead letters among so many rows; null for the others.

    Args:
        reasons: by the number of a row, why it is one.
        record: columns of all rows, by the names in `DEAD_LETTER_COLUMNS`.
    """
    numbers = sorted(reasons)
    dead = {name: column.take(pa.array(numbers, pa.int64())) for name, column in record.items()}
    dead["reason"] = pa.chunked_array([pa.array([reasons[n] for n in numbers], pa.string())])
    parts = [
        dead[f.name].cast(f.type).combine_chunks()
        if f.name in dead
        else pa.nulls(len(numbers), f.type)
        for f in _LETTER
    ]
    letters = pa.StructArray.from_arrays(parts, fields=list(_LETTER))
    places = np.full(rows, -1)
    places[numbers] = range(len(numbers))
    return pa.chunked_array([letters.take(pa.array(places, mask=places < 0))])


def is_dead(columns: Collection[str]) -> Column:
    """Whether a row of a feed is a dead letter, by the columns that its rows have."""
    return F.isnotnull(DEAD) if DEAD in columns else F.lit(False)


def fitting(rows: Rows) -> Rows:
    """The rows of a feed that fit the source's columns, where some don't."""
    if isinstance(rows, DataFrame):
        return rows.where(_FITS)
    return rows.filter(rows[DEAD].is_null())


def rejected(rows: Rows) -> Rows:
    """The dead letters among the rows of an arrival, as their table has them."""
    own = [name for name in DEAD_LETTER_COLUMNS if name not in _TOLD]
    if isinstance(rows, DataFrame):
        return rows.where(f"NOT ({_FITS})").select(*own, f"{DEAD}.*")
    dead = rows.filter(rows[DEAD].is_valid())
    told = dead.select([DEAD]).flatten()
    columns = [*(dead[name] for name in own), *(told[f"{DEAD}.{name}"] for name in _TOLD)]
    return pa.table(columns, names=[*own, *_TOLD])
