"""Each alert fires exactly under its condition, evaluated by Prometheus if it is installed."""

import json
import os
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake

from helpers.data.tables import arrive
from helpers.suite.alerts import (
    NEEDS_PROMTOOL,
    PROMTOOL,
    RULES,
    alert_case,
    check_alerts,
    rules,
)
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark_streaming.home import services

ROOT = Path(__file__).parents[3]
PROMETHEUS = shutil.which("prometheus")


@dataclass(frozen=True)
class Case:
    """Series that make an alert fire: values a minute apart, in promtool's notation.

    Args:
        quiet: similar series that do not make it fire.
        after: minutes after which it fires.
        labels: labels of the alert, in addition to its name and severity.
    """

    fires: dict[str, str]
    quiet: dict[str, str]
    after: int
    labels: dict[str, str] = field(default_factory=dict[str, str])


ASSET, CLICKS, LANE = {"asset": "a"}, {"source": "clicks"}, {"lane": "l"}
CARRIED = 'lane="l",topic="t",partition="0"'
LAG = 'tidemark_kafka_consumer_lag{source="clicks",topic="t",partition="0"}'
TOO_LATE = 'tidemark_asset_events_total{asset="a",mode="incremental",verdict="too_late"}'
ON_TIME = 'tidemark_asset_events_total{asset="a",mode="incremental",verdict="on_time"}'
PUBLISHED = 'tidemark_asset_arrival_to_published_seconds_bucket{asset="a",le="%s"}'
RAN = 'tidemark_asset_run_seconds_bucket{asset="a",mode="incremental",le="%s"}'
MARK, CAME = "tidemark_source_watermark_timestamp_seconds", "tidemark_source_arrivals_total"
FINDING = 'tidemark_findings{kind="%s",level="%s",node="source clicks"}'
LAST = "tidemark_source_last_arrival_timestamp_seconds"
FREE = "tidemark_disk_free_bytes"
CASES = {
    "TidemarkError": Case(
        {FINDING % ("stopped_ingest", "error"): "0 1x9"},
        {
            FINDING % ("stopped_ingest", "error"): "0 1 0x9",
            FINDING % ("quarantine", "warning"): "1x9",
        },
        4,
        {"kind": "stopped_ingest", "level": "error", "node": "source clicks"},
    ),
    "TidemarkWarning": Case(
        {FINDING % ("dead_letters", "warning"): "0 2x9"},
        {FINDING % ("dead_letters", "warning"): "0 2x3 0x9"},
        7,
        {"kind": "dead_letters", "level": "warning", "node": "source clicks"},
    ),
    "TidemarkWatchDown": Case(
        {'up{job="tidemark"}': "0x9"}, {'up{job="tidemark"}': "1x9"}, 3, {"job": "tidemark"}
    ),
    "TidemarkStreamFailing": Case(
        {'tidemark_stream_consecutive_failures{asset="a"}': "3x2"},
        {'tidemark_stream_consecutive_failures{asset="a"}': "2x2"},
        1,
        ASSET,
    ),
    "TidemarkStreamRestarts": Case(
        {'tidemark_stream_restarts_total{asset="a"}': "0x20 1 2 3 4 4x20"},
        {'tidemark_stream_restarts_total{asset="a"}': "7x20 8x40"},
        40,
        ASSET,
    ),
    "TidemarkAssetFallsBehind": Case(
        {'tidemark_asset_lag_arrivals{asset="a"}': "0+2x40"},
        {'tidemark_asset_lag_arrivals{asset="a"}': "80-2x40"},
        30,
        ASSET,
    ),
    "TidemarkKafkaLagGrows": Case({LAG: "0+1000x40"}, {LAG: "60000-1000x40"}, 40, CLICKS),
    "TidemarkLaneBehind": Case(
        # A lane that keeps up has this many between two checkpoints, and none after the next.
        {f"tidemark_lane_consumer_lag{{{CARRIED}}}": "0+2000x60"},
        {f"tidemark_lane_consumer_lag{{{CARRIED}}}": "0 60000 0 60000 0 60000 0x60"},
        40,
        LANE,
    ),
    "TidemarkSourceSilent": Case(
        {LAST + '{source="clicks"}': "60+0x99", CAME + '{source="clicks"}': "0 5x98"},
        {LAST + '{source="clicks"}': "60+60x99", CAME + '{source="clicks"}': "0 5x98"},
        75,
        CLICKS,
    ),
    "TidemarkWatermarkStands": Case(
        {MARK + '{source="clicks"}': "60+0x60", CAME + '{source="clicks"}': "0+1x60"},
        {MARK + '{source="clicks"}': "60+60x60", CAME + '{source="clicks"}': "0+1x60"},
        50,
        CLICKS,
    ),
    "TidemarkPublishedLate": Case(
        {PUBLISHED % "60": "0+1x60", PUBLISHED % "300": "0+9x60", PUBLISHED % "+Inf": "0+9x60"},
        {PUBLISHED % "60": "0+9x60", PUBLISHED % "300": "0+9x60", PUBLISHED % "+Inf": "0+9x60"},
        40,
        ASSET,
    ),
    "TidemarkRunsSlow": Case(
        {RAN % "30": "0+1x60", RAN % "60": "0+9x60", RAN % "+Inf": "0+9x60"},
        {RAN % "30": "0+9x60", RAN % "60": "0+9x60", RAN % "+Inf": "0+9x60"},
        40,
        ASSET,
    ),
    "TidemarkTooLateRises": Case(
        {TOO_LATE: "0+2x90", ON_TIME: "0+98x90"},
        {TOO_LATE: "0+1x90", ON_TIME: "0+199x90"},
        80,
        ASSET,
    ),
    "TidemarkDiskFills": Case({FREE: "100-1x60"}, {FREE: "50x60"}, 50),
    "TidemarkManyFiles": Case(
        {'tidemark_table_files{table="t"}': "2001x1500"},
        {'tidemark_table_files{table="t"}': "1999x1500"},
        1480,
        {"table": "t"},
    ),
}


