"""`tidemark tap` next to a running stream."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from helpers.data.landing import SOURCE, clock, connector, land
from helpers.processes.commands import call
from tidemark.base.settings import Settings
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.snapshot.snapshot import Snapshot
from tidemark_streaming.streams import continuous
from watched.transforms import by_minute

HEADER = "at,sensor,value\n"


@pytest.fixture
def home(here: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return settings with the domain `watched` and their own database."""
    monkeypatch.setenv("TIDEMARK_DOMAINS", "watched")
    monkeypatch.setenv("TIDEMARK_DATABASE", f"tap_{uuid4().hex[:12]}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=os.pathsep)
    return Settings()


# Starts a process that shows the rows of a stream.
@pytest.mark.slow
def test_tap_shows_the_rows_of_a_running_stream(
    home: Settings, engine: Settings, spark: SparkSession
) -> None:
    store = Warehouse(spark, engine.warehouse, home.database)
    folder = Path(home.landing) / SOURCE.name
    land(folder, "0.csv", f"{HEADER}{clock(0)},a,1\n{clock(30)},b,2\n", 60)
    list(ingest(store, connector(folder)))
    query = continuous.start_query(store, by_minute)
    try:
        while not Snapshot(home).runs_after("by_minute", -1):
            assert query.isActive, query.exception()
        command = [str(Path(sys.executable).with_name("tidemark")), "tap", "by_minute"]
        with subprocess.Popen(
            [*command, "--step", "classified", "--follow", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        ) as tap:
            guard = threading.Timer(240, tap.kill)
            guard.start()
            assert tap.stdout is not None
            assert tap.stderr is not None
            # It reads the asset's progress before it connects to the engine.
            assert "engine" in tap.stderr.readline()
            land(folder, "1.csv", f"{HEADER}{clock(600)},c,3\n{clock(45)},b,4\n", 700)
            list(ingest(store, connector(folder)))
            land(folder, "2.csv", f"{HEADER}{clock(20)},a,5\n", 760)
            list(ingest(store, connector(folder)))
            told = [json.loads(tap.stdout.readline()) for _ in range(3)]
            tap.send_signal(signal.SIGTERM)
            assert tap.wait(60) == 0, tap.stderr.read()
            guard.cancel()
    finally:
        continuous.stop_query(store, by_minute)
    assert {line["step"] for line in told} == {"classified"}
    seen = [(line["row"]["value"], line["row"]["_tidemark_verdict"]) for line in told]
    assert seen == [(3, "on_time"), (4, "on_time"), (5, "too_late")]
    runs = {r["run"]: r["commit_number"] for r in Snapshot(home).runs_after("by_minute", 0)}
    assert {line["run"]: line["commit_number"] for line in told} == runs
    shown = " ".join(
        call("tap", "by_minute", "--step", "read", "--commit-number", "0").stdout.split()
    )
    assert "run 0 (incremental, arrival 0), read: 2 rows" in shown
    assert "sensor=a value=1" in shown
    cut = call("tap", "by_minute", "--step", "partials", "--commit-number", "0", "--limit", "1")
    assert "the first 1 row" in cut.stdout
    assert "increase --limit" in cut.stderr


def test_tap_lists_the_steps_and_refuses_invalid_options(home: Settings) -> None:
    listed = [step["step"] for step in json.loads(call("tap", "by_minute", "--json").stdout)]
    assert listed == [
        "read",
        "prepared",
        "classified",
        "late",
        "partials",
        "quarantined",
        "published",
    ]
    assert "each event, once for each of its windows, with its lateness" in " ".join(
        call("tap", "by_minute").stdout.split()
    )
    assert "read" not in call("tap", "by_hour").stdout.split()
    for arguments, sentence in (
        (["nothing"], "There is no asset or source 'nothing'"),
        (
            ["by_minute", "--step", "panes"],
            "Runs of 'by_minute' have no step 'panes'. Their steps are",
        ),
        (["by_minute", "--step", "read"], "'by_minute' has not run yet: `tidemark run by_minute`"),
        (["by_minute", "--step", "read", "--commit-number", "3"], "'by_minute' has no run 3"),
        (["by_minute", "--step", "read", "--arrival", "3"], "is an asset, which has runs"),
        (["by_minute", "--commit-number", "3", "--follow"], "--follow can't be used with"),
    ):
        result = call("tap", *arguments)
        assert result.exit_code == 2
        assert sentence in " ".join(result.stderr.split())
        assert result.stdout == ""
