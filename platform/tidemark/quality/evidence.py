"""What rows are judged by: what stood there before, and what the log has."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import BEGINNING
from tidemark.compute import pane, rollups
from tidemark.compute.compare import same_window
from tidemark.compute.held import Scratch
from tidemark.compute.settled import changing, settled
from tidemark.define import aggregates as agg
from tidemark.define import verdict as judge
from tidemark.define.aggregates.combiner import OVERFLOWED
from tidemark.define.definition import Definition
from tidemark.define.expectations.expectation import Evidence, Expectation, Verdict, Windowed
from tidemark.define.expectations.general import General
from tidemark.engine.planning import Planning
from tidemark.quality import gx
from tidemark.store.asset import Asset
from tidemark.store.conditions import Within
from tidemark.store.marker import Marker
from tidemark.store.ranges import Ranges
from tidemark.store.rows import Rows, frame


@dataclass(frozen=True)
class Batch:
    """The rows of one commit: where they come from, and what stood there before.

    Args:
        scratch: where what is computed for judging is held.
        few: whether that is little.
        few_events: whether the log's events are few.
        planning: how the engine goes about those.
        counting: the count of the log's events, where it has begun.
        guarded: whether the rows are to be validated at all.
        overflowed: whether some value of theirs is more than its type holds.
        rows: the rows themselves, while they are judged in the engine.
    """

    asset: Asset
    marker: Marker
    scratch: Scratch
    few: bool
    few_events: bool
    planning: Planning
    counting: Future[Rows] | None = None
    guarded: bool = False
    overflowed: bool = False
    rows: DataFrame | None = None

    @property
    def transform(self) -> Definition:
        return self.asset.transform

    @property
    def expectations(self) -> Sequence[Expectation]:
        """What the rows are validated by: what the transform declares, and that their values are
        those of the events."""
        declared = self.transform.expectations
        if not self.overflowed and declared:
            return declared
        aggregates = self.transform.aggregates.items()
        return [*declared, *(fits(n, str(a)) for n, a in aggregates if a.overflowed is not None)]

    @property
    def replaces(self) -> bool:
        return self.marker.replaces_windows

    def published(self, back: int = 0) -> DataFrame:
        return self._reached(self.transform.table, back)

    def withheld(self, back: int = 0) -> DataFrame:
        return self._reached(self.transform.quarantine_table, back)

    @property
    def judged(self) -> DataFrame:
        assert self.rows is not None
        return self.rows

    @property
    def recounted(self) -> DataFrame:
        return frame(self.asset.warehouse.spark, self._recounted)

    @contextmanager
    def ahead(self) -> Iterator["Batch"]:
        """The same, made ready for judging while the rows are computed: where they are judged by
        the log's events, these are counted anew, and Great Expectations is imported."""
        if any(isinstance(e, General) for e in self.transform.expectations):
            self.asset.warehouse.beside(gx.prepare)
        asked = any(isinstance(e, Windowed) and e.confirmed for e in self.transform.expectations)
        if not asked:
            yield self
            return
        if not self.few:
            # Of many, both would need all of the engine.
            yield self.afresh()
            return
        counting = self.asset.warehouse.beside(self._recount)
        try:
            yield replace(self, counting=counting)
        finally:
            wait([counting])

    def afresh(self) -> "Batch":
        """The same, counted once more by a query of its own."""
        counted = Future[Rows]()
        counted.set_result(self._recount())
        return replace(self, counting=counted)

    @cached_property
    def _recounted(self) -> Rows:
        return self._recount() if self.counting is None else self.counting.result()

    def _recount(self) -> Rows:
        with self.asset.warehouse.planning(self.planning):
            found = self._recountable()
            return self.scratch.hold(found, few=self.few_events)

    def _recountable(self) -> DataFrame:
        transform, marker, asset = self.transform, self.marker, self.asset
        # Any aggregate will do: the events are what is counted.
        name = next(iter(transform.aggregates))
        counting = replace(transform, aggregates={name: agg.count()}, expectations=())
        through, ranges = marker.after, self.ranges()
        complete = marker.answer == "complete" and not marker.merges
        partials = rollups.counted(asset.warehouse, counting, through, ranges, complete=complete)
        if not marker.mode.replaces or marker.merges:
            # What an earlier backfill of the complete answer admitted is no fault.
            waited = (F.col("verdict") == judge.TOO_LATE) & F.col("admitted")
            if marker.seq > 0 and asset.state.life() is not None:
                state = asset.state.read(rollups.held(transform, ranges)).where(waited)
                counted = state.withColumn(name, F.col("events"))
                partials = partials.unionByName(counted, allowMissingColumns=True)
        partials = rollups.placed(asset.warehouse, counting, partials, through)
        found = pane.finished(partials, counting, asset.log, pane.as_of(through))
        if transform.window.merges and ranges:
            # A session that began before, and can't have changed, was counted in part.
            end = settled(transform, marker.before)
            found = found.where(f"window_end > timestamp_micros({end})")
        return found.select(*transform.by_window, "events")

    def same_window(self, left: str, right: str) -> Column:
        return same_window(self.transform, left, right)

    def ranges(self, back: int = 0) -> Ranges:
        """The window starts among which the commit's windows are, and `back` microseconds more."""
        ranges = changing(self.transform, self.marker)
        return tuple((max(start - back, BEGINNING), end) for start, end in ranges)

    def _reached(self, table: str, back: int) -> DataFrame:
        ranges = self.ranges(back)
        return self.asset.warehouse.read(table, Within("window_start", ranges))


def fits(column: str, aggregate: str) -> Windowed:
    """The type of an aggregate holds its value, which is null otherwise."""

    def judge(rows: DataFrame, _: Evidence) -> Verdict:
        return Verdict(rows, F.array_contains(OVERFLOWED, column), F.lit("more than it holds"))

    return Windowed(
        name=f"{column}: {aggregate} fits its type",
        expected="a value that its type holds",
        columns=(OVERFLOWED,),
        judge=judge,
    )
