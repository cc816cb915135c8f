"""Exact aggregates that keep the values that they have seen, up to a bound.

State must not grow with a stream forever. These aggregates are exact up to `max_values` values.
Above that bound, `count_distinct` and `top_k` return null, and `collect` keeps the smallest values.
In every case, the result depends on the events alone and not on how they were divided into
partials.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import check_arguments
from tidemark.base.determinism import Sql
from tidemark.define.aggregates.combiner import (
    BOUND,
    Aggregate,
    call_name,
    check_number,
    fixed_type,
    hash_identity,
    identity_finish,
    select_values,
    type_like,
)


@check_arguments
def count_distinct(column: Sql, where: Sql | None = None, *, max_values: int = BOUND) -> Aggregate:
    """Count the distinct values exactly; null if there are more than `max_values`.

    Values may be arrays and structs, whose nulls count: `[]`, `[null]` and `[null, null]` are three
    values. Values are distinguished by a 64-bit hash: the chance that two of 10,000 have the same
    hash is below 1 in 100,000,000,000. The values 0.0 and -0.0 are one value, and so are all NaNs.
    `approx_count_distinct` has no bound.

    Example:
        agg.count_distinct("tailnum")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
        max_values: from 1 to 999,999; the state has 8 bytes for each value.

    Raises:
        DefinitionError: `max_values` is out of range.
    """
    check_number("count_distinct", "max_values", max_values)

    def merge(partials: Column) -> Column:
        return F.theta_union_agg(partials, F.lit(_sketch_size(max_values)))

    def finish(merged: Column) -> Column:
        number = F.theta_sketch_estimate(merged)
        return F.when(number <= max_values, number)

    return Aggregate(
        call_name("count_distinct", column, where, max_values=max_values),
        lambda: _sketch_distinct(select_values(column, where), max_values),
        merge,
        finish,
        result_type=fixed_type("bigint"),
    )


@check_arguments
def top_k(column: Sql, k: int, where: Sql | None = None, *, max_values: int = BOUND) -> Aggregate:
    """Find the `k` most frequent values: an array of (value, count), the most frequent first.

    Values with equal counts are in ascending order. The counts are exact. The result is null if
    there are more than `max_values` distinct values, and an empty array without values.

    Example:
        agg.top_k("carrier", 3)  # [(UA, 41), (B6, 33), (EV, 12)]

    Args:
        column: a SQL expression over the transform's columns.
        k: the number of values to return, at most `max_values`.
        where: a SQL condition for the events that count.
        max_values: from 1 to 999,999; the state has each distinct value with its count.

    Raises:
        DefinitionError: `k` or `max_values` is out of range.
    """
    check_number("top_k", "max_values", max_values)
    check_number("top_k", "k", k, maximum=max_values)

    def partial() -> Column:
        value = select_values(column, where)
        # One more than the bound, because the engine's tally includes an entry for null.
        tally = F.call_function("approx_top_k_accumulate", value, F.lit(max_values + 1))
        items = F.call_function("approx_top_k_estimate", tally, F.lit(max_values + 1))
        counts = F.transform(
            F.filter(items, lambda i: i["item"].isNotNull()),
            lambda i: F.struct(i["item"].alias("value"), i["count"].alias("count")),
        )
        # The engine's tally is not exact beyond its bound.
        over = F.theta_sketch_estimate(_sketch_distinct(value, max_values)) > max_values
        return F.struct(over.alias("over"), F.when(~over, F.sort_array(counts)).alias("counts"))

    def merge(partials: Column) -> Column:
        counts = _sum_entries(F.flatten(F.collect_list(partials["counts"])))
        over = F.coalesce(F.bool_or(partials["over"]), F.lit(False))
        return F.struct(over.alias("over"), F.slice(counts, 1, max_values + 1).alias("counts"))

    def finish(merged: Column) -> Column:
        counts = merged["counts"]
        order = F.transform(
            counts, lambda e: F.struct((-e["count"]).alias("rank"), e["value"].alias("value"))
        )
        best = F.transform(
            F.slice(F.sort_array(order), 1, k),
            lambda e: F.struct(e["value"].alias("value"), (-e["rank"]).alias("count")),
        )
        return F.when(~merged["over"] & (F.size(counts) <= max_values), best)

    return Aggregate(
        call_name("top_k", column, where, k, max_values=max_values),
        partial,
        merge,
        finish,
        result_type=type_like(column, "array<struct<value:{},count:bigint>>".format),
    )


@check_arguments
def collect(column: Sql, where: Sql | None = None, *, max_values: int = BOUND) -> Aggregate:
    """Collect the values in ascending order, with duplicates, at most the `max_values` smallest.

    Null values are left out; the array is empty without values. A run holds all values of a
    window in memory before it selects the smallest.

    Example:
        agg.collect("order_id", max_values=100)

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
        max_values: from 1 to 999,999.

    Raises:
        DefinitionError: `max_values` is out of range.
    """
    check_number("collect", "max_values", max_values)

    # Fingerprints contain the name of this function.
    def least(collected: Column) -> Column:
        return F.slice(F.sort_array(collected), 1, max_values)

    return Aggregate(
        call_name("collect", column, where, max_values=max_values),
        lambda: least(F.collect_list(select_values(column, where))),
        lambda partials: least(F.flatten(F.collect_list(partials))),
        identity_finish,
        result_type=type_like(column, "array<{}>".format),
    )


def _sketch_distinct(value: Column, max_values: int) -> Column:
    """Aggregate values into a theta sketch, which is exact up to `max_values` distinct values.

    For more distinct values, the sketch is a sample of more than `max_values` of them, and its
    count is an estimate. The estimate is at least the size of the sample, so it always exceeds
    `max_values`.
    """
    return F.theta_sketch_agg(hash_identity(value), F.lit(_sketch_size(max_values)))


def _sketch_size(max_values: int) -> int:
    """Return the binary logarithm of a sketch size that is greater than `max_values`."""
    return max(4, max_values.bit_length())


def _sum_entries(entries: Column) -> Column:
    """Merge entries (value, count) with equal values, adding their counts; sort them by value."""

    def sum_runs(sorted_: Column, starts: Column) -> Column:
        def sum_run(start: Column, number: Column) -> Column:
            end = F.coalesce(F.get(starts, number + 1), F.size(sorted_))
            run = F.slice(sorted_, start + 1, end - start)
            nothing = F.lit(0).cast("bigint")
            return F.struct(
                F.get(sorted_, start)["value"].alias("value"),
                F.aggregate(run, nothing, lambda n, e: n + e["count"]).alias("count"),
            )

        return F.transform(starts, sum_run)

    return _compute_once(
        F.sort_array(entries),
        lambda s: _compute_once(_find_starts(s), lambda starts: sum_runs(s, starts)),
    )


def _find_starts(entries: Column) -> Column:
    """Return the index of the first entry of each value, from 0, in entries sorted by value."""

    def start_or_null(entry: Column, index: Column) -> Column:
        before = F.get(entries, index - 1)
        return F.when(~entry["value"].eqNullSafe(before["value"]), index)

    return F.filter(F.transform(entries, start_or_null), lambda index: index.isNotNull())


def _compute_once(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return `body(value)`, where `value` is computed once per row.

    Otherwise, the engine would compute it again for each array element that `body` transforms.
    """
    return F.get(F.transform(F.array(value), body), F.lit(0))
