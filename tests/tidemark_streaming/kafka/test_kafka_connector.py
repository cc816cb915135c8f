"""Kafka records are ingested exactly once, and lost records are reported."""

import json
import os
import random
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from helpers.kafka.topics import CLICKS, T0, Topics, clicks
from tidemark.base.errors import DataError, DefinitionError
from tidemark.base.instants import format_instant
from tidemark.base.settings import Settings
from tidemark.define.watermarks import BoundedOutOfOrderness, PerPartition
from tidemark.engine.connect import engine_address
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.accepted_losses import skipped_losses
from tidemark_streaming.ingest.dead_letters import reprocess_letters
from tidemark_streaming.ingest.ingest import follow_source, ingest
from tidemark_streaming.ingest.unusable_arrivals import MIN_UNUSABLE_ROWS, UnusableArrivalError
from tidemark_streaming.kafka import RECORD, KafkaConnector


def bring(
    warehouse: Warehouse, connector: KafkaConnector, batch: int | None = None
) -> list[Arrival]:
    """Ingest the pending records and return the new arrivals."""
    return [a for commit in ingest(warehouse, connector, batch=batch) for a in commit.arrivals]


def numbers(warehouse: Warehouse) -> list[int]:
    """Return the numbers of all events in the event log."""
    rows = warehouse.read_frame(CLICKS.log_table).select("n").collect()
    return sorted(r.n for r in rows if r.n is not None)


def test_an_event_keeps_its_kafka_metadata(warehouse: Warehouse, topics: Topics) -> None:
    name = topics.create(partitions=2)
    topics.send(name, clicks(1), 0, {"trace": b"t-1", "x": b"\xff"}, key=b"k", at=T0 + 5)
    topics.send(name, clicks(2), 1)
    (arrival,) = bring(warehouse, topics.connector(name, correlation="trace"))
    rows = warehouse.read_frame(CLICKS.log_table).orderBy("n").collect()
    first, second = (r.asDict(recursive=True) for r in rows)
    assert first["kafka_topic"] == name
    assert first["kafka_topic_partition"] == f"{name}-0"
    assert (first["kafka_partition"], first["kafka_offset"]) == (0, 0)
    assert first["kafka_key"] == b"k"
    assert first["kafka_timestamp_type"] == "CreateTime"
    assert first["kafka_timestamp"].timestamp() == T0 + 5
    assert first["kafka_headers"] == [
        {"key": "trace", "value": b"t-1"},
        {"key": "x", "value": b"\xff"},
    ]
    assert first["correlation_id"] == "t-1"
    assert second["correlation_id"] == second["read_from"] == f"{name}-1-0"
    assert (second["kafka_key"], second["kafka_headers"]) == (None, [])
    assert (arrival.rows, arrival.bytes) == (2, len(clicks(1)[0]) + 1 + len(clicks(2)[0]))
    position = json.loads(arrival.position)[name]
    assert position["offsets"] == {"0": [0, 1], "1": [0, 1]}
    assert bring(warehouse, topics.connector(name)) == []


@pytest.mark.parametrize("batch", [1, None])
def test_each_record_is_ingested_once_for_any_batch_size(
    warehouse: Warehouse, topics: Topics, batch: int | None
) -> None:
    name = topics.create(partitions=3)
    chance, sent = random.Random(3), 0
    for _ in range(4):
        for partition in range(3):
            count = chance.randrange(12)
            topics.send(name, clicks(*range(sent, sent + count)), partition)
            sent += count
        bring(warehouse, topics.connector(name, rows=chance.choice([4, 9, 50_000])), batch)
    assert numbers(warehouse) == list(range(sent))
    timeline = Log(warehouse, CLICKS).read_timeline()
    assert sum(a.rows for a in timeline) == sent
    rows = warehouse.read_frame(CLICKS.log_table)
    places = rows.groupBy("arrival", "position").count().where("count > 1").count()
    assert places == 0
    in_order = rows.selectExpr("struct(kafka_partition, kafka_offset) AS at", "arrival", "position")
    for arrival in timeline:
        found = in_order.where(F.col("arrival") == arrival.arrival).orderBy("position").collect()
        assert [r.at for r in found] == sorted(r.at for r in found)


