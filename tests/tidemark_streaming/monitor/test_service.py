"""The monitoring service that `tidemark up` starts, as a process."""

import asyncio
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from tidemark.base.errors import EngineError
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark_streaming.home import services
from tidemark_streaming.monitor import app, page
from tidemark_streaming.monitor.overview import Monitor, Overview


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Yield settings of a separate home with the domain `watched`, also set as environment
    variables."""
    own = {"home": str(tmp_path / "home"), "domains": "watched", "watch_port": str(free_port())}
    for name, value in own.items():
        monkeypatch.setenv(f"TIDEMARK_{name.upper()}", value)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
    settings = Settings()
    yield settings
    services.find_service(settings, "watch").stop()


def test_the_service_starts_responds_and_stops(home: Settings) -> None:
    services.start_watch(home)
    address = services.await_ready(home, "watch")
    with urllib.request.urlopen(f"{address}/metrics", timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        found = {f.name for f in text_string_to_metric_families(answer.read().decode())}
    assert {"tidemark_source_events", "tidemark_asset_run_seconds"} <= found
    watch = services.find_service(home, "watch")
    before = watch.find_running()
    services.start_watch(home)
    assert watch.find_running() == before, "what runs is left as it is"
    other = home.model_copy(update={"watch_port": free_port()})
    with pytest.raises(EngineError, match=r"live page of .* runs on port .*TIDEMARK_WATCH_PORT"):
        services.start_watch(other)
    assert watch.stop()
    assert watch.log.read_text() == "", "nothing that it should have said"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{address}/metrics", timeout=5)


def status(address: str, host: str) -> int:
    """Request an address with a `Host` header, and return the status of the response."""
    request = urllib.request.Request(address, headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def test_other_machines_reach_the_service_by_its_allowed_hosts(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """127.0.0.2 stands for an address of the machine other than 127.0.0.1."""
    monkeypatch.setenv("TIDEMARK_WATCH_ADDRESS", "0.0.0.0")
    monkeypatch.setenv("TIDEMARK_ALLOWED_HOSTS", "page.shop.svc,10.1.2.3")
    services.start_watch(Settings())
    services.await_ready(Settings(), "watch")
    port = home.watch_port
    metrics = f"http://127.0.0.2:{port}/metrics"
    assert status(metrics, f"page.shop.svc:{port}") == 200
    assert status(metrics, f"10.1.2.3:{port}") == 200
    assert status(metrics, f"evil.example:{port}") == 421
    assert status(metrics, f"0.0.0.0:{port}") == 421


def test_the_service_is_ready_at_an_address_of_its_own(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_WATCH_ADDRESS", "127.0.0.2")
    services.start_watch(Settings())
    address = f"http://127.0.0.2:{home.watch_port}"
    assert services.await_ready(Settings(), "watch") == address
    assert status(f"{address}/alive", "evil.example") == 421
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{home.watch_port}/alive", timeout=5)


def test_the_liveness_check_reads_nothing(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> Overview:
        raise AssertionError("The liveness check must not read the tables.")

    monitor = Monitor(home)
    monkeypatch.setattr(monitor, "read", read)
    client = TestClient(app.create_application(home, monitor), "http://127.0.0.1")
    assert client.get("/alive").text == "alive\n"
    with pytest.raises(AssertionError, match="must not read"):
        client.get("/ready")


def test_the_service_refreshes_without_requests(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher, seen = Monitor(home), list[float]()
    read = watcher.read

    def counted() -> Overview:
        seen.append(time.monotonic())
        if len(seen) == 1:
            raise OSError("It can't be read just now.")
        return read()

    monkeypatch.setattr(watcher, "read", counted)
    monkeypatch.setattr(app, "EVERY", 0.05)
    monkeypatch.setattr(app, "FRESH", 0.0)
    service = app.create_application(home, watcher)

    async def live() -> None:
        async with service.router.lifespan_context(service):
            deadline = time.monotonic() + 30
            while len(seen) < 3 and time.monotonic() < deadline:
                await asyncio.sleep(0.01)

    asyncio.run(live())
    assert len(seen) >= 3


def test_pending_records_become_one_level_per_span() -> None:
    axis = page.Axis(end=600, step=5)
    second = 1_000_000
    known = [(290 * second, 9), (301 * second, 3), (303 * second, 7), (330 * second, 0)]
    levels = axis.highest_by_point(known)
    assert len(levels) == page.POINTS
    # Earlier values are out of range; the highest value counts; a value is carried forward for a
    # while.
    assert levels[:12] == [7, 7, 7, 7, 7, None, 0, 0, 0, 0, 0, None]
    assert page.Axis(end=600_000, step=3600).highest_by_point([(599_000 * second, 4)])[-2:] == [
        None,
        4,
    ]
    assert axis.highest_by_point([]) == [None] * page.POINTS


def test_a_missing_domain_is_reported_and_the_rest_shown(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_DOMAINS", "watched,nowhere")
    services.start_watch(home)
    address = services.await_ready(home, "watch")
    with urllib.request.urlopen(f"{address}/state", timeout=60) as answer:
        state = json.load(answer)
    assert [source["name"] for source in state["sources"]] == ["sensors"]
    (finding,) = state["findings"]
    assert finding["kind"] == "definition"
    assert "There is no domain package 'nowhere'" in finding["cause"]
    assert "Traceback" not in services.find_service(home, "watch").log.read_text()
