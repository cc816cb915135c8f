"""What a Kafka cluster says of topics: their ids, partitions and offsets."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
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

from tidemark.base.errors import DataError
from tidemark_streaming.kafka.position import Topic

PATIENCE = 10.0
"""Seconds after which brokers that don't answer are an error."""

READ_COMMITTED = "read_committed"
T = TypeVar("T")


class Cluster:
    """The brokers, as one client sees them.

    Args:
        servers: `host:port`, several separated by commas.
        client: more properties of the client.
    """

    def __init__(self, servers: str, client: Mapping[str, str]) -> None:
        self.servers = servers
        isolation = client.get("isolation.level", READ_COMMITTED)
        self._isolation = IsolationLevel[isolation.upper()]
        self._admin = AdminClient(configured(servers, client))

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """The topics of these names, each partition from its first offset to its end.

        The end is that of committed transactions, unless the client reads what is not.

        Args:
            names: topics; one that begins with `^` is a pattern of whole names.

        Raises:
            DataError: a topic is not there, or the cluster can't be asked.
        """
        there = self._ask(lambda: self._admin.list_topics(timeout=PATIENCE)).topics
        found = [t for name in names for t in self._matching(name, there)]
        if not found:
            return {}
        asked = self._admin.describe_topics(TopicCollection(found), request_timeout=PATIENCE)
        told = {name: self._result(future) for name, future in asked.items()}
        numbers = {name: [p.id for p in topic.partitions] for name, topic in told.items()}
        first, end = self._offsets(numbers, OFFSET_BEGINNING), self._offsets(numbers, OFFSET_END)
        return {
            name: Topic(
                str(topic.topic_id),
                {p: (first[name, p], end[name, p]) for p in sorted(numbers[name])},
            )
            for name, topic in told.items()
        }

    def since(self, instant: int, topics: Mapping[str, Topic]) -> dict[tuple[str, int], int]:
        """Of each topic and partition the offset of the first record that is not before an
        instant, in microseconds; the end where all are."""
        found = self._offsets({n: t.offsets for n, t in topics.items()}, max(instant // 1000, 0))
        return {(n, p): o if o >= 0 else topics[n].offsets[p][1] for (n, p), o in found.items()}

    def _offsets(
        self, partitions: Mapping[str, Iterable[int]], of: int
    ) -> dict[tuple[str, int], int]:
        """The offsets that are the first, the end, or those of an instant in milliseconds."""
        known = {OFFSET_BEGINNING: OffsetSpec.earliest(), OFFSET_END: OffsetSpec.latest()}
        spec: Any = known.get(of) or OffsetSpec.for_timestamp(of)
        asked = {TopicPartition(t, p): spec for t, numbers in partitions.items() for p in numbers}
        told = self._admin.list_offsets(
            asked, isolation_level=self._isolation, request_timeout=PATIENCE
        )
        return {(p.topic, p.partition): self._result(f).offset for p, f in told.items()}

    def _matching(self, name: str, there: Mapping[str, Any]) -> list[str]:
        own = sorted(t for t in there if not t.startswith("__"))
        if name.startswith("^"):
            return [topic for topic in own if matches(name, topic)]
        if name not in there:
            raise DataError(
                f"There is no topic '{name}' at {self.servers}; there are: "
                f"{', '.join(own) or 'none'}. Create it, or correct the feed's topics."
            )
        return [name]

    def _result(self, future: "Future[T]") -> T:
        return self._ask(lambda: future.result(PATIENCE + 1))

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except (KafkaException, TimeoutError) as error:
            raise unreachable(self.servers, error) from None


def matches(name: str, topic: str) -> bool:
    """Whether a feed's name of a topic, or its pattern, is meant for this one."""
    return bool(re.fullmatch(name[1:], topic)) if name.startswith("^") else name == topic


def configured(servers: str, client: Mapping[str, str]) -> dict[str, Any]:
    """The properties of a client, which writes nothing to stderr: errors are raised."""
    own: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0, "error_cb": lambda _: None}
    return {**own, **client}


def unreachable(servers: str, error: Exception) -> DataError:
    """What failed at these brokers, in one sentence."""
    told: object = error.args[0] if error.args else "no answer"
    reason = told.str() if isinstance(told, KafkaError) else str(told)
    return DataError(
        f"Kafka at {servers} can't be read: {reason.rstrip('.')}. Start it (`tidemark kafka up` "
        "starts one for development), or correct kafka_servers (TIDEMARK_KAFKA_SERVERS)."
    )
