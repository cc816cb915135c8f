"""An asset is rebuilt or replayed while its streaming query runs, also with sessions and with a
topic that publishes its table."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from helpers.data import stuck_streams
from helpers.data.redefined import WIDER
from helpers.data.runs import left_behind, run_all
from helpers.data.support import PER_MINUTE, READINGS, ingest, some_arrivals
from helpers.kafka.rebuilt import Table, records
from helpers.kafka.topics import Topics
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError, DefinitionChangedError
from tidemark.compute.materialize import TempTables
from tidemark.define import aggregates as agg
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Session
from tidemark.run import compute
from tidemark.run.admission import Admission
from tidemark.run.change import rebuild as work
from tidemark.run.change import replay as replays
from tidemark.run.plan import Plan
from tidemark.run.runner import incremental
from tidemark.store.asset import Asset
from tidemark.store.lineage import StaleError
from tidemark.store.rows import Rows
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import check_parity
from tidemark_streaming.kafka import KafkaSink
from tidemark_streaming.sink import SinkWriter
from tidemark_streaming.streams import continuous

# Runs streams while their asset is rebuilt, and waits for them.
pytestmark = pytest.mark.slow

ARRIVALS = some_arrivals(count=8, size=24)
SHORT = replace(PER_MINUTE, window=Session("20 seconds"))
LONG = replace(WIDER, window=Session("40 seconds"))


def beside(patch: pytest.MonkeyPatch, name: str, stream: Callable[[], object]) -> list[str]:
    """Run `stream` after each count of the asset with this name. Return a list that gets the name
    each time."""
    count, counted = compute.count_events, list[str]()

    def alive(asset: Asset, todo: Plan, place: TempTables) -> Rows:
        rows = count(asset, todo, place)
        if asset.transform.name == name:
            counted.append(asset.transform.name)
            stream()
        return rows

    patch.setattr(compute, "count_events", alive)
    return counted


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("old", "new"),
    mostly_nightly([(SHORT, LONG), (PER_MINUTE, WIDER)]),
    ids=["sessions", "windows"],
)
def test_events_streamed_during_a_rebuild_are_in_the_promoted_table(
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    old: WindowedTransform,
    new: WindowedTransform,
) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    run_all(warehouse, old, 2)
    more = [ARRIVALS[n : n + 1] for n in range(3, 6)]

    def stream() -> None:
        if more:
            ingest(warehouse, READINGS, more.pop(0), ends=False)
            assert incremental(warehouse, old, pinned_definition=True) is not None
            assert check_parity(warehouse, old).is_equal

    counted = beside(monkeypatch, f"{new.name}__rebuild", stream)
    made = work.rebuild_tables(warehouse, new)
    assert (len(counted), made.through) == (2, 3)
    done = work.promote_tables(warehouse, new)
    assert not more
    assert done.through_arrival == 5
    assert check_parity(warehouse, new).is_equal
    ingest(warehouse, READINGS, ARRIVALS[6:], ends=False)
    assert incremental(warehouse, new, pinned_definition=True) is not None
    assert check_parity(warehouse, new).is_equal
    work.roll_back(warehouse, new)
    ingest(warehouse, READINGS, [])
    run_all(warehouse, old, 2)
    assert check_parity(warehouse, old).is_equal


def test_a_query_runs_during_a_rebuild_and_ends_on_promotion(warehouse: Warehouse) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:2], ends=False)
    query = continuous.start_query(warehouse, PER_MINUTE, admission=Admission(1))
    through(warehouse, PER_MINUTE, 1)
    work.rebuild_tables(warehouse, WIDER)
    ingest(warehouse, READINGS, ARRIVALS[2:5], ends=False)
    through(warehouse, PER_MINUTE, 4)
    assert query.isActive
    assert work.promote_tables(warehouse, WIDER).through_arrival == 4
    ingest(warehouse, READINGS, ARRIVALS[5:6], ends=False)
    deadline = time.monotonic() + 120
    while query.isActive:
        assert time.monotonic() < deadline, "the query of the earlier definition goes on"
        time.sleep(0.2)
    failure = query.exception()
    assert failure is not None
    assert continuous.is_outdated(failure)
    ingest(warehouse, READINGS, ARRIVALS[6:])
    continuous.start_query(warehouse, WIDER, available_now=True).awaitTermination(120)
    assert check_parity(warehouse, WIDER).is_equal
    # Each event is in a window or in the late table.
    counted = sum(warehouse.load_rows(WIDER.published_table, columns=["n"])["n"].to_pylist())
    late = warehouse.load_rows(WIDER.late_table).num_rows
    assert counted + late == sum(len(events) for events in ARRIVALS)


@pytest.mark.nightly
@pytest.mark.parametrize("asset", mostly_nightly([PER_MINUTE, SHORT]), ids=["windows", "sessions"])
def test_a_query_runs_during_replays(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, asset: WindowedTransform
) -> None:
    """Covers a replay into the asset's table, which also counts arrivals that the query processed
    during it, and a replay into side tables."""
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    query = continuous.start_query(warehouse, asset, admission=Admission(1))
    through(warehouse, asset, 2)
    more = [ARRIVALS[3:5], ARRIVALS[5:6]]

    def stream() -> None:
        ingest(warehouse, READINGS, more.pop(0), ends=False)
        through(warehouse, asset, 4 if more else 5)

    with monkeypatch.context() as patch:
        counted = beside(patch, asset.name, stream)
        done = replays.replay_windows(warehouse, asset, 1)
    assert (len(counted), done.through) == (1, 4)
    assert check_parity(warehouse, asset).is_equal
    with monkeypatch.context() as patch:
        counted = beside(patch, f"{asset.name}__tried", stream)
        side = replays.replay_to_side_tables(warehouse, asset, 1, "tried")
    assert (len(counted), side.through, more) == (1, 4, [])
    ingest(warehouse, READINGS, ARRIVALS[6:])
    through(warehouse, asset, len(ARRIVALS) - 1)
    assert query.isActive
    assert continuous.stop_query(warehouse, asset)
    assert check_parity(warehouse, asset).is_equal


def through(warehouse: Warehouse, transform: WindowedTransform, arrival: int) -> None:
    """Wait until the asset's stream has processed an arrival and published the fired windows."""
    query, deadline = continuous.find_query(warehouse, transform), time.monotonic() + 120
    assert query is not None
    while True:
        asset = Asset(warehouse, transform)
        last = asset.state.read_last_commit()
        if (
            last.after.at.arrival >= arrival
            and asset.published_commit_number() >= last.commit_number
        ):
            return
        assert query.exception() is None
        if time.monotonic() >= deadline:
            described = stuck_streams.describe(query, warehouse, transform)
            pytest.fail(f"the stream does not get on\n{described}")
        time.sleep(0.2)


