"""Commit chunks of a connector to the event log: read, check and append their rows."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import overload

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.base import telemetry, thresholds
from tidemark.base.telemetry import Clock
from tidemark.compute.materialize import TempTables, temp_tables
from tidemark.define.derived.pairing import is_paired
from tidemark.define.source import Source
from tidemark.engine.queries.planning import Planning
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.incoming_rows import ComputedRows
from tidemark.store.event_log.log import Log, takeover_error
from tidemark.store.event_log.lookup_tables import current_versions
from tidemark.store.rows import Rows
from tidemark_streaming.connector import (
    CHUNK,
    Chunk,
    Connector,
    EstimatesRows,
    ExplainsErrors,
    Prefetching,
    ReportsUndeclared,
)
from tidemark_streaming.ingest.arrival_watermarks import to_arrivals
from tidemark_streaming.ingest.chunk_summary import ChunkSummary
from tidemark_streaming.ingest.computed_columns import compute_columns
from tidemark_streaming.ingest.row_summary import summarize_rows
from tidemark_streaming.ingest.unusable_arrivals import check_decodable, check_event_times
from tidemark_streaming.ingest.value_checks import check_values


def commit_chunks(
    log: Log,
    connector: Connector,
    timeline: Sequence[Arrival],
    chunks: Sequence[Chunk],
    next_chunks: Sequence[Chunk] = (),
) -> tuple[list[Arrival], pa.Table | None]:
    """Commit chunks. Return their arrivals, and their rows as in the event log if they are few.

    Args:
        timeline: the arrivals before the chunks.
        next_chunks: the chunks that will be requested from the connector next.
    """
    clock = Clock()
    try:
        versions = json.dumps(current_versions(log.warehouse, log.source))
        # Rows are read once: a file that is still growing would give other rows the second time.
        rows = connector.read(log.warehouse.spark, chunks)
        if isinstance(connector, Prefetching):
            connector.prefetch(next_chunks)
        clock.record_step("read")
        planning = _choose_planning(connector, chunks, rows)
        with _set_planning(log, rows, planning):
            arrivals, logged_rows = _append_rows(
                log, connector, timeline, chunks, rows, versions, planning, clock
            )
    except PySparkException as error:
        explained = (
            connector.explain_error(error) if isinstance(connector, ExplainsErrors) else None
        )
        if explained is None:
            raise
        raise explained from error
    _report_span(log, arrivals, clock)
    if planning is Planning.MANY:
        # Reading many rows from the log's files is faster than sending them to the engine.
        return arrivals, None
    return arrivals, logged_rows


def append_empty(log: Log, newest_arrival: Arrival | None, chunk: Chunk) -> Arrival:
    """Append a chunk without rows to the event log, and return its arrival."""
    versions = json.dumps(current_versions(log.warehouse, log.source))
    arrivals = to_arrivals(log.source, newest_arrival, [chunk], {}, versions, log.schema_version)
    log.append_arrivals(pa.table({}), arrivals)
    return arrivals[0]


def open_new(log: Log) -> None:
    """Create the tables of a log that did not exist when it was opened.

    Raises:
        ConflictError: another ingest has created them in the meantime, and added arrivals.
    """
    if log.is_open:
        return
    log.open_for_writing()
    if log.find_last_arrival() is not None:
        raise takeover_error(log.source)
    log.check_bases()


def _choose_planning(connector: Connector, chunks: Sequence[Chunk], rows: Rows) -> Planning:
    """Return the planning mode for the rows of some chunks. `MANY` means that they are many."""
    is_small = (
        sum(chunk.bytes for chunk in chunks) <= thresholds.SMALL_BATCH_BYTES
        and sum(chunk.rows for chunk in chunks) <= thresholds.SMALL_BATCH_ROWS
    )
    if is_small and isinstance(rows, DataFrame) and isinstance(connector, EstimatesRows):
        # Even if a base has few new rows, they may join with many rows of the other base, or end
        # the wait of many rows.
        return Planning.for_repeated_query(connector.rows_to_read())
    return Planning.for_size(is_small)


def _set_planning(log: Log, rows: Rows, planning: Planning) -> AbstractContextManager[None]:
    if isinstance(rows, pa.Table):
        return nullcontext()
    return log.warehouse.use_planning(planning)


def _append_rows(
    log: Log,
    connector: Connector,
    timeline: Sequence[Arrival],
    chunks: Sequence[Chunk],
    rows: Rows,
    versions: str,
    planning: Planning,
    clock: Clock,
) -> tuple[list[Arrival], pa.Table | None]:
    """Append the rows of chunks to the event log. Return their arrivals, and the appended rows.

    Args:
        versions: the versions of the lookup tables, as JSON.
    """
    source = log.source
    newest_arrival = timeline[-1] if timeline else None
    first = 0 if newest_arrival is None else newest_arrival.arrival + 1
    with temp_tables(log.warehouse) as scratch:
        computed: ComputedRows | None = None
        if isinstance(rows, DataFrame) and planning is Planning.MANY and is_paired(source):
            computed = _compute_join(source, rows, newest_arrival, chunks, scratch)
            rows = computed.summarize_rows().withColumn(CHUNK, F.col("arrival") - first)
        else:
            rows = _materialize_checked_rows(log, rows, planning, scratch)
        summaries = summarize_rows(
            source, rows, chunks, log.warehouse.spark, log.warehouse.use_planning(planning)
        )
        summaries = _add_undeclared_fields(connector, summaries)
        _check_usable(connector, timeline, summaries)
        open_new(log)
        arrivals = to_arrivals(
            source, newest_arrival, chunks, summaries, versions, log.schema_version
        )
        clock.record_step("decode")
        logged_rows = log.append_arrivals(computed or _number_arrivals(rows, first), arrivals)
        clock.record_step("write")
    return arrivals, logged_rows


def _materialize_checked_rows(
    log: Log, rows: Rows, planning: Planning, scratch: TempTables
) -> Rows:
    """Return rows with the source's computed columns, after their values have been checked."""
    rows = compute_columns(log.warehouse.spark, log.source, rows)
    if isinstance(rows, DataFrame) and planning is not Planning.MANY:
        rows = scratch.materialize(rows, few=True)
    checked = check_values(log.source, rows)
    if isinstance(checked, DataFrame):
        return scratch.materialize(checked, few=False)
    if isinstance(checked, pa.Table):
        return checked
    return scratch.gather_tables(checked)


