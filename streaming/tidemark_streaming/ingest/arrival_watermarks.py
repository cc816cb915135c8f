"""Turn chunks into arrivals: number them, and advance the watermark."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark.base.instants import INFINITY, latest_watermark
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.source import Source
from tidemark.define.watermarks import after_heartbeat
from tidemark.store.event_log.arrival import Arrival
from tidemark_streaming.connector import Chunk
from tidemark_streaming.ingest.chunk_summary import ChunkSummary


def to_arrivals(
    source: Source,
    newest_arrival: Arrival | None,
    chunks: Sequence[Chunk],
    summaries: Mapping[int, ChunkSummary],
    versions: str,
    schema_version: int,
) -> list[Arrival]:
    """Return the chunks as arrivals that follow `newest_arrival`, with their watermarks.

    Args:
        newest_arrival: the last arrival of the timeline; None if there is none.
        summaries: the summaries of chunks, by index. A chunk without a summary has no rows.
        versions: the versions of the source's lookup tables, as JSON.
        schema_version: the schema version of the event log.
    """
    arrivals: list[Arrival] = []
    for index, chunk in enumerate(chunks):
        summary = summaries.get(index, ChunkSummary())
        newest_arrival = _follow_with(source, newest_arrival, chunk, summary)
        newest_arrival = replace(newest_arrival, lookups=versions, schema_version=schema_version)
        arrivals.append(newest_arrival)
    return arrivals


def _follow_with(
    source: Source, newest_arrival: Arrival | None, chunk: Chunk, summary: ChunkSummary
) -> Arrival:
    """Return a chunk as the arrival after `newest_arrival`."""
    number = 0
    watermark_before = None
    state = None
    follows = ""
    if newest_arrival is not None:
        number = newest_arrival.arrival + 1
        watermark_before = newest_arrival.after
        state = newest_arrival.watermark_state
        follows = newest_arrival.arrival_id
    watermark_after, state = source.watermark.advance(
        state,
        watermark_before,
        _observe_silent_parts(source, chunk, summary),
        chunk.arrived_at,
        chunk.watermark,
    )
    if chunk.silent_since is not None:
        watermark_after = after_heartbeat(
            source.watermark, watermark_after, chunk.arrived_at, chunk.silent_since
        )
    if chunk.end:
        watermark_after = INFINITY
    undeclared = None
    if summary.undeclared:
        undeclared = json.dumps(summary.undeclared)
    return Arrival(
        arrival=number,
        arrived_at=chunk.arrived_at,
        before=watermark_before,
        after=watermark_after,
        rows=summary.rows,
        min_event_time=summary.min_event_time,
        max_event_time=summary.max_event_time,
        bytes=chunk.bytes + summary.bytes,
        position=chunk.position,
        watermark_state=state,
        dead_letters=summary.dead_letters,
        unreadable_marks=summary.unreadable_marks,
        undeclared=undeclared,
        future_timestamps=summary.future_timestamps,
        silent_since=_silence_begins(source, chunk, summary, newest_arrival),
        follows=follows,
    )


def _observe_silent_parts(source: Source, chunk: Chunk, summary: ChunkSummary) -> str | None:
    """Return the observed values of a chunk, with an entry for each partition without data.

    The entry lets the partition count as idle even if the partition never had an event.
    """
    if not chunk.waiting or not source.watermark.by_silence:
        return summary.observed
    pairs = json.loads(summary.observed or "[]")
    for part in chunk.waiting:
        pairs.append((part, None))
    return json.dumps(pairs)


def _silence_begins(
    source: Source, chunk: Chunk, summary: ChunkSummary, newest_arrival: Arrival | None
) -> int | None:
    """Return the time since which a source is silent; None if the chunk is not a heartbeat.

    The heartbeat of a base can bring rows of a derived source, such as rows without a partner. The
    derived source is not silent then: its silence begins after its newest other arrival.
    """
    if summary.rows > 0 or chunk.silent_since is None:
        return None
    if newest_arrival is None or not isinstance(source, DerivedSource):
        return chunk.silent_since
    newest_data = newest_arrival.silent_since
    if newest_data is None:
        newest_data = newest_arrival.arrived_at
    return latest_watermark([chunk.silent_since, newest_data])
