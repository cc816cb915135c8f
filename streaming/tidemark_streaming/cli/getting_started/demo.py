"""`tidemark demo`: the whole pipeline on real flights and weather.

The demo uses the normal tables, so that the web interface shows its results. It never resets
anything. The first demo loads 60 days and streams the next 5. Each later demo continues at the end
of the event log with 5 more days, until the end of the year. A demo also computes the other assets
that the marts read. It leaves the platform running, where Dagster updates the remaining assets.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from threading import Event
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tidemark.base.counts import format_count
from tidemark.base.errors import EngineError
from tidemark.base.instants import as_datetime, format_instant, parse_duration
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import (
    format_seconds,
    message_console,
    print_done,
    print_error,
    report_step,
    result_console,
)
from tidemark_streaming.cli.context import Home

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from tidemark.define.definition import Definition
    from tidemark.store.event_log.arrival import Arrival
    from tidemark.store.warehouse import Warehouse
    from tidemark_streaming.connector import Excerpt, Ingestion
    from tidemark_streaming.ingest.ingest import Ingested

    Play = Callable[[Excerpt], Iterator[Ingested]]


class _Length(NamedTuple):
    """The number of days to load in bulk, and the number of days to stream after them."""

    bulk: int
    streamed: int


SOURCE, ASSET, KEY, SPAN = "flights", "departures_hourly", "origin", "6 hours"
USUAL, SMALL = _Length(bulk=60, streamed=5), _Length(bulk=3, streamed=1)
_OTHER_SOURCES = ("weather",)
"""Sources that are ingested up to the time of the newest flights."""
_DOMAINS = ("flights", "weather")
"""The code locations whose other assets Dagster brings up to date when it runs."""
_OTHER_ASSETS = ("departures_by_carrier", "aircraft_days", "temperature_hourly")
"""The assets that the marts read in addition to `ASSET`."""


def run_demo(
    serve: Annotated[bool, typer.Option(help="Leave the web interface running.")] = True,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Stream the days through a Kafka topic, not files.")
    ] = False,
    small: Annotated[
        bool, typer.Option("--small", help="Load 3 days and stream 1, in about a minute.")
    ] = False,
) -> None:
    """See the whole pipeline on real flights, in about five minutes.

    The demo loads 60 days of flights in bulk and computes their hourly departures. It streams the
    next 5 days arrival by arrival, validates every window, and proves that batch and stream agree.
    It builds the marts, joined with the weather, charts the late events, and leaves the platform
    running, where Dagster computes the other assets. Each further demo continues with the next 5
    days. With --kafka, the streamed days come through a Kafka topic. Its brokers are those of the
    setting kafka_servers; without that setting, the demo starts a broker. The exit code is 1 if
    batch and stream differ, or if a window is quarantined because of a fault of Tidemark.

    Example: `tidemark demo`
    """
    from tidemark.base import extras
    from tidemark.define.rollup import base_transform
    from tidemark_streaming.cli.getting_started import closing
    from tidemark_streaming.cli.getting_started.services import start_platform
    from tidemark_streaming.cli.marts.dbt import build_marts
    from tidemark_streaming.home import orchestrator, services

    extras.require_extra("demo")
    began = time.monotonic()
    home = Home()
    length = SMALL if small else USUAL
    settings = home.settings
    ingestion = home.find_ingestion(SOURCE)
    transform = home.find_asset(ASSET)
    store = home.open_warehouse(validates=True)
    _load_bulk(store, ingestion, settings, length.bulk)
    _catch_up(store, transform)
    if kafka:
        play = _play_kafka(store, ingestion, settings)
    else:
        play = _play_files(store, ingestion, settings)
    streamed = _stream_days(store, transform, play, settings, length.streamed)
    check_parity(store, transform)
    for name in _OTHER_SOURCES:
        _ingest_until(store, home.find_ingestion(name), settings, streamed[-1].arrived_at)
    for name in _OTHER_ASSETS:
        other_asset = home.find_asset(name)
        _catch_up(store, other_asset)
        if span := _quarantined_span(store, other_asset):
            check_parity(store, other_asset, *span)
    build_marts()
    closing.show_results(store, base_transform(transform), streamed, settings)
    if serve:
        start_platform()
        with report_step("launch Dagster runs that update the other assets") as work:
            try:
                for domain in _DOMAINS:
                    services.launch_job(settings, domain, orchestrator.catch_up(domain))
                work.note = f"{format_count(len(_DOMAINS), 'run')} launched"
            except EngineError as error:
                # The demo's results do not depend on these runs.
                work.note = str(error)
        closing.print_next_steps(settings)
    result_console().print(f"[dim]The demo took {format_seconds(time.monotonic() - began)}.[/]")


def check_parity(
    store: "Warehouse",
    definition: "Definition",
    start: int | None = None,
    end: int | None = None,
) -> None:
    """Compare windows with a bounded computation, and record and print the report.

    Exit with code 1 if a window differs, or if one is quarantined because of a fault of Tidemark.
    """
    from tidemark.verify import record
    from tidemark.verify.integrity_checks import FAULT_TEXT, INTEGRITY_CHECKS, describe_remedy
    from tidemark.verify.parity import check_parity
    from tidemark_streaming.cli.inspection.parity import print_report

    windows = "all windows" if start is None else "quarantined windows"
    with report_step(f"parity: compare {windows} with a bounded computation") as work:
        report = check_parity(store, definition, start, end)
        work.note = format_count(report.windows, "row")
    record.record_comparison(store, report, start, end)
    print_report(report)
    faults = sorted(INTEGRITY_CHECKS & report.quarantined_by.keys())
    if faults:
        print_error(
            f"'{definition.name}' has quarantined windows that fail {' and '.join(faults)}. "
            f"This is {FAULT_TEXT}: {describe_remedy(definition)}"
        )
    if faults or not report.is_equal:
        raise typer.Exit(1)


def _quarantined_span(store: "Warehouse", definition: "Definition") -> tuple[int, int] | None:
    """Return a range of window starts with all quarantined windows; None if there are none."""
    from tidemark.store.rows import to_micros

    if not store.has_table(definition.quarantine_table):
        return None
    starts = to_micros(store.load_rows(definition.quarantine_table)["window_start"])
    if starts:
        return (min(starts), max(starts) + 1)
    return None


def _load_bulk(store: "Warehouse", ingestion: "Ingestion", settings: Settings, days: int) -> None:
    """Load the first days in bulk, unless the event log has them."""
    from tidemark.store.event_log.log import Log
    from tidemark_streaming.connector import Excerpt
    from tidemark_streaming.ingest.play import play_files

    log = Log(store, ingestion.source)
    log.ensure_tables()
    first = next(iter(log.read_timeline(last_arrival=0)), None)
    last = log.find_last_arrival()
    if first is not None and last is not None:
        loaded = (last.arrived_at - first.arrived_at) / parse_duration("1 day")
        if loaded >= days - 1:
            until = as_datetime(last.arrived_at)
            message_console().print(
                f"[green]✓[/] the event log of {SOURCE} is complete until {until:%B %-d, %Y}"
            )
            return
    with report_step(f"ingest {format_count(days, 'day')} of {SOURCE} in bulk") as work:
        landing = settings.landing_of(SOURCE)
        part = Excerpt(days=days, span=SPAN)
        commits = list(play_files(store, ingestion, landing, part, batch=None))
        arrivals = list(chain.from_iterable(commit.arrivals for commit in commits))
        flights = format_count(sum(arrival.rows for arrival in arrivals), "flight")
        work.note = f"{flights} in {format_count(len(arrivals), 'arrival')}"


def _ingest_until(
    store: "Warehouse", ingestion: "Ingestion", settings: Settings, until: int
) -> None:
    """Ingest another source up to the time that the flights have reached."""
    from tidemark_streaming.connector import Excerpt
    from tidemark_streaming.ingest.play import play_files

    name = ingestion.source.name
    with report_step(f"ingest the {name} up to the same time") as work:
        part = Excerpt(end=format_instant(until), span=SPAN)
        commits = list(play_files(store, ingestion, settings.landing_of(name), part, batch=None))
        arrivals = chain.from_iterable(commit.arrivals for commit in commits)
        work.note = format_count(sum(arrival.rows for arrival in arrivals), "reading")


def _catch_up(store: "Warehouse", definition: "Definition") -> None:
    """Process all pending arrivals of the source. If the asset is new, do so by a backfill."""
    from tidemark.run import runner as run

    if not store.has_table(definition.state_table):
        with report_step(f"backfill {definition.name}") as work:
            facts = run.backfill(store, definition)
            work.note = (
                f"{format_count(facts.events, 'event')}, {facts.late:,} late, "
                f"{facts.too_late:,} too late"
            )
            if definition.expectations:
                work.note += (
                    f"; {format_count(facts.warned, 'window')} with warnings, "
                    f"{facts.quarantined:,} quarantined"
                )
        return
    with report_step(f"run {definition.name}") as work:
        facts = run.incremental(store, definition)
        work.note = "no new arrivals" if facts is None else format_count(facts.events, "event")


def _play_files(store: "Warehouse", ingestion: "Ingestion", settings: Settings) -> "Play":
    """Return a function that writes an excerpt of the recording to files and ingests them."""
    from tidemark_streaming.ingest.play import play_files

    return lambda part: play_files(store, ingestion, settings.landing_of(SOURCE), part)


def _play_kafka(store: "Warehouse", ingestion: "Ingestion", settings: Settings) -> "Play":
    """Return a function that sends an excerpt of the recording to a topic and ingests it.

    If the settings name the broker of this home, start it first.
    """
    from tidemark_streaming.kafka import broker, play

    if settings.kafka_servers == broker.broker_address(settings):
        with report_step("Kafka broker") as work:
            broker.start_broker(settings, work.show_activity)
            work.note = settings.kafka_servers
    stage = play.Stage(settings.kafka_servers, topic=SOURCE, key=KEY)
    return lambda part: play.play_through_topic(store, ingestion, stage, part)


def _stream_days(
    store: "Warehouse", definition: "Definition", play: "Play", settings: Settings, days: int
) -> list["Arrival"]:
    """Ingest the next days arrival by arrival, while a streaming query publishes them."""
    from tidemark.store.event_log.log import Log
    from tidemark_streaming.cli.processing.live import View
    from tidemark_streaming.cli.processing.stream import follow_query, is_finished

    log = Log(store, definition.source)
    last = log.find_last_arrival()
    begin = 0 if last is None else last.arrived_at
    arrival_before = -1 if last is None else last.arrival
    total = int(days * parse_duration("1 day") / parse_duration(SPAN))
    began = time.monotonic()
    view = View(settings, definition, expected=total)
    with (
        _start_query(settings, definition) as query,
        _ingest_in_thread(play, begin, days) as feeding,
    ):
        period = "day" if days == 1 else f"{days} days"
        message_console().print(f"streaming the next {period}, one arrival at a time …")
        follow_query(view, lambda look: is_finished(query, look, True) and feeding.done())
        feeding.result()
    streamed = log.read_timeline(after_arrival=arrival_before)
    if not streamed:
        message_console().print(f"The recording of {SOURCE} has ended: nothing is left to stream.")
        return log.read_timeline()[-total:]
    until = as_datetime(streamed[-1].arrived_at)
    print_done(
        f"streamed {format_count(len(streamed), 'arrival')}, until {until:%B %-d, %Y}",
        time.monotonic() - began,
        format_count(sum(a.rows for a in streamed), "flight"),
    )
    return streamed


@contextmanager
def _start_query(settings: Settings, definition: "Definition") -> Iterator["StreamingQuery"]:
    from tidemark import engine
    from tidemark.store.warehouse import Warehouse
    from tidemark_streaming.streams import continuous

    spark = engine.connect_session(settings, continuous.session_id(settings, definition.name))
    store = Warehouse.of_project(settings, spark)
    # A killed demo or the user may have started the query already: use it.
    query = continuous.find_query(store, definition)
    ours = query is None
    if query is None:
        with report_step("start a streaming query"):
            query = continuous.start_query(store, definition, watched=True)
    try:
        yield query
    finally:
        if ours:
            continuous.stop_query(store, definition)


@contextmanager
def _ingest_in_thread(play: "Play", begin: int, days: int) -> Iterator[Future[None]]:
    from tidemark_streaming.connector import Excerpt

    stopped = Event()

    def ingest() -> None:
        start = format_instant(begin)
        end = format_instant(begin + days * parse_duration("1 day"))
        for _ in play(Excerpt(start=start, end=end, span=SPAN)):
            if stopped.is_set():
                return

    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(ingest)
        finally:
            stopped.set()
