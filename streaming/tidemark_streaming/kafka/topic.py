"""A Kafka topic as a sink: panes of an asset become records."""

import re
from dataclasses import dataclass, field

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError
from tidemark.base.secret import Secret
from tidemark.base.settings import Settings
from tidemark.define.sink import Sink
from tidemark_streaming.kafka.client import Properties, check_secrets

_NAME = re.compile(r"[A-Za-z0-9._-]{1,230}")
"""Matches a valid topic name that is short enough for the suffix `_positions`."""


@checked_class
@dataclass(frozen=True)
class KafkaSink(Sink):
    """A Kafka topic to which an asset publishes its panes.

    If the topic does not exist, it is created and keeps its records forever: a consumer that reads
    it from the beginning gets the published table. A second topic, `<name>_positions`, stores how
    far the asset was published.

    Example:
        KafkaSink("visits_by_minute", partitions=2)

    Args:
        name: the name of the topic.
        servers: `host:port`, several separated by commas; default: the setting kafka_servers.
        partitions: the number of partitions if the topic is created. Records with the same keys are
            in one partition, in order.
        client: more properties of Kafka's client, with librdkafka's names. A password is a
            `secret`, which names where it is stored.

    Raises:
        DefinitionError: Kafka does not allow the name, `partitions` is less than 1, or a password
            is in plain text.
    """

    name: str
    servers: str | None = None
    partitions: int = 1
    client: Properties = field(default_factory=dict[str, str | Secret])

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise DefinitionError(
                f"'{self.name}' is not a valid topic name: use letters, digits, '.', '_' and '-', "
                "at most 230 characters."
            )
        if self.partitions < 1:
            raise DefinitionError(
                f"Topic '{self.name}' needs at least 1 partition (got {self.partitions})."
            )
        check_secrets(self.client, f"Topic '{self.name}'")

    def __str__(self) -> str:
        return f"Kafka topic '{self.name}'"

    @property
    def positions_topic(self) -> str:
        """The name of the topic that stores how far the asset has been published."""
        return f"{self.name}_positions"

    @property
    def broker_addresses(self) -> str:
        """The broker addresses, `host:port`, separated by commas."""
        return self.servers or Settings().kafka_servers
