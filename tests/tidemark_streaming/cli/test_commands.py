"""The commands in the order in which a user gives them: play, compute, verify, stream."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import SparkSession

from helpers.processes.clocks import shift_clock
from helpers.processes.commands import call
from helpers.suite.pages import commands, fences
from tidemark import engine as spark_engine
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse
from tidemark_assets.flights.transforms import departures_hourly
from tidemark_streaming.base import foreground
from tidemark_streaming.cli.processing import stream
from tidemark_streaming.cli.processing.live import Look, View
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.streams import queries
from tidemark_streaming.streams.continuous import find, session_id
from tidemark_streaming.streams.query_owner import is_orphaned

pytestmark = pytest.mark.usefixtures("here")
ASSET = "departures_hourly"


def test_playing_the_same_days_twice_adds_no_arrivals() -> None:
    first = call("play", "flights", "--days", "3", "--bulk", "--json")
    facts = json.loads(first.stdout)
    assert first.exit_code == 0
    assert facts["arrivals"] == 12
    assert facts["events"] > 2000
    assert facts["watermark"].startswith("2013-01-03T")
    again = call("play", "flights", "--days", "3", "--bulk", "--json")
    assert json.loads(again.stdout)["arrivals"] == 0


def test_run_processes_some_arrivals_and_a_backfill_all() -> None:
    ran = json.loads(call("run", ASSET, "--max-arrivals", "4", "--json").stdout)
    assert (ran["mode"], ran["from_arrival"], ran["through_arrival"]) == ("incremental", -1, 3)
    filled = json.loads(call("backfill", ASSET, "--json").stdout)
    assert filled["through_arrival"] == 11
    assert filled["on_time"] + filled["late"] + filled["too_late"] == filled["events"]
    nothing = call("run", ASSET, "--json")
    assert json.loads(nothing.stdout) is None


def test_a_backfill_of_a_range_reports_its_counts() -> None:
    result = call("backfill", ASSET, "--from", "2013-01-02", "--to", "2013-01-03")
    assert result.exit_code == 0
    assert "late, counted" in result.stdout
    assert "backfill departures_hourly" in result.stderr


def test_lateness_recommends_a_bound() -> None:
    found = json.loads(call("lateness", "flights", "--json").stdout)
    assert found["events"] > 2000
    assert found["recommended"]["share"] <= found["target"]
    assert "BoundedOutOfOrderness" in call("lateness", "flights").stdout


def test_status_shows_the_progress_of_sources_and_assets(here: Settings) -> None:
    found = json.loads(call("status", "--json").stdout)
    assert found["processes"][0]["running"] is True
    source = next(s for s in found["sources"] if s["name"] == "flights")
    asset = next(a for a in found["assets"] if a["asset"] == ASSET)
    assert source["arrivals"] == 12
    assert (asset["as_of"], asset["behind"]) == (11, 0)
    assert asset["windows"] >= asset["final"] > 0
    assert asset["open"] > 0
    assert found["streams"] == []
    assert "departures_hourly" in call("status").stdout


def test_a_stream_catches_up_and_prints_its_progress(here: Settings) -> None:
    call("play", "flights", "--arrived-from", "2013-01-04", "--arrived-to", "2013-01-05")
    result = call("stream", ASSET, "--max-arrivals", "1", "--until-caught-up")
    assert result.exit_code == 0
    assert "arrivals 16/16" in result.stderr
    assert Snapshot(here).newest_arrival("flights") == 15


def test_a_stream_keeps_its_query_after_an_engine_outage(
    here: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, runs, entries = stream.follow_query, list[str](), list[int]()

    def interrupted(view: View, done: Callable[[Look], bool]) -> None:
        runs.append(queries.running(here, [ASSET])[ASSET].run)
        entries.extend(c.restarts for c in foreground.commands(here))
        if len(runs) == 1:
            raise SparkConnectGrpcException(
                "Socket closed", grpc_status_code=grpc.StatusCode.UNAVAILABLE
            )
        watch(view, done)

    monkeypatch.setattr(stream, "follow_query", interrupted)
    result = call("stream", ASSET, "--until-caught-up")
    assert result.exit_code == 0, result.stderr
    assert "The engine has exited. Waiting until it is back." in result.stderr
    assert "The outage ended after" in result.stderr
    assert len(runs) == 2
    assert runs[0] == runs[1]
    assert entries == [0, 0]
    assert not queries.running(here, [ASSET])


def test_parity_exits_with_0_if_all_rows_are_equal() -> None:
    result = call("parity", ASSET, "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["equal"] is True
    assert report["windows"] > 100


def test_the_documented_commands_for_flights_run() -> None:
    """The commands of README.md and sample_domains.md, for the days that are loaded."""
    ends = {"stream": ["--until-caught-up"]}
    fewer = {"60": "3"}
    done = list[str]()
    for document in ("README.md", "docs/sample_domains.md"):
        for command, *words in commands(document):
            given = [command, *(fewer.get(word, word) for word in words)]
            result = call(*given, *ends.get(command, []))
            assert result.exit_code == 0, result.stdout + result.stderr
            done.append(command)
    flights = ["backfill", "run", "stream", "parity"]
    assert done == [*flights, "play", "backfill", "parity"]


def test_the_erasure_in_security_md_runs_dry_and_for_real() -> None:
    shown = commands("docs/security.md")
    look, did = (json.loads(call(*words, "--yes", "--json").stdout)["erased"] for words in shown)
    assert (look["done"], did["done"]) == (False, True)
    assert look["events"] == did["events"] > 0
    assert call("parity", ASSET).exit_code == 0


def test_the_query_in_monitoring_md_returns_the_steps_of_runs(
    here: Settings, spark: SparkSession
) -> None:
    (query,) = (block.text for block in fences("docs/monitoring.md") if block.language == "sql")
    rows = spark.sql(query.replace("tidemark.runs", f"{here.database}.runs")).collect()
    assert rows[0].commit_number > rows[-1].commit_number
    assert rows[0].compute.total_seconds() > 0


def test_parity_finds_a_planted_difference(here: Settings, spark: SparkSession) -> None:
    table = Warehouse(spark, here.warehouse, here.database).path(ASSET)
    spark.sql(
        f"UPDATE delta.`{table}` SET flights = flights + 1 "
        "WHERE origin = 'JFK' AND window_start = '2013-01-02T15:00:00Z'"
    )
    spark.sql(
        f"DELETE FROM delta.`{table}` "
        "WHERE origin = 'EWR' AND window_start = '2013-01-02T15:00:00Z'"
    )
    result = call("parity", ASSET, "--from", "2013-01-02", "--to", "2013-01-03")
    assert result.exit_code == 1
    assert "2 differences" in result.stdout
    assert "value" in result.stdout
    assert "missing" in result.stdout
    assert call("parity", ASSET, "--from", "2013-01-03").exit_code == 0
    assert call("backfill", ASSET).exit_code == 0
    assert call("parity", ASSET).exit_code == 0


INTERRUPTIBLE = """
import signal
from tidemark_streaming.cli import app
# Tests in the background of a script ignore interrupts, and what they start inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
app()
"""


@contextmanager
def streaming() -> "Iterator[subprocess.Popen[str]]":
    """Run `tidemark stream` in a child process and yield it after its first progress line."""
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, "stream", ASSET],
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    ) as process:
        assert process.stderr is not None
        assert any(line.startswith("arrivals") for line in process.stderr)
        yield process


def test_ctrl_c_stops_a_stream_and_its_query(here: Settings) -> None:
    with streaming() as process:
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "has stopped" in said
    assert "Traceback" not in said
    session = spark_engine.session(here, session_id(here, ASSET))
    assert find(Warehouse(session, here.warehouse, here.database), departures_hourly) is None


def test_a_stream_of_a_killed_process_is_replaced(
    here: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = spark_engine.session(here, session_id(here, ASSET))
    store, runs = Warehouse(session, here.warehouse, here.database), list[str]()
    for _ in range(2):
        with streaming() as process:
            assert not is_orphaned(session)
            with monkeypatch.context() as back:
                shift_clock(back, -1)
                assert not is_orphaned(session), "nor is it when the clock was set back"
            if not runs:
                assert "already running" in call("stream", ASSET).stderr
            process.kill()
        query = find(store, departures_hourly)
        assert query is not None
        assert is_orphaned(session)
        runs.append(str(query.runId))
    assert runs[0] != runs[1]
    # A detached stream also takes its place, and is not orphaned.
    assert call("stream", ASSET, "--detach").exit_code == 0
    assert not is_orphaned(session)
    assert "already running" in call("stream", ASSET).stderr
    assert call("stream", ASSET, "--stop").exit_code == 0


def test_a_stream_can_be_detached_and_stopped_later() -> None:
    assert call("stream", ASSET, "--detach").exit_code == 0
    twice = call("stream", ASSET)
    assert twice.exit_code == 2
    assert "already running" in twice.stderr
    assert json.loads(call("status", "--json").stdout)["streams"] == [ASSET]
    assert call("stream", ASSET, "--stop").exit_code == 0
    assert call("stream", ASSET, "--stop").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["backfill", ASSET, "--from", "2014-01-01"], "No window of 'flights'"),
        (["parity", ASSET, "--from", "2012-01-01", "--to", "2012-02-01"], "No window of 'flights'"),
    ],
)
def test_a_range_without_windows_is_refused(arguments: list[str], sentence: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
