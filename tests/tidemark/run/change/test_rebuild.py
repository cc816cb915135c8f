"""Tests of rebuilds: side tables replace the current tables in one commit each."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import functions as F

from helpers.data.redefined import WIDER
from helpers.data.runs import dies
from helpers.data.support import (
    PER_MINUTE,
    READINGS,
    filtered_by_nothing,
    ingest,
    published,
    reference,
    renamed,
    some_arrivals,
)
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError, DefinitionChangedError
from tidemark.base.settings import Settings
from tidemark.define.rollup import rollup
from tidemark.define.transform import WindowedTransform
from tidemark.define.windows import Tumbling
from tidemark.expect import between
from tidemark.run import swap
from tidemark.run.change import rebuild as work
from tidemark.run.runner import backfill, incremental
from tidemark.store.asset import Asset
from tidemark.store.lineage import StaleError
from tidemark.store.upkeep import maintenance
from tidemark.store.warehouse import Warehouse
from tidemark.verify.changes import compute_changes
from tidemark.verify.parity import check_parity

ARRIVALS = some_arrivals(count=8)
STEPS = ("state", "late", "quarantine", "panes", "published", "ledger")

_DYING = """
import json
import sys
from pyspark.sql import SparkSession
from helpers.data.redefined import WIDER
from tidemark.run.change import rebuild as work
from tidemark.store.warehouse import Warehouse

_, remote, place, way = sys.argv
warehouse = Warehouse(SparkSession.builder.remote(remote).getOrCreate(), *json.loads(place))
getattr(work, way)(warehouse, WIDER)
"""


def rows(warehouse: Warehouse, table: str = PER_MINUTE.published_table) -> list[dict[str, Any]]:
    """Return a table's rows without its commit numbers."""
    found = warehouse.load_rows(table).to_pylist()
    plain = [{k: v for k, v in row.items() if k not in ("commit_number", "as_of")} for row in found]
    return sorted(plain, key=lambda row: json.dumps(row, default=str, sort_keys=True))


def ran(warehouse: Warehouse, transform: WindowedTransform = PER_MINUTE) -> None:
    ingest(warehouse, READINGS, ARRIVALS[:4], ends=False)
    incremental(warehouse, transform)


# Many runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_stream_continues_during_a_rebuild_and_ends_at_promotion(
    warehouse: Warehouse,
) -> None:
    ran(warehouse)
    made = work.rebuild_tables(warehouse, WIDER)
    assert (made.through, made.current) == (3, 3)
    assert "per_minute__rebuild" in made.tables
    # The asset's own tables are unchanged, and its stream processes new arrivals.
    assert check_parity(warehouse, PER_MINUTE).is_equal
    ingest(warehouse, READINGS, ARRIVALS[4:6], ends=False)
    assert incremental(warehouse, PER_MINUTE, pinned_definition=True) is not None
    before = warehouse.newest_version(PER_MINUTE.published_table)
    done = work.promote_tables(warehouse, WIDER)
    assert warehouse.newest_version(PER_MINUTE.published_table) == before + 1
    assert (done.mode, done.through_arrival) == ("promotion", 5)
    assert not warehouse.has_table(made.tables[0])
    with pytest.raises(DefinitionChangedError):
        incremental(warehouse, PER_MINUTE, pinned_definition=True)
    ingest(warehouse, READINGS, ARRIVALS[6:])
    assert incremental(warehouse, WIDER, pinned_definition=True) is not None
    assert check_parity(warehouse, WIDER).is_equal
    assert compute_changes(warehouse, WIDER).has_same_definition


def test_a_promotion_gives_the_same_rows_as_a_backfill(warehouse: Warehouse) -> None:
    ran(warehouse)
    other = renamed(WIDER, "other")
    backfill(warehouse, other)
    work.rebuild_tables(warehouse, WIDER)
    work.promote_tables(warehouse, WIDER)
    assert rows(warehouse) == rows(warehouse, other.published_table)
    assert rows(warehouse, PER_MINUTE.late_table) == rows(warehouse, other.late_table)
    ingest(warehouse, READINGS, ARRIVALS[4:])
    for transform in (WIDER, other):
        incremental(warehouse, transform)
    assert rows(warehouse) == rows(warehouse, other.published_table)


