"""Slots: the units in which the events of a window fire.

An event's slot is told by its own row, and by how many events came before it where a trigger
counts: so an event joins the same slot whatever the cut into runs. Whether a slot has fired, as of
an arrival, follows from the watermark and the clock that the timeline has for that arrival.

| firing | the slot of an event | it has fired |
| --- | --- | --- |
| none | 0 | never by itself |
| `EachArrival` | arrival + 1; 0 when that arrival closes the window | at once |
| `Count(n)` | 1 for the window's first n events, 2 for the next n, … | when it has n events |
| `Every(i)` | the first multiple of i after its arrival (microseconds) | when the clock is there |

A multiple that the clock reaches after the window closed (for late events: became final) fires
nothing. What has not fired by itself fires with the phase that follows: ON_TIME or, for late
events, FINAL.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY
from tidemark.define import verdict as judge
from tidemark.define.transform import WindowedTransform
from tidemark.define.trigger import Count, EachArrival, Every, Firing
from tidemark.store.log import Log, tick

EARLY, ON_TIME, LATE, FINAL = 0, 1, 2, 3
"""The phases of a window's life, in the order of their firings."""


@dataclass(frozen=True)
class AsOf:
    """The moment at which windows are looked at.

    Args:
        arrival: the arrival through which they are complete, BIGINT; may differ by window.
        watermark: the source's watermark after it, BIGINT microseconds, null for minus infinity.
    """

    arrival: Column
    watermark: Column


def slotted(
    events: DataFrame, transform: WindowedTransform, log: Log, before: DataFrame | None
) -> DataFrame:
    """Judged events with `admitted` and their `slot` BIGINT.

    Args:
        before: the stored partials that earlier runs counted, where there are any.
    """
    trigger = transform.trigger
    if isinstance(trigger.early, EachArrival):
        events = events.join(F.broadcast(log.reached()), "arrival")
    if isinstance(trigger.early, Count) or isinstance(trigger.late, Count):
        events = _ranked(events, transform, before)
    early = _slot(trigger.early)
    if isinstance(trigger.early, EachArrival):
        closes = F.col("reached") >= F.unix_micros("window_end")
        early = F.when(F.coalesce(closes, F.lit(False)), F.lit(0)).otherwise(early)
    on_time = F.col("verdict") == judge.ON_TIME
    chosen = F.when(on_time, early).otherwise(_slot(trigger.late))
    return events.withColumn("slot", chosen.cast("bigint"))


def fired(stored: DataFrame, transform: WindowedTransform, log: Log, at: AsOf) -> DataFrame:
    """Partials that count and have fired as of `at`, each with the firing that it joined.

    Adds `phase` INT, `firing` BIGINT (the slot, 0 for the phases that are one firing) and `fired`
    BIGINT: the arrival with which a slot fired by itself; null for ON_TIME and FINAL.
    """
    trigger, end = transform.trigger, F.unix_micros("window_end")
    final_end = final_at(transform)
    counted = stored.where(F.col("window_start").isNotNull() & F.col("admitted"))
    on_time = F.col("verdict") == judge.ON_TIME
    counted, early = _fires(counted, trigger.early, "early", end, transform, log, at)
    counted, late = _fires(counted, trigger.late, "late", final_end, transform, log, at)
    if isinstance(trigger.early, EachArrival):
        early = F.when(F.col("slot") > 0, early)
    phase = F.when(
        on_time, F.when(early.isNotNull(), EARLY).when(end <= at.watermark, ON_TIME)
    ).otherwise(F.when(late.isNotNull(), LATE).when(final_end <= at.watermark, FINAL))
    marked = counted.withColumns(
        {"phase": phase, "fired": F.when(on_time, early).otherwise(late).cast("bigint")}
    )
    alone = F.col("phase").isin(EARLY, LATE)
    marked = marked.withColumn("firing", F.when(alone, F.col("slot")).otherwise(F.lit(0)))
    return marked.where(F.col("phase").isNotNull())


def final_at(transform: WindowedTransform) -> Column:
    """The watermark at which a window is final, BIGINT microseconds."""
    return F.least(F.unix_micros("window_end") + transform.allowed_lateness, F.lit(INFINITY))


