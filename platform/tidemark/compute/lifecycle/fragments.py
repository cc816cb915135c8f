"""Fragments: the partials that the state of a session transform stores.

A fragment has the partials of some events of one key. Each event is at most a session gap after
the previous one. Usually, all events of a fragment are from one arrival. Two cases differ:

- With a count trigger, a fragment has only one event.
- Without early firings, a fragment may have events of several arrivals of a run. Each of these
  events must have been later than the watermark when it arrived.

`session` merges fragments, and determines which sessions they form and when these sessions fire.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.compute import slices, slot
from tidemark.compute.lifecycle.clusters import add_chains
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import (
    ADMITTED,
    CLOCK,
    VERDICT,
    WATERMARK_AFTER,
    WATERMARK_BEFORE,
    name_helper,
)
from tidemark.define.windows.kind import floor_to
from tidemark.store.commits.ranges import Ranges, merge_ranges
from tidemark.store.event_log.log import Log

GAPS = 64
DAY_MICROS = 86_400_000_000
"""All events of a fragment are in one time cell, which has a length of `GAPS` gaps but at most a
day, or of one gap if that is longer than a day.
"""

_SPAN, _APART, _CELL = map(name_helper, ("span", "apart", "cell"))
_FACTS = [WATERMARK_BEFORE, WATERMARK_AFTER, CLOCK, "arrival", "position"]
"""The columns of a fragment that determine how it merges and fires."""


def _cell_length(definition: Definition) -> int:
    """Return the length, in microseconds, of the time cells that divide events into fragments."""
    gap = definition.window.merge_gap
    return gap * max(1, min(GAPS, DAY_MICROS // gap))


def widen_to_cells(ranges: Ranges, definition: Definition) -> Ranges:
    """Return ranges of event times, widened so that no bound lies between events of a fragment."""
    size = _cell_length(definition)
    return merge_ranges((start // size * size, -(-end // size) * size) for start, end in ranges)


def aggregate_fragments(
    events: DataFrame, definition: Definition, log: Log, columns: list[Column]
) -> DataFrame:
    """Aggregate classified events to fragments, with the columns that determine how fragments merge
    and fire.
    """
    trigger = definition.trigger
    gap = definition.window.merge_gap
    if trigger.early.by_arrival:
        # Only this trigger needs to know whether an arrival closes the session of its own events.
        events = slot.add_watermark_after(events, log)
    else:
        events = events.select("*", F.lit(None).cast("bigint").alias(WATERMARK_AFTER))
    start = F.unix_micros("window_start")
    watermark = F.unix_micros("watermark")
    equal_columns = [*definition.keys, VERDICT, ADMITTED]
    aggregates = [
        _first_watermark(watermark),
        F.min(WATERMARK_AFTER).alias(WATERMARK_AFTER),
        F.min(F.unix_micros("arrived_at")).alias(CLOCK),
    ]
    aggregates += columns
    if trigger.needs_rank:
        event_columns = [*equal_columns, "window_start", "window_end", "arrival", "position"]
        single_events = events.groupBy(event_columns).agg(*aggregates)
        return _order_columns(single_events, definition)
    # Events of one arrival join their sessions at the same time. Events within a span of one gap
    # always share a session. An event is ahead if it arrives while the watermark is before the
    # event's time. Without early firings, an event that is ahead is present whenever its session
    # fires, so such events of a run can be merged across arrivals.
    merges_arrivals = F.lit(False)
    if not trigger.fires_early:
        merges_arrivals = watermark.isNull() | (watermark < start)
    separate_arrival = F.when(~merges_arrivals, F.col("arrival"))
    spans = events.withColumns({_SPAN: floor_to(start, gap, 0), _APART: separate_arrival})
    equal_columns.append(_APART)
    aggregates += _first_places()
    aggregates += _fragment_bounds()
    by_span = spans.groupBy(*equal_columns, _SPAN).agg(*aggregates)
    return _order_columns(_merge_touching(by_span, definition, equal_columns), definition)


def _merge_touching(
    fragments: DataFrame, definition: Definition, equal_columns: list[str]
) -> DataFrame:
    """Merge fragments that touch each other, and return all fragments.

    Fragments that touch always share a session. Fragments in different time cells (see `GAPS`) are
    not merged.

    Args:
        equal_columns: only fragments with equal values in these columns are merged.
    """
    start = F.unix_micros("window_start")
    end = F.unix_micros("window_end")
    cell = floor_to(start, _cell_length(definition), 0)
    with_cells = fragments.withColumns({"_start": start, "_end": end, _CELL: cell})
    cell_columns = [*equal_columns, _CELL]
    chains = add_chains(with_cells, cell_columns, _SPAN)
    aggregates = [
        _first_watermark(F.col(WATERMARK_BEFORE)),
        F.min(WATERMARK_AFTER).alias(WATERMARK_AFTER),
        F.min(CLOCK).alias(CLOCK),
    ]
    aggregates += _first_places()
    aggregates += _fragment_bounds()
    aggregates += slices.merge_slice_columns(fragments, definition)
    return chains.groupBy(*cell_columns, _SPAN).agg(*aggregates).drop(_CELL)


def _first_places() -> list[Column]:
    return [F.min("arrival").alias("arrival"), F.min("position").alias("position")]


def _fragment_bounds() -> list[Column]:
    return [F.min("window_start").alias("window_start"), F.max("window_end").alias("window_end")]


def _first_watermark(watermark: Column) -> Column:
    """Return the earliest of some watermarks; null, no watermark yet, is earlier than any other."""
    return F.when(F.count(watermark) == F.count("*"), F.min(watermark)).alias(WATERMARK_BEFORE)


def _order_columns(fragments: DataFrame, definition: Definition) -> DataFrame:
    """Return fragments with window and keys first, then the other stored columns."""
    columns = definition.by_window
    columns += [VERDICT, ADMITTED]
    columns += _FACTS
    columns += ["events", "last_arrival"]
    columns += definition.aggregates
    return fragments.select(columns)
