"""A connector for a scenario's arrivals, which are ingested like all other arrivals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark_streaming.connector import CHUNK, Chunk
from tidemark_streaming.scenario.read.arrivals import ScenarioArrival

_PLACE = {CHUNK: "BIGINT", "position": "BIGINT"}


def create_frame(
    spark: SparkSession, rows: Sequence[tuple[Any, ...]], columns: Mapping[str, str]
) -> DataFrame:
    """Return a scenario's rows, whose instants are integers in microseconds, as a DataFrame."""
    instants = [c for c, kind in columns.items() if kind.strip().lower().startswith("timestamp")]
    instants = [c for c in instants if not columns[c].strip().lower().endswith("ntz")]
    names = (f"`{c}` {'BIGINT' if c in instants else kind}" for c, kind in columns.items())
    frame = spark.createDataFrame(rows, ", ".join(names))
    if not instants:
        return frame
    return frame.withColumns({c: F.timestamp_micros(F.col(f"`{c}`")) for c in instants})


@dataclass(frozen=True)
class MemoryConnector:
    """A connector that returns given arrivals."""

    source: Source
    arrivals: Sequence[ScenarioArrival]

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        return [
            Chunk(
                str(number),
                a.clock,
                watermark=a.watermark,
                end=a.ends,
                silent_since=a.silent_since,
            )
            for number, a in enumerate(self.arrivals)
            if number >= len(timeline)
        ]

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> DataFrame:
        rows = [
            (*row, index, position)
            for index, chunk in enumerate(chunks)
            for position, row in enumerate(self.arrivals[int(chunk.position)].rows)
        ]
        frame = create_frame(spark, rows, {**self.source.columns, **_PLACE})
        return frame.withColumn("read_from", F.concat_ws("#", *_PLACE))
