"""Runs of a domain's operations in the process of the tests."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from helpers.dagster.shown import shown
from tidemark.base.settings import Settings
from tidemark_assets.base.names import PLAIN
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.jobs.operations import Operation, chosen, operations_job

JOB = "some_operations"
STEP = "some_operation"
OTHER = Operation[dg.Config]("other", "Does nothing.", dg.Config, lambda _: None)
"""An operation that does nothing, for jobs of one operation."""


def run_operation(
    settings: Settings,
    instance: dg.DagsterInstance,
    operations: Sequence[Operation[Any]],
    name: str,
    **config: object,
) -> dg.ExecuteInProcessResult:
    """Run one of some operations."""
    job = operations_job(PLAIN, JOB, STEP, "Some operations.", [OTHER, *operations])
    definitions = dg.Definitions(
        jobs=[job],
        resources={"tidemark": TidemarkResource(settings)},
        executor=dg.in_process_executor,
    )
    return definitions.resolve_job_def(JOB).execute_in_process(
        instance=instance, run_config=chosen(STEP, name, config), raise_on_error=False
    )


def output_metadata(result: dg.ExecuteInProcessResult) -> Mapping[str, str]:
    """Return the metadata of the run's output by name, as text."""
    (output,) = [e for e in result.all_events if e.is_successful_output]
    return {k: shown(v) for k, v in output.step_output_data.metadata.items()}
