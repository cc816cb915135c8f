"""Define an arrival, and convert arrivals to and from rows of a timeline table."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from operator import attrgetter
from secrets import token_hex
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tidemark.base.errors import DataError
from tidemark.base.instants import INFINITY
from tidemark.define.helper_columns import WATERMARK_AFTER
from tidemark.store.rows import INSTANT, Rows, fetch_rows

TIMELINE = pa.schema(
    {
        "arrival": pa.int64(),
        "arrived_at": INSTANT,
        "watermark_before": INSTANT,
        "watermark_after": INSTANT,
        "rows": pa.int64(),
        "min_event_time": INSTANT,
        "max_event_time": INSTANT,
        "bytes": pa.int64(),
        "position": pa.string(),
        "watermark_state": pa.string(),
        "lookups": pa.string(),
        "dead_letters": pa.int64(),
        "schema_version": pa.int64(),
        "undeclared": pa.string(),
        "future_timestamps": pa.int64(),
        "unreadable_marks": pa.int64(),
        "silent_since": INSTANT,
        "arrival_id": pa.string(),
        "follows": pa.string(),
    }
)


def new_arrival_id() -> str:
    return token_hex(8)


_REACHED = pa.schema({"arrival": pa.int64(), WATERMARK_AFTER: pa.int64()})


@dataclass(frozen=True)
class Arrival:
    """An arrival: a set of events that is processed as a whole or not at all.

    Instants are microseconds since 1970. A watermark of None is minus infinity. The earliest and
    the latest event time are None if no event has an event time.

    Args:
        arrived_at: the processing time of the arrival.
        before: the watermark before the arrival, which determines the lateness of its events.
        after: the watermark after the arrival.
        rows: the number of events; 0 for a heartbeat and for the end of the source.
        bytes: the size of the input that was read.
        position: the position of the source's connector after the arrival, as JSON.
        watermark_state: the state of the watermark strategy, as text.
        lookups: the versions that the source's lookup tables had at that time, as JSON.
        dead_letters: the number of rows that could not be decoded; not included in `rows`.
        schema_version: the schema version of the event log at that time.
        undeclared: fields in the rows that the source does not declare, as a JSON array. The
            connector may examine only some rows. None if it found no such field.
        future_timestamps: the number of events whose event time is later than the arrival by more
            than the source's `max_future_skew`.
        unreadable_marks: the number of events on which the expression of a punctuated watermark
            failed; the watermark ignores these events.
        silent_since: for a heartbeat that an ingest recorded, the time since which polls have
            found no data in the source. None for every other arrival.
        arrival_id: the identity of the arrival. Its number identifies it only within one history
            of the timeline: after a timeline was restored from a backup, other arrivals get the
            same numbers.
        follows: the identity of the arrival before this one; empty for the first arrival.
    """

    arrival: int
    arrived_at: int
    before: int | None
    after: int | None
    rows: int
    min_event_time: int | None
    max_event_time: int | None
    bytes: int
    position: str
    watermark_state: str | None = None
    lookups: str = "{}"
    dead_letters: int = 0
    schema_version: int = 1
    undeclared: str | None = None
    future_timestamps: int = 0
    unreadable_marks: int = 0
    silent_since: int | None = None
    arrival_id: str = field(default_factory=new_arrival_id, compare=False)
    follows: str = field(default="", compare=False)

    @property
    def ends_source(self) -> bool:
        """True if the source ends with this arrival."""
        return self.after == INFINITY

    @property
    def brings_data(self) -> bool:
        return self.rows > 0 or self.dead_letters > 0


def no_arrivals(source: str) -> DataError:
    """Return the error for a source without arrivals."""
    return DataError(f"Source '{source}' has no arrivals yet: run `tidemark ingest {source}`.")


def event_time_range(arrivals: Sequence[Arrival]) -> tuple[int, int] | None:
    """Return the earliest and the latest event time of arrivals; None if no event has one."""
    oldest = None
    newest = None
    for arrival in arrivals:
        if arrival.min_event_time is None or arrival.max_event_time is None:
            continue
        if oldest is None or arrival.min_event_time < oldest:
            oldest = arrival.min_event_time
        if newest is None or arrival.max_event_time > newest:
            newest = arrival.max_event_time
    if oldest is None or newest is None:
        return None
    return oldest, newest


def read_arrivals(rows: Rows) -> list[Arrival]:
    """Return the arrivals that timeline rows describe, sorted by number."""
    table = fetch_rows(rows)
    columns = list[list[Any]]()
    for timeline_field in TIMELINE:
        column = pc.cast(table[timeline_field.name], _plain_type(timeline_field))
        columns.append(column.to_pylist())
    arrivals = [Arrival(*values) for values in zip(*columns, strict=True)]
    return sorted(arrivals, key=attrgetter("arrival"))


def timeline_rows(arrivals: Sequence[Arrival]) -> pa.Table:
    rows = [astuple(arrival) for arrival in arrivals]
    columns = list[pa.Array]()
    for values, timeline_field in zip(zip(*rows, strict=True), TIMELINE, strict=True):
        columns.append(pa.array(values, _plain_type(timeline_field)).cast(timeline_field.type))
    return pa.table(columns, schema=TIMELINE)


def _plain_type(field: pa.Field) -> pa.DataType:
    """Return the type of a field's values in Python: an instant is a number of microseconds."""
    if field.type == INSTANT:
        return pa.int64()
    return field.type


@dataclass(frozen=True)
class RecentArrivals:
    """Arrivals that a process holds in memory, because it has just ingested or read them.

    Args:
        arrivals: in order, without a gap.
        rows: the events of the arrivals, as in the event log; None if they are not in memory.
    """

    arrivals: Sequence[Arrival] = ()
    rows: pa.Table | None = None

    def rows_between(self, after_arrival: int, last_arrival: int) -> pa.Table | None:
        """Return the rows of some arrivals; None if not all are in memory.

        These are the arrivals (after_arrival, last_arrival].
        """
        if self.rows is None or not self._has_arrivals(after_arrival, last_arrival):
            return None
        if (
            self.arrivals[0].arrival == after_arrival + 1
            and self.arrivals[-1].arrival == last_arrival
        ):
            return self.rows
        number = ds.field("arrival")
        return self.rows.filter((number > after_arrival) & (number <= last_arrival))

    def watermarks_after(self, after_arrival: int, last_arrival: int) -> pa.Table | None:
        """Return the result of `Log.watermarks_after` for arrivals (after_arrival, last_arrival].

        Return None if not all of these arrivals are in memory.
        """
        if not self._has_arrivals(after_arrival, last_arrival):
            return None
        numbers = list[int]()
        watermarks = list[int | None]()
        for arrival in self.arrivals:
            if after_arrival < arrival.arrival <= last_arrival:
                numbers.append(arrival.arrival)
                watermarks.append(arrival.after)
        columns = {"arrival": numbers, WATERMARK_AFTER: watermarks}
        return pa.table(columns, schema=_REACHED)

    def _has_arrivals(self, after_arrival: int, last_arrival: int) -> bool:
        if not self.arrivals:
            return False
        first = self.arrivals[0].arrival
        last = self.arrivals[-1].arrival
        return first <= after_arrival + 1 <= last_arrival + 1 <= last + 1


NO_ARRIVALS = RecentArrivals()
