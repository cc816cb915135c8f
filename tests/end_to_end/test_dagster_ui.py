"""The web interface as its users meet it: real webserver and daemon, a headless browser.

Screenshots of every page go to `.screenshots` in the root, which git ignores: look at them.
"""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from helpers.processes.commands import surround
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark_assets.flights.feed import recording
from tidemark_assets.weather.feed import recording as weather
from tidemark_streaming.feed import Excerpt
from tidemark_streaming.home import services

CHROMIUM = shutil.which("chromium")
ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / ".screenshots"
# Without the last ones, a closed network refuses many of Chromium's own connections.
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
RELEASE = "ops: {release: {config: {asset: temperature_hourly, keys: {origin: EWR}}}}"
STREAM = "ops: {{flights_stream_{job}: {{config: {{assets: [departures_hourly]}}}}}}"
SLOW = 300.0
"""Seconds that a run may take on a busy machine with two cores."""

# Dagster's web server and daemon, and a browser.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium here: the web interface was not tried in a browser"
    ),
]


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where files land."""
    return tmp_path_factory.mktemp("landing")


@pytest.fixture(scope="module")
def page(engine: Settings, landing: Path) -> Iterator[Page]:
    """A browser's page on a platform whose landing folder holds a month of flights, and a day."""
    list(recording.play(landing / "flights", Excerpt(days=32)))
    database = f"end_to_end_{uuid4().hex[:12]}"
    own = {"webserver_port": free_port(), "landing": landing, "database": database}
    settings = engine.model_copy(update=own)
    with ExitStack() as stack:
        surround(stack.enter_context(pytest.MonkeyPatch.context()), settings)
        stack.callback(services.service(settings, "webserver").stop)
        stack.callback(services.service(settings, "daemon").stop)
        services.start(settings, ROOT / "workspace.yaml")
        url = services.await_webserver(settings)
        services.await_daemon(settings)
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
    """The code locations that did not load, each with what Dagster says of it."""
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
    # Most of a page comes after its load event.
    page.wait_for_timeout(2000)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def materialize(page: Page, asset: str, partitions: str | None = None) -> None:
    """Click through the dialogs of the asset's page."""
    page.goto(f"/assets/{asset}")
    page.get_by_role("button", name=re.compile("Materialize")).first.click()
    if partitions is not None:
        box = page.get_by_placeholder(re.compile("^ex:"))
        box.fill(partitions)
        box.press("Tab")
        look(page, f"04 partitions of {asset} chosen")
        page.get_by_role("button", name=re.compile("^Launch")).click()


def runs(page: Page) -> dict[str, str]:
    """The statuses of all runs, newest first, by their ids."""
    query = "{runsOrError {... on Runs {results {runId status}}}}"
    answer = page.request.post("/graphql", data={"query": query}).json()
    return {run["runId"]: run["status"] for run in answer["data"]["runsOrError"]["results"]}


@contextmanager
def launched(page: Page, status: str = "SUCCESS") -> Iterator[None]:
    """Wait for the run that the block launches, and see how it ends."""
    before = runs(page)
    yield
    deadline = time.monotonic() + SLOW
    found: list[str] = []
    while time.monotonic() < deadline and not runs(page).keys() - before.keys():
        time.sleep(0.5)
    # A page of Dagster that is left open takes as much of a processor as the run itself.
    page.goto("about:blank")
    while time.monotonic() < deadline and not set(found) & {"SUCCESS", "FAILURE", "CANCELED"}:
        time.sleep(1)
        found = [state for run, state in runs(page).items() if run not in before]
    assert found == [status]


def switch_on(page: Page, sensor: str) -> None:
    """Turn a sensor on, on its page."""
    page.goto(f"/locations/flights/sensors/{sensor}")
    page.locator("label[class*=formatSwitch]").first.click()


def launch(page: Page, location: str, job: str, config: str) -> None:
    """Launch a job from its launchpad, with some configuration."""
    page.goto(f"/locations/{location}/jobs/{job}/playground")
    editor = page.locator(".CodeMirror").first
    editor.wait_for()
    editor.evaluate("(e, text) => e.CodeMirror.setValue(text)", config)
    page.get_by_role("button", name=re.compile("Launch Run")).click()


def backfill(page: Page, asset: str, *partitions: str) -> None:
    """Launch a backfill of one asset by the API, as other programs do."""
    query = """mutation($asked: LaunchBackfillParams!) {launchPartitionBackfill(
        backfillParams: $asked) {__typename ... on PythonError {message}}}"""
    asked = {"assetSelection": [{"path": [asset]}], "partitionNames": partitions}
    sent = {"query": query, "variables": {"asked": asked}}
    answer = page.request.post("/graphql", data=sent).json()
    found = answer["data"]["launchPartitionBackfill"]
    assert found == {"__typename": "LaunchBackfillSuccess"}, found


