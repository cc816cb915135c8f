"""Tests of free ports, which stay free until a program listens on them."""

import socket
from pathlib import Path

from tidemark.engine.ports import free_port, is_listening


def test_free_ports_are_outside_the_ephemeral_port_range() -> None:
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    for _ in range(20):
        port = free_port()
        assert not is_listening(port)
        assert not int(given[0]) <= port <= int(given[1])
        with socket.socket() as own:
            own.bind(("127.0.0.1", port))
            own.listen()
            assert is_listening(port)
