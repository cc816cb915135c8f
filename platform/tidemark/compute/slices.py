"""Slices: overlapping windows share the aggregation of their events.

If a sliding window is ten slides long, each event is in ten windows. The event is aggregated only
once, with the other events of its *slice*. A slice is the span of time between two adjacent window
bounds, so all its instants are in the same windows. The slice's partials are then merged in each of
these windows.

How a window treats an event depends on the event's time and on its arrival: on the watermark before
the arrival, and on the arrival's processing time. Every window therefore treats all events of one
slice and one arrival alike, even if their lateness differs from window to window. Events that are
on time for all their windows can also be aggregated across arrivals. Only events that are late for
some window are kept separate by arrival.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.compute.rows import merge_columns
from tidemark.define import uniqueness
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import HAPPENED_AT, name_helper
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows.kind import Slicing, floor_to

IS_DUPLICATE = name_helper("again")
"""The BOOLEAN column that marks a slice of duplicates."""


def shared_slices(transform: WindowedTransform) -> Slicing | None:
    """Return the slices that a transform's windows share, or None if they share none.

    With a count trigger, each event needs a rank in each of its windows, so the windows share none.
    """
    if transform.trigger.needs_rank:
        return None
    return transform.window.slicing


def aggregate_slices(
    rows: DataFrame,
    transform: WindowedTransform,
    window: Slicing,
    *,
    by_arrival: bool,
) -> DataFrame:
    """Aggregate prepared rows by slice, keys and arrival; combine several arrivals if possible.

    Events of several arrivals are combined if they are on time for all windows of the slice, and
    are not duplicates. If `by_arrival` is true, or if the trigger has an early firing for each
    arrival, no arrivals are combined.

    Columns:

    - `HAPPENED_AT`: the start of the slice, which replaces the event times of its events; null for
      events without an event time
    - the keys
    - `arrival`, `watermark` and `arrived_at` of the events. In a row that may combine arrivals, the
      first two are null. `arrived_at` is then rounded down to a multiple of the interval of the
      early firings; it is null if they have no interval
    - `IS_DUPLICATE` if the transform has `deduplicate`
    - `events`, `last_arrival`, and for each aggregate a column of the same name with its partial

    Args:
        by_arrival: true if the caller needs the arrival of every event.
    """
    early = transform.trigger.early
    time = F.unix_micros(HAPPENED_AT)
    watermark = F.unix_micros("watermark")
    # With an early firing for each arrival, the events of the arrival that closes a window have
    # another slot.
    if by_arrival or early.by_arrival:
        is_combined = F.lit(False)
    else:
        on_time = watermark.isNull() | (watermark < window.first_end(time))
        is_combined = time.isNotNull() & on_time
    duplicate_columns: list[Column] = []
    if transform.deduplicate:
        duplicate_columns = [F.col(uniqueness.MARK).alias(IS_DUPLICATE)]
        is_combined = is_combined & ~F.col(uniqueness.MARK)
    clock = F.lit(None).cast("timestamp")
    if early.clock_interval is not None:
        # All arrivals since the last multiple of the interval wait for the same next multiple.
        clock = F.timestamp_micros(floor_to(F.unix_micros("arrived_at"), early.clock_interval, 0))
    slice_columns = [F.timestamp_micros(window.slice_start(time)).alias(HAPPENED_AT)]
    slice_columns += [F.col(key) for key in transform.keys]
    arrival_columns = {"arrival": F.lit(None), "watermark": F.lit(None), "arrived_at": clock}
    for name, combined in arrival_columns.items():
        value = F.when(is_combined, combined).otherwise(F.col(name))
        slice_columns.append(value.alias(name))
    slice_columns += duplicate_columns
    aggregates = [F.count("*").alias("events"), F.max("arrival").alias("last_arrival")]
    aggregates += [a.partial().alias(name) for name, a in transform.aggregates.items()]
    return rows.groupBy(slice_columns).agg(*aggregates)


def merge_slice_columns(slices: DataFrame, definition: Definition) -> list[Column]:
    """Return aggregate expressions that merge slices, and keep their column names and types."""
    # A sum of decimals has more digits than its operands, even if the operands are sums already.
    types = {f.name: f.dataType.simpleString() for f in slices.schema.fields}
    aggregates = [F.sum("events").alias("events"), F.max("last_arrival").alias("last_arrival")]
    for name, merge in zip(definition.aggregates, merge_columns(definition), strict=True):
        aggregates.append(merge.cast(types[name]).alias(name))
    return aggregates
