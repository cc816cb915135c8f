"""The common code of all sensors: how they are set up, and how their ticks show errors."""

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import dagster as dg
from dagster import SensorEvaluationContext
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from tidemark.base.errors import TidemarkError
from tidemark.base.instants import is_wait_over
from tidemark_assets.base.names import Names
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.reports.run_events import AssetEvent

TICK_SECONDS = 30
"""Seconds between two ticks."""

_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


REPORT_EVERY = 300.0
"""Seconds between two reports of a state that does not change."""

_PARTS_AT_ONCE = 8
"""Maximum number of parts of a sensor that run in parallel."""

SensorJob: TypeAlias = dg.JobDefinition | UnresolvedAssetJobDefinition
"""A job that a sensor launches."""


@dataclass(frozen=True)
class PartResult:
    """The result of one part of a sensor in one tick.

    Args:
        message: the text that Dagster shows for the tick.
        memory: the state that the part gets in the next tick, as JSON.
        requests: the runs to launch. Each names its job.
        failure: an unexpected error. The tick fails with this error if no part has a result.
    """

    message: str
    events: Sequence[AssetEvent] = ()
    memory: object = None
    requests: Sequence[dg.RunRequest] = ()
    failure: Exception | None = None


@dataclass(frozen=True)
class Tick:
    """A tick of a sensor, with the memory of the previous tick; None in the first tick."""

    context: SensorEvaluationContext
    names: Names
    memory: Any

    @property
    def tidemark(self) -> TidemarkResource:
        """The engine and the tables."""
        return self.names.tidemark(self.context)


@dataclass(frozen=True)
class SensorPart:
    """A part of a sensor, which reports to Dagster or launches runs.

    Args:
        name: the name of the part in the cursor and in messages.
    """

    name: str
    evaluate: Callable[[Tick], PartResult]

    def run(self, tick: Tick) -> PartResult:
        """Return the result. If an error occurs, show the error and keep the memory unchanged."""
        try:
            return self.evaluate(tick)
        except TidemarkError as error:
            return PartResult(str(error), memory=tick.memory)
        except Exception as error:
            return PartResult(repr(error), memory=tick.memory, failure=error)


def create_sensor(
    names: Names,
    name: str,
    description: str,
    parts: Sequence[SensorPart],
    *,
    jobs: Sequence[SensorJob] = (),
    needs: frozenset[str] | None = None,
    runs_by_default: bool = True,
) -> dg.SensorDefinition:
    """Return a sensor of several parts. If one fails, the others still report and launch.

    Args:
        jobs: the jobs that the parts launch.
        needs: the resources of the sensor; the engine and the tables by default.
    """

    def evaluate(context: SensorEvaluationContext) -> dg.SensorResult:
        memory: dict[str, Any] = json.loads(context.cursor or "{}")
        results = _run_parts(context, names, parts, memory)
        events = [event for result in results.values() for event in result.events]
        requests = [request for result in results.values() for request in result.requests]
        failure = next((result.failure for result in results.values() if result.failure), None)
        if failure is not None and not events and not requests:
            raise failure
        messages = "\n".join(f"{part}: {result.message}" for part, result in results.items())
        if requests:
            # Dagster shows no message for a tick that launches runs. The tick's log has it.
            context.log.info(messages)
        return dg.SensorResult(
            requests,
            skip_reason=None if requests else messages,
            cursor=json.dumps({part: result.memory for part, result in results.items()}),
            asset_events=events,
        )

    return _Sensor(
        name=names.own(name),
        evaluation_fn=evaluate,
        required_resource_keys=names.needs if needs is None else {*needs},
        jobs=jobs or None,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=_status(runs_by_default),
        description=description,
    )


class _Sensor(dg.SensorDefinition):
    """A sensor that Dagster copies without a warning.

    Dagster copies a sensor when its jobs get their resources. It then warns of a parameter that
    Dagster itself has set.
    """

    def with_attributes(
        self, *, jobs: Sequence[Any] | None = None, metadata: Mapping[str, Any] | None = None
    ) -> dg.SensorDefinition:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.BetaWarning)
            copied = super().with_attributes(jobs=jobs, metadata=metadata)
        # Dagster may copy the copy, too, and creates it with its own class.
        copied.__class__ = _Sensor
        return copied


def _status(runs_by_default: bool) -> dg.DefaultSensorStatus:
    if runs_by_default:
        return dg.DefaultSensorStatus.RUNNING
    return dg.DefaultSensorStatus.STOPPED


def _run_parts(
    context: SensorEvaluationContext,
    names: Names,
    parts: Sequence[SensorPart],
    memory: Mapping[str, Any],
) -> dict[str, PartResult]:
    """Run the parts in parallel. Return the results by name of the part."""
    # These properties are opened here, because two threads would open them twice.
    _ = context.instance, context.resources
    ticks = [Tick(context, names, memory.get(part.name)) for part in parts]
    part_names = [part.name for part in parts]
    with ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
        results = list(pool.map(SensorPart.run, parts, ticks))
    return dict(zip(part_names, results, strict=True))


def is_running(instance: dg.DagsterInstance, job: str) -> bool:
    """Return whether a run of a job is queued or running."""
    return bool(instance.get_runs_count(dg.RunsFilter(job_name=job, statuses=_UNFINISHED)))


def unfinished_runs(instance: dg.DagsterInstance) -> Sequence[dg.DagsterRun]:
    """Return the runs of all jobs that are queued or running."""
    return instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED))


def report_state(
    memory: Any,  # noqa: ANN401 (JSON)
    state: object,
    message: str,
    events: Sequence[AssetEvent],
) -> PartResult:
    """Return the result of a part that reports a state.

    The result has events if the state has changed, and otherwise every five minutes.

    Args:
        events: the events of the state.
        memory: the memory in the last result that this function returned; None before the first.
    """
    current_time = time.time()
    if (
        memory
        and memory["state"] == state
        and not is_wait_over(REPORT_EVERY, memory["at"], current_time)
    ):
        return PartResult(message, memory=memory)
    return PartResult(message, events, {"at": current_time, "state": state})
