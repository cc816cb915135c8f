"""Find a watermark far ahead of the processing clock and the event that caused it, and lower it.

A watermark that is years ahead makes every later event too late. `find_future_watermark` reports
such a watermark without the engine. `lower_watermarks` recomputes the recorded watermarks of a
source from its event log, with the current definition, which must have a `max_future_skew`.
`lower_watermarks` never raises a watermark, so that no event that was on time becomes late. The
caller recomputes the assets afterwards.

| a process that is killed | leaves |
| --- | --- |
| before the commit to the event log | everything as it was |
| before the following commit to the timeline | lower watermarks only in the event log: rerun |
| after both commits | assets that have to be recomputed |
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import functions as F

from tidemark.base.failpoint import pass_fail_point
from tidemark.base.instants import (
    INFINITY,
    as_datetime,
    format_duration,
    format_instant,
    parse_duration,
)
from tidemark.compute.materialize import temp_tables
from tidemark.define.source import Source
from tidemark.define.watermarks import after_heartbeat
from tidemark.store.commits.conditions import Condition, at_least, number_is
from tidemark.store.event_log.arrival import (
    Arrival,
    new_arrival_id,
    no_arrivals,
    timeline_rows,
)
from tidemark.store.event_log.log import Log
from tidemark.store.rows import INSTANT, to_dicts, to_frame
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import CHUNK, CLOCK_SLACK, Chunk
from tidemark_streaming.ingest.chunk_summary import ChunkSummary
from tidemark_streaming.ingest.ingest_record import lock_ingest
from tidemark_streaming.ingest.row_summary import summarize_rows
from tidemark_streaming.snapshot.snapshot import Snapshot

FAR = parse_duration("1 hour")
"""How far a watermark may be ahead of the processing clock without a warning."""

_COLUMNS = ["arrival", "arrived_at", "watermark_after", "max_event_time"]
_DAY = parse_duration("1 day")


@dataclass(frozen=True)
class FutureWatermark:
    """A watermark that is far ahead of the processing clock. Instants are microseconds.

    Args:
        arrival: the number of the arrival that caused the watermark.
        clock: the processing time of the newest arrival.
        event_time: the newest event time in that arrival; None if the arrival has no event time.
        read_from: where the event with this time was read, as in `2.csv#1`; None if the event has
            been deleted.
    """

    source: str
    arrival: int
    watermark: int
    clock: int
    event_time: int | None
    read_from: str | None

    def __str__(self) -> str:
        return f"{self.cause} {self.remedy}"

    @property
    def cause(self) -> str:
        """The watermark, and the event that caused it."""
        ahead = self.watermark - self.clock
        length = f"{ahead // _DAY:,} days" if ahead >= 2 * _DAY else f"{ahead / 3.6e9:.1f} hours"
        cause = (
            ""
            if self.event_time is None
            else f", with an event dated {format_instant(self.event_time)}"
        )
        origin = "" if self.read_from is None else f" ({self.read_from})"
        return (
            f"The watermark of '{self.source}' is {format_instant(self.watermark)}, {length} "
            "ahead of the "
            f"processing clock: arrival {self.arrival:,} moved it there{cause}{origin}. Events "
            "before it are late."
        )

    @property
    def remedy(self) -> str:
        """The next step if the date of that event is wrong."""
        return (
            "If that date is wrong, set max_future_skew in the source, then run "
            f"`tidemark watermark {self.source} --lower`."
        )


@dataclass(frozen=True)
class _Lowered:
    """The result of lowering the recorded watermarks of a source.

    Args:
        arrivals: the number of arrivals whose recorded watermarks or times were changed.
        first: the number of the first such arrival; None if no arrival was changed.
        before, after: the current watermark of the source before and after it was lowered, in
            microseconds.
    """

    arrivals: int
    first: int | None
    before: int | None
    after: int | None


def is_far_ahead(watermark: int | None, clock: int) -> bool:
    """Return whether a watermark is so far ahead of the processing clock that it requires a
    warning.

    The infinite watermark of a source that has ended requires no warning.
    """
    return watermark is not None and watermark < INFINITY and watermark - clock > FAR


def find_future_watermark(snapshot: Snapshot, source: Source) -> FutureWatermark | None:
    """Return the watermark of a source if it is far ahead of the processing clock; else None."""
    table = snapshot.tables.read(source.timeline_table, _COLUMNS)
    if table is None or not table.num_rows:
        return None
    rows = to_dicts(table.sort_by("arrival"))
    watermark = rows[-1]["watermark_after"]
    clock = rows[-1]["arrived_at"]
    if not is_far_ahead(watermark, clock):
        return None
    cause = next(row for row in rows if row["watermark_after"] == watermark)
    number = cause["arrival"]
    newest = cause["max_event_time"]
    return FutureWatermark(
        source=source.name,
        arrival=number,
        watermark=watermark,
        clock=clock,
        event_time=newest,
        read_from=None if newest is None else _read_from(snapshot, source, number, newest),
    )


def future_timestamps(
    snapshot: Snapshot, source: Source, arrivals: Sequence[Arrival]
) -> str | None:
    """Return a message about events dated too far after their arrival; None if there are none."""
    some = [a for a in arrivals if a.future_timestamps]
    if not some or source.max_future_skew is None:
        return None
    skew = parse_duration(source.max_future_skew)
    latest = as_datetime(some[0].arrived_at + skew)
    dated = ds.field(source.event_time) > pa.scalar(latest, INSTANT)
    columns = ["read_from", source.event_time]
    found = snapshot.tables.read(source.log_table, columns, dated, _only_arrival(some[0].arrival))
    place = ""
    if found is not None and found.num_rows:
        row = to_dicts(found.slice(0, 1).rename_columns(["read_from", "time"]))[0]
        place = f", the first dated {format_instant(row['time'])} ({row['read_from']})"
    count = sum(a.future_timestamps for a in some)
    return (
        f"{count:,} {'event' if count == 1 else 'events'} of '{source.name}' "
        f"{'is' if count == 1 else 'are'} dated more than {format_duration(skew)} after "
        f"arrival{place}. "
        "They do not advance the watermark and are in no window; they are in the late tables, "
        "with the reason future_timestamp."
    )


def lower_watermarks(
    warehouse: Warehouse, source: Source, *, on_change: Callable[[], None] = lambda: None
) -> _Lowered:
    """Lower the recorded watermarks of a source to the watermarks that its definition computes from
    the event log.

    A processing time in the future is lowered to now (plus `CLOCK_SLACK`). No stream of the
    source's assets may run.

    Args:
        on_change: is called before the first change, if there is any.

    Raises:
        DataError: the source has no arrivals.
    """
    log = Log(warehouse, source)
    if not warehouse.has_table(source.timeline_table):
        raise no_arrivals(source.name)
    with lock_ingest(warehouse, source):
        log.ensure_tables()
        log.take_over()
        recorded = log.read_timeline()
        if not recorded:
            raise no_arrivals(source.name)
        arrivals = _lower_arrivals(log, recorded)
        changed = [n for n, (a, b) in enumerate(zip(recorded, arrivals, strict=True)) if a != b]
        if changed:
            on_change()
            _replace_timeline(log, _with_new_ids(arrivals[changed[0] :]))
    return _Lowered(
        arrivals=len(changed),
        first=changed[0] if changed else None,
        before=recorded[-1].after,
        after=arrivals[-1].after,
    )


def _lower_arrivals(log: Log, recorded: Sequence[Arrival]) -> list[Arrival]:
    """Return the recorded arrivals with watermarks as the source's definition now computes them.

    No watermark is raised: it keeps its recorded value if the computed one is higher.
    """
    source = log.source
    now = time.time_ns() // 1000 + CLOCK_SLACK
    chunks = [Chunk(a.position, min(a.arrived_at, now)) for a in recorded]
    events = log.read_events(-1, recorded[-1].arrival)
    columns = dict.fromkeys([source.event_time, *source.columns])
    selected = [F.col("arrival").alias(CHUNK)]
    selected += [F.col(f"`{column}`") for column in columns]
    rows = events.select(selected)
    summaries = summarize_rows(source, rows, chunks, log.warehouse.spark)
    lowered_arrivals: list[Arrival] = []
    watermark_before = None
    state = None
    for arrival, chunk in zip(recorded, chunks, strict=True):
        summary = summaries.get(arrival.arrival, ChunkSummary())
        watermark_after, state = source.watermark.advance(
            state, watermark_before, summary.observed, chunk.arrived_at, arrival.after
        )
        if arrival.silent_since is not None:
            watermark_after = after_heartbeat(
                source.watermark, watermark_after, chunk.arrived_at, arrival.silent_since
            )
        watermark_after = (
            arrival.after if arrival.ends_source else _earlier_of(watermark_after, arrival.after)
        )
        lowered_arrivals.append(
            replace(
                arrival,
                arrived_at=chunk.arrived_at,
                before=watermark_before,
                after=watermark_after,
                watermark_state=state,
                min_event_time=summary.min_event_time,
                max_event_time=summary.max_event_time,
                future_timestamps=summary.future_timestamps,
            )
        )
        watermark_before = watermark_after
    return lowered_arrivals


def _with_new_ids(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Return arrivals with new identities.

    Everything that was computed from the earlier watermarks then recognizes that it is stale.
    """
    renewed = list[Arrival]()
    for arrival in arrivals:
        follows = renewed[-1].arrival_id if renewed else arrival.follows
        renewed.append(replace(arrival, arrival_id=new_arrival_id(), follows=follows))
    return renewed


