"""The pane table: every firing of every window, in its order.

A pane row has the window, the keys, the index of the pane, its timing, whether it is the last, and
values. What they cover is the accumulation:

| accumulation | a pane's values are of | firings of 5, then 7, then 6 |
| --- | --- | --- |
| discarding | the events of that firing alone | 5, 7, 6 |
| accumulating | all events so far | 5, 12, 18 |
| retracting | all so far, after a retraction of the row replaced | 5, -5, 12, -12, 18 |

A pane is the last when the watermark at its firing has reached the window's end plus the allowed
lateness: nothing can follow it.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY
from tidemark.compute import session, slot
from tidemark.compute.rows import answers, timing_of, values
from tidemark.compute.slot import AsOf
from tidemark.define.transform import WindowedTransform
from tidemark.define.trigger import EachArrival
from tidemark.define.windows import Session
from tidemark.store.log import Log


def panes(
    stored: DataFrame, transform: WindowedTransform, log: Log, at: AsOf, then: AsOf | None = None
) -> DataFrame:
    """The pane rows of windows as of `at`, of firings after `then`.

    Columns: window_start, window_end, the keys, pane, timing, last, retraction, the aggregates.
    """
    fire = session.firings if isinstance(transform.window, Session) else _firings
    fired = fire(stored, transform, log, at)
    if then is not None:
        fired = fired.where(slot.since(transform, then))
    fired = fired.crossJoin(F.broadcast(_steps(log))).withColumn("last", _last(transform))
    rows = fired.select(
        *transform.keys,
        *("pane", timing_of(F.col("phase")).alias("timing"), "last"),
        F.explode(_versions(transform)).alias("_version"),
    ).select("*", "_version.*")
    group = [*transform.by_window, "pane", "timing", "last", "retraction"]
    parts = rows.select(*group, F.explode_outer("_parts").alias("_part")).select(*group, "_part.*")
    return parts.groupBy(*group).agg(*values(transform)).withColumns(answers(transform))


def _firings(stored: DataFrame, transform: WindowedTransform, log: Log, at: AsOf) -> DataFrame:
    """Every firing of every window up to `at`, in the shape of `session.firings`."""
    fired = slot.fired(stored, transform, log, at)
    part = F.struct("phase", "firing", *transform.aggregates)
    windows = fired.groupBy(*transform.by_window).agg(
        F.collect_list(part).alias("_parts"),
        F.collect_set(F.struct("phase", "firing", "fired")).alias("_firings"),
    )
    nothing = F.lit(None).cast("bigint")
    punctual = F.struct(
        F.lit(slot.ON_TIME).alias("phase"),
        F.lit(0).cast("bigint").alias("firing"),
        nothing.alias("fired"),
    )
    on_time = F.exists("_firings", lambda f: f["phase"] <= slot.ON_TIME)
    closed = on_time & F.coalesce(F.unix_micros("window_end") <= at.watermark, F.lit(False))
    order = F.when(closed, F.array_union("_firings", F.array(punctual))).otherwise(
        F.col("_firings")
    )
    each = windows.select(
        *(*transform.by_window, "_parts"), F.posexplode(F.array_sort(order)).alias("pane", "_f")
    )

    def place(of: Column) -> Column:
        return F.struct(of["phase"], of["firing"])

    mark = place(F.col("_f"))
    earlier = F.filter("_parts", lambda p: place(p) < mark)
    window = F.struct("window_start", "window_end", earlier.alias("_upto"))
    return each.select(
        *(*transform.by_window, "pane", "_f.phase", "_f.fired"),
        F.filter("_parts", lambda p: place(p) <= mark).alias("_upto"),
        F.filter("_parts", lambda p: place(p) == mark).alias("_fresh"),
        F.filter(F.array(window), lambda _: F.col("pane") > 0).alias("_replaces"),
    )


def _versions(transform: WindowedTransform) -> Column:
    """The rows of a firing: each a window, whether it is a retraction, and the partials in it."""

    def version(window: Column | None, parts: Column, *, retraction: bool) -> Column:
        start, end = (
            (F.col("window_start"), F.col("window_end"))
            if window is None
            else (window["window_start"], window["window_end"])
        )
        return F.struct(
            start.alias("window_start"),
            end.alias("window_end"),
            F.lit(retraction).alias("retraction"),
            parts.alias("_parts"),
        )

    covers = F.col("_fresh" if transform.accumulation == "discarding" else "_upto")
    new = F.array(version(None, covers, retraction=False))
    if transform.accumulation != "retracting":
        return new
    old = F.transform("_replaces", lambda r: version(r, r["_upto"], retraction=True))
    return F.concat(old, new)


def _steps(log: Log) -> DataFrame:
    """One row with `steps`: the watermark after each arrival, by arrival."""
    pairs = log.reached().withColumn("reached", F.coalesce("reached", F.lit(-INFINITY)))
    return pairs.agg(
        F.array_sort(F.collect_list(F.struct("arrival", "reached"))).alias("s")
    ).select(F.transform("s", lambda s: s["reached"]).alias("_steps"))


def _last(transform: WindowedTransform) -> Column:
    final, phase = slot.final_at(transform), F.col("phase")
    end = F.unix_micros("window_end")
    closing = F.array_min(F.filter("_steps", lambda w: w >= end))
    last = F.when(phase == slot.FINAL, True).when(phase == slot.ON_TIME, closing >= final)
    if isinstance(transform.trigger.late, EachArrival):
        own = F.get("_steps", F.col("fired").cast("int"))
        last = last.when(phase == slot.LATE, own >= final)
    return F.coalesce(last, F.lit(False))
