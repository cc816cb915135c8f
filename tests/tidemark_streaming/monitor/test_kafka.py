"""The Kafka lag is reported by partition, and silent brokers do not block monitoring."""

import time
from pathlib import Path

import pytest

from helpers.kafka.topics import CLICKS, Topics, clicks
from helpers.suite.held import LONG, held
from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.findings import polls
from tidemark_streaming.findings.polls import Backlog, Backlogs
from tidemark_streaming.home.domains import AvailableDomains, Domains
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.kafka import KafkaConnector
from tidemark_streaming.kafka.connector import Lag
from tidemark_streaming.monitor.metrics import render_metrics
from tidemark_streaming.monitor.overview import Monitor
from tidemark_streaming.monitor.page import create_page_data


def watcher(settings: Settings, connector: KafkaConnector) -> Monitor:
    """Return a monitor of a domain with only this source."""
    ingestion = Ingestion(source=CLICKS, connector=lambda _: connector)
    known = Domains({"clicks": CLICKS}, {"clicks": ingestion}, {})
    return Monitor(settings, AvailableDomains(known))


def brokers_finding(text: str) -> bool:
    """Return whether the metrics have a finding that the brokers are not available."""
    labels = 'kind="kafka_unavailable",level="error",node="source clicks"'
    return f"tidemark_findings{{{labels}}} 1.0" in text


def test_the_consumer_lag_is_reported_by_partition(
    warehouse: Warehouse, engine: Settings, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topics.create(partitions=2)
    connector = topics.connector(name)
    settings = engine.model_copy(update={"database": warehouse.database})
    monkeypatch.setattr(polls, "EVERY", 0.0)
    watching = watcher(settings, connector)
    topics.send(name, clicks(*range(5)), 0)
    topics.send(name, [*clicks(1), b'{"n": 2, "other": 3}'], 1)
    assert connector.measure_lag(None).waiting == {(name, 0): 5, (name, 1): 2}
    list(ingest(warehouse, connector))
    topics.send(name, clicks(3, 4, 5), 1)
    seen = watching.read()
    text, deadline, lag = (
        "",
        time.monotonic() + 60,
        '{{partition="{}",source="clicks",topic="{}"}} {}',
    )
    while time.monotonic() < deadline:
        text = render_metrics(watching.read()).decode()
        if lag.format(1, name, "3.0") in text:
            break
    assert lag.format(1, name, "3.0") in text, text
    assert lag.format(0, name, "0.0") in text
    assert 'tidemark_kafka_up{source="clicks"} 1.0' in text
    assert not brokers_finding(text)
    assert 'tidemark_source_undeclared_fields{source="clicks"} 1.0' in text
    topics.delete(name)
    deadline = time.monotonic() + 60
    shown = create_page_data(seen, "tidemark", 3000)["sources"][0]["kafka"]
    # While a topic is being deleted, brokers list it but have no offsets for it.
    while "There is no topic" not in (shown["trouble"] or "") and time.monotonic() < deadline:
        seen = watching.read()
        text = render_metrics(seen).decode()
        shown = create_page_data(seen, "tidemark", 3000)["sources"][0]["kafka"]
    # The brokers respond, so it is not an outage.
    assert brokers_finding(text), text
    assert 'tidemark_kafka_up{source="clicks"} 1.0' in text
    assert "tidemark_kafka_consumer_lag{" not in text
    assert f"There is no topic '{name}'" in shown["trouble"]
    assert shown["silent"] is False


def test_silent_brokers_are_reported_and_do_not_block(
    engine: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = KafkaConnector(CLICKS, ["clicks"], servers=f"127.0.0.1:{free_port()}")
    with pytest.raises(DataError, match="can't be read"):
        connector.measure_lag(None, 0.5)
    settings = engine.model_copy(update={"home": tmp_path, "warehouse": str(tmp_path / "none")})
    monkeypatch.setattr(polls, "EVERY", 0.0)
    watching = watcher(settings, connector)
    text = render_metrics(watching.read()).decode()
    assert 'tidemark_kafka_up{source="clicks"} 0.0' in text
    assert brokers_finding(text)
    assert "tidemark_kafka_consumer_lag{" not in text
    deadline = time.monotonic() + 60
    while "has not responded yet" in (_backlog(watching).trouble or ""):
        assert time.monotonic() < deadline
    with held(monkeypatch, KafkaConnector, "measure_lag") as waiting:
        # A poll that waited for the next response would take longer than the response is held back.
        monkeypatch.setattr(polls, "BROKER_SECONDS", LONG)
        while not waiting.asked.is_set():
            assert _backlog(watching).is_silent
            assert time.monotonic() < deadline
        looks = [_backlog(watching) for _ in range(3)]
        assert waiting.still
    assert all(backlog.is_silent for backlog in looks)


def _backlog(watching: Monitor) -> Backlog:
    found = watching.read().sources[0].backlog
    assert found is not None
    return found


def test_the_known_lag_is_cleared_when_brokers_become_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(polls, "EVERY", 0.0)
    answers = [{("clicks", 0): 7}]

    def lag(*_: object) -> Lag:
        if answers:
            return Lag(answers.pop(), [])
        raise DataError("Kafka at nowhere can't be read.")

    monkeypatch.setattr(KafkaConnector, "measure_lag", lag)
    connector, asked = KafkaConnector(CLICKS, ["clicks"]), Backlogs()
    assert asked.get_backlog(connector, None).waiting == {("clicks", 0): 7}
    deadline = time.monotonic() + 60
    while (
        found := asked.get_backlog(connector, None)
    ).trouble is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found.waiting == {}
    assert found.trouble == "Kafka at nowhere can't be read."