# Several runs and a rebuild.
@pytest.mark.slow
def test_a_rollback_is_one_commit_and_the_earlier_definition_continues(
    warehouse: Warehouse,
) -> None:
    ran(warehouse)
    there = rows(warehouse), rows(warehouse, PER_MINUTE.late_table)
    work.rebuild_tables(warehouse, WIDER)
    work.promote_tables(warehouse, WIDER)
    ingest(warehouse, READINGS, ARRIVALS[4:6], ends=False)
    incremental(warehouse, WIDER)
    before = warehouse.newest_version(PER_MINUTE.published_table)
    done = work.roll_back(warehouse, WIDER)
    assert warehouse.newest_version(PER_MINUTE.published_table) == before + 1
    assert (done.mode, done.through_arrival) == ("rollback", 3)
    assert (rows(warehouse), rows(warehouse, PER_MINUTE.late_table)) == there
    with pytest.raises(StaleError, match="made by another definition"):
        incremental(warehouse, WIDER)
    ingest(warehouse, READINGS, ARRIVALS[6:])
    incremental(warehouse, PER_MINUTE)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)
    assert check_parity(warehouse, PER_MINUTE).is_equal
    with pytest.raises(DataError, match="no backup to restore: only `tidemark rebuild"):
        work.roll_back(warehouse, WIDER)


# Many runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_no_other_definition_takes_over_after_a_rollback(warehouse: Warehouse) -> None:
    """Not even a definition with which runs could otherwise continue."""
    ran(warehouse)
    later = replace(PER_MINUTE, function=filtered_by_nothing)
    work.rebuild_tables(warehouse, later)
    work.promote_tables(warehouse, later)
    work.roll_back(warehouse, later)
    ingest(warehouse, READINGS, ARRIVALS[4:])
    with pytest.raises(StaleError, match="made by another definition"):
        incremental(warehouse, later)
    incremental(warehouse, PER_MINUTE)
    assert check_parity(warehouse, PER_MINUTE).is_equal


def rebuilt(warehouse: Warehouse) -> tuple[object, object]:
    """Rebuild an asset that has run. Return its rows and those of the side table."""
    ran(warehouse)
    work.rebuild_tables(warehouse, WIDER)
    return rows(warehouse), rows(warehouse, work.side_definition(WIDER).published_table)


# Once for each fail point.
@pytest.mark.slow
@pytest.mark.parametrize("where", mostly_nightly(STEPS))
def test_a_killed_promotion_leaves_either_all_old_or_all_new_rows(
    engine: Settings, warehouse: Warehouse, where: str
) -> None:
    old, new = rebuilt(warehouse)
    assert dies(_DYING, engine, warehouse, where, "promote_tables")
    assert rows(warehouse) == (new if where == "ledger" else old)
    done = work.promote_tables(warehouse, WIDER)
    assert rows(warehouse) == new
    assert Asset(warehouse, WIDER).published_commit_number() == done.commit_number == 1
    assert not warehouse.has_table(work.side_definition(WIDER).published_table)
    ingest(warehouse, READINGS, ARRIVALS[4:])
    incremental(warehouse, WIDER)
    assert check_parity(warehouse, WIDER).is_equal
    # A rollback restores the earlier rows, however often the promotion was requested.
    work.roll_back(warehouse, WIDER)
    assert rows(warehouse) == old


# Once for each fail point.
@pytest.mark.slow
@pytest.mark.parametrize("where", mostly_nightly(["late", "published"]))
def test_a_run_completes_a_killed_promotion_or_rollback(
    engine: Settings, warehouse: Warehouse, where: str
) -> None:
    """The run may have any definition, because a swap needs none."""
    old, new = rebuilt(warehouse)
    assert dies(_DYING, engine, warehouse, where, "promote_tables")
    with pytest.raises(DefinitionChangedError):
        incremental(warehouse, PER_MINUTE, pinned_definition=True)
    assert rows(warehouse) == new
    assert dies(_DYING, engine, warehouse, where, "roll_back")
    with pytest.raises(StaleError):
        incremental(warehouse, WIDER)
    assert rows(warehouse) == old
    ingest(warehouse, READINGS, ARRIVALS[4:])
    incremental(warehouse, PER_MINUTE)
    assert check_parity(warehouse, PER_MINUTE).is_equal


