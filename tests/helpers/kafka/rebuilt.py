"""A consumer of a sink's topic, which relies only on the documented record format."""

import json
import time
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tidemark_streaming.kafka.client import client_properties
from tidemark_streaming.kafka.cluster import Cluster

Window = tuple[Any, ...]
Values = dict[str, Any]


def records(servers: str, topic: str, *, committed: bool = True) -> list[tuple[int, Any, Any]]:
    """Return the partition, parsed key and parsed value of each record, ordered by partition.

    Args:
        committed: skip records of aborted and open transactions.
    """
    isolation = {"isolation.level": "read_committed" if committed else "read_uncommitted"}
    own = {"group.id": "rebuilt", "enable.partition.eof": True, "enable.auto.commit": False}
    # Brokers report the end of a partition at once.
    own |= {"fetch.wait.max.ms": 10}
    if committed:
        _await_marks(servers, topic)
    there = Cluster(servers, isolation).read_topics([topic])[topic].offsets
    found: dict[int, list[tuple[int, Any, Any]]] = {p: [] for p in there}
    reading = {p for p, (first, end) in there.items() if first < end}
    consumer = Consumer({**client_properties(servers, {}), **own, **isolation})
    consumer.assign([TopicPartition(topic, p, there[p][0]) for p in reading])
    deadline = time.monotonic() + 60
    while reading:
        assert time.monotonic() < deadline, f"{topic} does not end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        partition = message.partition()
        assert partition is not None
        if message.error() is not None:
            reading.discard(partition)
            continue
        key, value = json.loads(message.key() or b""), json.loads(message.value() or b"")
        found[partition].append((partition, key, value))
    consumer.close()
    return [record for partition in sorted(found) for record in found[partition]]


def _await_marks(servers: str, topic: str) -> None:
    """Wait for a limited time until a topic has no open transaction.

    The coordinator commits a transaction before its partitions get the commit markers.
    """
    deadline, looks = time.monotonic() + 15, count()
    while next(looks) < 5 or time.monotonic() < deadline:
        ends = [
            Cluster(servers, {"isolation.level": level}).read_topics([topic])[topic].offsets
            for level in ("read_committed", "read_uncommitted")
        ]
        if ends[0] == ends[1]:
            return
        time.sleep(0.02)


@dataclass
class Table:
    """A published table, rebuilt from its topic.

    Args:
        adds: with discarding panes, the aggregates that are summed; others take the last value.
        once: whether a record with an already seen key is skipped.
    """

    accumulation: str
    adds: tuple[str, ...] = ()
    once: bool = False
    rows: dict[Window, Values] = field(default_factory=dict[Window, Values])
    sums: dict[Window, int] = field(default_factory=dict[Window, int])
    _of: dict[Window, int] = field(default_factory=dict[Window, int])
    _seen: set[str] = field(default_factory=set[str])

    def take(self, partition: int, key: dict[str, Any], value: dict[str, Any]) -> None:
        """Apply a record."""
        assert {name: value[name] for name in key} == key
        told = json.dumps([partition, key])
        if self.once and told in self._seen:
            return
        assert told not in self._seen, f"twice: {told}"
        self._seen.add(told)
        if "reset" in value:
            mine = [w for w, place in self._of.items() if place == partition]
            for window in mine:
                del self.rows[window], self._of[window]
                self.sums.pop(window, None)
            return
        window = (value["window_start"], value["window_end"], *value["keys"].values())
        before = self.rows.get(window)
        if value["retraction"]:
            assert before is not None, f"there is nothing to take back: {value}"
            assert (before["commit_number"], before["pane"]) == (
                value["commit_number"],
                value["pane"],
            )
            if self.accumulation != "discarding":
                assert before["values"] == value["values"]
            del self.rows[window], self._of[window]
            return
        assert before is None or self.accumulation != "retracting", f"not taken back: {before}"
        if self.accumulation == "discarding" and before is not None:
            value = {**value, "values": self._sum(before["values"], value["values"])}
        self.rows[window], self._of[window] = value, partition

    def _sum(self, before: Values, more: Values | None) -> Values:
        if more is None:
            return before
        added = {name: (before[name] or 0) + (more[name] or 0) for name in self.adds}
        return {**before, **more, **added}
