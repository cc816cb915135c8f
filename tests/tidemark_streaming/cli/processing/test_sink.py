"""`tidemark sink` publishes to a topic of a real broker: once, with --reset, and with --follow."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from helpers.data.support import READINGS, ingest, some_arrivals
from helpers.kafka.rebuilt import Table, records
from helpers.kafka.topics import Topics
from helpers.processes.commands import call
from tidemark.base.settings import Settings
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.base import foreground
from tidemark_streaming.home import domains

TRANSFORMS = """
import os
from dataclasses import replace
from helpers.data import support
from tidemark import agg
from tidemark_streaming.kafka import KafkaSink

per_minute = replace(
    support.PER_MINUTE,
    aggregates={"n": agg.count()},
    accumulation="accumulating",
    sink=KafkaSink(os.environ["PANES"]),
)
"""
ARRIVALS = some_arrivals(count=3, size=20)


@pytest.fixture
def home(
    here: Settings, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """Return settings with their own database and a domain whose asset publishes to a topic."""
    package = tmp_path / f"domain_{uuid4().hex[:8]}"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "transforms.py").write_text(TRANSFORMS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setenv("TIDEMARK_DOMAINS", package.name)
    monkeypatch.setenv("TIDEMARK_KAFKA_SERVERS", topics.servers)
    monkeypatch.setenv("TIDEMARK_DATABASE", f"emit_{uuid4().hex[:12]}")
    monkeypatch.setenv("PANES", topics.unused())
    return Settings()


def told(*options: str) -> dict[str, Any]:
    result = call("sink", "per_minute", "--json", *options)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


# Starts processes that stream and publish.
@pytest.mark.slow
def test_sink_publishes_windows_once_with_reset_and_continuously(
    home: Settings, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    store, topic = Warehouse(spark, home.warehouse, home.database), os.environ["PANES"]
    asset = domains.load_domains(home.domains).transforms["per_minute"]
    nothing = told()
    assert (nothing["records"], nothing["version"]) == (0, None)
    ingest(store, READINGS, ARRIVALS[:2], ends=False)
    incremental(store, asset)
    rows = len(store.load_rows(asset.published_table))
    first = told()
    # The start of the epoch is also a record.
    assert (first["topic"], first["transactions"], first["records"]) == (topic, 1, rows + 1)
    assert first["version"] == store.newest_version(asset.published_table)
    assert told()["transactions"] == 0
    assert "All published windows of 'per_minute' are in topic" in " ".join(
        call("sink", "per_minute").stderr.split()
    )
    assert told("--reset")["records"] == rows + 1

    command = [str(Path(sys.executable).with_name("tidemark")), "sink", "per_minute", "--follow"]
    log, lines = tmp_path / "sink.log", {**os.environ, "TIDEMARK_LOG_FORMAT": "json"}
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, "--json"], stdout=subprocess.PIPE, stderr=errors, text=True, env=lines
        ) as process,
        ExitStack() as ends,
    ):
        # A failure here must not leave the test waiting for the process.
        ends.callback(process.kill)
        ingest(store, READINGS, ARRIVALS[2:], ends=False)
        incremental(store, asset)
        deadline = time.monotonic() + 120
        while windows(topics, topic) != (now := len(store.load_rows(asset.published_table))):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, (windows(topics, topic), now)
            time.sleep(0.2)
        # Consumers receive the records slightly before the command reports them.
        while '"event": "published"' not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        (running,) = foreground.list_commands(home)
        assert (running.kind, running.name, running.runs) == (foreground.SINK, "per_minute", True)
        process.terminate()
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, log.read_text()
    followed = json.loads(said)
    assert (followed["version"], followed["transactions"]) == (
        store.newest_version(asset.published_table),
        1,
    )
    assert "Traceback" not in log.read_text()
    assert foreground.list_commands(home) == [], "it was ended on purpose"


def windows(topics: Topics, topic: str) -> int:
    """Return the number of windows that a consumer of the topic has."""
    table = Table("accumulating")
    for record in records(topics.servers, topic):
        table.take(*record)
    return len(table.rows)
