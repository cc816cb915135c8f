"""Read Kafka records into memory by their offsets."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from operator import methodcaller
from threading import Event
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tidemark.base import thresholds
from tidemark.base.errors import DataError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.store.rows import INSTANT, compute
from tidemark_streaming.base.kafka_position import Position, Range, ranges_by_partition
from tidemark_streaming.kafka.client import Brokers, Properties
from tidemark_streaming.kafka.cluster import READ_COMMITTED

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

_SILENCE_SECONDS = 60.0
_TYPES = {TIMESTAMP_CREATE_TIME: "CreateTime", TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}


_PartitionId = tuple[str, int]
"""Topic and partition."""

_Numbers = npt.NDArray[np.int64]


class _Record(Protocol):
    """A message of Kafka's client that is a record, not an error.

    The client has one type for both, in which topic, partition and offset may be None. A record
    always has them.
    """

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


class Reader:
    """Reads ranges of offsets. The reader never commits offsets to Kafka, because the timeline
    stores the position."""

    def __init__(self, servers: str, client: Properties, group: str) -> None:
        self._brokers = Brokers(servers, client)
        usual = {
            "group.id": group,
            "isolation.level": READ_COMMITTED,
            "fetch.wait.max.ms": "50",
            # By default the next fetch waits a second once 100,000 records are ready.
            "fetch.queue.backoff.ms": "5",
        }
        # Reading ranges depends on these properties, so the configuration can't override them.
        self._consumer = self._brokers.connect_client(
            Consumer,
            usual,
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="error",
        )

    def read_records(
        self, pieces: Sequence[Position], cancel: Event, columns: Collection[str] = SCHEMA.names
    ) -> Iterator[pa.Table]:
        """Yield the records of some chunks, in tables with the columns of `SCHEMA`.

        `chunk` is the index in `pieces` of the piece that contains the record. `position` is the
        number of offsets that precede the record in this piece, sorted by topic, partition and
        offset. Offsets without a record (transaction markers, compacted records) count as well, but
        have no row.
        `headers` is null if the name of a header is not UTF-8.

        Args:
            pieces: for each chunk, its range of offsets in each partition. In a partition, each
                piece continues where the previous one ends.
            columns: the columns to fetch. Other columns are null if they are costly to fetch
                (timestamps, headers).

        Raises:
            CancelledError: `cancel` was set before all records were read.
            DataError: the brokers do not answer, or Kafka deleted the offsets in the meantime.
        """
        requested = dict[_PartitionId, list[Range]]()
        for topic, partition, ranges in ranges_by_partition(pieces):
            if ranges[0][0] < ranges[-1][1]:
                requested[topic, partition] = ranges
        places = _first_positions(pieces)
        for batch in self._fetch_batches(requested, cancel):
            yield _batch_table(batch, requested, places, columns)

    def _fetch_batches(
        self, requested: Mapping[_PartitionId, Sequence[Range]], cancel: Event
    ) -> Iterator["_Batch"]:
        """Yield the records of the requested ranges."""
        of_partition = list(requested)
        ends = np.array([ranges[-1][1] for ranges in requested.values()], np.int64)
        open_ = dict(enumerate(ends.tolist()))
        starts = list[TopicPartition]()
        for (topic, partition), ranges in requested.items():
            starts.append(TopicPartition(topic, partition, ranges[0][0]))
        self._consumer.assign(starts)
        self._brokers.forget_errors()
        heard = time.monotonic()
        try:
            while open_:
                if cancel.is_set():
                    raise CancelledError
                first = self._consumer.poll(0.5)
                if first is None:
                    if refused := self._brokers.explain_rejection():
                        raise refused
                    if time.monotonic() - heard > _SILENCE_SECONDS:
                        silence = f"no record was received for {_SILENCE_SECONDS:.0f} seconds"
                        raise self._brokers.unreachable_error(TimeoutError(silence))
                    continue
                heard = time.monotonic()
                self._brokers.record_response()
                came: list[Any] = [
                    first,
                    *self._consumer.consume(thresholds.KAFKA_POLL_RECORDS, timeout=0),
                ]
                errors = [message for message in came if message.error() is not None]
                records = came if not errors else [m for m in came if m.error() is None]
                batch = _Batch.from_records(records, of_partition)
                # Records beyond the ranges were not requested.
                yield batch.select_records(batch.offsets < ends[batch.which])
                for message in errors:
                    self._check_message(message)
                # After a change of leader, a partition may briefly end before the range does. The
                # missing records are still to come.
                reached = batch.next_offsets()
                for message in errors:
                    if (partition := _partition_of(message)) in requested:
                        number = of_partition.index(partition)
                        reached[number] = max(reached.get(number, 0), message.offset())
                for number, after in reached.items():
                    if number in open_ and after >= open_[number]:
                        del open_[number]
                        finished = TopicPartition(*of_partition[number])
                        self._consumer.incremental_unassign([finished])
        finally:
            self._consumer.unassign()

    def _check_message(self, message: Any) -> None:  # noqa: ANN401 (the client's type lacks places)
        """Raise the error of a message that is not a record, unless it is harmless."""
        code = message.error().code()
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise self._brokers.forbidden_error(message.topic())
        if code == KafkaError._AUTO_OFFSET_RESET:
            partition_name = f"{message.topic()}-{message.partition()}"
            raise DataError(
                f"Kafka deleted records of {partition_name} while they were read (by retention or "
                "on "
                "request). Start the ingest again: it reports which records are lost."
            )
        # The client looks up its consumer group although the reader does not use it.
        if code not in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._PARTITION_EOF):
            raise self._brokers.unreachable_error(KafkaException(message.error()))


@dataclass(frozen=True)
class _Batch:
    """A batch of records.

    Args:
        which: for each record, the index of its partition among the requested ones.
    """

    records: Sequence[_Record]
    which: _Numbers
    offsets: _Numbers

    @classmethod
    def from_records(
        cls, records: Sequence[_Record], requested: Sequence[_PartitionId]
    ) -> "_Batch":
        if len(requested) == 1:
            # Don't call `partition` on each record: a method call on a record takes as long as
            # copying some hundred bytes.
            which = np.zeros(len(records), np.int64)
        else:
            index = {partition: n for n, partition in enumerate(requested)}
            which = _number_array(map(index.__getitem__, map(_partition_of, records)))
        return cls(records, which, _number_array(m.offset() for m in records))

    def select_records(self, mask: "np.ndarray[Any, np.dtype[np.bool_]]") -> "_Batch":
        if mask.all():
            return self
        records = [m for m, is_one in zip(self.records, mask, strict=True) if is_one]
        return _Batch(records, self.which[mask], self.offsets[mask])

    def next_offsets(self) -> dict[int, int]:
        """Return the offset after each partition's last record, by the index of the partition."""
        next_offsets = dict[int, int]()
        for number in np.unique(self.which).tolist():
            last = self.offsets[self.which == number][-1]
            next_offsets[number] = int(last) + 1
        return next_offsets


