"""Tests that `repair`, an ingest of the missing arrivals and a run restore parity after damage."""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from helpers.data.support import PER_MINUTE, READINGS, ingest, some_arrivals
from helpers.suite.nightly import mostly_nightly
from tidemark import quality as q
from tidemark.define.tables import CHECKS, LEDGER, TableName
from tidemark.quality import quarantine
from tidemark.run.runner import incremental
from tidemark.store.committers.durable import LOG
from tidemark.store.integrity import DamageError, check, entries
from tidemark.store.upkeep.repair import repair
from tidemark.store.warehouse import Warehouse
from tidemark.verify.parity import parity

ASSET = replace(
    PER_MINUTE,
    accumulation="accumulating",
    expectations=(q.between("n", most=6),),
)
WINDOW = ("window_start", "sensor")
COLUMNS = {
    ASSET.table: (*WINDOW, "n", "final"),
    ASSET.quarantine_table: (*WINDOW, "n", "final", "quarantine_status"),
    ASSET.panes_table: (*WINDOW, "pane", "timing", "is_last", "n"),
    ASSET.late_table: (*WINDOW, "arrival", "position", "reason"),
}
ARRIVALS = some_arrivals(count=4, size=30)
Rows = Mapping[TableName, Sequence[tuple[object, ...]]]


def opened(spark: SparkSession, home: Path) -> Warehouse:
    return Warehouse(spark, str(home.parent), home.name, registered=False)


def windows(warehouse: Warehouse) -> Rows:
    """Return the rows of all tables that a run of the asset publishes."""

    def rows(table: str, columns: Sequence[str]) -> list[tuple[object, ...]]:
        found = warehouse.take(table, columns=columns).to_pylist()
        return sorted((tuple(row.values()) for row in found), key=str)

    found = {table: rows(table, columns) for table, columns in COLUMNS.items()}
    # A recomputation writes one row for a window, and increments write one for each commit.
    lost = Counter[object]()
    for start, sensor, count in rows(ASSET.late_loss_table, (*WINDOW, "lost_events")):
        lost[start, sensor] += cast(int, count)
    return found | {ASSET.late_loss_table: sorted(lost.items(), key=str)}


@pytest.fixture(scope="module")
def moments(shared: Warehouse, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return copies of a home, one after each arrival was counted."""
    folder = tmp_path_factory.mktemp("moments")
    for n, arrival in enumerate(ARRIVALS):
        ingest(shared, READINGS, [arrival], ends=n == len(ARRIVALS) - 1)
        incremental(shared, ASSET)
        shutil.copytree(shared.path(""), folder / f"{n}")
    return [folder / f"{n}" for n in range(len(ARRIVALS))]


def restored(spark: SparkSession, home: Path, moments: list[Path]) -> None:
    """Repair a home, and compare it with the undamaged one."""
    with pytest.raises(DamageError, match="tidemark fsck --repair"):
        incremental(opened(spark, home), ASSET)
    assert [*repair(str(home), [READINGS], [ASSET])]
    warehouse = opened(spark, home)
    there = warehouse.take(READINGS.timeline_table).num_rows
    if there <= len(ARRIVALS):
        ingest(warehouse, READINGS, ARRIVALS[there:])
    incremental(warehouse, ASSET)
    found = windows(warehouse)
    assert all(found.values())
    assert found == windows(opened(spark, moments[-1]))
    assert parity(warehouse, ASSET).equal
    assert check(str(home), [READINGS], [ASSET]) == []


@pytest.mark.parametrize(
    "tables",
    [
        (READINGS.log_table,),
        (ASSET.state_table, LEDGER),
        (ASSET.table, CHECKS),
        (ASSET.quarantine_table, ASSET.panes_table, ASSET.late_table, ASSET.late_loss_table),
    ],
    ids=lambda tables: "-".join(tables),
)
def test_tables_that_lack_a_commit_are_restored(
    spark: SparkSession, moments: list[Path], tmp_path: Path, tables: Sequence[str]
) -> None:
    home = tmp_path / "home"
    shutil.copytree(moments[-1], home)
    for table in tables:
        entries(str(home / table))[-1].unlink()
    restored(spark, home, moments)


# Several runs for each loss.
@pytest.mark.slow
@pytest.mark.parametrize("decided", mostly_nightly([True, False]), ids=["quarantine", "published"])
def test_quarantine_decisions_survive_the_loss_of_several_commits(
    spark: SparkSession,
    moments: list[Path],
    tmp_path: Path,
    decided: bool,
) -> None:
    """The validation results are lost too, so the decisions come from the other table."""
    home = tmp_path / "home"
    shutil.copytree(moments[-1], home)
    for table in (ASSET.quarantine_table if decided else ASSET.table, CHECKS):
        for entry in entries(str(home / table))[-2:]:
            entry.unlink()
    identity = opened(spark, home).head(ASSET.state_table)
    restored(spark, home, moments)
    now = opened(spark, home).head(ASSET.state_table)
    assert identity is not None
    assert now is not None
    assert now.table_id == identity.table_id


# Several runs for each loss.
@pytest.mark.slow
@pytest.mark.parametrize(
    "followed", mostly_nightly([True, False]), ids=["followed by a run", "newest"]
)
def test_windows_whose_release_is_lost_are_quarantined_again(
    spark: SparkSession, moments: list[Path], tmp_path: Path, followed: bool
) -> None:
    shutil.copytree(moments[-2 if followed else -1], tmp_path / "released")
    warehouse = opened(spark, tmp_path / "released")
    assert quarantine.release(warehouse, ASSET, quarantine.Choice())
    if followed:
        ingest(warehouse, READINGS, ARRIVALS[-1:])
        incremental(warehouse, ASSET)
    home = tmp_path / "home"
    shutil.copytree(tmp_path / "released", home)
    for entry in entries(str(home / ASSET.table))[-1 - followed :]:
        entry.unlink()
    restored(spark, home, moments)


def test_a_copy_of_a_live_home_is_restored(
    spark: SparkSession, moments: list[Path], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    for table in (each.name for each in moments[-1].iterdir() if (each / LOG).exists()):
        late = table in (READINGS.timeline_table, ASSET.table)
        shutil.copytree(moments[-1 if late else -2] / table, home / table)
    restored(spark, home, moments)
