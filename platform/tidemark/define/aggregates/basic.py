"""Counts, sums, extremes and means, whose partials are a few numbers.

Counts, sums and means can also subtract retractions: a retraction repeats an earlier row that is no
longer valid. The partials then have the *net* number of values: the number of values in rows minus
the number of values in retractions. A sum or a mean is null if the net number is zero. NaN and the
infinities can't be subtracted, because their difference is NaN. They are therefore counted and not
added, so that a sum is finite again when the last of them is retracted.
"""

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import check_arguments
from tidemark.base.determinism import Sql
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
from tidemark.define.aggregates.type_constants import with_type


@check_arguments
def count(where: Sql | None = None) -> Aggregate:
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
    return replace(
        plain,
        signed=lambda retraction: _subtracting(
            replace(plain, partial=lambda: _net(values("1", where), retraction))
        ),
    )


@check_arguments
def sum(column: Sql, where: Sql | None = None) -> Aggregate:
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
    return replace(plain, signed=lambda retraction: _signed_sum(plain, column, where, retraction))


@check_arguments
def min(column: Sql, where: Sql | None = None) -> Aggregate:
    """Find the smallest value of a SQL expression; null without values.

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
def max(column: Sql, where: Sql | None = None) -> Aggregate:
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
def mean(column: Sql, where: Sql | None = None) -> Aggregate:
    """Compute the arithmetic mean of a SQL expression's values; null if there are none.

    A mean does not overflow, even if the sum of the values would. The mean of decimals is rounded
    only once, half away from zero; it has at least as many decimals as the values. The mean of
    other numbers is a DOUBLE. Its last digits depend on the order of addition, as in every engine.
    For integers, this is so only if the sum is beyond 2^53.

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
    return replace(plain, signed=lambda retraction: _signed_mean(plain, column, where, retraction))


def _sum_counts(partials: Column) -> Column:
    return F.coalesce(F.sum(partials), F.lit(0))


_NONFINITE = {"nan": "nan", "plus": "inf", "minus": "-inf"}
"""Maps the field that has the net number of a non-finite value to that value. Non-finite values are
counted and not added.
"""


def _signed_sum(total: Aggregate, column: str, where: str | None, retraction: str) -> Aggregate:
    return _subtracting(
        replace(
            total,
            partial=lambda: _partial(totals.partial, values(column, where), retraction),
            merge=lambda partials: _merge(totals.merge, partials),
            finish=lambda p: F.when(p["net"] != 0, totals.total(_with_nonfinite(p))),
            slack=lambda p: totals.total_slack(p["values"]),
            overflowed=lambda p: totals.has_total_overflowed(p["values"]),
        )
    )


def _signed_mean(mean: Aggregate, column: str, where: str | None, retraction: str) -> Aggregate:
    def net(merged: Column) -> Column:
        return _with_nonfinite(merged).withField("count", merged["net"])

    return _subtracting(
        replace(
            mean,
            partial=lambda: _partial(means.partial, values(column, where), retraction),
            merge=lambda partials: _merge(means.merge, partials),
            finish=lambda p: means.average(net(p)),
            # Retracted values add to the rounding, too.
            slack=lambda p: (
                means.average_slack(net(p)) * F.try_divide(p["values"]["count"], p["net"])
            ),
        )
    )


def _partial(of_values: Callable[[Column], Column], value: Column, retraction: str) -> Column:
    """Aggregate values into a partial that subtracts retracted values.

    The field `values` is the partial of the finite values, in which retracted values are negated.
    The other fields are net numbers: of all values, of NaN, and of each infinity.

    Args:
        of_values: returns a partial without retractions, such as `totals.partial`.
        value: the values, including retracted ones.
        retraction: the name of the BOOLEAN column that marks retractions.
    """
    double = value.cast("double")
    finite = F.when(F.abs(double) < float("inf"), value)
    own = of_values(F.when(F.col(retraction), -finite).otherwise(finite))
    return F.struct(
        own.alias("values"),
        _net(value, retraction).alias("net"),
        *(
            _net(F.when(double == float(number), value), retraction).alias(name)
            for name, number in _NONFINITE.items()
        ),
    )


def _merge(of_partials: Callable[[Column], Column], partials: Column) -> Column:
    return F.struct(
        of_partials(partials["values"]).alias("values"),
        *(_sum(partials[name]).alias(name) for name in ("net", *_NONFINITE)),
    )


def _with_nonfinite(merged: Column) -> Column:
    """Return the partial of the finite values, but with NaN or an infinity as its sum if needed.

    This is needed if a non-finite value has not been retracted. Infinities of both signs together
    give NaN.
    """
    nans, plus, minus = (merged[name] for name in _NONFINITE)
    # The retraction of an infinity has the effect of the opposite infinity.
    up, down = (plus > 0) | (minus < 0), (minus > 0) | (plus < 0)
    text = F.when((nans != 0) | (up & down), "NaN").when(up, "Infinity").when(down, "-Infinity")
    own = merged["values"]["sum"]
    found = with_type(F.concat(F.lit('"'), text, F.lit('"')), F.typeof(own))
    return merged["values"].withField("sum", F.coalesce(found, own))


def _subtracting(found: Aggregate) -> Aggregate:
    """Let `signed` return the same aggregate: `found` subtracts retractions already."""
    return replace(found, signed=lambda _: _subtracting(found))


def _net(value: Column, retraction: str) -> Column:
    """Return the net number of non-null values: a retracted value counts as -1."""
    sign = F.when(F.col(retraction), -1).otherwise(1)
    return _sum(F.when(value.isNotNull(), sign))


def _sum(numbers: Column) -> Column:
    return F.coalesce(F.sum(numbers.cast("bigint")), F.lit(0).cast("bigint"))
