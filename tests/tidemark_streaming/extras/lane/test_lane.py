"""Lanes: real-time, micro-batch and batch runs and the windowed runs give the same records, routed
and masked. Unsupported definitions are refused."""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helpers.kafka.topics import Topics
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError, DefinitionError, EngineError
from tidemark.define.protection import Drop, Mask, Tokenize
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.extras.lane import Lane
from tidemark_streaming.extras.lane.checkpoints import read_newest
from tidemark_streaming.extras.lane.query import Trigger, check_lane, read_available, start_queries
from tidemark_streaming.extras.lane.records import decode_records, output_records
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.kafka import KafkaConnector, KafkaSink
from tidemark_streaming.kafka.client import client_properties
from tidemark_streaming.kafka.decode import RECORD
from tidemark_streaming.payloads import Avro

EMAIL = "ann.raw@example.org"
ORDERS = Source(
    name="orders",
    columns={"at": "TIMESTAMP", "n": "INT", "place": "STRING", "email": "STRING"},
    event_time="at",
    watermark=BoundedOutOfOrderness("10 seconds"),
    lookups=("places",),
)
MASKED = replace(ORDERS, mask={"email": Mask(keep_last=4)})


def placed(orders: DataFrame, places: DataFrame) -> DataFrame:
    """Return orders with their region, and two copies of each even one."""
    joined = orders.join(places, "place", "left").where("n <> 13")
    return joined.withColumn("copy", F.explode(F.expr("sequence(0, 1 - n % 2)")))


def as_it_is(orders: DataFrame) -> DataFrame:
    return orders


def regions(warehouse: Warehouse) -> None:
    """Create the table of places."""
    rows = warehouse.spark.createDataFrame(
        [("a", "north"), ("b", "south")], "place STRING, region STRING"
    )
    rows.write.format("delta").save(warehouse.path_of("places"))


def order(n: int) -> bytes:
    place = "ab"[n % 2] if n % 5 else "c"
    at = f"2026-01-01T00:00:{n % 60:02}.000001Z"
    return json.dumps({"at": at, "n": n, "place": place, "email": EMAIL}).encode()


SENT = [*(order(n) for n in range(20)), b"not JSON", b'{"n": "seven"}', None, order(-1)]
DEAD = {"orders-20": b"not JSON", "orders-21": SENT[21], "orders-23": SENT[23]}


@dataclass(frozen=True)
class Record:
    """A published record."""

    value: bytes | None
    key: bytes | None
    headers: Mapping[str, str]


