"""Find the step after which a base's effective watermark has passed an instant of a row.

After this step, the row is *settled*: for example, it can't get a partner in a join any more.

A binary search finds the step, with one column for each halving. The alternative, a join on an
inequality, would compare each row with each watermark.
"""

import json
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY
from tidemark.define.helper_columns import name_helper

_NUMBERS, _VALUE, _COUNT = map(name_helper, ("numbers", "value", "count"))


def add_settling_step(
    rows: DataFrame,
    name: str,
    instant: Column,
    watermark_before: int | None,
    advances: Sequence[tuple[int, int]],
) -> DataFrame:
    """Return rows with the first step after which a base's watermark is greater than an instant.

    The new column is -1 if the watermark was greater before these steps. It is null if the
    watermark is not greater yet, or if the instant is null.

    Args:
        name: the name of the new column.
        instant: BIGINT microseconds.
        watermark_before: the watermark before these steps.
        advances: the watermarks that the base reaches in these steps, in order, each with the index
            of the step.
    """
    watermarks: list[int] = []
    step_numbers: list[int] = []
    if watermark_before is not None:
        watermarks.append(watermark_before)
        step_numbers.append(-1)
    for watermark, step_number in advances:
        watermarks.append(watermark)
        step_numbers.append(step_number)
    # The watermark of a source that has ended, INFINITY, must be greater than every instant.
    # `least` skips nulls, so nulls are excluded first.
    end = F.when(instant.isNotNull(), F.least(instant, F.lit(INFINITY - 1)))
    rows = _add_count(rows, end, watermarks)
    step = F.get(number_array(step_numbers, "int"), F.col(_COUNT))
    return rows.withColumn(name, step).drop(_COUNT)


def add_raised_watermark(
    rows: DataFrame, name: str, arrival: Column, raised: Sequence[tuple[int, int]]
) -> DataFrame:
    """Return rows with the watermark to which a heartbeat last raised their base before an arrival.

    The new column is null if no heartbeat before the arrival raised the watermark.

    Args:
        name: the name of the new column.
        arrival: the number of an arrival of the base.
        raised: for each heartbeat that raised the base's watermark, in order, the heartbeat's
            arrival number and the new watermark.
    """
    rows = _add_count(rows, arrival - 1, [number for number, _ in raised])
    mark = F.get(number_array([mark for _, mark in raised], "bigint"), F.col(_COUNT) - 1)
    return rows.withColumn(name, mark).drop(_COUNT)


def _add_count(rows: DataFrame, value: Column, numbers: Sequence[int]) -> DataFrame:
    """Return rows with `_COUNT`: how many of the ascending `numbers` are at most `value`.

    `_COUNT` is null if `value` is null.
    """
    columns = {_NUMBERS: number_array(numbers, "bigint"), _VALUE: value, _COUNT: F.lit(0)}
    rows = rows.withColumns(columns)
    for exponent in reversed(range(len(numbers).bit_length())):
        length = 1 << exponent
        fits = F.get(_NUMBERS, F.col(_COUNT) + (length - 1)) <= F.col(_VALUE)
        count = F.when(fits, F.col(_COUNT) + length).otherwise(F.col(_COUNT))
        rows = rows.withColumn(_COUNT, count)
    count = F.when(F.col(_VALUE).isNotNull(), F.col(_COUNT))
    return rows.withColumn(_COUNT, count).drop(_NUMBERS, _VALUE)


def number_array(numbers: Sequence[int], kind: str) -> Column:
    """Return numbers as one JSON constant, which is smaller in the plan than many constants."""
    return F.from_json(F.lit(json.dumps(list(numbers))), f"array<{kind}>")
