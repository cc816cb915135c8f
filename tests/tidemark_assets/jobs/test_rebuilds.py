"""Test a changed definition in Dagster: its check, and jobs to rebuild, promote and roll back."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord

from helpers.dagster.shown import shown
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
from tidemark.run.change.rebuild import promote, rebuild
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import derived_parity
from tidemark.verify.parity import parity
from tidemark_assets.base.names import PLAIN
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.checks.definition_check import CURRENT, SAME, compare_definitions
from tidemark_assets.jobs.rebuilds import NONE, rebuilds
from tidemark_assets.sensors.partitions import partitions_reporter
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import ingest as ingest_from

ARRIVALS = some_arrivals(count=4, size=24)
KEY = dg.AssetCheckKey(dg.AssetKey(PER_MINUTE.published_table), CURRENT)


def launch(
    settings: Settings,
    instance: dg.DagsterInstance,
    job: str,
    op: str,
    assets: list[str] | None,
    transform: WindowedTransform = WIDER,
    **more: bool,
) -> dg.ExecuteInProcessResult:
    definitions = dg.Definitions.merge(
        rebuilds("some", {"per_minute": transform}),
        dg.Definitions(
            resources={"tidemark": TidemarkResource(settings)}, executor=dg.in_process_executor
        ),
    )
    config = {"ops": {op: {"config": {"assets": assets, **more}}}} if assets else {}
    resolved = definitions.resolve_job_def(job)
    return resolved.execute_in_process(instance=instance, run_config=config, raise_on_error=False)


def told(result: dg.ExecuteInProcessResult) -> Mapping[str, str]:
    """Return the metadata of the run's output by name."""
    (output,) = [e for e in result.all_events if e.is_successful_output]
    return {k: shown(v) for k, v in output.step_output_data.metadata.items()}


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

    looked = told(launch(here, instance, "some_diff", "some_previews", None))
    assert re.search(r"\| per_minute \| \d+ new, \d+ removed of \d+ \| 20.* \|", looked["changes"])
    made = launch(here, instance, "some_rebuild", "some_rebuilds", None)
    assert made.success
    said = told(made)
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

    promoted = launch(here, instance, "some_promote", "some_promotions", ["per_minute"])
    assert "| per_minute | 1 | 2 |" in told(promoted)["tables"]
    assert judged(instance) == (True, SAME)
    nothing = told(launch(here, instance, "some_diff", "some_previews", None))
    assert nothing == {"changes": NONE}
    assert parity(warehouse, WIDER).equal
    again = launch(here, instance, "some_rebuild", "some_rebuilds", None)
    assert told(again) == {"rebuilt": NONE}

    back = launch(here, instance, "some_rollback", "some_rollbacks", ["per_minute"])
    assert back.success
    assert published(warehouse, PER_MINUTE) == before
    assert not judged(instance)[0]
    launch(here, instance, "some_rebuild", "some_rebuilds", ["per_minute"])
    launch(here, instance, "some_promote", "some_promotions", ["per_minute"], keep_backup=False)
    assert judged(instance) == (True, SAME)
    nothing = launch(here, instance, "some_rollback", "some_rollbacks", ["per_minute"])
    (failure,) = [e for e in nothing.all_events if e.is_step_failure]
    assert "has no backup to restore" in str(failure.step_failure_data.error)


def kept_readings(where: str) -> DerivedSource:
    """Return a row asset whose definition depends on a condition."""

    def kept(readings: Any) -> Any:  # noqa: ANN401
        return readings.where(where)

    return row_asset(source=READINGS)(kept)


def test_without_assets_there_are_jobs_for_derived_sources() -> None:
    kept = kept_readings("TRUE")
    with_sources = rebuilds("some", {}, derived={kept.name: kept})
    assert [job.name for job in with_sources.jobs or ()] == ["some_rebuild", "some_promote"]


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
    definitions = dg.Definitions.merge(
        rebuilds("some", {"per_minute": PER_MINUTE}, derived={"kept": after}),
        dg.Definitions(
            resources={"tidemark": TidemarkResource(here)}, executor=dg.in_process_executor
        ),
    )

    def launch_for(job: str, op: str, **config: object) -> dg.ExecuteInProcessResult:
        return definitions.resolve_job_def(job).execute_in_process(
            instance=instance,
            run_config={"ops": {op: {"config": config}}} if config else {},
            raise_on_error=False,
        )

    made = told(launch_for("some_rebuild", "some_rebuilds"))
    assert made.keys() == {"rebuilt sources"}
    assert "| kept | kept__rebuild_log, " in made["rebuilt sources"]
    refused = launch_for("some_promote", "some_promotions", assets=["kept"], keep_backup=False)
    (failure,) = [e for e in refused.all_events if e.is_step_failure]
    assert "'kept' is a derived source, so there is no backup" in str(failure)
    promoted = told(launch_for("some_promote", "some_promotions", assets=["kept"]))
    assert "| kept | 3 |  |" in promoted["derived sources"]
    assert derived_parity(warehouse, after).equal
    assert told(launch_for("some_rebuild", "some_rebuilds")) == {"rebuilt": NONE}


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
    rebuild(warehouse, WIDER)
    promote(warehouse, WIDER)
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