def received(topics: Topics, name: str, count: int, wait: float = 90) -> list[Record]:
    """Return the first `count` records of a topic with one partition."""
    usual = {"group.id": "tests", "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    consumer = Consumer({**client_properties(topics.servers, {}), **usual})
    found, deadline = list[Record](), time.monotonic() + wait
    consumer.subscribe([name])
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records came to {name}"
            for message in consumer.consume(count, timeout=0.5):
                assert message.error() is None, message.error()
                pairs: Any = message.headers() or ()
                headers = {k: v.decode() for k, v in pairs if v is not None}
                found.append(Record(message.value(), message.key(), headers))
    finally:
        consumer.close()
    return found


@pytest.fixture
def lane(topics: Topics, warehouse: Warehouse) -> Lane:
    """Return a lane from a topic with the plain orders to topics by region."""
    regions(warehouse)
    name = topics.create(name=topics.unused())
    topics.send(name, SENT)
    return lane_of(topics, ORDERS, name)


def lane_of(topics: Topics, source: Source, topic: str) -> Lane:
    def to(name: str) -> KafkaSink:
        return KafkaSink(f"{name}_{topic}", servers=topics.servers)

    return Lane(
        name="orders_placed",
        connector=KafkaConnector(source, [topic], servers=topics.servers),
        prepare=placed,
        to={"north": to("north"), "*": to("others")},
        route="region",
        key="place",
        valid=["n >= 0"],
        dead_letters=to("dead"),
        checkpoint="5 seconds",
    )


Out = dict[str, list[tuple[Any, ...]]]


def expected(lane: Lane) -> Out:
    """Compute the expected records in plain Python."""
    found: Out = {t.name: [] for t in lane.topics_by_route.values()}
    regions = {"a": "north", "b": "south"}
    for offset, value in enumerate(SENT[:20]):
        event = json.loads(value or b"")
        region, n = regions.get(event["place"]), event["n"]
        topic = lane.topics_by_route["north" if region == "north" else "*"].name
        own = [(offset, n, event["place"], EMAIL, region, copy) for copy in range(2 - n % 2)]
        found[topic] += own if n != 13 else []
    return found


def told(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    """Return records in the form of `expected`."""
    found = list[tuple[Any, ...]]()
    for record in records:
        value = json.loads(record.value or b"")
        assert (record.key or b"").decode() == value["place"]
        assert value["at"] == f"2026-01-01T00:00:{value['n']:02}.000001Z"
        assert record.headers["correlation_id"] == record.headers["read_from"]
        offset = int(record.headers["read_from"].rpartition("-")[2])
        found.append((offset, *(value[c] for c in ("n", "place", "email", "region", "copy"))))
    return sorted(found)


# The lane starts its own query and waits for checkpoints.
@pytest.mark.slow
@pytest.mark.parametrize("trigger", mostly_nightly(["real-time", "micro-batch"]))
def test_each_record_is_routed_to_its_topic(
    topics: Topics, lane: Lane, warehouse: Warehouse, tmp_path: Path, trigger: Trigger
) -> None:
    queries = start_queries(warehouse, lane, tmp_path, trigger)
    try:
        want = expected(lane)
        assert all(want.values())
        came = {name: told(received(topics, name, len(rows))) for name, rows in want.items()}
        assert came == want
        letters = received(topics, lane.dead_letter_topic.name, len(DEAD))
        dead = {letter.headers["read_from"].rpartition("-")[2]: letter for letter in letters}
        assert {f"orders-{n}": letter.value for n, letter in dead.items()} == DEAD
        assert dead["20"].headers["reason"] == "The record is not a JSON object."
        assert dead["21"].headers["reason"] == "The field 'n' is not a valid INT."
        assert dead["23"].headers["reason"] == "The record does not meet the condition: n >= 0."
        with pytest.raises(EngineError, match="is already running"):
            start_queries(warehouse, lane, tmp_path, trigger)
    finally:
        queries.stop()


# The lane starts its own query and waits for checkpoints.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_batch_and_the_windowed_runs_give_the_same_rows(
    topics: Topics, lane: Lane, warehouse: Warehouse
) -> None:
    places = warehouse.read_frame("places")
    rows = output_records(
        decode_records(read_available(warehouse.spark, lane), lane), lane, {"places": places}
    ).collect()
    batch: Out = {t.name: [] for t in lane.topics_by_route.values()}
    for row in rows:
        headers = {h.key: bytes(h.value).decode() for h in row.headers}
        batch[row.topic] += told([Record(bytes(row.value), bytes(row.key), headers)])
    assert {name: sorted(found) for name, found in batch.items()} == expected(lane)

    assert list(ingest(warehouse, lane.connector))
    log = Log(warehouse, ORDERS)
    prepared = placed(log.read_events(-1, 9).where("n >= 0"), places)
    columns = ("n", "place", "email", "region", "copy")
    place = F.substring_index("read_from", "-", -1).cast("int").alias("offset")
    logged = sorted(tuple(row) for row in prepared.select(place, *columns).collect())
    assert logged == sorted(row for found in expected(lane).values() for row in found)


# The lane starts its own query and waits for checkpoints.
@pytest.mark.slow
def test_masked_values_are_neither_published_nor_stored(
    topics: Topics, warehouse: Warehouse, tmp_path: Path
) -> None:
    regions(warehouse)
    name = topics.create(name=topics.unused())
    topics.send(name, SENT)
    lane = lane_of(topics, MASKED, name)
    queries = start_queries(warehouse, lane, tmp_path, "real-time")
    try:
        out = [r for n, rows in expected(lane).items() for r in received(topics, n, len(rows))]
        letters = received(topics, lane.dead_letter_topic.name, len(DEAD))
    finally:
        queries.stop()
    assert {json.loads(r.value or b"")["email"] for r in out} == {"***.org"}
    assert [letter.value for letter in letters] == [None] * len(DEAD)
    written_files = [f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()]
    assert written_files
    assert not any(EMAIL.encode() in content for content in written_files)


# The lane starts its own query and waits for checkpoints.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_lane_resumes_from_its_checkpoint_with_either_trigger(
    topics: Topics, lane: Lane, warehouse: Warehouse, tmp_path: Path
) -> None:
    ahead = sum(len(rows) for rows in expected(lane).values())
    plain = replace(lane, to=lane.topics_by_route["*"], route=None, checkpoint="5 seconds")
    queries = start_queries(warehouse, plain, tmp_path, "real-time")
    try:
        received(topics, plain.topics_by_route["*"].name, ahead)
        _await(lambda: read_newest(tmp_path) is not None)
    finally:
        queries.stop()
    topic, before = plain.connector.topics[0], read_newest(tmp_path)
    assert before is not None
    assert before.ends == {(topic, 0): len(SENT)}
    topics.send(topic, [order(n) for n in (31, 33)])
    # Both triggers can use the same checkpoint.
    queries = start_queries(warehouse, plain, tmp_path, "micro-batch")
    try:
        came = told(received(topics, plain.topics_by_route["*"].name, ahead + 2))
        _await(lambda: read_newest(tmp_path) != before)
    finally:
        queries.stop()
    after = read_newest(tmp_path)
    assert after is not None
    assert (after.count_since(before), after.count_since(None)) == (2, 0)
    assert [row[1] for row in came[-2:]] == [31, 33]
    assert len(set(came)) == len(came)


