"""Ways from a topic to a table of windows: Tidemark's, and the query that one writes by hand.

Each is a block that lasts as long as the way is open.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.measuring.own import opened
from benchmarks.sales.transforms import sales_by_shop
from tidemark.base.settings import Settings
from tidemark_streaming.kafka.broker import address

SCHEMA = "at TIMESTAMP, shop STRING, amount DOUBLE"
COMMAND = str(Path(sys.executable).with_name("tidemark"))
ASSET, SOURCE = sales_by_shop.name, sales_by_shop.source.name
BOUND = "12 seconds"
"""As far behind as Tidemark's watermark and allowed lateness."""

_BAD = "takings IS NULL OR largest IS NULL OR largest NOT BETWEEN 0 AND 100"


@dataclass(frozen=True)
class Way:
    """A way that is open.

    Args:
        processes: what it has of its own beside the engine.
        finish: waits until it has done what its table does not tell of, and says when that was, in
            seconds since 1970.
    """

    processes: tuple[int, ...] = ()
    finish: Callable[[], float] = lambda: 0.0


def published(settings: Settings) -> Path:
    """The table of Tidemark's ways."""
    return Path(settings.warehouse, settings.database, ASSET)


@contextmanager
def direct(settings: Settings) -> Iterator[Way]:
    """One process that ingests, and runs the asset on what it has just read."""
    with _command(settings, "ingest", SOURCE, "--follow", "--run", ASSET) as pid:
        yield Way((pid,))


@contextmanager
def streamed(settings: Settings) -> Iterator[Way]:
    """An ingest, and a Structured Streaming query beside it."""
    with ExitStack() as both:
        ingest = both.enter_context(_command(settings, "ingest", SOURCE, "--follow"))
        yield Way((ingest, both.enter_context(_command(settings, "stream", ASSET))))


@contextmanager
def by_hand(settings: Settings, topic: str, table: Path) -> Iterator[Way]:
    """A stateful query over the topic, each micro-batch merged into a table.

    No checks, no table of late events, no log to compute anew from.
    """
    spark = opened(settings).spark
    with _windows(spark, settings, topic, table, checked=False):
        yield Way()


@contextmanager
def dutiful(settings: Settings, topic: str, table: Path) -> Iterator[Way]:
    """The same, with what Tidemark does as well, but for the log: two checks of each micro-batch,
    whose failing rows go to a table of their own instead; and what comes too late in another, to
    which a second query brings it, as the first tells nobody what it drops."""
    spark = opened(settings).spark
    with (
        _windows(spark, settings, topic, table, checked=True),
        _late(spark, settings, topic, table) as late,
    ):

        def finish() -> float:
            late.processAllAvailable()
            return time.time()

        yield Way(finish=finish)


@contextmanager
def _windows(
    spark: SparkSession, settings: Settings, topic: str, table: Path, *, checked: bool
) -> Iterator[None]:
    windows = _summed(_sales(spark, settings, topic).withWatermark("at", BOUND))
    if not table.exists():
        _summed(spark.createDataFrame([], SCHEMA)).write.format("delta").save(str(table))
    failing, bad = f"{table}_failing", _BAD

    def merge(batch: DataFrame, _: int) -> None:
        if checked:
            batch = batch.persist()
            wrong = batch.where(bad)
            if not wrong.isEmpty():
                wrong.write.format("delta").mode("append").save(failing)
                batch = batch.where(f"NOT coalesce({bad}, true)")
        batch.createOrReplaceTempView("changed")
        batch.sparkSession.sql(
            f"MERGE INTO delta.`{table}` t USING changed s "
            "ON t.window_start = s.window_start AND t.shop = s.shop "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()
        if checked:
            batch.unpersist()

    query = (
        windows.writeStream.outputMode("update")
        .option("checkpointLocation", f"{table}_checkpoint")
        .foreachBatch(merge)
        .start()
    )
    with _running(query):
        yield


@contextmanager
def _late(
    spark: SparkSession, settings: Settings, topic: str, table: Path
) -> Iterator[StreamingQuery]:
    late, bound = f"{table}_late", int(BOUND.split()[0])
    newest = 0

    def keep(batch: DataFrame, _: int) -> None:
        nonlocal newest
        at = F.unix_seconds("at")
        behind = at < newest - bound
        told = batch.agg(F.coalesce(F.max(at), F.lit(0)), F.count_if(behind)).collect()[0]
        if told[1]:
            batch.where(behind).write.format("delta").mode("append").save(late)
        newest = max(newest, told[0])

    query = (
        _sales(spark, settings, topic)
        .writeStream.option("checkpointLocation", f"{late}_checkpoint")
        .foreachBatch(keep)
        .start()
    )
    with _running(query):
        yield query


@contextmanager
def _running(query: StreamingQuery) -> Iterator[None]:
    try:
        yield
        if (failure := query.exception()) is not None:
            raise failure
    finally:
        query.stop()


def _sales(spark: SparkSession, settings: Settings, topic: str) -> DataFrame:
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", address(settings))
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    sales = records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("e"))
    return sales.select("e.*")


def _summed(sales: DataFrame) -> DataFrame:
    by = F.window("at", "10 seconds").alias("window"), "shop"
    sums = F.count("*").alias("events"), F.sum("amount").alias("takings")
    largest = F.max("amount").alias("largest")
    found = sales.groupBy(*by).agg(*sums, largest)
    return found.select(F.col("window.start").alias("window_start"), "shop", *found.columns[2:])


@contextmanager
def _command(settings: Settings, *arguments: str) -> Iterator[int]:
    """A command of Tidemark, for as long as the block lasts."""
    told = {
        "TIDEMARK_HOME": str(settings.home),
        "TIDEMARK_ENGINE_PORT": str(settings.engine_port),
        "TIDEMARK_KAFKA_PORT": str(settings.kafka_port),
        "TIDEMARK_DOMAINS": "benchmarks.sales",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    log = (settings.home / f"{arguments[0]}.log").open("a")
    with (
        log,
        subprocess.Popen(
            [COMMAND, *arguments], env=os.environ | told, stdout=log, stderr=log
        ) as work,
    ):
        try:
            yield work.pid
        except RuntimeError as error:
            error.add_note(f"tidemark {' '.join(arguments)}: {Path(log.name).read_text()}")
            raise
        finally:
            work.send_signal(signal.SIGTERM)
