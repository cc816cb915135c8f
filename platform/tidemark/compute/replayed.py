"""Find the windows that a replay recomputes: those that hold events of given arrivals."""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute.pane import judged
from tidemark.define.transform import WindowedTransform
from tidemark.store.log import Log
from tidemark.store.ranges import Ranges, merge_ranges


def reached(log: Log, transform: WindowedTransform, since: int, through: int) -> Ranges | None:
    """Return the starts of the windows that hold an event of the arrivals [since, through].

    For sessions these are the starts of the events' own sessions, before merging. Return None if no
    window holds such an event. Events are taken as ingested, including those that the function
    filters out now, because an earlier function may have counted them.
    """
    plain = replace(transform, function=_as_it_came, keys=(), unique=None, expectations=())
    events = judged(log, plain, since - 1, through).where("window_start IS NOT NULL")
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    # If windows overlap, only a range of one instant excludes the starts of other windows.
    last = end if transform.window.disjoint else start + F.lit(1)
    spans = events.select(start.alias("start"), last.alias("end")).distinct().collect()
    return merge_ranges((s, e) for s, e in spans) or None


def _as_it_came(rows: DataFrame) -> DataFrame:
    return rows
