"""Measure whether a stream slows down with age: its latency, cost and memory, minute by minute."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import psutil
from rich.table import Table

from benchmarks.measuring.figures import Seconds
from benchmarks.measuring.terminal import console

COMPARED = 5
"""The number of first minutes that are compared with as many last minutes."""

MOST_SLOWER = 1.1
"""The target: the last minutes' latency, as a multiple of that of the first minutes."""


@dataclass(frozen=True)
class Minute:
    """A minute of a stream.

    Args:
        p50, p99: percentiles of the time from an event in Kafka to its window, in seconds.
        versions: the number of versions of the table that were published.
        cpu: the processor time of the stream's own processes for each version, in seconds.
        own, engine: the memory of the stream's own processes, and of the engine, in MB.
    """

    p50: float
    p99: float
    versions: int
    cpu: float
    own: int
    engine: int


def bench(
    take: Callable[[], Seconds],
    versions: Callable[[], int],
    own: Sequence[int],
    engine: int,
    minutes: int,
) -> list[Minute]:
    """Return the figures of each minute of a running stream.

    Args:
        take: sends events for a minute, and returns the latency of each.
        versions: returns the number of versions of the table so far.
        own: the IDs of the stream's own processes.
        engine: the ID of the engine's process.
    """
    processes, engine_process = [psutil.Process(pid) for pid in own], psutil.Process(engine)
    found = list[Minute]()
    for number in range(minutes):
        before, used = versions(), _processor_seconds(processes)
        p50, p99 = np.percentile(take(), [50, 99])
        published = versions() - before
        minute = Minute(
            p50=float(p50),
            p99=float(p99),
            versions=published,
            cpu=(_processor_seconds(processes) - used) / published,
            own=_megabytes(processes),
            engine=_megabytes([engine_process]),
        )
        console.print(
            f"  minute {number + 1}: p50 {minute.p50:.2f} s, p99 {minute.p99:.2f} s, "
            f"{minute.versions} versions of {minute.cpu:.2f} processor seconds, {minute.own} MB"
        )
        found.append(minute)
    return found


def table(minutes: Sequence[Minute]) -> Table:
    """Return a table that compares the medians of the first minutes with those of the last."""
    first, last = minutes[:COMPARED], minutes[-COMPARED:]
    shown = Table(title=f"a stream of {len(minutes)} minutes")
    shown.add_column("")
    for column in (f"first {COMPARED}", f"last {COMPARED}", "ratio", "target"):
        shown.add_column(column, justify="right")
    rows: list[tuple[str, Callable[[Minute], float], int, str]] = [
        ("p50, seconds", lambda minute: minute.p50, 2, f"at most {MOST_SLOWER}"),
        ("p99, seconds", lambda minute: minute.p99, 2, ""),
        ("processor seconds for each version", lambda minute: minute.cpu, 3, ""),
        ("MB, own processes", lambda minute: minute.own, 0, ""),
        ("MB, engine", lambda minute: minute.engine, 0, ""),
    ]
    for title, figure_of, digits, target in rows:
        early = median(figure_of(minute) for minute in first)
        late = median(figure_of(minute) for minute in last)
        figures = (f"{early:.{digits}f}", f"{late:.{digits}f}", f"{late / early:.2f}")
        shown.add_row(title, *figures, target)
    return shown


def _processor_seconds(processes: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(each.user + each.system for each in times)


def _megabytes(processes: Sequence[psutil.Process]) -> int:
    return sum(process.memory_info().rss for process in processes) // 1_000_000
