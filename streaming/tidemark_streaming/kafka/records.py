"""Records of Kafka, read by their offsets into memory."""

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

from tidemark.base.errors import DataError
from tidemark.base.instants import BEGINNING, INFINITY
from tidemark.store.rows import INSTANT, compute
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

_Numbers = npt.NDArray[np.int64]


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

    def read(
        self, pieces: Sequence[Position], enough: Event, wanted: Collection[str] = SCHEMA.names
    ) -> Iterator[pa.Table]:
        """The records of the pieces of a position, some at a time, with the index of theirs in
        `chunk`.

        Offsets that hold no record (a transaction's marks, what compaction removed) are passed
        over. `position` is the record's place in its chunk, by partition and offset. `headers` is
        null where the name of one of them is no UTF-8.

        Args:
            wanted: the columns that are asked for; of the others those are null that cost time.

        Raises:
            CancelledError: it was `enough` before they were there.
            DataError: the brokers don't answer, or have the offsets no more, which they had.
        """
        asked = {(topic, partition): r for topic, partition, r in spans(pieces)}
        asked = {of: ranges for of, ranges in asked.items() if ranges[0][0] < ranges[-1][1]}
        places = {of: begins for of, begins in _places(pieces).items() if of in asked}
        for batch in self._fetched(asked, enough):
            yield _table(batch, asked, places, wanted)

    def _fetched(self, asked: Mapping[_Of, Sequence[Range]], enough: Event) -> Iterator["_Batch"]:
        """The records of these ranges."""
        of_partition = list(asked)
        ends = np.array([ranges[-1][1] for ranges in asked.values()], np.int64)
        open_ = dict(enumerate(ends.tolist()))
        self._consumer.assign([TopicPartition(*of, r[0][0]) for of, r in asked.items()])
        self._brokers.listen()
        heard = time.monotonic()
        try:
            while open_:
                if enough.is_set():
                    raise CancelledError
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
                came: list[Any] = [first, *self._consumer.consume(_AT_ONCE, timeout=0)]
                told = [message for message in came if message.error() is not None]
                records = came if not told else [m for m in came if m.error() is None]
                batch = _Batch.of(records, of_partition)
                # What comes after the ranges is not asked for.
                yield batch.where(batch.offsets < ends[batch.which])
                for message in told:
                    self._check(message)
                # A partition's end may be before the range's for a moment, when another broker has
                # come to lead it: what is missing is still to come.
                reached = batch.reached()
                for message in told:
                    if (of := _of(message)) in asked:
                        number = of_partition.index(of)
                        reached[number] = max(reached.get(number, 0), message.offset())
                for number, after in reached.items():
                    if number in open_ and after >= open_[number]:
                        del open_[number]
                        done = TopicPartition(*of_partition[number])
                        self._consumer.incremental_unassign([done])
        finally:
            self._consumer.unassign()

    def _check(self, message: Any) -> None:  # noqa: ANN401 (the client's type lacks places)
        """Raise what a message says that is no record, unless that is nothing."""
        code = message.error().code()
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise self._brokers.forbidden(message.topic())
        if code == KafkaError._AUTO_OFFSET_RESET:
            place = f"{message.topic()}-{message.partition()}"
            raise DataError(
                f"Records of {place} went while they were read: retention, or somebody, removed "
                "them. Begin the ingest again: it says which are gone."
            )
        # The client looks for its group, which nothing here goes by.
        if code not in (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._PARTITION_EOF):
            raise self._brokers.unreachable(KafkaException(message.error()))


@dataclass(frozen=True)
class _Batch:
    """Some records.

    Args:
        which: of which of the partitions that were asked for each is.
    """

    records: Sequence[_Record]
    which: _Numbers
    offsets: _Numbers

    @classmethod
    def of(cls, records: Sequence[_Record], asked: Sequence[_Of]) -> "_Batch":
        if len(asked) == 1:
            # Each question to a record takes as long as to copy some hundred bytes of it.
            which = np.zeros(len(records), np.int64)
        else:
            index = {of: n for n, of in enumerate(asked)}
            which = _numbers(map(index.__getitem__, map(_of, records)))
        return cls(records, which, _numbers(m.offset() for m in records))

    def where(self, mask: "np.ndarray[Any, np.dtype[np.bool_]]") -> "_Batch":
        if mask.all():
            return self
        records = [m for m, is_one in zip(self.records, mask, strict=True) if is_one]
        return _Batch(records, self.which[mask], self.offsets[mask])

    def reached(self) -> dict[int, int]:
        """By partition, the offset after the last of its records."""
        every = np.unique(self.which).tolist()
        return {n: int(self.offsets[self.which == n][-1]) + 1 for n in every}


