"""Runs in the ingest's process publish the same rows as any other run, also after kills."""

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from helpers.data.support import same
from helpers.kafka.topics import CLICKS, Topics, clicks
from tidemark.base.errors import DefinitionError, EngineError
from tidemark.base.failpoint import FAIL_AT
from tidemark.base.settings import Settings
from tidemark.base.thresholds import SMALL_BATCH_ROWS
from tidemark.define import aggregates as agg
from tidemark.define.rollup import rollup
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import EachArrival, Trigger
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.define.windows import Session, Tumbling
from tidemark.engine.connect import connect_session, engine_address
from tidemark.run import incremental
from tidemark.run.admission import Admission
from tidemark.store import ledger
from tidemark.store.event_log.arrival import NO_ARRIVALS, Arrival, RecentArrivals
from tidemark.store.event_log.log import Log
from tidemark.store.ledger import RunFacts
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.ingest import ingest
from tidemark_streaming.streams import continuous
from tidemark_streaming.streams.direct import Direct, check_assets

PER_MINUTE = WindowedTransform(
    name="clicks_per_minute",
    description="Clicks by partition and minute.",
    source=CLICKS,
    keys=("kafka_partition",),
    window=Tumbling("1 minute"),
    allowed_lateness=5_000_000,
    trigger=Trigger(early=EachArrival()),
    aggregates={"clicks": agg.count(), "highest": agg.max("n")},
    function=same,
)
SESSIONS = replace(
    PER_MINUTE, name="sessions", window=Session("3 seconds"), trigger=Trigger(), keys=()
)
BOTH = (PER_MINUTE, SESSIONS)
POINTS = ("log", "timeline", "state", "published", "ledger")


def direct(warehouse: Warehouse, *transforms: WindowedTransform) -> Direct:
    return Direct(transforms, lambda: warehouse)


def bring(warehouse: Warehouse, topics: Topics, name: str, then: Direct) -> list[ingest.Ingested]:
    """Ingest the pending records and run the assets after each commit. Return the commits."""
    found: list[ingest.Ingested] = []
    for commit in ingest.ingest(warehouse, topics.connector(name), batch=None):
        then(warehouse, commit.recent_arrivals)
        found.append(commit)
    return found


def counted(warehouse: Warehouse) -> int:
    """Return the number of events in the windows of a minute and in the late table."""
    whole = sum(warehouse.load_rows(PER_MINUTE.published_table)["events"].to_pylist())
    late = PER_MINUTE.late_table
    return whole + (warehouse.read_frame(late).count() if warehouse.has_table(late) else 0)


