"""Records that become events are taken in by little of what there is to them, others whole."""

import time
from collections.abc import Collection, Iterator, Sequence
from threading import Event

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from helpers.kafka.topics import Topics, clicks
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark_streaming.base import kafka_position as position
from tidemark_streaming.base.kafka_position import Position
from tidemark_streaming.feed import CHUNK
from tidemark_streaming.kafka import records
from tidemark_streaming.kafka.cluster import Cluster
from tidemark_streaming.kafka.decode import decode_records
from tidemark_streaming.kafka.records import SCHEMA, Reader
from tidemark_streaming.payloads import Json

PLAIN = Source(
    name="clicks",
    columns={
        "at": "TIMESTAMP",
        "n": "INT",
        "kafka_topic": "STRING",
        "kafka_partition": "INT",
        "kafka_offset": "BIGINT",
        "kafka_key": "STRING",
    },
    event_time="at",
    watermark=BoundedOutOfOrderness("10 seconds"),
)
TIMED = Source(
    name="clicks",
    columns={"at": "TIMESTAMP", "kafka_timestamp": "TIMESTAMP", "kafka_timestamp_type": "STRING"},
    event_time="at",
    watermark=BoundedOutOfOrderness("10 seconds"),
)


def ordered(rows: pa.Table) -> list[dict[str, object]]:
    by = [(CHUNK, "ascending"), ("position", "ascending")]
    return rows.select(sorted(rows.column_names)).sort_by(by).to_pylist()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Collection[str]]:
    """What was wanted of records, each time that some were read; a few come at once."""
    found: list[Collection[str]] = []
    whole = Reader.read

    def read(
        self: Reader, pieces: Sequence[Position], enough: Event, wanted: Collection[str] = ()
    ) -> Iterator[pa.Table]:
        found.append(wanted)
        return whole(self, pieces, enough, wanted or SCHEMA.names)

    monkeypatch.setattr(Reader, "read", read)
    monkeypatch.setattr(records, "_BATCH_RECORDS", 7)
    return found


@pytest.mark.parametrize("source", [PLAIN, TIMED], ids=["little", "timed"])
def test_little_is_asked_of_records_that_become_events(
    spark: SparkSession, topics: Topics, asked: list[Collection[str]], source: Source
) -> None:
    names = [topics.create(partitions=2), topics.create()]
    for first, (name, partition) in enumerate([(names[0], 0), (names[0], 1), (names[1], 0)]):
        numbers = range(100 * first, 100 * first + 20)
        topics.send(name, clicks(*numbers), partition, key=b"k", at=int(time.time()))
    feed = topics.feed(*names, source=source, rows=11)
    chunks = feed.pending([])
    assert len(chunks) == 6
    rows = feed.read(spark, chunks)
    assert len(asked) == 1
    assert ("timestamp" in asked[0], "headers" in asked[0]) == (source is TIMED, False)
    pieces = [position.parse(c.position) for c in chunks]
    whole = pa.concat_tables(feed._reader.read(pieces, Event()))
    assert ordered(rows) == ordered(decode_records(whole, source, Json(), None))
    assert len(rows) == 60


def test_where_one_is_a_dead_letter_all_are_read_whole_until_they_are_events_again(
    topics: Topics, asked: list[Collection[str]]
) -> None:
    name = topics.create()
    feed, start = topics.feed(name, source=PLAIN), 0
    known = Cluster(topics.servers, {}).ids([name])[name]

    def whole(values: list[bytes]) -> list[bool]:
        """Whether the records were read whole, each time that they were; they come once."""
        nonlocal start
        asked.clear()
        topics.send(name, values)
        begun = {name: position.Topic(known, {0: (start, start + len(values))})}
        start += len(values)
        rows, _ = feed._in_memory([position.to_json(begun)], Event())
        assert len(values) == len(rows)
        return [wanted == SCHEMA.names for wanted in asked]

    assert whole(clicks(*range(20))) == [False]
    assert whole([*clicks(*range(20)), b"no JSON"]) == [False, True]
    assert whole([b"no JSON"]) == [True]
    assert whole(clicks(*range(20))) == [True]
    assert whole(clicks(*range(20))) == [False]