def cases_of(name: str, case: Case) -> list[dict[str, Any]]:
    """Return the two cases of an alert: one in which it fires, and one in which it does not."""
    query = f'ALERTS{{alertname="{name}",alertstate="firing"}}'
    alert = {"alertname": name, "alertstate": "firing", **rules()[name]["labels"], **case.labels}
    return [
        alert_case(case.fires, query, case.after, [alert]),
        alert_case(case.quiet, query, case.after, []),
    ]


def test_each_alert_has_a_case() -> None:
    assert CASES.keys() == rules().keys()


@pytest.mark.slow
@pytest.mark.skipif(PROMTOOL is None, reason=NEEDS_PROMTOOL)
def test_each_alert_fires_under_its_condition_only(tmp_path: Path) -> None:
    check_alerts(tmp_path, [each for name, case in CASES.items() for each in cases_of(name, case)])


# Waits until a real Prometheus has scraped.
@pytest.mark.slow
@pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus here: no alert was evaluated")
def test_a_finding_alerts_in_a_real_prometheus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, own = free_port(), {"home": tmp_path / "home", "domains": "watched"}
    for name, value in {**own, "watch_port": free_port()}.items():
        monkeypatch.setenv(f"TIDEMARK_{name.upper()}", str(value))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"), prepend=os.pathsep)
    settings = Settings()
    config = yaml.safe_load((ROOT / "ops/prometheus/prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES)]
    target = f"127.0.0.1:{settings.watch_port}"
    config["scrape_configs"][0]["static_configs"] = [{"targets": [target]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    arrive(settings, "sensors", 0, 1)
    services.start_watch(settings)
    log = (tmp_path / "log").open("w")
    prometheus = subprocess.Popen(
        [
            str(PROMETHEUS),
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=log,
    )

    def asked_for(query: str) -> list[dict[str, Any]]:
        """Return the result of a Prometheus query once it is not empty."""
        path = f"api/v1/query?query={urllib.parse.quote(query)}"
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
                    told = json.load(answer)["data"]["result"]
            except OSError:
                told = []
            if told:
                return told
            time.sleep(0.5)
        raise AssertionError((tmp_path / "log").read_text())

    try:
        services.await_ready(settings, "watch")
        (before,) = asked_for("tidemark_source_dead_letters")
        assert before["value"][1] == "0"
        letters = pa.table({"arrival": [1, 1], "position": [0, 1]})
        path = f"{settings.warehouse}/{settings.database}/sensors_dead_letters"
        write_deltalake(path, letters)
        pending = 'ALERTS{alertname="TidemarkWarning",alertstate="pending"}'
        (alert,) = asked_for(pending)
    finally:
        prometheus.terminate()
        prometheus.wait(60)
        log.close()
        services.find_service(settings, "watch").stop()
    assert alert["metric"]["node"] == "source sensors"
    assert alert["metric"]["kind"] == "dead_letters"
