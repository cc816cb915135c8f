"""The definition of a lane: where its records come from, how they are prepared, and which topics
they are written to.

| a record | goes to |
| --- | --- |
| that is decoded and valid | the topic `to`, as its `prepare` function returns it, row by row |
| that can't be decoded, or is not valid | the topic `dead_letters`, with its bytes and the reason |

A lane runs in Spark's real-time mode. Each record is processed alone, without state from one record
to the next.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, MapType, StructType

from tidemark.base.arguments import checked_class, list_parameters
from tidemark.base.determinism import Sql
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import parse_duration
from tidemark.define.column_type import data_type
from tidemark.define.protection import Tokenize
from tidemark.define.source import Source, check_name, lookup_name
from tidemark_streaming.extras.lane.options import check_client
from tidemark_streaming.kafka.connector import KafkaConnector
from tidemark_streaming.kafka.decode import RECORD
from tidemark_streaming.kafka.topic import KafkaSink

_NESTED = (ArrayType, MapType, StructType)
"""The nested types, whose values a lane can't decode exactly."""

OTHERS = "*"
"""The key in `to` for all values of `route` that are not keys themselves."""

_SHORTEST = 5_000_000
"""The shortest interval between two checkpoints that Spark's real-time mode allows, in
microseconds."""


@checked_class
@dataclass(frozen=True, kw_only=True)
class Lane:
    """A stateless pipeline that reads records from Kafka and writes them to Kafka at once.

    Delivery is at least once: after a stop or a kill, the lane writes the records since its last
    checkpoint again. The header `read_from` identifies the input record of each record, so that
    consumers can skip repeated ones.

    Example:
        Lane(
            name="visits_seen",
            connector=KafkaConnector(visits, topics=["visits"]),
            prepare=visits_hourly.function,
            to=KafkaSink("visits_seen"),
        )

    Args:
        name: lowercase letters, digits and underscores.
        connector: the connector that reads the records, with their format and protected columns.
        prepare: maps the source's rows to the rows to write, row by row: the function of a windowed
            transform, or a similar function. Parameters after the first are lookup tables of the
            source, by name; they are read when the lane starts.
        to: the topic, or several topics by the values of `route`. The key `"*"` stands for all
            other values.
        route: the column in the result of `prepare` that selects the topic.
        key: the column in the result of `prepare` whose text is the key of the written record;
            `kafka_key` by default, if the source has this column.
        valid: conditions on the source's columns, in SQL. If a condition is false for a record, the
            record is a dead letter.
        dead_letters: the topic of dead letters. The default is `<name>_dead_letters`, on the same
            brokers as the topics in `to`.
        checkpoint: the interval between two checkpoints.

    Raises:
        DefinitionError: the lane is not valid.
    """

    name: str
    connector: KafkaConnector
    prepare: Callable[..., DataFrame]
    to: KafkaSink | Mapping[str, KafkaSink]
    route: str | None = None
    key: str | None = None
    valid: Sequence[Sql] = ()
    dead_letters: KafkaSink | None = None
    checkpoint: str = "1 minute"

    def __post_init__(self) -> None:
        check_name("lane", self.name)
        for topic in self._list_sinks():
            if not isinstance(topic, KafkaSink):
                raise DefinitionError(
                    f"{self} can write only to Kafka topics (got {topic!r}). To write to tables, "
                    "ingest its source and add a windowed asset."
                )
        if isinstance(self.to, KafkaSink) and self.route is not None:
            raise DefinitionError(
                f"{self} has the route '{self.route}', but only one topic: remove `route`, or let "
                "`to` map the values of that column to topics."
            )
        if not isinstance(self.to, KafkaSink) and self.route is None:
            raise DefinitionError(
                f"{self} has a mapping as `to`, but no `route`: set `route` to the column whose "
                "values choose the topic, or set `to` to one topic."
            )
        if not isinstance(self.to, KafkaSink) and OTHERS not in self.to:
            raise DefinitionError(
                f"{self} needs a topic for records with other values of the column '{self.route}': "
                f"add '{OTHERS}' to `to`."
            )
        first, *further_topics = self.output_topics
        for other in further_topics:
            if (other.broker_addresses, other.client) != (first.broker_addresses, first.client):
                raise DefinitionError(
                    f"{self} writes to {first} and {other} with one client, so both must have the "
                    "same servers and properties."
                )
        if not isinstance(self.connector.format, str):
            raise DefinitionError(
                f"{self} can decode only JSON: ingest its source to decode "
                f"{type(self.connector.format).__name__}."
            )
        for column, kind in self.source.record_columns.items():
            if column not in RECORD and isinstance(data_type(kind), _NESTED):
                raise DefinitionError(
                    f"{self} can't decode the column '{column}' exactly, because it is declared as "
                    f"{kind}: declare it as STRING, which keeps the JSON text, or ingest the "
                    "source and add a windowed asset."
                )
        for column, way in self.source.mask.items():
            if isinstance(way, Tokenize):
                raise DefinitionError(
                    f"{self} can't tokenize '{column}', because the engine's plans would contain "
                    "the key. Use Mask() or Drop(), or ingest the source and tokenize it there."
                )
        if parse_duration(self.checkpoint) < _SHORTEST:
            raise DefinitionError(
                f"{self} needs a `checkpoint` of at least 5 seconds (got {self.checkpoint})."
            )
        lookup_names = [lookup_name(r) for r in self.source.lookups]
        unknown = [name for name in self.lookup_names if name not in lookup_names]
        if unknown:
            raise DefinitionError(
                f"{self}: its function has the parameter '{unknown[0]}', which is not a lookup "
                f"table of source '{self.source.name}'; its lookup tables: "
                f"{', '.join(lookup_names) or 'none'}."
            )
        check_client(self.connector.client, str(self))
        check_client(first.client, str(self))

    def __str__(self) -> str:
        return f"Lane '{self.name}'"

    @property
    def source(self) -> Source:
        """The source of the lane's records."""
        return self.connector.source

    @property
    def inputs(self) -> list[str]:
        """The names or patterns of the topics that the lane reads, as in its connector."""
        return list(self.connector.topics)

    @property
    def outputs(self) -> list[str]:
        """The names of the topics to which the lane writes."""
        return [topic.name for topic in self.output_topics]

    @property
    def lookup_names(self) -> list[str]:
        """The names of the lookup tables that `prepare` takes in addition to the rows."""
        return list_parameters(str(self), self.prepare)[1:]

    @property
    def topics_by_route(self) -> Mapping[str, KafkaSink]:
        """The topics by the values of `route`; without a route, one topic with the key `"*"`."""
        if isinstance(self.to, KafkaSink):
            return {OTHERS: self.to}
        return self.to

    @property
    def dead_letter_topic(self) -> KafkaSink:
        """The topic of records that can't be decoded or are not valid."""
        if self.dead_letters is not None:
            return self.dead_letters
        first = next(iter(self.topics_by_route.values()))
        return KafkaSink(f"{self.name}_dead_letters", first.servers, client=first.client)

    @property
    def output_topics(self) -> list[KafkaSink]:
        """All topics to which the lane writes. The topic of dead letters is last."""
        return [*self.topics_by_route.values(), self.dead_letter_topic]

    def _list_sinks(self) -> list[object]:
        sinks: list[object] = list(self.to.values() if isinstance(self.to, Mapping) else [self.to])
        if self.dead_letters is None:
            return sinks
        return [*sinks, self.dead_letters]
