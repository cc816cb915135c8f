"""Test a changed definition in Dagster: its check, and the operations for it."""

import re
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from helpers.dagster.operations import output_metadata, run_operation
from helpers.dagster.ticks import Ticks, of_part
from helpers.data.redefined import WIDER
from helpers.data.support import (
    PER_MINUTE,
    READINGS,
    filtered_by_nothing,
    ingest,
    published,
    some_arrivals,
)
from tidemark.base.settings import Settings
from tidemark.define.derived.derived_source import DerivedSource
from tidemark.define.derived.row_asset import row_asset
from tidemark.define.transform import WindowedTransform
from tidemark.run.change.rebuild import promote_tables, rebuild_tables
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import check_derived_parity
from tidemark.verify.parity import check_parity
from tidemark_assets.base.names import PLAIN
from tidemark_assets.checks.definition_check import CURRENT, SAME, compare_definitions
from tidemark_assets.jobs.rebuilds import NONE, rebuild_operations
from tidemark_assets.sensors.partitions import partitions_reporter
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest as ingest_from

ARRIVALS = some_arrivals(count=4, size=24)
KEY = dg.AssetCheckKey(dg.AssetKey(PER_MINUTE.published_table), CURRENT)


def launch(
    settings: Settings,
    instance: dg.DagsterInstance,
    operation: str,
    transform: WindowedTransform = WIDER,
    **config: object,
) -> dg.ExecuteInProcessResult:
    operations = rebuild_operations("some", {"per_minute": transform}, {})
    return run_operation(settings, instance, operations, operation, **config)


def judged(instance: dg.DagsterInstance) -> tuple[bool, str | None]:
    """Return the newest result of the check."""
    [found] = instance.event_log_storage.get_asset_check_execution_history(KEY, limit=1)
    return judgement(found)


def judgement(found: AssetCheckExecutionRecord) -> tuple[bool, str | None]:
    event = found.event
    assert event is not None
    assert event.dagster_event is not None
    evaluation = event.dagster_event.asset_check_evaluation_data
    return evaluation.passed, evaluation.description


