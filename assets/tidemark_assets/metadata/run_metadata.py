"""Return the results of ingests and runs as metadata for Dagster's materializations."""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from tidemark.base import thresholds
from tidemark.base.instants import INFINITY, as_datetime
from tidemark.define.definition import Definition
from tidemark.define.rollup import RollUp
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.engine.queries.planning import Planning
from tidemark.store.commits.conditions import InRanges
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.ledger import RunFacts, step_spans
from tidemark.store.rows import delta_schema, spark_schema
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base.names import Names
from tidemark_assets.metadata import describe, pictures
from tidemark_assets.metadata.describe import Metadata
from tidemark_assets.metadata.side_tables import row_count, transform_side_tables
from tidemark_streaming.ingest.accepted_losses import skipped_losses

_QUARTER = 900_000_000
"""The granularity of the counts: a quarter of an hour, in microseconds.

In all time zones, partitions begin at a multiple of a quarter of an hour.
"""

ROWS = "dagster/partition_row_count"
_ALL_ROWS = "dagster/row_count"
TABLE_BYTES = "table bytes"
"""The metadata key for the size of a whole table. Dagster defines no key for sizes."""
RUN = "run"
"""The metadata key for the ID, in the ledger, of the run that a materialization reports."""


def ingest_metadata(warehouse: Warehouse, source: Source, arrivals: Sequence[Arrival]) -> Metadata:
    """Return the results of an ingest; without arrivals, the current state of the log."""
    timeline = Log(warehouse, source).read_timeline()
    return {
        **arrivals_metadata(arrivals, timeline),
        **count_rows(source, timeline),
        **log_table_metadata(warehouse, source),
        **(pictures.draw_arrivals(warehouse, source, timeline) if arrivals else {}),
    }


def arrivals_metadata(arrivals: Sequence[Arrival], timeline: Sequence[Arrival]) -> Metadata:
    """Return the metadata of new arrivals.

    Args:
        timeline: all arrivals; the new ones are the last.
    """
    newest = [a.max_event_time for a in timeline if a.max_event_time is not None]
    marks = sum(a.unreadable_marks for a in arrivals)
    unknown = {name for a in arrivals if a.undeclared for name in json.loads(a.undeclared)}
    lost = [loss for a in arrivals for loss in skipped_losses(a.position)]
    return {
        "arrivals": len(arrivals),
        "rows": sum(a.rows for a in arrivals),
        "bytes read": sum(a.bytes for a in arrivals),
        "dead letters": sum(a.dead_letters for a in arrivals),
        "arrival range": _range(arrivals[0].arrival, arrivals[-1].arrival) if arrivals else "none",
        "watermark now": as_timestamp(timeline[-1].after if timeline else None),
        "newest event time": as_timestamp(max(newest, default=None)),
        "schema version": timeline[-1].schema_version if timeline else 1,
        **({"accepted losses": "; ".join(lost)} if lost else {}),
        **({"events with an unreadable watermark mark": marks} if marks else {}),
        **({"undeclared fields": ", ".join(sorted(unknown))} if unknown else {}),
    }


def count_rows(source: Source, timeline: Sequence[Arrival]) -> dict[str, int]:
    """Return the row counts of a source's log and of its side tables."""
    return {
        _ALL_ROWS: sum(a.rows for a in timeline),
        row_count(source.timeline_table): len(timeline),
        row_count(source.dead_letters_table): sum(a.dead_letters for a in timeline),
    }


def partition_metadata(
    warehouse: Warehouse,
    transform: WindowedTransform,
    facts: RunFacts,
    begins: Mapping[str, int],
    end: int,
    names: Names,
) -> dict[str, Metadata]:
    """Return the metadata of each partition: its own counts, then the results of the run.

    Args:
        begins: the start of each partition by its key, in order and without gaps, in microseconds.
        end: the end of the last partition, in microseconds.
    """
    run: Metadata = {
        RUN: facts.run,
        "late events option": facts.late_events,
        "arrival range": _range(0, facts.through_arrival),
        "watermark now": as_timestamp(facts.watermark),
        **run_durations(asdict(facts)),
        "run events": facts.events,
        "run late": facts.late,
        "run too late": facts.too_late,
        "run no event time": facts.no_event_time,
        "run duplicates": facts.duplicate,
    }
    if transform.all_expectations:
        run |= {"run quarantined": facts.quarantined, "run warned": facts.warned}
    by_partition = _by_partition(warehouse, transform, run, begins, end, names)
    # The picture covers all partitions. It is added once, to the partition that the page shows.
    by_partition[list(begins)[-1]] |= pictures.draw_windows(
        warehouse, transform, min(begins.values()), end
    )
    return by_partition


def rollup_metadata(
    warehouse: Warehouse,
    transform: RollUp,
    facts: RunFacts | None,
    begins: Mapping[str, int],
    end: int,
    names: Names,
) -> dict[str, Metadata]:
    """Return the metadata of each partition after a roll-up's run, like `partition_metadata`.

    `facts` is None if the run found nothing new.
    """
    run: Metadata = {"run windows": 0}
    if facts is not None:
        run = {RUN: facts.run, "run windows": facts.windows, **run_durations(asdict(facts))}
        run["watermark now"] = as_timestamp(facts.watermark)
    return _by_partition(warehouse, transform, run, begins, end, names)


