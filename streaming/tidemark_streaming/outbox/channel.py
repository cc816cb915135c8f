"""The way into a topic: transactions of one producer, and the position that they carry.

A producer is known to the brokers by the asset and the topic. Opening it ends what an earlier one
of that name had begun: a transaction that was under way is undone, and a process that was thought
dead and comes back is refused from then on. Only afterwards is the position read, so it is right.
It says of which database the asset is: records have the name alone, so there is one in a topic.
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
from tidemark.base.failpoint import FAIL_AT, reach
from tidemark_streaming.kafka.client import PATIENCE, Brokers
from tidemark_streaming.kafka.cluster import READ_COMMITTED, Cluster
from tidemark_streaming.kafka.position import Topic
from tidemark_streaming.kafka.topic import KafkaTopic
from tidemark_streaming.outbox.position import Position, read
from tidemark_streaming.outbox.record import Record

_FENCED = (
    KafkaError._FENCED,
    # What a producer says of anything after it was refused once.
    KafkaError._FATAL,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_TXN_STATE,
)
_UNRIGHTED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)

_SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
_COMMIT = 60.0
"""Seconds for the brokers to finish a transaction."""

SETTLING = 10.0
"""Seconds for what other assets have under way among the positions."""

_MOMENT = 0.05
"""Seconds between two looks for what comes at once."""

_LAST = 100
"""Records of the topic of positions that are read at first, from its end backwards."""

T = TypeVar("T")


class Channel:
    """A way into a topic, for one asset.

    Args:
        asset: whose position it carries.
        place: the folder of the asset's database.
    """

    def __init__(self, topic: KafkaTopic, asset: str, place: str) -> None:
        self.topic = topic
        self.place = place
        # Of the producer, for the brokers: one at a time has it, of whatever database.
        self._name = f"tidemark {asset} {topic.name}"
        self._asset = asset
        self._brokers = Brokers(topic.at, topic.client)
        self._producer: Producer | None = None

    @property
    def is_open(self) -> bool:
        """Whether it may send."""
        return self._producer is not None

    def there(self) -> Topic | None:
        """The topic as it is now; None where it, or that of its positions, is not there.

        Raises:
            DataError: the brokers do not answer.
        """
        name, positions = self.topic.name, self.topic.positions
        if not self._cluster.has(name, positions):
            return None
        return self._cluster.topics([name])[name]

    def missing(self) -> DataError:
        """That the topics do not appear though they were made, which may take brokers a while."""
        return DataError(
            f"{self.topic} at {self.topic.at} was made, and does not appear.", passing=True
        )

    def position(self, *, anyones: bool = False, settled: bool = False) -> Position | None:
        """How far the topic is, by committed transactions; None where nothing was brought out.

        Args:
            anyones: also that of an asset of this name of another database.
            settled: wait until what other assets have under way among the positions has ended:
                what was committed after it began, the brokers do not tell before.

        Raises:
            DataError: the brokers do not answer, or that does not end soon.
            DefinitionError: it is that of such an asset.
        """
        self._brokers.listen()
        if settled:
            self._settle()
        found = self._last()
        if found is None or anyones or found.place in (None, self.place):
            return found
        raise DefinitionError(
            f"{self.topic} has '{self._asset}' of the database {found.place}, and who follows it "
            f"could not tell that of {self.place} from it: give this one another topic, or take "
            f"the topic over, for good, by `tidemark emit {self._asset} --anew`."
        )

    def _settle(self) -> None:
        ends, begun = partial(self._cluster.end, self.topic.positions, 0), time.monotonic()
        end = ends(IsolationLevel.READ_UNCOMMITTED)
        while ends(IsolationLevel.READ_COMMITTED) < end:
            if time.monotonic() - begun > SETTLING:
                raise self._unwritable(
                    "a transaction of another asset is under way in it, of a process that died or "
                    "does not get on; it ends within five minutes"
                )
            time.sleep(_MOMENT)

    def _last(self) -> Position | None:
        cluster, name = self._cluster, self.topic.positions
        if not cluster.has(name):
            return None
        first, end = cluster.topics([name])[name].offsets[0]
        back = _LAST
        while first < end:
            start = max(first, end - back)
            found = self._newest(start, end)
            if found is not None or start == first:
                return read(found)
            back *= 10
        return None

    def open(self) -> None:
        """Make the topics, unless they are there, and end what an earlier producer had begun.

        Raises:
            DataError: the brokers do not answer, or refuse.
        """
        self._brokers.listen()
        self._prepare()
        usual = {
            # A large backfill goes out in one transaction, which no broker is to end before.
            "transaction.timeout.ms": "300000",
            "linger.ms": "5",
            "compression.type": "lz4",
        }

        def begin(name: str) -> Producer:
            # Without a logger it writes to stderr that it was refused, which is told here.
            producer = self._brokers.connect(Producer, usual, transactional_id=name, logger=_SILENT)
            self._ask(lambda: producer.init_transactions(PATIENCE * 2))
            self._brokers.answered()
            return producer

        last = self._last()
        if last is not None and last.place is None:
            # Who wrote that had a name by its database, and may still be at work.
            database = self.place.rpartition("/")[2]
            begin(f"tidemark {database}.{self._asset} {self.topic.name}")
        self._producer = begin(self._name)

    def send(self, records: Iterable[Record], position: Callable[[], Position]) -> int:
        """Produce records and the position after them in one transaction: how many.

        Raises:
            ConflictError: another process brings the asset out by now.
            DataError: the brokers do not answer; whether it was committed, the position tells.
        """
        producer = self._producer
        assert producer is not None
        self._brokers.listen()
        count = 0
        try:
            reach("emit")
            self._ask(producer.begin_transaction)
            for record in records:
                self._produce(producer, self.topic.name, record)
                count += 1
            where = Record(self._asset.encode(), position().written(), 0)
            self._produce(producer, self.topic.positions, where)
            if os.environ.get(FAIL_AT):
                # What the fail points are about is at the brokers.
                self._ask(lambda: producer.flush(_COMMIT))
            reach("emitted")
            self._ask(lambda: producer.commit_transaction(_COMMIT))
            self._brokers.answered()
            reach("noted")
        except BaseException:
            # What becomes of it is settled by the next one that opens.
            self._producer = None
            producer.purge()
            raise
        return count

    def close(self) -> None:
        """Let go of the producer."""
        self._producer = None

    @cached_property
    def _cluster(self) -> Cluster:
        # What was undone says nothing of how far the topic is, whatever else this client reads.
        client = {k: v for k, v in self.topic.client.items() if k != "isolation.level"}
        return Cluster(self.topic.at, client)

    def _produce(self, producer: Producer, topic: str, record: Record) -> None:
        def put() -> None:
            producer.produce(topic, record.value, record.key, record.partition)

        while True:
            try:
                self._ask(put)
            except BufferError:
                self._ask(lambda: producer.poll(0.1))
            else:
                # A refusal may be told here as well.
                self._ask(lambda: producer.poll(0))
                return

    def _prepare(self) -> None:
        cluster = self._cluster
        forever = {"retention.ms": "-1"}
        wanted = [
            NewTopic(self.topic.name, self.topic.partitions, -1, config=forever),
            NewTopic(self.topic.positions, 1, -1, config={"cleanup.policy": "compact"}),
        ]
        missing = [topic for topic in wanted if not cluster.has(topic.topic)]
        if not missing:
            return
        admin = self._brokers.connect(AdminClient)
        for name, made in admin.create_topics(missing, request_timeout=PATIENCE).items():
            self._ask(
                lambda made=made: made.result(PATIENCE + 1),
                KafkaError.TOPIC_ALREADY_EXISTS,
                making=name,
            )
        deadline = time.monotonic() + PATIENCE
        while not cluster.has(*(topic.topic for topic in missing)):
            if time.monotonic() > deadline:
                raise self.missing()
            time.sleep(_MOMENT)

    def _newest(self, start: int, end: int) -> bytes | None:
        """The asset's last position among the records [start, end)."""
        usual = {
            "group.id": self._name,
            # By default the brokers wait half a second for more before they tell that it ends.
            "fetch.wait.max.ms": "10",
        }
        consumer = self._brokers.connect(
            Consumer,
            usual,
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="earliest",
            isolation_level=READ_COMMITTED,
        )
        found: bytes | None = None
        try:
            consumer.assign([TopicPartition(self.topic.positions, 0, start)])
            heard = time.monotonic()
            while True:
                message = consumer.poll(0.5)
                if message is None:
                    if time.monotonic() - heard > PATIENCE * 2:
                        raise self._unwritable("its positions do not come")
                    continue
                heard = time.monotonic()
                error = message.error()
                reached = message.offset() or 0
                if error is None:
                    self._brokers.answered()
                    own = message.key() == self._asset.encode()
                    found, reached = message.value() if own else found, reached + 1
                elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    # The client looks for its group, which nothing here goes by.
                    continue
                elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise self._forbidden("read from", "Read", self.topic.positions)
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise self._unwritable(error.str())
                # Another broker that has come to lead the partition may tell an end before this one
                # for a moment: what is missing is still to come.
                if reached >= end:
                    return found
        finally:
            consumer.close()

    def _ask(
        self, question: Callable[[], T], *passed_over: int, making: str | None = None
    ) -> T | None:
        try:
            return question()
        except KafkaException as failure:
            error: Any = failure.args[0]
            if error.code() in passed_over:
                return None
            if error.code() in _UNRIGHTED:
                raise self._unrighted(error, making) from None
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise self._refused(
                    "a window's record is larger than it takes. Leave out what makes windows large "
                    "(collect, a long top_k), or let it take more: message.max.bytes in the "
                    "topic's client, and max.message.bytes of the topic itself"
                ) from None
            if error.code() in _FENCED:
                raise ConflictError(
                    f"Another process brings '{self._asset}' out to {self.topic} by now."
                ) from None
            raise self._unwritable(error.str()) from None
        except TimeoutError:
            raise self._unwritable("no answer") from None

    def _unrighted(self, error: KafkaError, making: str | None) -> DataError:
        """That this client may not do what it asked for."""
        user = self._brokers.user
        if error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return self._forbidden("write by", "Write", self._name, "transactional-id")
        if making is not None:
            return self._refused(
                f"topic '{making}' is not there, or {user} may not see it; and that user may not "
                "make it. Make it, or allow that user Create on it; and allow Write, if that is "
                "what it lacks (kafka-acls --add --operation Write --topic)"
            )
        return self._refused(
            f"{user} may not write to '{self.topic.name}', or not to '{self.topic.positions}'. "
            "Allow that user Write on both (kafka-acls --add --operation Write --topic)"
        )

    def _forbidden(self, doing: str, operation: str, name: str, kind: str = "topic") -> DataError:
        what = kind.replace("-", " ")
        return self._refused(
            f"{self._brokers.user} may not {doing} the {what} '{name}'. Allow that user "
            f"{operation} on it (kafka-acls --add --operation {operation} --{kind} '{name}')"
        )

    def _refused(self, sentence: str) -> DataError:
        return DataError(f"{self.topic} at {self.topic.at} can't be written: {sentence}.")

    def _unwritable(self, reason: str) -> DataError:
        refused = self._brokers.refusal()
        return refused or DataError(
            f"{self.topic} at {self.topic.at} can't be written: {reason.rstrip('.')}. The tables "
            "are as they should be, and what is missing there goes out when the brokers answer.",
            passing=True,
        )
