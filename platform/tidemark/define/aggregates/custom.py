"""Aggregates in Python, for what no expression of the engine says."""

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import checked
from tidemark.define.aggregates.combiner import Aggregate, named, values


@checked
def python(
    name: str,
    column: str,
    *,
    partial: Callable[[list[Any]], Any],
    merge: Callable[[list[Any]], Any],
    finish: Callable[[Any], Any],
    partial_type: str,
    result_type: str,
    where: str | None = None,
) -> Aggregate:
    """An aggregate made of three Python functions, which the engine calls.

    `partial` takes the values of some events, in ascending order, and gives what they contribute;
    `merge` takes such partials, in ascending order, and gives the partial of them all; `finish`
    takes a partial and gives the answer. The partial of no values is `partial([])`. Null values
    are left out. A struct is a tuple when it is given, and may be read by name, as `p.total`, when
    it is taken; a timestamp is a datetime in UTC, without saying so.

    All values of a window are in memory at once, and each passes through Python: prefer the other
    aggregates where they will do.

    This is the spread of the values, which is null where there are none.

    Example:
        agg.python(
            "spread",
            "celsius",
            partial=lambda values: (values[0], values[-1]) if values else (None, None),
            merge=lambda parts: (
                min((p.low for p in parts if p.low is not None), default=None),
                max((p.high for p in parts if p.high is not None), default=None),
            ),
            finish=lambda p: None if p.low is None else p.high - p.low,
            partial_type="struct<low: double, high: double>",
            result_type="double",
        )

    Args:
        name: how the aggregate is called in messages and metadata.
        column: a SQL expression for the values.
        partial_type: the Spark DDL type of a partial, of which the engine can tell the order.
        result_type: the Spark DDL type of the answer.
        where: a SQL condition for the events that count.
    """

    def merged(parts: list[Any]) -> Any:  # noqa: ANN401
        return merge(parts) if parts else partial([])

    def merge_all(partials: Column) -> Column:
        return _called(merged, partial_type, F.sort_array(F.collect_list(partials)))

    return Aggregate(
        named(name, column, where),
        lambda: _called(partial, partial_type, F.sort_array(F.collect_list(values(column, where)))),
        merge_all,
        # In an array a struct keeps the names of its fields, alone it does not.
        lambda p: _called(lambda parts: finish(parts[0]), result_type, F.array(p)),
    )


def _called(function: Callable[[list[Any]], Any], type_: str, argument: Column) -> Column:
    return F.udf(function, type_, useArrow=True)(argument)
