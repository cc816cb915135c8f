"""Tests of operations of several steps: an interrupted one is known until it is repeated."""

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from helpers.data.support import PER_MINUTE, READINGS
from tidemark.base.errors import DataError
from tidemark.define.definition import Definition
from tidemark.define.derived.chain import chain
from tidemark.define.rollup import rollup
from tidemark.define.source import Source
from tidemark.define.windows import Tumbling
from tidemark.store import operations
from tidemark.store.graph import Graph
from tidemark.store.integrity import table_check
from tidemark.store.operations import Kind
from tidemark.store.upkeep.dropping import check_droppable, drop_owner
from tidemark.store.warehouse import Warehouse

COLUMNS = pa.table({"n": pa.array([1], pa.int64())})
HOURLY = rollup(of=PER_MINUTE, name="hourly", window=Tumbling("1 hour"))
TYPES = {"sensor": "STRING", "total": "DECIMAL(28,2)"}
HOURS = chain(name="hours", of=HOURLY, types=TYPES)
ASSET = "asset per_minute"


class KilledError(Exception):
    """Stands for a process that ends."""


@pytest.fixture
def store(tmp_path: Path) -> Warehouse:
    """Return a warehouse without an engine."""
    return Warehouse(cast("Any", None), str(tmp_path), registered=False)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "tidemark")


def create(store: Warehouse, *owners: Source | Definition) -> None:
    for owner in owners:
        for table in owner.own_tables:
            store.ensure_table(table, COLUMNS)


def test_an_operation_is_unfinished_until_it_ends(store: Warehouse, folder: str) -> None:
    assert operations.find_unfinished(folder) == []
    with operations.record_operation(store, Kind.LOWER, "source readings"):
        (inside,) = operations.find_unfinished(folder)
        # The runs of the operation itself are not refused.
        table_check.demand_intact(store, READINGS)
    assert operations.find_unfinished(folder) == []
    assert (inside.kind, inside.owner) == (Kind.LOWER, "source readings")


def test_a_failed_operation_blocks_runs_until_it_is_repeated(store: Warehouse, folder: str) -> None:
    with (
        pytest.raises(KilledError),
        operations.record_operation(store, Kind.LOWER, "source readings"),
    ):
        raise KilledError
    for _ in range(2):
        with pytest.raises(DataError, match=r"`tidemark watermark readings --lower`.*Run it again"):
            table_check.demand_intact(store, READINGS, PER_MINUTE)
    (first,) = operations.find_unfinished(folder)
    with operations.record_operation(store, Kind.LOWER, "source readings"):
        assert operations.find_unfinished(folder) == [first]
    assert operations.find_unfinished(folder) == []
    table_check.demand_intact(store, READINGS, PER_MINUTE)


def test_operations_on_others_and_erasures_block_nothing(store: Warehouse) -> None:
    operations.record_begin(store, Kind.DROP, "asset others")
    operations.record_begin(store, Kind.ERASE, "source readings")
    table_check.demand_intact(store, READINGS, PER_MINUTE)


def test_a_drop_finds_all_tables_of_the_owner_and_only_those(store: Warehouse) -> None:
    side = PER_MINUTE.with_side_tables("rebuild")
    create(store, PER_MINUTE, side, HOURLY, READINGS)
    dropped = drop_owner(store, ASSET)
    assert sorted(dropped) == sorted({*PER_MINUTE.own_tables, *side.own_tables})
    assert not any(store.has_table(table) for table in dropped)
    assert all(store.has_table(table) for table in (*HOURLY.own_tables, *READINGS.own_tables))
    assert drop_owner(store, ASSET) == []


def test_an_interrupted_drop_is_completed(
    store: Warehouse, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(store, PER_MINUTE)
    delete, order = store.drop_table, list[str]()

    def interrupted(table: str) -> bool:
        if len(order) == 2:
            raise KilledError
        order.append(table)
        return delete(table)

    with monkeypatch.context() as killing:
        killing.setattr(store, "drop_table", interrupted)
        with pytest.raises(KilledError):
            drop_owner(store, ASSET)
    assert order[0] == "per_minute_state"
    with pytest.raises(DataError, match="`tidemark drop per_minute`"):
        table_check.demand_intact(store, READINGS, PER_MINUTE)
    assert len(drop_owner(store, ASSET)) == len(PER_MINUTE.own_tables) - 2
    assert operations.find_unfinished(folder) == []


def test_dependents_must_be_dropped_first_except_roll_ups(store: Warehouse, folder: str) -> None:
    create(store, READINGS, PER_MINUTE, HOURLY)
    check_droppable(Graph.of_folder(folder), ASSET)
    create(store, HOURS)
    with pytest.raises(DataError, match=r"'hours' was computed.*`tidemark drop hours`\."):
        check_droppable(Graph.of_folder(folder), ASSET)
    with pytest.raises(DataError, match="`tidemark drop hours`"):
        check_droppable(Graph.of_folder(folder), "asset hourly")
    check_droppable(Graph.of_folder(folder), "source hours")
    drop_owner(store, "source hours")
    check_droppable(Graph.of_folder(folder), ASSET)
