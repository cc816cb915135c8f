"""Metrics equal the tables, also after compactions, drops and recreations."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.data.landing import SOURCE, clock, connector, land, land_some
from helpers.data.runs import run_all
from helpers.data.tables import arrive, ran
from helpers.processes.commands import call, surround
from helpers.suite.scrapes import scraped, summed, value
from tidemark.base.errors import ConflictError, DefinitionError
from tidemark.base.instants import parse_instant
from tidemark.base.settings import Settings
from tidemark.define.helper_columns import ADMITTED
from tidemark.run.runner import backfill, incremental
from tidemark.store.event_log.log import Log
from tidemark.store.upkeep.dropping import drop_asset
from tidemark.store.upkeep.maintenance import maintain_tables
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.findings.finding import Kind
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.ingest.ingest_record import lock_ingest
from tidemark_streaming.monitor import page
from tidemark_streaming.monitor.metrics import METRICS, render_metrics
from tidemark_streaming.monitor.overview import Monitor
from tidemark_streaming.snapshot import tables
from tidemark_streaming.snapshot.history import LATENCIES, Histogram, Ledger, Runs, Timeline
from tidemark_streaming.streams import desired_streams, supervisor
from tidemark_streaming.streams.supervisor import RUNNING, Stream
from watched.transforms import by_hour, by_minute

ROOT = Path(__file__).parents[3]
RULES, DASHBOARD = ROOT / "ops/prometheus/rules.yml", ROOT / "ops/grafana/tidemark.json"
PROMTOOL = shutil.which("promtool")
NAME = re.compile(r"\btidemark_\w+")
MATCHER = re.compile(r"(tidemark_\w+)\{([^}]*)\}")
GROUPING = re.compile(r"\b(?:by|on) \(([^)]*)\)")


@pytest.fixture
def settings(engine: Settings, warehouse: Warehouse, tmp_path: Path) -> Settings:
    """Return settings with their own landing folder and the domain `watched`."""
    own = {"database": warehouse.database, "landing": str(tmp_path), "domains": ("watched",)}
    return engine.model_copy(update=own)


def bring(warehouse: Warehouse, settings: Settings) -> None:
    for _ in ingest(warehouse, connector(Path(settings.landing) / SOURCE.name)):
        pass


@pytest.mark.nightly
@pytest.mark.slow
def test_a_roll_up_behind_its_base_is_reported(
    warehouse: Warehouse, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it lacks no arrival."""
    surround(monkeypatch, settings)
    monkeypatch.setenv("TIDEMARK_DOMAINS", "watched")
    watcher = Monitor(settings)

    def unfollowed() -> dict[str, str | None]:
        told = {
            s["name"]: s for s in page.create_page_data(watcher.read(), "tidemark", 1)["streams"]
        }
        status = call("status", "--json")
        assert status.exit_code == 0, status.stderr
        listed = {a["asset"]: a for a in json.loads(status.stdout)["assets"]}
        assert [a["behind"] for a in listed.values()] == [0, 0]
        assert [told[a]["behind"] for a in listed] == [0, 0]
        found = {name: asset["unfollowed"] for name, asset in listed.items()}
        assert {a: told[a]["unfollowed"] for a in listed} == {a: bool(b) for a, b in found.items()}
        return found

    land_some(Path(settings.landing) / SOURCE.name, 3)
    bring(warehouse, settings)
    incremental(warehouse, by_minute)
    incremental(warehouse, by_hour)
    assert unfollowed() == {"by_minute": None, "by_hour": None}
    backfill(warehouse, by_minute)
    assert unfollowed() == {"by_minute": None, "by_hour": "by_minute"}
    said = " ".join(call("status").stdout.split())
    assert "by_hour has not processed all runs of by_minute: use `tidemark run by_hour`." in said
    incremental(warehouse, by_hour)
    assert unfollowed() == {"by_minute": None, "by_hour": None}


def settle(settings: Settings) -> None:
    """Set the modification times of the tables a minute back."""
    for log in Path(settings.warehouse, settings.database).glob("*/_delta_log"):
        os.utime(log, (time.time() - 60, time.time() - 60))


