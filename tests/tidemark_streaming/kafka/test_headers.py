"""Headers whose names are not UTF-8: Kafka accepts them, but the Python client can't read them."""

from collections.abc import Iterator
from threading import Event

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from helpers.kafka.headed import send_headed
from tidemark.define.protection import Drop
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark_streaming.base.kafka_position import Topic, to_json
from tidemark_streaming.kafka import RECORD, KafkaConnector
from tidemark_streaming.kafka.cluster import Cluster
from tidemark_streaming.kafka.decode import decode_records
from tidemark_streaming.kafka.intake import protect_records
from tidemark_streaming.kafka.records import Reader
from tidemark_streaming.payloads import Json

COLUMNS = {"at": "TIMESTAMP", "n": "INT", "kafka_headers": RECORD["kafka_headers"]}
NOTES = Source("notes", COLUMNS, "at", BoundedOutOfOrderness("10 seconds"))
DROPPED = Source("dropped", COLUMNS, "at", NOTES.watermark, mask={"kafka_headers": Drop()})
KNOWN = {"key": "trace", "value": b"t"}


UNREADABLE = 20
"""After this many calls in a row, Python specializes the call and checks less strictly."""
LAST = UNREADABLE + 1
NONE: list[object] = [None] * UNREADABLE


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Yield the address of librdkafka's mock broker with a topic: one record with a readable
    header, some with an unreadable one, and one without headers."""
    broker = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (told,) = broker.list_topics(timeout=60).brokers.values()
    servers = f"{told.host}:{told.port}"
    values = [b'{"n": %d}' % n for n in range(LAST + 1)]
    broker.produce("notes", values[0], partition=0, headers={"trace": b"t"})
    assert broker.flush(10) == 0
    send_headed(servers, "notes", values[1:11], b"\xff\xfe")
    send_headed(servers, "notes", values[11:LAST], b"trace", b"\xff")
    broker.produce("notes", values[LAST], partition=0)
    assert broker.flush(10) == 0
    yield servers
    # The broker ends with its client.
    broker.purge()


def records(servers: str, start: int = 0) -> pa.Table:
    asked = [{"notes": Topic("any", {0: (start, LAST + 1)})}]
    return pa.concat_tables(Reader(servers, {}, "notes").read_records(asked, Event()))


def test_unreadable_headers_become_null(servers: str) -> None:
    found = records(servers)
    assert found["value"].to_pylist() == [b'{"n": %d}' % n for n in range(LAST + 1)]
    assert found["headers"].to_pylist() == [[KNOWN], *NONE, []]
    # Also if no other record has headers.
    assert records(servers, LAST - 1)["headers"].to_pylist() == [None, []]


def test_unreadable_headers_stay_null_if_headers_are_masked(servers: str) -> None:
    found = protect_records(records(servers), DROPPED, "trace")
    assert found["headers"].to_pylist() == [[{**KNOWN, "value": None}], *NONE, []]


def test_an_event_without_readable_headers_is_correlated_by_its_position(
    servers: str,
) -> None:
    rows = decode_records(records(servers), NOTES, Json(), "trace").sort_by("position")
    assert rows["kafka_headers"].to_pylist() == [[KNOWN], *NONE, []]
    places = [f"notes-0-{n}" for n in range(1, LAST + 1)]
    assert rows["correlation_id"].to_pylist() == ["t", *places]


def test_values_are_decoded_without_readable_headers(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The mock broker does not support topic IDs.
    monkeypatch.setattr(Cluster, "read_topic_ids", lambda *_: {})
    source = Source("notes", {"at": "TIMESTAMP", "n": "INT"}, "at", NOTES.watermark)
    connector = KafkaConnector(source, ["notes"], servers=servers, correlation="trace")
    asked = to_json({"notes": Topic("any", {0: (1, LAST + 1)})})
    rows, _ = connector._read_in_memory([asked], Event())
    assert rows["correlation_id"].to_pylist() == [f"notes-0-{n}" for n in range(1, LAST + 1)]
