"""What a run asks of Spark and Delta: its jobs, SQL executions and commits.

Jobs and executions are read from Spark's event log, which costs time itself: an engine that is
measured has none, and one that is counted is not measured. Commits are the new files in the tables'
logs.
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
    """What one run asked for; None where the engine wrote no event log."""

    jobs: int | None = None
    executions: int | None = None
    commits: int = 0


class Counter:
    """Counts what an engine does that was started with `java_options`."""

    def __init__(self, home: Path, tables: Path) -> None:
        self._events = home / "events"
        self._events.mkdir(exist_ok=True)
        self._tables = tables

    @property
    def java_options(self) -> str:
        """The options under which the engine writes its event log."""
        return (
            f"-Dspark.eventLog.enabled=true -Dspark.eventLog.dir=file://{self._events} "
            "-Dspark.eventLog.compress=false -Dspark.eventLog.rolling.enabled=false"
        )

    @contextmanager
    def counting(self) -> Iterator[Counted]:
        """What the block makes the engine and the tables do; known after the block."""
        counted = Counted()
        known, before = self._commits(), self._settled()
        yield counted
        after = self._settled()
        if before is not None and after is not None:
            counted.jobs, counted.executions = (b - a for a, b in zip(before, after, strict=True))
        # By name: a clean-up of old commits must not hide new ones.
        counted.commits = len(self._commits() - known)

    def _commits(self) -> set[Path]:
        return set(self._tables.glob("*/_delta_log/*.json"))

    def _settled(self) -> tuple[int, int] | None:
        """Jobs and executions so far, once the log no longer grows: it is written behind them."""
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