def test_metrics_equal_the_tables(warehouse: Warehouse, settings: Settings) -> None:
    folder = Path(settings.landing) / SOURCE.name
    land_some(folder, 12)
    land(folder, "crowd.csv", "at,sensor,value\n" + f"{clock(900)},a,1\n" * 5, 900)
    land(folder, "end.csv", f"at,sensor,value\n{clock(7200)},b,1\n", 7200)
    bring(warehouse, settings)
    made = [*run_all(warehouse, by_minute, limit=7), *run_all(warehouse, by_hour)]
    found = scraped(watcher := Monitor(settings))
    assert value(found, "tidemark_source_arrivals_total", source="sensors") == 14
    dead = warehouse.read_frame(SOURCE.dead_letters_table).count()
    assert value(found, "tidemark_source_dead_letters", source="sensors") == dead > 0
    mark = value(found, "tidemark_source_watermark_timestamp_seconds", source="sensors")
    assert mark is not None
    behind = value(found, "tidemark_source_watermark_lag_seconds", source="sensors")
    assert behind == pytest.approx(time.time() - mark, abs=60)
    for transform in (by_minute, by_hour):
        own, facts = {"asset": transform.name}, [f for f in made if f.asset == transform.name]
        assert value(found, "tidemark_asset_lag_arrivals", **own) == 0
        windows = warehouse.read_frame(transform.published_table)
        assert value(found, "tidemark_asset_published_rows", **own) == windows.count() > 0
        assert value(found, "tidemark_asset_final_rows", **own) == windows.where("final").count()
        assert value(found, "tidemark_asset_runs_total", **own, mode=facts[0].mode) == len(facts)
        took = value(found, "tidemark_asset_run_seconds_sum", **own, mode=facts[0].mode)
        assert took == pytest.approx(sum(f.seconds for f in facts))
        for step in facts[0].steps:
            lasted = summed(found, "tidemark_asset_run_step_seconds_sum", **own, step=step)
            assert lasted == pytest.approx(sum(f.steps[step] for f in facts)), step
        for verdict in ("on_time", "late", "too_late", "no_event_time"):
            counted = summed(found, "tidemark_asset_events_total", **own, verdict=verdict)
            assert counted == sum(getattr(f, verdict) for f in facts), verdict
        held = value(found, "tidemark_asset_quarantined_rows", **own, status="quarantined")
        assert held == sum(f.quarantined for f in facts)
    assert (
        value(found, "tidemark_asset_quarantined_rows", asset="by_minute", status="quarantined")
        == 1
    )
    limited = {"asset": "by_minute", "limit": "arrivals"}
    assert value(found, "tidemark_asset_rate_limited_runs_total", **limited) == 1
    assert summed(found, "tidemark_asset_events_total", verdict="late") > 0
    waiting = value(found, "tidemark_asset_open_rows", asset="by_minute")
    assert waiting == 1, "the last minute has not ended"
    seen = value(found, "tidemark_asset_arrival_to_published_seconds_count", asset="by_minute")
    with_events = [a for a in Log(warehouse, SOURCE).read_timeline() if a.rows]
    assert seen == len(with_events) == 13, "one file is empty"
    files = warehouse.path_of("by_minute")
    there = list(Path(files).glob("*.parquet"))
    assert value(found, "tidemark_table_version", table="by_minute") == warehouse.newest_version(
        "by_minute"
    )
    assert 0 < (value(found, "tidemark_table_files", table="by_minute") or 0) <= len(there)
    unreadable = {"kind": "unreadable", "level": "error", "node": "home"}
    assert value(found, "tidemark_findings", **unreadable) is None
    assert value(found, "tidemark_process_up", process="engine") == 1

    # Rows rewritten by a compaction are not counted again; a backfill's events are counted
    # separately.
    list(maintain_tables(warehouse))
    facts = backfill(warehouse, by_minute)
    again = scraped(watcher)
    for name in ("tidemark_source_events_total", "tidemark_source_arrivals_total"):
        assert summed(again, name) == summed(found, name)
    for mode, count in (("incremental", 2), ("backfill", 1)):
        assert value(again, "tidemark_asset_runs_total", asset="by_minute", mode=mode) == count
    on_time = summed(again, "tidemark_asset_events_total", mode="backfill", verdict="on_time")
    assert on_time == facts.on_time
    assert scraped(Monitor(settings)).keys() == again.keys()

    # The metrics of a recreated asset start from its new beginning.
    drop_asset(warehouse, by_minute)
    run_all(warehouse, by_minute)
    anew = scraped(watcher)
    assert value(anew, "tidemark_asset_runs_total", asset="by_minute", mode="incremental") == 1
    assert value(anew, "tidemark_asset_runs_total", asset="by_minute", mode="backfill") is None


