"""Test the replay job: from an arrival or an instant, into the table or a separate one."""

from collections.abc import Callable

import dagster as dg
import pytest

from helpers.dagster.shown import shown
from helpers.data.support import PER_MINUTE, READINGS, ingest, published, reference, some_arrivals
from tidemark.base.instants import format_instant
from tidemark.base.settings import Settings
from tidemark.define.transform import WindowedTransform
from tidemark.engine.ports import free_port
from tidemark.run.runner import incremental
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base import steps
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.jobs.rebuilds import rebuilds
from tidemark_assets.jobs.replays import replays

ARRIVALS = some_arrivals(count=4, size=24)
Made = Callable[[str, dict[str, WindowedTransform]], dg.Definitions]
"""A function that creates the definitions of a domain's job."""


def launch(
    settings: Settings, instance: dg.DagsterInstance, **config: str | int | None
) -> dg.ExecuteInProcessResult:
    definitions = dg.Definitions.merge(
        replays("some", {"per_minute": PER_MINUTE}),
        dg.Definitions(
            resources={"tidemark": TidemarkResource(settings)}, executor=dg.in_process_executor
        ),
    )
    told = {"ops": {"some_replays": {"config": {"assets": ["per_minute"], **config}}}}
    job = definitions.resolve_job_def("some_replay")
    return job.execute_in_process(instance=instance, run_config=told, raise_on_error=False)


@pytest.mark.parametrize(
    ("made", "job", "op"),
    [
        (rebuilds, "some_diff", "some_previews"),
        (replays, "some_replay", "some_replays"),
        (rebuilds, "some_rebuild", "some_rebuilds"),
    ],
)
def test_an_unreachable_engine_is_retried_with_a_message(
    instance: dg.DagsterInstance,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    made: Made,
    job: str,
    op: str,
) -> None:
    monkeypatch.setattr(steps, "RETRY_DELAYS_SECONDS", (0,))
    away = settings.model_copy(update={"remote": f"sc://localhost:{free_port()}"})
    definitions = dg.Definitions.merge(
        made("some", {"per_minute": PER_MINUTE}),
        dg.Definitions(
            resources={"tidemark": TidemarkResource(away)}, executor=dg.in_process_executor
        ),
    )
    config = {"assets": ["per_minute"]} | ({"from_arrival": 0} if made is replays else {})
    result = definitions.resolve_job_def(job).execute_in_process(
        instance=instance, run_config={"ops": {op: {"config": config}}}, raise_on_error=False
    )
    told = [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
    assert told, [e.event_type_value for e in result.all_events]
    assert "No engine answers at" in str(told[0].event_specific_data)


def said(result: dg.ExecuteInProcessResult) -> str:
    """Return the last row of the run's result table, or its error."""
    if result.success:
        (output,) = [e for e in result.all_events if e.is_successful_output]
        return shown(output.step_output_data.metadata["replayed"]).splitlines()[-1]
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
