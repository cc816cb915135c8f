"""Count the Spark jobs, SQL executions, and Delta commits of a run.

Jobs and executions are read from Spark's event log, which slows the engine down, so a run is either
timed or counted. Commits are the new files in the tables' logs.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_JOB = '{"Event":"SparkListenerJobStart"'
_EXECUTION = '{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"'
_SETTLED = 0.5


@dataclass
class Counted:
    """The counts of one run; None if the engine writes no event log."""

    jobs: int | None = None
    executions: int | None = None
    commits: int = 0


class Counter:
    """Counts the work of an engine that was started with `java_options`."""

    def __init__(self, home: Path, tables: Path) -> None:
        self._events = home / "events"
        self._events.mkdir(exist_ok=True)
        self._tables = tables

    @property
    def java_options(self) -> str:
        """The Java options with which an engine writes Spark's event log."""
        return (
            f"-Dspark.eventLog.enabled=true -Dspark.eventLog.dir=file://{self._events} "
            "-Dspark.eventLog.compress=false -Dspark.eventLog.rolling.enabled=false"
        )

    @contextmanager
    def counting(self) -> Iterator[Counted]:
        """Count the work of the `with` block. The yielded counts are filled in after the block."""
        counted = Counted()
        known, before = self._commits(), self._wait_for_counts()
        yield counted
        after = self._wait_for_counts()
        if before is not None and after is not None:
            counted.jobs, counted.executions = (b - a for a, b in zip(before, after, strict=True))
        # Compare file names instead of numbers: a clean-up may delete old commits during the block.
        counted.commits = len(self._commits() - known)

    def _commits(self) -> set[Path]:
        return set(self._tables.glob("*/_delta_log/*.json"))

    def _wait_for_counts(self) -> tuple[int, int] | None:
        """Return the jobs and executions so far, once Spark has written all of them to the log."""
        last = self._read_counts()
        while last is not None:
            time.sleep(_SETTLED)
            now = self._read_counts()
            if now == last:
                break
            last = now
        return last

    def _read_counts(self) -> tuple[int, int] | None:
        jobs, executions, files = 0, 0, list(self._events.iterdir())
        for file in files:
            with file.open(errors="replace") as lines:
                for line in lines:
                    jobs += line.startswith(_JOB)
                    executions += line.startswith(_EXECUTION)
        return (jobs, executions) if files else None
