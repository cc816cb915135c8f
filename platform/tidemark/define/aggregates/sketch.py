"""Approximate answers from sketches: a small state, however many values there are.

A sketch is a BINARY of the Apache DataSketches library, which the engine has built in.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import checked
from tidemark.base.errors import DefinitionError
from tidemark.define.aggregates.combiner import (
    BOUND,
    Aggregate,
    check_number,
    exactly,
    identity,
    named,
    values,
)

_HLL = 12
"""Binary logarithm of the number of registers, of one byte each."""


@checked
def approx_count_distinct(column: str, where: str | None = None) -> Aggregate:
    """About how many different values there are: a HyperLogLog sketch, standard error 1.6 %.

    The error is that of the sketch and not of the way to it: the same values give the same
    answer, however they were split. `count_distinct` is exact, up to a bound. The state has 4 kB.

    Example:
        agg.approx_count_distinct("visitor")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """

    def partial() -> Column:
        # The sketch takes no decimals, doubles or timestamps, and passes over the empty text.
        return F.hll_sketch_agg(identity(values(column, where)), F.lit(_HLL))

    def finish(merged: Column) -> Column:
        # A sketch that saw the values itself estimates by their order, one that was united does
        # not: united with itself, it forgets the order and nothing else.
        return F.hll_sketch_estimate(F.hll_union(merged, merged))

    return Aggregate(
        named("approx_count_distinct", column, where), partial, F.hll_union_agg, finish
    )


@checked
def quantile(
    column: str, at: float, where: str | None = None, *, exact_to: int = BOUND
) -> Aggregate:
    """The least value such that a share `at` of all values is not above it: 0.5 is the median.

    It is one of the values, as DOUBLE, and never between two of them; 0 gives the least and 1 the
    greatest. NaN is left out. Null where there are no values.

    Up to `exact_to` values it is exact. Of more, a KLL sketch keeps some: the share of the values
    not above the answer is then within 0.03 % of `at`, for the default, in 99 cases of 100. Which
    ones it keeps is drawn by lot, so two computations of such a window differ by as much.

    Example:
        agg.quantile("dep_delay", 0.95)

    Args:
        column: a SQL expression over the transform's columns, a number.
        at: a number from 0 to 1.
        where: a SQL condition for the events that count.
        exact_to: how many values are all kept, from 8 to 65,535; of more values, the sketch grows
            to some 20 bytes for each of these.

    Raises:
        DefinitionError: `at` or `exact_to` is out of range.
    """
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at <= 1:
        raise DefinitionError(f"The 'at' of quantile is a number from 0 to 1, not {at!r}.")
    check_number("quantile", "exact_to", exact_to, 8, 65_535)

    def partial() -> Column:
        return F.kll_sketch_agg_double(values(column, where).cast("double"), F.lit(exact_to))

    def merge(partials: Column) -> Column:
        return F.kll_merge_agg_double(partials, F.lit(exact_to))

    def finish(merged: Column) -> Column:
        found = F.kll_sketch_get_quantile_double(merged, F.lit(float(at)))
        return F.when(F.kll_sketch_get_n_double(merged) > 0, found)

    return Aggregate(
        named("quantile", column, where, at, exact_to=exact_to), partial, merge, finish, exactly
    )
