"""Measuring: wall-clock time, the engine's memory while it works, and whether results agree."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

TOLERANCE = 1e-9


@dataclass
class Measured:
    """The repetitions of one contender."""

    seconds: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.seconds)


@contextmanager
def measured(into: Measured, engine: int) -> Iterator[None]:
    """Add the time that the block takes, and the largest resident size of this process and the
    engine's with its workers."""
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.1):
            peak = max(peak, _resident(engine) + psutil.Process().memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    try:
        yield
    finally:
        into.seconds.append(time.perf_counter() - begin)
        done.set()
        watcher.join()
        into.peak_bytes.append(peak)


def _resident(pid: int) -> int:
    engine = psutil.Process(pid)
    total = 0
    for process in [engine, *engine.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def differing(spark: SparkSession, path: str, other: str) -> int:
    """How many (window, key) of two published tables do not agree."""
    columns = ["n", "total", "average", "least", "most"]
    joined = _rows(spark, path, "a").join(_rows(spark, other, "b"), ["at", "key"], "full")
    agree = F.lit(True)
    for column in columns:
        a, b = F.col(f"a.{column}"), F.col(f"b.{column}")
        near = F.abs(a - b) <= TOLERANCE * F.greatest(F.abs(a), F.abs(b))
        agree = agree & F.coalesce(near, F.lit(False))
    return joined.where(~agree).count()


def _rows(spark: SparkSession, path: str, name: str) -> DataFrame:
    # DuckDB writes a timestamp without a zone: compare seconds.
    rows = spark.read.format("delta").load(path)
    at = F.unix_timestamp(F.col("window_start").cast("timestamp"))
    return rows.withColumn("at", at).drop("window_start", "window_end").alias(name)
