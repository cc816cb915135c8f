"""Find the windows that hold given events: those of a replay's arrivals, or too-late ones."""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute.pane import classify_scope
from tidemark.define import classification
from tidemark.define.definition import Definition
from tidemark.define.transform import WindowedTransform
from tidemark.store.commits.ranges import Ranges, merge_ranges
from tidemark.store.commits.scope import Scope
from tidemark.store.event_log.log import Log
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse


def find_affected_windows(
    log: Log, transform: WindowedTransform, since: int, through: int
) -> Ranges | None:
    """Return the starts of the windows that hold an event of the arrivals [since, through].

    For sessions these are the starts of the events' own sessions, before merging. Return None if no
    window holds such an event. Events are taken as ingested, including those that the function
    filters out now, because an earlier function may have counted them.
    """
    events = classify_scope(log, without_preparation(transform), Scope(since - 1, through))
    return _find_starts(events.where("window_start IS NOT NULL"), transform)


def find_windows_with_late_loss(warehouse: Warehouse, transform: Definition) -> Ranges | None:
    """Return the starts of the windows that lack too-late events, or None if no window does.

    For sessions these are the starts of the events' own sessions, before merging.
    """
    if not warehouse.exists(transform.state_table):
        return None
    partials = State(warehouse, transform).read().where(classification.is_uncounted())
    return _find_starts(partials, transform)


def without_preparation(transform: WindowedTransform) -> WindowedTransform:
    """Return a transform that assigns all events to its windows as they were ingested."""
    return replace(transform, function=_keep_rows, keys=(), deduplicate=None, expectations=())


def _keep_rows(rows: DataFrame) -> DataFrame:
    return rows


def _find_starts(rows: DataFrame, transform: Definition) -> Ranges | None:
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    # If windows overlap, only a range of one instant excludes the starts of other windows.
    last = end if transform.window.disjoint else start + F.lit(1)
    spans = rows.select(start.alias("start"), last.alias("end")).distinct().collect()
    return merge_ranges((s, e) for s, e in spans) or None
