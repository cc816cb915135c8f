"""`tidemark run`: an incremental run."""

from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.counts import format_count
from tidemark_streaming.cli.console import message_console, print_warning, report_step
from tidemark_streaming.cli.context import Asset, BytesPerRun, Home, RowsPerRun
from tidemark_streaming.cli.output import Output, with_json
from tidemark_streaming.cli.processing.run_report import print_run, to_json

if TYPE_CHECKING:
    from tidemark.define.definition import Definition


@with_json
def run_asset(
    asset: Asset,
    limit: Annotated[
        int | None,
        typer.Option(
            "--max-arrivals",
            min=1,
            help="Process at most this many arrivals; all if omitted.",
        ),
    ] = None,
    rows_per_run: RowsPerRun = None,
    bytes_per_run: BytesPerRun = None,
) -> Output:
    """Process the arrivals since the last run, publish their results, and exit.

    This is the incremental run that a schedule starts every few minutes. `tidemark stream` repeats
    it continuously.

    Example: `tidemark run orders_hourly`
    """
    from tidemark.run.admission import Admission
    from tidemark.run.runner import incremental
    from tidemark_streaming.ingest.future_watermark import find_future_watermark

    home = Home()
    transform = home.find_asset(asset)
    store = home.open_warehouse(validates=True)
    with report_step(f"run {asset}") as work:
        admission = Admission(limit, rows_per_run, bytes_per_run)
        facts = incremental(store, transform, limit=admission)
        work.note = "no new arrivals" if facts is None else format_count(facts.events, "event")
    if facts is None:
        message = explain_no_run(home, transform)
        return Output(None, lambda: message_console().print(message))
    if (ahead := find_future_watermark(home.open_snapshot(), transform.source)) is not None:
        print_warning(str(ahead))

    def show() -> None:
        print_run(facts)
        if facts.limited_by is not None:
            message_console().print(
                f"More arrivals are pending: this run was limited by {facts.limited_by}."
            )

    return Output(to_json(facts), show)


def explain_no_run(home: Home, definition: "Definition") -> str:
    """Return why a run had nothing to do, and which command adds arrivals."""
    from tidemark.define.derived.derived_source import DerivedSource

    asset = definition.name
    source = definition.source
    progress = home.open_snapshot().read_source(source)
    behind = list[str]()
    for name, count in progress.lag_arrivals.items():
        if count:
            behind.append(f"{format_count(count, 'arrival')} of '{name}'")
    if behind:
        ingested = "nothing"
        if progress.arrivals:
            ingested = f"all arrivals of '{source.name}'"
        return (
            f"'{asset}' has processed {ingested}, but '{source.name}' has not taken "
            f"{' and '.join(behind)} yet: "
            f"`tidemark ingest {source.name}` takes them."
        )
    if not progress.arrivals:
        first = source.name
        if isinstance(source, DerivedSource):
            for base in source.base_sources:
                if not home.open_snapshot().read_source(base).arrivals:
                    first = base.name
                    break
        return (
            f"'{asset}' has nothing to process: '{first}' has no arrivals yet. `tidemark ingest "
            f"{first}` adds them."
        )
    return f"'{asset}' is up to date: it has processed all arrivals."
