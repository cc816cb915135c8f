"""The service: metrics, the page, and what the page asks for.

One thread looks at the tables; whoever asks within a second of another gets the same sight.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tidemark_streaming.watch import metrics
from tidemark_streaming.watch.sight import Sight, Watcher

FRESH = 0.9
"""Seconds for which a sight is as good as a new one."""


class Sights:
    """What is seen, for all who ask."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="watch")
        self._last: tuple[float, Sight] | None = None

    async def now(self) -> Sight:
        """How everything is now, or was a moment ago."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._look)

    def _look(self) -> Sight:
        if self._last is None or time.monotonic() - self._last[0] > FRESH:
            sight = self._watcher.look()
            self._last = (time.monotonic(), sight)
        return self._last[1]


def application(watcher: Watcher) -> Starlette:
    """The service of a home."""
    sights = Sights(watcher)

    async def exposed(_: Request) -> Response:
        body = metrics.exposition(await sights.now())
        return Response(body, media_type=metrics.CONTENT_TYPE)

    async def ready(_: Request) -> Response:
        await sights.now()
        return PlainTextResponse("ready\n")

    return Starlette(routes=[Route("/metrics", exposed), Route("/ready", ready)])