def _batch_table(
    batch: _Batch,
    requested: Mapping[_PartitionId, Sequence[Range]],
    places: Mapping[_PartitionId, Sequence[int]],
    needed: Collection[str],
) -> pa.Table:
    """Return records as a table with the columns of `SCHEMA`.

    Args:
        requested: for each topic and partition, the requested range of offsets in each piece, in
            order.
        places: the result of `_first_positions`.
    """
    which = batch.which
    offsets = batch.offsets
    records = batch.records
    chunk = np.zeros_like(offsets)
    positions = np.zeros_like(offsets)
    for number, (partition, ranges) in enumerate(requested.items()):
        is_own = which == number
        starts = np.array([start for start, _ in ranges])
        chunk[is_own] = np.searchsorted(starts, offsets[is_own], side="right") - 1
        begins = np.array(places[partition])
        positions[is_own] = begins[chunk[is_own]] + offsets[is_own] - starts[chunk[is_own]]
    columns: dict[str, Any] = {
        "chunk": chunk,
        "position": positions,
        "topic": _per_record([topic for topic, _ in requested], which, pa.string()),
        "partition": _per_record([number for _, number in requested], which, pa.int32()),
        "offset": offsets,
        "key": [m.key() for m in records],
        "value": [m.value() for m in records],
    }
    if "timestamp" in needed or "timestamp_type" in needed:
        columns |= _timestamp_columns(records)
    if "headers" in needed:
        columns["headers"] = _header_column(records)
    arrays = list[Any]()
    for field in SCHEMA:
        column = columns.get(field.name)
        if column is None:
            column = pa.nulls(len(records), field.type)
        elif not isinstance(column, pa.Array):
            column = pa.array(column, field.type)
        arrays.append(column)
    return pa.table(arrays, schema=SCHEMA)


