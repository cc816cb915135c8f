"""Ingest: each file's rows are in the event log once, in bulk or one by one, also after kills."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from helpers.data.landing import (
    HEADER,
    SOURCE,
    T0,
    clock,
    connector,
    land,
    land_some,
    log_rows,
    put,
)
from helpers.processes.object_store import serve_bucket
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import ConflictError, DataError, DefinitionError
from tidemark.base.instants import INFINITY
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.define.watermarks import Manual, PerPartition, Punctuated, Watermark
from tidemark.engine import ensure_engine
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import CHUNK, Chunk, Excerpt, Ingestion, Landed
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.ingest import end_source, fill_lookup_tables, ingest
from tidemark_streaming.ingest.play import play_files

MINUTE = 60_000_000
FILES = 7


@pytest.fixture(scope="module")
def landing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Yield the path of a folder with files or, for tests `IN_BOTH`, also its address in a
    store."""
    folder = tmp_path_factory.mktemp("landing")
    land_some(folder, FILES)
    if getattr(request, "param", "disk") == "disk":
        yield str(folder)
        return
    with serve_bucket() as bucket:
        for path in sorted(folder.iterdir()):
            put(f"{bucket}/landing", path.name, path.read_bytes())
        yield f"{bucket}/landing"


IN_BOTH = pytest.mark.parametrize("landing", ["disk", "store"], indirect=True, scope="module")


Log_ = tuple[list[tuple[object, ...]], list[Arrival]]


@pytest.fixture(scope="module")
def expected(engine: Settings, spark: SparkSession, landing: str) -> Log_:
    """Return the event log of an undisturbed ingest with one arrival per commit."""
    warehouse = Warehouse(
        spark, engine.warehouse, f"undisturbed_{uuid4().hex[:12]}", registered=False
    )
    commits = list(ingest(warehouse, connector(landing)))
    assert [(c.committed, c.pending, len(c.arrivals)) for c in commits] == [
        (n, FILES, 1) for n in range(1, FILES + 1)
    ]
    return contents(warehouse)


@pytest.fixture(scope="module")
def remote(engine: Settings) -> str:
    return ensure_engine(engine)


def contents(warehouse: Warehouse) -> Log_:
    return log_rows(warehouse), Log(warehouse, SOURCE).read_timeline()


def test_the_facts_of_each_arrival_are_recorded(expected: Log_) -> None:
    rows, timeline = expected
    assert [a.arrival for a in timeline] == list(range(FILES))
    assert [a.arrived_at for a in timeline] == [T0 * 1_000_000 + n * MINUTE for n in range(FILES)]
    assert timeline[2].rows == 0
    assert timeline[0].before is None
    newest = None
    for one, following in zip(timeline, [*timeline[1:], None], strict=True):
        if one.max_event_time is not None:
            newest = max(newest or 0, one.max_event_time)
        assert newest is not None
        assert one.after == newest - MINUTE
        assert following is None or following.before == one.after
        of_arrival = [r for r in rows if r[3] == one.arrival]
        # Dead letters leave gaps in the positions.
        whole = range(one.rows + one.dead_letters)
        places = [r[4] for r in of_arrival]
        assert places == [n for n in whole if n in places]
        assert len(places) == one.rows
        assert {r[6] for r in of_arrival} <= {one.before}
    assert len(rows) == sum(a.rows for a in timeline)
    assert len({r[8] for r in rows}) == len(rows)


def test_null_event_times_are_kept_and_unparsable_rows_counted(expected: Log_) -> None:
    rows, timeline = expected
    timeless = [r for r in rows if r[0] is None]
    assert [r[1:3] for r in timeless] == [("c", 1)] * 2
    assert [a.dead_letters for a in timeline] == [0, 1, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("batch", [None, 3])
@IN_BOTH
def test_a_bulk_load_gives_the_same_log(
    warehouse: Warehouse, landing: str, expected: Log_, batch: int | None
) -> None:
    commits = list(ingest(warehouse, connector(landing), batch=batch))
    assert len(commits) == (1 if batch is None else 3)
    assert contents(warehouse) == expected
    assert list(ingest(warehouse, connector(landing), batch=batch)) == []


KILLED = """
import os, signal, sys
from helpers.data.landing import connector
from pyspark.sql import SparkSession
from tidemark.store.event_log.fence import Fence
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest import ingest

remote, location, database, folder, where, batch = sys.argv[1:]
append, seen = Fence.append_rows, []

def dying(self, *given, **named):
    if not self.table.endswith("_timeline"):
        return append(self, *given, **named)
    seen.append(self.table)
    if where == "before timeline" and len(seen) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    append(self, *given, **named)
    if where == "after timeline" and len(seen) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

Fence.append_rows = dying
spark = SparkSession.builder.remote(remote).getOrCreate()
print("began", flush=True)
list(ingest(Warehouse(spark, location, database), connector(folder), batch=int(batch)))
"""


def start(remote: str, warehouse: Warehouse, landing: str, where: str, batch: int = 1):  # noqa: ANN201
    arguments = [remote, warehouse.location, warehouse.database, landing, where, str(batch)]
    paths = os.pathsep.join(sys.path)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, *arguments],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"began\n"
    return process


