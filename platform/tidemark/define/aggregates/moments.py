"""Variance and standard deviation, merged without loss of digits.

A partial has three numbers: the count n, the mean, and the sum M2 of the squared differences from
that mean. Two partials merge by the rule of Chan, Golub and LeVeque, with d = mean2 - mean1:

    n = n1 + n2,    mean = mean1 + d * n2 / n,    M2 = M2_1 + M2_2 + d * d * n1 * n2 / n

The rule uses only differences of means. The textbook form, the mean of squares minus the square of
the mean, subtracts two numbers that may be large and nearly equal. For values around a billion with
a variance of one, it keeps no correct digit.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import check_arguments
from tidemark.base.determinism import Sql
from tidemark.define.aggregates.combiner import Aggregate, call_name, fixed_type, select_values
from tidemark.define.aggregates.totals import ROUNDING


@check_arguments
def variance(column: Sql, where: Sql | None = None) -> Aggregate:
    """Compute the sample variance as a DOUBLE; null for fewer than two values.

    The sample variance is the sum of (x - mean)² over all n values, divided by n - 1. Partials are
    merged without loss of digits.

    Example:
        agg.variance("celsius")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """
    return _moment_aggregate("variance", column, where, _variance, _variance_slack)


@check_arguments
def stddev(column: Sql, where: Sql | None = None) -> Aggregate:
    """Compute the sample standard deviation as a DOUBLE; null for fewer than two values.

    It is the square root of `variance`.

    Example:
        agg.stddev("celsius")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """
    return _moment_aggregate("stddev", column, where, _deviation, _deviation_slack)


def _moment_aggregate(
    function: str,
    column: str,
    where: str | None,
    finish: Callable[[Column], Column],
    slack: Callable[[Column], Column],
) -> Aggregate:
    def partial() -> Column:
        value = select_values(column, where).cast("double")
        # A sum is rounded, so the mean of equal values may differ from them and their variance may
        # not be zero. The mean is therefore limited to the range from the smallest to the greatest
        # value.
        mean = F.greatest(F.min(value), F.least(F.avg(value), F.max(value)))
        return _moments_struct(F.count(value), mean, F.regr_sxx(value, value))

    name = call_name(function, column, where)
    return Aggregate(name, partial, _merge, finish, slack, result_type=fixed_type("double"))


def _merge(partials: Column) -> Column:
    nonempty = F.filter(F.collect_list(partials), lambda p: p["n"] > 0)
    nothing = _moments_struct(F.lit(0).cast("bigint"), F.lit(0.0), F.lit(0.0))
    # A fixed order makes the last digit the same for the same partials.
    return F.aggregate(F.array_sort(nonempty), nothing, _combine_moments)


def _combine_moments(merged: Column, added: Column) -> Column:
    n = merged["n"] + added["n"]
    difference = added["mean"] - merged["mean"]
    share = added["n"] / n
    mean = merged["mean"] + difference * share
    between_parts = difference * difference * share * merged["n"]
    return _moments_struct(n, mean, merged["m2"] + added["m2"] + between_parts)


def _moments_struct(n: Column, mean: Column, m2: Column) -> Column:
    return F.struct(n.alias("n"), mean.alias("mean"), m2.alias("m2"))


def _variance(merged: Column) -> Column:
    return F.when(merged["n"] > 1, merged["m2"] / (merged["n"] - 1))


def _deviation(merged: Column) -> Column:
    return F.sqrt(_variance(merged))


def _variance_slack(merged: Column) -> Column:
    """Return the largest difference that the order of addition can make to the variance.

    The order changes the mean by the rounding errors of values that are about as large as the mean
    plus the standard deviation. A changed mean also changes the squared differences from it.
    """
    n = merged["n"]
    m2 = merged["m2"]
    mean = ROUNDING * n * (F.abs(merged["mean"]) + F.sqrt(m2 / n))
    moved = 2 * mean * F.sqrt(n * m2) + n * mean * mean + ROUNDING * n * m2
    return F.when(n > 1, 2 * moved / (n - 1))


def _deviation_slack(merged: Column) -> Column:
    apart = _variance_slack(merged)
    return apart / F.greatest(_deviation(merged), F.sqrt(apart), F.lit(1e-300))