def run_durations(run: Mapping[str, Any]) -> Metadata:
    """Return the duration of a run and of each of its steps, in seconds.

    Args:
        run: the run's row of the ledger, with instants in microseconds.
    """
    took = {"run seconds": (run["ended_at"] - run["started_at"]) / 1e6}
    took |= {f"run seconds: {step}": (end - start) / 1e6 for step, start, end in step_spans(run)}
    return {name: round(seconds, 3) for name, seconds in took.items()}


def _by_partition(
    warehouse: Warehouse,
    transform: Definition,
    run: Metadata,
    begins: Mapping[str, int],
    end: int,
    names: Names,
) -> dict[str, Metadata]:
    """Return the row counts of each partition, in the published table and in its side tables, and
    the metadata that all partitions share."""
    measures: dict[str, dict[str, Column]] = {
        transform.published_table: {
            ROWS: F.count("*"),
            "events in windows": F.sum("events"),
            "late events in windows": F.sum("late_events"),
            "windows not final": F.count_if(~F.col("final")),
        }
    }
    for side in transform_side_tables(transform):
        measures[side.name] = {row_count(side.name): F.count("*")}
    common = run | windows_metadata(warehouse, transform, names)
    by_partition: dict[str, Metadata] = {key: {} for key in begins}
    for counts in _measure(warehouse, measures, begins, end):
        for key, partition_counts in counts.items():
            by_partition[key] |= partition_counts
    return {key: metadata | common for key, metadata in by_partition.items()}


def _measure(
    warehouse: Warehouse,
    measures: Mapping[str, Mapping[str, Column]],
    begins: Mapping[str, int],
    end: int,
) -> list[dict[str, Metadata]]:
    """Return the measures of each table by partition. All tables are queried in parallel.

    Args:
        measures: by table, the aggregate to compute for each metadata key.
        begins: the start of each partition by its key, in order and without gaps, in microseconds.
        end: the end of the last partition, in microseconds.
    """
    within = InRanges("window_start", ((min(begins.values()), end),))
    existing = [table for table in measures if warehouse.has_table(table)]
    sizes = [warehouse.max_row_count(table, within) for table in existing]
    few = all(size <= thresholds.SMALL_QUERY_ROWS for size in sizes)
    with warehouse.use_planning(Planning.for_size(few)):
        counts = {
            table: warehouse.run_in_background(
                partial(_quarters, warehouse, table, measures[table], within)
            )
            for table in existing
        }
        wait(counts.values())
    return [
        _in_partitions(counts[table].result() if table in counts else [], table_measures, begins)
        for table, table_measures in measures.items()
    ]


def _quarters(
    warehouse: Warehouse, table: str, measures: Mapping[str, Column], within: InRanges
) -> list[Row]:
    start = F.unix_micros("window_start")
    quarter = (start - F.pmod(start, F.lit(_QUARTER))).alias("begin")
    named = [value.alias(name) for name, value in measures.items()]
    return warehouse.read_frame(table, within).groupBy(quarter).agg(*named).collect()


def _in_partitions(
    quarters: Sequence[Row], measures: Mapping[str, Column], begins: Mapping[str, int]
) -> dict[str, Metadata]:
    keys = list(begins)
    starts = list(begins.values())
    by_partition = {key: Counter(dict.fromkeys(measures, 0)) for key in keys}
    for row in quarters:
        key = keys[bisect_right(starts, row["begin"]) - 1]
        by_partition[key].update({name: row[name] for name in measures})
    return {key: dict(counts) for key, counts in by_partition.items()}


def _table_metadata(warehouse: Warehouse, table: str, meanings: Mapping[str, str]) -> Metadata:
    """Return the location, the columns and the size of a table, without the engine."""
    metadata: Metadata = {
        "dagster/table_name": f"{warehouse.database}.{table}",
        "dagster/uri": _as_uri(warehouse.path_of(table)),
    }
    if warehouse.has_table(table):
        fields = spark_schema(delta_schema(warehouse.read_schema(table))).fields
        columns = {f.name: f.dataType.simpleString() for f in fields}
        metadata["dagster/column_schema"] = describe.schema(columns, meanings)
        metadata[TABLE_BYTES] = warehouse.total_bytes(table)
    return metadata


def log_table_metadata(warehouse: Warehouse, source: Source) -> Metadata:
    """Return the location, the columns and the size of a source's log, without the engine."""
    meanings = {source.event_time: "Event time", **describe.MEANINGS}
    return _table_metadata(warehouse, source.log_table, meanings)


def windows_metadata(warehouse: Warehouse, transform: Definition, names: Names) -> Metadata:
    """Return the location, columns, size and column lineage of windows, without the engine.

    Catalogs read them from materializations, and not from definitions.
    """
    metadata = _table_metadata(warehouse, transform.published_table, describe.meanings(transform))
    metadata["dagster/column_lineage"] = describe.lineage(transform, names)
    return metadata


def _as_uri(path: str) -> str:
    """Return the URI of a table's folder, which is local or in a bucket."""
    if "://" in path:
        return path
    return Path(path).resolve().as_uri()


def as_timestamp(micros: int | None) -> dg.TextMetadataValue | dg.TimestampMetadataValue:
    """Return a watermark or event time, in microseconds, as metadata; None is minus infinity."""
    if micros is None:
        return dg.MetadataValue.text("-infinity")
    if micros >= INFINITY:
        return dg.MetadataValue.text("+infinity: the source has ended")
    return dg.MetadataValue.timestamp(as_datetime(micros))


def _range(first: int, last: int) -> str:
    return f"{first} to {last}"
