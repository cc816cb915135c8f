"""Number the rows of a derived source within their arrivals."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidemark.define.derived.pairing import KIND, ROW_ORDER
from tidemark.store.event_log.dead_letters import is_dead
from tidemark.store.rows import columns


def number_rows(rows: DataFrame, *arrival: str) -> DataFrame:
    """Return rows with `position`, ascending from 0 in each arrival, instead of their order.

    Dead letters have positions of their own, so that neither they nor the other rows wait for the
    others. Rows that have their positions already stay as they are.

    Args:
        arrival: the columns that identify the arrival.
    """
    known = columns(rows)
    if KIND not in known:
        return rows
    order = Window.partitionBy(*arrival, is_dead(known)).orderBy(*ROW_ORDER)
    position = (F.row_number().over(order) - 1).cast("bigint").alias("position")
    return rows.select("*", position).drop(KIND)
