"""A consumer of what an outbox brings out: it knows the documented records and nothing else."""

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
    """What a topic has, by partitions: partition, key and value of each record, parsed.

    Args:
        committed: leave out what is of transactions that were undone, or are under way.
    """
    isolation = {"isolation.level": "read_committed" if committed else "read_uncommitted"}
    own = {"group.id": "rebuilt", "enable.partition.eof": True, "enable.auto.commit": False}
    # The brokers tell at once that a partition ends.
    own |= {"fetch.wait.max.ms": 10}
    if committed:
        _await_marks(servers, topic)
    there = Cluster(servers, isolation).topics([topic])[topic].offsets
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
    """Wait, for a while at most, until no transaction is under way in a topic: one that is
    committed is so at its coordinator first, and its partitions are told after that."""
    deadline, looks = time.monotonic() + 15, count()
    while next(looks) < 5 or time.monotonic() < deadline:
        ends = [
            Cluster(servers, {"isolation.level": level}).topics([topic])[topic].offsets
            for level in ("read_committed", "read_uncommitted")
        ]
        if ends[0] == ends[1]:
            return
        time.sleep(0.02)


@dataclass
class Table:
    """A published table, as its topic tells it.

    Args:
        adds: the aggregates whose panes add up, where they are discarding; others are the last.
        once: whether a record that came before, by its key, is passed over.
    """

    accumulation: str
    adds: tuple[str, ...] = ()
    once: bool = False
    rows: dict[Window, Values] = field(default_factory=dict[Window, Values])
    sums: dict[Window, int] = field(default_factory=dict[Window, int])
    _of: dict[Window, int] = field(default_factory=dict[Window, int])
    _seen: set[str] = field(default_factory=set[str])

    def take(self, partition: int, key: dict[str, Any], value: dict[str, Any]) -> None:
        """Take in a record."""
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
