"""What is judged: the rows that a commit is about to publish, and what they are judged by."""

from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.base.instants import BEGINNING
from tidemark.compute import pane
from tidemark.compute import rollups as rolling
from tidemark.define import aggregates as agg
from tidemark.define import verdict as judge
from tidemark.define.transform import WindowedTransform
from tidemark.store.log import Log
from tidemark.store.marker import Marker
from tidemark.store.ranges import Ranges, within
from tidemark.store.state import State, unsettled
from tidemark.store.warehouse import Warehouse


@dataclass(frozen=True)
class Batch:
    """Where the rows of one commit come from, and what stood there before."""

    warehouse: Warehouse
    transform: WindowedTransform
    marker: Marker

    @property
    def replaces(self) -> bool:
        return self.marker.replaces

    def published(self, back: int = 0) -> DataFrame:
        """The published rows of windows that this commit can change.

        Args:
            back: and of windows that started so many microseconds earlier.
        """
        return self._reached(self.transform.table, back)

    def withheld(self, back: int = 0) -> DataFrame:
        """The rows in quarantine; otherwise as `published`."""
        return self._reached(self.transform.quarantine_table, back)

    @cached_property
    def recounted(self) -> DataFrame:
        """The events of every window that this commit can change, counted anew from the log in
        one bounded pass that knows nothing of the state: the windows, keys and `events`."""
        transform, marker = self.transform, self.marker
        # Any aggregate will do: the events are what is counted.
        name = next(iter(transform.aggregates))
        counting = replace(transform, aggregates={name: agg.count()}, expectations=())
        store, through, ranges = self.warehouse, marker.after, self._ranges()
        log, complete = Log(store, transform.source), marker.answer == "complete"
        partials = rolling.counted(store, counting, through, ranges, complete=complete)
        if marker.mode in ("incremental", "rollup"):
            # What an earlier backfill of the complete answer admitted is no fault.
            waited = (F.col("verdict") == judge.TOO_LATE) & F.col("admitted")
            state = State(store, transform).read().where(within(rolling.held(transform, ranges)))
            partials = partials.unionByName(
                state.where(waited).withColumn(name, F.col("events")).select(partials.columns)
            )
        partials = rolling.placed(store, counting, partials, through)
        found = pane.finished(partials, counting, log, pane.as_of(through))
        return found.select(*transform.by_window, "events").persist()

    def forget(self) -> None:
        """Let the engine drop what was kept."""
        if "recounted" in self.__dict__:
            self.recounted.unpersist()

    def same_window(self, left: str, right: str) -> Column:
        """Whether two named sets of rows agree in window and keys; nulls agree too."""
        on = self.transform.by_window
        pairs = [F.col(f"{left}.{c}").eqNullSafe(F.col(f"{right}.{c}")) for c in on]
        same = pairs[0]
        for pair in pairs[1:]:
            same = same & pair
        return same

    def _reached(self, table: str, back: int) -> DataFrame:
        held = tuple((max(start - back, BEGINNING), end) for start, end in self._ranges())
        return self.warehouse.read(table).where(within(held))

    def _ranges(self) -> Ranges:
        """The window starts among which the commit's windows are."""
        marker, transform = self.marker, self.transform
        return marker.ranges if marker.replaces else unsettled(transform, marker.before)