def became_final(transform: WindowedTransform, at: AsOf, then: AsOf) -> Column:
    """Whether a window became final after `then`, and up to `at`."""
    final = final_at(transform)
    return F.coalesce((final > _watermark(then)) & (final <= at.watermark), F.lit(False))


def closed(at: AsOf, then: AsOf) -> Column:
    """Whether the watermark passed a window's end after `then`, and up to `at`."""
    end = F.unix_micros("window_end")
    return F.coalesce((end > _watermark(then)) & (end <= at.watermark), F.lit(False))


def _watermark(then: AsOf) -> Column:
    return F.coalesce(then.watermark, F.lit(-INFINITY))


def since(transform: WindowedTransform, then: AsOf) -> Column:
    """Whether a firing came after `then`, for rows of windows with `phase` and `fired`."""
    phase = F.col("phase")
    passed = F.when(phase == ON_TIME, F.unix_micros("window_end")).otherwise(final_at(transform))
    alone = phase.isin(EARLY, LATE)
    return F.when(alone, F.col("fired") > then.arrival).otherwise(passed > _watermark(then))


def ticked(stored: DataFrame, due: Column, every: Every, side: str, log: Log) -> DataFrame:
    """Partials with the arrival that found the clock at the multiple `due`, as `_<side>_at`, and
    the watermark before it, as `_<side>_watermark`; null where the clock is not there yet."""
    names = {"tick": f"_{side}_tick", "arrival": f"_{side}_at", "watermark": f"_{side}_watermark"}
    ticks = log.ticks(every.interval).withColumnsRenamed(names)
    return stored.join(F.broadcast(ticks), due == F.col(f"_{side}_tick"), "left")


def _slot(firing: Firing | None) -> Column:
    if isinstance(firing, EachArrival):
        return F.col("arrival") + 1
    if isinstance(firing, Count):
        return F.floor((F.col("_rank") - 1) / firing.n) + 1
    if isinstance(firing, Every):
        return tick(F.unix_micros("arrived_at"), firing.interval)
    return F.lit(0)


def _fires(
    stored: DataFrame,
    firing: Firing | None,
    side: str,
    until: Column,
    transform: WindowedTransform,
    log: Log,
    at: AsOf,
) -> tuple[DataFrame, Column]:
    """The partials, and the arrival with which each one's slot fired by itself, null where not.

    Args:
        until: a slot no longer fires by itself once the watermark has reached this.
    """
    if isinstance(firing, EachArrival):
        return stored, F.col("slot") - 1
    if isinstance(firing, Count):
        on_time = F.col("verdict") == judge.ON_TIME
        whole = Window.partitionBy(*transform.by_window, on_time, "admitted", "slot")
        full = F.sum("events").over(whole) == firing.n
        return stored, F.when(full, F.max("last_arrival").over(whole))
    if isinstance(firing, Every):
        stored = ticked(stored, F.col("slot"), firing, side, log)
        open_then = F.coalesce(F.col(f"_{side}_watermark") < until, F.lit(True))
        reached = F.col(f"_{side}_at")
        return stored, F.when((reached <= at.arrival) & open_then, reached)
    return stored, F.lit(None).cast("bigint")


def _ranked(events: DataFrame, transform: WindowedTransform, before: DataFrame | None) -> DataFrame:
    """`events` with `_rank`: the how many-th of its window's on-time, or late, events it is."""
    group = [*transform.by_window, "_on_time", "admitted"]
    on_time = F.col("verdict") == judge.ON_TIME
    order = Window.partitionBy(*group).orderBy("arrival", "position")
    ranked = events.withColumn("_on_time", on_time).withColumn("_rank", F.row_number().over(order))
    if before is None:
        return ranked
    counts = before.withColumn("_on_time", on_time).groupBy(*group).agg(F.sum("events").alias("n"))
    earlier = counts.select(F.struct(*group).alias("_group"), F.col("n").alias("_earlier"))
    joined = ranked.join(earlier, F.struct(*group).eqNullSafe(F.col("_group")), "left")
    return joined.withColumn("_rank", F.col("_rank") + F.coalesce("_earlier", F.lit(0)))
