"""Ingest a connector's records into the event log, exactly once.

Every commit is a set of whole arrivals, and the timeline lists the committed arrivals. If a process
is killed, the event log may have rows whose arrival is not in the timeline. The next process
removes these rows and continues after the timeline's last arrival. There is no other state that
could be lost.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate

import pyarrow as pa

from tidemark.base import thresholds
from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, DefinitionError, TidemarkError
from tidemark.base.instants import parse_duration
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.engine.process import ProgressCallback, ignore_progress
from tidemark.engine.queries.planning import Planning
from tidemark.store.event_log.arrival import NO_ARRIVALS, Arrival, RecentArrivals
from tidemark.store.event_log.log import Log
from tidemark.store.event_log.log_columns import mask_properties
from tidemark.store.integrity import table_check
from tidemark.store.lineage import demand_current_source
from tidemark.store.upkeep import short_logs
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.base.outage import Outage, engine_lost
from tidemark_streaming.connector import (
    Chunk,
    Connector,
    Ingestion,
    InWarehouse,
    PollsRarely,
    Prefetching,
)
from tidemark_streaming.ingest.accepted_losses import without_losses
from tidemark_streaming.ingest.chunk_commit import append_empty, commit_chunks, open_new
from tidemark_streaming.ingest.ingest_record import Ingest, lock_ingest, record_error
from tidemark_streaming.ingest.recorded_arrivals import RecordedArrivals
from tidemark_streaming.ingest.silence import Silence
from tidemark_streaming.ingest.unusable_arrivals import UnusableArrivalError

_FURNISHED = "furnish"
"""The application ID of the transaction that fills a lookup table which an ingestion provides."""

POLL_SECONDS = 0.2

_ROW_BYTES = 96
"""The memory that a row takes in addition to its data."""

_UNKNOWN = 1024
"""The assumed size of a row's data, in bytes, before any size is known."""


CommitCallback = Callable[[Warehouse, RecentArrivals], None]
"""A function that processes the arrivals of a commit, with the warehouse that has them."""


@dataclass(frozen=True)
class Ingested:
    """A commit of arrivals, and the progress after it.

    Args:
        arrivals: the arrivals of the commit.
        committed: the number of pending arrivals that have been committed so far.
        pending: the number of arrivals that were pending at first.
        rows: the rows of the commit, as in the event log; None if they are not in memory.
    """

    arrivals: tuple[Arrival, ...]
    committed: int
    pending: int
    rows: pa.Table | None = None

    @property
    def recent_arrivals(self) -> RecentArrivals:
        """The commit's arrivals, for a run that should not read them again."""
        return RecentArrivals(self.arrivals, self.rows)


def ingest(
    warehouse: Warehouse, connector: Connector, *, batch: int | None = 1
) -> Generator[Ingested]:
    """Ingest the pending arrivals, and yield after each commit.

    Args:
        batch: the number of arrivals per commit; None to commit as many as possible at once (a bulk
            load). The content of the event log does not depend on it.
    """
    connector = in_warehouse(connector, warehouse.location, warehouse.database)
    with _open_log(warehouse, connector.source) as log:
        yield from _commit_pending(RecordedArrivals(log), connector, batch)


