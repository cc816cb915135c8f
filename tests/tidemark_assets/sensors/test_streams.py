"""Test streams in Dagster: a job starts and stops them, and a sensor supervises them."""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import grpc
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.connect.proto import SparkConnectServiceStub
from pyspark.sql.streaming.query import StreamingQuery

from helpers.dagster.ticks import QUIET, Ticks, of_part
from helpers.data.support import (
    PER_MINUTE,
    READINGS,
    ingest,
    published,
    reference,
    renamed,
    some_arrivals,
)
from helpers.processes.clocks import shift_clock
from tidemark import engine as spark_engine
from tidemark.base.errors import DefinitionChangedError
from tidemark.base.settings import Settings
from tidemark.define.transform import WindowedTransform
from tidemark.engine.channel import Channel
from tidemark.run.admission import Admission
from tidemark.store.warehouse import Warehouse
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.checks.findings_check import findings_checks
from tidemark_assets.jobs.operations import chosen
from tidemark_assets.jobs.stream_jobs import stream_job
from tidemark_assets.sensors.streams import supervisor_part
from tidemark_streaming.base import logs
from tidemark_streaming.home.domains import Domains
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.streams import continuous, desired_streams, queries, supervisor

ARRIVALS = some_arrivals(count=4)
ASSETS = {"per_minute": PER_MINUTE}


def run_job(
    settings: Settings,
    instance: dg.DagsterInstance,
    assets: Mapping[str, WindowedTransform],
    config: Mapping[str, Any],
) -> dg.ExecuteInProcessResult:
    """Run the job of streams in process."""
    job = stream_job("some", assets)
    resources = {"tidemark": TidemarkResource(settings)}
    definitions = dg.Definitions(jobs=[job], resources=resources, executor=dg.in_process_executor)
    return definitions.resolve_job_def(job.name).execute_in_process(
        run_config=config, instance=instance, raise_on_error=False
    )


def start(
    settings: Settings,
    instance: dg.DagsterInstance,
    assets: Mapping[str, WindowedTransform] = ASSETS,
) -> dg.ExecuteInProcessResult:
    """Start streams, as a launch without config does."""
    return run_job(settings, instance, assets, {})


def stop(
    settings: Settings,
    instance: dg.DagsterInstance,
    assets: Mapping[str, WindowedTransform] = ASSETS,
) -> dg.ExecuteInProcessResult:
    """Stop streams."""
    return run_job(settings, instance, assets, chosen("some_stream_operation", "stop", {}))


def ticks_of(
    assets: Mapping[str, WindowedTransform], instance: dg.DagsterInstance, settings: Settings
) -> Ticks:
    """Return the ticks of a sensor that supervises streams."""
    return of_part(supervisor_part("some", assets, "some_streams"), instance, settings)


def observed(instance: dg.DagsterInstance) -> list[dict[str, Any]]:
    """Return the metadata of the stream's observations in order."""
    found = instance.fetch_observations(dg.AssetKey("per_minute"), limit=50, ascending=True)
    events = [r.asset_observation for r in found.records]
    return [{k: v.value for k, v in e.metadata.items()} for e in events if e is not None]


def through(settings: Settings, arrival: int) -> None:
    """Wait until the stream has processed an arrival and published its windows."""
    deadline = time.monotonic() + 300
    while Snapshot(settings).assets_behind(ASSETS, arrival):
        assert time.monotonic() < deadline, "the stream does not get on"
        time.sleep(0.3)


def wait_for_end(settings: Settings) -> None:
    """Wait until the streaming query has ended."""
    deadline = time.monotonic() + 300
    while queries.find_running(settings, ASSETS):
        assert time.monotonic() < deadline, "the stream goes on"
        time.sleep(0.3)


