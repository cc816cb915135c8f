"""Count the rows that an erasure has added to a derived source."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from tidemark.compute.affected import by_erasure
from tidemark.store.commits.conditions import InRanges
from tidemark.store.event_log.arrival import Arrival, timeline_rows
from tidemark.store.event_log.log import Log
from tidemark.store.upkeep import erasures
from tidemark.store.upkeep.erasures import Erasure

_NONE: Mapping[str, Any] = {"rows": 0, "oldest": None, "newest": None}


def count_added(log: Log, erasure: Erasure) -> None:
    """Let the timeline count the rows that an erasure has added, and cover their event times.

    Runs and joins skip arrivals without events. After an interruption, call it again.
    """
    if not erasure.added:
        return
    warehouse, source = log.warehouse, log.source
    time = F.unix_micros(F.col(f"`{source.event_time}`"))
    bounds = (F.min(time).alias("oldest"), F.max(time).alias("newest"))
    events = _aggregate(log, source.log_table, erasure, *bounds)
    letters = _aggregate(log, source.dead_letters_table, erasure)
    arrivals = list[Arrival]()
    ranges = erasures.arrival_ranges(erasure.added)
    for arrival in log.timeline(ranges[0][0] - 1, ranges[-1][1] - 1):
        if not any(start <= arrival.arrival < end for start, end in ranges):
            continue
        new, dead = (found.get(arrival.arrival, _NONE) for found in (events, letters))
        oldest = [t for t in (arrival.min_event_time, new["oldest"]) if t is not None]
        newest = [t for t in (arrival.max_event_time, new["newest"]) if t is not None]
        arrivals.append(
            replace(
                arrival,
                rows=arrival.rows + new["rows"],
                dead_letters=arrival.dead_letters + dead["rows"],
                min_event_time=min(oldest, default=None),
                max_event_time=max(newest, default=None),
            )
        )
    table, condition = source.timeline_table, erasures.arrival_condition(ranges)
    warehouse.replace(timeline_rows(arrivals), table, condition, erasure.app, 0)


def _aggregate(log: Log, table: str, erasure: Erasure, *more: Column) -> dict[int, Row]:
    """Return the number of added rows in a table, and further aggregates, by arrival."""
    bound = InRanges("arrival", erasures.arrival_ranges(erasure.added), instants=False)
    added = by_erasure.select_added(log.warehouse.read(table, bound), erasure.added)
    found = added.groupBy("arrival").agg(F.count("*").alias("rows"), *more).collect()
    return {row["arrival"]: row for row in found}
