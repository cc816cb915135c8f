"""Either committer gives the same tables; a backfill goes on top of a stream; who releases a window
while a run takes it away does not bring it back."""

from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from runs import run_all
from support import (
    MINUTE,
    PER_MINUTE,
    READINGS,
    T0,
    Event,
    ingest,
    minutes,
    published,
    reference,
    some_arrivals,
)
from tidemark import quality as q
from tidemark.base.errors import ConflictError, DataError
from tidemark.base.settings import Settings
from tidemark.compute.materialize import TempTables
from tidemark.define.rollup import rollup
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session, Tumbling
from tidemark.quality import quarantine
from tidemark.quality.quarantine import Choice
from tidemark.run import compute
from tidemark.run.plan import Plan
from tidemark.run.runner import backfill, correct, incremental
from tidemark.store.asset import Asset
from tidemark.store.committers import Direct, Engine, Merge, atomic
from tidemark.store.rows import Rows
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import parity

# A run takes three times as long if the engine commits.
pytestmark = pytest.mark.slow

ARRIVALS = some_arrivals(count=4, size=24)


@pytest.fixture
def by_engine(engine: Settings, spark: SparkSession) -> Warehouse:
    """A warehouse to whose tables the engine commits."""
    name = f"test_{uuid4().hex[:12]}"
    return Warehouse(spark, engine.warehouse, name, registered=False, committer="engine")


def test_the_place_decides_who_commits(spark: SparkSession) -> None:
    for location in ("/tmp/w", "file:///tmp/w", "s3a://bucket/w", "abfss://c@a/w", "gs://b/w"):
        assert atomic(location)
        assert isinstance(Warehouse(spark, location).committer, Direct)
    for location in ("hdfs://host/w", "dbfs:/w"):
        assert not atomic(location)
        assert isinstance(Warehouse(spark, location).committer, Engine)


def test_runs_give_the_same_where_the_engine_commits(by_engine: Warehouse) -> None:
    judged = (q.between("most", most=2), q.matches_log(), q.unique_key())
    asset = replace(PER_MINUTE, accumulation="retracting", expectations=judged)
    whole = rollup(of=PER_MINUTE, name="whole", window=Tumbling("5 minutes"))
    ingest(by_engine, READINGS, ARRIVALS[:2], ends=False)
    run_all(by_engine, asset, 1)
    backfill(by_engine, asset, *minutes(-1, 2))
    ingest(by_engine, READINGS, ARRIVALS[2:])
    run_all(by_engine, asset, 2)
    assert published(by_engine, asset) == reference(ARRIVALS)
    assert parity(by_engine, asset).equal
    run_all(by_engine, whole)
    assert parity(by_engine, whole).equal
    assert correct(by_engine, asset) is not None
    assert published(by_engine, asset) == reference(ARRIVALS, complete=True)


def test_what_is_withheld_is_released_where_the_engine_commits(by_engine: Warehouse) -> None:
    asset = replace(PER_MINUTE, expectations=(q.between("most", most=5),))
    ingest(by_engine, READINGS, [[Event(T0, "a", 9.0), Event(T0, "b", 1.0)]])
    facts = incremental(by_engine, asset)
    assert facts is not None
    assert (facts.windows, facts.quarantined) == (1, 1)
    assert quarantine.release(by_engine, asset, Choice()) == [T0]
    assert published(by_engine, asset).keys() == {(T0, "a"), (T0, "b")}
    assert by_engine.read(asset.quarantine_table).isEmpty()


@pytest.mark.parametrize("span", [None, minutes(0, 3)], ids=["whole", "a range"])
@pytest.mark.parametrize("more", [0, 2], ids=["behind", "ahead"])
def test_a_backfill_goes_on_top_of_what_a_stream_commits_meanwhile(
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    span: tuple[int, int] | None,
    more: int,
) -> None:
    """While it counts, a stream takes in one arrival after the other, `more` of which it has not
    seen: it counts these alone, and nothing anew."""
    ingest(warehouse, READINGS, ARRIVALS[: len(ARRIVALS) - more], ends=False)
    incremental(warehouse, PER_MINUTE, limit=1)
    count, counted = compute.count_events, 0

    def beside_a_stream(asset: Asset, todo: Plan, place: TempTables) -> Rows:
        nonlocal counted
        rows = count(asset, todo, place)
        if todo.marker.mode == "backfill":
            counted += 1
            if more:
                ingest(warehouse, READINGS, ARRIVALS[-more:], ends=False)
            run_all(warehouse, PER_MINUTE, 1)
        return rows

    monkeypatch.setattr(compute, "count_events", beside_a_stream)
    facts = backfill(warehouse, PER_MINUTE, *(span or ()))
    assert counted == 1
    assert facts.mode == "backfill"
    assert parity(warehouse, PER_MINUTE).equal
    ingest(warehouse, READINGS, [])
    run_all(warehouse, PER_MINUTE)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)


