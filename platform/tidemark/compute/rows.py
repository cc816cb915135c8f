"""The rows of windows: partials merged, then finished."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.compute import slot
from tidemark.compute.slot import AsOf
from tidemark.define import trigger
from tidemark.define import verdict as judge
from tidemark.define.aggregates.combiner import OVERFLOWED, SLACK
from tidemark.define.definition import Definition


def values(transform: Definition) -> list[Column]:
    """Aggregates over partials: each of the transform's, merged."""
    return [a.merge(F.col(name)).alias(name) for name, a in transform.aggregates.items()]


def answers(transform: Definition) -> dict[str, Column]:
    """Each of the transform's merged partials, finished."""
    return {name: a.finish(F.col(name)) for name, a in transform.aggregates.items()}


def _trust(transform: Definition) -> dict[str, Column]:
    """How far the answers can be trusted, from the same merged partials."""
    slack = [
        (F.lit(None).cast("double") if a.slack is None else a.slack(F.col(name))).alias(name)
        for name, a in transform.aggregates.items()
    ]
    over = [
        F.when(a.overflowed(F.col(name)), F.lit(name))
        for name, a in transform.aggregates.items()
        if a.overflowed is not None
    ]
    names = F.array_compact(F.array(*over)) if over else F.array().cast("array<string>")
    return {SLACK: F.struct(*slack), OVERFLOWED: names}


def merged(transform: Definition) -> list[Column]:
    """Aggregates over partials: each of the transform's, and the facts of a window."""
    late = F.when(F.col("verdict") != judge.ON_TIME, F.col("events")).otherwise(0)
    return [
        *values(transform),
        F.sum("events").alias("events"),
        F.sum(late).alias("late_events"),
        F.max("last_arrival").alias("last_arrival"),
    ]


def completed(windows: DataFrame, transform: Definition, at: AsOf) -> DataFrame:
    """Windows of merged partials, finished, with the `timing` of their `phase`, and `final`; and
    with `SLACK` and `OVERFLOWED`, for who asks."""
    timing = timing_of(F.col("phase"))
    final = F.coalesce(slot.final_at(transform) <= at.watermark, F.lit(False))
    finished = answers(transform) | _trust(transform) | {"timing": timing, "final": final}
    return windows.withColumns(finished).drop("phase")


def timing_of(phase: Column) -> Column:
    """The name of a phase's firing."""
    early, on_time = phase == slot.EARLY, phase == slot.ON_TIME
    named = F.when(early, trigger.EARLY).when(on_time, trigger.ON_TIME)
    return named.otherwise(trigger.LATE)
