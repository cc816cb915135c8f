"""Merge and finish partials into the rows of windows."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.compute import slot
from tidemark.compute.slot import AsOf
from tidemark.define import classification
from tidemark.define.aggregates.combiner import OVERFLOWED, SLACK
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import PHASE, VERDICT
from tidemark.define.triggers import trigger


def merge_columns(definition: Definition) -> list[Column]:
    """Return aggregate expressions that merge the partials of the transform's aggregates."""
    return [a.merge(F.col(name)).alias(name) for name, a in definition.aggregates.items()]


def finish_columns(definition: Definition) -> dict[str, Column]:
    """Return the finished value of each of the transform's merged partials."""
    return {name: a.finish(F.col(name)) for name, a in definition.aggregates.items()}


def _exactness_columns(definition: Definition) -> dict[str, Column]:
    """Return columns that show how exact the finished values are, computed from the merged
    partials.

    `SLACK` is the possible difference between two computations of a value; `OVERFLOWED` lists the
    aggregates that exceed their type.
    """
    slacks: list[Column] = []
    overflowing: list[Column] = []
    for name, aggregate in definition.aggregates.items():
        slack = F.lit(None).cast("double")
        if aggregate.slack is not None:
            slack = aggregate.slack(F.col(name))
        slacks.append(slack.alias(name))
        if aggregate.overflowed is not None:
            overflowing.append(F.when(aggregate.overflowed(F.col(name)), F.lit(name)))
    names = F.array().cast("array<string>")
    if overflowing:
        names = F.array_compact(F.array(overflowing))
    return {SLACK: F.struct(slacks), OVERFLOWED: names}


def merge_columns_with_facts(definition: Definition) -> list[Column]:
    """Return aggregate expressions over partials: the transform's aggregates, and the columns
    `events`, `late_events` and `last_arrival`.
    """
    late = F.when(F.col(VERDICT) != classification.ON_TIME, F.col("events")).otherwise(0)
    columns = merge_columns(definition)
    columns += [
        F.sum("events").alias("events"),
        F.sum(late).alias("late_events"),
        F.max("last_arrival").alias("last_arrival"),
    ]
    return columns


def finish_rows(windows: DataFrame, definition: Definition, current: AsOf) -> DataFrame:
    """Return the finished rows of windows from their merged partials.

    The columns `timing` and `final` are added, and `PHASE` is dropped. `SLACK` and `OVERFLOWED` are
    also added, which show how exact the values are.
    """
    timing = name_timing(F.col(PHASE))
    final = F.coalesce(slot.final_watermark(definition) <= current.watermark, F.lit(False))
    finished = finish_columns(definition)
    finished |= _exactness_columns(definition)
    finished |= {"timing": timing, "final": final}
    return windows.withColumns(finished).drop(PHASE)


def name_timing(phase: Column) -> Column:
    """Return `EARLY`, `ON_TIME` or `LATE` for a phase; `FINAL` is `LATE` too."""
    early = phase == slot.EARLY
    on_time = phase == slot.ON_TIME
    named = F.when(early, trigger.EARLY).when(on_time, trigger.ON_TIME)
    return named.otherwise(trigger.LATE)
