"""`tidemark maintain` and `tidemark drop`: compact tables, and delete an asset's tables."""

from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tidemark.base.counts import format_count
from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark_streaming.cli.console import (
    ask_confirmation,
    message_console,
    print_table,
    report_step,
    result_console,
)
from tidemark_streaming.cli.context import AssetOrDerived, Home, Yes
from tidemark_streaming.cli.output import Output, with_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidemark.define.tables import TableName
    from tidemark.store.graph import Graph
    from tidemark.store.upkeep.maintenance import MaintenanceResult
    from tidemark.store.warehouse import Warehouse

_UNITS = ("B", "kB", "MB", "GB", "TB")


@with_json
def maintain_tables(
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", help="Tables to maintain; all, if omitted."),
    ] = None,
    retention: Annotated[
        float,
        typer.Option(min=0, metavar="DAYS", help="Keep deleted files for this many days."),
    ] = 7,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what would be done.")
    ] = False,
) -> Output:
    """Compact small files, trim transaction logs, and delete files that no table needs.

    You can run it next to streaming queries: it skips busy tables. It keeps the versions of lookup
    tables that arrivals recorded, and changes that a mart or a streaming query has not read yet.

    Example: `tidemark maintain --dry-run`
    """
    from tidemark.store.upkeep import maintenance

    store = Home().open_warehouse()
    results: list[MaintenanceResult] = []
    with report_step("inspect the tables" if dry_run else "maintain the tables") as work:
        total = len(tables or maintenance.own_tables(store))
        for result in maintenance.maintain_tables(
            store, tables or (), retention=int(retention * maintenance.DAY), dry_run=dry_run
        ):
            results.append(result)
            work.show_count(len(results), total)
            work.show_activity(result.table)
        freed = _format_size(sum(finished.freed for finished in results))
        work.note = f"{format_count(len(results), 'table')}, {freed} freed"
    return Output(
        [asdict(finished) for finished in results],
        lambda: _print_results(results, dry_run=dry_run),
        maintenance.combine_errors(results),
    )


@with_json
def drop_tables(name: AssetOrDerived, yes: Yes = False) -> Output:
    """Delete an asset's tables: state, windows, late events and quarantined rows.

    The event log of its source stays, and so do the records of runs and checks. The next run of the
    asset starts from the first arrival. After that, the next run of a roll-up of the asset replaces
    all windows of the roll-up. For a derived source, such as a join, the command deletes the event
    log, which the next ingest computes again from its bases.

    Tables that no loaded domain defines can be dropped, too. If other tables were computed from
    those to drop, the command lists what to drop first.

    Example: `tidemark drop departures_hourly`
    """
    from tidemark.store.graph import Graph
    from tidemark.store.upkeep.dropping import check_droppable, drop_owner

    home = Home()
    settings = home.settings
    graph = Graph.of_folder(f"{settings.warehouse}/{settings.database}")
    owner = _find_owner(home, graph, name)
    if (blocker := find_blocker(settings, name)) is not None:
        raise DataError(blocker)
    check_droppable(graph, owner)
    if not yes:
        question = f"Delete all tables of '{name}'? Their content will be lost."
        ask_confirmation(f"delete the tables of '{name}'", question, "Nothing was deleted.")
    store = home.open_warehouse()
    with report_step(f"drop {name}") as work, _lock_owner(home, store, owner):
        dropped = drop_owner(store, owner, _defined_tables(home, owner))
        work.note = format_count(len(dropped), "table")
    return Output({"name": name, "dropped": dropped}, lambda: _show_tables(name, dropped))


def _find_owner(home: Home, graph: "Graph", name: str) -> str:
    """Return the owner of the tables to drop: a defined asset or derived source, or one that has
    tables but is no longer defined."""
    from tidemark.define import tables

    if home.find_derived(name) is not None:
        return tables.source_owner(name)
    if name in home.definitions.transforms:
        return tables.asset_owner(name)
    for owner in (tables.asset_owner(name), tables.source_owner(name)):
        node = graph.find_node(owner)
        if node is not None and (node.is_asset or node.is_derived):
            return owner
    return tables.asset_owner(home.find_asset(name).name)


def _defined_tables(home: Home, owner: str) -> "list[TableName]":
    kind, _, name = owner.partition(" ")
    derived = home.find_derived(name)
    if kind == "source":
        if derived is None:
            return []
        return derived.own_tables
    transform = home.definitions.transforms.get(name)
    if transform is None:
        return []
    return transform.own_tables


@contextmanager
def _lock_owner(home: Home, store: "Warehouse", owner: str) -> "Iterator[None]":
    """Wait for an erasure, and keep ingests of a derived source from running, while tables are
    dropped. Nothing can run on tables without a definition."""
    from tidemark.store.log_rewrite import wait_for_rewrite
    from tidemark_streaming.ingest.ingest_record import lock_ingest

    kind, _, name = owner.partition(" ")
    with ExitStack() as locks:
        if kind == "source" and (derived := home.find_derived(name)) is not None:
            locks.enter_context(lock_ingest(store, derived))
        elif (transform := home.definitions.transforms.get(name)) is not None:
            wait_for_rewrite(store, transform.source)
        yield


def _show_tables(name: str, tables: list[str]) -> None:
    for table in tables:
        result_console().print(table)
    if not tables:
        message_console().print(f"'{name}' has no tables: nothing to drop.")


def find_blocker(settings: Settings, asset: str) -> str | None:
    """Return a message that names a process that works on the asset, and how to stop it.

    Return None if no such process is known. Bounded runs in progress are not detected.
    """
    from tidemark_streaming.base import foreground
    from tidemark_streaming.streams import desired_streams

    if asset in desired_streams.read_all(settings):
        return (
            f"The stream of '{asset}' runs or will be restarted, and would fill the tables again: "
            f"first stop it with `tidemark stream {asset} --stop`."
        )
    for running in (c for c in foreground.list_commands(settings) if c.runs):
        command = {
            foreground.STREAM: f"tidemark stream {running.name}",
            foreground.SINK: f"tidemark sink {running.name} --follow",
        }.get(running.kind)
        if command is not None and running.name == asset:
            return _stop_first(command, asset)
        if asset in running.assets:
            runs = "".join(f" --run {run_asset}" for run_asset in running.assets)
            return _stop_first(f"tidemark ingest {running.name} --follow{runs}", asset)
    return None


def _stop_first(command: str, asset: str) -> str:
    return (
        f"`{command}` is working on '{asset}': first stop it, with Ctrl-C or by stopping its "
        "service."
    )


def _print_results(results: "list[MaintenanceResult]", *, dry_run: bool) -> None:
    title = "planned maintenance" if dry_run else "maintenance"
    numbers = ("files before", "after", "files removed", "freed")
    busy = {True: " (busy)", False: ""}
    rows = (
        (
            r.table,
            r.before,
            f"{r.after:,}{busy[r.busy]}",
            r.removed,
            _format_size(r.freed),
            r.spared,
        )
        for r in results
    )
    print_table(("table", *numbers, "retained"), rows, title, right_columns=numbers)


def _format_size(count: float) -> str:
    unit = 0
    while count >= 1000 and unit + 1 < len(_UNITS):
        count = count / 1000
        unit = unit + 1
    if unit:
        return f"{count:.1f} {_UNITS[unit]}"
    return f"{count:.0f} B"
