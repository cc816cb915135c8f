"""Find the first of many increasing thresholds that is greater than a value, for each row.

A join with a condition of two inequalities compares each row with each threshold. Here the
thresholds are in two levels of arrays: one comparison with the first of each group finds the group,
and a second one finds the threshold, so a row costs about two square roots of their number.
"""

from collections.abc import Sequence
from math import isqrt

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.define.helper_columns import helper


def first_above(
    rows: DataFrame,
    value: Column,
    before: int | None,
    reached: Sequence[tuple[int, int]],
    name: str,
) -> tuple[DataFrame, Column]:
    """Return the rows with the thresholds, and a column with the result.

    Args:
        value: BIGINT; the result is null if it is null.
        before: the threshold that was reached before the first of `reached`, with the result -1.
        reached: thresholds in ascending order, each with its result, an integer.
        name: the name of the helper columns that the rows get.
    """
    known = [] if before is None else [(before, -1)]
    known += reached
    size = isqrt(len(known)) + 1
    groups = [[t for t, _ in known[n : n + size]] for n in range(0, len(known), size)]
    firsts, inner, results = (helper(f"{name}_{each}") for each in ("firsts", "groups", "results"))
    table = rows.sparkSession.createDataFrame(
        [([g[0] for g in groups], groups, [result for _, result in known])],
        f"{firsts} ARRAY<BIGINT>, {inner} ARRAY<ARRAY<BIGINT>>, {results} ARRAY<INT>",
    )
    with_value = rows.crossJoin(F.broadcast(table))

    def count_passed(thresholds: Column) -> Column:
        return F.size(F.filter(thresholds, lambda threshold: threshold <= value))

    group = count_passed(F.col(firsts)) - 1
    inside = F.when(group >= 0, count_passed(F.get(F.col(inner), group)))
    rank = F.when(group < 0, F.lit(0)).otherwise(group * F.lit(size) + inside)
    return with_value, F.when(value.isNotNull(), F.get(F.col(results), rank))
