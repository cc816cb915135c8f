"""A TLS proxy for an engine without TLS, as in production."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

_PIECE = 1 << 16


@contextmanager
def tls_before(port: int, certificate: Path) -> Iterator[int]:
    """Run a TLS proxy for a local port during the block. Yield the proxy's port.

    Args:
        certificate: a PEM file with certificate and key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["h2"])
    told: Future[tuple[int, Callable[[], object]]] = Future()

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copied(reader, there[1]), _copied(there[0], writer))

    async def serve() -> None:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        async with await asyncio.start_server(passed, "127.0.0.1", 0, ssl=context) as server:
            own = server.sockets[0].getsockname()[1]
            told.set_result((own, lambda: loop.call_soon_threadsafe(ended.set)))
            await ended.wait()

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    own, end = told.result(60)
    try:
        yield own
    finally:
        end()
        thread.join(10)


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, ssl.SSLError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
    with suppress(ConnectionError, ssl.SSLError):
        writer.close()
