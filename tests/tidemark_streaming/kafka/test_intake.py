"""Records that become events are read with few fields; records with dead letters are read whole."""

import time
from collections.abc import Collection, Iterator, Sequence
from threading import Event

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from helpers.kafka.topics import Topics, clicks
from tidemark.base import thresholds
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark_streaming.base import kafka_position as position
from tidemark_streaming.base.kafka_position import Position
from tidemark_streaming.connector import CHUNK
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
    """Return a list that gets the requested fields of each read. Batches have seven records."""
    found: list[Collection[str]] = []
    whole = Reader.read_records

    def read(
        self: Reader, pieces: Sequence[Position], enough: Event, wanted: Collection[str] = ()
    ) -> Iterator[pa.Table]:
        found.append(wanted)
        return whole(self, pieces, enough, wanted or SCHEMA.names)

    monkeypatch.setattr(Reader, "read_records", read)
    monkeypatch.setattr(thresholds, "KAFKA_POLL_RECORDS", 7)
    return found


@pytest.mark.parametrize("source", [PLAIN, TIMED], ids=["little", "timed"])
def test_only_needed_fields_of_valid_records_are_read(
    spark: SparkSession, topics: Topics, asked: list[Collection[str]], source: Source
) -> None:
    names = [topics.create(partitions=2), topics.create()]
    for first, (name, partition) in enumerate([(names[0], 0), (names[0], 1), (names[1], 0)]):
        numbers = range(100 * first, 100 * first + 20)
        topics.send(name, clicks(*numbers), partition, key=b"k", at=int(time.time()))
    connector = topics.connector(*names, source=source, rows=11)
    chunks = connector.list_pending([])
    assert len(chunks) == 6
    rows = connector.read(spark, chunks)
    assert len(asked) == 1
    assert ("timestamp" in asked[0], "headers" in asked[0]) == (source is TIMED, False)
    pieces = [position.parse_position(c.position) for c in chunks]
    whole = pa.concat_tables(connector._reader.read_records(pieces, Event()))
    assert ordered(rows) == ordered(decode_records(whole, source, Json(), None))
    assert len(rows) == 60


def test_records_are_read_whole_while_dead_letters_occur(
    topics: Topics, asked: list[Collection[str]]
) -> None:
    name = topics.create()
    connector, start = topics.connector(name, source=PLAIN), 0
    known = Cluster(topics.servers, {}).read_topic_ids([name])[name]

    def whole(values: list[bytes]) -> list[bool]:
        """Return, for each read of these records, whether it was of whole records."""
        nonlocal start
        asked.clear()
        topics.send(name, values)
        begun = {name: position.Topic(known, {0: (start, start + len(values))})}
        start += len(values)
        rows, _ = connector._read_in_memory([position.to_json(begun)], Event())
        assert len(values) == len(rows)
        return [wanted == SCHEMA.names for wanted in asked]

    assert whole(clicks(*range(20))) == [False]
    assert whole([*clicks(*range(20)), b"no JSON"]) == [False, True]
    assert whole([b"no JSON"]) == [True]
    assert whole(clicks(*range(20))) == [True]
    assert whole(clicks(*range(20))) == [False]
