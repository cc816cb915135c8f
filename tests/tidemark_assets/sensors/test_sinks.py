"""Test that a sink's progress appears on its asset's page."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from helpers.dagster.ticks import of_part
from helpers.data.support import PER_MINUTE
from helpers.kafka.topics import Topics, until
from helpers.processes.clocks import shift_clock
from tidemark.base.settings import Settings
from tidemark.define.transform import WindowedTransform
from tidemark.engine.ports import free_port
from tidemark.store.committers.log_entry import version_id
from tidemark_assets.base.names import PLAIN
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.metadata import describe
from tidemark_assets.sensors import sinks
from tidemark_streaming.kafka import KafkaSink
from tidemark_streaming.sink.position import Position
from tidemark_streaming.sink.writer import open_topic

KEY = dg.AssetKey("per_minute")


def publishing(topic: KafkaSink) -> WindowedTransform:
    return replace(PER_MINUTE, accumulation="retracting", sink=topic)


def table(settings: Settings) -> Path:
    return Path(settings.warehouse, settings.database, "per_minute")


def publish(settings: Settings, times: int = 1) -> None:
    """Commit the given number of versions of the published table."""
    for _ in range(times):
        write_deltalake(table(settings), pa.table({"n": [1]}), mode="append")


def bring_out(settings: Settings, asset: WindowedTransform, version: int) -> None:
    """Commit the sink position after a version and wait until it can be read."""
    way = open_topic(asset, TidemarkResource(settings).tables)
    table_id = str(DeltaTable(table(settings)).metadata().id)
    identity = version_id(str(table(settings)), version) or ""
    way.open_producer()
    at, there = time.time_ns() // 1000, way.find_topic()
    assert there is not None
    way.send_transaction(
        [],
        lambda: Position(
            *(table_id, version, there.id, 1, at, 3, "run-3", at),
            place=way.place,
            state="",
            version_id=identity,
        ),
    )
    # Kafka commits a transaction before its topics show it.
    until(lambda: (found := way.read_position()) is not None and found.version == version)


def observed(instance: dg.DagsterInstance) -> list[dict[str, Any]]:
    found = instance.fetch_observations(KEY, limit=100, ascending=True).records
    events = [record.asset_observation for record in found]
    return [{k: v.value for k, v in event.metadata.items()} for event in events if event]


def test_a_lagging_sink_is_shown_on_the_page_of_its_asset(
    instance: dg.DagsterInstance, settings: Settings, topics: Topics
) -> None:
    asset = publishing(KafkaSink(topics.unused(), topics.servers))
    assert describe.windows(asset, PLAIN)["publishes to"] == str(asset.sink)
    ticks = of_part(sinks.sink_reporter(asset), instance, settings)
    assert ticks.skipped() == "The topic is up to date."
    publish(settings, 3)
    bring_out(settings, asset, 1)
    assert ticks.skipped() == "The topic is 1 version behind."
    ticks.skipped()
    shown = observed(instance)
    assert len(shown) == 2, "at once, and once"
    assert (shown[-1]["published version"], shown[-1]["versions behind"]) == (1, 1)
    assert shown[-1]["last published run"] == "run-3"
    assert f"'{shown[-1]['topic']}'" in str(asset.sink)
    bring_out(settings, asset, 2)
    assert ticks.skipped() == "The topic is up to date."
    assert [o["versions behind"] for o in observed(instance)] == [0, 1, 0]


def test_reports_continue_after_the_clock_is_set_back(
    instance: dg.DagsterInstance,
    settings: Settings,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asset = publishing(KafkaSink(topics.unused(), topics.servers))
    ticks = of_part(sinks.sink_reporter(asset), instance, settings)
    ticks.skipped()
    shift_clock(monkeypatch, -1)
    for _ in range(2):
        ticks.skipped()
    assert len(observed(instance)) == 2, "once at once, and then every five minutes"


@pytest.mark.usefixtures("impatient")
def test_unreachable_brokers_are_named_by_the_tick(
    settings: Settings, instance: dg.DagsterInstance
) -> None:
    asset = publishing(KafkaSink("panes", f"127.0.0.1:{free_port()}"))
    publish(settings)
    ticks = of_part(sinks.sink_reporter(asset), instance, settings)
    assert "can't be read" in ticks.skipped()
    assert observed(instance) == []
