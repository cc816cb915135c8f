"""Tests of conflicting commits: a backfill with a stream, and a release with a run."""

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from helpers.data.runs import run_all
from helpers.data.support import (
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
from helpers.suite.nightly import mostly_nightly
from tidemark import expect as q
from tidemark.base.errors import DataError, StoreError
from tidemark.compute.materialize import TempTables
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session
from tidemark.quality import quarantine
from tidemark.quality.quarantine import Choice
from tidemark.run import compute
from tidemark.run.plan import Plan
from tidemark.run.runner import backfill, incremental
from tidemark.store.asset import Asset
from tidemark.store.committers.values import Merge
from tidemark.store.epoch import Epoch
from tidemark.store.rows import Rows
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity

# Runs that commit in parallel.
pytestmark = pytest.mark.slow

ARRIVALS = some_arrivals(count=4, size=24)


def test_a_warehouse_needs_a_store_that_creates_a_file_only_once(spark: SparkSession) -> None:
    for location in ("/tmp/w", "file:///tmp/w", "s3a://bucket/w", "abfss://c@a/w", "gs://b/w"):
        assert Warehouse(spark, location).location == location
    for location in ("hdfs://host/w", "dbfs:/w"):
        with pytest.raises(StoreError, match="s3://, gs:// or abfss://"):
            Warehouse(spark, location)


@pytest.mark.parametrize(
    "span", mostly_nightly([(None,), (minutes(0, 3),)]), ids=["whole", "a range"]
)
@pytest.mark.parametrize("more", mostly_nightly([0, 2]), ids=["behind", "ahead"])
def test_a_backfill_includes_concurrent_commits_of_a_stream(
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    span: tuple[int, int] | None,
    more: int,
) -> None:
    """During the backfill, a stream commits arrivals, `more` of which the backfill has not read.

    The backfill counts events only once.
    """
    ingest(warehouse, READINGS, ARRIVALS[: len(ARRIVALS) - more], ends=False)
    incremental(warehouse, PER_MINUTE, limit=1)
    count, counted = compute.count_events, 0

    def beside_a_stream(asset: Asset, todo: Plan, place: TempTables) -> Rows:
        nonlocal counted
        rows = count(asset, todo, place)
        if todo.commit_info.mode == "backfill":
            counted += 1
            if more:
                ingest(warehouse, READINGS, ARRIVALS[-more:], ends=False)
            run_all(warehouse, PER_MINUTE, 1)
        return rows

    monkeypatch.setattr(compute, "count_events", beside_a_stream)
    facts = backfill(warehouse, PER_MINUTE, *(span or ()))
    assert counted == 1
    assert facts.mode == "backfill"
    assert check_parity(warehouse, PER_MINUTE).is_equal
    ingest(warehouse, READINGS, [])
    run_all(warehouse, PER_MINUTE)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)


@pytest.mark.nightly
def test_a_session_that_grows_during_release_is_published_once(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarantined session is released just when a run merges it into a longer one."""
    asset = replace(
        PER_MINUTE,
        window=Session("20 seconds"),
        allowed_lateness=10 * MINUTE,
        expectations=(q.between("n", max_value=1),),
    )
    second = 1_000_000
    first = [Event(T0, "a", 1.0), Event(T0 + 10 * second, "a", 1.0)]
    ingest(warehouse, READINGS, [first, [Event(T0 + 3 * MINUTE, "b", 1.0)]], ends=False)
    incremental(warehouse, asset)
    read, looked = quarantine.read_windows, 0

    def while_a_run_goes_on(
        store: Warehouse, transform: WindowedTransform, choice: Choice | None = None
    ) -> DataFrame:
        nonlocal looked
        looked += 1
        found = read(store, transform, choice)
        if looked == 2:
            # After the published table was read, and before the release is written.
            late = [Event(T0 + 20 * second, "a", 1.0), Event(T0 + 40 * second, "a", 1.0)]
            ingest(warehouse, READINGS, [late], ends=False)
            wider = replace(asset, expectations=(q.between("n", max_value=9),))
            incremental(warehouse, wider)
        return found

    monkeypatch.setattr(quarantine, "read_windows", while_a_run_goes_on)
    with pytest.raises(DataError, match="No such window"):
        quarantine.release_windows(warehouse, asset, Choice())
    rows = [r.asDict() for r in warehouse.read_frame(asset.published_table).collect()]
    # The session of b is still open.
    assert [(r["sensor"], r["n"]) for r in rows] == [("a", 4)]


@pytest.mark.nightly
def test_rows_are_reread_if_the_application_commits_in_between(
    warehouse: Warehouse,
) -> None:
    read, store = list[int](), warehouse
    store.ensure_table("t", "k STRING, n BIGINT")

    def commit(version: int) -> None:
        rows = pa.table({"k": ["run"], "n": [version]})
        store.merge_rows(rows, "t", Merge(on=("k",)), "app", version)

    def rows() -> pa.Table:
        found = store.load_rows("t")
        read.extend(found["n"].to_pylist())
        if len(read) == 1:
            commit(1)
        return pa.table({"k": ["person"], "n": found["n"]})

    commit(0)
    assert store.merge_if(rows, "t", Merge(on=("k",)), "app", Epoch("s", 0, lambda: True)) == 1
    assert read == [0, 1]
    assert sorted(store.load_rows("t").to_pylist(), key=str) == [
        {"k": "person", "n": 1},
        {"k": "run", "n": 1},
    ]
