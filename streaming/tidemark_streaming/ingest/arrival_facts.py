"""Summarize the rows of arrivals, refuse unusable arrivals, and advance the watermark."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

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

_AHEAD, _CLOCK = name_helper("ahead"), name_helper("clock")

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
    sizes = rows[BYTES] if BYTES in rows.column_names else pa.nulls(len(rows), pa.int64())
    part = (
        pa.nulls(len(rows), pa.string())
        if partition_column is None
        else rows[partition_column].cast(pa.string())
    )
    table = pa.table(
        {"chunk": rows[CHUNK], "part": part, "bytes": sizes, "time": times, "ahead": ahead}
    )
    parts = table.group_by(["chunk", "part"]).aggregate(_PER_PART).to_pylist()
    by_chunk = dict[int, Facts]()
    for n in {part_facts["chunk"] for part_facts in parts}:
        chunk_parts = [part_facts for part_facts in parts if part_facts["chunk"] == n]
        newest = [
            (part_facts["part"], part_facts["time_max"])
            for part_facts in chunk_parts
            if part_facts["time_max"] is not None
        ]
        oldest = [part_facts["time_min"] for part_facts in chunk_parts]
        observed = json.dumps([(part, str(time)) for part, time in newest])
        if partition_column is None:
            observed = str(newest[0][1]) if newest else None
        by_chunk[n] = Facts(
            rows=sum(part_facts["count_all"] for part_facts in chunk_parts),
            bytes=sum(part_facts["bytes_sum"] or 0 for part_facts in chunk_parts),
            min_event_time=min((time for time in oldest if time is not None), default=None),
            max_event_time=max((time for _, time in newest), default=None),
            observed=observed,
            future_timestamps=sum(part_facts["ahead_sum"] or 0 for part_facts in chunk_parts),
        )
    return by_chunk


def _with_dead_letters(source: Source, rows: pa.Table, chunks: Sequence[Chunk]) -> dict[int, Facts]:
    dead = rows.filter(pc.is_valid(rows[DEAD]))
    by_chunk = _in_memory(source, rows.filter(pc.is_null(rows[DEAD])), chunks)
    reason = pc.struct_field(dead[DEAD], "reason")
    sizes = dead[BYTES] if BYTES in dead.column_names else pa.nulls(len(dead), pa.int64())
    table = pa.table({"chunk": dead[CHUNK], "bytes": sizes, "reason": reason})
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
    parts = (
        []
        if partition_column is None
        else [F.col(f"`{partition_column}`").cast("string").alias("part")]
    )
    reason = F.col(f"{DEAD}.reason") if DEAD in columns else F.lit(None).cast("string")
    facts = rows.groupBy(F.col(CHUNK).alias("chunk"), is_dead(columns).alias("dead"), *parts).agg(
        F.count("*").alias("rows"),
        F.coalesce(F.sum(BYTES if BYTES in columns else F.lit(0)), F.lit(0)).alias("bytes"),
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
    summaries = {
        row[0]: Facts(row[2], 0, *row[3:7], unreadable_marks=row[7], future_timestamps=row[10])
        for row in collected
        if not row[1]
    }
    for chunk, _, count, size, *_, least, most, _ in (row for row in collected if row[1]):
        fits = summaries.get(chunk, Facts())
        summaries[chunk] = replace(
            fits,
            dead_letters=count,
            bytes=fits.bytes + size,
            reason=least,
            has_several_reasons=least != most,
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
        before = None if newest_arrival is None else newest_arrival.after
        state = None if newest_arrival is None else newest_arrival.watermark_state
        observed = chunk_facts.observed
        if chunk.waiting and source.watermark.by_silence:
            pairs = [*json.loads(observed or "[]"), *((part, None) for part in chunk.waiting)]
            observed = json.dumps(pairs)
        after, state = source.watermark.advance(
            state, before, observed, chunk.arrived_at, chunk.watermark
        )
        silent_since = _silence_begins(source, chunk, chunk_facts, newest_arrival)
        if chunk.silent_since is not None:
            after = after_heartbeat(source.watermark, after, chunk.arrived_at, chunk.silent_since)
        newest_arrival = Arrival(
            arrival=0 if newest_arrival is None else newest_arrival.arrival + 1,
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
            undeclared=json.dumps(chunk_facts.undeclared) if chunk_facts.undeclared else None,
            future_timestamps=chunk_facts.future_timestamps,
            silent_since=silent_since,
            follows="" if newest_arrival is None else newest_arrival.arrival_id,
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
    if (
        chunk.silent_since is None
        or newest_arrival is None
        or not isinstance(source, DerivedSource)
    ):
        return None if chunk_facts.rows > 0 else chunk.silent_since
    if chunk_facts.rows > 0:
        return None
    newest_data = (
        newest_arrival.arrived_at
        if newest_arrival.silent_since is None
        else newest_arrival.silent_since
    )
    return latest_watermark([chunk.silent_since, newest_data])


MIN_UNUSABLE_ROWS = 100
"""The minimum number of consecutive rows that, if none of them can be decoded or none has an event
time, show that the format of the data has changed."""


class UnusableArrivalError(DataError):
    """An arrival of which no row can be decoded, or no row has an event time.

    Args:
        arrivals_before: the number of arrivals of the same commit that come before this arrival.
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
