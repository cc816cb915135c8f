"""Probe whether a port speaks Kafka without TLS."""

import socket
import struct
from contextlib import suppress

_DEADLINE = 3.0
"""Seconds that the port has to answer."""

_NUMBER = 7
_ASKED = struct.pack(">hhih", 18, 0, _NUMBER, -1)
"""An ApiVersions request without a client ID, which a Kafka broker answers before anything else."""


def speaks_kafka(host: str, port: int, deadline: float = _DEADLINE) -> bool:
    """Return whether the port answers an ApiVersions request."""
    with suppress(OSError), socket.create_connection((host, port), timeout=deadline) as connection:
        connection.settimeout(deadline)
        connection.sendall(struct.pack(">i", len(_ASKED)) + _ASKED)
        head = connection.recv(8, socket.MSG_WAITALL)
        return len(head) == 8 and struct.unpack(">ii", head)[1] == _NUMBER
    return False
