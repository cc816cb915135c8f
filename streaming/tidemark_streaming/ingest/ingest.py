"""Ingest a connector's records into the event log, exactly once.

Every commit is a set of whole arrivals, and the timeline lists the committed arrivals. If a process
is killed, the event log may have rows whose arrival is not in the timeline. The next process
removes these rows and continues after the timeline's last arrival. There is no other state that
could be lost.
"""

import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import overload

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base import telemetry, thresholds
from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, DefinitionError, TidemarkError
from tidemark.base.instants import duration
from tidemark.base.telemetry import Clock
from tidemark.compute.materialize import TempTables, temp_tables
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.pairing import is_paired
from tidemark.define.source import Source
from tidemark.engine.process import ProgressCallback, ignore_progress
from tidemark.engine.queries.planning import Planning
from tidemark.store import integrity
from tidemark.store.event_log.arrival import NO_ARRIVALS, Arrival, RecentArrivals
from tidemark.store.event_log.incoming_rows import ComputedRows
from tidemark.store.event_log.log import Log, taken_over
from tidemark.store.event_log.log_columns import protection
from tidemark.store.event_log.lookup_tables import current_versions
from tidemark.store.lineage import demand_current_source
from tidemark.store.rows import Rows
from tidemark.store.upkeep import short_logs
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.base.outage import Outage, engine_lost
from tidemark_streaming.connector import (
    CHUNK,
    Chunk,
    Connector,
    EstimatesRows,
    ExplainsErrors,
    Ingestion,
    InWarehouse,
    PollsRarely,
    Prefetching,
    ReportsUndeclared,
)
from tidemark_streaming.ingest.accepted_losses import without_losses
from tidemark_streaming.ingest.arrival_facts import (
    UnusableArrivalError,
    check_decodable,
    check_event_times,
    fold,
    observe,
)
from tidemark_streaming.ingest.computed_columns import compute_columns
from tidemark_streaming.ingest.ingest_record import lock_ingest, record_error
from tidemark_streaming.ingest.recorded_arrivals import RecordedArrivals
from tidemark_streaming.ingest.silence import Silence
from tidemark_streaming.ingest.value_checks import check_values

_FURNISHED = "furnish"
"""The application ID of the transaction that fills a lookup table which an ingestion provides."""

LOOK_EVERY = 0.2

_ROW_BYTES = 96
"""The memory that a row takes in addition to its data."""

_UNKNOWN = 1024
"""The assumed size of a row's data, in bytes, before any size is known."""


@dataclass(frozen=True)
class Ingested:
    """A commit of arrivals, and the progress after it.

    Args:
        arrivals: the arrivals of the commit.
        done: the number of pending arrivals that have been committed so far.
        pending: the number of arrivals that were pending at first.
        rows: the rows of the commit, as in the event log; None if they are not in memory.
    """

    arrivals: tuple[Arrival, ...]
    done: int
    pending: int
    rows: pa.Table | None = None

    @property
    def recent(self) -> RecentArrivals:
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
        yield from _bring(RecordedArrivals(log), connector, batch)


def follow(
    warehouse: Warehouse,
    connector: Connector,
    every: float = LOOK_EVERY,
    *,
    then: Callable[[Warehouse, RecentArrivals], None] | None = None,
    again: Callable[[], Warehouse] | None = None,
    on_progress: ProgressCallback = ignore_progress,
) -> Generator[Ingested]:
    """Poll and ingest pending arrivals until the stream ends, and yield after each commit.

    While the source is silent, a commit may be a heartbeat (`Source.heartbeat`).

    If a connector's servers or the engine do not respond, wait for them. During that time, no other
    ingest of the source can run.

    Args:
        every: seconds between two polls.
        then: called after each commit, with the arrivals of that commit, and with their rows if
            these are few. At the start and after an outage, it is called without arrivals: it must
            then process the arrivals in the event log.
        again: opens the warehouse in a new session once the engine is back; without it, a lost
            engine ends the ingest.
        on_progress: receives a message when something does not respond, and one when it is back.
    """
    connector = in_warehouse(connector, warehouse.location, warehouse.database)
    source, outage = connector.source, Outage(on_progress)
    timeline: RecordedArrivals | None = None
    behind = then is not None
    silence = Silence(None if source.heartbeat is None else duration(source.heartbeat))
    with (
        lock_ingest(warehouse, source) as held,
        record_error(held) as begun,
        ExitStack() as planned,
    ):
        while True:
            brought = False
            try:
                if timeline is not None and integrity.forget_replaced_tables(warehouse):
                    # The tables were restored from a copy, or recreated.
                    timeline, behind = None, then is not None
                    planned.pop_all().close()
                if timeline is None:
                    # Usually few rows arrive, so the planner settings are set once and not for each
                    # commit.
                    planned.enter_context(warehouse.planning(Planning.FEW))
                    timeline = RecordedArrivals(_trim_log(warehouse, source))
                if then is not None and behind and timeline:
                    with begun.other_work():
                        then(warehouse, NO_ARRIVALS)
                for commit in _poll(timeline, connector, silence):
                    if then is not None:
                        behind = True
                        with begun.other_work():
                            then(warehouse, commit.recent)
                    brought = True
                    yield commit
                behind = False
                outage.end()
                if timeline and timeline[-1].ends:
                    return
            except TidemarkError as error:
                silence.end()
                if engine_lost(error) and again is None:
                    raise
                if again is not None and engine_lost(error):
                    planned.pop_all()
                    warehouse, timeline = outage.retry(error, again), None
                    behind = then is not None
                else:
                    outage.wait(error)
                continue
            if then is None or not brought:
                # If `then` has processed arrivals, the next poll follows without a pause, because
                # new records have waited during the runs.
                rest = connector.poll_seconds if isinstance(connector, PollsRarely) else 0.0
                time.sleep(max(every, rest))