# Starts a process for each fail point.
@pytest.mark.slow
@pytest.mark.parametrize("where", mostly_nightly(["after timeline", "before timeline"]))
@IN_BOTH
def test_a_kill_around_the_commit_loses_and_doubles_nothing(
    remote: str, warehouse: Warehouse, landing: str, expected: Log_, where: str
) -> None:
    with start(remote, warehouse, landing, where, batch=2) as process:
        assert process.wait(120) == -signal.SIGKILL
    # Four arrivals are in the event log; the last two may be missing in the timeline.
    assert len({r[3] for r in log_rows(warehouse)} | {2}) == 4
    last = Log(warehouse, SOURCE).find_last_arrival()
    assert last is not None
    assert last.arrival == (1 if where == "before timeline" else 3)
    list(ingest(warehouse, connector(landing)))
    assert contents(warehouse) == expected


# Starts and kills many processes.
@pytest.mark.slow
@IN_BOTH
def test_a_kill_at_any_instant_loses_and_doubles_nothing(
    remote: str, warehouse: Warehouse, landing: str, expected: Log_
) -> None:
    chance = random.Random(11)
    for _ in range(5):
        with start(remote, warehouse, landing, "anywhere") as process:
            time.sleep(chance.uniform(0.5, 6))
            process.kill()
    list(ingest(warehouse, connector(landing), batch=None))
    assert contents(warehouse) == expected


@IN_BOTH
def test_a_concurrent_ingest_is_refused_with_the_firsts_process(
    warehouse: Warehouse, landing: str, expected: Log_
) -> None:
    first = ingest(warehouse, connector(landing), batch=4)
    next(first)
    with pytest.raises(ConflictError, match=f"ingested already, by process {os.getpid()}:"):
        next(ingest(warehouse, connector(landing)))
    list(first)
    assert contents(warehouse) == expected


def test_an_ingest_ends_after_a_takeover_by_another_machine(
    warehouse: Warehouse, landing: str, expected: Log_
) -> None:
    first = ingest(warehouse, connector(landing), batch=2)
    next(first)
    other = Log(warehouse, SOURCE)
    other.take_over()
    with pytest.raises(ConflictError, match="has taken over"):
        next(first)
    list(ingest(warehouse, connector(landing)))
    assert contents(warehouse) == expected


def test_an_ingest_ends_if_another_machine_adds_the_first_arrivals(
    warehouse: Warehouse, landing: str
) -> None:
    """The ingest creates the tables only when it has read its first arrival."""

    class Overtaken:
        source = SOURCE

        def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
            return connector(landing).list_pending(timeline)

        def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> Iterator[pa.Table]:
            other = Log(warehouse, SOURCE)
            other.open_for_writing()
            other.append_arrivals(pa.table({}), [Arrival(0, 0, None, None, 0, None, None, 0, "{}")])
            return connector(landing).read(spark, chunks)

    with pytest.raises(ConflictError, match="has taken over"):
        list(ingest(warehouse, Overtaken()))
    (arrival,) = Log(warehouse, SOURCE).read_timeline()
    assert arrival.rows == 0


def test_the_end_of_a_source_is_its_last_arrival(warehouse: Warehouse, tmp_path: Path) -> None:
    land_some(tmp_path / "in", 1)
    list(ingest(warehouse, connector(tmp_path / "in")))
    ended = end_source(warehouse, SOURCE)
    assert (ended.arrival, ended.rows, ended.after) == (1, 0, INFINITY)
    assert end_source(warehouse, SOURCE) == ended == Log(warehouse, SOURCE).find_last_arrival()
    assert list(ingest(warehouse, connector(tmp_path / "in"))) == []
    land(tmp_path / "in", "more.csv", HEADER, 600)
    with pytest.raises(DataError, match=r"ended with arrival 1, .* the 1 pending arrival"):
        list(ingest(warehouse, connector(tmp_path / "in")))


