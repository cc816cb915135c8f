"""Test Dagster's web interface with a real webserver, daemon and headless browser.

Screenshots of every page go to `.screenshots` in the root, which git ignores: look at them.
"""

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from helpers.processes.commands import call, surround
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark_assets.flights.connectors import recording
from tidemark_assets.weather.connectors import recording as weather
from tidemark_streaming.connector import Excerpt
from tidemark_streaming.home import services

CHROMIUM = shutil.which("chromium")
SCREENSHOTS = Path(__file__).parents[2] / ".screenshots"
# The last flags stop Chromium's own connections, which a closed network refuses.
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
RELEASE = (
    "ops: {weather_operation: {config: {operation: {release: "
    "{asset: temperature_hourly, keys: {origin: EWR}}}}}}"
)
STREAM = (
    "ops: {{flights_stream_operation: {{config: {{operation: {{{operation}: "
    "{{assets: [departures_hourly]}}}}}}}}}}"
)
SLOW = 300.0
"""The timeout of a run in seconds, on a busy machine with two cores."""

# Starts Dagster's webserver and daemon, and a browser.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium here: the web interface was not tried in a browser"
    ),
]


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the landing folder."""
    return tmp_path_factory.mktemp("landing")


@pytest.fixture(scope="module")
def page(engine: Settings, landing: Path) -> Iterator[Page]:
    """Yield a browser page on a platform whose landing folder has 32 days of flights."""
    list(recording.write_files(landing / "flights", Excerpt(days=32)))
    database = f"end_to_end_{uuid4().hex[:12]}"
    ports = {"webserver_port": free_port(), "watch_port": free_port()}
    settings = engine.model_copy(update={"landing": str(landing), "database": database, **ports})
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        surround(patch, settings)
        for name, port in ports.items():
            patch.setenv(f"TIDEMARK_{name.upper()}", str(port))
        for name in ("webserver", "daemon", "watch"):
            stack.callback(services.find_service(settings, name).stop)
        started = call("up")
        assert started.exit_code == 0, started.stderr
        url = services.webserver_url(settings)
        assert f"Tidemark is up: {url}" in started.stdout
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=CHROMIUM, args=FLAGS
        )
        stack.callback(browser.close)
        page = browser.new_page(
            base_url=url, viewport={"width": 1500, "height": 950}, reduced_motion="reduce"
        )
        page.set_default_timeout(60_000)
        log = engine.home / "logs" / "browser.log"
        console = stack.enter_context(log.open("w", buffering=1))
        page.on("console", lambda said: print(said.type, said.text, file=console))
        page.on("pageerror", lambda error: print("error", error, file=console))
        page.on("requestfailed", lambda sent: print("lost", sent.url, sent.failure, file=console))
        assert unloaded(page) == {}
        yield page


def unloaded(page: Page) -> dict[str, str]:
    """Return Dagster's error for each code location that did not load."""
    query = """{workspaceOrError {... on Workspace {locationEntries {name loadStatus
        locationOrLoadError {__typename ... on PythonError {message}}}}}}"""
    answer = page.request.post("/graphql", data={"query": query}).json()
    return {
        entry["name"]: f"{entry['loadStatus']}: {entry['locationOrLoadError']}"
        for entry in answer["data"]["workspaceOrError"]["locationEntries"]
        if (entry["locationOrLoadError"] or {}).get("__typename") != "RepositoryLocation"
    }


def look(page: Page, name: str) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    # Most of a page is rendered after its load event.
    page.wait_for_timeout(500)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def materialize(page: Page, asset: str, partitions: str | None = None) -> None:
    """Materialize an asset through the dialogs of its page."""
    page.goto(f"/assets/{asset}")
    page.get_by_role("button", name=re.compile("Materialize")).first.click()
    if partitions is not None:
        box = page.get_by_placeholder(re.compile("^ex:"))
        box.fill(partitions)
        box.press("Tab")
        look(page, f"04 partitions of {asset} chosen")
        page.get_by_role("button", name=re.compile("^Launch")).click()


def runs(page: Page) -> dict[str, str]:
    """Return the statuses of all runs by id, newest first."""
    query = "{runsOrError {... on Runs {results {runId status}}}}"
    answer = page.request.post("/graphql", data={"query": query}).json()
    return {run["runId"]: run["status"] for run in answer["data"]["runsOrError"]["results"]}


def jobs(page: Page) -> list[tuple[str, str]]:
    """Return the job and the status of all runs, newest first."""
    query = "{runsOrError {... on Runs {results {jobName status}}}}"
    answer = page.request.post("/graphql", data={"query": query}).json()
    results = answer["data"]["runsOrError"]["results"]
    return [(run["jobName"], run["status"]) for run in results]


