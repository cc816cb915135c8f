"""Test the live page with the real service, real runs and a headless browser.

Screenshots go to `.screenshots` in the root, which git ignores: look at them.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect, sync_playwright
from pyspark.sql import SparkSession

from helpers.data.landing import SOURCE, clock, connector, land, land_some
from helpers.data.runs import run_all
from helpers.kafka.topics import Topics
from helpers.processes.commands import surround
from helpers.processes.ending import end_with_an_error
from tidemark.base.instants import format_instant
from tidemark.base.settings import Settings
from tidemark.engine.ports import free_port
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.event_log.log import Log
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.base import foreground
from tidemark_streaming.base.foreground import INGEST, SINK
from tidemark_streaming.home import services
from tidemark_streaming.ingest.ingest import ingest
from tidemark_streaming.streams import desired_streams, supervisor
from tidemark_streaming.streams.supervisor import GIVEN_UP, RUNNING, TRIES, Stream
from walled.transforms import clicks_by_10s
from watched.transforms import by_minute

CHROMIUM = shutil.which("chromium")
SCREENSHOTS = Path(__file__).parents[2] / ".screenshots"
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
SIZES = ((1920, 1080), (1600, 900), (1280, 800))

# Starts services, streams and a browser.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium here: the live page was not tried in a browser"
    ),
]


@pytest.fixture(scope="module")
def settings(engine: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return settings with a new database and the domains `watched` and `walled`."""
    own = {
        # A separate home, because its service is not that of the engine's home.
        "home": tmp_path_factory.mktemp("home"),
        "database": f"page_{uuid4().hex[:12]}",
        "landing": str(tmp_path_factory.mktemp("landing")),
        "domains": ("watched", "walled"),
        "watch_port": free_port(),
    }
    return engine.model_copy(update=own)


@pytest.fixture(scope="module")
def page(settings: Settings, topics: Topics) -> Iterator[Page]:
    """Yield a browser page on the service."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        surround(patch, settings)
        patch.setenv("TIDEMARK_WAREHOUSE", settings.warehouse)
        patch.setenv("TIDEMARK_WATCH_PORT", str(settings.watch_port))
        patch.setenv("TIDEMARK_DOMAINS", "watched,walled")
        # The service only tests whether the port is open.
        patch.setenv("TIDEMARK_REMOTE", f"sc://127.0.0.1:{settings.engine_port}")
        patch.setenv("TIDEMARK_KAFKA_SERVERS", topics.servers)
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        topics.create(3, "clicks")
        stack.callback(services.find_service(settings, "watch").stop)
        services.start_watch(settings)
        url = services.await_ready(settings, "watch")
        browser = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=CHROMIUM, args=FLAGS
        )
        stack.callback(browser.close)
        page = browser.new_page(base_url=url, viewport={"width": 1920, "height": 1080})
        page.set_default_timeout(60_000)
        expect.set_options(timeout=60_000)
        yield page


@pytest.fixture
def warehouse(settings: Settings, spark: SparkSession) -> Warehouse:
    return Warehouse(spark, settings.warehouse, settings.database)


@pytest.fixture
def complaints(page: Page) -> Iterator[list[str]]:
    """Yield the errors and warnings of the page's script and assert that there are none."""
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
    yield said
    assert said == []


def look(page: Page, name: str) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def bring(warehouse: Warehouse, settings: Settings) -> None:
    list(ingest(warehouse, connector(Path(settings.landing) / SOURCE.name)))
    run_all(warehouse, by_minute)


def test_a_home_without_data_shows_the_next_command(page: Page, complaints: list[str]) -> None:
    page.goto("/")
    expect(page.locator("#streams")).to_contain_text("Nothing has arrived yet.")
    expect(page.locator("#streams")).to_contain_text("tidemark demo")
    expect(page.locator("#summary")).to_have_text("✓ All is well")
    look(page, "20 live page without data")


