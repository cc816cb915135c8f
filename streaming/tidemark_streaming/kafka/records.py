"""Records of Kafka, read by their offsets into memory."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tidemark.store.rows import INSTANT
from tidemark_streaming.kafka.client import Brokers, Properties
from tidemark_streaming.kafka.cluster import READ_COMMITTED
from tidemark_streaming.kafka.position import Position, Range, spans

SCHEMA = pa.schema(
    {
        "chunk": pa.int64(),
        "position": pa.int64(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": INSTANT,
        "timestamp_type": pa.string(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)

_AT_ONCE = 10_000
_PATIENCE = 60.0
_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}


_Of = tuple[str, int]
"""Topic and partition."""


class _Record(Protocol):
    """A message that is a record, and so has a place; the client's type has none for errors."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


class Reader:
    """Reads ranges of offsets. It is of no group that commits: the timeline is its memory."""

    def __init__(self, servers: str, client: Properties, group: str) -> None:
        self._brokers = Brokers(servers, client)
        usual = {
            "group.id": group,
            "isolation.level": READ_COMMITTED,
            "fetch.wait.max.ms": "50",
            # By default the next fetch waits a second once 100,000 records lie ready.
            "fetch.queue.backoff.ms": "5",
        }
        # What reading ranges rests on, whatever else is configured.
        self._consumer = self._brokers.connect(
            Consumer,
            usual,
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
        )

    def read(self, pieces: Sequence[Position]) -> pa.Table:
        """The records of the pieces of a position, with the index of theirs in `chunk`.

        Offsets that hold no record (a transaction's marks, what compaction removed) are passed
        over. `position` is the record's place in its chunk, by partition and offset.

        Raises:
            DataError: the brokers don't answer, or have the offsets no more.
        """
        asked = {(topic, partition): r for topic, partition, r in spans(pieces)}
        asked = {of: ranges for of, ranges in asked.items() if ranges[0][0] < ranges[-1][1]}
        index = {of: n for n, of in enumerate(asked)}
        found = [m for m in self._fetched(asked) if m.offset() < asked[_of(m)][-1][1]]
        which = np.fromiter((index[_of(m)] for m in found), np.int64, len(found))
        offsets = np.fromiter((m.offset() for m in found), np.int64, len(found))
        chunk, place = np.zeros_like(offsets), np.zeros_like(offsets)
        for of, begins in _places(pieces).items():
            if of in index:
                mine = which == index[of]
                starts = np.array([start for start, _ in asked[of]])
                chunk[mine] = np.searchsorted(starts, offsets[mine], side="right") - 1
                place[mine] = np.array(begins)[chunk[mine]] + offsets[mine] - starts[chunk[mine]]
        times = [m.timestamp() for m in found]
        columns = {
            "chunk": chunk,
            "position": place,
            "topic": [m.topic() for m in found],
            "partition": [m.partition() for m in found],
            "offset": offsets,
            "timestamp": [at * 1000 if kind in _TYPES else None for kind, at in times],
            "timestamp_type": [_TYPES.get(kind) for kind, _ in times],
            "key": [m.key() for m in found],
            "value": [m.value() for m in found],
            "headers": [[{"key": k, "value": v} for k, v in m.headers() or ()] for m in found],
        }
        arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
        return pa.table(arrays, schema=SCHEMA)

    def _fetched(self, asked: Mapping[_Of, Sequence[Range]]) -> Iterator[_Record]:
        """The records of these ranges, and some that come after them."""
        ends = {of: ranges[-1][1] for of, ranges in asked.items()}
        self._consumer.assign([TopicPartition(*of, r[0][0]) for of, r in asked.items()])
        self._brokers.listen()
        heard = time.monotonic()
        try:
            while ends:
                first = self._consumer.poll(0.5)
                if first is None:
                    if refused := self._brokers.refusal():
                        raise refused
                    if time.monotonic() - heard > _PATIENCE:
                        silence = f"no record came in {_PATIENCE:.0f} seconds"
                        raise self._brokers.unreachable(TimeoutError(silence))
                    continue
                heard = time.monotonic()
                self._brokers.answered()
                for message in (first, *self._consumer.consume(_AT_ONCE, timeout=0)):
                    record: Any = message
                    error, of = message.error(), _of(record)
                    if error is None:
                        yield record
                    elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                        # The client looks for its group, which nothing here goes by.
                        continue
                    elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        raise self._brokers.forbidden(record.topic())
                    elif error.code() != KafkaError._PARTITION_EOF:
                        raise self._brokers.unreachable(KafkaException(error))
                    # A partition's end may be before the range's for a moment, when another
                    # broker has come to lead it: what is missing is still to come.
                    after = record.offset() + (error is None)
                    if of in ends and after >= ends[of]:
                        del ends[of]
                        self._consumer.incremental_unassign([TopicPartition(*of)])
        finally:
            self._consumer.unassign()


def _of(record: _Record) -> _Of:
    return record.topic(), record.partition()


def _places(pieces: Sequence[Position]) -> dict[_Of, list[int]]:
    """By partition, the place of its first record in each of the pieces."""
    found: dict[_Of, list[int]] = {}
    for piece in pieces:
        place = 0
        for name, topic in sorted(piece.items()):
            for partition, (start, end) in sorted(topic.offsets.items()):
                found.setdefault((name, partition), []).append(place)
                place += end - start
    return found
