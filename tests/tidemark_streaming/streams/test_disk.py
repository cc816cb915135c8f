"""A disk that is full, or read-only: one sentence, and nothing is lost or counted twice."""

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

from helpers.data.landing import SOURCE, clock, feed, land, log_rows
from helpers.data.runs import run_all
from helpers.data.whole import damaged
from helpers.processes.disks import Disk, disk
from tidemark.base.errors import DataError, EngineError
from tidemark.define import aggregates as agg
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Tumbling
from tidemark.run.runner import incremental
from tidemark.store import ledger
from tidemark.store.asset import Asset
from tidemark.store.event_log.arrival import NO_ARRIVALS, RecentArrivals
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import parity
from tidemark_streaming.cli.processing.stream import is_finished
from tidemark_streaming.ingest.ingest import follow, ingest
from tidemark_streaming.ingest.sole import sole
from tidemark_streaming.streams import continuous
from tidemark_streaming.streams.direct import Direct

# Mounts small disks, fills them, and waits for streams that fail and recover.
pytestmark = pytest.mark.slow

BY_MINUTE = WindowedTransform(
    name="by_minute",
    description="Readings by sensor and minute.",
    source=SOURCE,
    keys=("sensor",),
    window=Tumbling("1 minute"),
    allowed_lateness=0,
    aggregates={"readings": agg.count()},
    function=lambda rows: rows,
)

_NO_LOOK: Any = None


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Disk]:
    with disk(tmp_path / "disk", megabytes=8) as made:
        yield made


@pytest.fixture
def stored(spark: SparkSession, small: Disk) -> Warehouse:
    """A warehouse on a small disk."""
    return Warehouse(spark, str(small.path / "warehouse"), f"disk_{uuid4().hex[:8]}")


def land_minutes(folder: Path, first: int, last: int) -> None:
    """A file of two readings for each minute."""
    for minute in range(first, last):
        rows = f"{clock(minute * 60)},a,{minute}\n{clock(minute * 60 + 30)},b,{minute}\n"
        land(folder, f"{minute:03}.csv", f"at,sensor,value\n{rows}", minute * 60)


def check(stored: Warehouse, arrivals: int) -> None:
    """Every arrival is in once, is counted once, and each table is whole."""
    rows = log_rows(stored)
    assert len(rows) == len(set(rows)) == 2 * arrivals
    report = parity(stored, BY_MINUTE)
    assert report.equal, report.kinds
    folder = Path(stored.location, stored.database)
    tables = [t for t in folder.iterdir() if (t / "_delta_log").is_dir()]
    assert [fault for table in tables for fault in damaged(table)] == []


@pytest.mark.parametrize("left", [0, 20_000])
def test_a_full_disk_stops_ingest_and_run_which_go_on_when_there_is_room(
    stored: Warehouse, small: Disk, tmp_path: Path, left: int
) -> None:
    landing = tmp_path / "in"
    land_minutes(landing, 0, 4)
    list(ingest(stored, feed(landing)))
    assert incremental(stored, BY_MINUTE) is not None
    land_minutes(landing, 4, 12)
    small.fill(left)
    with pytest.raises(DataError, match=r"the disk is full\.$"):
        list(ingest(stored, feed(landing)))
    small.free()
    list(ingest(stored, feed(landing)))
    small.fill(left)
    with pytest.raises(DataError, match=r"the disk is full\.$"):
        run_all(stored, BY_MINUTE, limit=1)
    small.free()
    run_all(stored, BY_MINUTE)
    assert Asset(stored, BY_MINUTE).state.last().at.arrival == 11
    check(stored, 12)


def test_not_even_the_lock_of_an_ingest_fits(stored: Warehouse, small: Disk) -> None:
    """The lock's line is the first that an ingest writes; a file system of which a page came free
    meanwhile takes it, and the first table is what is refused."""
    with sole(stored, SOURCE):
        pass
    small.fill()
    with pytest.raises(DataError, match=r"the disk is full\.$"), sole(stored, SOURCE):
        raise AssertionError("it fits")


def test_a_warehouse_that_becomes_read_only_is_one_sentence(
    stored: Warehouse, small: Disk, tmp_path: Path
) -> None:
    landing = tmp_path / "in"
    land_minutes(landing, 0, 2)
    list(ingest(stored, feed(landing)))
    assert incremental(stored, BY_MINUTE) is not None
    following = follow(stored, feed(landing))
    land_minutes(landing, 2, 5)
    small.lock()
    with pytest.raises(DataError, match=r"[Rr]ead-only"):
        next(following)
    with pytest.raises(DataError, match=r"[Rr]ead-only"):
        list(ingest(stored, feed(landing)))
    small.lock(writable=True)
    list(ingest(stored, feed(landing)))
    small.lock()
    with pytest.raises(DataError, match=r"[Rr]ead-only"):
        incremental(stored, BY_MINUTE)
    small.lock(writable=True)
    run_all(stored, BY_MINUTE)
    check(stored, 5)


