"""Counts, sums, extremes and means: one or two numbers say all of a set of events."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import checked
from tidemark.define.aggregates.combiner import Aggregate, named, same, values


@checked
def count(where: str | None = None) -> Aggregate:
    """How many events there are, or how many of which `where` is true: a BIGINT, never null.

    Example:
        agg.count()
        agg.count(where="dep_time is null")

    Args:
        where: a SQL condition for the events that count.
    """
    return Aggregate(named("count", "*", where), lambda: F.count(values("1", where)), _total, same)


@checked
def sum(column: str, where: str | None = None) -> Aggregate:
    """The sum of a SQL expression's values that are not null; null where there are none.

    The sum of integers and decimals is exact; that of doubles depends on the order of addition in
    the last digits, as in every engine.

    Example:
        agg.sum("price * quantity")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """
    return Aggregate(named("sum", column, where), lambda: F.sum(values(column, where)), F.sum, same)


@checked
def min(column: str, where: str | None = None) -> Aggregate:
    """The least value of a SQL expression; null where there are none.

    Example:
        agg.min("celsius")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """
    return Aggregate(named("min", column, where), lambda: F.min(values(column, where)), F.min, same)


@checked
def max(column: str, where: str | None = None) -> Aggregate:
    """The greatest value of a SQL expression; null where there are none.

    Example:
        agg.max("dep_delay")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """
    return Aggregate(named("max", column, where), lambda: F.max(values(column, where)), F.max, same)


@checked
def mean(column: str, where: str | None = None) -> Aggregate:
    """The arithmetic mean of a SQL expression's values; null where there are none.

    The mean of decimals is exact; that of doubles depends on the order of addition in the last
    digits, as in every engine.

    Example:
        agg.mean("dep_delay", where="not cancelled")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """

    def partial() -> Column:
        value = values(column, where)
        return F.struct(F.sum(value).alias("sum"), F.count(value).alias("count"))

    def merge(partials: Column) -> Column:
        return F.struct(
            F.sum(partials["sum"]).alias("sum"), _total(partials["count"]).alias("count")
        )

    return Aggregate(
        named("mean", column, where), partial, merge, lambda p: F.try_divide(p["sum"], p["count"])
    )


def _total(partials: Column) -> Column:
    return F.coalesce(F.sum(partials), F.lit(0))
