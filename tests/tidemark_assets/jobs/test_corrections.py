"""Test the correction job: it counts too-late events and reports each changed value."""

import dagster as dg

from helpers.dagster.shown import shown
from helpers.dagster.steps import QUARTERS, partitions_told
from helpers.data.support import PER_MINUTE, READINGS, ingest, published, reference, some_arrivals
from tidemark.base.settings import Settings
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.jobs.corrections import corrections

ARRIVALS = some_arrivals(count=8)


def correct(
    settings: Settings, instance: dg.DagsterInstance, *assets: str
) -> dg.ExecuteInProcessResult:
    definitions = dg.Definitions.merge(
        corrections("some", {"per_minute": PER_MINUTE}, lambda _: QUARTERS),
        dg.Definitions(
            resources={"tidemark": TidemarkResource(settings)}, executor=dg.in_process_executor
        ),
    )
    job = definitions.resolve_job_def("some_correct")
    config = {"ops": {"some_corrections": {"config": {"assets": list(assets)}}}} if assets else {}
    return job.execute_in_process(instance=instance, run_config=config, raise_on_error=False)


def told(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    """Return the metadata of the run's output by name."""
    (output,) = [e for e in result.all_events if e.is_successful_output]
    return {k: shown(v) for k, v in output.step_output_data.metadata.items()}


def test_a_correction_counts_too_late_events_once(
    engine: Settings, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    here = engine.model_copy(update={"database": warehouse.database})
    ingest(warehouse, READINGS, ARRIVALS)
    incremental(warehouse, PER_MINUTE)
    streamed, complete = reference(ARRIVALS), reference(ARRIVALS, complete=True)
    assert streamed != complete

    first = correct(here, instance)
    assert first.success
    assert published(warehouse, PER_MINUTE) == complete
    windows = sum(streamed.get(w) != row for w, row in complete.items())
    assert f"| per_minute | {windows:,} | " in told(first)["corrected"]
    assert "| sensor=" in told(first)["changes of per_minute"]
    assert first.run_id in {run for _, run in partitions_told(instance, "per_minute")}

    again = correct(here, instance, "per_minute")
    assert again.success
    assert told(again) == {"corrected": "No window is missing a too-late event."}
