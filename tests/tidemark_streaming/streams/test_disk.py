"""A full or read-only disk gives one error message, and nothing is lost or counted twice."""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from helpers.data.landing import BY_MINUTE, SOURCE, connector, land_minutes, log_rows
from helpers.data.runs import run_all
from helpers.data.whole import damaged
from helpers.processes.disks import Disk, disk
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError, EngineError
from tidemark.define.transform import WindowedTransform
from tidemark.run.runner import incremental
from tidemark.store import ledger
from tidemark.store.asset import Asset
from tidemark.store.event_log.arrival import NO_ARRIVALS, RecentArrivals
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.cli.processing.stream import is_finished
from tidemark_streaming.ingest.ingest import follow_source, ingest
from tidemark_streaming.ingest.ingest_record import lock_ingest
from tidemark_streaming.streams import continuous
from tidemark_streaming.streams.direct import Direct

# Mounts and fills small disks, and waits for streams that fail and recover.
pytestmark = pytest.mark.slow

_NO_LOOK: Any = None


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Disk]:
    with disk(tmp_path / "disk", megabytes=8) as made:
        yield made


@pytest.fixture
def stored(spark: SparkSession, small: Disk) -> Warehouse:
    """Return a warehouse on a small disk."""
    return Warehouse(
        spark, str(small.path / "warehouse"), f"disk_{uuid4().hex[:8]}", registered=False
    )


def check(stored: Warehouse, arrivals: int) -> None:
    """Assert that each arrival is ingested and counted once and that each table is complete."""
    rows = log_rows(stored)
    assert len(rows) == len(set(rows)) == 2 * arrivals
    report = check_parity(stored, BY_MINUTE)
    assert report.is_equal, report.kinds
    folder = Path(stored.location, stored.database)
    tables = [t for t in folder.iterdir() if (t / "_delta_log").is_dir()]
    assert [fault for table in tables for fault in damaged(table)] == []


@pytest.mark.parametrize("left", mostly_nightly([0, 20_000]))
def test_ingest_and_run_stop_on_a_full_disk_and_resume_later(
    stored: Warehouse, small: Disk, tmp_path: Path, left: int
) -> None:
    landing = tmp_path / "in"
    land_minutes(landing, 0, 4)
    list(ingest(stored, connector(landing)))
    assert incremental(stored, BY_MINUTE) is not None
    land_minutes(landing, 4, 12)
    small.fill(left)
    with pytest.raises(DataError, match=r"the disk is full\.$"):
        list(ingest(stored, connector(landing)))
    small.free()
    list(ingest(stored, connector(landing)))
    small.fill(left)
    with pytest.raises(DataError, match=r"the disk is full\.$"):
        run_all(stored, BY_MINUTE, limit=1)
    small.free()
    run_all(stored, BY_MINUTE)
    assert Asset(stored, BY_MINUTE).state.read_last_commit().furthest_position.arrival == 11
    check(stored, 12)


def test_an_ingest_whose_lock_cannot_be_written_is_refused(stored: Warehouse, small: Disk) -> None:
    """The lock's line is the first write of an ingest. If a page has become free, the file system
    accepts it and refuses the first table instead."""
    with lock_ingest(stored, SOURCE):
        pass
    small.fill()
    with pytest.raises(DataError, match=r"the disk is full\.$"), lock_ingest(stored, SOURCE):
        raise AssertionError("it fits")


def test_a_read_only_warehouse_is_reported(stored: Warehouse, small: Disk, tmp_path: Path) -> None:
    landing = tmp_path / "in"
    land_minutes(landing, 0, 2)
    list(ingest(stored, connector(landing)))
    assert incremental(stored, BY_MINUTE) is not None
    following = follow_source(stored, connector(landing))
    land_minutes(landing, 2, 5)
    small.lock()
    with pytest.raises(DataError, match=r"[Rr]ead-only"):
        next(following)
    with pytest.raises(DataError, match=r"[Rr]ead-only"):
        list(ingest(stored, connector(landing)))
    small.lock(writable=True)
    list(ingest(stored, connector(landing)))
    small.lock()
    with pytest.raises(DataError, match=r"[Rr]ead-only"):
        incremental(stored, BY_MINUTE)
    small.lock(writable=True)
    run_all(stored, BY_MINUTE)
    check(stored, 5)