# Many Dagster runs.
@pytest.mark.slow
def test_a_changed_definition_is_previewed_rebuilt_promoted_and_rolled_back(
    engine: Settings, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    here = engine.model_copy(update={"database": warehouse.database})
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    incremental(warehouse, PER_MINUTE)
    before = published(warehouse, PER_MINUTE)
    version = warehouse.newest_version(PER_MINUTE.published_table)

    looked = output_metadata(launch(here, instance, "diff"))
    assert re.search(r"\| per_minute \| \d+ new, \d+ removed of \d+ \| 20.* \|", looked["changes"])
    made = launch(here, instance, "rebuild")
    assert made.success
    said = output_metadata(made)
    assert "| per_minute | per_minute__rebuild | 2 (the asset: 2) |" in said["rebuilt"]
    assert (
        "| window | tumbling 1 minute | tumbling 2 minutes |" in said["differences of per_minute"]
    )
    assert "| sensor=" in said["changes of per_minute"]
    assert looked.keys() - {"changes"} == said.keys() - {"rebuilt"}
    assert warehouse.newest_version(PER_MINUTE.published_table) == version
    passed, description = judged(instance)
    assert not passed
    assert description is not None
    assert "of the tables in window (tumbling 1 minute → tumbling 2 minutes)" in description
    assert "runs can't continue from the existing tables" in description

    promoted = launch(here, instance, "promote", assets=["per_minute"])
    assert "| per_minute | 1 | 2 |" in output_metadata(promoted)["tables"]
    assert judged(instance) == (True, SAME)
    nothing = output_metadata(launch(here, instance, "diff"))
    assert nothing == {"changes": NONE}
    assert check_parity(warehouse, WIDER).is_equal
    again = launch(here, instance, "rebuild")
    assert output_metadata(again) == {"rebuilt": NONE}

    back = launch(here, instance, "rollback", assets=["per_minute"])
    assert back.success
    assert published(warehouse, PER_MINUTE) == before
    assert not judged(instance)[0]
    launch(here, instance, "rebuild", assets=["per_minute"])
    launch(here, instance, "promote", assets=["per_minute"], keep_backup=False)
    assert judged(instance) == (True, SAME)
    nothing = launch(here, instance, "rollback", assets=["per_minute"])
    (failure,) = [e for e in nothing.all_events if e.is_step_failure]
    assert "has no backup to restore" in str(failure.step_failure_data.error)


def kept_readings(where: str) -> DerivedSource:
    """Return a row asset whose definition depends on a condition."""

    def kept(readings: Any) -> Any:  # noqa: ANN401
        return readings.where(where)

    return row_asset(source=READINGS)(kept)


def test_without_assets_there_are_operations_for_derived_sources() -> None:
    kept = kept_readings("TRUE")
    operations = rebuild_operations("some", {}, {kept.name: kept})
    assert [operation.name for operation in operations] == ["rebuild", "promote"]


# Several Dagster runs.
@pytest.mark.slow
def test_a_derived_source_is_rebuilt_and_promoted(
    engine: Settings, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    here = engine.model_copy(update={"database": warehouse.database})
    before, after = kept_readings("sensor <> 'a'"), kept_readings("sensor <> 'b'")
    ingest(warehouse, READINGS, ARRIVALS[:3], ends=False)
    for _ in ingest_from(warehouse, DerivedConnector(before)):
        pass
    operations = rebuild_operations("some", {"per_minute": PER_MINUTE}, {"kept": after})

    def launch_for(operation: str, **config: object) -> dg.ExecuteInProcessResult:
        return run_operation(here, instance, operations, operation, **config)

    made = output_metadata(launch_for("rebuild"))
    assert made.keys() == {"rebuilt sources"}
    assert "| kept | kept__rebuild_log, " in made["rebuilt sources"]
    refused = launch_for("promote", assets=["kept"], keep_backup=False)
    (failure,) = [e for e in refused.all_events if e.is_step_failure]
    assert "'kept' is a derived source, so there is no backup" in str(failure)
    promoted = output_metadata(launch_for("promote", assets=["kept"]))
    assert "| kept | 3 |  |" in promoted["derived sources"]
    assert check_derived_parity(warehouse, after).is_equal
    assert output_metadata(launch_for("rebuild")) == {"rebuilt": NONE}


# Many Dagster runs.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_deployment_and_a_command_line_promotion_are_reported_once(
    engine: Settings, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    here = engine.model_copy(update={"database": warehouse.database})

    def ticks(transform: WindowedTransform, cursor: str | None = None) -> Ticks:
        days = dg.DailyPartitionsDefinition("2023-11-01")
        found = of_part(
            partitions_reporter({"per_minute": transform}, lambda _: days, 10**12), instance, here
        )
        found.cursor = cursor
        return found

    def history() -> list[str]:
        found = instance.event_log_storage.get_asset_check_execution_history(KEY, limit=20)
        return [str(judgement(record)[1])[:20] for record in reversed(found)]

    before = ticks(PER_MINUTE)
    before.skipped()
    assert history() == ["'per_minute' has not"]
    ingest(warehouse, READINGS, ARRIVALS[:2], ends=False)
    for arrivals in (ARRIVALS[2:3], ARRIVALS[3:]):
        incremental(warehouse, PER_MINUTE)
        before.skipped()
        ingest(warehouse, READINGS, arrivals, ends=False)
    assert history()[1:] == [SAME[:20]], "a run that changes nothing of it is no news"

    after = ticks(WIDER, before.cursor)
    for _ in range(2):
        after.skipped()
    assert history()[2:] == ["The definition in th"]
    rebuild_tables(warehouse, WIDER)
    promote_tables(warehouse, WIDER)
    for _ in range(2):
        after.skipped()
    assert history()[3:] == [SAME[:20]]


@pytest.mark.parametrize("name", ["forward", "same", "never ran"])
def test_the_definition_check_describes_each_state(warehouse: Warehouse, name: str) -> None:
    if name != "never ran":
        ingest(warehouse, READINGS, ARRIVALS[:2])
        incremental(warehouse, PER_MINUTE)
    changed = replace(PER_MINUTE, function=filtered_by_nothing)
    now = changed if name == "forward" else PER_MINUTE
    found = compare_definitions(warehouse, now, PLAIN)
    assert found.passed == (name != "forward")
    assert found.severity is dg.AssetCheckSeverity.WARN
    words = {"forward": "runs continue", "same": SAME, "never ran": "has not run yet"}
    assert words[name] in str(found.description)
