"""`tidemark diff` and `tidemark rebuild`: compare and apply changed definitions."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tidemark.base.counts import format_count
from tidemark.base.errors import DefinitionError
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import NONE, Json, facts_table, out, print_json, step
from tidemark_streaming.cli.context import Asset, From, To, parse_range, resolve_windows, warehouse
from tidemark_streaming.cli.processing.compute import as_plain, show_run

if TYPE_CHECKING:
    from tidemark.run.change.rebuild import RebuildStatus
    from tidemark.verify.changes import Changes


def register(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("diff")(changes)
    app.command("rebuild")(rebuild)


def changes(
    asset: Asset,
    begin: From = None,
    end: To = None,
    most: Annotated[int, typer.Option("--limit", min=0, help="How many values to list.")] = 20,
    json: Json = False,
) -> None:
    """Compare an asset's definition with the one that made its tables, and list the windows that
    would change.

    The command computes the windows by the new definition and compares them with the published
    ones. It writes nothing. If the event log is large, specify a range.

    Example: `tidemark diff departures_hourly --from 2013-02-01 --to 2013-02-08`
    """
    from tidemark.verify import changes as verify
    from tidemark_streaming.home import domains

    first, last = parse_range(begin, end)
    settings = Settings()
    transform = domains.transform(settings, asset)
    store = warehouse(settings)
    span = resolve_windows(store, transform.source, transform.window.max_extent, first, last)
    with step(f"compare definitions of {asset}") as work:
        start, stop = span or (None, None)
        found = verify.compute_changes(store, transform, start, stop, most=most)
        work.note = f"{format_count(found.windows, 'row')} compared" if found.windows else ""
    if json:
        print_json({"same": found.same, **asdict(found)})
    else:
        print_changes(found)


def print_changes(found: "Changes") -> None:
    """Print the differences, and the rows that would change."""
    from tidemark.verify.changes import EFFECT_TEXTS

    if found.same:
        out().print(
            f"[green]the same[/]: the tables of '{found.asset}' were made by the definition in "
            "the code."
        )
        return
    if found.differences:
        table = Table(title=f"{found.asset}: differences", title_justify="left")
        for name in ("part", "in the tables", "in the code"):
            table.add_column(name)
        for c in found.differences:
            table.add_row(c.part, c.before or NONE, c.after or NONE)
        out().print(table)
        out().print(EFFECT_TEXTS[found.effect].format(asset=found.asset), markup=False)
    if found.earlier_through is not None:
        out().print(
            f"Events through arrival {found.earlier_through:,} were computed by an earlier "
            "definition."
        )
    if found.effect == "none" and found.earlier_through is None:
        return
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.rows.items()) or "none"
    out().print(
        f"Of {format_count(found.windows, 'row')} through arrival {found.as_of:,}: {kinds}."
    )
    if found.earliest is not None:
        out().print(f"Their windows start from {found.earliest} to {found.latest}.")
    for column, count in found.columns.items():
        of = "in every row" if count is None else format_count(count, "value")
        out().print(f"[bold]{column}[/]: {of}")
    if found.examples:
        table = Table()
        for name in ("window start", "keys", "", "column", "before", "after"):
            table.add_column(name)
        for e in found.examples:
            keys = ", ".join(f"{k}={v}" for k, v in e.keys.items())
            table.add_row(
                e.window_start, keys, e.kind, e.column or "", e.before or NONE, e.after or NONE
            )
        out().print(table)


def rebuild(
    asset: Asset,
    promote: Annotated[
        bool, typer.Option("--promote", help="Replace the published tables with the rebuilt ones.")
    ] = False,
    rollback: Annotated[
        bool,
        typer.Option("--rollback", help="Restore the tables from before the last promotion."),
    ] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="Delete the rebuilt tables and the backup.")
    ] = False,
    keep_backup: Annotated[
        bool,
        typer.Option(
            "--keep-backup/--no-backup",
            help="Keep the replaced tables, for --rollback.",
            show_default=False,
        ),
    ] = True,
    json: Json = False,
) -> None:
    """Recompute an asset's tables by its current definition, next to the published ones.

    Its streaming query continues by the earlier definition. `tidemark diff` shows the differences.
    **--promote** processes what arrived since and replaces the published table in one commit.
    **--rollback** restores the previous tables, which are kept for seven days.

    Example: `tidemark rebuild departures_hourly`
    """
    from tidemark.quality import gx
    from tidemark.run.change import rebuild as run
    from tidemark_streaming.home import domains

    if promote + rollback + discard > 1:
        raise DefinitionError("Use at most one of --promote, --rollback and --discard.")
    if not keep_backup and not promote:
        raise DefinitionError("--no-backup requires --promote.")
    settings = Settings()
    transform = domains.transform(settings, asset)
    store = warehouse(settings, while_starting=gx.import_library)
    if discard:
        with step(f"discard rebuilt tables of {asset}") as work:
            tables = run.discard(store, transform)
            work.note = format_count(len(tables), "table")
        if json:
            print_json({"asset": asset, "discarded": tables})
        return
    if not promote and not rollback:
        with step(f"rebuild {asset}") as work:
            made = run.rebuild(store, transform)
            work.note = format_count(made.windows, "window")
        print_json(asdict(made)) if json else _print_rebuilt(made)
        return
    with step(f"{'promote' if promote else 'roll back'} {asset}") as work:
        if promote:
            done = run.promote(store, transform, keep_backup=keep_backup)
        else:
            done = run.roll_back(store, transform)
        work.note = format_count(done.windows, "window")
    print_json(as_plain(done)) if json else show_run(done)


def _print_rebuilt(made: "RebuildStatus") -> None:
    rows: dict[str, object] = {
        "rebuilt tables": ", ".join(made.tables),
        "through arrival": f"{made.through:,} ({made.asset} is at {made.current:,})",
        "windows": f"{made.windows:,}",
    }
    if made.quarantined:
        rows["quarantined"] = f"{made.quarantined:,}"
    out().print(facts_table("", rows))
    out().print(
        f"`tidemark diff {made.asset}` shows the differences. `tidemark rebuild {made.asset} "
        "--promote` publishes the rebuilt tables.",
        markup=False,
    )
