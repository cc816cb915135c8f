"""What a client tells of brokers that are away, or of properties that are none."""

import socket
import threading
from collections.abc import Iterator

import pytest

from helpers.kafka.topics import Topics
from tidemark.base.errors import DataError, DefinitionError
from tidemark_streaming.kafka.cluster import Cluster
from tidemark_streaming.kafka.plaintext import speaks_kafka


@pytest.fixture
def closing() -> Iterator[int]:
    """A port that takes connections and closes them: a balancer before brokers that are away."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=close, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "PLAINTEXT"])
def test_a_port_before_brokers_that_are_away_is_an_outage(closing: int, protocol: str) -> None:
    """What the client says of it is that the port speaks no TLS, which is not known."""
    client = {"security.protocol": protocol}
    if protocol == "SASL_SSL":
        client |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann", "sasl.password": "x"}
    cluster = Cluster(f"127.0.0.1:{closing}", client, patience=2.0)
    with pytest.raises(DataError, match="can't be read") as caught:
        cluster.topics(["t"])
    assert caught.value.retriable
    assert "PLAINTEXT in the feed" not in str(caught.value)


def test_who_speaks_kafka_without_tls_is_known(topics: Topics, closing: int) -> None:
    host, _, port = topics.servers.partition(":")
    assert speaks_kafka(host, int(port))
    assert not speaks_kafka("127.0.0.1", closing, 1.0)


def test_servers_without_a_port_have_kafkas_own() -> None:
    with pytest.raises(DataError, match="Kafka at localhost can't be read") as caught:
        Cluster("localhost", {}, patience=1.0).topics(["t"])
    assert caught.value.retriable


def test_an_isolation_that_there_is_not_is_told() -> None:
    with pytest.raises(DefinitionError, match=r"or read_uncommitted \(got 'commited'\)"):
        Cluster("localhost", {"isolation.level": "commited"})