def test_rows_in_memory_equal_the_rows_in_the_event_log(
    warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create(partitions=2)
    then = direct(warehouse, PER_MINUTE)
    for first in (0, 40, 55):
        topics.send(name, [*clicks(*range(first, first + 10)), b"no JSON"], first % 2, key=b"k")
        (commit,) = bring(warehouse, topics, name, then)
        (arrival,) = commit.arrivals
        assert commit.rows is not None
        there = warehouse.load_rows(CLICKS.log_table).sort_by([("arrival", "ascending")])
        logged = there.filter([n == arrival.arrival for n in there["arrival"].to_pylist()])
        assert logged.num_rows == 10
        assert commit.rows.to_pylist() == logged.sort_by("position").to_pylist()
        assert [f.type for f in commit.rows.schema] == [f.type for f in logged.schema]
    assert counted(warehouse) == 30


def test_rows_of_other_arrivals_are_read_from_the_log() -> None:
    def arrival(number: int) -> Arrival:
        return Arrival(number, 0, None, None, 1, None, None, 0, "{}")

    rows = pa.table({"arrival": [3, 4, 4, 5]})
    recent = RecentArrivals([arrival(n) for n in (3, 4, 5)], rows)
    assert recent.rows_between(2, 5) is rows
    some = recent.rows_between(3, 4)
    assert some is not None
    assert some["arrival"].to_pylist() == [4, 4]
    for after, through in ((1, 5), (2, 6), (-1, 2), (5, 7)):
        assert recent.rows_between(after, through) is None
    assert NO_ARRIVALS.rows_between(-1, 0) is None


# Runs once per arrival.
@pytest.mark.slow
def test_two_transforms_share_a_read_and_equal_a_backfill(
    warehouse: Warehouse, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topics.create(partitions=2)
    # Earlier arrivals are read from the event log, once for each asset.
    topics.send(name, clicks(*range(30)))
    list(ingest.ingest(warehouse, topics.connector(name), batch=None))
    then = direct(warehouse, *BOTH)
    then(warehouse, NO_ARRIVALS)
    reads: list[str] = []
    whole = Warehouse.read_frame

    def read(self: Warehouse, table: str, *bounds: object, **more: object) -> DataFrame:
        reads.append(table)
        return whole(self, table, *bounds, **more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Warehouse, "read_frame", read)
    chance = random.Random(5)
    for first in range(30, 230, 40):
        late = chance.randrange(30)
        topics.send(name, clicks(*range(first, first + 40), late), chance.randrange(2))
        bring(warehouse, topics, name, then)
    assert CLICKS.log_table not in reads
    monkeypatch.undo()
    for transform in BOTH:
        assert check_parity(warehouse, transform).is_equal
    assert counted(warehouse) == 235


def test_skipped_arrivals_are_processed_by_the_next_run(
    warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create()
    then = direct(warehouse, PER_MINUTE)
    topics.send(name, clicks(*range(5)))
    bring(warehouse, topics, name, then)
    # Ingested without a run, as by an ingest that was killed before it.
    topics.send(name, clicks(*range(5, 10)))
    list(ingest.ingest(warehouse, topics.connector(name)))
    topics.send(name, clicks(*range(10, 15)))
    (commit,) = ingest.ingest(warehouse, topics.connector(name), batch=None)
    assert commit.arrivals[0].arrival == 2
    # The limit of a run applies to all arrivals, including those that are not in memory.
    facts = incremental(warehouse, PER_MINUTE, limit=1, recent=commit.recent_arrivals)
    assert facts is not None
    assert (facts.through_arrival, facts.limited_by) == (1, "arrivals")
    then(warehouse, commit.recent_arrivals)
    assert counted(warehouse) == 15
    # Another process has already run: nothing is left to do.
    assert incremental(warehouse, PER_MINUTE, recent=commit.recent_arrivals) is None


# Runs once per arrival.
@pytest.mark.nightly
@pytest.mark.slow
def test_many_events_of_a_commit_are_counted_once_by_each_transform(
    warehouse: Warehouse, topics: Topics
) -> None:
    columns = {"at": "TIMESTAMP", "n": "INT", "kafka_partition": "INT"}
    plain = replace(CLICKS, columns=columns, watermark=BoundedOutOfOrderness("10 seconds"))
    each = replace(PER_MINUTE, source=plain, trigger=Trigger())
    both = (each, replace(each, name="per_hour", window=Tumbling("1 hour"), keys=()))
    name, then = topics.create(partitions=2), direct(warehouse, *both)
    connector = topics.connector(name, source=plain, rows=10_000)
    commits: list[ingest.Ingested] = []
    for first, count in ((0, 10), (10, SMALL_BATCH_ROWS + 5_000)):
        topics.send(name, clicks(*range(first, first + count)), first % 20 // 10)
        for commit in ingest.ingest(warehouse, connector, batch=None):
            then(warehouse, commit.recent_arrivals)
            commits.append(commit)
    commit = commits[-1]
    assert len(commit.arrivals) == 3
    assert sum(a.rows for a in commit.arrivals) == SMALL_BATCH_ROWS + 5_000
    # This many rows are read from the event log.
    assert commit.rows is None
    end = ingest.end_source(warehouse, plain)
    then(warehouse, RecentArrivals([end]))
    for transform in both:
        found = warehouse.load_rows(transform.published_table)
        assert sum(found["events"].to_pylist()) == SMALL_BATCH_ROWS + 5_010
        assert check_parity(warehouse, transform).is_equal


@pytest.mark.nightly
@pytest.mark.slow
def test_a_run_respects_its_limit_and_the_next_takes_the_rest(
    warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create()
    made: list[RunFacts] = []
    then = Direct([PER_MINUTE], lambda: warehouse, made.append, Admission(rows=7))
    topics.send(name, clicks(*range(2)))
    bring(warehouse, topics, name, then)
    topics.send(name, clicks(*range(2, 20)))
    for commit in ingest.ingest(warehouse, topics.connector(name, rows=6), batch=None):
        then(warehouse, commit.recent_arrivals)
    assert [(f.events, f.limited_by) for f in made[1:]] == [(6, "rows"), (6, "rows"), (6, None)]
    assert counted(warehouse) == 20


_FOLLOWING = """
import json
import sys
from pyspark.sql import SparkSession
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest import follow_source
from tidemark_streaming.streams.direct import Direct, check_assets
from test_direct import BOTH
from helpers.kafka.topics import CLICKS, Topics

_, remote, place, servers, name = sys.argv
warehouse = Warehouse(SparkSession.builder.remote(remote).getOrCreate(), *json.loads(place))
direct = Direct(BOTH, lambda: warehouse, lambda facts: print(facts.asset, flush=True))
for commit in follow_source(warehouse, Topics(servers).connector(name, rows=50), on_commit=direct):
    pass
"""


# Starts and kills many processes.
@pytest.mark.slow
def test_after_a_kill_at_any_instant_each_event_counts_once(
    engine: Settings, warehouse: Warehouse, topics: Topics, tmp_path: Path
) -> None:
    name = topics.create(partitions=2)
    chance, sent = random.Random(11), 0
    arguments = [engine_address(engine), json.dumps(warehouse.place), topics.servers, name]
    paths = os.pathsep.join([str(Path(__file__).parents[2]), str(Path(__file__).parent), *sys.path])
    point = tmp_path / "point"
    for at in (*POINTS, None):
        topics.send(name, clicks(*range(sent, sent + 40)), chance.randrange(2))
        sent += 40
        environment = os.environ | {"PYTHONPATH": paths, FAIL_AT: str(point)}
        with subprocess.Popen(
            [sys.executable, "-c", _FOLLOWING, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            if at is not None:
                point.write_text(at)
            deadline = time.monotonic() + (60 if at is not None else chance.uniform(0, 2))
            while process.poll() is None and time.monotonic() < deadline:
                topics.send(name, clicks(*range(sent, sent + 15)), chance.randrange(2))
                sent += 15
                time.sleep(0.1)
            assert (process.poll() is None) == (at is None)
            process.kill()
    then = direct(warehouse, *BOTH)
    bring(warehouse, topics, name, then)
    then(warehouse, NO_ARRIVALS)
    assert counted(warehouse) == sent
    for transform in BOTH:
        assert check_parity(warehouse, transform).is_equal
    last = Log(warehouse, CLICKS).find_last_arrival()
    assert last is not None
    runs = warehouse.load_rows(ledger.TABLE)
    assert max(runs["through_arrival"].to_pylist()) == last.arrival


def test_a_transform_of_another_source_is_refused(engine: Settings) -> None:
    other = replace(PER_MINUTE, source=replace(CLICKS, name="others"))
    with pytest.raises(DefinitionError, match="is computed from source 'others'"):
        check_assets(engine, CLICKS.name, [other])


@pytest.mark.nightly
@pytest.mark.slow
def test_a_roll_up_needs_its_base_and_runs_after_it(
    engine: Settings, warehouse: Warehouse, topics: Topics
) -> None:
    base = replace(PER_MINUTE, trigger=Trigger())
    whole = rollup(of=base, name="whole", window=Tumbling("5 minutes"))
    with pytest.raises(DefinitionError, match=r"add `--run clicks_per_minute`"):
        check_assets(engine, CLICKS.name, [whole])
    check_assets(engine, CLICKS.name, [whole, base])
    made: list[RunFacts] = []
    then = Direct([whole, base], lambda: warehouse, made.append)
    topics.send(name := topics.create(), clicks(1, 2))
    bring(warehouse, topics, name, then)
    then(warehouse, RecentArrivals([ingest.end_source(warehouse, CLICKS)]))
    assert [facts.asset for facts in made] == [base.name, whole.name] * 2
    assert check_parity(warehouse, whole).is_equal


def test_an_asset_with_a_running_stream_is_refused(
    engine: Settings, warehouse: Warehouse, topics: Topics
) -> None:
    topics.send(name := topics.create(), clicks(1))
    list(ingest.ingest(warehouse, topics.connector(name)))
    settings = engine.model_copy(update={"database": warehouse.database})
    spark = connect_session(settings, continuous.session_id(settings, PER_MINUTE.name))
    stream = Warehouse(spark, *warehouse.place)
    continuous.start_query(stream, PER_MINUTE)
    try:
        with pytest.raises(EngineError, match="tidemark stream clicks_per_minute --stop"):
            check_assets(settings, CLICKS.name, [PER_MINUTE])
    finally:
        assert continuous.stop_query(stream, PER_MINUTE)
