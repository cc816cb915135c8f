"""The newest rows of a table, read without the engine."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from tidemark.store.rows import compute
from tidemark_streaming.glance import Glance


def newest(
    glance: Glance,
    table: str,
    by: str,
    chosen: ds.Expression | None,
    limit: int,
    then: Sequence[str] = (),
) -> pa.Table | None:
    """The rows of a table with the greatest values of a column, these first; None where there is no
    such table.

    One column is read first, so that of a large table the files that hold the answer are read
    whole, and no others.

    Args:
        by: the column.
        chosen: a condition of the rows.
        limit: how many rows at most.
        then: columns by which rows of one value are in order.
    """
    values = glance.select(table, [by], chosen)
    if values is None:
        return None
    if values.num_rows > limit:
        least = values.sort_by([(by, "descending")])[by][limit - 1]
        if least.is_valid:
            enough = ds.field(by) >= least
            chosen = enough if chosen is None else chosen & enough
    rows = glance.select(table, None, chosen)
    if rows is None:
        return None
    # Arrow puts no nested values in order.
    keys = {name: _comparable(rows[name]) for name in (by, *then)}
    order = [(by, "descending"), *((name, "ascending") for name in then)]
    return rows.take(compute.sort_indices(pa.table(keys), sort_keys=order)[:limit])


def _comparable(column: "pa.ChunkedArray[Any]") -> "pa.ChunkedArray[Any] | pa.Array[Any]":
    if not pa.types.is_nested(column.type):
        return column
    return pa.array([None if v is None else repr(v) for v in column.to_pylist()], pa.string())
