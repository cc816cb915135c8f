"""The first and the last values by event time, and the greatest values by any expression.

A partial has values with their sort keys. The sort key is the event time, then the arrival, then
the position in the arrival. For `top_n`, the expression comes first, instead of the event time. The
sort key is computed from the event's own row, so the result does not depend on how a stream was
read.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import check_arguments
from tidemark.base.determinism import Sql
from tidemark.define.aggregates.combiner import (
    Aggregate,
    call_name,
    check_number,
    no_slack,
    select_values,
    type_like,
)
from tidemark.define.helper_columns import HAPPENED_AT

_MOST_ROWS = 100_000
"""The largest `n` of `top_n` and `last_n`, which is also the limit of the engine's `max_by`."""


@check_arguments
def first(column: Sql, where: Sql | None = None) -> Aggregate:
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
def last(column: Sql, where: Sql | None = None) -> Aggregate:
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


@check_arguments
def top_n(column: Sql, n: int, by: Sql | None = None, where: Sql | None = None) -> Aggregate:
    """Return the values of the `n` events that are greatest by an expression: an array.

    The greatest comes first. Among equal ones, the event that arrived first comes first. Events
    without a value, or for which `by` is null, are skipped. NaN is greater than any other number.

    Example:
        agg.top_n("price", 3)
        agg.top_n("struct(bidder, price)", 3, by="price")

    Args:
        column: a SQL expression over the transform's columns; `struct(...)` for several columns.
        n: the number of events, from 1 to 100,000; the state has as many values.
        by: a SQL expression that orders the events. The default is `column`.
        where: a SQL condition for the events that count.

    Raises:
        DefinitionError: `n` is out of range.
    """
    # The aggregate's name contains `by` only if it is given.
    arguments: list[object] = [n]
    if by is not None:
        arguments.append(f"by={by}")
    return _first_n(
        "top_n",
        call_name("top_n", column, where, *arguments),
        n,
        column,
        lambda: select_values(column, where),
        lambda: [select_values(by or column, where), -F.col("arrival"), -F.col("position")],
        lambda selected: selected,
    )


@check_arguments
def last_n(column: Sql, n: int, where: Sql | None = None) -> Aggregate:
    """Return the values of the `n` events with the latest event times: an array.

    The values are in the order of event time, then of arrival: the last one is that of `last`.
    Events without a value are skipped.

    Example:
        agg.last_n("price", 10)

    Args:
        column: a SQL expression over the transform's columns; `struct(...)` for several columns.
        n: the number of events, from 1 to 100,000; the state has as many values.
        where: a SQL condition for the events that count.

    Raises:
        DefinitionError: `n` is out of range.
    """
    return _first_n(
        "last_n",
        call_name("last_n", column, where, n),
        n,
        column,
        lambda: select_values(column, where),
        lambda: [F.col(HAPPENED_AT), F.col("arrival"), F.col("position")],
        F.reverse,
    )


def _first_n(
    function: str,
    name: str,
    n: int,
    column: str,
    value: Callable[[], Column],
    order: Callable[[], list[Column]],
    finish: Callable[[Column], Column],
) -> Aggregate:
    """Return an aggregate that keeps the values of the `n` events with the greatest sort keys.

    Events are skipped if the value or the first part of the sort key is null.

    Args:
        function: the name of the public function, for an error message.
        name: the name of the aggregate.
        column: the SQL expression that determines the type of the values.
        value: returns the value of an event.
        order: returns the sort key of an event, as one or more columns.
        finish: takes the array of values, the greatest sort key first, and returns the result.
    """
    check_number(function, "n", n, maximum=_MOST_ROWS)

    def partial() -> Column:
        parts = [part.alias(f"o{number}") for number, part in enumerate(order())]
        # The value is part of the order, because a function may make several rows of one event.
        parts.append(value().alias("value"))
        placed = F.struct(parts)
        counts = value().isNotNull() & order()[0].isNotNull()
        return F.max_by(placed, F.when(counts, placed), n)

    def merge(partials: Column) -> Column:
        values_of_partials = F.flatten(F.collect_list(partials))
        return F.slice(F.sort_array(values_of_partials, asc=False), 1, n)

    return Aggregate(
        name,
        partial,
        merge,
        lambda merged: finish(F.transform(merged, lambda e: e["value"])),
        result_type=type_like(column, "array<{}>".format),
    )


def _ordered_aggregate(
    function: str, column: str, where: str | None, extreme: Callable[[Column], Column]
) -> Aggregate:
    def partial() -> Column:
        value = select_values(column, where)
        placed = F.struct(HAPPENED_AT, "arrival", "position", value.alias("value"))
        return extreme(F.when(value.isNotNull(), placed))

    return Aggregate(
        call_name(function, column, where),
        partial,
        extreme,
        lambda p: p["value"],
        no_slack,
        result_type=type_like(column),
    )
