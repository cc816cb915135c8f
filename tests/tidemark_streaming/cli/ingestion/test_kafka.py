"""The Kafka commands: the broker, and ingesting sources from topics."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from helpers.data.landing import log_rows
from helpers.kafka.topics import CLICKS, Topics, clicks
from helpers.processes.commands import call
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.kafka import broker

FEED = """
import os
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.kafka import KafkaConnector
from helpers.kafka.topics import CLICKS

ingestion = Ingestion(CLICKS, lambda _: KafkaConnector(CLICKS, [os.environ["CLICKS_TOPIC"]]))
"""


@pytest.fixture
def topic(topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a topic that is the source `clicks` of the configured domain."""
    name = topics.create()
    package = tmp_path / f"domain_of_{name}"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "connectors.py").write_text(FEED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.setenv("TIDEMARK_DOMAINS", package.name)
    monkeypatch.setenv("TIDEMARK_KAFKA_SERVERS", topics.servers)
    monkeypatch.setenv("TIDEMARK_DATABASE", name)
    monkeypatch.setenv("CLICKS_TOPIC", name)
    return name


def count(here: Settings, spark: Warehouse, database: str) -> int:
    """Return the number of rows in the event log of the clicks."""
    tables = Warehouse(spark.spark, here.warehouse, database)
    return len(log_rows(tables, CLICKS)) if tables.has_table(CLICKS.log_table) else 0


# Starts a process that follows a topic.
@pytest.mark.slow
def test_an_ingest_follows_until_it_is_stopped(
    here: Settings, warehouse: Warehouse, topics: Topics, topic: str
) -> None:
    topics.send(topic, clicks(0, 1))
    command = [str(Path(sys.executable).with_name("tidemark")), "ingest", "clicks", "--follow"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
        ExitStack() as ends,
    ):
        # A failure here must not leave the test waiting for the process.
        ends.callback(process.kill)
        for sent in (2, 4):
            deadline = time.monotonic() + 180
            while count(here, warehouse, topic) < sent and time.monotonic() < deadline:
                assert process.poll() is None
                time.sleep(0.2)
            assert count(here, warehouse, topic) == sent
            topics.send(topic, clicks(sent, sent + 1))
        process.terminate()
        said, told = (text.decode() for text in process.communicate(timeout=120))
    assert process.returncode == 0, told
    assert "ingest clicks" in told
    assert "follow clicks: " in told
    assert "arrivals  " in said
    assert "Traceback" not in said + told


def test_expired_records_are_skipped_only_with_allow_data_loss(
    here: Settings, warehouse: Warehouse, topics: Topics, topic: str
) -> None:
    topics.send(topic, clicks(0))
    assert call("ingest", "clicks").exit_code == 0
    topics.send(topic, clicks(1, 2))
    topics.forget(topic, before=2)
    refused = call("ingest", "clicks")
    assert refused.exit_code == 2
    assert f"offsets 1 to 1 of {topic}-0 (1 in all)" in " ".join(refused.stderr.split())
    accepted = call("ingest", "clicks", "--allow-data-loss", "--allow-schema-change")
    assert accepted.exit_code == 0
    said = " ".join(accepted.stderr.split())
    assert (
        "Arrival 1 of 'clicks' skips lost data, because its loss was accepted: "
        f"offsets 1 to 1 of {topic}" in said
    )
    assert count(here, warehouse, topic) == 2


@pytest.mark.usefixtures("here")
def test_undeclared_fields_are_reported_by_ingest_and_status(topics: Topics, topic: str) -> None:
    more = [value.replace(b"}", b', "battery": 1}') for value in clicks(0, 1)]
    topics.send(topic, more)
    said = " ".join(call("ingest", "clicks").stderr.split())
    assert "does not declare some of the received fields, so they are ignored: battery." in said
    (source,) = json.loads(call("status", "--json").stdout)["sources"]
    assert source["undeclared"] == {"battery": 0}
    assert "the newest arrival that has them): battery (arrival 0)." in " ".join(
        call("status").stdout.split()
    )


@pytest.mark.usefixtures("here")
def test_a_source_without_data_loss_refuses_allow_data_loss() -> None:
    result = call("ingest", "flights", "--allow-data-loss")
    assert result.exit_code == 2
    assert (
        "--allow-data-loss can't be used for source 'flights', which comes neither from Kafka nor"
        in " ".join(result.stderr.split())
    )


# Starts its own broker.
@pytest.mark.slow
def test_a_broker_is_started_once_and_keeps_its_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_KAFKA_PORT", str(port))
    process = broker.broker_process(Settings())
    try:
        assert call("dev", "kafka", "up").exit_code == 0
        first = process.find_running()
        topic = Topics(f"127.0.0.1:{port}").create()
        assert call("dev", "kafka", "up").exit_code == 0
        assert process.find_running() == first
        processes = json.loads(call("status", "--json").stdout)["processes"]
        assert [p["address"] for p in processes if p["name"] == "Kafka broker"] == [
            f"127.0.0.1:{port}"
        ]
        monkeypatch.setenv("TIDEMARK_KAFKA_PORT", str(free_port()))
        assert "runs on port" in call("dev", "kafka", "up").stderr
        monkeypatch.setenv("TIDEMARK_KAFKA_PORT", str(port))
        monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "other"))
        refused = " ".join(call("dev", "kafka", "up").stderr.split())
        assert f"Tidemark's own Kafka broker of the home {tmp_path}: stop it with" in refused
        monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
        assert call("dev", "kafka", "down").exit_code == 0
        assert process.find_running() is None
        assert "No broker is running." in call("dev", "kafka", "down").stderr
        assert call("dev", "kafka", "up").exit_code == 0
        Topics(f"127.0.0.1:{port}").send(topic, clicks(1))
    finally:
        process.stop()
