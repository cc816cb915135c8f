"""Test that consumer lag in Kafka appears on the page of the event log."""

from typing import Any

import dagster as dg
import pytest

from helpers.dagster.ticks import of_part
from helpers.data.tables import arrive
from helpers.kafka.topics import CLICKS, Topics, clicks
from helpers.processes.clocks import shift_clock
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark_assets.sensors import frame, lags
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.kafka import KafkaConnector


def observed(instance: dg.DagsterInstance) -> list[dict[str, Any]]:
    """Return the metadata of the log's observations in the order of the reports."""
    found = instance.fetch_observations(dg.AssetKey("clicks_log"), limit=100, ascending=True)
    events = [record.asset_observation for record in found.records]
    return [{k: v.value for k, v in event.metadata.items()} for event in events if event]


def test_consumer_lag_is_reported_by_partition_at_intervals(
    instance: dg.DagsterInstance,
    settings: Settings,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topics.create(partitions=2)
    topics.send(name, clicks(1, 2, 3), 1)
    ingestion = Ingestion(source=CLICKS, connector=lambda _: topics.connector(name))
    ticks = of_part(lags.lag_reporter(ingestion), instance, settings)
    assert "lag in records: 3" in ticks.skipped()
    (found,) = observed(instance)
    assert found["lag in records"] == 3
    assert (found[f"{name}-0 lag"], found[f"{name}-1 lag"]) == (0, 3)
    topics.send(name, clicks(4), 0)
    assert "lag in records: 4" in ticks.skipped()
    assert len(observed(instance)) == 1, "not with each tick"
    monkeypatch.setattr(frame, "REPORT_EVERY", 0.0)
    ticks.skipped()
    assert [o["lag in records"] for o in observed(instance)] == [3, 4]


def test_lost_offsets_are_reported_at_once(
    instance: dg.DagsterInstance, settings: Settings, topics: Topics
) -> None:
    name = topics.create()
    topics.send(name, clicks(1, 2))
    (chunk,) = topics.connector(name).list_pending([])
    arrive(settings, "clicks", 0, 0, positions=[chunk.position])
    topics.send(name, clicks(3, 4, 5, 6))
    ticks = of_part(
        lags.lag_reporter(Ingestion(source=CLICKS, connector=lambda _: topics.connector(name))),
        instance,
        settings,
    )
    ticks.skipped()
    topics.forget(name, 5)
    assert "lost records: Kafka deleted records of source 'clicks' " in ticks.skipped()
    assert [o["lost offsets"] for o in observed(instance)] == [0, 3]
    lost = observed(instance)[-1]
    assert f"offsets 2 to 4 of {name}-0 (3 in all)" in lost["lost records"]
    assert lost["lag in records"] == 1
    topics.forget(name, 6)
    assert "lost offsets: 4" in ticks.skipped()
    assert len(observed(instance)) == 2, "more of the same is no news"


def test_reports_continue_after_the_clock_is_set_back(
    instance: dg.DagsterInstance,
    settings: Settings,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topics.create()
    ticks = of_part(
        lags.lag_reporter(Ingestion(source=CLICKS, connector=lambda _: topics.connector(name))),
        instance,
        settings,
    )
    ticks.skipped()
    shift_clock(monkeypatch, -1)
    for _ in range(2):
        ticks.skipped()
    assert len(observed(instance)) == 2, "once at once, and then every five minutes"


def test_broker_failures_are_reported_at_once(
    instance: dg.DagsterInstance,
    settings: Settings,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lags, "PATIENCE", 1.0)
    connectors = [
        topics.connector("none"),
        KafkaConnector(CLICKS, ["clicks"], servers=f"127.0.0.1:{free_port()}"),
        topics.connector(topics.create()),
    ]
    ingestion = Ingestion(source=CLICKS, connector=lambda _: connectors[-1])
    ticks = of_part(lags.lag_reporter(ingestion), instance, settings)
    ticks.skipped()
    connectors.pop()
    assert "do not respond" in ticks.skipped()
    connectors.pop()
    assert "refuse" in ticks.skipped()
    found = observed(instance)
    assert [o["brokers"] for o in found] == ["respond", "do not respond", "refuse"]
    assert "can't be read" in found[1]["why"]
    assert "There is no topic 'none'" in found[2]["why"]
