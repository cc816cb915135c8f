"""A topic in memory, to which the product's sink writer publishes, and its consumer."""

import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from uuid import uuid4

import pytest
from typing_extensions import override

from helpers.graph.case import EPOCH
from helpers.kafka.rebuilt import Table
from tidemark.base.failpoint import pass_fail_point
from tidemark.base.instants import format_instant
from tidemark.define.definition import Definition
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.base.kafka_position import Topic
from tidemark_streaming.kafka.topic import KafkaSink
from tidemark_streaming.sink import writer
from tidemark_streaming.sink.position import Position, parse_position
from tidemark_streaming.sink.record import Record
from tidemark_streaming.sink.transactional_topic import TransactionalTopic

_PARTITIONS = 2


class MemoryTopic(TransactionalTopic):
    """A topic outside the home.

    Each method overrides one of the product's, so that the type check refuses a method that the
    writer no longer calls.

    Args:
        topic: the declared topic; no broker has it.
        asset: the asset's name.
        database: the location and name of the database.
    """

    def __init__(self, topic: KafkaSink, asset: str, database: str) -> None:
        super().__init__(topic, asset, database)
        self.records: list[Record] = []
        self._is_open = False
        self._id = uuid4().hex
        self._position: bytes | None = None

    def recreate(self) -> None:
        """Delete the records, and create a topic of the same name. The positions stay."""
        self.records.clear()
        self._id = uuid4().hex

    @property
    @override
    def is_open(self) -> bool:
        return self._is_open

    @override
    def find_topic(self) -> Topic:
        return Topic(self._id, dict.fromkeys(range(_PARTITIONS), (0, 0)))

    @override
    def read_position(
        self, *, any_database: bool = False, wait_for_transactions: bool = False
    ) -> Position | None:
        return parse_position(self._position)

    @override
    def open_producer(self) -> None:
        self._is_open = True

    @override
    def close(self) -> None:
        self._is_open = False

    @override
    def send_transaction(self, records: Iterable[Record], position: Callable[[], Position]) -> int:
        """Append records, and store the position, as one transaction."""
        pass_fail_point("send")
        sent = list(records)
        position_after = position().to_json()
        pass_fail_point("sent")
        self.records += sent
        self._position = position_after
        pass_fail_point("committed")
        return len(sent)

    def table(self) -> Table:
        """Return the table that a consumer of all records has.

        Raises:
            AssertionError: the records do not follow from each other.
        """
        consumed = Table("retracting")
        for record in self.records:
            consumed.take(record.partition, json.loads(record.key), json.loads(record.value))
        return consumed


def publishing_to(
    topics: dict[str, MemoryTopic],
) -> AbstractContextManager[None]:
    """Within the context, sink writers publish to topics in memory, by the name of the asset."""

    def open_topic(asset: Definition, warehouse: Warehouse, *_: object) -> MemoryTopic:
        place = f"{warehouse.location}/{warehouse.database}"
        declared = writer.topic_of(asset)
        topic = topics.setdefault(asset.name, MemoryTopic(declared, asset.name, place))
        # Another process opens its own producer.
        topic.close()
        return topic

    @contextmanager
    def patched() -> Any:  # noqa: ANN401
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer, "open_topic", open_topic)
            yield

    return patched()


def topic_difference(
    asset: Definition, topic: MemoryTopic, rows: list[dict[str, Any]]
) -> str | None:
    """Return how a topic's table differs from the rows of a published table, or None."""
    try:
        consumed = topic.table().rows
    except AssertionError as error:
        return f"the records contradict each other: {error}"
    wanted = {_window(asset, row): _values(asset, row) for row in rows}
    found = {
        window: (value["values"], value["last"], value["quality"], value["events"])
        for window, value in consumed.items()
    }
    for window in sorted(wanted.keys() | found.keys(), key=str):
        if wanted.get(window) != found.get(window):
            return f"window {window}: {found.get(window)} instead of {wanted.get(window)}"
    return None


def _window(asset: Definition, row: dict[str, Any]) -> tuple[Any, ...]:
    bounds = [format_instant(_micros(row[column])) for column in ("window_start", "window_end")]
    return (*bounds, *(row[key] for key in asset.keys))


def _values(asset: Definition, row: dict[str, Any]) -> tuple[Any, ...]:
    values = {name: row[name] for name in asset.aggregates}
    return values, row["final"], row["quality"], row["events"]


def _micros(instant: Any) -> int:  # noqa: ANN401 (datetime)
    return round((instant - EPOCH).total_seconds() * 1e6) + round(EPOCH.timestamp() * 1e6)
