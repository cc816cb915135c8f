"""Protect the rows of a source with protected columns, in this process."""

from typing import Any

import pyarrow as pa

from tidemark.base.errors import DefinitionError
from tidemark.define.protection import HEADERS, Drop, Tokenize
from tidemark.define.source import Source


def check_maskable(source: Source, connector: str) -> None:
    """Refuse a source with a column that can't be protected as declared: only the Kafka connector
    can tokenize a column with the type of Kafka headers.

    Args:
        connector: the connector that reads the source, for the error message.
    """
    for name, way in source.mask.items():
        kind = source.record_columns.get(name, "STRING").replace(" ", "").upper()
        if isinstance(way, Tokenize) and kind == HEADERS:
            raise DefinitionError(
                f"{connector} can tokenize only text and bytes, but '{name}' is declared as "
                f"{source.record_columns[name]}: use Drop()."
            )


def mask_columns(rows: pa.Table, source: Source) -> dict[str, Any]:
    """Return the columns of `rows` that are read from the data, by name, protected as the source
    declares."""
    return {name: mask_column(rows, source, name) for name in source.record_columns}


def mask_column(rows: pa.Table, source: Source, name: str) -> Any:  # noqa: ANN401 (an array of any)
    way = source.mask.get(name)
    if way is None:
        return rows[name]
    if isinstance(way, Drop):
        return pa.nulls(len(rows), rows.schema.field(name).type)
    return way.protect_values(rows[name])
