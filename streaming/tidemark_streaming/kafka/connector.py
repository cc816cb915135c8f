"""Kafka source connector: ranges of offsets become arrivals."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Event
from typing import ClassVar, Literal

import pyarrow as pa
from pyspark.sql import SparkSession

from tidemark.base import thresholds
from tidemark.base.arguments import checked_class
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import parse_instant
from tidemark.base.secret import Secret
from tidemark.base.settings import Settings
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark_streaming.base import kafka_position as position
from tidemark_streaming.base.kafka_position import Position, Topic
from tidemark_streaming.connector import CHUNK, Chunk, processing_time
from tidemark_streaming.ingest.accepted_losses import Acceptance, with_losses
from tidemark_streaming.kafka import losses
from tidemark_streaming.kafka.client import TIMEOUT_SECONDS, Properties, check_secrets
from tidemark_streaming.kafka.cluster import Cluster, topic_matches
from tidemark_streaming.kafka.decode import PLACES, check_columns
from tidemark_streaming.kafka.intake import Fields, Intake
from tidemark_streaming.kafka.prefetch import Prefetcher
from tidemark_streaming.kafka.records import SCHEMA, Reader
from tidemark_streaming.payloads import Json, Payload


@dataclass(frozen=True)
class Lag:
    """The records of the topics that an event log does not have: pending and lost ones.

    Args:
        waiting: the number of available offsets that were not ingested yet, by topic and partition.
        lost: records that Kafka deleted before they were ingested.
    """

    waiting: Mapping[tuple[str, int], int]
    lost: Sequence[losses.Loss]


@checked_class
@dataclass(frozen=True)
class KafkaConnector:
    """A connector that reads Kafka topics. The records since the last poll are one or several
    arrivals.

    The timeline stores the offsets that an arrival ingested per partition, and the next arrival
    continues after them. Nothing is committed to Kafka. The processing time of an arrival is the
    time of the poll. New partitions, and new topics that match a pattern, are read from their first
    record. If partitions become idle, so that time alone advances the watermark, this advance is
    stored as an arrival without records.

    Only records of committed transactions are read, unless the client sets `isolation.level`.
    Offsets without a record, for example after compaction, are skipped. A record without a value (a
    tombstone) is an event whose columns are null. A record that can't be decoded is a dead letter.

    If Kafka deleted records before they were ingested, the ingest fails with an error that names
    their offsets, until the loss is accepted. The very first poll of the source is recorded as an
    arrival even if the topics have no records. Records that expire after this poll are detected as
    lost; records that expired before it are not.

    Example:
        KafkaConnector(visits, topics=["visits"], servers="broker.example:9092")

    Args:
        source: the source of the events. Columns that `RECORD` lists, such as `kafka_offset`, hold
            metadata of the record; all other columns are fields of the value.
        topics: names of topics; a name that begins with `^` is a pattern that must match whole
            names.
        start: where to start in partitions that exist at the first poll: `earliest`, `latest`, or
            an instant (ISO 8601), which stands for the first record at or after it.
        servers: `host:port`, several separated by commas; default: the setting kafka_servers.
        format: the format of the values: json (objects with the source's columns), `Json`, `Avro`
            or `Protobuf`.
        options: for the format json: `timestampFormat`, `dateFormat`, `timeZone` and `finer` (see
            `Json`).
        correlation: the header that holds an event's correlation ID. The ID is
            `topic-partition-offset` by default, or if a record has no such header or its headers
            can't be read.
        client: more properties of Kafka's client, with librdkafka's names. A password is a
            `secret("env:NAME")` or a `secret("file:PATH")`, which is read on connect.
        rows: the maximum number of offsets in one arrival. Large records reduce this number: an
            arrival has at most about 16 MB, estimated from the mean record size of the last
            arrival. A backlog becomes many arrivals.
        accept_loss: continue past records that are already lost at the first poll of this
            connector. The position of the next arrival records the loss. A later loss is an error
            again.
        accept_change: ingest records even if none of many records can be decoded or has an event
            time, or if the first records have no event time. By default, such records stop the
            source.

    Raises:
        DefinitionError: `topics` is empty, `start`, `format`, `options` or `rows` is invalid, a
            column of `RECORD` is declared with another type, or a password is in plain text.
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
        owner = f"The connector of source '{self.source.name}'"
        if isinstance(self.topics, str) or not self.topics:
            raise DefinitionError(f"{owner} needs a list of topics (got {self.topics!r}).")
        if isinstance(self.format, str) and self.format != "json":
            raise DefinitionError(
                f"{owner} can't read the format '{self.format}': use 'json', Json(…), Avro(…) or "
                "Protobuf(…)."
            )
        if self.options and not isinstance(self.format, str):
            raise DefinitionError(
                f"{owner} has `options`, which are those of the format 'json'. Set the options of "
                f"another format there: format={type(self.format).__name__}(…)."
            )
        if self.rows < 1:
            raise DefinitionError(f"{owner} needs `rows` of at least 1 (got {self.rows}).")
        if self.start not in ("earliest", "latest"):
            parse_instant(self.start)
        check_secrets(self.client, owner)
        check_columns(self.source, owner)
        # Validates the options now instead of at the first record.
        _ = self._value_format

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        last = timeline[-1] if timeline else None
        # Positions without Kafka offsets come from a connector that the source used before.
        positions = (a.position for a in reversed(timeline) if position.is_kafka_poll(a.position))
        recorded = next(map(position.parse_position, positions), None)
        available = self._cluster.read_topics(self.topics)
        lost = self._accepted_losses(recorded, available)
        ranges = self._ranges_to_ingest(recorded, available)
        clock = processing_time(time.time_ns() // 1000, last and last.arrived_at)
        pieces = position.split_ranges(ranges, self._max_offsets(timeline))
        chunks = [self._create_chunk(piece, ranges, clock) for piece in pieces]
        chunks[0] = replace(chunks[0], position=with_losses(chunks[0].position, lost))
        # A loss, the first poll, and an advance of the watermark by time alone are recorded even
        # without records. After the first poll is recorded, lost records are detected.
        notes = bool(lost) or (recorded is None and bool(ranges))
        if recorded is None and not ranges and self.start != "earliest":
            # Record that there was no topic at this poll, so that later topics count as new and are
            # read from their first record.
            notes = True
            chunks = [replace(chunks[0], position=position.NO_TOPIC)]
        moves = last is not None and self._time_advances_watermark(last, clock)
        if position.count_offsets(ranges) or notes or moves:
            return chunks
        return []

    def prefetch(self, chunks: Sequence[Chunk]) -> None:
        self._prefetcher.begin_read([c.position for c in chunks])

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> pa.Table:
        rows, fields = self._prefetcher.take_result([c.position for c in chunks])
        self._undeclared_fields.clear()
        self._undeclared_fields.update(fields)
        return rows

    def undeclared_fields(self) -> Mapping[int, tuple[str, ...]]:
        return self._undeclared_fields

    def measure_lag(self, latest: str | None, timeout: float = TIMEOUT_SECONDS) -> Lag:
        """Return how far the event log is behind the topics.

        Args:
            latest: the position of the newest arrival; None before the first arrival.
            timeout: seconds within which the brokers must answer.

        Raises:
            DataError: a topic does not exist, or the brokers do not answer.
        """
        recorded = None if latest is None else position.parse_position(latest)
        available = Cluster(self.broker_addresses, self.client, timeout).read_topics(self.topics)
        ranges = self._ranges_to_ingest(recorded, available)
        waiting = dict[tuple[str, int], int]()
        for name, topic in ranges.items():
            if name not in available:
                continue
            for partition, (start, end) in topic.offsets.items():
                waiting[name, partition] = end - start
        return Lag(waiting, losses.find_losses(self._configured_topics(recorded), available))

    def decode_letters(self, letters: pa.Table) -> pa.Table:
        names = {"value": "bytes", "chunk": CHUNK}
        values = {f.name: letters[names.get(f.name, f.name)] for f in SCHEMA}
        records = pa.table([values[f.name].cast(f.type) for f in SCHEMA], schema=SCHEMA)
        return self._intake.decode_rows(records)

    def _read_in_memory(self, positions: Sequence[str], cancel: Event) -> tuple[pa.Table, Fields]:
        """Read the records at the given positions in this process, without the engine.

        Return their rows, and their fields that the source does not declare.
        """
        decoded = self._intake.read_rows(positions, cancel)
        self._check_not_recreated([position.parse_position(p) for p in positions])
        return decoded

    def _check_not_recreated(self, pieces: Sequence[Position]) -> None:
        """Raise if a topic was recreated since the poll that found the records.

        One check after the read covers everything that was read, because a topic ID is never
        reused.

        Raises:
            DataError: a topic was recreated.
        """
        read_topics = set[str]()
        for name, _, ranges in position.ranges_by_partition(pieces):
            if ranges[0][0] < ranges[-1][1]:
                read_topics.add(name)
        if not read_topics:
            return
        current_ids = self._cluster.read_topic_ids(sorted(read_topics))
        recreated = [name for name, id_ in current_ids.items() if id_ != pieces[0][name].id]
        if recreated:
            raise DataError(
                f"Topic '{recreated[0]}' was deleted and recreated while source "
                f"'{self.source.name}' read it. Start the ingest again: it reports which "
                "records are lost."
            )

    def _accepted_losses(self, recorded: Position | None, available: Position) -> list[str]:
        """Return descriptions of the records that Kafka lost since the position `recorded`.

        Raises:
            DataError: the user has not accepted one of the losses.
        """
        lost = losses.find_losses(self._configured_topics(recorded), available)
        words = [loss.message for loss in lost]
        if refused := self._acceptance.select_refused(words):
            refused_losses = [loss for loss in lost if loss.message in refused]
            raise DataError(losses.error_message(self.source.name, refused_losses))
        return words

    def _ranges_to_ingest(self, recorded: Position | None, available: Position) -> Position:
        """Return the range of offsets to ingest from each partition.

        Args:
            recorded: the newest recorded position, after which the ranges begin. If it is None,
                they begin at the connector's `start`.
            available: for each partition, the offsets from the first to the end offset.
        """
        start_offsets: Mapping[tuple[str, int], int] = {}
        if recorded is None:
            start_offsets = self._start_offsets(available)
        configured = self._configured_topics(recorded)
        # A topic that is no longer configured keeps its position, because it may be configured
        # again.
        unconfigured = dict[str, Topic]()
        for name, topic in (recorded or {}).items():
            if name not in configured:
                unconfigured[name] = topic
        ranges = dict(position.end_of(unconfigured))
        for name, topic in available.items():
            ingested: Mapping[int, position.Range] = {}
            if name in configured and configured[name].id == topic.id:
                ingested = configured[name].offsets
            offsets = dict[int, position.Range]()
            for partition, (low, end) in topic.offsets.items():
                start = start_offsets.get((name, partition), low)
                if partition in ingested:
                    start = ingested[partition][1]
                offsets[partition] = (min(max(start, low), end), end)
            # Kafka never removes partitions. If a partition is missing from a broker's stale
            # metadata, the partition keeps its position.
            for partition in ingested.keys() - offsets.keys():
                ingested_to = ingested[partition][1]
                offsets[partition] = (ingested_to, ingested_to)
            ranges[name] = Topic(topic.id, offsets)
        return ranges

    def _configured_topics(self, recorded: Position | None) -> Position:
        """Return the topics of a position that are still configured; none if `recorded` is None."""
        configured = dict[str, Topic]()
        for name, topic in (recorded or {}).items():
            if any(topic_matches(pattern, name) for pattern in self.topics):
                configured[name] = topic
        return configured

    def _create_chunk(self, piece: Position, ranges: Position, clock: int) -> Chunk:
        # All pieces of a poll have the poll's processing time. Without `waiting`, a partition might
        # count as idle although more of its records are in later pieces.
        name_partition = PLACES.get(self.source.watermark.group_column or "")
        waiting = dict[str, None]()
        if name_partition is not None:
            for topic, partition in position.unfinished_partitions(piece, ranges):
                waiting[name_partition(topic, partition)] = None
        rows = position.count_offsets(piece)
        return Chunk(position.to_json(piece), clock, rows=rows, waiting=tuple(waiting))

    def _max_offsets(self, timeline: Sequence[Arrival]) -> int:
        """Return the maximum number of offsets in an arrival, by the mean record size of the last
        arrival with rows.
        """
        newest = next((a for a in reversed(timeline) if a.rows), None)
        size = 1 if newest is None else max(newest.bytes // newest.rows, 1)
        return max(min(self.rows, thresholds.KAFKA_ARRIVAL_BYTES // size), 1)

    def _start_offsets(self, available: Position) -> Mapping[tuple[str, int], int]:
        """Return the offsets at which the first ingest starts, by topic and partition.

        A partition that is missing from the result starts at its first record.

        Args:
            available: for each partition, the offsets from the first to the end offset.
        """
        if self.start == "earliest":
            return {}
        if self.start == "latest":
            ends = dict[tuple[str, int], int]()
            for name, topic in available.items():
                for partition, (_, end) in topic.offsets.items():
                    ends[name, partition] = end
            return ends
        return self._cluster.offsets_since(parse_instant(self.start), available)

    def _time_advances_watermark(self, last_arrival: Arrival, clock: int) -> bool:
        """Return whether an arrival without records at the time `clock` advances the watermark."""
        state = last_arrival.watermark_state
        watermark_after = last_arrival.after
        return (
            self.source.watermark.advance(state, watermark_after, None, clock)[0] != watermark_after
        )

    @property
    def _value_format(self) -> Payload:
        if isinstance(self.format, str):
            return Json(self.options)
        return self.format

    @cached_property
    def broker_addresses(self) -> str:
        """The broker addresses, `host:port`, separated by commas."""
        return self.servers or Settings().kafka_servers

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self.broker_addresses, self.client)

    @cached_property
    def _undeclared_fields(self) -> dict[int, tuple[str, ...]]:
        return {}

    @cached_property
    def _acceptance(self) -> Acceptance:
        return Acceptance(is_accepted=self.accept_loss)

    @cached_property
    def _prefetcher(self) -> Prefetcher[tuple[pa.Table, Fields]]:
        return Prefetcher(self._read_in_memory)

    @cached_property
    def _intake(self) -> Intake:
        return Intake(self._reader, self.source, self._value_format, self.correlation)

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.broker_addresses, self.client, f"tidemark_{self.source.name}")
