"""`tidemark fsck`: check that the tables of a home are consistent, and repair them."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError
from tidemark_streaming.cli.console import err, out, print_table, step
from tidemark_streaming.cli.context import Home
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from tidemark.store.integrity import Damage

_DAMAGED = 1
"""The exit code if something is damaged."""


@with_json
def fsck(
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Restore the newest consistent commits. Stop runs first."),
    ] = False,
) -> Output:
    """Check that no table lacks a commit or a data file, for example after a power cut or in a copy
    of a live home.

    It compares event logs with their timelines, and states with published tables, from transaction
    logs and file sizes alone, without the engine. `ingest` and `run` do the same for their own
    tables and refuse to work on damaged ones; `status` shows damaged tables.

    `--repair` may remove arrivals from an event log; the next ingest reads them again if the source
    still has their data. The next runs recompute damaged assets from the event log.

    Example: `tidemark fsck`
    """
    home = Home()
    if repair:
        return _repair(home)
    with step("check the tables") as work:
        found = home.find_damage()
        work.note = f"{len(found)} damaged" if found else "they are consistent"
    return Output(
        [asdict(damage) for damage in found],
        lambda: _show(found),
        typer.Exit(_DAMAGED) if found else None,
    )


def _show(found: "list[Damage]") -> None:
    if found:
        rows = ((damage.table, damage.asset, damage.problem) for damage in found)
        print_table(("table", "asset", "problem"), rows, "damaged tables")
        err().print(
            "Restore the home from a backup, or run `tidemark fsck --repair`, which moves the "
            "tables back to the newest commits that belong together."
        )


def _repair(home: Home) -> Output:
    from tidemark.store.upkeep.repair import repair
    from tidemark_streaming.base import foreground
    from tidemark_streaming.streams import desired_streams

    settings, known = home.settings, home.known
    busy = [
        *desired_streams.read_all(settings),
        *(c.name for c in foreground.commands(settings) if c.runs),
    ]
    if busy:
        raise DataError(
            f"Streams or commands are running on {', '.join(busy)}: stop them before a repair."
        )
    with step("repair the tables") as work:
        folder = f"{settings.warehouse}/{settings.database}"
        done = [*repair(folder, [*known.all_sources()], [*known.transforms.values()])]
        work.note = format_count(len(done), "step")

    def show() -> None:
        for message in done:
            out().print(message)
        if not done:
            err().print("Nothing is damaged.")

    return Output(done, show)
