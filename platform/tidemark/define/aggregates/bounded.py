"""Exact answers that keep what they have seen, and therefore have a bound.

A state must not grow with a stream for ever. Up to `at_most` values these aggregates are exact.
Beyond, two of them say that they don't know, with a null, and the third keeps the least values:
in every case the answer depends on the events alone and not on how they were split.
"""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import checked
from tidemark.define.aggregates.combiner import (
    BOUND,
    Aggregate,
    check_number,
    identity,
    named,
    same,
    values,
)


@checked
def count_distinct(column: str, where: str | None = None, *, at_most: int = BOUND) -> Aggregate:
    """How many different values there are, exactly; null when there are more than `at_most`.

    Values may be arrays and structs, whose nulls count: `[]`, `[null]` and `[null, null]` are three
    values. A 64-bit hash tells values apart: the chance that two of 10,000 have the same one is
    below 1 in 100,000,000,000. 0.0 and -0.0 are one value, and so is every NaN.
    `approx_count_distinct` has no bound.

    Example:
        agg.count_distinct("tailnum")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
        at_most: from 1 to 999,999; the state has 8 bytes for each value.

    Raises:
        DefinitionError: `at_most` is out of range.
    """
    check_number("count_distinct", "at_most", at_most)

    def merge(partials: Column) -> Column:
        return F.theta_union_agg(partials, F.lit(_size(at_most)))

    def finish(merged: Column) -> Column:
        found = F.theta_sketch_estimate(merged)
        return F.when(found <= at_most, found)

    return Aggregate(
        named("count_distinct", column, where, at_most=at_most),
        lambda: _different(values(column, where), at_most),
        merge,
        finish,
    )


@checked
def top_k(column: str, k: int, where: str | None = None, *, at_most: int = BOUND) -> Aggregate:
    """The `k` most frequent values: an array of (value, count), the most frequent first.

    Of values that are equally frequent, the lesser comes first. The counts are exact; where there
    are more than `at_most` different values, the answer is null, and where there is none, empty.

    Example:
        agg.top_k("carrier", 3)  # [(UA, 41), (B6, 33), (EV, 12)]

    Args:
        column: a SQL expression over the transform's columns.
        k: how many, at most `at_most`.
        where: a SQL condition for the events that count.
        at_most: from 1 to 999,999; the state has each different value with its count.

    Raises:
        DefinitionError: `k` or `at_most` is out of range.
    """
    check_number("top_k", "at_most", at_most)
    check_number("top_k", "k", k, most=at_most)

    def partial() -> Column:
        value = values(column, where)
        # One more than the bound: the engine's tally has an entry for null among them.
        tally = F.call_function("approx_top_k_accumulate", value, F.lit(at_most + 1))
        items = F.call_function("approx_top_k_estimate", tally, F.lit(at_most + 1))
        counts = F.transform(
            F.filter(items, lambda i: i["item"].isNotNull()),
            lambda i: F.struct(i["item"].alias("value"), i["count"].alias("count")),
        )
        # Beyond its bound the engine's tally is not exact any more.
        over = F.theta_sketch_estimate(_different(value, at_most)) > at_most
        return F.struct(over.alias("over"), F.when(~over, F.sort_array(counts)).alias("counts"))

    def merge(partials: Column) -> Column:
        counts = _added_up(F.flatten(F.collect_list(partials["counts"])))
        over = F.coalesce(F.bool_or(partials["over"]), F.lit(False))
        return F.struct(over.alias("over"), F.slice(counts, 1, at_most + 1).alias("counts"))

    def finish(merged: Column) -> Column:
        counts = merged["counts"]
        order = F.transform(
            counts, lambda e: F.struct((-e["count"]).alias("rank"), e["value"].alias("value"))
        )
        best = F.transform(
            F.slice(F.sort_array(order), 1, k),
            lambda e: F.struct(e["value"].alias("value"), (-e["rank"]).alias("count")),
        )
        return F.when(~merged["over"] & (F.size(counts) <= at_most), best)

    return Aggregate(named("top_k", column, where, k, at_most=at_most), partial, merge, finish)


@checked
def collect(column: str, where: str | None = None, *, at_most: int = BOUND) -> Aggregate:
    """The values in ascending order, with duplicates; the `at_most` least when there are more.

    Null values are left out; where there are no values, the array is empty. A run holds all values
    of a window in memory before it takes the least.

    Example:
        agg.collect("order_id", at_most=100)

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
        at_most: from 1 to 999,999.

    Raises:
        DefinitionError: `at_most` is out of range.
    """
    check_number("collect", "at_most", at_most)

    def least(found: Column) -> Column:
        return F.slice(F.sort_array(found), 1, at_most)

    return Aggregate(
        named("collect", column, where, at_most=at_most),
        lambda: least(F.collect_list(values(column, where))),
        lambda partials: least(F.flatten(F.collect_list(partials))),
        same,
    )


def _different(value: Column, at_most: int) -> Column:
    """A theta sketch of different values: it has them all while there are at most so many.

    Of more it keeps a sample that is larger than `at_most`, and never estimates less than it keeps.
    """
    return F.theta_sketch_agg(identity(value), F.lit(_size(at_most)))


def _size(at_most: int) -> int:
    """The binary logarithm of a sketch's size, which is more than `at_most`."""
    return max(4, at_most.bit_length())


def _added_up(entries: Column) -> Column:
    """(value, count) entries in the order of values, with one entry for each value."""

    def totals(sorted_: Column, starts: Column) -> Column:
        def total(start: Column, number: Column) -> Column:
            end = F.coalesce(F.get(starts, number + 1), F.size(sorted_))
            run = F.slice(sorted_, start + 1, end - start)
            nothing = F.lit(0).cast("bigint")
            return F.struct(
                F.get(sorted_, start)["value"].alias("value"),
                F.aggregate(run, nothing, lambda n, e: n + e["count"]).alias("count"),
            )

        return F.transform(starts, total)

    return _let(F.sort_array(entries), lambda s: _let(_starts(s), lambda at: totals(s, at)))


def _starts(entries: Column) -> Column:
    """The indices of sorted entries at which another value begins."""

    def start(entry: Column, index: Column) -> Column:
        before = F.get(entries, index - 1)
        return F.when(~entry["value"].eqNullSafe(before["value"]), index)

    return F.filter(F.transform(entries, start), lambda index: index.isNotNull())


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of `value`, which is computed once and not for each element that asks for it."""
    return F.get(F.transform(F.array(value), body), F.lit(0))
