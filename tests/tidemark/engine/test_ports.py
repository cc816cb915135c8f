"""Ports that are free stay so until somebody listens on them."""

import socket
from pathlib import Path

from tidemark.engine.ports import free_port, is_listening


def test_a_free_port_is_none_that_the_system_gives_to_others() -> None:
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    for _ in range(20):
        port = free_port()
        assert not is_listening(port)
        assert not int(given[0]) <= port <= int(given[1])
        with socket.socket() as own:
            own.bind(("127.0.0.1", port))
            own.listen()
            assert is_listening(port)
