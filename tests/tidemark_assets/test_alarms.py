"""Test alarms: the recipe in docs/dagster.md reports failures and nothing else."""

import json
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import dagster as dg
import pytest

from helpers.data.support import PER_MINUTE
from helpers.suite.pages import blocks
from tidemark.base.errors import DataError, DefinitionError
from tidemark_assets.base import steps
from tidemark_assets.base.names import PLAIN
from tidemark_assets.build import DagsterOptions
from tidemark_assets.checks.findings_check import NO_FINDINGS, evaluate_findings
from tidemark_assets.definitions import _parts
from tidemark_assets.tables.source_assets import log_asset
from tidemark_streaming.connector import Ingestion
from tidemark_streaming.files import FileConnector
from tidemark_streaming.findings.home_state import HomeState
from tidemark_streaming.findings.listing import list_findings
from tidemark_streaming.findings.services import Services
from tidemark_streaming.home.domains import Domains
from tidemark_streaming.streams.stream_states import StreamState
from tidemark_streaming.streams.supervisor import GIVEN_UP, WAITING


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the subjects that a webhook received."""
    told: list[str] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            told.append(json.loads(self.rfile.read(length))["subject"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            pass

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("ALARM_URL", f"http://127.0.0.1:{server.server_port}")
        yield told
        server.shutdown()


def test_the_recipe_reports_failed_runs_and_failed_checks_once(
    instance: dg.DagsterInstance, hook: list[str]
) -> None:
    (recipe,) = (text for _, _, text in blocks("docs/dagster.md") if "ALARM_URL" in text)
    # The recipe names the reader's own domain.
    recipe = recipe.replace('"shop"', '"tidemark_assets.weather"')
    made: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(recipe, "docs/dagster.md", "exec"), made)
    assert made["definitions"]().resolve_sensor_def("checks_in_error")

    @dg.op
    def fails() -> None:
        raise dg.Failure("It does.", allow_retries=False)

    @dg.job
    def nightly() -> None:
        fails()

    done = nightly.execute_in_process(instance=instance, raise_on_error=False)
    event = next(e for e in done.all_events if e.event_type is dg.DagsterEventType.RUN_FAILURE)
    context = dg.build_run_status_sensor_context(
        "runs_that_failed", event, instance, done.dagster_run
    )
    made["runs_that_failed"](context.for_run_failure())
    assert hook == ["nightly failed"]

    key = dg.AssetCheckKey(dg.AssetKey("per_minute"), NO_FINDINGS)
    held = dg.Definitions(asset_checks=[_check(key)]).get_repository_def()
    cursor: str | None = None

    def tick(state: str, failures: int) -> list[str]:
        nonlocal cursor
        hook.clear()
        streams = {"per_minute": StreamState(state, failures)}
        services = Services({}, disk_free=1, disk_size=1, streams=streams)
        findings = list_findings(HomeState(0, services))
        instance.report_runless_asset_event(evaluate_findings(key.asset_key, findings))
        context = dg.build_sensor_context(instance, cursor, repository_def=held)
        cursor = made["checks_in_error"](context).cursor
        return list(hook)

    assert tick(WAITING, 1) == [], "it may come back by itself"
    assert tick(GIVEN_UP, 10) == ["per_minute: no_findings"]
    assert tick(GIVEN_UP, 10) == [], "it was told"
    assert tick("running", 0) == []
    assert tick(GIVEN_UP, 10) == ["per_minute: no_findings"]


def _check(key: dg.AssetCheckKey) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=key.asset_key, name=key.name)
    def check() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    return check


def test_a_live_event_log_has_a_freshness_policy(tmp_path: Path) -> None:
    source = PER_MINUTE.source
    ingestion = Ingestion(source=source, connector=lambda landing: FileConnector(source, landing))
    found = Domains({source.name: source}, {source.name: ingestion}, {})
    days = dg.DailyPartitionsDefinition("2026-01-01")
    show = DagsterOptions(partitions=days, arrives_within={source.name: "10 minutes"})
    specs = log_asset(ingestion, show.of_source(source.name, "shop")).specs
    policies = {spec.key.to_user_string(): spec.freshness_policy for spec in specs}
    wanted = dg.FreshnessPolicy.time_window(timedelta(minutes=10))
    assert policies == {source.log_table: wanted}
    wrong = DagsterOptions(partitions=days, arrives_within={"clicks": "10 minutes"})
    with pytest.raises(DefinitionError, match="`arrives_within` for 'clicks', for which it has no"):
        list(_parts("shop", found, wrong, PLAIN))


def test_only_retriable_errors_are_transient() -> None:
    assert steps.is_transient(DataError("The brokers don't answer.", retriable=True))
    assert not steps.is_transient(DataError("There is no such column."))
