"""Test the operation `replay`: from an arrival or an instant, into the table or a separate one."""

import dagster as dg
import pytest

from helpers.dagster.operations import output_metadata, run_operation
from helpers.data.support import PER_MINUTE, READINGS, ingest, published, reference, some_arrivals
from tidemark.base.instants import format_instant
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.run.runner import incremental
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base import steps
from tidemark_assets.jobs.rebuilds import rebuild_operations
from tidemark_assets.jobs.replays import replay_operation

ARRIVALS = some_arrivals(count=4, size=24)
ASSETS = {"per_minute": PER_MINUTE}


def launch(
    settings: Settings, instance: dg.DagsterInstance, **config: str | int | None
) -> dg.ExecuteInProcessResult:
    operation = replay_operation("some", ASSETS)
    return run_operation(settings, instance, [operation], "replay", assets=["per_minute"], **config)


@pytest.mark.parametrize(
    ("operation", "config"),
    [("diff", {}), ("replay", {"from_arrival": 0}), ("rebuild", {})],
)
def test_an_unreachable_engine_is_retried_with_a_message(
    instance: dg.DagsterInstance,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
    config: dict[str, int],
) -> None:
    monkeypatch.setattr(steps, "RETRY_DELAYS_SECONDS", (0,))
    away = settings.model_copy(update={"remote": f"sc://localhost:{free_port()}"})
    operations = [*rebuild_operations("some", ASSETS, {}), replay_operation("some", ASSETS)]
    result = run_operation(away, instance, operations, operation, assets=["per_minute"], **config)
    told = [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
    assert told, [e.event_type_value for e in result.all_events]
    assert "No engine answers at" in str(told[0].event_specific_data)


def said(result: dg.ExecuteInProcessResult) -> str:
    """Return the last row of the run's result table, or its error."""
    if result.success:
        return output_metadata(result)["replayed"].splitlines()[-1]
    (failure,) = [e for e in result.all_events if e.is_step_failure]
    return str(failure.step_failure_data.error)


def test_a_replay_starts_at_an_arrival_or_an_instant(
    engine: Settings, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    here = engine.model_copy(update={"database": warehouse.database})
    ingest(warehouse, READINGS, ARRIVALS)
    incremental(warehouse, PER_MINUTE)
    version = warehouse.newest_version(PER_MINUTE.published_table)
    came = format_instant(Log(warehouse, READINGS).read_timeline()[2].arrived_at)

    beside = said(launch(here, instance, from_instant=came, into="tried"))
    assert beside.startswith("| per_minute | per_minute__tried | 2 to 4 | ")
    assert " | from 20" in beside
    assert warehouse.newest_version(PER_MINUTE.published_table) == version

    within = said(launch(here, instance, from_arrival=2))
    assert within == beside.replace("per_minute__tried", "per_minute")
    assert warehouse.newest_version(PER_MINUTE.published_table) > version
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)

    late = said(launch(here, instance, from_arrival=9))
    assert "per_minute: Source 'readings' has no arrival 9: its newest arrival is 4" in late


@pytest.mark.parametrize("config", [{}, {"from_arrival": 1, "from_instant": "2024-01-01"}])
def test_a_replay_needs_exactly_one_start(
    settings: Settings, instance: dg.DagsterInstance, config: dict[str, str | int]
) -> None:
    """The check precedes any request to the engine."""
    assert "Specify either `from_arrival` or" in said(launch(settings, instance, **config))
