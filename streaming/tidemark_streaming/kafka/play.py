"""Play a recording through Kafka: each of its spans is one transaction and one arrival.

The next span is sent after the previous one is in the event log, so at most one span waits in the
topic. After a kill at any point, the next run ingests the waiting span or sends it again as a
whole. A transaction that was not committed leaves no records.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.base import kafka_position as position
from tidemark_streaming.connector import Chunk, Excerpt, Ingestion, Span
from tidemark_streaming.ingest.ingest import Ingested, fill_lookup_tables, ingest_each
from tidemark_streaming.ingest.play import no_recording
from tidemark_streaming.kafka.client import TIMEOUT_SECONDS, client_properties, unreachable_error
from tidemark_streaming.kafka.cluster import Cluster
from tidemark_streaming.kafka.connector import KafkaConnector

PARTITIONS = 3


@dataclass(frozen=True)
class PlayedConnector:
    """A connector that reads one span of a recording from its topic.

    The arrivals have the processing time of the recording, not that of the poll. An empty span
    becomes an arrival without records.

    Args:
        connector: the connector that reads the topic.
        clock: the processing time of the arrivals, in microseconds.
    """

    connector: KafkaConnector
    clock: int
    protects: ClassVar[bool] = True

    @property
    def source(self) -> Source:
        return self.connector.source

    def list_pending(self, timeline: Sequence[Arrival]) -> list[Chunk]:
        newest = position.end_of(position.parse_position(timeline[-1].position)) if timeline else {}
        chunks = self.connector.list_pending(timeline) or [Chunk(position.to_json(newest), 0)]
        return [replace(chunk, arrived_at=self.clock) for chunk in chunks]

    def read(self, spark: SparkSession, chunks: Sequence[Chunk]) -> pa.Table:
        return self.connector.read(spark, chunks)


@dataclass(frozen=True)
class Stage:
    """The topic through which a recording is played.

    Args:
        servers: the brokers, `host:port`, several separated by commas.
        topic: the name of the topic, which is created if it does not exist.
        key: the column that partitions the records.
    """

    servers: str
    topic: str
    key: str


def play_through_topic(
    warehouse: Warehouse, ingestion: Ingestion, stage: Stage, excerpt: Excerpt
) -> Generator[Ingested]:
    """Play recorded data through a topic into the event log, as JSON with the source's columns.

    Args:
        excerpt: the part of the recording to play. It must begin with the first span that is not
            in the event log yet.

    Yields:
        The result of each ingested arrival.
    """
    if ingestion.spans is None:
        raise no_recording(ingestion.source)
    fill_lookup_tables(warehouse, ingestion)
    _create_topic(stage)
    connector = KafkaConnector(ingestion.source, [stage.topic], servers=stage.servers)
    log = Log(warehouse, ingestion.source)
    log.ensure_tables()
    # Taking over the transactional ID commits or aborts a transaction that another process left
    # open. The poll below must come after it.
    sender = _Sender(stage)
    waiting = any(chunk.rows for chunk in connector.list_pending(log.read_timeline()))
    sent = _send_spans(ingestion.spans(excerpt), sender, waiting)
    connectors = ((PlayedConnector(connector, span.ends), span.number, span.total) for span in sent)
    yield from ingest_each(warehouse, ingestion.source, connectors)


def _send_spans(spans: Iterator[Span], sender: "_Sender", waiting: bool) -> Iterator[Span]:
    """Send each span to the topic, then yield it.

    Args:
        waiting: true if the first span is in the topic already.
    """
    for span in spans:
        if not waiting:
            sender.send_span(span)
        waiting = False
        yield span


class _Sender:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        properties = {"transactional.id": f"tidemark_play_{stage.topic}", "linger.ms": 5}
        self._producer = Producer({**client_properties(stage.servers, {}), **properties})
        self._cluster = Cluster(stage.servers, {})
        self._ends: dict[int, int] = {}
        self._call_client(lambda: self._producer.init_transactions(TIMEOUT_SECONDS))

    def send_span(self, span: Span) -> None:
        """Send the records of a span, and wait until a read_committed consumer can see them. Do
        nothing if the span is empty."""
        if span.records.empty:
            return
        lines = span.records.to_json(orient="records", lines=True).splitlines()
        keys = span.records[self._stage.key].astype(str)
        self._call_client(self._producer.begin_transaction)
        for key, line in zip(keys, lines, strict=True):
            self._producer.produce(self._stage.topic, line, key, on_delivery=self._record_delivery)
        self._call_client(lambda: self._producer.commit_transaction(TIMEOUT_SECONDS))
        # The commit returns once the coordinator has recorded it; the partitions follow a moment
        # later.
        while not self._is_visible():
            time.sleep(0.005)

    def _record_delivery(self, error: KafkaError | None, record: Message) -> None:
        sent_record: Any = record
        if error is None:
            self._ends[sent_record.partition()] = sent_record.offset() + 1

    def _is_visible(self) -> bool:
        available = self._cluster.read_topics([self._stage.topic])[self._stage.topic].offsets
        return all(available[partition][1] >= end for partition, end in self._ends.items())

    def _call_client(self, question: Callable[[], object]) -> None:
        try:
            question()
        except KafkaException as error:
            raise unreachable_error(self._stage.servers, error) from None


def _create_topic(stage: Stage) -> None:
    """Create the topic if it does not exist. The topic keeps its records forever, because Kafka
    does not know which of them were ingested: only the event log does."""
    admin = AdminClient(client_properties(stage.servers, {}))
    topic = NewTopic(stage.topic, PARTITIONS, 1, config={"retention.ms": "-1"})
    try:
        if stage.topic not in admin.list_topics(timeout=TIMEOUT_SECONDS).topics:
            admin.create_topics([topic])[stage.topic].result(TIMEOUT_SECONDS + 1)
    except (KafkaException, TimeoutError) as error:
        raise unreachable_error(stage.servers, error) from None
