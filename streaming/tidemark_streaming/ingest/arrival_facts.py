"""Summarize the rows of arrivals, refuse unusable arrivals, and advance the watermark."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError, DefinitionError, summarize_error
from tidemark.base.instants import EARLIEST, INFINITY, LATEST, latest_watermark, parse_duration
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.helper_columns import name_helper
from tidemark.define.source import Source
from tidemark.define.watermarks import after_heartbeat
from tidemark.engine.failures import is_expression_invalid
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.dead_letters import DEAD, is_dead
from tidemark.store.rows import Rows, column_names, to_frame
from tidemark.store.rows import compute as pc
from tidemark_streaming.connector import BYTES, CHUNK, Chunk

_AHEAD = name_helper("ahead")
_CLOCK = name_helper("clock")

_PER_PART = [
    ([], "count_all"),
    ("bytes", "sum"),
    ("time", "min"),
    ("time", "max"),
    ("ahead", "sum"),
]


@dataclass(frozen=True)
class Facts:
    """A summary of the rows of one chunk. Event times are in microseconds.

    Args:
        rows: the number of events, without dead letters.
        observed: the values from which the watermark is computed, as `Watermark.advance` takes
            them.
        reason: the reason of a dead letter: the first in alphabetical order, so that it is the same
            in every run.
        has_several_reasons: whether the dead letters have different reasons.
        unreadable_marks: the number of events on which the watermark's expression failed.
        undeclared: fields that the source does not declare.
        future_timestamps: the number of events dated later than the source accepts.
    """

    rows: int = 0
    dead_letters: int = 0
    bytes: int = 0
    min_event_time: int | None = None
    max_event_time: int | None = None
    observed: str | None = None
    reason: str | None = None
    has_several_reasons: bool = False
    unreadable_marks: int = 0
    undeclared: tuple[str, ...] = ()
    future_timestamps: int = 0


def summarize_rows(
    source: Source,
    rows: Rows,
    chunks: Sequence[Chunk],
    spark: SparkSession,
    planning: AbstractContextManager[None] | None = None,
) -> dict[int, Facts]:
    """Summarize the rows of each chunk. Return the summaries by the index of the chunk, without
    chunks that have no rows.

    Args:
        rows: the rows of all chunks, with the column `CHUNK`.
        planning: applies settings to the engine's planner. It is entered only if the engine is
            used.
    """
    if not isinstance(rows, DataFrame) and is_plain(source, rows):
        return _in_memory(source, rows, chunks)
    with planning or nullcontext():
        return _by_engine(source, to_frame(spark, rows), chunks, column_names(rows))


def is_plain(source: Source, rows: pa.Table) -> bool:
    """Return whether the rows can be summarized without the engine.

    They can if the watermark depends only on the newest event of each partition, and if Arrow and
    Spark convert the values of the partition column to the same texts.
    """
    partition_column = source.watermark.group_column
    parts = pa.string() if partition_column is None else rows.schema.field(partition_column).type
    is_supported = pa.types.is_string(parts) or pa.types.is_integer(parts)
    return source.watermark.by_newest and is_supported


def _in_memory(source: Source, rows: pa.Table, chunks: Sequence[Chunk]) -> dict[int, Facts]:
    if DEAD in rows.column_names and rows[DEAD].null_count < rows.num_rows:
        return _with_dead_letters(source, rows, chunks)
    partition_column = source.watermark.group_column
    times = rows[source.event_time].cast(pa.int64())
    possible = pc.and_(pc.greater_equal(times, EARLIEST), pc.less(times, LATEST))
    times = pc.if_else(possible, times, None)
    ahead = pa.nulls(len(rows), pa.bool_())
    if source.max_future_skew is not None:
        skew = parse_duration(source.max_future_skew)
        latest = pa.array([c.arrived_at + skew for c in chunks], pa.int64())
        ahead = pc.greater(times, latest.take(rows[CHUNK]))
        times = pc.if_else(ahead, None, times)
    part = pa.nulls(len(rows), pa.string())
    if partition_column is not None:
        part = rows[partition_column].cast(pa.string())
    columns = {
        "chunk": rows[CHUNK],
        "part": part,
        "bytes": _row_sizes(rows),
        "time": times,
        "ahead": ahead,
    }
    parts = pa.table(columns).group_by(["chunk", "part"]).aggregate(_PER_PART)
    parts_by_chunk = defaultdict[int, list[dict[str, Any]]](list)
    for part_facts in parts.to_pylist():
        parts_by_chunk[part_facts["chunk"]].append(part_facts)
    has_parts = partition_column is not None
    return {
        number: _sum_parts(chunk_parts, has_parts=has_parts)
        for number, chunk_parts in parts_by_chunk.items()
    }


def _row_sizes(rows: pa.Table) -> Any:  # noqa: ANN401 (an array)
    """Return the size of each row in bytes; null if the connector does not know it."""
    if BYTES in rows.column_names:
        return rows[BYTES]
    return pa.nulls(len(rows), pa.int64())


def _sum_parts(parts: Sequence[Mapping[str, Any]], *, has_parts: bool) -> Facts:
    """Return the summary of a chunk from those of its partitions.

    Args:
        parts: the results of `_PER_PART`, with the value of the partition as `part`.
        has_parts: true if the watermark has a partition column.
    """
    rows = 0
    size = 0
    future_timestamps = 0
    oldest: int | None = None
    newest: int | None = None
    observed_parts = list[tuple[str | None, str]]()
    for part_facts in parts:
        rows += part_facts["count_all"]
        size += part_facts["bytes_sum"] or 0
        future_timestamps += part_facts["ahead_sum"] or 0
        if part_facts["time_max"] is None:
            continue
        observed_parts.append((part_facts["part"], str(part_facts["time_max"])))
        if oldest is None or part_facts["time_min"] < oldest:
            oldest = part_facts["time_min"]
        if newest is None or part_facts["time_max"] > newest:
            newest = part_facts["time_max"]
    observed: str | None = None
    if has_parts:
        observed = json.dumps(observed_parts)
    elif newest is not None:
        observed = str(newest)
    return Facts(
        rows=rows,
        bytes=size,
        min_event_time=oldest,
        max_event_time=newest,
        observed=observed,
        future_timestamps=future_timestamps,
    )


def _with_dead_letters(source: Source, rows: pa.Table, chunks: Sequence[Chunk]) -> dict[int, Facts]:
    dead = rows.filter(pc.is_valid(rows[DEAD]))
    by_chunk = _in_memory(source, rows.filter(pc.is_null(rows[DEAD])), chunks)
    reason = pc.struct_field(dead[DEAD], "reason")
    table = pa.table({"chunk": dead[CHUNK], "bytes": _row_sizes(dead), "reason": reason})
    summaries = table.group_by("chunk").aggregate(
        [([], "count_all"), ("bytes", "sum"), ("reason", "min"), ("reason", "max")]
    )
    for summary in summaries.to_pylist():
        fits = by_chunk.get(summary["chunk"], Facts())
        by_chunk[summary["chunk"]] = replace(
            fits,
            dead_letters=summary["count_all"],
            bytes=fits.bytes + (summary["bytes_sum"] or 0),
            reason=summary["reason_min"],
            has_several_reasons=summary["reason_min"] != summary["reason_max"],
        )
    return by_chunk


def _by_engine(
    source: Source, rows: DataFrame, chunks: Sequence[Chunk], columns: Sequence[str]
) -> dict[int, Facts]:
    event_time = F.col(f"`{source.event_time}`")
    partition_column = source.watermark.group_column
    clock = F.lit(None).cast("bigint")
    if source.max_future_skew is not None:
        clocks = [(n, chunk.arrived_at) for n, chunk in enumerate(chunks)]
        chunk_clocks = rows.sparkSession.createDataFrame(clocks, f"{CHUNK} INT, {_CLOCK} BIGINT")
        rows = rows.join(F.broadcast(chunk_clocks), CHUNK)
        clock = F.col(_CLOCK)
    # An event with a future timestamp does not advance the watermark.
    ahead = source.has_possible_time & source.valid_event_time(clock).isNull()
    rows = rows.select("*", ahead.alias(_AHEAD))
    rows = rows.withColumn(source.event_time, source.valid_event_time(clock))
    micros = F.unix_micros(event_time)
    group_columns = [F.col(CHUNK).alias("chunk"), is_dead(columns).alias("dead")]
    if partition_column is not None:
        group_columns.append(F.col(f"`{partition_column}`").cast("string").alias("part"))
    reason = F.lit(None).cast("string")
    if DEAD in columns:
        reason = F.col(f"{DEAD}.reason")
    size = F.lit(0)
    if BYTES in columns:
        size = F.col(BYTES)
    facts = rows.groupBy(*group_columns).agg(
        F.count("*").alias("rows"),
        F.coalesce(F.sum(size), F.lit(0)).alias("bytes"),
        F.min(micros).alias("oldest"),
        F.max(micros).alias("newest"),
        source.watermark.observe(event_time).alias("observed"),
        source.watermark.count_unreadable().alias("unreadable"),
        F.min(reason).alias("least"),
        F.max(reason).alias("most"),
        F.count_if(_AHEAD).alias("ahead"),
    )
    if partition_column is not None:
        pair = F.when(F.col("observed").isNotNull(), F.array("part", "observed"))
        facts = facts.groupBy("chunk", "dead").agg(
            F.sum("rows"),
            F.sum("bytes"),
            F.min("oldest"),
            F.max("newest"),
            F.to_json(F.collect_list(pair)),
            F.sum("unreadable"),
            F.min("least"),
            F.max("most"),
            F.sum("ahead"),
        )
    try:
        collected = facts.collect()
    except PySparkException as error:
        if not is_expression_invalid(error):
            raise
        # If the rows can't be read at all, this raises the connector's error.
        _ = rows.schema
        raise DefinitionError(
            f"The watermark of source '{source.name}' ({source.watermark}) can't be computed: "
            f"{summarize_error(error)}. Correct its expression."
        ) from None
    summaries = dict[int, Facts]()
    for row in collected:
        chunk, is_letter, count, size, oldest, newest, observed, unreadable, least, most, future = (
            row
        )
        fits = summaries.get(chunk, Facts())
        if is_letter:
            summaries[chunk] = replace(
                fits,
                dead_letters=count,
                bytes=fits.bytes + size,
                reason=least,
                has_several_reasons=least != most,
            )
        else:
            summaries[chunk] = replace(
                fits,
                rows=count,
                bytes=fits.bytes + size,
                min_event_time=oldest,
                max_event_time=newest,
                observed=observed,
                unreadable_marks=unreadable,
                future_timestamps=future,
            )
    return summaries


def to_arrivals(
    source: Source,
    newest_arrival: Arrival | None,
    chunks: Sequence[Chunk],
    facts: dict[int, Facts],
    versions: str,
    schema_version: int,
) -> list[Arrival]:
    """Return the chunks as arrivals that follow `newest_arrival`, with their watermarks.

    Args:
        newest_arrival: the last arrival of the timeline; None if there is none.
        facts: the summaries of chunks, by index. A chunk without a summary has no rows.
        versions: the versions of the source's lookup tables, as JSON.
        schema_version: the schema version of the event log.
    """
    arrivals: list[Arrival] = []
    for index, chunk in enumerate(chunks):
        chunk_facts = facts.get(index, Facts())
        number = 0
        before = None
        state = None
        follows = ""
        if newest_arrival is not None:
            number = newest_arrival.arrival + 1
            before = newest_arrival.after
            state = newest_arrival.watermark_state
            follows = newest_arrival.arrival_id
        observed = chunk_facts.observed
        if chunk.waiting and source.watermark.by_silence:
            pairs = json.loads(observed or "[]")
            for part in chunk.waiting:
                pairs.append((part, None))
            observed = json.dumps(pairs)
        undeclared = None
        if chunk_facts.undeclared:
            undeclared = json.dumps(chunk_facts.undeclared)
        after, state = source.watermark.advance(
            state, before, observed, chunk.arrived_at, chunk.watermark
        )
        silent_since = _silence_begins(source, chunk, chunk_facts, newest_arrival)
        if chunk.silent_since is not None:
            after = after_heartbeat(source.watermark, after, chunk.arrived_at, chunk.silent_since)
        newest_arrival = Arrival(
            arrival=number,
            arrived_at=chunk.arrived_at,
            before=before,
            after=INFINITY if chunk.end else after,
            rows=chunk_facts.rows,
            min_event_time=chunk_facts.min_event_time,
            max_event_time=chunk_facts.max_event_time,
            bytes=chunk.bytes + chunk_facts.bytes,
            position=chunk.position,
            watermark_state=state,
            lookups=versions,
            dead_letters=chunk_facts.dead_letters,
            schema_version=schema_version,
            unreadable_marks=chunk_facts.unreadable_marks,
            undeclared=undeclared,
            future_timestamps=chunk_facts.future_timestamps,
            silent_since=silent_since,
            follows=follows,
        )
        arrivals.append(newest_arrival)
    return arrivals


def _silence_begins(
    source: Source, chunk: Chunk, chunk_facts: Facts, newest_arrival: Arrival | None
) -> int | None:
    """Return the time since which a source is silent; None if the chunk is not a heartbeat.

    The heartbeat of a base can bring rows of a derived source, such as rows without a partner. The
    derived source is not silent then: its silence begins after its newest other arrival.
    """
    if chunk_facts.rows > 0 or chunk.silent_since is None:
        return None
    if newest_arrival is None or not isinstance(source, DerivedSource):
        return chunk.silent_since
    newest_data = newest_arrival.silent_since
    if newest_data is None:
        newest_data = newest_arrival.arrived_at
    return latest_watermark([chunk.silent_since, newest_data])


MIN_UNUSABLE_ROWS = 100
"""The minimum number of consecutive rows that, if none of them can be decoded or none has an event
time, show that the format of the data has changed."""


class UnusableArrivalError(DataError):
    """An arrival of which no row can be decoded, or no row has an event time.

    The field `before` has the number of arrivals in the same commit that come before this arrival.
    These can be ingested.

    Args:
        arrivals_before: the value of `before`.
    """

    def __init__(self, message: str, arrivals_before: int) -> None:
        super().__init__(message)
        self.before = arrivals_before


def check_decodable(source: str, facts: Mapping[int, Facts], timeline: Sequence[Arrival]) -> None:
    """Refuse many consecutive rows of which none can be decoded.

    A row that can't be decoded becomes a dead letter, and the stream continues without it. If many
    rows arrive and none can be decoded, the cause is not a few damaged rows: the producers write
    another format or other types, or the source is declared incorrectly. Continuing would publish
    windows without any of these rows. A person must decide. The reasons of the dead letters don't
    matter: each format and each fault has its own. A stream that is followed has few rows in each
    arrival, so the rows of consecutive arrivals are counted together.

    Args:
        facts: the summaries of a commit's arrivals, by index.
        timeline: the arrivals before the commit.

    Raises:
        UnusableArrivalError: the rows of an arrival, and many rows before them, can't be
            decoded.
    """
    undecodable = _count_unusable(timeline, _has_events, _count_dead_letters)
    for index, summary in sorted(facts.items()):
        if summary.rows:
            undecodable = 0
            continue
        undecodable += summary.dead_letters
        if not summary.dead_letters or undecodable < MIN_UNUSABLE_ROWS:
            continue
        reason = (summary.reason or "").removesuffix(".")
        beginning = "One of several reasons is" if summary.has_several_reasons else "The reason is"
        raise UnusableArrivalError(
            f"None of the next {undecodable:,} rows of source '{source}' can be decoded. "
            f"{beginning}: {reason}. The producers have probably changed their format, or the "
            "source is declared with another one, so the source stops: the next arrival is not "
            "ingested, and remains pending. Correct the declaration, or the data. To write these "
            f"rows to the dead letters instead, run `tidemark ingest {source} "
            "--allow-schema-change`.",
            index,
        )


def check_event_times(
    source: Source,
    facts: Mapping[int, Facts],
    timeline: Sequence[Arrival],
    *,
    must_have_event_times: bool,
) -> None:
    """Refuse arrivals of which no event has an event time, because the field is not in the data.

    An event without an event time goes to the late tables, and the stream continues. If no event of
    a source has one, the field probably has another name or spelling. Single events can lack an
    event time by intention, for example tombstones, and rows that announce a watermark. A source
    therefore stops only if its first events have undeclared fields instead, or after many events,
    or if its connector requires event times in each arrival.

    Args:
        facts: the summaries of a commit's arrivals, by index.
        timeline: the arrivals before the commit.
        must_have_event_times: true if the connector can't know whether the field is in the data.

    Raises:
        UnusableArrivalError: no event of an arrival has an event time.
    """
    untimed = _count_unusable(timeline, _has_event_time, _count_events)
    has_events = any(arrival.rows for arrival in timeline)
    for index, summary in sorted(facts.items()):
        if not summary.rows:
            continue
        if _has_event_time(summary):
            untimed = 0
            has_events = True
            continue
        untimed += summary.rows
        is_misspelled = not has_events and bool(summary.undeclared)
        has_events = True
        is_suspicious = (must_have_event_times or is_misspelled) and source.watermark.by_newest
        if not is_suspicious and untimed < MIN_UNUSABLE_ROWS:
            continue
        name = source.name
        events = format_count(summary.rows, "event")
        event_time = source.event_time
        origin = f"the field '{source.field_of(event_time)}'"
        if event_time in source.computed:
            origin = f"the expression {source.computed[event_time]!r} of '{event_time}'"
        undeclared = ""
        if summary.undeclared:
            undeclared = f"; the undeclared fields are {', '.join(summary.undeclared)}"
        raise UnusableArrivalError(
            f"None of the {events} of the next arrival of source '{name}' has an event time: "
            f"{origin} is missing, null, or not a possible time in all of them. Names of JSON, "
            f"Avro, and Protobuf fields are case-sensitive{undeclared}. The source stops: the "
            "arrival is not ingested, and remains pending. Correct the data, or map the right "
            f"field to the column '{event_time}' by `rename`. To write these events to the late "
            "tables instead, run "
            f"`tidemark ingest {name} --allow-schema-change`.",
            index,
        )


def _count_unusable(
    timeline: Sequence[Arrival],
    is_usable: Callable[[Arrival], bool],
    count: Callable[[Arrival], int],
) -> int:
    """Return the number of unusable rows since the last usable arrival, or since the last time that
    a person accepted unusable rows.

    Args:
        count: returns the number of unusable rows of an arrival that is not usable.
    """
    counts = list[int]()
    for arrival in reversed(timeline):
        if is_usable(arrival):
            break
        counts.append(count(arrival))
    total = 0
    for unusable in reversed(counts):
        total += unusable
        # These rows would not be in the timeline if a person had not accepted them.
        if total >= MIN_UNUSABLE_ROWS:
            total = 0
    return total


def _has_events(arrival: Arrival) -> bool:
    return arrival.rows > 0


def _count_dead_letters(arrival: Arrival) -> int:
    return arrival.dead_letters


def _has_event_time(summary: Arrival | Facts) -> bool:
    # A time that is too far in the future is an event time, too.
    return summary.min_event_time is not None or summary.future_timestamps > 0


def _count_events(arrival: Arrival) -> int:
    return arrival.rows
