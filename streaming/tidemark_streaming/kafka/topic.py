"""A topic as a way out: panes of an asset become records."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.base.errors import DefinitionError
from tidemark.base.settings import Settings
from tidemark.define.outlet import Outlet

_NAME = re.compile(r"[A-Za-z0-9._-]{1,230}")
"""A topic's name, with room for the ending of its topic of positions."""


@dataclass(frozen=True)
class KafkaTopic(Outlet):
    """A Kafka topic to which an asset publishes its panes.

    Where there is no such topic, it is made, and keeps its records for ever: who reads it from its
    beginning has the published table. Beside it there is one of positions, `<name>_positions`.

    Args:
        name: the topic's.
        servers: `host:port`, several separated by commas; by default the setting kafka_servers.
        partitions: of a topic that is made; records of the same keys are in one of them, in order.
        client: more properties of Kafka's client, as librdkafka names them. Take secrets from the
            environment.

    Raises:
        DefinitionError: a name that Kafka does not allow, or no partition.
    """

    name: str
    servers: str | None = None
    partitions: int = 1
    client: Mapping[str, str] = field(default_factory=dict, repr=False)

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
