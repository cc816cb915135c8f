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
    instants = list[str]()
    declarations = list[str]()
    for column, ddl in columns.items():
        kind = ddl.strip().lower()
        is_instant = kind.startswith("timestamp") and not kind.endswith("ntz")
        if is_instant:
            instants.append(column)
        declarations.append(f"`{column}` {'BIGINT' if is_instant else ddl}")
    frame = spark.createDataFrame(rows, ", ".join(declarations))
    if not instants:
        return frame
    times = {column: F.timestamp_micros(F.col(f"`{column}`")) for column in instants}
    return frame.withColumns(times)


@dataclass(frozen=True)
class MemoryConnector:
    """A connector that returns given arrivals."""

    source: Source
    arrivals: Sequence[ScenarioArrival]

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        chunks = list[Chunk]()
        for number in range(len(timeline), len(self.arrivals)):
            arrival = self.arrivals[number]
            chunk = Chunk(
                str(number),
                arrival.clock,
                watermark=arrival.watermark,
                end=arrival.ends,
                silent_since=arrival.silent_since,
            )
            chunks.append(chunk)
        return chunks

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> DataFrame:
        rows = list[tuple[Any, ...]]()
        for index, chunk in enumerate(chunks):
            arrival = self.arrivals[int(chunk.position)]
            for position, row in enumerate(arrival.rows):
                rows.append((*row, index, position))
        frame = create_frame(spark, rows, {**self.source.columns, **_PLACE})
        return frame.withColumn("read_from", F.concat_ws("#", *_PLACE))
