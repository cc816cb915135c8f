"""Replace all rows of a table by those of a version of another table, in one commit."""

import pyarrow as pa
from pyspark.sql import DataFrame

from tidemark.compute.materialize import TempTables, temp_tables
from tidemark.engine.queries.plan_literals import uncompiled_literal
from tidemark.store.committers.values import Vouches
from tidemark.store.epoch import Epoch
from tidemark.store.rows import Rows
from tidemark.store.warehouse import Warehouse


def replace_rows(
    warehouse: Warehouse,
    table: str,
    copied: tuple[str, int],
    transaction: tuple[str, int],
    *,
    renumber: bool = False,
    description: str = "",
    feed: bool = False,
    vouches: Vouches | None = None,
    epoch: Epoch | None = None,
) -> int | None:
    """Replace all rows of a table, and return the number of new rows.

    Return None if the table already has the transaction, or a later one of the same application. A
    table that does not exist is created.

    Args:
        copied: the name and the version of the table that provides the rows.
        transaction: the application id and the version of the Delta transaction.
        renumber: true to set the column `commit_number` to the version of the transaction.
        description, feed: for a table that is created, see `Warehouse.ensure_table`.
        vouches: what the commit records in addition (`store.integrity`).
        epoch: for a table of an asset, the epoch in which the rows were read.
    """
    rows = warehouse.rows_at(*copied)
    warehouse.ensure_table(table, rows, description, feed=feed)
    app, number = transaction
    new_number = None
    if renumber:
        new_number = number
    with temp_tables(warehouse) as temp_files:
        copied_rows = materialize_copy(rows, temp_files, new_number)
        return warehouse.replace_rows(
            copied_rows, table, "TRUE", app, number, vouches=vouches, epoch=epoch
        )


def materialize_copy(rows: Rows, temp_files: TempTables, commit_number: int | None = None) -> Rows:
    """Return rows that are computed already, with `commit_number` if they have that column.

    Args:
        commit_number: the number of the new commit; None keeps the rows as they are.
    """
    if isinstance(rows, DataFrame):
        if commit_number is not None and "commit_number" in rows.columns:
            rows = rows.withColumn("commit_number", uncompiled_literal(commit_number))
        return temp_files.materialize(rows, few=False)
    if commit_number is None or "commit_number" not in rows.column_names:
        return rows
    numbers = pa.array([commit_number] * rows.num_rows, pa.int64())
    return rows.set_column(rows.column_names.index("commit_number"), "commit_number", numbers)
