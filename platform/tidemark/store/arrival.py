"""One arrival, and the rows of a timeline that tell of arrivals."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from tidemark.base.instants import INFINITY
from tidemark.store.rows import INSTANT, Rows, fetched

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
        "references": pa.string(),
        "dead_letters": pa.int64(),
        "schema_version": pa.int64(),
        "undeclared": pa.string(),
        "dated_ahead": pa.int64(),
        "unreadable_marks": pa.int64(),
    }
)
_REACHED = pa.schema({"arrival": pa.int64(), "reached": pa.int64()})

_LATER = {
    "dead_letters": 0,
    "schema_version": 1,
    "undeclared": None,
    "dated_ahead": 0,
    "unreadable_marks": 0,
}
"""Columns that a timeline of an earlier Tidemark lacks, and what they would have."""


@dataclass(frozen=True)
class Arrival:
    """One arrival: a set of events that is processed whole or not at all.

    Instants are microseconds since 1970; `None` is minus infinity for a watermark, and "no row has
    one" for an event time.

    Args:
        arrival: its number.
        arrived_at: its processing time.
        before: the watermark before it, by which its events are judged.
        after: the watermark after it.
        rows: how many events it brought; none for a heartbeat and for the end of the stream.
        min_event_time: the earliest event time.
        max_event_time: the newest event time.
        bytes: the size of what was read.
        position: where the feed stands after it, as JSON.
        watermark_state: what the watermark strategy remembers, as text.
        references: the versions that the source's references had, as JSON.
        dead_letters: how many rows it brought beside its events that could not be decoded.
        schema_version: that of the log when it came.
        undeclared: fields that its rows had beside the source's columns, as far as the feed looked,
            as a JSON array; None where it saw none.
        dated_ahead: how many of its events are dated after its arrival by more than the source's
            `max_future_skew`.
        unreadable_marks: the number of its events on which the expression of a punctuated watermark
            failed; the watermark ignores them.
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
    references: str = "{}"
    dead_letters: int = 0
    schema_version: int = 1
    undeclared: str | None = None
    dated_ahead: int = 0
    unreadable_marks: int = 0

    @property
    def ends(self) -> bool:
        """Whether the stream has ended with it."""
        return self.after == INFINITY


def arrivals(rows: Rows) -> list[Arrival]:
    """The arrivals that rows of a timeline tell of, by their numbers."""
    table = fetched(rows)
    for name, usual in _LATER.items():
        if name not in table.column_names:
            # No ingest has opened it since.
            table = table.append_column(name, pa.nulls(table.num_rows, TIMELINE.field(name).type))
        if usual is not None:
            place = table.column_names.index(name)
            table = table.set_column(place, name, pc.fill_null(table[name], usual))
    plain = [pc.cast(table[f.name], pa.int64() if f.type == INSTANT else f.type) for f in TIMELINE]
    return sorted(
        (Arrival(*row) for row in zip(*(c.to_pylist() for c in plain), strict=True)),
        key=attrgetter("arrival"),
    )


def timeline_rows(arrivals: Sequence[Arrival]) -> pa.Table:
    """Arrivals as rows of a timeline."""
    columns = zip(*(astuple(a) for a in arrivals), strict=True)
    return pa.table(
        [
            pa.array(c, pa.int64() if f.type == INSTANT else f.type).cast(f.type)
            for c, f in zip(columns, TIMELINE, strict=True)
        ],
        schema=TIMELINE,
    )


@dataclass(frozen=True)
class Recent:
    """Arrivals that a process has in memory as it has just brought them in, or read them.

    Args:
        arrivals: in order, without a gap.
        rows: what they brought, as the log has it; None where that is to be read there.
    """

    arrivals: Sequence[Arrival] = ()
    rows: pa.Table | None = None

    def within(self, after: int, through: int) -> pa.Table | None:
        """The rows with `after` < arrival <= `through`; None where they are not all here."""
        if self.rows is None or not self._has(after, through):
            return None
        if self.arrivals[0].arrival == after + 1 and self.arrivals[-1].arrival == through:
            return self.rows
        number = ds.field("arrival")
        return self.rows.filter((number > after) & (number <= through))

    def reached(self, after: int, through: int) -> pa.Table | None:
        """The watermark after each of those arrivals, as `Log.reached` tells it; None where they
        are not all here."""
        if not self._has(after, through):
            return None
        some = [a for a in self.arrivals if after < a.arrival <= through]
        told = {"arrival": [a.arrival for a in some], "reached": [a.after for a in some]}
        return pa.table(told, schema=_REACHED)

    def _has(self, after: int, through: int) -> bool:
        if not self.arrivals:
            return False
        first, last = self.arrivals[0].arrival, self.arrivals[-1].arrival
        return first <= after + 1 <= through + 1 <= last + 1


NOTHING = Recent()
