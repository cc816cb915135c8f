"""The origin guard in front of the home's web pages, with chosen and random requests."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from tidemark_streaming.base.origin_guard import OriginGuard

OWN, PUBLIC = "127.0.0.1:3000", "tidemark.example"
JSON = ("content-type", "application/json")
NAMES = st.text(st.characters(codec="latin-1", exclude_characters="\r\n\0"), max_size=30)


def status(
    *headers: tuple[str, str], method: str = "GET", path: str = "/", kind: str = "http"
) -> int:
    """Send a request through a guard. Return the status of the answer, 403 if a WebSocket is closed
    before its handshake."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    place, _, query = path.partition("?")
    scope: dict[str, Any] = {
        "type": kind,
        "method": method,
        "path": place,
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in headers],
    }
    asyncio.run(OriginGuard(app, (PUBLIC,))(scope, receive, send))
    return sent[0].get("status", 403)


@pytest.mark.parametrize("host", [OWN, "localhost:3000", "LOCALHOST", "[::1]:3000", PUBLIC])
def test_the_pages_own_hosts_are_served(host: str) -> None:
    assert status(("host", host)) == 200
    own = ("origin", f"http://{host.lower()}")
    assert status(("host", host), own, JSON, method="POST", path="/graphql") == 200
    assert status(("host", host), own, kind="websocket") == 200


def test_a_proxy_may_replace_the_host() -> None:
    origin = ("origin", f"https://{PUBLIC}")
    assert status(("host", OWN), origin, JSON, method="POST") == 200
    assert status(("host", OWN), origin, kind="websocket") == 200


@given(NAMES)
def test_other_hosts_are_refused(name: str) -> None:
    host = name.lower().partition(":")[0]
    if not any(own in host for own in ("localhost", "127.0.0.1", "::1", PUBLIC)):
        assert status(("host", name)) == 421
        assert status(("host", name), kind="websocket") == 403


@given(st.one_of(NAMES, st.builds("http://{}".format, NAMES), st.just("null")))
def test_pages_of_other_origins_are_refused(origin: str) -> None:
    if PUBLIC not in origin.lower():
        for kind in ("http", "websocket"):
            assert status(("host", OWN), ("origin", origin), JSON, method="POST", kind=kind) == 403


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "http://127.0.0.1:8888", "http://127.0.0.1", f"x{PUBLIC}"]
)
def test_another_port_of_this_machine_is_another_origin(origin: str) -> None:
    assert status(("host", OWN), ("origin", origin), JSON, method="POST") == 403


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "text/plain",
        "text/plain; x=application/json",
        "multipart/form-data; boundary=application/json",
        "application/x-www-form-urlencoded",
        "application/graphql",
    ],
)
def test_only_json_requests_may_change_something(kind: str) -> None:
    """Forms and pages can send the other types without a CORS preflight."""
    for method in ("POST", "PUT", "DELETE"):
        assert status(("host", OWN), ("content-type", kind), method=method) == 415
    assert (
        status(("host", OWN), ("content-type", f"{JSON[1]}; charset=utf-8"), method="POST") == 200
    )


@pytest.mark.parametrize("path", ["/graphql?query=", "/graphql/?a=1&query={x}", "/p/graphql?query"])
def test_graphql_in_a_url_is_refused(path: str) -> None:
    for method in ("GET", "HEAD"):
        assert status(("host", OWN), method=method, path=path) == 405
    assert status(("host", OWN), path="/runs?query=x") == 200
    assert status(("host", OWN), path="/graphql") == 200
