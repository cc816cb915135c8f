"""A failing network: a relay to a port that can stall or cut connections."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

_AT_ONCE = 65_536


class Relay:
    """A relay of connections to a local port, which can fail.

    Args:
        target: the port.
    """

    def __init__(self, target: int) -> None:
        self.failed = threading.Event()
        """Set while the relay fails."""
        self.came = 0
        """The number of bytes received from the port."""
        self._target = target
        self._left: int | None = None
        self._silent = False
        self._passing = threading.Event()
        self._passing.set()
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> "Relay":
        self._spawn(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        self.mend()
        self._cut()

    def fail_after(self, size: int, *, silent: bool) -> None:
        """Fail after the given number of bytes from the port.

        Args:
            silent: whether connections stay open and stall; otherwise they are cut, and new ones
                are closed at once.
        """
        with self._lock:
            self._left, self._silent = size, silent

    def mend(self) -> None:
        """End the failure and continue stalled connections."""
        with self._lock:
            self._left = None
            self.failed.clear()
            self._passing.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.failed.is_set() and not self._silent:
                client.close()
                continue
            # A port that accepts no more connections must not block later ones.
            self._spawn(lambda c=client: self._connect(c))

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        with self._lock:
            self._open += [client, server]
        self._spawn(lambda: self._pass(client, server, counted=False))
        self._pass(server, client, counted=True)

    def _pass(self, from_: socket.socket, to: socket.socket, *, counted: bool) -> None:
        with suppress(OSError):
            while data := from_.recv(_AT_ONCE):
                self._passing.wait()
                if counted:
                    self._count(len(data))
                    self._passing.wait()
                to.sendall(data)
        for end in (from_, to):
            end.close()

    def _count(self, size: int) -> None:
        with self._lock:
            self.came += size
            if self._left is None or self.failed.is_set():
                return
            self._left -= size
            if self._left > 0:
                return
            self.failed.set()
            if self._silent:
                self._passing.clear()
                return
        self._cut()

    def _cut(self) -> None:
        with self._lock:
            ends, self._open = self._open, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _spawn(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()
