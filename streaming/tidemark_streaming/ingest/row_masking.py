"""Protect the rows of a source with protected columns, in this process.

The engine parses text files and returns their rows. It neither sorts nor exchanges them, because it
would write them to temporary files for that.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from tidemark.base.errors import DefinitionError
from tidemark.compute.events.protect import protect
from tidemark.define.helper_columns import helper
from tidemark.define.protection import HEADERS, Drop, Tokenize
from tidemark.define.source import Source
from tidemark.engine.queries.requests import fetch
from tidemark.store.event_log.dead_letters import DEAD
from tidemark.store.rows import compute as pc
from tidemark_streaming.connector import CHUNK

FILE = helper("file")
"""The name of the file from which a row comes."""

BLOCK = helper("block")
"""The offset in the file of the block that was read at once."""

ROW = helper("row")
"""The row's number in that block."""

_ORDER = (CHUNK, BLOCK, ROW)


def mask_rows(rows: DataFrame, source: Source) -> pa.Table:
    """Return rows with their `position` in their chunk, protected as their source declares.

    Dead letters have no bytes: if a row can't be decoded, it is not known which parts to protect.

    Args:
        rows: the rows that a connector reads, with `FILE`, `BLOCK` and `ROW` instead of `position`
            and `read_from`.

    Raises:
        DefinitionError: the key of tokens does not exist.
        PySparkException: a file can't be read.
    """
    found = fetch(rows).sort_by([(name, "ascending") for name in _ORDER]).combine_chunks()
    chunks = found[CHUNK].to_numpy()
    position = np.arange(len(chunks)) - np.searchsorted(chunks, chunks)
    columns = mask_columns(found, source)
    columns |= {CHUNK: found[CHUNK], "position": pa.array(position, pa.int64())}
    places = pc.cast(columns["position"], pa.string())
    columns["read_from"] = pc.binary_join_element_wise(found[FILE], places, "#")
    columns[DEAD] = _without_bytes(found[DEAD])
    return pa.table(columns)


def check(source: Source, what: str) -> None:
    """Refuse a source with a column that can't be protected in rows of this kind.

    Args:
        what: the connector that reads the source, for the message.

    Raises:
        DefinitionError: tokens are required of headers, which only Kafka records have.
    """
    for name, way in source.mask.items():
        kind = source.columns.get(name, "STRING").replace(" ", "").upper()
        if isinstance(way, Tokenize) and kind == HEADERS:
            raise DefinitionError(
                f"{what} can tokenize only text and bytes, but '{name}' is declared as "
                f"{source.columns[name]}: use Drop()."
            )


def mask_columns(rows: pa.Table, source: Source) -> dict[str, Any]:
    """Return a source's columns of rows, protected.

    Raises:
        DefinitionError: the key of tokens does not exist.
    """
    return {name: _column(rows, source, name) for name in source.columns}


def _column(rows: pa.Table, source: Source, name: str) -> Any:  # noqa: ANN401 (an array of any)
    way = source.mask.get(name)
    if way is None:
        return rows[name]
    if isinstance(way, Drop):
        return pa.nulls(len(rows), rows.schema.field(name).type)
    return protect(rows[name], way)


def _without_bytes(letters: "pa.ChunkedArray[Any]") -> "pa.Array[Any]":
    whole: Any = letters.combine_chunks()
    whole = pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
    fields = {f.name: whole.field(f.name) for f in whole.type}
    fields["bytes"] = pa.nulls(len(whole), whole.type.field("bytes").type)
    return pa.StructArray.from_arrays(
        list(fields.values()), fields=list(whole.type), mask=whole.is_null()
    )
