"""The contenders: the same one-minute windows by key, computed and published to Delta."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.events import SOURCE
from tidemark.define import aggregates as agg
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Tumbling
from tidemark.run.runner import backfill, incremental
from tidemark.store.warehouse import Warehouse

RUNS = 10


@dataclass(frozen=True)
class Contender:
    """A way to compute the windows; `run` publishes them in a Delta table and gives its path."""

    name: str
    run: Callable[[Warehouse, int], str]


def same(rows: DataFrame) -> DataFrame:
    return rows


PER_MINUTE = WindowedTransform(
    name="clicks_per_minute",
    description="Clicks by key and minute.",
    source=SOURCE,
    keys=("key",),
    window=Tumbling("1 minute"),
    allowed_lateness=0,
    aggregates={
        "n": agg.count(),
        "total": agg.sum("value"),
        "average": agg.mean("value"),
        "least": agg.min("value"),
        "most": agg.max("value"),
    },
    function=same,
)


def tidemark_backfill(warehouse: Warehouse, repetition: int) -> str:
    asset = replace(PER_MINUTE, name=f"backfilled_{repetition}")
    backfill(warehouse, asset)
    return warehouse.path(asset.table)


def tidemark_incremental(warehouse: Warehouse, repetition: int) -> str:
    asset = replace(PER_MINUTE, name=f"streamed_{repetition}")
    last = warehouse.read(SOURCE.timeline_table).agg(F.max("arrival")).first()
    assert last is not None
    # The arrival after the last is the end of the stream: it joins the last run.
    per_run = last[0] // RUNS
    for run in range(1, RUNS + 1):
        incremental(warehouse, asset, through=last[0] if run == RUNS else run * per_run - 1)
    return warehouse.path(asset.table)


def pyspark_batch(warehouse: Warehouse, repetition: int) -> str:
    path = warehouse.path(f"by_hand_batch_{repetition}")
    _windows(warehouse.read(SOURCE.log_table)).write.format("delta").save(path)
    return path


def pyspark_streaming(warehouse: Warehouse, repetition: int) -> str:
    """Stateful windows in update mode, each micro-batch merged into the target."""
    spark = warehouse.spark
    path = warehouse.path(f"by_hand_stream_{repetition}")
    log = warehouse.path(SOURCE.log_table)
    files = len(DeltaTable(log).file_uris())
    empty = _windows(warehouse.read(SOURCE.log_table).limit(0))
    empty.write.format("delta").save(path)

    def merge(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("changed")
        batch.sparkSession.sql(
            f"MERGE INTO delta.`{path}` t USING changed s "
            "ON t.window_start = s.window_start AND t.key = s.key "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    checkpoint = warehouse.path(f"_by_hand_checkpoint_{repetition}")
    rows = (
        spark.readStream.format("delta").option("maxFilesPerTrigger", -(-files // RUNS)).load(log)
    )
    query = (
        _windows(rows.withWatermark("ts", "630 seconds"))
        .writeStream.outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(merge)
        .trigger(availableNow=True)
        .start()
    )
    while query.isActive:
        time.sleep(0.05)
    if (error := query.exception()) is not None:
        raise error
    shutil.rmtree(checkpoint)
    return path


def duckdb_batch(warehouse: Warehouse, repetition: int) -> str:
    """DuckDB over the log's Parquet files; the result is published by the `deltalake` library."""
    path = warehouse.path(f"duckdb_{repetition}")
    files = DeltaTable(warehouse.path(SOURCE.log_table)).file_uris()
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2; SET TimeZone = 'UTC'")
        result = connection.execute(
            "SELECT time_bucket(INTERVAL 1 MINUTE, ts) AS window_start, key, count(*) AS n, "
            "sum(value) AS total, avg(value) AS average, min(value) AS least, max(value) AS most "
            "FROM read_parquet(?) GROUP BY 1, 2",
            [files],
        ).to_arrow_table()
    assert result is not None
    write_deltalake(Path(path), result)
    return path


def _windows(rows: DataFrame) -> DataFrame:
    return (
        rows.groupBy(F.window("ts", "1 minute").alias("window"), "key")
        .agg(
            F.count("*").alias("n"),
            F.sum("value").alias("total"),
            F.avg("value").alias("average"),
            F.min("value").alias("least"),
            F.max("value").alias("most"),
        )
        .select(F.col("window.start").alias("window_start"), "key", *PER_MINUTE.aggregates)
    )


BATCH = Contender("PySpark batch, by hand", pyspark_batch)
STREAMING = Contender("PySpark streaming, by hand", pyspark_streaming)
CONTENDERS = [
    BATCH,
    Contender("Tidemark backfill", tidemark_backfill),
    STREAMING,
    Contender("Tidemark incremental", tidemark_incremental),
    Contender("DuckDB batch", duckdb_batch),
]