def by(watermark: Watermark, folder: Path) -> FileConnector:
    """Return a connector to a folder, for a source with another watermark."""
    source = replace(SOURCE, name="other", watermark=watermark)
    return FileConnector(source, folder, options={"header": True, "timeZone": "UTC"})


def watermarks(
    warehouse: Warehouse, connector: FileConnector, batch: int | None
) -> list[float | None]:
    """Return the watermark after each arrival, in seconds since the first file landed."""
    list(ingest(warehouse, connector, batch=batch))
    timeline = Log(warehouse, connector.source).read_timeline()
    return [None if a.after is None else a.after / 1_000_000 - T0 for a in timeline]


@pytest.mark.parametrize("batch", [3, None])
def test_an_idle_partition_does_not_hold_the_watermark(
    warehouse: Warehouse, tmp_path: Path, batch: int | None
) -> None:
    strategy = PerPartition("sensor", "10 seconds", idle="3 minutes")

    def arrives(seconds: int, *events: tuple[int, str]) -> None:
        rows = "".join(f"{clock(at)},{sensor},1\n" for at, sensor in events)
        land(tmp_path / "in", f"{seconds:04}.csv", HEADER + rows, seconds)

    arrives(0, (-60, "a"), (-30, "b"), (-90, "a"))
    arrives(60, (50, "b"), (40, ""))
    land(tmp_path / "in", "0090.csv", HEADER + "gibberish,a,1\n,a,1\n", 90)
    arrives(120, (110, "b"), (90, ""))
    arrives(180)
    arrives(300)
    arrives(360, (20, "a"), (350, "b"))
    found = watermarks(warehouse, by(strategy, tmp_path / "in"), batch)
    # a holds it back until it is idle; then b and null decide, then b alone, then a again.
    assert found == [-70, -70, -70, -70, 80, 100, 100]
    states = [
        a.watermark_state for a in Log(warehouse, by(strategy, tmp_path).source).read_timeline()
    ]
    assert states[0] == f'[["a",{micros(-60)},{micros(0)}],["b",{micros(-30)},{micros(0)}]]'


def micros(seconds: int) -> int:
    return (T0 + seconds) * 1_000_000


def test_rows_can_define_the_watermark(warehouse: Warehouse, tmp_path: Path) -> None:
    for number, rows in enumerate([f"{clock(5)},a,1\n", f"{clock(3)},done,1\n", "", ",done,1\n"]):
        land(tmp_path / "in", f"{number}.csv", HEADER + rows, number)
    punctuated = Punctuated("CASE WHEN sensor = 'done' THEN at END")
    assert watermarks(warehouse, by(punctuated, tmp_path / "in"), 2) == [None, 3, 3, 3]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("mark", r".*name `mark` cannot be resolved.*"),
        ("value", r".*\[DATATYPE_MISMATCH.*"),
    ],
)
def test_an_invalid_watermark_expression_is_refused(
    warehouse: Warehouse, tmp_path: Path, expression: str, reason: str
) -> None:
    land(tmp_path / "in", "0.csv", HEADER + f"{clock(5)},a,1\n", 0)
    told = rf"The watermark of source 'other' \(maximum of {re.escape(expression)}\) .*: "
    with pytest.raises(DefinitionError, match=f"^{told}{reason}$"):
        list(ingest(warehouse, by(Punctuated(expression), tmp_path / "in")))
    # The refusal created nothing.
    assert not warehouse.has_table(by(Manual(), tmp_path).source.timeline_table)


