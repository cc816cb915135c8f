"""Send an asset's records to a Kafka topic in transactions, each with the new `Position`.

The producer's transactional ID consists of the asset and the topic. Opening a producer aborts the
open transaction of an earlier producer with that ID, and fences it: if a process that seemed dead
continues, the brokers refuse its writes. The position is read only after that, so no earlier
producer can change it any more.

The position names the asset's database, but records have only the asset's name. A topic can
therefore have only one asset of each name.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidemark.base.errors import ConflictError, DataError, DefinitionError
from tidemark.base.failpoint import FAIL_AT, pass_fail_point
from tidemark_streaming.base.kafka_position import Topic
from tidemark_streaming.kafka.client import TIMEOUT_SECONDS, Brokers
from tidemark_streaming.kafka.cluster import READ_COMMITTED, Cluster
from tidemark_streaming.kafka.topic import KafkaSink
from tidemark_streaming.sink.position import Position, parse_position
from tidemark_streaming.sink.record import Record

_FENCED = (
    KafkaError._FENCED,
    # Every call of a producer fails with this error after the producer was fenced.
    KafkaError._FATAL,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_TXN_STATE,
)
_UNAUTHORIZED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)

_SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
_COMMIT_SECONDS = 60.0
"""Maximum number of seconds in which the brokers must finish a transaction."""

OPEN_TRANSACTION_SECONDS = 10.0
"""Seconds to wait for open transactions of other assets in the topic of positions."""

_POLL_SECONDS = 0.05
"""Seconds between two polls for a change that is expected immediately."""

_TAIL_RECORDS = 100
"""The number of records to read first from the end of the topic of positions."""

_T = TypeVar("_T")


class TransactionalTopic:
    """An asset's transactional connection to a topic.

    Args:
        asset: the asset's name. Each transaction also writes the asset's position (`Position`).
        database: the location and name of the database that has the asset's tables.
        timeout: seconds within which the brokers must answer a request; some seconds by default.
    """

    def __init__(
        self, topic: KafkaSink, asset: str, database: str, timeout: float | None = None
    ) -> None:
        self.topic = topic
        self.place = database
        self._timeout = timeout
        # The transactional ID: one producer at a time can have it, across all databases.
        self._name = f"tidemark {asset} {topic.name}"
        self._asset = asset
        self._brokers = Brokers(topic.broker_addresses, topic.client)
        self._producer: Producer | None = None

    @property
    def is_open(self) -> bool:
        """Return whether the connection can send."""
        return self._producer is not None

    def find_topic(self) -> Topic | None:
        """Return the current topic; None if the topic or its topic of positions does not exist."""
        name = self.topic.name
        positions = self.topic.positions_topic
        if not self._cluster.has_topics(name, positions):
            return None
        return self._cluster.read_topics([name])[name]

    def missing_error(self) -> DataError:
        """Return the error for topics that were created but that the brokers do not list yet. It
        may take a while until the brokers list them.
        """
        return DataError(
            f"{self.topic} at {self.topic.broker_addresses} was created, but the brokers do not "
            "list it yet. Publish again in a minute.",
            retriable=True,
        )

    def read_position(
        self, *, any_database: bool = False, wait_for_transactions: bool = False
    ) -> Position | None:
        """Return the position of the last committed transaction, or None if nothing was published.

        Args:
            any_database: accept the position of an asset with the same name in another database.
            wait_for_transactions: wait until open transactions of other assets in the topic of
                positions have ended. Brokers hide records that were committed after such a
                transaction began.
        """
        self._brokers.forget_errors()
        if wait_for_transactions:
            self._await_open_transactions()
        stored = self._last_position()
        if stored is None or any_database or stored.place == self.place:
            return stored
        raise DefinitionError(
            f"{self.topic} already has windows of '{self._asset}' from another database, "
            f"{stored.place}. Consumers could not distinguish them from the windows of this "
            f"database, {self.place}. Give this asset another topic, or take over the topic "
            f"permanently with `tidemark sink {self._asset} --reset`."
        )

    def _await_open_transactions(self) -> None:
        ends = partial(self._cluster.end_offset, self.topic.positions_topic, 0)
        begun = time.monotonic()
        end = ends(IsolationLevel.READ_UNCOMMITTED)
        while ends(IsolationLevel.READ_COMMITTED) < end:
            if time.monotonic() - begun > OPEN_TRANSACTION_SECONDS:
                raise self._retriable_write_error(
                    "another asset's producer has an open transaction in "
                    f"'{self.topic.positions_topic}', because its process died or hangs; the "
                    "broker aborts the transaction within five minutes"
                )
            time.sleep(_POLL_SECONDS)

    def _last_position(self) -> Position | None:
        cluster = self._cluster
        name = self.topic.positions_topic
        if not cluster.has_topics(name):
            return None
        first, end = cluster.read_topics([name])[name].offsets[0]
        back = _TAIL_RECORDS
        while first < end:
            start = max(first, end - back)
            stored = self._last_value(start, end)
            if stored is not None or start == first:
                return parse_position(stored)
            back *= 10
        return None

    def open_producer(self) -> None:
        """Create the missing topics, open the producer, and fence earlier producers."""
        self._brokers.forget_errors()
        self._create_topics()
        usual = {
            # A large backfill is one transaction, which the broker must not abort early.
            "transaction.timeout.ms": "300000",
            "linger.ms": "5",
            "compression.type": "lz4",
        }

        def begin_producer(name: str) -> Producer:
            # Without a logger, the client would also write the brokers' refusal to stderr. The
            # exception reports it already.
            producer = self._brokers.connect_client(
                Producer, usual, transactional_id=name, logger=_SILENT
            )
            self._call_client(lambda: producer.init_transactions(TIMEOUT_SECONDS * 2))
            self._brokers.record_response()
            return producer

        self._producer = begin_producer(self._name)

    def send_transaction(self, records: Iterable[Record], position: Callable[[], Position]) -> int:
        """Produce records and the new position in one transaction. Return the number of records.

        Args:
            position: returns the new position; called after all records were produced.
        """
        producer = self._producer
        assert producer is not None
        self._brokers.forget_errors()
        count = 0
        try:
            pass_fail_point("send")
            self._call_client(producer.begin_transaction)
            for record in records:
                self._produce_record(producer, self.topic.name, record)
                count += 1
            where = Record(self._asset.encode(), position().to_json(), 0)
            self._produce_record(producer, self.topic.positions_topic, where)
            if os.environ.get(FAIL_AT):
                # At the fail points, the records must have reached the brokers.
                self._call_client(lambda: producer.flush(_COMMIT_SECONDS))
            pass_fail_point("sent")
            self._call_client(lambda: producer.commit_transaction(_COMMIT_SECONDS))
            self._brokers.record_response()
            pass_fail_point("committed")
        except BaseException:
            # The next producer aborts this transaction when it opens.
            self._producer = None
            producer.purge()
            raise
        return count

    def close(self) -> None:
        """Release the producer."""
        self._producer = None

    @cached_property
    def _cluster(self) -> Cluster:
        # The position must come from committed transactions, even if another isolation level is
        # configured.
        client = {k: v for k, v in self.topic.client.items() if k != "isolation.level"}
        if self._timeout is None:
            return Cluster(self.topic.broker_addresses, client)
        return Cluster(self.topic.broker_addresses, client, self._timeout)

    def _produce_record(self, producer: Producer, topic: str, record: Record) -> None:
        def put_record() -> None:
            producer.produce(topic, record.value, record.key, record.partition)

        while True:
            try:
                self._call_client(put_record)
            except BufferError:
                self._call_client(lambda: producer.poll(0.1))
            else:
                # The call may also report that the brokers refused an earlier record.
                self._call_client(lambda: producer.poll(0))
                return

    def _create_topics(self) -> None:
        cluster = self._cluster
        forever = {"retention.ms": "-1"}
        needed = [
            NewTopic(self.topic.name, self.topic.partitions, -1, config=forever),
            NewTopic(self.topic.positions_topic, 1, -1, config={"cleanup.policy": "compact"}),
        ]
        missing = [topic for topic in needed if not cluster.has_topics(topic.topic)]
        if not missing:
            return
        admin = self._brokers.connect_client(AdminClient)
        for name, created in admin.create_topics(missing, request_timeout=TIMEOUT_SECONDS).items():
            self._call_client(
                lambda created=created: created.result(TIMEOUT_SECONDS + 1),
                KafkaError.TOPIC_ALREADY_EXISTS,
                making=name,
            )
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not cluster.has_topics(*(topic.topic for topic in missing)):
            if time.monotonic() > deadline:
                raise self.missing_error()
            time.sleep(_POLL_SECONDS)

    def _last_value(self, start: int, end: int) -> bytes | None:
        """Return the asset's last position among the records [start, end)."""
        usual = {
            "group.id": self._name,
            # By default the brokers wait half a second for more records before they report the end.
            "fetch.wait.max.ms": "10",
        }
        consumer = self._brokers.connect_client(
            Consumer,
            usual,
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="earliest",
            isolation_level=READ_COMMITTED,
        )
        last_value: bytes | None = None
        try:
            consumer.assign([TopicPartition(self.topic.positions_topic, 0, start)])
            heard = time.monotonic()
            while True:
                message = consumer.poll(0.5)
                if message is None:
                    if time.monotonic() - heard > TIMEOUT_SECONDS * 2:
                        raise self._retriable_write_error(
                            f"no answer when reading topic '{self.topic.positions_topic}'"
                        )
                    continue
                heard = time.monotonic()
                error = message.error()
                reached = message.offset() or 0
                if error is None:
                    self._brokers.record_response()
                    is_own = message.key() == self._asset.encode()
                    last_value = message.value() if is_own else last_value
                    reached = reached + 1
                elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    # The client looks up its consumer group although nothing here uses the group.
                    continue
                elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise self._forbidden_error("read from", "Read", self.topic.positions_topic)
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise self._retriable_write_error(error.str())
                # After a change of leader, a broker may briefly report an earlier end. The missing
                # records are still to come.
                if reached >= end:
                    return last_value
        finally:
            consumer.close()

    def _call_client(
        self, question: Callable[[], _T], *passed_over: int, making: str | None = None
    ) -> _T | None:
        try:
            return question()
        except KafkaException as failure:
            error: Any = failure.args[0]
            if error.code() in passed_over:
                return None
            if error.code() in _UNAUTHORIZED:
                raise self._permission_error(error, making) from None
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise self._write_error(
                    "a window's record is larger than the topic accepts. Remove aggregates that "
                    "make windows large (collect, a long top_k), or raise the limits: "
                    "message.max.bytes in the topic's `client`, and max.message.bytes of the topic "
                    "itself"
                ) from None
            if error.code() in _FENCED:
                raise ConflictError(
                    f"Another process now publishes '{self._asset}' to {self.topic}, and only one "
                    "may. Stop the other process, or this one."
                ) from None
            raise self._retriable_write_error(error.str()) from None
        except TimeoutError:
            raise self._retriable_write_error("no response") from None

    def _permission_error(self, error: KafkaError, making: str | None) -> DataError:
        user = self._brokers.user_name
        if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return self._forbidden_error("write with", "Write", self._name, "transactional-id")
        if making is not None:
            return self._write_error(
                f"topic '{making}' does not exist, or {user} may not see it; and that user may not "
                "create it. Create the topic, or allow that user Create on it. Also allow Write if "
                "it is missing (kafka-acls --add --operation Write --topic)"
            )
        return self._write_error(
            f"{user} may not write to '{self.topic.name}' or to '{self.topic.positions_topic}'. "
            "Allow that user Write on both (kafka-acls --add --operation Write --topic)"
        )

    def _forbidden_error(
        self, doing: str, operation: str, name: str, kind: str = "topic"
    ) -> DataError:
        resource = kind.replace("-", " ")
        return self._write_error(
            f"{self._brokers.user_name} may not {doing} the {resource} '{name}'. Allow that user "
            f"{operation} on it (kafka-acls --add --operation {operation} --{kind} '{name}')"
        )

    def _write_error(self, message: str) -> DataError:
        return DataError(
            f"{self.topic} at {self.topic.broker_addresses} can't be written: {message}."
        )

    def _retriable_write_error(self, reason: str) -> DataError:
        refused = self._brokers.explain_rejection()
        return refused or DataError(
            f"{self.topic} at {self.topic.broker_addresses} can't be written: "
            f"{reason.rstrip('.')}. The tables are up to date; the missing changes are published "
            "when the brokers respond.",
            retriable=True,
        )