def end(warehouse: Warehouse, source: Source) -> Arrival:
    """End the stream: add an arrival without rows, after which the watermark is INFINITY.

    Every window closes. A stream that has ended accepts no more events; ending it again changes
    nothing.
    """
    if isinstance(source, DerivedSource):
        ends = " and ".join(f"`tidemark end {base.name}`" for base in source.bases)
        raise DefinitionError(
            f"'{source.name}' is computed from other sources, and ends after they end: run "
            f"{ends}, then `tidemark ingest {source.name}`."
        )
    with _open_log(warehouse, source) as log:
        log.open()
        last = log.last()
        if last is not None and last.ends:
            return last
        position = "{}" if last is None else without_losses(last.position)
        clock = time.time_ns() // 1000 if last is None else last.arrived_at
        return _append_empty(log, last, Chunk(position, clock, end=True))


def furnish(warehouse: Warehouse, ingestion: Ingestion) -> None:
    """Create and fill the lookup tables that an ingestion provides, unless they have been filled
    before."""
    for name, load in ingestion.lookups.items():
        table = ingestion.source.lookup_table(name)
        # An existing table may be empty, because the process that created it was killed before it
        # filled the table. Check therefore whether the transaction that fills the table exists.
        if warehouse.transaction(table, _FURNISHED) < 0:
            rows = load(warehouse.spark)
            if not warehouse.create(table, rows, f"Lookup tables of {ingestion.source.name}."):
                warehouse.register(table)
            warehouse.append(rows, table, _FURNISHED, 0)


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
            for commit in _bring(timeline, connector, batch):
                yield replace(commit, done=number, pending=total)


def in_warehouse(connector: Connector, location: str, database: str) -> Connector:
    """Return a copy of the connector that reads from the warehouse at `location`, in `database`.

    Return a connector that reads no tables of the warehouse unchanged.
    """
    if isinstance(connector, InWarehouse):
        return connector.in_warehouse(location, database)
    return connector


