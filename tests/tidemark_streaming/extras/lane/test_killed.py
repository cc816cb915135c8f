"""A lane over TLS and SCRAM restarts without data loss after its Spark is killed under load or its
brokers are down for a while."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin._acl import AclOperation

from helpers.data.support import same
from helpers.kafka.secured import Secured, secured
from helpers.kafka.topics import CLICKS
from tidemark.base.errors import EngineLostError
from tidemark.base.settings import Settings
from tidemark.engine import ManagedProcess
from tidemark_streaming.extras.lane import Lane
from tidemark_streaming.extras.lane.progress import LaneStatus, lane_status
from tidemark_streaming.kafka import KafkaConnector, KafkaSink
from tidemark_streaming.kafka.client import client_properties

# Kills a lane and its brokers, and waits until the lane has recovered.
pytestmark = pytest.mark.slow

PASSWORD = 'a "quoted" \\ password'
GONE = 12.0
"""Seconds without brokers: more than two checkpoints."""
DOMAIN = '''
"""Numbers, by a client of TLS and SCRAM."""

import json
import os

from pyspark.sql import DataFrame

from tidemark import secret
from tidemark import Source
from tidemark import BoundedOutOfOrderness
from tidemark_streaming.kafka import KafkaConnector, KafkaSink
from tidemark_streaming.extras.lane import Lane

columns = {"at": "TIMESTAMP", "n": "INT"}
numbers = Source("numbers", columns, "at", BoundedOutOfOrderness("10 seconds"))
client = {**json.loads(os.environ["CLIENT"]), "sasl.password": secret("env:ANN")}
servers = os.environ["SERVERS"]


def doubled(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr("*", "2 * n AS twice")


lane = Lane(
    name="numbers_doubled",
    connector=KafkaConnector(numbers, ["numbers"], servers=servers, client=client),
    prepare=doubled,
    to=KafkaSink("doubled", servers=servers, client=client),
    checkpoint="5 seconds",
)
'''


NAMED = Lane(
    name="numbers_doubled",
    connector=KafkaConnector(CLICKS, ["numbers"]),
    prepare=same,
    to=KafkaSink("doubled"),
)
"""A lane of the same name, to query its status."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Yield a broker with the user `ann`, who has only the rights that the lane needs."""
    with secured(tmp_path_factory.mktemp("secured")) as made:
        made.user("ann", PASSWORD)
        for topic in ("numbers", "doubled", "numbers_doubled_dead_letters"):
            made.admin.create(name=topic)
            made.allow(
                "ann", topic, AclOperation.READ if topic == "numbers" else AclOperation.WRITE
            )
        yield made


@pytest.mark.nightly
def test_a_lane_loses_nothing_if_it_or_its_brokers_are_killed(
    broker: Secured, tmp_path: Path
) -> None:
    (tmp_path / "numbering").mkdir()
    (tmp_path / "numbering" / "__init__.py").write_text('"""Numbers."""\n')
    (tmp_path / "numbering" / "lanes.py").write_text(DOMAIN)
    home = tmp_path / "home"
    env = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "TIDEMARK_HOME": str(home),
        "TIDEMARK_DOMAINS": "numbering",
        "SERVERS": broker.servers,
        "CLIENT": json.dumps(broker.client("ann")),
        "ANN": PASSWORD,
        "PYTHONFAULTHANDLER": "1",
        "TIDEMARK_LOG_FORMAT": "json",
    }
    tidemark = Path(sys.executable).with_name("tidemark")
    with (tmp_path / "said").open("w") as said:
        running = subprocess.Popen(
            [tidemark, "lane", "numbers_doubled"], cwd=tmp_path, env=env, stdout=said, stderr=said
        )
    spark = ManagedProcess(home / "lanes" / "numbers_doubled", "engine")
    sent, settings = 0, Settings(home=home)
    assert not lane_status(settings, NAMED).started

    def send(count: int) -> None:
        nonlocal sent
        values = [b'{"at": "2026-01-01T00:00:00Z", "n": %d}' % n for n in range(sent, sent + count)]
        broker.admin.send("numbers", values)
        sent += count

    came = dict[int, int]()
    try:
        send(100)
        _await(lambda: len(_more(broker, came)) >= 100, running, tmp_path / "said")
        record = spark.find_running()
        assert record is not None
        assert lane_status(settings, NAMED) == LaneStatus(
            True, True, "Lane 'numbers_doubled' runs."
        )
        send(50)
        os.kill(record.pid, signal.SIGKILL)
        send(50)
        _await(lambda: len(_more(broker, came)) >= sent, running, tmp_path / "said")
        assert sorted(came) == list(range(sent))
        # Duplicates occur at most once, because the lane was killed once.
        assert max(came.values()) <= 2
        send(50)
        broker.restart(GONE)
        send(50)
        _await(lambda: len(_more(broker, came)) >= sent, running, tmp_path / "said")
        assert sorted(came) == list(range(sent))
        # Records are published before the checkpoint that contains their offsets.
        through = f'"numbers-0": {sent}'
        _await(lambda: through in (tmp_path / "said").read_text(), running, tmp_path / "said")
        running.send_signal(signal.SIGTERM)
        _await_end(running)
        assert running.returncode == 0, (tmp_path / "said").read_text()
        assert spark.find_running() is None
        assert not lane_status(settings, NAMED).started
    finally:
        running.kill()
        running.wait()
        spark.stop()
    told = (tmp_path / "said").read_text()
    assert told.count(f"{EngineLostError()} Waiting until it is back.") == 1, told
    assert "has stopped." in told
    lines = [json.loads(line) for line in told.splitlines()]
    assert {line["logger"] for line in lines} == {"tidemark.lane"}
    carried = [line for line in lines if line["event"] == "carried"]
    assert {line["lane"] for line in carried} == {"numbers_doubled"}
    assert carried[-1]["through"] == {"numbers-0": sent}
    assert sum(line.get("offsets", 0) for line in carried) <= sent
    secret = PASSWORD.encode()
    files = [f for f in home.rglob("*") if f.is_file()]
    assert any(f.name == "engine.log" for f in files)
    assert [f for f in files if secret in f.read_bytes() or b'a \\"quoted' in f.read_bytes()] == []


def _more(broker: Secured, came: dict[int, int]) -> dict[int, int]:
    """Return how often each number was published so far."""
    usual = {"group.id": "tests", "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    consumer = Consumer({**client_properties(broker.admin.servers, {}), **usual})
    consumer.subscribe(["doubled"])
    came.clear()
    try:
        quiet = time.monotonic()
        while time.monotonic() - quiet < 4:
            for message in consumer.consume(1000, timeout=0.5):
                record: Any = message
                value = json.loads(record.value())
                assert value["twice"] == 2 * value["n"]
                came[value["n"]] = came.get(value["n"], 0) + 1
                quiet = time.monotonic()
    finally:
        consumer.close()
    return came


def _await(done: Callable[[], bool], running: "subprocess.Popen[bytes]", said: Path) -> None:
    deadline = time.monotonic() + 240
    while not done():
        assert running.poll() is None, said.read_text()
        assert time.monotonic() < deadline, said.read_text()


def _await_end(running: "subprocess.Popen[bytes]") -> None:
    """Wait for the end. On a timeout, make the process dump the stacks of its threads."""
    try:
        running.wait(180)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGABRT)
        running.wait()
