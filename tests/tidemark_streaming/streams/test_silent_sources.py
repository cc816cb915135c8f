"""Heartbeats of a followed source: they close its last windows, and cost no other run."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import SparkConnectClient

from helpers.data.runs import dies
from helpers.data.support import same
from helpers.kafka.topics import Topics
from helpers.suite.nightly import mostly_nightly
from tidemark.base.instants import format_instant, parse_instant
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.define.rollup import rollup
from tidemark.define.source import Source
from tidemark.define.transform import WindowedTransform
from tidemark.define.watermarks import BoundedOutOfOrderness, PerPartition
from tidemark.define.windows import Session, Tumbling
from tidemark.run import backfill, incremental
from tidemark.store.event_log.arrival import NO_ARRIVALS, Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.rows import Rows
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.connector import Chunk, Connector
from tidemark_streaming.delta import DeltaConnector
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.future_watermark import lower_watermarks
from tidemark_streaming.ingest.ingest import follow_source, ingest
from tidemark_streaming.kafka import RECORD
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.streams.direct import Direct

SECOND = 1_000_000
SOURCE = Source(
    name="pulses",
    columns={"at": "TIMESTAMP", "n": "INT"},
    event_time="at",
    watermark=BoundedOutOfOrderness("1 second", idle="2 seconds"),
    heartbeat="1 second",
)
PER_MINUTE = WindowedTransform(
    name="pulses_per_minute",
    description="Pulses by minute.",
    source=SOURCE,
    keys=(),
    window=Tumbling("1 minute"),
    allowed_lateness=0,
    aggregates={"pulses": agg.count()},
    function=same,
)
PANES = replace(PER_MINUTE, accumulation="accumulating")
FAR = parse_instant("2099-01-01")
LIMIT = 240.0


def event_time() -> int:
    """Return an event time whose minute, and a session of thirty seconds, are over."""
    return time.time_ns() // 1000 - 120 * SECOND


class Files:
    """A folder with files of one event each."""

    source = SOURCE

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()

    def connect(self) -> Connector:
        return FileConnector(self.source, self.folder, format="json")

    def send(self, at: int) -> None:
        row = json.dumps({"at": format_instant(at), "n": 1})
        (self.folder / f"{time.monotonic_ns()}.json").write_text(row)


class Versions:
    """A Delta table with versions of one event each."""

    source = SOURCE

    def __init__(self, folder: Path) -> None:
        self.path = str(folder)

    def connect(self) -> Connector:
        return DeltaConnector(self.source, self.path)

    def send(self, at: int) -> None:
        times = pa.array([at], pa.timestamp("us", "UTC"))
        rows = pa.table({"at": times, "n": pa.array([1], pa.int32())})
        write_deltalake(self.path, rows, mode="append")


class Records:
    """A topic of two partitions with records of one event each."""

    source = replace(
        SOURCE,
        columns={**SOURCE.columns, **RECORD},
        watermark=PerPartition("kafka_topic_partition", "1 second", idle="2 seconds"),
    )

    def __init__(self, topics: Topics) -> None:
        self.topics, self.topic = topics, topics.create(partitions=2)

    def connect(self) -> Connector:
        return self.topics.connector(self.topic, source=self.source)

    def send(self, at: int) -> None:
        self.topics.send(self.topic, [json.dumps({"at": format_instant(at), "n": 1}).encode()], 1)


Place = Files | Versions | Records


def followed(
    warehouse: Warehouse,
    connector: Connector,
    done: Callable[[list[Arrival]], bool] = bool,
    direct: Direct | None = None,
) -> list[Arrival]:
    """Follow a source until a condition on its new arrivals holds. Return these."""
    found, deadline = list[Arrival](), time.monotonic() + LIMIT
    for commit in follow_source(warehouse, connector, 0.02, on_commit=direct):
        found += commit.arrivals
        assert time.monotonic() < deadline, found
        if done(found):
            break
    return found


def beats(arrivals: list[Arrival]) -> list[Arrival]:
    return [a for a in arrivals if a.silent_since is not None]


def closes(at: int) -> Callable[[list[Arrival]], bool]:
    return lambda found: (found[-1].after or 0) >= at + 60 * SECOND


@pytest.fixture(params=mostly_nightly(["files", "delta", "kafka"]))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    match request.param:
        case "files":
            yield Files(tmp_path / "landing")
        case "delta":
            yield Versions(tmp_path / "table")
        case _:
            yield Records(request.getfixturevalue("topics"))


@pytest.mark.slow
def test_heartbeats_close_the_last_windows_of_a_silent_source(
    warehouse: Warehouse, engine: Settings, place: Place
) -> None:
    assets = [
        replace(PANES, source=place.source),
        replace(PANES, source=place.source, name="visits", window=Session("30 seconds")),
    ]
    runs = list[str]()
    direct = Direct(assets, lambda: warehouse, lambda facts: runs.append(facts.asset))
    at = event_time()
    place.send(at)
    # The three heartbeats after the one that closes the windows have nothing to do.
    found = followed(
        warehouse,
        place.connect(),
        lambda a: len([b for b in beats(a) if b.after != a[0].after]) == 4,
        direct,
    )
    (first, *_), silent = found, beats(found)
    assert [a.rows for a in found] == [1] + [0] * (len(found) - 1)
    assert {a.position for a in silent} == {first.position}
    for beat in silent:
        assert beat.silent_since is not None
        silence = beat.arrived_at - beat.silent_since
        moved = beat.arrived_at - SECOND if silence >= 2 * SECOND else beat.before
        assert beat.after == moved
    assert [silent[0].after, silent[0].before] == [at - SECOND] * 2
    # One run for the event, and one for the heartbeat that closes its window and makes it final.
    assert sorted(runs) == sorted(2 * [a.name for a in assets])
    for asset in assets:
        (row,) = warehouse.load_rows(asset.published_table).to_pylist()
        assert (row["timing"], row["final"]) == ("ON_TIME", True)
        assert check_parity(warehouse, asset).is_equal
        assert incremental(warehouse, asset) is None
    # Heartbeats without effect count as processed.
    snapshot = Snapshot(engine.model_copy(update={"database": warehouse.database}), assets)
    newest = Log(warehouse, place.source).read_timeline()[-1]
    for asset in assets:
        progress = snapshot.read_asset(asset)
        assert (progress.as_of, progress.behind) == (newest.arrival, 0)
        assert progress.watermark == newest.after
        assert snapshot.can_wait(asset)
        assert snapshot.assets_behind([asset.name], newest.arrival) == [asset.name]
    source = snapshot.read_source(place.source)
    assert (source.arrived_at, source.clock) == (first.arrived_at, newest.arrived_at)
    # The next event continues after them.
    later = event_time()
    place.send(later)
    (arrival,) = followed(warehouse, place.connect(), lambda a: a[-1].rows > 0, direct)
    assert (arrival.arrival, arrival.before) == (newest.arrival + 1, newest.after)
    assert len(runs) == 6
    for asset in assets:
        assert check_parity(warehouse, asset).is_equal
        check_any_cut(warehouse, asset)


def check_any_cut(warehouse: Warehouse, asset: WindowedTransform) -> None:
    """Check that an asset has the same windows if its source's arrivals are divided differently."""
    newest = Log(warehouse, asset.source).read_timeline()[-1].arrival
    for cut in (1, 2, newest):
        other = replace(asset, name=f"{asset.name}_by_{cut}")
        through = list[int]()
        while facts := incremental(warehouse, other, limit=cut):
            through.append(facts.through_arrival)
        assert through[-1] == newest
        assert published(warehouse, other) == published(warehouse, asset)
        assert fired(warehouse, other) == fired(warehouse, asset)
    whole = replace(asset, name=f"{asset.name}_whole")
    backfill(warehouse, whole)
    columns = ("window_start", "window_end", "pulses", "final")
    assert [[r[c] for c in columns] for r in published(warehouse, whole)] == [
        [r[c] for c in columns] for r in published(warehouse, asset)
    ]


