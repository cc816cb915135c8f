"""`tidemark run` and `tidemark backfill`: bounded runs."""

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.counts import format_count
from tidemark.base.instants import iso
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import (
    Json,
    err,
    facts_table,
    format_seconds,
    out,
    print_json,
    print_warning,
    step,
)
from tidemark_streaming.cli.context import (
    Asset,
    BytesPerRun,
    From,
    RowsPerRun,
    To,
    parse_range,
    resolve_windows,
    warehouse,
)

if TYPE_CHECKING:
    from tidemark.store.ledger import RunFacts

_INSTANTS = ("window_from", "window_to", "started_at", "ended_at", "watermark")


class LateEvents(StrEnum):
    """Whether a backfill counts events that were too late for their window."""

    EXCLUDE = "exclude"
    INCLUDE = "include"


def register(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("run")(run)
    app.command("backfill")(backfill)


def run(
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
    json: Json = False,
) -> None:
    """Process the arrivals since the last run, publish their results, and exit.

    This is the incremental run that a schedule starts every few minutes. `tidemark stream` repeats
    it continuously.

    Example: `tidemark run orders_hourly`
    """
    from tidemark.quality import gx
    from tidemark.run.admission import Admission
    from tidemark.run.runner import incremental
    from tidemark_streaming.home import domains
    from tidemark_streaming.ingest.future_watermark import find
    from tidemark_streaming.snapshot.snapshot import Snapshot

    settings = Settings()
    transform = domains.transform(settings, asset)
    store = warehouse(settings, while_starting=gx.import_library)
    with step(f"run {asset}") as work:
        admission = Admission(limit, rows_per_run, bytes_per_run)
        done = incremental(store, transform, limit=admission)
        work.note = "no new arrivals" if done is None else format_count(done.events, "event")
    if done is not None:
        show_run(done, json)
        if (ahead := find(Snapshot(settings), transform.source)) is not None:
            print_warning(str(ahead))
        if done.limited_by is not None and not json:
            err().print(f"More arrivals are pending: this run was limited by {done.limited_by}.")
    elif json:
        print_json(None)
    else:
        err().print(f"'{asset}' is up to date: it has processed all arrivals.")


def backfill(
    asset: Asset,
    begin: From = None,
    end: To = None,
    late_events: Annotated[
        LateEvents,
        typer.Option(
            help="**exclude** counts the same events as a streaming query; **include** also "
            "counts the events that arrived too late."
        ),
    ] = LateEvents.EXCLUDE,
    json: Json = False,
) -> None:
    """Recompute windows from the event log and replace them: all windows, or a range.

    You can run it while a streaming query works on the same windows: each event counts once.

    Example: `tidemark backfill orders_hourly --from 2026-01-01 --to 2026-02-01`
    """
    from tidemark.quality import gx
    from tidemark.run import runner as runs
    from tidemark_streaming.home import domains

    first, last = parse_range(begin, end)
    settings = Settings()
    transform = domains.transform(settings, asset)
    store = warehouse(settings, while_starting=gx.import_library)
    span = resolve_windows(store, transform.source, transform.window.max_extent, first, last)
    with step(f"backfill {asset}") as work:
        start, stop = span or (None, None)
        done = runs.backfill(
            store, transform, start, stop, late_events=late_events.replace("-", "_")
        )
        work.note = format_count(done.events, "event")
    show_run(done, json)


def show_run(done: "RunFacts", json: bool = False) -> None:
    """Print the facts of a run."""
    if json:
        print_json(as_plain(done))
        return
    rows: dict[str, object] = {
        "arrivals": f"{done.from_arrival + 1:,} to {done.through_arrival:,}",
        "events": f"{done.events:,}",
        "on time": f"{done.on_time:,}",
        "late, counted": f"{done.late:,}",
        "too late": f"{done.too_late:,}",
        "no event time": f"{done.no_event_time:,}",
        "duplicates": f"{done.duplicate:,}",
        "watermark": iso(done.watermark),
        "took": format_seconds(done.seconds),
    }
    if done.quarantined:
        rows["quarantined"] = f"{done.quarantined:,}: `tidemark quarantine list {done.asset}`"
    if done.warned:
        rows["published with a warning"] = f"{done.warned:,}"
    out().print(facts_table("", rows))


def as_plain(done: "RunFacts") -> dict[str, object]:
    """Return a run's facts for JSON, with instants as text."""
    facts = {k: iso(v) if k in _INSTANTS else v for k, v in asdict(done).items()}
    return {**facts, "events": done.events, "seconds": done.seconds}