def note_workers(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Let the Python workers of streams that start from now on write their process id to a file.

    The engine also has the workers of other tests' streams.
    """
    usual = continuous._asset_function

    def batch(*given: Any) -> Callable[[DataFrame, int], None]:  # noqa: ANN401
        run = usual(*given)

        def noted(rows: DataFrame, number: int) -> None:
            file.write_text(str(os.getpid()))
            run(rows, number)

        return noted

    monkeypatch.setattr(continuous, "_asset_function", batch)


def check(settings: Settings) -> dg.AssetCheckEvaluation:
    """Run the check `no_findings` of the asset, as the asset's page does."""

    @dg.asset
    def per_minute() -> None: ...

    done = dg.materialize(
        [per_minute, *findings_checks(Domains({}, {}, ASSETS))],
        selection=dg.AssetSelection.checks_for_assets("per_minute"),
        resources={"tidemark": TidemarkResource(settings)},
    )
    (evaluation,) = done.get_asset_check_evaluations()
    return evaluation


def test_a_stream_given_up_fails_the_check_of_its_asset(
    settings: Settings, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_WAIT", 0)
    monkeypatch.setattr(supervisor, "TRIES", 2)
    assert check(settings).passed
    desired_streams.request_stream(settings, "per_minute")
    assert "should run" in str(check(settings).description)
    # The engine is unreachable: each start is requested and fails.
    ticks = ticks_of(ASSETS, instance, settings)
    assert ticks.launched() == ["per_minute"]
    assert ticks.skipped().startswith("per_minute will be restarted in 0 seconds: No engine ")
    assert ticks.launched() == ["per_minute"]
    assert ticks.skipped().startswith("per_minute was given up after 2 attempts: No engine ")
    assert ticks.skipped().startswith("per_minute was given up")
    page = check(settings)
    assert (page.passed, page.severity) == (False, dg.AssetCheckSeverity.ERROR)
    description = str(page.description)
    assert "was given up. It has failed 2 times in a row. Its error: No engine " in description
    assert "then start it with `tidemark stream per_minute --detach`." in description
    states = [o["stream"] for o in observed(instance)]
    assert states == ["starting", "waiting", "starting", "given up"]

    # A stop on purpose is not a failure.
    desired_streams.cancel_request(settings, "per_minute")
    assert ticks.skipped() == "No stream should be running."
    assert check(settings).passed


def test_a_clock_set_back_delays_neither_starts_nor_reports(
    settings: Settings, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    desired_streams.request_stream(settings, "per_minute")
    ticks = ticks_of(ASSETS, instance, settings)
    assert ticks.launched() == ["per_minute"]
    assert "will be restarted in 30 seconds" in ticks.skipped()
    shift_clock(monkeypatch, -1)
    assert ticks.launched() == ["per_minute"]
    assert "will be restarted in 60 seconds" in ticks.skipped()
    shift_clock(monkeypatch, 1)
    ticks.launched()
    monkeypatch.setattr(supervisor, "TRIES", 3)
    assert "was given up" in ticks.skipped()
    assert len(observed(instance)) == 6, "one of each state"
    shift_clock(monkeypatch, -1)
    assert "was given up" in ticks.skipped()
    assert len(observed(instance)) == 7, "the next one is due"
    assert "was given up" in ticks.skipped()
    assert len(observed(instance)) == 7


@pytest.fixture
def logged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[], list[dict[str, Any]]]:
    """Return a function that reads the JSON log lines of this process from here on."""
    for what, name, value in (
        (logs, "_log", None),
        (logs._ROOT, "handlers", []),
        (logs._ROOT, "propagate", True),
    ):
        monkeypatch.setattr(what, name, value)
    return lambda: [
        json.loads(line)
        for line in capsys.readouterr().err.splitlines()
        if line.startswith("{") and '"logger": "tidemark.' in line
    ]


# Waits for a supervisor that restarts a stream.
@pytest.mark.slow
def test_a_stopped_stream_is_restarted_until_its_stop_job(
    engine: Settings,
    warehouse: Warehouse,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    logged: Callable[[], list[dict[str, Any]]],
) -> None:
    here = engine.model_copy(update={"database": warehouse.database, "log_format": "json"})
    ticks = ticks_of(ASSETS, instance, here)
    assert ticks.skipped() == "No stream should be running."
    ingest(warehouse, READINGS, ARRIVALS[:2], ends=False)
    assert start(here, instance).success
    assert start(here, instance).success
    assert ticks.skipped().startswith("per_minute has been running since ")
    through(here, 1)

    monkeypatch.setattr(supervisor, "FIRST_WAIT", 0)
    with spark_engine.visit_session(here, continuous.session_id(here, "per_minute")) as spark:
        store = Warehouse(spark, here.warehouse, here.database)
        assert continuous.stop_query(store, PER_MINUTE)
    assert ticks.skipped() == (
        "per_minute will be restarted in 0 seconds: Another process stopped it."
    )
    assert ticks.launched() == ["per_minute"]
    assert start(here, instance).success
    assert ticks.skipped().startswith("per_minute has been running since ")
    ingest(warehouse, READINGS, ARRIVALS[2:])
    through(here, 4)
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)

    assert stop(here, instance).success
    assert ticks.skipped() == "No stream should be running."
    with spark_engine.visit_session(here, continuous.session_id(here, "per_minute")) as spark:
        assert not spark.streams.active
    states = [(o["stream"], o["restarts"]) for o in observed(instance)]
    assert states == [("running", 0), ("waiting", 0), ("starting", 0), ("running", 1)]
    assert observed(instance)[1]["last error"] == "Another process stopped it."
    lines = logged()
    said = [line["event"] for line in lines if line["event"] != "ran"]
    assert said == ["stream running", "stream waiting", "stream starting", "stream running"]
    runs = {run["commit_number"]: run["run"] for run in Snapshot(here).runs_after("per_minute", -1)}
    told = {line["commit_number"]: line["run"] for line in lines if line["event"] == "ran"}
    # Runs before the first tick are not logged.
    assert told.items() <= runs.items()
    assert max(told) == max(runs)
    assert len([line for line in lines if line["event"] == "ran"]) == len(told)


# Waits for a supervisor and a stream.
@pytest.mark.slow
def test_a_failed_stream_reports_the_cause(
    engine: Settings, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    here = engine.model_copy(update={"database": warehouse.database})
    ingest(warehouse, READINGS, ARRIVALS[:1])
    ticks = ticks_of(ASSETS, instance, here)
    assert start(here, instance).success
    ticks.skipped()
    # An unknown state format: the next run can't read it.
    through(here, 1)
    warehouse.spark.sql(
        f"ALTER TABLE delta.`{warehouse.path_of('per_minute_state')}` "
        "SET TBLPROPERTIES ('tidemark.format' = '99')"
    )
    ingest(warehouse, READINGS, ARRIVALS[1:2], ends=False)
    deadline = time.monotonic() + 180
    while (said := ticks.skipped()).startswith("per_minute has been running since "):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    stop(here, instance)
    assert said.startswith("per_minute will be restarted in 30 seconds: Table 'per_minute_state' ")
    assert "99" in said


# Waits for a supervisor and a stream.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_stream_that_fails_between_two_ticks_reports_the_cause(
    engine: Settings,
    warehouse: Warehouse,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_WAIT", 0)
    here = engine.model_copy(update={"database": warehouse.database})
    ingest(warehouse, READINGS, ARRIVALS[:1])
    lacking = {"per_minute": replace(PER_MINUTE, function=lambda rows: rows.drop("arrival"))}
    desired_streams.request_stream(here, "per_minute")
    ticks = ticks_of(lacking, instance, here)
    for n in range(2):
        assert ticks.launched() == ["per_minute"]
        assert start(here, instance, lacking).success
        wait_for_end(here)
        said = ticks.skipped()
        assert said.startswith(
            "per_minute will be restarted in 0 seconds: Asset 'per_minute': its function's result "
            "has no column 'arrival'"
        )
        told = observed(instance)[-1]
        assert (told["consecutive failures"], told["restarts"]) == (n + 1, n)
    # A run that did not start the query leaves no query error.
    assert ticks.launched() == ["per_minute"]
    assert ticks.skipped() == (
        "per_minute will be restarted in 0 seconds: The run that should start it failed."
    )
    assert observed(instance)[-1]["consecutive failures"] == 3
    assert stop(here, instance, lacking).success


# Waits for a supervisor and a stream.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_changed_definition_between_two_ticks_restarts_the_stream(
    engine: Settings, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    def changed(_: DataFrame) -> DataFrame:
        raise DefinitionChangedError("Asset 'per_minute' has another definition since.")

    here = engine.model_copy(update={"database": warehouse.database})
    ingest(warehouse, READINGS, ARRIVALS)
    older = {"per_minute": replace(PER_MINUTE, function=changed)}
    desired_streams.request_stream(here, "per_minute")
    ticks = ticks_of(older, instance, here)
    assert ticks.launched() == ["per_minute"]
    assert start(here, instance, older).success
    wait_for_end(here)
    assert ticks.skipped().startswith(
        "per_minute will be restarted in 0 seconds: Asset 'per_minute' has another definition "
    )
    assert observed(instance)[-1]["consecutive failures"] == 0
    assert ticks.launched() == ["per_minute"]
    assert stop(here, instance, older).success


# Waits for a supervisor and streams.
@pytest.mark.nightly
@pytest.mark.slow
def test_streams_have_isolated_settings_and_are_found_in_one_query(
    engine: Settings, warehouse: Warehouse, instance: dg.DagsterInstance
) -> None:
    here = engine.model_copy(update={"database": warehouse.database})
    assets = {**ASSETS, "other": renamed(PER_MINUTE, "other")}
    ingest(warehouse, READINGS, ARRIVALS[:1])
    assert start(here, instance, assets).success
    found = queries.find_running(here, ["per_minute", "third", "other"])
    assert list(found) == ["per_minute", "other"]
    sessions = [continuous.session_id(here, asset) for asset in found]
    with (
        spark_engine.visit_session(here, sessions[0]) as one,
        spark_engine.visit_session(here, sessions[1]) as two,
    ):
        assert [[q.runId for q in s.streams.active] for s in (one, two)] == [
            [found["per_minute"].run],
            [found["other"].run],
        ]
        one.conf.set("tidemark.test", "here")
        assert two.conf.get("tidemark.test", "unset") == "unset"
    assert stop(here, instance, assets).success
    assert not queries.find_running(here, assets)


# Waits for a supervisor and a stream.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_changed_definition_restarts_a_running_stream(
    engine: Settings, warehouse: Warehouse, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    newer = tmp_path / "newer"

    def function(rows: DataFrame) -> DataFrame:
        if newer.exists():
            raise DefinitionChangedError("Asset 'per_minute' has another definition since.")
        return rows

    here = engine.model_copy(update={"database": warehouse.database})
    ingest(warehouse, READINGS, ARRIVALS[:2], ends=False)
    assets = {"per_minute": replace(PER_MINUTE, function=function)}
    ticks = ticks_of(assets, instance, here)
    assert start(here, instance, assets).success
    through(here, 1)
    assert ticks.skipped().startswith("per_minute has been running since ")
    newer.touch()
    ingest(warehouse, READINGS, ARRIVALS[2:])
    wait_for_end(here)
    # The restart is immediate and does not count as a failure.
    assert ticks.launched() == ["per_minute"]
    assert observed(instance)[-1]["last error"].startswith("Asset 'per_minute' has another")
    assert observed(instance)[-1]["consecutive failures"] == 0
    assert start(here, instance).success
    through(here, 4)
    assert ticks.skipped().startswith("per_minute has been running since ")
    assert stop(here, instance).success
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)


# Waits for a supervisor that restarts a stream.
@pytest.mark.slow
def test_a_killed_python_worker_restarts_the_stream_at_once(
    engine: Settings,
    warehouse: Warehouse,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    here = engine.model_copy(update={"database": warehouse.database})
    note_workers(monkeypatch, tmp_path / "pid")
    ingest(warehouse, READINGS, ARRIVALS[:2], ends=False)
    ticks = ticks_of(ASSETS, instance, here)
    assert start(here, instance).success
    through(here, 1)
    assert ticks.skipped().startswith("per_minute has been running since ")
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    ingest(warehouse, READINGS, ARRIVALS[2:])
    wait_for_end(here)
    assert ticks.launched() == ["per_minute"]
    assert observed(instance)[-1]["last error"] == "Its Python worker was killed."
    assert observed(instance)[-1]["consecutive failures"] == 0
    assert start(here, instance).success
    through(here, 4)
    assert stop(here, instance).success
    assert published(warehouse, PER_MINUTE) == reference(ARRIVALS)


# Waits for a supervisor and a stream.
@pytest.mark.slow
def test_a_stop_during_a_start_wins(
    engine: Settings,
    warehouse: Warehouse,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = engine.model_copy(update={"database": warehouse.database})
    ingest(warehouse, READINGS, ARRIVALS[:1])
    usual = continuous.start_query

    def stopped_meanwhile(
        store: Warehouse, transform: WindowedTransform, *, admission: Admission
    ) -> StreamingQuery:
        assert stop(here, instance).success
        return usual(store, transform, admission=admission)

    monkeypatch.setattr(continuous, "start_query", stopped_meanwhile)
    assert start(here, instance).success
    assert not queries.find_running(here, ASSETS)
    assert desired_streams.read_all(here) == {}


def test_a_tick_over_fifty_streams_queries_each_once(
    engine: Settings, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = engine.model_copy(update={"database": f"test_{uuid4().hex[:12]}"})
    assets = {f"a{n}": renamed(PER_MINUTE, f"a{n}") for n in range(50)}
    for asset in assets:
        desired_streams.request_stream(here, asset)
    connect, ask = Channel.toChannel, queries._of_session
    connections, questions = list[str](), list[str]()

    def connected(builder: Channel) -> grpc.Channel:
        connections.append(builder.endpoint)
        return connect(builder)

    def asked(
        stub: SparkConnectServiceStub, session_id: str, metadata: list[tuple[str, str]]
    ) -> dict[str, queries.Query]:
        questions.append(session_id)
        return ask(stub, session_id, metadata)

    monkeypatch.setattr(Channel, "toChannel", connected)
    monkeypatch.setattr(queries, "_of_session", asked)
    ticks = ticks_of(assets, instance, here)
    assert len(ticks.launched()) == 50
    assert len(questions) == len(set(questions)) == 50
    # One connection tests the engine, one serves all queries. A session would add another.
    assert len(connections) == 2


def test_an_unreachable_engine_is_retried_until_the_stop(
    settings: Settings, instance: dg.DagsterInstance
) -> None:
    failed = start(settings, instance)
    [event] = failed.filter_events(lambda e: e.is_step_failure)
    error = event.step_failure_data.error
    assert error is not None
    assert error.message.startswith(
        "dagster._core.definitions.events.Failure: No engine answers at sc://localhost:1"
    )
    # The stream is still requested, so it is retried with growing delays.
    ticks = ticks_of(ASSETS, instance, settings)
    assert ticks.launched() == ["per_minute"]
    said = ticks.skipped()
    assert said.startswith("per_minute will be restarted in 30 seconds: No engine answers at ")
    assert stop(settings, instance).success
    assert ticks.skipped() == "No stream should be running."


def test_a_start_requested_before_a_stop_does_nothing(
    settings: Settings, instance: dg.DagsterInstance
) -> None:
    desired_streams.request_stream(settings, "per_minute")
    ticks = ticks_of(ASSETS, instance, settings)
    request = ticks.requested()
    assert stop(settings, instance).success
    # The queued request runs only now. It does not contact the unreachable engine.
    assert run_job(settings, instance, ASSETS, request.run_config).success
    assert desired_streams.read_all(settings) == {}
    assert ticks.skipped() == "No stream should be running."

    # It does not act for a newer request either.
    again = desired_streams.request_stream(settings, "per_minute", Admission(3))
    assert run_job(settings, instance, ASSETS, request.run_config).success
    assert desired_streams.read_all(settings) == {"per_minute": again}


def test_a_second_supervisor_reports_the_first_and_stays_idle(
    settings: Settings, instance: dg.DagsterInstance, tmp_path_factory: pytest.TempPathFactory
) -> None:
    desired_streams.request_stream(settings, "per_minute")
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("other")), QUIET) as other:
        first, second = (ticks_of(ASSETS, i, settings) for i in (instance, other))
        assert first.launched() == ["per_minute"]
        said = second.skipped()
    assert said.startswith("Another supervisor is responsible for these streams: Dagster in ")
    assert said.endswith("is idle until the other one stops.")
    assert not observed(other)