def published(warehouse: Warehouse, asset: WindowedTransform) -> list[dict[str, object]]:
    return sorted(rows_of(warehouse, asset.published_table), key=lambda row: row["window_start"])


def fired(warehouse: Warehouse, asset: WindowedTransform) -> list[dict[str, object]]:
    rows = rows_of(warehouse, asset.panes_table)
    return sorted(rows, key=lambda row: (row["window_start"], row["pane"]))


def rows_of(warehouse: Warehouse, table: str) -> list[dict[str, Any]]:
    """Return a table's rows without the columns that name the run which wrote a row."""
    rows = warehouse.load_rows(table)
    of_run = {"commit_number", "as_of"} & set(rows.column_names)
    return rows.drop_columns(sorted(of_run)).to_pylist()


_FOLLOWING = """
import json
import sys
from pathlib import Path
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest import follow_source
from tidemark_streaming.streams.direct import Direct

_, remote, place, file = sys.argv
warehouse = Warehouse(SparkSession.builder.remote(remote).getOrCreate(), *json.loads(place))
connector, assets = cloudpickle.loads(Path(file).read_bytes())
for commit in follow_source(warehouse, connector, 0.02, on_commit=Direct(assets, lambda:
warehouse)):
    pass
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_after_kills_heartbeats_close_the_windows_once(
    warehouse: Warehouse, engine: Settings, tmp_path: Path
) -> None:
    place, at, file = Files(tmp_path / "landing"), event_time(), tmp_path / "asset"
    place.send(at)
    direct = Direct([PANES], lambda: warehouse)
    followed(warehouse, place.connect(), direct=direct)
    file.write_bytes(cloudpickle.dumps((place.connect(), [PANES])))
    log, arrivals = Log(warehouse, SOURCE), list[int]()
    # A heartbeat is not recorded; one that closes the window is, and is then processed in parts.
    for step in ("timeline", "state", "published", "ledger"):
        assert dies(_FOLLOWING, engine, warehouse, step, str(file))
        arrivals.append(len(log.read_timeline()))
    assert arrivals[0] == 1 < arrivals[1]
    again = followed(warehouse, place.connect(), lambda a: len(beats(a)) == 1, direct)
    assert again[0].arrival == arrivals[-1]
    timeline = log.read_timeline()
    assert [a.arrival for a in timeline] == list(range(len(timeline)))
    assert [a.before for a in timeline[1:]] == [a.after for a in timeline[:-1]]
    (row,) = warehouse.load_rows(PANES.published_table).to_pylist()
    assert (row["pulses"], row["timing"], row["final"]) == (1, "ON_TIME", True)
    assert warehouse.load_rows(PANES.panes_table).num_rows == 1
    assert check_parity(warehouse, PANES).is_equal


def test_a_heartbeat_needs_no_engine(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The event's window is open for half a day.
    place, now = Files(tmp_path / "landing"), time.time_ns() // 1000
    half = 43_200 * SECOND
    day = Tumbling("1 day", f"{(now + half) % (2 * half)} microseconds")
    assets = [
        replace(PER_MINUTE, name="days", window=day),
        replace(PER_MINUTE, name="visits", window=Session("12 hours")),
    ]
    runs = Counter[str]()
    direct = Direct(assets, lambda: warehouse, lambda facts: runs.update([facts.asset]))
    place.send(now)
    following = follow_source(warehouse, place.connect(), 0.02, on_commit=direct)
    found = [*next(following).arrivals]

    def refuse(_: SparkConnectClient) -> None:
        raise AssertionError("A heartbeat has asked the engine.")

    with monkeypatch.context() as without_engine:
        without_engine.setattr(SparkConnectClient, "_stub", property(refuse))
        while found[-1].after == found[0].after:
            found += next(following).arrivals
    del following
    assert beats(found) == found[1:]
    assert found[-1].after == found[-1].arrived_at - SECOND
    assert runs == {"days": 1, "visits": 1}


def test_lowered_watermarks_still_follow_the_silence(warehouse: Warehouse, tmp_path: Path) -> None:
    place, at = Files(tmp_path / "landing"), event_time()
    for time_ in (at, FAR):
        place.send(time_)
        list(ingest(warehouse, place.connect()))

    def is_idle(arrival: Arrival) -> bool:
        since = arrival.silent_since
        return since is not None and arrival.arrived_at - since >= 2 * SECOND

    found = followed(warehouse, place.connect(), lambda a: is_idle(a[-1]))
    assert {a.after for a in found} == {FAR - SECOND}
    guarded = replace(SOURCE, max_future_skew="1 hour")
    assert lower_watermarks(warehouse, guarded).arrivals == 1 + len(found)
    timeline = Log(warehouse, guarded).read_timeline()
    moved = [a.arrived_at - SECOND if is_idle(a) else at - SECOND for a in timeline]
    assert [a.after for a in timeline] == moved
    assert [a.silent_since for a in timeline[2:]] == [a.silent_since for a in found]
    asset = replace(PER_MINUTE, source=guarded)
    incremental(warehouse, asset)
    (row,) = warehouse.load_rows(asset.published_table).to_pylist()
    assert (row["pulses"], row["final"]) == (1, True)
    assert check_parity(warehouse, asset).is_equal


def test_only_a_following_ingest_with_a_heartbeat_records_any(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    place = Files(tmp_path / "landing")
    place.send(event_time())
    for batch in (1, None):
        list(ingest(warehouse, place.connect(), batch=batch))
        time.sleep(1.1)
    place.source = replace(SOURCE, heartbeat=None, watermark=BoundedOutOfOrderness("1 second"))
    assert [a.rows for a in followed(warehouse, Delayed(place))] == [1]
    assert [a.silent_since for a in Log(warehouse, SOURCE).read_timeline()] == [None, None]


def test_a_restart_begins_the_silence_again(warehouse: Warehouse, tmp_path: Path) -> None:
    place = Files(tmp_path / "landing")
    at = event_time()
    place.send(at)
    first = followed(warehouse, place.connect(), lambda a: len(beats(a)) == 1)
    # Nobody knows what the producers did in the meantime.
    time.sleep(2.5)
    again = followed(warehouse, place.connect(), closes(at))
    assert again[0].arrival == first[-1].arrival + 1
    assert again[0].after == first[-1].after
    timeline = Log(warehouse, SOURCE).read_timeline()
    assert [a.arrival for a in timeline] == list(range(len(timeline)))


def test_a_source_without_an_arrival_has_no_heartbeat(warehouse: Warehouse, tmp_path: Path) -> None:
    place = Files(tmp_path / "landing")
    assert [a.rows for a in followed(warehouse, Delayed(place))] == [1]


@dataclass
class Delayed:
    """A connector that finds nothing for two seconds, and then another file."""

    place: Files
    protects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.source, self._connector = self.place.source, self.place.connect()
        self._due = time.monotonic() + 2

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        if time.monotonic() > self._due:
            self.place.send(event_time())
        return self._connector.list_pending(timeline)

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> Rows | Iterator[pa.Table]:
        return self._connector.read(spark, chunks)


# Waits for an idle source, twice.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_roll_up_closes_although_its_base_has_no_window_left(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    #  seconds from now   -54      -44                 6
    #  base                [--------) [-------) ...    |
    #  roll-up             [---------------------------)
    place, end = Files(tmp_path / "landing"), time.time_ns() // 1000 + 6 * SECOND
    offset = f"{end % (60 * SECOND)} microseconds"
    base = replace(PER_MINUTE, name="base", window=Tumbling("10 seconds", offset))
    whole = rollup(of=base, name="whole", window=Tumbling("1 minute", offset))
    runs = Counter[str]()
    direct = Direct([base, whole], lambda: warehouse, lambda facts: runs.update([facts.asset]))
    place.send(end - 55 * SECOND)
    found = followed(warehouse, place.connect(), lambda a: (a[-1].after or 0) >= end, direct)
    direct(warehouse, NO_ARRIVALS)
    (row,) = warehouse.load_rows(whole.published_table).to_pylist()
    assert (row["pulses"], row["timing"], row["final"]) == (1, "ON_TIME", True)
    for asset in (base, whole):
        assert check_parity(warehouse, asset).is_equal
    # The event, and at most one for each heartbeat with which the watermark passes the end of a
    # base's window.
    ends = [[((w or 0) - end) // (10 * SECOND) for w in (b.before, b.after)] for b in beats(found)]
    assert runs["base"] <= 1 + sum(before < after for before, after in ends)
