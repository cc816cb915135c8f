"""The common code of all sensors: how they are set up, and how their ticks show errors."""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster import SensorEvaluationContext

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

_TickResult = dg.SensorResult | dg.RunRequest | dg.SkipReason


def create_sensor(
    names: Names,
    name: str,
    description: str,
    evaluate: Callable[[SensorEvaluationContext], _TickResult],
    *,
    job: str | None = None,
    needs: frozenset[str] | None = None,
    runs_by_default: bool = False,
) -> dg.SensorDefinition:
    """Return a sensor. A tick that can't read a table or reach a service shows the error message.

    Args:
        needs: the resources of the sensor; the engine and the tables by default.
    """
    stopped = dg.DefaultSensorStatus.STOPPED
    running = dg.DefaultSensorStatus.RUNNING

    @dg.sensor(
        name=names.own(name),
        required_resource_keys=names.needs if needs is None else {*needs},
        job_name=job,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=running if runs_by_default else stopped,
        description=description,
    )
    def sensor(context: SensorEvaluationContext) -> _TickResult:
        try:
            return evaluate(context)
        except TidemarkError as error:
            return dg.SkipReason(str(error))

    return sensor


def is_running(instance: dg.DagsterInstance, job: str) -> bool:
    """Return whether a run of a job is queued or running."""
    return bool(instance.get_runs_count(dg.RunsFilter(job_name=job, statuses=_UNFINISHED)))


REPORT_EVERY = 300.0
"""Seconds between two reports of a state that does not change."""

_REPORTERS_AT_ONCE = 8
"""Maximum number of reporters that run in parallel."""


@dataclass(frozen=True)
class Report:
    """The result of a reporter in one tick.

    Args:
        message: the text that Dagster shows for the tick.
        memory: the state that the reporter gets in the next tick, as JSON.
        failure: an unexpected error. The tick fails with this error if no reporter has events.
    """

    message: str
    events: Sequence[AssetEvent] = ()
    memory: object = None
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
class Reporter:
    """A part of a sensor, which reports to Dagster.

    Args:
        name: the name of the reporter in the cursor and in messages.
    """

    name: str
    report: Callable[[Tick], Report]

    def run(self, tick: Tick) -> Report:
        """Return the report. If an error occurs, report the error and keep the memory unchanged."""
        try:
            return self.report(tick)
        except TidemarkError as error:
            return Report(str(error), memory=tick.memory)
        except Exception as error:
            return Report(repr(error), memory=tick.memory, failure=error)


def reporting_sensor(
    names: Names,
    name: str,
    description: str,
    reporters: Sequence[Reporter],
    needs: frozenset[str] | None = None,
) -> dg.SensorDefinition:
    """Return a sensor of several reporters. If one fails, the others still report.

    Args:
        needs: the resources of the sensor; the engine and the tables by default.
    """

    def evaluate(context: SensorEvaluationContext) -> dg.SensorResult:
        memory: dict[str, Any] = json.loads(context.cursor or "{}")
        # These properties are opened here, because two threads would open them twice.
        _ = context.instance, context.resources
        ticks = [Tick(context, names, memory.get(part.name)) for part in reporters]
        with ThreadPoolExecutor(_REPORTERS_AT_ONCE) as pool:
            reports = dict(
                zip(
                    (part.name for part in reporters),
                    pool.map(Reporter.run, reporters, ticks),
                    strict=True,
                )
            )
        events = [event for report in reports.values() for event in report.events]
        failure = next((report.failure for report in reports.values() if report.failure), None)
        if failure is not None and not events:
            raise failure
        return dg.SensorResult(
            skip_reason="\n".join(f"{part}: {report.message}" for part, report in reports.items()),
            cursor=json.dumps({part: report.memory for part, report in reports.items()}),
            asset_events=events,
        )

    return create_sensor(
        names,
        name,
        f"{description} It launches nothing.",
        evaluate,
        needs=needs,
        runs_by_default=True,
    )


def report_state(memory: Any, state: object, message: str, events: Sequence[AssetEvent]) -> Report:  # noqa: ANN401 (JSON)
    """Return a report. It has events if the state has changed, and otherwise every five minutes.

    Args:
        events: the events of the state, for reports that have events.
        memory: the memory in the last report that this function returned; None before the first.
    """
    current_time = time.time()
    if (
        memory
        and memory["state"] == state
        and not is_wait_over(REPORT_EVERY, memory["at"], current_time)
    ):
        return Report(message, memory=memory)
    return Report(message, events, {"at": current_time, "state": state})
