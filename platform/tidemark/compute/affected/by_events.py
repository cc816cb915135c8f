"""Find the windows that contain events of some arrivals, or that lack too-late events."""

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.compute.windowing import classify_scope
from tidemark.define import classification
from tidemark.define.definition import Definition
from tidemark.define.transform import WindowedTransform
from tidemark.store.commits.ranges import Ranges, merge_ranges
from tidemark.store.commits.scope import Scope
from tidemark.store.event_log.log import Log
from tidemark.store.state import State
from tidemark.store.warehouse import Warehouse


def find_affected_windows(
    log: Log, transform: WindowedTransform, first_arrival: int, last_arrival: int
) -> Ranges | None:
    """Return the ranges of the starts of windows with an event of the arrivals [since, through].

    For sessions, the starts are those of each event's own session, before merging. Return None if
    no window contains such an event. An event counts even if the transform's function now filters
    it out, because an earlier function may have counted the event.
    """
    events = classify_scope(
        log, without_preparation(transform), Scope(first_arrival - 1, last_arrival)
    )
    return _find_starts(events.where("window_start IS NOT NULL"), transform)


def find_windows_with_late_loss(warehouse: Warehouse, definition: Definition) -> Ranges | None:
    """Return the ranges of the starts of the windows that lack too-late events; None if none does.

    For sessions, the starts are those of fragments, before merging.
    """
    if not warehouse.has_table(definition.state_table):
        return None
    partials = State(warehouse, definition).read_partials().where(classification.is_uncounted())
    return _find_starts(partials, definition)


def without_preparation(transform: WindowedTransform) -> WindowedTransform:
    """Return a copy of a transform that only assigns events, as ingested, to its windows."""
    return replace(transform, function=_keep_rows, keys=(), deduplicate=None, expectations=())


def _keep_rows(rows: DataFrame) -> DataFrame:
    return rows


def _find_starts(rows: DataFrame, definition: Definition) -> Ranges | None:
    start = F.unix_micros("window_start")
    end = F.unix_micros("window_end")
    if not definition.window.disjoint:
        # Only a range of one instant excludes the starts of other windows.
        end = start + F.lit(1)
    ranges = rows.select(start.alias("start"), end.alias("end")).distinct().collect()
    return merge_ranges((row["start"], row["end"]) for row in ranges) or None
