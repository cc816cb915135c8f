"""Counts, sums, extremes and means, whose partials are a few numbers."""

from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import check_arguments
from tidemark.define.aggregates import means, totals
from tidemark.define.aggregates.combiner import (
    Aggregate,
    call_name,
    fixed_type,
    identity_finish,
    no_slack,
    type_like,
    values,
)
from tidemark.define.aggregates.signed import signed_count, signed_mean, signed_sum


@check_arguments
def count(where: str | None = None) -> Aggregate:
    """Count the events, or those for which `where` is true: a BIGINT, never null.

    Example:
        agg.count()
        agg.count(where="dep_time is null")

    Args:
        where: a SQL condition for the events that count.
    """
    plain = Aggregate(
        call_name("count", "*", where),
        lambda: F.count(values("1", where)),
        _sum_counts,
        identity_finish,
        no_slack,
        result_type=fixed_type("bigint"),
    )
    return replace(plain, signed=lambda retraction: signed_count(plain, where, retraction))


@check_arguments
def sum(column: str, where: str | None = None) -> Aggregate:
    """Add up the non-null values of a SQL expression; null if there are none.

    The sum of integers and decimals is exact. The last digits of a sum of doubles depend on the
    order of addition, as in every engine. A window is quarantined if its positive values, or its
    negative ones, add up to more than the type can hold.

    Example:
        agg.sum("price * quantity")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """
    plain = Aggregate(
        call_name("sum", column, where),
        lambda: totals.partial(values(column, where)),
        totals.merge,
        totals.total,
        totals.total_slack,
        totals.has_total_overflowed,
        number=lambda: values(column, where),
        result_type=type_like(column, totals.total_type),
    )
    return replace(plain, signed=lambda retraction: signed_sum(plain, column, where, retraction))


@check_arguments
def min(column: str, where: str | None = None) -> Aggregate:
    """Find the least value of a SQL expression; null without values.

    Example:
        agg.min("celsius")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """
    return Aggregate(
        call_name("min", column, where),
        lambda: F.min(values(column, where)),
        F.min,
        identity_finish,
        no_slack,
        result_type=type_like(column),
    )


@check_arguments
def max(column: str, where: str | None = None) -> Aggregate:
    """Find the greatest value of a SQL expression; null without values.

    Example:
        agg.max("dep_delay")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """
    return Aggregate(
        call_name("max", column, where),
        lambda: F.max(values(column, where)),
        F.max,
        identity_finish,
        no_slack,
        result_type=type_like(column),
    )


@check_arguments
def mean(column: str, where: str | None = None) -> Aggregate:
    """Compute the arithmetic mean of a SQL expression's values; null if there are none.

    A mean does not overflow, even if the sum of the values would. The mean of decimals is exact
    and rounded once, half away from zero; it has at least as many decimals as the values. The mean
    of other numbers is a DOUBLE; once the sum is beyond 2^53, its last digits depend on the order
    of addition, as in every engine.

    Example:
        agg.mean("dep_delay", where="not cancelled")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """
    plain = Aggregate(
        call_name("mean", column, where),
        lambda: means.partial(values(column, where)),
        means.merge,
        means.average,
        means.average_slack,
        number=lambda: values(column, where),
        result_type=type_like(column, means.average_type),
    )
    return replace(plain, signed=lambda retraction: signed_mean(plain, column, where, retraction))


def _sum_counts(partials: Column) -> Column:
    return F.coalesce(F.sum(partials), F.lit(0))
