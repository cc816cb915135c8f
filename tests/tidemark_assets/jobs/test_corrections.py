"""Test the operation `correct`: it counts too-late events and reports each changed value."""

import dagster as dg

from helpers.dagster.operations import output_metadata, run_operation
from helpers.dagster.steps import QUARTERS, partitions_told
from helpers.data.support import PER_MINUTE, READINGS, ingest, published, reference, some_arrivals
from tidemark.base.settings import Settings
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark_assets.jobs.corrections import correct_operation
from tidemark_assets.jobs.operations import TAG

ARRIVALS = some_arrivals(count=8)


def correct(
    settings: Settings, instance: dg.DagsterInstance, **config: object
) -> dg.ExecuteInProcessResult:
    operation = correct_operation("some", {"per_minute": PER_MINUTE}, lambda _: QUARTERS)
    return run_operation(settings, instance, [operation], "correct", **config)


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
    assert f"| per_minute | {windows:,} | " in output_metadata(first)["corrected"]
    assert "| sensor=" in output_metadata(first)["changes of per_minute"]
    run = instance.get_run_by_id(first.run_id)
    assert run is not None
    assert run.tags[TAG] == "correct"
    assert first.run_id in {run for _, run in partitions_told(instance, "per_minute")}

    again = correct(here, instance, assets=["per_minute"])
    assert again.success
    assert output_metadata(again) == {"corrected": "No window is missing a too-late event."}
