"""The guard in front of the home's web pages, asked directly and by values that nobody chose."""

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
def test_the_page_s_own_hosts_are_answered(host: str) -> None:
    assert status(("host", host)) == 200
    own = ("origin", f"http://{host.lower()}")
    assert status(("host", host), own, JSON, method="POST", path="/graphql") == 200
    assert status(("host", host), own, kind="websocket") == 200


def test_a_proxy_may_give_the_host_another_name() -> None:
    origin = ("origin", f"https://{PUBLIC}")
    assert status(("host", OWN), origin, JSON, method="POST") == 200
    assert status(("host", OWN), origin, kind="websocket") == 200


@given(NAMES)
def test_no_other_host_is_answered(name: str) -> None:
    host = name.lower().partition(":")[0]
    if not any(own in host for own in ("localhost", "127.0.0.1", "::1", PUBLIC)):
        assert status(("host", name)) == 421
        assert status(("host", name), kind="websocket") == 403


@given(st.one_of(NAMES, st.builds("http://{}".format, NAMES), st.just("null")))
def test_no_page_of_another_origin_is_answered(origin: str) -> None:
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
def test_only_json_changes_something(kind: str) -> None:
    """The others are what a form or a page may send without asking first."""
    for method in ("POST", "PUT", "DELETE"):
        assert status(("host", OWN), ("content-type", kind), method=method) == 415
    assert (
        status(("host", OWN), ("content-type", f"{JSON[1]}; charset=utf-8"), method="POST") == 200
    )


@pytest.mark.parametrize("path", ["/graphql?query=", "/graphql/?a=1&query={x}", "/p/graphql?query"])
def test_no_graphql_is_run_by_an_address(path: str) -> None:
    for method in ("GET", "HEAD"):
        assert status(("host", OWN), method=method, path=path) == 405
    assert status(("host", OWN), path="/runs?query=x") == 200
    assert status(("host", OWN), path="/graphql") == 200
