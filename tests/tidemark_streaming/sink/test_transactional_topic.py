"""The transactional producer of a topic: its stored position, and why a topic can't be written."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

from helpers.kafka.topics import Topics
from tidemark.base.errors import DataError
from tidemark.base.failpoint import FAIL_AT
from tidemark_streaming.kafka import KafkaSink
from tidemark_streaming.sink.position import Position
from tidemark_streaming.sink.record import Record
from tidemark_streaming.sink.transactional_topic import TransactionalTopic

PLACE = "/warehouse/tidemark"


def channel(topics: Topics, name: str, **client: str) -> TransactionalTopic:
    told = {key.replace("_", "."): value for key, value in client.items()}
    return TransactionalTopic(KafkaSink(name, topics.servers, client=told), "visits", PLACE)


def at(version: int) -> Position:
    return Position("table", version, "topic", 1, 1, version, None, 1, PLACE, "")


def a_record(size: int = 1) -> Iterator[Record]:
    yield Record(b"key", b"v" * size, 0)


def test_an_aborted_position_is_ignored_even_with_read_uncommitted(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topics.unused()
    there = channel(topics, name, isolation_level="read_uncommitted")
    there.open_producer()
    there.send_transaction(a_record(), lambda: at(1))

    def killed(point: str) -> None:
        if point == "sent":
            raise KeyboardInterrupt

    # With a fail point, the records have reached the brokers by then.
    monkeypatch.setenv(FAIL_AT, "committed")
    monkeypatch.setattr("tidemark_streaming.sink.transactional_topic.pass_fail_point", killed)
    with pytest.raises(KeyboardInterrupt):
        there.send_transaction(a_record(), lambda: at(2))
    monkeypatch.undo()
    again = channel(topics, name, isolation_level="read_uncommitted")
    assert (found := again.read_position()) is not None
    assert found.version == 1
    again.open_producer()
    assert again.read_position() == found


def test_a_too_large_record_is_refused_without_retries(topics: Topics) -> None:
    there = channel(topics, topics.unused())
    there.open_producer()
    with pytest.raises(DataError, match=r"the topic accepts.*max\.message\.bytes") as caught:
        there.send_transaction(a_record(2_000_000), lambda: at(1))
    assert not caught.value.retriable
    there.open_producer()
    assert there.send_transaction(a_record(), lambda: at(1)) == 1


def test_an_old_client_error_does_not_explain_a_later_failure(topics: Topics) -> None:
    there = channel(topics, topics.unused())
    there._brokers.record_error(KafkaError(KafkaError._AUTHENTICATION, "invalid credentials"))
    there.open_producer()
    later = there._retriable_write_error("no answer")
    assert "can't be written: no answer" in str(later)
    assert later.retriable
    # A rejection after a successful authentication is retriable, because starting brokers may not
    # know their users yet.
    there._brokers.record_error(KafkaError(KafkaError._AUTHENTICATION, "invalid credentials"))
    refused = there._retriable_write_error("no answer")
    assert "the broker rejects" in str(refused)
    assert refused.retriable


class _Short:
    """A consumer that reports the end of the partition before the missing records."""

    def __init__(self, messages: list[Any]) -> None:
        self._messages = messages

    def assign(self, _: object) -> None: ...
    def close(self) -> None: ...

    def poll(self, _: float) -> object:
        return self._messages.pop(0)


class _Message:
    def __init__(self, offset: int, version: int | None) -> None:
        self._offset, self._version = offset, version

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._version is None else None

    def key(self) -> bytes:
        return b"visits"

    def value(self) -> bytes:
        return str(self._version).encode()

    def offset(self) -> int:
        return self._offset


def test_an_early_end_of_partition_does_not_hide_positions(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens briefly after another broker becomes the leader, which one broker can't
    simulate."""
    told = [_Message(0, 1), _Message(1, None), _Message(1, 2)]
    there = channel(topics, "panes")
    monkeypatch.setattr(there._brokers, "connect_client", lambda *_, **__: _Short([*told]))
    assert there._last_value(0, 2) == b"2"
