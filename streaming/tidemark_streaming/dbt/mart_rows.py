"""Find the rows of marts that depend on a window, from dbt's manifest and views.

For example, a view adds the column `day` to an asset's windows, and a mart that reads the view has
one row per day. One query gets the window's `day` from the view, and another query gets the mart's
rows of this day. If no view is between the table and the mart, the mart's rows can't be determined.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from tidemark.define.definition import Definition
from tidemark.define.tidemark_columns import WINDOW_TABLES, find_table
from tidemark.engine.queries.requests import fetch_dataframe
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.dbt.marts import Marts

_MOST = 50
"""The maximum number of a mart's rows to return."""


@dataclass(frozen=True)
class MartRows:
    """The rows of a mart that belong to a published window, if they can be found.

    Args:
        by: the column values that select the mart's rows for the window; None if they are unknown.
        rows: the rows with these values, at most `_MOST`; empty if the values are unknown, or if
            the mart has not been built since the window was published.
    """

    mart: str
    by: Mapping[str, Any] | None = None
    rows: Sequence[Mapping[str, Any]] = ()


def resting_on(
    warehouse: Warehouse, marts: Marts, transform: Definition, row: Mapping[str, Any]
) -> Iterator[MartRows]:
    """Yield each mart that reads an asset's published table, with the mart's rows for `row`."""
    for mart, views in marts.find_readers(transform.published_table).items():
        try:
            rows = warehouse.spark.table(marts.name_relation(mart))
            mart_columns = set(rows.columns)
        except AnalysisException:
            # The mart has not been built yet.
            yield MartRows(mart)
            continue
        identity = None
        for view in views:
            relation = marts.name_relation(view)
            identity = _made_of(warehouse, relation, mart_columns, transform, row)
            if identity is not None:
                break
        if identity is None:
            yield MartRows(mart)
            continue
        for name, value in identity.items():
            rows = rows.where(F.col(f"`{name}`").eqNullSafe(F.lit(value)))
        yield MartRows(mart, identity, fetch_dataframe(rows.limit(_MOST)).to_pylist())


def _made_of(
    warehouse: Warehouse,
    view: str,
    mart_columns: set[str],
    transform: Definition,
    row: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Return the values, by column, that select a mart's rows for a published row.

    The values are read from a view of the published table. The columns are those that the view and
    the mart have in common, without aggregates and without the columns that Tidemark adds to
    windows. Return None if the view has no row for the window, lacks the window's columns, or has
    only key columns in common with the mart.

    Args:
        mart_columns: all columns of the mart.
        row: the published row.
    """
    model_columns = {c for c in mart_columns if find_table(c, WINDOW_TABLES) is None}
    told_apart = model_columns - {*transform.aggregates}
    try:
        rows = warehouse.spark.table(view)
        for name in ("window_start", *transform.keys):
            rows = rows.where(F.col(f"`{name}`").eqNullSafe(F.lit(row[name])))
        shared = [c for c in rows.columns if c in told_apart]
    except AnalysisException:
        # The view does not have the window's columns.
        return None
    if not set(shared) - {*transform.keys}:
        return None
    matching = rows.select(*shared).distinct().limit(1).collect()
    if matching:
        return matching[0].asDict()
    return None