@pytest.mark.nightly
@pytest.mark.slow
def test_a_promotion_includes_commits_made_just_before_it(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(warehouse)
    work.rebuild_tables(warehouse, WIDER)
    store, more = swap.store_swap, [ARRIVALS[4:5], ARRIVALS[5:6]]

    def later(*given: Any) -> Any:  # noqa: ANN401 (passed on)
        if more:
            ingest(warehouse, READINGS, more.pop(0), ends=False)
            incremental(warehouse, PER_MINUTE, pinned_definition=True)
        return store(*given)

    monkeypatch.setattr(swap, "store_swap", later)
    done = work.promote_tables(warehouse, WIDER)
    assert not more
    assert done.through_arrival == 5
    assert check_parity(warehouse, WIDER).is_equal


def test_the_change_feed_contains_the_changes_of_a_promotion(warehouse: Warehouse) -> None:
    ran(warehouse)
    now = replace(PER_MINUTE, allowed_lateness=0)
    old = rows(warehouse)
    since = warehouse.newest_version(PER_MINUTE.published_table)
    work.rebuild_tables(warehouse, now)
    work.promote_tables(warehouse, now)
    feed = warehouse.read_change_feed(PER_MINUTE.published_table, since)
    feed = feed.groupBy("_change_type").agg(F.sum("n").alias("n")).collect()
    assert {r[0]: r[1] for r in feed} == {
        "delete": sum(r["n"] for r in old),
        "insert": sum(r["n"] for r in rows(warehouse)),
    }


# Several runs and a rebuild.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_roll_up_follows_a_promotion(warehouse: Warehouse) -> None:
    ran(warehouse)
    fives = rollup(of=PER_MINUTE, window=Tumbling("6 minutes"), name="sixes")
    incremental(warehouse, fives)
    work.rebuild_tables(warehouse, WIDER)
    work.promote_tables(warehouse, WIDER)
    now = rollup(of=WIDER, window=Tumbling("6 minutes"), name="sixes")
    incremental(warehouse, now)
    assert check_parity(warehouse, now).is_equal


# Many runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_quarantined_windows_and_panes_are_promoted_too(warehouse: Warehouse) -> None:
    few = replace(PER_MINUTE, accumulation="discarding", expectations=(between("n", 0, 3),))
    ran(warehouse)
    work.rebuild_tables(warehouse, few)
    work.promote_tables(warehouse, few)
    withheld = rows(warehouse, few.quarantine_table)
    assert withheld
    assert all(row["n"] > 3 for row in withheld)
    assert sum(r["n"] for r in rows(warehouse, few.panes_table)) > 0
    assert check_parity(warehouse, few).is_equal
    work.roll_back(warehouse, few)
    assert rows(warehouse, few.quarantine_table) == []
    assert rows(warehouse, few.panes_table) == []
    assert check_parity(warehouse, PER_MINUTE).is_equal


# Many runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_maintenance_keeps_the_backup_until_it_is_discarded(
    warehouse: Warehouse,
) -> None:
    ran(warehouse)
    old = rows(warehouse)
    work.rebuild_tables(warehouse, WIDER)
    work.promote_tables(warehouse, WIDER)
    for _ in maintenance.maintain_tables(warehouse, retention=0):
        pass
    work.roll_back(warehouse, WIDER)
    assert rows(warehouse) == old
    work.rebuild_tables(warehouse, WIDER)
    work.promote_tables(warehouse, WIDER)
    assert work.discard_tables(warehouse, WIDER) == []
    with pytest.raises(
        DataError, match="no backup to restore: the backup of its last promotion was discarded"
    ):
        work.roll_back(warehouse, WIDER)


@pytest.mark.parametrize("act", [work.promote_tables, work.roll_back])
def test_a_promotion_or_rollback_without_a_rebuild_is_refused(
    warehouse: Warehouse, act: Callable[[Warehouse, WindowedTransform], object]
) -> None:
    ran(warehouse)
    with pytest.raises(DataError, match=r"nothing to promote|no backup to restore"):
        act(warehouse, WIDER)
    assert check_parity(warehouse, PER_MINUTE).is_equal


@pytest.mark.nightly
@pytest.mark.slow
def test_a_rebuild_follows_a_second_definition_change(warehouse: Warehouse) -> None:
    ran(warehouse)
    work.rebuild_tables(warehouse, WIDER)
    with pytest.raises(DataError, match="nothing to promote"):
        work.promote_tables(warehouse, replace(WIDER, keys=()))
    work.rebuild_tables(warehouse, replace(WIDER, keys=()))
    work.promote_tables(warehouse, replace(WIDER, keys=()))
    assert check_parity(warehouse, replace(WIDER, keys=())).is_equal
