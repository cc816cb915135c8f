"""Store a source's event log: its events, each with columns of its arrival, and its timeline.

Each source has three append-only tables. The *event log* has one row for each event: the source's
columns, the number of the arrival, the position in that arrival, the processing time, and the
watermark just before the arrival. The event's lateness is always classified against that watermark.
The *dead letters* are the rows that could not be decoded. The *timeline* has one row for each
arrival: 0, 1, 2, … without gaps.

The timeline is the authority on which arrivals exist. An ingest commits to the event log first,
then to the dead letters, and to the timeline last. Rows of an arrival that the timeline does not
have are left over from a writer that died in between. Readers do not see them, and the next writer
removes them.
"""

from collections.abc import Hashable, Sequence
from copy import copy

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidemark.base import thresholds
from tidemark.base.errors import ConflictError
from tidemark.base.failpoint import pass_fail_point
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.base.telemetry import MAX_TRACED_ARRIVALS, TracedArrival
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.helper_columns import WATERMARK_AFTER
from tidemark.define.source import Source
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS
from tidemark.define.triggers.firings import next_tick
from tidemark.store import integrity
from tidemark.store.commits.conditions import InRanges, at_least, number_in
from tidemark.store.event_log.arrival import (
    NO_ARRIVALS,
    TIMELINE,
    Arrival,
    RecentArrivals,
    event_time_range,
    read_arrivals,
    timeline_rows,
)
from tidemark.store.event_log.dead_letters import DEAD_LETTER_COLUMNS
from tidemark.store.event_log.fence import Fence
from tidemark.store.event_log.incoming_rows import ComputedRows, IncomingRows
from tidemark.store.event_log.log_columns import follow_definition, mask_properties, to_ddl
from tidemark.store.event_log.steps import Step
from tidemark.store.rows import Rows, to_frame, to_micros
from tidemark.store.rows import compute as pc
from tidemark.store.warehouse import Warehouse


def takeover_error(source: Source) -> ConflictError:
    """Return the error of an ingest that can't add to the event log any more."""
    return ConflictError(
        f"Another ingest of '{source.name}' has taken over, or its tables were restored from a "
        "copy, so this one stops. No event is lost or counted twice."
    )