_INGESTING = """
import json
import sys
from pyspark.sql import SparkSession
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.ingest.dead_letters import reprocess_letters
from tidemark_streaming.files import FileConnector
from tidemark_streaming.ingest.ingest import ingest
from helpers.kafka.topics import Topics

_, remote, place, servers, name = sys.argv
warehouse = Warehouse(SparkSession.builder.remote(remote).getOrCreate(), *json.loads(place))
while True:
    for commit in ingest(warehouse, Topics(servers).connector(name, rows=20)):
        print("committed", flush=True)
"""


# Starts and kills many processes.
@pytest.mark.nightly
@pytest.mark.slow
def test_an_ingest_killed_at_any_instant_loses_and_doubles_nothing(
    engine: Settings, warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create(partitions=2)
    chance, sent = random.Random(11), 0
    arguments = [engine_address(engine), json.dumps(warehouse.place), topics.servers, name]
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    for _ in range(4):
        topics.send(name, clicks(*range(sent, sent + 100)))
        sent += 100
        with subprocess.Popen(
            [sys.executable, "-c", _INGESTING, *arguments],
            env=os.environ | {"PYTHONPATH": paths},
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"committed\n"
            deadline = time.monotonic() + chance.uniform(0, 2)
            while time.monotonic() < deadline:
                topics.send(name, clicks(*range(sent, sent + 15)), chance.randrange(2))
                sent += 15
            assert process.poll() is None
            process.kill()
    bring(warehouse, topics.connector(name))
    assert numbers(warehouse) == list(range(sent))


def test_ingestion_starts_at_the_given_time(warehouse: Warehouse, topics: Topics) -> None:
    name = topics.create()
    topics.send(name, clicks(0), at=T0)
    topics.send(name, clicks(1, 2), at=T0 + 10)
    (arrival,) = bring(
        warehouse, topics.connector(name, start=format_instant((T0 + 10) * 1_000_000) or "")
    )
    assert (arrival.rows, numbers(warehouse)) == (2, [1, 2])


def test_latest_means_the_end_at_the_first_poll(warehouse: Warehouse, topics: Topics) -> None:
    """An empty first poll is recorded, so that records between two polls are not lost."""
    name = topics.create()
    topics.send(name, clicks(0))
    (first,) = bring(warehouse, topics.connector(name, start="latest"))
    assert first.rows == 0
    topics.send(name, clicks(1))
    bring(warehouse, topics.connector(name, start="latest"))
    assert numbers(warehouse) == [1]


def test_a_topic_created_after_the_first_poll_is_read_in_full(
    warehouse: Warehouse, topics: Topics
) -> None:
    """This also holds if the first poll found no topic."""
    name = topics.unused()
    connector = topics.connector(f"^{name}", start="latest")
    assert [a.rows for a in bring(warehouse, connector)] == [0]
    assert bring(warehouse, connector) == []
    topics.create(name=name)
    topics.send(name, clicks(0, 1))
    bring(warehouse, connector)
    assert numbers(warehouse) == [0, 1]


def test_new_partitions_and_topics_are_read_from_their_first_record(
    warehouse: Warehouse, topics: Topics
) -> None:
    prefix = f"many_{random.randrange(10**9)}"
    first = topics.create(name=f"{prefix}_a")
    topics.send(first, clicks(0))
    bring(warehouse, topics.connector(f"^{prefix}_.*", start="latest"))
    topics.grow(first, 2)
    other = topics.create(name=f"{prefix}_b")
    topics.create(name=f"not_{prefix}_c")
    topics.send(first, clicks(1), 1)
    topics.send(other, clicks(2))
    bring(warehouse, topics.connector(f"^{prefix}_.*", start="latest"))
    assert numbers(warehouse) == [1, 2]


def test_records_deleted_by_retention_are_reported_and_skipped_if_accepted(
    warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create()
    topics.send(name, clicks(0, 1))
    bring(warehouse, topics.connector(name))
    topics.send(name, clicks(2, 3, 4, 5))
    topics.forget(name, before=5)
    message = rf"offsets 2 to 4 of {name}-0 \(3 in all\) were deleted .*--allow-data-loss"
    with pytest.raises(DataError, match=message):
        bring(warehouse, topics.connector(name))
    (arrival,) = bring(warehouse, topics.connector(name, accept_loss=True))
    lost = f"offsets 2 to 4 of {name}-0 (3 in all) were deleted by retention or on request"
    assert skipped_losses(arrival.position) == [lost]
    assert numbers(warehouse) == [0, 1, 5]
    topics.send(name, clicks(6))
    (arrival,) = bring(warehouse, topics.connector(name))
    assert skipped_losses(arrival.position) == []
    assert numbers(warehouse) == [0, 1, 5, 6]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_second_loss_stops_a_following_ingest(warehouse: Warehouse, topics: Topics) -> None:
    """This also holds if no records follow the first loss, because its acceptance is recorded."""
    name = topics.create()
    topics.send(name, clicks(0))
    bring(warehouse, topics.connector(name))
    topics.send(name, clicks(1, 2))
    topics.forget(name, before=3)
    following = follow_source(warehouse, topics.connector(name, accept_loss=True))
    (first,) = next(following).arrivals
    assert (first.rows, len(skipped_losses(first.position))) == (0, 1)
    topics.send(name, clicks(3))
    assert next(following).arrivals[0].rows == 1
    topics.send(name, clicks(4, 5))
    topics.forget(name, before=5)
    with pytest.raises(DataError, match=rf"offsets 4 to 4 of {name}-0 \(1 in all\) were deleted"):
        next(following)
    assert numbers(warehouse) == [0, 3]


@pytest.mark.nightly
@pytest.mark.slow
def test_an_accepted_loss_does_not_cover_later_losses_before_its_commit(
    warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create()
    topics.send(name, clicks(0))
    timeline = bring(warehouse, topics.connector(name))
    topics.send(name, clicks(1, 2, 3))
    topics.forget(name, before=2)
    connector = topics.connector(name, accept_loss=True)
    assert connector.list_pending(timeline) == [
        replace(c, arrived_at=ANY) for c in connector.list_pending(timeline)
    ]
    topics.forget(name, before=3)
    with pytest.raises(DataError, match=rf"offsets 1 to 2 of {name}-0"):
        connector.list_pending(timeline)


def test_records_deleted_between_poll_and_read_are_reported(
    warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create()
    topics.send(name, clicks(0, 1, 2))
    connector = topics.connector(name)
    chunks = connector.list_pending([])
    topics.forget(name, before=2)
    with pytest.raises(DataError, match=f"deleted records of {name}-0 while they were read"):
        connector.read(warehouse.spark, chunks)


@pytest.mark.nightly
@pytest.mark.slow
def test_records_deleted_after_an_empty_first_poll_are_reported(
    warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create()
    (first,) = bring(warehouse, topics.connector(name))
    assert first.rows == 0
    assert bring(warehouse, topics.connector(name)) == []
    topics.send(name, clicks(0, 1, 2))
    topics.forget(name, before=2)
    with pytest.raises(DataError, match=rf"offsets 0 to 1 of {name}-0 \(2 in all\) were deleted"):
        bring(warehouse, topics.connector(name))


def test_a_partition_that_ends_before_its_position_is_reported(
    warehouse: Warehouse, topics: Topics
) -> None:
    """This happens if a leader without the newest records is elected."""
    name = topics.create()
    topics.send(name, clicks(0, 1))
    (arrival,) = bring(warehouse, topics.connector(name))
    further = replace(arrival, position=arrival.position.replace("[0,2]", "[0,5]"))
    message = f"{name}-0 ends at offset 2, but was already read up to 5"
    with pytest.raises(DataError, match=message):
        topics.connector(name).list_pending([further])
    connector = topics.connector(name, accept_loss=True)
    (chunk,) = connector.list_pending([further])
    assert skipped_losses(chunk.position) == [message]
    assert '"offsets": {"0": [2, 2]}' in chunk.position


def test_ingested_records_may_be_deleted(warehouse: Warehouse, topics: Topics) -> None:
    name = topics.create()
    topics.send(name, clicks(0, 1))
    bring(warehouse, topics.connector(name))
    topics.forget(name, before=2)
    topics.send(name, clicks(2))
    bring(warehouse, topics.connector(name))
    assert numbers(warehouse) == [0, 1, 2]


def test_a_recreated_topic_is_detected(warehouse: Warehouse, topics: Topics) -> None:
    """Offsets restart at 0: records at offsets that were already read would never be ingested."""
    name = topics.create()
    topics.send(name, clicks(0, 1))
    bring(warehouse, topics.connector(name))
    topics.delete(name)
    with pytest.raises(DataError, match=f"There is no topic '{name}'"):
        bring(warehouse, topics.connector(name))
    with pytest.raises(DataError, match=f"topic '{name}' was deleted"):
        bring(warehouse, topics.connector(f"^{name}"))
    topics.create(name=name)
    topics.send(name, clicks(2, 3, 4))
    with pytest.raises(
        DataError, match=rf"'{name}' was deleted and recreated .*ingested offsets \(0: 2\)"
    ):
        bring(warehouse, topics.connector(name))
    bring(warehouse, topics.connector(name, accept_loss=True))
    assert numbers(warehouse) == [0, 1, 2, 3, 4]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_topic_recreated_between_poll_and_read_is_detected(
    warehouse: Warehouse, topics: Topics
) -> None:
    """Otherwise the records of the new topic would be taken for those of the old one."""
    name = topics.create()
    topics.send(name, clicks(0, 1))
    connector = topics.connector(name)
    chunks = connector.list_pending([])
    topics.delete(name)
    topics.create(name=name)
    topics.send(name, clicks(2, 3))
    with pytest.raises(DataError, match=f"Topic '{name}' was deleted and recreated while"):
        connector.read(warehouse.spark, chunks)
    bring(warehouse, connector)
    assert numbers(warehouse) == [2, 3]


@pytest.mark.nightly
@pytest.mark.slow
def test_a_topic_left_out_for_a_while_resumes_at_its_position(
    warehouse: Warehouse, topics: Topics
) -> None:
    one, other = topics.create(), topics.create()
    topics.send(one, clicks(0))
    topics.send(other, clicks(1))
    bring(warehouse, topics.connector(one, other))
    topics.send(one, clicks(2))
    topics.send(other, clicks(3))
    bring(warehouse, topics.connector(one))
    assert numbers(warehouse) == [0, 1, 2]
    bring(warehouse, topics.connector(one, other))
    assert numbers(warehouse) == [0, 1, 2, 3]


def test_a_source_can_switch_between_files_and_kafka(
    warehouse: Warehouse, topics: Topics, tmp_path: Path
) -> None:
    name, columns = topics.create(), {"at": "TIMESTAMP", "n": "INT"}
    source = replace(CLICKS, columns=columns, watermark=BoundedOutOfOrderness("10 seconds"))
    files, records = FileConnector(source, tmp_path, "json"), topics.connector(name, source=source)
    for n in (0, 2):
        (tmp_path / f"{n}.json").write_bytes(clicks(n)[0])
        list(ingest(warehouse, files))
        topics.send(name, clicks(n + 1))
        bring(warehouse, records)
    assert numbers(warehouse) == [0, 1, 2, 3]
    assert list(ingest(warehouse, files)) == []
    assert bring(warehouse, records) == []


def test_large_records_are_split_into_smaller_arrivals(
    warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create()
    large = b'{"at": "2023-11-14T00:00Z", "n": 1, "rest": "' + b"x" * 500_000 + b'"}'
    topics.send(name, [large] * 3)
    bring(warehouse, topics.connector(name))
    topics.send(name, [large] * 40)
    arrivals = bring(warehouse, topics.connector(name))
    assert [a.rows for a in arrivals] == [20, 20]
    assert all(a.bytes == 20 * len(large) for a in arrivals)


def test_only_committed_transactions_are_read(warehouse: Warehouse, topics: Topics) -> None:
    """spring-kafka 1587: after all records are read, the lag is 0, although transaction markers
    follow."""
    name = topics.create()
    producer = topics.producer(transactional_id=f"t-{name}")
    producer.init_transactions()
    for numbers_, ends in (
        ((0, 1), producer.commit_transaction),
        ((2, 3), producer.abort_transaction),
    ):
        producer.begin_transaction()
        for value in clicks(*numbers_):
            producer.produce(name, value)
        producer.flush()
        ends()
    producer.begin_transaction()
    producer.produce(name, clicks(4)[0])
    producer.flush()
    topics.send(name, clicks(5))
    bring(warehouse, topics.connector(name))
    assert numbers(warehouse) == [0, 1]
    producer.commit_transaction()
    topics.settled(name)
    *_, newest = bring(warehouse, topics.connector(name))
    assert numbers(warehouse) == [0, 1, 4, 5]
    assert topics.connector(name).measure_lag(newest.position).waiting == {(name, 0): 0}


@pytest.mark.nightly
@pytest.mark.slow
def test_read_uncommitted_ingests_records_of_open_and_aborted_transactions(
    warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create()
    producer = topics.producer(transactional_id=f"t-{name}")
    producer.init_transactions()
    for n, ends in ((0, producer.abort_transaction), (1, lambda: None)):
        producer.begin_transaction()
        producer.produce(name, clicks(n)[0])
        producer.flush()
        ends()
    connector = topics.connector(name, client={"isolation.level": "read_uncommitted"})
    bring(warehouse, connector)
    assert numbers(warehouse) == [0, 1]
    assert connector.measure_lag(None).waiting == {(name, 0): 3}
    producer.abort_transaction()
    bring(warehouse, connector)
    assert numbers(warehouse) == [0, 1]


@pytest.mark.nightly
@pytest.mark.slow
def test_the_timestamp_type_distinguishes_broker_and_producer_time(
    warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create(message_timestamp_type="LogAppendTime")
    begun = time.time()
    topics.send(name, clicks(0), at=T0)
    bring(warehouse, topics.connector(name))
    (row,) = warehouse.read_frame(CLICKS.log_table).collect()
    assert row.kafka_timestamp_type == "LogAppendTime"
    assert begun - 1 < row.kafka_timestamp.timestamp() < time.time() + 1


def test_records_sent_after_a_poll_are_not_in_its_arrival(
    warehouse: Warehouse, topics: Topics
) -> None:
    """This also holds if the last offset of the arrival is a transaction marker."""
    name = topics.create()
    producer = topics.producer(transactional_id=f"t-{name}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(name, clicks(0)[0])
    producer.commit_transaction()
    topics.settled(name)
    connector = topics.connector(name)
    chunks = connector.list_pending([])
    topics.send(name, clicks(1))
    assert connector.read(warehouse.spark, chunks)["n"].to_pylist() == [0]
    bring(warehouse, connector)
    assert numbers(warehouse) == [0, 1]


def test_records_removed_by_compaction_are_skipped(warehouse: Warehouse, topics: Topics) -> None:
    name = topics.create(
        cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01"
    )
    for n in range(5):
        topics.send(name, clicks(n), key=b"same")
        time.sleep(0.15)
    connector, deadline = topics.connector(name), time.monotonic() + 60
    while True:
        topics.send(name, clicks(5), key=b"last")
        chunks = connector.list_pending([])
        rows = connector.read(warehouse.spark, chunks)["n"].to_pylist()
        if 0 not in rows or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert 0 not in rows, "the broker has not compacted in a minute"
    (arrival,) = bring(warehouse, topics.connector(name))
    found = numbers(warehouse)
    assert 0 not in found
    assert {4, 5} <= set(found)
    (end,) = json.loads(arrival.position)[name]["offsets"].values()
    assert arrival.rows == len(found) < end[1]
    assert bring(warehouse, topics.connector(name)) == []


BAD = {
    b"gibberish": "The record is not a JSON object.",
    b'"text"': "The record is not a JSON object.",
    b"[1]": "The record is not a JSON object.",
    b"": "The record is not a JSON object.",
    b"\xff\x00{}": "The record is not valid UTF-8.",
    b'{"at": "yesterday", "n": 1}': "The field 'at' is not a valid TIMESTAMP.",
    b'{"n": "x"}': "The field 'n' is not a valid INT.",
}


def test_records_that_cannot_be_decoded_are_dead_letters(
    warehouse: Warehouse, topics: Topics
) -> None:
    """ksql 1100: a tombstone is valid. It is an event whose columns are null."""
    name = topics.create()
    topics.send(name, [*BAD, None], headers={"trace": b"t"}, key=b"k", at=T0)
    topics.send(name, [b'{"n": 7, "other": 1}', *clicks(8)])
    (arrival,) = bring(warehouse, topics.connector(name, correlation="trace"))
    rows = warehouse.read_frame(CLICKS.log_table).orderBy("position").collect()
    assert (arrival.rows, arrival.dead_letters) == (len(rows), len(BAD)) == (3, len(BAD))
    assert [(r.n, r.at is None) for r in rows] == [(None, True), (7, True), (8, False)]
    found = warehouse.load_rows(CLICKS.dead_letters_table).sort_by("position").to_pylist()
    assert {r["bytes"]: r["reason"] for r in found} == BAD
    assert [(r["topic"], r["partition"], r["offset"]) for r in found] == [
        (name, 0, n) for n in range(len(BAD))
    ]
    last = found[-1]
    assert (last["key"], last["headers"]) == (b"k", [{"key": "trace", "value": b"t"}])
    assert (last["timestamp"].timestamp(), last["timestamp_type"]) == (T0, "CreateTime")
    assert (last["read_from"], last["correlation_id"]) == (f"{name}-0-{len(BAD) - 1}", "t")


def test_a_changed_column_type_stops_the_source_unless_accepted(
    warehouse: Warehouse, topics: Topics
) -> None:
    name, connector = topics.create(), topics.connector
    topics.send(name, clicks(*range(MIN_UNUSABLE_ROWS)))
    changed = [value.replace(b'"n": ', b'"n": "a') for value in clicks(*range(MIN_UNUSABLE_ROWS))]
    changed = [value.replace(b"}", b'"}') for value in changed]
    topics.send(name, changed)
    rows = f"None of the next {MIN_UNUSABLE_ROWS} rows of source 'clicks'"
    message = rf"{rows} can be decoded\. The reason is: .* is not a valid INT\. "
    for _ in range(2):
        with pytest.raises(UnusableArrivalError, match=message):
            bring(warehouse, connector(name, rows=MIN_UNUSABLE_ROWS))
        assert numbers(warehouse) == list(range(MIN_UNUSABLE_ROWS))
        (arrival,) = Log(warehouse, CLICKS).read_timeline()
        assert (arrival.rows, arrival.dead_letters) == (MIN_UNUSABLE_ROWS, 0)
    (arrival,) = bring(warehouse, connector(name, rows=MIN_UNUSABLE_ROWS, accept_change=True))
    assert (arrival.rows, arrival.dead_letters) == (0, MIN_UNUSABLE_ROWS)
    # If one record is valid, the others are dead letters.
    topics.send(name, [*changed, *clicks(MIN_UNUSABLE_ROWS)])
    (arrival,) = bring(warehouse, connector(name))
    assert (arrival.rows, arrival.dead_letters) == (1, MIN_UNUSABLE_ROWS)


def test_undeclared_fields_are_recorded_in_the_timeline(
    warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create()
    more = [value.replace(b"}", b', "battery": 1, "kind": {"x": 2}}') for value in clicks(1)]
    topics.send(name, [*clicks(0), *more, b"no JSON"])
    bring(warehouse, topics.connector(name))
    topics.send(name, clicks(2))
    bring(warehouse, topics.connector(name))
    undeclared = [a.undeclared for a in Log(warehouse, CLICKS).read_timeline()]
    assert undeclared == ['["battery", "kind"]', None]


def test_a_corrected_dead_letter_keeps_its_kafka_metadata(
    warehouse: Warehouse, topics: Topics
) -> None:
    name = topics.create(partitions=2)
    topics.send(name, [b'{"n": "x"}'], 1, {"trace": b"t"}, key=b"k", at=T0)
    connector = topics.connector(name, correlation="trace")
    bring(warehouse, connector)
    letters = warehouse.load_rows(CLICKS.dead_letters_table)
    place = letters.column_names.index("bytes")
    mended = letters.set_column(place, "bytes", pa.array(clicks(3), pa.binary()))
    assert reprocess_letters(warehouse, connector, mended).brought == 1
    (row,) = warehouse.read_frame(CLICKS.log_table).collect()
    assert (row.n, row.arrival, row.position) == (3, 1, 0)
    assert (row.kafka_topic_partition, row.kafka_offset) == (f"{name}-1", 0)
    assert (bytes(row.kafka_key), row.kafka_timestamp.timestamp()) == (b"k", T0)
    assert [(h.key, bytes(h.value)) for h in row.kafka_headers] == [("trace", b"t")]
    assert (row.read_from, row.correlation_id) == (f"{name}-1-0", "t")
    # The topic resumes at its position.
    topics.send(name, clicks(4), 1)
    bring(warehouse, connector)
    assert numbers(warehouse) == [3, 4]


def test_clock_jumps_lose_no_records_and_arrival_times_never_decrease(
    warehouse: Warehouse, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, now = topics.create(), time.time_ns()
    hour = 3600 * 10**9
    for sent, jump in enumerate([0, hour, -hour, 2, 3 * hour, -5 * hour, 0]):
        topics.send(name, clicks(sent))
        monkeypatch.setattr(time, "time_ns", lambda jump=jump: now + jump)
        bring(warehouse, topics.connector(name))
    monkeypatch.undo()
    assert numbers(warehouse) == list(range(7))
    clocks = [a.arrived_at * 1000 - now for a in Log(warehouse, CLICKS).read_timeline()]
    assert [round(at / hour) for at in clocks] == [0, 1, 1, 1, 3, 3, 3]


def test_slow_partitions_hold_the_watermark_but_idle_ones_do_not(
    warehouse: Warehouse, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beam 40176: the third partition never had a record and does not hold back the watermark."""
    name, now = topics.create(partitions=3), time.time_ns()

    def later(seconds: int) -> list[Arrival]:
        """Ingest the pending records this many seconds after the start of the test."""
        monkeypatch.setattr(time, "time_ns", lambda: now + seconds * 10**9)
        return bring(warehouse, connector)

    impatient = replace(
        CLICKS, watermark=PerPartition("kafka_topic_partition", "10 seconds", idle="3 seconds")
    )
    connector = topics.connector(name, source=impatient)
    topics.send(name, clicks(100), 0)
    topics.send(name, clicks(40), 1)
    (first,) = later(0)
    assert first.after == (T0 + 40 - 10) * 1_000_000
    topics.send(name, clicks(110), 0)
    (second,) = later(2)
    assert second.after == first.after
    (beat,) = later(4)
    assert (beat.rows, beat.after) == (0, (T0 + 110 - 10) * 1_000_000)
    assert later(8) == [], "time moves nothing any more"


@pytest.mark.nightly
@pytest.mark.slow
def test_a_partition_with_pending_records_is_not_idle_after_a_pause(
    warehouse: Warehouse, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first record is a dead letter, and the other partition is far ahead."""
    name, now = topics.create(partitions=2), time.time_ns()
    topics.send(name, clicks(0), 0)
    topics.send(name, clicks(0), 1)
    bring(warehouse, topics.connector(name))
    topics.send(name, clicks(*range(600, 640)), 0)
    topics.send(name, [b"no JSON", *clicks(5, 6)], 1)
    monkeypatch.setattr(time, "time_ns", lambda: now + 600 * 10**9)
    arrivals = bring(warehouse, topics.connector(name, rows=10))
    monkeypatch.undo()
    assert [a.dead_letters for a in arrivals] == [1, 0, 0, 0, 0]
    log = warehouse.read_frame(CLICKS.log_table)
    # The first chunk has no valid event of this partition; the next two have its events.
    late = log.where("watermark > at").select("n").collect()
    assert late == []
    assert [a.after for a in arrivals] == [(T0 + n - 10) * 1_000_000 for n in (0, 5, 5, 6, 6)]


@pytest.mark.usefixtures("impatient")
def test_an_unreachable_broker_is_reported(warehouse: Warehouse) -> None:
    connector = KafkaConnector(CLICKS, ["clicks"], servers="127.0.0.1:1")
    message = r"Kafka at 127.0.0.1:1 can't be read: .*Connection refused.*kafka up"
    with pytest.raises(DataError, match=message):
        bring(warehouse, connector)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"topics": []}, "needs a list of topics (got [])"),
        ({"topics": "clicks"}, "topics must be a list of strings (got 'clicks')"),
        ({"format": "xml"}, "format must be one of 'json' or a Payload (got 'xml')"),
        ({"rows": 0}, "needs `rows` of at least 1 (got 0)"),
        ({"start": "soon"}, "'soon' is not a date or time"),
    ],
)
def test_invalid_connector_arguments_are_refused(given: dict[str, Any], sentence: str) -> None:
    arguments: dict[str, Any] = {"source": CLICKS, "topics": ["clicks"], **given}
    with pytest.raises(DefinitionError, match=re.escape(sentence)):
        KafkaConnector(**arguments)


def test_kafka_metadata_columns_must_have_their_type() -> None:
    columns = {"at": "TIMESTAMP", "kafka_key": "string", "kafka_headers": "STRING"}
    source = replace(CLICKS, columns=columns, watermark=BoundedOutOfOrderness("10 seconds"))
    message = r"'kafka_headers' as ARRAY<STRUCT<key: STRING, value: BINARY>>, but it is .* STRING"
    with pytest.raises(DefinitionError, match=message):
        KafkaConnector(source, ["clicks"])
    KafkaConnector(replace(source, columns={**columns, **RECORD}), ["clicks"])
