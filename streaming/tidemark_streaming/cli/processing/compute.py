"""`tidemark run`, `tidemark backfill` and `tidemark correct`: bounded runs."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tidemark.base.counts import format_count
from tidemark.base.instants import format_instant
from tidemark_streaming.cli.console import (
    err,
    format_keys,
    format_seconds,
    print_facts,
    print_table,
    print_warning,
    step,
)
from tidemark_streaming.cli.context import (
    Asset,
    BytesPerRun,
    From,
    Home,
    RowsPerRun,
    To,
    parse_range,
    resolve_windows,
)
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from tidemark.define.definition import Definition
    from tidemark.run.correction import Correction
    from tidemark.store.ledger import RunFacts

_INSTANTS = ("window_from", "window_to", "started_at", "ended_at", "watermark")


@with_json
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
) -> Output:
    """Process the arrivals since the last run, publish their results, and exit.

    This is the incremental run that a schedule starts every few minutes. `tidemark stream` repeats
    it continuously.

    Example: `tidemark run orders_hourly`
    """
    from tidemark.run.admission import Admission
    from tidemark.run.runner import incremental
    from tidemark_streaming.ingest.future_watermark import find

    home = Home()
    transform = home.asset(asset)
    store = home.warehouse(validates=True)
    with step(f"run {asset}") as work:
        admission = Admission(limit, rows_per_run, bytes_per_run)
        facts = incremental(store, transform, limit=admission)
        work.note = "no new arrivals" if facts is None else format_count(facts.events, "event")
    if facts is None:
        message = explain_no_run(home, transform)
        return Output(None, lambda: err().print(message))
    if (ahead := find(home.snapshot(), transform.source)) is not None:
        print_warning(str(ahead))

    def show() -> None:
        _print_run(facts)
        if facts.limited_by is not None:
            err().print(f"More arrivals are pending: this run was limited by {facts.limited_by}.")

    return Output(as_plain(facts), show)


def explain_no_run(home: Home, transform: "Definition") -> str:
    """Return why a run had nothing to do, and which command adds arrivals."""
    from tidemark.define.derived.derived_source import DerivedSource

    asset = transform.name
    source = transform.source
    progress = home.snapshot().source(source)
    behind = {name: count for name, count in progress.lag_arrivals.items() if count}
    if behind:
        missing = " and ".join(
            f"{format_count(count, 'arrival')} of '{name}'" for name, count in behind.items()
        )
        ingested = f"all arrivals of '{source.name}'" if progress.arrivals else "nothing"
        return (
            f"'{asset}' has processed {ingested}, but '{source.name}' has not taken {missing} yet: "
            f"`tidemark ingest {source.name}` takes them."
        )
    if not progress.arrivals:
        bases = source.base_sources if isinstance(source, DerivedSource) else ()
        first = next((b.name for b in bases if not home.snapshot().source(b).arrivals), source.name)
        return (
            f"'{asset}' has nothing to process: '{first}' has no arrivals yet. `tidemark ingest "
            f"{first}` adds them."
        )
    return f"'{asset}' is up to date: it has processed all arrivals."


@with_json
def backfill(
    asset: Asset,
    begin: From = None,
    end: To = None,
    late_events: Annotated[
        Literal["exclude", "include"],
        typer.Option(
            help="**exclude** counts the same events as a streaming query; **include** also "
            "counts the events that arrived too late."
        ),
    ] = "exclude",
) -> Output:
    """Recompute windows from the event log and replace them: all windows, or a range.

    You can run it while a streaming query works on the same windows: each event counts once.

    Example: `tidemark backfill orders_hourly --from 2026-01-01 --to 2026-02-01`
    """
    from tidemark.run import runner as runs

    first, last = parse_range(begin, end)
    home = Home()
    transform = home.asset(asset)
    store = home.warehouse(validates=True)
    start, stop = resolve_windows(store, transform, first, last)
    with step(f"backfill {asset}") as work:
        facts = runs.backfill(store, transform, start, stop, late_events=late_events)
        work.note = format_count(facts.events, "event")
    return run_output(facts)


def run_output(facts: "RunFacts") -> Output:
    """Return the facts of a run as the result of a command."""
    return Output(as_plain(facts), lambda: _print_run(facts))


def _print_run(facts: "RunFacts") -> None:
    rows: dict[str, object] = {
        "arrivals": f"{facts.from_arrival + 1:,} to {facts.through_arrival:,}",
        "events": f"{facts.events:,}",
        "on time": f"{facts.on_time:,}",
        "late, counted": f"{facts.late:,}",
        "too late": f"{facts.too_late:,}",
        "no event time": f"{facts.no_event_time:,}",
        "duplicates": f"{facts.duplicate:,}",
        "watermark": format_instant(facts.watermark),
        "took": format_seconds(facts.seconds),
    }
    if facts.quarantined:
        rows["quarantined"] = f"{facts.quarantined:,}: `tidemark quarantine list {facts.asset}`"
    if facts.warned:
        rows["published with a warning"] = f"{facts.warned:,}"
    print_facts(rows)


def as_plain(run_facts: "RunFacts") -> dict[str, object]:
    """Return a run's facts for JSON, with instants as text."""
    facts = {k: format_instant(v) if k in _INSTANTS else v for k, v in asdict(run_facts).items()}
    return {**facts, "events": run_facts.events, "seconds": run_facts.seconds}


@with_json
def correct(
    asset: Asset,
    show: Annotated[int, typer.Option("--limit", min=0, help="How many changes to list.")] = 20,
) -> Output:
    """Recompute the windows that lack too-late events, and list what changed.

    From then on, these windows count the events, which stay in the late table as a record. A
    correction processes no new arrival. You can run it next to a streaming query.

    Example: `tidemark correct departures_hourly`
    """
    from tidemark.run import runner as run

    home = Home()
    transform = home.asset(asset)
    store = home.warehouse(validates=True)
    with step(f"correct {asset}") as work:
        correction = run.correct(store, transform, max_listed=run.MAX_LISTED_CHANGES)
        work.note = (
            format_count(correction.windows, "window") if correction else "nothing to correct"
        )
    if correction is None:
        message = f"No window of '{asset}' lacks a too-late event: there is nothing to correct."
        return Output(None, lambda: err().print(message))
    data = {**asdict(correction), "facts": as_plain(correction.facts)}
    return Output(data, lambda: _show(asset, correction, show))


def _show(asset: str, correction: "Correction", max_listed: int) -> None:
    title = (
        f"{asset}: {format_count(correction.total, 'value')} of "
        f"{format_count(correction.windows, 'window')} "
        f"changed, for {format_count(correction.facts.too_late, 'event')} that had been too late"
    )
    columns = ("window start", "window end", "keys", "column", "before", "after")
    rows = [
        (c.window_start, c.window_end, format_keys(c.keys), c.column, c.before, c.after)
        for c in correction.changes[:max_listed]
    ]
    print_table(columns, rows, title, more=correction.total - max_listed)
