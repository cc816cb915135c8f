"""Errors of the Kafka client: brokers that are down, and invalid properties."""

import socket
import threading
from collections.abc import Iterator

import pytest

from helpers.kafka.topics import Topics
from tidemark.base.errors import DataError, DefinitionError
from tidemark_streaming.kafka.client import speaks_kafka
from tidemark_streaming.kafka.cluster import Cluster


@pytest.fixture
def closing() -> Iterator[int]:
    """Yield a port that accepts and closes connections, as a load balancer does if its brokers are
    down."""
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
def test_a_load_balancer_without_brokers_is_a_retriable_outage(closing: int, protocol: str) -> None:
    """The client reports that the port does not use TLS, but this is unknown."""
    client = {"security.protocol": protocol}
    if protocol == "SASL_SSL":
        client |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann", "sasl.password": "x"}
    cluster = Cluster(f"127.0.0.1:{closing}", client, timeout=2.0)
    with pytest.raises(DataError, match="can't be read") as caught:
        cluster.read_topics(["t"])
    assert caught.value.retriable
    assert "PLAINTEXT in the connector" not in str(caught.value)


def test_a_broker_without_tls_is_detected(topics: Topics, closing: int) -> None:
    host, _, port = topics.servers.partition(":")
    assert speaks_kafka(host, int(port))
    assert not speaks_kafka("127.0.0.1", closing, 1.0)


def test_servers_without_a_port_use_the_default_port() -> None:
    with pytest.raises(DataError, match="Kafka at localhost can't be read") as caught:
        Cluster("localhost", {}, timeout=1.0).read_topics(["t"])
    assert caught.value.retriable


def test_an_invalid_isolation_level_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"or read_uncommitted \(got 'commited'\)"):
        Cluster("localhost", {"isolation.level": "commited"})
