"""Slices: windows that overlap share their work.

An event of a sliding window of ten slides is in ten windows. It is not added up ten times but
once, with those of its *slice*: a span of time between two places where windows begin or end, so
that all of its instants are in the same windows. The slice's partials then join each of these
windows, and merge there.

What an event is to a window is told by its time and by its arrival: the watermark before it and
the clock. So events of one slice and one arrival are the same to every window, whatever their
verdicts are. Events that are on time for all their windows are so whatever their arrival, and add
up across arrivals as well. Only what is late somewhere is kept apart by arrival.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.compute.rows import values
from tidemark.define import uniqueness
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import helper
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows.kind import Slicing, floor_to

AGAIN = helper("again")
"""The column, BOOLEAN, that tells a slice of duplicates."""


def slicing(transform: WindowedTransform) -> Slicing | None:
    """The slices that a transform's windows share; None where they do not.

    A trigger that counts numbers the events of each window, so there is none to be shared.
    """
    return None if transform.trigger.ranked else transform.window.slicing


def sliced(
    rows: DataFrame,
    transform: WindowedTransform,
    window: Slicing,
    *,
    by_arrival: bool,
) -> DataFrame:
    """Prepared rows, added up by slice and keys, and by arrival where that matters.

    Columns: `happened_at`, the slice's start (null: no event time), which stands for all of its
    instants; the keys; `arrival`, `watermark` and `arrived_at` of the one arrival that it is of
    (of several: null but for the clock, of which a trigger's early slot can be told); `AGAIN`,
    with `unique`; `events`, `last_arrival`, and a partial by the name of each aggregate.

    Args:
        by_arrival: whether it matters for every event.
    """
    early = transform.trigger.early
    time = F.unix_micros("happened_at")
    watermark = F.unix_micros("watermark")
    # Where an arrival closes a window, an early firing for each arrival has another slot in it.
    if by_arrival or early.by_arrival:
        anywhere = F.lit(False)
    else:
        on_time = watermark.isNull() | (watermark < window.first_end(time))
        anywhere = time.isNotNull() & on_time
    again: list[Column] = []
    if transform.unique:
        again = [F.col(uniqueness.MARK).alias(AGAIN)]
        anywhere = anywhere & ~F.col(uniqueness.MARK)
    clock = F.lit(None).cast("timestamp")
    if early.clock is not None:
        # All instants since the last multiple wait for the same one.
        clock = F.timestamp_micros(floor_to(F.unix_micros("arrived_at"), early.clock, 0))
    facts = {"arrival": F.lit(None), "watermark": F.lit(None), "arrived_at": clock}
    columns = [a.partial().alias(name) for name, a in transform.aggregates.items()]
    slices = rows.groupBy(
        F.timestamp_micros(window.slice_start(time)).alias("happened_at"),
        *transform.keys,
        *(F.when(anywhere, v).otherwise(F.col(name)).alias(name) for name, v in facts.items()),
        *again,
    )
    return slices.agg(
        F.count("*").alias("events"), F.max("arrival").alias("last_arrival"), *columns
    )


def merged(slices: DataFrame, transform: Definition) -> list[Column]:
    """Aggregates over the slices of a window, of the same names and types as over its events."""
    # The sum of decimals has more digits than each of them, also where it is one of sums.
    types = {f.name: f.dataType.simpleString() for f in slices.schema.fields}
    merges = zip(transform.aggregates, values(transform), strict=True)
    return [
        F.sum("events").alias("events"),
        F.max("last_arrival").alias("last_arrival"),
        *(merge.cast(types[name]).alias(name) for name, merge in merges),
    ]
