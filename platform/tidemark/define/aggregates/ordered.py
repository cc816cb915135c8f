"""The first and the last value, in the order of event time.

A partial is the value with its place: event time, then arrival, then position in the arrival. The
place comes from the event's own row, so the result does not depend on how a stream was read.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import check_arguments
from tidemark.define.aggregates.combiner import (
    Aggregate,
    call_name,
    no_slack,
    typed_like,
    values,
)
from tidemark.define.helper_columns import HAPPENED_AT


@check_arguments
def first(column: str, where: str | None = None) -> Aggregate:
    """Return the value of the event with the earliest event time; null without values.

    Events without a value are skipped. If several events happened at the same instant, the one that
    arrived first counts.

    Example:
        agg.first("price")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """
    return _ordered_aggregate("first", column, where, F.min)


@check_arguments
def last(column: str, where: str | None = None) -> Aggregate:
    """Return the value of the event with the latest event time; null without values.

    Events without a value are skipped. If several events happened at the same instant, the one that
    arrived last counts.

    Example:
        agg.last("status")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """
    return _ordered_aggregate("last", column, where, F.max)


def _ordered_aggregate(
    function: str, column: str, where: str | None, extreme: Callable[[Column], Column]
) -> Aggregate:
    def partial() -> Column:
        value = values(column, where)
        placed = F.struct(HAPPENED_AT, "arrival", "position", value.alias("value"))
        return extreme(F.when(value.isNotNull(), placed))

    return Aggregate(
        call_name(function, column, where),
        partial,
        extreme,
        lambda p: p["value"],
        no_slack,
        result_type=typed_like(column),
    )
