"""A topic as a way out: panes of an asset become records."""

import re
from dataclasses import dataclass, field

from tidemark.base.arguments import checked_class
from tidemark.base.errors import DefinitionError
from tidemark.base.secret import Secret
from tidemark.base.settings import Settings
from tidemark.define.outlet import Outlet
from tidemark_streaming.kafka.client import Properties, check_secrets

_NAME = re.compile(r"[A-Za-z0-9._-]{1,230}")
"""A topic's name, with room for the ending of its topic of positions."""


@checked_class
@dataclass(frozen=True)
class KafkaTopic(Outlet):
    """A Kafka topic to which an asset publishes its panes.

    Where there is no such topic, it is made, and keeps its records for ever: who reads it from its
    beginning has the published table. Beside it there is one of positions, `<name>_positions`.

    Example:
        KafkaTopic("visits_by_minute", partitions=2)

    Args:
        name: the topic's.
        servers: `host:port`, several separated by commas; by default the setting kafka_servers.
        partitions: of a topic that is made; records of the same keys are in one of them, in order.
        client: more properties of Kafka's client, as librdkafka names them. A password is a
            `secret`, which says where it is.

    Raises:
        DefinitionError: a name that Kafka does not allow, no partition, a password in plain text.
    """

    name: str
    servers: str | None = None
    partitions: int = 1
    client: Properties = field(default_factory=dict[str, str | Secret])

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise DefinitionError(
                f"'{self.name}' can't name a topic: use letters, digits, '.', '_' and '-', at most "
                "230 of them."
            )
        if self.partitions < 1:
            raise DefinitionError(
                f"Topic '{self.name}' has 1 or more partitions, not {self.partitions}."
            )
        check_secrets(self.client, f"Topic '{self.name}'")

    def __str__(self) -> str:
        return f"Kafka topic '{self.name}'"

    @property
    def positions(self) -> str:
        """The topic that says how far the tables have been brought out."""
        return f"{self.name}_positions"

    @property
    def at(self) -> str:
        """The servers."""
        return self.servers or Settings().kafka_servers