def _replace_timeline(log: Log, arrivals: Sequence[Arrival]) -> None:
    warehouse = log.warehouse
    source = log.source
    first = arrivals[0].arrival
    app = f"watermarks/{uuid4().hex}"
    beyond = f"arrival >= {first}"
    table = warehouse.read_frame(source.log_table, at_least("arrival", first))
    known = timeline_rows(arrivals).select(["arrival", "arrived_at", "watermark_before"])
    known = known.rename_columns(["arrival", "arrived_at", "watermark"])
    facts = F.broadcast(to_frame(warehouse.spark, known))
    rows = table.drop("arrived_at", "watermark").join(facts, "arrival")
    with temp_tables(warehouse) as place:
        materialized = place.materialize(rows.select([f"`{c}`" for c in table.columns]), few=False)
        warehouse.replace_rows(materialized, source.log_table, beyond, app, 0)
    pass_fail_point("watermarks")
    warehouse.replace_rows(timeline_rows(arrivals), source.timeline_table, beyond, app, 0)


def _earlier_of(computed: int | None, recorded: int | None) -> int | None:
    if computed is None or recorded is None:
        return None
    return min(computed, recorded)


def _only_arrival(arrival: int) -> list[Condition]:
    return [number_is("arrival", arrival)]


def _read_from(snapshot: Snapshot, source: Source, arrival: int, event_time: int) -> str | None:
    dated = ds.field(source.event_time) == pa.scalar(as_datetime(event_time), INSTANT)
    rows = snapshot.tables.read(source.log_table, ["read_from"], dated, _only_arrival(arrival))
    if rows is None or not rows.num_rows:
        return None
    return rows["read_from"][0].as_py()
