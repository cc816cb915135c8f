"""The rows of windows: partials merged, then finished."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark import judge, slot, trigger
from tidemark.slot import AsOf
from tidemark.transform import WindowedTransform


def merged(transform: WindowedTransform) -> list[Column]:
    """Aggregates over partials: each of the transform's, and the facts of a window."""
    values = [a.merge(F.col(name)).alias(name) for name, a in transform.aggregates.items()]
    late = F.when(F.col("verdict") != judge.ON_TIME, F.col("events")).otherwise(0)
    return [
        *values,
        F.sum("events").alias("events"),
        F.sum(late).alias("late_events"),
        F.max("last_arrival").alias("last_arrival"),
    ]


def completed(windows: DataFrame, transform: WindowedTransform, at: AsOf) -> DataFrame:
    """Windows of merged partials, finished, with the `timing` of their `phase`, and `final`."""
    timing = timing_of(F.col("phase"))
    final = F.coalesce(slot.final_at(transform) <= at.watermark, F.lit(False))
    return windows.withColumns(
        {name: a.finish(F.col(name)) for name, a in transform.aggregates.items()}
        | {"timing": timing, "final": final}
    ).drop("phase")


def timing_of(phase: Column) -> Column:
    """The name of a phase's firing."""
    early, on_time = phase == slot.EARLY, phase == slot.ON_TIME
    named = F.when(early, trigger.EARLY).when(on_time, trigger.ON_TIME)
    return named.otherwise(trigger.LATE)
