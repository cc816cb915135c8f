"""What waits in Kafka appears on the page of the log."""

from typing import Any

import dagster as dg
import pytest

from ticks import of as ticks_of
from tidemark.base.settings import Settings
from tidemark.engine.connect import free_port
from tidemark_assets import lags
from tidemark_streaming.feed import Inlet
from tidemark_streaming.kafka import KafkaFeed
from topics import CLICKS, Topics, clicks


def observed(instance: dg.DagsterInstance) -> list[dict[str, Any]]:
    """The metadata of the log's observations, in the order of the reports."""
    found = instance.fetch_observations(dg.AssetKey("clicks_log"), limit=100, ascending=True)
    events = [record.asset_observation for record in found.records]
    return [{k: v.value for k, v in event.metadata.items()} for event in events if event]


def test_what_waits_is_observed_by_partition_now_and_then(
    instance: dg.DagsterInstance,
    settings: Settings,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topics.create(partitions=2)
    topics.send(name, clicks(1, 2, 3), 1)
    inlet = Inlet(source=CLICKS, feed=lambda _: topics.feed(name))
    ticks = ticks_of(lags.lags(inlet), instance, settings)
    assert "records waiting: 3" in ticks.skipped()
    (found,) = observed(instance)
    assert found["records waiting"] == 3
    assert (found[f"{name}-0 waiting"], found[f"{name}-1 waiting"]) == (0, 3)
    topics.send(name, clicks(4), 0)
    assert "records waiting: 4" in ticks.skipped()
    assert len(observed(instance)) == 1, "not with each tick"
    monkeypatch.setattr(lags, "REPORT_EVERY", 0.0)
    ticks.skipped()
    assert [o["records waiting"] for o in observed(instance)] == [3, 4]


def test_brokers_that_cease_to_answer_are_observed_at_once(
    instance: dg.DagsterInstance,
    settings: Settings,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lags, "PATIENCE", 1.0)
    feeds = [
        KafkaFeed(CLICKS, ["clicks"], servers=f"127.0.0.1:{free_port()}"),
        topics.feed(topics.create()),
    ]
    inlet = Inlet(source=CLICKS, feed=lambda _: feeds[-1])
    ticks = ticks_of(lags.lags(inlet), instance, settings)
    ticks.skipped()
    feeds.pop()
    assert "don't answer" in ticks.skipped()
    assert [o["brokers"] for o in observed(instance)] == ["answer", "don't answer"]
    assert "can't be read" in observed(instance)[-1]["why"]