@pytest.mark.nightly
def test_the_topic_follows_a_promotion_and_a_rollback(warehouse: Warehouse, topics: Topics) -> None:
    topic = KafkaSink(topics.unused(), topics.servers, partitions=2)
    old = replace(PER_MINUTE, accumulation="retracting", sink=topic)
    aggregates = {"n": agg.count(), "newest": agg.last("value")}
    new = replace(old, keys=(), aggregates=aggregates, window=WIDER.window)

    def told(asset: WindowedTransform) -> dict[Any, Any]:
        SinkWriter(warehouse, asset).publish_changes()
        table = Table("retracting")
        for record in records(topics.servers, topic.name):
            table.take(*record)
        assert SinkWriter(warehouse, asset).publish_changes().transactions == 0
        return {window: value["values"] for window, value in table.rows.items()}

    def there(asset: WindowedTransform) -> list[int]:
        return sorted(warehouse.load_rows(asset.published_table, columns=["n"])["n"].to_pylist())

    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    incremental(warehouse, old)
    assert sorted(v["n"] for v in told(old).values()) == there(old)
    work.rebuild_tables(warehouse, new)
    with pytest.raises(DefinitionChangedError, match="was written with another definition"):
        SinkWriter(warehouse, new).publish_changes(reset=True)
    ingest(warehouse, READINGS, ARRIVALS[3:5], ends=False)
    # Windows that the stream of the earlier definition has not published are replaced by the
    # promotion.
    incremental(warehouse, old)
    kept = there(old)
    work.promote_tables(warehouse, new)
    with pytest.raises(DefinitionChangedError, match="differs in the column"):
        SinkWriter(warehouse, old).publish_changes()
    now = told(new)
    assert {len(window) for window in now} == {2}
    assert sorted(v["n"] for v in now.values()) == there(new)
    ingest(warehouse, READINGS, ARRIVALS[5:6], ends=False)
    incremental(warehouse, new)
    assert sorted(v["n"] for v in told(new).values()) == there(new)
    work.roll_back(warehouse, new)
    back = told(old)
    assert {len(window) for window in back} == {3}
    assert sorted(v["n"] for v in back.values()) == there(old) == kept


@pytest.mark.nightly
def test_a_promotion_over_a_half_published_run_requires_no_backup(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    incremental(warehouse, PER_MINUTE)
    work.rebuild_tables(warehouse, WIDER)
    ingest(warehouse, READINGS, ARRIVALS[3:], ends=False)
    left_behind(warehouse, PER_MINUTE, monkeypatch)
    monkeypatch.setattr(work, "_PUBLISH_WAIT_SECONDS", 0.1)
    version = warehouse.newest_version(PER_MINUTE.published_table)
    with pytest.raises(DataError, match="commit 1, is not completely published"):
        work.promote_tables(warehouse, WIDER)
    with pytest.raises(StaleError, match="made by another definition"):
        incremental(warehouse, WIDER)
    assert warehouse.newest_version(PER_MINUTE.published_table) == version
    work.promote_tables(warehouse, WIDER, keep_backup=False)
    assert check_parity(warehouse, WIDER).is_equal
    with pytest.raises(DataError, match="has no backup to restore: "):
        work.roll_back(warehouse, WIDER)