# The lane starts its own query and waits for checkpoints.
@pytest.mark.nightly
@pytest.mark.slow
def test_a_recreated_topic_is_refused_until_the_checkpoint_is_deleted(
    topics: Topics, lane: Lane, warehouse: Warehouse, tmp_path: Path
) -> None:
    """Otherwise its first records would be taken for records that were already published."""
    plain = replace(lane, to=lane.topics_by_route["*"], route=None)
    start_queries(warehouse, plain, tmp_path, "micro-batch").stop()
    queries = start_queries(warehouse, plain, tmp_path, "micro-batch")
    try:
        _await(lambda: read_newest(tmp_path) is not None)
    finally:
        queries.stop()
    (topic,) = plain.connector.topics
    topics.delete(topic)
    topics.create(name=topic)
    topics.send(topic, [*SENT, order(31)])
    with pytest.raises(
        DataError, match=rf"topic '{topic}' was deleted and recreated .* Delete .*/checkpoints"
    ):
        start_queries(warehouse, plain, tmp_path, "micro-batch").stop()
    shutil.rmtree(tmp_path / "checkpoints")
    start_queries(warehouse, plain, tmp_path, "micro-batch").stop()


def _await(done: Callable[[], bool], wait: float = 60) -> None:
    deadline = time.monotonic() + wait
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def counted(orders: DataFrame) -> DataFrame:
    return orders.groupBy("place").count()


def distinct(orders: DataFrame) -> DataFrame:
    return orders.dropDuplicates(["n"])


def joined(orders: DataFrame) -> DataFrame:
    return orders.join(orders.select("n").withColumnRenamed("n", "m"), F.expr("n = m"))


def few(orders: DataFrame) -> DataFrame:
    return orders.select("n")


def by_python(orders: DataFrame) -> DataFrame:
    twice: Any = F.udf(lambda n: n * 2, "INT")
    return orders.withColumn("twice", twice("n"))


def lane_with(function: Callable[..., DataFrame], **more: Any) -> Lane:  # noqa: ANN401
    connector = KafkaConnector(replace(ORDERS, lookups=()), ["orders"], servers="127.0.0.1:1")
    to = KafkaSink("out", servers="127.0.0.1:1")
    usual: dict[str, Any] = {
        "name": "orders_out",
        "connector": connector,
        "prepare": function,
        "to": to,
    }
    return Lane(**{**usual, **more})


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (counted, "aggregates the stream"),
        (distinct, "removes duplicates"),
        (joined, "joins the stream with itself"),
    ],
)
def test_functions_that_need_more_than_one_record_are_refused(
    spark: SparkSession, prepare: Callable[..., DataFrame], sentence: str
) -> None:
    with pytest.raises(DefinitionError, match=rf"^Lane 'orders_out': its function {sentence}.*\.$"):
        check_lane(spark, lane_with(prepare), {})


