"""Progress of topics and of running commands, without requests to an engine."""

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from helpers.data.support import MINUTE, PER_MINUTE
from helpers.data.tables import arrive, publish
from helpers.kafka.topics import CLICKS, Topics
from helpers.processes.ending import GONE, end_with_an_error
from helpers.suite.held import held
from helpers.suite.scrapes import Values, scraped, seen, value, watcher
from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.store.committers.log_entry import version_id
from tidemark.store.warehouse import Warehouse
from tidemark.store.workers.hold import hold_work
from tidemark.store.workers.record_store import worker_records
from tidemark_streaming.base import foreground
from tidemark_streaming.base.foreground import INGEST, SINK, STREAM
from tidemark_streaming.findings import polls
from tidemark_streaming.kafka import KafkaSink
from tidemark_streaming.monitor import page
from tidemark_streaming.sink.position import Position
from tidemark_streaming.sink.writer import open_topic


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Yield settings of a home whose engine is a listening socket that never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listens:
        port = listens.getsockname()[1]
        yield Settings(home=tmp_path / "home", remote=f"sc://127.0.0.1:{port}")


def test_a_topics_lag_in_versions_is_reported(
    settings: Settings, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = KafkaSink(topics.unused(), topics.servers)
    asset = replace(PER_MINUTE, accumulation="retracting", sink=topic)
    table = f"{settings.warehouse}/{settings.database}/{asset.published_table}"
    watching = watcher(monkeypatch, settings, asset)
    own = {"asset": asset.name, "topic": topic.name}

    def behind(found: Values) -> float | None:
        return value(found, "tidemark_sink_lag_versions", **own)

    found = seen(watching, lambda found: behind(found) == 0)
    assert value(found, "tidemark_sink_lag_seconds", **own) == 0
    assert value(found, "tidemark_sink_up", **own) == 1
    for n in range(3):
        publish(settings, asset.published_table, n, [n * MINUTE], MINUTE)
    begun = time.time()
    found = seen(watching, lambda found: behind(found) == 3)
    waited = value(found, "tidemark_sink_lag_seconds", **own)
    assert waited is not None
    assert 0 < waited < time.time() - begun + 60

    nobody = cast(SparkSession, None)
    tables = Warehouse(nobody, settings.warehouse, settings.database, registered=False)
    way, table_id, at = (
        open_topic(asset, tables),
        str(DeltaTable(table).metadata().id),
        time.time_ns(),
    )
    way.open_producer()
    there = way.find_topic()
    assert there is not None

    def committed(version: int) -> Position:
        identity = version_id(str(table), version) or ""
        return Position(
            *(table_id, version, there.id, 1, at, 3, "run-3", at // 1000),
            place=way.place,
            state="",
            version_id=identity,
        )

    way.send_transaction([], lambda: committed(1))
    seen(watching, lambda found: behind(found) == 1)
    way.send_transaction([], lambda: committed(2))
    found = seen(watching, lambda found: behind(found) == 0)
    assert value(found, "tidemark_sink_lag_seconds", **own) == 0
    shown = page.create_page_data(watching.read(), "tidemark", 1)["sinks"]
    well = {**own, "behind": 0, "waits": 0.0, "trouble": None}
    assert shown == [{**well, "state": None, "error": None}]

    def kept() -> tuple[float | None, str | None, str | None]:
        monkeypatch.setattr(watching._reader._services, "_seen", None)
        (sink,) = page.create_page_data(watching.read(), "tidemark", 1)["sinks"]
        up = value(scraped(watching), "tidemark_sink_process_up", asset=asset.name)
        return up, sink["state"], sink["error"]

    assert kept() == (None, None, None)
    with foreground.record_running(settings, SINK, asset.name) as entry:
        assert kept() == (1, "running", None)
        entry.mark_waiting(DataError("The brokers are gone."))
        assert kept() == (0, "waiting", "The brokers are gone.")
        entry.mark_healthy()
        assert kept() == (1, "running", None)
    assert kept() == (None, None, None), "it was ended on purpose"
    end_with_an_error(settings, SINK, asset.name)
    assert kept() == (0, "ended", GONE)


@pytest.mark.usefixtures("impatient")
def test_a_topic_with_silent_brokers_does_not_block(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = KafkaSink("panes", f"127.0.0.1:{free_port()}")
    asset = replace(PER_MINUTE, accumulation="retracting", sink=topic)
    watching, own = watcher(monkeypatch, settings, asset), {"asset": asset.name, "topic": "panes"}
    with held(monkeypatch, polls, "sink_status") as standing:
        looks = [value(scraped(watching), "tidemark_sink_up", **own) for _ in range(3)]
        assert standing.still
        assert looks == [None] * 3
    found = seen(watching, lambda found: value(found, "tidemark_sink_up", **own) == 0)
    assert value(found, "tidemark_sink_lag_versions", **own) is None
    assert value(found, "tidemark_sink_lag_seconds", **own) is None


def test_streams_and_ingests_of_running_commands_are_reported(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = replace(PER_MINUTE, source=CLICKS), replace(PER_MINUTE, name="two", source=CLICKS)
    arrive(settings, "clicks", 0, 1)
    watching = watcher(monkeypatch, settings, one, two)

    def now() -> tuple[float | None, ...]:
        monkeypatch.setattr(watching._reader._services, "_seen", None)
        found = scraped(watching)
        running = [value(found, "tidemark_stream_up", asset=a) for a in (one.name, "two")]
        return (*running, value(found, "tidemark_ingest_up", source="clicks"))

    def shown() -> list[tuple[str, str, str]]:
        streams = page.create_page_data(watching.read(), "tidemark", 1)["streams"]
        return [(s["state"], s["keptBy"], s["error"]) for s in streams]

    assert now() == (None, None, None)
    with foreground.record_running(settings, STREAM, one.name) as entry:
        assert now() == (1, None, None)
        entry.mark_waiting(DataError("The engine has exited."))
        assert now() == (0, None, None)
        entry.mark_healthy(is_restart=True)
        assert now() == (1, None, None)
        again = scraped(watching)
        assert value(again, "tidemark_stream_restarts_total", asset=one.name) == 1
        assert shown()[0] == ("running", "stream", None)
    assert now() == (None, None, None), "it was ended on purpose"
    both = (one.name, "two")
    with foreground.record_running(settings, INGEST, "clicks", both):
        assert now() == (1, 1, 0), "no ingest is at work yet"
        with hold_work(worker_records(settings.warehouse, settings.database), "ingest", "clicks"):
            assert now() == (1, 1, 1)
    end_with_an_error(settings, INGEST, "clicks", both)
    assert now() == (0, 0, 0)
    assert shown() == [("ended", "ingest", GONE)] * 2
