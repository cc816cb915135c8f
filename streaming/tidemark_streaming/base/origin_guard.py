"""Guard the web pages that a home serves on loopback against requests of other pages.

Any web page in a browser can send requests to 127.0.0.1: a form post, a picture, a WebSocket. If
the host name of a foreign page resolves to 127.0.0.1, the page can even read the responses. A
request must therefore name one of the home's own hosts and come from a page of the same origin. A
request that may change something must be JSON: before a browser sends JSON from a page of another
origin, it asks the server for permission.
"""

from collections.abc import Iterable
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""The names by which this machine reaches itself."""

_READS = frozenset({"GET", "HEAD"})
_POLICY_VIOLATION = 1008


class OriginGuard:
    """An ASGI application that forwards requests to another application, except for requests that
    pages of other origins may have sent.

    Args:
        app: the application that is guarded.
        hosts: further host names by which people reach the application, such as the name of a
            proxy.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._public = frozenset(hosts)
        self._hosts = self._public.union(_LOOPBACK)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request to the application, or refuse it with the reason."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = self._find_refusal(scope)
        if scope["type"] == "websocket" and refusal is not None:
            # The handshake is not complete, so the server turns the close into a response 403.
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        elif refusal is not None:
            status, reason = refusal
            await PlainTextResponse(f"{reason}\n", status)(scope, receive, send)
        else:
            await self._app(scope, receive, _deny_framing(send))

    def _find_refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Return the HTTP status and the reason if a request must be refused; else None."""
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        origin = headers.get("origin")
        if _host_name(f"//{host}") not in self._hosts:
            return 421, (
                f"The host {host!r} is not allowed ({', '.join(sorted(self._hosts))} are): if you "
                "reach the page by that name, add it to the setting allowed_hosts "
                "(TIDEMARK_ALLOWED_HOSTS)."
            )
        if origin is not None and not self._is_own(origin.lower(), host):
            return 403, f"Pages of the origin {origin!r} must not use this page."
        if scope["type"] == "websocket":
            return None
        if scope["method"] in _READS:
            return _refusal_of_query(scope)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return 415, "A request that may change data must be JSON (application/json)."
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        """Return whether this application serves the pages of `origin`. `host` is the host that the
        request names."""
        # A proxy may change the host name of the request, but the origin still has the proxy's
        # name.
        return origin.partition("://")[2] == host or _host_name(origin) in self._public


def _refusal_of_query(scope: Scope) -> tuple[int, str] | None:
    # The address of a picture could contain a GraphQL mutation.
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    if scope["path"].rstrip("/").endswith("/graphql") and "query" in query:
        return 405, "GraphQL requests must be a POST of JSON (application/json)."
    return None


def _host_name(address: str) -> str | None:
    """Return the host name of an address, without its port."""
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def _deny_framing(send: Send) -> Send:
    """Return a `send` that forbids pages of other origins to show the response in a frame.

    Otherwise, such a page could cover a button in the frame and trick an operator into clicking it.
    """

    async def send_with_header(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["X-Frame-Options"] = "SAMEORIGIN"
        await send(message)

    return send_with_header
