"""The frame of all sensors: their set-up, and how errors appear in their ticks."""

from collections.abc import Callable

import dagster as dg
from dagster import SensorEvaluationContext

from tidemark.base.errors import TidemarkError
from tidemark_assets.base.names import Names

TICK_SECONDS = 30
"""Seconds between two ticks."""

UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]

TickResult = dg.SensorResult | dg.RunRequest | dg.SkipReason


def create_sensor(
    names: Names,
    name: str,
    description: str,
    evaluate: Callable[[SensorEvaluationContext], TickResult],
    *,
    job: str | None = None,
    needs: frozenset[str] | None = None,
    runs_by_default: bool = False,
) -> dg.SensorDefinition:
    """Return a sensor. If a tick can't read a table or reach a service, it shows the error.

    Args:
        job: the job that it launches, if any.
        needs: the resources of the sensor; the engine and the tables by default.
    """
    stopped, running = dg.DefaultSensorStatus.STOPPED, dg.DefaultSensorStatus.RUNNING

    @dg.sensor(
        name=names.own(name),
        required_resource_keys=names.needs if needs is None else {*needs},
        job_name=job,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=running if runs_by_default else stopped,
        description=description,
    )
    def sensor(context: SensorEvaluationContext) -> TickResult:
        try:
            return evaluate(context)
        except TidemarkError as error:
            return dg.SkipReason(str(error))

    return sensor


def is_running(instance: dg.DagsterInstance, job: str) -> bool:
    """Return whether a run of a job is queued or running."""
    return bool(instance.get_runs_count(dg.RunsFilter(job_name=job, statuses=UNFINISHED)))
