"""Fragments: what the state of a session transform holds.

A fragment is events of one arrival (of one event, where a trigger counts; of a run's arrivals,
where it can't matter) that follow each other closely, by key, as partials. What sessions fragments
make, and when these fire, is told by `session` when they are merged.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.compute import slices, slot
from tidemark.compute.lifecycle.clusters import chained
from tidemark.define.definition import Definition
from tidemark.define.helper_columns import helper
from tidemark.define.windows.kind import floor_to
from tidemark.store.log import Log
from tidemark.store.ranges import Ranges, joined

GAPS, DAY = 64, 86_400_000_000
"""A fragment is of so many gaps at most, and of no more than a day unless a gap is."""

_SPAN, _APART, _CELL = map(helper, ("span", "apart", "cell"))


def cell(transform: Definition) -> int:
    """The length, in microseconds, of the spans of time of which no fragment crosses the bounds."""
    gap = transform.window.joins
    return gap * max(1, min(GAPS, DAY // gap))


def cells(ranges: Ranges, transform: Definition) -> Ranges:
    """Ranges of event times, widened so that no fragment has events within and without."""
    size = cell(transform)
    return joined((start // size * size, -(-end // size) * size) for start, end in ranges)


def added_up(
    events: DataFrame, transform: Definition, log: Log, columns: list[Column]
) -> DataFrame:
    """Judged events, added up to fragments, with the facts by which these merge and fire.

    Args:
        columns: what is added up.
    """
    trigger, gap = transform.trigger, transform.window.joins
    if trigger.early.by_arrival:
        # Only this trigger asks whether an arrival closes the session that it comes to.
        events = slot.with_reached(events, log)
    else:
        events = events.select("*", F.lit(None).cast("bigint").alias("reached"))
    start, before = F.unix_micros("window_start"), F.unix_micros("watermark")
    alike = [*transform.keys, "verdict", "admitted"]
    facts = [
        _first_watermark(before),
        F.min("reached").alias("reached"),
        F.min(F.unix_micros("arrived_at")).alias("clock"),
    ]
    if trigger.ranked:
        alone = events.groupBy(*alike, "window_start", "window_end", "arrival", "position")
        return _ordered(alone.agg(*facts, *columns), transform)
    # Events of one arrival join their sessions at the same time. Those within a span of one gap
    # follow each other within it: so they are together in a session, wherever it ends. What comes
    # while the watermark is before it is there whenever its session fires, unless that fires early:
    # then it does not matter with which of a run's arrivals it came.
    ahead = before.isNull() | (before < start)
    anyway = F.lit(False) if trigger.fires_early else ahead
    apart = F.when(~anyway, F.col("arrival"))
    spans = events.withColumns({_SPAN: floor_to(start, gap, 0), _APART: apart})
    by_span = spans.groupBy(*alike, _APART, _SPAN).agg(
        *facts, *(F.min(name).alias(name) for name in ("arrival", "position")), *_bounds(), *columns
    )
    return _ordered(_joined(by_span, transform, [*alike, _APART]), transform)


def _joined(fragments: DataFrame, transform: Definition, alike: list[str]) -> DataFrame:
    """Fragments that touch, made one within a cell of time: these are always together too."""
    start, end = F.unix_micros("window_start"), F.unix_micros("window_end")
    placed = fragments.withColumns(
        {"_start": start, "_end": end, _CELL: floor_to(start, cell(transform), 0)}
    )
    by = [*alike, _CELL]
    return (
        chained(placed, by, _SPAN)
        .groupBy(*by, _SPAN)
        .agg(
            _first_watermark(F.col("before")),
            *(F.min(name).alias(name) for name in ("reached", "clock", "arrival", "position")),
            *_bounds(),
            *slices.merged(fragments, transform),
        )
        .drop(_CELL)
    )


def _bounds() -> list[Column]:
    return [F.min("window_start").alias("window_start"), F.max("window_end").alias("window_end")]


def _first_watermark(before: Column) -> Column:
    """The earliest of some watermarks, of which null is the very first."""
    return F.when(F.count(before) == F.count("*"), F.min(before)).alias("before")


def _ordered(fragments: DataFrame, transform: Definition) -> DataFrame:
    """Window and keys first, then all else that is stored."""
    others = [c for c in fragments.columns if c not in (*transform.by_window, _SPAN, _APART)]
    return fragments.select(*transform.by_window, *others)
