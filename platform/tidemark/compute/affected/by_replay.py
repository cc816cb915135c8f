"""Find the windows that a replay recomputes: those that hold events of given arrivals."""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute.pane import classify_scope
from tidemark.define.transform import WindowedTransform
from tidemark.store.commits.ranges import Ranges, merge_ranges
from tidemark.store.commits.scope import Scope
from tidemark.store.event_log.log import Log


def find_affected_windows(
    log: Log, transform: WindowedTransform, since: int, through: int
) -> Ranges | None:
    """Return the starts of the windows that hold an event of the arrivals [since, through].

    For sessions these are the starts of the events' own sessions, before merging. Return None if no
    window holds such an event. Events are taken as ingested, including those that the function
    filters out now, because an earlier function may have counted them.
    """
    events = classify_scope(log, without_preparation(transform), Scope(since - 1, through)).where(
        "window_start IS NOT NULL"
    )
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    # If windows overlap, only a range of one instant excludes the starts of other windows.
    last = end if transform.window.disjoint else start + F.lit(1)
    spans = events.select(start.alias("start"), last.alias("end")).distinct().collect()
    return merge_ranges((s, e) for s, e in spans) or None


def without_preparation(transform: WindowedTransform) -> WindowedTransform:
    """Return a transform that assigns all events to its windows as they were ingested."""
    return replace(transform, function=_keep_rows, keys=(), deduplicate=None, expectations=())


def _keep_rows(rows: DataFrame) -> DataFrame:
    return rows
