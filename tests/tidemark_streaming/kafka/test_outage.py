"""Brokers that are killed while an ingest follows, and a connection that is cut in a fetch."""

from collections.abc import Iterator

import pytest

from brokers import OwnBroker, own_broker
from following import PATIENCE, Following
from landing import log_rows
from relay import Relay
from tidemark.engine.connect import free_port
from tidemark.store.warehouse import Warehouse
from topics import CLICKS, Topics, clicks


def numbers(warehouse: Warehouse) -> list[object]:
    at = [*CLICKS.columns].index("n")
    return sorted(row[at] for row in log_rows(warehouse, CLICKS))  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OwnBroker, Relay]]:
    """A broker that can be killed, and the network by which clients reach it."""
    port = free_port()
    with (
        Relay(port) as relay,
        own_broker(tmp_path_factory.mktemp("broker"), port, relay.port) as broker,
    ):
        yield broker, relay


def test_brokers_that_are_killed_are_waited_for(
    warehouse: Warehouse, network: tuple[OwnBroker, Relay]
) -> None:
    broker, relay = network
    topics = Topics(f"127.0.0.1:{relay.port}")
    name = topics.create(partitions=2)
    topics.send(name, clicks(0, 1))
    following = Following(warehouse, topics.feed(name))
    following.brings(2)
    broker.kill()
    assert "Kafka at" in (told := following.said.get(timeout=PATIENCE))
    assert told.endswith("Waiting until it is back.")
    broker.start()
    following.end()
    topics.send(name, clicks(2, 3, 4), partition=1)
    following.brings(3)
    following.join()
    assert numbers(warehouse) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("silent", [False, True], ids=["cut", "stopped"])
def test_a_fetch_in_whose_middle_the_network_fails_goes_on(
    warehouse: Warehouse, network: tuple[OwnBroker, Relay], silent: bool
) -> None:
    topics, relay = Topics(f"127.0.0.1:{network[1].port}"), network[1]
    name = topics.create()
    many = clicks(*range(20_000))
    topics.send(name, many)
    # Of the 600 kB or so that the records take.
    relay.fail_after(200_000, silent=silent)
    following = Following(warehouse, topics.feed(name))
    following.end()
    assert relay.failed.wait(PATIENCE)
    relay.mend()
    following.brings(len(many))
    following.join()
    assert numbers(warehouse) == list(range(len(many)))
