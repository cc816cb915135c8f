"""Headers whose names are no UTF-8: Kafka takes them, and nobody can read them."""

from collections.abc import Iterator
from threading import Event

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from helpers.kafka.headed import send_headed
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.source import Drop
from tidemark_streaming.base.kafka_position import Topic, to_json
from tidemark_streaming.kafka import RECORD, KafkaConnector
from tidemark_streaming.kafka.cluster import Cluster
from tidemark_streaming.kafka.decode import decode_records
from tidemark_streaming.kafka.record_masking import protect_records
from tidemark_streaming.kafka.records import Reader
from tidemark_streaming.payloads import Json

COLUMNS = {"at": "TIMESTAMP", "n": "INT", "kafka_headers": RECORD["kafka_headers"]}
NOTES = Source("notes", COLUMNS, "at", BoundedOutOfOrderness("10 seconds"))
DROPPED = Source("dropped", COLUMNS, "at", NOTES.watermark, mask={"kafka_headers": Drop()})
KNOWN = {"key": "trace", "value": b"t"}


UNREADABLE = 20
"""Of so many in a row, Python adapts a call to what it calls, and then looks less closely."""
LAST = UNREADABLE + 1
NONE: list[object] = [None] * UNREADABLE


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker of librdkafka's own, in this process, with a topic: a record with a header, some
    with one that can't be read, and one without."""
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
    return pa.concat_tables(Reader(servers, {}, "notes").read(asked, Event()))


def test_a_record_comes_without_headers_that_nobody_can_read(servers: str) -> None:
    found = records(servers)
    assert found["value"].to_pylist() == [b'{"n": %d}' % n for n in range(LAST + 1)]
    assert found["headers"].to_pylist() == [[KNOWN], *NONE, []]
    # Also where no other record has any.
    assert records(servers, LAST - 1)["headers"].to_pylist() == [None, []]


def test_headers_that_nobody_can_read_stay_so_where_they_are_protected(servers: str) -> None:
    found = protect_records(records(servers), DROPPED, "trace")
    assert found["headers"].to_pylist() == [[{**KNOWN, "value": None}], *NONE, []]


def test_an_event_without_readable_headers_is_told_by_its_place(
    servers: str,
) -> None:
    rows = decode_records(records(servers), NOTES, Json(), "trace").sort_by("position")
    assert rows["kafka_headers"].to_pylist() == [[KNOWN], *NONE, []]
    places = [f"notes-0-{n}" for n in range(1, LAST + 1)]
    assert rows["correlation_id"].to_pylist() == ["t", *places]


def test_plain_values_need_no_headers_that_can_be_read(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This broker can't be asked for topics' ids.
    monkeypatch.setattr(Cluster, "ids", lambda *_: {})
    source = Source("notes", {"at": "TIMESTAMP", "n": "INT"}, "at", NOTES.watermark)
    feed = KafkaConnector(source, ["notes"], servers=servers, correlation="trace")
    asked = to_json({"notes": Topic("any", {0: (1, LAST + 1)})})
    rows, _ = feed._in_memory([asked], Event())
    assert rows["correlation_id"].to_pylist() == [f"notes-0-{n}" for n in range(1, LAST + 1)]
