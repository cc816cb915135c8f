"""Files that change during a read are read once, and an interrupted load of a lookup table is
completed."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helpers.data.support import READINGS
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import CHUNK, Chunk, Ingestion
from tidemark_streaming.ingest.ingest import fill_lookup_tables, ingest


@dataclass(frozen=True)
class GrowingConnector:
    """A connector to a file that is still being written: each read returns different rows.

    Args:
        bytes: the reported size, which decides between the paths for few and for many rows.
    """

    source: Source
    bytes: int

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        return [Chunk("{}", 0, bytes=self.bytes)] if not timeline else []

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> DataFrame:
        grown = spark.range(1_000).where("rand() < 0.5")
        return grown.select(
            *(F.lit(None).cast(kind).alias(name) for name, kind in self.source.columns.items()),
            F.lit(0).cast("bigint").alias(CHUNK),
            F.col("id").alias("position"),
            F.lit("growing").alias("read_from"),
        )


@pytest.mark.parametrize("size", [0, 1 << 30], ids=["few", "many"])
def test_log_and_timeline_agree_on_the_rows_of_a_growing_file(
    warehouse: Warehouse, size: int
) -> None:
    """Finding 15."""
    list(ingest(warehouse, GrowingConnector(READINGS, size)))
    (arrival,) = Log(warehouse, READINGS).read_timeline()
    assert 300 < arrival.rows < 700
    assert warehouse.read_frame(READINGS.log_table).count() == arrival.rows


def test_an_interrupted_load_of_a_lookup_table_is_completed_later(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 6."""

    def load(spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([("a", 1), ("b", 2)], "sensor STRING, place INT")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    ingestion = Ingestion(
        READINGS, connector=lambda _: GrowingConnector(READINGS, 0), lookups={"places": load}
    )
    with monkeypatch.context() as dying:
        dying.setattr(Warehouse, "append_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            fill_lookup_tables(warehouse, ingestion)
    assert warehouse.read_frame("places").count() == 0
    for _ in range(2):
        fill_lookup_tables(warehouse, ingestion)
        assert warehouse.read_frame("places").count() == 2
