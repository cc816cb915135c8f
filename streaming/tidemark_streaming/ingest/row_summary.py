"""Summarize the rows of chunks: in memory if the watermark permits it, otherwise by the engine."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemark.base.instants import EARLIEST, LATEST, parse_duration
from tidemark.define.source import Source
from tidemark.store.event_log.dead_letters import DEAD
from tidemark.store.rows import Rows, column_names, to_frame
from tidemark.store.rows import compute as pc
from tidemark_streaming.connector import BYTES, CHUNK, Chunk
from tidemark_streaming.ingest.chunk_summary import ChunkSummary
from tidemark_streaming.ingest.engine_summary import summarize_by_engine

_PART_AGGREGATES = [
    ([], "count_all"),
    ("bytes", "sum"),
    ("time", "min"),
    ("time", "max"),
    ("ahead", "sum"),
]
_DEAD_LETTER_AGGREGATES = [
    ([], "count_all"),
    ("bytes", "sum"),
    ("reason", "min"),
    ("reason", "max"),
]


def summarize_rows(
    source: Source,
    rows: Rows,
    chunks: Sequence[Chunk],
    spark: SparkSession,
    planning: AbstractContextManager[None] | None = None,
) -> dict[int, ChunkSummary]:
    """Summarize the rows of each chunk. Return the summaries by the index of the chunk, without
    chunks that have no rows.

    Args:
        rows: the rows of all chunks, with the column `CHUNK`.
        planning: applies settings to the engine's planner. It is entered only if the engine is
            used.
    """
    if not isinstance(rows, DataFrame) and is_plain(source, rows):
        return _summarize_in_memory(source, rows, chunks)
    with planning or nullcontext():
        return summarize_by_engine(source, to_frame(spark, rows), chunks, column_names(rows))


def is_plain(source: Source, rows: pa.Table) -> bool:
    """Return whether the rows can be summarized without the engine.

    They can if the watermark depends only on the newest event of each partition, and if Arrow and
    Spark convert the values of the partition column to the same texts.
    """
    partition_column = source.watermark.group_column
    parts = pa.string() if partition_column is None else rows.schema.field(partition_column).type
    is_supported = pa.types.is_string(parts) or pa.types.is_integer(parts)
    return source.watermark.by_newest and is_supported


def _summarize_in_memory(
    source: Source, rows: pa.Table, chunks: Sequence[Chunk]
) -> dict[int, ChunkSummary]:
    if DEAD not in rows.column_names or rows[DEAD].null_count == len(rows):
        return _summarize_events(source, rows, chunks)
    events = rows.filter(pc.is_null(rows[DEAD]))
    dead_letters = rows.filter(pc.is_valid(rows[DEAD]))
    summaries = _summarize_events(source, events, chunks)
    for row in _aggregate_dead_letters(dead_letters):
        summary = summaries.get(row["chunk"], ChunkSummary())
        summaries[row["chunk"]] = summary.with_dead_letters(
            row["count_all"], row["bytes_sum"] or 0, row["reason_min"], row["reason_max"]
        )
    return summaries


def _summarize_events(
    source: Source, events: pa.Table, chunks: Sequence[Chunk]
) -> dict[int, ChunkSummary]:
    """Return the summaries of rows without dead letters."""
    partition_column = source.watermark.group_column
    times = events[source.event_time].cast(pa.int64())
    possible = pc.and_(pc.greater_equal(times, EARLIEST), pc.less(times, LATEST))
    times = pc.if_else(possible, times, None)
    ahead = pa.nulls(len(events), pa.bool_())
    if source.max_future_skew is not None:
        skew = parse_duration(source.max_future_skew)
        latest = pa.array([chunk.arrived_at + skew for chunk in chunks], pa.int64())
        ahead = pc.greater(times, latest.take(events[CHUNK]))
        times = pc.if_else(ahead, None, times)
    part = pa.nulls(len(events), pa.string())
    if partition_column is not None:
        part = events[partition_column].cast(pa.string())
    columns = {
        "chunk": events[CHUNK],
        "part": part,
        "bytes": _row_sizes(events),
        "time": times,
        "ahead": ahead,
    }
    parts = pa.table(columns).group_by(["chunk", "part"]).aggregate(_PART_AGGREGATES)
    parts_by_chunk = defaultdict[int, list[dict[str, Any]]](list)
    for part_row in parts.to_pylist():
        parts_by_chunk[part_row["chunk"]].append(part_row)
    has_parts = partition_column is not None
    summaries = dict[int, ChunkSummary]()
    for chunk, part_rows in parts_by_chunk.items():
        summaries[chunk] = _sum_parts(part_rows, has_parts=has_parts)
    return summaries


def _aggregate_dead_letters(dead_letters: pa.Table) -> list[dict[str, Any]]:
    """Return a row for each chunk with dead letters: their number, size and reasons."""
    columns = {
        "chunk": dead_letters[CHUNK],
        "bytes": _row_sizes(dead_letters),
        "reason": pc.struct_field(dead_letters[DEAD], "reason"),
    }
    by_chunk = pa.table(columns).group_by("chunk")
    return by_chunk.aggregate(_DEAD_LETTER_AGGREGATES).to_pylist()


def _row_sizes(rows: pa.Table) -> Any:  # noqa: ANN401 (an array)
    """Return the size of each row in bytes; null if the connector does not know it."""
    if BYTES in rows.column_names:
        return rows[BYTES]
    return pa.nulls(len(rows), pa.int64())


def _sum_parts(parts: Sequence[Mapping[str, Any]], *, has_parts: bool) -> ChunkSummary:
    """Return the summary of a chunk from those of its partitions.

    Args:
        parts: the results of `_PART_AGGREGATES`, with the value of the partition as `part`.
        has_parts: true if the watermark has a partition column.
    """
    rows = 0
    size = 0
    future_timestamps = 0
    oldest: int | None = None
    newest: int | None = None
    observed_parts = list[tuple[str | None, str]]()
    for part_row in parts:
        rows += part_row["count_all"]
        size += part_row["bytes_sum"] or 0
        future_timestamps += part_row["ahead_sum"] or 0
        if part_row["time_max"] is None:
            continue
        observed_parts.append((part_row["part"], str(part_row["time_max"])))
        if oldest is None or part_row["time_min"] < oldest:
            oldest = part_row["time_min"]
        if newest is None or part_row["time_max"] > newest:
            newest = part_row["time_max"]
    observed: str | None = None
    if has_parts:
        observed = json.dumps(observed_parts)
    elif newest is not None:
        observed = str(newest)
    return ChunkSummary(
        rows=rows,
        bytes=size,
        min_event_time=oldest,
        max_event_time=newest,
        observed=observed,
        future_timestamps=future_timestamps,
    )