def follow_source(
    warehouse: Warehouse,
    connector: Connector,
    poll_seconds: float = POLL_SECONDS,
    *,
    on_commit: CommitCallback | None = None,
    reopen: Callable[[], Warehouse] | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> Generator[Ingested]:
    """Poll and ingest pending arrivals until the stream ends, and yield after each commit.

    While the source is silent, a commit may be a heartbeat (`Source.heartbeat`).

    If a connector's servers or the engine do not respond, wait for them. During that time, no other
    ingest of the source can run.

    Args:
        poll_seconds: seconds between two polls.
        on_commit: called after each commit, with the arrivals of that commit, and with their rows
            if these are few. At the start and after an outage, it is called without arrivals: it
            must then process the arrivals in the event log.
        reopen: opens the warehouse in a new session once the engine is back; without it, a lost
            engine ends the ingest.
        on_progress: receives a message when something does not respond, and one when it is back.
    """
    connector = in_warehouse(connector, warehouse.location, warehouse.database)
    source = connector.source
    outage = Outage(on_progress)
    silence = Silence(None if source.heartbeat is None else parse_duration(source.heartbeat))
    with (
        lock_ingest(warehouse, source) as lock,
        record_error(lock) as record,
        ExitStack() as planning,
    ):
        follower = _Follower(warehouse, connector, silence, on_commit, record, planning)
        while True:
            has_commits = False
            try:
                for commit in follower.poll_source():
                    has_commits = True
                    yield commit
                outage.end_outage()
                if follower.has_ended:
                    return
            except TidemarkError as error:
                silence.end_silence()
                if not engine_lost(error):
                    outage.wait_to_retry(error)
                elif reopen is None:
                    raise
                else:
                    follower.restart_session(outage.retry_attempt(error, reopen))
                continue
            if on_commit is None or not has_commits:
                # If `on_commit` has processed arrivals, the next poll follows without a pause,
                # because new records have waited during the runs.
                pause = connector.poll_seconds if isinstance(connector, PollsRarely) else 0.0
                time.sleep(max(poll_seconds, pause))


class _Follower:
    """A source that is polled again and again, with the arrivals that are known so far.

    Args:
        on_commit: as for `follow_source`.
        record: the record of the ingest's errors.
        planning: receives the planner settings, which it restores when it is closed.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        connector: Connector,
        silence: Silence,
        on_commit: CommitCallback | None,
        record: Ingest,
        planning: ExitStack,
    ) -> None:
        self._warehouse = warehouse
        self._connector = connector
        self._silence = silence
        self._on_commit = on_commit
        self._record = record
        self._planning = planning
        self._timeline: RecordedArrivals | None = None
        # True if the event log may have arrivals with which `on_commit` has not been called.
        self._is_behind = True

    @property
    def has_ended(self) -> bool:
        return bool(self._timeline) and self._timeline[-1].ends_source

    def poll_source(self) -> Generator[Ingested]:
        """Ingest the pending arrivals, and yield after each commit."""
        timeline = self._open_timeline()
        if self._is_behind and timeline:
            self._call_back(NO_ARRIVALS)
        for commit in _poll_once(timeline, self._connector, self._silence):
            self._is_behind = True
            self._call_back(commit.recent_arrivals)
            yield commit
        self._is_behind = False

    def restart_session(self, warehouse: Warehouse) -> None:
        """Continue in another session, because the engine was lost."""
        # The planner settings were lost with the session, so there is nothing to restore.
        self._planning.pop_all()
        self._warehouse = warehouse
        self._timeline = None
        self._is_behind = True

    def _open_timeline(self) -> RecordedArrivals:
        """Return the known arrivals. Read them again if another process has replaced the tables."""
        if self._timeline is not None and table_check.forget_replaced_tables(self._warehouse):
            # The tables were restored from a copy, or recreated.
            self._timeline = None
            self._is_behind = True
            self._planning.pop_all().close()
        if self._timeline is None:
            # Usually few rows arrive, so the planner settings are set once and not for each commit.
            self._planning.enter_context(self._warehouse.use_planning(Planning.FEW))
            log = _trim_log(self._warehouse, self._connector.source)
            self._timeline = RecordedArrivals(log)
        return self._timeline

    def _call_back(self, recent: RecentArrivals) -> None:
        if self._on_commit is not None:
            with self._record.other_work():
                self._on_commit(self._warehouse, recent)


def end_source(warehouse: Warehouse, source: Source) -> Arrival:
    """End the stream: add an arrival without rows, after which the watermark is INFINITY.

    Every window closes. A stream that has ended accepts no more events; ending it again changes
    nothing.
    """
    if isinstance(source, DerivedSource):
        ends = " and ".join(f"`tidemark close {base.name}`" for base in source.base_sources)
        raise DefinitionError(
            f"'{source.name}' is computed from other sources, and ends after they end: run "
            f"{ends}, then `tidemark ingest {source.name}`."
        )
    with _open_log(warehouse, source) as log:
        log.open_for_writing()
        last = log.find_last_arrival()
        if last is not None and last.ends_source:
            return last
        position = "{}" if last is None else without_losses(last.position)
        clock = time.time_ns() // 1000 if last is None else last.arrived_at
        return append_empty(log, last, Chunk(position, clock, end=True))


def fill_lookup_tables(warehouse: Warehouse, ingestion: Ingestion) -> None:
    """Create and fill the lookup tables that an ingestion provides, unless they have been filled
    before."""
    for name, load in ingestion.lookups.items():
        table = ingestion.source.lookup_table(name)
        # An existing table may be empty, because the process that created it was killed before it
        # filled the table. Check therefore whether the transaction that fills the table exists.
        if warehouse.transaction_version(table, _FURNISHED) < 0:
            rows = load(warehouse.spark)
            if not warehouse.ensure_table(
                table, rows, f"Lookup tables of {ingestion.source.name}."
            ):
                warehouse.register_tables(table)
            warehouse.append_rows(rows, table, _FURNISHED, 0)


def ingest_each(
    warehouse: Warehouse,
    source: Source,
    connectors: Iterable[tuple[Connector, int, int]],
    *,
    batch: int | None = 1,
) -> Generator[Ingested]:
    """Ingest the pending arrivals of several connectors of a source, one connector after another.

    The ingest lock is held until all connectors are done.

    Args:
        connectors: the connectors, each with its number, counted from 1, and the total number of
            connectors.
        batch: the number of arrivals per commit; None to commit as many as possible at once.
    """
    with _open_log(warehouse, source) as log:
        timeline = RecordedArrivals(log)
        for connector, number, total in connectors:
            for commit in _commit_pending(timeline, connector, batch):
                yield replace(commit, committed=number, pending=total)


def in_warehouse(connector: Connector, location: str, database: str) -> Connector:
    """Return a copy of the connector that reads from the warehouse at `location`, in `database`.

    Return a connector that reads no tables of the warehouse unchanged.
    """
    if isinstance(connector, InWarehouse):
        return connector.in_warehouse(location, database)
    return connector


def _poll_once(
    timeline: RecordedArrivals, connector: Connector, silence: Silence
) -> Generator[Ingested]:
    """Commit the pending arrivals, or a heartbeat if there is no data and a heartbeat is due.
    Append them to `timeline`."""
    found_data = False
    for commit in _commit_pending(timeline, connector, None):
        found_data = found_data or any(a.brings_data for a in commit.arrivals)
        yield commit
    if found_data:
        silence.end_silence()
    # A source without arrivals needs no heartbeat: there is no position that the heartbeat could
    # repeat, and no window to close.
    elif (
        timeline
        and not timeline[-1].ends_source
        and (silent := silence.record_empty_poll()) is not None
    ):
        last = timeline[-1]
        clock = max(time.time_ns() // 1000, last.arrived_at)
        chunk = Chunk(without_losses(last.position), clock, silent_since=clock - silent)
        timeline.append([append_empty(timeline.log, last, chunk)])
        yield Ingested((timeline[-1],), 1, 1)


@contextmanager
def _open_log(warehouse: Warehouse, source: Source) -> Iterator[Log]:
    """Yield the source's log, with this process as its only writer."""
    with lock_ingest(warehouse, source) as lock, record_error(lock):
        yield _trim_log(warehouse, source)


def _trim_log(warehouse: Warehouse, source: Source) -> Log:
    """Remove rows whose arrival is not in the timeline from the source's event log, and return the
    log.

    Such rows remain if an ingest is killed. Check first that the tables of the source and its bases
    are not damaged. If the log does not exist, `_commit_pending` creates it when arrivals are
    accepted: an ingest that is refused creates nothing, so the definition can still be changed.
    """
    for base in source.base_sources if isinstance(source, DerivedSource) else ():
        table_check.demand_intact(warehouse, base)
    is_checked = table_check.demand_intact(warehouse, source)
    # Fails if the secret key of a mask is missing, before any data is read.
    mask_properties(source)
    log = Log(warehouse, source)
    if is_checked:
        log.replaced = table_check.find_newest_read(warehouse, source)
    with warehouse.pin_version(source.timeline_table):
        if not warehouse.has_table(source.timeline_table):
            log.note_bases()
            return log
        try:
            log.open_for_writing()
        except DefinitionError:
            # A stale source may have other columns, too. Its cause is then the reason.
            demand_current_source(warehouse, source)
            raise
    return log


def _commit_pending(
    timeline: RecordedArrivals, connector: Connector, batch: int | None
) -> Generator[Ingested]:
    """Commit the arrivals that are pending after `timeline`, and append them to `timeline`."""
    log = timeline.log
    if log.source.mask and not getattr(connector, "protects", False):
        raise DefinitionError(
            f"Source '{log.source.name}' has protected columns, and {type(connector).__name__} "
            "does not protect them: use a connector of Tidemark."
        )
    chunks = list(connector.list_pending(timeline))
    last = timeline[-1] if timeline else None
    if chunks and last is not None and last.ends_source:
        raise DataError(
            f"Source '{log.source.name}' ended with arrival {last.arrival}, so it can't accept the "
            f"{format_count(len(chunks), 'pending arrival')}. Ingest them into a source with "
            "another name."
        )
    if not chunks:
        open_new(log)
    committed = 0
    part = _select_for_commit(chunks, timeline, batch, thresholds.FIRST_COMMIT_BYTES)
    try:
        while part:
            unusable: UnusableArrivalError | None = None
            next_part = _select_for_commit(
                chunks[committed + len(part) :], timeline, batch, thresholds.COMMIT_BYTES
            )
            try:
                arrivals, rows = commit_chunks(log, connector, timeline, part, next_part)
            except UnusableArrivalError as error:
                if not error.arrivals_before:
                    raise
                # The arrivals before the unusable one are ingested first.
                unusable = error
                part = part[: error.arrivals_before]
                arrivals, rows = commit_chunks(log, connector, timeline, part)
            timeline.append(arrivals)
            short_logs.of_source(log.warehouse, log.source, arrivals[-1].arrival)
            committed += len(part)
            part = next_part
            yield Ingested(tuple(arrivals), committed, len(chunks), rows)
            if unusable is not None:
                raise unusable
    finally:
        if isinstance(connector, Prefetching):
            connector.prefetch([])


def _select_for_commit(
    chunks: Sequence[Chunk], timeline: Sequence[Arrival], batch: int | None, max_bytes: int
) -> Sequence[Chunk]:
    """Return the chunks at the beginning of `chunks` that one commit ingests.

    Args:
        max_bytes: the approximate limit of their size in memory. The limit applies only if the
            connector reads its rows into memory.
    """
    # If a connector knows the number of rows, it reads the rows into memory.
    if batch is not None or not any(chunk.rows for chunk in chunks):
        return chunks[:batch]
    newest = next((arrival for arrival in reversed(timeline) if arrival.rows), None)
    row_bytes = _UNKNOWN
    if newest is not None:
        row_bytes = newest.bytes // newest.rows
    sizes = accumulate(chunk.rows * (row_bytes + _ROW_BYTES) for chunk in chunks)
    fitting = sum(size <= max_bytes for size in sizes)
    return chunks[: max(fitting, 1)]
