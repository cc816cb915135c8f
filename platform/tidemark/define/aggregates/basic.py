"""Counts, sums, extremes and means, whose partials are a few numbers.

Counts, sums and means can also subtract retractions: a retraction repeats an earlier row that is no
longer valid. The partials then have the *net* number of values: the number of values in rows minus
the number of values in retractions. A sum or a mean is null if the net number is zero.

A result depends only on the values that have not been retracted, as if the others had never been
added:

| values | are subtracted |
| --- | --- |
| integers | as integers of 38 digits, so that a value that is retracted later can't overflow |
| DECIMAL | as decimals |
| FLOAT and DOUBLE | as integers, by their magnitude (`exact_doubles`) |
| NaN and the infinities | by their number, because their difference is NaN |
"""

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import check_arguments
from tidemark.base.determinism import Sql
from tidemark.define.aggregates import exact_doubles, means, totals
from tidemark.define.aggregates.arrow_merge import Array, ArrowMerge, compute, zero_slack
from tidemark.define.aggregates.combiner import (
    Aggregate,
    call_name,
    fixed_type,
    identity_finish,
    no_slack,
    select_values,
    type_like,
)
from tidemark.define.aggregates.type_constants import decided_by_type, with_type


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
        lambda: F.count(select_values("1", where)),
        _sum_counts,
        identity_finish,
        no_slack,
        result_type=fixed_type("bigint"),
        arrow_merge=ArrowMerge("sum", finish=_zero_if_null, slack=zero_slack),
    )
    return replace(
        plain,
        signed=lambda retraction: _with_own_sign(
            replace(plain, partial=lambda: _count_net(select_values("1", where), retraction))
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
        lambda: totals.partial(select_values(column, where)),
        totals.merge,
        totals.total,
        totals.total_slack,
        totals.has_total_overflowed,
        number=lambda: select_values(column, where),
        result_type=type_like(column, totals.total_type),
        arrow_merge=totals.ARROW_MERGE,
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
        lambda: F.min(select_values(column, where)),
        F.min,
        identity_finish,
        no_slack,
        result_type=type_like(column),
        arrow_merge=ArrowMerge("min", slack=zero_slack),
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
        lambda: F.max(select_values(column, where)),
        F.max,
        identity_finish,
        no_slack,
        result_type=type_like(column),
        arrow_merge=ArrowMerge("max", slack=zero_slack),
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
        lambda: means.partial(select_values(column, where)),
        means.merge,
        means.average,
        means.average_slack,
        number=lambda: select_values(column, where),
        result_type=type_like(column, means.average_type),
        arrow_merge=means.ARROW_MERGE,
    )
    return replace(plain, signed=lambda retraction: _signed_mean(plain, column, where, retraction))


def _sum_counts(partials: Column) -> Column:
    return F.coalesce(F.sum(partials), F.lit(0))


def _zero_if_null(merged: Array) -> Array:
    return compute.fill_null(merged, 0)


_NONFINITE = {"nan": "nan", "plus": "inf", "minus": "-inf"}
"""Maps the field that has the net number of a non-finite value to that value. Non-finite values are
counted and not added.
"""


def _signed_sum(total: Aggregate, column: str, where: str | None, retraction: str) -> Aggregate:
    return _with_own_sign(
        replace(
            total,
            partial=lambda: _partial_with_retractions(
                totals.partial, select_values(column, where), retraction
            ),
            merge=lambda partials: _merge_with_retractions(totals.merge, partials),
            finish=lambda p: F.when((p["net"] != 0) & ~_has_overflowed(p), _with_sum(p)["sum"]),
            slack=no_slack,
            overflowed=_has_overflowed,
            arrow_merge=None,
        )
    )


def _signed_mean(mean: Aggregate, column: str, where: str | None, retraction: str) -> Aggregate:
    def of_values(value: Column, _: Column) -> Column:
        return means.partial(value)

    return _with_own_sign(
        replace(
            mean,
            partial=lambda: _partial_with_retractions(
                of_values, select_values(column, where), retraction
            ),
            merge=lambda partials: _merge_with_retractions(means.merge, partials),
            finish=lambda p: means.average(_with_sum(p).withField("count", p["net"])),
            slack=no_slack,
            arrow_merge=None,
        )
    )


_INTEGER = "decimal(38,0)"
_INTEGER_TYPES = ("tinyint", "smallint", "int", "bigint")
_LEAST_BIGINT = -(2**63)
_GREATEST_BIGINT = 2**63 - 1


def _partial_with_retractions(
    of_values: Callable[[Column, Column], Column], value: Column, retraction: str
) -> Column:
    """Aggregate values into a partial that subtracts retracted values.

    | field | content |
    | --- | --- |
    | `values` | the partial of DECIMAL values, in which retracted values are negated |
    | `whole`, `whole_minus` | the net sum of integers, and of those below 0 |
    | `bins` | the net sum of finite doubles |
    | `net` and one field for each non-finite value | net numbers: of all values, of that value |

    Args:
        of_values: returns a partial without retractions, such as `totals.partial`, for values and
            for the same values before they were negated.
        value: the values, including retracted ones.
        retraction: the name of the BOOLEAN column that marks retractions.
    """
    double = value.cast("double")
    is_finite = F.abs(double) < float("inf")
    sign = F.when(F.col(retraction), -1).otherwise(1)
    is_whole = decided_by_type(F.typeof(value).isin(*_INTEGER_TYPES))
    is_double = decided_by_type(F.typeof(value).isin("float", "double"))
    decimal = F.when(~is_whole & ~is_double, value)
    signed_integer = F.when(is_whole, (value.cast(_INTEGER) * sign).cast(_INTEGER))
    fields = [
        of_values(F.when(F.col(retraction), -decimal).otherwise(decimal), decimal).alias("values"),
        F.sum(signed_integer).alias("whole"),
        F.sum(F.when(value < 0, signed_integer)).alias("whole_minus"),
        exact_doubles.partial(F.when(is_double & is_finite, double), sign).alias("bins"),
        _count_net(value, retraction).alias("net"),
    ]
    for name, number in _NONFINITE.items():
        occurrences = F.when(double == float(number), value)
        fields.append(_count_net(occurrences, retraction).alias(name))
    return F.struct(fields)


def _merge_with_retractions(of_partials: Callable[[Column], Column], partials: Column) -> Column:
    fields = [
        of_partials(partials["values"]).alias("values"),
        F.sum(partials["whole"]).alias("whole"),
        F.sum(partials["whole_minus"]).alias("whole_minus"),
        exact_doubles.merge(partials["bins"]).alias("bins"),
        _sum_or_zero(partials["net"]).alias("net"),
    ]
    for name in _NONFINITE:
        fields.append(_sum_or_zero(partials[name]).alias(name))
    return F.struct(fields)


def _has_overflowed(merged: Column) -> Column:
    """Return whether the net sum of the values of one sign exceeds the type of the sum."""
    minus = F.coalesce(merged["whole_minus"], F.lit(0).cast(_INTEGER))
    plus = merged["whole"] - minus
    beyond = (plus > _GREATEST_BIGINT) | (minus < _LEAST_BIGINT)
    return totals.has_total_overflowed(merged["values"]) | F.coalesce(beyond, F.lit(False))


def _with_sum(merged: Column) -> Column:
    """Return the field `values` with the net sum of values of any type in its field `sum`.

    The sum is NaN or an infinity if a non-finite value has not been retracted. Infinities of both
    signs together give NaN.
    """
    nans = merged["nan"]
    plus = merged["plus"]
    minus = merged["minus"]
    # The retraction of an infinity has the effect of the opposite infinity.
    up = (plus > 0) | (minus < 0)
    down = (minus > 0) | (plus < 0)
    name = F.when((nans != 0) | (up & down), "NaN").when(up, "Infinity").when(down, "-Infinity")
    typed_sum = merged["values"]["sum"]
    is_double = decided_by_type(F.typeof(typed_sum) == "double")
    of_doubles = F.when(is_double, exact_doubles.sum_bins(merged["bins"]).cast("string"))
    text = F.coalesce(
        F.concat(F.lit('"'), name, F.lit('"')), merged["whole"].cast("string"), of_doubles
    )
    net_sum = F.coalesce(with_type(text, F.typeof(typed_sum)), typed_sum)
    return merged["values"].withField("sum", net_sum)


def _with_own_sign(signed_aggregate: Aggregate) -> Aggregate:
    """Let `signed` return the same aggregate: `found` subtracts retractions already."""
    return replace(signed_aggregate, signed=lambda _: _with_own_sign(signed_aggregate))


def _count_net(value: Column, retraction: str) -> Column:
    """Return the net number of non-null values: a retracted value counts as -1."""
    sign = F.when(F.col(retraction), -1).otherwise(1)
    return _sum_or_zero(F.when(value.isNotNull(), sign))


def _sum_or_zero(numbers: Column) -> Column:
    return F.coalesce(F.sum(numbers.cast("bigint")), F.lit(0).cast("bigint"))