def test_an_unreadable_watermark_does_not_stop_the_source(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    """Its event is in the log, and the arrival records that it did not advance the watermark."""
    marks = [str(clock(2)), "soon", "", "0000-00-00", str(clock(4))]
    rows = "".join(f"{clock(n)},{mark},1\n" for n, mark in enumerate(marks))
    land(tmp_path, "0.csv", HEADER + rows, 0)
    land(tmp_path, "1.csv", f"{HEADER}{clock(9)},later,1\n", 1)
    marked = by(Punctuated("CAST(sensor AS TIMESTAMP)"), tmp_path)
    assert watermarks(warehouse, marked, 2) == [4, 4]
    timeline = Log(warehouse, marked.source).read_timeline()
    assert [(a.rows, a.unreadable_marks) for a in timeline] == [(5, 2), (1, 1)]


class Told:
    """A connector of heartbeats with manual watermarks."""

    source = Source("told", SOURCE.columns, "at", Manual())

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        told = [Chunk("{}", 0), Chunk("{}", 5, watermark=40), Chunk("{}", 9, end=True)]
        return told[len(timeline) :]

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> DataFrame:
        schema = f"at TIMESTAMP, sensor STRING, value INT, {CHUNK} BIGINT, position BIGINT, "
        return spark.createDataFrame([], schema + "read_from STRING")


def test_heartbeats_carry_a_manual_watermark_and_the_end(warehouse: Warehouse) -> None:
    list(ingest(warehouse, Told(), batch=2))
    timeline = Log(warehouse, Told.source).read_timeline()
    assert [(a.before, a.after) for a in timeline] == [(None, None), (None, 40), (40, INFINITY)]


def test_a_broken_file_stops_the_ingest_until_it_is_fixed(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    land_some(tmp_path / "in", 2)
    land(tmp_path / "in", "009.csv", "value,at\n", 900)
    with pytest.raises(DataError, match=r"009\.csv' of source 'sensors' can't be read: its header"):
        list(ingest(warehouse, connector(tmp_path / "in")))
    assert len(Log(warehouse, SOURCE).read_timeline()) == 2
    land(tmp_path / "in", "009.csv", HEADER + "2023-11-14,a,1\n", 900)
    list(ingest(warehouse, connector(tmp_path / "in")))
    assert [a.rows for a in Log(warehouse, SOURCE).read_timeline()][2] == 1


def test_an_unwritable_warehouse_is_reported(
    spark: SparkSession, landing: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for location in (tmp_path / "file", Path("/proc/tidemark")):
        with pytest.raises(DataError, match=f"Warehouse '{location}' can't be written:"):
            list(ingest(Warehouse(spark, str(location), "any"), connector(landing)))


def test_a_recording_with_a_speed_ingests_each_file_as_it_lands(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    def land_slowly(landing: Path, excerpt: Excerpt) -> Iterator[Landed]:
        for number in range(3):
            text = HEADER + f"2023-11-14,a,{number}\n"
            yield Landed(land(landing, f"{number}.csv", text, number), number + 1, 3)

    ingestion = Ingestion(
        SOURCE,
        lambda p: FileConnector(SOURCE, p, options={"header": True, "timeZone": "UTC"}),
        land_slowly,
    )
    commits = list(play_files(warehouse, ingestion, tmp_path / "in", Excerpt(speed=1000)))
    assert [(c.committed, c.pending) for c in commits] == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(DataError, match="'sensors' has no recording: `tidemark ingest sensors`"):
        list(
            play_files(
                warehouse, Ingestion(SOURCE, ingestion.connector), tmp_path / "in", Excerpt()
            )
        )


def test_each_arrival_records_the_versions_of_lookup_tables(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    source = replace(SOURCE, lookups=("places",))
    came = FileConnector(source, tmp_path / "in", options={"header": True, "timeZone": "UTC"})
    places = warehouse.spark.createDataFrame([("a", "east")], "sensor STRING, place STRING")

    def load(_: SparkSession) -> DataFrame:
        return places

    def versions() -> list[str]:
        return [a.lookups for a in Log(warehouse, source).read_timeline()]

    for number in range(3):
        land(tmp_path / "in", f"{number}.csv", HEADER + f"2023-11-14,a,{number}\n", number)
    with pytest.raises(
        DataError, match="'sensors' has the lookup table 'places', but there is no D"
    ):
        list(ingest(warehouse, came))
    assert not warehouse.has_table(source.timeline_table)
    # A domain's lookup table is created only if it does not exist.
    ingestion = Ingestion(source, lambda _: came, lookups={"places": load})
    fill_lookup_tables(warehouse, ingestion)
    commits = ingest(warehouse, came, batch=2)
    next(commits)
    places.write.format("delta").mode("append").save(warehouse.path_of("places"))
    fill_lookup_tables(warehouse, ingestion)
    assert warehouse.read_frame("places").count() == 2
    list(commits)
    end_source(warehouse, source)
    first, last = (f'{{"places": {version}}}' for version in (1, 2))
    assert versions() == [first, first, last, last]
