"""Kafka as a way in: ranges of offsets become arrivals."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Event
from typing import ClassVar, Literal

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import instant
from tidemark.base.secret import Secret
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.store.arrival import Arrival
from tidemark_streaming.accepted import Acceptance, recorded
from tidemark_streaming.feed import CHUNK, Chunk, processing_time
from tidemark_streaming.kafka import losses, position
from tidemark_streaming.kafka.ahead import Ahead
from tidemark_streaming.kafka.client import Properties, check_secrets
from tidemark_streaming.kafka.cluster import PATIENCE, Cluster, matches
from tidemark_streaming.kafka.decode import PLACES, check
from tidemark_streaming.kafka.intake import Intake
from tidemark_streaming.kafka.position import Position, Topic
from tidemark_streaming.kafka.records import SCHEMA, Reader
from tidemark_streaming.payloads import Json, Payload
from tidemark_streaming.payloads.undeclared import Fields

BYTES = 16 << 20
"""The size of an arrival, about: its records are in memory once."""


@dataclass(frozen=True)
class Lag:
    """How far a log is behind its topics.

    Args:
        waiting: by topic and partition, how many offsets are there that were not brought in.
        lost: what is there no more, and was not brought in.
    """

    waiting: Mapping[tuple[str, int], int]
    lost: Sequence[losses.Loss]


@checked_class
@dataclass(frozen=True)
class KafkaFeed:
    """Records of Kafka topics. What has come since the last look is an arrival, or several.

    For each partition the timeline has the offsets that an arrival brought, and the next one goes
    on there; nothing is committed to Kafka. Its processing time is that of the look. Partitions
    and, with a pattern, topics that are new are read from their first record. Where time alone
    moves the watermark, as partitions have become idle, that is an arrival without records.

    Only records of committed transactions are read. Offsets without a record, which compaction
    removed, are passed over. A record without a value, a tombstone, is an event whose columns are
    null. One that can't be decoded is a dead letter. What an arrival could not bring because it is
    gone is an error that says which offsets, until that loss is accepted. What goes before the
    first look is not missed: that look is an arrival, also without records.

    Example:
        KafkaFeed(visits, topics=["visits"], servers="broker.example:9092")

    Args:
        source: whose events they are. Its columns that are in `RECORD` are what Kafka says of the
            record; the others are fields of the value.
        topics: names; one that begins with `^` is a pattern, which whole names must match.
        start: where partitions begin that are there at the first look: `earliest`, `latest`, or an
            instant (ISO 8601), from whose first record on they are read.
        servers: `host:port`, several separated by commas; by default the setting kafka_servers.
        format: of the values: json, objects with the source's columns; or `Avro`, `Protobuf`.
        options: of JSON: `timestampFormat`, `dateFormat` (`Json` describes them).
        correlation: the header that holds an event's correlation id. Without it, or where a record
            does not have it or its headers can't be read, that is `topic-partition-offset`.
        client: more properties of Kafka's client, as librdkafka names them. A password is a
            `secret("env:NAME")` or a `secret("file:PATH")`, which is read when it connects.
        rows: offsets that one arrival brings at most, fewer where the records before were large
            (16 MB in all, by their mean); a backlog becomes many arrivals.
        accept_loss: go on after what is gone at the first look. The arrival that does tells of it;
            what goes later is an error again.
        accept_change: take records as dead letters also where all of an arrival's fail on one
            column, which stops the source otherwise.

    Raises:
        DefinitionError: no topic, a start that is none, a column of `RECORD` of another type, a
            password by its value.
    """

    source: Source
    topics: Sequence[str]
    start: str = "earliest"
    servers: str | None = None
    format: Literal["json"] | Payload = "json"
    options: Mapping[str, str] = field(default_factory=dict)
    correlation: str | None = None
    client: Properties = field(default_factory=dict[str, str | Secret])
    rows: int = 50_000
    accept_loss: bool = False
    accept_change: bool = False
    protects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        what = f"The feed of source '{self.source.name}'"
        if isinstance(self.topics, str) or not self.topics:
            raise DefinitionError(f"{what} reads a list of topics, not {self.topics!r}.")
        if isinstance(self.format, str) and self.format != "json":
            raise DefinitionError(
                f"{what} can't read '{self.format}': the format is json, Avro(…) or Protobuf(…)."
            )
        if self.rows < 1:
            raise DefinitionError(f"{what} takes 1 or more rows at once, not {self.rows}.")
        if self.start not in ("earliest", "latest"):
            instant(self.start)
        check_secrets(self.client, what)
        check(self.source, what)
        # An unknown option is refused here, and not when records come.
        _ = self._payload

    def pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        last = timeline[-1] if timeline else None
        # A source may have come from elsewhere before.
        told = (a.position for a in reversed(timeline) if position.looked(a.position))
        at = next(map(position.read, told), None)
        there = self._cluster.topics(self.topics)
        lost = self._lost(at, there)
        ranges = self._ranges(at, there)
        clock = processing_time(time.time_ns() // 1000, last and last.arrived_at)
        pieces = position.cut(ranges, self._most(timeline))
        chunks = [self._chunk(piece, ranges, clock) for piece in pieces]
        chunks[0] = replace(chunks[0], position=recorded(chunks[0].position, lost))
        # A loss and the first look are remembered though nothing came, so that what goes from then
        # on is missed; and time alone may move the watermark.
        notes = bool(lost) or (at is None and bool(ranges))
        if at is None and not ranges and self.start != "earliest":
            # What comes after it is new, and read from its first record.
            notes, chunks = True, [replace(chunks[0], position=position.NO_TOPIC)]
        moves = last is not None and self._moves(last, clock)
        return chunks if position.count(ranges) or notes or moves else []

    def ahead(self, chunks: Sequence[Chunk]) -> None:
        self._ahead.begin([c.position for c in chunks])

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> pa.Table:
        rows, fields = self._ahead.take([c.position for c in chunks])
        self._noticed.clear()
        self._noticed.update(fields)
        return rows

    def undeclared(self) -> Mapping[int, tuple[str, ...]]:
        return self._noticed

    def lag(self, stands: str | None, patience: float = PATIENCE) -> Lag:
        """How far the log is behind the topics.

        Args:
            stands: the position of the newest arrival; None before the first.
            patience: seconds that the brokers have to answer.

        Raises:
            DataError: a topic is not there, or the brokers can't be asked.
        """
        at = None if stands is None else position.read(stands)
        there = Cluster(self.at, self.client, patience).topics(self.topics)
        ranges = self._ranges(at, there)
        waiting = {
            (name, partition): end - start
            for name, topic in ranges.items()
            if name in there
            for partition, (start, end) in topic.offsets.items()
        }
        return Lag(waiting, losses.between(self._asked(at), there))

    def waiting(self, stands: str | None, patience: float = PATIENCE) -> dict[tuple[str, int], int]:
        """By topic and partition, how many offsets are there that were not brought in: of `lag`."""
        return {**self.lag(stands, patience).waiting}

    def decode(self, letters: pa.Table) -> pa.Table:
        names = {"value": "bytes", "chunk": CHUNK}
        values = {f.name: letters[names.get(f.name, f.name)] for f in SCHEMA}
        records = pa.table([values[f.name].cast(f.type) for f in SCHEMA], schema=SCHEMA)
        return self._intake.decoded(records)

    def explain(self, error: PySparkException) -> DataError | None:
        """Nothing: what does not fit the columns is a dead letter."""
        return None

    def _in_memory(self, positions: Sequence[str], enough: Event) -> tuple[pa.Table, Fields]:
        """The rows that positions tell, and fields that the source does not declare."""
        found = self._intake.read(positions, enough)
        self._demand([position.read(p) for p in positions])
        return found

    def _demand(self, pieces: Sequence[Position]) -> None:
        """Refuse what was read of topics that were made anew since the look. A look at the end
        tells of all that was read: an id does not come back."""
        read = {name for name, _, ranges in position.spans(pieces) if ranges[0][0] < ranges[-1][1]}
        there = self._cluster.ids(sorted(read)) if read else {}
        anew = [name for name, id_ in there.items() if id_ != pieces[0][name].id]
        if anew:
            raise DataError(
                f"Records of source '{self.source.name}' went while they were read: topic "
                f"'{anew[0]}' was made anew. Begin the ingest again: it says which are gone."
            )

    def _lost(self, at: Position | None, there: Position) -> list[str]:
        """What is gone, in words, and accepted to be.

        Raises:
            DataError: something is gone that is not.
        """
        lost = losses.between(self._asked(at), there)
        words = [loss.said for loss in lost]
        if refused := self._acceptance.refused(words):
            told = [loss for loss in lost if loss.said in refused]
            raise DataError(losses.sentence(self.source.name, told))
        return words

    def _ranges(self, at: Position | None, there: Position) -> Position:
        """What is to be brought: of each partition the offsets after those in `at`."""
        begun, asked = self._begin(there) if at is None else {}, self._asked(at)
        # A topic that is asked for no more is remembered: it may be again.
        left = {name: topic for name, topic in (at or {}).items() if name not in asked}
        ranges = dict(position.standing(left))
        for name, topic in there.items():
            known = asked[name].offsets if name in asked and asked[name].id == topic.id else {}
            offsets = dict[int, position.Range]()
            for partition, (low, end) in topic.offsets.items():
                start = known[partition][1] if partition in known else begun.get((name, partition))
                start = low if start is None else start
                offsets[partition] = (min(max(start, low), end), end)
            # Partitions are never fewer: what a broker whose metadata lags leaves out still stands.
            for partition in known.keys() - offsets.keys():
                offsets[partition] = (known[partition][1], known[partition][1])
            ranges[name] = Topic(topic.id, offsets)
        return ranges

    def _asked(self, at: Position | None) -> Position:
        """What a position has of the topics that are asked for."""
        known = (at or {}).items()
        return {n: topic for n, topic in known if any(matches(one, n) for one in self.topics)}

    def _chunk(self, piece: Position, ranges: Position, clock: int) -> Chunk:
        # The pieces of one look share its clock, by which a partition may have been silent for long
        # though its records wait.
        place = PLACES.get(self.source.watermark.by or "")
        waiting = dict.fromkeys(place(*of) for of in position.unfinished(piece, ranges) if place)
        rows = position.count(piece)
        return Chunk(position.written(piece), clock, rows=rows, waiting=tuple(waiting))

    def _most(self, timeline: Sequence[Arrival]) -> int:
        """How many offsets an arrival may bring, as far as the size of the last records tells."""
        told = next((a for a in reversed(timeline) if a.rows), None)
        size = 1 if told is None else max(told.bytes // told.rows, 1)
        return max(min(self.rows, BYTES // size), 1)

    def _begin(self, there: Position) -> Mapping[tuple[str, int], int]:
        """By topic and partition, where to begin; nothing for their first record."""
        if self.start == "earliest":
            return {}
        if self.start == "latest":
            return {(n, p): end for n, t in there.items() for p, (_, end) in t.offsets.items()}
        return self._cluster.since(instant(self.start), there)

    def _moves(self, last: Arrival, clock: int) -> bool:
        """Whether time alone moves the watermark."""
        state, after = last.watermark_state, last.after
        return self.source.watermark.advance(state, after, None, clock)[0] != after

    @property
    def _payload(self) -> Payload:
        return Json(self.options) if isinstance(self.format, str) else self.format

    @cached_property
    def at(self) -> str:
        """The servers."""
        return self.servers or Settings().kafka_servers

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self.at, self.client)

    @cached_property
    def _noticed(self) -> dict[int, tuple[str, ...]]:
        return {}

    @cached_property
    def _acceptance(self) -> Acceptance:
        return Acceptance(given=self.accept_loss)

    @cached_property
    def _ahead(self) -> Ahead[tuple[pa.Table, Fields]]:
        return Ahead(self._in_memory)

    @cached_property
    def _intake(self) -> Intake:
        return Intake(self._reader, self.source, self._payload, self.correlation)

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.at, self.client, f"tidemark_{self.source.name}")