@contextmanager
def launched(page: Page, status: str = "SUCCESS") -> Iterator[None]:
    """Wait for the run that the block launches and assert its final status."""
    before = runs(page)
    yield
    deadline = time.monotonic() + SLOW
    found: list[str] = []
    while time.monotonic() < deadline and not runs(page).keys() - before.keys():
        time.sleep(0.5)
    # An open Dagster page takes as much CPU time as the run itself.
    page.goto("about:blank")
    while time.monotonic() < deadline and not set(found) & {"SUCCESS", "FAILURE", "CANCELED"}:
        time.sleep(1)
        found = [state for run, state in runs(page).items() if run not in before]
    assert found == [status]


def switch_on(page: Page, sensor: str) -> None:
    """Turn on a sensor on its page, or off if it is on."""
    page.goto(f"/locations/flights/sensors/{sensor}")
    page.locator("label[class*=formatSwitch]").first.click()


def launch(page: Page, location: str, job: str, config: str) -> None:
    """Launch a job from its launchpad with a run config."""
    page.goto(f"/locations/{location}/jobs/{job}/playground")
    editor = page.locator(".CodeMirror").first
    editor.wait_for()
    editor.evaluate("(e, text) => e.CodeMirror.setValue(text)", config)
    page.get_by_role("button", name=re.compile("Launch Run")).click()


def backfill(page: Page, asset: str, *partitions: str) -> None:
    """Launch a backfill of one asset through the GraphQL API."""
    query = """mutation($asked: LaunchBackfillParams!) {launchPartitionBackfill(
        backfillParams: $asked) {__typename ... on PythonError {message}}}"""
    asked = {"assetSelection": [{"path": [asset]}], "partitionNames": partitions}
    sent = {"query": query, "variables": {"asked": asked}}
    answer = page.request.post("/graphql", data=sent).json()
    found = answer["data"]["launchPartitionBackfill"]
    assert found == {"__typename": "LaunchBackfillSuccess"}, found


def wait_for_partitions(page: Page, asset: str, count: int) -> None:
    """Wait until the given number of partitions is materialized."""
    query = (
        'query {assetNodeOrError(assetKey: {path: ["ASSET"]}) {... on AssetNode '
        "{partitionStats {numMaterialized}}}}"
    ).replace("ASSET", asset)
    deadline, found = time.monotonic() + SLOW, -1
    while time.monotonic() < deadline and found != count:
        time.sleep(1)
        answer = page.request.post("/graphql", data={"query": query}).json()
        found = answer["data"]["assetNodeOrError"]["partitionStats"]["numMaterialized"]
    assert found == count


@pytest.fixture(scope="module")
def month(page: Page) -> None:
    """Ingest the files, and materialize the windows of a month, by clicks alone."""
    with launched(page):
        materialize(page, "flights_log")
    with launched(page):
        materialize(page, "departures_hourly", "[2013-01-01...2013-01-31]")


@pytest.mark.usefixtures("month")
def test_files_become_windows_by_clicks_alone(page: Page) -> None:
    page.goto("/assets/flights_log")
    page.get_by_text("Row count").wait_for()
    look(page, "02 log")
    page.goto("/assets/flights_log?view=events")
    page.get_by_text("[Show Markdown]").first.click()
    page.get_by_role("img", name="arrivals, drawn").wait_for()
    look(page, "03 arrivals, drawn")
    page.goto("/assets/departures_hourly?view=partitions&partition=2013-01-31")
    page.get_by_text("Materialized (31)").wait_for()
    page.get_by_text("late events in windows", exact=True).first.wait_for()
    look(page, "05 month")


@pytest.mark.nightly
@pytest.mark.usefixtures("month")
def test_days_are_backfilled_and_a_day_without_events_fails_with_the_reason(page: Page) -> None:
    with launched(page):
        backfill(page, "departures_hourly", "2013-01-02", "2013-01-03")

    with launched(page, "FAILURE"):
        materialize(page, "departures_hourly", "2013-06-01")
    page.goto(f"/runs/{next(iter(runs(page)))}")
    page.get_by_text("No event of 'flights' from 2013-06-01").first.wait_for()
    look(page, "06 run without events")


