"""Check and choose ports on this machine's loopback interface."""

import random
import socket
from contextlib import suppress
from pathlib import Path

from tidemark.base.errors import EngineError

_TITLES = {"webserver": "Dagster", "watch": "live page", "kafka": "Kafka broker"}
"""The names by which users know some managed processes; messages show others by their own name."""

_TRIES = 100
_ANY = random.SystemRandom()
"""Not seeded: processes with the same seed would all choose the same ports."""

_LOWEST = 10_000
"""The lowest port to choose; many ports below it are assigned to known services."""


def check_free(port: int, setting: str) -> None:
    """Raise an error if another program listens on a port of this machine.

    Args:
        setting: the name of the setting that specifies the port, for the message.
    """
    if is_listening(port):
        raise EngineError(
            f"Port {port} on 127.0.0.1 is in use by {_describe_holder(port)}, or set {setting} "
            f"(TIDEMARK_{setting.upper()}) to a free port."
        )


def is_listening(port: int) -> bool:
    """Return whether a program listens on `port` of this machine's loopback interface."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def _describe_holder(port: int) -> str:
    """Return the end of an error message: which program listens on a port, and how to stop it."""
    import psutil

    from tidemark.engine.process import STARTED_AS

    for connection in psutil.net_connections("tcp"):
        if connection.status != psutil.CONN_LISTEN or connection.laddr[1:] != (port,):
            continue
        with suppress(psutil.Error, KeyError, TypeError):
            record = Path(psutil.Process(connection.pid).environ()[STARTED_AS])
            home = record.parents[1]
            name = record.stem
            stopper = "tidemark dev kafka down" if name == "kafka" else "tidemark down"
            return (
                f"Tidemark's own {_TITLES.get(name, name)} of the home {home}: stop it with "
                f"`TIDEMARK_HOME={home} {stopper}`"
            )
    return "another program: stop that program"


def _lowest_ephemeral_port() -> int:
    """Return the lowest ephemeral port of the system; 0 if it is unknown."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return 0


def free_port() -> int:
    """Return a port on loopback on which no program listens now.

    The system could assign an ephemeral port to another program before the caller listens on it.
    The port is therefore below the range of ephemeral ports if that range is known.
    """
    for _ in range(_TRIES if (highest := _lowest_ephemeral_port()) > _LOWEST else 0):
        port = _ANY.randrange(_LOWEST, highest)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
