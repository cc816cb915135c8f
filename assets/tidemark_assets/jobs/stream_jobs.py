"""The job that starts and stops streams. Its runs are short: a stream is a query of the engine.

Each stream that should run has a request. If a user starts the stream, the job makes the request.
If the supervisor starts the stream, it gives the time of the request to the job. The job then
does nothing if the stream has been stopped or requested again since that time.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pydantic import Field
from pyspark.errors import PySparkException

from tidemark import engine
from tidemark.base.errors import EngineError, TidemarkError, summarize_error
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.run.admission import Admission
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base.names import PLAIN, Names
from tidemark_assets.base.steps import Failures, of_assets
from tidemark_assets.jobs.operations import Operation, chosen, operations_job
from tidemark_assets.jobs.step_job import Step
from tidemark_streaming.streams import continuous, desired_streams, queries
from tidemark_streaming.streams.desired_streams import DesiredStream
from tidemark_streaming.streams.query_owner import is_orphaned

_START = "start"


def stream_job(
    domain: str, transforms: Mapping[str, Definition], names: Names = PLAIN
) -> dg.JobDefinition:
    """Return the job that starts and stops streams, for users and for the supervisor."""
    return operations_job(
        names,
        f"{domain}_streams",
        _step(domain),
        "Starts streaming queries on the engine, or stops them, and ends. Queries that were "
        "started continue to run, and a sensor restarts them if they end, until they are stopped.",
        [_start_operation(domain, transforms), _stop_operation(domain, transforms)],
        pool=None,
    )


def start_request(domain: str, names: Names, config: Mapping[str, object]) -> dict[str, Any]:
    """Return the config of a run that starts streams."""
    return chosen(names.own(_step(domain)), _START, config)


def _step(domain: str) -> str:
    return f"{domain}_stream_operation"


def _start_operation(domain: str, transforms: Mapping[str, Definition]) -> Operation[Any]:

    class StartConfig(of_assets(domain, transforms)):
        """The streams that should run."""

        arrivals_per_run: int | None = Field(
            default=None,
            ge=1,
            description="Maximum number of arrivals per run; no limit by default.",
        )
        rows_per_run: int | None = Field(
            default=None,
            ge=1,
            description=(
                "Maximum number of events per run; a run always takes at least one arrival."
            ),
        )
        bytes_per_run: int | None = Field(
            default=None,
            ge=1,
            description=(
                "Maximum size of the input per run; a run always takes at least one arrival."
            ),
        )
        since: dict[str, int] = Field(
            default={},
            description=(
                "Set by the supervisor: when each asset's stream was requested. A stream that was "
                "stopped or requested again since then is not started."
            ),
        )

    def begin(step: Step[StartConfig]) -> None:
        settings = step.tidemark.settings
        config = step.config
        log = step.context.log
        failures = Failures(step.context)
        # The requests are stored first, so that they exist even if the engine can't be reached now.
        requests: dict[str, DesiredStream] = {}
        limits = Admission(config.arrivals_per_run, config.rows_per_run, config.bytes_per_run)
        for asset in config.assets:
            request = desired_streams.find_request(settings, asset)
            since = config.since.get(asset)
            if since is None:
                requests[asset] = request or desired_streams.request_stream(settings, asset, limits)
            elif request is not None and request.since == since:
                requests[asset] = request
            else:
                log.info(f"The stream of {asset} was stopped before it could be started.")
        if not requests:
            return
        try:
            engine.ensure_engine(settings, log.info)
        except EngineError as error:
            # The supervisor retries, with growing waits.
            raise dg.Failure(str(error), allow_retries=False) from None
        for asset, request in requests.items():
            try:
                log.info(_start_stream(settings, transforms[asset], request))
            except (TidemarkError, PySparkException) as error:
                failures.add(f"{summarize_error(error)}.")
        failures.raise_all()

    return Operation(
        _START,
        "Starts streaming queries that continue until they are stopped.",
        StartConfig,
        begin,
    )


def _stop_operation(domain: str, transforms: Mapping[str, Definition]) -> Operation[Any]:

    class StopConfig(of_assets(domain, transforms)):
        """The streams that should not run any more."""

    def end(step: Step[StopConfig]) -> None:
        settings = step.tidemark.settings
        assets = step.config.assets
        for asset in assets:
            desired_streams.cancel_request(settings, asset)
        try:
            running = queries.find_running(settings, assets)
            for asset in assets:
                stopped = asset in running and _stop_stream(settings, transforms[asset])
                step.context.log.info(f"{asset}: {'stopped' if stopped else 'was not running'}.")
        except EngineError as error:
            step.context.log.info(f"Streams can't run without an engine. {error}")

    return Operation(
        "stop",
        "Stops streaming queries cleanly. They are not restarted.",
        StopConfig,
        end,
    )


def _start_stream(settings: Settings, transform: Definition, request: DesiredStream) -> str:
    """Start the stream that a request asks for. Return a message about the result."""
    with _session(settings, transform) as store:
        if continuous.find_query(store, transform) is not None and not is_orphaned(
            store, transform.name
        ):
            return f"The stream of {transform.name} is already running."
        query = continuous.start_query(store, transform, admission=request.admission)
        desired_streams.record_start(settings, request, str(query.id), str(query.runId))
        if desired_streams.find_request(settings, transform.name) != request:
            # Another process stopped the stream in the meantime, possibly before the query existed.
            query.stop()
            return f"The stream of {transform.name} was stopped while it was being started."
        return f"The stream of {transform.name} is running: query {query.id}."


def _stop_stream(settings: Settings, transform: Definition) -> bool:
    with _session(settings, transform) as store:
        return continuous.stop_query(store, transform)


@contextmanager
def _session(settings: Settings, transform: Definition) -> Iterator[Warehouse]:
    with engine.visit_session(settings, continuous.session_id(settings, transform.name)) as spark:
        yield Warehouse.of_project(settings, spark)
