"""Test that a web page of another origin can neither read nor operate the pages of a home.

The pages run as `tidemark up` runs them.
"""

import http.client
import json
import urllib.parse
from collections.abc import Iterator

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark_streaming.home import services

pytestmark = pytest.mark.slow

POOL = "{instance {concurrencyLimits {concurrencyKey}}}"
EVIL = "http://evil.example"
FORM = "application/x-www-form-urlencoded"


def mutation(name: str) -> str:
    return f'mutation {{setConcurrencyLimit(concurrencyKey: "{name}", limit: 1)}}'


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Yield a home with a running Dagster and live page, without code locations."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("HOME", folder / "home"),
            ("WEBSERVER_PORT", free_port()),
            ("WATCH_PORT", free_port()),
            ("ALLOWED_HOSTS", "tidemark.example"),
        ):
            patch.setenv(f"TIDEMARK_{name}", str(value))
        patch.chdir(folder)
        settings = Settings()
        workspace = folder / "workspace.yaml"
        workspace.write_text("load_from: []\n")
        try:
            services.start_watch(settings)
            services.start_orchestrator(settings, workspace)
            services.await_ready(settings, "webserver")
            services.await_ready(settings, "watch")
            yield settings
        finally:
            for name in ("webserver", "daemon", "watch"):
                services.find_service(settings, name).stop()


def ask(
    port: int, method: str, path: str, body: str = "", **headers: str
) -> tuple[int, dict[str, str], str]:
    """Send a request with exactly these headers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body.encode(), {"Host": f"127.0.0.1:{port}", **named})
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return found


def pools(settings: Settings) -> set[str]:
    body = json.dumps({"query": POOL})
    port = settings.webserver_port
    _, _, told = ask(port, "POST", "/graphql", body, Content_Type="application/json")
    limits = json.loads(told)["data"]["instance"]["concurrencyLimits"]
    return {limit["concurrencyKey"] for limit in limits}


def test_a_foreign_page_cannot_operate_dagster(home: Settings) -> None:
    port, asked = home.webserver_port, json.dumps({"query": mutation("evil")})
    address = f"/graphql?query={urllib.parse.quote(mutation('evil'))}"
    report = "/report_asset_materialization/evil"
    refused = [
        # An image, even one that Dagster itself shows.
        ask(port, "GET", address, Accept="image/*"),
        # A form, a fetch without a preflight, and a fetch after its preflight.
        ask(port, "POST", address, "a=b", Origin=EVIL, Content_Type=FORM),
        ask(port, "POST", address, Content_Type=FORM),
        ask(port, "POST", "/graphql", asked, Content_Type="text/plain; x=application/json"),
        ask(port, "POST", "/graphql", asked, Origin=EVIL, Content_Type="application/json"),
        ask(port, "POST", "/graphql", asked, Origin="null", Content_Type="application/json"),
        ask(port, "POST", report, Origin=EVIL, Content_Type=FORM),
        # A host name that now resolves to 127.0.0.1 (DNS rebinding).
        ask(port, "POST", "/graphql", asked, Host="evil.example", Content_Type="application/json"),
        ask(port, "GET", "/server_info", Host="evil.example:3000"),
    ]
    assert {status for status, *_ in refused} == {403, 405, 415, 421}
    assert pools(home) == set()
    assert "TIDEMARK_ALLOWED_HOSTS" in refused[-1][2]

    own = f"http://127.0.0.1:{port}"
    query = json.dumps({"query": mutation("own")})
    status, *_ = ask(port, "POST", "/graphql", query, Origin=own, Content_Type="application/json")
    assert (status, pools(home)) == (200, {"own"})
    status, headers, _ = ask(port, "GET", "/", Host="tidemark.example")
    assert (status, headers["x-frame-options"]) == (200, "SAMEORIGIN")


def test_a_foreign_page_cannot_subscribe_to_dagster(home: Settings) -> None:
    address = f"ws://127.0.0.1:{home.webserver_port}/graphql"
    spoken = [Subprotocol("graphql-ws")]
    for origin in (EVIL, "null", "http://127.0.0.1:8888"):
        with pytest.raises(InvalidStatus, match="403"):
            connect(address, origin=Origin(origin), subprotocols=spoken)
    own = Origin(f"http://127.0.0.1:{home.webserver_port}")
    with connect(address, origin=own, subprotocols=spoken) as socket:
        socket.send(json.dumps({"type": "connection_init"}))
        assert json.loads(socket.recv(30)) == {"type": "connection_ack"}


def test_a_foreign_page_cannot_read_the_live_page(home: Settings) -> None:
    port = home.watch_port
    for path in ("/", "/state", "/metrics"):
        assert ask(port, "GET", path, Host="evil.example")[0] == 421
        assert ask(port, "GET", path, Origin=EVIL)[0] == 403
        assert ask(port, "GET", path, Host=f"localhost:{port}")[0] == 200
