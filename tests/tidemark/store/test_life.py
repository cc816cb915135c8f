"""Tests that an asset that is dropped and recreated is not confused with the earlier one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from helpers.data.runs import killed, published_through, run_all
from helpers.data.support import (
    MINUTE,
    PER_MINUTE,
    check_results,
    published,
    reference,
    renamed,
    some_arrivals,
)
from tidemark import expect as q
from tidemark.base.settings import Settings
from tidemark.define import aggregates as agg
from tidemark.define.definition import Definition
from tidemark.define.rollup import rollup
from tidemark.define.windows import Tumbling
from tidemark.quality import results
from tidemark.run.runner import backfill, incremental
from tidemark.store import ledger
from tidemark.store.upkeep.dropping import drop_asset
from tidemark.store.warehouse import Warehouse

# Drops and recomputes assets several times.
pytestmark = pytest.mark.slow

REGISTERED = True
ARRIVALS = some_arrivals()
FIVE = Tumbling("5 minutes")
SMALL = replace(PER_MINUTE, aggregates={"n": agg.count(), "most": agg.max("value")})


def lives(warehouse: Warehouse, asset: str, table: str = ledger.TABLE) -> list[list[int]]:
    """Return the recorded commit numbers in order, for each table ID."""
    order = "started_at" if table == ledger.TABLE else "at"
    found: dict[str, list[int]] = {}
    for row in sorted(warehouse.load_rows(table).to_pylist(), key=lambda row: row[order]):
        if row["asset"] == asset:
            found.setdefault(row["table_id"], []).append(row["commit_number"])
    return list(found.values())


def rows(warehouse: Warehouse, asset: Definition) -> list[Any]:
    found = warehouse.read_frame(asset.published_table).drop("commit_number", "as_of", "quality")
    return sorted((tuple(row) for row in found.collect()), key=str)


def test_a_dropped_asset_leaves_only_its_ledger_rows(logged: Warehouse) -> None:
    asset = renamed(PER_MINUTE, "gone")
    incremental(logged, asset)
    own = asset.own_tables
    there = [table for table in own if logged.has_table(table)]
    assert set(there) == set(own) - {asset.panes_table, asset.quarantine_table}
    assert drop_asset(logged, asset) == there
    assert not [table for table in own if Path(logged.path_of(table)).exists()]
    named = logged.spark.sql(f"SHOW TABLES IN `{logged.database}`").select("tableName").collect()
    assert not {row[0] for row in named} & set(own)
    assert lives(logged, "gone") == [[0]]
    assert drop_asset(logged, asset) == []


def test_a_killed_drop_has_removed_the_checkpoint_first(
    logged: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    asset = renamed(PER_MINUTE, "halfway")
    offsets = Path(logged.path_of("_checkpoints"), asset.name, "offsets")
    offsets.mkdir(parents=True)

    def killed(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Warehouse, "drop_table", killed)
    with pytest.raises(KeyboardInterrupt):
        drop_asset(logged, asset)
    assert not offsets.exists()


@pytest.mark.nightly
def test_a_killed_run_of_a_recreated_asset_is_completed(
    logged: Warehouse, engine: Settings
) -> None:
    """The old table's commits in the ledger do not count as published for the new one."""
    asset = renamed(PER_MINUTE, "again")
    run_all(logged, asset, 2)
    assert published_through(logged, asset) == 2
    drop_asset(logged, asset)
    assert published_through(logged, asset) == -1
    assert killed(engine, logged, "again", "incremental", "published", 4)
    assert published_through(logged, asset) == -1
    run_all(logged, asset, 3)
    assert published(logged, asset) == reference(ARRIVALS)
    assert lives(logged, "again") == [[0, 1, 2], [0, 1]]


@pytest.mark.nightly
def test_the_engine_reads_the_recreated_table(logged: Warehouse) -> None:
    asset = renamed(PER_MINUTE, "read")
    run_all(logged, asset, 1)
    assert logged.read_with_engine(asset.published_table).count() == len(reference(ARRIVALS))
    assert logged.read_change_feed(asset.published_table, -1).count() > 0
    place = f"`{logged.database}`.`{asset.published_table}`"
    assert logged.spark.table(place).count() == len(reference(ARRIVALS))
    drop_asset(logged, asset)
    incremental(logged, asset, limit=3)
    some = logged.load_rows(asset.published_table).num_rows
    assert 0 < some < len(reference(ARRIVALS))
    assert logged.read_with_engine(asset.published_table).count() == some
    assert logged.spark.table(place).count() == some
    assert (
        logged.read_change_feed(asset.published_table, -1).where("_change_type = 'insert'").count()
        >= some
    )


@pytest.mark.nightly
def test_a_recreated_asset_has_its_own_validation_results(logged: Warehouse) -> None:
    asset = replace(renamed(SMALL, "judged"), expectations=(q.between("n", max_value=1_000),))
    run_all(logged, asset, 2)
    drop_asset(logged, asset)
    facts = incremental(logged, asset)
    assert facts is not None
    assert lives(logged, "judged", results.TABLE) == [[0, 1, 2], [0]]
    own = {r.table_id: r.run for r in check_results(logged, "judged")}
    assert own.keys() == {_first_life(logged, "judged"), facts.table_id}
    assert own[facts.table_id] == facts.run


def _first_life(warehouse: Warehouse, asset: str) -> str:
    found = warehouse.read_frame(ledger.TABLE).where(F.col("asset") == asset)
    return found.orderBy("started_at").select("table_id").collect()[0][0]


# Many runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_roll_up_of_a_recreated_base_equals_a_direct_computation(
    logged: Warehouse,
) -> None:
    base = renamed(SMALL, "base")
    whole = rollup(of=base, name="base_5", window=FIVE)
    run_all(logged, base, 1)
    assert incremental(logged, whole) is not None
    old = rows(logged, whole)
    drop_asset(logged, base)
    # First there are fewer arrivals than before, later other values with too-late events.
    incremental(logged, base, limit=3)
    facts = incremental(logged, whole)
    assert facts is not None
    assert (facts.commit_number, facts.window_from) == (0, None)
    assert 0 < len(rows(logged, whole)) < len(old)
    run_all(logged, base)
    assert incremental(logged, whole) is not None
    assert rows(logged, whole) == old
    backfill(logged, base, late_events="include")
    incremental(logged, whole)
    direct = replace(renamed(SMALL, "direct"), window=FIVE, allowed_lateness=2 * MINUTE)
    backfill(logged, direct, late_events="include")
    assert rows(logged, whole) == rows(logged, direct)
    assert lives(logged, "base_5") == [[5], [0, 1, 2]]


@pytest.mark.nightly
def test_a_dropped_roll_up_is_recreated_from_its_whole_base(logged: Warehouse) -> None:
    base = renamed(SMALL, "stays")
    whole = rollup(of=base, name="stays_5", window=FIVE)
    run_all(logged, base, 3)
    incremental(logged, whole)
    before = rows(logged, whole)
    assert drop_asset(logged, whole) == [whole.published_table]
    assert logged.has_table(base.state_table)
    facts = incremental(logged, whole)
    assert facts is not None
    assert rows(logged, whole) == before
    assert incremental(logged, whole) is None
    assert [len(each) for each in lives(logged, "stays_5")] == [1, 1]


@pytest.mark.nightly
def test_windows_left_by_an_interrupted_drop_are_not_doubled(logged: Warehouse) -> None:
    asset = renamed(PER_MINUTE, "half")
    run_all(logged, asset)
    logged.drop_table(asset.state_table)
    run_all(logged, asset, 4)
    assert published(logged, asset) == reference(ARRIVALS)