class Log:
    """The event log, the dead letters and the timeline of one source.

    Any number of readers may use it. A writer calls `open_for_writing` or `take_over` once
    before its first `append_arrivals`. As soon as another writer does so, appends of the earlier
    writer are refused.

    Args:
        recent: arrivals that the caller has in memory; their rows are not read again.
    """

    def __init__(
        self, warehouse: Warehouse, source: Source, recent: RecentArrivals = NO_ARRIVALS
    ) -> None:
        self.warehouse = warehouse
        self.source = source
        self.schema_version = 1
        """The schema version of the event log, after a call of `ensure_tables`."""
        self.replaced: int | None = None
        """The newest arrival that has been read, for the record of replaced arrivals
        (`integrity.replaced_app`); None keeps the existing record."""
        self._epochs_of_bases = list[tuple[str, int]]()
        self.is_open = False
        """True after a call of `open_for_writing`."""
        self._recent = recent
        self._written: Hashable = None
        self._span: tuple[int, int] | None = None
        self._only: DataFrame | None = None
        self._without: DataFrame | None = None
        self._added: DataFrame | None = None
        app = integrity.ingest_app(source)
        self._log_fence = Fence(warehouse, source.log_table, app)
        self._dead_fence = Fence(warehouse, source.dead_letters_table, app)
        self._timeline_fence = Fence(warehouse, source.timeline_table, app)

    def open_for_writing(self) -> None:
        """Become the log's writer, unless this log is already. Create the tables if necessary."""
        if self.is_open:
            return
        with self.warehouse.pin_version(self.source.timeline_table):
            self.ensure_tables()
            self.take_over()
        self.is_open = True

    def ensure_tables(self) -> None:
        """Create the tables if they do not exist; add columns that the source has gained."""
        name = self.source.name
        columns = {**self.source.columns, **ARRIVAL_COLUMNS}
        # Fails if the secret key of a mask is missing, before any table is created.
        protection_properties = mask_properties(self.source)
        timeline = self.source.timeline_table
        log = self.source.log_table
        with self.warehouse.pin_version(timeline), self.warehouse.pin_version(log):
            created_timeline = self.warehouse.ensure_table(
                timeline,
                TIMELINE.empty_table(),
                f"One row for each arrival of {name}.",
            )
            created_log = self.warehouse.ensure_table(
                log,
                to_ddl(columns),
                f"Events of {name} with the facts of their arrival.",
                extra_properties=protection_properties,
            )
            created_letters = self.warehouse.ensure_table(
                self.source.dead_letters_table,
                to_ddl(DEAD_LETTER_COLUMNS),
                f"Dead letters of {name}: rows that could not be decoded.",
            )
            if not created_log:
                self.schema_version = follow_definition(self.warehouse, self.source)
            created_all = created_timeline and created_log and created_letters
            if not created_all and self.warehouse.newest_version(timeline) == 0:
                self.warehouse.register_tables(timeline, log, self.source.dead_letters_table)

    def read_timeline(
        self, after_arrival: int = -1, last_arrival: int | None = None
    ) -> list[Arrival]:
        """Return the arrivals with `after_arrival` < number <= `last_arrival`, in order."""
        end = INFINITY if last_arrival is None else last_arrival + 1
        rows = self.warehouse.load_rows(
            self.source.timeline_table, number_in("arrival", after_arrival + 1, end)
        )
        return read_arrivals(rows)

    def has_events(self, after_arrival: int, last_arrival: int) -> bool:
        """Return whether one of the arrivals (after_arrival, last_arrival] has an event."""
        conditions = (
            number_in("arrival", after_arrival + 1, last_arrival + 1),
            at_least("rows", 1),
        )
        rows = self.warehouse.load_rows(
            self.source.timeline_table, *conditions, columns=["arrival"]
        )
        return rows.num_rows > 0

    def has_few_events(self, last_arrival: int | None = None) -> bool:
        """Return whether the events of the arrivals up to `last_arrival` fit in memory.

        Without `last_arrival`, these are all arrivals.
        """
        end = INFINITY if last_arrival is None else last_arrival + 1
        in_arrivals = number_in("arrival", 0, end)
        rows = self.warehouse.load_rows(self.source.timeline_table, in_arrivals, columns=["rows"])[
            "rows"
        ]
        return (pc.sum(rows).as_py() or 0) <= thresholds.SMALL_BATCH_ROWS

    def find_last_arrival(self) -> Arrival | None:
        """Return the newest arrival; `None` before the first."""
        with self.warehouse.pin_version(self.source.timeline_table):
            newest = self.warehouse.max_value(self.source.timeline_table, "arrival")
            if newest is None:
                return None
            return self.read_timeline(newest - 1, newest)[0]

    def read_events(
        self,
        after_arrival: int,
        last_arrival: int,
        start: int | None = None,
        end: int | None = None,
    ) -> DataFrame:
        """Return the event log's rows with `after_arrival` < arrival <= `last_arrival`.

        The timeline must have these arrivals.

        Args:
            start, end: only events with an event time in [start, end), in microseconds; None means
                unbounded.
        """
        if start is None and end is None:
            recent_rows = self._recent.rows_between(after_arrival, last_arrival)
            if recent_rows is not None:
                return to_frame(self.warehouse.spark, recent_rows)
        conditions = [number_in("arrival", after_arrival + 1, last_arrival + 1)]
        start_time = BEGINNING
        if start is not None:
            start_time = max(start, BEGINNING)
        end_time = INFINITY
        if end is not None:
            end_time = min(end, INFINITY)
        if start_time > BEGINNING or end_time < INFINITY:
            conditions.append(InRanges(self.source.event_time, ((start_time, end_time),)))
        with self.warehouse.pin_version(self.source.log_table):
            rows = self._select_declared(
                self.warehouse.read_frame(self.source.log_table, *conditions)
            )
        place_columns = ["arrival", "position"]
        if self._without is not None:
            rows = rows.join(self._without, place_columns, "left_anti")
        if self._added is not None:
            added = self._added
            for condition in conditions:
                added = added.where(condition.to_sql())
            rows = rows.unionByName(added)
        if self._only is not None:
            rows = rows.join(self._only, place_columns, "left_semi")
        return rows

    def estimate_events(self, after_arrival: int, last_arrival: int, start: int, end: int) -> int:
        """Return an estimate of the number of rows with an event time that `read_events`
        would return.

        The estimate is 0 only if there are none. It assumes that the events of an arrival are
        evenly distributed between the arrival's earliest and latest event time.

        Args:
            after_arrival, last_arrival, start, end: as for `read_events`.
        """
        conditions = [
            number_in("arrival", after_arrival + 1, last_arrival + 1),
            InRanges("max_event_time", ((max(start, BEGINNING), INFINITY),)),
            InRanges("min_event_time", ((BEGINNING, min(end, INFINITY)),)),
        ]
        columns = ["rows", "min_event_time", "max_event_time"]
        arrivals = self.warehouse.load_rows(
            self.source.timeline_table, *conditions, columns=columns
        )
        rows = arrivals["rows"].to_numpy()
        first_times = np.array(to_micros(arrivals["min_event_time"]), np.float64)
        last_times = np.array(to_micros(arrivals["max_event_time"]), np.float64)
        spans = last_times - first_times + 1
        spans_in_range = np.minimum(last_times, end - 1) - np.maximum(first_times, start) + 1
        return int(np.ceil(rows * (spans_in_range / spans)).sum())

    def with_only(self, events: DataFrame) -> "Log":
        """Return the same log, whose `read_events` returns only the given events.

        Args:
            events: their `arrival` and `position`.
        """
        log = copy(self)
        log._recent = NO_ARRIVALS
        log._only = events
        return log

    def with_changes(
        self, without: DataFrame | None = None, added: DataFrame | None = None
    ) -> "Log":
        """Return the same log, whose `read_events` leaves out some events and adds others.

        Args:
            without: the `arrival` and `position` of events to leave out.
            added: further events, with the columns of the event log.
        """
        log = copy(self)
        log._recent = NO_ARRIVALS
        log._without = without
        log._added = added
        return log

    def read_event_time_range(
        self, after_arrival: int, last_arrival: int
    ) -> tuple[int, int] | None:
        """Return the range of event times of the arrivals (after_arrival, last_arrival].

        The range is the earliest and the latest event time, in microseconds; None if no event has
        an event time.
        """
        return event_time_range(self.read_timeline(after_arrival, last_arrival))

    def traced_arrivals(self, after_arrival: int, last_arrival: int) -> list[TracedArrival]:
        """Return the arrivals (after_arrival, last_arrival] for OpenTelemetry traces.

        Return only the newest `MAX_TRACED_ARRIVALS`.
        """
        location = self.warehouse.path_of("")
        name = self.source.name
        arrivals = self.read_timeline(
            max(after_arrival, last_arrival - MAX_TRACED_ARRIVALS), last_arrival
        )
        return [
            TracedArrival(location, name, arrival.arrival, arrival.arrived_at)
            for arrival in arrivals
        ]

    def limited_to_arrivals(self, after_arrival: int, last_arrival: int) -> "Log":
        """Return the same log, with `watermarks_after` restricted to some arrivals.

        These are the arrivals (after_arrival, last_arrival].

        A run then does not read the watermarks of all earlier arrivals.
        """
        log = copy(self)
        log._span = (after_arrival, last_arrival)
        return log

    def watermarks_after(self) -> DataFrame:
        """Return the watermark after each arrival, as columns `arrival` and `WATERMARK_AFTER`."""
        table = self.source.timeline_table
        if self._span is None:
            timeline = self.warehouse.read_frame(table)
        else:
            after_arrival, last_arrival = self._span
            recent_watermarks = self._recent.watermarks_after(after_arrival, last_arrival)
            if recent_watermarks is not None:
                return to_frame(self.warehouse.spark, recent_watermarks)
            in_span = number_in("arrival", after_arrival + 1, last_arrival + 1)
            timeline = self.warehouse.read_frame(table, in_span)
        return timeline.select("arrival", F.unix_micros("watermark_after").alias(WATERMARK_AFTER))

    def few_watermarks_after(self) -> Sequence[tuple[int, int | None]] | None:
        """Return the result of `watermarks_after` in memory, as pairs.

        Return None if `limited_to_arrivals` was not called, or if there are many arrivals.
        """
        if self._span is None:
            return None
        after_arrival, last_arrival = self._span
        if last_arrival - after_arrival > thresholds.LISTED_ARRIVALS:
            return None
        recent_watermarks = self._recent.watermarks_after(after_arrival, last_arrival)
        if recent_watermarks is not None:
            return list(zip(*recent_watermarks.to_pydict().values(), strict=True))
        arrivals = self.read_timeline(after_arrival, last_arrival)
        return [(arrival.arrival, arrival.after) for arrival in arrivals]

    def read_ticks(self, interval: int) -> DataFrame:
        """Return when processing time reached the multiples of an interval (ticks).

        Events wait only for the first tick after their own arrival. All other ticks are left out.
        The columns are BIGINT:

        - `tick`: the multiple of `interval`, in microseconds.
        - `arrival`: the first arrival whose processing time is not before the tick; null if there
          is none yet.
        - `watermark`: the watermark before that arrival.
        """
        timeline = self.warehouse.read_frame(self.source.timeline_table)
        clock = F.unix_micros("arrived_at")
        first = timeline.groupBy(next_tick(clock, interval).alias("tick")).agg(
            F.min("arrival").alias("first"),
            F.min_by(F.unix_micros("watermark_before"), "arrival").alias("before"),
        )
        # The next group starts with the arrival that reached this tick.
        order = Window.partitionBy(F.lit(0)).orderBy("tick")
        return first.select(
            "tick",
            F.lead("first").over(order).alias("arrival"),
            F.lead("before").over(order).alias("watermark"),
        )

    def read_epoch(self) -> tuple[str, int]:
        """Return the identity of the event log, and how often events were erased from it."""
        log = self.source.log_table
        with self.warehouse.pin_version(log):
            head = self.warehouse.find_head(log)
            if head is None:
                return "", 0
            return head.table_id, max(
                self.warehouse.transaction_version(log, integrity.ERASURES_APP), 0
            )

    def note_bases(self) -> None:
        """Note the epochs of the bases before their events are read, if the log does not exist."""
        self._epochs_of_bases = self._read_epochs_of_bases()

    def check_bases(self) -> None:
        """Check that no events were erased from the bases since `note_bases`.

        An erasure can't refuse the appends to a log that did not exist.
        """
        epochs = zip(self._epochs_of_bases, self._read_epochs_of_bases(), strict=True)
        for noted, current in epochs:
            # A base that had no event log may have one now.
            if current != noted and (noted[0] or current[1]):
                raise ConflictError(
                    f"Events of a source of '{self.source.name}' were erased at the same time. "
                    "Nothing was ingested. Run the command again."
                )

    def _read_epochs_of_bases(self) -> list[tuple[str, int]]:
        if not isinstance(self.source, DerivedSource):
            return []
        return [Log(self.warehouse, base).read_epoch() for base in self.source.base_sources]

    def take_over(self) -> None:
        """Become the log's writer, and delete rows of arrivals that the timeline does not have."""
        # Fence the timeline first: another writer can't add the arrivals of such rows after that.
        with self.warehouse.pin_version(self.source.timeline_table):
            self._timeline_fence.fence_off()
            newest = self.find_last_arrival()
        newest_arrival = -1 if newest is None else newest.arrival
        record = None
        if self.replaced is not None:
            record = {integrity.replaced_app(self.source): self.replaced}
        for fence in (self._log_fence, self._dead_fence):
            with self.warehouse.pin_version(fence.table):
                newest_in_table = self.warehouse.max_value(fence.table, "arrival")
                leftovers = None
                if newest_in_table is not None and newest_in_table > newest_arrival:
                    leftovers = f"arrival > {newest_arrival}"
                fence.fence_off(removing=leftovers, vouches=record)

    def append_arrivals(
        self, rows: Rows | ComputedRows, arrivals: Sequence[Arrival]
    ) -> pa.Table | None:
        """Append whole arrivals.

        The first commit is to the event log, the next to the dead letters, and the last to the
        timeline. A fail point precedes each of the three.

        Args:
            rows: all rows of these arrivals, as `IncomingRows` takes them, or `ComputedRows`.
            arrivals: the arrivals in order, following the timeline's last one.

        Returns:
            The rows that were appended to the event log; None if they are not in memory.

        Raises:
            ConflictError: another writer has called `take_over`, or the timeline has another newest
                arrival than the one that these arrivals follow.
        """
        self._demand_continuation(arrivals[0])
        events: Rows | None = None
        try:
            if any(arrival.brings_data for arrival in arrivals):
                if isinstance(rows, ComputedRows):
                    incoming = rows
                else:
                    incoming = IncomingRows(self.source, rows, arrivals)
                pass_fail_point("log")
                events = incoming.decoded_events()
                if events is not None:
                    self._log_fence.append_rows(events)
                pass_fail_point("dead_letters")
                dead_letters = incoming.dead_letters()
                if dead_letters is not None:
                    self._dead_fence.append_rows(dead_letters)
            pass_fail_point("timeline")
            # A new writer fences the timeline before the other tables. If this commit succeeds, no
            # new writer has therefore changed the other tables, and the commit can vouch for them.
            self._timeline_fence.append_rows(
                timeline_rows(arrivals), self.vouched_versions(arrivals[-1])
            )
        except ConflictError:
            raise takeover_error(self.source) from None
        self._written = self.warehouse.find_identity(self.source.timeline_table)
        if isinstance(events, DataFrame):
            return None
        return events

    def _demand_continuation(self, arrival: Arrival) -> None:
        """Raise an error if the timeline has another newest arrival than the one before `arrival`.

        The timeline is read only if it is not as this log's last commit has left it.
        """
        timeline = self.source.timeline_table
        with self.warehouse.pin_version(timeline):
            if self.warehouse.read_identity(timeline) == self._written:
                return
            newest = self.find_last_arrival()
        newest_id = "" if newest is None else newest.arrival_id
        if arrival.follows != newest_id:
            raise takeover_error(self.source)

    def vouched_versions(self, newest: Arrival | None) -> dict[str, int]:
        """Return what a commit to the timeline records about other tables (`store.integrity`).

        These are the present versions of the event log and of the dead letters, and for a derived
        source the newest arrival of each base that it has read.

        Args:
            newest: the newest arrival of the timeline after the commit.
        """
        tables = (self.source.log_table, self.source.dead_letters_table)
        vouched_versions = integrity.vouched_versions(
            self.warehouse, self._timeline_fence.app, tables
        )
        if isinstance(self.source, DerivedSource) and newest is not None:
            read_arrivals = Step.of_position(newest.position).taken_arrivals
            for base in self.source.base_sources:
                if base.name in read_arrivals:
                    vouched_versions[integrity.arrivals_app(base)] = read_arrivals[base.name]
        return vouched_versions

    def _select_declared(self, rows: DataFrame) -> DataFrame:
        """Return rows of the event log with the source's declared columns.

        A column that the event log does not have yet is null, because no event has arrived since
        the column was declared.
        """
        existing = self.warehouse.read_schema(self.source.log_table).names
        declared = {**self.source.columns, **ARRIVAL_COLUMNS}
        if set(existing) == set(declared):
            return rows
        columns = list[Column]()
        for name, kind in declared.items():
            if name in existing:
                columns.append(F.col(f"`{name}`"))
            else:
                columns.append(F.lit(None).cast(kind).alias(name))
        return rows.select(columns)
