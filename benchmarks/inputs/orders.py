"""Generate two streams to join, in Spark. Each event depends only on its number.

All runs therefore have the same events. Orders and payments each cover a day evenly, with 100,000
keys. Events are in the order of their event times. Later arrivals continue at 100,000 events an
hour.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.base.instants import parse_instant
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.store.event_log.arrival import Arrival
from tidemark_streaming.connector import CHUNK, Chunk

KEYS = 100_000
BEGIN = parse_instant("2024-01-01")
DAY = 86_400_000_000
BOUND = "1 minute"
ARRIVALS, PIECES, PIECE_FILES = 100, 10, 4
MORE = 1_000
"""The number of events in each arrival after the day."""
_PACE = 36_000


@dataclass(frozen=True)
class Stream:
    """One of the two streams.

    Args:
        events: the number of events of the day.
        seed: the seed of the keys.
        arrivals: the number of arrivals. The first `ARRIVALS` cover the day, and the others follow.
    """

    source: Source
    events: int
    seed: int
    arrivals: int = ARRIVALS

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        bounds = [self._bounds(n) for n in range(self.arrivals)]
        return [
            Chunk(str(n), BEGIN + self._time(last), bytes=(last - first) * 24)
            for n, (first, last) in enumerate(bounds)
            if n >= len(timeline)
        ]

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> DataFrame:
        numbers = [int(chunk.position) for chunk in chunks]
        first, last = self._bounds(numbers[0])[0], self._bounds(numbers[-1])[1]
        size = self._bounds(numbers[0])[1] - first
        return self.rows(spark, first, last).select(
            *self.source.columns,
            F.floor((F.col("v") - first) / size).cast("bigint").alias(CHUNK),
            ((F.col("v") - first) % size).alias("position"),
            F.lit("generated").alias("read_from"),
        )

    def rows(self, spark: SparkSession, first: int, last: int, files: int = 2) -> DataFrame:
        """Return the events with first <= number < last."""
        number = F.col("id")
        day = (number * (DAY / self.events)).cast("bigint")
        later = F.lit(DAY) + (number - self.events) * _PACE
        return spark.range(first, last, 1, files).select(
            F.timestamp_micros(
                F.lit(BEGIN) + F.when(number < self.events, day).otherwise(later)
            ).alias("t"),
            F.pmod(F.xxhash64("id", F.lit(self.seed)), F.lit(KEYS)).alias("k"),
            number.alias("v"),
        )

    def land(self, spark: SparkSession, folder: Path) -> None:
        """Write the day's events as Parquet, in pieces of equal size."""
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        for n in range(PIECES):
            first, last = (self.events * (n + m) // PIECES for m in (0, 1))
            piece = folder / self.source.name / f"piece_{n}"
            self.rows(spark, first, last, PIECE_FILES).write.parquet(str(piece))

    def _bounds(self, number: int) -> tuple[int, int]:
        size = self.events // ARRIVALS
        if number < ARRIVALS:
            return number * size, (number + 1) * size
        first = self.events + (number - ARRIVALS) * MORE
        return first, first + MORE

    def _time(self, number: int) -> int:
        if number <= self.events:
            return number * DAY // self.events
        return DAY + (number - self.events) * _PACE


def stream(name: str, events: int, seed: int, arrivals: int = ARRIVALS) -> Stream:
    """Return a stream of events (t, k, v)."""
    source = Source(
        name=name,
        columns={"t": "timestamp", "k": "bigint", "v": "bigint"},
        event_time="t",
        watermark=BoundedOutOfOrderness(BOUND),
    )
    return Stream(source, events, seed, arrivals)
