"""`tidemark backfill`: recompute windows that a run has computed before."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import format_instant
from tidemark_streaming.cli.console import (
    format_keys,
    format_seconds,
    message_console,
    print_facts,
    print_table,
    report_step,
)
from tidemark_streaming.cli.context import (
    Asset,
    From,
    Home,
    To,
    parse_optional_instant,
    parse_range,
    resolve_windows,
)
from tidemark_streaming.cli.output import Output, with_json
from tidemark_streaming.cli.processing.run_report import report_run, to_json

if TYPE_CHECKING:
    from tidemark.run.change.replay import ReplayResult
    from tidemark.run.correction import Correction

LateEvents = Literal["exclude", "include"]


@dataclass(frozen=True)
class _Choice:
    """The windows to recompute: the values of the command's options."""

    begin: str | None = None
    end: str | None = None
    late_events: LateEvents = "exclude"
    too_late: bool = False
    since_arrival: int | None = None
    arrived_from: str | None = None
    into: str | None = None

    @property
    def has_range(self) -> bool:
        return self.begin is not None or self.end is not None

    @property
    def has_arrival(self) -> bool:
        return self.since_arrival is not None or self.arrived_from is not None

    def check_options(self) -> None:
        """Raise a DefinitionError if options can't be used together."""
        if self.since_arrival is not None and self.arrived_from is not None:
            raise DefinitionError("Use either --since-arrival or --arrived-from, not both.")
        if self.has_range + self.has_arrival + self.too_late > 1:
            raise DefinitionError(
                "Choose the windows in one way: by --from and --to, by --since-arrival or "
                "--arrived-from, or by --too-late."
            )
        if self.late_events == "include" and (self.has_arrival or self.too_late):
            raise DefinitionError(
                "--late-events include is for all windows, or for those of --from and --to: omit "
                "it. --too-late always includes the events that arrived too late."
            )
        if self.into is not None and not self.has_arrival:
            raise DefinitionError(
                "--into requires --since-arrival or --arrived-from, which choose the windows that "
                "go into separate tables."
            )


@with_json
def backfill_windows(
    asset: Asset,
    begin: From = None,
    end: To = None,
    late_events: Annotated[
        LateEvents,
        typer.Option(
            help="**exclude** counts the same events as a streaming query; **include** also "
            "counts the events that arrived too late."
        ),
    ] = "exclude",
    too_late: Annotated[
        bool,
        typer.Option(
            "--too-late",
            help="Only the windows that lack too-late events: count these events, and list what "
            "changed.",
        ),
    ] = False,
    limit: Annotated[
        int, typer.Option(min=0, help="How many changes to list with --too-late.")
    ] = 20,
    since_arrival: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Only the windows of the events since arrival number N."
        ),
    ] = None,
    arrived_from: Annotated[
        str | None,
        typer.Option(
            metavar="DATE",
            help="Only the windows of the events that arrived at this instant or later (ISO 8601).",
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Write the windows of --since-arrival or --arrived-from to separate tables, "
            "ASSET__NAME, and change no others.",
        ),
    ] = None,
    discard: Annotated[
        bool, typer.Option("--discard", help="Delete the tables of --into.")
    ] = False,
) -> Output:
    """Recompute windows from the event log and replace them: all windows, or some of them.

    You can run it while a streaming query works on the same windows: each event counts once. An
    event that **--too-late** counted stays in the late table as a record. **--into** shows what a
    changed definition would give: each backfill recreates these tables.

    Example: `tidemark backfill orders_hourly --from 2026-01-01 --to 2026-02-01`
    """
    choice = _Choice(
        begin=begin,
        end=end,
        late_events=late_events,
        too_late=too_late,
        since_arrival=since_arrival,
        arrived_from=arrived_from,
        into=into,
    )
    if discard:
        if into is None or choice != _Choice(into=into):
            raise DefinitionError(
                "--discard deletes the tables of --into NAME, and can't be used with other options."
            )
        return _discard_tables(asset, into)
    choice.check_options()
    if too_late:
        return _include_too_late(asset, limit)
    if choice.has_arrival:
        return _recompute_since(asset, choice)
    return _recompute_range(asset, choice)


