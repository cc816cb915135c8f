"""Records of Kafka, read by their offsets into memory."""

import bisect
import time
from collections.abc import Mapping, Sequence

import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from tidemark.base.errors import DataError
from tidemark_streaming.kafka.cluster import READ_COMMITTED, configured, unreachable
from tidemark_streaming.kafka.position import Position, Range, spans

SCHEMA = pa.schema(
    {
        "chunk": pa.int64(),
        "position": pa.int64(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_type": pa.string(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)

_AT_ONCE = 10_000
_PATIENCE = 60.0
_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}


class Reader:
    """Reads ranges of offsets. It is of no group that commits: the timeline is its memory."""

    def __init__(self, servers: str, client: Mapping[str, str], group: str) -> None:
        self._servers = servers
        own = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": READ_COMMITTED,
            "fetch.wait.max.ms": 50,
        }
        self._consumer = Consumer({**own, **configured(servers, client)})

    def read(self, positions: Sequence[Position]) -> pa.Table:
        """The records of the pieces of a position, with the index of theirs in `chunk`.

        Offsets that hold no record (a transaction's marks, what compaction removed) are passed
        over. `position` is the record's place in its chunk, by partition and offset.

        Raises:
            DataError: the brokers don't answer, or have the offsets no more.
        """
        ends: dict[tuple[str, int], list[Range]] = {}
        for topic, partition, ranges in spans(positions):
            if ranges[0][0] < ranges[-1][1]:
                ends[topic, partition] = ranges
        places = _places(positions)
        rows: list[tuple[object, ...]] = []
        starts = [TopicPartition(t, p, r[0][0]) for (t, p), r in ends.items()]
        self._consumer.assign(starts)
        heard = time.monotonic()
        try:
            while ends:
                messages = self._consumer.consume(_AT_ONCE, timeout=0.2)
                if messages:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _PATIENCE:
                    raise self._lost(f"no record came in {_PATIENCE:.0f} seconds")
                for message in messages:
                    self._take(message, ends, places, rows)
        finally:
            self._consumer.unassign()
        columns = zip(*rows, strict=True) if rows else [[] for _ in SCHEMA]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
        return pa.table(arrays, schema=SCHEMA)

    def _take(
        self,
        message: Message,
        ends: dict[tuple[str, int], list[Range]],
        places: Sequence[Mapping[tuple[str, int], int]],
        rows: list[tuple[object, ...]],
    ) -> None:
        """Add a message to `rows`, or take a partition that is read to its end out of `ends`."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise self._lost(error.str())
        if topic is None or partition is None or offset is None:
            raise self._lost("a record without a place")
        of = (topic, partition)
        if of not in ends:
            # Fetched before the partition was given up, beyond the end.
            return
        ranges = ends[of]
        if error is not None or offset >= ranges[-1][1] - 1:
            del ends[of]
            self._consumer.incremental_unassign([TopicPartition(topic, partition)])
        if error is not None or offset >= ranges[-1][1]:
            return
        chunk = bisect.bisect_right(ranges, offset, key=lambda r: r[0]) - 1
        kind, instant = message.timestamp()
        rows.append(
            (
                chunk,
                places[chunk][of] + offset - ranges[chunk][0],
                topic,
                partition,
                offset,
                instant * 1000 if kind in _TYPES else None,
                _TYPES.get(kind),
                message.key(),
                message.value(),
                [{"key": k, "value": v} for k, v in message.headers() or ()],
            )
        )

    def _lost(self, reason: str) -> DataError:
        return unreachable(self._servers, KafkaException(reason))


def _places(positions: Sequence[Position]) -> list[dict[tuple[str, int], int]]:
    """For each position, the place of each partition's first record in it."""
    found: list[dict[tuple[str, int], int]] = []
    for position in positions:
        place, begins = 0, dict[tuple[str, int], int]()
        for name, topic in sorted(position.items()):
            for partition, (start, end) in sorted(topic.offsets.items()):
                begins[name, partition] = place
                place += end - start
        found.append(begins)
    return found
