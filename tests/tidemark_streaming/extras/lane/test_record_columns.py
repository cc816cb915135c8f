"""A lane reads the metadata of records as an ingest does."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidemark.define.source import CORRELATION, Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark_streaming.extras.lane import Lane
from tidemark_streaming.extras.lane.records import decode_records
from tidemark_streaming.kafka import KafkaConnector, KafkaSink
from tidemark_streaming.kafka.decode import RECORD

KAFKA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    f"timestampType INT, headers {RECORD['kafka_headers']}"
)
AT = datetime(2026, 1, 1, tzinfo=UTC)


def _as_it_is(visits: DataFrame) -> DataFrame:
    return visits


def test_a_lane_never_alters_the_metadata_of_records(spark: SparkSession) -> None:
    own = {"kafka_key": "STRING", **{n: RECORD[n] for n in ("kafka_timestamp", "kafka_headers")}}
    visits = Source(
        name="visits",
        columns={"at": "TIMESTAMP", **own},
        event_time="at",
        watermark=BoundedOutOfOrderness("10 seconds"),
    )
    connector = KafkaConnector(visits, ["visits"], servers="127.0.0.1:1", correlation="id")
    to = KafkaSink("seen", servers="127.0.0.1:1")
    lane = Lane(name="visits_seen", connector=connector, prepare=_as_it_is, to=to)
    sent: list[tuple[Any, ...]] = [
        ("é".encode(), AT, 0, [("id", b"first"), ("id", b"second")]),
        (b"\xff", AT, 0, None),
        (None, AT, -1, [("id", b"\xff")]),
        (b"k", AT, 1, [("\ufffd", b"1"), ("id", b"first")]),
    ]
    records = [
        (key, b"{}", "visits", 0, n, time, kind, headers)
        for n, (key, time, kind, headers) in enumerate(sent)
    ]
    rows = decode_records(spark.createDataFrame(records, KAFKA), lane).orderBy("read_from")
    found = rows.select("kafka_key", "kafka_timestamp", CORRELATION, "reason").toArrow().to_pylist()
    misfit = "The field 'kafka_key' is not a valid STRING."
    assert [tuple(row.values()) for row in found] == [
        ("é", AT, "first", None),
        (None, AT, "visits-0-1", misfit),
        (None, None, "visits-0-2", None),
        ("k", AT, "visits-0-3", None),
    ]