@pytest.mark.nightly
@pytest.mark.usefixtures("month")
def test_a_stream_started_in_the_ui_reports_its_partitions(page: Page, landing: Path) -> None:
    with launched(page):
        launch(page, "flights", "flights_streams", STREAM.format(operation="start"))
    list(recording.write_files(landing / "flights", Excerpt(days=36)))
    with launched(page):
        materialize(page, "flights_log")
    wait_for_partitions(page, "departures_hourly", 35)
    page.goto("/assets/departures_hourly?view=partitions&partition=2013-02-03")
    page.get_by_text("Materialized (35)").wait_for()
    look(page, "07 days of a stream")
    page.goto("/locations/flights/sensors/flights_reports")
    tick = page.get_by_role("row").filter(has_text="View logs").first
    tick.get_by_text("0 runs requested").last.click()
    page.get_by_text(re.compile("departures_hourly has been running since")).first.wait_for()
    look(page, "08 reports")
    page.goto("/assets/departures_hourly?view=checks")
    page.get_by_text("fresh_by_event_time").first.wait_for()
    look(page, "09 checks")
    page.goto("/automation")
    look(page, "10 automation")
    with launched(page):
        launch(page, "flights", "flights_streams", STREAM.format(operation="stop"))
    page.set_viewport_size({"width": 1600, "height": 900})
    page.goto("/locations/flights/asset-groups/flights")
    # The group is small enough for Dagster to draw names.
    for name in ("flights_connector", "flights_log", "congestion_rolling", "day_totals"):
        expect(page.get_by_text(name, exact=True).first).to_be_in_viewport()
    look(page, "11 lineage")


@pytest.mark.nightly
@pytest.mark.usefixtures("month")
def test_a_sensor_ingests_new_files_and_updates_the_windows(page: Page, landing: Path) -> None:
    before = jobs(page)
    list(recording.write_files(landing / "flights", Excerpt(days=38)))
    switch_on(page, "flights_arrivals")
    wanted = {("flights_ingest", "SUCCESS"), ("flights_catch_up", "SUCCESS")}
    deadline = time.monotonic() + SLOW
    while not wanted <= {*jobs(page)[: -len(before)]}:
        assert time.monotonic() < deadline, jobs(page)
        time.sleep(1)
    switch_on(page, "flights_arrivals")
    page.goto("/runs")
    page.get_by_text("flights_catch_up").first.wait_for()
    look(page, "10 runs of a sensor")


def freeze_impossible_wind(file: Path) -> None:
    """Give the reading with the impossible wind an impossible temperature, too."""
    modified_at = file.stat().st_mtime_ns
    header, *rows = file.read_text().splitlines()
    temperature = header.split(",").index("temp")
    lines = [header]
    for row in rows:
        fields = row.split(",")
        if any(field.startswith("1048") for field in fields):
            fields[temperature] = "-100"
        lines.append(",".join(fields))
    file.write_text("\n".join(lines) + "\n")
    # The modification time is the time of the arrival.
    os.utime(file, ns=(modified_at, modified_at))


@pytest.mark.nightly
def test_an_impossible_temperature_is_quarantined_until_released(page: Page, landing: Path) -> None:
    for landed in weather.write_files(landing / "weather", Excerpt(start="2013-02-12", days=1)):
        freeze_impossible_wind(landed.path)
    with launched(page):
        materialize(page, "weather_log")
    with launched(page):
        materialize(page, "temperature_hourly", "2013-02-12")
    page.goto("/assets/temperature_hourly?view=checks&checkDetail=between_wind_0_200")
    # A warning: its description explains it.
    page.get_by_text("1,048 miles an hour at Newark on February 12, 2013").first.wait_for()
    failing = "checkDetail=between_coldest_min_value_minus_40"
    page.goto(f"/assets/temperature_hourly?view=checks&{failing}")
    page.get_by_text("1 failed, the first at 2013-02-12T08:00:00Z: -100").first.wait_for()
    look(page, "12 failing check")
    page.goto("/assets/temperature_hourly?view=partitions&partition=2013-02-12")
    page.get_by_text("rows in temperature_hourly_quarantine", exact=True).first.wait_for()
    look(page, "13 quarantine")
    with launched(page):
        launch(page, "weather", "weather_operations", RELEASE)
    page.goto("/assets/temperature_hourly?view=partitions&partition=2013-02-12")
    page.get_by_text("released windows", exact=True).first.wait_for()
    look(page, "14 released")
    page.goto("/assets/daily_punctuality?view=lineage&lineageScope=upstream&lineageDepth=5")
    for place in ("flights_log", "staging"):  # The page truncates longer names.
        page.get_by_text(place, exact=True).first.wait_for()
    look(page, "15 lineage to a mart")
