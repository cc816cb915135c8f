"""Read a source's event log and its timeline."""

from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tidemark.base import thresholds
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.base.telemetry import MAX_TRACED_ARRIVALS, TracedArrival
from tidemark.define.helper_columns import WATERMARK_AFTER
from tidemark.define.source import Source
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS
from tidemark.define.triggers.firings import next_tick
from tidemark.store.commits.conditions import InRanges, at_least, number_in
from tidemark.store.event_log.arrival import (
    NO_ARRIVALS,
    Arrival,
    RecentArrivals,
    event_time_range,
    read_arrivals,
)
from tidemark.store.integrity import vouching
from tidemark.store.rows import compute as pc
from tidemark.store.rows import to_frame, to_micros
from tidemark.store.warehouse import Warehouse


class LogReader:
    """The event log and the timeline of one source, for readers.

    Args:
        recent: arrivals that the caller has in memory; their rows are not read again.
    """

    def __init__(
        self, warehouse: Warehouse, source: Source, recent: RecentArrivals = NO_ARRIVALS
    ) -> None:
        self.warehouse = warehouse
        self.source = source
        self._recent = recent
        self._span: tuple[int, int] | None = None
        self._only: DataFrame | None = None
        self._without: DataFrame | None = None
        self._added: DataFrame | None = None

    def read_timeline(
        self, after_arrival: int = -1, last_arrival: int | None = None
    ) -> list[Arrival]:
        """Return the arrivals with `after_arrival` < number <= `last_arrival`, in order."""
        end = _end_after(last_arrival)
        in_arrivals = number_in("arrival", after_arrival + 1, end)
        rows = self.warehouse.load_rows(self.source.timeline_table, in_arrivals)
        return read_arrivals(rows)

    def has_events(self, after_arrival: int, last_arrival: int) -> bool:
        """Return whether one of the arrivals (after_arrival, last_arrival] has an event."""
        in_arrivals = number_in("arrival", after_arrival + 1, last_arrival + 1)
        has_rows = at_least("rows", 1)
        timeline = self.source.timeline_table
        rows = self.warehouse.load_rows(timeline, in_arrivals, has_rows, columns=["arrival"])
        return rows.num_rows > 0

    def has_few_events(self, last_arrival: int | None = None) -> bool:
        """Return whether the events of the arrivals up to `last_arrival` fit in memory.

        Without `last_arrival`, these are all arrivals.
        """
        in_arrivals = number_in("arrival", 0, _end_after(last_arrival))
        timeline = self.source.timeline_table
        arrivals = self.warehouse.load_rows(timeline, in_arrivals, columns=["rows"])
        event_count = pc.sum(arrivals["rows"]).as_py() or 0
        return event_count <= thresholds.SMALL_BATCH_ROWS

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
            logged = self.warehouse.read_frame(self.source.log_table, *conditions)
            rows = self._select_declared(logged)
        return self._apply_changes(rows, conditions)

    def _apply_changes(self, rows: DataFrame, conditions: Sequence[InRanges]) -> DataFrame:
        """Return rows after the changes of `with_changes` and `with_only`.

        Args:
            conditions: the conditions that the rows satisfy.
        """
        event_id = ["arrival", "position"]
        if self._without is not None:
            rows = rows.join(self._without, event_id, "left_anti")
        if self._added is not None:
            added = self._added
            for condition in conditions:
                added = added.where(condition.to_sql())
            rows = rows.unionByName(added)
        if self._only is not None:
            rows = rows.join(self._only, event_id, "left_semi")
        return rows

    def estimate_events(self, after_arrival: int, last_arrival: int, start: int, end: int) -> int:
        """Return an estimate of the number of rows with an event time that `read_events` returns.

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
        timeline = self.source.timeline_table
        arrivals = self.warehouse.load_rows(timeline, *conditions, columns=columns)
        rows = arrivals["rows"].to_numpy()
        first_times = np.array(to_micros(arrivals["min_event_time"]), np.float64)
        last_times = np.array(to_micros(arrivals["max_event_time"]), np.float64)
        spans = last_times - first_times + 1
        spans_in_range = np.minimum(last_times, end - 1) - np.maximum(first_times, start) + 1
        rows_in_range = rows * (spans_in_range / spans)
        return int(np.ceil(rows_in_range).sum())

    def with_only(self, events: DataFrame) -> Self:
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
    ) -> Self:
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
        after_arrival = max(after_arrival, last_arrival - MAX_TRACED_ARRIVALS)
        traced = list[TracedArrival]()
        for arrival in self.read_timeline(after_arrival, last_arrival):
            traced.append(TracedArrival(location, name, arrival.arrival, arrival.arrived_at))
        return traced

    def limited_to_arrivals(self, after_arrival: int, last_arrival: int) -> Self:
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
            arrivals, watermarks = recent_watermarks.to_pydict().values()
            return list(zip(arrivals, watermarks, strict=True))
        timeline = self.read_timeline(after_arrival, last_arrival)
        return [(arrival.arrival, arrival.after) for arrival in timeline]

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
            erasures = self.warehouse.transaction_version(log, vouching.ERASURES_APP)
            return head.table_id, max(erasures, 0)

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


def _end_after(last_arrival: int | None) -> int:
    """Return the end of a range of arrivals through `last_arrival`; None means all of them."""
    if last_arrival is None:
        return INFINITY
    return last_arrival + 1
