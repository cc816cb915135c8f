"""`tidemark replay`: reprocess the events since an arrival."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import format_instant, parse_instant
from tidemark_streaming.cli.console import err, format_seconds, print_facts, step
from tidemark_streaming.cli.context import Asset, Home
from tidemark_streaming.cli.output import Output, with_json
from tidemark_streaming.cli.processing.compute import as_plain

if TYPE_CHECKING:
    from tidemark.run.change.replay import ReplayResult


@with_json
def command(
    asset: Asset,
    arrival: Annotated[
        int | None, typer.Option("--from-arrival", min=0, help="The first arrival, by its number.")
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="INSTANT",
            help="The first arrival at this instant of the processing clock, or later (ISO 8601).",
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Write to separate tables, ASSET__NAME, and change no others."
        ),
    ] = None,
    discard: Annotated[
        bool, typer.Option("--discard", help="Delete the tables of --into.")
    ] = False,
) -> Output:
    """Reprocess the events since an arrival by the current definition.

    The windows of these events are recomputed from all arrivals and replaced in one commit. With
    **--into** they go into separate tables, which each replay recreates. You can run it next to a
    streaming query: each event counts once.

    Example: `tidemark replay departures_hourly --since 2013-02-01T06:00 --into tried`
    """
    from tidemark.run.change import replay as run
    from tidemark.store.event_log.log import Log
    from tidemark.store.upkeep.dropping import drop_asset

    if discard and (into is None or arrival is not None or begin is not None):
        raise DefinitionError(
            "--discard deletes the tables of --into NAME, and can't be used with other options."
        )
    if not discard and arrival is None and begin is None:
        raise DefinitionError(
            "Specify where to begin: --from-arrival NUMBER, or --since INSTANT. `tidemark backfill "
            f"{asset}` recomputes all windows."
        )
    if arrival is not None and begin is not None:
        raise DefinitionError("Use either --from-arrival or --since, not both.")
    moment = None if begin is None else parse_instant(begin)
    home = Home()
    transform = home.asset(asset)
    side = None if into is None else run.side_definition(transform, into)
    store = home.warehouse(validates=True)
    if discard and side is not None:
        with step(f"discard {side.name}") as work:
            tables = drop_asset(store, side)
            work.note = format_count(len(tables), "table")
        return Output({"asset": asset, "discarded": tables}, lambda: None)
    since = run.find_first_arrival(Log(store, transform.source), arrival, moment)
    with step(f"replay {asset}") as work:
        if into is None:
            result = run.replay(store, transform, since)
        else:
            result = run.replay_to_side_tables(store, transform, since, into)
        work.note = format_count(result.windows, "window")
    facts = None if result.facts is None else as_plain(result.facts)
    return Output({**asdict(result), "facts": facts}, lambda: _print_result(result))


def _print_result(result: "ReplayResult") -> None:
    if result.facts is None:
        err().print(f"No arrival since {result.since:,} has an event: nothing was computed.")
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