def _recompute_range(asset: str, choice: _Choice) -> Output:
    """Recompute all windows, or those that start in a range."""
    from tidemark.run import runner

    begin, end = parse_range(choice.begin, choice.end)
    home = Home()
    transform = home.find_asset(asset)
    store = home.open_warehouse(validates=True)
    start, stop = resolve_windows(store, transform, begin, end)
    with report_step(f"backfill {asset}") as work:
        facts = runner.backfill(store, transform, start, stop, late_events=choice.late_events)
        work.note = format_count(facts.events, "event")
    return report_run(facts)


def _recompute_since(asset: str, choice: _Choice) -> Output:
    """Recompute the windows that contain an event since an arrival."""
    from tidemark.run.change import replay
    from tidemark.store.event_log.log import Log

    moment = parse_optional_instant(choice.arrived_from)
    home = Home()
    transform = home.find_asset(asset)
    if choice.into is not None:
        # Refuse an invalid name before the engine starts.
        replay.side_definition(transform, choice.into)
    store = home.open_warehouse(validates=True)
    log = Log(store, transform.source)
    since = replay.find_first_arrival(log, choice.since_arrival, moment)
    with report_step(f"backfill {asset}") as work:
        if choice.into is None:
            result = replay.replay_windows(store, transform, since)
        else:
            result = replay.replay_to_side_tables(store, transform, since, choice.into)
        work.note = format_count(result.windows, "window")
    facts = None if result.facts is None else to_json(result.facts)
    return Output({**asdict(result), "facts": facts}, lambda: _print_replay(result))


def _discard_tables(asset: str, into: str) -> Output:
    """Delete the separate tables of an earlier backfill."""
    from tidemark.run.change import replay
    from tidemark.store.upkeep.dropping import drop_asset

    home = Home()
    side = replay.side_definition(home.find_asset(asset), into)
    store = home.open_warehouse()
    with report_step(f"discard {side.name}") as work:
        tables = drop_asset(store, side)
        work.note = format_count(len(tables), "table")
    return Output({"asset": asset, "discarded": tables}, lambda: None)


def _include_too_late(asset: str, limit: int) -> Output:
    """Recompute the windows that lack too-late events, and count these events."""
    from tidemark.run import runner

    home = Home()
    transform = home.find_asset(asset)
    store = home.open_warehouse(validates=True)
    with report_step(f"backfill {asset}") as work:
        correction = runner.correct(store, transform, max_listed=runner.MAX_LISTED_CHANGES)
        if correction is None:
            work.note = "nothing to correct"
        else:
            work.note = format_count(correction.windows, "window")
    if correction is None:
        message = f"No window of '{asset}' lacks a too-late event: there is nothing to correct."
        return Output(None, lambda: message_console().print(message))
    data = {**asdict(correction), "facts": to_json(correction.facts)}
    return Output(data, lambda: _print_correction(asset, correction, limit))


def _print_replay(result: "ReplayResult") -> None:
    if result.facts is None:
        message_console().print(
            f"No arrival since {result.since:,} has an event: nothing was computed."
        )
        return
    start = format_instant(result.facts.window_from)
    end = format_instant(result.facts.window_to)
    rows: dict[str, object] = {
        "table": result.table,
        "arrivals": f"{result.since:,} to {result.through:,}",
        "windows": f"{result.windows:,}",
        "window starts": "anywhere" if start is None else f"from {start} to {end}",
        "took": format_seconds(result.facts.seconds),
    }
    if result.quarantined:
        rows["quarantined"] = f"{result.quarantined:,}"
    print_facts(rows)


def _print_correction(asset: str, correction: "Correction", limit: int) -> None:
    values = format_count(correction.total, "value")
    windows = format_count(correction.windows, "window")
    events = format_count(correction.facts.too_late, "event")
    title = f"{asset}: {values} of {windows} changed, for {events} that had been too late"
    columns = ("window start", "window end", "keys", "column", "before", "after")
    rows = [
        (c.window_start, c.window_end, format_keys(c.keys), c.column, c.before, c.after)
        for c in correction.changes[:limit]
    ]
    print_table(columns, rows, title, more=correction.total - limit)