@pytest.mark.parametrize("condition", ["n >=", "m > 0", "n"])
def test_an_invalid_condition_is_refused(spark: SparkSession, condition: str) -> None:
    with pytest.raises(
        DefinitionError, match=r"^Lane 'orders_out' (can't evaluate the|needs a boolean) condition"
    ):
        check_lane(spark, lane_with(as_it_is, valid=[condition]), {})


def test_a_function_that_drops_the_origin_column_is_refused(
    topics: Topics, warehouse: Warehouse, tmp_path: Path
) -> None:
    name = topics.create()
    connector = KafkaConnector(replace(ORDERS, lookups=()), [name], servers=topics.servers)
    to = KafkaSink(topics.unused(), servers=topics.servers)
    told = r"does not have the column 'read_from'; its columns are n\."
    with pytest.raises(DefinitionError, match=told):
        start_queries(warehouse, lane_with(few, connector=connector, to=to), tmp_path)


def test_a_python_udf_is_refused_in_real_time_mode(
    topics: Topics, warehouse: Warehouse, tmp_path: Path
) -> None:
    name = topics.create()
    connector = KafkaConnector(replace(ORDERS, lookups=()), [name], servers=topics.servers)
    to = KafkaSink(topics.unused(), servers=topics.servers)
    fault: EngineError | None = None
    try:
        queries = start_queries(
            warehouse, lane_with(by_python, connector=connector, to=to), tmp_path
        )
        _await(lambda: queries.find_fault() is not None)
        fault = queries.find_fault()
        queries.stop()
    except EngineError as error:
        # A fast machine reports it at the start.
        fault = error
    told = str(fault)
    assert "which Spark's real-time mode does not support" in told
    assert told.endswith("Use the trigger micro-batch instead.")
    assert "\n" not in told


OUT = KafkaSink("out", servers="127.0.0.1:1")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"name": "Out"}, "lowercase"),
        ({"to": "a_table"}, "to must be a KafkaSink or a mapping from strings to KafkaSink"),
        ({"to": {"a": OUT}, "route": "place"}, r"other values of the column .*: add '\*' to `to`"),
        ({"to": {"*": OUT}}, "has a mapping as `to`, but no `route`: set `route` to the"),
        ({"route": "place"}, "has the route 'place', but only one topic: remove `route`"),
        ({"checkpoint": "1 second"}, "`checkpoint` of at least 5 seconds"),
        ({"prepare": placed}, "has the parameter 'places', which is not a lookup table"),
        ({"dead_letters": KafkaSink("dead", servers="127.0.0.1:2")}, "with one client"),
        (
            {"to": KafkaSink("out", servers="127.0.0.1:1", client={"acks": "1"})},
            "property acks, which Spark's Kafka client does not support. Supported: security.prot",
        ),
    ],
)
def test_an_invalid_lane_is_refused(more: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence) as raised:
        lane_with(as_it_is, **more)
    assert "\n" not in str(raised.value)


def test_features_that_need_an_ingest_are_refused(tmp_path: Path) -> None:
    plain = replace(ORDERS, lookups=())
    avro = tmp_path / "order.avsc"
    avro.write_text(json.dumps({"type": "record", "name": "o", "fields": []}))
    connector = KafkaConnector(plain, ["orders"], servers="127.0.0.1:1", format=Avro(avro))
    with pytest.raises(DefinitionError, match=r"^Lane 'orders_out' can decode only JSON: .* Avro"):
        lane_with(as_it_is, connector=connector)
    for kind in ("ARRAY<DOUBLE>", "MAP<STRING, TIMESTAMP>", "STRUCT<price: DECIMAL(10,2)>"):
        nested = replace(plain, columns={**plain.columns, "parts": kind})
        connector = KafkaConnector(nested, ["orders"], servers="127.0.0.1:1")
        with pytest.raises(DefinitionError, match=r"can't decode the column 'parts' exactly"):
            lane_with(as_it_is, connector=connector)
    headers = {**plain.columns, "kafka_headers": RECORD["kafka_headers"]}
    connector = KafkaConnector(replace(plain, columns=headers), ["orders"], servers="127.0.0.1:1")
    assert lane_with(as_it_is, connector=connector)
    source = replace(plain, mask={"email": Tokenize(), "place": Drop()})
    connector = KafkaConnector(source, ["orders"], servers="127.0.0.1:1")
    with pytest.raises(DefinitionError, match=r"^Lane 'orders_out' can't tokenize 'email'"):
        lane_with(as_it_is, connector=connector)
