"""Playing a recording through Kafka gives the same event log as playing its files."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame

from helpers.kafka.topics import Topics
from tidemark.base.errors import ConflictError, DataError
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_assets.flights.connectors import ingestion
from tidemark_assets.flights.sources import flights
from tidemark_streaming.connector import Excerpt
from tidemark_streaming.ingest.play import play_files as play_files
from tidemark_streaming.kafka import play
from tidemark_streaming.kafka.cluster import Cluster

PART = Excerpt(days=2, span="3 hours")


def stage(topics: Topics) -> play.Stage:
    return play.Stage(topics.servers, f"flights_{uuid4().hex[:8]}", "origin")


def told(arrival: Arrival) -> tuple[object, ...]:
    return (arrival.arrived_at, arrival.before, arrival.after, arrival.rows, arrival.max_event_time)


def events(warehouse: Warehouse) -> DataFrame:
    columns = [*flights.columns, "arrival", "arrived_at", "watermark"]
    return warehouse.read_frame(flights.log_table).select(*columns)


# Plays a recording twice, with a failure in between.
@pytest.mark.nightly
@pytest.mark.slow
def test_playing_through_kafka_gives_the_log_of_the_files(
    shared: Warehouse,
    warehouse: Warehouse,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    list(play_files(shared, ingestion, tmp_path, PART, batch=None))
    files, place = Log(shared, flights).read_timeline(), stage(topics)
    append = Log.append_arrivals

    def fail(*_: object) -> None:
        raise ConflictError("killed")

    begun = play.play_through_topic(warehouse, ingestion, place, PART)
    list(islice(begun, 5))
    # The sixth span is in the topic but not in the event log.
    monkeypatch.setattr(Log, "append_arrivals", fail)
    with pytest.raises(ConflictError, match="killed"):
        next(begun)
    monkeypatch.setattr(Log, "append_arrivals", append)
    log = Log(warehouse, flights)
    assert len(log.read_timeline()) == 5
    rest = Excerpt(start="2013-01-01T15:00:00Z", end="2013-01-03T00:00:00Z", span="3 hours")
    assert [
        c.arrivals[0].arrival for c in play.play_through_topic(warehouse, ingestion, place, rest)
    ] == [*range(5, 16)]
    assert [told(a) for a in log.read_timeline()] == [told(a) for a in files]
    assert any(a.rows == 0 for a in files)
    assert events(shared).exceptAll(events(warehouse)).isEmpty()
    assert events(warehouse).count() == events(shared).count() > 1000


def test_playing_waits_until_a_span_is_visible(warehouse: Warehouse, topics: Topics) -> None:
    """Committed records become visible only after all earlier open transactions have ended."""
    place = stage(topics)
    name = topics.create(play.PARTITIONS, place.topic)
    other = topics.producer(transactional_id=f"t-{name}")
    other.init_transactions()
    other.begin_transaction()
    for partition in range(play.PARTITIONS):
        other.produce(name, b"{}", partition=partition)
    other.flush()

    def end() -> None:
        """Abort the transaction one second after the span was written behind it."""
        all_there = Cluster(topics.servers, {"isolation.level": "read_uncommitted"})
        deadline = time.monotonic() + 60
        while all(last == 1 for _, last in all_there.read_topics([name])[name].offsets.values()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1)
        other.abort_transaction()

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(end)
        (commit,) = play.play_through_topic(
            warehouse, ingestion, place, Excerpt(days=1, span="1 day")
        )
        ended.result()
    assert commit.arrivals[0].rows > 100


def test_a_source_played_through_kafka_cannot_be_played_as_files(
    warehouse: Warehouse, topics: Topics, tmp_path: Path
) -> None:
    list(
        play.play_through_topic(
            warehouse, ingestion, stage(topics), Excerpt(days=1, span="12 hours")
        )
    )
    sentence = "Arrival 1 of 'flights' came through Kafka, so playing the recording as files"
    with pytest.raises(DataError, match=sentence):
        list(play_files(warehouse, ingestion, tmp_path, PART))
    assert not list(tmp_path.iterdir())


def test_unreachable_brokers_are_reported(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play, "TIMEOUT_SECONDS", 0.5)
    nowhere = play.Stage("127.0.0.1:1", "flights", "origin")
    with pytest.raises(DataError, match=r"Kafka at 127\.0\.0\.1:1 can't be read"):
        list(play.play_through_topic(warehouse, ingestion, nowhere, PART))
