"""Kafka topics for tests, on a real broker."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tidemark.base.instants import format_instant
from tidemark.define.source import Source
from tidemark.define.watermarks import PerPartition
from tidemark_streaming.kafka import RECORD, KafkaConnector
from tidemark_streaming.kafka.client import client_properties
from tidemark_streaming.kafka.cluster import Cluster

T0 = 1_700_000_000
CLICKS = Source(
    name="clicks",
    columns={"at": "TIMESTAMP", "n": "INT", **RECORD},
    event_time="at",
    watermark=PerPartition("kafka_topic_partition", "10 seconds", idle="1 minute"),
)


@dataclass(frozen=True)
class Topics:
    """The topics of a broker.

    Args:
        data: the broker's data folder, if known.
    """

    servers: str
    data: Path | None = None

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient(client_properties(self.servers, {}))

    def create(self, partitions: int = 1, name: str = "", **config: str) -> str:
        """Create a topic without retention. Return its name."""
        name = name or f"clicks_{uuid4().hex[:8]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        settings = {"retention.ms": "-1", **settings}
        made = self.admin.create_topics([NewTopic(name, partitions, 1, config=settings)])
        made[name].result()
        until(lambda: self._led(name) == partitions)
        return name

    def files(self, name: str, partition: int = 0) -> Path:
        """Return the folder with the records of a partition."""
        assert self.data is not None
        return self.data / f"{name}-{partition}"

    def unused(self) -> str:
        """Return the name of a topic that does not exist."""
        return f"panes_{uuid4().hex[:8]}"

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result()
        until(lambda: self._led(name) is None)

    def grow(self, name: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(name, partitions)])[name].result()
        until(lambda: self._led(name) == partitions)

    def settled(self, name: str) -> None:
        """Wait until a topic has no open transaction.

        The coordinator commits a transaction before its partitions get the commit markers.
        """
        levels = ("read_committed", "read_uncommitted")
        one, other = (Cluster(self.servers, {"isolation.level": level}) for level in levels)
        until(lambda: one.read_topics([name]) == other.read_topics([name]))

    def forget(self, name: str, before: int, partition: int = 0) -> None:
        """Delete the records of a partition before an offset, as retention does."""
        place = TopicPartition(name, partition, before)
        next(iter(self.admin.delete_records([place]).values())).result()

    def producer(self, **config: str) -> Producer:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        return Producer(client_properties(self.servers, settings))

    def send(
        self,
        name: str,
        values: Iterable[bytes | None],
        partition: int = 0,
        headers: Mapping[str, bytes] | None = None,
        key: bytes | None = None,
        at: int | None = None,
    ) -> None:
        """Send records with these values and wait for acknowledgments.

        `at` is their timestamp in seconds.
        """
        producer = self.producer()
        refused: list[KafkaError] = []
        given: dict[str, Any] = {} if at is None else {"timestamp": at * 1000}
        given["on_delivery"] = lambda error, _: refused.append(error) if error else None
        for value in values:
            producer.produce(name, value, key, partition, headers=dict(headers or {}), **given)
        assert producer.flush(120) == 0
        assert not refused

    def _led(self, name: str) -> int | None:
        """Return the broker's number of partitions with a leader, or None if it has no such topic.

        Requests to create and delete topics are answered by the controller, which is ahead of the
        broker.
        """
        topic = self.admin.list_topics(timeout=30).topics.get(name)
        return None if topic is None else sum(p.leader >= 0 for p in topic.partitions.values())

    def connector(self, *names: str, source: Source = CLICKS, **more: Any) -> KafkaConnector:  # noqa: ANN401
        return KafkaConnector(source, names, servers=self.servers, **more)


def until(done: Callable[[], bool]) -> None:
    """Wait for a minute at most until a condition holds, such as a change in the broker."""
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def clicks(*numbers: int) -> list[bytes]:
    """Return events with these numbers, each `n` seconds after `T0`."""
    return [
        json.dumps({"at": format_instant((T0 + n) * 1_000_000), "n": n}).encode() for n in numbers
    ]
