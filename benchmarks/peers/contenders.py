"""Define the contenders, each of which computes a workload's windows and publishes a Delta table.

Tidemark reads its event log. The hand-written queries and DuckDB read the same events from plain
Parquet files. The time to write the event log or the files is not counted.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
from deltalake import write_deltalake
from pyspark.sql import DataFrame

from benchmarks.inputs.events import DELAY, PIECE_FILES, SOURCE
from benchmarks.inputs.workloads import Workload
from tidemark.run import backfill, incremental
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse

RUNS = 10
COLUMNS = ", ".join(f"{name} {kind}" for name, kind in SOURCE.columns.items())


@dataclass(frozen=True)
class Bench:
    """The contenders' warehouse, and the folder with the Parquet files of the events."""

    warehouse: Warehouse
    landed: Path

    def path(self, name: str) -> str:
        """Return the path of a table of a contender other than Tidemark."""
        return self.warehouse.path_of(name)


Run = Callable[[Bench, Workload, int], str]
"""A function that publishes the windows of a workload in a round, and returns the table's path."""


@dataclass(frozen=True)
class Contender:
    """A way to compute the windows.

    Args:
        peer: the name of the contender with which this one is compared; None for a peer.
        only: the only workload that the contender supports; None if it supports all.
    """

    name: str
    run: Run
    peer: str | None = None
    only: str | None = None


def _tidemark_backfill(bench: Bench, workload: Workload, number: int) -> str:
    asset = replace(workload.asset, name=f"{workload.name}_backfilled_{number}")
    backfill(bench.warehouse, asset)
    return bench.warehouse.path_of(asset.published_table)


def _tidemark_increments(bench: Bench, workload: Workload, number: int) -> str:
    asset = replace(workload.asset, name=f"{workload.name}_streamed_{number}")
    last = Log(bench.warehouse, SOURCE).find_last_arrival()
    assert last is not None
    # The last arrival has no events: it is the end of the source, and belongs to the last run.
    per_run = last.arrival // RUNS
    for run in range(1, RUNS + 1):
        through = last.arrival if run == RUNS else run * per_run - 1
        incremental(bench.warehouse, asset, last_arrival=through)
    return bench.warehouse.path_of(asset.published_table)


def _spark_batch(bench: Bench, workload: Workload, number: int) -> str:
    path = bench.path(f"{workload.name}_by_hand_batch_{number}")
    rows = bench.warehouse.spark.read.schema(COLUMNS).parquet(str(bench.landed / "piece_*"))
    workload.by_hand(rows).write.format("delta").save(path)
    return path


def _spark_streaming(bench: Bench, workload: Workload, number: int) -> str:
    """Run a stateful query in ten micro-batches.

    Windows are emitted in update mode, and each micro-batch is merged into the table. Spark has no
    update mode for sessions, so they are appended when they close.
    """
    spark = bench.warehouse.spark
    path = bench.path(f"{workload.name}_by_hand_stream_{number}")
    checkpoint = bench.path(f"_{workload.name}_checkpoint_{number}")
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    files = "piece_*" if workload.updates else "{piece_*,end}"
    rows = (
        spark.readStream.schema(COLUMNS)
        .option("maxFilesPerTrigger", PIECE_FILES)
        .parquet(str(bench.landed / files))
    )
    windows = workload.by_hand(rows.withWatermark("ts", DELAY))

    def merge(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("changed")
        batch.sparkSession.sql(
            f"MERGE INTO delta.`{path}` t USING changed s "
            "ON t.window_start = s.window_start AND t.key = s.key "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    writer = windows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    if workload.updates:
        empty = workload.by_hand(spark.createDataFrame([], COLUMNS))
        empty.write.format("delta").save(path)
        query = writer.outputMode("update").foreachBatch(merge).start()
    else:
        query = writer.outputMode("append").format("delta").start(path)
    while query.isActive:
        time.sleep(0.05)
    if (error := query.exception()) is not None:
        raise error
    shutil.rmtree(checkpoint)
    return path


def _duckdb_batch(bench: Bench, workload: Workload, number: int) -> str:
    """Query the Parquet files with DuckDB, and publish the result with the library `deltalake`."""
    path = bench.path(f"{workload.name}_duckdb_{number}")
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2; SET TimeZone = 'UTC'")
        result = connection.sql(
            "SELECT time_bucket(INTERVAL 1 MINUTE, ts) AS window_start, key, count(*) AS n, "
            "sum(value) AS total, avg(value) AS average, min(value) AS least, max(value) AS most "
            "FROM read_parquet(?) GROUP BY 1, 2",
            params=[str(bench.landed / "piece_*" / "*.parquet")],
        ).to_arrow_table()
    assert result is not None
    write_deltalake(Path(path), result)
    return path


BATCH = Contender("Spark batch, by hand", _spark_batch)
STREAMING = Contender("Spark streaming, by hand", _spark_streaming)
BACKFILL = Contender("Tidemark backfill", _tidemark_backfill, BATCH.name)
INCREMENTS = Contender(f"Tidemark, {RUNS} increments", _tidemark_increments, STREAMING.name)
CONTENDERS = (
    BATCH,
    BACKFILL,
    STREAMING,
    INCREMENTS,
    Contender("DuckDB batch", _duckdb_batch, only="tumbling"),
)
