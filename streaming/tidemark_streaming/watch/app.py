"""The service: metrics, the page, and what the page asks for.

One thread looks at the tables; whoever asks within a second of another gets the same sight.
"""

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from tidemark.base.settings import Settings
from tidemark_streaming import logs
from tidemark_streaming.origin_guard import OriginGuard
from tidemark_streaming.watch import metrics, page
from tidemark_streaming.watch.backlogs import EVERY
from tidemark_streaming.watch.sight import Sight, Watcher

FRESH = 0.9
"""Seconds for which a sight is as good as a new one."""

STATIC = Path(__file__).parent / "static"


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
            before = {} if self._last is None else self._last[1].troubles
            for name, why in sight.troubles.items():
                if before.get(name) != why:
                    logs.warn("can't be read", what=name, why=why)
            for name in before.keys() - sight.troubles.keys():
                logs.tell("can be read again", what=name)
            self._last = (time.monotonic(), sight)
        return self._last[1]


def application(settings: Settings, watcher: Watcher) -> Starlette:
    """The service of a home."""
    sights = Sights(watcher)

    async def exposed(_: Request) -> Response:
        body = metrics.exposition(await sights.now())
        return Response(body, media_type=metrics.CONTENT_TYPE)

    async def state(request: Request) -> Response:
        asked = request.query_params.get("span", "")
        span = int(asked) if asked in map(str, page.SPANS) else None
        sight = await sights.now()
        told = page.state(sight, settings.database, settings.webserver_port, span)
        at = told.pop("at")
        body = json.dumps(told, separators=(",", ":"))
        # What has not changed is not sent again.
        tag = f'"{zlib.crc32(body.encode()):08x}"'
        headers = {"etag": tag, "cache-control": "no-cache", "x-at": str(at)}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    @asynccontextmanager
    async def looking(_: Starlette) -> AsyncIterator[None]:
        """Look also when nobody asks: what waits in Kafka is known from then on."""

        async def look() -> None:
            while True:
                with suppress(Exception):
                    # Who asks is told of it.
                    await sights.now()
                await asyncio.sleep(EVERY)

        task = asyncio.create_task(look())
        yield
        task.cancel()

    async def ready(_: Request) -> Response:
        await sights.now()
        return PlainTextResponse("ready\n")

    def file(name: str) -> Route:
        path = "/" if name == "index.html" else f"/{name}"
        headers = {"cache-control": "no-cache"}
        return Route(path, lambda _: FileResponse(STATIC / name, headers=headers))

    return Starlette(
        routes=[
            *(file(name) for name in ("index.html", "watch.css", "watch.js")),
            Route("/state", state),
            Route("/metrics", exposed),
            Route("/ready", ready),
        ],
        middleware=[Middleware(OriginGuard, hosts=settings.allowed_hosts)],
        lifespan=looking,
    )
