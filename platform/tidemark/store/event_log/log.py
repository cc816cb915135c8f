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
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
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
from tidemark.store.event_log.log_columns import ddl, follow, protection
from tidemark.store.event_log.steps import Step
from tidemark.store.rows import Rows, frame, to_micros
from tidemark.store.rows import compute as pc
from tidemark.store.warehouse import Warehouse


def taken_over(source: Source) -> ConflictError:
    """Return the error of an ingest that can't add to the event log any more."""
    return ConflictError(
        f"Another ingest of '{source.name}' has taken over, or its tables were restored from a "
        "copy, so this one stops. No event is lost or counted twice."
    )


class Log:
    """The event log, the dead letters and the timeline of one source.

    Any number of readers may use it. A writer calls `open` or `recover` once before its first
    `append`. As soon as another writer does so, appends of the earlier writer are refused.

    Args:
        recent: arrivals that the caller has in memory; their rows are not read again.
    """

    def __init__(
        self, warehouse: Warehouse, source: Source, recent: RecentArrivals = NO_ARRIVALS
    ) -> None:
        self.warehouse = warehouse
        self.source = source
        self.schema_version = 1
        """The schema version of the event log, after a call of `create`."""
        self.replaced: int | None = None
        """The newest arrival that has been read, for the record of replaced arrivals
        (`integrity.replaced_app`); None keeps the existing record."""
        self._epochs_of_bases = list[tuple[str, int]]()
        self.is_open = False
        """True after a call of `open`."""
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

    def open(self) -> None:
        """Become the log's writer, unless this log is already. Create the tables if necessary."""
        if self.is_open:
            return
        with self.warehouse.pin(self.source.timeline_table):
            self.create()
            self.recover()
        self.is_open = True

    def create(self) -> None:
        """Create the tables if they do not exist; add columns that the source has gained."""
        name, columns = self.source.name, {**self.source.columns, **ARRIVAL_COLUMNS}
        # Fails if the secret key of a mask is missing, before any table is created.
        ways = protection(self.source)
        timeline, log = self.source.timeline_table, self.source.log_table
        with self.warehouse.pin(timeline), self.warehouse.pin(log):
            begun = self.warehouse.create(
                timeline,
                TIMELINE.empty_table(),
                f"One row for each arrival of {name}.",
            )
            made = self.warehouse.create(
                log,
                ddl(columns),
                f"Events of {name} with the facts of their arrival.",
                extra_properties=ways,
            )
            kept = self.warehouse.create(
                self.source.dead_letters_table,
                ddl(DEAD_LETTER_COLUMNS),
                f"Dead letters of {name}: rows that could not be decoded.",
            )
            if not made:
                self.schema_version = follow(self.warehouse, self.source)
            whole = begun and made and kept
            if not whole and self.warehouse.version(timeline) == 0:
                self.warehouse.register(*self._tables)

    def timeline(self, after: int = -1, through: int | None = None) -> list[Arrival]:
        """Return the arrivals with `after` < number <= `through`, in order."""
        end = INFINITY if through is None else through + 1
        rows = self.warehouse.take(self.source.timeline_table, number_in("arrival", after + 1, end))
        return read_arrivals(rows)

    def has_events(self, after: int, through: int) -> bool:
        """Return whether one of the arrivals with `after` < number <= `through` has an event."""
        bounds = (number_in("arrival", after + 1, through + 1), at_least("rows", 1))
        rows = self.warehouse.take(self.source.timeline_table, *bounds, columns=["arrival"])
        return rows.num_rows > 0

    def few(self, through: int | None = None) -> bool:
        """Return whether the events of all arrivals, or of those up to `through`, fit in memory."""
        end = INFINITY if through is None else through + 1
        bound = number_in("arrival", 0, end)
        rows = self.warehouse.take(self.source.timeline_table, bound, columns=["rows"])["rows"]
        return (pc.sum(rows).as_py() or 0) <= thresholds.SMALL_BATCH_ROWS

    def last(self) -> Arrival | None:
        """Return the newest arrival; `None` before the first."""
        with self.warehouse.pin(self.source.timeline_table):
            newest = self.warehouse.max_value(self.source.timeline_table, "arrival")
            return None if newest is None else self.timeline(newest - 1, newest)[0]

    def read(
        self, after: int, through: int, start: int | None = None, end: int | None = None
    ) -> DataFrame:
        """Return the event log's rows with `after` < arrival <= `through`.

        The timeline must have these arrivals.

        Args:
            start, end: only events with an event time in [start, end), in microseconds; None means
                unbounded.
        """
        found = self._recent.within(after, through) if start is None and end is None else None
        if found is not None:
            return frame(self.warehouse.spark, found)
        bounds = [number_in("arrival", after + 1, through + 1)]
        low = BEGINNING if start is None else max(start, BEGINNING)
        high = INFINITY if end is None else min(end, INFINITY)
        if low > BEGINNING or high < INFINITY:
            bounds.append(InRanges(self.source.event_time, ((low, high),)))
        with self.warehouse.pin(self.source.log_table):
            rows = self._select_declared(self.warehouse.read(self.source.log_table, *bounds))
        place = ["arrival", "position"]
        if self._without is not None:
            rows = rows.join(self._without, place, "left_anti")
        if self._added is not None:
            added = reduce(DataFrame.where, (bound.sql() for bound in bounds), self._added)
            rows = rows.unionByName(added)
        return rows if self._only is None else rows.join(self._only, place, "left_semi")

    def estimate(self, after: int, through: int, start: int, end: int) -> int:
        """Return an estimate of the number of rows with an event time that `read` would return.

        The estimate is 0 only if there are none. It assumes that the events of an arrival are
        evenly distributed between the arrival's earliest and latest event time.

        Args:
            after, through, start, end: as for `read`.
        """
        bounds = [
            number_in("arrival", after + 1, through + 1),
            InRanges("max_event_time", ((max(start, BEGINNING), INFINITY),)),
            InRanges("min_event_time", ((BEGINNING, min(end, INFINITY)),)),
        ]
        columns = ["rows", "min_event_time", "max_event_time"]
        found = self.warehouse.take(self.source.timeline_table, *bounds, columns=columns)
        rows = found["rows"].to_numpy()
        first, last = (np.array(to_micros(found[name]), np.float64) for name in columns[1:])
        share = (np.minimum(last, end - 1) - np.maximum(first, start) + 1) / (last - first + 1)
        return int(np.ceil(rows * share).sum())

    def only(self, events: DataFrame) -> "Log":
        """Return the same log, whose `read` returns only the given events.

        Args:
            events: their `arrival` and `position`.
        """
        log = copy(self)
        log._recent, log._only = NO_ARRIVALS, events
        return log

    def with_changes(
        self, without: DataFrame | None = None, added: DataFrame | None = None
    ) -> "Log":
        """Return the same log, whose `read` leaves out some events and adds others.

        Args:
            without: the `arrival` and `position` of events to leave out.
            added: further events, with the columns of the event log.
        """
        log = copy(self)
        log._recent, log._without, log._added = NO_ARRIVALS, without, added
        return log

    def span(self, after: int, through: int) -> tuple[int, int] | None:
        """Return the range of event times of the arrivals with `after` < number <= `through`.

        The range is the earliest and the latest event time, in microseconds; None if no event has
        an event time.
        """
        return event_time_range(self.timeline(after, through))

    def traced_arrivals(self, after: int, through: int) -> list[TracedArrival]:
        """Return the arrivals with `after` < number <= `through`, for OpenTelemetry traces.

        Return only the newest `MAX_TRACED_ARRIVALS`.
        """
        place, name = self.warehouse.path(""), self.source.name
        found = self.timeline(max(after, through - MAX_TRACED_ARRIVALS), through)
        return [TracedArrival(place, name, a.arrival, a.arrived_at) for a in found]

    def spanning(self, after: int, through: int) -> "Log":
        """Return the same log, with `watermarks_after` restricted to the arrivals (after, through].

        A run then does not read the watermarks of all earlier arrivals.
        """
        log = copy(self)
        log._span = (after, through)
        return log

    def watermarks_after(self) -> DataFrame:
        """Return the watermark after each arrival, as columns `arrival` and `WATERMARK_AFTER`."""
        if (
            self._span is not None
            and (found := self._recent.watermarks_after(*self._span)) is not None
        ):
            return frame(self.warehouse.spark, found)
        bounds = (
            []
            if self._span is None
            else [number_in("arrival", self._span[0] + 1, self._span[1] + 1)]
        )
        timeline = self.warehouse.read(self.source.timeline_table, *bounds)
        return timeline.select("arrival", F.unix_micros("watermark_after").alias(WATERMARK_AFTER))

    def few_watermarks_after(self) -> Sequence[tuple[int, int | None]] | None:
        """Return the result of `watermarks_after` in memory, as pairs.

        Return None if the log is not restricted by `spanning`, or if there are many arrivals.
        """
        if self._span is None or self._span[1] - self._span[0] > thresholds.LISTED_ARRIVALS:
            return None
        if (found := self._recent.watermarks_after(*self._span)) is not None:
            return list(zip(*found.to_pydict().values(), strict=True))
        return [(a.arrival, a.after) for a in self.timeline(*self._span)]

    def ticks(self, interval: int) -> DataFrame:
        """Return when processing time reached the multiples of an interval (ticks).

        Events wait only for the first tick after their own arrival. All other ticks are left out.
        The columns are BIGINT:

        - `tick`: the multiple of `interval`, in microseconds.
        - `arrival`: the first arrival whose processing time is not before the tick; null if there
          is none yet.
        - `watermark`: the watermark before that arrival.
        """
        timeline = self.warehouse.read(self.source.timeline_table)
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

    def epoch(self) -> tuple[str, int]:
        """Return the identity of the event log, and how often events were erased from it."""
        log = self.source.log_table
        with self.warehouse.pin(log):
            head = self.warehouse.head(log)
            if head is None:
                return "", 0
            return head.table_id, max(self.warehouse.transaction(log, integrity.ERASURES_APP), 0)

    def note_bases(self) -> None:
        """Note the epochs of the bases before their events are read, if the log does not exist."""
        self._epochs_of_bases = self._read_epochs_of_bases()

    def check_bases(self) -> None:
        """Check that no events were erased from the bases since `note_bases`.

        An erasure can't refuse the appends to a log that did not exist.
        """
        epochs = zip(self._epochs_of_bases, self._read_epochs_of_bases(), strict=True)
        for before, now in epochs:
            # A base that had no event log may have one now.
            if now != before and (before[0] or now[1]):
                raise ConflictError(
                    f"Events of a source of '{self.source.name}' were erased at the same time. "
                    "Nothing was ingested. Run the command again."
                )

    def _read_epochs_of_bases(self) -> list[tuple[str, int]]:
        bases = self.source.bases if isinstance(self.source, DerivedSource) else ()
        return [Log(self.warehouse, base).epoch() for base in bases]

    def recover(self) -> None:
        """Become the log's writer, and delete rows of arrivals that the timeline does not have."""
        # Fence the timeline first: another writer can't add the arrivals of such rows after that.
        with self.warehouse.pin(self.source.timeline_table):
            self._timeline_fence.take()
            last = self.last()
        known = -1 if last is None else last.arrival
        record = None
        if self.replaced is not None:
            record = {integrity.replaced_app(self.source): self.replaced}
        for fence in (self._log_fence, self._dead_fence):
            with self.warehouse.pin(fence.table):
                beyond = self.warehouse.max_value(fence.table, "arrival")
                left = beyond is not None and beyond > known
                fence.take(removing=f"arrival > {known}" if left else None, vouches=record)

    def append(self, rows: Rows | ComputedRows, arrivals: Sequence[Arrival]) -> pa.Table | None:
        """Append whole arrivals.

        The first commit is to the event log, the next to the dead letters, and the last to the
        timeline. A fail point precedes each of the three.

        Args:
            rows: all rows of these arrivals, as `IncomingRows` takes them, or `ComputedRows`.
            arrivals: the arrivals in order, following the timeline's last one.

        Returns:
            The rows that were appended to the event log; None if they are not in memory.

        Raises:
            ConflictError: another writer has called `recover`, or the timeline has another newest
                arrival than the one that these arrivals follow.
        """
        self._demand_continuation(arrivals[0])
        events: Rows | None = None
        try:
            if any(a.brings_data for a in arrivals):
                computed = isinstance(rows, ComputedRows)
                arriving = rows if computed else IncomingRows(self.source, rows, arrivals)
                pass_fail_point("log")
                if (events := arriving.events()) is not None:
                    self._log_fence.append(events)
                pass_fail_point("dead_letters")
                if (dead := arriving.dead_letters()) is not None:
                    self._dead_fence.append(dead)
            pass_fail_point("timeline")
            # A new writer fences the timeline before the other tables. If this commit succeeds, no
            # new writer has therefore changed the other tables, and the commit can vouch for them.
            self._timeline_fence.append(timeline_rows(arrivals), self.vouches(arrivals[-1]))
        except ConflictError:
            raise taken_over(self.source) from None
        self._written = self.warehouse.find_identity(self.source.timeline_table)
        return None if isinstance(events, DataFrame) else events

    def _demand_continuation(self, arrival: Arrival) -> None:
        """Raise an error if the timeline has another newest arrival than the one before `arrival`.

        The timeline is read only if it is not as this log's last commit has left it.
        """
        timeline = self.source.timeline_table
        with self.warehouse.pin(timeline):
            if self.warehouse.identity(timeline) == self._written:
                return
            newest = self.last()
        if arrival.follows != ("" if newest is None else newest.arrival_id):
            raise taken_over(self.source)

    def vouches(self, last: Arrival | None) -> dict[str, int]:
        """Return what a commit to the timeline records about other tables (`store.integrity`).

        These are the present versions of the event log and of the dead letters, and for a derived
        source the newest arrival of each base that it has read.

        Args:
            last: the newest arrival of the timeline after the commit.
        """
        vouched = (self.source.log_table, self.source.dead_letters_table)
        recorded = integrity.vouches(self.warehouse, self._timeline_fence.app, vouched)
        if isinstance(self.source, DerivedSource) and last is not None:
            taken = Step.of_position(last.position).taken
            for base in self.source.bases:
                if base.name in taken:
                    recorded[integrity.arrivals_app(base)] = taken[base.name]
        return recorded

    def _select_declared(self, rows: DataFrame) -> DataFrame:
        """Return rows of the event log with the source's declared columns.

        A column that the event log does not have yet is null, because no event has arrived since
        the column was declared.
        """
        existing = self.warehouse.schema(self.source.log_table).names
        wanted = {**self.source.columns, **ARRIVAL_COLUMNS}
        if set(existing) == set(wanted):
            return rows
        return rows.select(
            *(
                F.col(f"`{name}`") if name in existing else F.lit(None).cast(kind).alias(name)
                for name, kind in wanted.items()
            )
        )

    @property
    def _tables(self) -> tuple[str, ...]:
        source = self.source
        return (source.timeline_table, source.log_table, source.dead_letters_table)
