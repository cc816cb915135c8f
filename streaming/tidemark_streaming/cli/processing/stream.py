"""`tidemark stream`: run a streaming query with a live view."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live

from tidemark.base.errors import EngineError, TidemarkError
from tidemark.base.settings import Settings
from tidemark_streaming.base import logs
from tidemark_streaming.cli.console import (
    message_console,
    print_status,
    print_warning,
    report_step,
    result_console,
)
from tidemark_streaming.cli.context import ArrivalsPerRun, Asset, BytesPerRun, Home, RowsPerRun
from tidemark_streaming.cli.interrupt import handle_termination

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from tidemark.store.warehouse import Warehouse
    from tidemark_streaming.cli.processing.live import Look, View

LOOK_EVERY = 1.0
"""Seconds between two polls of the tables."""


def stream_asset(
    asset: Asset,
    arrivals_per_run: ArrivalsPerRun = None,
    rows_per_run: RowsPerRun = None,
    bytes_per_run: BytesPerRun = None,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Stop when all arrivals are processed.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Leave it running in the engine and return.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the streaming query.")] = False,
) -> None:
    """Keep an asset up to date with a Structured Streaming query.

    The query processes arrivals as they come. The command shows them and the published windows
    until Ctrl-C or SIGTERM, which stop the query cleanly. The published result does not depend on
    how a query is cut into runs, stopped or restarted. If the engine or a worker is killed, the
    query restarts. A query that a killed `tidemark stream` left behind is replaced.

    Example: `tidemark stream orders_hourly`, and in another terminal
    `tidemark ingest orders --follow`
    """
    from tidemark.run.admission import Admission
    from tidemark_streaming.base import foreground
    from tidemark_streaming.base.outage import Outage
    from tidemark_streaming.cli.processing.live import View
    from tidemark_streaming.streams import continuous, desired_streams
    from tidemark_streaming.streams.query_owner import is_own

    home = Home()
    admission = Admission(arrivals_per_run, rows_per_run, bytes_per_run)
    settings = home.settings
    if not stop:
        logs.begin_logging(settings, "stream")
    transform = home.find_asset(asset)
    if stop:
        store = connect_to_stream(home, asset)
        wished = desired_streams.cancel_request(settings, asset)
        expected = foreground.forget_command(settings, foreground.STREAM, asset)
        with report_step(f"stop the stream of {asset}"):
            stopped = continuous.stop_query(store, transform)
        if not (stopped or wished or expected):
            raise EngineError(f"No stream of '{asset}' is running.")
        return

    def start(store: "Warehouse") -> "StreamingQuery":
        with report_step(f"start the stream of {asset}"):
            return continuous.start_query(store, transform, admission=admission, watched=not detach)

    def warn_without_ingest() -> None:
        if until_caught_up:
            warning = None
        else:
            warning = explain_missing_ingest(settings, transform.source.name)
        if warning is not None:
            print_warning(warning)

    if detach:
        start(connect_to_stream(home, asset))
        warn_without_ingest()
        desired_streams.request_stream(settings, asset, admission)
        foreground.forget_command(settings, foreground.STREAM, asset)
        result_console().print(f"The stream is running; `tidemark stream {asset} --stop` stops it.")
        return
    handle_termination()
    view = View(settings, transform)
    outage = Outage(print_warning)
    if logs.is_structured():
        # Skip earlier runs, so that only new runs are logged.
        view.take_new_runs()

    def reconnect() -> "tuple[Warehouse, StreamingQuery]":
        store = connect_to_stream(home, asset)
        # If the engine was only unreachable, the query still runs on it.
        running = continuous.find_query(store, transform)
        return store, start(store) if running is None or not is_own(store.spark) else running

    def done(look: "Look") -> bool:
        ended = is_finished(query, look, until_caught_up)
        outage.end_outage()
        return ended

    def connect_first() -> "Warehouse":
        store = connect_to_stream(home, asset)
        continuous.stop_orphan(store, transform)
        return store

    # This may raise an error, so it comes before the command is registered as one that should run.
    store = outage.survive_loss(connect_first)
    with foreground.record_running(settings, foreground.STREAM, asset) as entry:
        try:
            query = start(store)
        except TidemarkError as error:
            store, query = outage.retry_attempt(error, reconnect)
        warn_without_ingest()
        try:
            while True:
                try:
                    follow_query(view, done)
                    return
                except TidemarkError as error:
                    entry.mark_waiting(error)
                    run_id_before = query.runId
                    store, query = outage.retry_attempt(error, reconnect)
                    entry.mark_healthy(is_restart=query.runId != run_id_before)
        finally:
            # A stopped engine has no stream to stop.
            with suppress(TidemarkError):
                continuous.stop_query(store, transform)
            print_status(f"The stream of '{asset}' has stopped.")


def explain_missing_ingest(settings: Settings, source: str) -> str | None:
    """Return a message if the stream's source has ended or no process ingests it, otherwise None.

    Dagster's sensor starts short ingests, so a sensor that polls counts as an ingest, and so does a
    running daemon, whose sensors may not have polled yet.
    """
    from tidemark.engine import ManagedProcess
    from tidemark_streaming.ingest.ingest_record import is_ingesting, is_polled
    from tidemark_streaming.snapshot.snapshot import Snapshot

    timeline = Snapshot(settings).read_timeline(source)
    if timeline and timeline[-1].ends_source:
        return (
            f"The source '{source}' has ended with arrival {timeline[-1].arrival}: no more events "
            "will arrive."
        )
    if is_ingesting(settings, source) or is_polled(settings, source):
        return None
    if ManagedProcess(settings.home, "daemon").find_running():
        return None
    return (
        f"Nothing ingests '{source}' at present. Use `tidemark ingest {source} "
        f"--follow`, or Dagster's sensor `{source}_landing`."
    )


def connect_to_stream(home: Home, asset: str) -> "Warehouse":
    """Return a warehouse in the Spark session of an asset's streaming query.

    All processes that connect to this asset share the session.
    """
    from tidemark_streaming.streams import continuous

    return home.open_warehouse(continuous.session_id(home.settings, asset))


def is_finished(query: "StreamingQuery", look: "Look", until_caught_up: bool) -> bool:
    """Return whether to stop following: `until_caught_up` is set, and no arrival is pending.

    Raises:
        EngineError: the query has ended. The error is retriable if its Python worker was killed.
    """
    from tidemark_streaming.streams import continuous

    if not query.isActive:
        failure = query.exception()
        if failure is None:
            reason = "another process stopped it."
        else:
            reason = continuous.failure_reason(failure)
        retriable = failure is not None and continuous.has_crashed(failure)
        raise EngineError(f"The stream ended: {reason}", retriable=retriable)
    return until_caught_up and not look.asset.behind


def follow_query(view: "View", is_finished: Callable[["Look"], bool]) -> None:
    """Show a stream until `is_finished` is true.

    Show a live view on a terminal, or else a line per change. Structured logs get a record per run
    instead.
    """
    console = message_console()
    if logs.is_structured():
        _log_runs(view, is_finished)
        return
    if console.is_terminal:
        look = view.read_state()
        with Live(view.render_panel(look), console=console, auto_refresh=False) as live:
            while not is_finished(look):
                time.sleep(LOOK_EVERY)
                look = view.read_state()
                live.update(view.render_panel(look), refresh=True)
        return
    last_line = ""
    while True:
        look = view.read_state()
        line = view.render_line(look)
        if line != last_line:
            console.print(line, soft_wrap=True)
            last_line = line
        if is_finished(look):
            return
        time.sleep(LOOK_EVERY)


def _log_runs(view: "View", is_finished: Callable[["Look"], bool]) -> None:
    while True:
        ended = is_finished(view.read_state())
        for run in view.take_new_runs():
            logs.log_event("ran", **logs.of_run(run))
        if ended:
            return
        time.sleep(LOOK_EVERY)
