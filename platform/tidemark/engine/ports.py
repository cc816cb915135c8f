"""Ports of this machine's loopback."""

import socket

from tidemark.base.errors import EngineError


def check_free(port: int, setting: str) -> None:
    """Refuse a port of this machine on which another program listens.

    Args:
        setting: what says that port.

    Raises:
        EngineError: it is taken.
    """
    if listening(port):
        raise EngineError(
            f"Port {port} on 127.0.0.1 is in use by another program: stop that program, or set "
            f"{setting} (TIDEMARK_{setting.upper()}) to a free port."
        )


def listening(port: int) -> bool:
    """Whether some program listens on `port` of this machine's loopback."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """A port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
