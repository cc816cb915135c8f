"""`tidemark fsck`: check that the tables of a home belong together, and repair them."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import NONE, Json, err, out, print_json, step

if TYPE_CHECKING:
    from tidemark_streaming.home.domains import Domains

DAMAGED = 1
"""The exit code if something is damaged."""


def register(app: typer.Typer) -> None:
    """Register the command."""
    app.command("fsck")(fsck)


def fsck(
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Restore the newest consistent commits. Stop runs first."),
    ] = False,
    json: Json = False,
) -> None:
    """Check that no table lacks a commit or a data file, for example after a power cut or in a copy
    of a live home.

    It compares event logs with their timelines, and states with published tables, from transaction
    logs and file sizes alone, without the engine. `ingest`, `run` and `status` do the same for
    their own tables and refuse to work on damaged ones.

    With `--repair` an ingest reads again what its source still has, and the next runs recompute
    damaged assets from the event log.

    Example: `tidemark fsck`
    """
    from tidemark.store import integrity
    from tidemark_streaming.home import domains

    settings = Settings()
    known = domains.load(settings.domains)
    folder = f"{settings.warehouse}/{settings.database}"
    if repair:
        _repair(settings, known, folder, json=json)
        return
    with step("check the tables") as work:
        found = integrity.check(folder, known.all_sources(), known.transforms.values())
        work.note = f"{len(found)} damaged" if found else "they are consistent"
    if json:
        print_json([asdict(damage) for damage in found])
    elif found:
        table = Table(title="damaged tables", title_justify="left")
        for name in ("table", "asset", "problem"):
            table.add_column(name)
        for damage in found:
            table.add_row(damage.table, damage.asset or NONE, damage.problem)
        out().print(table)
        err().print(
            "Restore the home from a backup, or run `tidemark fsck --repair`, which moves the "
            "tables back to the newest commits that belong together."
        )
    if found:
        raise typer.Exit(DAMAGED)


def _repair(settings: Settings, known: "Domains", folder: str, *, json: bool) -> None:
    from tidemark.store.upkeep.repair import repair
    from tidemark_streaming.base import foreground
    from tidemark_streaming.streams import desired_streams

    busy = [
        *desired_streams.read_all(settings),
        *(c.name for c in foreground.commands(settings) if c.runs),
    ]
    if busy:
        raise DataError(
            f"Streams or commands are running on {', '.join(busy)}: stop them before a repair."
        )
    with step("repair the tables") as work:
        done = [*repair(folder, [*known.all_sources()], [*known.transforms.values()])]
        work.note = format_count(len(done), "step")
    if json:
        print_json(done)
        return
    for sentence in done:
        out().print(sentence)
    if not done:
        err().print("Nothing is damaged.")
