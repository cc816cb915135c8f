"""Measuring: wall-clock time, the engine's memory while it works, and whether results agree."""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from types import FrameType

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

TOLERANCE = 1e-9


class TimeLimitError(BaseException):
    """What was measured took longer than it may. No error that somebody on the way may handle."""


@dataclass
class Measured:
    """The repetitions of one contender.

    Args:
        rows: how many windows it published, the last time.
        differing: how many of them differ from the reference's, in the worst repetition; None
            where there was no reference.
        trouble: why it has no figures, if so.
    """

    seconds: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    rows: int = 0
    differing: int | None = None
    trouble: str | None = None

    @property
    def median(self) -> float:
        return median(self.seconds)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TimeLimitError` in the block, of the main thread, when it takes longer."""

    def ring(_: int, __: FrameType | None) -> None:
        raise TimeLimitError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def measured(into: Measured, engine: int) -> Iterator[None]:
    """Add the time that the block takes, and the largest resident size of this process and the
    engine's with its workers; nothing where it fails."""
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
        into.seconds.append(time.perf_counter() - begin)
        into.peak_bytes.append(peak)
    finally:
        done.set()
        watcher.join()


def _resident(pid: int) -> int:
    total = 0
    try:
        engine = psutil.Process(pid)
        processes = [engine, *engine.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def count(spark: SparkSession, path: str) -> int:
    """How many rows a table holds."""
    return spark.read.format("delta").load(path).count()


def differing(spark: SparkSession, path: str, other: str, key: str, columns: Sequence[str]) -> int:
    """How many (window, key) of two published tables do not agree in the columns."""
    joined = _rows(spark, path, "a").join(_rows(spark, other, "b"), ["at", key], "full")
    agree = F.col("a.there").eqNullSafe(F.col("b.there"))
    for column in columns:
        a, b = F.col(f"a.{column}"), F.col(f"b.{column}")
        near = F.abs(a - b) <= TOLERANCE * F.greatest(F.abs(a), F.abs(b))
        agree = agree & F.coalesce(near, a.eqNullSafe(b))
    return joined.where(~agree).count()


def _rows(spark: SparkSession, path: str, name: str) -> DataFrame:
    # DuckDB writes a timestamp without a zone: compare seconds.
    rows = spark.read.format("delta").load(path)
    at = F.unix_micros(F.col("window_start").cast("timestamp"))
    there = F.lit(True)
    return (
        rows.withColumns({"at": at, "there": there}).drop("window_start", "window_end").alias(name)
    )