def test_figures_update_when_arrivals_come(
    page: Page, complaints: list[str], warehouse: Warehouse, settings: Settings
) -> None:
    folder = Path(settings.landing) / SOURCE.name
    page.goto("/")
    land_some(folder, 6)
    land(folder, "crowd.csv", "at,sensor,value\n" + f"{clock(400)},a,1\n" * 5, 400)
    bring(warehouse, settings)
    stream = page.locator("[data-asset=by_minute]")
    expect(stream).to_contain_text("tumbling 1 minute")
    events = page.locator("#totals .total", has_text="events stored").locator("b")
    expect(events).to_have_text(str(sum(a.rows for a in _timeline(warehouse))))
    mark, lag = stream.locator(".at"), stream.locator(".lag b")
    before = (mark.inner_text(), lag.inner_text())
    bars = stream.locator(".windows rect")
    bars.nth(3).wait_for(state="attached")
    drawn = bars.count()
    assert drawn > 3
    runs = stream.get_by_label(re.compile("^run time")).locator("rect")
    # Each bar shows the steps of a run.
    runs.nth(4).wait_for(state="attached")
    assert runs.locator("xpath=self::*[@class='step-compute']").count() >= 1
    # The next file closes the crowded minute, which fails its expectation.
    land(folder, "later.csv", f"at,sensor,value\n{clock(1500)},b,2\n", 1500)
    bring(warehouse, settings)
    expect(mark).not_to_have_text(before[0])
    expect(events).to_have_text(str(sum(a.rows for a in _timeline(warehouse))))
    expect(stream.locator(".windows .head")).to_contain_text("1 ✕ quarantined")
    expect(page.locator("#quarantined")).to_contain_text("between(n, max_value=3): 5")
    expect(page.locator("#summary")).to_have_text(
        "▲ 1 window of by_minute is in quarantine and not published; failed expectations: "
        "between(n, max_value=3) (1). · 2 rows are not in the event log of sensors."
    )
    link = stream.get_by_role("link", name="by_minute")
    assert (
        link.get_attribute("href") == f"http://127.0.0.1:{settings.webserver_port}/assets/by_minute"
    )
    look(page, "21 live page")


def happening(count: int) -> list[bytes]:
    """Return clicks of the last seconds."""
    now = time.time()
    ats = [format_instant(int((now - 0.2 * n) * 1e6)) for n in range(count)]
    return [json.dumps({"at": at, "n": n}).encode() for n, at in enumerate(ats)]


def test_kafka_lag_latency_and_sink_are_shown(
    page: Page, complaints: list[str], warehouse: Warehouse, settings: Settings, topics: Topics
) -> None:
    taking = topics.connector("clicks")
    for turn in range(5):
        for partition in range(3):
            topics.send("clicks", happening(20 + 15 * turn * (partition == 0)), partition)
        list(ingest(warehouse, taking))
        run_all(warehouse, clicks_by_10s)
        time.sleep(2)
    page.goto("/?span=300")
    stream, source = (
        page.locator("[data-asset=clicks_by_10s]"),
        page.locator("[data-source=clicks]"),
    )
    latency = stream.get_by_label(re.compile(r"^latency: [\d.]+ m?s last")).locator("rect")
    latency.nth(1).wait_for(state="attached")
    topics.send("clicks", happening(900), 0)
    topics.send("clicks", happening(300), 2)
    waits = source.locator(".waits")
    expect(waits.locator("b")).to_have_text("1,200")
    expect(waits.locator("small")).to_have_text("clicks-0: 900 · clicks-2: 300 · 1 more")
    assert waits.get_by_label(re.compile("^records waiting for clicks")).locator("rect").count()
    expect(page.locator("#totals")).to_contain_text("Kafka lag")
    topic = page.locator("[data-topic=clicks_counted]")
    expect(topic).to_contain_text(re.compile(r"\d+ versions behind"))
    expect(page.locator("[data-pipeline=clicks_on]")).to_contain_text("not running")


