"""`tidemark replay`: reprocess the events since an arrival."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError
from tidemark.base.instants import instant, iso
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import (
    Json,
    err,
    facts_table,
    format_seconds,
    out,
    print_json,
    step,
)
from tidemark_streaming.cli.context import Asset, warehouse
from tidemark_streaming.cli.processing.compute import as_plain

if TYPE_CHECKING:
    from tidemark.run.change.replay import ReplayResult


def register(app: typer.Typer) -> None:
    """Register the command."""
    app.command("replay")(command)


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
    json: Json = False,
) -> None:
    """Reprocess the events since an arrival by the current definition.

    The windows of these events are recomputed from all arrivals and replaced in one commit. With
    **--into** they go into separate tables, which each replay recreates. You can run it next to a
    streaming query: each event counts once.

    Example: `tidemark replay departures_hourly --since 2013-02-01T06:00 --into tried`
    """
    from tidemark.quality import gx
    from tidemark.run.change import replay as run
    from tidemark.store.event_log.log import Log
    from tidemark.store.upkeep.dropping import drop
    from tidemark_streaming.home import domains

    if discard and (into is None or arrival is not None or begin is not None):
        raise DefinitionError(
            "--discard deletes the tables of --into NAME, and can't be used with other options."
        )
    if not discard and (arrival is None) == (begin is None):
        raise DefinitionError("Use either --from-arrival or --since, and not both.")
    moment = None if begin is None else instant(begin)
    settings = Settings()
    transform = domains.transform(settings, asset)
    side = None if into is None else run.side_definition(transform, into)
    store = warehouse(settings, while_starting=gx.import_library)
    if discard and side is not None:
        with step(f"discard {side.name}") as work:
            tables = drop(store, side)
            work.note = format_count(len(tables), "table")
        if json:
            print_json({"asset": asset, "discarded": tables})
        return
    since = run.find_first_arrival(Log(store, transform.source), arrival, moment)
    with step(f"replay {asset}") as work:
        if into is None:
            done = run.replay(store, transform, since)
        else:
            done = run.replay_to_side_tables(store, transform, since, into)
        work.note = format_count(done.windows, "window")
    if json:
        print_json({**asdict(done), "facts": None if done.facts is None else as_plain(done.facts)})
    else:
        _print_result(done)


def _print_result(done: "ReplayResult") -> None:
    if done.facts is None:
        err().print(f"No arrival since {done.since:,} has an event: nothing was computed.")
        return
    start, end = iso(done.facts.window_from), iso(done.facts.window_to)
    rows: dict[str, object] = {
        "table": done.table,
        "arrivals": f"{done.since:,} to {done.through:,}",
        "windows": f"{done.windows:,}",
        "window starts": "anywhere" if start is None else f"from {start} to {end}",
        "took": format_seconds(done.facts.seconds),
    }
    if done.quarantined:
        rows["quarantined"] = f"{done.quarantined:,}"
    out().print(facts_table("", rows))
