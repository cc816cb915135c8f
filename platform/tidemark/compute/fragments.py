"""Fragments: what the state of a session transform holds.

A fragment is events of one arrival (of one event, where a trigger counts; of a run's arrivals,
where it can't matter) that follow each other closely, by key, as partials. What sessions fragments
make, and when these fire, is told by `session` when they are merged.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY
from tidemark.compute import slices
from tidemark.compute.clusters import cell
from tidemark.define.transform import WindowedTransform
from tidemark.define.trigger import Count, EachArrival
from tidemark.define.windows import Session
from tidemark.define.windows.kind import floor_to
from tidemark.store.log import Log

_SPAN, _APART, _CELL = _OWN = "_span", "_apart", "_cell"


def partials(
    events: DataFrame, transform: WindowedTransform, log: Log, columns: list[Column]
) -> DataFrame:
    """Judged events, added up to fragments, with the facts by which these merge and fire.

    Args:
        columns: what is added up.
    """
    trigger, window = transform.trigger, transform.window
    assert isinstance(window, Session)
    if isinstance(trigger.early, EachArrival):
        # Only this trigger asks whether an arrival closes the session that it comes to.
        events = events.join(F.broadcast(log.reached()), "arrival")
    else:
        events = events.withColumn("reached", F.lit(None).cast("bigint"))
    before = F.unix_micros("watermark")
    facts = [
        F.when(F.count(before) == F.count("*"), F.min(before)).alias("before"),
        F.first("reached").alias("reached"),
        F.min(F.unix_micros("arrived_at")).alias("clock"),
    ]
    if isinstance(trigger.early, Count) or isinstance(trigger.late, Count):
        by = ["window_start", "window_end", "arrival", "position"]
    else:
        # Events of one arrival join their sessions at the same time. Those within a span of one
        # gap follow each other within it: so they are together in a session, wherever it ends.
        start = F.unix_micros("window_start")
        events = events.withColumn(_SPAN, floor_to(start, window.gap, 0))
        # What comes while the watermark is before it is there whenever its session fires, unless
        # that fires early: then it does not matter with which of a run's arrivals it came.
        ahead = before.isNull() | (before < start)
        anyway = ahead if trigger.early is None else F.lit(False)
        events = events.withColumn(_APART, F.when(~anyway, F.col("arrival")))
        by = [_APART, _SPAN]
        facts += [
            F.min("arrival").alias("arrival"),
            F.min("window_start").alias("window_start"),
            F.max("window_end").alias("window_end"),
            F.min("position").alias("position"),
        ]
    added_up = events.groupBy(*transform.keys, "verdict", "admitted", *by).agg(*facts, *columns)
    if _APART in by:
        added_up = _joined(added_up, transform)
    others = [c for c in added_up.columns if c not in (*transform.by_window, *_OWN)]
    return added_up.select(*transform.by_window, *others)


def _joined(fragments: DataFrame, transform: WindowedTransform) -> DataFrame:
    """Fragments that touch, made one within a cell of time: these are always together too."""
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    by = [*transform.keys, "verdict", "admitted", _APART, _CELL]
    in_order = Window.partitionBy(*by).orderBy("window_start")
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begins = start > F.coalesce(F.max(end).over(earlier), F.lit(-INFINITY))
    placed = fragments.withColumn(_CELL, floor_to(start, cell(transform), 0))
    placed = placed.withColumn(_SPAN, F.when(begins, start))
    placed = placed.withColumn(_SPAN, F.max(_SPAN).over(so_far))
    return placed.groupBy(*by, _SPAN).agg(
        F.min("window_start").alias("window_start"),
        F.max("window_end").alias("window_end"),
        F.when(F.count("before") == F.count("*"), F.min("before")).alias("before"),
        *(F.min(name).alias(name) for name in ("reached", "clock", "arrival", "position")),
        *slices.merged(fragments, transform),
    )
