"""Tests that a stream's transaction logs stay short, and that readers find what they need."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from helpers.data.support import PER_MINUTE, READINGS
from tidemark.define.tables import CHECKS, LEDGER
from tidemark.store.asset import Asset
from tidemark.store.commits.kinds import Increment
from tidemark.store.upkeep import checkpoints, short_logs
from tidemark.store.warehouse import Warehouse

ROWS = pa.table({"n": pa.array([1], pa.int64())})
COMMITS = 30


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    monkeypatch.setenv("TIDEMARK_DURABLE", "false")
    return Warehouse(cast("Any", None), str(tmp_path), "home", registered=False)


def grow(warehouse: Warehouse, table: str) -> None:
    warehouse.ensure_table(table, ROWS)
    for number in range(COMMITS):
        warehouse.append_rows(ROWS, table, "writer", number)
    log = Path(warehouse.path_of(table), "_delta_log")
    for number, entry in enumerate(sorted(log.iterdir())):
        # The newest entries are younger than the period.
        age = 0 if number > 27 else 2 * short_logs.PERIOD / 1e6
        then = time.time() - age
        os.utime(entry, (then, then))


def oldest_version(warehouse: Warehouse, table: str) -> int:
    log = Path(warehouse.path_of(table), "_delta_log")
    return min(int(entry.stem) for entry in log.glob("*.json"))


def rows(warehouse: Warehouse, table: str) -> int:
    return DeltaTable(warehouse.path_of(table)).to_pyarrow_table().num_rows


def test_the_logs_of_a_source_keep_only_recent_entries(warehouse: Warehouse) -> None:
    tables = (READINGS.timeline_table, READINGS.log_table, READINGS.dead_letters_table)
    for table in tables:
        grow(warehouse, table)
    short_logs.of_source(warehouse, READINGS, 99)
    assert oldest_version(warehouse, READINGS.timeline_table) == 0
    opened_earlier = DeltaTable(warehouse.path_of(READINGS.timeline_table), version=28)
    short_logs.of_source(warehouse, READINGS, 100)
    for table in tables:
        assert 20 <= oldest_version(warehouse, table) <= 27
        assert rows(warehouse, table) == COMMITS
        warehouse.append_rows(ROWS, table, "writer", COMMITS)
        assert rows(warehouse, table) == COMMITS + 1
    assert opened_earlier.transaction_version("writer") == 27
    opened_earlier.update_incremental()
    assert opened_earlier.transaction_version("writer") == COMMITS


def test_what_a_streaming_query_has_not_read_stays(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(warehouse, READINGS.log_table)
    head = warehouse.find_head(READINGS.log_table)
    assert head is not None
    for version, remaining in ((7, 0), (25, 24)):
        reads = [
            checkpoints.ReadOffset(head.table_id, version),
            checkpoints.ReadOffset("another", 1),
        ]
        monkeypatch.setattr(checkpoints, "read_offsets", lambda _, reads=reads: iter(reads))
        short_logs.of_source(warehouse, READINGS, 50)
        assert oldest_version(warehouse, READINGS.log_table) == remaining


def test_the_published_table_keeps_its_history(warehouse: Warehouse) -> None:
    tables = (LEDGER, CHECKS, PER_MINUTE.state_table)
    for table in (*tables, PER_MINUTE.published_table):
        grow(warehouse, table)
    short_logs.of_asset(Asset(warehouse, PER_MINUTE), Increment(commit_number=50))
    assert oldest_version(warehouse, PER_MINUTE.published_table) == 0
    for table in tables:
        assert 20 <= oldest_version(warehouse, table) <= 27


# A checkpoint is at version 24.
@pytest.mark.parametrize(
    ("kept", "unread", "remaining"), [(4, None, 24), (10, None, 0), (4, 25, 24), (4, 12, 0)]
)
def test_a_published_table_keeps_its_newest_versions_and_what_was_not_read(
    warehouse: Warehouse,
    monkeypatch: pytest.MonkeyPatch,
    kept: int,
    unread: int | None,
    remaining: int,
) -> None:
    monkeypatch.setattr(short_logs, "KEPT_VERSIONS", kept)
    table = PER_MINUTE.published_table
    for each in (table, PER_MINUTE.state_table):
        grow(warehouse, each)
    head = warehouse.find_head(table)
    assert head is not None
    reads = {} if unread is None else {head.table_id: unread}
    monkeypatch.setattr(short_logs, "versions_read", lambda _: reads)
    asset = Asset(warehouse, PER_MINUTE)
    rolled_back = replace(Increment(commit_number=50), promoted=7)
    short_logs.of_asset(asset, rolled_back)
    assert oldest_version(warehouse, table) == 0
    asset.state.forget_backup(7)
    short_logs.of_asset(asset, rolled_back)
    assert oldest_version(warehouse, table) == remaining
    assert rows(warehouse, table) == COMMITS


def test_a_state_keeps_its_history_until_a_promotion_is_forgotten(warehouse: Warehouse) -> None:
    grow(warehouse, PER_MINUTE.state_table)
    asset = Asset(warehouse, PER_MINUTE)
    commit = replace(Increment(commit_number=50), promoted=7)
    short_logs.of_asset(asset, commit)
    assert oldest_version(warehouse, PER_MINUTE.state_table) == 0
    asset.state.forget_backup(7)
    short_logs.of_asset(asset, commit)
    assert oldest_version(warehouse, PER_MINUTE.state_table) > 0
