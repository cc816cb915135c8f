"""Brokers that hang for a minute during ingestion and publishing, and connections that are cut
during a fetch."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from helpers.data.landing import log_rows
from helpers.data.support import same
from helpers.kafka.brokers import OwnBroker, own_broker
from helpers.kafka.rebuilt import Table, records
from helpers.kafka.relay import Relay
from helpers.kafka.topics import CLICKS, T0, Topics, clicks
from helpers.processes.following import PATIENCE, Following
from helpers.suite.nightly import mostly_nightly
from tidemark.base.errors import DataError, TidemarkError
from tidemark.base.instants import format_instant, parse_instant
from tidemark.define import aggregates as agg
from tidemark.define.transform import WindowedTransform
from tidemark.define.triggers.trigger import EachArrival, Trigger
from tidemark.define.windows import Tumbling
from tidemark.engine.ports import free_port
from tidemark.run.runner import incremental
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.base.kafka_position import Topic
from tidemark_streaming.kafka import KafkaSink
from tidemark_streaming.kafka.cluster import Cluster
from tidemark_streaming.sink.follow import follow_asset
from tidemark_streaming.sink.writer import PublishResult

# Brokers are down for longer than clients wait, which is a minute.
pytestmark = pytest.mark.slow

MINUTE = 65.0
"""Seconds of the outage: slightly more than the timeout of the clients."""

BY_TEN = WindowedTransform(
    name="clicks_by_ten",
    description="Clicks by partition and ten seconds.",
    source=CLICKS,
    keys=("kafka_partition",),
    window=Tumbling("10 seconds"),
    allowed_lateness=0,
    trigger=Trigger(early=EachArrival()),
    accumulation="accumulating",
    aggregates={"n": agg.count()},
    function=same,
)


def numbers(warehouse: Warehouse) -> list[object]:
    at = [*CLICKS.columns].index("n")
    return sorted(row[at] for row in log_rows(warehouse, CLICKS))  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OwnBroker, Relay]]:
    """Yield a broker that can hang and the relay through which clients reach it."""
    port = free_port()
    with (
        Relay(port) as relay,
        own_broker(tmp_path_factory.mktemp("broker"), port, relay.port) as broker,
    ):
        yield broker, relay


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def told(servers: str, topic: str) -> dict[tuple[str, int], int]:
    """Return the number of clicks of each window in a topic, by window start and partition."""
    table = Table("accumulating")
    for record in records(servers, topic):
        table.take(*record)
    return {(w[0], w[2]): row["values"]["n"] for w, row in table.rows.items()}


def test_hanging_brokers_delay_ingest_and_sink_but_lose_nothing(
    warehouse: Warehouse, network: tuple[OwnBroker, Relay], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers hang in the middle of a transaction and keep all connections open."""
    broker, relay = network
    topics = Topics(f"127.0.0.1:{relay.port}")
    name, panes = topics.create(partitions=2), topics.unused()
    asset = replace(BY_TEN, sink=KafkaSink(panes, topics.servers))
    following = Following(warehouse, topics.connector(name))

    def bring(numbers: tuple[int, ...], partition: int) -> None:
        topics.send(name, clicks(*numbers), partition)
        following.brings(len(numbers))

    bring((0, 1), 0)
    incremental(warehouse, asset)
    ended, out, failures = threading.Event(), list[PublishResult](), list[TidemarkError]()
    way_out = threading.Thread(
        target=follow_asset,
        args=(warehouse, asset, ended, out.append, failures.append),
        daemon=True,
    )
    way_out.start()
    until(lambda: out)
    bring((2, 30), 0)
    still, delivered = threading.Event(), list[KafkaError | None]()

    def stand_still(point: str) -> None:
        if point == "sent" and not still.is_set():
            # By then, the records of the transaction have reached the brokers.
            time.sleep(0.2)
            # Ignore earlier failures, for example of a broker that had just started.
            failures.clear()
            broker.stand_still()
            still.set()

    monkeypatch.setattr("tidemark_streaming.sink.transactional_topic.pass_fail_point", stand_still)
    try:
        incremental(warehouse, asset)
        assert still.wait(PATIENCE)
        begun = time.monotonic()
        producer = topics.producer(enable_idempotence="true", message_timeout_ms="0")
        for event in clicks(40, 41):
            producer.produce(
                name, event, partition=1, on_delivery=lambda error, _: delivered.append(error)
            )
        assert "Kafka at" in (said := following.says())
        assert said.endswith("Waiting until it is back.")
        until(lambda: failures)
        time.sleep(max(0.0, begun + MINUTE - time.monotonic()))
    finally:
        broker.go_on()
    assert f"{topics.servers} can't be written" in str(failures[0])
    assert producer.flush(PATIENCE) == 0
    assert delivered == [None, None]
    following.brings(2)
    assert following.says().startswith("The outage ended after")
    following.end()
    bring((50,), 0)
    following.join()
    incremental(warehouse, asset)
    head = warehouse.newest_version(asset.published_table)
    until(lambda: (p := out[-1].position) is not None and p.version >= head)
    ended.set()
    way_out.join(PATIENCE)

    sent: dict[int, int] = {**dict.fromkeys((0, 1, 2, 30, 50), 0), 40: 1, 41: 1}
    expected = Counter(
        (format_instant((T0 + n // 10 * 10) * 1_000_000), p) for n, p in sent.items()
    )
    assert numbers(warehouse) == sorted(sent)
    rows: list[dict[str, Any]] = warehouse.load_rows(asset.published_table).to_pylist()
    published = {
        (format_instant(parse_instant(r["window_start"])), r["kafka_partition"]): r["n"]
        for r in rows
    }
    assert published == told(topics.servers, panes) == expected


@pytest.mark.parametrize("silent", mostly_nightly([False, True]), ids=["cut", "stopped"])
def test_a_fetch_resumes_after_a_network_failure(
    warehouse: Warehouse, network: tuple[OwnBroker, Relay], silent: bool
) -> None:
    topics, relay = Topics(f"127.0.0.1:{network[1].port}"), network[1]
    name = topics.create()
    many = clicks(*range(20_000))
    topics.send(name, many)
    # The records take about 600 kB.
    relay.fail_after(200_000, silent=silent)
    following = Following(warehouse, topics.connector(name))
    following.end()
    assert relay.failed.wait(PATIENCE)
    relay.mend()
    following.brings(len(many))
    following.join()
    assert numbers(warehouse) == list(range(len(many)))


def test_a_truncated_response_is_an_outage_and_not_an_offset(
    network: tuple[OwnBroker, Relay],
) -> None:
    """The client returns an invalid offset for a request that times out."""
    relay = network[1]
    topics = Topics(f"127.0.0.1:{relay.port}")
    name = topics.create(partitions=2)

    def asked(patience: float = 1.0) -> dict[str, Topic]:
        return Cluster(topics.servers, {}, patience).read_topics([name])

    # The broker may have only just resumed, and may still send responses to others.
    there = asked(PATIENCE)
    before = relay.came
    assert asked(PATIENCE) == there
    size = relay.came - before
    # The last response, with the end offsets, has about sixty bytes.
    places = [*range(1, size - 200, size // 6), *range(size - 200, size, 25)]
    refused = list[DataError]()
    for sent in places:
        relay.fail_after(sent, silent=True)
        try:
            assert asked() == there
        except DataError as error:
            refused.append(error)
        finally:
            relay.mend()
    assert len(refused) > len(places) // 2
    assert all(error.retriable and "can't be read" in str(error) for error in refused)
