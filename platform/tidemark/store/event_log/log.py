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

import pyarrow as pa
from pyspark.sql import DataFrame

from tidemark.base.errors import ConflictError
from tidemark.base.failpoint import pass_fail_point
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.define.tidemark_columns import ARRIVAL_COLUMNS
from tidemark.store.event_log.arrival import (
    NO_ARRIVALS,
    TIMELINE,
    Arrival,
    RecentArrivals,
    timeline_rows,
)
from tidemark.store.event_log.dead_letters import DEAD_LETTER_COLUMNS
from tidemark.store.event_log.fence import Fence
from tidemark.store.event_log.incoming_rows import ComputedRows, IncomingRows
from tidemark.store.event_log.log_columns import follow_definition, mask_properties, to_ddl
from tidemark.store.event_log.log_reader import LogReader
from tidemark.store.event_log.steps import Step
from tidemark.store.integrity import vouching
from tidemark.store.rows import Rows
from tidemark.store.warehouse import Warehouse


def takeover_error(source: Source) -> ConflictError:
    """Return the error of an ingest that can't add to the event log any more."""
    return ConflictError(
        f"Another ingest of '{source.name}' has taken over, or its tables were restored from a "
        "copy, so this one stops. No event is lost or counted twice."
    )


class Log(LogReader):
    """The event log, the dead letters and the timeline of one source.

    Any number of readers may use it. A writer calls `open_for_writing` or `take_over` once before
    its first `append_arrivals`. As soon as another writer does so, appends of the earlier writer
    are refused.

    Args:
        recent: as for `LogReader`.
    """

    def __init__(
        self, warehouse: Warehouse, source: Source, recent: RecentArrivals = NO_ARRIVALS
    ) -> None:
        super().__init__(warehouse, source, recent)
        self.schema_version = 1
        """The schema version of the event log, after a call of `ensure_tables`."""
        self.replaced: int | None = None
        """The newest arrival that has been read, for the record of replaced arrivals
        (`vouching.replaced_app`); None keeps the existing record."""
        self.is_open = False
        """True after a call of `open_for_writing`."""
        self._epochs_of_bases = list[tuple[str, int]]()
        self._written: Hashable = None
        app = vouching.ingest_app(source)
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
        masks = mask_properties(self.source)
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
                extra_properties=masks,
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
        return [LogReader(self.warehouse, base).read_epoch() for base in self.source.base_sources]

    def take_over(self) -> None:
        """Become the log's writer, and delete rows of arrivals that the timeline does not have."""
        # Fence the timeline first: another writer can't add the arrivals of such rows after that.
        with self.warehouse.pin_version(self.source.timeline_table):
            self._timeline_fence.fence_off()
            newest = self.find_last_arrival()
        newest_arrival = -1 if newest is None else newest.arrival
        record = None
        if self.replaced is not None:
            record = {vouching.replaced_app(self.source): self.replaced}
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
            vouches = self.vouched_versions(arrivals[-1])
            self._timeline_fence.append_rows(timeline_rows(arrivals), vouches)
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
        versions = vouching.vouched_versions(self.warehouse, self._timeline_fence.app, tables)
        if isinstance(self.source, DerivedSource) and newest is not None:
            taken_arrivals = Step.of_position(newest.position).taken_arrivals
            for base in self.source.base_sources:
                if base.name in taken_arrivals:
                    versions[vouching.arrivals_app(base)] = taken_arrivals[base.name]
        return versions
