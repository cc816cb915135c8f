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
    definition: Definition,
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
    fired = choose_lifecycle(definition).list_firings(
        stored, definition, log, current, all_fire_once=all_fire_once
    )
    if previous is not None:
        fired = fired.where(slot.has_fired_since(definition, previous))
    with_watermarks = fired.crossJoin(F.broadcast(_watermark_steps(log)))
    facts = {"is_last": _is_last(definition), "timing": name_timing(F.col(PHASE))}
    return list_values(
        with_watermarks.withColumns(facts), definition, ["pane", "timing", "is_last"]
    )


def list_values(fired: DataFrame, definition: Definition, facts: list[str]) -> DataFrame:
    """Return the rows of firings: window, keys, `facts`, `retraction`, and the aggregates.

    Args:
        fired: firings with the columns of `aligned.list_firings`.
        facts: further columns of `fired` to return. With the window, the keys and `retraction`,
            they must identify a row.
    """
    columns = list[str | Column](definition.keys)
    columns += facts
    columns.append(F.explode(_list_versions(definition)).alias("_version"))
    versions = fired.select(columns).select("*", "_version.*")
    group_columns = definition.by_window
    group_columns += facts
    group_columns.append("retraction")
    partials = versions.select(*group_columns, F.explode_outer("_parts").alias("_part"))
    flat = partials.select(*group_columns, "_part.*")
    merged = flat.groupBy(group_columns).agg(*merge_columns(definition))
    return merged.withColumns(finish_columns(definition))


def _list_versions(definition: Definition) -> Column:
    """Return a firing's rows as an array, each with its window, `retraction`, and its partials."""

    covered_partials = F.col("_upto")
    if definition.accumulation == "discarding":
        covered_partials = F.col("_fresh")
    current_row = F.struct(
        F.col("window_start"),
        F.col("window_end"),
        F.lit(False).alias("retraction"),
        covered_partials.alias("_parts"),
    )
    if definition.accumulation != "retracting":
        return F.array(current_row)

    def to_retraction(replaced: Column) -> Column:
        return F.struct(
            replaced["window_start"].alias("window_start"),
            replaced["window_end"].alias("window_end"),
            F.lit(True).alias("retraction"),
            replaced["_upto"].alias("_parts"),
        )

    return F.concat(F.transform("_replaces", to_retraction), F.array(current_row))


def _watermark_steps(log: Log) -> DataFrame:
    """Return one row with `_steps`: an array of the watermark after each arrival, in order."""
    pairs = log.watermarks_after().withColumn(
        WATERMARK_AFTER, F.coalesce(WATERMARK_AFTER, F.lit(-INFINITY))
    )
    in_order = F.array_sort(F.collect_list(F.struct("arrival", WATERMARK_AFTER)))
    watermarks = F.transform("s", lambda pair: pair[WATERMARK_AFTER])
    return pairs.agg(in_order.alias("s")).select(watermarks.alias("_steps"))


def _is_last(definition: Definition) -> Column:
    final = slot.final_watermark(definition)
    phase = F.col(PHASE)
    end = F.unix_micros("window_end")
    closing = F.array_min(F.filter("_steps", lambda w: w >= end))
    last = F.when(phase == slot.FINAL, True).when(phase == slot.ON_TIME, closing >= final)
    if definition.trigger.late.by_arrival:
        firing_watermark = F.get("_steps", F.col(FIRED).cast("int"))
        last = last.when(phase == slot.LATE, firing_watermark >= final)
    return F.coalesce(last, F.lit(False))
