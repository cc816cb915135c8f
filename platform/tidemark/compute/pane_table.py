"""Compute the pane table: every firing of every window, in order.

A pane row has the window, the keys, the pane's index and timing, whether the pane is the window's
last, and the aggregates. The accumulation determines which events the aggregates cover:

| accumulation | a pane's values cover | firings of 5, then 7, then 6 |
| --- | --- | --- |
| discarding | the events of that firing alone | 5, 7, 6 |
| accumulating | all events so far | 5, 12, 18 |
| retracting | all events so far, after a retraction of the replaced row | 5, -5, 12, -12, 18 |

A pane is the last if the watermark at its firing has reached the window's end plus the allowed
lateness. No firing can follow.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY
from tidemark.compute import slot
from tidemark.compute.lifecycle import choose_lifecycle
from tidemark.compute.rows import finish_columns, merge_columns, name_timing
from tidemark.compute.slot import AsOf
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import FIRED, PHASE, WATERMARK_AFTER
from tidemark.store.event_log.log import Log


def compute_panes(
    stored: DataFrame,
    transform: Definition,
    log: Log,
    current: AsOf,
    previous: AsOf | None = None,
    *,
    all_fire_once: bool = False,
) -> DataFrame:
    """Return the pane rows of the firings after the moment `previous`, up to the moment `current`.

    Columns: window_start, window_end, the keys, pane, timing, is_last, retraction, the aggregates.

    Args:
        stored: the stored partials of the windows.
        previous: None for all firings up to `current`.
        all_fire_once: result of `all_fire_once` of the lifecycle for these partials.
    """
    fired = choose_lifecycle(transform).list_firings(
        stored, transform, log, current, all_fire_once=all_fire_once
    )
    if previous is not None:
        fired = fired.where(slot.has_fired_since(transform, previous))
    fired = fired.crossJoin(F.broadcast(_watermark_steps(log))).withColumns(
        {"is_last": _is_last(transform), "timing": name_timing(F.col(PHASE))}
    )
    return list_values(fired, transform, ["pane", "timing", "is_last"])


def list_values(fired: DataFrame, transform: Definition, facts: list[str]) -> DataFrame:
    """Return the rows of firings: window, keys, `facts`, `retraction`, and the aggregates.

    Args:
        fired: firings with the columns of `aligned.list_firings`.
        facts: further columns of `fired` to return. With the window, the keys and `retraction`,
            they must identify a row.
    """
    rows = fired.select(
        *transform.keys, *facts, F.explode(_list_versions(transform)).alias("_version")
    ).select("*", "_version.*")
    group = [*transform.by_window, *facts, "retraction"]
    parts = rows.select(*group, F.explode_outer("_parts").alias("_part")).select(*group, "_part.*")
    return (
        parts.groupBy(*group).agg(*merge_columns(transform)).withColumns(finish_columns(transform))
    )


def _list_versions(transform: Definition) -> Column:
    """Return a firing's rows as an array, each with its window, `retraction`, and its partials."""

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

    covered_partials = F.col("_fresh" if transform.accumulation == "discarding" else "_upto")
    current_version = F.array(version(None, covered_partials, retraction=False))
    if transform.accumulation != "retracting":
        return current_version
    retractions = F.transform("_replaces", lambda r: version(r, r["_upto"], retraction=True))
    return F.concat(retractions, current_version)


def _watermark_steps(log: Log) -> DataFrame:
    """Return one row with `_steps`: an array of the watermark after each arrival, in order."""
    pairs = log.watermarks_after().withColumn(
        WATERMARK_AFTER, F.coalesce(WATERMARK_AFTER, F.lit(-INFINITY))
    )
    return pairs.agg(
        F.array_sort(F.collect_list(F.struct("arrival", WATERMARK_AFTER))).alias("s")
    ).select(F.transform("s", lambda s: s[WATERMARK_AFTER]).alias("_steps"))


def _is_last(transform: Definition) -> Column:
    final = slot.final_watermark(transform)
    phase = F.col(PHASE)
    end = F.unix_micros("window_end")
    closing = F.array_min(F.filter("_steps", lambda w: w >= end))
    last = F.when(phase == slot.FINAL, True).when(phase == slot.ON_TIME, closing >= final)
    if transform.trigger.late.by_arrival:
        firing_watermark = F.get("_steps", F.col(FIRED).cast("int"))
        last = last.when(phase == slot.LATE, firing_watermark >= final)
    return F.coalesce(last, F.lit(False))
