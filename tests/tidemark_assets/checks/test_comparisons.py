"""Test that command-line comparisons appear in Dagster as results of the check `parity`."""

import shutil
from dataclasses import replace
from typing import Any, cast

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from helpers.dagster.shown import shown
from helpers.dagster.ticks import Ticks, of_part
from helpers.data.support import PER_MINUTE
from tidemark.base.instants import parse_instant
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse
from tidemark.verify import record
from tidemark.verify.parity import Difference, ParityReport
from tidemark_assets.base.names import PLAIN
from tidemark_assets.checks import comparisons
from tidemark_assets.sensors.partitions import partitions_reporter

DAYS = dg.DailyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
DAY = [parse_instant(f"2013-01-0{day}") for day in range(1, 6)]
EQUAL = ParityReport("per_minute", as_of=7, windows=10, lost=2, total=0, differences=[])


def differing(kind: str) -> ParityReport:
    found = Difference(kind, "2013-01-02T00:00:00Z", {"sensor": None}, "n", "3", "2")
    return replace(EQUAL, total=1, differences=[found], kinds={kind: 1})


def store(settings: Settings) -> Warehouse:
    """Return a warehouse for small tables, which needs no engine."""
    nobody = cast(SparkSession, None)
    return Warehouse(nobody, settings.warehouse, settings.database, registered=False)


def ticks(instance: dg.DagsterInstance, settings: Settings) -> Ticks:
    named = {"per_minute": PER_MINUTE}
    return of_part(partitions_reporter(named, lambda _: DAYS, 1), instance, settings)


def told(instance: dg.DagsterInstance, asset: str = "per_minute") -> list[dict[str, Any]]:
    """Return the results of the check in the order of their reports."""
    key = dg.AssetCheckKey(dg.AssetKey(asset), comparisons.PARITY)
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=999)
    found: list[dict[str, Any]] = []
    for said in records[::-1]:
        assert said.event is not None
        assert said.event.dagster_event is not None
        evaluation = said.event.dagster_event.asset_check_evaluation_data
        metadata = {k: v.value for k, v in evaluation.metadata.items()}
        found.append(
            {"passed": evaluation.passed, "said": evaluation.description or "", **metadata}
        )
    return found


def test_each_comparison_is_reported_once(instance: dg.DagsterInstance, settings: Settings) -> None:
    sensor, warehouse = ticks(instance, settings), store(settings)
    sensor.skipped()
    assert told(instance) == []
    assert record.record_comparison(warehouse, EQUAL) == 0
    sensor.skipped()
    sensor.skipped()
    assert [t["passed"] for t in told(instance)] == [True]
    assert record.record_comparison(warehouse, differing("value"), DAY[0], DAY[2]) == 1
    assert record.record_comparison(warehouse, replace(EQUAL, asset="of another domain")) == 2
    assert record.record_comparison(warehouse, differing("late_loss")) == 3
    sensor.skipped()
    sensor.skipped()
    # Including late events is not a fault.
    assert [t["passed"] for t in told(instance)] == [True, False, True]
    assert told(instance, "of another domain") == []


def test_a_recreated_parity_table_is_reported_from_its_start(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    """The new table may have as many comparisons as the old one."""
    sensor, warehouse = ticks(instance, settings), store(settings)
    record.record_comparison(warehouse, EQUAL)
    sensor.skipped()
    shutil.rmtree(f"{settings.warehouse}/{settings.database}/{record.TABLE}")
    sensor.skipped()
    record.record_comparison(store(settings), differing("value"))
    sensor.skipped()
    sensor.skipped()
    assert [t["passed"] for t in told(instance)] == [True, False]


def test_a_parity_result_lists_compared_and_quarantined_windows(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    held = replace(
        differing("value"),
        quarantined=3,
        quarantined_by={"matches_log()": 2, "max_change_after_close(1)": 2},
    )
    record.record_comparison(store(settings), held, DAY[0], DAY[2])
    record.record_comparison(store(settings), EQUAL)
    ticks(instance, settings).skipped()
    some, all_ = told(instance)
    assert some["said"] == (
        "2013-01-01T00:00:00Z to 2013-01-03T00:00:00Z: compared 10 windows, 3 of them quarantined "
        "with a bounded computation of the event log, 1 difference."
    )
    assert (some["quarantined"], some["quarantined by"]) == (
        3,
        "matches_log(): 2; max_change_after_close(1): 2",
    )
    assert some["made by"] == "`tidemark parity` or `tidemark demo`"
    assert "| value | 2013-01-02T00:00:00Z | {'sensor': None} | n | 3 | 2 |" in shown(
        some["first differences"]
    )
    assert all_["said"].startswith("all windows: compared 10 windows")
    assert (all_["too late"], all_["quarantined"]) == (2, 0)


def test_a_wrong_row_fails_parity_after_a_thousand_late_losses() -> None:
    listed = differing("late_loss").differences * 1000
    night = replace(EQUAL, total=1001, differences=listed, kinds={"late_loss": 1000})
    assert not comparisons.parity_result(PLAIN, night, "three days", "the nightly job").passed
    complete = replace(night, total=1000)
    assert comparisons.parity_result(PLAIN, complete, "three days", "the nightly job").passed


def test_many_comparisons_are_reported_over_several_ticks(
    instance: dg.DagsterInstance, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparisons, "MAX_COMPARISONS_PER_TICK", 2)
    sensor = ticks(instance, settings)
    for n in range(3):
        record.record_comparison(store(settings), replace(EQUAL, windows=n))
    for expected in ([0, 1], [0, 1, 2], [0, 1, 2]):
        sensor.skipped()
        assert [t["windows"] for t in told(instance)] == expected
    sensor.settings = settings.model_copy(update={"database": "other"})
    record.record_comparison(store(sensor.settings), replace(EQUAL, windows=9))
    sensor.skipped()
    assert [t["windows"] for t in told(instance)] == [0, 1, 2, 9]
