"""The commands of streams, erasures and the documents, over some days of flights."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from helpers.processes.clocks import shift_clock
from helpers.processes.commands import call
from helpers.suite.pages import commands, fences
from tidemark import engine as spark_engine
from tidemark.base.errors import EngineLostError
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse
from tidemark_assets.flights.transforms import departures_hourly
from tidemark_streaming.base import foreground
from tidemark_streaming.cli.processing import stream
from tidemark_streaming.cli.processing.live import Look, View
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.streams import queries
from tidemark_streaming.streams.continuous import find_query, session_id
from tidemark_streaming.streams.query_owner import is_orphaned

# Starts streams, kills them, and waits for them.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("played")]
ASSET = "departures_hourly"


@pytest.fixture(scope="module")
def played(here: Settings) -> None:
    """Play and backfill three days."""
    assert call("ingest", "flights", "--recorded", "--days", "3", "--bulk").exit_code == 0
    assert call("backfill", ASSET).exit_code == 0


def test_a_stream_catches_up_and_prints_its_progress(here: Settings) -> None:
    call(
        "ingest",
        "flights",
        "--recorded",
        "--arrived-from",
        "2013-01-04",
        "--arrived-to",
        "2013-01-05",
    )
    result = call("stream", ASSET, "--max-arrivals", "1", "--until-caught-up")
    assert result.exit_code == 0
    assert "arrivals 16/16" in result.stderr
    assert Snapshot(here).newest_arrival("flights") == 15


def test_a_stream_keeps_its_query_after_an_engine_outage(
    here: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, runs, entries = stream.follow_query, list[str](), list[int]()

    def interrupted(view: View, done: Callable[[Look], bool]) -> None:
        runs.append(queries.find_running(here, [ASSET])[ASSET].run)
        entries.extend(c.restarts for c in foreground.list_commands(here))
        if len(runs) == 1:
            raise EngineLostError
        watch(view, done)

    monkeypatch.setattr(stream, "follow_query", interrupted)
    result = call("stream", ASSET, "--until-caught-up")
    assert result.exit_code == 0, result.stderr
    assert f"{EngineLostError()} Waiting until it is back." in result.stderr
    assert "The outage ended after" in result.stderr
    assert len(runs) == 2
    assert runs[0] == runs[1]
    assert entries == [0, 0]
    assert not queries.find_running(here, [ASSET])


@pytest.mark.nightly
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
    assert done == [*flights, "ingest", "backfill", "--recorded", "parity"]


@pytest.mark.nightly
def test_the_erasure_in_security_md_runs_dry_and_for_real() -> None:
    shown = commands("docs/security.md")
    look, did = (json.loads(call(*words, "--yes", "--json").stdout)["erased"] for words in shown)
    assert (look["done"], did["done"]) == (False, True)
    assert look["events"] == did["events"] > 0
    assert call("parity", ASSET).exit_code == 0


@pytest.mark.nightly
def test_the_query_in_monitoring_md_returns_the_steps_of_runs(
    here: Settings, spark: SparkSession
) -> None:
    (query,) = (block.text for block in fences("docs/monitoring.md") if block.language == "sql")
    rows = spark.sql(query.replace("tidemark.runs", f"{here.database}.runs")).collect()
    assert rows[0].commit_number > rows[-1].commit_number
    assert rows[0].compute.total_seconds() > 0


def test_parity_finds_a_planted_difference(here: Settings, spark: SparkSession) -> None:
    table = Warehouse(spark, here.warehouse, here.database).path_of(ASSET)
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
    session = spark_engine.connect_session(here, session_id(here, ASSET))
    assert find_query(Warehouse(session, here.warehouse, here.database), departures_hourly) is None


def test_a_stream_of_a_killed_process_is_replaced(
    here: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = spark_engine.connect_session(here, session_id(here, ASSET))
    store, runs = Warehouse(session, here.warehouse, here.database), list[str]()
    for _ in range(2):
        with streaming() as process:
            assert not is_orphaned(store, ASSET)
            with monkeypatch.context() as back:
                shift_clock(back, -1)
                assert not is_orphaned(store, ASSET), "nor is it when the clock was set back"
            if not runs:
                assert "already running" in call("stream", ASSET).stderr
            process.kill()
        query = find_query(store, departures_hourly)
        assert query is not None
        assert is_orphaned(store, ASSET)
        runs.append(str(query.runId))
    assert runs[0] != runs[1]
    # A detached stream also takes its place, and is not orphaned.
    assert call("stream", ASSET, "--detach").exit_code == 0
    assert not is_orphaned(store, ASSET)
    assert "already running" in call("stream", ASSET).stderr
    assert call("stream", ASSET, "--stop").exit_code == 0