def test_states_of_streams_ingests_and_lanes_are_shown(
    page: Page, complaints: list[str], settings: Settings
) -> None:
    now = time.time_ns() // 1000
    runs, lost = (
        desired_streams.request_stream(settings, asset) for asset in ("by_minute", "by_hour")
    )
    why = "There is no topic 'x'."
    supervisor.write_statuses(
        settings,
        "watched",
        {
            "by_minute": Stream(runs.since, RUNNING, now, restarts=2),
            "by_hour": Stream(lost.since, GIVEN_UP, now, failures=TRIES, error=why),
        },
        now,
    )
    state = "[data-asset={}] .state"
    page.goto("/?span=300")
    expect(page.locator(state.format("by_minute"))).to_have_text("● streaming · ↻ 2")
    given_up = page.locator(state.format("by_hour"))
    expect(given_up).to_have_text("✕ given up")
    assert given_up.get_attribute("title") == why
    follows = foreground.record_running(settings, INGEST, "clicks", ("clicks_by_10s",))
    brought = page.locator("[data-source=clicks] .state")
    with follows:
        expect(page.locator(state.format("clicks_by_10s"))).to_have_text("● run by its ingest")
        expect(brought).to_have_text("● following, runs 1")
    end_with_an_error(settings, INGEST, "clicks", ("clicks_by_10s",))
    expect(brought).to_have_text("✕ ended with an error")
    expect(page.locator(state.format("clicks_by_10s"))).to_have_text("✕ ended with an error")
    end_with_an_error(settings, "lane", "clicks_on")
    expect(page.locator("[data-pipeline=clicks_on] .state")).to_have_text("✕ ended with an error")
    out = page.locator("[data-topic=clicks_counted] .state")
    with foreground.record_running(settings, SINK, "clicks_by_10s"):
        expect(out).to_have_attribute("title", "Published by `tidemark sink --follow`.")
    end_with_an_error(settings, SINK, "clicks_by_10s")
    expect(out).to_have_text("✕ ended with an error")
    expect(page.locator("#summary")).to_contain_text("The stream of by_hour was given up.")
    expect(page.locator("#totals")).to_contain_text("1 of 3")


def _timeline(warehouse: Warehouse) -> list[Arrival]:
    return Log(warehouse, SOURCE).read_timeline()


def test_the_layout_fits_every_screen_size_and_color_scheme(
    page: Page, complaints: list[str]
) -> None:
    for width, height in SIZES:
        for scheme in ("light", "dark"):
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=scheme)
            page.goto("/?span=300")
            page.locator("[data-asset=by_minute] .windows rect").first.wait_for()
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, "it scrolls sideways"
            assert page.locator("[data-source=clicks] .waits").is_visible()
            assert page.evaluate(OVERLAPS) == [], width
            assert page.evaluate(APART) == [], width
            assert width < 1600 or page.evaluate(CUT) == [], width
            poor = page.evaluate(CONTRASTS)
            assert poor == [], (scheme, poor)
            look(page, f"22 live page {width} {scheme}")
    assert page.locator("#spans input:checked").get_attribute("value") == "300"
    unnamed = page.evaluate(
        "[...document.querySelectorAll('#streams svg')].filter(s => !s.ariaLabel)"
    )
    assert unnamed == []


def test_a_stopped_service_is_shown(page: Page, settings: Settings) -> None:
    page.goto("/")
    page.locator("[data-asset=by_minute]").wait_for()
    services.find_service(settings, "watch").stop()
    expect(page.locator("#summary")).to_contain_text("✕ the service has not answered since")


OVERLAPS = """() => [...document.querySelectorAll(".foot")].flatMap((foot) => {
  const texts = [...foot.children].filter((e) => e.checkVisibility())
    .map((e) => [e.getBoundingClientRect(), e.textContent]);
  texts.sort((a, b) => a[0].left - b[0].left);
  return texts.slice(1).filter((t, i) => t[0].left < texts[i][0].right).map((t) => t[1]);
})"""
"""A script that returns labels below a chart that overlap the previous one."""

APART = """() => [...document.querySelectorAll(".stream, #findings, #below")]
  .filter((e) => !e.hidden)
  .map((e) => e.getBoundingClientRect())
  .flatMap((box, i, all) => (i && box.top - all[i - 1].bottom > 50 ? [box.top] : []))"""
"""A script that returns rows with a large gap above."""

CUT = """() => [...document.querySelectorAll(".name > *, .chart .head > *")]
  .filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent)"""
"""A script that returns truncated names and chart labels."""

CONTRASTS = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => c.slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((all, v, i) => all + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c[3] !== 0) return c;
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  for (const e of document.body.querySelectorAll("*")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.closest("svg, script, noscript")) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.add(`${e.textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return [...poor];
}"""
"""A script that returns texts with a contrast below 4.5, the minimum of WCAG level AA."""
