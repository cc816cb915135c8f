"""Generate the benchmark's events in Spark. Each event depends only on its number.

All runs therefore have the same events. Event number i is sent at second i / rate. When an event is
sent, it is up to 30 s old, and one event in a hundred is up to ten minutes old. There are 1,000
keys, whose distribution is skewed: the most frequent key has a tenth of all events. `Shape` varies
these facts.

The events are written twice: to the event log for Tidemark, and as plain Parquet for the
hand-written queries. They are written in pieces, so that any number of events needs little memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.base.instants import parse_instant
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.store.event_log.arrival import Arrival
from tidemark_streaming.connector import CHUNK, Chunk

EVENTS = 10_000_000
SECONDS = 2.8 * 3600
KEYS = 1_000
SEED = 20_130_101
BEGIN = parse_instant("2024-01-01")
DELAY = "630 seconds"
"""The greatest delay of an event. No event is too late, so all contenders count the same events."""

SOURCE = Source(
    name="clicks",
    columns={"ts": "timestamp", "key": "int", "value": "double"},
    event_time="ts",
    watermark=BoundedOutOfOrderness(DELAY),
)
ARRIVALS = 100
PIECES = 10
PIECE_FILES = 4
_COMMIT = 2_500_000


@dataclass(frozen=True)
class Shape:
    """How keys and ages of events are distributed.

    Args:
        keys: the number of keys.
        top_share: the share of events that key 0 has in addition to its usual share.
        late_seconds: the greatest age of one event in a hundred.
    """

    keys: int = KEYS
    top_share: float = 0.0
    late_seconds: float = 600.0


USUAL = Shape()


@dataclass(frozen=True)
class GeneratedConnector:
    """A connector that generates `events` events in `arrivals` arrivals of equal size."""

    events: int = EVENTS
    arrivals: int = ARRIVALS
    source: Source = SOURCE
    shape: Shape = USUAL

    @property
    def batch(self) -> int:
        """The number of arrivals per commit: a tenth of all, or fewer if arrivals are large."""
        return max(1, min(self.arrivals // PIECES, _COMMIT // self._size))

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        return [
            Chunk(position=str(n), arrived_at=self._sent_at(n + 1), bytes=self._size * 24)
            for n in range(len(timeline), self.arrivals)
        ]

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> DataFrame:
        first, last = int(chunks[0].position), int(chunks[-1].position) + 1
        return self._read_arrivals(spark, first * self._size, last * self._size, self._size)

    def read_after_all(self, spark: SparkSession, events: int) -> DataFrame:
        """Return one more arrival with the given number of events."""
        first = self._size * self.arrivals
        return self._read_arrivals(spark, first, first + events, events)

    def _read_arrivals(self, spark: SparkSession, first: int, end: int, size: int) -> DataFrame:
        """Return the events with first <= number < end, in arrivals of the given size."""
        place = F.col("id") - first
        return self._events(spark.range(first, end)).select(
            *SOURCE.columns,
            F.floor(place / size).cast("bigint").alias(CHUNK),
            (place % size).alias("position"),
            F.lit("generated").alias("read_from"),
        )

    def land(self, spark: SparkSession, folder: Path) -> Iterator[int]:
        """Write the same events as Parquet, in pieces of equal size in the order of arrival.

        Yield the number of written pieces after each piece.
        """
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        bounds = [self._size * self.arrivals * n // PIECES for n in range(PIECES + 1)]
        for n in range(PIECES):
            rows = self._events(spark.range(bounds[n], bounds[n + 1], 1, PIECE_FILES))
            rows.select(*SOURCE.columns).write.parquet(str(folder / f"piece_{n}"))
            yield n + 1
        # Because of an event far in the future, a stream closes all windows of the other events.
        far = F.timestamp_micros(F.lit(BEGIN + int(10 * SECONDS * 1e6)))
        last = spark.range(1).select(
            far.alias("ts"), F.lit(-1).alias("key"), F.lit(0.0).alias("value")
        )
        last.coalesce(1).write.parquet(str(folder / "end"))

    def _events(self, numbers: DataFrame) -> DataFrame:
        sent = F.lit(BEGIN) + (F.col("id") * (SECONDS * 1e6 / self.events)).cast("bigint")
        usual = _chance(1) * 30e6
        greatest_age = _chance(3) * (self.shape.late_seconds * 1e6)
        age = F.when(_chance(2) < 0.01, greatest_age).otherwise(usual).cast("bigint")
        usual_key = F.floor(F.pow(_chance(4), 3) * self.shape.keys)
        is_top = _chance(6) < self.shape.top_share
        return numbers.select(
            "id",
            F.timestamp_micros(sent - age).alias("ts"),
            F.when(is_top, 0).otherwise(usual_key).cast("int").alias("key"),
            F.round(_chance(5) * 100, 2).alias("value"),
        )

    @property
    def _size(self) -> int:
        return self.events // self.arrivals

    def _sent_at(self, arrival: int) -> int:
        return BEGIN + int(arrival * SECONDS * 1e6 / self.arrivals)


def _chance(salt: int) -> Column:
    """Return a number in [0, 1) that depends only on the event's number and on `salt`."""
    mixed = F.xxhash64("id", F.lit(SEED + salt))
    return F.pmod(mixed, F.lit(1 << 30)) / (1 << 30)
