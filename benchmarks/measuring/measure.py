"""Measure time and memory, and compare results."""

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
    """A contender took longer than its limit.

    This class is not an `Exception`, so that no handler of exceptions suppresses the error.
    """


@dataclass
class Measured:
    """The repetitions of one contender.

    Args:
        processor_seconds: the processor time of each repetition.
        rows: the number of windows that the contender published in the last repetition.
        differing: the number of windows that differ from the reference's, in the worst repetition;
            None if there is no reference.
        trouble: why there are no figures; None if there are.
    """

    seconds: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    processor_seconds: list[float] = field(default_factory=list)
    rows: int = 0
    differing: int | None = None
    trouble: str | None = None

    @property
    def median(self) -> float:
        return median(self.seconds)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeLimitError` if the `with` block takes longer. Works only in the main thread."""

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
def measure_block(into: Measured, engine: int) -> Iterator[None]:
    """Measure the `with` block, and add its time, processor time and peak memory to `into`.

    Processor time and memory include this process, the engine with process ID `engine`, and the
    engine's workers. If the block raises an exception, nothing is added.
    """
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.1):
            peak = max(peak, _resident(engine) + psutil.Process().memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin, used = time.perf_counter(), _processor_time(engine)
    try:
        yield
        into.seconds.append(time.perf_counter() - begin)
        into.peak_bytes.append(peak)
        into.processor_seconds.append(_processor_time(engine) - used)
    finally:
        done.set()
        watcher.join()


def _processor_time(pid: int) -> float:
    try:
        engine = psutil.Process(pid)
        processes = [engine, *engine.children(recursive=True), psutil.Process()]
        times = [process.cpu_times() for process in processes]
    except psutil.NoSuchProcess:
        return 0.0
    return sum(each.user + each.system for each in times)


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
    """Return the number of rows of a table."""
    return spark.read.format("delta").load(path).count()


def differing(spark: SparkSession, path: str, other: str, key: str, columns: Sequence[str]) -> int:
    """Return the number of window rows of two published tables that differ in the columns."""
    joined = _rows(spark, path, "a").join(_rows(spark, other, "b"), ["at", key], "full")
    agree = F.col("a.there").eqNullSafe(F.col("b.there"))
    for column in columns:
        a, b = F.col(f"a.{column}"), F.col(f"b.{column}")
        near = F.abs(a - b) <= TOLERANCE * F.greatest(F.abs(a), F.abs(b))
        agree = agree & F.coalesce(near, a.eqNullSafe(b))
    return joined.where(~agree).count()


def _rows(spark: SparkSession, path: str, name: str) -> DataFrame:
    # Compare microseconds, because DuckDB writes timestamps without a time zone.
    rows = spark.read.format("delta").load(path)
    at = F.unix_micros(F.col("window_start").cast("timestamp"))
    there = F.lit(True)
    return (
        rows.withColumns({"at": at, "there": there}).drop("window_start", "window_end").alias(name)
    )
