"""The web service: the metrics, the live page, and the page's data.

One thread reads the tables. Requests within a second share one overview.
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
from tidemark_streaming.base import logs
from tidemark_streaming.base.origin_guard import OriginGuard
from tidemark_streaming.findings.polls import EVERY
from tidemark_streaming.monitor import metrics, page
from tidemark_streaming.monitor.overview import Monitor, Overview

FRESH = 0.9
"""Seconds for which an overview is reused."""

_STATIC = Path(__file__).parent / "static"


class _OverviewCache:
    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="watch")
        self._last: tuple[float, Overview] | None = None

    async def get_overview(self) -> Overview:
        """Return an overview that is at most a second old."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read_overview)

    def _read_overview(self) -> Overview:
        if self._last is None or time.monotonic() - self._last[0] > FRESH:
            overview = self._monitor.read()
            troubles_before = {} if self._last is None else self._last[1].troubles
            for name, why in overview.troubles.items():
                if troubles_before.get(name) != why:
                    logs.log_warning("can't be read", what=name, why=why)
            for name in troubles_before.keys() - overview.troubles.keys():
                logs.log_event("can be read again", what=name)
            self._last = (time.monotonic(), overview)
        return self._last[1]


def create_application(settings: Settings, monitor: Monitor) -> Starlette:
    """Return the web application of a home."""
    cache = _OverviewCache(monitor)

    async def serve_metrics(_: Request) -> Response:
        body = metrics.render_metrics(await cache.get_overview())
        return Response(body, media_type=metrics.CONTENT_TYPE)

    async def serve_state(request: Request) -> Response:
        requested_span = request.query_params.get("span", "")
        span = int(requested_span) if requested_span in map(str, page.SPANS) else None
        overview = await cache.get_overview()
        shown = page.create_page_data(overview, settings.database, settings.webserver_port, span)
        shown_at = shown.pop("at")
        body = json.dumps(shown, separators=(",", ":"))
        # An unchanged state is not sent again.
        tag = f'"{zlib.crc32(body.encode()):08x}"'
        headers = {"etag": tag, "cache-control": "no-cache", "x-at": str(shown_at)}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    @asynccontextmanager
    async def keep_fresh(_: Starlette) -> AsyncIterator[None]:
        """Refresh even without requests, so that the lag of Kafka is recorded from the start."""

        async def refresh_forever() -> None:
            while True:
                with suppress(Exception):
                    # The next request reports the error.
                    await cache.get_overview()
                await asyncio.sleep(EVERY)

        task = asyncio.create_task(refresh_forever())
        yield
        task.cancel()

    async def report_alive(_: Request) -> Response:
        # This answers also while the tables can't be read: a restart would not help.
        return PlainTextResponse("alive\n")

    async def report_ready(_: Request) -> Response:
        await cache.get_overview()
        return PlainTextResponse("ready\n")

    hosts = settings.allowed_hosts
    if not settings.watch_address.is_unspecified:
        hosts += (str(settings.watch_address),)

    def create_file_route(name: str) -> Route:
        path = "/" if name == "index.html" else f"/{name}"
        headers = {"cache-control": "no-cache"}
        return Route(path, lambda _: FileResponse(_STATIC / name, headers=headers))

    return Starlette(
        routes=[
            *(create_file_route(name) for name in ("index.html", "watch.css", "watch.js")),
            Route("/state", serve_state),
            Route("/metrics", serve_metrics),
            Route("/alive", report_alive),
            Route("/ready", report_ready),
        ],
        middleware=[Middleware(OriginGuard, hosts=hosts)],
        lifespan=keep_fresh,
    )
