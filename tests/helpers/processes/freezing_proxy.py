"""A proxy in front of an engine, which can vanish as a machine without power does."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread


class FreezingProxy:
    """Passes bytes between clients and a server on this machine until it is frozen.

    Args:
        target_port: the port of the server.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self._passes_bytes = Event()
        self._accepts_connections = Event()
        self._passes_bytes.set()
        self._accepts_connections.set()
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        """Pass no more bytes, and close nothing. The system still accepts connections."""
        self._accepts_connections.clear()
        self.forget_connections()

    def forget_connections(self) -> None:
        """Pass no more bytes of today's connections, and close none. New connections work."""
        self._passes_bytes.clear()
        self._passes_bytes = Event()
        self._passes_bytes.set()

    def close(self) -> None:
        for opened in self._sockets:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            if not self._accepts_connections.is_set():
                continue
            server = socket.create_connection(("127.0.0.1", self._target_port))
            self._sockets.append(server)
            for source, target in ((client, server), (server, client)):
                arguments = (source, target, self._passes_bytes)
                Thread(target=_pass_bytes, args=arguments, daemon=True).start()


def _pass_bytes(source: socket.socket, target: socket.socket, is_passing: threading.Event) -> None:
    with suppress(OSError):
        while content := source.recv(65_536):
            if is_passing.is_set():
                target.sendall(content)
        if is_passing.is_set():
            target.shutdown(socket.SHUT_WR)


@contextmanager
def serve_freezing_proxy(target_port: int) -> Iterator[FreezingProxy]:
    """Yield a proxy in front of the server at `target_port`."""
    proxy = FreezingProxy(target_port)
    try:
        yield proxy
    finally:
        proxy.close()
