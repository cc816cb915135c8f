"""A disk that is full, or read-only: one sentence, and nothing is lost or counted twice."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from disks import Disk, disk
from landing import SOURCE, clock, feed, land, log_rows
from runs import run_all
from tidemark.base.errors import DataError
from tidemark.define import aggregates as agg
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Tumbling
from tidemark.run.runner import incremental
from tidemark.store.asset import Asset
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import parity
from tidemark_streaming.ingest import follow, ingest
from tidemark_streaming.sole import sole
from whole import damaged

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
