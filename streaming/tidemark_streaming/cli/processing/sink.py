"""`tidemark sink`: publish results to the asset's topic."""

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.counts import format_count
from tidemark.base.errors import ConflictError, DefinitionError, TidemarkError
from tidemark_streaming.base import logs
from tidemark_streaming.cli.console import (
    format_seconds,
    print_facts,
    print_status,
    print_warning,
    report_step,
)
from tidemark_streaming.cli.context import Asset, Home
from tidemark_streaming.cli.interrupt import handle_termination
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from tidemark_streaming.sink import PublishResult


@with_json
def publish_results(
    asset: Asset,
    following: Annotated[
        bool,
        typer.Option("--follow", help="Continue with new results until Ctrl-C or SIGTERM."),
    ] = False,
    reset: Annotated[
        bool,
        typer.Option(
            "--reset", help="Retract everything in the topic and publish the table again."
        ),
    ] = False,
) -> Output:
    """Publish the changes of an asset's table to the Kafka topic of its sink, exactly once.

    A running streaming query does this itself. This command also publishes the results of runs,
    backfills, corrections and releases. If it is killed, it resumes where the topic ends.

    Example: `tidemark sink clicks_by_minute`
    """
    from tidemark_streaming.base import foreground
    from tidemark_streaming.sink import PublishResult, SinkWriter
    from tidemark_streaming.sink.follow import follow_asset
    from tidemark_streaming.sink.writer import topic_of

    if following and reset:
        raise DefinitionError("Use either --follow or --reset, not both.")
    home = Home()
    if following:
        logs.begin_logging(home.settings, "sink")
    transform = home.find_asset(asset)
    topic = topic_of(transform)
    store = home.open_warehouse()
    began = time.monotonic()
    published = PublishResult(0, 0, None)
    last_warning = ""
    with report_step(f"publish {asset}") as work:
        if following:
            handle_termination()

            def on_publish(more: "PublishResult") -> None:
                nonlocal published, last_warning
                published = published.and_then(more)
                last_warning = ""
                entry.mark_healthy()
                work.show_activity(f"follow {asset}: {format_count(published.records, 'record')}")
                sink_position = more.position
                logs.log_event(
                    "published",
                    asset=asset,
                    topic=topic.name,
                    records=more.records,
                    transactions=more.transactions,
                    version=None if sink_position is None else sink_position.version,
                    run=None if sink_position is None else sink_position.run,
                )

            def on_error(error: TidemarkError) -> None:
                nonlocal last_warning
                if not error.retriable and not isinstance(error, ConflictError):
                    raise error
                entry.mark_waiting(error)
                if str(error) != last_warning:
                    last_warning = str(error)
                    print_warning(last_warning)

            keeps = foreground.record_running(home.settings, foreground.SINK, asset)
            with suppress(KeyboardInterrupt), keeps as entry:
                follow_asset(store, transform, threading.Event(), on_publish, on_error)
        else:
            published = SinkWriter(store, transform).publish_changes(reset=reset)
        work.note = format_count(published.records, "record")
    took = time.monotonic() - began
    result: dict[str, object] = {
        "asset": asset,
        "topic": topic.name,
        "records": published.records,
        "transactions": published.transactions,
        "version": None,
        "run": None,
        "seconds": round(took, 1),
    }
    if published.position is not None:
        result["version"] = published.position.version
        result["run"] = published.position.run

    def show() -> None:
        if published.transactions:
            print_facts({**result, "seconds": format_seconds(took)})
        else:
            print_status(f"All published windows of '{asset}' are in topic '{topic.name}'.")

    return Output(result, show)