def wait_for_partitions(page: Page, asset: str, count: int) -> None:
    """Wait until Dagster knows so many partitions of an asset as materialized."""
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


def test_from_landed_files_to_backfilled_windows_by_clicks_alone(page: Page) -> None:
    with launched(page):
        switch_on(page, "flights_landing")
    look(page, "01 sensor of what lands")
    page.goto("/assets/flights_log")
    page.get_by_text("Row count").wait_for()
    look(page, "02 log")
    page.goto("/assets/flights_log?view=events")
    page.get_by_text("[Show Markdown]").first.click()
    page.get_by_role("img", name="arrivals, drawn").wait_for()
    look(page, "03 arrivals, drawn")

    with launched(page):
        materialize(page, "departures_hourly", "[2013-01-01...2013-01-31]")
    page.goto("/assets/departures_hourly?view=partitions&partition=2013-01-31")
    page.get_by_text("Materialized (31)").wait_for()
    page.get_by_text("late events in windows", exact=True).first.wait_for()
    look(page, "05 month")

    with launched(page):
        backfill(page, "departures_hourly", "2013-01-02", "2013-01-03")

    with launched(page, "FAILURE"):
        materialize(page, "departures_hourly", "2013-06-01")
    page.goto(f"/runs/{next(iter(runs(page)))}")
    page.get_by_text("No event of 'flights' from 2013-06-01").first.wait_for()
    look(page, "06 run without events")


def test_a_stream_is_started_gets_on_and_its_days_appear(page: Page, landing: Path) -> None:
    with launched(page):
        launch(page, "flights", "flights_start_streams", STREAM.format(job="starts"))
    # The sensor of what lands is on, and ingests them; the stream takes them in by itself.
    with launched(page):
        list(recording.play(landing / "flights", Excerpt(days=36)))
    wait_for_partitions(page, "departures_hourly", 35)
    page.goto("/assets/departures_hourly?view=partitions&partition=2013-02-03")
    page.get_by_text("Materialized (35)").wait_for()
    look(page, "07 days of a stream")
    page.goto("/locations/flights/sensors/flights_supervisor")
    tick = page.get_by_role("row").filter(has_text="View logs").first
    tick.get_by_text("0 runs requested").last.click()
    page.get_by_text(re.compile("departures_hourly has been running since")).first.wait_for()
    look(page, "08 supervisor")
    page.goto("/assets/departures_hourly?view=checks")
    page.get_by_text("fresh_by_event_time").first.wait_for()
    look(page, "09 checks")
    page.goto("/automation")
    look(page, "10 automation")
    with launched(page):
        launch(page, "flights", "flights_stop_streams", STREAM.format(job="stops"))
    page.set_viewport_size({"width": 1600, "height": 900})
    page.goto("/locations/flights/asset-groups/flights")
    # So few that Dagster draws them with their names.
    for name in ("flights_feed", "flights_log", "congestion_rolling", "day_totals"):
        expect(page.get_by_text(name, exact=True).first).to_be_in_viewport()
    look(page, "11 lineage")


def test_a_wind_that_can_t_be_is_withheld_until_a_person_lets_it_through(
    page: Page, landing: Path
) -> None:
    list(weather.play(landing / "weather", Excerpt(start="2013-02-12", days=1)))
    with launched(page):
        materialize(page, "weather_log")
    with launched(page):
        materialize(page, "temperature_hourly", "2013-02-12")
    page.goto("/assets/temperature_hourly?view=checks&checkDetail=between_wind_0_200")
    page.get_by_text("1 failed, the first at 2013-02-12T08:00:00Z: 1048").first.wait_for()
    look(page, "12 failing check")
    page.goto("/assets/temperature_hourly?view=partitions&partition=2013-02-12")
    page.get_by_text("rows in temperature_hourly_quarantine", exact=True).first.wait_for()
    look(page, "13 quarantine")
    with launched(page):
        launch(page, "weather", "release_quarantined", RELEASE)
    page.goto("/assets/temperature_hourly?view=partitions&partition=2013-02-12")
    page.get_by_text("released windows", exact=True).first.wait_for()
    look(page, "14 released")
    page.goto("/assets/daily_punctuality?view=lineage&lineageScope=upstream&lineageDepth=5")
    for place in ("flights_log", "staging"):  # Long names are shortened there.
        page.get_by_text(place, exact=True).first.wait_for()
    look(page, "15 lineage to a mart")
