"""Duplicates: events that had come before, by the id that their sender gave them.

An event is a duplicate if the log has, at an earlier (arrival, position), an event of the same id
that happened at most a horizon before or after it. That is a function of the log alone, so the
verdict is the same in every run, however the arrivals are cut, and a run need look back no further
than the horizon. Every earlier event of the log counts, also one that came too late or was a
duplicate itself. An event without an id, or without an event time that is believed, is never a
duplicate, and makes none.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tidemark.define.uniqueness import MARK, Unique
from tidemark.store.log import Log

ORDER = ("arrival", "position")


def marked(
    log: Log,
    unique: Unique,
    after: int,
    through: int,
    start: int | None = None,
    end: int | None = None,
) -> DataFrame:
    """The log's rows with `after` < arrival <= `through`, and whether each is a `duplicate`.

    Args:
        start, end: only what happened in [start, end), in microseconds; None is no bound.
    """
    time = log.source.happened(F.unix_micros("arrived_at"))
    ids = [F.col(f"`{c}`") for c in unique.by]
    rows = log.read(
        after,
        through,
        None if start is None else start - unique.within,
        None if end is None else end + unique.within,
    )
    if after >= 0 and (span := log.span(after, through)):
        oldest, newest = span
        earlier = log.read(-1, after, oldest - unique.within, newest + unique.within + 1)
        # Of all that is within the horizon, few columns of the few rows that bear one of the ids.
        needed = [*unique.by, log.source.event_time, "arrived_at", *ORDER]
        few = earlier.select(*dict.fromkeys(needed))
        few = few.join(rows.select(*ids), list(unique.by), "left_semi")
        rows = rows.unionByName(few, allowMissingColumns=True)
    told = F.lit(True)
    for column in (time, *ids):
        told = told & column.isNotNull()
    # What has no id is each alone: as one group it might be the largest of all.
    groups = Window.partitionBy(*ids, F.when(~told, F.struct(*ORDER)))
    near = groups.orderBy(F.unix_micros(time)).rangeBetween(-unique.within, unique.within)
    first = F.min(F.struct(*ORDER)).over(near)
    found = rows.withColumn(MARK, told & (first < F.struct(*ORDER)))
    asked = F.col("arrival") > after
    if start is not None:
        asked = asked & (F.unix_micros(time) >= start)
    if end is not None:
        asked = asked & (F.unix_micros(time) < end)
    return found.where(asked)