def _partition_of(record: _Record) -> _PartitionId:
    return record.topic(), record.partition()


def _number_array(values: Iterable[int]) -> _Numbers:
    return np.fromiter(values, np.int64)


def _per_record(values: Sequence[str | int], which: Any, kind: pa.DataType) -> "pa.Array[Any]":  # noqa: ANN401 (an array of numbers)
    """Return for each record the value of its partition.

    Args:
        values: a value for each partition.
        which: for each record, the index of its partition.
    """
    return pa.array(values, kind).take(pa.array(which))


def _timestamp_columns(records: Sequence[_Record]) -> "dict[str, pa.Array[Any]]":
    """Return the columns `timestamp` and `timestamp_type`. A timestamp is null if the record has
    none, or if it is outside the years 1 to 9999."""
    kinds, timestamps = zip(*(m.timestamp() for m in records), strict=True) if records else ((), ())
    names = pa.array([_TYPES.get(n) for n in range(max(_TYPES) + 1)], pa.string())
    types = names.take(pa.array(kinds, pa.int64()))
    millis = pa.array(timestamps, pa.int64())
    is_in_range = compute.and_(
        compute.greater_equal(millis, BEGINNING // 1000),
        compute.less_equal(millis, INFINITY // 1000),
    )
    # Producers may write any number; outside the years 1 to 9999 it is not a timestamp.
    valid_millis = compute.if_else(compute.and_(compute.is_valid(types), is_in_range), millis, None)
    return {
        "timestamp": compute.multiply(valid_millis, 1000).cast(INSTANT),
        "timestamp_type": types,
    }


def _header_column(records: Sequence[_Record]) -> "list[Any]":
    decoded = [_decoded_headers(record) for record in records]
    if not any(decoded):
        return decoded
    column = list[Any]()
    for headers in decoded:
        if headers is None:
            column.append(None)
        else:
            column.append([{"key": key, "value": value} for key, value in headers])
    return column


def _decoded_headers(record: _Record) -> "Sequence[tuple[str, bytes | None]] | None":
    """Return the headers of a record, or None if the name of a header is not UTF-8.

    Kafka does not require UTF-8 of producers. Call this function once for each record: the client
    fails on such headers at the first call, and may return damaged headers at a second call.
    """
    try:
        return _get_headers(record) or ()
    except (SystemError, UnicodeDecodeError):
        return None


_get_headers = methodcaller("headers")
"""Calls `headers` on a record. If the client can't decode a name, it returns headers and sets an
error at the same time. Python detects this in calls through functions such as this one. Specialized
method calls do not detect it: they would return damaged headers, and the error would be raised by
some later statement."""


def _first_positions(pieces: Sequence[Position]) -> dict[_PartitionId, list[int]]:
    """Return, for each partition, a list with a number for each piece: the `position` of the
    partition's first offset in the piece (see `Reader.read`)."""
    by_partition: dict[_PartitionId, list[int]] = {}
    for piece in pieces:
        offset_sum = 0
        for name, topic in sorted(piece.items()):
            for partition, (start, end) in sorted(topic.offsets.items()):
                by_partition.setdefault((name, partition), []).append(offset_sum)
                offset_sum += end - start
    return by_partition
