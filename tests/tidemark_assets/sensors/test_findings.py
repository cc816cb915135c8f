"""`tidemark status`, the live page, the metrics and Dagster show the same findings."""

import json
import time
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest

from helpers.dagster.ticks import of_part
from helpers.data.judgements import judged, withhold, write
from helpers.data.tables import arrive, position_of
from helpers.processes.commands import call
from helpers.processes.ending import end_with_an_error
from helpers.suite.alerts import (
    NEEDS_PROMTOOL,
    PROMTOOL,
    Labels,
    alert_case,
    check_alerts,
    rules,
    selector,
)
from helpers.suite.scrapes import Values, scraped
from tidemark.base.instants import parse_duration
from tidemark.base.settings import Settings
from tidemark.store import operations
from tidemark_assets.base.cells import literal
from tidemark_assets.base.resources import TidemarkResource
from tidemark_assets.checks.findings_check import NO_FINDINGS, findings_checks, keys_by_node
from tidemark_assets.sensors.findings import findings_reporter
from tidemark_streaming.base.foreground import INGEST, SINK
from tidemark_streaming.findings import services
from tidemark_streaming.home.domains import load_domains
from tidemark_streaming.monitor import page
from tidemark_streaming.monitor.overview import Monitor
from tidemark_streaming.streams import desired_streams
from till.sources import paid_orders

