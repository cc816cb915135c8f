"""The peer of an increment: a hand-written stateful query, which runs one micro-batch at a time."""

import shutil
from pathlib import Path
from typing import Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.inputs.departures import LANDED
from tidemark.store.warehouse import Warehouse

VALUES = ("flights", "cancelled", "mean_delay", "worst_delay")


class StatefulQuery:
    """A stateful query that merges hourly departures by airport into a Delta table (update mode).

    The query keeps running, and processes each new file as one micro-batch. It has no expectations
    and no late table. Its watermark delay is Tidemark's bound plus the allowed lateness.
    """

    def __init__(self, warehouse: Warehouse, name: str) -> None:
        self._spark = warehouse.spark
        self._folder = Path(warehouse.path_of(f"_{name}_files"))
        self._checkpoint = warehouse.path_of(f"_{name}_checkpoint")
        self.path = warehouse.path_of(name)

    def __enter__(self) -> Self:
        path = self.path
        if not self._folder.exists():
            self._folder.mkdir(parents=True)
            empty = _hours(self._spark.createDataFrame([], LANDED))
            empty.write.format("delta").save(path)

        def merge(batch: DataFrame, _: int) -> None:
            batch.createOrReplaceTempView("changed")
            batch.sparkSession.sql(
                f"MERGE INTO delta.`{path}` t USING changed s "
                "ON t.window_start = s.window_start AND t.origin = s.origin "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            ).collect()

        # The query should not use the processor while other contenders are measured. The delay does
        # not distort the query's figures, because only the duration of micro-batches is measured.
        self._spark.conf.set("spark.sql.streaming.pollingDelay", "1s")
        rows = (
            self._spark.readStream.schema(LANDED)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._folder))
        )
        self._query = (
            _hours(rows.withWatermark("departure", "6 hours"))
            .writeStream.outputMode("update")
            .option("checkpointLocation", self._checkpoint)
            .foreachBatch(merge)
            .start()
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._query.stop()

    def take(self, file: Path) -> tuple[float, int]:
        """Give the query a file. Return the seconds of its micro-batch, and the number of windows.

        The seconds include neither the wait before the micro-batch nor the next micro-batch, which
        removes old state. The method waits for the next micro-batch too, so that it does not slow
        down other contenders.
        """
        before = {p.batchId for p in self._query.recentProgress if p.numInputRows}
        scratch = self._folder / f".{file.name}"
        shutil.copyfile(file, scratch)
        scratch.rename(self._folder / file.name)
        self._query.processAllAvailable()
        (new,) = (
            p for p in self._query.recentProgress if p.numInputRows and p.batchId not in before
        )
        return new.durationMs["triggerExecution"] / 1000, new.stateOperators[0].numRowsUpdated


def _hours(rows: DataFrame) -> DataFrame:
    return (
        rows.groupBy(F.window("departure", "1 hour").alias("window"), "origin")
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("dep_time").isNull()).alias("cancelled"),
            F.avg("dep_delay").alias("mean_delay"),
            F.max("dep_delay").alias("worst_delay"),
        )
        .select(F.col("window.start").alias("window_start"), "origin", *VALUES)
    )
