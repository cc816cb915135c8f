"""Ways from a topic to a table of windows: Tidemark's, and the query that one writes by hand."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.own import opened
from benchmarks.sales.transforms import sales_by_shop
from tidemark.base.settings import Settings
from tidemark_streaming.kafka.broker import address

SCHEMA = "at TIMESTAMP, shop STRING, amount DOUBLE"
COMMAND = str(Path(sys.executable).with_name("tidemark"))
ASSET, SOURCE = sales_by_shop.name, sales_by_shop.source.name


def published(settings: Settings) -> Path:
    """The table of Tidemark's ways."""
    return Path(settings.warehouse, settings.database, ASSET)


@contextmanager
def direct(settings: Settings) -> Iterator[None]:
    """One process that ingests, and runs the asset on what it has just read."""
    with _command(settings, "ingest", SOURCE, "--follow", "--run", ASSET):
        yield


@contextmanager
def streamed(settings: Settings) -> Iterator[None]:
    """An ingest, and a Structured Streaming query beside it."""
    with ExitStack() as both:
        both.enter_context(_command(settings, "ingest", SOURCE, "--follow"))
        both.enter_context(_command(settings, "stream", ASSET))
        yield


@contextmanager
def by_hand(settings: Settings, topic: str, table: Path) -> Iterator[None]:
    """A stateful query over the topic, each micro-batch merged into a table.

    No checks, no table of late events, no log to compute anew from; its watermark stays as far
    behind as Tidemark's bound and allowed lateness.
    """
    spark = opened(settings).spark
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", address(settings))
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    sales = records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("e"))
    windows = _windows(sales.select("e.*").withWatermark("at", "12 seconds"))
    if not table.exists():
        _windows(spark.createDataFrame([], SCHEMA)).write.format("delta").save(str(table))

    def merge(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("changed")
        batch.sparkSession.sql(
            f"MERGE INTO delta.`{table}` t USING changed s "
            "ON t.window_start = s.window_start AND t.shop = s.shop "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    query = (
        windows.writeStream.outputMode("update")
        .option("checkpointLocation", f"{table}_checkpoint")
        .foreachBatch(merge)
        .start()
    )
    try:
        yield
        if (failure := query.exception()) is not None:
            raise failure
    finally:
        query.stop()


def _windows(sales: DataFrame) -> DataFrame:
    by = F.window("at", "10 seconds").alias("window"), "shop"
    sums = F.count("*").alias("events"), F.sum("amount").alias("takings")
    largest = F.max("amount").alias("largest")
    found = sales.groupBy(*by).agg(*sums, largest)
    return found.select(F.col("window.start").alias("window_start"), "shop", *found.columns[2:])


@contextmanager
def _command(settings: Settings, *arguments: str) -> Iterator[None]:
    """A command of Tidemark, for as long as the block lasts."""
    told = {
        "TIDEMARK_HOME": str(settings.home),
        "TIDEMARK_ENGINE_PORT": str(settings.engine_port),
        "TIDEMARK_KAFKA_PORT": str(settings.kafka_port),
        "TIDEMARK_DOMAINS": "benchmarks.sales",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    log = (settings.home / f"{arguments[0]}.log").open("a")
    with (
        log,
        subprocess.Popen(
            [COMMAND, *arguments], env=os.environ | told, stdout=log, stderr=log
        ) as work,
    ):
        try:
            yield
        except RuntimeError as error:
            error.add_note(f"tidemark {' '.join(arguments)}: {Path(log.name).read_text()}")
            raise
        finally:
            work.send_signal(signal.SIGTERM)