DOMAINS = ("till", "gated", "walled")
HOUR = parse_duration("1 hour")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return the settings of a home without an engine that has findings of many kinds."""
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TIDEMARK_REMOTE", "sc://localhost:1")
    monkeypatch.setenv("TIDEMARK_DOMAINS", ",".join(DOMAINS))
    settings = Settings()
    judged(settings, 0)
    judged(settings, 1, (3, "a"))
    withhold(settings, (3, "a"))
    arrive(settings, "orders", 0, 0, newest=10 * HOUR)
    taken = position_of(settings, paid_orders, "orders", orders=0)
    restored = taken.replace('"orders 0"', '"another arrival"')
    arrive(settings, "paid_orders", 0, 0, positions=[restored])
    end_with_an_error(settings, INGEST, "payments")
    end_with_an_error(settings, SINK, "gated")
    desired_streams.request_stream(settings, "gated")
    begun = {"operation": "o1", "kind": "erase", "owner": "source orders", "phase": "begun"}
    write(settings, operations.TABLE, [begun | {"at": 1}], operations.SCHEMA)
    write(settings, "parities", [{"phase": "x"}], operations.SCHEMA)
    (commit,) = Path(settings.warehouse, settings.database, "parities/_delta_log").glob("*.json")
    commit.write_text(commit.read_text()[:20])
    return settings


def in_metrics(samples: Values) -> Counter[tuple[str, str, str]]:
    found = Counter[tuple[str, str, str]]()
    for (name, labels), number in samples.items():
        if name == "tidemark_findings":
            by_label = dict(labels)
            found[by_label["kind"], by_label["level"], by_label["node"]] = int(number)
    return found


@pytest.mark.usefixtures("impatient")
def test_all_who_show_findings_show_the_same(home: Settings, instance: dg.DagsterInstance) -> None:
    status = json.loads(call("status", "--json").stdout)["findings"]
    expected = Counter((f["kind"], f["level"], f["node"]) for f in status)
    assert set(expected) == {
        ("damaged_table", "error", "home"),
        ("held_back", "warning", "source located_payments"),
        ("held_back", "warning", "source movements"),
        ("integrity_fault", "error", "asset gated"),
        ("kafka_unavailable", "error", "source clicks"),
        ("quarantine", "warning", "asset gated"),
        ("sink_behind", "warning", "asset clicks_by_10s"),
        ("stale", "error", "source paid_orders"),
        ("stale", "error", "asset unpaid_hourly"),
        ("stopped_ingest", "error", "source payments"),
        ("stopped_sink", "error", "asset gated"),
        ("stopped_stream", "error", "asset gated"),
        ("unfinished_operation", "error", "source orders"),
        ("watermark_ahead", "error", "source orders"),
    }

    watching, deadline = Monitor(home), time.monotonic() + 60
    # The service checks the tables in the background.
    while in_metrics(samples := scraped(watching)) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert in_metrics(samples) == expected
    assert page.create_page_data(watching.read(), "tidemark", 1)["findings"] == status

    printed = " ".join(call("status").stdout.split())
    for finding in status:
        assert " ".join(f"{finding['cause']} {finding['remedy']}".split()) in printed

    for domain in DOMAINS:
        known = load_domains([domain])
        ticks = of_part(findings_reporter(domain, known), instance, home)
        message = ticks.skipped()
        for node, key in keys_by_node(known).items():
            own = [f"{f['cause']} {f['remedy']}" for f in status if f["node"] == node]
            checked = evaluation(instance, key)
            assert checked.passed == (own == [])
            expected_text = literal(" ".join(own)) if own else "Nothing needs attention."
            assert checked.description == expected_text
            errors = [f for f in status if f["node"] == node and f["level"] == "error"]
            if own:
                severe = dg.AssetCheckSeverity.ERROR if errors else dg.AssetCheckSeverity.WARN
                assert checked.severity == severe
        assert "Table 'parities' has a truncated" in message


@pytest.mark.usefixtures("impatient")
@pytest.mark.skipif(PROMTOOL is None, reason=NEEDS_PROMTOOL)
def test_an_alert_fires_for_each_finding(home: Settings, tmp_path: Path) -> None:
    status = json.loads(call("status", "--json").stdout)["findings"]
    found = {(f["kind"], f["level"], f["node"]) for f in status}
    series, alerts = dict[str, str](), list[Labels]()
    for kind, level, node in found:
        finding = {"kind": kind, "level": level, "node": node}
        series[f"tidemark_findings{selector(finding)}"] = "1x9"
        name = f"Tidemark{level.capitalize()}"
        alert = {"alertname": name, "alertstate": "firing", **rules()[name]["labels"]}
        alerts.append(alert | finding)
    check_alerts(tmp_path, [alert_case(series, 'ALERTS{alertstate="firing"}', 9, alerts)])


def evaluation(instance: dg.DagsterInstance, key: dg.AssetKey) -> dg.AssetCheckEvaluation:
    record = instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(key, NO_FINDINGS))
    assert record is not None
    assert record.event is not None
    assert record.event.asset_check_evaluation is not None
    return record.event.asset_check_evaluation


def test_a_check_is_reported_again_only_if_its_findings_change(
    home: Settings, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "EVERY", 0.0)
    ticks = of_part(findings_reporter("gated", load_domains(["gated"])), instance, home)

    def results() -> list[bool]:
        key = dg.AssetCheckKey(dg.AssetKey("gated"), NO_FINDINGS)
        history = instance.event_log_storage.get_asset_check_execution_history(key, limit=50)
        events = [record.event for record in reversed(history)]
        checks = [e.asset_check_evaluation for e in events if e is not None]
        return [check.passed for check in checks if check is not None]

    ticks.tick()
    ticks.tick()
    assert results() == [False]
    desired_streams.cancel_request(home, "gated")
    ticks.tick()
    assert results() == [False, False]


def test_the_page_of_an_asset_can_run_the_check(home: Settings) -> None:
    @dg.asset
    def gated() -> None: ...

    known = load_domains(["gated"])
    checks = [
        check
        for check in findings_checks(known)
        if {key.asset_key for key in check.check_keys} == {dg.AssetKey("gated")}
    ]
    result = dg.materialize(
        [gated, *checks],
        selection=dg.AssetSelection.checks_for_assets("gated"),
        resources={"tidemark": TidemarkResource(home)},
    )
    (checked,) = result.get_asset_check_evaluations()
    assert not checked.passed
    assert checked.severity == dg.AssetCheckSeverity.ERROR
    assert "`tidemark backfill gated` recomputes them" in (checked.description or "")