FIGURES = {
    "sources": {
        "arrivals": ("tidemark_source_arrivals_total", "arrivals"),
        "events": ("tidemark_source_events_total", "events"),
        "arrived_at": ("tidemark_source_last_arrival_timestamp_seconds", "arrived"),
        "watermark": ("tidemark_source_watermark_timestamp_seconds", "watermark"),
        "newest_event": ("tidemark_source_newest_event_timestamp_seconds", "newest"),
        "dead_letters": (None, "deadLetters"),
        "undeclared": ("tidemark_source_undeclared_fields", None),
    },
    "assets": {
        "watermark": ("tidemark_asset_watermark_timestamp_seconds", "watermark"),
        "windows": ("tidemark_asset_published_rows", "published"),
        "final": ("tidemark_asset_final_rows", "final"),
        "open": ("tidemark_asset_open_rows", "open"),
        "late": (None, "late"),
        "too_late": (None, "tooLate"),
        "behind": ("tidemark_asset_lag_arrivals", "behind"),
        "rows_waiting": ("tidemark_asset_lag_rows", "rowsWaiting"),
    },
}
"""Figures that `tidemark status` shows and a metric or the page also has."""


def test_status_metrics_and_page_show_the_same_figures(
    warehouse: Warehouse, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    surround(monkeypatch, settings)
    monkeypatch.setenv("TIDEMARK_DOMAINS", "watched")
    folder = Path(settings.landing) / SOURCE.name
    land_some(folder, 12)
    bring(warehouse, settings)
    # Some arrivals are pending; some windows are open, some ended and may still change, some are
    # final.
    run_all(warehouse, by_minute, limit=4)
    land(folder, "more.csv", "at,sensor,value\n" + f"{clock(900)},a,1\n" * 2 + "torn\n", 900)
    bring(warehouse, settings)
    watcher, status = Monitor(settings), call("status", "--json")
    assert status.exit_code == 0, status.stderr
    found, told = scraped(watcher), page.create_page_data(watcher.read(), "tidemark", 1)
    shown = {"sources": told["sources"], "assets": told["streams"]}
    compared = set[str]()
    for kind, figures in FIGURES.items():
        for each in json.loads(status.stdout)[kind]:
            name = each["name" if kind == "sources" else "asset"]
            (on_page,) = (s for s in shown[kind] if s["name"] == name)
            for figure, (metric, key) in figures.items():
                figure_is = _number(each[figure])
                if metric is not None:
                    scrape = value(found, metric, **{kind[:-1]: name})
                    assert scrape == (figure_is and pytest.approx(figure_is)), (name, figure)
                if key is not None:
                    is_instant = isinstance(each[figure], str)
                    there = on_page[key] / 1000 if is_instant else on_page[key]
                    assert there == (figure_is and pytest.approx(figure_is, abs=0.001)), figure
                if figure_is:
                    compared.add(figure)
    asset = next(a for a in json.loads(status.stdout)["assets"] if a["asset"] == "by_minute")
    mark = asset["watermark"].replace("Z", "")
    left = warehouse.read_frame(by_minute.state_table).where(
        f"{ADMITTED} AND window_end > '{mark}'"
    )
    assert asset["open"] == left.select(*by_minute.by_window).distinct().count() > 0
    assert asset["windows"] > asset["final"] > 0
    assert compared >= {"open", "behind", "rows_waiting", "late", "dead_letters", "final"}


def _number(figure: object) -> float | None:
    """Return a figure of the status as a number: a count, an instant in seconds, or the number of
    fields."""
    if isinstance(figure, str):
        return parse_instant(figure) / 1e6
    if isinstance(figure, dict):
        return len(figure)
    assert figure is None or isinstance(figure, int)
    return figure


def test_unchanged_tables_are_not_read_again(
    warehouse: Warehouse, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_some(Path(settings.landing) / SOURCE.name, 3)
    bring(warehouse, settings)
    run_all(warehouse, by_minute)
    monkeypatch.setattr(tables, "PAUSE_FACTOR", 0)
    settle(settings)
    watcher, opened = Monitor(settings), list[str]()
    first = scraped(watcher)
    plain = tables.Tables.open_table

    def counted(self: tables.Tables, table: str) -> Any:  # noqa: ANN401 (deltalake's table)
        opened.append(table)
        return plain(self, table)

    monkeypatch.setattr(tables.Tables, "open_table", counted)
    assert summed(scraped(watcher), "tidemark_source_events_total") > 0
    assert opened == []
    land(
        Path(settings.landing) / SOURCE.name,
        "more.csv",
        f"at,sensor,value\n{clock(200)},a,1\n",
        300,
    )
    bring(warehouse, settings)
    second = scraped(watcher)
    # The state is compared with the arrivals that it was computed from.
    changed = {"sensors_log", "sensors_dead_letters", "sensors_timeline"}
    assert changed | {"by_minute_state"} == set(opened)
    name = "tidemark_source_events_total"
    assert summed(second, name) == summed(first, name) + 1


def test_a_runs_arrivals_are_read_while_the_timeline_rests(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The timeline rests for minutes, regardless of the ledger.
    looked, came = tables.Tables.of_database(settings, pause_factor=500), Timeline("readings")
    told = Ledger({"one": came})

    def happened(number: int) -> None:
        arrive(settings, "readings", number, number)
        ran(settings, "one", number, number, 0, quarantined=0, duplicate=0)

    def slow(of: tables.Tables) -> None:
        time.sleep(0.5)
        read(of)

    happened(0)
    read = came.read_now
    with monkeypatch.context() as patch:
        patch.setattr(came, "read_now", slow)
        came.read_new_rows(looked)
    looked.pause_factor = 0
    told.read_new_rows(looked)
    happened(1)
    came.read_new_rows(looked)
    assert came.count == 1, "it does not rest"
    deadline = time.monotonic() + 60
    while came.count < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
        told.read_new_rows(looked)
    assert came.count == 2


def test_latency_buckets_differ_by_at_most_a_quarter() -> None:
    bounds = [0.5, *(b for b in LATENCIES if 0.5 < b <= 5)]
    for low, high in pairwise(bounds):
        assert high - low <= 0.25 * low + 1e-9, (low, high)
    seen = Histogram(LATENCIES)
    for latency in (1.4, 1.4, 2.3):
        seen.observe(latency)
    counts = dict(seen.cumulated_buckets())
    assert (counts["1.25"], counts["1.5"], counts["2.25"], counts["2.5"]) == (0, 2, 2, 3)
    assert (
        len(Runs().from_event.cumulated_buckets())
        == len(Runs().from_arrival.cumulated_buckets())
        == len(counts)
    )


def test_an_empty_home_has_metrics(tmp_path: Path) -> None:
    found = scraped(Monitor(Settings(home=tmp_path / "home", domains=("watched",))))
    assert value(found, "tidemark_process_up", process="engine") == 0
    assert value(found, "tidemark_source_arrivals_total", source="sensors") == 0
    # A series that starts with the first dead letter would not show an increase.
    assert value(found, "tidemark_source_dead_letters", source="sensors") == 0
    assert value(found, "tidemark_asset_published_rows", asset="by_hour") == 0
    assert value(found, "tidemark_source_watermark_lag_seconds", source="sensors") is None
    assert summed(found, "tidemark_findings", kind="unreadable") == 0


def test_an_unreadable_table_is_reported_and_the_rest_shown(
    warehouse: Warehouse, settings: Settings
) -> None:
    land_some(Path(settings.landing) / SOURCE.name, 3)
    bring(warehouse, settings)
    run_all(warehouse, by_minute)
    first = next(Path(warehouse.path_of("by_minute"), "_delta_log").glob("0*.json"))
    first.write_text("no commit\n")
    overview = Monitor(settings).read()
    assert "by_minute" in overview.troubles
    unreadable = [f.cause for f in overview.findings if f.kind is Kind.UNREADABLE]
    assert any(cause.startswith("by_minute can't be read: ") for cause in unreadable)
    assert [source.name for source in overview.sources] == ["sensors"]
    assert [asset.name for asset in overview.assets] == ["by_hour"]


def test_a_blocked_source_is_reported_until_an_ingest_succeeds(
    warehouse: Warehouse, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_some(Path(settings.landing) / SOURCE.name, 2)
    bring(warehouse, settings)
    watcher = Monitor(settings)

    def stands() -> float:
        monkeypatch.setattr(watcher._reader._services, "_seen", None)
        return summed(scraped(watcher), "tidemark_findings", kind="blocked_source")

    assert stands() == 0
    other = replace(SOURCE, columns={**SOURCE.columns, "value": "STRING"})
    changed = replace(connector(Path(settings.landing) / SOURCE.name), source=other)
    with pytest.raises(DefinitionError, match="differs from its event log"):
        list(ingest(warehouse, changed))
    assert stands() == 1
    (shown,) = page.create_page_data(watcher.read(), "tidemark", 1)["sources"]
    assert shown["refused"].startswith(
        "Source 'sensors' differs from its event log 'sensors_log' in the "
    )
    # A concurrent ingest does not clear the state of the source.
    with lock_ingest(warehouse, SOURCE), pytest.raises(ConflictError):
        bring(warehouse, settings)
    assert stands() == 1
    bring(warehouse, settings)
    assert stands() == 0


def test_stream_metrics_follow_the_supervisor(tmp_path: Path, engine: Settings) -> None:
    settings = engine.model_copy(update={"database": "streams_told", "domains": ("watched",)})
    now = time.time_ns() // 1000
    request = desired_streams.request_stream(settings, "by_minute")
    try:
        found = scraped(Monitor(settings))
        assert value(found, "tidemark_stream_up", asset="by_minute") == 0
        stream = Stream(since=request.since, state=RUNNING, failures=2, restarts=5)
        supervisor.write_statuses(settings, "watched", {"by_minute": stream}, now)
        found = scraped(Monitor(settings))
        assert value(found, "tidemark_stream_up", asset="by_minute") == 1
        assert value(found, "tidemark_stream_consecutive_failures", asset="by_minute") == 2
        assert value(found, "tidemark_stream_restarts_total", asset="by_minute") == 5
        # The last poll is old, or in the future because the clock was set back.
        for at in (now - 2 * supervisor.STALE_STATUS, now + supervisor.STALE_STATUS):
            supervisor.write_statuses(settings, "watched", {"by_minute": stream}, at)
            found = scraped(Monitor(settings))
            assert value(found, "tidemark_stream_up", asset="by_minute") == 0
    finally:
        desired_streams.cancel_request(settings, "by_minute")
    assert summed(scraped(Monitor(settings)), "tidemark_stream_up") == 0


def test_metric_names_follow_the_prometheus_conventions() -> None:
    names = [told.name for told in METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS:
        assert re.fullmatch(r"tidemark_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.meaning.endswith("."), metric.name
        assert all(re.fullmatch(r"[a-z]+", label) for label in metric.labels)


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool here: Prometheus itself was not asked")
def test_prometheus_accepts_metrics_and_rules(tmp_path: Path) -> None:
    text = render_metrics(Monitor(Settings(home=tmp_path / "home", domains=("watched",))).read())
    for command, given in (("metrics", text), ("rules", None)):
        more = [] if given is not None else [RULES]
        done = subprocess.run(
            [str(PROMTOOL), "check", command, *more], input=given, capture_output=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def expressions() -> Iterable[tuple[str, str]]:
    """Yield the place of each expression and the expression."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def test_rules_and_dashboard_use_existing_metrics_and_labels() -> None:
    known = {metric.name: set(metric.labels) for metric in METRICS}
    for metric in METRICS:
        if metric.is_histogram:
            known[f"{metric.name}_bucket"] = {*metric.labels, "le"}
            known |= {f"{metric.name}_{part}": set(metric.labels) for part in ("sum", "count")}
            del known[metric.name]
    used = set[str]()
    for place, expression in expressions():
        names = set(NAME.findall(expression))
        assert names <= known.keys(), (place, names - known.keys())
        for name, matchers in MATCHER.findall(expression):
            labels = set(re.findall(r"(\w+)=", matchers))
            assert labels <= known[name], (place, name, labels)
        there = {label for name in names for label in known[name]}
        for labels in GROUPING.findall(expression):
            assert {label.strip() for label in labels.split(",") if label.strip()} <= there, place
        for opening, closing in ("()", "{}", "[]"):
            assert expression.count(opening) == expression.count(closing), place
        used |= names
    assert len(used) > 20


def test_each_alert_links_to_a_troubleshooting_section() -> None:
    headings = re.findall(
        r"^#+ (.*)$", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE
    )
    anchors = {re.sub(r"[^\w\- ]", "", h).lower().replace(" ", "-") for h in headings}
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            document, _, anchor = rule["annotations"]["runbook"].partition("#")
            assert document == "docs/troubleshooting.md"
            assert anchor in anchors, (rule["alert"], anchor)
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert rule["annotations"]["summary"]


def test_the_dashboards_variables_are_labels() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    known = {metric.name: metric.labels for metric in METRICS}
    asked = [v["query"]["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
    for query in asked:
        found = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
        assert found is not None
        assert found[2] in known[found[1]]
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))


def test_every_metric_is_documented() -> None:
    lines = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |")
    table = "\n".join(lines)
    document = (ROOT / "docs/metrics_reference.md").read_text()
    assert table in document, f"docs/metrics_reference.md should have:\n{table}"
