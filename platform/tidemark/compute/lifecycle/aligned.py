"""Compute windows with fixed bounds, which depend on time alone.

Events are aggregated to partials by window, keys and slot, the unit that fires (`slot`). The
partials of the slots that have fired are merged into the window's row.
"""

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from tidemark.compute import slot
from tidemark.compute.rows import finish_rows, merge_columns_with_facts
from tidemark.compute.slot import AsOf
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import FIRED, FIRING, IS_DELETED, PHASE
from tidemark.store.event_log.log import Log
from tidemark.store.rows import Rows


def aggregate_events(
    events: DataFrame,
    definition: Definition,
    log: Log,
    columns: list[Column],
    earlier_partials: DataFrame | None = None,
) -> DataFrame:
    """Return classified events, aggregated to the partials that the state stores.

    Args:
        columns: the aggregate expressions for the partials.
        earlier_partials: the partials of earlier runs; only count triggers need them.
    """
    events = slot.assign_slots(events, definition, log, earlier_partials)
    return events.groupBy(slot.group_columns(definition)).agg(*columns)


def finish_windows(
    stored: DataFrame,
    definition: Definition,
    log: Log,
    current: AsOf,
    *extra_columns: Column,
    all_fire_once: bool = False,
) -> DataFrame:
    """Return the current rows of the windows that have fired.

    Args:
        extra_columns: further aggregate expressions over the admitted partials.
        all_fire_once: result of the function `all_fire_once` for these partials.
    """
    fired = slot.select_fired(stored, definition, log, current)
    phase = F.col(PHASE)
    aggregates = merge_columns_with_facts(definition)
    aggregates += [
        F.count_distinct(PHASE, FIRING).alias("_firings"),
        F.max(phase).alias(PHASE),
        (F.min(phase) <= slot.ON_TIME).alias("_punctual"),
        F.max(phase == slot.ON_TIME).alias("_closing"),
    ]
    aggregates.extend(extra_columns)
    windows = fired.groupBy(definition.by_window).agg(*aggregates)
    # When the watermark passes the end of a window that had on-time events, the window fires, even
    # if none of these events was pending.
    repeats = F.col("_punctual") & ~F.col("_closing") & _is_closed(current)
    revision = F.col("_firings") - F.when(repeats, 0).otherwise(1)
    phase_at_end = F.greatest(phase, F.lit(slot.ON_TIME))
    last_phase = F.when(repeats, phase_at_end).otherwise(phase)
    named = windows.withColumns({"revision": revision, PHASE: last_phase})
    return finish_rows(named.drop("_firings", "_punctual", "_closing"), definition, current)


def _is_closed(current: AsOf) -> Column:
    return F.coalesce(F.unix_micros("window_end") <= current.watermark, F.lit(False))


def compute_changes(
    stored: DataFrame,
    definition: Definition,
    log: Log,
    current: AsOf,
    previous: AsOf,
    *,
    opened: Observation | None = None,
    all_fire_once: bool = False,
) -> DataFrame:
    """Return the rows that changed between two moments; `IS_DELETED` marks deleted rows.

    Args:
        opened: an observation that receives `open_from`, only if windows merge. `open_from` is the
            start of the first window that later arrivals can still change.
        all_fire_once: result of the function `all_fire_once` for these partials.
    """
    windows = finish_windows(stored, definition, log, current, F.max(FIRED).alias(FIRED))
    has_fired = F.coalesce(F.col(FIRED) > previous.arrival, F.lit(False))
    has_settled = slot.has_closed(current, previous) | slot.has_become_final(
        definition, current, previous
    )
    return windows.where(has_fired | has_settled).withColumn(IS_DELETED, F.lit(False))


def list_firings(
    stored: DataFrame,
    definition: Definition,
    log: Log,
    current: AsOf,
    *,
    all_fire_once: bool = False,
) -> DataFrame:
    """Return every firing of every window up to `current`, for the pane table.

    Columns:

    - the window and keys
    - `pane`: the number of the firing in its window
    - `PHASE`, `FIRED`: as `slot.select_fired` describes
    - `_upto`: all partials in the firing
    - `_fresh`: the partials that were in no earlier firing
    - `_replaces`: the rows that the firing replaces, each a struct of its window and its `_upto`

    Columns that the accumulation does not need may be empty.

    Args:
        all_fire_once: result of the function `all_fire_once` for these partials.
    """
    fired = slot.select_fired(stored, definition, log, current)
    part = F.struct(PHASE, FIRING, *definition.aggregates)
    windows = fired.groupBy(definition.by_window).agg(
        F.collect_list(part).alias("_parts"),
        F.collect_set(F.struct(PHASE, FIRING, FIRED)).alias("_firings"),
    )
    firing_at_end = F.struct(
        F.lit(slot.ON_TIME).alias(PHASE),
        F.lit(0).cast("bigint").alias(FIRING),
        F.lit(None).cast("bigint").alias(FIRED),
    )
    # A closed window with on-time events has fired at its end, even if none of them was pending.
    has_on_time = F.exists("_firings", lambda firing: firing[PHASE] <= slot.ON_TIME)
    with_end = F.array_union("_firings", F.array(firing_at_end))
    all_firings = F.when(has_on_time & _is_closed(current), with_end).otherwise(F.col("_firings"))
    numbered = F.posexplode(F.array_sort(all_firings)).alias("pane", "_f")
    firings = windows.select(*definition.by_window, "_parts", numbered)

    def firing_order(entry: Column) -> Column:
        return F.struct(entry[PHASE], entry[FIRING])

    mark = firing_order(F.col("_f"))
    earlier = F.filter("_parts", lambda p: firing_order(p) < mark)
    replaced_row = F.struct("window_start", "window_end", earlier.alias("_upto"))
    return firings.select(
        *definition.by_window,
        "pane",
        f"_f.{PHASE}",
        f"_f.{FIRED}",
        F.filter("_parts", lambda p: firing_order(p) <= mark).alias("_upto"),
        F.filter("_parts", lambda p: firing_order(p) == mark).alias("_fresh"),
        F.filter(F.array(replaced_row), lambda _: F.col("pane") > 0).alias("_replaces"),
    )


def repartition_for_merge(stored: DataFrame, definition: Definition) -> DataFrame:
    """Return partials, repartitioned so that partials that merge are in the same partition.

    Later steps then shuffle no rows. This is cheaper only for many partials.
    """
    # Otherwise, counting distinct firings shuffles all rows twice: by firing, then by window.
    return stored.repartition(*definition.by_window)


def all_fire_once(stored: Rows, definition: Definition) -> bool:
    """Return whether each window is known to fire exactly once: at its end, with all its events.

    False may also mean that this is unknown. Only for sessions without early firings, and only for
    many partials, this queries the engine.
    """
    # The result makes no difference here: slots merge in the same way, however often a window has
    # fired.
    return False