def _add_undeclared_fields(
    connector: Connector, summaries: Mapping[int, ChunkSummary]
) -> dict[int, ChunkSummary]:
    if not isinstance(connector, ReportsUndeclared):
        return dict(summaries)
    fields = connector.undeclared_fields()
    completed = dict[int, ChunkSummary]()
    for chunk, summary in summaries.items():
        completed[chunk] = replace(summary, undeclared=fields.get(chunk, ()))
    return completed


def _check_usable(
    connector: Connector, timeline: Sequence[Arrival], summaries: dict[int, ChunkSummary]
) -> None:
    """Refuse rows that look like those of another format, unless the user has accepted a change."""
    if getattr(connector, "accept_change", True):
        return
    source = connector.source
    check_decodable(source.name, summaries, timeline)
    check_event_times(
        source,
        summaries,
        timeline,
        must_have_event_times=getattr(connector, "must_have_event_times", False),
    )


def _compute_join(
    source: Source,
    rows: DataFrame,
    newest_arrival: Arrival | None,
    chunks: Sequence[Chunk],
    scratch: TempTables,
) -> ComputedRows:
    """Compute many new rows of a join, with the columns of the event log.

    No check of the values is necessary, because the rows come from event logs. Computing the rows
    twice gives the same rows. The watermarks of a derived source do not depend on its rows, so the
    rows can be computed without the `ChunkSummary` of the arrivals.
    """
    arrivals = to_arrivals(source, newest_arrival, chunks, {}, "{}", 1)
    rows = _number_arrivals(rows, arrivals[0].arrival)
    return ComputedRows(source, rows, arrivals, partial(scratch.materialize, few=False))


@overload
def _number_arrivals(rows: DataFrame, first_arrival: int) -> DataFrame: ...
@overload
def _number_arrivals(rows: pa.Table, first_arrival: int) -> pa.Table: ...
def _number_arrivals(rows: Rows, first_arrival: int) -> Rows:
    """Return rows with the column `arrival`. `first_arrival` is the arrival number of the first
    chunk."""
    if isinstance(rows, DataFrame):
        return rows.withColumn("arrival", F.col(CHUNK) + first_arrival)
    return rows.append_column(
        "arrival", pa.array(rows[CHUNK].to_numpy() + first_arrival, pa.int64())
    )


def _report_span(log: Log, arrivals: Sequence[Arrival], clock: Clock) -> None:
    """Send the ingest's span if a trace receiver is configured."""
    if not telemetry.is_enabled():
        return
    events = sum(arrival.rows for arrival in arrivals)
    span = clock.create_span(f"ingest {log.source.name}", events=events)
    traced = log.traced_arrivals(arrivals[0].arrival - 1, arrivals[-1].arrival)
    telemetry.report_work(traced, span, begins=True)
