"""The benchmark's events: made in Spark from their numbers alone, so that every run has the same.

Event number i is sent at second i / rate; it is up to 30 s old then, and one in a hundred is up
to ten minutes old. Its key is one of 1,000, skewed: the most frequent has a tenth of all events.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.base.errors import DataError
from tidemark.base.instants import instant
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.store.log import Arrival
from tidemark_streaming.feed import Chunk

EVENTS = 10_000_000
SECONDS = 2.8 * 3600
KEYS = 1_000
SEED = 20_130_101
BEGIN = instant("2024-01-01")

SOURCE = Source(
    name="clicks",
    columns={"ts": "timestamp", "key": "int", "value": "double"},
    event_time="ts",
    # Nothing comes later than this: each contender counts every event, and all agree.
    watermark=BoundedOutOfOrderness("630 seconds"),
)


@dataclass(frozen=True)
class GeneratedFeed:
    """`events` events in `arrivals` arrivals."""

    events: int = EVENTS
    arrivals: int = 100
    source: Source = SOURCE

    def pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        return [
            Chunk(position=str(n), arrived_at=self._sent_at(n + 1), bytes=self._size * 24)
            for n in range(len(timeline), self.arrivals)
        ]

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> DataFrame:
        first, last = int(chunks[0].position), int(chunks[-1].position) + 1
        number = F.col("id")
        sent = F.lit(BEGIN) + (number * (SECONDS * 1e6 / self.events)).cast("bigint")
        usual = _chance(1) * 30e6
        age = F.when(_chance(2) < 0.01, _chance(3) * 600e6).otherwise(usual).cast("bigint")
        return spark.range(first * self._size, last * self._size).select(
            F.timestamp_micros(sent - age).alias("ts"),
            F.floor(F.pow(_chance(4), 3) * KEYS).cast("int").alias("key"),
            F.round(_chance(5) * 100, 2).alias("value"),
            (F.floor(number / self._size) - first).cast("bigint").alias("chunk"),
            (number % self._size).alias("position"),
            F.lit("generated").alias("read_from"),
            F.lit(None).cast("string").alias("unparsed"),
        )

    def explain(self, error: PySparkException) -> DataError | None:
        return None

    @property
    def _size(self) -> int:
        return self.events // self.arrivals

    def _sent_at(self, arrival: int) -> int:
        return BEGIN + int(arrival * SECONDS * 1e6 / self.arrivals)


def _chance(salt: int) -> Column:
    """A number in [0, 1) that the event's number and the salt decide."""
    mixed = F.xxhash64("id", F.lit(SEED + salt))
    return F.pmod(mixed, F.lit(1 << 30)) / (1 << 30)
