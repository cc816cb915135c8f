"""Query the IDs, partitions and offsets of a Kafka cluster's topics, and create topics."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    OffsetSpec,  # pyright: ignore[reportPrivateImportUsage] (documented, and not in `__all__`)
)
from confluent_kafka.cimpl import NewTopic

from tidemark.base.errors import DataError, DefinitionError
from tidemark_streaming.base.kafka_position import Topic
from tidemark_streaming.kafka.client import TIMEOUT_SECONDS, Brokers, Properties

_STEP = 1.0
"""Seconds that one request may take before the errors of the brokers are checked."""

_POLL_SECONDS = 0.05
"""Seconds between two polls for a topic that was just created."""

READ_COMMITTED = "read_committed"
_T = TypeVar("_T")

_LEADERLESS = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)
"""Temporary errors of a partition that is new or whose leadership moves to another broker."""


class Cluster:
    """The topics of a Kafka cluster that a client with these properties may see.

    Args:
        servers: `host:port`, several separated by commas.
        timeout: seconds within which the brokers must answer.
    """

    def __init__(self, servers: str, client: Properties, timeout: float = TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self._brokers = Brokers(servers, client)
        isolation = str(client.get("isolation.level", READ_COMMITTED)).upper()
        if isolation not in IsolationLevel.__members__:
            raise DefinitionError(
                "isolation.level in the `client` properties must be read_committed or "
                f"read_uncommitted (got '{isolation.lower()}')."
            )
        self._isolation = IsolationLevel[isolation]
        self._admin = self._brokers.connect_client(AdminClient)

    def read_topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Return topics by name. The range of each partition is from its first to its end offset.

        Records of open transactions are after the end offset, unless `isolation.level` is
        read_uncommitted.

        Args:
            names: the names of topics; a name that begins with `^` is a pattern that must match
                whole names.
        """
        existing = self._list_topics()
        matching = list[str]()
        for name in names:
            matching += self._matching_topics(name, existing)
        if not matching:
            return {}
        futures = self._admin.describe_topics(
            TopicCollection(matching), request_timeout=self._timeout
        )
        ids = dict[str, str]()
        numbers = dict[str, list[int]]()
        for name, future in futures.items():
            description = self._await_result(future, name)
            ids[name] = str(description.topic_id)
            numbers[name] = sorted(partition.id for partition in description.partitions)
        first = self._list_offsets(numbers, OFFSET_BEGINNING)
        end = self._list_offsets(numbers, OFFSET_END)
        topics = dict[str, Topic]()
        for name, partitions in numbers.items():
            ranges = {number: (first[name, number], end[name, number]) for number in partitions}
            topics[name] = Topic(ids[name], ranges)
        return topics

    def read_topic_ids(self, names: list[str]) -> dict[str, str]:
        """Return the IDs of topics by name, except for topics that do not exist. This is one
        request, which takes a millisecond.
        """
        futures = self._admin.describe_topics(TopicCollection(names), request_timeout=self._timeout)
        ids = dict[str, str]()
        for name, future in futures.items():
            code = _error_code(self._await_failure(future))
            if code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                ids[name] = str(self._await_result(future, name).topic_id)
        return ids

    def has_topics(self, *names: str) -> bool:
        """Return whether all of the named topics exist."""
        existing = self._list_topics()
        return all(name in existing for name in names)

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create the wanted topics that do not exist, and wait until they can be used."""
        existing = self._list_topics()
        missing = [topic for topic in topics if topic.topic not in existing]
        if not missing:
            return
        futures = self._admin.create_topics(missing, request_timeout=self._timeout)
        for name, future in futures.items():
            error = self._await_failure(future)
            # Another process may have created the topic in the meantime.
            if error is not None and _error_code(error) != KafkaError.TOPIC_ALREADY_EXISTS:
                self._await_result(future, name)
        begun = time.monotonic()
        while True:
            try:
                self.read_topics([topic.topic for topic in missing])
                return
            except DataError:
                # A new topic's partitions have no leader for a moment.
                if time.monotonic() - begun > self._timeout:
                    raise
                time.sleep(_POLL_SECONDS)

    def offsets_since(
        self, instant: int, topics: Mapping[str, Topic]
    ) -> dict[tuple[str, int], int]:
        """Return the offset of each partition's first record at or after an instant in
        microseconds, or the end offset of the partition if all records are earlier."""
        partitions = {name: topic.offsets for name, topic in topics.items()}
        offsets = self._list_offsets(partitions, max(instant // 1000, 0))
        for (name, number), offset in offsets.items():
            # All records of the partition are earlier.
            if offset < 0:
                offsets[name, number] = topics[name].offsets[number][1]
        return offsets

    def end_offset(self, name: str, partition: int, isolation: IsolationLevel) -> int:
        """Return the end offset of a partition at an isolation level. Records of open transactions
        lie before the end only with READ_UNCOMMITTED.
        """
        return self._list_offsets({name: [partition]}, OFFSET_END, isolation)[name, partition]

    def _list_offsets(
        self,
        partitions: Mapping[str, Iterable[int]],
        which: int,
        isolation: IsolationLevel | None = None,
    ) -> dict[tuple[str, int], int]:
        """Return an offset of each partition, by topic and partition.

        Args:
            which: OFFSET_BEGINNING, OFFSET_END, or an instant in milliseconds, which stands for the
                first record at or after it. Without such a record, the offset is negative.
            isolation: the isolation level; by default that of the client's properties.
        """
        specs = {OFFSET_BEGINNING: OffsetSpec.earliest(), OFFSET_END: OffsetSpec.latest()}
        spec: Any = specs.get(which) or OffsetSpec.for_timestamp(which)
        requests = dict[TopicPartition, Any]()
        for topic, numbers in partitions.items():
            for number in numbers:
                requests[TopicPartition(topic, number)] = spec
        begun = time.monotonic()
        while True:
            futures = self._admin.list_offsets(
                requests,
                isolation_level=isolation or self._isolation,
                request_timeout=self._timeout,
            )
            codes = [_error_code(self._await_failure(future)) for future in futures.values()]
            is_leaderless = any(code in _LEADERLESS for code in codes)
            if not is_leaderless or time.monotonic() - begun > self._timeout:
                break
            time.sleep(_POLL_SECONDS)
        offsets = dict[tuple[str, int], int]()
        for partition, future in futures.items():
            answer = self._await_result(future, partition.topic)
            offsets[partition.topic, partition.partition] = answer.offset
        if OFFSET_INVALID in offsets.values():
            # The client reports a timeout this way, without an error.
            raise self._brokers.unreachable_error(TimeoutError("not all offsets were received"))
        return offsets

    def _list_topics(self) -> Mapping[str, Any]:
        """Return the metadata of all topics that this client may see, by name."""
        self._brokers.forget_errors()
        begun = time.monotonic()
        while True:
            try:
                existing = self._admin.list_topics(timeout=_STEP).topics
            except KafkaException as error:
                # Runs the error callback, which records the errors of the brokers.
                self._admin.poll(0)
                late = time.monotonic() - begun > self._timeout
                if late or self._brokers.explain_rejection() is not None:
                    raise self._brokers.unreachable_error(error) from None
            else:
                self._brokers.record_response()
                return existing

    def _matching_topics(self, name: str, existing: Mapping[str, Any]) -> list[str]:
        user_topics = sorted(t for t in existing if not t.startswith("__"))
        if name.startswith("^"):
            return [topic for topic in user_topics if topic_matches(name, topic)]
        if name in existing:
            return [name]
        # A topic that this client may not see is missing from the list. Only a request for the
        # topic itself reports the missing permission.
        futures = self._admin.describe_topics(
            TopicCollection([name]), request_timeout=self._timeout
        )
        if _error_code(self._await_failure(futures[name])) == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise self._brokers.forbidden_error(name)
        raise DataError(
            f"There is no topic '{name}' at {self._brokers.servers}. Available: "
            f"{', '.join(user_topics) or 'none'}. Create it, or correct the connector's `topics`."
        )

    def _await_failure(self, future: "Future[Any]") -> BaseException | None:
        """Return why a request failed or timed out, or None if it succeeded."""
        try:
            return future.exception(self._timeout + 1)
        except TimeoutError as late:
            return late

    def _await_result(self, future: "Future[_T]", topic: str) -> _T:
        try:
            return future.result(self._timeout + 1)
        except (KafkaException, TimeoutError) as error:
            if _error_code(error) == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise self._brokers.forbidden_error(topic) from None
            raise self._brokers.unreachable_error(error) from None


def _error_code(error: BaseException | None) -> int | None:
    """Return the Kafka error code of an error; None if there is no error or no Kafka error code."""
    cause = error.args[0] if error is not None and error.args else None
    if isinstance(cause, KafkaError):
        return cause.code()
    return None


def topic_matches(name: str, topic: str) -> bool:
    """Return whether a configured topic name or pattern matches this topic."""
    if name.startswith("^"):
        return bool(re.fullmatch(name[1:], topic))
    return name == topic
