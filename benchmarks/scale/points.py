"""Measure one load: its ingest, the backfills of its assets, and an increment of 1,000 events."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.inputs.events import GeneratedConnector
from benchmarks.measuring.measure import Measured, measure_block
from benchmarks.measuring.own import open_warehouse
from benchmarks.scale.load import Load
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.engine.server import managed_of
from tidemark.run import backfill, incremental
from tidemark.store.event_log.arrival import Arrival
from tidemark_streaming.connector import Chunk
from tidemark_streaming.ingest.ingest import ingest

INCREMENT_EVENTS = 1_000
_EVENT_BYTES = 24
_GB = 1e9


@dataclass(frozen=True)
class Point:
    """The measured cost of a load.

    Args:
        ingest, backfill, increment: seconds. The backfill and the increment are of all assets.
        peak: the memory of the engine, its workers and this process, in GB.
        windows: the window rows of one asset.
        files, gigabytes: of all tables, after the increment.
    """

    load: Load
    ingest: float
    backfill: float
    increment: float
    peak: float
    windows: int
    files: int
    gigabytes: float


@dataclass(frozen=True)
class _LaterEvents:
    """A connector of one more arrival, after those of another one."""

    earlier: GeneratedConnector
    source: Source

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        if len(timeline) > self.earlier.arrivals:
            return []
        arrived_at = timeline[-1].arrived_at + 1_000_000
        size = INCREMENT_EVENTS * _EVENT_BYTES
        return [Chunk(position=json.dumps("later"), arrived_at=arrived_at, bytes=size)]

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> DataFrame:
        return self.earlier.read_after_all(spark, INCREMENT_EVENTS)


def measure(settings: Settings, load: Load, name: str) -> Point:
    """Measure a load in tables of its own.

    Args:
        name: the name of the source.
    """
    warehouse = open_warehouse(settings)
    source = load.source(name)
    transforms = load.transforms(source)
    connector = load.connector(source)
    record = managed_of(settings).find_running()
    assert record is not None
    phases = {name: Measured() for name in ("ingest", "backfill", "increment")}
    with measure_block(phases["ingest"], record.pid):
        for _ in ingest(warehouse, connector, batch=connector.batch):
            pass
    with measure_block(phases["backfill"], record.pid):
        for transform in transforms:
            backfill(warehouse, transform)
    for _ in ingest(warehouse, _LaterEvents(connector, source)):
        pass
    with measure_block(phases["increment"], record.pid):
        for transform in transforms:
            incremental(warehouse, transform)
    files = _files(Path(settings.warehouse, warehouse.database), name)
    return Point(
        load=load,
        ingest=phases["ingest"].median,
        backfill=phases["backfill"].median,
        increment=phases["increment"].median,
        peak=max(max(phase.peak_bytes) for phase in phases.values()) / _GB,
        windows=warehouse.load_rows(transforms[0].published_table, columns=["n"]).num_rows,
        files=len(files),
        gigabytes=sum(file.stat().st_size for file in files) / _GB,
    )


def _files(database: Path, name: str) -> list[Path]:
    """Return the data files of the tables whose names begin with a source's name."""
    return [file for table in database.glob(f"{name}*") for file in table.rglob("*.parquet")]