def waiting(gate: Path, reached: Path) -> WindowedTransform:
    """The asset, a run of which waits for as long as the gate is there, and says so."""

    def wait(rows: DataFrame) -> DataFrame:
        while gate.exists():
            reached.touch()
            time.sleep(0.05)
        return rows

    return replace(BY_MINUTE, function=wait)


def through(stored: Warehouse, arrival: int) -> bool:
    """Whether a run that took an arrival in has ended."""
    found = stored.take(ledger.TABLE)["through_arrival"].to_pylist()
    return max(found, default=-1) >= arrival


def noted(stored: Warehouse) -> bool:
    """Whether the engine has noted of each batch of the stream that it was done."""
    place = Path(continuous.checkpoint(stored, BY_MINUTE))
    begun, done = ({p.name for p in (place / n).glob("[0-9]*")} for n in ("offsets", "commits"))
    return begun == done


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ended(query: StreamingQuery) -> EngineError:
    """With what `tidemark stream` ends."""
    until(lambda: not query.isActive)
    with pytest.raises(EngineError) as found:
        is_finished(query, _NO_LOOK, until_caught_up=False)
    return found.value


def test_a_stream_ends_with_the_reason_and_goes_on_when_it_can_write_again(
    stored: Warehouse, small: Disk, tmp_path: Path
) -> None:
    """Where its checkpoint is refused, at its start and later, and where a table is."""
    landing, gate, reached = (tmp_path / name for name in ("in", "gate", "reached"))
    asset = waiting(gate, reached)
    land_minutes(landing, 0, 2)
    list(ingest(stored, feed(landing)))
    small.fill()
    full = "Can't write the checkpoint of the stream: the disk is full."
    with pytest.raises(DataError, match=f"^{re.escape(full)}$"):
        continuous.start(stored, asset)
    small.free()
    continuous.start(stored, asset)
    until(lambda: stored.exists(ledger.TABLE) and through(stored, 1) and noted(stored))
    continuous.stop(stored, asset)
    land_minutes(landing, 2, 4)
    list(ingest(stored, feed(landing)))
    # With nothing to take in a start keeps the checkpoint, and what it has not read is a batch.
    assert incremental(stored, asset) is not None
    small.fill()
    assert str(ended(continuous.start(stored, asset))) == f"The stream ended: {full}"
    small.free()
    land_minutes(landing, 4, 6)
    list(ingest(stored, feed(landing)))
    gate.touch()
    query = continuous.start(stored, asset)
    until(reached.exists)
    # Spark leaves the file open whose write failed, until it is collected: until then the file
    # system can't become read-only.
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
        continuous.start(stored, asset)
    small.lock(writable=True)
    continuous.start(stored, asset)
    until(lambda: through(stored, 5))
    assert continuous.stop(stored, asset)
    check(stored, 6)


def test_an_ingest_that_runs_what_it_brings_ends_with_the_reason(
    stored: Warehouse, small: Disk, tmp_path: Path
) -> None:
    """What it brought in is in, and is counted when it is started again."""
    landing, direct = tmp_path / "in", Direct([BY_MINUTE], lambda: stored)

    def then(warehouse: Warehouse, recent: RecentArrivals) -> None:
        if recent.arrivals:
            small.fill()
        direct(warehouse, recent)

    land_minutes(landing, 0, 2)
    list(ingest(stored, feed(landing)))
    following = follow(stored, feed(landing), then=then)
    land_minutes(landing, 2, 4)
    with pytest.raises(DataError, match=r"^Can't write .*: the disk is full\.$"):
        next(following)
    small.free()
    assert not through(stored, 2)
    # No file system becomes read-only while somebody holds the lock of an ingest on it.
    small.lock()
    with pytest.raises(DataError, match=r"^Can't write .*: the file system is read-only\.$"):
        direct(stored, NO_ARRIVALS)
    small.lock(writable=True)
    land_minutes(landing, 4, 5)
    assert len(next(follow(stored, feed(landing), then=direct)).arrivals) == 1
    assert through(stored, 4)
    check(stored, 5)