def test_a_session_that_grew_while_it_was_released_comes_back_no_second_time(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held at first, it is released just when a run makes it part of a longer session."""
    asset = replace(
        PER_MINUTE,
        window=Session("20 seconds"),
        allowed_lateness=10 * MINUTE,
        expectations=(q.between("n", most=1),),
    )
    second = 1_000_000
    first = [Event(T0, "a", 1.0), Event(T0 + 10 * second, "a", 1.0)]
    ingest(warehouse, READINGS, [first, [Event(T0 + 3 * MINUTE, "b", 1.0)]], ends=False)
    incremental(warehouse, asset)
    read, looked = quarantine.read, 0

    def while_a_run_goes_on(
        store: Warehouse, transform: WindowedTransform, choice: Choice | None = None
    ) -> DataFrame:
        nonlocal looked
        looked += 1
        found = read(store, transform, choice)
        if looked == 2:
            # After the published table was looked at, and before the release is written.
            late = [Event(T0 + 20 * second, "a", 1.0), Event(T0 + 40 * second, "a", 1.0)]
            ingest(warehouse, READINGS, [late], ends=False)
            wider = replace(asset, expectations=(q.between("n", most=9),))
            incremental(warehouse, wider)
        return found

    monkeypatch.setattr(quarantine, "read", while_a_run_goes_on)
    with pytest.raises(DataError, match="No such window"):
        quarantine.release(warehouse, asset, Choice())
    rows = [r.asDict() for r in warehouse.read(asset.table).collect()]
    # That of b is still open.
    assert [(r["sensor"], r["n"]) for r in rows] == [("a", 4)]


@pytest.mark.parametrize("committer", ["direct", "engine"])
def test_rows_are_read_again_where_the_application_commits_meanwhile(
    engine: Settings, spark: SparkSession, committer: str
) -> None:
    name, read = f"test_{uuid4().hex[:12]}", list[int]()
    store = Warehouse(spark, engine.warehouse, name, registered=False, committer=committer)
    store.create("t", "k STRING, n BIGINT")

    def commit(version: int) -> None:
        rows = pa.table({"k": ["run"], "n": [version]})
        store.merge(rows, "t", Merge(on=("k",)), "app", version)

    def rows() -> pa.Table:
        found = store.take("t")
        read.extend(found["n"].to_pylist())
        if len(read) == 1:
            commit(1)
        return pa.table({"k": ["person"], "n": found["n"]})

    commit(0)
    assert store.merge_if(rows, "t", Merge(on=("k",)), "app") == 1
    assert read == [0, 1]
    assert sorted(store.take("t").to_pylist(), key=str) == [
        {"k": "person", "n": 1},
        {"k": "run", "n": 1},
    ]


class Contended(Engine):
    """An engine that is not there, whose table others change while it merges."""

    def __init__(self, others: int) -> None:
        self.others, self.merged = others, list[int]()

    def transaction(self, table: str, app: str) -> int:
        return 0

    def _merged(
        self, table: str, rows: pa.Table, merge: Merge, app: str | None, version: int
    ) -> int | None:
        self.merged.append(rows["n"][0].as_py())
        if len(self.merged) <= self.others:
            raise ConflictError("Another run wrote it at the same time.")
        return rows.num_rows


def test_rows_are_read_again_where_the_engine_refuses_them() -> None:
    read = 0

    def rows() -> pa.Table:
        nonlocal read
        read += 1
        return pa.table({"n": [read]})

    there = Contended(others=2)
    assert there.merge_if("t", rows, Merge(on=("n",)), "app") == 1
    assert there.merged == [1, 2, 3]
    with pytest.raises(
        ConflictError, match="Can't write table 't': other writers keep changing it"
    ):
        Contended(others=99).merge_if("t", rows, Merge(on=("n",)), "app")
