"""Summarize the rows of chunks by a query of the engine."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from tidemark.base.errors import DefinitionError, summarize_error
from tidemark.define.helper_columns import name_helper
from tidemark.define.source import Source
from tidemark.engine.failures import is_expression_invalid
from tidemark.store.event_log.dead_letters import DEAD, is_dead
from tidemark_streaming.connector import BYTES, CHUNK, Chunk
from tidemark_streaming.ingest.chunk_summary import ChunkSummary

_AHEAD = name_helper("ahead")
_CLOCK = name_helper("clock")


def summarize_by_engine(
    source: Source, rows: DataFrame, chunks: Sequence[Chunk], columns: Sequence[str]
) -> dict[int, ChunkSummary]:
    """Return the summaries of `summarize_rows`.

    Args:
        columns: the names of the columns of `rows`.

    Raises:
        DefinitionError: the watermark's expression is invalid.
    """
    aggregated = _aggregate_chunks(source, _without_future_times(source, rows, chunks), columns)
    try:
        collected = aggregated.collect()
    except PySparkException as error:
        if not is_expression_invalid(error):
            raise
        # If the rows can't be read at all, this raises the connector's error.
        _ = rows.schema
        raise DefinitionError(
            f"The watermark of source '{source.name}' ({source.watermark}) can't be computed: "
            f"{summarize_error(error)}. Correct its expression."
        ) from None
    summaries = dict[int, ChunkSummary]()
    for row in collected:
        chunk = row["chunk"]
        summaries[chunk] = _add_row(summaries.get(chunk, ChunkSummary()), row)
    return summaries


def _without_future_times(source: Source, rows: DataFrame, chunks: Sequence[Chunk]) -> DataFrame:
    """Return rows whose event time is null if it is impossible, or later than the source accepts.

    The column `_AHEAD` of the result is true for the rows with a time that is too late. They do not
    advance the watermark.
    """
    clock = F.lit(None).cast("bigint")
    if source.max_future_skew is not None:
        clocks = [(number, chunk.arrived_at) for number, chunk in enumerate(chunks)]
        chunk_clocks = rows.sparkSession.createDataFrame(clocks, f"{CHUNK} INT, {_CLOCK} BIGINT")
        rows = rows.join(F.broadcast(chunk_clocks), CHUNK)
        clock = F.col(_CLOCK)
    valid_time = source.valid_event_time(clock)
    ahead = source.has_possible_time & valid_time.isNull()
    rows = rows.select("*", ahead.alias(_AHEAD))
    return rows.withColumn(source.event_time, valid_time)


def _aggregate_chunks(source: Source, rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return at most two rows for each chunk: one for its events, and one for its dead letters.

    If the watermark has a partition column, `observed` is a JSON array of the pairs of a partition
    and its value.
    """
    event_time = F.col(f"`{source.event_time}`")
    micros = F.unix_micros(event_time)
    partition_column = source.watermark.group_column
    group_columns = [F.col(CHUNK).alias("chunk"), is_dead(columns).alias("dead")]
    if partition_column is not None:
        group_columns.append(F.col(f"`{partition_column}`").cast("string").alias("part"))
    reason = F.lit(None).cast("string")
    if DEAD in columns:
        reason = F.col(f"{DEAD}.reason")
    size = F.lit(0)
    if BYTES in columns:
        size = F.col(BYTES)
    aggregated = rows.groupBy(group_columns).agg(
        F.count("*").alias("rows"),
        F.coalesce(F.sum(size), F.lit(0)).alias("bytes"),
        F.min(micros).alias("oldest"),
        F.max(micros).alias("newest"),
        source.watermark.observe(event_time).alias("observed"),
        source.watermark.count_unreadable().alias("unreadable"),
        F.min(reason).alias("first_reason"),
        F.max(reason).alias("last_reason"),
        F.count_if(_AHEAD).alias("ahead"),
    )
    if partition_column is None:
        return aggregated
    pair = F.when(F.col("observed").isNotNull(), F.array("part", "observed"))
    return aggregated.groupBy("chunk", "dead").agg(
        F.sum("rows").alias("rows"),
        F.sum("bytes").alias("bytes"),
        F.min("oldest").alias("oldest"),
        F.max("newest").alias("newest"),
        F.to_json(F.collect_list(pair)).alias("observed"),
        F.sum("unreadable").alias("unreadable"),
        F.min("first_reason").alias("first_reason"),
        F.max("last_reason").alias("last_reason"),
        F.sum("ahead").alias("ahead"),
    )


def _add_row(summary: ChunkSummary, row: Row) -> ChunkSummary:
    """Return a chunk's summary with a row of `_aggregate_chunks`."""
    if row["dead"]:
        return summary.with_dead_letters(
            row["rows"], row["bytes"], row["first_reason"], row["last_reason"]
        )
    return replace(
        summary,
        rows=row["rows"],
        bytes=summary.bytes + row["bytes"],
        min_event_time=row["oldest"],
        max_event_time=row["newest"],
        observed=row["observed"],
        unreadable_marks=row["unreadable"],
        future_timestamps=row["ahead"],
    )