def _table(
    batch: _Batch,
    asked: Mapping[_Of, Sequence[Range]],
    places: Mapping[_Of, Sequence[int]],
    wanted: Collection[str],
) -> pa.Table:
    """Records as a table, each in its chunk."""
    which, offsets, found = batch.which, batch.offsets, batch.records
    chunk, place = np.zeros_like(offsets), np.zeros_like(offsets)
    for number, (of, ranges) in enumerate(asked.items()):
        mine = which == number
        starts = np.array([start for start, _ in ranges])
        chunk[mine] = np.searchsorted(starts, offsets[mine], side="right") - 1
        begins = np.array(places[of])
        place[mine] = begins[chunk[mine]] + offsets[mine] - starts[chunk[mine]]
    columns: dict[str, Any] = {
        "chunk": chunk,
        "position": place,
        "topic": _taken([topic for topic, _ in asked], which, pa.string()),
        "partition": _taken([number for _, number in asked], which, pa.int32()),
        "offset": offsets,
        "key": [m.key() for m in found],
        "value": [m.value() for m in found],
    }
    if "timestamp" in wanted or "timestamp_type" in wanted:
        columns |= _times(found)
    if "headers" in wanted:
        columns["headers"] = _headers(found)
    nothing = [None] * len(found)
    arrays = [
        c if isinstance(c := columns.get(f.name, nothing), pa.Array) else pa.array(c, f.type)
        for f in SCHEMA
    ]
    return pa.table(arrays, schema=SCHEMA)


def _of(record: _Record) -> _Of:
    return record.topic(), record.partition()


def _numbers(values: Iterable[int]) -> _Numbers:
    return np.fromiter(values, np.int64)


def _taken(values: Sequence[str | int], which: Any, kind: pa.DataType) -> "pa.Array[Any]":  # noqa: ANN401 (an array of numbers)
    """The value of each record, of those that its partitions have."""
    return pa.array(values, kind).take(pa.array(which))


def _times(found: Sequence[_Record]) -> "dict[str, pa.Array[Any]]":
    """The timestamps, and their types."""
    kinds, at = zip(*(m.timestamp() for m in found), strict=True) if found else ((), ())
    names = pa.array([_TYPES.get(n) for n in range(max(_TYPES) + 1)], pa.string())
    types = names.take(pa.array(kinds, pa.int64()))
    millis = pa.array(at, pa.int64())
    held = compute.and_(
        compute.greater_equal(millis, BEGINNING // 1000),
        compute.less_equal(millis, INFINITY // 1000),
    )
    # What a producer wrote may be any number: one beyond the years 1 to 9999 is no time.
    known = compute.if_else(compute.and_(compute.is_valid(types), held), millis, None)
    return {
        "timestamp": compute.multiply(known, 1000).cast(INSTANT),
        "timestamp_type": types,
    }


def _headers(found: Sequence[_Record]) -> "list[Any]":
    told = [_told(m) for m in found]
    if not any(told):
        return told
    return [t if t is None else [{"key": k, "value": v} for k, v in t] for t in told]


def _told(record: _Record) -> "Sequence[tuple[str, bytes | None]] | None":
    """The headers of a record; None where the name of one is no UTF-8, which Kafka does not ask of
    producers: the client can't say them then, and is not to be asked for them a second time."""
    try:
        return _asked(record) or ()
    except (SystemError, UnicodeDecodeError):
        return None


_asked = methodcaller("headers")
"""Asks for headers. The client gives some and sets an error at once where it can't decode them;
Python looks for that in calls by functions as this one, and not where it has adapted a call to what
it calls, so that damaged ones would come from there, and the error at some place behind."""


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
