"""Run Tidemark, or a hand-written query, from a topic to a table of windows.

Each way is a context manager that runs its contender for the duration of a `with` block.
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

from benchmarks.measuring.own import open_warehouse
from benchmarks.sales.transforms import sales_by_shop
from tidemark.base.settings import Settings
from tidemark_streaming.kafka.broker import broker_address

SCHEMA = "at TIMESTAMP, shop STRING, amount DOUBLE"
COMMAND = str(Path(sys.executable).with_name("tidemark"))
ASSET, SOURCE = sales_by_shop.name, sales_by_shop.source.name
BOUND = "12 seconds"
"""The watermark delay: Tidemark's bound plus the allowed lateness."""

_BAD = "takings IS NULL OR largest IS NULL OR largest NOT BETWEEN 0 AND 100"


@dataclass(frozen=True)
class Way:
    """A contender that is running.

    Args:
        processes: the IDs of the contender's own processes, without the engine.
        finish: waits for work that does not show in the published table, and returns the time at
            which that work was done, in seconds since 1970; 0 if there is no such work.
    """

    processes: tuple[int, ...] = ()
    finish: Callable[[], float] = lambda: 0.0


def published_table(settings: Settings) -> Path:
    """Return the path of the table that Tidemark publishes."""
    return Path(settings.warehouse, settings.database, ASSET)


@contextmanager
def direct(settings: Settings) -> Iterator[Way]:
    """Run one process, which ingests events and runs the asset after each commit."""
    with _command(settings, "ingest", SOURCE, "--follow", "--run", ASSET) as pid:
        yield Way((pid,))


@contextmanager
def stream(settings: Settings) -> Iterator[Way]:
    """Run an ingest, and a Structured Streaming query in another process."""
    with ExitStack() as both:
        ingest = both.enter_context(_command(settings, "ingest", SOURCE, "--follow"))
        yield Way((ingest, both.enter_context(_command(settings, "stream", ASSET))))


@contextmanager
def by_hand(settings: Settings, topic: str, table: Path) -> Iterator[Way]:
    """Run a stateful query over the topic, which merges each micro-batch into a table.

    The query has no expectations, no late table, and no event log.
    """
    spark = open_warehouse(settings).spark
    with _windows(spark, settings, topic, table, checked=False):
        yield Way()


@contextmanager
def by_hand_with_checks(settings: Settings, topic: str, table: Path) -> Iterator[Way]:
    """Run a query that does everything that Tidemark does, except for the event log.

    The query checks two expectations on each micro-batch, and writes failing rows to a separate
    table. A second query writes too-late events to another table, because the first query drops
    them without a trace.
    """
    spark = open_warehouse(settings).spark
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
    windows = _sum_windows(_sales(spark, settings, topic).withWatermark("at", BOUND))
    if not table.exists():
        _sum_windows(spark.createDataFrame([], SCHEMA)).write.format("delta").save(str(table))
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
        figures = F.coalesce(F.max(at), F.lit(0)), F.count_if(behind)
        highest, too_late = batch.agg(*figures).collect()[0]
        if too_late:
            batch.where(behind).write.format("delta").mode("append").save(late)
        newest = max(newest, highest)

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
        .option("kafka.bootstrap.servers", broker_address(settings))
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    sales = records.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("e"))
    return sales.select("e.*")


def _sum_windows(sales: DataFrame) -> DataFrame:
    by = F.window("at", "10 seconds").alias("window"), "shop"
    sums = F.count("*").alias("events"), F.sum("amount").alias("takings")
    largest = F.max("amount").alias("largest")
    found = sales.groupBy(*by).agg(*sums, largest)
    return found.select(F.col("window.start").alias("window_start"), "shop", *found.columns[2:])


@contextmanager
def _command(settings: Settings, *arguments: str) -> Iterator[int]:
    """Run a command of Tidemark for the duration of the `with` block. Yield its process ID."""
    variables = {
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
            [COMMAND, *arguments], env=os.environ | variables, stdout=log, stderr=log
        ) as work,
    ):
        try:
            yield work.pid
        except RuntimeError as error:
            error.add_note(f"tidemark {' '.join(arguments)}: {Path(log.name).read_text()}")
            raise
        finally:
            work.send_signal(signal.SIGTERM)
