"""A join whose ingest is killed while its bases are ingested has every row once."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from helpers.data.runs import dies
from helpers.kafka.topics import Topics, until
from helpers.suite.nightly import mostly_nightly
from tidemark.base.instants import INFINITY, format_instant
from tidemark.base.settings import Settings
from tidemark.define.derived.join import Between, join
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.engine.connect import engine_address
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark.verify.derived_parity import check_derived_parity
from tidemark_streaming.connector import Connector
from tidemark_streaming.derived import DerivedConnector
from tidemark_streaming.ingest.ingest import end_source, ingest
from tidemark_streaming.scenario.read.parse import ScenarioArrival
from tidemark_streaming.scenario.run.memory import MemoryConnector

SECOND = 1_000_000
TOGETHER = 4
"""The number of orders of an arrival."""
ORDERS, PAYMENTS = (
    Source(
        name=name,
        columns={"t": "TIMESTAMP", "n": "BIGINT"},
        event_time="t",
        watermark=BoundedOutOfOrderness("10 seconds"),
    )
    for name in ("orders", "payments")
)
PAID = join(
    name="paid",
    left=ORDERS,
    right=PAYMENTS,
    on=["n"],
    within=Between("0 seconds", "3 seconds"),
    how="full",
    rename={"payments.t": "paid_at"},
)
POINTS = ("log", "dead_letters", "timeline")

_FOLLOWING = """
import json
import sys
from pathlib import Path
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.ingest import follow_source

_, remote, place, file = sys.argv
warehouse = Warehouse(SparkSession.builder.remote(remote).getOrCreate(), *json.loads(place))
for commit in follow_source(warehouse, cloudpickle.loads(Path(file).read_bytes()), 0.02):
    pass
"""


def order(n: int) -> tuple[Any, ...]:
    return n * SECOND, n


def payments(n: int) -> list[tuple[Any, ...]]:
    """Return the payments of an order: some orders have none, and some one without event time."""
    if n % 7 == 0:
        return []
    return [(None if n % 11 == 5 else (n + n % 5) * SECOND, n)]


class Writer:
    """Numbers orders, and ingests them and their payments while others work."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse = warehouse
        self.count = 0
        """The number of orders."""
        self._stopped = threading.Event()

    def send(self, base: Source, rows: Sequence[tuple[Any, ...]]) -> Connector:
        """Send rows of a base, and return its connector."""
        raise NotImplementedError

    def write(self) -> None:
        new = range(self.count, self.count + TOGETHER)
        paid = [row for n in new for row in payments(n)]
        self.count += TOGETHER
        for base, rows in ((ORDERS, [*map(order, new)]), (PAYMENTS, paid)):
            list(ingest(self.warehouse, self.send(base, rows), batch=None))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write until the block ends."""
        thread = threading.Thread(target=self._repeat)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def _repeat(self) -> None:
        while not self._stopped.is_set():
            self.write()


class MemoryWriter(Writer):
    """Writes to lists of arrivals."""

    def __init__(self, warehouse: Warehouse) -> None:
        super().__init__(warehouse)
        self._arrivals: dict[str, list[ScenarioArrival]] = {"orders": [], "payments": []}

    def send(self, base: Source, rows: Sequence[tuple[Any, ...]]) -> Connector:
        arrivals = self._arrivals[base.name]
        arrivals.append(ScenarioArrival(tuple(rows), time.time_ns() // 1000))
        return MemoryConnector(base, arrivals)


class TopicWriter(Writer):
    """Writes to topics of a broker."""

    def __init__(self, warehouse: Warehouse, topics: Topics) -> None:
        super().__init__(warehouse)
        self._topics = topics
        self._names = {name: topics.create() for name in ("orders", "payments")}

    def send(self, base: Source, rows: Sequence[tuple[Any, ...]]) -> Connector:
        values = [json.dumps({"t": format_instant(t), "n": n}).encode() for t, n in rows]
        self._topics.send(self._names[base.name], values)
        return self._topics.connector(self._names[base.name], source=base)


@pytest.fixture(params=mostly_nightly(["memory", "topics"]))
def writer(warehouse: Warehouse, request: pytest.FixtureRequest) -> Writer:
    if request.param == "memory":
        return MemoryWriter(warehouse)
    return TopicWriter(warehouse, request.getfixturevalue("topics"))


def wait_for_commit(log: Log) -> None:
    known = len(log.read_timeline())
    until(lambda: len(log.read_timeline()) > known)


# Kills about twenty processes.
@pytest.mark.slow
def test_a_killed_join_has_every_pair_once(
    warehouse: Warehouse, engine: Settings, tmp_path: Path, writer: Writer
) -> None:
    chance, file = random.Random(1), tmp_path / "connector"
    connector = DerivedConnector(PAID, warehouse.location, warehouse.database)
    file.write_bytes(cloudpickle.dumps(connector))
    arguments = [engine_address(engine), json.dumps(warehouse.place), str(file)]
    log = Log(warehouse, PAID)
    writer.write()
    with writer.writing():
        for point in POINTS * 3:
            assert dies(_FOLLOWING, engine, warehouse, point, str(file))
        for _ in range(5):
            process = subprocess.Popen(
                [sys.executable, "-c", _FOLLOWING, *arguments],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            wait_for_commit(log)
            time.sleep(chance.random() * 2)
            assert process.poll() is None
            process.kill()
            process.wait()
    before = len(log.read_timeline())
    for base in PAID.base_sources:
        end_source(warehouse, base)
    list(ingest(warehouse, connector, batch=None))

    timeline = log.read_timeline()
    assert timeline[-1].after == INFINITY
    assert len(timeline) == sum(
        len(Log(warehouse, base).read_timeline()) for base in PAID.base_sources
    )
    assert before >= 5
    paid = {n: row[0] for n in range(writer.count) for row in payments(n)}
    pairs = {n for n, at in paid.items() if at is not None and at - n * SECOND <= 3 * SECOND}
    alone = [n for n in range(writer.count) if n not in pairs]
    without = [n for n, at in paid.items() if n not in pairs and at is not None]
    rows = warehouse.load_rows(PAID.log_table).to_pylist()
    found = sorted((r["left_arrival"] is None, r["right_arrival"] is None, r["n"]) for r in rows)
    assert found == sorted(
        [
            *((False, False, n) for n in pairs),
            *((False, True, n) for n in alone),
            *((True, False, n) for n in without),
        ]
    )
    dead = [
        json.loads(r["bytes"])["n"]
        for r in warehouse.load_rows(PAID.dead_letters_table).to_pylist()
    ]
    assert sorted(dead) == [n for n, at in paid.items() if at is None]
    assert check_derived_parity(warehouse, PAID).is_equal
