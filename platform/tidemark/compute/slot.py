"""Slots: the units in which the events of a window fire.

`firings` defines which slot an event joins, and when a trigger fires a slot. A trigger can fire a
slot of on-time events until the window closes, and a slot of late events until the window is final.
If the clock reaches a multiple of an interval later, nothing fires. The slots that the trigger has
not fired by then fire together: ON_TIME when the window closes, FINAL when it becomes final.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidemark.base.instants import INFINITY
from tidemark.define import classification
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import (
    ADMITTED,
    FIRED,
    FIRING,
    PHASE,
    SLOT,
    VERDICT,
    WATERMARK_AFTER,
    name_helper,
)
from tidemark.define.triggers.firings import RANK, Side
from tidemark.engine.queries.plan_literals import uncompiled_literal
from tidemark.store.event_log.log import Log

EARLY = 0
ON_TIME = 1
LATE = 2
FINAL = 3
"""The phases of a window, in the order of their firings."""


_ON_TIME, _GROUP, _EARLIER = map(name_helper, ("on_time", "group", "earlier"))


@dataclass(frozen=True)
class AsOf:
    """The moment as of which windows are computed.

    Args:
        arrival: the arrival through which windows are up to date, BIGINT; may differ by window.
        watermark: the source's watermark after that arrival, BIGINT microseconds; null for minus
            infinity.
    """

    arrival: Column
    watermark: Column


def group_columns(definition: Definition) -> list[str]:
    """Return the columns that identify a partial: its window and keys, lateness, and slot."""
    return [*definition.by_window, VERDICT, ADMITTED, SLOT]


def assign_slots(
    events: DataFrame, definition: Definition, log: Log, earlier_partials: DataFrame | None
) -> DataFrame:
    """Add the column `SLOT`, BIGINT: the number of the unit in which an event fires (`firings`).

    Args:
        events: classified events, with the columns `VERDICT` and `ADMITTED`.
        earlier_partials: the stored partials of earlier runs, with which a count trigger continues
            to count the events of a window; None if there are none. Other triggers ignore them.
    """
    trigger = definition.trigger
    if trigger.needs_rank:
        events = _add_ranks(events, definition, earlier_partials)
    early = trigger.early.event_slot()
    if trigger.early.by_arrival:
        events = add_watermark_after(events, log)
        closes = F.col(WATERMARK_AFTER) >= F.unix_micros("window_end")
        early = F.when(F.coalesce(closes, F.lit(False)), F.lit(0)).otherwise(early)
    on_time = F.col(VERDICT) == classification.ON_TIME
    chosen = F.when(on_time, early).otherwise(trigger.late.event_slot())
    return events.select("*", chosen.cast("bigint").alias(SLOT))


def add_watermark_after(events: DataFrame, log: Log) -> DataFrame:
    watermarks = log.few_watermarks_after()
    if not watermarks:
        return events.join(F.broadcast(log.watermarks_after()), "arrival")
    # If there are few watermarks, they are constants in the query. A join would take the engine as
    # long as all other steps.
    _, newest_watermark = watermarks[-1]
    watermark_after = uncompiled_literal(newest_watermark)
    for number, watermark in watermarks[:-1]:
        is_arrival = F.col("arrival") == uncompiled_literal(number)
        mark = uncompiled_literal(watermark)
        watermark_after = F.when(is_arrival, mark).otherwise(watermark_after)
    return events.select("*", watermark_after.alias(WATERMARK_AFTER))


def select_fired(stored: DataFrame, definition: Definition, log: Log, current: AsOf) -> DataFrame:
    """Return the admitted partials that have fired as of a moment, each with its firing.

    Adds:

    - `PHASE` INT: the phase of the firing
    - `FIRING` BIGINT: the slot, or 0 for phases with only one firing
    - `FIRED` BIGINT: the arrival at which the trigger fired the slot; null for ON_TIME and FINAL
    """
    trigger = definition.trigger
    end = F.unix_micros("window_end")
    final_end = final_watermark(definition)
    counted = stored.where(F.col("window_start").isNotNull() & F.col(ADMITTED))
    on_time = F.col(VERDICT) == classification.ON_TIME
    slots = Window.partitionBy(*definition.by_window, on_time, ADMITTED, SLOT)
    before_end = Side("early", end, current.arrival, slots)
    before_final = Side("late", final_end, current.arrival, slots)
    counted, early = trigger.early.find_firing_arrival(counted, before_end, log.read_ticks)
    counted, late = trigger.late.find_firing_arrival(counted, before_final, log.read_ticks)
    on_time_phase = F.when(early.isNotNull(), EARLY).when(end <= current.watermark, ON_TIME)
    late_phase = F.when(late.isNotNull(), LATE).when(final_end <= current.watermark, FINAL)
    phase = F.when(on_time, on_time_phase).otherwise(late_phase)
    fired_at = F.when(on_time, early).otherwise(late).cast("bigint")
    marked = counted.withColumns({PHASE: phase, FIRED: fired_at})
    is_fired_by_trigger = F.col(PHASE).isin(EARLY, LATE)
    marked = marked.withColumn(FIRING, F.when(is_fired_by_trigger, F.col(SLOT)).otherwise(F.lit(0)))
    return marked.where(F.col(PHASE).isNotNull())


def final_watermark(definition: Definition) -> Column:
    """Return the watermark at which a window is final, BIGINT microseconds."""
    return F.least(F.unix_micros("window_end") + definition.allowed_lateness, F.lit(INFINITY))


def has_become_final(definition: Definition, current: AsOf, previous: AsOf) -> Column:
    """Return whether a window became final between the moments `previous` and `current`."""
    return _has_passed(final_watermark(definition), current, previous)


def has_closed(current: AsOf, previous: AsOf) -> Column:
    """Return whether a window closed between the moments `previous` and `current`."""
    return _has_passed(F.unix_micros("window_end"), current, previous)


def _has_passed(instant: Column, current: AsOf, previous: AsOf) -> Column:
    """Return whether the watermark reached an instant between two moments."""
    was_ahead = instant > _finite_watermark(previous)
    return F.coalesce(was_ahead & (instant <= current.watermark), F.lit(False))


def _finite_watermark(moment: AsOf) -> Column:
    return F.coalesce(moment.watermark, F.lit(-INFINITY))


def has_fired_since(definition: Definition, previous: AsOf) -> Column:
    """Return whether a window fired after `previous`, for rows with `PHASE` and `FIRED`."""
    phase = F.col(PHASE)
    firing_watermark = F.when(phase == ON_TIME, F.unix_micros("window_end")).otherwise(
        final_watermark(definition)
    )
    is_fired_by_trigger = phase.isin(EARLY, LATE)
    return F.when(is_fired_by_trigger, F.col(FIRED) > previous.arrival).otherwise(
        firing_watermark > _finite_watermark(previous)
    )


def _add_ranks(
    events: DataFrame, definition: Definition, earlier_partials: DataFrame | None
) -> DataFrame:
    """Return `events` with `RANK`, the rank by arrival among the window's events of the same kind.

    The on-time events of a window are ranked separately from its late events.
    """
    group = [*definition.by_window, _ON_TIME, ADMITTED]
    on_time = F.col(VERDICT) == classification.ON_TIME
    order = Window.partitionBy(group).orderBy("arrival", "position")
    ranked = events.withColumn(_ON_TIME, on_time).withColumn(RANK, F.row_number().over(order))
    if earlier_partials is None:
        return ranked
    graded = earlier_partials.withColumn(_ON_TIME, on_time)
    counts = graded.groupBy(group).agg(F.sum("events").alias(_EARLIER))
    earlier_counts = counts.select(F.struct(group).alias(_GROUP), F.col(_EARLIER))
    is_same_group = F.struct(group).eqNullSafe(F.col(_GROUP))
    joined = ranked.join(earlier_counts, is_same_group, "left")
    return joined.withColumn(RANK, F.col(RANK) + F.coalesce(_EARLIER, F.lit(0)))
