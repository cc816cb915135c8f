"""Approximate results from sketches: a small state for any number of values.

A sketch is a BINARY of the Apache DataSketches library, which is built into the engine.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.base.arguments import check_arguments
from tidemark.base.determinism import Sql
from tidemark.base.errors import DefinitionError
from tidemark.define.aggregates.combiner import (
    BOUND,
    Aggregate,
    call_name,
    check_number,
    fixed_type,
    hash_identity,
    no_slack,
    select_values,
)

_HLL = 12
"""The binary logarithm of the number of registers, of one byte each."""


@check_arguments
def approx_count_distinct(column: Sql, where: Sql | None = None) -> Aggregate:
    """Estimate the number of distinct values by a HyperLogLog sketch (standard error 1.6 %).

    The same values give the same result, however they were divided into partials. `count_distinct`
    is exact, up to a bound. The state has 4 kB.

    Example:
        agg.approx_count_distinct("visitor")

    Args:
        column: a SQL expression over the transform's columns.
        where: a SQL condition for the events that count.
    """

    def partial() -> Column:
        # Hashes are counted, because the sketch does not accept decimals, doubles or timestamps,
        # and ignores the empty text.
        return F.hll_sketch_agg(hash_identity(select_values(column, where)), F.lit(_HLL))

    def finish(merged: Column) -> Column:
        # The estimate of a sketch that was built from values depends on their order; the estimate
        # of a merged sketch does not. Merging a sketch with itself removes the effect of the order
        # and changes nothing else.
        return F.hll_sketch_estimate(F.hll_union(merged, merged))

    return Aggregate(
        call_name("approx_count_distinct", column, where),
        partial,
        F.hll_union_agg,
        finish,
        result_type=fixed_type("bigint"),
    )


@check_arguments
def quantile(
    column: Sql, q: float, where: Sql | None = None, *, exact_to: int = BOUND
) -> Aggregate:
    """Find the smallest value v for which at least a share `q` of all values is <= v.

    The result is the median for q = 0.5, the smallest value for 0, and the greatest for 1. It is
    one of the values, as a DOUBLE, and never lies between two of them. NaN is left out. The result
    is null without values.

    Up to `exact_to` values the result is exact. For more values, a KLL sketch keeps a random
    sample. With the default, the share of values that are at most the result is then within 0.03 %
    of `q`, in 99 cases of 100. Two computations of such a window may differ by as much.

    Example:
        agg.quantile("dep_delay", 0.95)

    Args:
        column: a SQL expression over the transform's columns, a number.
        q: a number from 0 to 1.
        where: a SQL condition for the events that count.
        exact_to: the number of values up to which the result is exact, from 8 to 65,535. For more
            values, the sketch has about `exact_to` * 20 bytes.

    Raises:
        DefinitionError: `q` or `exact_to` is out of range.
    """
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
        raise DefinitionError(f"quantile: q must be a number from 0 to 1 (got {q!r}).")
    check_number("quantile", "exact_to", exact_to, 8, 65_535)

    def partial() -> Column:
        return F.kll_sketch_agg_double(select_values(column, where).cast("double"), F.lit(exact_to))

    def merge(partials: Column) -> Column:
        return F.kll_merge_agg_double(partials, F.lit(exact_to))

    def finish(merged: Column) -> Column:
        estimate = F.kll_sketch_get_quantile_double(merged, F.lit(float(q)))
        return F.when(F.kll_sketch_get_n_double(merged) > 0, estimate)

    return Aggregate(
        call_name("quantile", column, where, q, exact_to=exact_to),
        partial,
        merge,
        finish,
        no_slack,
        result_type=fixed_type("double"),
    )