def _poll(
    timeline: RecordedArrivals, connector: Connector, silence: Silence
) -> Generator[Ingested]:
    """Commit the pending arrivals, or a heartbeat if there is no data and a heartbeat is due.
    Append them to `timeline`."""
    found_data = False
    for commit in _bring(timeline, connector, None):
        found_data = found_data or any(a.brings_data for a in commit.arrivals)
        yield commit
    if found_data:
        silence.end()
    # A source without arrivals needs no heartbeat: there is no position that the heartbeat could
    # repeat, and no window to close.
    elif timeline and not timeline[-1].ends and (silent := silence.poll()) is not None:
        last = timeline[-1]
        clock = max(time.time_ns() // 1000, last.arrived_at)
        chunk = Chunk(without_losses(last.position), clock, silent_since=clock - silent)
        timeline.append([_append_empty(timeline.log, last, chunk)])
        yield Ingested((timeline[-1],), 1, 1)


def _append_empty(log: Log, last: Arrival | None, chunk: Chunk) -> Arrival:
    versions = json.dumps(current_versions(log.warehouse, log.source))
    arrivals = fold(log.source, last, [chunk], {}, versions, log.schema_version)
    log.append(pa.table({}), arrivals)
    return arrivals[0]


@contextmanager
def _open_log(warehouse: Warehouse, source: Source) -> Iterator[Log]:
    """Yield the source's log, with this process as its only writer."""
    with lock_ingest(warehouse, source) as held, record_error(held):
        yield _trim_log(warehouse, source)


def _trim_log(warehouse: Warehouse, source: Source) -> Log:
    """Remove rows whose arrival is not in the timeline from the source's event log, and return the
    log.

    Such rows remain if an ingest is killed. Check first that the tables of the source and its bases
    are not damaged. If the log does not exist, `_bring` creates it when arrivals are accepted: an
    ingest that is refused creates nothing, so the definition can still be changed.
    """
    for base in source.bases if isinstance(source, DerivedSource) else ():
        integrity.demand(warehouse, base)
    is_checked = integrity.demand(warehouse, source)
    # Fails if the secret key of a mask is missing, before any data is read.
    protection(source)
    log = Log(warehouse, source)
    if is_checked:
        log.replaced = integrity.newest_read(warehouse, source)
    with warehouse.pin(source.timeline_table):
        if not warehouse.exists(source.timeline_table):
            return log
        try:
            log.open()
        except DefinitionError:
            # A stale source may have other columns, too. Its cause is then the reason.
            demand_current_source(warehouse, source)
            raise
    return log


def _open_new(log: Log) -> None:
    """Create the tables of a log that did not exist when it was opened.

    Raises:
        ConflictError: another ingest has created them in the meantime, and added arrivals.
    """
    if log.is_open:
        return
    log.open()
    if log.last() is not None:
        raise taken_over(log.source)


def _bring(
    timeline: RecordedArrivals, connector: Connector, batch: int | None
) -> Generator[Ingested]:
    """Commit the arrivals that are pending after `timeline`, and append them to `timeline`."""
    log = timeline.log
    if log.source.mask and not getattr(connector, "protects", False):
        raise DefinitionError(
            f"Source '{log.source.name}' has protected columns, and {type(connector).__name__} "
            "does not protect them: use a connector of Tidemark."
        )
    chunks = list(connector.pending(timeline))
    last = timeline[-1] if timeline else None
    if chunks and last is not None and last.ends:
        raise DataError(
            f"Source '{log.source.name}' ended with arrival {last.arrival}, so it can't accept the "
            f"{format_count(len(chunks), 'pending arrival')}. Ingest them into a source with "
            "another name."
        )
    if not chunks:
        _open_new(log)
    done, part = 0, _together(chunks, timeline, batch, thresholds.FIRST_COMMIT_BYTES)
    try:
        while part:
            stops: UnusableArrivalError | None = None
            following = _together(
                chunks[done + len(part) :], timeline, batch, thresholds.COMMIT_BYTES
            )
            try:
                arrivals, rows = _commit(log, connector, timeline, part, following)
            except UnusableArrivalError as error:
                if not error.before:
                    raise
                # The arrivals before the unusable one are ingested first.
                stops = error
                part = part[: error.before]
                arrivals, rows = _commit(log, connector, timeline, part)
            timeline.append(arrivals)
            short_logs.of_source(log.warehouse, log.source, arrivals[-1].arrival)
            done, part = done + len(part), following
            yield Ingested(tuple(arrivals), done, len(chunks), rows)
            if stops is not None:
                raise stops
    finally:
        if isinstance(connector, Prefetching):
            connector.prefetch([])


def _together(
    chunks: Sequence[Chunk], timeline: Sequence[Arrival], batch: int | None, most: int
) -> Sequence[Chunk]:
    """Return the chunks at the beginning of `chunks` that one commit ingests.

    Args:
        most: the approximate limit of their size in memory, in bytes. The limit applies only if the
            connector reads its rows into memory.
    """
    # If a connector knows the number of rows, it reads the rows into memory.
    if batch is not None or not any(chunk.rows for chunk in chunks):
        return chunks[:batch]
    known = next((a for a in reversed(timeline) if a.rows), None)
    size = (_UNKNOWN if known is None else known.bytes // known.rows) + _ROW_BYTES
    taken = accumulate(chunk.rows * size for chunk in chunks)
    return chunks[: max(sum(total <= most for total in taken), 1)]


def _commit(
    log: Log,
    connector: Connector,
    timeline: Sequence[Arrival],
    chunks: Sequence[Chunk],
    following: Sequence[Chunk] = (),
) -> tuple[list[Arrival], pa.Table | None]:
    """Commit chunks. Return their arrivals, and their rows as in the event log if they are few.

    Args:
        timeline: the arrivals before the chunks.
        following: the chunks that will be requested from the connector next.
    """
    clock = Clock()
    last = timeline[-1] if timeline else None
    first = 0 if last is None else last.arrival + 1
    try:
        versions = json.dumps(current_versions(log.warehouse, log.source))
        with temp_tables(log.warehouse) as place:
            # Rows are read once: a file that is still growing would give other rows the second
            # time.
            few = (
                sum(c.bytes for c in chunks) <= thresholds.SMALL_BATCH_BYTES
                and sum(c.rows for c in chunks) <= thresholds.SMALL_BATCH_ROWS
            )
            rows = connector.read(log.warehouse.spark, chunks)
            if isinstance(connector, Prefetching):
                connector.prefetch(following)
            clock.record_step("read")
            mode = Planning.of(few)
            if few and isinstance(rows, DataFrame) and isinstance(connector, EstimatesRows):
                # Even if a base has few new rows, they may join with many rows of the other base,
                # or end the wait of many rows.
                mode = Planning.for_repeated_query(connector.rows_to_read())
                few = mode is not Planning.MANY
            planning = log.warehouse.planning
            with nullcontext() if isinstance(rows, pa.Table) else planning(mode):
                computed: ComputedRows | None = None
                if isinstance(rows, DataFrame) and not few and is_paired(log.source):
                    computed = _compute(log.source, rows, last, chunks, place)
                    rows = computed.summary().withColumn(CHUNK, F.col("arrival") - first)
                else:
                    rows = compute_columns(log.warehouse.spark, log.source, rows)
                    if isinstance(rows, DataFrame) and few:
                        rows = place.materialize(rows, few=True)
                    rows = check_values(log.source, rows)
                    if isinstance(rows, DataFrame):
                        rows = place.materialize(rows, few=False)
                    elif not isinstance(rows, pa.Table):
                        rows = place.gather(rows)
                facts = observe(log.source, rows, chunks, log.warehouse.spark, planning(mode))
                if isinstance(connector, ReportsUndeclared):
                    seen = connector.undeclared_fields()
                    facts = {n: replace(f, undeclared=seen.get(n, ())) for n, f in facts.items()}
                if not getattr(connector, "accept_change", True):
                    check_decodable(log.source.name, facts, timeline)
                    check_event_times(
                        log.source,
                        facts,
                        timeline,
                        must_have_event_times=getattr(connector, "must_have_event_times", False),
                    )
                _open_new(log)
                arrivals = fold(log.source, last, chunks, facts, versions, log.schema_version)
                clock.record_step("decode")
                logged = log.append(computed or _number_arrivals(rows, first), arrivals)
                clock.record_step("write")
    except PySparkException as error:
        known = connector.explain(error) if isinstance(connector, ExplainsErrors) else None
        if known is None:
            raise
        raise known from error
    if telemetry.is_enabled():
        events = sum(a.rows for a in arrivals)
        span = clock.span(f"ingest {log.source.name}", events=events)
        numbers = arrivals[0].arrival - 1, arrivals[-1].arrival
        telemetry.report(log.traced_arrivals(*numbers), span, begins=True)
    # Reading many rows from the log's files is faster than sending them to the engine.
    return arrivals, logged if few else None


def _compute(
    source: Source,
    rows: DataFrame,
    last: Arrival | None,
    chunks: Sequence[Chunk],
    place: TempTables,
) -> ComputedRows:
    """Compute many new rows of a join, with the columns of the event log.

    No check of the values is necessary, because the rows come from event logs. Computing the rows
    twice gives the same rows. The watermarks of a derived source do not depend on its rows, so the
    rows can be computed without the `Facts` of the arrivals.
    """
    arrivals = fold(source, last, chunks, {}, "{}", 1)
    rows = _number_arrivals(rows, arrivals[0].arrival)
    return ComputedRows(source, rows, arrivals, partial(place.materialize, few=False))


@overload
def _number_arrivals(rows: DataFrame, first: int) -> DataFrame: ...
@overload
def _number_arrivals(rows: pa.Table, first: int) -> pa.Table: ...
def _number_arrivals(rows: Rows, first: int) -> Rows:
    """Return rows with the column `arrival`. `first` is the arrival number of the first chunk."""
    if isinstance(rows, DataFrame):
        return rows.withColumn("arrival", F.col(CHUNK) + first)
    return rows.append_column("arrival", pa.array(rows[CHUNK].to_numpy() + first, pa.int64()))
