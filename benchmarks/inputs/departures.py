"""Generate an endless sequence of departures: seeded events like those of the domain `flights`.

An increment has four arrivals of five hours each, with 1,000 flights from three airports. A flight
arrives when it has landed, half an hour to five and a half hours after its departure, so some
events are late and none is too late. Each increment is one Parquet file with the same content in
every run of the benchmark. Tidemark ingests the file, and the hand-written query streams it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.base.instants import parse_instant
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.warehouse import Warehouse
from tidemark_assets.flights.transforms import aircraft_days, departures_hourly
from tidemark_streaming.connector import CHUNK, Chunk
from tidemark_streaming.ingest.ingest import ingest

ARRIVALS = 4
EVENTS = 1_000
AIRCRAFT = 1_000
SEED = 20_130_101
BEGIN = parse_instant("2024-01-01")
MINUTE = 60_000_000
SPAN = 5 * 60 * MINUTE
ORIGINS = ("EWR", "JFK", "LGA")
DESTINATIONS = ("ATL", "BOS", "LAX", "MCO", "ORD", "SFO")

COLUMNS = {
    "departure": "TIMESTAMP",
    "dep_time": "INT",
    "dep_delay": "INT",
    "tailnum": "STRING",
    "origin": "STRING",
    "dest": "STRING",
    "air_time": "INT",
    "distance": "INT",
}
FACTS = {"arrival": "BIGINT", "position": "BIGINT"}
LANDED = ", ".join(f"{name} {kind}" for name, kind in (COLUMNS | FACTS).items())


def source(name: str) -> Source:
    """Return a source of departures with the given name and thus its own event log."""
    return Source(name, COLUMNS, "departure", BoundedOutOfOrderness("3 hours"))


def with_expectations(name: str, of: Source) -> WindowedTransform:
    """Return the domain's `departures_hourly` over the source `of`, with its four expectations."""
    return replace(departures_hourly, name=name, source=of)


def without_expectations(name: str, of: Source) -> WindowedTransform:
    """Return the domain's `departures_hourly` over the source `of`, without expectations."""
    return replace(departures_hourly, name=name, source=of, expectations=())


def sessions(name: str, of: Source) -> WindowedTransform:
    """Return the domain's `aircraft_days` over the source `of`, with its three expectations."""
    return replace(aircraft_days, name=name, source=of)


def land(folder: Path, increment: int) -> Path:
    """Return the file of an increment. Write the file if it does not exist."""
    file = folder / f"increment_{increment:06}.parquet"
    if file.exists():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng([SEED, increment])
    each = EVENTS // ARRIVALS
    # The flights of each arrival are in the order in which they land.
    landed = np.sort(chance.integers(0, SPAN, (ARRIVALS, each)), axis=1).ravel()
    arrival = increment * ARRIVALS + np.repeat(np.arange(ARRIVALS), each)
    minutes = (30 + 300 * chance.beta(2, 4, EVENTS)).astype("int32")
    cancelled = chance.random(EVENTS) < 0.02
    flown = {
        "dep_time": chance.integers(0, 2400, EVENTS).astype("int32"),
        "dep_delay": chance.normal(12, 30, EVENTS).clip(-20, 300).astype("int32"),
    }
    departure = BEGIN + arrival * SPAN + landed - minutes.astype("int64") * MINUTE
    table = pa.table(
        {
            "departure": pa.array(departure, pa.timestamp("us", tz="UTC")),
            **{name: pa.array(values, mask=cancelled) for name, values in flown.items()},
            "tailnum": [f"N{number:04}" for number in chance.integers(0, AIRCRAFT, EVENTS)],
            "origin": chance.choice(ORIGINS, EVENTS),
            "dest": chance.choice(DESTINATIONS, EVENTS),
            "air_time": minutes,
            "distance": minutes * 7,
            "arrival": arrival,
            "position": np.tile(np.arange(each), ARRIVALS),
        }
    )
    scratch = file.with_name(f".{file.name}")
    pq.write_table(table, scratch)
    scratch.rename(file)
    return file


@dataclass(frozen=True)
class _LandedConnector:
    """A connector for the first `increments` increments, whose files it writes if necessary."""

    source: Source
    folder: Path
    increments: int

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        return [
            Chunk(position=str(n), arrived_at=BEGIN + (n + 1) * SPAN, bytes=EVENTS // ARRIVALS * 40)
            for n in range(len(timeline), self.increments * ARRIVALS)
        ]

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> DataFrame:
        first, last = int(chunks[0].position), int(chunks[-1].position)
        files = [str(land(self.folder, n)) for n in range(first // ARRIVALS, last // ARRIVALS + 1)]
        rows = spark.read.schema(LANDED).parquet(*files)
        return rows.where(F.col("arrival").between(first, last)).select(
            *COLUMNS,
            (F.col("arrival") - first).alias(CHUNK),
            "position",
            F.lit("landed").alias("read_from"),
        )


def bring(warehouse: Warehouse, of: Source, folder: Path, increments: int) -> None:
    """Ingest the increments of a source up to a total number, with one commit per increment."""
    for _ in ingest(warehouse, _LandedConnector(of, folder, increments), batch=ARRIVALS):
        pass