def waiting(gate: Path, reached: Path) -> WindowedTransform:
    """Return the asset whose runs create `reached` and wait as long as `gate` exists."""

    def wait(rows: DataFrame) -> DataFrame:
        while gate.exists():
            reached.touch()
            time.sleep(0.05)
        return rows

    return replace(BY_MINUTE, function=wait)


def through(stored: Warehouse, arrival: int) -> bool:
    """Return whether a run that processed this arrival has ended."""
    found = stored.load_rows(ledger.TABLE)["through_arrival"].to_pylist()
    return max(found, default=-1) >= arrival


def noted(stored: Warehouse) -> bool:
    """Return whether the engine has recorded the end of each batch of the stream."""
    place = Path(continuous.checkpoint_path(stored, BY_MINUTE))
    begun, done = ({p.name for p in (place / n).glob("[0-9]*")} for n in ("offsets", "commits"))
    return begun == done


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ended(query: StreamingQuery) -> EngineError:
    """Return the error with which `tidemark stream` ends."""
    until(lambda: not query.isActive)
    with pytest.raises(EngineError) as found:
        is_finished(query, _NO_LOOK, until_caught_up=False)
    return found.value


def test_a_stream_ends_with_the_reason_and_resumes_later(
    stored: Warehouse, small: Disk, tmp_path: Path
) -> None:
    """Covers a checkpoint that can't be written, at the start and later, and a table."""
    landing, gate, reached = (tmp_path / name for name in ("in", "gate", "reached"))
    asset = waiting(gate, reached)
    land_minutes(landing, 0, 2)
    list(ingest(stored, connector(landing)))
    small.fill()
    full = "Can't write the checkpoint of the stream: the disk is full."
    with pytest.raises(DataError, match=f"^{re.escape(full)}$"):
        continuous.start_query(stored, asset)
    small.free()
    continuous.start_query(stored, asset)
    until(lambda: stored.has_table(ledger.TABLE) and through(stored, 1) and noted(stored))
    continuous.stop_query(stored, asset)
    land_minutes(landing, 2, 4)
    list(ingest(stored, connector(landing)))
    # If no arrival is pending, a start keeps the checkpoint, and the unread runs are a batch.
    assert incremental(stored, asset) is not None
    small.fill()
    assert str(ended(continuous.start_query(stored, asset))) == f"The stream ended: {full}"
    small.free()
    land_minutes(landing, 4, 6)
    list(ingest(stored, connector(landing)))
    gate.touch()
    query = continuous.start_query(stored, asset)
    until(reached.exists)
    # Spark keeps the file of the failed write open until it is garbage-collected. Until then, the
    # file system can't become read-only.
    stored.spark.sql("SELECT java_method('java.lang.System', 'gc')").collect()
    small.lock()
    gate.unlink()
    error = ended(query)
    assert str(error) == (
        "The stream ended: Can't write table 'by_minute_state': the file system is read-only."
    )
    assert (error.retriable, error.exit_code) == (False, 2)
    locked = r"^Can't remove the checkpoint of the stream: the file system is read-only\.$"
    with pytest.raises(DataError, match=locked):
        continuous.start_query(stored, asset)
    small.lock(writable=True)
    continuous.start_query(stored, asset)
    until(lambda: through(stored, 5))
    assert continuous.stop_query(stored, asset)
    check(stored, 6)


@pytest.mark.nightly
def test_an_ingest_with_runs_ends_with_the_reason_and_resumes(
    stored: Warehouse, small: Disk, tmp_path: Path
) -> None:
    """The ingested arrivals are kept, and the next start counts them."""
    landing, direct = tmp_path / "in", Direct([BY_MINUTE], lambda: stored)

    def then(warehouse: Warehouse, recent: RecentArrivals) -> None:
        if recent.arrivals:
            small.fill()
        direct(warehouse, recent)

    land_minutes(landing, 0, 2)
    list(ingest(stored, connector(landing)))
    following = follow_source(stored, connector(landing), on_commit=then)
    land_minutes(landing, 2, 4)
    with pytest.raises(DataError, match=r"^Can't write .*: the disk is full\.$"):
        next(following)
    small.free()
    assert not through(stored, 2)
    # A file system can't become read-only while a process holds an ingest lock on it.
    small.lock()
    with pytest.raises(DataError, match=r"^Can't write .*: the file system is read-only\.$"):
        direct(stored, NO_ARRIVALS)
    small.lock(writable=True)
    land_minutes(landing, 4, 5)
    assert len(next(follow_source(stored, connector(landing), on_commit=direct)).arrivals) == 1
    assert through(stored, 4)
    check(stored, 5)
